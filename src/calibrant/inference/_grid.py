"""The grid bootstrap for calibration errors of the top label.

With ``g`` the observed gap between accuracy and confidence in bins, the populations are
P(correct | c) = c + strength * g(c).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int, num_threads, together
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_simulation import draw_outcomes
from calibrant.inference._bootstrap import accuracy_bounds, bootstrap_bounds
from calibrant.inference._clusters import scaled
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._paths import Path, path_of
from calibrant.inference._resampling import STRENGTHS, Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._binning import bin_sums
from calibrant.metrics._estimators import Estimator, population
from calibrant.metrics._sample import Ranked, Sample
from calibrant.metrics._simulated import Replicates, Simulated

# Where the model expects fewer errors (or right answers) than the first, or one bin holds more than
# the second share of all samples, calibration errors must allow for the bounds of the accuracy.
FEW_EXPECTED = 5.0
ONE_BIN = 0.95
# Elements of a batch of replicates; a replicate counts at least as the grid of smooth ECE. With
# arrays of a few times this size memory is used again; larger ones cost as much time as the sums.
BATCH_ELEMENTS, LEAST_CELLS = 1 << 18, 1 << 12
# Replicates of what a calibrated population would show, which varies little.
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
    sample: Sample,
    estimators: Mapping[str, Estimator],
    resampling: Resampling,
    *,
    whole: Sample | None = None,
    stretch: float = 1.0,
) -> dict[str, ErrorCurve]:
    """Simulate each estimator along its path of populations.

    ``whole`` has the observed values where ``sample`` is only what it is worth, and ``stretch``
    says how much further its values spread.

    Samples are drawn by their place in the source, so that two models that say much the same are
    simulated with much the same random numbers.
    """
    if not estimators:
        return {}
    ranked = sample.ranked
    observed = ranked if whole is None else worth(whole, sample)
    lots = (partial(along, ranked, drawn, lot) for drawn, lot in _draws(sample, resampling))
    return curves_along(ranked, observed, estimators, lots, stretch)


def curves_along(
    ranked: Ranked,
    observed: Ranked,
    estimators: Mapping[str, Estimator],
    lots: Iterable[Callable[[Path], Replicates]],
    stretch: float = 1.0,
) -> dict[str, ErrorCurve]:
    """The curve of each estimator. Each of ``lots`` makes the replicates that it has of a path."""
    families = dict.fromkeys(e.family for e in estimators.values())
    paths = {family: path_of(ranked, *family) for family in families}
    parts: dict[str, list[Float64]] = {name: [] for name in estimators}

    def values(lot: Callable[[Path], Replicates]) -> dict[str, Float64]:
        found: dict[str, Float64] = {}
        for family, path in paths.items():
            replicates = lot(path)
            mine = {name: e for name, e in estimators.items() if e.family == family}
            found |= {name: e.batched(replicates) for name, e in mine.items()}
        return found

    todo = iter(lots)
    while some := list(islice(todo, num_threads())):
        for found in together([partial(values, lot) for lot in some]):
            for name, column in found.items():
                parts[name].append(column)

    def truth(e: Estimator) -> Float64:
        chances = paths[e.family].populations()
        return np.array([e.population(population(ranked, chance)) for chance in chances])

    return {
        name: ErrorCurve(
            e.statistic(observed),
            truth(e),
            np.concatenate(parts[name]),
            one_sided=e.one_sided,
            stretch=stretch,
        )
        for name, e in estimators.items()
    }


def _draws(sample: Sample, resampling: Resampling) -> Iterator[tuple[Int, Float64]]:
    """Yield the entries drawn into replicates, and a lot for each, in batches (R, N)."""
    entry = entries_of(sample)
    rows, lots = (np.random.default_rng(s) for s in (resampling.seed, (resampling.seed, 1)))
    step = max(1, BATCH_ELEMENTS // max(len(entry), LEAST_CELLS))
    for start in range(0, resampling.draws, step):
        shape = min(step, resampling.draws - start), len(entry)
        yield entry[rows.integers(0, len(entry), shape)], lots.random(shape)


def along(ranked: Ranked, drawn: Int, lot: Float64, path: Path) -> Simulated:
    """Outcomes of the drawn samples: right where the lot is below the chance of being right."""
    rows = compiled_rows()
    if rows is not None:
        first, change = draw_outcomes(rows, drawn, lot, path.by_entry, STRENGTHS)
        return Simulated(ranked.confidence, drawn, first, change, len(STRENGTHS))
    calibrated, full, beyond = (chance[drawn] for chance in path.knots)
    first = lot < calibrated
    passed, later = first != (lot < full), first != (lot < beyond)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The strength at which the chance passes the lot; not reached, it is past the last one.
        at = np.where(
            passed,
            (lot - calibrated) / (full - calibrated),
            np.where(later, 1 + (lot - full) / (beyond - full), np.inf),
        )
    change = np.searchsorted(STRENGTHS, at.ravel(), side="left").reshape(at.shape).astype(np.uint8)
    return Simulated(ranked.confidence, drawn, first, change, len(STRENGTHS))


def grid_bounds(
    sample: Sample,
    estimators: Mapping[str, Estimator],
    resampling: Resampling,
    *,
    whole: Sample | None = None,
    stretch: float = 1.0,
) -> dict[str, Bounds]:
    """Intervals of calibration errors of the top label by test inversion."""
    return bounds_of_curves(
        sample.ranked,
        estimators,
        resampling.level,
        lambda every: error_curves(sample, every, resampling, whole=whole, stretch=stretch),
        lambda e, curve, bounds: _with_floor(sample, e, curve, bounds, resampling),
    )


def bounds_of_curves(
    ranked: Ranked,
    estimators: Mapping[str, Estimator],
    level: float,
    simulate: Callable[[Any], Any],
    with_floor: Callable[[Estimator, ErrorCurve, Bounds], Bounds] | None = None,
) -> dict[str, Bounds]:
    """Intervals of calibration errors, given what simulates the curves of estimators.

    An error that is never below another one, as the largest gap is never below the mean gap, has
    bounds that are not below the other's either.
    """
    simulated = {name: e.excess or e for name, e in estimators.items()}
    least = {(name, "least"): e.at_least for name, e in estimators.items() if e.at_least}
    every: Any = {**simulated, **least}
    curves: Any = simulate(every)
    unseen = unseen_populations(ranked, level)

    def bounds_of(key: Any, e: Estimator) -> Bounds:
        bounds = curves[key].bounds(level)
        if e.excess and with_floor:
            bounds = with_floor(e, curves[key], bounds)
        errors = [e.population(one) for one in unseen]
        return e.back(min([bounds[0], *errors])), e.back(max([bounds[1], *errors]))

    found = {name: bounds_of(name, e) for name, e in estimators.items()}
    for (name, _), e in least.items():
        other = bounds_of((name, "least"), e)
        found[name] = max(found[name][0], other[0]), max(found[name][1], other[1])
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
    """The same confidences, with the accuracy at the ends of its interval.

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


def _with_accuracy(ranked: Ranked, accuracy: float) -> Ranked:
    """A population of this accuracy: all probabilities of being right, or wrong, are shrunk."""
    chance, stated = ranked.confidence, ranked.mean_confidence
    if accuracy < stated:
        chance = chance * (accuracy / stated)
    elif accuracy > stated:
        chance = 1 - (1 - chance) * ((1 - accuracy) / (1 - stated))
    return population(ranked, chance)


def worth(whole: Sample, sample: Sample) -> Ranked:
    """The whole data, counted as the samples that they are worth."""
    return scaled(whole.ranked, len(sample.order), len(whole.order))


def entries_of(sample: Sample) -> Int:
    """For each sample, in the order of the source, its entry among the distinct confidences."""
    group = np.arange(len(sample.order))
    if sample.starts is not None:
        group = np.searchsorted(sample.starts, group, side="right") - 1
    entry = np.empty_like(group)
    entry[sample.order] = group
    return entry
