"""Bins of confidence: one implementation for every binned metric and for the diagram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibrant._core.arrays import Bool, Float64, Int, over_chunks
from calibrant._core.checks import check_bins, check_choice
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_streams import add_by_width
from calibrant.metrics._sample import Ranked, whole_parts

Binning = Literal["width", "mass"]
# Confidences are summed as whole multiples of 2^-53.
SUM_BITS = 53
# Rows that a thread bins at a time, and how many passes of NumPy binning one of them is worth.
WIDTH_ROWS, WIDTH_COST = 1 << 16, 4
# With more bins than this, all values lie too close to an edge for the compiled kernels.
MOST_COMPILED_BINS = 1_000_000


@dataclass(frozen=True)
class BinSums:
    """For each bin, empty ones included: count, and sums of confidence and of correctness.

    The bins are the last axis; before it there may be others, such as that of bootstrap replicates.
    Entries ``cuts[b]`` to ``cuts[b + 1]`` of the Ranked that was binned lie in bin b.
    """

    count: Float64
    confidence: Float64
    hits: Float64
    cuts: Int

    @property
    def gap(self) -> Float64:
        """Accuracy minus mean confidence of each bin; 0 in empty bins."""
        return (self.hits - self.confidence) / self._divisor

    @property
    def mean_confidence(self) -> Float64:
        """Mean confidence of each bin; 0 in empty bins."""
        return self.confidence / self._divisor

    @property
    def accuracy(self) -> Float64:
        """Accuracy of each bin; 0 in empty bins."""
        return self.hits / self._divisor

    @property
    def share(self) -> Float64:
        """Share of the samples in each bin."""
        share: Float64 = self.count / self.count.sum(axis=-1, keepdims=True)
        return share

    @property
    def _divisor(self) -> Float64:
        return np.where(self.count > 0, self.count, 1)


def bin_sums(ranked: Ranked, bins: int, binning: Binning) -> BinSums:
    """Sum over bins. Entries are sorted, so each bin is a contiguous run of them.

    Kept with the counts, because several metrics share their bins.
    """
    known: dict[tuple[int, str], BinSums] = vars(ranked).setdefault("bin_sums", {})
    key = check_bins(bins), check_choice("binning", binning, ("width", "mass"))
    if key not in known:
        known[key] = sums_between(ranked, bin_cuts(ranked, bins, binning))
    return known[key]


def sums_between(ranked: Ranked, cuts: Int) -> BinSums:
    """Sums between the cuts."""
    present = np.flatnonzero(cuts[1:] > cuts[:-1])

    def add(values: Float64) -> Float64:
        sums = np.zeros(len(cuts) - 1)
        sums[present] = np.add.reduceat(values, cuts[present])
        return sums

    if ranked.unweighted:
        confidence = joined(*map(add, ranked.parts))
    else:
        confidence = add(ranked.count * ranked.confidence)
    return BinSums(add(ranked.count), confidence, add(ranked.hits), cuts)


def bin_cuts(ranked: Ranked, bins: int, binning: Binning) -> Int:
    """Where each bin begins among the entries, and where the last one ends.

    >>> a = np.array([0.0, 0.2, 0.2000001, 1.0])
    >>> bin_cuts(Ranked(a, np.ones(4), np.ones(4)), 5, "width")
    array([0, 2, 3, 3, 3, 4])
    >>> bin_cuts(Ranked(np.arange(7) / 7, np.ones(7), np.ones(7)), 3, "mass")
    array([0, 3, 5, 7])
    """
    check_choice("binning", binning, ("width", "mass"))
    if binning == "width":  # (lo, hi]: a value on an edge belongs to the bin below
        inner = np.searchsorted(ranked.confidence, width_edges(bins)[1:-1], side="right")
    else:
        inner = np.searchsorted(ranked.middle, mass_ranks(ranked.total, bins), side="left")
    return np.concatenate(([0], inner, [len(ranked.confidence)]))


def width_edges(bins: int) -> Float64:
    """Edges b / B. Division, not a running step, so that 1/3 is the edge of 5 bins in 15."""
    return np.arange(bins + 1) / bins


def width_index(values: Float64, bins: int) -> Int:
    """Equal-width bin of each value: (lo, hi], with 0 in the first bin.

    >>> width_index(np.array([0.0, 0.2, 0.2000001, 1.0]), 5)
    array([0, 0, 1, 4])
    """
    rows = compiled_rows()
    if rows is not None and values.ndim == 1 and bins <= MOST_COMPILED_BINS:
        found = np.empty(len(values), dtype=np.int64)
        rows.width_bins(np.ascontiguousarray(values, dtype=np.float64), bins, found)
        return found
    scaled = values * bins
    index = np.maximum(np.ceil(scaled).astype(np.int64) - 1, 0)
    # The product is rounded, so values this close to an edge are compared with the edge itself.
    close = np.flatnonzero(np.abs(scaled - np.rint(scaled)) < 1e-9 * bins)
    if len(close):
        index[close] = np.searchsorted(width_edges(bins)[1:-1], values[close], side="left")
    return index


def joined(high: Float64, low: Float64) -> Float64:
    """The sum of values from the sums of their parts."""
    return high * 2.0**-26 + low * 2.0**-53


def width_sums(confidence: Float64, correct: Bool, bins: int) -> BinSums:
    """Sort samples in any order into equal-width bins and add up.

    >>> width_sums(np.array([0.9, 0.1, 0.8]), np.array([True, False, False]), 2).count
    array([1., 2.])
    """
    rows = compiled_rows()
    if rows is None:
        index = width_index(confidence, bins)
        count = np.bincount(index, minlength=bins).astype(np.float64)
        high, low = (
            np.bincount(index, part, bins).astype(np.float64) for part in whole_parts(confidence)
        )
        total = joined(high, low)
        hits = np.bincount(index[correct], minlength=bins).astype(np.float64)
    else:
        count, total, hits = _compiled_width_sums(rows, confidence, correct, bins)
    return BinSums(count, total, hits, np.concatenate(([0], np.cumsum(count).astype(np.int64))))


def _compiled_width_sums(
    rows: Any, confidence: Float64, correct: Bool, bins: int
) -> tuple[Float64, Float64, Float64]:
    """Counts, sums of confidence and hits; the sums have the bits of ``joined``."""

    def work(slices: Iterator[slice]) -> Int:
        found = np.zeros((3, 2 * bins), dtype=np.int64)
        for part in slices:
            into = (found[0], found[1], found[2])
            add_by_width(rows, confidence[part], correct[part], into, SUM_BITS)
        return found

    parts = over_chunks(work, len(confidence), WIDTH_COST, step=WIDTH_ROWS)
    tables: Int = np.sum(parts, axis=0)
    count, whole, part = tables.reshape(3, bins, 2).sum(axis=2)
    whole += part >> SUM_BITS
    total = whole + (part & (1 << SUM_BITS) - 1) * 2.0**-SUM_BITS
    return count.astype(np.float64), total, tables[0, 1::2].astype(np.float64)


def mass_ranks(total: float, bins: int) -> Float64:
    """Rank, from 0, of the first sample of each equal-mass bin but the first.

    N = qB + r samples make r bins of q + 1 samples, then B - r bins of q. A group of equal
    confidences is not split: it goes where its middle sample falls.
    """
    small, larger = divmod(total, bins)
    number = np.arange(1.0, bins)
    ranks: Float64 = number * small + np.minimum(number, larger)
    return ranks
