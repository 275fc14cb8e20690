"""Calibration tests and consistency bands.

Independent samples: correctness is drawn from the confidences (consistency resampling), which is
exact. Samples in clusters or with weights: under calibration the residuals, correct minus
confidence, have mean 0 whatever goes together within a cluster, so the residuals of each cluster
keep their size and get a common random sign (the wild bootstrap by clusters of Cameron, Gelbach and
Miller 2008, doi:10.1162/rest.90.3.414, with the null hypothesis imposed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from calibrant import metrics as m
from calibrant._core.arrays import Float64, dot
from calibrant._core.checks import check_count, check_fraction, check_seed
from calibrant.inference._clusters import cluster_sums, mean_one
from calibrant.metrics._binning import Binning, bin_sums
from calibrant.metrics._kernel import median_distance
from calibrant.metrics._sample import Measurable, Ranked, Sample, rank
from calibrant.predictions import Confidences, Predictions


@dataclass(frozen=True)
class CalibrationTest:
    """Outcome of a test whose null hypothesis is P(correct | confidence) = confidence."""

    name: str
    statistic: float
    p_value: float


def consistency_band(
    p: Measurable | Ranked,
    *,
    bins: int = 15,
    binning: Binning = "width",
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[Float64, Float64]:
    """Range of the accuracy of each bin if the model were calibrated; NaN in empty bins.

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
    hits = np.array(
        [
            np.diff(np.concatenate(([0.0], np.cumsum(drawn.hits)))[sums.cuts])
            for drawn in calibrated_draws(p, draws, seed)
        ]
    )
    with np.errstate(invalid="ignore"):
        tail = (1 - level) / 2
        low, high = np.quantile(hits / sums.count, (tail, 1 - tail), axis=0)
    return low, high


def calibrated_draws(p: Measurable | Ranked, draws: int, seed: int) -> Iterator[Ranked]:
    """Yield the same confidences with correctness drawn as if the model were calibrated."""
    check_count("draws", draws, least=20, most=1_000_000, example=1000)
    check_seed(seed)
    rng = np.random.default_rng(seed)
    if not isinstance(p, Ranked) and not _independent(Sample.of(p)):
        yield from _signed_draws(Sample.of(p), draws, rng)
        return
    ranked = rank(p)
    count = ranked.count.astype(np.int64)
    single = bool((count == 1).all())
    for _ in range(draws):
        if single:  # much faster than NumPy's binomial generator
            hits = (rng.random(len(count)) < ranked.confidence).astype(np.float64)
        else:
            hits = rng.binomial(count, ranked.confidence).astype(np.float64)
        yield Ranked(ranked.confidence, ranked.count, hits)


def _independent(sample: Sample) -> bool:
    return sample.source.clusters is None and sample.unweighted


def _signed_draws(sample: Sample, draws: int, rng: np.random.Generator) -> Iterator[Ranked]:
    """Residuals with a random sign for each cluster, or for each sample where there is none."""
    codes = sample.source.belonging.codes
    unit = np.arange(len(sample.order)) if codes is None else codes[sample.order]
    units, expected = int(unit.max()) + 1, sample.weight * sample.confidence
    residual = sample.weight * sample.correct - expected
    starts = np.arange(len(unit)) if sample.starts is None else sample.starts
    ranked = sample.ranked
    for _ in range(draws):
        sign = rng.integers(0, 2, units) * 2.0 - 1
        hits = np.add.reduceat(expected + sign[unit] * residual, starts)
        yield Ranked(ranked.confidence, ranked.count, hits)


def spiegelhalter_test(p: Measurable | Ranked) -> CalibrationTest:
    r"""Spiegelhalter's z-test of calibration, two-sided.

    :math:`z = \sum_i (a_i - c_i)(1 - 2 c_i) / \sqrt{\sum_i (1 - 2 c_i)^2 c_i (1 - c_i)}`, normal
    under calibration. Sensitive to over- and underconfidence on average; blind to gaps that cancel.
    Where the variance is 0 (every confidence 0, 1/2 or 1), z is 0 if the data agree and infinite if
    a single answer does not. With clusters or weights the variance is that of the sums by cluster,
    and z is compared with Student's t of as many degrees of freedom as there are clusters, less 1.

    Reference: Spiegelhalter (1986), doi:10.1002/sim.4780050506.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> spiegelhalter_test(c).p_value < 1e-6
    True
    """
    from scipy.special import ndtr

    if not isinstance(p, Ranked) and not _independent(Sample.of(p)):
        return _spiegelhalter_by_cluster(Sample.of(p).source)
    ranked = rank(p)
    c = ranked.confidence
    above = dot(ranked.residual, 1 - 2 * c)
    spread = math.sqrt(dot(ranked.count, (1 - 2 * c) ** 2 * c * (1 - c)))
    z = above / spread if spread else math.inf if above else 0.0
    return CalibrationTest("Spiegelhalter", z, float(2 * ndtr(-abs(z))))


def _spiegelhalter_by_cluster(p: Predictions | Confidences) -> CalibrationTest:
    from scipy.special import stdtr

    units = p.belonging.num_units(len(p))
    sums = cluster_sums(p, mean_one(p) * (p.correct - p.confidence) * (1 - 2 * p.confidence))
    spread = math.sqrt(units / max(units - 1, 1) * dot(sums, sums))
    z = float(sums.sum()) / spread if spread else 0.0
    p_value = float(2 * stdtr(units - 1, -abs(z))) if units > 1 else math.nan
    return CalibrationTest("Spiegelhalter", z, p_value)


def ece_test(
    p: Measurable | Ranked,
    *,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    draws: int = 1000,
    seed: int = 0,
) -> CalibrationTest:
    """Test whether the ECE is larger than that of a calibrated model, by consistency resampling.

    Correctness is drawn from the confidences ``draws`` times; the p-value is the share of draws,
    the data counted in, whose ECE is at least the observed one. Exact at any N; with clusters, of
    which the residuals get random signs instead, it needs a few dozen of them.

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

    NaN for a single sample. Detects gaps of either sign anywhere, without bins.

    Reference: Widmann, Lindsten and Zachariah (2019), arXiv:1910.11385.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9] * 100, correct=[1] * 60 + [0] * 40)
    >>> skce_test(c).p_value < 0.01
    True
    """
    ranked = rank(p)
    if width is None and ranked.total > 1:
        width = median_distance(ranked)
    return _resampling_test(p, "SKCE", partial(m.skce, width=width), draws, seed)


def _resampling_test(
    p: Measurable | Ranked, name: str, statistic: Callable[[Ranked], float], draws: int, seed: int
) -> CalibrationTest:
    ranked = rank(p)
    observed = statistic(ranked)
    if math.isnan(observed):  # one sample has no pair
        return CalibrationTest(name, observed, math.nan)
    # Equal values must count as at least as large, despite rounding of their sums.
    bar = observed - 1e-12 * max(1.0, abs(observed))
    reached = sum(statistic(drawn) >= bar for drawn in calibrated_draws(p, draws, seed))
    return CalibrationTest(name, observed, (1 + reached) / (1 + draws))
