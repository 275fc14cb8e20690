"""How sure a number is: intervals, tests of calibration, paired comparison.

Averages and rankings get the percentile bootstrap over samples; accuracy gets the Wilson interval;
calibration errors, whose estimates are biased, get the grid bootstrap (see ``_resampling``). Their
interval is for the error of the population in the same bins or kernel, not for the biased estimate,
so the estimate can lie outside: an ECE of 1 % with the interval 0 … 0.8 % says that noise alone
would show more.

All of this is about the samples of one model. What repeated trainings say (mean over seeds, t-test,
effect size, within-subject errors) is in ``summarise``, ``compare_runs``, ``cohens_d`` and
``within_subject_sem``; ``pareto_front`` picks what no other setting beats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from calibrant import metrics as m
from calibrant._arrays import Float64, dot
from calibrant._checks import check_count, check_fraction, check_seed
from calibrant._over_runs import (
    RunComparison,
    RunSummary,
    cohens_d,
    compare_runs,
    pareto_front,
    summarise,
    within_subject_sem,
)
from calibrant._resampling import (
    STRENGTHS,
    accuracy_bounds,
    classwise_bounds,
    estimator_of,
    grid_bounds,
    percentile_bounds,
    resample_weights,
)
from calibrant.metrics._binning import Binning, bin_sums
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._kernel import median_distance
from calibrant.metrics._sample import Measurable, Ranked, Sample, rank
from calibrant.predictions import Confidences, Predictions

__all__ = [
    "CalibrationTest",
    "Difference",
    "Interval",
    "RunComparison",
    "RunSummary",
    "calibrated_draws",
    "cohens_d",
    "compare_runs",
    "consistency_band",
    "ece_test",
    "holm",
    "intervals",
    "paired_differences",
    "pareto_front",
    "skce_test",
    "spiegelhalter_test",
    "summarise",
    "values_of",
    "within_subject_sem",
]

LEAST_DRAWS = 20
# z of a two-sided 5 % test plus that of 80 % power.
POWER = 2.8
MOST_NEEDED = 1e9


@dataclass(frozen=True)
class Interval:
    """A value with the interval that holds the true one at the stated level of confidence."""

    value: float
    low: float
    high: float
    level: float = 0.95


def intervals(
    p: Predictions | Confidences,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Values and intervals of the named metrics, all from the same resamples.

    ``options`` gives keyword arguments by metric. Bounds are NaN where N = 1 or the metric is
    undefined in most resamples. The same seed gives the same intervals.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.8] * 50, correct=[True] * 40 + [False] * 10)
    >>> found = intervals(c, ["accuracy"])["accuracy"]
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.8, 0.67, 0.888)
    """
    check_fraction("level", level, example=0.95)
    check_count("replicates", replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
    check_seed(seed)
    options = options or {}
    functions = _functions(names, options)
    values = _values(p, functions)
    sample = Sample.of(p)
    bounds = dict.fromkeys(names, (math.nan, math.nan))
    if len(sample.weight) > 1:
        plain = {k: f for k, f in functions.items() if not m.METRICS[k].plug_in and k != "accuracy"}
        biased = [k for k in names if m.METRICS[k].plug_in and k != "classwise_ece"]
        draws = max(replicates // len(STRENGTHS), LEAST_DRAWS)  # each is used at every strength
        bounds |= percentile_bounds(sample, plain, level=level, replicates=replicates, seed=seed)
        estimators = {k: estimator_of(k, options.get(k, {}), sample.ranked) for k in biased}
        bounds |= grid_bounds(sample, estimators, level=level, draws=draws, seed=seed)
        if "classwise_ece" in names and isinstance(p, Predictions):
            bounds["classwise_ece"] = classwise_bounds(
                p, level=level, draws=draws, seed=seed, **options.get("classwise_ece", {})
            )
        if sample.ranked.accuracy in (0, 1):
            unranked = _unranked_bounds(sample.ranked, level)
            bounds |= {name: unranked[name] for name in names if name in unranked}
    if "accuracy" in names:
        bounds["accuracy"] = accuracy_bounds(sample.ranked, level)
    return {name: Interval(values[name], *_in_range(name, bounds[name]), level) for name in names}


def _unranked_bounds(ranked: Ranked, level: float) -> dict[str, tuple[float, float]]:
    """AURC and E-AURC of all right, or all wrong, answers, whose bootstrap is a point.

    From a perfect ranking to one by chance, with accuracies as their own interval allows.
    """
    low, high = accuracy_bounds(ranked, level)

    def excess(accuracy: float) -> float:
        """Chance over perfect: r - (r + (1 - r) ln(1 - r)) with error rate r."""
        return -accuracy * math.log(accuracy) if accuracy else 0.0

    largest = excess(min(max(1 / math.e, low), high))
    return {"aurc": (1 - high - excess(high), 1 - low), "eaurc": (0.0, largest)}


def _in_range(name: str, bounds: tuple[float, float]) -> tuple[float, float]:
    """Bounds cut off at the ends of the metric's range."""
    low, high = (float(np.clip(x, m.METRICS[name].low, m.METRICS[name].high)) for x in bounds)
    return low, high


def _functions(
    names: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, partial[float]]:
    """The named metrics with their options."""
    return {name: partial(m.get_metric(name).function, **options.get(name, {})) for name in names}


def _values(
    p: Predictions | Confidences, functions: Mapping[str, Callable[..., float]]
) -> dict[str, float]:
    """Each metric once. Classwise ECE goes first: its pass over the scores makes the columns."""
    values: dict[str, float] = {}
    if "classwise_ece" in functions:
        values["classwise_ece"] = functions["classwise_ece"](p)
    sample = Sample.of(p)
    for name, function in functions.items():
        if name != "classwise_ece":
            values[name] = function(sample)
    return values


def values_of(
    p: Predictions | Confidences,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, float]:
    """Values of the named metrics, without intervals, from one pass over the scores."""
    return _values(p, _functions(names, options or {}))


# --- bands and tests of calibration -----------------------------------------------------------


@dataclass(frozen=True)
class CalibrationTest:
    """Outcome of a test whose null hypothesis is P(correct | confidence) = confidence."""

    name: str
    statistic: float
    p_value: float


def consistency_band(
    p: Measurable | Ranked, *, bins: int = 15, binning: Binning = "width", level: float = 0.95,
    draws: int = 1000, seed: int = 0,
) -> tuple[Float64, Float64]:  # fmt: skip
    """Where the accuracy of each bin would lie if the model were calibrated; NaN in empty bins.

    Reference: Bröcker and Smith (2007), doi:10.1175/WAF993.1.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.75] * 100, correct=[1] * 100)
    >>> low, high = consistency_band(c, bins=2)
    >>> bool(0.62 < low[1] < 0.70), bool(0.80 < high[1] < 0.88)
    (True, True)
    """
    ranked = rank(p)
    check_fraction("level", level, example=0.95)
    sums = bin_sums(ranked, bins, binning)
    hits = np.array([
        np.diff(np.concatenate(([0.0], np.cumsum(drawn.hits)))[sums.cuts])
        for drawn in calibrated_draws(ranked, draws, seed)
    ])  # fmt: skip
    with np.errstate(invalid="ignore"):
        tail = (1 - level) / 2
        low, high = np.quantile(hits / sums.count, (tail, 1 - tail), axis=0)
    return low, high


def calibrated_draws(ranked: Ranked, draws: int, seed: int) -> Iterator[Ranked]:
    """Yield the same confidences with correctness drawn as if the model were calibrated."""
    check_count("draws", draws, least=20, most=1_000_000, example=1000)
    check_seed(seed)
    rng = np.random.default_rng(seed)
    count = ranked.count.astype(np.int64)
    single = bool((count == 1).all())
    for _ in range(draws):
        if single:  # much faster than the binomial generator
            hits = (rng.random(len(count)) < ranked.confidence).astype(np.float64)
        else:
            hits = rng.binomial(count, ranked.confidence).astype(np.float64)
        yield Ranked(ranked.confidence, ranked.count, hits)


def spiegelhalter_test(p: Measurable | Ranked) -> CalibrationTest:
    r"""Spiegelhalter's z-test of calibration, two-sided.

    :math:`z = \sum_i (a_i - c_i)(1 - 2 c_i) / \sqrt{\sum_i (1 - 2 c_i)^2 c_i (1 - c_i)}`, normal
    under calibration. Sensitive to over- and underconfidence on average; blind to gaps that cancel.
    Where the variance is 0 (every confidence 0, 1/2 or 1), z is 0 if the data agree and infinite if
    a single answer does not.

    Reference: Spiegelhalter (1986), doi:10.1002/sim.4780050506.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> spiegelhalter_test(c).p_value < 1e-6
    True
    """
    from scipy.special import ndtr  # noqa: PLC0415

    ranked = rank(p)
    c = ranked.confidence
    above = dot(ranked.residual, 1 - 2 * c)
    spread = math.sqrt(dot(ranked.count, (1 - 2 * c) ** 2 * c * (1 - c)))
    z = above / spread if spread else math.inf if above else 0.0
    return CalibrationTest("Spiegelhalter", z, float(2 * ndtr(-abs(z))))


def ece_test(
    p: Measurable | Ranked, *, bins: int = 15, norm: float = 1, binning: Binning = "width",
    draws: int = 1000, seed: int = 0,
) -> CalibrationTest:  # fmt: skip
    """Is the ECE larger than a calibrated model would show? By consistency resampling.

    Correctness is drawn from the confidences ``draws`` times; the p-value is the share of draws,
    the data counted in, whose ECE is at least the observed one. Exact at any N.

    Reference: Vaicenavicius et al. (2019), arXiv:1902.06977.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> ece_test(c).p_value < 0.01
    True
    """
    return _resampling_test(
        p, "ECE", partial(m.ece, bins=bins, norm=norm, binning=binning), draws, seed
    )


def skce_test(
    p: Measurable | Ranked, *, width: float | None = None, draws: int = 1000, seed: int = 0
) -> CalibrationTest:
    """Kernel test of calibration: the SKCE against consistency resamples. Exact at any N above 1.

    NaN of one sample, which has no pair. Sees gaps of either sign anywhere, without bins.

    Reference: Widmann, Lindsten and Zachariah (2019), arXiv:1910.11385.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> skce_test(c).p_value < 0.01
    True
    """
    ranked = rank(p)
    if width is None and ranked.total > 1:
        width = median_distance(ranked)
    return _resampling_test(ranked, "SKCE", partial(m.skce, width=width), draws, seed)


def _resampling_test(
    p: Measurable | Ranked, name: str, statistic: Callable[[Ranked], float], draws: int, seed: int
) -> CalibrationTest:
    ranked = rank(p)
    observed = statistic(ranked)
    if math.isnan(observed):  # one sample has no pair
        return CalibrationTest(name, observed, math.nan)
    # Equal values must count as at least as large, whatever the rounding of their sums.
    bar = observed - 1e-12 * max(1.0, abs(observed))
    reached = sum(statistic(drawn) >= bar for drawn in calibrated_draws(ranked, draws, seed))
    return CalibrationTest(name, observed, (1 + reached) / (1 + draws))


# --- paired comparison ------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A metric of model ``first`` minus that of model ``second`` on the same samples.

    ``p_value`` is two-sided, from the bootstrap standard error; ``adjusted`` is corrected for all
    comparisons of the table (Holm).
    """

    metric: str
    first: str
    second: str
    value: float
    low: float
    high: float
    standard_error: float
    p_value: float
    adjusted: float = math.nan
    level: float = 0.95


def paired_differences(
    models: Mapping[str, Predictions | Confidences],
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> tuple[dict[str, dict[str, float]], list[Difference]]:
    """Values by model and metric, and all pairwise differences from common resamples."""
    check_count("replicates", replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
    check_seed(seed)
    functions = _functions(names, options or {})
    values = {model: _values(p, functions) for model, p in models.items()}
    drawn = {model: _resampled(p, functions, replicates, seed) for model, p in models.items()}
    size = len(next(iter(models.values())))
    with np.errstate(invalid="ignore"):  # two infinite losses have no difference: NaN
        found = [
            _difference(name, first, second, values[first][name] - values[second][name],
                        drawn[first][name] - drawn[second][name], level, size)
            for first, second in combinations(models, 2)
            for name in names
        ]  # fmt: skip
    adjusted = holm([difference.p_value for difference in found])
    return values, [replace(d, adjusted=p) for d, p in zip(found, adjusted, strict=True)]


def _resampled(
    p: Predictions | Confidences,
    functions: Mapping[str, partial[float]],
    replicates: int,
    seed: int,
) -> dict[str, Float64]:
    """Values of each metric on resamples that are the same for every model."""
    sample = Sample.of(p)
    columns: dict[str, list[Any]] = {name: [] for name in functions}
    for weights in resample_weights(len(sample.weight), replicates, seed):
        for name, function in functions.items():
            if name == "classwise_ece" and isinstance(p, Predictions):
                columns[name].append(_resampled_classwise(p, weights, **function.keywords))
            else:
                evaluate = partial(_on_resample, function, sample)
                columns[name].append([evaluate(row) for row in weights[:, sample.order]])
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _on_resample(function: Callable[[Sample], float], sample: Sample, weight: Float64) -> float:
    return function(sample.reweighted(weight))


def _resampled_classwise(
    p: Predictions, weights: Float64, *, bins: int = 15, norm: float = 1
) -> Float64:
    count, residual = resampled_classwise_cells(p, weights.astype(np.float32), bins=bins)
    return mean_gap_norm(count, residual, norm)


def _difference(
    metric: str, first: str, second: str, gap: float, drawn: Float64, level: float, size: int
) -> Difference:
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

    drawn = drawn[~np.isnan(drawn)]
    error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
    z = float(ndtri((1 + level) / 2))
    if math.isnan(gap) or math.isnan(error):
        p_value = math.nan
    elif error == 0:  # the same difference in every resample: as unlikely as N equal signs
        p_value = 1.0 if gap == 0 else min(1.0, 2.0 ** (1 - size))
    else:
        p_value = float(2 * ndtr(-abs(gap) / error))
    low, high = gap - z * error, gap + z * error
    return Difference(metric, first, second, gap, low, high, error, p_value, level=level)


def samples_needed(effect: float, standard_error: float, num_samples: int) -> int | None:
    """About how many samples would show an effect of this size, if it is real.

    To one digit, for a two-sided test at 5 % with a power of 80 %. None where those that gave the
    standard error would do, where there is no effect, and beyond a billion.

    >>> samples_needed(0.01, 0.01, 1000)
    8000
    """
    if not effect:
        return None
    needed = num_samples * (POWER * standard_error / abs(effect)) ** 2
    return int(float(f"{needed:.1g}")) if num_samples < needed < MOST_NEEDED else None


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number so that any false alarm stays rare; NaN stays NaN.

    Reference: Holm (1979), https://www.jstor.org/stable/4615733.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(len(values), np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    scaled = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted.tolist()
