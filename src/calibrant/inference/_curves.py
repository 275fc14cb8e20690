"""What a calibration error shows under populations whose true error is known.

Calibration errors are biased upward, the plain bootstrap adds the same bias once more, and near
perfect calibration its intervals miss the truth almost always. The grid bootstrap inverts a test
instead: a path of populations leads from perfect calibration (strength 0) through the data's own
gaps (1) to twice them (2); samples of size N are drawn from each; and the interval holds the true
errors of those populations under which the observed value is not surprising.

Reference: Hansen (1999), The grid bootstrap, doi:10.1162/003465399558463.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._resampling import STRENGTHS, Bounds

# Curves are interpolated at this many points.
FINE = 401
# Keeps estimates that never vary, such as those of certain and right answers, comparable.
LEAST_NOISE = 1e-12
# The shape of the gaps is itself estimated, which the simulation cannot see: without this factor
# 95 % intervals of weak errors cover 91 % of the time (benchmarks/interval_coverage.py).
SHAPE_UNCERTAINTY = 1.08


@dataclass(frozen=True)
class ErrorCurve:
    """An observed calibration error beside what populations of known error would show.

    ``truth`` is the error of the population at each strength, ``simulated`` has the values of
    samples drawn from it, (draws, strengths), the same random numbers at each strength.
    """

    observed: float
    truth: Float64
    simulated: Float64

    @cached_property
    def defined(self) -> bool:
        """Whether the value, and that of most draws, is a number."""
        return not math.isnan(self.observed) and 2 * len(self.draws) > len(self.simulated)

    @cached_property
    def draws(self) -> Float64:
        """The simulated values that are numbers at every strength."""
        return self.simulated[~np.isnan(self.simulated).any(axis=1)]

    @cached_property
    def mean(self) -> Float64:
        """Expected value at each strength."""
        mean: Float64 = self.draws.mean(axis=0)
        return mean

    @cached_property
    def noise(self) -> Float64:
        """Standard deviation at each strength."""
        noise: Float64 = self.draws.std(axis=0, ddof=1)
        return noise

    @cached_property
    def strengths(self) -> Float64:
        """The path, finely."""
        return np.linspace(STRENGTHS[0], STRENGTHS[-1], FINE)

    @cached_property
    def true_error(self) -> Float64:
        """True error along the fine path; never falling."""
        return np.maximum.accumulate(self.along(self.truth))

    def along(self, values: Float64) -> Float64:
        """Values at the strengths, interpolated along the fine path without overshoot."""
        from scipy.interpolate import PchipInterpolator

        smooth: Float64 = PchipInterpolator(STRENGTHS, values)(self.strengths)
        return smooth

    def bounds(self, level: float) -> Bounds:
        """True errors of those populations under which the observed value is not surprising.

        The central part of the simulated values, as a function of the strength, is crossed with
        the observed value. The upper bound stays half a standard deviation of noise above its
        floor: a value below anything expected of a calibrated model is luck, not proof of
        perfection. NaN where the value, or that of most draws, is not defined.
        """
        if not self.defined:
            return math.nan, math.nan
        tail = (1 - level) / 2
        low, high = np.quantile(self.draws, (tail, 1 - tail), axis=0, method="median_unbiased")
        highest = self.mean + SHAPE_UNCERTAINTY * (high - self.mean)
        lowest = self.mean + SHAPE_UNCERTAINTY * (low - self.mean)
        return self.error_at(highest), self.error_at(lowest, least=float(self.noise[0]) / 2)

    @cached_property
    def estimate(self) -> float:
        """The true error under which the observed value is the expected one: bias removed."""
        return self.error_at(self.mean)

    @cached_property
    def strength(self) -> float:
        """The strength of the population whose expected value was observed, at most 2."""
        rising = np.maximum.accumulate(self.along(self.mean))
        reached = int(np.searchsorted(rising, self.observed))
        return float(self.strengths[min(reached, FINE - 1)])

    def error_at(self, curve: Float64, *, least: float = 0.0) -> float:
        """The true error where a curve over the strengths reaches the observed value."""
        rising = np.maximum.accumulate(self.along(curve))
        value = max(self.observed, float(rising[0]) + least)
        if value <= rising[0]:  # the far end of a flat stretch is not meant
            return float(self.true_error[0])
        if value > rising[-1]:  # beyond twice the gaps: noise no longer matters, so the slope is 1
            return float(self.true_error[-1] + value - rising[-1])
        after = int(np.searchsorted(rising, value))
        step = rising[after] - rising[after - 1]
        share = (value - rising[after - 1]) / step
        error = self.true_error
        return float(error[after - 1] + share * (error[after] - error[after - 1]))

    def expected(self, errors: Float64) -> tuple[Float64, Float64]:
        """Mean and standard deviation of the estimate where the true error is one of ``errors``.

        NaN below the least error of the path; beyond its end the mean grows as the error does.
        """
        # Of populations with the same error the least strong: noise is largest there.
        error, first = np.unique(self.true_error, return_index=True)
        beyond = np.maximum(errors - error[-1], 0)
        mean = np.interp(errors, error, self.along(self.mean)[first]) + beyond
        noise = np.interp(errors, error, self.along(self.noise)[first])
        return np.where(errors < error[0], np.nan, mean), np.maximum(noise, LEAST_NOISE)
