"""How far a metric computed from a histogram of confidence can be from the exact one.

Of the samples of a cell it is known how many are correct, and between which limits their
confidences lie; not in which order, nor which are equal. For each metric the functions here give
the least and the largest value that any order, with any ties, could have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, dot
from calibrant.metrics._binned import norm_of_gaps
from calibrant.metrics._binning import mass_ranks
from calibrant.metrics._ranking import aupr_error, aurc, auroc, eaurc, fpr95
from calibrant.metrics._sample import Ranked
from calibrant.metrics._smooth import CELLS, SMALLEST_SCALE

Limits = tuple[float, float]
# Rounding error of squared gaps: a root below this is meaningless.
SQUARE_ROUNDING = 1e-12


@dataclass(frozen=True)
class Histogram:
    """What is known of the samples in each non-empty cell, from least to most confident.

    Confidences lie between ``low`` and ``high``; ``right`` and ``wrong`` are the sums of those of
    the ``hits`` correct and the ``misses`` wrong samples.
    """

    low: Float64
    high: Float64
    hits: Float64
    misses: Float64
    right: Float64
    wrong: Float64

    @cached_property
    def count(self) -> Float64:
        """Samples of each cell."""
        return self.hits + self.misses

    @cached_property
    def ties(self) -> Ranked:
        """The samples of a cell as ties, at their mean confidence."""
        return Ranked((self.right + self.wrong) / self.count, self.count, self.hits)

    @cached_property
    def apart(self) -> Ranked:
        """The correct and the wrong samples of each cell, each at their own mean confidence."""
        confidence = np.concatenate(
            [_ratio(self.right, self.hits), _ratio(self.wrong, self.misses)]
        )
        count = np.concatenate([self.hits, self.misses])
        hits = np.concatenate([self.hits, np.zeros_like(self.misses)])
        order = np.argsort(confidence, kind="stable")
        return Ranked(confidence[order], count[order], hits[order])

    @cached_property
    def best(self) -> Ranked:
        """The order in which every correct sample of a cell ranks above every wrong one."""
        return self._in_order(correct=[0, 1])

    @cached_property
    def worst(self) -> Ranked:
        """The order in which every wrong sample of a cell ranks above every correct one."""
        return self._in_order(correct=[1, 0])

    def _in_order(self, correct: list[int]) -> Ranked:
        of_kind = np.stack([self.misses, self.hits], axis=1)[:, correct]
        hits = of_kind * np.array(correct)
        return Ranked(np.repeat(self.ties.confidence, 2), of_kind.ravel(), hits.ravel())


NO_HISTOGRAM = Histogram(*(np.empty(0),) * 6)


def ranking_limits(histogram: Histogram) -> dict[str, Limits]:
    """Limits of the ranking metrics; NaN where they are undefined for every order."""
    best, worst, ties = histogram.best, histogram.worst, histogram.ties
    return {
        "auroc": (auroc(worst), auroc(best)),
        # Wrong samples that are equal are all found at once, so they have more precision together.
        "aupr_error": (_least_aupr_error(ties), aupr_error(best)),
        # The threshold lies in one cell; at worst all its wrong samples are kept.
        "fpr95": (fpr95(best), fpr95(worst)),
        # Ties count as the mean over their orders.
        "aurc": (aurc(best), aurc(worst)),
        "eaurc": (eaurc(best), eaurc(worst)),
    }


def _least_aupr_error(ties: Ranked) -> float:
    """Average precision where the wrong samples of a cell come last, one by one.

    With F wrong samples before the m of a cell and G correct ones at or before it, these have the
    precision (F + i) / (F + i + G). Over i = 1 … m that sums to m - G sum 1 / (F + G + i), and the
    sum is at most log((F + G + m + 1/2) / (F + G + 1/2)), because 1 / x is convex.
    """
    found, false = ties.misses_so_far - ties.misses, ties.hits_so_far
    if not ties.misses_so_far[-1] or not false[-1]:
        return math.nan
    precise = ties.misses - false * np.log1p(ties.misses / (found + false + 0.5))
    return max(float(precise.sum()), 0.0) / float(ties.misses_so_far[-1])


@dataclass(frozen=True)
class MassBins:
    """Least and largest (first and second row) count, hits, misses and residual of each bin."""

    count: Float64
    hits: Float64
    misses: Float64
    residual: Float64
    total: float

    @classmethod
    def of(cls, histogram: Histogram, bins: int) -> MassBins:
        """Limits of equal-mass bins. Samples of a cell that an edge cuts may lie on either side."""
        n = histogram.count
        edges = np.concatenate(([-np.inf], mass_ranks(float(n.sum()), bins), [np.inf]))
        start = np.cumsum(n) - n
        first = np.searchsorted(edges, start, side="right") - 1
        last = np.searchsorted(edges, start + n, side="left") - 1
        # One entry for each cell and each bin that it may reach into.
        reach = last - first + 1
        cell = np.repeat(np.arange(len(n)), reach)
        place = first[cell] + np.arange(len(cell)) - (np.cumsum(reach) - reach)[cell]
        below, upto = (_below(edges[place + k], start[cell], n[cell]) for k in (0, 1))
        count = np.stack([np.maximum(upto[0] - below[1], 0), upto[1] - below[0]])
        hits = _at_most(count, histogram.hits[cell], histogram.misses[cell])
        misses = _at_most(count, histogram.misses[cell], histogram.hits[cell])
        residual = _residuals(count, hits, misses, histogram.low[cell], histogram.high[cell])
        whole = histogram.hits - (histogram.right + histogram.wrong)
        residual = np.where(reach[cell] == 1, whole[cell], residual)

        def add(limits: Float64) -> Float64:
            return np.stack([np.bincount(place, row, minlength=bins) for row in limits])

        return cls(add(count), add(hits), add(misses), add(residual), float(n.sum()))


def _below(edge: Float64, start: Float64, n: Float64) -> Float64:
    """Least and largest number of the n samples from rank ``start`` on that go below an edge.

    A group of ties goes where its middle sample falls. So of those that lie beyond the edge at
    most as many go below it as lie before it; and the other way round, but for the middle sample.
    """
    before = 2 * (edge - start)
    return np.clip(np.stack([before - n + 1, before]), 0, n)


def _at_most(count: Float64, kind: Float64, other: Float64) -> Float64:
    """Limits on the samples of one kind among ``count`` of a cell."""
    return np.stack([np.maximum(count[0] - other, 0), np.minimum(count[1], kind)])


def _residuals(
    count: Float64, hits: Float64, misses: Float64, low: Float64, high: Float64
) -> Float64:
    """Limits on the sum of correct - confidence of some samples with confidences in [low, high].

    It is largest with as many correct samples as can be, and wrong ones only to make up the number.
    """
    most_hits, most_misses = np.maximum(count[0], hits[1]), np.maximum(count[0], misses[1])
    return np.stack([most_misses * (1 - high) - misses[1], hits[1] - most_hits * low])


def mass_ece_limits(bins: MassBins, norm: float) -> Limits:
    """Limits of ``ece`` over equal-mass bins.

    A bin adds n |r / n|^p for its residual r, which falls with n and is at most |r|.
    """
    least, most = _sizes(bins)
    low_gap = _ratio(least, bins.count[1])
    high_gap = np.minimum(_ratio(most, bins.count[0], empty=1), 1)
    low = norm_of_gaps(bins.count[1] / bins.total, low_gap, norm)
    high = norm_of_gaps(_ratio(most, high_gap) / bins.total, high_gap, norm)
    return low, min(high, 1.0)


def debiased_limits(bins: MassBins) -> Limits:
    """Limits of ``debiased_ece``; infinite where it may or may not be defined."""
    single = bins.count == 1
    # Bins of one sample are left out: those that surely have one, and those that may.
    most_kept = bins.total - float(single.all(axis=0).sum())
    least_kept = bins.total - float(((bins.count[0] <= 1) & (bins.count[1] >= 1)).sum())
    if 2 * most_kept <= bins.total:
        return math.nan, math.nan
    if 2 * least_kept <= bins.total:
        return -math.inf, math.inf
    low, high = (float(term.sum()) for term in _debiased_terms(bins))
    low /= most_kept if low > 0 else least_kept
    high /= least_kept if high > 0 else most_kept
    low, high = low - SQUARE_ROUNDING, high + SQUARE_ROUNDING
    return math.sqrt(max(low, 0.0)), math.sqrt(min(max(high, 0.0), 1.0))


def _debiased_terms(bins: MassBins) -> Float64:
    """Limits on r^2 / n - a (1 - a) n / (n - 1) of bins with residual r and accuracy a."""
    least, most = _sizes(bins)
    fewest, largest = np.maximum(bins.count, 2)
    square = np.stack([least**2 / largest, most * np.minimum(most / fewest, 1)])
    accuracy = np.stack(
        [
            _ratio(bins.hits[0], bins.hits[0] + bins.misses[1]),
            _ratio(bins.hits[1], bins.hits[1] + bins.misses[0]),
        ]
    )
    nearest = np.clip(0.5, *accuracy)  # a (1 - a) is largest at 1/2
    least_noise = (accuracy * (1 - accuracy)).min(axis=0) * largest / (largest - 1)
    most_noise = nearest * (1 - nearest) * fewest / (fewest - 1)
    terms = square - np.stack([most_noise, least_noise])
    # A bin that may have fewer than two samples may add nothing; one that has fewer does not.
    open_bin, out = bins.count[0] < 2, bins.count[1] < 2  # noqa: PLR2004
    terms[0] = np.where(open_bin, np.minimum(terms[0], 0), terms[0])
    terms[1] = np.where(open_bin, np.maximum(terms[1], 0), terms[1])
    return np.where(out, 0, terms)


def smooth_slack(histogram: Histogram, value: float) -> float:
    """How far ``smooth_ece`` of ``histogram.apart``, which is ``value``, can be off.

    The correct samples of a cell of width w surround their mean confidence, and the wrong ones
    theirs. Moving each to the mean changes the smoothed residuals, integrated over t, by at most

    - n w^2 / 4 times the integral of the kernel's slope, as the residual changes with c, and
    - |r| w (w + d) / 4 times that of its second derivative, as the kernel is curved and the grid of
      step d follows it in straight lines.

    smECE falls as sigma rises, so the fixed point moves by no more than smECE does there. Sums over
    the grid stand for integrals: of slope and bend they are right to 1 %, and of the smoothed
    residuals to a thousandth of the part that has the other sign.
    """
    sigma = max(value, SMALLEST_SCALE)
    width = histogram.high - histogram.low
    size = (histogram.hits - histogram.right) + histogram.wrong
    slope = math.sqrt(2 / math.pi) / sigma
    bend = 4 * math.exp(-0.5) / math.sqrt(2 * math.pi) / sigma**2
    moved = dot(histogram.count, width**2) / 4 * slope
    moved += dot(size, width * (width + 1 / CELLS)) / 4 * bend
    total, net = float(histogram.count.sum()), float(histogram.ties.residual.sum())
    return 1.01 * moved / total + 0.001 * max(value - abs(net) / total, 0.0)


def _sizes(bins: MassBins) -> tuple[Float64, Float64]:
    """Least and largest size of each bin's residual."""
    low, high = bins.residual
    return np.maximum(np.maximum(low, -high), 0), np.maximum(np.abs(low), np.abs(high))


def _ratio(a: Float64, b: Float64, *, empty: float = 0) -> Float64:
    """Quotients, and ``empty`` where b is 0."""
    return np.divide(a, b, out=np.full_like(b, empty), where=b > 0)
