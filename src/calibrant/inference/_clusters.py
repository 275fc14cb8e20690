"""Samples that come in clusters or with sampling weights: what is resampled, and what N is worth.

*Averages and rankings.* Whole clusters are drawn with replacement, as many as there are; a sample
counts as often as its cluster was drawn, times its sampling weight. With few clusters the
percentiles are too narrow by the factor that a t quantile has over a normal one, so they are taken
further out (``expanded``; Hesterberg 2015, doi:10.1080/00031305.2015.1089789).

*Accuracy.* The variance of the weighted mean by clusters,
v = C/(C-1) sum_c (sum_i w_i (a_i - a))² / (sum_i w_i)²,
makes N samples worth n = a (1 - a) / v (C independent ones where v is 0). Wilson's interval is
taken with n samples and a t quantile of C - 1 degrees of freedom (Korn and Graubard 1998, Survey
Methodology 24, 193-201).

*Calibration errors.* A calibration error is a function of the sums of residuals e_i = a_i - c_i
over cells (bins of confidence; for classwise ECE, of class and bin). Noise in those sums pushes the
estimate up, and it spreads the estimate, most where the gaps of all cells have the sign of one
shift that a cluster shares. So two ratios are taken, each of the variance by clusters to that of
independent samples of weight 1, sum_i w_i (e_i - gap)². With S_cb the sum of w_i (e_i - gap of the
cell b) over the samples of cluster c in cell b:
 - noise of the cells: sum_b sum_c S_cb², times m / (m - 1) for a cell of m clusters, whose gap was
   estimated;
 - spread of the sum of absolute gaps: C/(C-1) sum_c (sum_b s_b S_cb)² with s_b the sign of the gap.
(Clusters of m identical samples: both are m. Independent samples with weights: both are 1 + the
squared coefficient of variation of the weights, as Kish 1965 has it.) The grid bootstrap simulates
populations with N / noise samples, drawn from the data in proportion to their weights, while the
estimate is that of all the data, its counts divided by the ratio: that gives the estimate its bias.
Where the spread is the larger ratio, simulated values are stretched about their mean by the root of
spread / noise. One ratio for both would overstate the bias of few large clusters. Paired
differences and bands, where bias matters less, take the larger of both as the design effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.inference._resampling import Bounds
from calibrant.metrics._binning import width_index
from calibrant.metrics._sample import Ranked
from calibrant.predictions import Confidences, Predictions

Record = Predictions | Confidences
# Bins of confidence, or of the probability of each class, in which residuals are added up.
DESIGN_BINS = 10
# Residuals looked at: more would only sharpen an estimate that need not be sharp.
DESIGN_ELEMENTS = 1 << 23
INDEPENDENT = "Intervals and tests assume independent samples."


def assumption(p: Record) -> str:
    """What intervals and tests assume of these samples, in one line."""
    weighted = "" if p.weights is None else " Sampling weights are taken as known."
    return assumed_of(None if p.clusters is None else p.belonging.num_units(len(p))) + weighted


def assumed_of(clusters: int | None) -> str:
    """What intervals and tests assume, given the number of clusters, or None."""
    if clusters is None:
        return INDEPENDENT
    if clusters == 1:
        return "All samples are in one cluster: intervals and tests need at least two."
    return (
        f"Intervals and tests resample the {clusters:,} clusters, which are assumed independent; "
        "samples of one cluster need not be."
    )


@dataclass(frozen=True)
class Clusters:
    """The cluster of each sample, from 0, in the order of the source."""

    codes: Int

    @classmethod
    def of(cls, p: Record) -> Clusters | None:
        """The clusters of a record; None where samples are independent."""
        codes = p.belonging.codes
        return None if codes is None else cls(codes)

    @cached_property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.codes.max()) + 1

    def resampled_weights(self, replicates: int, seed: int) -> Iterator[Float64]:
        """Yield how often the cluster of each sample was drawn, replicate by replicate."""
        rng = np.random.default_rng(seed)
        for _ in range(replicates):
            drawn = rng.integers(0, self.count, self.count)
            yield np.bincount(drawn, minlength=self.count).astype(np.float64)[self.codes]

    def sums(self, values: Float64) -> Float64:
        """Sum of the values of each cluster."""
        total: Float64 = np.bincount(self.codes, values, self.count).astype(np.float64)
        return total


def expanded(level: float, units: int) -> float:
    """The level at which percentiles of ``units`` clusters have the width of a t interval.

    >>> round(expanded(0.95, 10), 3), round(expanded(0.95, 1000), 3)
    (0.983, 0.95)
    """
    from scipy.special import ndtr, stdtrit

    if units < 2:  # noqa: PLR2004
        return level
    reach = math.sqrt(units / (units - 1)) * float(stdtrit(units - 1, (1 + level) / 2))
    return float(1 - 2 * ndtr(-reach))


def mean_one(p: Record) -> Float64:
    """Sampling weights with a mean of 1."""
    return np.ones(len(p)) if p.weights is None else p.weights / p.weights.mean()


def cluster_sums(p: Record, values: Float64) -> Float64:
    """Sums of values by cluster; the values themselves where samples are independent."""
    clusters = Clusters.of(p)
    return values if clusters is None else clusters.sums(values)


def proportion_bounds(p: Record, level: float) -> Bounds:
    """Wilson's interval of the share of correct samples, with their effective number."""
    hit, weight = p.correct.astype(np.float64), mean_one(p)
    units = p.belonging.num_units(len(p))
    if units < 2:  # noqa: PLR2004
        return 0.0, 1.0
    share = float(weight @ hit) / len(p)
    sums = cluster_sums(p, weight * (hit - share))
    variance = units / (units - 1) * float(sums @ sums) / len(p) ** 2
    return share_bounds(share, variance, units, level)


def share_bounds(share: float, variance: float, units: int, level: float) -> Bounds:
    """Wilson's interval of a share with this variance, given the number of independent units."""
    from scipy.special import stdtrit

    size = share * (1 - share) / variance if variance > 0 else float(units)
    z = float(stdtrit(units - 1, (1 + level) / 2))
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    return max(min(middle - half, share), 0.0), min(max(middle + half, share), 1.0)


def thinned(p: Record, seed: int, effect: float) -> Record:
    """N / effect independent samples of these; ``p`` itself where they are independent.

    Drawn at equal steps of weight along the clusters in random order, so that every cluster has its
    share: of clusters of identical samples, single draws would leave out a third of the clusters.
    """
    if p.is_independent:
        return p
    size = max(round(len(p) / effect), 2)
    rng, codes = np.random.default_rng((seed, 2)), p.belonging.codes
    within = rng.permutation(len(p))
    cluster = within if codes is None else rng.permutation(int(codes.max()) + 1)[codes]
    order = np.lexsort((within, cluster))
    reached = np.cumsum(mean_one(p)[order])
    steps = (rng.random() + np.arange(size)) * (reached[-1] / size)
    chosen = np.minimum(np.searchsorted(reached, steps, side="right"), len(p) - 1)
    return p.take(np.sort(order[chosen])).independent()


@dataclass(frozen=True)
class DesignEffect:
    """Ratios, at least 1, of variances by clusters to those of independent samples."""

    noise: float = 1.0
    spread: float = 1.0

    @property
    def larger(self) -> float:
        """How many samples are worth one independent sample, at worst."""
        return max(self.noise, self.spread)

    @property
    def stretch(self) -> float:
        """How much further values spread than those of N / noise independent samples do."""
        return math.sqrt(self.larger / self.noise)


def design_effect(p: Record, *, classwise: bool = False) -> DesignEffect:
    """What clusters and weights cost, for calibration errors."""
    if p.is_independent:
        return DesignEffect()
    weight, unit = mean_one(p), p.belonging.codes
    unit = np.arange(len(p)) if unit is None else unit
    if classwise and isinstance(p, Predictions):
        step = max(1, len(p) * p.num_classes // DESIGN_ELEMENTS)
        keep = np.arange(len(p)) if step == 1 else np.flatnonzero(unit % step == 0)
        probs = np.asarray(p.scores[keep] if p.kind == "probs" else p.probs[keep], dtype=np.float64)
        wanted = np.arange(p.num_classes)
        residual = (p.labels[keep, None] == wanted) - probs
        cell = width_index(probs.ravel(), DESIGN_BINS).reshape(probs.shape) + wanted * DESIGN_BINS
        return _ratios(residual, weight[keep], unit[keep], cell)
    cell = width_index(p.confidence, DESIGN_BINS)
    return _ratios((p.correct - p.confidence)[:, None], weight, unit, cell[:, None])


def _ratios(residual: Float64, weight: Float64, unit: Int, cell: Int) -> DesignEffect:
    """Both ratios; residuals and cells have a column per class, or one."""
    cells, rows = int(cell.max()) + 1, weight[:, None]
    filled = np.bincount(cell.ravel(), (rows + 0 * residual).ravel(), cells)
    total = np.bincount(cell.ravel(), (rows * residual).ravel(), cells)
    gap = total / np.where(filled > 0, filled, 1)
    pair, place = np.unique((unit[:, None] * cells + cell).ravel(), return_inverse=True)
    clusters_in = np.bincount(pair % cells, minlength=cells)
    # The gap of a cell of one cluster cannot be told from its noise.
    centred = residual - np.where(clusters_in > 1, gap, 0)[cell]
    sums = np.bincount(place.ravel(), (rows * centred).ravel())
    factor = np.where(clusters_in > 1, clusters_in / np.maximum(clusters_in - 1, 1), 1.0)
    noise = float(np.bincount(pair % cells, sums**2, cells) @ factor)
    signed = (centred * np.sign(gap)[cell]).sum(axis=1)
    by_unit = np.bincount(unit, weight * signed)
    units = int(np.count_nonzero(np.bincount(unit)))
    spread = float(by_unit @ by_unit) * units / max(units - 1, 1)
    alone = float((rows * centred**2).sum()), float(weight @ signed**2)
    ratios = (x / y if y > 0 else 1.0 for x, y in zip((noise, spread), alone, strict=True))
    return DesignEffect(*(max(1.0, ratio) for ratio in ratios))


def scaled(ranked: Ranked, part: int, whole: int) -> Ranked:
    """The same shares with as many samples as they are worth."""
    if part == whole:
        return ranked
    factor = part / whole
    return Ranked(ranked.confidence, ranked.count * factor, ranked.hits * factor, ranked.doubt)
