"""Differences between models on the same samples.

Averages and rankings are compared by the bootstrap standard error of their difference, accuracies
by the exact test of McNemar. Calibration errors need more: sampling noise pushes each estimate up,
and pushes a sharp model up by another amount than a blunt one. So each estimate is compared with
what it would be if the model's true error were e (its ``ErrorCurve``), and the interval holds the
differences of those pairs of true errors under which both estimates are not surprising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._bootstrap import resample_weights
from calibrant.inference._classwise import classwise_curve
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._grid import error_curves, estimators_of, gaps_of
from calibrant.inference._intervals import evaluate, functions_of
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._estimators import Estimator
from calibrant.metrics._sample import Ranked, Sample
from calibrant.predictions import Confidences, Predictions

# True errors tried for each of two models, within so many standard deviations of its estimate.
ERRORS_TRIED = 161
REACH = 6.0
# The correlation of two estimates needs fewer replicates than the tails of one.
CORRELATION_REPLICATES = 300
LARGEST_CORRELATION = 0.9999

Models = Mapping[str, Predictions | Confidences]


@dataclass(frozen=True)
class Difference:
    """A metric of model ``first`` minus that of model ``second`` on the same samples.

    ``value`` is the difference of the two estimates. ``low``, ``high`` and the two-sided
    ``p_value`` are about the population; for calibration errors they allow for the bias of each
    estimate, so ``value`` can lie outside. ``adjusted`` is the p-value corrected for all
    comparisons of the table (Holm).
    """

    metric: str
    first: str
    second: str
    value: float
    low: float
    high: float
    standard_error: float
    p_value: float
    adjusted: float = math.nan
    level: float = 0.95


def paired_differences(
    models: Models,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> tuple[dict[str, dict[str, float]], list[Difference]]:
    """Values by model and metric, and all pairwise differences from common resamples."""
    resampling, options = Resampling(level, replicates, seed), options or {}
    functions = functions_of(names, options)
    values = {model: evaluate(p, functions) for model, p in models.items()}
    plain = {k: f for k, f in functions.items() if METRICS[k].interval == "bootstrap"}
    biased = [name for name in names if METRICS[name].plug_in]
    drawn = {model: _resampled(p, plain, resampling) for model, p in models.items()}
    errors = {
        model: _BiasedErrors.of(p, biased, options, resampling) for model, p in models.items()
    }

    def compare(first: str, second: str, name: str) -> Difference:
        gap = values[first][name] - values[second][name]
        if METRICS[name].interval == "exact":
            found = _by_discordant_pairs(models[first], models[second], level)
        elif name in plain:
            varied = drawn[first][name] - drawn[second][name]
            found = _by_standard_error(gap, varied, level, len(models[first]))
        else:
            found = _by_true_errors(errors[first], errors[second], name, level)
        return Difference(
            name, first, second, gap, *found.bounds, found.error, found.p_value, level=level
        )

    with np.errstate(invalid="ignore"):  # two infinite losses have no difference: NaN
        found = [compare(*pair, name) for pair in combinations(models, 2) for name in names]
    adjusted = holm([difference.p_value for difference in found])
    return values, [replace(d, adjusted=p) for d, p in zip(found, adjusted, strict=True)]


@dataclass(frozen=True)
class _Found:
    """What a test of one difference found."""

    bounds: Bounds
    error: float
    p_value: float


# --- averages and rankings --------------------------------------------------------------------


def _resampled(
    p: Predictions | Confidences,
    functions: Mapping[str, Callable[[Sample], float]],
    resampling: Resampling,
) -> dict[str, Float64]:
    """Values of each metric on resamples that are the same for every model."""
    sample = Sample.of(p)
    return _on_resamples({name: (sample, f) for name, f in functions.items()}, resampling)


def _on_resamples(
    functions: Mapping[str, tuple[Sample, Callable[[Sample], float]]], resampling: Resampling
) -> dict[str, Float64]:
    """Each function of its own form of the sample, on common resamples."""
    if not functions:
        return {}
    order = next(iter(functions.values()))[0].order
    samples = {id(sample): sample for sample, _ in functions.values()}

    def evaluate(weight: Float64) -> list[float]:
        drawn = {key: sample.reweighted(weight) for key, sample in samples.items()}
        return [f(drawn[id(sample)]) for sample, f in functions.values()]

    rows: list[list[float]] = []
    for weights in resample_weights(len(order), resampling.replicates, resampling.seed):
        rows += map(evaluate, weights[:, order])
    return dict(zip(functions, np.array(rows).T, strict=True))


def _by_standard_error(gap: float, drawn: Float64, level: float, size: int) -> _Found:
    from scipy.special import ndtr, ndtri

    drawn = drawn[~np.isnan(drawn)]
    error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
    z = float(ndtri((1 + level) / 2))
    if math.isnan(gap) or math.isnan(error):
        p_value = math.nan
    elif error == 0:  # the same difference in every resample: as unlikely as N equal signs
        p_value = 1.0 if gap == 0 else min(1.0, 2.0 ** (1 - size))
    else:
        p_value = float(2 * ndtr(-abs(gap) / error))
    return _Found((gap - z * error, gap + z * error), error, p_value)


# --- accuracy ---------------------------------------------------------------------------------


def _by_discordant_pairs(
    first: Predictions | Confidences, second: Predictions | Confidences, level: float
) -> _Found:
    """The exact test on samples that only one of the models gets right.

    References: McNemar (1947), doi:10.1007/BF02295996; the interval, with one pair added to each
    side: Bonett and Price (2012), doi:10.3102/1076998611411915. Where the exact test cannot tell,
    the interval reaches 0.
    """
    from scipy.special import ndtri
    from scipy.stats import binom

    a, b = first.correct.astype(bool), second.correct.astype(bool)
    size, won, lost = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    p_value = min(1.0, 2 * float(binom.cdf(min(won, lost), won + lost, 0.5)))
    if won + lost == 0:
        return _Found((0.0, 0.0), 0.0, p_value)
    gap = (won - lost) / (size + 2)
    error = math.sqrt((won + lost + 2) / (size + 2) - gap**2) / math.sqrt(size + 2)
    z = float(ndtri((1 + level) / 2))
    low, high = gap - z * error, gap + z * error
    if p_value >= 1 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return _Found((max(low, -1.0), min(high, 1.0)), error, p_value)


# --- calibration errors -----------------------------------------------------------------------


@dataclass(frozen=True)
class _BiasedErrors:
    """Calibration errors of one model: their curves, and how they vary with the samples.

    ``varied`` are values on resamples common to all models, with gaps as strong as estimated.
    ``back`` leads from the scale of a curve to that of the metric.
    """

    curves: Mapping[str, ErrorCurve]
    varied: Mapping[str, Float64]
    back: Mapping[str, Callable[[float], float]]

    @classmethod
    def of(
        cls,
        p: Predictions | Confidences,
        names: Sequence[str],
        options: Mapping[str, Mapping[str, Any]],
        resampling: Resampling,
    ) -> _BiasedErrors:
        sample = Sample.of(p)
        fewer = replace(resampling, replicates=min(resampling.replicates, CORRELATION_REPLICATES))
        estimators = estimators_of(names, options, sample.ranked)
        curves = error_curves(sample, estimators, resampling)
        statistics = {
            name: (_centred(sample, e, curves[name]), _of_ranked(e.statistic))
            for name, e in estimators.items()
        }
        varied = _on_resamples(statistics, fewer)
        back = {name: e.back for name, e in estimators.items()}
        for name in names:
            if METRICS[name].interval == "rows" and isinstance(p, Predictions):
                chosen = options.get(name, {})
                curves[name] = classwise_curve(p, resampling, **chosen)
                varied[name] = _varied_classwise(p, curves[name], fewer, **chosen)
                back[name] = float
        return cls(curves, varied, back)


def _of_ranked(statistic: Callable[[Ranked], float]) -> Callable[[Sample], float]:
    return lambda sample: statistic(sample.ranked)


def _centred(sample: Sample, e: Estimator, curve: ErrorCurve) -> Sample:
    """The sample with its gaps as strong as the curve says, for resampling.

    Resampling the data as they are would vary noise that was observed as if it were real.
    """
    gap = gaps_of(sample.ranked, *e.family)
    if sample.starts is not None:
        gap = np.repeat(gap, np.diff(np.append(sample.starts, len(sample.order))))
    return replace(sample, correct=sample.correct - (1 - min(curve.strength, 1.0)) * gap)


def _varied_classwise(
    p: Predictions, curve: ErrorCurve, resampling: Resampling, *, bins: int = 15, norm: float = 1
) -> Float64:
    """As ``_centred``, cell by cell of class and bin."""
    everyone = np.ones((1, p.num_samples), dtype=np.float32)
    count, residual = resampled_classwise_cells(p, everyone, bins=bins)
    taken = (1 - min(curve.strength, 1.0)) * residual / np.where(count > 0, count, 1)
    elements = p.num_classes * bins
    batches = resample_weights(
        p.num_samples, resampling.replicates, resampling.seed, elements=elements
    )
    parts = []
    for weights in batches:
        drawn_count, drawn = resampled_classwise_cells(p, weights.astype(np.float32), bins=bins)
        parts.append(mean_gap_norm(drawn_count, drawn - taken * drawn_count, norm))
    return np.concatenate(parts)


def _by_true_errors(first: _BiasedErrors, second: _BiasedErrors, name: str, level: float) -> _Found:
    """Likelihood-ratio test and interval over pairs of true errors.

    For each pair the two estimates have an expected value (from their curves) and a covariance.
    Twice the log-likelihood ratio of a difference, against the best pair, is compared with a
    chi-squared variable of one degree of freedom.
    """
    from scipy.special import chdtrc, chdtri

    a, b = first.curves[name], second.curves[name]
    if not (a.defined and b.defined):
        return _Found((math.nan, math.nan), math.nan, math.nan)
    if a.observed == b.observed and np.array_equal(first.varied[name], second.varied[name]):
        return _Found((0.0, 0.0), 0.0, 1.0)
    tried = _errors_tried(a, b)
    correlation = _correlation(first.varied[name], second.varied[name])
    distance, error = _distances(a, b, tried, correlation)
    ratio = distance - distance.min()
    p_value = float(chdtrc(1, np.diagonal(ratio).min()))
    back = np.array([first.back[name](error) for error in tried])
    differences = (back[:, None] - back)[ratio <= chdtri(1, 1 - level)]
    low, high = float(differences.min()), float(differences.max())
    if p_value >= 1 - level:
        low, high = min(low, 0.0), max(high, 0.0)
    return _Found((low, high), error, p_value)


def _errors_tried(a: ErrorCurve, b: ErrorCurve) -> Float64:
    """True errors from the least to the largest that either estimate allows for."""
    ends = []
    for curve in (a, b):
        reach = REACH * float(curve.noise.max())
        ends += [
            replace(curve, observed=curve.observed + move).estimate for move in (-reach, reach)
        ]
    return np.linspace(min(ends), max(ends), ERRORS_TRIED)


def _correlation(first: Float64, second: Float64) -> float:
    """Correlation of two estimates over common resamples; 0 where one does not vary."""
    kept = ~(np.isnan(first) | np.isnan(second))
    x, y = first[kept], second[kept]
    if len(x) < 3 or not (x.std() and y.std()):  # noqa: PLR2004 - two points always correlate
        return 0.0
    found = float(np.corrcoef(x, y)[0, 1])
    return min(max(found, -LARGEST_CORRELATION), LARGEST_CORRELATION)


def _distances(
    a: ErrorCurve, b: ErrorCurve, tried: Float64, correlation: float
) -> tuple[Float64, float]:
    """Squared Mahalanobis distance of the estimates from what each pair of true errors leads to.

    With it the standard error of the difference at the likeliest pair. Infinite where a true error
    is impossible.
    """
    (mean_a, sd_a), (mean_b, sd_b) = a.expected(tried), b.expected(tried)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (a.observed - mean_a) / sd_a, (b.observed - mean_b) / sd_b
        square = x[:, None] ** 2 - 2 * correlation * x[:, None] * y + y**2
    distance = np.where(np.isfinite(square), square / (1 - correlation**2), np.inf)
    i, j = np.unravel_index(int(distance.argmin()), distance.shape)
    variance = sd_a[i] ** 2 + sd_b[j] ** 2 - 2 * correlation * sd_a[i] * sd_b[j]
    return distance, math.sqrt(max(float(variance), 0.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method, which controls the family-wise error; NaN stays NaN.

    Reference: Holm (1979), https://www.jstor.org/stable/4615733.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(values), np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    scaled = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted.tolist()
