"""Resamples and their sums by the compiled kernels; the NumPy code that calls them has the rules.

Sums are added in the same order as there, so both give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Bool, Float64, Int

Bytes = NDArray[np.uint8]


def count_draws(rows: Any, drawn: Int, place: Int, weights: Float64) -> None:
    """Add how often each sample was drawn to the weight at its place."""
    rows.count_draws(np.ascontiguousarray(drawn).reshape(-1), place, weights)


def draw_outcomes(
    rows: Any, drawn: Int, lot: Float64, knots: Float64, strengths: Float64
) -> tuple[Bool, Bytes]:
    """Whether each sample is right at first, and the strength from which on that changes.

    ``knots`` (entries, 3) are the chances of being right at strengths 0, 1 and 2.
    """
    first, change = np.empty(drawn.shape, dtype=np.bool_), np.empty(drawn.shape, dtype=np.uint8)
    given = (np.ascontiguousarray(x).reshape(-1) for x in (drawn, lot, knots, strengths))
    rows.draw_outcomes(*given, first.reshape(-1), change.reshape(-1))
    return first, change


@dataclass(frozen=True)
class CompiledSums:
    """Sums over the samples of resamples (R, N), as ``metrics._simulated`` has them."""

    rows: Any
    drawn: Int
    first: Bool
    change: Bytes
    confidence: Float64
    strengths: int

    @property
    def _given(self) -> tuple[Any, ...]:
        columns = (self.drawn, self.first, self.change, self.confidence)
        return tuple(np.ascontiguousarray(x).reshape(-1) for x in columns)

    def over_bins(
        self, bins: int, bin_of: Int | None, ranks: Float64 | None
    ) -> tuple[Float64, Float64, Float64]:
        """Counts and confidences (R, B) and hits (R, S, B).

        Bins are those of the entries, or, without them, of equal mass, beginning at the ranks.
        """
        size = len(self.drawn)
        count, stated = np.zeros((2, size, bins))
        hits = np.zeros((size, self.strengths, bins))
        sums = (x.reshape(-1) for x in (count, stated, hits))
        self.rows.sum_bins(size, self.strengths, bins, *self._given, bin_of, ranks, *sums)
        return count, stated, hits

    def over_cells(self, cells: int, left: Int, part: Float64) -> Float64:
        """Residuals (R, S, cells), ``part`` of each in the cell after its own."""
        sums = np.zeros((len(self.drawn), self.strengths, cells))
        given = (np.ascontiguousarray(x) for x in (left, part))
        into = sums.reshape(-1)
        self.rows.sum_cells(len(self.drawn), self.strengths, cells, *self._given, *given, into)
        return sums
