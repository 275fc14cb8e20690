"""Sums and histograms of a stream, exact and independent of the order of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core import compiled_streams
from calibrant._core.arrays import Bool, Float, Float64, Int
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_sweeps import ClassTables
from calibrant._core.row_sweeps import NARROW_CLASSES, RowSummary
from calibrant.metrics import BRIER_SCORE, ENTROPY, LOG_LOSS
from calibrant.metrics._binning import width_index
from calibrant.metrics._classwise import ClasswiseCounts, summarise_and_count
from calibrant.metrics._exact import ExactSums
from calibrant.predictions import Predictions
from calibrant.streaming._clusters import MEANS, ClusterSums, ImageTable, cluster_layout

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
# Larger values count as this much in sums of squares, which would overflow.
LARGEST_ROOT = 1e150
# Above this a term is summed with Python's integers, which never overflow.
LARGE = 2.0**20


class Cells:
    """Count and exact sum of confidence of the wrong and of the correct samples of each cell."""

    def __init__(self, cells: int) -> None:
        self.count: Int = np.zeros(2 * cells, dtype=np.int64)  # wrong, correct, wrong, …
        self.confidence = ExactSums((2 * cells,), 2 * HALF_BITS)

    def add(self, other: Cells) -> None:
        """Add the counts of other samples."""
        self.count += other.count
        self.confidence.add(other.confidence)

    def add_samples(self, index: Int, correct: Bool, parts: tuple[Float64, Float64]) -> None:
        """Count samples by cell and correctness; ``parts`` are the halves of their confidences."""
        for start in range(0, len(index), MOST_AT_ONCE):
            rows = slice(start, start + MOST_AT_ONCE)
            self._add_some(index[rows] * 2 + correct[rows], parts[0][rows], parts[1][rows])

    def _add_some(self, index: Int, high: Float64, low: Float64) -> None:
        first = int(index.min())  # the samples fall into few cells: update only those
        index = index - first
        counts = np.bincount(index)
        at = slice(first, first + len(counts))
        self.count[at] += counts
        highs = np.bincount(index, weights=high).astype(np.int64)
        self.confidence.whole[at] += highs >> HALF_BITS
        self.confidence.add_units((highs & (1 << HALF_BITS) - 1) << HALF_BITS, at)
        self.confidence.add_units(np.bincount(index, weights=low).astype(np.int64), at)

    @property
    def tables(self) -> compiled_streams.CellTables:
        """Counts and both words of the sums, to be added to."""
        return self.count, self.confidence.whole, self.confidence.part

    def columns(self, cells: Int | slice = slice(None)) -> tuple[Float64, ...]:
        """Hits and misses in the given cells, and the sums of confidence of either."""
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
    ``ranking`` holds what is to be counted into it, and ``clustered`` what is to be resampled.
    """

    def __init__(self, num_classes: int, bins: int, *, cells: int = 0) -> None:
        self.width = Cells(bins)
        self.cells = Cells(cells)
        self.ranking: list[tuple[Int, Bool, Float64, Float64]] = []
        # The same for the compiled kernels: odds, confidence, correctness.
        self.unranked: list[tuple[Float64, Float64, Bool]] = []
        # The same of slabs, whose cells are known: cell and correctness in one number, confidence.
        self.placed: list[tuple[compiled_streams.Places, Float64]] = []
        self.totals: dict[str, int] = dict.fromkeys(MEANS, 0)
        self.squares: dict[str, int] = dict.fromkeys(MEANS, 0)
        self.impossible = 0  # labels of probability 0: the NLL is then infinite
        self.classwise = ClasswiseCounts(num_classes, bins)
        self.clusters: ClusterSums | None = None
        self.clustered: list[tuple[Any, ...]] = []
        self.by_image: ImageTable | None = None

    def add_logits(
        self, rows: Any, logits: Float, labels: Int, ignored: int | None = None, image: int = 0
    ) -> bool:
        """Add a slab of logits of few classes in one pass of the compiled kernels.

        Rows whose label is ``ignored`` are left out; the others are of the image. False where a row
        is bad: the counts then mean nothing.
        """
        classwise, bins = self.classwise, self.classwise.above.shape[1]
        classes = ClassTables.zeros(classwise.above.size)
        table = None if self.by_image is None else self.by_image.sums.reshape(-1)
        images = 1 if self.by_image is None else len(self.by_image.names)
        found = compiled_streams.add_slab(
            rows,
            logits,
            labels,
            ignored,
            (bins, classes, self.width.tables),
            (_FIRST_CELL, _CELL_SHIFT, 2 * HALF_BITS),
            (cluster_layout(images), image, table),
        )
        if found is None:
            return False
        self.placed.append(found.columns)
        classwise.add_tables(classes, len(found.columns[0]))
        self.impossible += found.impossible
        for name, loss, square in zip(MEANS, found.losses, found.squares, strict=True):
            self.totals[name] += loss
            self.squares[name] += square
        if len(found.large):
            self._add_loss(LOG_LOSS, found.large)
        return True

    def add_rows(self, p: Predictions, bins: int) -> None:
        """Add a slab of predictions."""
        rows = compiled_rows()
        narrow = p.kind == "logits" and p.num_classes <= NARROW_CLASSES
        if rows is not None and narrow and p.clusters is None:
            self.add_logits(rows, p.scores, p.labels)  # checked: no row is bad
            return
        summary = summarise_and_count(p, self.classwise)
        self._add_samples(summary, bins)
        loss = -summary.label_log_prob
        values = {LOG_LOSS: loss, BRIER_SCORE: summary.brier, ENTROPY: summary.entropy}
        clusters = p.belonging.stream_clusters
        if clusters is not None:
            columns = cell_of(summary.odds), summary.correct, summary.confidence
            self.clustered.append((clusters, *columns, *values.values()))
        if p.num_samples and np.isinf(loss.max()):
            values[LOG_LOSS] = loss[np.isfinite(loss)]
            self.impossible += len(loss) - len(values[LOG_LOSS])
        for name, column in values.items():
            self._add_loss(name, column)

    def _add_loss(self, name: str, column: Float64) -> None:
        self.totals[name] += exact_sum(column)
        self.squares[name] += exact_sum(np.minimum(column, LARGEST_ROOT) ** 2)

    def _add_samples(self, summary: RowSummary, bins: int) -> None:
        rows, confidence, correct = compiled_rows(), summary.confidence, summary.correct
        if rows is not None:
            tables, bits = self.width.tables, 2 * HALF_BITS
            compiled_streams.add_by_width(rows, confidence, correct, tables, bits)
            self.unranked.append((summary.odds, confidence, correct))
            return
        parts = _halves(confidence)
        self.width.add_samples(width_index(confidence, bins), correct, parts)
        self.ranking.append((cell_of(summary.odds), correct, *parts))

    def add(self, other: Counts) -> None:
        """Add another's counts to these."""
        self.width.add(other.width)
        if other.cells.count.size:
            self.cells.add(other.cells)
        if other.ranking:
            cell, correct, high, low = map(np.concatenate, zip(*other.ranking, strict=True))
            self.cells.add_samples(cell, correct, (high, low))
        for columns in other.unranked:
            place = _FIRST_CELL, _CELL_SHIFT, 2 * HALF_BITS
            compiled_streams.add_by_odds(compiled_rows(), columns, place, self.cells.tables)
        for placed in other.placed:
            tables, bits = self.cells.tables, 2 * HALF_BITS
            compiled_streams.add_by_cell(compiled_rows(), placed, bits, tables)
        if other.clustered:
            self.clusters = self.clusters or ClusterSums()
            self.clusters.add_rows(other.clustered)
        if other.by_image is not None:
            self.clusters = self.clusters or ClusterSums()
            self.clusters.add_images(other.by_image)
        self.impossible += other.impossible
        for name in MEANS:
            self.totals[name] += other.totals[name]
            self.squares[name] += other.squares[name]
        if other.clusters is not None:
            self.clusters = self.clusters or ClusterSums()
            self.clusters.add(other.clusters)
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
    rows = compiled_rows()
    found = None if rows is None else compiled_streams.exact_sum(rows, values)
    if found is not None:
        return found
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
