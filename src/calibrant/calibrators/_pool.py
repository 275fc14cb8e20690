r"""Weights of a log-linear pool: softmax of :math:`\sum_m w_m \log q_m` with every weight >= 0.

The NLL of the labels is convex in the weights. A penalty worth ``PRIOR`` samples draws them to a
centre; it makes the optimum unique where members say the same thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, one_blas_thread, over_chunks
from calibrant._core.checks import ConvergenceError
from calibrant.calibrators._maps import TINY
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._plain import as_binary
from calibrant.calibrators._scores import working_dtype
from calibrant.predictions import Confidences, Predictions

# How many samples the penalty is worth.
PRIOR = 10.0
STEPS = 200
HALVINGS = 60
# A Newton step that gains less than this, in nats over all samples, is the last.
LAST_GAIN = 1e-8
# Fraction of the predicted gain that a step must bring.
ENOUGH = 1e-4


def member_logits(ops: Any, scores: Any, gives: str) -> Any:
    """Scores of a member as finite logits: an absent option, or one of probability 0, is small."""
    if gives == "probs":
        return ops.log(ops.maximum(scores, TINY))
    return ops.lift(scores)


@dataclass(frozen=True)
class Pool:
    """What the members say of samples that they were not fitted to.

    ``above`` of shape (M, N, K) is how far each member's logit of a class lies above that of the
    label; ``absent`` marks options that a sample lacks; ``counts`` says how often samples count;
    ``centre`` are the weights that the penalty draws to.
    """

    above: Float
    absent: Bool | None
    counts: Float64
    centre: Float64

    @classmethod
    def of(
        cls,
        p: Predictions | Confidences,
        held_out: Sequence[Predictions | Confidences],
        counts: Float64,
        centre: Float64,
    ) -> Pool:
        """From the members' out-of-fold predictions for p."""
        q = as_binary(p) if isinstance(p, Confidences) else p
        absent = np.isneginf(q.scores) if q.kind == "logits" else np.zeros(1, dtype=bool)
        dtype, every = working_dtype(q), np.arange(q.num_samples)
        above = np.empty((len(held_out), *q.scores.shape), dtype=dtype)
        for part, found in zip(above, held_out, strict=True):
            seen = as_binary(found) if isinstance(found, Confidences) else found
            logits = member_logits(NumpyOps, seen.scores.astype(np.float64), seen.kind)
            part[:] = logits - logits[every, q.labels][:, None]
        if not absent.any():
            return cls(above, None, counts, centre)
        above[:, absent] = 0.0
        return cls(above, absent, counts, centre)

    def without(self, held: Bool) -> Pool:
        """The same pool with some samples not counted; nothing is copied."""
        return replace(self, counts=np.where(held, 0.0, self.counts))

    # --- the objective ----------------------------------------------------------------------------

    def logits(self, w: Float64, rows: slice = slice(None)) -> Float64:
        """Pooled logits of some samples, where the label has 0."""
        z: Float64 = np.tensordot(w, self.above[:, rows].astype(np.float64, copy=False), 1)
        if self.absent is not None:
            z[self.absent[rows]] = -np.inf
        return z

    def loss(self, w: Float64) -> float:
        """NLL of all samples, and the penalty."""

        def work(slices: Iterator[slice]) -> float:
            total = 0.0
            for rows in slices:
                total += float(self.counts[rows] @ _log_sums(self.logits(w, rows)))
            return total

        return sum(over_chunks(work, *self._shape)) + PRIOR / 2 * float(
            ((w - self.centre) ** 2).sum()
        )

    def slopes(self, w: Float64) -> tuple[Float64, Float64]:
        """Gradient and matrix of second derivatives of the loss."""
        size = len(w)

        def work(slices: Iterator[slice]) -> tuple[Float64, Float64]:
            first, second = np.zeros(size), np.zeros((size, size))
            for rows in slices:
                above = self.above[:, rows].astype(np.float64, copy=False)
                count, z = self.counts[rows], self.logits(w, rows)
                probs = np.exp(z - _log_sums(z)[:, None])
                mean = np.vecdot(above, probs)
                first += mean @ count
                root = (above * np.sqrt(probs * count[:, None])).reshape(size, -1)
                second += root @ root.T - (mean * count) @ mean.T
            return first, second

        found = over_chunks(work, *self._shape)
        first, second = (sum(parts) for parts in zip(*found, strict=True))
        return first + PRIOR * (w - self.centre), second + PRIOR * np.eye(size)

    @property
    def _shape(self) -> tuple[int, int]:
        """Rows, and values per row, of a chunk."""
        members, samples, classes = self.above.shape
        return samples, members * classes

    # --- the optimum ------------------------------------------------------------------------------

    def minimise(self, start: Float64 | None = None) -> Float64:
        """The weights of least loss: Newton's method, its steps within the bounds."""
        w = self.centre if start is None else start
        with one_blas_thread():
            value = self.loss(w)
            for _ in range(STEPS):
                first, second = self.slopes(w)
                step = _bounded_minimum(first, second, w) - w
                gain = -float(first @ step)
                if gain <= LAST_GAIN:
                    return np.maximum(w + step, 0.0)
                w, value = self._go(w, value, step, gain)
        raise ConvergenceError("The weights of the pool did not converge; please report this data.")

    def _go(self, w: Float64, value: float, step: Float64, gain: float) -> tuple[Float64, float]:
        """As much of a step as lowers the loss."""
        for halving in range(HALVINGS):
            part = 0.5**halving
            new = w + part * step
            found = self.loss(new)
            if found <= value - ENOUGH * part * gain:
                return new, found
        raise ConvergenceError("The weights of the pool did not converge; please report this data.")

    def cross_fitted(self, w: Float64, fold: Any) -> Float64:
        """Pooled logits of each fold, with weights that were chosen on the other folds.

        ``w`` are the weights chosen on all samples, from which the search starts.
        """
        out = np.empty(self.above.shape[1:])
        for number in np.unique(fold):
            held = fold == number
            weights = self.without(held).minimise(w)
            out[held] = self.logits(weights)[held]
        return out


def _log_sums(z: Float64) -> Float64:
    top = z.max(axis=1)
    total: Float64 = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    return total


def _bounded_minimum(first: Float64, second: Float64, w: Float64) -> Float64:
    """Where the quadratic model of the loss around w is least, of all weights >= 0."""
    from scipy.optimize import nnls

    root = np.linalg.cholesky(second)
    target = np.linalg.solve(root, second @ w - first)
    found: Float64 = nnls(root.T, target)[0]
    return found
