"""Intervals of the accuracy of bins."""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant._core.numerics import normal_quantile
from calibrant.metrics._binning import BinSums
from calibrant.metrics._sample import Measurable, Ranked, Sample
from calibrant.predictions import Confidences, Predictions

Pair = tuple[Float64, Float64]


def wilson_interval(
    hits: Float64, count: Float64, level: float, *, z: Float64 | None = None
) -> Pair:
    """Score interval of a proportion: right also near 0 and 1, where the plain one is not.

    ``z`` replaces the normal quantile of the level.

    Reference: Wilson (1927), doi:10.2307/2276774.

    >>> low, high = wilson_interval(np.array([10.0]), np.array([10.0]), 0.95)
    >>> bool(abs(low[0] - 0.7225) < 1e-4), float(high[0].round(12))
    (True, 1.0)
    """
    z2 = np.square(normal_quantile((1 + level) / 2) if z is None else z)
    n = np.where(count > 0, count, 1)
    share = hits / n
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2) / (1 + z2 / n) * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    # Rounding must not put a proportion of 0 or 1 outside its own interval.
    return np.clip(middle - half, 0, share), np.clip(middle + half, share, 1)


def bin_bounds(p: Measurable | Ranked, sums: BinSums, level: float) -> Pair:
    """Wilson intervals of the bins' accuracies, with as many samples as those are worth.

    The variance of a bin's accuracy by clusters makes its n samples worth a (1 - a) / v, and the
    quantile is that of Student's t with one degree of freedom less than there are clusters in the
    bin. A bin of one cluster has the interval from 0 to 1.
    """
    sample = None if isinstance(p, Ranked) else Sample.of(p)
    if sample is None or sample.source.is_independent:
        return wilson_interval(sums.hits, sums.count, level)
    number = len(sample.order)
    starts = np.arange(number) if sample.starts is None else sample.starts
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, number)))
    inside = np.empty(number, dtype=np.int64)
    inside[sample.order] = np.searchsorted(sums.cuts, place, side="right") - 1
    return cell_bounds(sample.source, inside, len(sums.count), level)


def cell_bounds(p: Predictions | Confidences, cell: Int, cells: int, level: float) -> Pair:
    """The intervals of the accuracy in each of some cells, given the cell of every sample."""
    from scipy.special import stdtrit

    weight = np.ones(len(p)) if p.weights is None else p.weights / p.weights.mean()
    count: Float64 = np.bincount(cell, weight, cells).astype(np.float64)
    share = np.bincount(cell, weight * p.correct, cells) / np.where(count > 0, count, 1)
    if p.is_independent:
        return wilson_interval(share * count, count, level)
    codes = p.belonging.codes
    unit = np.arange(len(p)) if codes is None else codes
    pair, which = np.unique(unit * cells + cell, return_inverse=True)
    sums = np.bincount(which, weight * (p.correct - share[cell]))
    clusters = np.bincount(pair % cells, minlength=cells).astype(np.float64)
    total = np.bincount(pair % cells, sums**2, cells) * clusters / np.maximum(clusters - 1, 1)
    variance = total / np.where(count > 0, count, 1) ** 2
    known = variance > 0
    size = np.where(known, share * (1 - share) / np.where(known, variance, 1), clusters)
    z = stdtrit(np.maximum(clusters - 1, 1), (1 + level) / 2)
    low, high = wilson_interval(share * size, size, level, z=z)
    alone = clusters == 1
    return np.where(alone, 0.0, low), np.where(alone, 1.0, high)
