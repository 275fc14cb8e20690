"""Binned calibration errors of the top label, and the reliability table they are read from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import Float64, Int, dots, scalar
from calibrant._core.checks import check_bins, check_fraction, check_norm
from calibrant.metrics._bin_bounds import bin_bounds
from calibrant.metrics._binning import (
    Binning,
    BinSums,
    bin_cuts,
    bin_sums,
    sums_between,
    width_edges,
    width_sums,
)
from calibrant.metrics._sample import Measurable, Ranked, rank
from calibrant.predictions import Confidences, Predictions


def ece(
    p: Measurable | Ranked | BinSums, *, bins: int = 15, norm: float = 1, binning: Binning = "width"
) -> float:
    r"""Expected calibration error of the top label.

    Range 0 to 1, lower is better. :math:`\left(\sum_b \frac{n_b}{N}
    |\mathrm{acc}_b - \mathrm{conf}_b|^p\right)^{1/p}` with p = ``norm``; ``math.inf`` takes the
    largest gap. Bins are right-closed (lo, hi] on [0, 1] with 0 in the first
    (``binning="width"``), or hold equally many samples and never split equal confidences
    (``"mass"``). Empty bins count nothing.

    The estimate is biased upward: at finite N a perfectly calibrated model has ECE > 0. See
    ``debiased_ece`` and ``smooth_ece``.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), doi:10.1609/aaai.v29i1.9602; Guo et al. (2017),
    arXiv:1706.04599; norm p: Karandikar et al. (2021), arXiv:2108.00106, eq. 6.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.9, 0.6, 0.6], correct=[1, 0, 1, 1])
    >>> round(metrics.ece(c), 4), round(metrics.ece(c, norm=2), 4)
    (0.4, 0.4)
    """
    sums = _binned(p, bins, binning)
    return norm_of_gaps(sums.share, np.abs(sums.gap), check_norm(norm))


def mce(p: Measurable | Ranked | BinSums, *, bins: int = 15, binning: Binning = "width") -> float:
    r"""Maximum calibration error: the largest gap of any non-empty bin.

    Range 0 to 1, lower is better. :math:`\max_b |\mathrm{acc}_b - \mathrm{conf}_b|`. One sample
    alone in a bin can set it, so read it with its interval.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), doi:10.1609/aaai.v29i1.9602.

    >>> from calibrant import Confidences, metrics
    >>> round(metrics.mce(Confidences(confidence=[0.9, 0.6], correct=[1, 1])), 4)
    0.4
    """
    return ece(p, bins=bins, norm=math.inf, binning=binning)


def adaptive_ece(p: Measurable | Ranked, *, bins: int = 15, norm: float = 1) -> float:
    r"""ECE over bins that hold equally many samples (AdaECE).

    Range 0 to 1, lower is better. ``ece`` with ``binning="mass"``: the first N mod B bins hold one
    sample more; a group of equal confidences goes to the bin of its middle sample.

    References
    ----------
    Nguyen and O'Connor (2015), arXiv:1508.05154; Mukhoti et al. (2020), arXiv:2002.09437.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7, 0.6], correct=[1, 0, 1, 1])
    >>> round(metrics.adaptive_ece(c, bins=2), 4)
    0.35
    """
    return ece(p, bins=bins, norm=norm, binning="mass")


def label_binned_ece(
    p: Measurable | Ranked, *, bins: int = 15, norm: float = 1, binning: Binning = "width"
) -> float:
    r"""Label-binned ECE: each sample's own confidence against the accuracy of its bin.

    Range 0 to 1, lower is better. :math:`\left(\frac1N \sum_i
    |\mathrm{acc}_{b(i)} - c_i|^p\right)^{1/p}`; never below ``ece`` with the same options
    (Jensen). The spread of confidences inside a bin counts, so it does not vanish for a calibrated
    model: 15 bins of equal width leave 1.7 % if confidences are evenly spread within bins, at most
    3.3 %.

    References
    ----------
    Roelofs et al. (2022), arXiv:2012.08668; Karandikar et al. (2021), arXiv:2108.00106, eq. 7.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.95, 0.99], correct=[1, 0])
    >>> round(metrics.label_binned_ece(c), 4)
    0.47
    """
    ranked, norm = rank(p), check_norm(norm)
    sums = bin_sums(ranked, bins, binning)
    of_own_bin = np.repeat(sums.accuracy, np.diff(sums.cuts))
    distance = np.abs(of_own_bin - ranked.confidence)
    return norm_of_gaps(ranked.count / ranked.total, distance, norm)


def overconfidence_error(
    p: Measurable | Ranked | BinSums, *, bins: int = 15, binning: Binning = "width"
) -> float:
    r"""Overconfidence error: gaps of the overconfident bins, weighted by their confidence.

    Range 0 to 1, lower is better. :math:`\sum_b \frac{n_b}{N}\, \mathrm{conf}_b
    \max(\mathrm{conf}_b - \mathrm{acc}_b, 0)`.

    References
    ----------
    Thulasidasan et al. (2019), arXiv:1905.11001.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.9], correct=[1, 0])
    >>> round(metrics.overconfidence_error(c), 4)
    0.36
    """
    sums = _binned(p, bins, binning)
    return dots(sums.share, sums.mean_confidence * np.maximum(-sums.gap, 0))


def underconfidence_error(
    p: Measurable | Ranked | BinSums, *, bins: int = 15, binning: Binning = "width"
) -> float:
    r"""Underconfidence error: gaps of the underconfident bins, weighted by their doubt.

    Range 0 to 1, lower is better. The mirror image of ``overconfidence_error`` under
    c -> 1 - c: :math:`\sum_b \frac{n_b}{N} (1 - \mathrm{conf}_b)
    \max(\mathrm{acc}_b - \mathrm{conf}_b, 0)`.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.6, 0.6], correct=[1, 1])
    >>> round(metrics.underconfidence_error(c), 4)
    0.16
    """
    sums = _binned(p, bins, binning)
    return dots(sums.share, (1 - sums.mean_confidence) * np.maximum(sums.gap, 0))


def debiased_ece(p: Measurable | Ranked, *, bins: int = 15, binning: Binning = "mass") -> float:
    r"""L2 calibration error with the sampling noise of the bins subtracted.

    Range 0 to 1, lower is better. :math:`\sqrt{\max(0, \sum_b \frac{n_b}{N} [(\mathrm{acc}_b -
    \mathrm{conf}_b)^2 - \frac{\mathrm{acc}_b (1 - \mathrm{acc}_b)}{n_b - 1}])}` over equal-mass
    bins. The plug-in ``ece(norm=2)`` overestimates by exactly that noise, which dominates for
    well-calibrated models.

    One sample says nothing of its bin's noise, so N counts only the samples of bins of two or more,
    and the estimate is for those. NaN where they are half of all samples or fewer. Without ties
    nothing is left out from two samples per bin on; below, it is the most confident samples.

    References
    ----------
    Kumar, Liang and Ma (2019), arXiv:1909.10155; Bröcker (2012), doi:10.1007/s00382-011-1191-1.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.8] * 10, correct=[1] * 5 + [0] * 5)
    >>> round(metrics.debiased_ece(c), 4)
    0.2494
    """
    square = debiased_square(p, bins=bins, binning=binning)
    return square if math.isnan(square) else math.sqrt(max(square, 0.0))


def debiased_square(
    p: Measurable | Ranked | BinSums, *, bins: int = 15, binning: Binning = "mass"
) -> float:
    """The square of ``debiased_ece`` before it is cut off at 0: an unbiased estimate."""
    sums = _binned(p, bins, binning)
    enough = sums.count >= 2  # noqa: PLR2004 - a variance needs two samples
    kept = np.where(enough, sums.count, 0).sum(axis=-1)
    noise = sums.accuracy * (1 - sums.accuracy) / np.where(enough, sums.count - 1, 1)
    total = np.einsum("...i,...i->...", sums.count, np.where(enough, sums.gap**2 - noise, 0))
    many = 2 * kept > sums.count.sum(axis=-1)  # a minority must not speak for all
    return scalar(np.where(many, total / np.where(many, kept, 1), np.nan))


def sweep_ece(p: Measurable | Ranked, *, norm: float = 1, binning: Binning = "mass") -> float:
    r"""ECE with as many bins as keep accuracy rising with confidence.

    Range 0 to 1, lower is better. Starting from one bin, bins are added while the accuracies of the
    non-empty bins do not fall; the ECE of the last such number of bins is returned. No number of
    bins has to be chosen, and the bias is lower than that of 15 fixed bins.

    References
    ----------
    Roelofs et al. (2022), arXiv:2012.08668.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.6, 0.7, 0.8, 0.9], correct=[0, 1, 0, 1])
    >>> round(metrics.sweep_ece(c), 4)
    0.25
    """
    ranked, norm = rank(p), check_norm(norm)
    # There may be as many bins as samples, more than check_bins allows.
    cuts = bin_cuts(ranked, _most_monotone_bins(ranked, binning), binning)
    sums = sums_between(ranked, cuts)
    return norm_of_gaps(sums.share, np.abs(sums.gap), norm)


def _most_monotone_bins(ranked: Ranked, binning: Binning) -> int:
    """Count bins up from 1 until an accuracy falls; return the number before."""
    count = np.concatenate(([0.0], np.cumsum(ranked.count)))
    hits = np.concatenate(([0.0], np.cumsum(ranked.hits)))

    def rises(cuts: Int) -> bool:
        n, h = np.diff(count[cuts]), np.diff(hits[cuts])
        full = n > 0
        return bool((np.diff(h[full] / n[full]) >= 0).all())

    most = int(ranked.total)
    if rises(
        np.arange(len(count))
    ):  # accuracy rises sample by sample, so it rises under any binning
        return most
    for bins in range(2, most + 1):
        if not rises(bin_cuts(ranked, bins, binning)):
            return bins - 1
    return most


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram as numbers: one entry per bin, including empty bins.

    ``lower`` and ``upper`` bound the accuracy of each bin (Wilson interval at ``level``, where
    there are clusters of as many samples as they are worth); they, ``confidence`` and ``accuracy``
    are NaN in empty bins.
    """

    edges: Float64
    count: Float64
    confidence: Float64
    accuracy: Float64
    lower: Float64
    upper: Float64
    binning: Binning
    level: float

    @property
    def gap(self) -> Float64:
        """Accuracy minus confidence; negative where the model is overconfident."""
        return self.accuracy - self.confidence

    def __len__(self) -> int:
        return len(self.count)

    def __str__(self) -> str:
        head = f"{'bin':>17}  {'count':>9}  {'confidence':>10}  {'accuracy':>8}  {'interval':>15}"
        lines = [head]
        for low, high, n, conf, acc, lo, hi in zip(
            self.edges[:-1],
            self.edges[1:],
            self.count,
            self.confidence,
            self.accuracy,
            self.lower,
            self.upper,
            strict=True,
        ):
            where = f"({low:7.2%}, {high:7.2%}]"[:19]
            cells = f"{'–':>10}  {'–':>8}  {'–':>15}"
            if n > 0:
                cells = f"{conf:>10.2%}  {acc:>8.2%}  {f'{lo:.1%} … {hi:.1%}':>15}"
            lines.append(f"{where}  {n:>8,.0f}  {cells}")
        return "\n".join(lines)


def reliability(
    p: Measurable | Ranked, *, bins: int = 15, binning: Binning = "width", level: float = 0.95
) -> Reliability:
    """Table of bins: edges, count, mean confidence, accuracy and its interval.

    Edges of equal-mass bins lie halfway between neighbouring confidences.

    >>> from calibrant import Confidences, metrics
    >>> table = metrics.reliability(Confidences(confidence=[0.9, 0.3], correct=[1, 0]), bins=2)
    >>> table.count, table.accuracy
    (array([1., 1.]), array([0., 1.]))
    """
    ranked = rank(p)
    check_fraction("level", level, example=0.95)
    sums = bin_sums(ranked, bins, binning)
    lower, upper = bin_bounds(p, sums, level)
    empty = sums.count == 0

    def blank(values: Float64) -> Float64:
        return np.where(empty, np.nan, values)

    return Reliability(
        edges=width_edges(bins) if binning == "width" else _mass_edges(ranked, sums),
        count=sums.count,
        confidence=blank(sums.mean_confidence),
        accuracy=blank(sums.accuracy),
        lower=blank(lower),
        upper=blank(upper),
        binning=binning,
        level=level,
    )


def _mass_edges(ranked: Ranked, sums: BinSums) -> Float64:
    """0, 1, and between bins the midpoint of the neighbouring confidences."""
    after, last = sums.cuts[1:-1], len(ranked.confidence) - 1
    below = ranked.confidence[np.maximum(after - 1, 0)]
    above = ranked.confidence[np.minimum(after, last)]
    inner = np.where(after > last, 1.0, np.where(after == 0, 0.0, (below + above) / 2))
    return np.concatenate(([0.0], inner, [1.0]))


def _binned(p: Measurable | Ranked | BinSums, bins: int, binning: Binning) -> BinSums:
    """Bin the samples; the sums of a stream are already binned and returned unchanged."""
    if isinstance(p, BinSums):
        return p
    if isinstance(p, Predictions | Confidences) and binning == "width" and p.weights is None:
        return width_sums(p.confidence, p.correct, check_bins(bins))  # no need to sort
    return bin_sums(rank(p), bins, binning)


def norm_of_gaps(share: Float64, gap: Float64, norm: float) -> float:
    """(sum share * gap^p)^(1/p); for p = inf the largest gap that has a share.

    Along the last axis: with others before it, such as that of replicates, an array.
    """
    gap = np.where(share > 0, gap, 0)
    largest = gap.max(axis=-1)
    if math.isinf(norm):
        return scalar(largest)
    # Gaps relative to the largest, so that large p do not underflow.
    relative = gap / np.where(largest > 0, largest, 1)[..., None]
    return scalar(largest * np.einsum("...i,...i->...", share, relative**norm) ** (1 / norm))
