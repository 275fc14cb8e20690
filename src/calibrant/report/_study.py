"""Results of a study by setting and metric, as data for the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import refuse
from calibrant.calibrators import UNCALIBRATED
from calibrant.metrics import CALIBRATION_ERROR, METRICS
from calibrant.report._html import clean
from calibrant.report._page import packed
from calibrant.results import summarise_runs

if TYPE_CHECKING:
    import pyarrow as pa

DIMENSIONS = {
    "data": "data",
    "model": "network",
    "objective": "objective",
    "calibrator": "calibrator",
    "part": "samples",
}
TEST, CALIBRATION, TEMPERATURE = "test", "calibration", "temperature"
MOST_ROWS = 50_000
RowKey = tuple[str, ...]


@dataclass(frozen=True)
class StudyCells:
    """Values by row (data, model, objective, calibrator, part) and metric, one per seed."""

    rows: tuple[RowKey, ...]
    metrics: tuple[str, ...]
    values: Mapping[tuple[RowKey, str], Mapping[int, float]]

    def of(self, row: RowKey, metric: str) -> Float64:
        """The values over seeds, in the order of the seeds; empty where there are none."""
        found = self.values.get((row, metric), {})
        return np.array([found[seed] for seed in sorted(found)])

    def seeds(self, row: RowKey) -> set[int]:
        """The seeds of a row."""
        return {seed for metric in self.metrics for seed in self.values.get((row, metric), ())}


def cells_of(table: pa.Table) -> StudyCells:
    """Arrange a tidy table; refuses two values of one cell and seed.

    A fitted temperature belongs to every part, as a column of its own.
    """
    values: dict[tuple[RowKey, str], dict[int, float]] = {}
    temperatures: dict[RowKey, dict[int, float]] = {}
    for record in table.to_pylist():
        row = tuple(clean(record[name]) for name in DIMENSIONS)
        cell = values.setdefault((row, record["metric"]), {})
        if row[-1] == CALIBRATION:
            cell = temperatures.setdefault(row[:-1], {})
            del values[row, record["metric"]]
        if record["seed"] in cell:
            got = f"got two of {', '.join(row)} for seed {record['seed']}"
            rule, advice = (
                "must have one value per seed for each setting",
                "Name the study with study=…, or use one results folder per study.",
            )
            raise refuse("folder", rule, got, advice)
        cell[record["seed"]] = float(record["value"])
    rows = sorted({row for row, _ in values}, key=_natural)
    found = dict.fromkeys(metric for _, metric in values)
    # The ECE first: it must be on the screen without scrolling.
    metrics = sorted(found, key=lambda metric: metric != CALIBRATION_ERROR)
    if temperatures:
        metrics.append(TEMPERATURE)
        for row in rows:
            if row[:-1] in temperatures:
                values[row, TEMPERATURE] = temperatures[row[:-1]]
    if len(rows) > MOST_ROWS:
        rule = f"must hold at most {MOST_ROWS:,} settings"
        raise refuse("folder", rule, f"got {len(rows):,}", "Report parts of the study.")
    return StudyCells(tuple(rows), tuple(metrics), values)


def _natural(row: RowKey) -> list[Any]:
    """Sort key: the uncalibrated model and the test samples first, numbers as numbers."""
    return [
        (text not in (UNCALIBRATED, TEST), re.sub(r"\d+", lambda digits: digits[0].zfill(20), text))
        for text in row
    ]


# --- data -------------------------------------------------------------------------------------


def data_of_study(cells: StudyCells) -> dict[str, Any]:
    """What the scripts of the page need: codes of names, means and spreads by metric."""
    columns = list(zip(*cells.rows, strict=True))
    parts = sorted(set(columns[-1]), key=lambda name: _natural((name,)))
    dimensions = []
    for (key, label), column in zip(DIMENSIONS.items(), columns, strict=True):
        names = sorted(set(column), key=lambda name: _natural((name,)))
        number = {name: i for i, name in enumerate(names)}
        codes = packed([number[name] for name in column], "u4")
        dimensions.append({"key": key, "label": label, "names": names, "codes": codes})
    metrics = []
    for key in cells.metrics:
        found = [_mean_and_spread(cells.of(row, key)) for row in cells.rows]
        known = METRICS.get(key)
        metrics.append(
            {
                "key": key,
                "label": key if known is None else known.label,
                "percent": known is not None and known.percent,
                "better": "neither" if known is None else known.better,
                "mean": packed([mean for mean, _ in found], "f8"),
                "spread": packed([spread for _, spread in found], "f8"),
            }
        )
    seeds = packed([len(cells.seeds(row)) for row in cells.rows], "u4")
    return {
        "dimensions": dimensions,
        "metrics": metrics,
        "seeds": seeds,
        "families": families(parts),
    }


def _mean_and_spread(values: Float64) -> tuple[float, float]:
    if not len(values):
        return math.nan, math.nan
    found = summarise_runs(values)
    return found.mean, found.std


def families(parts: Sequence[str]) -> list[dict[str, Any]]:
    """Shifted parts in their order: those with a level behind a slash, and the rest as names.

    >>> families(["test", "fog/1", "fog/3", "new"])[0]
    {'name': 'fog', 'parts': ['test', 'fog/1', 'fog/3'], 'levels': [0, 1, 3]}
    """
    first = [part for part in parts if part == TEST]
    levels: dict[str, list[tuple[int, str]]] = {}
    for part in parts:
        match = re.fullmatch(r"(.+)/(\d{1,9})", part)
        if match:
            levels.setdefault(match[1], []).append((int(match[2]), part))
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "parts": [*first, *(part for _, part in sorted(some))],
            "levels": [*(0 for _ in first), *(level for level, _ in sorted(some))],
        }
        for name, some in levels.items()
    ]
    leveled = {part for some in levels.values() for _, part in some}
    rest = [part for part in parts if part not in leveled and part != TEST]
    if rest:
        found.append({"name": "other sets", "parts": [*first, *rest], "levels": None})
    return found
