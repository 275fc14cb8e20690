r"""Affine maps of the logits: vector, matrix, structured and Dirichlet scaling.

All are :math:`\mathrm{softmax}((I + D)\, f + b)` where f are the logits or the log-probabilities
after temperature scaling, and D is diagonal or full. They differ in f and in the penalty
:math:`\sum r_d D_{kk}^2 + \sum r_o D_{jk}^2 + \sum r_b b_k^2`, which pulls towards plain
temperature scaling. The objective is convex; preconditioned descent goes to its optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from calibrant._core.arrays import (
    Bool,
    Float,
    Float64,
    Int,
    chunk_rows,
    fold_numbers,
    one_blas_thread,
    over_chunks,
)
from calibrant._core.checks import (
    ConvergenceError,
    InputError,
    check_at_least,
    check_choice,
    check_seed,
)
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._descent import Product, descend, newton
from calibrant.calibrators._maps import TINY
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import label_logits, logit_chunk, row_hash, working_dtype
from calibrant.calibrators._temperature import bounds_for, nll_temperature
from calibrant.calibrators._tempered import LARGEST_EXPONENT, Tempered, mean
from calibrant.predictions import Predictions

Features = Literal["logits", "log_probs"]
# The gradient at the end, as a part of that at the start. Float32 sums carry no more digits.
TOLERANCE = {np.dtype(np.float64): 1e-7, np.dtype(np.float32): 1e-5}
# Of K / N: what holds a diagonal that is meant to be free.
FREE = 1e-3
# Gradients below this are rounding.
ROUNDING = 1e-10
# A mean NLL without a penalty this small is on its way to 0.
SEPARATED = 1e-6
# Trials of a strength need only be told apart.
TRIAL_TOLERANCE = 1e-2
# Steps of L-BFGS, and fewer where Newton's method can follow.
STEPS = 2000
FEW_STEPS = 40
NEWTON_STEPS = 200
# The most classes, and samples, of which curvature is taken in blocks: (K + 1)² numbers per class.
BLOCK_CLASSES = 200
BLOCK_ROWS = 2000
STRENGTHS = (10.0, 1.0, 0.1, 0.01, 0.001)
FOLDS = 4
# Standard errors by which another strength must be better than the usual one.
CLEAR = 2.0
# Beyond this many scores one fold is judged instead of all: there is data enough.
MANY_SCORES = 10_000_000


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
        """What is taken from the logits of a row: features are beta * (z - shift)."""
        if self.on == "logits":
            return np.zeros(self.p.num_samples)
        return Tempered(self.p, self.dtype).sums(self.beta, 0)[0] / self.beta

    @cached_property
    def impossible(self) -> bool:
        """Whether some logit is -inf."""
        return self.p._kind == "logits" and bool(np.isneginf(self.p._scores.min()))

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

        return self.beta * np.sum(over_chunks(work, *self.p._scores.shape), axis=0), count

    def split(self, theta: Float64) -> tuple[Float64, Float64]:
        """D (K,) or (K, K), and b."""
        k = self.num_classes
        return (theta[:-k].reshape(k, k) if self.dense else theta[:k]), theta[-k:]

    def gradient(self, theta: Float64) -> Float64:
        """Of the mean NLL: (mean of softmax - label) times features and times 1."""
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
        parts = over_chunks(
            lambda slices: self._sweep(slices, d, b, curvature=curvature), *self.p._scores.shape
        )
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
        # Two matrices for all chunks: fresh memory would be handed out by the system each time.
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

        L-BFGS, guided by the curvature at the start; where that does not do, Newton's method.
        """
        factor = self.penalties(penalty)
        at_zero, *curvature = self.start
        root = _Root.of(curvature, factor, dense=self.dense)
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

        found: Float64 = np.sum(over_chunks(work, *self.p._scores.shape), axis=0)
        return found

    def blocks_at(self, theta: Float64, factor: Float64) -> _Blocks:
        """The curvature at theta of each row of a full D and its offset.

        Of many samples every so many will do: it only guides.
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
        return _Blocks.of(blocks, held)


def _counted(labels: Int, weights: Float64, num_classes: int) -> Float64:
    """Sum of the weights of each class."""
    return np.bincount(labels, weights, num_classes).astype(np.float64)


def _weighted(w: Float, x: Float) -> Float:
    """Weighted sum of the rows, on this thread alone: BLAS would wake threads of its own."""
    total: Float = np.einsum("n,nk->k", w, x)
    return total


def _softmax(e: Float) -> Float:
    """Rows of exponentials divided by their sums."""
    share: Float = e / e.sum(axis=1, keepdims=True)
    return share


@dataclass(frozen=True)
class _Blocks:
    """Inverse curvature of each row of a full D with its offset, (K, K + 1, K + 1)."""

    inverses: Float64

    @classmethod
    def of(cls, blocks: Float64, held: Float64) -> _Blocks:
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
class _Root:
    """The root L of about the curvature at the start, L L^T.

    For a diagonal D the blocks of D_kk and b_k are taken whole; for a full one only the diagonal.
    """

    a: Float64  # of D
    c: Float64  # from b to D
    b: Float64  # of b
    num: int

    @classmethod
    def of(cls, curvature: Sequence[Float64], factor: Float64, *, dense: bool) -> _Root:
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


@dataclass(eq=False, repr=False, kw_only=True)
class _Affine(Calibrator):
    """What the five methods share. ``strength`` multiplies the penalty."""

    strength: float | Literal["cv"] = "cv"
    on: Features = "logits"
    seed: int = 0

    dense: ClassVar[bool] = False
    usual: ClassVar[float] = 1.0
    learned: ClassVar = {"scale_": (), "weight_": ("K",), "bias_": ("K",), "strength_": ()}

    scale_: float = field(init=False)
    weight_: Float64 = field(init=False)
    bias_: Float64 = field(init=False)
    strength_: float = field(init=False)

    def _check(self) -> None:
        check_choice("on", self.on, ("logits", "log_probs"))
        if self.strength != "cv":
            check_at_least("strength", self.strength, 0, example=1, otherwise=", or 'cv'")
        check_seed(self.seed)

    def _penalty(self, strength: float, num_samples: float, num_classes: int) -> Penalty:
        """The structured penalty: K / N for each of K numbers, K (K - 1) / N off the diagonal."""
        each = strength * num_classes / num_samples
        return Penalty(each, each * (num_classes - 1), each)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        bounds, sharpest = bounds_for(p)
        beta = 1 / nll_temperature(p, weights, bounds, sharpest=sharpest)
        problem = Problem(p, weights, beta, self.on, self.dense)
        if self.strength == "cv":
            self.strength_ = self._best_strength(problem)
        else:
            self.strength_ = float(self.strength)
        penalty = self._penalty(self.strength_, problem.size, p.num_classes)
        d, self.bias_ = problem.split(problem.minimise(penalty))
        self.scale_ = beta
        self.weight_ = (np.eye(p.num_classes) if self.dense else 1) + d

    def _check_learned(self) -> None:
        if not self.scale_ > 0:
            raise InputError("scale_ must be above 0.")

    def num_parameters(self) -> int:
        """Of the map: matrix and offsets, which hold the temperature too."""
        self._need_fit()
        if "groups_" in vars(self):
            return super().num_parameters()
        return int(self.weight_.size + self.bias_.size)

    def _settled(self) -> Self:
        return replace(self, strength=self.strength_)

    def _best_strength(self, problem: Problem) -> float:
        """Of STRENGTHS by cross-validation; not the usual one only where that is clearly better."""
        return best_strength(problem, self._penalty, STRENGTHS, self.usual, self.seed)

    def _forward(self, ops: Any, z: Any, learned: Any) -> Any:
        z = ops.lift(z) * learned.scale_
        f = ops.log_softmax(z) if self.on == "log_probs" else z
        if self.dense:
            return ops.matmul(f, learned.weight_.T) + learned.bias_
        return f * learned.weight_ + learned.bias_

    def _as_affine(self) -> tuple[Float64, Float64]:
        if self.on == "log_probs":
            return super()._as_affine()
        matrix = self.weight_ if self.dense else np.diag(self.weight_)
        return matrix * self.scale_, self.bias_


def best_strength(
    problem: Problem, penalty: Any, strengths: Sequence[float], usual: float, seed: int
) -> float:
    """The strength of least cross-validated NLL.

    Folds are fitted along the path from strong to weak, each from the last, until weaker is clearly
    worse. A strength other than the usual one must be clearly better.
    """
    fold, distinct = _steady_folds(problem, seed)
    if distinct < 2 * FOLDS:
        return usual
    k = problem.num_classes
    judged = 1 if distinct * k > MANY_SCORES else FOLDS
    inner = [problem.without(fold == number) for number in range(judged)]
    thetas = [np.zeros(len(part.start[0])) for part in inner]
    seen = (fold >= 0) & (fold < judged)
    counts, losses = problem.counts[seen], dict[float, Float64]()
    for strength in strengths:
        found = np.empty(len(fold))
        for number, part in enumerate(inner):
            factor = penalty(strength, part.size, k)
            thetas[number] = part.minimise(factor, start=thetas[number], tolerance=TRIAL_TOLERANCE)
            found[fold == number] = row_losses(problem, thetas[number])[fold == number]
        losses[strength] = found[seen]
        best = min(losses, key=lambda s: mean(losses[s], counts))
        if strength < usual and _clearly_less(losses[best], losses[strength], counts):
            break
    return best if _clearly_less(losses[best], losses[usual], counts) else usual


def _steady_folds(problem: Problem, seed: int) -> tuple[Int, int]:
    """Folds by content, and how many distinct rows there are; -1 for rows that do not count.

    Equal rows share a fold, so that a weight does what repeating the row would do; nor does the
    order in which samples came matter.
    """
    p = problem.p
    keys = np.stack([row_hash(p), Tempered(p).top, label_logits(p), p.labels])
    order = np.lexsort(keys)
    order = order[problem.counts[order] > 0]
    new = np.concatenate([[True], (np.diff(keys[:, order]) != 0).any(axis=0)])
    distinct = int(new.sum())
    fold = np.full(p.num_samples, -1)
    fold[order] = fold_numbers(distinct, FOLDS, seed)[np.cumsum(new) - 1]
    return fold, distinct


def _clearly_less(a: Float64, b: Float64, counts: Float64) -> bool:
    gain = b - a
    average = mean(gain, counts)
    deviation = math.sqrt(mean((gain - average) ** 2, counts))
    return average > CLEAR * deviation / math.sqrt(counts.sum())


def row_losses(problem: Problem, theta: Float64) -> Float64:
    """NLL of each row."""
    d, b = problem.split(theta)
    out = np.empty(problem.p.num_samples)
    labels = problem.p.labels

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            f = problem.beta * problem.shifted(rows).astype(np.float64)
            u = (f + f @ d.T if problem.dense else f * (1 + d)) + b
            out[rows] = -NumpyOps.log_softmax(u)[np.arange(len(u)), labels[rows]]

    over_chunks(work, *problem.p._scores.shape)
    return out


class VectorScaling(_Affine):
    """Vector scaling: a scale and an offset per class, on the logits.

    Parameters
    ----------
    strength
        Strength of the penalty that shrinks towards temperature scaling, in units of K / N: a
        number, or ``"cv"`` to choose among 10 … 0.001 by cross-validation. 0 is the method of Guo
        et al., which overfits with few samples per class and has no optimum if a class is absent.
    on
        ``"logits"`` (can be folded into the last layer) or ``"log_probs"``.
    seed
        Of the folds.

    References
    ----------
    Guo et al. (2017), arXiv:1706.04599.
    """

    usual = 0.01  # close to the method without a penalty


class MatrixScaling(_Affine):
    """Matrix scaling: a full matrix and an offset per class, on the logits.

    Parameters are those of ``VectorScaling``. The K² parameters need a penalty: the off-diagonal is
    shrunk to 0 in units of K (K - 1) / N.

    References
    ----------
    Guo et al. (2017), arXiv:1706.04599.
    """

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K")}


@dataclass(eq=False, repr=False, kw_only=True)
class StructuredVectorScaling(_Affine):
    """Regularised vector scaling on log-probabilities after temperature scaling (SVS).

    ``strength`` 1 is the published penalty, K / N per squared parameter; ``"cv"`` deviates from it
    only if that is clearly better. Parameters are otherwise those of ``VectorScaling``.

    References
    ----------
    Berta, Holzmüller, Jordan and Bach (2025), arXiv:2511.03685.
    """

    on: Features = "log_probs"


@dataclass(eq=False, repr=False, kw_only=True)
class StructuredMatrixScaling(_Affine):
    """Regularised matrix scaling on log-probabilities after temperature scaling (SMS).

    ``strength`` 1 is the published penalty: K / N for the diagonal and the offsets, K (K - 1) / N
    off the diagonal; ``"cv"`` deviates from it only if that is clearly better. Parameters are
    otherwise those of ``VectorScaling``.

    References
    ----------
    Berta, Holzmüller, Jordan and Bach (2025), arXiv:2511.03685.
    """

    on: Features = "log_probs"

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K")}


@dataclass(eq=False, repr=False, kw_only=True)
class Dirichlet(_Affine):
    """Dirichlet calibration: matrix scaling of the log-probabilities with ODIR.

    Parameters
    ----------
    strength
        Factor of the mean squared off-diagonal entry (lambda), or ``"cv"``: then lambda and mu are
        10 … 0.001 times those at which each entry is held as in ``StructuredMatrixScaling``.
    bias_strength
        Factor of the mean squared offset (mu); None means the same as ``strength``, or chosen with
        it.
    on, seed
        As in ``VectorScaling``.

    The diagonal is all but free: a thousandth of K / N holds it, so that an optimum exists for
    separable data too.

    References
    ----------
    Kull et al. (2019), arXiv:1910.12656.
    """

    bias_strength: float | None = None
    on: Features = "log_probs"

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K"), "bias_strength_": ()}

    bias_strength_: float = field(init=False)

    def _check(self) -> None:
        super()._check()
        if self.bias_strength is not None:
            check_at_least("bias_strength", self.bias_strength, 0, example=1)

    def _penalty(self, strength: float, num_samples: float, num_classes: int) -> Penalty:
        return Penalty(
            FREE * num_classes / num_samples,
            strength / (num_classes * (num_classes - 1)),
            self.bias_strength_ / num_classes,
        )

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        given = self.strength if self.bias_strength is None else self.bias_strength
        self.bias_strength_ = 0.0 if given == "cv" else float(given)
        super()._learn(p, weights)

    def _best_strength(self, problem: Problem) -> float:
        def penalty(times: float, n: float, k: int) -> Penalty:
            bias = self.bias_strength
            return Penalty(
                FREE * k / n, times * k * (k - 1) / n, times * k / n if bias is None else bias / k
            )

        n, k = problem.size, problem.num_classes
        times = best_strength(problem, penalty, STRENGTHS, self.usual, self.seed)
        if self.bias_strength is None:
            self.bias_strength_ = times * k**2 / n
        return times * (k * (k - 1)) ** 2 / n

    def _settled(self) -> Self:
        return replace(self, strength=self.strength_, bias_strength=self.bias_strength_)
