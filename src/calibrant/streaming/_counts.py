"""Sums and histograms of a stream, exact whatever the order of its samples."""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Bool, Float64, Int
from calibrant.metrics._binning import width_index
from calibrant.metrics._classwise import ClasswiseCounts, summarise_and_count
from calibrant.metrics._exact import ExactSums
from calibrant.metrics._registry import BRIER_SCORE, ENTROPY, LOG_LOSS
from calibrant.predictions import Predictions

# A float32 holds its exponent and the 9 leading bits of its fraction in its upper 18 bits: 512
# cells per octave of s without taking a logarithm. The cells cover 2^-126 <= s < 2^25; smaller s, 0
# included, go to the first cell.
CELLS_PER_OCTAVE = 512
NUM_CELLS = 151 * CELLS_PER_OCTAVE
_CELL_SHIFT = 14
_FIRST_CELL = 1 * CELLS_PER_OCTAVE  # exponent field 1 is 2^-126
# Values are added as high * 2^-26 + low * 2^-52 with whole high and low.
HALF_BITS = 26
HALF = 2.0**HALF_BITS
# bincount adds floats, exactly as long as sums of halves stay below 2^53.
MOST_AT_ONCE = 1 << 26
# Above this a term is summed with Python's integers, which never overflow.
LARGE = 2.0**20


class _Cells:
    """Count and exact sum of confidence of the wrong and of the correct samples of each cell."""

    def __init__(self, cells: int) -> None:
        self.count: Int = np.zeros(2 * cells, dtype=np.int64)  # wrong, correct, wrong, …
        self.confidence = ExactSums((2 * cells,), 2 * HALF_BITS)

    def add(self, other: _Cells) -> None:
        """Add the counts of other samples."""
        self.count += other.count
        self.confidence.add(other.confidence)

    def add_samples(self, index: Int, correct: Bool, parts: tuple[Float64, Float64]) -> None:
        """Count samples by cell and correctness; ``parts`` are the halves of their confidences."""
        for start in range(0, len(index), MOST_AT_ONCE):
            rows = slice(start, start + MOST_AT_ONCE)
            self._add_some(index[rows] * 2 + correct[rows], parts[0][rows], parts[1][rows])

    def _add_some(self, index: Int, high: Float64, low: Float64) -> None:
        first = int(index.min())  # samples crowd into few cells: touch only those
        index = index - first
        counts = np.bincount(index)
        at = slice(first, first + len(counts))
        self.count[at] += counts
        highs = np.bincount(index, weights=high).astype(np.int64)
        self.confidence.whole[at] += highs >> HALF_BITS
        self.confidence.add_units((highs & (1 << HALF_BITS) - 1) << HALF_BITS, at)
        self.confidence.add_units(np.bincount(index, weights=low).astype(np.int64), at)

    def columns(self, cells: Int | slice = slice(None)) -> tuple[Float64, ...]:
        """Of the given cells: hits, misses, and the sums of confidence of either."""
        count = self.count.reshape(-1, 2)[cells].astype(np.float64)
        confidence = self.confidence.values.reshape(-1, 2)[cells]
        return count[:, 1], count[:, 0], confidence[:, 1], confidence[:, 0]

    @property
    def filled(self) -> Int:
        """Numbers of the cells that have samples."""
        return np.flatnonzero(self.count.reshape(-1, 2).any(axis=1))


class Counts:
    """The whole numbers that one thread, batch or shard contributes.

    The histogram of log s is larger than a slab of rows, so it is filled once per batch:
    ``ranking`` holds what is to be counted into it.
    """

    def __init__(self, num_classes: int, bins: int, *, cells: int = 0) -> None:
        self.width = _Cells(bins)
        self.cells = _Cells(cells)
        self.ranking: list[tuple[Int, Bool, Float64, Float64]] = []
        self.totals: dict[str, int] = dict.fromkeys((LOG_LOSS, BRIER_SCORE, ENTROPY), 0)
        self.impossible = 0  # labels of probability 0: the NLL is then infinite
        self.classwise = ClasswiseCounts(num_classes, bins)

    def add_rows(self, p: Predictions, bins: int) -> None:
        """Add a slab of predictions."""
        summary = summarise_and_count(p, self.classwise)
        parts = _halves(summary.confidence)
        self.width.add_samples(width_index(summary.confidence, bins), summary.correct, parts)
        self.ranking.append((cell_of(summary.odds), summary.correct, *parts))
        loss = -summary.label_log_prob
        self.totals[BRIER_SCORE] += exact_sum(summary.brier)
        self.totals[ENTROPY] += exact_sum(summary.entropy)
        if p.num_samples and np.isinf(loss.max()):
            finite = loss[np.isfinite(loss)]
            self.impossible += len(loss) - len(finite)
            loss = finite
        self.totals[LOG_LOSS] += exact_sum(loss)

    def add(self, other: Counts) -> None:
        """Add another's counts to these."""
        self.width.add(other.width)
        if other.cells.count.size:
            self.cells.add(other.cells)
        if other.ranking:
            cell, correct, high, low = map(np.concatenate, zip(*other.ranking, strict=True))
            self.cells.add_samples(cell, correct, (high, low))
        self.impossible += other.impossible
        for name, value in other.totals.items():
            self.totals[name] += value
        self.classwise.add(other.classwise)


def _halves(values: Float64) -> tuple[Float64, Float64]:
    """Split values into whole multiples of 2^-26 and whole multiples of 2^-52."""
    scaled = values * HALF
    high = np.floor(scaled)
    return high, np.rint((scaled - high) * HALF)


def exact_sum(values: Float64) -> int:
    """Sum of non-negative values, each rounded to a multiple of 2^-52, as a whole number of them.

    >>> exact_sum(np.array([0.5, 0.25])) == 3 * 2**50
    True
    """
    if len(values) and values.max() >= LARGE:
        large = values >= LARGE
        rest = sum(_units(value) for value in values[large].tolist())
        return rest + exact_sum(values[~large])
    high, low = _halves(values)
    return (int(high.sum()) << 26) + int(low.sum())


def _units(value: float) -> int:
    """A value of at least 2^20 in units of 2^-52, without overflow."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator << 52) // denominator


def cell_limits(cells: Int) -> tuple[Float64, Float64]:
    """Least and largest confidence in each of the cells.

    The odds were rounded to float32, which can move them across the edge of a cell.
    """

    def odds(number: Int) -> Float64:
        bits = ((number + _FIRST_CELL) << _CELL_SHIFT).astype(np.int32)
        return bits.view(np.float32).astype(np.float64)

    least = np.where(cells == 0, 0, odds(cells) * (1 - 2.0**-23))
    most = np.where(cells == NUM_CELLS - 1, np.inf, odds(cells + 1) * (1 + 2.0**-23))
    return 1 / (1 + most), 1 / (1 + least)


def cell_of(odds: Float64) -> Int:
    """Histogram cell of the odds against each prediction."""
    bits = odds.astype(np.float32).view(np.int32) >> _CELL_SHIFT
    cells: Int = np.clip(bits - _FIRST_CELL, 0, NUM_CELLS - 1).astype(np.int64)
    return cells
