"""The interval of a mean gap: mean confidence minus accuracy, or P(positive) minus prevalence."""

from __future__ import annotations

import math

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._bootstrap import accuracy_bounds
from calibrant.inference._clusters import cluster_sums, mean_one, proportion_bounds
from calibrant.inference._resampling import Bounds
from calibrant.metrics._sample import rank
from calibrant.predictions import Confidences, Predictions

# With fewer units than this a correlation is mostly noise: that of two is 1 or -1.
FEWEST = 20


def mean_gap_bounds(p: Predictions | Confidences, level: float = 0.95) -> Bounds:
    r"""Bounds of the mean gap that hold at small N and where nearly all samples are right.

    The limits of the two means (normal for the confidence, Wilson for the accuracy) are combined
    for their difference, with their correlation: the distance of the lower limit is
    :math:`\sqrt{x^2 + y^2 - 2 r x y}` for distances x, y of the lower limit of the confidence and
    the upper limit of the accuracy. The plain interval of the differences would be a point where
    every sample is right. Of fewer than 20 samples r counts as 0, which is the cautious side:
    confidence and being right go together in most models, and that makes the interval narrower.
    Where samples come in clusters or with weights, both limits and r are those of the sums by
    cluster, and the normal quantile becomes that of Student's t.

    Reference: Zou (2007), doi:10.1037/1082-989X.12.4.399.

    >>> p = Confidences(confidence=[0.9] * 40, correct=[1] * 30 + [0] * 10)
    >>> low, high = mean_gap_bounds(p)
    >>> round(low, 3), round(high, 3)
    (0.042, 0.302)
    """
    from scipy.special import ndtri, stdtrit

    independent = p.is_independent
    units = p.belonging.num_units(len(p))
    if units == 1 and not independent:
        return -1.0, 1.0
    said, hit, weight = p.confidence, p.correct.astype(np.float64), mean_one(p)
    says, right = (float(weight @ column) / len(p) for column in (said, hit))
    ends = accuracy_bounds(rank(p), level) if independent else proportion_bounds(p, level)
    below, above = right - ends[0], ends[1] - right
    of_said = cluster_sums(p, weight * (said - says))
    of_hits = cluster_sums(p, weight * (hit - right))
    upper = (1 + level) / 2
    z = float(ndtri(upper)) if independent else float(stdtrit(units - 1, upper))
    reach = z * math.sqrt(units / max(units - 1, 1) * _dot(of_said, of_said)) / len(p)
    scale = math.sqrt(_dot(of_said, of_said) * _dot(of_hits, of_hits))
    r = _dot(of_said, of_hits) / scale if units >= FEWEST and scale > 0 and 0 < right < 1 else 0.0
    down = math.sqrt(max(reach**2 + above**2 - 2 * r * reach * above, 0))
    up = math.sqrt(max(reach**2 + below**2 - 2 * r * reach * below, 0))
    return max(says - right - down, -1.0), min(says - right + up, 1.0)


def _dot(a: Float64, b: Float64) -> float:
    return float(a @ b)
