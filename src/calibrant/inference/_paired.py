"""Differences between models on the same samples.

Averages and rankings are compared by the bootstrap standard error of their difference, accuracies
by the exact test of McNemar, calibration errors by what each estimate would be if the true error
were e (``_biased``). P-values are corrected by Holm's method, and so are the intervals: one that
excludes 0 belongs to a significant difference, and the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._biased import BiasedErrors, by_true_errors, largest_effects
from calibrant.inference._bootstrap import replicate_values, resample_weights
from calibrant.inference._clusters import Clusters, cluster_sums, mean_one
from calibrant.inference._intervals import evaluate, functions_of
from calibrant.inference._paired_test import PairedTest, by_standard_error
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._sample import Sample
from calibrant.predictions import Confidences, Predictions

Models = Mapping[str, Predictions | Confidences]


@dataclass(frozen=True)
class Difference:
    """A metric of model ``first`` minus that of model ``second`` on the same samples.

    ``value`` is the difference of the two estimates. ``low``, ``high`` and the two-sided
    ``p_value`` are about the population; for calibration errors they allow for the bias of each
    estimate, so ``value`` can lie outside. ``adjusted`` is the p-value corrected for all
    comparisons of the table (Holm). ``low`` and ``high`` are corrected in the same way: they
    exclude 0 exactly where ``adjusted`` is below 1 - ``level``.
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
    models: Models,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> tuple[dict[str, dict[str, float]], list[Difference]]:
    """Values by model and metric, and all pairwise differences from common resamples."""
    resampling = Resampling(level, replicates, seed)
    values, tests = paired_tests(models, names, resampling, options=options)
    return values, differences_of(tests, level)


Key = tuple[str, str, str]
# Of the smaller class, by which the spread of ranking metrics is too small; see _ranking_spread.
SCARCE_STEPS = 10.0


def paired_tests(
    models: Models,
    names: Sequence[str],
    resampling: Resampling,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[dict[str, dict[str, float]], dict[Key, tuple[float, PairedTest]]]:
    """Values by model and metric; the difference and its test by both models and metric."""
    options = options or {}
    functions = functions_of(names, options)
    values = {model: evaluate(p, functions) for model, p in models.items()}
    plain = {k: f for k, f in functions.items() if METRICS[k].interval in ("bootstrap", "gap")}
    biased = [name for name in names if METRICS[name].plug_in]
    drawn = _resampled(models, plain, resampling)
    effects = largest_effects(models) if biased else (1.0, 1.0)
    errors = {
        model: BiasedErrors.of(p, biased, options, resampling, effects)
        for model, p in models.items()
    }

    def compare(first: str, second: str, name: str) -> tuple[float, PairedTest]:
        gap = values[first][name] - values[second][name]
        if METRICS[name].interval == "exact":
            return gap, _by_discordant_pairs(models[first], models[second])
        if name in plain:
            varied = drawn[first][name] - drawn[second][name]
            units = models[first].belonging.num_units(len(models[first]))
            if METRICS[name].scale == "logit":
                varied = varied * max(_ranking_spread(models[m], units) for m in (first, second))
            return gap, by_standard_error(gap, varied, units)
        return gap, by_true_errors(errors[first], errors[second], name)

    keys = [(*pair, name) for pair in combinations(models, 2) for name in names]
    with np.errstate(invalid="ignore"):  # two infinite losses have no difference: NaN
        return values, {key: compare(*key) for key in keys}


def differences_of(tests: Mapping[Key, tuple[float, PairedTest]], level: float) -> list[Difference]:
    """The differences, with p-values and intervals corrected for all of them (Holm)."""
    p_values = [one.p_value for _, one in tests.values()]
    corrected = zip(holm(p_values), holm_levels(p_values, 1 - level), strict=True)
    with np.errstate(invalid="ignore"):
        return [
            Difference(
                name, first, second, gap, *one.bounds(alpha), one.error, one.p_value, p, level
            )
            for ((first, second, name), (gap, one)), (p, alpha) in zip(
                tests.items(), corrected, strict=True
            )
        ]


# --- averages and rankings --------------------------------------------------------------------


def _resampled(
    models: Models, functions: Mapping[str, Callable[[Sample], float]], resampling: Resampling
) -> dict[str, dict[str, Float64]]:
    """Values of each metric of each model, on resamples that are the same for every model."""
    samples = {model: Sample.of(p) for model, p in models.items()}
    if not functions:
        return {model: {} for model in models}
    parts: dict[str, list[Float64]] = {model: [] for model in models}
    for some in _drawn_alike(samples):
        first = samples[some[0]]
        batches = resample_weights(
            len(first.order),
            resampling.replicates,
            resampling.seed,
            clusters=Clusters.of(first.source),
        )
        for weights in batches:
            for model in some:
                sample = samples[model]
                drawn = weights[:, sample.order]
                if not sample.unweighted:
                    drawn *= sample.weight
                parts[model] += replicate_values(sample, functions, drawn)
    return {
        model: dict(zip(functions, np.concatenate(part, axis=1), strict=True))
        for model, part in parts.items()
    }


def _ranking_spread(p: Predictions | Confidences, units: int) -> float:
    """How much wider differences of ranking metrics spread than over resamples.

    With m right or wrong answers, whichever are fewer, resamples repeat some of them, and a curve
    over so few steps varies less than one over as many others. By simulation
    (benchmarks/false_alarms.py) the variance is short by up to the share 10 / m.
    """
    right = float(p.correct.mean())
    scarce = min(right, 1 - right) * units
    return math.sqrt(1 + SCARCE_STEPS / max(scarce, 1.0))


def _drawn_alike(samples: Mapping[str, Sample]) -> list[list[str]]:
    """Models whose samples are drawn together: all, unless each has clusters of its own."""
    if all(sample.source.clusters is None for sample in samples.values()):
        return [list(samples)]
    return [[model] for model in samples]


# --- accuracy ---------------------------------------------------------------------------------


def _by_cluster_sums(
    first: Predictions | Confidences, second: Predictions | Confidences
) -> PairedTest:
    """The t-test of the difference by clusters: what samples of one cluster say is one thing.

    Reference: Obuchowski (1998), On the comparison of correlated proportions for clustered data,
    Statistics in Medicine 17, 1495-1507.
    """
    from scipy.special import stdtr, stdtrit

    weight, units = mean_one(first), first.belonging.num_units(len(first))
    gain = first.correct.astype(np.float64) - second.correct
    gap = float(weight @ gain) / len(gain)
    sums = cluster_sums(first, weight * (gain - gap))
    if not gain.any():
        return PairedTest(0.0, 1.0, lambda _: (0.0, 0.0))
    error = math.sqrt(units / max(units - 1, 1) * float(sums @ sums)) / len(gain)
    if units < 2 or error == 0:  # noqa: PLR2004
        return PairedTest(error, 1.0, lambda _: (-1.0, 1.0), gap)
    p_value = float(2 * stdtr(units - 1, -abs(gap) / error))

    def bounds(level: float) -> Bounds:
        reach = float(stdtrit(units - 1, (1 + level) / 2)) * error
        return max(gap - reach, -1.0), min(gap + reach, 1.0)

    return PairedTest(error, p_value, bounds, gap)


def _by_discordant_pairs(
    first: Predictions | Confidences, second: Predictions | Confidences
) -> PairedTest:
    """The exact test on samples that only one of the models gets right.

    References: McNemar (1947), doi:10.1007/BF02295996; the interval, with one pair added to each
    side: Bonett and Price (2012), doi:10.3102/1076998611411915. Where it and the exact test
    disagree about 0, the test decides.
    """
    from scipy.special import bdtr, ndtri

    if not first.is_independent:
        return _by_cluster_sums(first, second)
    a, b = first.correct.astype(bool), second.correct.astype(bool)
    size, won, lost = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    p_value = min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5)))
    if won + lost == 0:
        return PairedTest(0.0, p_value, lambda _: (0.0, 0.0))
    gap = (won - lost) / (size + 2)
    error = math.sqrt((won + lost + 2) / (size + 2) - gap**2) / math.sqrt(size + 2)

    def bounds(level: float) -> Bounds:
        reach = float(ndtri((1 + level) / 2)) * error
        return max(gap - reach, -1.0), min(gap + reach, 1.0)

    return PairedTest(error, p_value, bounds, gap)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method, which controls the family-wise error; NaN stays NaN.

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


def holm_levels(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level at which Holm's method judges each p-value; NaN counts as no test.

    The smallest of m is compared with alpha / m, the next with alpha / (m - 1), and so on until one
    is not below its level: all that are left stay with that one's.

    >>> holm_levels([0.01, 0.04, 0.03], 0.06)
    [0.02, 0.03, 0.03]
    """
    values = np.asarray(p_values, dtype=np.float64)
    levels = np.full(len(values), alpha)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    step = alpha / np.arange(len(order), 0, -1)
    kept = np.flatnonzero(values[order] >= step)
    if len(kept):
        step[kept[0] :] = step[kept[0]]
    levels[order] = step
    return levels.tolist()
