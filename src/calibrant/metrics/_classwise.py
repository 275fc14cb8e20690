"""Classwise calibration error: every class's probability against how often the class occurs.

At 1,000 classes almost every probability lies in the first bin, which needs no binning: its
probabilities are only added up. The few above it are computed again in float64 and binned. Sums are
whole multiples of 2^-30, so they do not depend on the order of samples, on threads, or on how the
data were cut into shards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant._arrays import Float, Float64, Int, row_slices
from calibrant._checks import InputError, check_bins, check_norm
from calibrant._rows import Block, blocks, each_block
from calibrant.metrics._binning import width_edges
from calibrant.predictions import Predictions

UNITS = 2.0**30
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
    return classwise_counts(p, bins=bins).ece(norm)


def classwise_counts(p: Predictions, *, bins: int = 15) -> ClasswiseCounts:
    """Count every class and bin of the predictions, in one pass."""
    if not isinstance(p, Predictions):
        raise InputError(
            f"classwise_ece needs the probabilities of all classes; got {type(p).__name__}. "
            "Build Predictions(logits=…, labels=…)."
        )
    check_bins(bins)

    def consumer() -> Callable[[Block], None]:
        return ClasswiseCounts(p.num_classes, bins)

    return ClasswiseCounts.merged(each_block(p._scores, p.labels, p._kind, consumer))


class ClasswiseCounts:
    """Count, sum of probabilities (in units of 2^-30) and labels of every class and bin."""

    def __init__(self, num_classes: int, bins: int) -> None:
        shape = (num_classes, bins)
        self.num_rows = 0
        self.above: Int = np.zeros(shape, dtype=np.int64)  # counts; the first bin's is implied
        self.prob: Int = np.zeros(shape, dtype=np.int64)
        self.hits: Int = np.zeros(shape, dtype=np.int64)

    def __call__(self, block: Block) -> None:
        """Add the rows of a block. Uses up ``block.others``."""
        split = FirstBinSplit(block, self.above.shape[1])
        where = split.classes, split.index
        np.add.at(self.above, where, 1)
        np.add.at(self.prob, where, np.rint(split.values * UNITS).astype(np.int64))
        np.add.at(self.hits, (block.labels, split.label_index), 1)
        low = np.rint(split.low, out=split.low)
        self.prob[:, 0] += low.sum(axis=split.row_axis, dtype=np.float64).astype(np.int64)
        self.num_rows += len(block.labels)

    @classmethod
    def merged(cls, parts: list[ClasswiseCounts]) -> ClasswiseCounts:
        """Add up counts of disjoint rows; whole numbers, so in any order."""
        total = cls(*parts[0].above.shape)
        for part in parts:
            total.num_rows += part.num_rows
            for name in ("above", "prob", "hits"):
                np.add(getattr(total, name), getattr(part, name), out=getattr(total, name))
        return total

    @property
    def count(self) -> Float64:
        """Samples of every class and bin."""
        count = self.above.astype(np.float64)
        count[:, 0] = self.num_rows - count[:, 1:].sum(axis=1)
        return count

    def ece(self, norm: float) -> float:
        """Mean over classes of the norm of the gaps."""
        return float(mean_gap_norm(self.count, self.hits - self.prob / UNITS, norm))


def mean_gap_norm(count: Float64, residual: Float64, norm: float) -> Float64:
    """Mean over classes of (sum_b n_b/N |residual_b / n_b|^p)^(1/p), over the last two axes."""
    total = count.sum(axis=-1)
    if norm == 1:
        per_class: Float64 = np.abs(residual).sum(axis=-1) / total
        return per_class.mean(axis=-1)
    gap = np.abs(residual) / np.where(count > 0, count, 1)
    if np.isinf(norm):
        return gap.max(axis=-1).mean(axis=-1)
    share = count / total[..., None]
    powers: Float64 = (share * gap**norm).sum(axis=-1) ** (1 / norm)
    return powers.mean(axis=-1)


class FirstBinSplit:
    """A block's probabilities cut in two: the many of the first bin, and the few above it.

    ``low`` holds the former in units of 2^-30 (0 elsewhere); ``row``, ``classes``, ``values`` and
    ``index`` list row, class, probability and bin of the latter, the predicted class included.
    """

    def __init__(self, block: Block, bins: int) -> None:
        inner = width_edges(bins)[1:-1]
        first = inner[0] if len(inner) else 1.0
        self.low: Float = block.others
        self.row_axis = 1 if block.narrow else 0
        scale = (block.others_scale * UNITS).astype(self.low.dtype)
        self.low *= scale[None, :] if block.narrow else scale[:, None]
        flat = self.low.ravel()
        at = np.flatnonzero(flat > first * UNITS * _SLACK)
        across, along = np.divmod(at, self.low.shape[1])
        rows, classes = (along, across) if block.narrow else (across, along)
        exact = self.low.dtype == np.float64
        values = flat[at] / UNITS if exact else block.probs_again(rows, classes)
        flat[at] = 0
        self.row: Int = np.concatenate((np.arange(len(block.labels)), rows))
        self.classes: Int = np.concatenate((block.top, classes))
        self.values: Float64 = np.concatenate((block.confidence, values))
        self.index: Int = np.searchsorted(inner, self.values, side="left")
        self.label_index: Int = np.searchsorted(inner, block.label_prob, side="left")


def resampled_classwise_ece(
    p: Predictions, weights: Float, *, bins: int = 15, norm: float = 1
) -> Float64:
    """Classwise ECE of every bootstrap replicate; ``weights`` has shape (replicates, N).

    The first bins are a dense matrix product, the others a sparse one; one pass over the scores.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - SciPy costs 0.1 s to import

    low = np.zeros((len(weights), p.num_classes))
    rows, cells, values, label_cells = [], [], [], []
    for block in blocks(p._scores, p.labels, p._kind, row_slices(*p._scores.shape)):
        split = FirstBinSplit(block, bins)
        low += weights[:, block.rows] @ (split.low.T if block.narrow else split.low)
        rows.append(split.row + block.rows.start)
        cells.append(split.classes * bins + split.index)
        values.append(split.values)
        label_cells.append(block.labels * bins + split.label_index)

    size, everyone = (p.num_classes * bins, p.num_samples), np.arange(p.num_samples)

    def by_cell(entries: Float64, cell: list[Int], row: Int) -> Float64:
        matrix = coo_array((entries, (np.concatenate(cell), row)), size).tocsr()
        sums: Float64 = (matrix @ weights.T).T
        return sums.reshape(len(weights), p.num_classes, bins)

    row = np.concatenate(rows)
    probs = by_cell(np.concatenate(values), cells, row)
    probs[:, :, 0] += low / UNITS
    count = by_cell(np.ones(len(row)), cells, row)
    total = weights.sum(axis=1, dtype=np.float64)
    count[:, :, 0] = total[:, None] - count[:, :, 1:].sum(axis=-1)
    hits = by_cell(np.ones(p.num_samples), label_cells, everyone)
    return mean_gap_norm(count, hits - probs, norm)
