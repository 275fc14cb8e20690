"""The penalised likelihood of an affine map of the logits: value, gradient, curvature, optimum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from calibrant._core.arrays import (
    Bool,
    Float,
    Float64,
    Int,
    chunk_rows,
    one_blas_thread,
    over_chunks,
)
from calibrant._core.checks import (
    ConvergenceError,
)
from calibrant._core.compiled import compiled_rows
from calibrant.calibrators._affine_blocks import Blocks, Root
from calibrant.calibrators._descent import Product, descend, newton
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import label_logits, logit_chunk, working_dtype
from calibrant.calibrators._tempered import LARGEST_EXPONENT, Tempered, mean
from calibrant.predictions import Predictions

Features = Literal["logits", "log_probs"]
# Final gradient relative to the initial one; float32 sums have no more digits.
TOLERANCE = {np.dtype(np.float64): 1e-7, np.dtype(np.float32): 1e-5}
# Gradients below this are rounding errors.
ROUNDING = 1e-10
# An unpenalised mean NLL below this converges to 0: there is no optimum.
SEPARATED = 1e-6
# Steps of L-BFGS; fewer where Newton's method can take over.
STEPS = 2000
FEW_STEPS = 40
NEWTON_STEPS = 200
# The most classes, and samples, of which curvature is taken in blocks: (K + 1)² numbers per class.
BLOCK_CLASSES = 200
BLOCK_ROWS = 2000


@dataclass(frozen=True)
class Penalty:
    """Factors of the squared diagonal, off-diagonal and bias; a diagonal D has no off-diagonal."""

    diagonal: float
    off: float
    bias: float


@dataclass(frozen=True)
class Problem:
    """Mean NLL of the labels, and its gradient, as a function of D and b."""

    p: Predictions
    weights: Float64 | None
    beta: float
    on: Features
    dense: bool

    @property
    def num_classes(self) -> int:
        return self.p.num_classes

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return working_dtype(self.p)

    @cached_property
    def weight(self) -> Float64:
        """Weight of each row in the mean."""
        return self.counts / self.size

    @property
    def counts(self) -> Float64:
        """How often each row counts."""
        return np.ones(self.p.num_samples) if self.weights is None else self.weights

    @cached_property
    def size(self) -> float:
        """Number of samples, those that count twice counted twice."""
        return float(self.counts.sum())

    def without(self, held: Bool) -> Problem:
        """The same problem with some rows weighed 0: no copy of the scores is made."""
        part = replace(self, weights=np.where(held, 0.0, self.counts))
        for name in ("shift", "impossible", "reach"):  # these do not depend on weights
            part.__dict__[name] = getattr(self, name)
        return part

    @cached_property
    def shift(self) -> Float64:
        """Subtracted from the logits of a row: features are beta * (z - shift)."""
        if self.on == "logits":
            return np.zeros(self.p.num_samples)
        return Tempered(self.p, self.dtype).sums(self.beta, 0)[0] / self.beta

    @cached_property
    def impossible(self) -> bool:
        """Whether some logit is -inf."""
        return self.p.kind == "logits" and bool(np.isneginf(self.p.scores.min()))

    @cached_property
    def reach(self) -> float:
        """Size of the largest feature of any row."""
        if self.on == "log_probs":
            return math.log(self.num_classes)
        return self.beta * float(np.abs(Tempered(self.p, self.dtype).top).max())

    def shifted(self, rows: slice, out: Float | None = None) -> Float:
        """Features of some rows, divided by beta; written to ``out`` where a copy is needed."""
        z = logit_chunk(self.p, rows, self.dtype)
        if self.impossible:
            z = NumpyOps.lift(z)
        if self.on == "logits":
            return z
        shifted: Float = np.subtract(z, self.shift[rows].astype(self.dtype)[:, None], out=out)
        return shifted

    @cached_property
    def label_sums(self) -> tuple[Float64, Float64]:
        """Sums over the samples of a class of the features (its own, or all) and of 1."""
        labels, k = self.p.labels, self.num_classes
        count = _counted(labels, self.weight, k)
        if not self.dense:
            own = (label_logits(self.p) - self.shift) * self.beta
            return _counted(labels, self.weight * own, k), count

        def work(slices: Iterator[slice]) -> Float64:
            total = np.zeros((k, k))
            for rows in slices:
                f = self.shifted(rows) * self.weight[rows][:, None]
                np.add.at(total, labels[rows], f)
            return total

        return self.beta * np.sum(over_chunks(work, *self.p.scores.shape), axis=0), count

    def split(self, theta: Float64) -> tuple[Float64, Float64]:
        """D (K,) or (K, K), and b."""
        k = self.num_classes
        return (theta[:-k].reshape(k, k) if self.dense else theta[:k]), theta[-k:]

    def gradient(self, theta: Float64) -> Float64:
        """Gradient of the mean NLL: (mean of softmax - label) times features and times 1."""
        return self._sums(theta, curvature=False)[0]

    @cached_property
    def start(self) -> tuple[Float64, Float64, Float64, Float64]:
        """At D = 0, b = 0: the gradient, and the sums of q f², q f and q with q = p (1 - p)."""
        k = self.num_classes
        gradient, *curvature = self._sums(
            np.zeros(k * k + k if self.dense else 2 * k), curvature=True
        )
        square, cross, plain = curvature
        return gradient, self.beta**2 * square, self.beta * cross, plain

    def _sums(self, theta: Float64, *, curvature: bool) -> list[Float64]:
        d, b = self.split(theta)
        compiled = None if curvature else self.compiled

        def work(slices: Iterator[slice]) -> list[Float64]:
            if compiled is not None:
                return self._compiled_sweep(compiled, slices, d, b)
            return self._sweep(slices, d, b, curvature=curvature)

        parts = over_chunks(work, *self.p.scores.shape)
        slope, offset, *rest = (np.sum(column, axis=0) for column in zip(*parts, strict=True))
        sums, count = self.label_sums
        return [np.concatenate([np.ravel(self.beta * slope - sums), offset - count]), *rest]

    def _sweep(
        self, slices: Iterator[slice], d: Float64, b: Float64, *, curvature: bool
    ) -> list[Float64]:
        """Sums over rows of softmax times features / beta, and of softmax; those of ``start``.

        Few calls per chunk: each costs a sweep over it.
        """
        k, dtype = self.num_classes, self.dtype
        matrix = (np.eye(k) + d).T if self.dense else 1 + d
        scale, bias, ones = (self.beta * matrix).astype(dtype), b.astype(dtype), np.ones(k, dtype)
        # Where no exponent can be large, none needs to be taken relative to the row's largest.
        bound = 2 * self.reach + float(np.abs(b).max())
        tame = not self.dense and bound < LARGEST_EXPONENT and np.abs(d).max() < 1
        slope, offset = np.zeros(d.shape), np.zeros(k)
        square, cross, plain = np.zeros(d.shape), np.zeros(k), np.zeros(k)
        # Two matrices, reused for all chunks: allocating new memory each time is slow.
        buffers = np.empty((2, min(chunk_rows(k), self.p.num_samples), k), dtype)
        for rows in slices:
            first, second = buffers[:, : rows.stop - rows.start]
            f = self.shifted(rows, first)
            u = (np.matmul if self.dense else np.multiply)(f, scale, out=second)
            u += bias
            if not tame:
                u -= u.max(axis=1, keepdims=True)
            e = np.exp(u, out=u)
            r = (self.weight[rows] / np.vecdot(e, ones)).astype(dtype)
            if curvature:
                w = self.weight[rows].astype(dtype)
                q = _softmax(e)
                q -= q * q
                plain += _weighted(w, q)
                square += (q * w[:, None]).T @ (f * f) if self.dense else _weighted(w, q * f * f)
                cross += 0 if self.dense else _weighted(w, q * f)
            offset += _weighted(r, e)
            if self.dense:
                e *= r[:, None]
                slope += e.T @ f
            else:
                e *= f
                slope += _weighted(r, e)
        return [slope, offset, square, cross, plain] if curvature else [slope, offset]

    @property
    def compiled(self) -> Any | None:
        """The extension, where it has sums of this problem: a diagonal D, finite logits."""
        return None if self.dense or self.impossible else compiled_rows()

    def affine_arguments(self, part: slice, d: Float64, b: Float64) -> tuple[Any, ...]:
        """What the extension takes: logits of some rows, in their own precision, and the map."""
        floats = self.p.kind == "logits" and self.p.scores.dtype in (np.float32, np.float64)
        z = logit_chunk(self.p, part, self.p.scores.dtype if floats else self.dtype)
        return z, self.shift[part], self.beta * (1 + d), np.ascontiguousarray(b)

    def _compiled_sweep(
        self, compiled: Any, slices: Iterator[slice], d: Float64, b: Float64
    ) -> list[Float64]:
        """The same sums in one pass, of a diagonal D; rows that weigh 0 cost nothing."""
        slope, offset = np.zeros(len(d)), np.zeros(len(b))
        for part in slices:
            given = self.affine_arguments(part, d, b)
            compiled.affine(*given, self.weight[part], slope, offset)
        return [slope, offset]

    def penalties(self, penalty: Penalty) -> Float64:
        """The factor of each squared entry of theta."""
        k = self.num_classes
        if not self.dense:
            return np.concatenate([np.full(k, penalty.diagonal), np.full(k, penalty.bias)])
        matrix = np.full((k, k), penalty.off)
        np.fill_diagonal(matrix, penalty.diagonal)
        return np.concatenate([matrix.ravel(), np.full(k, penalty.bias)])

    def minimise(
        self, penalty: Penalty, *, start: Float64 | None = None, tolerance: float | None = None
    ) -> Float64:
        """D and b of least mean NLL plus penalty.

        L-BFGS, preconditioned with the initial curvature; if that fails, Newton's method.
        """
        factor = self.penalties(penalty)
        at_zero, *curvature = self.start
        root = Root.of(curvature, factor, dense=self.dense)
        first = root.size(at_zero)  # the penalty is flat there
        goal = max((tolerance or TOLERANCE[self.dtype]) * first, ROUNDING)

        def gradient(theta: Float64) -> Float64:
            return self.gradient(theta) + 2 * factor * theta

        theta, g = np.zeros(len(factor)), at_zero
        if start is not None:
            theta, g = start, gradient(start)

        def is_small(g: Float64) -> bool:
            return root.size(g) <= goal

        def curvature_at(theta: Float64) -> tuple[Product, Product]:
            inverse = self.blocks_at(theta, factor).inverse
            return (lambda v: self.curvature(theta, v) + 2 * factor * v), inverse

        blocks = self.dense and self.num_classes <= BLOCK_CLASSES
        with one_blas_thread():
            theta, g = descend(
                gradient,
                theta,
                g,
                inverse=root.inverse,
                is_small=is_small,
                steps=FEW_STEPS if blocks else STEPS,
            )
            if blocks:
                theta, g = newton(
                    gradient,
                    theta,
                    g,
                    curvature=curvature_at,
                    is_small=is_small,
                    steps=NEWTON_STEPS,
                )
        rest, held = root.size(g), bool(factor.all())
        if rest <= 10 * goal and (held or mean(row_losses(self, theta), self.weight) > SEPARATED):
            return theta
        advice = "Without a penalty, separable data have no optimum; use a positive strength."
        if held:
            advice = "Use another method, or a larger strength=…."
        raise ConvergenceError(
            f"The fit did not converge: it stopped with a gradient of {rest:.2g}, "
            f"{rest / first:.1g} of that at the start. {advice}"
        )

    def curvature(self, theta: Float64, v: Float64) -> Float64:
        """The second derivative of the mean NLL, for a full D, times v."""
        d, b = self.split(theta)
        along, offset = self.split(v)
        k = self.num_classes

        def work(slices: Iterator[slice]) -> Float64:
            slope, total = np.zeros((k, k)), np.zeros(k)
            for rows in slices:
                f = self.beta * self.shifted(rows).astype(np.float64)
                q = np.exp(NumpyOps.log_softmax(f + f @ d.T + b))
                change = f @ along.T + offset
                r = q * (change - np.vecdot(q, change)[:, None]) * self.weight[rows][:, None]
                slope += r.T @ f
                total += r.sum(axis=0)
            return np.concatenate([slope.ravel(), total])

        found: Float64 = np.sum(over_chunks(work, *self.p.scores.shape), axis=0)
        return found

    def blocks_at(self, theta: Float64, factor: Float64) -> Blocks:
        """The curvature at theta of each row of a full D and its offset.

        With many samples a subset is enough, since this is only a preconditioner.
        """
        k = self.num_classes
        some = np.arange(0, self.p.num_samples, -(-self.p.num_samples // BLOCK_ROWS))
        part = replace(self, p=self.p.take(some), weights=self.counts[some])
        d, b = self.split(theta)
        f = self.beta * part.shifted(slice(None)).astype(np.float64)
        q = np.exp(NumpyOps.log_softmax(f + f @ d.T + b))
        q *= (1 - q) * part.weight[:, None]
        wide = np.concatenate([f, np.ones((len(f), 1))], axis=1)
        blocks = np.stack([(wide * column[:, None]).T @ wide for column in q.T])
        held = np.concatenate([factor[:-k].reshape(k, k), factor[-k:, None]], axis=1)
        return Blocks.of(blocks, held)


def _counted(labels: Int, weights: Float64, num_classes: int) -> Float64:
    """Sum of the weights of each class."""
    return np.bincount(labels, weights, num_classes).astype(np.float64)


def _weighted(w: Float, x: Float) -> Float:
    """Weighted sum of the rows on this thread; BLAS would start its own threads."""
    total: Float = np.einsum("n,nk->k", w, x)
    return total


def _softmax(e: Float) -> Float:
    """Rows of exponentials divided by their sums."""
    share: Float = e / e.sum(axis=1, keepdims=True)
    return share


def row_losses(problem: Problem, theta: Float64) -> Float64:
    """NLL of each row."""
    d, b = problem.split(theta)
    out = np.empty(problem.p.num_samples)
    labels, compiled = problem.p.labels, problem.compiled

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            if compiled is not None:
                given = problem.affine_arguments(rows, d, b)
                compiled.affine_losses(*given, labels[rows], out[rows])
                continue
            f = problem.beta * problem.shifted(rows).astype(np.float64)
            u = (f + f @ d.T if problem.dense else f * (1 + d)) + b
            out[rows] = -NumpyOps.log_softmax(u)[np.arange(len(u)), labels[rows]]

    over_chunks(work, *problem.p.scores.shape)
    return out
