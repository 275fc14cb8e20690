"""The calibration curve of P(positive) by local regression, and the errors read from it.

Lowess (Cleveland, 1979): at each prediction a weighted line through the nearest two thirds of the
samples, tricube weights, no robustness steps, as Harrell's ``val.prob`` draws it. More than 128
distinct predictions are first gathered into as many runs of equally many samples, each at its mean
prediction; the curve, smooth over two thirds of the samples, is then interpolated linearly.
"""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64, dot
from calibrant.metrics._binning import bin_cuts, sums_between
from calibrant.metrics._positive import Binary, Class, positives
from calibrant.metrics._sample import Ranked

CURVE_SPAN = 2 / 3
CURVE_CELLS = 128


def ici(p: Binary, *, positive: Class = None) -> float:
    r"""Integrated calibration index: mean distance of predictions from the calibration curve.

    Range 0 to 1, lower is better. :math:`\frac1N \sum_i |\hat c(p_i) - p_i|` with
    :math:`\hat c` the frequency of positives by lowess over two thirds of the samples (degree 1,
    tricube weights, cut off at 0 and 1). No bins. Biased upward at small N.

    References
    ----------
    Austin and Steyerberg (2019), doi:10.1002/sim.8281; Cleveland (1979),
    doi:10.1080/01621459.1979.10481038.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.4] * 10, labels=[1] + [0] * 9)
    >>> round(metrics.ici(p), 4)
    0.3
    """
    ranked = positives(p, positive, "ici")
    return dot(_distance(ranked), ranked.count) / ranked.total


def e50(p: Binary, *, positive: Class = None) -> float:
    """Median distance of predictions from the calibration curve.

    Range 0 to 1, lower is better. As ``ici``, with the median in place of the mean.

    References
    ----------
    Austin and Steyerberg (2019), doi:10.1002/sim.8281.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.4] * 10, labels=[1] + [0] * 9)
    >>> round(metrics.e50(p), 4)
    0.3
    """
    return _quantile(positives(p, positive, "e50"), 0.5)


def e90(p: Binary, *, positive: Class = None) -> float:
    """90th percentile of the distance of predictions from the calibration curve.

    Range 0 to 1, lower is better. As ``ici``, with the 90th percentile in place of the mean.

    References
    ----------
    Austin and Steyerberg (2019), doi:10.1002/sim.8281.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.4] * 10, labels=[1] + [0] * 9)
    >>> round(metrics.e90(p), 4)
    0.3
    """
    return _quantile(positives(p, positive, "e90"), 0.9)


def calibration_curve(ranked: Ranked) -> Float64:
    """Smoothed frequency of positives at each distinct prediction; kept with the data."""
    if "calibration_curve" not in vars(ranked):
        vars(ranked)["calibration_curve"] = _curve(ranked)
    curve: Float64 = vars(ranked)["calibration_curve"]
    return curve


def _distance(ranked: Ranked) -> Float64:
    return np.abs(calibration_curve(ranked) - ranked.confidence)


def _quantile(ranked: Ranked, share: float) -> float:
    """The least distance with at least this share of the samples at or below it."""
    distance = _distance(ranked)
    order = np.argsort(distance)
    reached = np.cumsum(ranked.count[order])
    return float(distance[order[np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))]])


def _curve(ranked: Ranked) -> Float64:
    some = ranked.count > 0
    x, count, hits = ranked.confidence[some], ranked.count[some], ranked.hits[some]
    at = x
    if len(x) > CURVE_CELLS:
        present = Ranked(x, count, hits)
        sums = sums_between(present, bin_cuts(present, CURVE_CELLS, "mass"))
        full = sums.count > 0
        count, hits = sums.count[full], sums.hits[full]
        ends = x[[0, -1]]
        x = sums.mean_confidence[full]
        at = np.concatenate((ends[:1], x, ends[1:]))
    fitted = _lowess(x, count, hits, at)
    return np.interp(ranked.confidence, at, np.clip(fitted, 0, 1))


def _lowess(x: Float64, count: Float64, hits: Float64, at: Float64) -> Float64:
    """Local lines through the nearest ``CURVE_SPAN`` of the counts; x and at are sorted."""
    distance = x - at[:, None]
    reach = _reach(x, count, at)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        near = np.abs(distance) / reach
    near = np.where(reach > 0, near, np.where(distance == 0, 0.0, 1.0))
    cube = np.maximum(1 - near * near * near, 0)
    weight = cube * cube * cube
    s0, s1, s2 = (weight * power @ count for power in (1.0, distance, distance * distance))
    t0, t1 = weight @ hits, (weight * distance) @ hits
    determinant = s0 * s2 - s1 * s1
    flat = determinant <= 1e-12 * s0 * s2  # one distinct value nearby: the mean is all there is
    with np.errstate(invalid="ignore", divide="ignore"):
        line = (s2 * t0 - s1 * t1) / determinant
        mean = t0 / s0
    return np.where(flat, mean, line)


def _reach(x: Float64, count: Float64, at: Float64) -> Float64:
    """Distance to the nearest ``CURVE_SPAN`` of the counts: the shortest window that holds them."""
    total = np.concatenate(([0.0], np.cumsum(count)))
    needed = max(np.floor(CURVE_SPAN * total[-1] + 1e-10), 1.0)
    first = np.flatnonzero(total[-1] - total[:-1] >= needed - 1e-9)
    last = np.searchsorted(total, total[first] + needed - 1e-9) - 1
    reach = np.maximum(at[:, None] - x[first], x[last] - at[:, None])
    shortest: Float64 = reach.min(axis=1)
    return shortest
