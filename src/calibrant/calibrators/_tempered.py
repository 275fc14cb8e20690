"""Sums over the classes of exp(beta * z), for any inverse temperature beta, in one pass each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrant._core.arrays import Float, Float64, dot, over_chunks
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_sweeps import tempered
from calibrant._core.row_sweeps import LOWEST_EXPONENT, NARROW_CLASSES
from calibrant.calibrators._scores import label_logits, logit_chunk, working_dtype
from calibrant.predictions import Predictions

# Between exp(-60) and exp(60) float32 sums of up to 1e9 terms keep their digits.
LARGEST_EXPONENT = 60.0


class Tempered:
    """Predictions at any temperature; no matrix larger than a chunk is made.

    ``top`` is the largest logit of each row. Sums are taken of exp(beta * z) as it is where the
    largest exponents are small, which spares a pass, and relative to the top elsewhere.
    """

    def __init__(self, p: Predictions, dtype: np.dtype[Any] | None = None) -> None:
        self.p = p
        self.dtype = dtype or working_dtype(p)
        self.narrow = p.num_classes <= NARROW_CLASSES
        self.axis = 0 if self.narrow else 1
        self.label = label_logits(p)
        self.top = self._top()

    def _top(self) -> Float64:
        p = self.p
        if p.kind == "logits" and p.argmax is not None:
            return p.scores[np.arange(p.num_samples), p.argmax].astype(np.float64)
        top = np.empty(p.num_samples)

        def work(slices: Iterator[slice]) -> None:
            for rows in slices:
                top[rows] = self._laid_out(rows).max(axis=self.axis)

        over_chunks(work, *p.scores.shape)
        return top

    def _laid_out(self, rows: slice) -> Float:
        """Logits of a chunk; with few classes on its side, (K, n), which NumPy adds up faster."""
        z = logit_chunk(self.p, rows, self.dtype)
        return np.ascontiguousarray(z.T) if self.narrow else z

    def sums(self, beta: float, moments: int) -> list[Float64]:
        """For each row: log sum_j exp(beta z_j); mean and variance of z under the softmax."""
        out = [np.empty(self.p.num_samples) for _ in range(moments + 1)]

        compiled = compiled_rows()

        def work(slices: Iterator[slice]) -> None:
            for rows in slices:
                top = self.top[rows]
                if compiled is not None:
                    self._compiled(compiled, rows, beta, out)
                    continue
                largest = beta * float(np.abs(top).max())
                base = top if largest > LARGEST_EXPONENT else None
                found = self._chunk(self._laid_out(rows), beta, base, moments)
                for column, value in zip(out, found, strict=True):
                    column[rows] = value

        over_chunks(work, *self.p.scores.shape)
        return out

    def _compiled(self, compiled: Any, rows: slice, beta: float, out: list[Float64]) -> None:
        p, exact = self.p, self.dtype == np.float64
        z = p.scores[rows] if p.kind == "logits" else logit_chunk(p, rows, self.dtype)
        found = tempered(compiled, z, self.top[rows], beta, exact=exact)
        for column, value in zip(out, found, strict=False):
            column[rows] = value

    def _chunk(self, z: Float, beta: float, base: Float64 | None, moments: int) -> list[Float64]:
        if base is not None:  # subtract first: products of large logits lose digits
            low = base.astype(self.dtype)
            z = z - (low[None, :] if self.narrow else low[:, None])
        shift = 0.0 if base is None else base
        with np.errstate(under="ignore", over="ignore", invalid="ignore"):
            e = np.multiply(z, self.dtype.type(beta))
            np.exp(e, out=e)
            total = self._dot(e, None)
            found = [beta * shift + np.log(total, dtype=np.float64)]
            if not moments:
                return found
            first = self._dot(e, z)
            if not np.isfinite(first).all():  # exp(-inf) * -inf
                z = np.maximum(z, self.dtype.type(LOWEST_EXPONENT / beta))
                first = self._dot(e, z)
            mean_z = first / total
            found.append(mean_z + shift)
            if moments > 1:
                e *= z
                found.append(np.maximum(self._dot(e, z) / total - mean_z**2, 0))
        return found

    def _dot(self, a: Float, b: Float | None) -> Float64:
        """Sum over the classes of a, or of a * b, given in float64."""
        if self.narrow:
            total = (a if b is None else a * b).sum(axis=0)
        else:
            total = np.vecdot(a, np.ones(a.shape[1], dtype=a.dtype) if b is None else b)
        wide: Float64 = total.astype(np.float64)
        return wide

    def confidence(self, beta: float) -> Float64:
        """Probability of the predicted class of each row."""
        (log_total,) = self.sums(beta, 0)
        return np.exp(np.minimum(beta * self.top - log_total, 0))

    def slope(self, beta: float, weights: Float64 | None) -> tuple[float, float]:
        """First and second derivative of the mean NLL by beta."""
        _, mean_z, variance = self.sums(beta, 2)
        return mean(mean_z - self.label, weights), mean(variance, weights)


def mean(values: Float64, weights: Float64 | None) -> float:
    """Mean, weighted where weights are given."""
    return float(values.mean()) if weights is None else dot(values, weights) / float(weights.sum())
