"""Differences between models on the same samples.

Averages and rankings are compared by the bootstrap standard error of their difference, accuracies
by the exact test of McNemar. Calibration errors need more: sampling noise pushes each estimate up,
and pushes a sharp model up by another amount than a blunt one. So each estimate is compared with
what it would be if the model's true error were e (its ``ErrorCurve``), and the interval holds the
differences of those pairs of true errors under which both estimates are not surprising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from calibrant import metrics as m
from calibrant._arrays import Float64
from calibrant._checks import check_count, check_seed
from calibrant.inference._bootstrap import Bounds, resample_weights
from calibrant.inference._classwise import classwise_curve
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._grid import Estimator, error_curves, estimator_of, gaps_of
from calibrant.inference._intervals import LEAST_DRAWS, evaluate, functions_of, simulated_draws
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._sample import Sample
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

    @property
    def sign(self) -> int:
        """-1 or 1 where the interval lies on that side of 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)


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
    check_count("replicates", replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
    check_seed(seed)
    options = options or {}
    functions = functions_of(names, options)
    values = {model: evaluate(p, functions) for model, p in models.items()}
    plain = {k: f for k, f in functions.items() if not m.METRICS[k].plug_in and k != "accuracy"}
    biased = [name for name in names if m.METRICS[name].plug_in]
    drawn = {model: _resampled(p, plain, replicates, seed) for model, p in models.items()}
    errors = {model: _BiasedErrors.of(p, biased, options, replicates, seed)
              for model, p in models.items()}  # fmt: skip

    def compare(first: str, second: str, name: str) -> Difference:
        gap = values[first][name] - values[second][name]
        if name == "accuracy":
            found = _by_discordant_pairs(models[first], models[second], level)
        elif name in plain:
            found = _by_standard_error(
                gap, drawn[first][name] - drawn[second][name], level, len(models[first])
            )
        else:
            found = _by_true_errors(errors[first], errors[second], name, level)
        return Difference(name, first, second, gap, *found.bounds, found.error, found.p_value,
                          level=level)  # fmt: skip

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
    replicates: int,
    seed: int,
) -> dict[str, Float64]:
    """Values of each metric on resamples that are the same for every model."""
    sample = Sample.of(p)
    rows = [
        [function(drawn) for function in functions.values()]
        for drawn in _reweighted(sample, replicates, seed)
    ] if functions else []  # fmt: skip
    return dict(zip(functions, np.array(rows).T, strict=True))


def _reweighted(sample: Sample, replicates: int, seed: int) -> Iterator[Sample]:
    for weights in resample_weights(len(sample.weight), replicates, seed):
        yield from map(sample.reweighted, weights[:, sample.order])


def _by_standard_error(gap: float, drawn: Float64, level: float, size: int) -> _Found:
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

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
    from scipy.special import ndtri  # noqa: PLC0415
    from scipy.stats import binom  # noqa: PLC0415 - SciPy is slow to import

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
        replicates: int,
        seed: int,
    ) -> _BiasedErrors:
        sample, draws = Sample.of(p), simulated_draws(replicates)
        estimators = {
            name: estimator_of(name, options.get(name, {}), sample.ranked)
            for name in names
            if m.METRICS[name].top_label
        }
        curves = error_curves(sample, estimators, draws=draws, seed=seed)
        replicates = min(replicates, CORRELATION_REPLICATES)
        varied = {
            name: np.array([e.statistic(drawn.ranked) for drawn in
                            _reweighted(_centred(sample, e, curves[name]), replicates, seed)])
            for name, e in estimators.items()
        }  # fmt: skip
        back = {name: e.back for name, e in estimators.items()}
        if "classwise_ece" in names and isinstance(p, Predictions):
            chosen = options.get("classwise_ece", {})
            curve = classwise_curve(p, draws=draws, seed=seed, **chosen)
            curves["classwise_ece"] = curve
            varied["classwise_ece"] = _varied_classwise(p, curve, replicates, seed, **chosen)
            back["classwise_ece"] = float
        return cls(curves, varied, back)


def _centred(sample: Sample, e: Estimator, curve: ErrorCurve) -> Sample:
    """The sample with its gaps as strong as the curve says, for resampling.

    Resampling the data as they are would vary noise that was observed as if it were real.
    """
    gap = gaps_of(sample.ranked, *e.family)
    if sample.starts is not None:
        gap = np.repeat(gap, np.diff(np.append(sample.starts, len(sample.order))))
    return replace(sample, correct=sample.correct - (1 - min(curve.strength, 1.0)) * gap)


def _varied_classwise(
    p: Predictions, curve: ErrorCurve, replicates: int, seed: int, *, bins: int = 15,
    norm: float = 1,
) -> Float64:  # fmt: skip
    """As ``_centred``, cell by cell of class and bin."""
    everyone = np.ones((1, p.num_samples), dtype=np.float32)
    count, residual = resampled_classwise_cells(p, everyone, bins=bins)
    taken = (1 - min(curve.strength, 1.0)) * residual / np.where(count > 0, count, 1)
    batches = resample_weights(p.num_samples, replicates, seed, elements=p.num_classes * bins)
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
    from scipy.special import chdtrc, chdtri  # noqa: PLC0415

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
        ends += [replace(curve, observed=curve.observed + move).estimate
                 for move in (-reach, reach)]  # fmt: skip
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
    """P-values corrected for their number so that any false alarm stays rare; NaN stays NaN.

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
