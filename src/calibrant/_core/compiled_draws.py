"""Labels drawn by the compiled kernels; ``inference._classwise`` has the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core.arrays import Float, Float64, Int


def row_cells(rows: Any, scores: Float, total: Float64 | None, bins: int) -> tuple[Float64, Int]:
    """Probabilities of checked rows in float64, and their cells: class * bins + bin.

    ``total`` are the sums of rows of probabilities, None for logits.
    """
    probs, cell = np.empty(scores.shape), np.empty(scores.shape, dtype=np.int64)
    given = np.ascontiguousarray(scores, dtype=scores.dtype.newbyteorder("="))
    rows.row_cells(given, total, bins, probs.reshape(-1), cell.reshape(-1))
    return probs, cell


def tilted(
    rows: Any, probs: Float64, cell: Int, factor: Float64, slope: tuple[float, float, float]
) -> Float64:
    """Probabilities times the factors of their cells, in the first bin also e^(slope · depth).

    ``factor`` is (K, bins). The slope is followed by the log-probability at depth 0, and by the
    least probability that has a depth of its own.
    """
    out, bins = np.empty(probs.shape), factor.shape[1]
    cells, factors = (np.ascontiguousarray(array).reshape(-1) for array in (cell, factor))
    rows.tilted(np.ascontiguousarray(probs), cells, bins, factors, *slope, out.reshape(-1))
    return out


def draw_labels(
    rows: Any, changes: Any, cell: Int, uppers: Float64, lots: Float64, strengths: Float64
) -> None:
    """Add the labels of a chunk of rows, and how they change along the strengths.

    ``cell`` (n, K) is the cell of each class; ``uppers`` (3, n, K) are cumulative probabilities of
    three populations; ``lots`` (2, n, draws) draw the label and the strength of its change;
    ``changes`` (strengths, draws * cells) in float32 is added to.
    """
    draws = lots.shape[2]
    size = changes.shape[1] // draws
    given = (cell, uppers, *lots, strengths)
    flat = (np.ascontiguousarray(array).ravel() for array in given)
    rows.draw_labels(cell.shape[1], draws, size, *flat, changes.reshape(-1))
