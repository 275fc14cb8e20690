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
from calibrant.papers._published import PUBLISHED, published
from calibrant.papers._results import Results
from calibrant.papers._run_measures import figure_cells
from calibrant.papers._scales import CALIBRATORS, Place, method_name, paper_at

# How often each paper trained a network; what has no spread in print is one run.
_RUNS = {"wang2021": 5, "singh2021": 3, "mukhoti2020": 1, "karandikar2021": 10}
# Table 1 of karandikar2021 repeats cells of its table 2.
_REPEATED = {("karandikar2021", "table1")}
_KINDS = {("singh2021", "table3"): "shift", ("singh2021", "table4"): "confidnet"}
# Shifted data are a part of the setting whose networks they were shown to.
_TRAINED_ON = {"cifar10.1": "cifar10", "cifar10.2": "cifar10", "imagenet-v2": "imagenet"}
_METRICS = ("ece", "accuracy", "auroc", "adaptive_ece", "classwise_ece")


class Label(NamedTuple):
    """Which method, and which calibrator after it, a value belongs to."""

    method: str
    calibrator: str = "none"


class Key(NamedTuple):
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
class Cell:
    """One number: values by seed, or mean, standard deviation and number of runs.

    Examples
    --------
    >>> Cell.of({0: 0.25, 1: 0.75}).mean
    0.5
    >>> Cell(0.03, 0.002, 5).seeds is None
    True
    """

    mean: float
    std: float = math.nan
    count: int = 1
    seeds: Mapping[int, float] | None = None

    @classmethod
    def of(cls, seeds: Mapping[int, float]) -> Cell:
        """From values by seed."""
        values = list(seeds.values())
        std = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), std, len(values), dict(seeds))


class Evidence:
    """Cells by key.

    Parameters
    ----------
    cells
        By :class:`Key`.
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

    def __init__(self, cells: Mapping[Key, Cell], source: str) -> None:
        self.cells, self.source = dict(cells), source

    def at(self, paper: str, kind: str, metric: str) -> dict[Place, dict[Label, Cell]]:
        """Cells of a metric by place and label, in the order in which they were found."""
        return self._by_metric.get((paper, kind, metric), {})

    @cached_property
    def _by_metric(self) -> dict[tuple[str, str, str], dict[Place, dict[Label, Cell]]]:
        found: dict[tuple[str, str, str], dict[Place, dict[Label, Cell]]] = {}
        for key, cell in self.cells.items():
            places = found.setdefault((key.paper, key.kind, key.metric), {})
            places.setdefault(key.place, {})[key.label] = cell
        return found

    @classmethod
    def published(cls) -> Evidence:
        """What the papers print."""
        cells: dict[Key, Cell] = {}
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

        One of our settings that stands for several published ones counts once. What is missing
        gives no cells.

        Parameters
        ----------
        out
            Folder that ``calibrant papers run`` wrote.
        scale
            "smoke", "cpu" or "paper".
        """
        if not Path(out).is_dir():
            advice = "Name the folder that calibrant papers run wrote."
            raise refuse("results", "must be a folder with finished runs", f"got {out}", advice)
        values: dict[Key, dict[int, float]] = defaultdict(dict)
        for paper in CALIBRATORS:
            results = Results(paper_at(paper, scale), out)
            for key, seed, value in (*_table_cells(results), *_figure_cells(results)):
                if math.isfinite(value):
                    values[key][seed] = value
        cells = {key: Cell.of(seeds) for key, seeds in values.items()}
        return cls(cells, f"the runs at the scale {scale}")

    def shuffled(self, seed: int) -> Evidence:
        """The same numbers with their labels permuted within each setting and metric.

        Printed cells change places whole; of measured cells every run does.
        """
        rng = np.random.default_rng(seed)
        groups: dict[tuple[Any, ...], list[Key]] = defaultdict(list)
        for key in self.cells:
            groups[key[:4]].append(key)
        cells: dict[Key, Cell] = {}
        for keys in groups.values():
            cells.update(_deal(keys, [self.cells[key] for key in keys], rng))
        return Evidence({key: cells[key] for key in self.cells}, f"{self.source}, labels shuffled")


def _deal(keys: list[Key], cells: list[Cell], rng: np.random.Generator) -> dict[Key, Cell]:
    if any(cell.seeds is None for cell in cells):
        return {key: cells[int(i)] for key, i in zip(keys, rng.permutation(len(keys)), strict=True)}
    slots = [
        (key, seed) for key, cell in zip(keys, cells, strict=True) for seed in cell.seeds or ()
    ]
    values = [value for cell in cells for value in (cell.seeds or {}).values()]
    dealt: dict[Key, dict[int, float]] = defaultdict(dict)
    for (key, seed), i in zip(slots, rng.permutation(len(slots)), strict=True):
        dealt[key][seed] = values[int(i)]
    return {key: Cell.of(seeds) for key, seeds in dealt.items()}


# --- printed -----------------------------------------------------------------------------------


def _printed(paper: str, kind: str, row: dict[str, Any]) -> Iterator[tuple[Key, Cell]]:
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
    yield Key(paper, kind, place, row["metric"], label), Cell(row["value"] / unit, std, count)
    if row["temperature"] is not None:
        yield Key(paper, kind, place, "temperature", label), Cell(row["temperature"])


# --- measured ----------------------------------------------------------------------------------


def _places(results: Results) -> set[Place]:
    """Our settings, each once."""
    return set(results.at.settings.values())


def _table_cells(results: Results) -> Iterator[tuple[Key, int, float]]:
    """Values that the study files measure: on the test set, under shift, after ConfidNet."""
    tests = {place for place in _places(results) if place.part == "test"}
    yield from _values(results, "main", "main", tests)
    yield from _values(results, "confidnet", "confidnet", tests)
    shifts = _places(results) - tests
    yield from _values(results, "main", "shift", shifts)
    for study in results.at.study("shift"):
        parts = {Place(p.data, p.model, s) for p in tests for s in study.evaluation.shifts}
        yield from _values(results, "shift", "shift", parts)


def _values(
    results: Results, study: str, kind: str, places: Collection[Place]
) -> Iterator[tuple[Key, int, float]]:
    paper = results.at.paper
    for run in results.runs(study):
        for place in sorted(places):
            if (run.data, run.model) != (place.data, place.model):
                continue
            for metric in (*_METRICS, "temperature"):
                for calibrator in CALIBRATORS[paper]:
                    value = results.value(run, metric, calibrator, place.part)
                    if value is not None:
                        key = Key(paper, kind, place, metric, Label(run.name, calibrator))
                        yield key, run.seed, value


def _figure_cells(results: Results) -> Iterator[tuple[Key, int, float]]:
    """What the claims need that no table holds."""
    places = _places(results)
    for run, (metric, method, calibrator), value in figure_cells(results):
        place = Place(run.data, run.model)
        if place in places:
            key = Key(results.at.paper, "figures", place, metric, Label(method, calibrator))
            yield key, run.seed, value
