"""Scores in bfloat16, which NumPy does not have, read as float32 a range of rows at a time."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float, over_chunks


@dataclass(frozen=True)
class BrainRows:
    """A matrix of bfloat16 as its ``bits``, the leading 16 of a float32; read like a matrix.

    The compiled kernels take the bits. To widen everything would take twice the memory again.
    """

    bits: NDArray[np.uint16]

    @classmethod
    def of(cls, value: Any) -> BrainRows | None:
        """The matrix of a torch tensor or an array in bfloat16, shared; None for anything else."""
        if "bfloat16" not in str(getattr(value, "dtype", "")) or value.ndim != 2:  # noqa: PLR2004
            return None
        if hasattr(value, "detach"):  # a torch tensor, on any device
            torch = importlib.import_module("torch")
            return cls(value.detach().cpu().view(torch.int16).numpy().view(np.uint16))
        return cls(np.asarray(value).view(np.uint16))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        rows, classes = self.bits.shape
        return rows, classes

    @property
    def ndim(self) -> int:
        """That of a matrix."""
        return self.bits.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """What the entries are read as."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, rows: Any) -> Float:
        wide: Float = (self.bits[rows].astype(np.uint32) << 16).view(np.float32)
        return wide

    def matrix(self) -> Float:
        """All rows in float32."""
        wide = np.empty(self.shape, dtype=np.float32)

        def work(slices: Any) -> None:
            for rows in slices:
                wide[rows] = self[rows]

        over_chunks(work, *self.shape)
        return wide
