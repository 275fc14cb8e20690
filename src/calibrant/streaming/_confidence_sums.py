"""Confidences of any number of samples in bounded memory: sums and a histogram, which merge."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from calibrant._core.arrays import Float64, Int, row_slices

# Confidences are added up in whole multiples of 2^-40, so that any order gives the same sums.
CONFIDENCE_UNITS = 1 << 40
# Samples whose squares add up without overflow.
CHUNK_SAMPLES = 1 << 22
# Cells of the histogram: eight per octave of the odds against, from 2^-40 to 2^20.
PER_OCTAVE, LOWEST_OCTAVE, HIGHEST_OCTAVE = 8, -40, 20
CONFIDENCE_CELLS = PER_OCTAVE * (HIGHEST_OCTAVE - LOWEST_OCTAVE)


@dataclass
class ConfidenceSums:
    """Number, sum, sum of squares and histogram of confidences."""

    count: int = 0
    total: int = 0
    squares: int = 0
    cells: Int = field(default_factory=lambda: np.zeros(CONFIDENCE_CELLS, dtype=np.int64))

    def add(self, confidence: Float64, odds_against: Float64) -> None:
        """Add samples."""
        for rows in row_slices(len(confidence), 1, CHUNK_SAMPLES):
            some = confidence[rows]
            self.count += len(some)
            self.total += int(np.rint(some * CONFIDENCE_UNITS).astype(np.int64).sum())
            self.squares += int(np.rint(some**2 * CONFIDENCE_UNITS).astype(np.int64).sum())
            with np.errstate(divide="ignore"):
                octave = PER_OCTAVE * (np.log2(odds_against[rows]) - LOWEST_OCTAVE)
            cell = np.clip(octave, 0, CONFIDENCE_CELLS - 1).astype(np.int64)
            self.cells += np.bincount(cell, minlength=CONFIDENCE_CELLS)

    def merge(self, other: ConfidenceSums) -> None:
        """Add the samples of another; the order does not matter."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.cells += other.cells

    @property
    def mean(self) -> float:
        """Mean confidence; NaN where there is none."""
        return self.total / CONFIDENCE_UNITS / self.count if self.count else math.nan

    @property
    def variance_of_mean(self) -> float:
        """Variance of the mean of independent samples; NaN for fewer than two."""
        if self.count < 2:  # noqa: PLR2004
            return math.nan
        spread = self.squares / CONFIDENCE_UNITS / self.count - self.mean**2
        return max(spread, 0.0) / (self.count - 1)

    def distance(self, other: ConfidenceSums) -> tuple[float, float]:
        """Kolmogorov-Smirnov distance of two histograms, and its p-value.

        Samples of one cell count as ties, which makes the p-value larger than it would be.
        """
        from scipy.special import kolmogorov

        if not self.count or not other.count:
            return math.nan, math.nan
        gap = np.cumsum(self.cells) / self.count - np.cumsum(other.cells) / other.count
        distance = float(np.abs(gap).max())
        size = self.count * other.count / (self.count + other.count)
        return distance, float(kolmogorov(math.sqrt(size) * distance))
