"""Calibration slope and intercept: logistic regression of the outcome on the log-odds."""

from __future__ import annotations

import math

import numpy as np

from calibrant._core.arrays import Float64, dot
from calibrant.metrics._positive import Binary, Class, doubt_of, positives
from calibrant.metrics._sample import Ranked

# Log-odds are kept within these of predictions of 1e-8 and 1 - 1e-8.
LARGEST_LOG_ODDS = math.log(1e8)
LOGISTIC_STEPS, LOGISTIC_TOLERANCE, LARGEST_LOGISTIC_STEP = 100, 1e-10, 2.0


def calibration_slope(p: Binary, *, positive: Class = None) -> float:
    r"""Slope of a logistic regression of the outcome on the log-odds of the prediction.

    Range -inf to inf; neither direction is better: 1 is. Below 1 predictions are too extreme, as
    after overfitting, above 1 not extreme enough. The b of :math:`\mathrm{logit}\, P(y) = a + b\,
    \mathrm{logit}\, p`, by maximum likelihood. Predictions outside 1e-8 … 1 - 1e-8 count as those.
    NaN where all samples are positive, none is, or all predictions are equal; infinite where the
    predictions separate the classes.

    References
    ----------
    Cox (1958), doi:10.1093/biomet/45.3-4.562; Van Calster et al. (2019),
    doi:10.1186/s12916-019-1466-7.

    >>> from calibrant import Predictions, metrics
    >>> labels = [1] * 7 + [0] * 10 + [1] * 3
    >>> p = Predictions.from_binary(probs=[0.9] * 10 + [0.1] * 10, labels=labels)
    >>> round(metrics.calibration_slope(p), 4)  # ln(7/3) / ln(9)
    0.3856
    """
    ranked = positives(p, positive, "calibration_slope")
    x, hits, misses = _log_odds(ranked), ranked.hits, ranked.misses
    hit, miss = x[hits > 0], x[misses > 0]
    if not len(hit) or not len(miss) or x[ranked.count > 0].min() == x[ranked.count > 0].max():
        return math.nan
    if hit.min() >= miss.max():
        return math.inf
    if hit.max() <= miss.min():
        return -math.inf
    return _logistic(x, ranked, slope=True)


def calibration_intercept(p: Binary, *, positive: Class = None) -> float:
    r"""Shift of the log-odds that makes predictions right on average (calibration in the large).

    Range -inf to inf; neither direction is better: 0 is. Below 0 risk is overestimated, above 0
    underestimated. The a of :math:`\mathrm{logit}\, P(y) = a + \mathrm{logit}\, p`, the slope fixed
    at 1, by maximum likelihood. Predictions outside 1e-8 … 1 - 1e-8 count as those. Infinite where
    all samples are positive, or none is.

    References
    ----------
    Cox (1958), doi:10.1093/biomet/45.3-4.562; Steyerberg (2019), doi:10.1007/978-3-030-16399-0.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.5] * 4, labels=[1, 0, 0, 0])
    >>> round(metrics.calibration_intercept(p), 4)  # ln(1/3)
    -1.0986
    """
    ranked = positives(p, positive, "calibration_intercept")
    if not ranked.hits.any() or not ranked.misses.any():
        return math.inf if ranked.hits.any() else -math.inf
    return _logistic(_log_odds(ranked), ranked, slope=False)


def _log_odds(ranked: Ranked) -> Float64:
    with np.errstate(divide="ignore"):
        x = np.log(ranked.confidence) - np.log(doubt_of(ranked))
    clipped: Float64 = np.clip(x, -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
    return clipped


def _logistic(x: Float64, ranked: Ranked, *, slope: bool) -> float:
    """Slope of y ~ a + b x, or intercept of y ~ a + x, by Newton's method with bounded steps."""
    a, b = 0.0, 1.0
    count, hits = ranked.count, ranked.hits
    square = x * x
    for _ in range(LOGISTIC_STEPS):
        q = 1 / (1 + np.exp(-(a + b * x)))
        expected = count * q
        residual, spread = hits - expected, expected * (1 - q)
        g0, h00 = float(residual.sum()), float(spread.sum())
        g1, h01, h11 = 0.0, 0.0, 1.0
        if slope:
            g1, h01, h11 = dot(residual, x), dot(spread, x), dot(spread, square)
        determinant = h00 * h11 - h01 * h01
        if determinant <= 0:
            return math.nan
        step_a, step_b = (h11 * g0 - h01 * g1) / determinant, (h00 * g1 - h01 * g0) / determinant
        scale = min(1.0, LARGEST_LOGISTIC_STEP / max(abs(step_a), abs(step_b), 1e-300))
        a, b = a + scale * step_a, b + scale * step_b
        if max(abs(step_a), abs(step_b)) < LOGISTIC_TOLERANCE * (1 + abs(a) + abs(b)):
            break
    return b if slope else a
