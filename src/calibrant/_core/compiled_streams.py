"""The compiled sums and histograms of streams; the NumPy code in ``streaming`` is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Bool, Float, Float64, Int
from calibrant._core.compiled_sweeps import ClassTables, dense

# Count, and whole and fractional words of the sum of confidence, of each cell.
CellTables = tuple[Int, Int, Int]
# Where samples are counted in them.
Places = NDArray[np.int32]
# Longer columns are summed in parts.
MOST_ROWS = 1 << 26


def add_by_width(
    rows: Any, confidence: Float64, correct: Bool, into: CellTables, bits: int
) -> None:
    """Count samples by equal-width bin and correctness; sums are multiples of 2^-bits."""
    rows.add_by_width(np.ascontiguousarray(confidence), np.ascontiguousarray(correct), bits, *into)


def add_by_odds(
    rows: Any, columns: tuple[Float64, Float64, Bool], cells: tuple[int, int, int], into: CellTables
) -> None:
    """Count samples, given odds, confidence and correctness, by the leading bits of their odds.

    ``cells`` are the first cell, the number of bits of a float32 that are left out, and the bits of
    the sums.
    """
    rows.add_by_odds(*map(np.ascontiguousarray, columns), *cells, *into)


def add_by_cell(rows: Any, columns: tuple[Places, Float64], bits: int, into: CellTables) -> None:
    """Count samples, given their places in the tables and confidences."""
    rows.add_by_cell(*columns, bits, *into)


def add_by_cluster(
    rows: Any, code: Int, columns: Sequence[Any], layout: tuple[float, ...], table: Int
) -> None:
    """Add rows to whole-number sums by column and cluster, (columns * clusters,).

    ``columns`` are cell, correctness, confidence and three losses of each row, ``layout`` what the
    columns of the table are: see ``streaming/_clusters.py``.
    """
    cell, *others = columns
    given = np.ascontiguousarray(cell, dtype=np.int64), *map(np.ascontiguousarray, others)
    rows.add_by_cluster(np.ascontiguousarray(code, dtype=np.int64), *given, *layout, table)


@dataclass(frozen=True, slots=True)
class SlabSums:
    """What a slab of logits adds to a stream, beside what went into tables.

    ``losses`` and ``squares`` are sums of negative log-likelihood, Brier score and entropy, and of
    their squares, in units of 2^-52; ``large`` are negative log-likelihoods that are not in them,
    ``impossible`` is the number of infinite ones. The columns are those of ``add_by_cell``, for the
    histogram of odds.
    """

    losses: list[int]
    squares: list[int]
    large: Float64
    impossible: int
    columns: tuple[Places, Float64]


def add_slab(
    rows: Any,
    scores: Float,
    labels: Int,
    ignored: int | None,
    tables: tuple[int, ClassTables, CellTables],
    cells: tuple[int, int, int],
    clusters: tuple[tuple[float, ...], int, Int | None],
) -> SlabSums | None:
    """Add logits of few classes to the tables of a stream, in one pass; None where one is bad.

    Rows whose label is ``ignored`` are left out. ``tables`` are the bins, the tables of the classes
    and those of the equal-width bins; ``cells`` as in ``add_by_odds``; ``clusters`` the layout of
    ``add_by_cluster``, the cluster of all rows, and the table, or None.
    """
    bins, classes, width = tables
    first, drop, bits = cells
    confidence, large = np.empty((2, len(labels)))
    cell = np.empty(len(labels), dtype=np.int32)
    sums = np.zeros(14, dtype=np.int64)
    count = rows.add_slab(
        dense(scores),
        labels,
        ignored or 0,
        ignored is not None,
        bins,
        *(classes.count, classes.units, classes.hits),
        bits,
        *width,
        *(sums, cell, confidence, large),
        first,
        drop,
        *clusters,
    )
    if count < 0:
        return None
    exact = [(high << 26) + low for high, low in sums[:12].reshape(-1, 2).tolist()]
    columns = cell[:count], confidence[:count]
    return SlabSums(exact[::2], exact[1::2], large[: sums[13]], int(sums[12]), columns)


def exact_sum(rows: Any, values: Float64) -> int | None:
    """Sum of the values, each rounded to a multiple of 2^-52, or None where one is too large."""
    total = 0
    for start in range(0, len(values), MOST_ROWS):
        sums = np.zeros(2, dtype=np.int64)
        if not rows.exact_sum(np.ascontiguousarray(values[start : start + MOST_ROWS]), sums):
            return None
        total += (int(sums[0]) << 26) + int(sums[1])
    return total
