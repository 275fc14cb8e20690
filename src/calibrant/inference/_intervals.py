"""Values of metrics with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from calibrant._core.arrays import together
from calibrant.inference._bootstrap import accuracy_bounds, bootstrap_bounds
from calibrant.inference._classwise import classwise_bounds
from calibrant.inference._clusters import (
    design_effect,
    expanded,
    proportion_bounds,
    thinned,
)
from calibrant.inference._gap import mean_gap_bounds
from calibrant.inference._grid import estimators_of, grid_bounds
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS, get_metric
from calibrant.metrics._sample import Sample
from calibrant.predictions import Confidences, Predictions

Options = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Interval:
    """A value with its interval at the given confidence level."""

    value: float
    low: float
    high: float
    level: float = 0.95


def intervals(
    p: Predictions | Confidences,
    names: Sequence[str],
    *,
    options: Options | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Values and intervals of the named metrics, all from the same resamples.

    ``options`` gives keyword arguments by metric. Bounds are NaN where N = 1 or the metric is
    undefined in most resamples. The same seed gives the same intervals.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.8] * 50, correct=[True] * 40 + [False] * 10)
    >>> found = intervals(c, ["accuracy"])["accuracy"]
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.8, 0.67, 0.888)
    """
    resampling = Resampling(level, replicates, seed)
    of_class = [name for name in names if METRICS[name].view == "positive class"]
    if of_class and isinstance(p, Predictions):
        how: dict[str, Any] = {"options": options, **vars(resampling)}
        rest = [name for name in names if name not in of_class]
        found = intervals(p.positive_class(), of_class, **how) | intervals(p, rest, **how)
        return {name: found[name] for name in names}
    values = evaluate(p, functions_of(names, options or {}))
    work = _Work(p, Sample.of(p), options or {}, resampling)
    bounds = dict.fromkeys(names, (math.nan, math.nan))
    chosen = {m: [name for name in names if METRICS[name].interval == m] for m in METHODS}
    jobs = [partial(METHODS[m], work, some) for m, some in chosen.items() if some]
    for some_bounds in together(jobs):
        bounds |= some_bounds
    return {name: Interval(values[name], *in_range(name, bounds[name]), level) for name in names}


@dataclass(frozen=True)
class _Work:
    """The input of every interval method."""

    p: Predictions | Confidences
    sample: Sample
    options: Options
    resampling: Resampling

    @property
    def single(self) -> bool:
        """Whether there is only one sample, so that resampling changes nothing."""
        return self.p.belonging.num_units(len(self.sample.weight)) == 1

    def accuracy_bounds(self) -> Bounds:
        """Wilson interval of the accuracy, of as many samples as there are or as they are worth."""
        if self.p.is_independent:
            return accuracy_bounds(self.sample.ranked, self.resampling.level)
        return proportion_bounds(self.p, self.resampling.level)

    def thinned(self, *, classwise: bool = False) -> tuple[Predictions | Confidences, float]:
        """Independent samples with the same bias, and how much further these spread."""
        effect = design_effect(self.p, classwise=classwise)
        return thinned(self.p, self.resampling.seed, effect.noise), effect.stretch

    @property
    def widened(self) -> Resampling:
        """The resampling at the level that the number of clusters asks for."""
        units = self.p.belonging.num_units(len(self.p))
        level = self.resampling.level
        return replace(
            self.resampling, level=level if self.p.clusters is None else expanded(level, units)
        )


def _exact(work: _Work, names: list[str]) -> dict[str, Bounds]:
    return dict.fromkeys(names, work.accuracy_bounds())


def _bootstrap(work: _Work, names: list[str]) -> dict[str, Bounds]:
    if work.single:
        return {}
    found = bootstrap_bounds(work.sample, functions_of(names, work.options), work.resampling)
    if work.sample.ranked.accuracy in (0, 1):
        ends = work.accuracy_bounds()
        for name in names:
            unranked = METRICS[name].unranked
            if unranked is not None:
                found[name] = unranked(*ends)
    return found


def _gap(work: _Work, names: list[str]) -> dict[str, Bounds]:
    return dict.fromkeys(names, mean_gap_bounds(work.p, work.resampling.level))


def _grid(work: _Work, names: list[str]) -> dict[str, Bounds]:
    if work.single:
        return {}
    estimators = estimators_of(names, work.options, work.sample.ranked)
    part, stretch = work.thinned()
    sample = work.sample if part is work.p else Sample.of(part)
    return grid_bounds(sample, estimators, work.widened, whole=work.sample, stretch=stretch)


def _rows(work: _Work, names: list[str]) -> dict[str, Bounds]:
    part, stretch = work.thinned(classwise=True)
    if work.single or not isinstance(work.p, Predictions) or not isinstance(part, Predictions):
        return {}
    return {
        name: classwise_bounds(
            part, work.widened, whole=work.p, stretch=stretch, **work.options.get(name, {})
        )
        for name in names
    }


# In the order in which they start: what keeps all cores busy comes last, beside nothing else.
METHODS: dict[str, Callable[[_Work, list[str]], dict[str, Bounds]]] = {
    "exact": _exact,
    "gap": _gap,
    "rows": _rows,
    "bootstrap": _bootstrap,
    "grid": _grid,
}


def in_range(name: str, bounds: Bounds) -> Bounds:
    """Bounds cut off at the ends of the metric's range."""
    low, high = (float(np.clip(x, METRICS[name].low, METRICS[name].high)) for x in bounds)
    return low, high


def functions_of(names: Sequence[str], options: Options) -> dict[str, partial[float]]:
    """The named metrics with their options."""
    return {name: partial(get_metric(name).function, **options.get(name, {})) for name in names}


def evaluate(
    p: Predictions | Confidences, functions: Mapping[str, Callable[..., float]]
) -> dict[str, float]:
    """Each metric once. Those of whole rows go first: their pass over the scores makes the columns.

    The others are computed from the columns.
    """
    whole = {name for name in functions if METRICS[name].interval == "rows"}
    found = {name: functions[name](p) for name in functions if name in whole}
    sample = Sample.of(p)
    found |= {name: functions[name](sample) for name in functions if name not in whole}
    return found


def values_of(
    p: Predictions | Confidences, names: Sequence[str], *, options: Options | None = None
) -> dict[str, float]:
    """Values of the named metrics, without intervals, from one pass over the scores."""
    return evaluate(p, functions_of(names, options or {}))
