"""Curvature of an affine fit in blocks, and the square root that preconditions its descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import (
    Float64,
)
from calibrant.calibrators._maps import TINY


@dataclass(frozen=True)
class Blocks:
    """Inverse curvature of each row of a full D with its offset, (K, K + 1, K + 1)."""

    inverses: Float64

    @classmethod
    def of(cls, blocks: Float64, held: Float64) -> Blocks:
        eye = np.eye(blocks.shape[1])
        total = blocks + 2 * held[:, :, None] * eye
        size = np.maximum(np.einsum("kii->k", total), TINY)[:, None, None]
        return cls(np.linalg.inv(total + 1e-13 * size * eye))

    def inverse(self, g: Float64) -> Float64:
        k = len(self.inverses)
        rows = np.concatenate([g[:-k].reshape(k, k), g[-k:, None]], axis=1)
        out = np.matmul(self.inverses, rows[:, :, None])[:, :, 0]
        return np.concatenate([out[:, :-1].ravel(), out[:, -1]])


@dataclass(frozen=True)
class Root:
    """The root L of about the curvature at the start, L L^T.

    For a diagonal D the blocks of D_kk and b_k are taken whole; for a full one only the diagonal.
    """

    a: Float64  # of D
    c: Float64  # from b to D
    b: Float64  # of b
    num: int

    @classmethod
    def of(cls, curvature: Sequence[Float64], factor: Float64, *, dense: bool) -> Root:
        square, cross, plain = curvature
        k = len(plain)
        high = square.ravel() + 2 * factor[:-k]
        low = plain + 2 * factor[-k:]
        tiny = 1e-12 * max(float(high.max()), float(low.max()), TINY)
        a = np.sqrt(np.maximum(high, tiny))
        c = np.zeros(len(a)) if dense else cross / a
        b = np.sqrt(np.maximum(low - (0 if dense else c**2), np.maximum(1e-6 * low, tiny)))
        return cls(a, c, b, k)

    def size(self, g: Float64) -> float:
        """The largest entry of a gradient in coordinates of curvature 1."""
        return float(np.abs(self._scaled(g)).max())

    def inverse(self, g: Float64) -> Float64:
        u = self._scaled(g)
        bias = u[-self.num :] / self.b
        lower = 0 if not self.c.any() else self.c * bias
        return np.concatenate([(u[: -self.num] - lower) / self.a, bias])

    def _scaled(self, g: Float64) -> Float64:
        x = g[: -self.num] / self.a
        lower = 0 if not self.c.any() else self.c * x
        return np.concatenate([x, (g[-self.num :] - lower) / self.b])
