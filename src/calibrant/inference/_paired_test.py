"""What a test of one difference found, with intervals at any level that agree with its p-value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._resampling import Bounds


@dataclass(frozen=True)
class PairedTest:
    """Standard error and p-value of a difference, and its interval at a level.

    ``side`` is any number with the sign of the difference, for tests whose interval is not made of
    the same numbers as the p-value.
    """

    error: float
    p_value: float
    interval: Callable[[float], Bounds]
    side: float = 0.0

    def bounds(self, alpha: float) -> Bounds:
        """The interval at level 1 - alpha: without 0 exactly where the p-value is below alpha."""
        low, high = self.interval(1 - alpha)
        if np.isnan(self.p_value) or np.isnan(low):
            return low, high
        if self.p_value >= alpha:
            return min(low, 0.0), max(high, 0.0)
        if low <= 0 <= high:
            least = np.finfo(np.float64).tiny
            return (least, max(high, least)) if self.side > 0 else (min(low, -least), -least)
        return low, high


def by_standard_error(gap: float, drawn: Float64, size: int) -> PairedTest:
    """A difference of estimates by its standard deviation over resamples of ``size`` units."""
    from scipy.special import ndtr, ndtri

    drawn = drawn[~np.isnan(drawn)]
    error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
    if math.isnan(gap) or math.isnan(error):
        p_value = math.nan
    elif (
        error == 0
    ):  # the same difference in every resample: as unlikely as N equal signs by chance
        p_value = 1.0 if gap == 0 else min(1.0, 2.0 ** (1 - size))
    else:
        p_value = float(2 * ndtr(-abs(gap) / error))

    def bounds(level: float) -> Bounds:
        reach = float(ndtri((1 + level) / 2)) * error
        return gap - reach, gap + reach

    return PairedTest(error, p_value, bounds, gap)
