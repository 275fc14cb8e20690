"""How large a contrast is over settings, with its interval, and what its single cases say.

The standard error comes from the runs: differences within a seed where values by seed are known (a
seed is a split of the data), printed spreads otherwise. Settings are fixed: the interval speaks
about these data and networks over other seeds; a setting without a spread counts as a case only.
Where nothing has a spread, the settings themselves are the repetitions.

A claim also says that more than half of its cases agree (or every one). That is refuted if at least
half of them (or one) contradict it beyond chance: a partial conjunction of the tests of the cases
(Benjamini and Heller 2008, "Screening for partial conjunction hypotheses"), with Bonferroni's
factor, which is valid however the cases depend on one another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.papers._contrasts import Contrast, Setting
from calibrant.results import summarise_runs

Array = NDArray[np.float64]

ONE_SIDE = 0.025  # one side of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """Mean contrast with its interval (NaN if nothing tells it), cases for it and all cases.

    ``contradicted`` is the p-value for so many cases being against the claim that too few are left,
    and ``confirmed`` that for enough being within their bounds; None if no case has a spread.
    ``runs`` is the number of runs behind the interval, over all settings.
    """

    mean: float
    low: float
    high: float
    cases: tuple[int, int]
    contradicted: float | None = None
    confirmed: float | None = None
    runs: int = 0


@dataclass(frozen=True)
class Spread:
    """Means of things over runs, their standard errors, degrees of freedom, and number of runs."""

    mean: Array
    error: Array
    freedom: Array
    runs: float

    def at(self, runs: int | None) -> Spread:
        """The same means and spreads of single runs, from more runs."""
        if runs is None or runs <= self.runs or not self.runs > 1:
            return self
        error = self.error * math.sqrt(self.runs / runs)
        freedom = self.freedom * (runs - 1) / (self.runs - 1)
        return Spread(self.mean, error, freedom, runs)

    def below(self, bound: float) -> Array:
        """One-sided p-values for the means being below a bound; 1 for single runs.

        Runs that are all alike have no t statistic; they agree by chance like tossed coins.
        """
        from scipy.special import stdtr

        gap = self.mean - bound
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = stdtr(self.freedom, gap / self.error)
        alike = np.where(gap < 0, 0.5**self.runs, 1.0)
        known = np.where(self.error > 0, chance, alike)
        return np.where(np.isnan(self.error), 1.0, known)

    def above(self, bound: float) -> Array:
        """The same for being above."""
        return Spread(-self.mean, self.error, self.freedom, self.runs).below(-bound)


def estimate(contrast: Contrast, found: Sequence[Setting], runs: int | None = None) -> Estimate:
    """Mean over settings with its 95 % t interval, and how many cases support the claim.

    With ``runs``, as it would be if every setting had that many runs (or, where the settings are
    the repetitions, if there were that many settings) and means and spreads stayed.
    """
    whole = [_whole(setting).at(runs) for setting in found]
    known = [(float(s.mean), float(s.error), float(s.freedom)) for s in whole if s.error >= 0]
    if known:
        mean, low, high = pooled(known)
    else:
        mean, low, high = _over_settings([float(s.mean) for s in whole], runs)
    pairs = [_gaps(setting).at(runs) for setting in found]
    cases = [case for gaps in pairs for case in _cases(contrast, gaps.mean)]
    against = within = None
    if any((spread.error >= 0).any() for spread in pairs):
        enough = contrast.enough(len(cases))
        against = at_least(_against(contrast, pairs), len(cases) - enough + 1)
        if contrast.within is not None:
            within = at_least(_inside(contrast.within, pairs), enough)
    total = int(sum(s.runs for s in whole if s.error >= 0))
    return Estimate(mean, low, high, (sum(cases), len(cases)), against, within, total)


def repeated_by(found: Sequence[Setting]) -> str:
    """What an interval is made of: "seeds", or "settings" where nothing has a spread."""
    return "seeds" if any(_whole(setting).error >= 0 for setting in found) else "settings"


def fewest(found: Sequence[Setting]) -> int:
    """The number of runs that every setting has, or of settings where these are repeated."""
    if repeated_by(found) == "settings":
        return len(found)
    return int(min(s.runs for s in map(_whole, found) if s.error >= 0))


def at_least(p_values: Array, count: int) -> float:
    """p-value for at least ``count`` of several effects being real, however they depend.

    >>> at_least(np.array([0.001, 0.5, 0.01]), 2)  # twice the second smallest
    0.02
    """
    ordered = np.sort(p_values)
    return float(min(1.0, (len(ordered) - count + 1) * ordered[count - 1]))


def pooled(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    r"""Mean of (mean, standard error, degrees of freedom) of settings, with its t interval.

    The standard error is :math:`\sqrt{\sum s_i^2} / m`, its degrees of freedom those of Welch and
    Satterthwaite, :math:`(\sum s_i^2)^2 / \sum (s_i^4 / \nu_i)`.

    >>> [round(x, 3) for x in pooled([(1.0, 0.5, 4), (2.0, 0.5, 4)])]
    [1.5, 0.685, 2.315]
    """
    means, errors, freedom = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    error, dof = satterthwaite(errors**2, freedom)
    return _interval(float(means.mean()), error / len(rows), dof)


def _interval(mean: float, error: float, freedom: float) -> tuple[float, float, float]:
    from scipy.special import stdtrit

    reach = 0.0 if error == 0 else float(stdtrit(freedom, 1 - ONE_SIDE)) * error
    return mean, mean - reach, mean + reach


def _over_settings(means: Sequence[float], count: int | None) -> tuple[float, float, float]:
    """The interval over settings, given how many there are or would be."""
    over, many = summarise_runs(means), max(len(means), count or 0)
    if len(means) < 2 or many < 3:  # noqa: PLR2004 - two give an interval that says nothing
        return over.mean, math.nan, math.nan
    return _interval(over.mean, over.std / math.sqrt(many), many - 1)


def satterthwaite(variances: Array, freedom: Array) -> tuple[float, float]:
    """Root of a sum of variances and its degrees of freedom; variances of 0 bring none."""
    real = variances > 0
    if not real.any():
        return 0.0, math.inf
    shares = variances[real] / variances[real].sum()
    return math.sqrt(variances.sum()), 1 / float((shares**2 / freedom[real]).sum())


def _whole(setting: Setting) -> Spread:
    """The contrast of a setting, the mean over its parts."""
    weights = setting.weights[:, None]
    mean = float((setting.values @ weights).mean())
    if setting.variances is None:
        one = _over_seeds((setting.values @ weights).mean(axis=0, keepdims=True))
        return Spread(one.mean[0, 0], one.error[0, 0], one.freedom[0, 0], one.runs)
    # Parts share their networks, and print tells no correlation: at worst it is 1.
    parts = _printed(setting, weights)
    if np.isnan(parts.error).any():
        return Spread(np.array(mean), np.array(math.nan), np.array(math.nan), 1)
    error, freedom = parts.error.mean(), parts.freedom.min()
    return Spread(np.array(mean), np.array(error), np.array(freedom), parts.runs)


def _gaps(setting: Setting) -> Spread:
    """Every pair of every part, with the shape (parts, pairs)."""
    weights = np.zeros((len(setting.labels) + 1, len(setting.pairs)))  # the last is the constant
    which = np.arange(len(setting.pairs))
    weights[setting.pairs[:, 0], which] += 1
    weights[setting.pairs[:, 1], which] -= 1
    if setting.variances is None:
        return _over_seeds(setting.values @ weights[:-1])
    return _printed(setting, weights[:-1])


def _over_seeds(values: Array) -> Spread:
    """From values with the shape (parts, seeds, contrasts)."""
    count = values.shape[1]
    mean = values.mean(axis=1)
    blank = np.full(mean.shape, math.nan)
    error = values.std(axis=1, ddof=1) / math.sqrt(count) if count > 1 else blank
    # What rounding leaves of equal values is no spread.
    error = np.where(error < 1e-12 * (1 + np.abs(mean)), 0.0, error)
    return Spread(mean, error, np.full(mean.shape, count - 1.0), count)


def _printed(setting: Setting, weights: Array) -> Spread:
    """From printed means and spreads; weights have the shape (labels, contrasts)."""
    if setting.variances is None or setting.freedom is None:
        raise ValueError("a setting with seeds has no printed spreads")
    mean = (setting.values @ weights).mean(axis=1)
    rows = [
        [_combined(column, v, f) for column in weights.T]
        for v, f in zip(setting.variances, setting.freedom, strict=True)
    ]
    found = np.array(rows)
    repeated = setting.freedom[setting.freedom > 0]
    runs = float(repeated.min()) + 1 if repeated.size else 1.0
    return Spread(mean, found[:, :, 0], found[:, :, 1], runs)


def _combined(weights: Array, variances: Array, freedom: Array) -> tuple[float, float]:
    used = weights != 0
    if np.isnan(variances[used]).any():
        return math.nan, math.nan
    return satterthwaite(weights[used] ** 2 * variances[used], freedom[used])


# --- cases -------------------------------------------------------------------------------------


def _cases(contrast: Contrast, gaps: Array) -> list[bool]:
    """Which pairs, or parts if the best is asked for, support the claim."""
    if contrast.within is not None:
        low, high = contrast.within
        agree = (gaps > low) & (gaps < high)
    elif contrast.best:
        agree = gaps.min(axis=1) >= contrast.margin - 1e-12
    else:
        agree = gaps > contrast.margin
    return [bool(case) for case in agree.ravel()]


def _against(contrast: Contrast, found: Sequence[Spread]) -> Array:
    """p-values for each case contradicting the claim."""
    if contrast.within is not None:
        low, high = contrast.within
        outside = [np.minimum(gaps.below(low), gaps.above(high)) for gaps in found]
        return np.concatenate([p.ravel() for p in outside])
    below = [gaps.below(contrast.margin) for gaps in found]
    if contrast.best:  # one of the others must be better: Bonferroni over them
        below = [np.minimum(1.0, p.shape[1] * p.min(axis=1)) for p in below]
    return np.concatenate([p.ravel() for p in below])


def _inside(bounds: tuple[float, float], found: Sequence[Spread]) -> Array:
    """p-values for each case being within the bounds."""
    low, high = bounds
    inside = [np.maximum(gaps.above(low), gaps.below(high)) for gaps in found]
    return np.concatenate([p.ravel() for p in inside])
