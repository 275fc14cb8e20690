"""Classwise calibration error: every class's probability against how often the class occurs.

At 1,000 classes almost every probability lies in the first bin, which needs no binning: its
probabilities are only added up. The few above it are computed again in float64 and binned. Sums are
whole multiples of 2^-30, so they do not depend on the order of samples, on threads, or on how the
data were cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import Float, Float64, Int
from calibrant._core.checks import check_bins, check_norm, refuse
from calibrant._core.compiled_sweeps import ClassTables
from calibrant._core.row_summary import Block, entry_probs
from calibrant._core.row_sweeps import RowSummary
from calibrant.metrics._binning import width_index
from calibrant.metrics._exact import ExactSums
from calibrant.metrics._sample import all_classes
from calibrant.predictions import Predictions

UNIT_BITS = 30
UNITS = 2.0**UNIT_BITS
# Most cells (class × bin): half a gigabyte of counts.
MOST_CELLS = 1 << 24
# Probabilities in float32 are right to about 3e-7: this close below the first edge they are
# computed again in float64 before they are binned.
_SLACK = 1 - 1e-6


def classwise_ece(p: Predictions, *, bins: int = 15, norm: float = 1) -> float:
    r"""Mean over classes of the calibration error of that class's probability.

    Range 0 to 1, lower is better. :math:`\frac1K \sum_k \left(\sum_b \frac{n_{kb}}{N}
    |\mathrm{freq}_{kb} - \mathrm{prob}_{kb}|^p\right)^{1/p}`, where bin b of class k holds the
    samples whose probability of k lies in it, whatever was predicted. Equal-width bins (lo, hi].
    Also known as static calibration error. Probabilities are rounded to 2^-30.

    References
    ----------
    Kull et al. (2019), arXiv:1910.12656; Nixon et al. (2019), arXiv:1904.01685.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions(probs=[[0.8, 0.2], [0.8, 0.2]], labels=[0, 1])
    >>> round(metrics.classwise_ece(p), 4)
    0.3
    """
    check_norm(norm)
    if isinstance(p, Predictions) and p.weights is not None:
        check_bins(bins)
        count, residual = resampled_classwise_cells(p, p.weights[None], bins=bins)
        return float(mean_gap_norm(count, residual, norm)[0])
    return classwise_counts(p, bins=bins).ece(norm)


def classwise_counts(p: Predictions, *, bins: int = 15) -> ClasswiseCounts:
    """Count every class and bin of the predictions, in one pass."""
    all_classes(p, "classwise_ece")
    check_bins(bins)
    if p.num_classes * bins > MOST_CELLS:
        rule = f"times the number of classes must be at most {MOST_CELLS:,}"
        raise refuse("bins", rule, f"got {bins:,} × {p.num_classes:,}", "Use fewer bins.")
    counts = ClasswiseCounts(p.num_classes, bins)
    summarise_and_count(p, counts)
    return counts


def summarise_and_count(p: Predictions, counts: ClasswiseCounts) -> RowSummary:
    """The O(N) columns of predictions; the same pass counts their classes into ``counts``."""
    bins = counts.above.shape[1]
    tables = p.class_tables(bins)
    if tables is not None:
        counts.add_tables(tables, p.num_samples)
        return p.sweep_columns()
    summary, parts = p.sweep(lambda: FirstBinSums(p.num_classes, bins))
    first_bins = sum((part.sums for part in parts), start=np.zeros(p.num_classes, dtype=np.int64))
    counts.add_cells(ClassCells.of(p, summary, bins, parts), first_bins)
    return summary


class ClasswiseCounts:
    """Count, sum of probabilities (rounded to 2^-30) and labels of every class and bin."""

    def __init__(self, num_classes: int, bins: int) -> None:
        shape = (num_classes, bins)
        self.num_rows = 0
        self.above: Int = np.zeros(shape, dtype=np.int64)  # counts; the first bin's is implied
        self.prob = ExactSums(shape, UNIT_BITS)
        self.hits: Int = np.zeros(shape, dtype=np.int64)

    def add_cells(self, cells: ClassCells, first_bins: Int) -> None:
        """Add the labels, the probabilities above the first bin, and the sums of the first bin."""
        size, shape = self.above.size, self.above.shape
        self.num_rows += len(cells.label_cell)
        self.above += np.bincount(cells.cell, minlength=size).reshape(shape)
        self.hits += np.bincount(cells.label_cell, minlength=size).reshape(shape)
        # Whole numbers below 2^53 are added exactly in floating point.
        sums = np.bincount(cells.cell, weights=np.rint(cells.value * UNITS), minlength=size)
        units = sums.astype(np.int64).reshape(shape)
        units[:, 0] += first_bins
        self.prob.add_units(units)

    def add_tables(self, tables: ClassTables, num_rows: int) -> None:
        """Add the tables of other rows, as the compiled kernels give them."""
        shape = self.above.shape
        self.num_rows += num_rows
        self.above += tables.count.reshape(shape)
        self.hits += tables.hits.reshape(shape)
        self.prob.add_units(tables.units.reshape(shape))

    def add(self, other: ClasswiseCounts) -> None:
        """Add the counts of other rows; whole numbers, so in any order."""
        self.num_rows += other.num_rows
        self.above += other.above
        self.prob.add(other.prob)
        self.hits += other.hits

    @property
    def count(self) -> Float64:
        """Samples of every class and bin."""
        count = self.above.astype(np.float64)
        count[:, 0] = self.num_rows - count[:, 1:].sum(axis=1)
        return count

    def ece(self, norm: float) -> float:
        """Mean over classes of the norm of the gaps."""
        residual = (self.hits - self.prob.whole) - self.prob.fraction
        return float(mean_gap_norm(self.count, residual, norm))


def mean_gap_norm(count: Float64, residual: Float64, norm: float) -> Float64:
    """Mean over classes of (sum_b n_b/N |residual_b / n_b|^p)^(1/p), over the last two axes."""
    total = count.sum(axis=-1)
    if norm == 1:
        per_class = np.abs(residual).sum(axis=-1) / total
    else:
        gap = np.abs(residual) / np.where(count > 0, count, 1)
        if np.isinf(norm):
            per_class = gap.max(axis=-1)
        else:
            # Relative to the largest gap of the class, so that large p do not underflow.
            largest = np.where(gap.max(axis=-1) > 0, gap.max(axis=-1), 1)
            powers = count / total[..., None] * (gap / largest[..., None]) ** norm
            per_class = largest * powers.sum(axis=-1) ** (1 / norm)
    mean: Float64 = per_class.mean(axis=-1)
    return mean


def gap_norm_slope(count: Float64, residual: Float64, norm: float) -> Float64:
    """Derivative of ``mean_gap_norm`` by each residual, counts held fixed; 0 in empty cells."""
    filled = np.where(count > 0, count, 1)
    gap = np.abs(residual) / filled
    largest = gap.max(axis=-1, keepdims=True)
    if np.isinf(norm):
        weight = (gap == largest) / filled
    else:
        # T^(1 - p) gap^(p - 1) / N with T the norm of the class, both relative to the largest gap.
        total = count.sum(axis=-1, keepdims=True)
        relative = gap / np.where(largest > 0, largest, 1)
        size = (count / total * relative**norm).sum(axis=-1, keepdims=True) ** (1 / norm)
        weight = (relative / np.where(size > 0, size, 1)) ** (norm - 1) / total
    slope: Float64 = np.where(count > 0, np.sign(residual) * weight / count.shape[-2], 0)
    return slope


class FirstBinSplit:
    """Splits blocks: probabilities of the first bin stay, those above are recorded and set to 0.

    Probabilities are in units of 2^-30. ``places`` are positions row * K + class of ``values``.
    """

    def __init__(self, num_classes: int, bins: int) -> None:
        self.num_classes = num_classes
        self.bar = UNITS / bins * _SLACK
        self.places: list[Int] = []
        self.values: list[Float] = []

    def split(self, block: Block) -> Float:
        """Return the probabilities of the first bin, in the block's own memory."""
        low = block.others
        scale = (block.scale * UNITS).astype(low.dtype)
        low *= scale[None, :] if block.narrow else scale[:, None]
        flat = low.ravel()
        at = np.flatnonzero(flat > self.bar)
        self.values.append(flat[at])
        flat[at] = 0
        if block.narrow:
            classes, rows = np.divmod(at, low.shape[1])
            at = rows * self.num_classes + classes
        self.places.append(at + block.rows.start * self.num_classes)
        return low


class FirstBinSums(FirstBinSplit):
    """Adds up the first bins, as whole numbers of 2^-30."""

    def __init__(self, num_classes: int, bins: int) -> None:
        super().__init__(num_classes, bins)
        self.sums: Int = np.zeros(num_classes, dtype=np.int64)

    def __call__(self, block: Block) -> None:
        """Add the rows of a block."""
        low = self.split(block)
        np.rint(low, out=low)
        sums = low.sum(axis=1 if block.narrow else 0, dtype=np.float64)
        self.sums += sums.astype(np.int64)


@dataclass(frozen=True)
class ClassCells:
    """Entries above the first bin, and the labels: row, cell (class * bins + bin), probability."""

    row: Int
    cell: Int
    value: Float64
    label_cell: Int

    @classmethod
    def of(
        cls, p: Predictions, summary: RowSummary, bins: int, parts: Sequence[FirstBinSplit]
    ) -> ClassCells:
        """Bin the recorded entries, the predicted classes and the labels."""
        row, classes = np.divmod(
            np.concatenate([a for b in parts for a in b.places]), p.num_classes
        )
        value = np.concatenate([a for b in parts for a in b.values]).astype(np.float64) / UNITS
        # Labels are binned by their float64 probability. Entries in float32 are right to 3e-7, so
        # those this close to an edge are computed in float64 too.
        scaled = value * bins
        close = np.flatnonzero(np.abs(scaled - np.rint(scaled)) < (1 - _SLACK) * bins)
        value[close] = entry_probs(p.scores, p.row_sums, summary, row[close], classes[close])
        top_cell = summary.predicted * bins + width_index(summary.confidence, bins)
        label_cell = p.labels * bins + width_index(summary.label_prob, bins)
        return cls(
            row=np.concatenate((np.arange(p.num_samples), row)),
            cell=np.concatenate((top_cell, classes * bins + width_index(value, bins))),
            value=np.concatenate((summary.confidence, value)),
            label_cell=label_cell,
        )


def resampled_classwise_cells(
    p: Predictions, weights: Float, *, bins: int = 15
) -> tuple[Float64, Float64]:
    """Count and residual (labels minus probabilities) of every replicate, class and bin.

    ``weights`` has shape (replicates, N). The first bins are a dense matrix product, the others a
    sparse one; one pass over the scores.
    """
    from scipy.sparse import coo_array

    low = np.zeros((len(weights), p.num_classes))

    class Products(FirstBinSplit):
        def __call__(self, block: Block) -> None:
            first = self.split(block)
            product = weights[:, block.rows] @ (first.T if block.narrow else first)
            np.add(low, product, out=low)

    # One thread: the matrix product uses all cores by itself.
    summary, parts = p.sweep(lambda: Products(p.num_classes, bins), threads=1)
    cells = ClassCells.of(p, summary, bins, parts)

    def by_cell(value: Float64, cell: Int, row: Int) -> Float64:
        size = (p.num_classes * bins, p.num_samples)
        sums: Float64 = (coo_array((value, (cell, row)), size).tocsr() @ weights.T).T
        return sums.reshape(len(weights), p.num_classes, bins)

    probs = by_cell(cells.value, cells.cell, cells.row)
    probs[:, :, 0] += low / UNITS
    count = by_cell(np.ones(len(cells.row)), cells.cell, cells.row)
    total = weights.sum(axis=1, dtype=np.float64)
    count[:, :, 0] = total[:, None] - count[:, :, 1:].sum(axis=-1)
    hits = by_cell(np.ones(p.num_samples), cells.label_cell, np.arange(p.num_samples))
    return count, hits - probs
