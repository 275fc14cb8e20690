"""Labels drawn by the compiled kernels; ``inference._classwise`` has the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int


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
