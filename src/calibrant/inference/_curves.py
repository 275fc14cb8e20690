"""The distribution of a calibration error under populations whose true error is known.

Calibration errors are biased upward, the plain bootstrap adds the same bias once more, and near
perfect calibration its intervals miss the truth almost always. The grid bootstrap inverts a test
instead: a path of populations leads from perfect calibration (strength 0) through the data's own
gaps (1) to twice them (2); samples of size N are drawn from each; and the interval holds the true
errors of those populations under which the observed value is not surprising.

Reference: Hansen (1999), The grid bootstrap, doi:10.1162/003465399558463.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant._core.numerics import central_bounds, monotone_cubic, normal_quantile
from calibrant.inference._resampling import STRENGTHS, Bounds

# Curves are interpolated at this many points.
FINE = 401
# Standard deviations within which the true error of a model is looked for.
REACH = 6.0
# The shape of the gaps is itself estimated, which the simulation cannot see: without this factor
# 95 % intervals of weak errors cover 91 % of the time (benchmarks/interval_coverage.py), and equal
# ECEs are told apart 9 to 12 % of the time (benchmarks/false_alarms.py).
SHAPE_UNCERTAINTY = 1.08


@dataclass(frozen=True)
class ErrorCurve:
    """An observed calibration error, and its distribution under populations of known error.

    ``truth`` is the error of the population at each strength, ``simulated`` has the values of
    samples drawn from it, (draws, strengths), the same random numbers at each strength. Where only
    labels were drawn, ``of_rows`` is the standard error that drawing other rows adds. ``one_sided``
    says that gaps of one sign do not count; they lower the expected value all the same. ``stretch``
    is how much further values spread about their mean than the simulated ones: samples in clusters.
    """

    observed: float
    truth: Float64
    simulated: Float64
    of_rows: Float64 | None = None
    one_sided: bool = False
    stretch: float = 1.0

    @cached_property
    def defined(self) -> bool:
        """Whether the value, and most simulated values, are defined."""
        return not math.isnan(self.observed) and 2 * len(self.draws) > len(self.simulated)

    @cached_property
    def draws(self) -> Float64:
        """The draws whose values are defined at every strength, stretched about their mean."""
        defined = self.simulated[~np.isnan(self.simulated).any(axis=1)]
        if self.stretch == 1 or not len(defined):
            return defined
        mean: Float64 = defined.mean(axis=0)
        return mean + self.stretch * (defined - mean)

    @cached_property
    def mean(self) -> Float64:
        """Expected value at each strength."""
        mean: Float64 = self.draws.mean(axis=0)
        return mean

    @cached_property
    def noise(self) -> Float64:
        """Standard deviation at each strength."""
        noise: Float64 = self.draws.std(axis=0, ddof=1)
        return noise if self.of_rows is None else np.hypot(noise, self.of_rows)

    @cached_property
    def strengths(self) -> Float64:
        """Strengths on a fine grid."""
        return np.linspace(STRENGTHS[0], STRENGTHS[-1], FINE)

    @cached_property
    def true_error(self) -> Float64:
        """True error along the fine path; never falling."""
        return np.maximum.accumulate(self.along(self.truth))

    @cached_property
    def fine_mean(self) -> Float64:
        """Expected value along the fine path."""
        return self.along(self.mean)

    @cached_property
    def fine_noise(self) -> Float64:
        """Standard deviation along the fine path."""
        return self.along(self.noise)

    def along(self, values: Float64) -> Float64:
        """Values at the strengths, interpolated along the fine path without overshoot."""
        return monotone_cubic(STRENGTHS, values, self.strengths)

    def bounds(self, level: float) -> Bounds:
        """True errors of the populations that are compatible with the observed value.

        The central part of the simulated values, as a function of the strength, is compared with
        the observed value. NaN where the value, or that of most draws, is not defined.
        """
        if not self.defined:
            return math.nan, math.nan
        tail = (1 - level) / 2
        low, high = central_bounds(self.draws, tail)
        widest = (self.mean + SHAPE_UNCERTAINTY * (end - self.mean) for end in (low, high))
        lowest, highest = (self.along(end) for end in widest)
        found = self._least_error(lowest, highest), self._largest_error(lowest, highest)
        return found if self.of_rows is None else self._with_rows(found, self.of_rows, level)

    def _least_error(self, lowest: Float64, highest: Float64) -> float:
        """The least error that the observed value allows for."""
        if self.observed > highest.max():  # beyond twice the gaps noise no longer matters: slope 1
            return float(self.true_error[-1] + self.observed - highest.max())
        allowed = self.observed <= highest
        if self.of_rows is not None:
            # With very many classes a calibrated model shows more error than a miscalibrated one
            # whose labels vary less. Values below all that is expected of it speak against it.
            allowed &= (self.observed >= lowest) | (lowest == lowest.min())
        first = int(np.argmax(allowed))
        return self._crossing(highest, first) if first else float(self.true_error[0])

    def _largest_error(self, lowest: Float64, highest: Float64) -> float:
        """The largest error that the observed value allows for.

        It stays half a standard deviation of noise above its floor: a value below anything expected
        of a calibrated model is luck, not proof of perfection.
        """
        rises = self.mean[-1] > self.mean[0]
        value = self.observed
        if rises:
            value = max(value, float(lowest[0]) + float(self.noise[0]) / 2)
        allowed = np.flatnonzero((lowest <= value) & (value <= highest))
        last = int(allowed[-1]) if len(allowed) else int(np.argmin(np.abs(lowest - value)))
        if last < FINE - 1 and lowest[last + 1] > value:
            return self._crossing(lowest, last + 1, value)
        if last < FINE - 1:
            return float(self.true_error[last])
        beyond = value - float(lowest[-1]) if rises else 0.0
        return float(self.true_error[-1]) + max(beyond, 0.0)

    def _crossing(self, curve: Float64, after: int, value: float | None = None) -> float:
        """The true error where a curve passes the value just before a place of the path."""
        value = self.observed if value is None else value
        step = curve[after] - curve[after - 1]
        share = (value - curve[after - 1]) / step if step else 1.0
        error = self.true_error
        share = min(max(float(share), 0.0), 1.0)
        return float(error[after - 1] + share * (error[after] - error[after - 1]))

    def _with_rows(self, bounds: Bounds, of_rows: Float64, level: float) -> Bounds:
        """Bounds given the rows, and the noise of rows: deviations added as independent ones are.

        Reference: Zou and Donner (2008), doi:10.1002/sim.3095.
        """
        middle = min(max(self.estimate, bounds[0]), bounds[1])
        reach = SHAPE_UNCERTAINTY * normal_quantile((1 + level) / 2) * self.along(of_rows)
        at_middle, at_high = np.interp([middle, bounds[1]], self.true_error, reach).tolist()
        low = middle - math.hypot(middle - bounds[0], at_middle)
        return max(low, 0.0), middle + math.hypot(bounds[1] - middle, at_high)

    @cached_property
    def _place(self) -> int:
        """Where on the fine path the expected value is nearest to the observed one."""
        ahead = self.fine_mean - self.observed
        crossed = np.flatnonzero((ahead[:-1] < 0) != (ahead[1:] < 0))
        return int(crossed[-1]) + 1 if len(crossed) else int(np.argmin(np.abs(ahead)))

    @cached_property
    def estimate(self) -> float:
        """The true error under which the observed value is the expected one: bias removed."""
        mean = self.fine_mean
        if self.observed > mean.max():
            return float(self.true_error[-1] + self.observed - mean.max())
        return self._crossing(mean, self._place) if self._place else float(self.true_error[0])

    @cached_property
    def noise_of_estimate(self) -> float:
        """Standard deviation under the population whose expected value was observed."""
        return float(self.fine_noise[self._place])

    @cached_property
    def _rising(self) -> tuple[Float64, Int]:
        """Different true errors along the fine path, and where each comes first."""
        error, first = np.unique(self.true_error, return_index=True)
        return error, first

    @cached_property
    def likely_errors(self) -> Bounds:
        """True errors that move the expected value by ``REACH`` standard deviations either way."""
        reach = REACH * float(self.noise.max())
        low, high = (
            replace(self, observed=self.observed + move).estimate for move in (-reach, reach)
        )
        return low, high

    def expected(self, errors: Float64) -> tuple[Float64, Float64]:
        """Least and largest mean of the estimate where the true error is one of ``errors``.

        NaN below the least error of the path; beyond its end the mean grows as the error does. Both
        are the same but for an error that counts gaps of one sign: there the mean can fall along
        the path, because gaps of the other sign grow as well. How large those are the true error
        does not say, so every mean between that of the population and the least one further
        along the path is possible.
        """
        # Among populations with the same error, the weakest: its noise is largest.
        error, first = self._rising
        beyond = np.maximum(errors - error[-1], 0)
        later = np.minimum.accumulate(self.fine_mean[::-1])[::-1]
        least, most = (
            np.where(errors < error[0], np.nan, np.interp(errors, error, mean[first]) + beyond)
            for mean in (later if self.one_sided else self.fine_mean, self.fine_mean)
        )
        return least, most

    def noise_under(self, errors: Float64) -> Float64:
        """Standard deviation of the estimate where its mean is the largest of ``expected``."""
        error, first = self._rising
        return np.interp(errors, error, self.fine_noise[first])
