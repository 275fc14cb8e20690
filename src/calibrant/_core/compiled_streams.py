"""The compiled sums and histograms of streams; the NumPy code in ``streaming`` is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant._core.arrays import Bool, Float64, Int

# Count, and whole and fractional words of the sum of confidence, of each cell.
CellTables = tuple[Int, Int, Int]
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


def exact_sum(rows: Any, values: Float64) -> int | None:
    """Sum of the values, each rounded to a multiple of 2^-52, or None where one is too large."""
    total = 0
    for start in range(0, len(values), MOST_ROWS):
        sums = np.zeros(2, dtype=np.int64)
        if not rows.exact_sum(np.ascontiguousarray(values[start : start + MOST_ROWS]), sums):
            return None
        total += (int(sums[0]) << 26) + int(sums[1])
    return total
