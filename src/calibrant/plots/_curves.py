"""Computations behind curves that are not metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.metrics._classwise import classwise_counts, mean_gap_norm
from calibrant.metrics._sample import rank
from calibrant.plots._inputs import Plottable
from calibrant.predictions import Predictions

# Narrower than this the confidences of a group are drawn as if they spread this much: a single
# sample has no width of its own.
LEAST_SPREAD = 0.02


def density(values: Float64, *, low: float, points: int) -> tuple[Float64, Float64]:
    """Kernel estimate of the density of ``values`` on [``low``, 1], reflected at both ends.

    Gaussian kernel; the bandwidth is Scott's std n^(-1/5), where a std below 0.02 counts as 0.02.
    The area is 1, by the trapezoidal rule to rounding:
    reflected smoothing is a product with Gaussian weights in the cosine transform, which leaves
    the mean alone.

    >>> x, y = density(np.array([0.5, 0.9, 1.0]), low=0.1, points=200)
    >>> float(np.trapezoid(y, x).round(9)), float(x[0]), float(x[-1])
    (1.0, 0.1, 1.0)
    """
    from scipy.fft import dct, idct

    cell = (1 - low) / points
    place = np.clip((values - low) / cell - 0.5, 0, points - 1)
    left = np.minimum(place.astype(np.int64), points - 2)
    grid = np.bincount(left, 1 - (place - left), minlength=points)
    grid += np.bincount(left + 1, place - left, minlength=points)
    # Kernels narrower than a grid cell would oscillate.
    width = max(bandwidth(values), cell) / (1 - low)
    damping = np.exp(-((math.pi * width * np.arange(points)) ** 2) / 2)
    y = np.maximum(idct(dct(grid) * damping), 0) / (len(values) * cell)
    x = low + cell * (np.arange(points) + 0.5)
    # The reflected density is level at the ends.
    return np.concatenate(([low], x, [1.0])), np.concatenate((y[:1], y, y[-1:]))


def bandwidth(values: Float64) -> float:
    """Width of the kernel, by Scott's rule."""
    return float(max(float(values.std()), LEAST_SPREAD) * len(values) ** -0.2)


def risk_by_coverage(p: Plottable) -> tuple[Float64, Float64]:
    """Error rate of the k most confident samples, k = 1 … N, against k / N.

    Within a group of equal confidences, the mean over their orders; so the mean of the risks is
    ``metrics.aurc``.

    >>> from calibrant import Confidences
    >>> risk_by_coverage(Confidences(confidence=[0.9, 0.8], correct=[1, 0]))
    (array([0.5, 1. ]), array([0. , 0.5]))
    """
    ranked = rank(p)
    count, misses = ranked.count[::-1], ranked.misses[::-1]
    size = count.astype(np.int64)
    kept = np.arange(1.0, ranked.total + 1)
    more_confident = np.repeat(np.cumsum(count) - count, size)
    wrong_among_them = np.repeat(np.cumsum(misses) - misses, size)
    rate = np.repeat(misses / count, size)
    risk: Float64 = (wrong_among_them + (kept - more_confident) * rate) / kept
    return kept / ranked.total, risk


def accuracy_above(p: Plottable) -> tuple[Float64, Float64]:
    """Accuracy of the samples with confidence >= t, at every confidence t that occurs.

    >>> from calibrant import Confidences
    >>> accuracy_above(Confidences(confidence=[0.9, 0.8], correct=[1, 0]))
    (array([0.8, 0.9]), array([0.5, 1. ]))
    """
    thresholds, group = np.unique(p.confidence, return_inverse=True)
    count = np.bincount(group)
    hits = np.bincount(group, p.correct)
    accuracy: Float64 = np.cumsum(hits[::-1])[::-1] / np.cumsum(count[::-1])[::-1]
    return thresholds, accuracy


def evenly_spaced(count: int, most: int) -> Int:
    """Indices of at most ``most`` of ``count`` points, evenly spaced, with the first and last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


@dataclass(frozen=True)
class Classwise:
    """For every class and bin: count, mean probability of the class, how often it was true.

    Shapes (K, bins); NaN in empty bins. ``error`` is the calibration error of each class, whose
    mean is ``metrics.classwise_ece``.
    """

    count: Float64
    probability: Float64
    frequency: Float64
    error: Float64

    @classmethod
    def of(cls, p: Predictions, bins: int) -> Classwise:
        """Count the predictions."""
        counts = classwise_counts(p, bins=bins)
        count, prob = counts.count, counts.prob.values
        residual = counts.hits - prob
        size = np.where(count > 0, count, np.nan)
        error = mean_gap_norm(count[:, None, :], residual[:, None, :], 1)
        return cls(count, prob / size, counts.hits / size, error)


@dataclass(frozen=True)
class LearnedGroup:
    """Samples learned in epochs ``first`` to ``last``; ``number`` is -1 for those never learned."""

    number: int
    first: int
    last: int
    places: Int


def learned_groups(learned: Int, groups: int) -> list[LearnedGroup]:
    """Samples by learned epoch, in ``groups`` groups of nearly equal size.

    Samples of one epoch stay together, in the group of their middle one, so that a group can be
    left out for lack of samples. Those never learned (-1) come last.

    >>> found = learned_groups(np.array([0, 0, 5, 9, -1]), 3)
    >>> [(group.number, group.first, group.places.tolist()) for group in found]
    [(0, 0, [0, 1]), (1, 5, [2]), (2, 9, [3]), (-1, -1, [4])]
    """
    found = []
    known = learned[learned >= 0]
    epochs, of_epoch, count = np.unique(known, return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - count / 2) / max(len(known), 1)
    group_of_epoch = np.minimum((middle * groups).astype(np.int64), groups - 1)
    places = np.flatnonzero(learned >= 0)
    for number in range(groups):
        mine = epochs[group_of_epoch == number]
        if len(mine):
            inside = places[group_of_epoch[of_epoch] == number]
            found.append(LearnedGroup(number, int(mine[0]), int(mine[-1]), inside))
    never = np.flatnonzero(learned < 0)
    if len(never):
        found.append(LearnedGroup(-1, -1, -1, never))
    return found
