"""Evidence from the predictions of public pretrained networks: claims that need no training.

``networks.csv`` has one row per measure and network (``benchmarks/networks.py`` writes it). Each
network is a setting with one value, so that intervals are over networks.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from calibrant._core.checks import refuse
from calibrant.papers._evidence import Evidence, EvidenceKey, Label, SeedMean
from calibrant.papers._scales import NETWORKS, Place

FILE = "networks.csv"
NETWORK_COLUMNS = ("data", "network", "part", "calibrator", "metric", "value")
_PLAIN = "cross_entropy"  # how the networks were trained
# Metric and calibrator in the file, and what they are in a paper: paper, metric, calibrator.
_ASKED: dict[tuple[str, str], tuple[str, str, str]] = {
    ("auroc", "none"): ("singh2021", "auroc", "none"),
    ("auroc", "temperature_fixed"): ("singh2021", "auroc", "temperature"),
    ("auroc", "histogram"): ("singh2021", "auroc", "histogram"),
    ("overconfident_bins", "none"): ("singh2021", "overconfident_bins", "none"),
    ("ece_l2_mass", "temperature"): ("karandikar2021", "ece", "temperature"),
    ("ece_l2_mass", "temperature_soft_ece"): ("karandikar2021", "ece", "temperature_soft_ece"),
    ("few_over_all", "temperature"): ("wang2021", "few_over_all", "temperature"),
    ("few_over_all", "histogram"): ("wang2021", "few_over_all", "histogram"),
}
_FIGURES = ("overconfident_bins", "few_over_all")


def evidence_at(out: str | Path, scale: str) -> Evidence:
    """The evidence of a scale in a folder, of public networks, or of tuned runs.

    ``scale`` is one of ``SCALES``, "networks" or "tuned".
    """
    return network_evidence(out) if scale == NETWORKS else Evidence.measured(out, scale)


def network_evidence(out: str | Path) -> Evidence:
    """What the predictions of public pretrained networks show.

    Parameters
    ----------
    out
        Folder with ``networks.csv``.
    """
    path = Path(out) / FILE
    if not path.is_file():
        advice = "Write it with benchmarks/networks.py."
        raise refuse("results", f"must be a folder with {FILE}", f"got {out}", advice)
    with path.open(encoding="utf-8", newline="") as file:
        cells = dict(cell for row in csv.DictReader(file) for cell in _cells(row, str(path)))
    return Evidence(cells, "the predictions of public networks")


def _cells(row: Mapping[str, str], where: str) -> Iterator[tuple[EvidenceKey, SeedMean]]:
    """The cell of a row, if a claim asks for it."""
    try:
        data, network, part, calibrator, metric, text = (row[name] for name in NETWORK_COLUMNS)
        value = float(text)
    except (KeyError, TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        rule = f"must have the columns {', '.join(NETWORK_COLUMNS)} with finite values"
        raise refuse(where, rule, f"got {dict(row)}", "Write it again.")
    if (metric, calibrator) in _ASKED:
        paper, name, label = _ASKED[metric, calibrator]
        kind = "figures" if name in _FIGURES else "main" if part == "test" else part
        key = EvidenceKey(paper, kind, Place(data, network, part), name, Label(_PLAIN, label))
        yield key, SeedMean(value)
