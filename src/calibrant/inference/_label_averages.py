"""Averages of a metric over the labels of a multi-label model, with intervals by sample.

Labels of one sample go together, so samples are the units: a sample is drawn with all its labels.

*Averages and rankings* get the bootstrap over samples.

*Calibration errors* get the grid bootstrap along one path that all labels walk together: at
strength s the gaps of every label are s times those observed. Each label is simulated with random
numbers of its own, as if labels were independent. So the spread of the simulated means about their
expectation is multiplied by sqrt(v / v0): v is the variance of the mean over bootstrap replicates
of samples, v0 what it would be if labels were independent, the sum of the labels' variances over
L². Labels that exclude each other make it smaller than 1, which is taken as 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.inference._bootstrap import replicate_bounds, resample_weights
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._grid import error_curves, estimators_of, unseen_populations
from calibrant.inference._intervals import Interval, Options, functions_of, in_range
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._estimators import Estimator
from calibrant.metrics._sample import Sample
from calibrant.predictions import PositiveClass

# Replicates that tell how far labels go together.
SPREAD_REPLICATES = 200
LABELS = 1  # the axis of the labels in a table (replicates, labels)


def macro_intervals(
    labels: Sequence[tuple[PositiveClass, Int]],
    names: Sequence[str],
    *,
    num_samples: int,
    options: Options | None = None,
    resampling: Resampling,
) -> dict[str, Interval]:
    """Means over labels of the named metrics, with intervals.

    ``labels`` has the record of each label and the samples it is about, from 0. A label for which a
    metric is undefined is left out of its mean.
    """
    return _Labels(labels, num_samples, names, options or {}, resampling).intervals()


def micro_intervals(
    record: PositiveClass,
    rows: Int,
    names: Sequence[str],
    *,
    num_samples: int,
    options: Options | None = None,
    resampling: Resampling,
) -> dict[str, Interval]:
    """Metrics of all labels pooled in one record, with intervals.

    ``rows`` has the sample of each entry, from 0. Whole samples are drawn, as for the macro mean;
    v0 is the variance over replicates that draw single entries.
    """
    work = _Labels([(record, rows)], num_samples, names, options or {}, resampling, pooled=True)
    return work.intervals()


@dataclass(frozen=True)
class _Labels:
    labels: Sequence[tuple[PositiveClass, Int]]
    num_samples: int
    names: Sequence[str]
    options: Options
    resampling: Resampling
    pooled: bool = False

    def intervals(self) -> dict[str, Interval]:
        level = self.resampling.level
        return {
            name: Interval(self.mean(name), *in_range(name, self.bounds(name)), level)
            for name in self.names
        }

    @cached_property
    def samples(self) -> list[Sample]:
        return [Sample.of(record) for record, _ in self.labels]

    @cached_property
    def values(self) -> dict[str, Float64]:
        """The value of each metric for each label."""
        functions = functions_of(self.names, self.options)
        return {n: np.array([f(s) for s in self.samples]) for n, f in functions.items()}

    def mean(self, name: str) -> float:
        return float(mean_defined(self.values[name][None], LABELS)[0])

    def bounds(self, name: str) -> Bounds:
        if self.num_samples == 1 or math.isnan(self.mean(name)):
            return math.nan, math.nan
        return self._grid(name) if METRICS[name].interval == "grid" else self._bootstrap(name)

    # --- averages and rankings ------------------------------------------------------------------

    @cached_property
    def replicates(self) -> dict[str, Float64]:
        """Values in bootstrap replicates, by metric: (replicates, labels)."""
        plain = {n for n in self.names if METRICS[n].interval != "grid"}
        functions = functions_of(self.names, self.options)
        rows: dict[str, list[list[float]]] = {name: [] for name in self.names}
        r = self.resampling
        for weights in resample_weights(self.num_samples, r.replicates, r.seed):
            for weight in weights:
                few = {n for n in self.names if len(rows[n]) < SPREAD_REPLICATES}
                wanted = {n: f for n, f in functions.items() if n in plain | few}
                if wanted:
                    drawn = self._drawn(weight)
                    for name, function in wanted.items():
                        rows[name].append([_value(function, sample) for sample in drawn])
        return {name: np.array(found) for name, found in rows.items()}

    def _drawn(self, weight: Float64) -> list[Sample]:
        pairs = zip(self.samples, self.labels, strict=True)
        return [sample.reweighted(weight[rows][sample.order]) for sample, (_, rows) in pairs]

    def _bootstrap(self, name: str) -> Bounds:
        defined = ~np.isnan(self.values[name])
        column = mean_defined(self.replicates[name][:, defined], LABELS)
        return replicate_bounds(
            name, self.mean(name), column, self.resampling.level, self.num_samples
        )

    # --- calibration errors ---------------------------------------------------------------------

    @cached_property
    def curves(self) -> list[dict[str, tuple[Estimator, ErrorCurve]]]:
        """For each label, how each calibration error is simulated, and what came out."""
        chosen = [name for name in self.names if METRICS[name].interval == "grid"]
        found = []
        for k, sample in enumerate(self.samples):
            seed = np.random.SeedSequence((self.resampling.seed, k)).generate_state(1)[0]
            estimators = estimators_of(chosen, self.options, sample.ranked)
            curves = error_curves(sample, estimators, replace(self.resampling, seed=int(seed)))
            found.append({name: (estimators[name], curves[name]) for name in chosen})
        return found

    def _grid(self, name: str) -> Bounds:
        parts = [found[name] for found in self.curves]
        truth = np.mean([_back(e, curve.truth) for e, curve in parts], axis=0)
        simulated = np.mean([_back(e, curve.simulated) for e, curve in parts], axis=0)
        centre = simulated.mean(axis=0)
        spread = centre + self._together(name) * (simulated - centre)
        low, high = ErrorCurve(self.mean(name), truth, spread).bounds(self.resampling.level)
        down, up = np.array([self._unseen(k, *part) for k, part in enumerate(parts)]).T
        return low - math.hypot(*down) / len(parts), high + math.hypot(*up) / len(parts)

    def _together(self, name: str) -> float:
        """sqrt(v / v0), at least 1."""
        table = self.replicates[name]
        table = table[~np.isnan(table).any(axis=LABELS)]
        if len(table) < SPREAD_REPLICATES / 10:
            return math.sqrt(len(self.labels))  # as if all labels were one
        alone = table.var(axis=0).sum() / table.shape[LABELS] ** 2
        alone = self._variance_of_entries(name) if self.pooled else alone
        return math.sqrt(max(table.mean(axis=LABELS).var() / alone, 1.0)) if alone > 0 else 1.0

    def _variance_of_entries(self, name: str) -> float:
        """The variance if all entries of the pooled record were independent."""
        (sample,) = self.samples
        function = functions_of([name], self.options)[name]
        batches = resample_weights(len(sample.weight), SPREAD_REPLICATES, self.resampling.seed)
        return float(np.var([function(sample.reweighted(w)) for some in batches for w in some]))

    def _unseen(self, k: int, e: Estimator, curve: ErrorCurve) -> Bounds:
        """How far the error of a label may lie beyond its path, below and above."""
        level = self.resampling.level
        others = unseen_populations(self.samples[k].ranked, level)
        low, high = (e.back(bound) for bound in curve.bounds(level))
        errors = [e.back(e.population(one)) for one in others]
        return max(low - min([low, *errors]), 0.0), max(max([high, *errors]) - high, 0.0)


def mean_defined(table: Float64, axis: int) -> Float64:
    """Mean of what is not NaN; NaN where nothing is."""
    known = ~np.isnan(table)
    count = known.sum(axis=axis)
    total = np.where(known, table, 0).sum(axis=axis)
    mean: Float64 = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


def _value(function: Callable[..., float], sample: Sample) -> float:
    return function(sample) if sample.weight.any() else math.nan


def _back(e: Estimator, values: Float64) -> Float64:
    """Values of a statistic on the scale of the metric."""
    return np.array([e.back(float(x)) for x in values.ravel()]).reshape(values.shape)
