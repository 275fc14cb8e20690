"""The array operations that calibrators are written in, for NumPy and PyTorch.

A calibrator states its map once, as ``forward(ops, z, learned)``; ``transform`` runs it on NumPy,
``to_module`` on PyTorch, and ``to_onnx`` records it with the operations of ``_onnx``.

Tables have one row per class, or one row for all. In ``bucket`` and ``take`` the column of ``x``
says which row of the table is meant.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Ops(Protocol):
    """Rows are samples; sums and maxima run over the classes and keep their axis."""

    def exp(self, x: Any) -> Any: ...
    def log(self, x: Any) -> Any: ...
    def sum(self, x: Any) -> Any: ...
    def max(self, x: Any) -> Any: ...
    def maximum(self, x: Any, low: Any) -> Any: ...
    def minimum(self, x: Any, high: Any) -> Any: ...
    def where(self, mask: Any, a: Any, b: Any) -> Any: ...
    def matmul(self, x: Any, w: Any) -> Any: ...
    def log_softmax(self, z: Any) -> Any: ...
    def lift(self, z: Any) -> Any:
        """Replace -inf by 100 below the largest logit of the row."""

    def possible(self, z: Any) -> Any:
        """Mask of the logits above -inf: options that the sample has."""

    def is_top(self, z: Any) -> Any:
        """Mask of the predicted class: the first of the largest."""

    def bucket(self, x: Any, edges: Any) -> Any:
        """How many edges lie below each entry: bins are (lo, hi]."""

    def take(self, table: Any, index: Any) -> Any:
        """Entry ``index`` of each entry's row of the table."""


# exp(-100) is 4e-44: practically impossible, but finite, so that products with 0 are 0.
IMPOSSIBLE = 100.0


class NumpyOps:
    """The operations on NumPy arrays."""

    exp = staticmethod(np.exp)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)
    where = staticmethod(np.where)
    matmul = staticmethod(np.matmul)

    @staticmethod
    def log(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(x)

    @staticmethod
    def sum(x: Any) -> Any:
        return x.sum(axis=1, keepdims=True)

    @staticmethod
    def max(x: Any) -> Any:
        return x.max(axis=1, keepdims=True)

    @staticmethod
    def log_softmax(z: Any) -> Any:
        shifted = z - z.max(axis=1, keepdims=True)
        shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return shifted

    @staticmethod
    def lift(z: Any) -> Any:
        low = np.isneginf(z)
        return np.where(low, z.max(axis=1, keepdims=True) - IMPOSSIBLE, z) if low.any() else z

    @staticmethod
    def possible(z: Any) -> Any:
        return z > -np.inf

    @staticmethod
    def is_top(z: Any) -> Any:
        return np.arange(z.shape[1]) == z.argmax(axis=1)[:, None]

    @staticmethod
    def bucket(x: Any, edges: Any) -> Any:
        out = np.empty(x.shape, dtype=np.int64)
        for k, row in enumerate(edges):
            out[:, k] = np.searchsorted(row, x[:, k], side="left")
        return out

    @staticmethod
    def take(table: Any, index: Any) -> Any:
        return table[np.arange(len(table)), index]


class TorchOps:
    """The operations on PyTorch tensors."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.exp, self.log, self.matmul = torch.exp, torch.log, torch.matmul

    def sum(self, x: Any) -> Any:
        return x.sum(dim=1, keepdim=True)

    def max(self, x: Any) -> Any:
        return x.amax(dim=1, keepdim=True)

    def maximum(self, x: Any, low: Any) -> Any:
        return self.torch.clamp(x, min=low)

    def minimum(self, x: Any, high: Any) -> Any:
        return self.torch.clamp(x, max=high)

    def where(self, mask: Any, a: Any, b: Any) -> Any:
        return self.torch.where(mask, a, b)

    def log_softmax(self, z: Any) -> Any:
        return self.torch.log_softmax(z, dim=1)

    def lift(self, z: Any) -> Any:
        return self.torch.where(z == -float("inf"), self.max(z) - IMPOSSIBLE, z)

    def possible(self, z: Any) -> Any:
        return z > -float("inf")

    def is_top(self, z: Any) -> Any:
        top = z.argmax(dim=1, keepdim=True)  # like NumPy's, the first of equals on a CPU
        return self.torch.arange(z.shape[1], device=z.device) == top

    def bucket(self, x: Any, edges: Any) -> Any:
        return self.torch.searchsorted(edges.contiguous(), x.T.contiguous()).T

    def take(self, table: Any, index: Any) -> Any:
        return self.torch.gather(table.T, 0, index)
