"""Calibration errors of two models on the same samples.

Sampling noise pushes each estimate up, and pushes a sharp model up by another amount than a blunt
one. So each estimate is compared with what it would be if the model's true error were e (its
``ErrorCurve``), and the interval holds the differences of those pairs of true errors under which
both estimates are not surprising. Estimates without bias need none of this: their difference is
compared with its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.inference._bootstrap import resample_weights
from calibrant.inference._classwise import classwise_curve
from calibrant.inference._clusters import design_effect, thinned
from calibrant.inference._curves import SHAPE_UNCERTAINTY, ErrorCurve
from calibrant.inference._grid import (
    FEW_EXPECTED,
    entries_of,
    error_curves,
    estimators_of,
    worth,
)
from calibrant.inference._paired_test import PairedTest, by_standard_error
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._estimators import Estimator
from calibrant.metrics._sample import Sample
from calibrant.metrics._simulated import Simulated
from calibrant.predictions import Confidences, Predictions

# True errors tried for each of two models.
ERRORS_TRIED = 161
# The covariance of two estimates needs fewer replicates than the tails of one.
RESAMPLES = 300
# Keeps estimates without variance (all predictions certain and correct) comparable.
LEAST_NOISE = 1e-12
# Outcomes added where there are few of them.
UNSEEN = 2
LARGEST_CORRELATION = 0.9999
# Elements of a batch of resamples; see ``_grid`` for the size.
BATCH_ELEMENTS = 1 << 18


@dataclass(frozen=True)
class BiasedErrors:
    """Calibration errors of one model: their curves, and how they vary with the samples.

    ``varied`` are values on resamples common to all models, ``noise`` their standard deviations,
    ``wider`` a factor on those because the gaps of many bins are themselves estimated.
    ``back`` leads from the scale of a curve to that of the metric. Errors without bias have no
    curve; ``unbiased`` has their values, on the scale of the metric as those that vary. ``scarce``
    says that there are few right or few wrong answers.
    """

    curves: Mapping[str, ErrorCurve]
    varied: Mapping[str, Float64]
    noise: Mapping[str, float]
    wider: Mapping[str, float]
    back: Mapping[str, Callable[[float], float]]
    unbiased: Mapping[str, float]
    size: int
    scarce: bool = False

    @classmethod
    def of(
        cls,
        p: Predictions | Confidences,
        names: Sequence[str],
        options: Mapping[str, Mapping[str, Any]],
        resampling: Resampling,
        effects: tuple[float, float] = (1.0, 1.0),
    ) -> BiasedErrors:
        """Simulate the named errors of one model; ``effects`` as ``largest_effects`` has them."""
        whole = Sample.of(p)
        part, rows = (thinned(p, resampling.seed, effect) for effect in effects)
        sample = whole if part is p else Sample.of(part)
        fewer = replace(resampling, replicates=min(resampling.replicates, RESAMPLES))
        estimators = estimators_of(names, options, sample.ranked)
        exact = {name: e for name, e in estimators.items() if e.unbiased}
        simulated = {name: e for name, e in estimators.items() if not e.unbiased}
        curves = error_curves(sample, simulated, resampling, whole=whole)
        varied = varied_errors(sample, estimators, fewer)
        back = {name: e.back for name, e in estimators.items()}
        wider = {n: SHAPE_UNCERTAINTY if e.many_gaps else 1.0 for n, e in estimators.items()}
        for name in names:
            if METRICS[name].interval == "rows" and isinstance(rows, Predictions):
                chosen, given = options.get(name, {}), p if isinstance(p, Predictions) else None
                curves[name] = classwise_curve(rows, resampling, whole=given, **chosen)
                varied[name] = _varied_classwise(rows, fewer, **chosen)
                back[name], wider[name] = float, SHAPE_UNCERTAINTY
        noise = {name: _noise(curve, varied[name], sample) for name, curve in curves.items()}
        observed = worth(whole, sample)
        values = {name: e.back(e.statistic(observed)) for name, e in exact.items()}
        for name, e in exact.items():
            varied[name] = np.array([e.back(value) for value in varied[name].tolist()])
        few = _scarce(sample) is not None
        return cls(curves, varied, noise, wider, back, values, len(sample.order), few)


def largest_effects(models: Mapping[str, Predictions | Confidences]) -> tuple[float, float]:
    """Design effects of the top label and of all classes: one for all, so that rows are common."""
    return (
        max(design_effect(p).larger for p in models.values()),
        max(design_effect(p, classwise=True).larger for p in models.values()),
    )


def _noise(curve: ErrorCurve, varied: Float64, sample: Sample) -> float:
    """Standard deviation of an estimate.

    That over resamples of the data as they are: the gaps of two models on the same samples mostly
    have the same sign, and what pushes one estimate up pushes up the other. Where gaps could have
    either sign, the standard deviation is smaller. With few right or few wrong answers it is at
    least that of the simulation.
    """
    known = varied[~np.isnan(varied)]
    noise = float(known.std(ddof=1)) if len(known) > 1 else 0.0
    if _scarce(sample) is not None and curve.defined:
        noise = max(noise, curve.noise_of_estimate)
    return max(noise, LEAST_NOISE)


def _scarce(sample: Sample) -> float | None:
    """The outcome, right (1) or wrong (0), of which there are few; None where there are enough."""
    right, wrong = float(sample.ranked.hits.sum()), float(sample.ranked.misses.sum())
    if min(right, wrong) >= FEW_EXPECTED:
        return None
    return 1.0 if right < wrong else 0.0


def varied_errors(
    sample: Sample, estimators: Mapping[str, Estimator], resampling: Resampling
) -> dict[str, Float64]:
    """Values of the errors on common resamples of the samples.

    Resamples of right answers are all right, although some wrong ones may have been missed by luck.
    So where one outcome is scarce, a sample has it with the chance that two more of them would give
    (Agresti and Coull, 1998, doi:10.1080/00031305.1998.10480550); the same samples in every model.
    """
    if not estimators:
        return {}
    ranked, entry, scarce = sample.ranked, entries_of(sample), _scarce(sample)
    correct = np.empty(len(entry))
    correct[sample.order] = sample.correct
    lots = np.random.default_rng((resampling.seed, 3))
    chance = UNSEEN / (len(entry) + 2 * UNSEEN)
    parts: dict[str, list[Float64]] = {name: [] for name in estimators}
    for rows in _common_rows(len(entry), resampling):
        outcome = correct[rows]
        if scarce is not None:
            outcome[lots.random(rows.shape) < chance] = scarce
        drawn = Simulated(ranked.confidence, entry[rows], outcome=outcome)
        for name, e in estimators.items():
            parts[name].append(e.batched(drawn)[:, 0])
    return {name: np.concatenate(part) for name, part in parts.items()}


def _common_rows(size: int, resampling: Resampling) -> Iterator[Int]:
    """Yield the samples drawn into replicates, in batches (R, N); the same for every model."""
    rng = np.random.default_rng(resampling.seed)
    step = max(1, BATCH_ELEMENTS // size)
    for start in range(0, resampling.replicates, step):
        yield rng.integers(0, size, (min(step, resampling.replicates - start), size))


def _varied_classwise(
    p: Predictions, resampling: Resampling, *, bins: int = 15, norm: float = 1
) -> Float64:
    """As ``varied_errors``, of classwise ECE."""
    batches = resample_weights(
        p.num_samples, resampling.replicates, resampling.seed, elements=p.num_classes * bins
    )
    cells = (resampled_classwise_cells(p, w.astype(np.float32), bins=bins) for w in batches)
    return np.concatenate([mean_gap_norm(count, residual, norm) for count, residual in cells])


def by_true_errors(first: BiasedErrors, second: BiasedErrors, name: str) -> PairedTest:
    """Likelihood-ratio test and intervals over pairs of true errors.

    For each pair the two estimates have expected values (from their curves); their covariance is
    that over common resamples. Twice the log-likelihood ratio of a difference, against the best
    pair, is compared with a chi-squared variable of one degree of freedom.
    """
    from scipy.special import chdtrc, chdtri

    wider = first.wider[name]
    if name in first.unbiased:
        gap = first.unbiased[name] - second.unbiased[name]
        drawn = wider * (first.varied[name] - second.varied[name])
        return by_standard_error(gap, drawn, first.size)
    a, b = first.curves[name], second.curves[name]
    if not (a.defined and b.defined):
        return PairedTest(math.nan, math.nan, lambda _: (math.nan, math.nan))
    if a.observed == b.observed and np.array_equal(first.varied[name], second.varied[name]):
        return PairedTest(0.0, 1.0, lambda _: (0.0, 0.0))
    ends = (*a.likely_errors, *b.likely_errors)
    tried = np.linspace(min(ends), max(ends), ERRORS_TRIED)
    correlation = _correlation(first.varied[name], second.varied[name])
    noise = wider * first.noise[name], wider * second.noise[name]
    under = wider * _noise_under(first, name, tried), wider * _noise_under(second, name, tried)
    ratio = _ratios(a, b, tried, under, correlation)
    variance = noise[0] ** 2 + noise[1] ** 2 - 2 * correlation * noise[0] * noise[1]
    p_value = float(chdtrc(1, np.diagonal(ratio).min()))
    back = np.array([first.back[name](e) for e in tried])

    def bounds(level: float) -> Bounds:
        # Computed again: kept for all pairs of 50 models, the grids would take gigabytes.
        i, j = np.nonzero(_ratios(a, b, tried, under, correlation) <= chdtri(1, 1 - level))
        gaps = back[i] - back[j]
        return float(gaps.min()), float(gaps.max())

    i, j = np.unravel_index(int(ratio.argmin()), ratio.shape)
    side = float(back[i] - back[j])
    return PairedTest(math.sqrt(max(variance, 0.0)), p_value, bounds, side)


def _noise_under(model: BiasedErrors, name: str, tried: Float64) -> Float64:
    """Standard deviation of an estimate under each true error.

    That of the data as they are, but for errors that count gaps of one sign: a model without such
    gaps has estimates of chance gaps, half of which do not count, and they vary less. So where the
    estimate is larger than the true error explains, its noise is that of the population that would
    explain most of it. With few right or few wrong answers that is too little known.
    """
    curve, noise = model.curves[name], np.full(len(tried), model.noise[name])
    if not curve.one_sided or model.scarce:
        return noise
    _, most = curve.expected(tried)
    supposed = np.maximum(curve.noise_under(tried), LEAST_NOISE)
    return np.where(curve.observed > most, supposed, noise)


def _correlation(first: Float64, second: Float64) -> float:
    """Correlation of two estimates over common resamples; 0 where one does not vary."""
    kept = ~(np.isnan(first) | np.isnan(second))
    x, y = first[kept], second[kept]
    if len(x) < 3:  # noqa: PLR2004 - two points always correlate
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x)) * math.sqrt(float(y @ y))
    found = float(x @ y) / scale if scale else 0.0
    return min(max(found, -LARGEST_CORRELATION), LARGEST_CORRELATION)


def _ratios(
    a: ErrorCurve,
    b: ErrorCurve,
    tried: Float64,
    noise: tuple[Float64, Float64],
    correlation: float,
) -> Float64:
    """Twice the log-likelihood ratio of each pair of true errors against the likeliest pair.

    It is a difference of squared Mahalanobis distances, infinite where a true error is impossible.
    Where several means are possible for a true error, the nearest one counts.
    """
    nearest = (np.clip(c.observed, *c.expected(tried)) for c in (a, b))
    x, y = ((c.observed - m) / sd for c, m, sd in zip((a, b), nearest, noise, strict=True))
    ratio: Float64 = (2 * correlation * x)[:, None] * y
    np.subtract((x**2)[:, None], ratio, out=ratio)
    ratio += y**2
    ratio /= 1 - correlation**2
    ratio[~np.isfinite(x)], ratio[:, ~np.isfinite(y)] = np.inf, np.inf
    ratio -= ratio.min()
    return ratio
