"""How sure a number is: intervals, tests of calibration, paired comparison.

**Intervals.** Averages and rankings get the percentile bootstrap over samples (accuracy: the Wilson
interval). Calibration errors do not: their plug-in estimates are biased upward, the bootstrap adds
the same bias once more, and near perfect calibration its intervals miss the truth almost always.
They get a grid bootstrap (test inversion) instead. With ``g`` the gap between accuracy and
confidence in 15 equal-mass bins, the populations P(correct | c) = c + strength * g(c) run from
perfect calibration (strength 0) through the data's own gaps (1) to twice them (2). Samples of size N
are drawn from each, and the interval holds the true errors of those populations under which the
observed value is not surprising.

Reference: Hansen (1999), The grid bootstrap, doi:10.1162/003465399558463.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from calibrant import metrics as m
from calibrant._arrays import Float, Float64, num_threads
from calibrant._checks import check_count, check_fraction
from calibrant.metrics._binned import debiased_square, wilson_interval
from calibrant.metrics._binning import Binning, bin_cuts, bin_sums
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._kernel import laplacian_form, median_distance
from calibrant.metrics._sample import Measurable, Ranked, Sample, rank
from calibrant.predictions import Confidences, Predictions

STRENGTHS = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
GAP_BINS = 15
# Draws of the grid bootstrap for every replicate of the plain one: each is used at 7 strengths.
GRID_SHARE = 5
# Elements of the weight matrix made at a time.
WEIGHT_ELEMENTS = 8_000_000


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
    check_count("replicates", replicates, least=20, most=1_000_000, example=1000)
    options = options or {}
    sample = Sample.of(p)
    functions = {name: partial(m.get_metric(name).function, **options.get(name, {}))
                 for name in names}  # fmt: skip
    values = {name: function(p if name == "classwise_ece" else sample)
              for name, function in functions.items()}  # fmt: skip
    bounds = dict.fromkeys(names, (math.nan, math.nan))
    if len(sample.weight) > 1:
        plain = [name for name in names if not m.METRICS[name].plug_in and name != "accuracy"]
        grid = [name for name in names if m.METRICS[name].plug_in and name != "classwise_ece"]
        draws = max(replicates // GRID_SHARE, 20)
        bounds |= _percentile_bounds(sample, {k: functions[k] for k in plain}, level, replicates,
                                     seed)  # fmt: skip
        targets = {k: _population_form(k, options.get(k, {}), sample.ranked) for k in grid}
        estimators = {k: (functions[k], *targets[k]) for k in grid}
        bounds |= _grid_bounds(sample, estimators, level, draws, seed)
        if "classwise_ece" in names and isinstance(p, Predictions):
            classwise = options.get("classwise_ece", {})
            bounds["classwise_ece"] = _classwise_bounds(p, level, draws, seed, **classwise)
    if "accuracy" in names:
        bounds["accuracy"] = _accuracy_bounds(sample.ranked, level)
    return {name: Interval(values[name], *bounds[name], level) for name in names}


def _accuracy_bounds(ranked: Ranked, level: float) -> tuple[float, float]:
    hits, count = np.array([ranked.hits.sum()]), np.array([ranked.total])
    low, high = wilson_interval(hits, count, level)
    return float(low[0]), float(high[0])


# --- the plain bootstrap ---------------------------------------------------------------------------


def resample_weights(num_samples: int, replicates: int, seed: int) -> Iterator[Float64]:
    """Yield how often each sample was drawn in each replicate, in batches (r, N)."""
    batch = max(1, min(replicates, WEIGHT_ELEMENTS // num_samples))
    rng = np.random.default_rng(seed)
    for start in range(0, replicates, batch):
        size = min(batch, replicates - start)
        weights = np.empty((size, num_samples))
        for row in weights:
            drawn = rng.integers(0, num_samples, num_samples)
            row[:] = np.bincount(drawn, minlength=num_samples)
        yield weights


def _percentile_bounds(
    sample: Sample, functions: Mapping[str, Callable[[Sample], float]], level: float,
    replicates: int, seed: int,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    if not functions:
        return {}
    found = resampled_values(sample, functions, replicates, seed)
    return {name: _quantiles(column, level)
            for name, column in zip(functions, found.T, strict=True)}  # fmt: skip


def resampled_values(
    sample: Sample, functions: Mapping[str, Callable[[Sample], float]], replicates: int, seed: int
) -> Float64:
    """Values of the functions on every replicate, (replicates, functions)."""

    def evaluate(weight: Float64) -> list[float]:
        drawn = sample.reweighted(weight)
        return [function(drawn) for function in functions.values()]

    rows: list[list[float]] = []
    with ThreadPoolExecutor(num_threads()) as pool:
        for weights in resample_weights(len(sample.weight), replicates, seed):
            rows.extend(pool.map(evaluate, weights))
    return np.array(rows)


def _quantiles(values: Float64, level: float) -> tuple[float, float]:
    """The central part of the values; NaN where most are undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return math.nan, math.nan
    tail = (1 - level) / 2
    # "lower" and "higher" never interpolate, so infinite values stay what they are.
    low = np.quantile(defined, tail, method="lower")
    return float(low), float(np.quantile(defined, 1 - tail, method="higher"))


# --- the grid bootstrap ----------------------------------------------------------------------------

Estimator = tuple[
    Callable[[Ranked], float],  # the metric itself
    Callable[[Ranked], float],  # the statistic that is simulated, an increasing function of it
    Callable[[Ranked], float],  # what the statistic estimates, of a whole population
    Callable[[float], float],  # from the statistic's scale to the metric's
]


def _population_form(
    name: str, options: Mapping[str, Any], ranked: Ranked
) -> tuple[Callable[[Ranked], float], Callable[[Ranked], float], Callable[[float], float]]:
    """Statistic, its population value, and the way back to the metric's scale."""
    function = partial(m.METRICS[name].function, **options)
    if name == "debiased_ece":  # its square is unbiased; the root of a noisy square is not
        binning = {"binning": "mass", **options}
        population = partial(m.ece, norm=2, **binning)
        return (
            partial(debiased_square, **options),
            lambda r: population(r) ** 2,
            lambda square: math.sqrt(max(square, 0.0)),
        )
    if name == "skce":
        width = options.get("width") or median_distance(ranked)
        return (
            partial(m.skce, width=width),
            lambda r: laplacian_form(r.confidence, r.residual, width) / r.total**2,
            float,
        )
    if name == "kde_ece" and "bandwidth" not in options:
        from calibrant.metrics._kernel import _likeliest_bandwidth  # noqa: PLC0415

        function = partial(function, bandwidth=_likeliest_bandwidth(ranked))
    return function, function, float


def _grid_bounds(
    sample: Sample, estimators: Mapping[str, Estimator], level: float, draws: int, seed: int
) -> dict[str, tuple[float, float]]:
    if not estimators:
        return {}
    ranked = sample.ranked
    chance = _populations(ranked)
    statistics = [estimator[1] for estimator in estimators.values()]

    def evaluate(job: tuple[Float64, int]) -> list[list[float]]:
        weight, number = job
        count = sample.reweighted(weight).ranked.count
        drawn = np.repeat(np.arange(len(count)), count.astype(np.int64))
        lot = np.random.default_rng((seed, number)).random(len(drawn))  # the same at each strength
        resamples = (
            Ranked(ranked.confidence, count,
                   np.bincount(drawn[lot < row[drawn]], minlength=len(count)).astype(np.float64))
            for row in chance
        )  # fmt: skip
        return [[statistic(r) for statistic in statistics] for r in resamples]

    rows: list[list[list[float]]] = []
    with ThreadPoolExecutor(num_threads()) as pool:
        for weights in resample_weights(len(sample.weight), draws, seed):
            rows.extend(pool.map(evaluate, zip(weights, range(len(rows), draws))))  # noqa: B905
    simulated = np.array(rows)  # (draws, strengths, metrics)
    bounds = {}
    for k, (name, (_, statistic, population, back)) in enumerate(estimators.items()):
        truth = np.array(
            [population(Ranked(ranked.confidence, ranked.count, ranked.count * row))
             for row in chance]
        )  # fmt: skip
        low, high = invert(statistic(ranked), simulated[:, :, k], truth, level)
        bounds[name] = back(low), back(high)
    return bounds


def _populations(ranked: Ranked) -> Float64:
    """P(correct | c) at each confidence, for each strength: (strengths, confidences)."""
    sums = bin_sums(ranked, GAP_BINS, "mass")
    gap = np.repeat(sums.gap, np.diff(sums.cuts))
    return np.clip(ranked.confidence + STRENGTHS[:, None] * gap, 0, 1)


def invert(
    observed: float, simulated: Float64, truth: Float64, level: float
) -> tuple[float, float]:
    """True values of those populations under which ``observed`` is not surprising.

    ``simulated`` has shape (draws, strengths). Its mean plus and minus z standard deviations, as
    functions of the strength, are crossed with the observed value. The upper bound stays half a
    standard deviation of noise above its floor: a value below anything expected of a calibrated
    model is luck, not proof of perfection.
    """
    from scipy.special import ndtri  # noqa: PLC0415 - SciPy costs 0.1 s to import

    z = float(ndtri((1 + level) / 2))
    mean, noise = simulated.mean(axis=0), simulated.std(axis=0, ddof=1)

    def crossing(curve: Float64, least: float) -> float:
        rising = np.maximum.accumulate(curve)
        strength = np.interp(max(observed, rising[0] + least), rising, STRENGTHS)
        return float(np.interp(strength, STRENGTHS, truth))

    return crossing(mean + z * noise, 0.0), crossing(mean - z * noise, noise[0] / 2)


def _classwise_bounds(
    p: Predictions, level: float, draws: int, seed: int, *, bins: int = 15, norm: float = 1
) -> tuple[float, float]:
    """The grid bootstrap on the cells of class and bin.

    Replicates of a cell are moved so that their mean is strength times the observed residual.
    """
    everyone = np.ones((1, p.num_samples), dtype=np.float32)
    count, residual = resampled_classwise_cells(p, everyone, bins=bins)
    share = residual / np.where(count > 0, count, 1)
    simulated = []
    for weights in resample_weights(p.num_samples, draws, seed):
        drawn_count, drawn = resampled_classwise_cells(p, weights.astype(np.float32), bins=bins)
        for strength in STRENGTHS:
            moved = drawn - (1 - strength) * share * drawn_count
            simulated.append(mean_gap_norm(drawn_count, moved, norm))
    table = np.concatenate(
        [np.stack(simulated[k :: len(STRENGTHS)]).ravel()[:, None] for k in range(len(STRENGTHS))],
        axis=1,
    )
    observed = float(mean_gap_norm(count, residual, norm)[0])
    return invert(observed, table, STRENGTHS * observed, level)


# --- bands and tests of calibration ----------------------------------------------------------------


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
    cuts = bin_cuts(ranked, bins, binning)
    count = bin_sums(ranked, bins, binning).count
    hits = np.array([
        np.diff(np.concatenate(([0.0], np.cumsum(drawn.hits)))[cuts])
        for drawn in calibrated_draws(ranked, draws, seed)
    ])  # fmt: skip
    with np.errstate(invalid="ignore"):
        tail = (1 - level) / 2
        low, high = np.quantile(hits / count, (tail, 1 - tail), axis=0)
    return low, high


def calibrated_draws(ranked: Ranked, draws: int, seed: int) -> Iterator[Ranked]:
    """Yield the same confidences with correctness drawn as if the model were calibrated."""
    check_count("draws", draws, least=20, most=1_000_000, example=1000)
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
    p is 1 where the variance is 0 (every confidence 0, 1/2 or 1) and nothing contradicts it.

    Reference: Spiegelhalter (1986), doi:10.1002/sim.4780050506.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> spiegelhalter_test(c).p_value < 1e-6
    True
    """
    from scipy.special import ndtr  # noqa: PLC0415

    ranked = rank(p)
    c = ranked.confidence
    above = float(ranked.residual @ (1 - 2 * c))
    spread = math.sqrt(float(ranked.count @ ((1 - 2 * c) ** 2 * c * (1 - c))))
    if spread == 0:
        return CalibrationTest("Spiegelhalter", 0.0, 1.0 if above == 0 else 0.0)
    z = above / spread
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
    """Kernel test of calibration: the SKCE against consistency resamples. Exact at any N.

    Sees gaps of either sign anywhere, without bins.

    Reference: Widmann, Lindsten and Zachariah (2019), arXiv:1910.11385.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> skce_test(c).p_value < 0.01
    True
    """
    ranked = rank(p)
    width = width or median_distance(ranked)
    return _resampling_test(ranked, "SKCE", partial(m.skce, width=width), draws, seed)


def _resampling_test(
    p: Measurable | Ranked, name: str, statistic: Callable[[Ranked], float], draws: int, seed: int
) -> CalibrationTest:
    ranked = rank(p)
    observed = statistic(ranked)
    # Equal values must count as at least as large, whatever the rounding of their sums.
    bar = observed - 1e-12 * max(1.0, abs(observed))
    reached = sum(statistic(drawn) >= bar for drawn in calibrated_draws(ranked, draws, seed))
    return CalibrationTest(name, observed, (1 + reached) / (1 + draws))


# --- paired comparison -----------------------------------------------------------------------------


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
    options = options or {}
    values, resampled = {}, {}
    for model, p in models.items():
        sample = Sample.of(p)
        functions = {name: partial(m.get_metric(name).function, **options.get(name, {}))
                     for name in names}  # fmt: skip
        values[model] = {name: function(p if name == "classwise_ece" else sample)
                         for name, function in functions.items()}  # fmt: skip
        resampled[model] = _resampled_by_name(p, sample, functions, replicates, seed)
    found = []
    labels = list(models)
    for i, first in enumerate(labels):
        for second in labels[i + 1 :]:
            for name in names:
                gap = values[first][name] - values[second][name]
                drawn = resampled[first][name] - resampled[second][name]
                found.append(_difference(name, first, second, gap, drawn, level))
    adjusted = holm([difference.p_value for difference in found])
    return values, [Difference(**{**vars(d), "adjusted": a})
                    for d, a in zip(found, adjusted, strict=True)]  # fmt: skip


def _resampled_by_name(
    p: Predictions | Confidences, sample: Sample, functions: Mapping[str, Callable[..., float]],
    replicates: int, seed: int,
) -> dict[str, Float64]:  # fmt: skip
    """Values of each metric on resamples that are the same for every model."""
    ranked_names = [name for name in functions if name != "classwise_ece"]
    columns: dict[str, list[Any]] = {name: [] for name in functions}
    for weights in resample_weights(len(sample.weight), replicates, seed):
        in_order = weights[:, sample.order]
        with ThreadPoolExecutor(num_threads()) as pool:
            for name in ranked_names:
                function = functions[name]
                columns[name].append(
                    np.array(list(pool.map(lambda w, f=function: f(sample.reweighted(w)), in_order)))
                )
        if "classwise_ece" in functions and isinstance(p, Predictions):
            keywords = getattr(functions["classwise_ece"], "keywords", {})
            norm = keywords.get("norm", 1)
            count, residual = resampled_classwise_cells(
                p, weights.astype(np.float32), bins=keywords.get("bins", 15)
            )
            columns["classwise_ece"].append(mean_gap_norm(count, residual, norm))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _difference(
    metric: str, first: str, second: str, gap: float, drawn: Float64, level: float
) -> Difference:
    from scipy.special import ndtr, ndtri  # noqa: PLC0415

    drawn = drawn[~np.isnan(drawn)]
    error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
    z = float(ndtri((1 + level) / 2))
    if math.isnan(gap) or math.isnan(error):
        p_value = math.nan
    elif error == 0:
        p_value = 1.0 if gap == 0 else 0.0
    else:
        p_value = float(2 * ndtr(-abs(gap) / error))
    low, high = gap - z * error, gap + z * error
    return Difference(metric, first, second, gap, low, high, error, p_value, level=level)


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
