"""Sums that neither round nor overflow: whole numbers in two words."""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64, Int


class ExactSums:
    """Sums of many values from 0 to 1, each a whole number of 2^-bits.

    A sum is ``whole + part / 2^bits`` with ``0 <= part < 2^bits``. There is one such pair for each
    sum, so what was added in any order has the same bits. ``whole`` overflows no sooner than a
    count of the samples would.
    """

    def __init__(self, shape: tuple[int, ...], bits: int) -> None:
        self.bits = bits
        self.whole: Int = np.zeros(shape, dtype=np.int64)
        self.part: Int = np.zeros(shape, dtype=np.int64)

    def add(self, other: ExactSums) -> None:
        """Add other sums of the same shape."""
        self.whole += other.whole
        self.add_units(other.part)

    def add_units(self, units: Int, at: slice = slice(None)) -> None:
        """Add whole numbers of 2^-bits, at most 2^62, to the sums at a place."""
        part = self.part[at]  # a view
        part += units
        self.whole[at] += part >> self.bits
        part &= (1 << self.bits) - 1

    @property
    def values(self) -> Float64:
        """The sums, rounded once each."""
        return self.whole + self.fraction

    @property
    def fraction(self) -> Float64:
        """What the sums have beyond ``whole``, without rounding."""
        fraction: Float64 = self.part / 2.0**self.bits
        return fraction
