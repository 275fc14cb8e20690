"""The grid bootstrap for calibration errors of the top label.

With ``g`` the observed gap between accuracy and confidence in bins, the populations are
P(correct | c) = c + strength * g(c).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.inference._bootstrap import (
    accuracy_bounds,
    bootstrap_bounds,
    resampled_rows,
)
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._resampling import STRENGTHS, Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._binning import Binning, bin_sums
from calibrant.metrics._estimators import Estimator, population
from calibrant.metrics._sample import Ranked, Sample

# Where the model expects fewer errors (or right answers) than the first, or one bin holds more than
# the second share of all samples, calibration errors must allow for the bounds of the accuracy.
FEW_EXPECTED = 5.0
ONE_BIN = 0.95
# Replicates of what a calibrated population would show: it varies little.
FLOOR_REPLICATES = 200


def estimators_of(
    names: Sequence[str], options: Mapping[str, Mapping[str, Any]], ranked: Ranked
) -> dict[str, Estimator]:
    """How each named calibration error is simulated."""
    found = {}
    for name in names:
        metric = METRICS[name]
        if metric.estimator is not None:
            found[name] = metric.estimator(metric.function, options.get(name, {}), ranked)
    return found


def error_curves(
    sample: Sample, estimators: Mapping[str, Estimator], resampling: Resampling
) -> dict[str, ErrorCurve]:
    """Simulate each estimator along its path of populations.

    Samples are drawn by their place in the source, so that two models that say much the same are
    simulated with much the same random numbers.
    """
    if not estimators:
        return {}
    ranked, entry = sample.ranked, _entries(sample)
    families = {e.family for e in estimators.values()}
    chances = {family: _chances(ranked, *family) for family in families}
    lots = np.random.default_rng((resampling.seed, 1))

    def evaluate(rows: Int) -> list[list[float]]:
        drawn = entry[rows]
        count = np.bincount(drawn, minlength=len(ranked.count)).astype(np.float64)
        lot = lots.random(len(drawn))  # the same at each strength

        def resample(chance: Float64) -> Ranked:
            hits = np.bincount(drawn[lot < chance[drawn]], minlength=len(count))
            return Ranked(ranked.confidence, count, hits.astype(np.float64))

        found = []
        for k in range(len(STRENGTHS)):
            resamples = {family: resample(chance[k]) for family, chance in chances.items()}
            found.append([e.statistic(resamples[e.family]) for e in estimators.values()])
        return found

    drawn_rows = resampled_rows(len(entry), resampling.draws, resampling.seed)
    simulated = np.array([evaluate(rows) for rows in drawn_rows])

    def truth(e: Estimator) -> Float64:
        return np.array([e.population(population(ranked, c)) for c in chances[e.family]])

    return {
        name: ErrorCurve(e.statistic(ranked), truth(e), simulated[:, :, k])
        for k, (name, e) in enumerate(estimators.items())
    }


def grid_bounds(
    sample: Sample, estimators: Mapping[str, Estimator], resampling: Resampling
) -> dict[str, Bounds]:
    """Intervals of calibration errors of the top label by test inversion."""
    above = {name: e.excess if e.floor else e for name, e in estimators.items()}
    curves = error_curves(sample, above, resampling)
    unseen = unseen_populations(sample.ranked, resampling.level)
    found = {}
    for name, e in estimators.items():
        bounds = curves[name].bounds(resampling.level)
        if e.floor:
            bounds = _with_floor(sample, e, curves[name], bounds, resampling)
        errors = [e.population(one) for one in unseen]
        found[name] = e.back(min([bounds[0], *errors])), e.back(max([bounds[1], *errors]))
    return found


def _with_floor(
    sample: Sample, e: Estimator, curve: ErrorCurve, bounds: Bounds, resampling: Resampling
) -> Bounds:
    """Bounds of the excess, which may be 0, on top of those of the floor.

    Upwards, independent deviations are added as such are (Zou and Donner, 2008,
    doi:10.1002/sim.3095). Downwards, each may be at its lower end: no excess at all is common.
    """
    floor = e.least(sample.ranked)
    around = bootstrap_bounds(
        sample,
        {"floor": lambda s: e.least(s.ranked)},
        replace(resampling, replicates=FLOOR_REPLICATES),
    )["floor"]
    excess = min(max(curve.estimate, bounds[0]), bounds[1])
    high = math.hypot(around[1] - floor, bounds[1] - excess)
    return min(around[0], floor) + bounds[0], floor + excess + high


def unseen_populations(ranked: Ranked, level: float) -> list[Ranked]:
    """The same confidences, with accuracy at the ends of its interval and as near as it comes.

    Only where multiples of the observed gaps leave out what the data allow. 30 right answers at a
    confidence of 99 % do not rule out an accuracy of 90 %, but no multiple of their gap of 1 %
    reaches it. And where one bin holds nearly all samples, its one gap may be 0 by luck.
    """
    stated = ranked.mean_confidence
    few = min(stated, 1 - stated) * ranked.total < FEW_EXPECTED or ranked.accuracy in (0, 1)
    if not few and bin_sums(ranked, 15, "width").share.max() < ONE_BIN:
        return []
    low, high = accuracy_bounds(ranked, level)
    return [_with_accuracy(ranked, a) for a in (low, high, min(max(stated, low), high))]


def gaps_of(ranked: Ranked, bins: int, binning: Binning) -> Float64:
    """Accuracy minus confidence of the bin of each distinct confidence."""
    sums = bin_sums(ranked, bins, binning)
    return np.repeat(sums.gap, np.diff(sums.cuts))


def _with_accuracy(ranked: Ranked, accuracy: float) -> Ranked:
    """A population of this accuracy: the chances of being right, or of being wrong, all shrunk."""
    chance, stated = ranked.confidence, ranked.mean_confidence
    if accuracy < stated:
        chance = chance * (accuracy / stated)
    elif accuracy > stated:
        chance = 1 - (1 - chance) * ((1 - accuracy) / (1 - stated))
    return population(ranked, chance)


def _entries(sample: Sample) -> Int:
    """For each sample, in the order of the source, its entry among the distinct confidences."""
    group = np.arange(len(sample.order))
    if sample.starts is not None:
        group = np.searchsorted(sample.starts, group, side="right") - 1
    entry = np.empty_like(group)
    entry[sample.order] = group
    return entry


def _chances(ranked: Ranked, bins: int, binning: Binning) -> Float64:
    """P(correct | c) at each confidence, for each strength: (strengths, confidences)."""
    gap = gaps_of(ranked, bins, binning)
    return np.clip(ranked.confidence + STRENGTHS[:, None] * gap, 0, 1)
