"""How ECE depends on bins and samples, and what temperatures do, over public networks.

The tables of docs/which.md that need evidence/networks.csv only; intervals are over networks.
"""

from __future__ import annotations

import csv
from collections import defaultdict

from calibrant.results import summarise_runs
from common import markdown
from evidence import FOLDER
from findings import differ
from networks import BINS, SIZES

ByNetwork = dict[object, float]


def measures() -> dict[tuple[str, str, str], ByNetwork]:
    """Values by part, calibrator and metric, and by network."""
    found: dict[tuple[str, str, str], ByNetwork] = defaultdict(dict)
    with (FOLDER / "networks.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = row["part"], row["calibrator"], row["metric"]
            found[place][row["data"], row["network"]] = float(row["value"])
    return found


def shown(values: ByNetwork) -> str:
    over = summarise_runs([100 * value for value in values.values()])
    return f"{over.mean:.2f} ({over.low:.2f} to {over.high:.2f})"


def ece_depends() -> str:
    """ECE by bins and by samples: mean over networks, and within networks the difference."""
    found = measures()
    kinds = [
        *((f"{bins} bins", f"ece, {bins} bins", "ece, 15 bins") for bins in BINS),
        *((f"{n:,} samples", f"ece, {n} samples", f"ece, {SIZES[-1]} samples") for n in SIZES),
    ]
    rows = []
    for name, metric, base in kinds:
        here, there = found["test", "none", metric], found["test", "none", base]
        gap = "–" if metric == base else differ(here, there, 100).shown(2)
        rows.append([name, str(len(here)), shown(here), gap])
    head = ["", "networks", "ECE %", f"minus 15 bins, or {SIZES[-1]:,} samples, in points"]
    return markdown(head, rows)


def temperatures() -> str:
    """What scaling by soft-binned ECE instead of likelihood changes, and equation 9's residual."""
    found = measures()
    texts = []
    for part, words in (("test", "on test samples"), ("shift", "under the natural shift")):
        for metric, name in (("ece", "ECE, 15 bins"), ("ece_l2_mass", "ECE, L2, equal mass")):
            soft, plain = (
                found[part, calibrator, metric]
                for calibrator in ("temperature_soft_ece", "temperature")
            )
            gap = differ(soft, plain, 100)
            texts.append(f"{name} {words} {gap.shown(2)} points ({gap.count} networks): {gap.word}")
    residual = found["test", "none", "equation9_residual"]
    below = found["test", "none", "underconfident_part"]
    return (
        f"A temperature fitted by soft-binned ECE, minus one fitted by likelihood. "
        f"{'; '.join(texts)}. What equation 9 of singh2021 misses of the ECE: {shown(residual)} "
        f"points on {len(residual)} networks; mean confidence minus accuracy misses "
        f"{shown(below)}."
    )
