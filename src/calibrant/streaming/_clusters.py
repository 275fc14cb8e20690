"""Sums over the rows of a stream whose clusters are resampled: a Poisson bootstrap of clusters.

Each replicate counts a row as often as its cluster was drawn. All sums are whole numbers, so they
do not depend on the order of the rows, and a cluster may reach over many files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._core import compiled_streams
from calibrant._core.arrays import Bool, Float64, Int
from calibrant._core.compiled import compiled_rows
from calibrant.metrics import BRIER_SCORE, ENTROPY, LOG_LOSS
from calibrant.metrics._exact import ExactSums
from calibrant.metrics._streamed import Resampled
from calibrant.streaming._weights import (
    REPLICATES,
    estimated_count,
    hashes_of,
    merged_sketch,
    poisson_weights,
)

# Of some rows: clusters, cells of log s, correctness, confidences, and losses as MEANS has them.
Slab = tuple[Any, Int, Bool, Float64, Float64, Float64, Float64]
MEANS = (LOG_LOSS, BRIER_SCORE, ENTROPY)
# The histogram of log s with four cells per octave: replicates give the spread of a ranking metric,
# not its value. Confidences are added up by octave, those below 2^-9 and above 2^3 together.
COARSE, PER_OCTAVE = 128, 4
COARSE_CELLS = 151 * PER_OCTAVE
FIRST_OCTAVE, OCTAVES = 126 - 9, 13
# Columns of the sums that are counts: wrong and correct samples by cell, labels of probability 0.
NUM_COUNTS, NUM_VALUES = 2 * COARSE_CELLS + 1, OCTAVES + len(MEANS)
# Other sums are whole numbers of 2^-20. Of rows at a time they stay below 2^53, where floats are
# exact.
VALUE_BITS = 20
FEW_CLUSTERS = 32  # images of a slab of pixels
ROWS_AT_ONCE, LARGEST_VALUE = 1 << 15, 2.0**14
MOST_CLUSTERED = 1 << 24  # whose sums, drawn some times each, fit into 64 bits


@dataclass
class ImageTable:
    """Sums by column and image of one batch of maps; an image without samples adds nothing."""

    names: Any
    sums: Int

    @classmethod
    def of(cls, names: Any) -> ImageTable:
        """A table to be added to."""
        return cls(names, np.zeros((NUM_COUNTS + NUM_VALUES, len(names)), dtype=np.int64))


class ClusterSums:
    """Sums with a column per replicate; the first column counts every cluster once."""

    def __init__(self) -> None:
        self.sketch = np.empty(0, dtype=np.uint64)
        self.counts: Int = np.zeros((NUM_COUNTS, REPLICATES + 1), dtype=np.int64)
        self.values = ExactSums((NUM_VALUES, REPLICATES + 1), VALUE_BITS)

    def add(self, other: ClusterSums) -> None:
        """Add the sums of other rows."""
        self.sketch = merged_sketch(self.sketch, other.sketch)
        self.counts += other.counts
        self.values.add(other.values)

    def add_rows(self, slabs: Sequence[Slab]) -> None:
        """Add slabs of rows. Very large losses are cut off."""
        rows = compiled_rows()
        names = [] if rows is None else [coded(slab[0]) for slab in slabs]
        every = np.unique(np.concatenate([found for found, _ in names])) if names else ()
        few = len(every) <= FEW_CLUSTERS and sum(len(slab[0]) for slab in slabs) <= MOST_CLUSTERED
        if rows is None or not few:
            # Together: a table of replicates costs the same for a few rows as for many.
            self._add_parts(*map(np.concatenate, zip(*slabs, strict=True)))
            return
        table = np.zeros((NUM_COUNTS + NUM_VALUES) * len(every), dtype=np.int64)
        layout = cluster_layout(len(every))
        for (found, code), (_, *columns) in zip(names, slabs, strict=True):
            place = np.searchsorted(every, found)[code]
            compiled_streams.add_by_cluster(rows, place, columns, layout, table)
        self._add_table(every, table.reshape(-1, len(every)))

    def add_images(self, table: ImageTable) -> None:
        """Add the sums of a few images."""
        there = table.sums[: NUM_COUNTS - 1].any(axis=0)
        if there.any():
            self._add_table(table.names[there], table.sums[:, there])

    def _add_parts(self, clusters: Any, *columns: Any) -> None:
        """Add rows without the extension, or of many clusters."""
        for start in range(0, len(clusters), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            found, code = coded(clusters[some])
            self._add_table(found, _table(code, [x[some] for x in columns], len(found)))

    def _add_table(self, names: Any, table: Any) -> None:
        """Add sums by column and cluster, as often as each cluster was drawn."""
        hashes = hashes_of(names)
        self.sketch = merged_sketch(self.sketch, hashes)
        weights = np.ones((len(hashes), REPLICATES + 1), dtype=table.dtype)
        weights[:, 1:] = poisson_weights(hashes)
        sums = (table @ weights).astype(np.int64)
        self.counts += sums[:NUM_COUNTS]
        self.values.add_units(sums[NUM_COUNTS:])

    @property
    def resampled(self) -> Resampled:
        """What intervals are made of."""
        table = self.counts[:-1].reshape(COARSE_CELLS, 2, -1).astype(np.float64)
        octave = _octave(np.arange(COARSE_CELLS))
        by_octave = np.zeros((OCTAVES, 2, table.shape[-1]))
        np.add.at(by_octave, octave, table)
        values = self.values.values
        total = table.sum(axis=(0, 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            means = dict(zip(MEANS, values[OCTAVES:] / total, strict=True))
        means[LOG_LOSS] = np.where(self.counts[-1] > 0, np.inf, means[LOG_LOSS])
        filled = np.flatnonzero(table[..., 0].any(axis=1))[::-1]  # cells run from small s to large
        return Resampled(
            units=estimated_count(self.sketch),
            hits=table[filled, 1].T,
            misses=table[filled, 0].T,
            bin_count=by_octave.sum(axis=1).T,
            bin_hits=by_octave[:, 1].T,
            bin_confidence=values[:OCTAVES].T,
            means=means,
        )


def cluster_layout(clusters: int) -> tuple[float, ...]:
    """What the columns of a table by column and cluster are, for the compiled kernels."""
    octaves = PER_OCTAVE, FIRST_OCTAVE, OCTAVES
    return COARSE, COARSE_CELLS, *octaves, clusters, VALUE_BITS, LARGEST_VALUE


def coded(clusters: Any) -> tuple[Any, Int]:
    """The distinct clusters, and which of them each row is of. Pixels come image by image.

    >>> coded(np.array([7, 7, 9])), coded(np.array(["b", "a"]))
    ((array([7, 9]), array([0, 0, 1])), (array(['a', 'b'], dtype='<U1'), array([1, 0])))
    """
    if clusters.dtype.kind in "iu" and (clusters[1:] >= clusters[:-1]).all():
        begins = np.concatenate([[True], clusters[1:] != clusters[:-1]])[: len(clusters)]
        return clusters[begins], np.cumsum(begins) - 1
    return np.unique(clusters, return_inverse=True)


def _table(code: Int, columns: Sequence[Any], clusters: int) -> Any:
    """Exact sums of whole numbers by column and cluster; sparse where there are many clusters."""
    cell, correct, confidence, *losses = columns
    entries = _entries(cell // COARSE, correct, confidence, losses)
    column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    shape = NUM_COUNTS + NUM_VALUES, clusters
    codes = np.tile(code, len(entries))
    if clusters <= FEW_CLUSTERS:
        place = column * clusters + codes
        return np.bincount(place, value, shape[0] * shape[1]).reshape(shape)
    from scipy.sparse import coo_array

    return coo_array((value, (column, codes)), shape).tocsr()


def _entries(
    cell: Int, correct: Bool, confidence: Float64, losses: list[Float64]
) -> list[tuple[Int, Float64]]:
    """Column and value of what each row adds."""
    every = np.full_like(cell, NUM_COUNTS)
    impossible = np.isinf(losses[0])
    found = [
        (2 * cell + correct, np.ones(len(cell))),
        (every - 1, impossible.astype(np.float64)),
        (every + _octave(cell), _units(confidence)),
    ]
    for k, loss in enumerate(losses, start=OCTAVES):
        found.append((every + k, _units(np.where(impossible, 0, np.minimum(loss, LARGEST_VALUE)))))
    return found


def _octave(cell: Int) -> Int:
    """Where the confidences of a coarse cell are added up."""
    octave: Int = np.clip(cell // PER_OCTAVE - FIRST_OCTAVE, 0, OCTAVES - 1)
    return octave


def _units(values: Float64) -> Float64:
    return np.rint(values * 2.0**VALUE_BITS)
