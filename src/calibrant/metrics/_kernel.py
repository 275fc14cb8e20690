"""Kernel calibration errors of the top label: MMCE, SKCE and the kernel-density ECE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int, dot, dots, scalar
from calibrant._core.checks import check_at_least, check_norm, check_positive
from calibrant.metrics._binned import norm_of_gaps
from calibrant.metrics._sample import Measurable, Ranked, rank

MMCE_WIDTH = 0.4
# Pairwise distances are taken between at most this many evenly spaced order statistics.
PAIRWISE_SAMPLE = 1000
# Confidences are kept this far from 0 and 1 where a density on (0, 1) needs their logarithm.
OPEN_INTERVAL = 1e-300
# Log-densities are differences of terms of size 1 / bandwidth. Rounding leaves gaps right to 1e-8
# at this bandwidth and to 1e-4 at a hundredth of it.
SMALLEST_BANDWIDTH = 1e-8
# Rows of replicates are summed in parts of so many elements, which fit into a processor's cache.
CACHED_ELEMENTS = 1 << 15
BANDWIDTHS = np.geomspace(0.001, 0.5, 20)


def mmce(p: Measurable | Ranked, *, width: float = MMCE_WIDTH) -> float:
    r"""Maximum mean calibration error with a Laplacian kernel.

    Range 0 to 1, lower is better. With residuals :math:`r_i = [\hat y_i = y_i] - c_i`,
    :math:`\sqrt{\frac1{N^2} \sum_{ij} r_i r_j e^{-|c_i - c_j| / w}}` (the root; diagonal included).
    Takes O(N log N) time, not O(N²). Biased upward at finite N; see ``skce``.

    References
    ----------
    Kumar, Sarawagi and Jain (2018), http://proceedings.mlr.press/v80/kumar18a.html.

    >>> from calibrant import Confidences, metrics
    >>> round(metrics.mmce(Confidences(confidence=[0.9, 0.9], correct=[1, 0])), 4)
    0.4
    """
    ranked = rank(p)
    check_positive("width", width, example=0.4)
    square = laplacian_form(ranked.confidence, ranked.residual, width) / ranked.total**2
    return math.sqrt(max(square, 0.0))


def skce(p: Measurable | Ranked, *, width: float | None = None) -> float:
    r"""Squared kernel calibration error: the unbiased estimate, which may be negative.

    Range -1 to 1, lower is better, 0 is calibrated. :math:`\frac1{N (N - 1)} \sum_{i \ne j} r_i r_j
    e^{-|c_i - c_j| / w}` with :math:`r_i = [\hat y_i = y_i] - c_i`; ``width`` defaults to the
    median distance of confidences. (With the residuals of both outcomes of a binary problem, as
    some packages take them, the value is twice as large.) Takes O(N log N) time. NaN for a single
    sample. The test of calibration that goes with it is ``calibrant.inference.skce_test``.

    References
    ----------
    Widmann, Lindsten and Zachariah (2019), arXiv:1910.11385.

    >>> from calibrant import Confidences, metrics
    >>> round(metrics.skce(Confidences(confidence=[0.9, 0.9], correct=[0, 0])), 4)
    0.81
    """
    ranked = rank(p)
    if ranked.total < 2:  # noqa: PLR2004 - a pair needs two samples
        return math.nan
    width = median_distance(ranked) if width is None else check_positive("width", width, example=1)
    form = laplacian_form(ranked.confidence, ranked.residual, width)
    own = dot(ranked.hits, (1 - ranked.confidence) ** 2) + dot(ranked.misses, ranked.confidence**2)
    return float(form - own) / (ranked.total * (ranked.total - 1))


def kde_ece(p: Measurable | Ranked, *, bandwidth: float | None = None, norm: float = 1) -> float:
    r"""ECE with accuracy estimated by a Beta-kernel density instead of bins.

    Range 0 to 1, lower is better. :math:`\left(\frac1N \sum_i |\hat a(c_i) - c_i|^p\right)^{1/p}`
    with the leave-one-out estimate :math:`\hat a(c_i) = \sum_{j \ne i} k_{c_j}(c_i) a_j / \sum_{j
    \ne i} k_{c_j}(c_i)`, where :math:`k_c` is the density of Beta(c/h + 1, (1 - c)/h + 1), which
    has no mass outside [0, 1]. ``bandwidth`` h is at least 1e-8 and defaults to the value of
    largest leave-one-out likelihood on a grid from 0.001 to 0.5. ``math.inf`` as ``norm`` takes the
    largest gap. Takes O(N²) time: seconds at N = 10,000.

    The estimate exists wherever there is another sample: one that is many bandwidths from all
    others takes the accuracy of the nearest, so small bandwidths do not hide isolated samples. At a
    confidence of exactly 0 or 1, where densities vanish, the kernels are taken 1e-300 inside. NaN
    for a single sample, which has no other to be compared with.

    References
    ----------
    Popordanoska, Sayer and Blaschko (2022), arXiv:2210.07810.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7], correct=[0, 0, 0])
    >>> round(metrics.kde_ece(c, bandwidth=0.1), 4)
    0.8
    """
    ranked, norm = rank(p), check_norm(norm)
    if ranked.total < 2:  # noqa: PLR2004
        return math.nan
    if bandwidth is None:
        bandwidth = likeliest_bandwidth(ranked)
    check_at_least("bandwidth", bandwidth, SMALLEST_BANDWIDTH, example=0.05)
    return _kde_error(ranked, bandwidth, norm, leave_one_out=True)


def population_kde_ece(ranked: Ranked, *, bandwidth: float, norm: float = 1) -> float:
    """The population value that ``kde_ece`` estimates: hits are probabilities, none is left out."""
    return _kde_error(ranked, bandwidth, norm, leave_one_out=False)


def _kde_error(ranked: Ranked, bandwidth: float, norm: float, *, leave_one_out: bool) -> float:
    ranked = _without_empty(ranked)
    kernel = _BetaKernel(ranked.confidence, _doubt(ranked), bandwidth)
    size = len(ranked.count)
    gap = np.zeros((2, size))  # of the correct and of the wrong samples at each confidence
    step = max(1, (1 << 21) // size)
    for start in range(0, size, step):
        rows = slice(start, start + step)
        gap[:, rows] = _kde_gaps(ranked, rows, kernel.logs(rows), leave_one_out=leave_one_out)
    count = np.stack([ranked.hits, ranked.misses])
    return norm_of_gaps(count.ravel() / ranked.total, gap.ravel(), norm)


def _without_empty(ranked: Ranked) -> Ranked:
    """Confidences with at least one sample; a bootstrap replicate may have none at some."""
    there = ranked.count > 0
    if there.all():
        return ranked
    confidence, count, hits, doubt = (
        column[there] for column in (ranked.confidence, ranked.count, ranked.hits, _doubt(ranked))
    )
    return Ranked(confidence, count, hits, doubt)


def laplacian_form(place: Float64, weight: Float64, width: float) -> Any:
    """Sum over i, j of w_i w_j exp(-|x_i - x_j| / width), for x in rising order, in O(N).

    The sum over j < i is exp(-x_i / width) times a running sum of w_j exp(x_j / width). To keep the
    exponentials finite for small widths, the line is cut into stretches of 300 widths. Weights may
    have axes before that of the places, such as that of replicates.
    """
    stretches = _stretches(place, width)
    rows = weight.reshape(-1, len(place))
    step = max(1, CACHED_ELEMENTS // len(place))
    parts = (rows[start : start + step] for start in range(0, len(rows), step))
    found = np.concatenate([dots(w, w + 2 * _ahead(w, stretches)) for w in parts])
    return scalar(found.reshape(weight.shape[:-1]))


def _stretches(place: Float64, width: float) -> list[tuple[slice, Float64, Float64, float]]:
    """Stretches of the line: exp(x / width) from its beginning on, the inverse, what is carried."""
    found, start, before = [], 0, float(place[0])
    while start < len(place):
        origin = float(place[start])
        stop = int(np.searchsorted(place, origin + 300 * width, side="right"))
        scaled = (place[start:stop] - origin) / width
        carried = math.exp(-min((origin - before) / width, 700))
        found.append((slice(start, stop), np.exp(scaled), np.exp(-scaled), carried))
        start, before = stop, float(place[stop - 1])
    return found


def _ahead(weight: Float64, stretches: Sequence[tuple[slice, Float64, Float64, float]]) -> Float64:
    """For each place i of each row, the sum over j < i of w_j exp(-|x_i - x_j| / width)."""
    ahead, total = np.empty(weight.shape), np.zeros((len(weight), 1))
    for part, rise, fall, carried in stretches:
        grown = rise * weight[:, part]
        running = np.cumsum(grown, axis=-1)
        running += total * carried
        total = fall[-1] * running[:, -1:]
        running -= grown
        np.multiply(fall, running, out=ahead[:, part])
    return ahead


def median_distance(ranked: Ranked) -> float:
    """Median distance between two samples' confidences; the mean where that is 0; 1 if all equal.

    Beyond 1,000 samples the distances are those of 1,000 evenly spaced order statistics.
    """
    spread = ranked.confidence[_spaced(ranked, PAIRWISE_SAMPLE)]
    distance = np.abs(spread[:, None] - spread)[np.triu_indices(len(spread), 1)]
    return float(np.median(distance)) or float(distance.mean()) or 1.0


def _spaced(ranked: Ranked, most: int) -> Int:
    """Entries of all samples, or of ``most`` evenly spaced ones in order of confidence."""
    total = int(ranked.total)
    ranks = np.arange(total) if total <= most else (np.arange(most) + 0.5) * total / most
    after = np.searchsorted(np.cumsum(ranked.count), ranks, side="right")
    return np.minimum(after, len(ranked.confidence) - 1)


class _BetaKernel:
    """Log-densities of the Beta kernels around each confidence."""

    def __init__(self, confidence: Float64, doubt: Float64, bandwidth: float) -> None:
        from scipy.special import betaln

        self.log_confidence = np.log(np.maximum(confidence, OPEN_INTERVAL))
        self.log_doubt = np.log(np.maximum(doubt, OPEN_INTERVAL))
        self.a, self.b = confidence / bandwidth, doubt / bandwidth
        self.log_norm: Float64 = betaln(self.a + 1, self.b + 1)

    def logs(self, rows: slice) -> Float64:
        """Log-densities of the kernels around every confidence (columns) at those of ``rows``."""
        at = self.log_confidence[rows, None] * self.a + self.log_doubt[rows, None] * self.b
        out: Float64 = at - self.log_norm
        return out


def _doubt(ranked: Ranked) -> Float64:
    return 1 - ranked.confidence if ranked.doubt is None else ranked.doubt


def _kde_gaps(ranked: Ranked, rows: slice, logs: Float64, *, leave_one_out: bool) -> Float64:
    """|Estimated accuracy - confidence| of a correct (first) and of a wrong sample (second).

    ``logs`` are the log-densities at ``rows``, which are overwritten. They are taken relative to
    the largest that stays, so the nearest sample counts however far away it is.
    """
    at = np.arange(len(logs)), np.arange(len(ranked.count))[rows]
    if leave_one_out:  # of several samples with the same confidence, only one is left out
        logs[at] = np.where(ranked.count[rows] <= 1, -np.inf, logs[at])
    logs -= logs.max(axis=1, keepdims=True)
    kernel = np.exp(logs, out=logs)
    own = kernel[at] * leave_one_out
    mass, good = kernel @ ranked.count - own, kernel @ ranked.hits
    gap: Float64 = np.abs(np.stack([good - own, good]) / mass - ranked.confidence[rows])
    return gap


def likeliest_bandwidth(ranked: Ranked) -> float:
    """Bandwidth of the grid that maximises the leave-one-out likelihood."""
    chosen = _spaced(ranked, PAIRWISE_SAMPLE)
    confidence, doubt = ranked.confidence[chosen], _doubt(ranked)[chosen]

    def likelihood(bandwidth: float) -> float:
        logs = _BetaKernel(confidence, doubt, bandwidth).logs(slice(None))
        np.fill_diagonal(logs, -np.inf)
        top = logs.max(axis=1)
        return float((top + np.log(np.exp(logs - top[:, None]).sum(axis=1))).sum())

    return float(max(BANDWIDTHS, key=likelihood))
