"""Resampling: the plain bootstrap, and the grid bootstrap for calibration errors.

Calibration errors are biased upward, the plain bootstrap adds the same bias once more, and near
perfect calibration its intervals miss the truth almost always. The grid bootstrap inverts a test
instead. With ``g`` the observed gap between accuracy and confidence in bins, the populations
P(correct | c) = c + strength * g(c) run from perfect calibration (strength 0) through the data's
own gaps (1) to twice them (2). Samples of size N are drawn from each, and the interval holds the
true errors of those populations under which the observed value is not surprising.

Reference: Hansen (1999), The grid bootstrap, doi:10.1162/003465399558463.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from calibrant import metrics as m
from calibrant._arrays import Float64
from calibrant.metrics._binned import debiased_square, wilson_interval
from calibrant.metrics._binning import Binning, bin_sums
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._kernel import (
    laplacian_form,
    likeliest_bandwidth,
    median_distance,
    population_kde_ece,
)
from calibrant.metrics._sample import Ranked, Sample
from calibrant.predictions import Predictions

STRENGTHS = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
# The shape of the gaps is itself estimated, which the simulation cannot see: without this factor
# 95 % intervals of weak errors cover 91 % of the time (benchmarks/interval_coverage.py).
SHAPE_UNCERTAINTY = 1.08
# Where the model expects fewer errors (or right answers) than the first, or one bin holds more than
# the second share of all samples, calibration errors must allow for the bounds of the accuracy.
FEW_EXPECTED = 5.0
ONE_BIN = 0.95
# Elements of the weight matrix made at a time.
WEIGHT_ELEMENTS = 8_000_000

Bounds = tuple[float, float]


def resample_weights(
    num_samples: int, replicates: int, seed: int, *, elements: int = 0
) -> Iterator[Float64]:
    """Yield how often each sample was drawn in each replicate, in batches (r, N).

    ``elements`` is what else a replicate of a batch will occupy.
    """
    batch = max(1, min(replicates, WEIGHT_ELEMENTS // max(num_samples, elements)))
    rng = np.random.default_rng(seed)
    for start in range(0, replicates, batch):
        weights = np.empty((min(batch, replicates - start), num_samples))
        for row in weights:
            drawn = rng.integers(0, num_samples, num_samples)
            row[:] = np.bincount(drawn, minlength=num_samples)
        yield weights


def percentile_bounds(
    sample: Sample,
    functions: Mapping[str, Callable[[Sample], float]],
    *,
    level: float,
    replicates: int,
    seed: int,
) -> dict[str, Bounds]:
    """Central part of each function's values over bootstrap replicates."""
    if not functions:
        return {}

    def evaluate(weight: Float64) -> list[float]:
        drawn = sample.reweighted(weight)
        return [function(drawn) for function in functions.values()]

    rows: list[list[float]] = []
    for weights in resample_weights(len(sample.weight), replicates, seed):
        rows += map(evaluate, weights)
    return {name: _quantiles(column, level)
            for name, column in zip(functions, np.array(rows).T, strict=True)}  # fmt: skip


def _quantiles(values: Float64, level: float) -> tuple[float, float]:
    """The central part of the values; NaN where most are undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return math.nan, math.nan
    tail = (1 - level) / 2
    # "lower" and "higher" never interpolate, so infinite values stay what they are.
    low = np.quantile(defined, tail, method="lower")
    return float(low), float(np.quantile(defined, 1 - tail, method="higher"))


# --- the grid bootstrap -----------------------------------------------------------------------


@dataclass(frozen=True)
class Estimator:
    """A calibration error as the grid bootstrap sees it.

    ``statistic`` is simulated; ``population`` is what it estimates, of a whole population;
    ``back`` leads from the statistic's scale to the metric's. ``bins`` and ``binning`` are those in
    which the gaps of the populations are taken: the metric's own, if it has any. Metrics that see
    gaps of one ``sign`` only vary those; gaps of the other sign stay as observed.
    """

    statistic: Callable[[Ranked], float]
    population: Callable[[Ranked], float]
    back: Callable[[float], float] = float
    bins: int = 15
    binning: Binning = "mass"
    sign: int = 0

    @property
    def family(self) -> tuple[int, Binning, int]:
        """What the populations depend on."""
        return self.bins, self.binning, self.sign


SIGNS = {"overconfidence_error": -1, "underconfidence_error": 1}
WIDTH_BINNED = ("ece", "mce", "overconfidence_error", "underconfidence_error", "label_binned_ece")


def estimator_of(name: str, options: Mapping[str, Any], ranked: Ranked) -> Estimator:
    """How the named calibration error is simulated."""
    function = partial(m.METRICS[name].function, **options)
    if name == "debiased_ece":  # its square is unbiased; the root of a noisy square is not
        shape: dict[str, Any] = {"norm": 2, "binning": "mass", **options}
        return Estimator(
            partial(debiased_square, **options),
            lambda r: m.ece(r, **shape) ** 2,
            lambda square: math.sqrt(max(square, 0.0)),
            bins=options.get("bins", 15),
            binning=shape["binning"],
        )
    if name == "skce":
        width = options.get("width") or median_distance(ranked)
        return Estimator(
            partial(m.skce, width=width),
            lambda r: laplacian_form(r.confidence, r.residual, width) / r.total**2,
        )
    if name == "kde_ece":  # the bandwidth is part of the definition: chosen once
        bandwidth = options.get("bandwidth") or likeliest_bandwidth(ranked)
        chosen = {**options, "bandwidth": bandwidth}
        return Estimator(partial(m.kde_ece, **chosen), partial(population_kde_ece, **chosen))
    if name == "adaptive_ece":
        return Estimator(function, function, bins=options.get("bins", 15))
    if name in WIDTH_BINNED:
        bins, binning = options.get("bins", 15), options.get("binning", "width")
        sign = SIGNS.get(name, 0)
        return Estimator(function, function, bins=bins, binning=binning, sign=sign)
    return Estimator(function, function)


def grid_bounds(
    sample: Sample, estimators: Mapping[str, Estimator], *, level: float, draws: int, seed: int
) -> dict[str, Bounds]:
    """Intervals of calibration errors of the top label by test inversion."""
    if not estimators:
        return {}
    ranked = sample.ranked
    unseen = _unseen_populations(ranked, level)
    families = {e.family for e in estimators.values()}
    chances = {family: _populations(ranked, *family) for family in families}

    def evaluate(job: tuple[Float64, int]) -> list[list[float]]:
        weight, number = job
        count = sample.reweighted(weight).ranked.count
        drawn = np.repeat(np.arange(len(count)), count.astype(np.int64))
        lot = np.random.default_rng((seed, number)).random(len(drawn))  # the same at each strength
        rows = []
        for k in range(len(STRENGTHS)):
            resamples = {
                family: Ranked(
                    ranked.confidence, count, _hits(drawn, lot < chance[k][drawn], count)
                )
                for family, chance in chances.items()
            }
            rows.append([e.statistic(resamples[e.family]) for e in estimators.values()])
        return rows

    found: list[list[list[float]]] = []
    for weights in resample_weights(len(sample.weight), draws, seed):
        jobs = zip(weights, range(len(found), draws), strict=False)
        found += map(evaluate, jobs)
    simulated = np.array(found)  # (draws, strengths, metrics)
    bounds = {}
    for k, (name, e) in enumerate(estimators.items()):
        truth = np.array(
            [e.population(Ranked(ranked.confidence, ranked.count, ranked.count * chance))
             for chance in chances[e.family]]
        )  # fmt: skip
        low, high = invert(e.statistic(ranked), simulated[:, :, k], truth, level)
        errors = [e.population(population) for population in unseen]
        bounds[name] = e.back(min([low, *errors])), e.back(max([high, *errors]))
    return bounds


def _unseen_populations(ranked: Ranked, level: float) -> list[Ranked]:
    """The same confidences, with accuracy at the ends of its interval and as near as it comes.

    Only where multiples of the observed gaps leave out what the data allow. 30 right answers at a
    confidence of 99 % do not rule out an accuracy of 90 %, but no multiple of their gap of 1 %
    reaches it. And where one bin holds nearly all samples, its one gap may be 0 by luck.
    """
    stated = m.mean_confidence(ranked)
    few = min(stated, 1 - stated) * ranked.total < FEW_EXPECTED or ranked.accuracy in (0, 1)
    if not few and bin_sums(ranked, 15, "width").share.max() < ONE_BIN:
        return []
    low, high = accuracy_bounds(ranked, level)
    return [_with_accuracy(ranked, a) for a in (low, high, min(max(stated, low), high))]


def accuracy_bounds(ranked: Ranked, level: float) -> Bounds:
    """Wilson interval of the accuracy: the bootstrap of 20 hits out of 20 is a point."""
    low, high = wilson_interval(np.array([ranked.hits.sum()]), np.array([ranked.total]), level)
    return float(low[0]), float(high[0])


def _with_accuracy(ranked: Ranked, accuracy: float) -> Ranked:
    """A population of this accuracy: the chances of being right, or of being wrong, all shrunk."""
    chance, stated = ranked.confidence, m.mean_confidence(ranked)
    if accuracy < stated:
        chance = chance * (accuracy / stated)
    elif accuracy > stated:
        chance = 1 - (1 - chance) * ((1 - accuracy) / (1 - stated))
    return Ranked(ranked.confidence, ranked.count, ranked.count * chance)


def _hits(drawn: Any, correct: Any, count: Float64) -> Float64:
    return np.bincount(drawn[correct], minlength=len(count)).astype(np.float64)


def _populations(ranked: Ranked, bins: int, binning: Binning, sign: int) -> Float64:
    """P(correct | c) at each confidence, for each strength: (strengths, confidences)."""
    sums = bin_sums(ranked, bins, binning)
    gap = np.repeat(sums.gap, np.diff(sums.cuts))
    fixed = np.where(gap * sign < 0, gap, 0)
    return np.clip(ranked.confidence + fixed + STRENGTHS[:, None] * (gap - fixed), 0, 1)


def invert(observed: float, simulated: Float64, truth: Float64, level: float) -> Bounds:
    """True values of those populations under which ``observed`` is not surprising.

    ``simulated`` has shape (draws, strengths). Its mean plus and minus z standard deviations, as
    functions of the strength, are crossed with the observed value. The upper bound stays half a
    standard deviation of noise above its floor: a value below anything expected of a calibrated
    model is luck, not proof of perfection. NaN where the value, or that of most draws, is not
    defined.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - SciPy costs 0.1 s to import

    defined = simulated[~np.isnan(simulated).any(axis=1)]
    if math.isnan(observed) or len(defined) <= len(simulated) / 2:
        return math.nan, math.nan
    simulated = defined
    z = float(ndtri((1 + level) / 2)) * SHAPE_UNCERTAINTY
    mean, noise = simulated.mean(axis=0), simulated.std(axis=0, ddof=1)
    truth = np.maximum.accumulate(truth)

    def crossing(curve: Float64, least: float) -> float:
        rising = np.maximum.accumulate(curve)
        value = max(observed, rising[0] + least)
        if value <= rising[0]:  # interp would answer for the far end of a flat stretch
            return float(truth[0])
        if value > rising[-1]:  # beyond twice the gaps: noise no longer matters, so the slope is 1
            return float(truth[-1] + value - rising[-1])
        strength = np.interp(value, rising, STRENGTHS)
        return float(np.interp(strength, STRENGTHS, truth))

    return crossing(mean + z * noise, 0.0), crossing(mean - z * noise, noise[0] / 2)


def classwise_bounds(
    p: Predictions, *, level: float, draws: int, seed: int, bins: int = 15, norm: float = 1
) -> Bounds:
    """The grid bootstrap on the cells of class and bin.

    Replicates of a cell are moved so that their mean is strength times the observed residual.
    """
    everyone = np.ones((1, p.num_samples), dtype=np.float32)
    count, residual = resampled_classwise_cells(p, everyone, bins=bins)
    mean = residual / np.where(count > 0, count, 1)
    rows = []
    for weights in resample_weights(p.num_samples, draws, seed, elements=p.num_classes * bins):
        drawn_count, drawn = resampled_classwise_cells(p, weights.astype(np.float32), bins=bins)
        moved = (drawn - (1 - strength) * mean * drawn_count for strength in STRENGTHS)
        rows.append(np.stack([mean_gap_norm(drawn_count, cells, norm) for cells in moved], axis=1))
    truth = [float(mean_gap_norm(count, strength * residual, norm)[0]) for strength in STRENGTHS]
    observed = float(mean_gap_norm(count, residual, norm)[0])
    low, high = invert(observed, np.concatenate(rows), np.array(truth), level)
    ranked = Sample.of(p).ranked
    stated = m.mean_confidence(ranked)
    gaps = [abs(unseen.accuracy - stated) for unseen in _unseen_populations(ranked, level)]
    # What predicted classes have too much, others have too little: one to two parts in K.
    least, most = 1 / p.num_classes, 2 / p.num_classes if norm == 1 else 1.0
    return min([low, *(least * gap for gap in gaps)]), max([high, *(most * gap for gap in gaps)])
