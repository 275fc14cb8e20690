"""Statistics over repeated runs: means over seeds with intervals, and tests of differences.

A run is one value, such as the ECE of one trained network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrant._core.arrays import Bool, Float64, to_floats
from calibrant._core.checks import check_fraction, refuse

# Values with a smaller relative difference count as equal.
ROUNDING = 16 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class RunSummary:
    """Mean over runs, their standard deviation (n - 1), its standard error and the t interval."""

    mean: float
    std: float
    sem: float
    count: int
    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class RunComparison:
    """Runs ``a`` minus runs ``b``: difference of means with interval, t-test and Cohen's d."""

    difference: float
    low: float
    high: float
    t: float
    p_value: float
    d: float
    count_a: int
    count_b: int
    dof: float = math.nan
    level: float = 0.95

    def mark(self, alpha: float = 0.05) -> str:
        """How tables show it: ▲ ▼ significantly higher, lower; △ ▽ higher, lower; empty if equal.

        >>> compare_runs([3.0, 4.0, 5.0], [1.0, 2.0, 2.0]).mark()
        '▲'
        """
        up, down = "▲▼" if self.p_value < alpha else "△▽"
        return up if self.difference > 0 else down if self.difference < 0 else ""


def summarise_runs(values: ArrayLike, *, level: float = 0.95) -> RunSummary:
    r"""Mean, standard deviation, standard error and t interval of repeated runs.

    :math:`s^2 = \sum_i (x_i - \bar x)^2 / (n - 1)`, :math:`\mathrm{sem} = s / \sqrt n`, interval
    :math:`\bar x \pm t_{n-1} \, \mathrm{sem}`. One run has a mean and no spread: std, sem and
    bounds are NaN. Equal runs have the spread 0 exactly. A NaN among the values makes all NaN; an
    infinite value leaves the mean infinite and the rest NaN.

    Parameters
    ----------
    values
        One value per run, shape (n,), n >= 1.
    level
        Confidence level of the interval.

    References
    ----------
    Student (1908), doi:10.2307/2331554.

    Examples
    --------
    >>> found = summarise_runs([1.0, 2.0, 3.0])
    >>> found.mean, found.std, round(found.sem, 3), round(found.low, 2), round(found.high, 2)
    (2.0, 1.0, 0.577, -0.48, 4.48)
    >>> summarise_runs([0.5]).std
    nan
    """
    x = _runs("values", values)
    check_fraction("level", level, example=0.95)
    mean, std = _mean(x), _std(x)
    sem = std / math.sqrt(len(x))
    reach = _quantile(level, len(x) - 1) * sem
    return RunSummary(mean, std, sem, len(x), mean - reach, mean + reach, level)


def within_subject_sem(
    values: ArrayLike, *, correction: bool = True, pooled: bool = False
) -> Float64:
    r"""Within-subject standard error of the mean of each condition.

    Each subject is moved to the grand mean, :math:`y_{ij} = x_{ij} - \bar x_{i\cdot} + \bar x`,
    and the standard error of each column of y is taken (Cousineau). That step makes it too small by
    :math:`\sqrt{(k - 1) / k}` for k conditions, which ``correction`` undoes (Morey). The root mean
    square of the corrected values is Masson and Loftus' :math:`\sqrt{MS_{S \times C} / n}`, from
    the interaction of subjects and conditions; ``pooled`` gives that one for every condition.
    One subject gives NaN, and so does a value that is not finite, for every condition.

    Parameters
    ----------
    values
        Shape (n, k): rows are subjects (corruption types, seeds), columns conditions, k >= 2.
    correction
        Morey's correction; turn it off only to reproduce numbers published without it.
    pooled
        One standard error for all conditions, as Masson and Loftus draw it.

    References
    ----------
    Masson and Loftus (2003), doi:10.1037/h0087426; Cousineau (2005), doi:10.20982/tqmp.01.1.p042;
    Morey (2008), doi:10.20982/tqmp.04.2.p061.

    Examples
    --------
    Subjects that differ much, conditions that differ by the same for each:

    >>> within_subject_sem([[1.0, 2.0], [11.0, 12.0], [21.0, 22.0]])
    array([0., 0.])
    """
    x = to_floats(values, "values").astype(np.float64)
    if x.ndim != 2 or not len(x) or x.shape[1] < 2:  # noqa: PLR2004
        rule = "must have the shape (subjects, conditions) with two or more conditions"
        advice = "For one condition, use summarise_runs(values).sem."
        raise refuse("values", rule, f"got the shape {x.shape}", advice)
    n, k = x.shape
    if n == 1 or not np.isfinite(x).all():
        return np.full(k, np.nan)
    y = x - x.mean(axis=1, keepdims=True)  # adding the grand mean changes no spread
    factor = math.sqrt(k / (k - 1)) if correction else 1.0
    sem: Float64 = factor * y.std(axis=0, ddof=1) / math.sqrt(n)
    return np.full(k, math.sqrt(float(np.mean(sem**2)))) if pooled else sem


def cohens_d(a: ArrayLike, b: ArrayLike, *, paired: bool = False) -> float:
    r"""Cohen's d: the difference of means in standard deviations, positive where ``a`` is higher.

    :math:`d = (\bar a - \bar b) / s_p` with
    :math:`s_p^2 = ((n_a - 1) s_a^2 + (n_b - 1) s_b^2) / (n_a + n_b - 2)`. Paired runs (same seeds
    in the same order) are measured by the spread of their differences instead,
    :math:`d_z = \overline{a - b} / s_{a - b}`. Without spread d is 0 for equal means and infinite
    otherwise; with no spread to estimate (one run each, one pair) or a value that is not finite it
    is NaN.

    Parameters
    ----------
    a, b
        One value per run, shapes (n_a,) and (n_b,).
    paired
        Whether ``a[i]`` and ``b[i]`` belong together.

    References
    ----------
    Cohen (1988), doi:10.4324/9780203771587.

    Examples
    --------
    >>> cohens_d([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    2.0
    >>> cohens_d([3.0, 4.0, 5.0], [1.0, 2.0, 3.0], paired=True)
    inf
    """
    x, y = _two_sets(a, b, paired=paired)
    if paired:
        gaps = _gaps(x, y)
        return _ratio(_mean(gaps), _std(gaps))
    return _ratio(_mean_gap(x, y), _pooled_std(x, y))


def compare_runs(
    a: ArrayLike,
    b: ArrayLike,
    *,
    paired: bool = False,
    equal_variances: bool = True,
    level: float = 0.95,
) -> RunComparison:
    r"""Two-sided t-test for two sets of runs, with the interval of the difference.

    Student's two-sample test :math:`t = (\bar a - \bar b) / (s_p \sqrt{1/n_a + 1/n_b})` with
    :math:`n_a + n_b - 2` degrees of freedom; with ``equal_variances=False`` Welch's,
    :math:`t = (\bar a - \bar b) / \sqrt{s_a^2/n_a + s_b^2/n_b}`; with ``paired=True`` the test of
    the differences :math:`a_i - b_i`, for runs that share seeds.

    Where nothing tells the spread (one run each; one run of either by Welch; one pair) or a value
    is not finite, p and the bounds are NaN. Where the spread is 0, equal means give t = 0, p = 1
    and others t = ±inf, p = 0. Differences within rounding count as 0.

    Parameters
    ----------
    a, b
        One value per run, shapes (n_a,) and (n_b,).
    paired
        Whether ``a[i]`` and ``b[i]`` belong together.
    equal_variances
        Student's test (the default) or Welch's.
    level
        Confidence level of the interval; it excludes 0 if the p-value is below 1 - ``level``.

    Returns
    -------
    RunComparison
        ``d`` is ``cohens_d(a, b, paired=paired)``.

    References
    ----------
    Student (1908), doi:10.2307/2331554; Welch (1947), doi:10.1093/biomet/34.1-2.28.

    Examples
    --------
    >>> found = compare_runs([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    >>> found.difference, round(found.t, 3), round(found.p_value, 3), found.d
    (2.0, 2.449, 0.07, 2.0)
    """
    x, y = _two_sets(a, b, paired=paired)
    check_fraction("level", level, example=0.95)
    if paired and not equal_variances:
        rule = "must be left out for paired runs, whose test has one variance"
        raise refuse("equal_variances", rule, "got False", "Pass paired or equal_variances=False.")
    if paired:
        difference, error, dof = _paired_error(x, y)
    else:
        difference = _mean_gap(x, y)
        error, dof = _student_error(x, y) if equal_variances else _welch_error(x, y)
    t = _ratio(difference, error)
    reach = _quantile(level, dof) * error
    return RunComparison(
        difference,
        difference - reach,
        difference + reach,
        t,
        _two_sided(t, dof),
        cohens_d(x, y, paired=paired),
        len(x),
        len(y),
        dof,
        level,
    )


def pareto_front(points: ArrayLike, *, maximise: Sequence[bool]) -> Bool:
    r"""Which points no other point dominates.

    q dominates p if it is at least as good in every column and better in one. Equal points are on
    the front together. A point with a NaN is never on it and dominates none.

    Parameters
    ----------
    points
        Shape (n, k), one row per point.
    maximise
        For each column, whether higher is better.

    Returns
    -------
    numpy.ndarray
        Shape (n,), True on the front.

    References
    ----------
    Kung, Luccio and Preparata (1975), doi:10.1145/321906.321910.

    Examples
    --------
    Accuracy and ECE of three losses: the last is worse in both than the first.

    >>> pareto_front([[0.95, 0.04], [0.94, 0.01], [0.93, 0.05]], maximise=[True, False])
    array([ True,  True, False])
    """
    x = to_floats(points, "points").astype(np.float64)
    higher = list(maximise) if isinstance(maximise, Sequence | np.ndarray) else []
    shape_fits = x.ndim == 2 and x.shape[1] == len(higher) >= 1  # noqa: PLR2004
    if not shape_fits or not all(isinstance(flag, bool | np.bool_) for flag in higher):
        rule = "must have one column for each True or False of maximise"
        got = f"got points of shape {x.shape} and maximise={maximise!r}"
        raise refuse("points", rule, got, "Try maximise=[True, False] for two columns.")
    gains = np.where(np.array(higher, dtype=np.bool_), x, -x)
    front: Bool = np.logical_not(np.isnan(gains).any(axis=1))
    known = gains[front]
    front[front] = [not _dominated(point, known) for point in known]
    return front


def _dominated(point: Float64, others: Float64) -> bool:
    return bool(((others >= point).all(axis=1) & (others > point).any(axis=1)).any())


# --- means and spreads ------------------------------------------------------------------------


def _runs(name: str, values: ArrayLike) -> Float64:
    x = to_floats(values, name)
    if x.ndim != 1 or not len(x):
        advice = f"Pass a flat list such as {name}=[0.031, 0.029, 0.034]."
        raise refuse(name, "must have one number per run", f"got the shape {x.shape}", advice)
    return x.astype(np.float64)


def _two_sets(a: ArrayLike, b: ArrayLike, *, paired: bool) -> tuple[Float64, Float64]:
    x, y = _runs("a", a), _runs("b", b)
    if paired and len(x) != len(y):
        rule = "must have as many runs as b when paired"
        advice = "Keep the seeds that both have, in the same order."
        raise refuse("a", rule, f"got {len(x)} and {len(y)}", advice)
    return x, y


def _mean(x: Float64) -> float:
    """The mean, never outside the values: equal values have exactly their own mean."""
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.clip(x.mean(), x.min(), x.max()))


def _std(x: Float64) -> float:
    return _root_mean_square(_deviations(x), len(x) - 1)


def _pooled_std(x: Float64, y: Float64) -> float:
    return _root_mean_square(_deviations(x) + _deviations(y), len(x) + len(y) - 2)


def _deviations(x: Float64) -> list[float]:
    mean = _mean(x)
    return [value - mean for value in x.tolist()] if math.isfinite(mean) else [math.nan]


def _root_mean_square(deviations: list[float], dof: int) -> float:
    if dof < 1 or any(map(math.isnan, deviations)):
        return math.nan
    return math.hypot(*deviations) / math.sqrt(
        dof
    )  # hypot avoids overflow and underflow of squares


def _mean_gap(x: Float64, y: Float64) -> float:
    gap = _mean(x) - _mean(y)
    size = max(np.abs(x).max(), np.abs(y).max())
    return 0.0 if math.isfinite(gap) and abs(gap) <= ROUNDING * size else gap


def _gaps(x: Float64, y: Float64) -> Float64:
    with np.errstate(invalid="ignore", over="ignore"):  # two infinite runs have no difference: NaN
        gaps = x - y
    same = np.abs(gaps) <= ROUNDING * np.maximum(np.abs(x), np.abs(y))
    return np.where(same & np.isfinite(gaps), 0.0, gaps)


# --- the t-tests ------------------------------------------------------------------------------
# SciPy's distribution, but not its tests: ttest_ind warns of equal runs, gives them a finite t,
# overflows for large values, and scipy.stats takes most of a second to import. The tests compare.


def _student_error(x: Float64, y: Float64) -> tuple[float, float]:
    error = _pooled_std(x, y) * math.sqrt(1 / len(x) + 1 / len(y))
    return error, len(x) + len(y) - 2


def _welch_error(x: Float64, y: Float64) -> tuple[float, float]:
    error_x, error_y = _std(x) / math.sqrt(len(x)), _std(y) / math.sqrt(len(y))
    if math.isnan(error_x) or math.isnan(error_y):
        return math.nan, math.nan
    error = math.hypot(error_x, error_y)
    if error == 0:
        return 0.0, len(x) + len(y) - 2
    share_x, share_y = (error_x / error) ** 2, (error_y / error) ** 2
    return error, 1 / (share_x**2 / (len(x) - 1) + share_y**2 / (len(y) - 1))


def _paired_error(x: Float64, y: Float64) -> tuple[float, float, float]:
    gaps = _gaps(x, y)
    return _mean(gaps), _std(gaps) / math.sqrt(len(gaps)), len(gaps) - 1


def _ratio(gap: float, spread: float) -> float:
    """Gap over spread; 0 / 0 is 0, any other gap over 0 infinite."""
    if spread == 0 and not math.isnan(gap):
        return 0.0 if gap == 0 else math.copysign(math.inf, gap)
    return gap / spread


def _quantile(level: float, dof: float) -> float:
    """Two-sided quantile of the t distribution; NaN without degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(dof, (1 + level) / 2)) if dof > 0 else math.nan


def _two_sided(t: float, dof: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(dof, -abs(t))) if dof > 0 else math.nan
