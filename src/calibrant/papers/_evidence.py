"""Evidence on the claims of the papers: published or measured numbers.

A cell is a number of one method (after one calibrator) in one setting: its values by seed if it was
measured here, its mean and spread if it was printed. Fractions throughout, temperatures as they
are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibrant._core.checks import refuse
from calibrant.papers._collected import Collected, results_of
from calibrant.papers._published import PUBLISHED, published
from calibrant.papers._results import Results
from calibrant.papers._run_measures import record_cells
from calibrant.papers._scales import (
    CALIBRATOR_LABELS,
    TUNED,
    Place,
    method_name,
    paper_at,
    tuned_at,
)
from calibrant.papers._value_measures import value_cells
from calibrant.study import Run

# How often each paper trained a network; what has no spread in print is one run.
_RUNS = {"wang2021": 5, "singh2021": 3, "mukhoti2020": 1, "karandikar2021": 10}
# Table 1 of karandikar2021 repeats cells of its table 2.
_REPEATED = {("karandikar2021", "table1")}
_KINDS = {("singh2021", "table3"): "shift", ("singh2021", "table4"): "confidnet"}
# Shifted data are a part of the setting whose networks they were shown to.
_TRAINED_ON = {"cifar10.1": "cifar10", "cifar10.2": "cifar10", "imagenet-v2": "imagenet"}
_METRICS = (
    "ece",
    "accuracy",
    "error",
    "auroc",
    "brier",
    "mean_entropy",
    "adaptive_ece",
    "classwise_ece",
)


class Label(NamedTuple):
    """Which method, and which calibrator after it, a value belongs to."""

    method: str
    calibrator: str = "none"


class EvidenceKey(NamedTuple):
    """What a cell is about.

    ``kind`` is the question its runs answer: "main" for tables, "shift", "confidnet", or "figures"
    for what is computed from the records of runs.
    """

    paper: str
    kind: str
    place: Place
    metric: str
    label: Label


@dataclass(frozen=True)
class SeedMean:
    """One number: values by seed, or mean, standard deviation and number of runs.

    Examples
    --------
    >>> SeedMean.of({0: 0.25, 1: 0.75}).mean
    0.5
    >>> SeedMean(0.03, 0.002, 5).seeds is None
    True
    """

    mean: float
    std: float = math.nan
    count: int = 1
    seeds: Mapping[int, float] | None = None

    @classmethod
    def of(cls, seeds: Mapping[int, float]) -> SeedMean:
        """From values by seed."""
        values = np.array(list(seeds.values()))
        count = len(values)
        mean = float(values.sum() / count)
        gaps = values - mean  # not np.std, which takes four times as long for a few values
        std = math.sqrt((gaps * gaps).sum() / (count - 1)) if count > 1 else math.nan
        return cls(mean, std, count, dict(seeds))


class Evidence:
    """Cells by key.

    Parameters
    ----------
    cells
        By :class:`EvidenceKey`.
    source
        Where they come from, in words: "the published tables".

    Examples
    --------
    >>> evidence = Evidence.published()
    >>> place = Place("cifar10", "resnet32")
    >>> cells = evidence.at("wang2021", "main", "ece")[place]
    >>> cells[Label("cross_entropy")].mean, cells[Label("cross_entropy")].count
    (0.0643, 5)
    """

    def __init__(self, cells: Mapping[EvidenceKey, SeedMean], source: str) -> None:
        self.cells, self.source = dict(cells), source

    def at(self, paper: str, kind: str, metric: str) -> dict[Place, dict[Label, SeedMean]]:
        """Cells of a metric by place and label, in the order in which they were found."""
        return self._by_metric.get((paper, kind, metric), {})

    @cached_property
    def repeated(self) -> bool:
        """Whether runs were repeated with other seeds."""
        return any(len(cell.seeds or ()) > 1 for cell in self.cells.values())

    @cached_property
    def _by_metric(self) -> dict[tuple[str, str, str], dict[Place, dict[Label, SeedMean]]]:
        found: dict[tuple[str, str, str], dict[Place, dict[Label, SeedMean]]] = {}
        for key, cell in self.cells.items():
            places = found.setdefault((key.paper, key.kind, key.metric), {})
            places.setdefault(key.place, {})[key.label] = cell
        return found

    @classmethod
    def published(cls) -> Evidence:
        """What the papers print."""
        cells: dict[EvidenceKey, SeedMean] = {}
        for paper, tables in PUBLISHED.items():
            for table in tables:
                if (paper, table) not in _REPEATED:
                    kind = _KINDS.get((paper, table), "main")
                    for row in published(paper, table).to_pylist():
                        cells.update(_printed(paper, kind, row))
        return cls(cells, "the published tables")

    @classmethod
    def measured(cls, out: str | Path, scale: str) -> Evidence:
        """What the finished runs of a scale show.

        One of our settings that stands for several published ones counts once, and of several that
        stand for one each counts. What is missing gives no cells.

        Parameters
        ----------
        out
            Folder that ``calibrant papers run`` wrote, or one of collected results (``evidence``).
        scale
            One of ``SCALES``, or "tuned" for the runs whose coefficients were tuned.
        """
        if not Path(out).is_dir():
            advice = "Name the folder that calibrant papers run wrote."
            raise refuse("results", "must be a folder with finished runs", f"got {out}", advice)
        values: dict[EvidenceKey, dict[int, float]] = defaultdict(dict)
        source = ""
        for paper in CALIBRATOR_LABELS:
            at = tuned_at(paper) if scale == TUNED else paper_at(paper, scale)
            results = results_of(at, out)
            source = results.source
            for key, seeds in (*_table_cells(results), *_figure_cells(results)):
                values[key].update({s: value for s, value in seeds.items() if math.isfinite(value)})
        return cls({key: SeedMean.of(seeds) for key, seeds in values.items() if seeds}, source)

    def having(self, cells: Mapping[EvidenceKey, SeedMean]) -> Evidence:
        """The same with further cells."""
        return Evidence({**self.cells, **cells}, self.source)

    def shuffled(self, seed: int) -> Evidence:
        """The same numbers with their labels permuted within each setting and metric.

        Printed cells change places whole; of measured cells every run does.
        """
        rng = np.random.default_rng(seed)
        groups: dict[tuple[Any, ...], list[EvidenceKey]] = defaultdict(list)
        for key in self.cells:
            groups[key[:4]].append(key)
        cells: dict[EvidenceKey, SeedMean] = {}
        for keys in groups.values():
            cells.update(_deal(keys, [self.cells[key] for key in keys], rng))
        return Evidence({key: cells[key] for key in self.cells}, f"{self.source}, labels shuffled")


def _deal(
    keys: list[EvidenceKey], cells: list[SeedMean], rng: np.random.Generator
) -> dict[EvidenceKey, SeedMean]:
    if any(cell.seeds is None for cell in cells):
        return {key: cells[int(i)] for key, i in zip(keys, rng.permutation(len(keys)), strict=True)}
    slots = [
        (key, seed) for key, cell in zip(keys, cells, strict=True) for seed in cell.seeds or ()
    ]
    values = [value for cell in cells for value in (cell.seeds or {}).values()]
    permuted: dict[EvidenceKey, dict[int, float]] = defaultdict(dict)
    for (key, seed), i in zip(slots, rng.permutation(len(slots)), strict=True):
        permuted[key][seed] = values[int(i)]
    return {key: SeedMean.of(seeds) for key, seeds in permuted.items()}


# --- printed -----------------------------------------------------------------------------------


def _printed(paper: str, kind: str, row: dict[str, Any]) -> Iterator[tuple[EvidenceKey, SeedMean]]:
    """The cell of a row of a published table, and of the temperature beside it."""
    data = row["data"]
    part = data if data in _TRAINED_ON else "test"
    place = Place(_TRAINED_ON.get(data, data), row["model"], part)
    label = Label(method_name(row["objective"], row["secondary"]), row["calibrator"])
    if row["objective"] == "confidnet":  # a confidence learned for the plain model
        label = Label("cross_entropy", "confidnet")
    unit = 1.0 if row["metric"] == "temperature" else 100.0
    count = 1 if row["spread"] is None else _RUNS[paper]
    std = math.nan if row["spread"] is None else row["spread"] / unit
    if row["spread_kind"] == "sem":
        std *= math.sqrt(count)
    yield (
        EvidenceKey(paper, kind, place, row["metric"], label),
        SeedMean(row["value"] / unit, std, count),
    )
    if row["temperature"] is not None:
        yield EvidenceKey(paper, kind, place, "temperature", label), SeedMean(row["temperature"])
    if paper == "wang2021":
        yield from _along_gamma(place, row, label, SeedMean(row["value"] / unit, std, count))


def _along_gamma(
    place: Place, row: dict[str, Any], label: Label, cell: SeedMean
) -> Iterator[tuple[EvidenceKey, SeedMean]]:
    """Focal loss of wang2021 under its gamma, and the coefficients chosen."""
    strength, figure = row["coefficient"], ("wang2021", "figures", place)
    if strength is not None and row["calibrator"] == "none":
        yield EvidenceKey(*figure, "best_coefficient", label), SeedMean(strength)
    if label.method == "focal":
        label = label._replace(method=f"focal gamma={strength:g}")
    if label.method == "cross_entropy" or "gamma" in label.method:
        yield EvidenceKey(*figure, f"{row['metric']} along gamma", label), cell


# --- measured ----------------------------------------------------------------------------------


def _table_cells(results: Results) -> Iterator[tuple[EvidenceKey, dict[int, float]]]:
    """Values that the study files measure: on the test set, under shift, after ConfidNet."""
    places = set(results.at.places)
    tests = {place for place in places if place.part == "test"}
    yield from _values(results, "main", "main", tests)
    yield from _values(results, "confidnet", "confidnet", tests)
    yield from _values(results, "main", "shift", places - tests)
    shifts = {shift for study in results.at.study("shift") for shift in study.evaluation.shifts}
    parts = {Place(place.data, place.model, shift) for place in tests for shift in shifts}
    yield from _values(results, "shift", "shift", parts)


def _values(
    results: Results, study: str, kind: str, places: Collection[Place]
) -> Iterator[tuple[EvidenceKey, dict[int, float]]]:
    """Values by seed, of the methods in the order of their runs."""
    at: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for place in sorted(places):
        at[place.data, place.model].append(place)
    methods: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in results.runs(study):
        methods[run.data, run.model, run.name].append(run)
    paper = results.at.paper
    for (data, model, name), runs in methods.items():
        for place in at.get((data, model), ()):
            for metric in (*_METRICS, "temperature"):
                for calibrator in CALIBRATOR_LABELS[paper]:
                    seeds = results.values(runs, metric, calibrator, place.part)
                    if seeds:
                        label = Label(name, calibrator)
                        yield EvidenceKey(paper, kind, place, metric, label), seeds


def _figure_cells(results: Results) -> Iterator[tuple[EvidenceKey, dict[int, float]]]:
    """What the claims need that no table holds."""
    places = set(results.at.places)
    records = results.derived() if isinstance(results, Collected) else record_cells(results)
    for found in (*value_cells(results), *records):
        run = found.run
        if Place(run.data, run.model) in places:
            place, label = Place(run.data, run.model, found.part), Label(*found[2:4])
            key = EvidenceKey(results.at.paper, "figures", place, found.metric, label)
            yield key, {run.seed: found.value}
