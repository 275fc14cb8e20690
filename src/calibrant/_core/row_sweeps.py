"""One pass over a chunk of rows of scores, in the precision and layout that are fastest."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, Int, over_chunks

# With few classes a chunk is transposed, (K, n): reductions over a long axis 0 run at full
# vector speed, reductions over an axis 1 of ten entries do not.
NARROW_CLASSES = 32
# Between these, exponentials of float32 logits and sums of their squares keep their digits, and
# the entropy loses few to cancellation.
LARGEST_LOGIT, SMALLEST_TOTAL = 20.0, float(np.exp(-38.0))
# Where exp is 0 in either precision; keeps 0 * -inf out of the sums.
LOWEST_EXPONENT = -800.0
# Sums of other classes' probabilities below this are added up on their own.
FAINT = 1e-6
# Terms of float32 that are added before they go over to float64.
PART = 256
# Turning the sums of a row into columns costs about as much as sweeping this many classes.
ROW_COST = 32


@dataclass(frozen=True, slots=True)
class TopLabel:
    """The O(N) columns of the predicted class."""

    predicted: Int
    correct: Bool
    odds: Float64
    confidence: Float64


@dataclass(frozen=True, slots=True)
class RowSummary(TopLabel):
    """The O(N) columns every metric but the classwise ones is made from."""

    label_log_prob: Float64
    label_prob: Float64
    brier: Float64
    entropy: Float64

    @classmethod
    def empty(cls, num_rows: int, predicted: Int | None = None) -> RowSummary:
        """Columns to be written; predicted classes that are known are not copied."""
        if predicted is None:
            predicted = np.empty(num_rows, dtype=np.int64)
        return cls(predicted, np.empty(num_rows, dtype=np.bool_), *np.empty((6, num_rows)))


class _Sweep:
    """What both kinds of scores share: layout, and where the results go."""

    def __init__(
        self, scores: Float, labels: Int | None, dtype: np.dtype[Any], predicted: Int | None
    ) -> None:
        self.scores, self.labels, self.dtype = scores, labels, dtype
        self.narrow = scores.shape[1] <= NARROW_CLASSES
        self.axis = 0 if self.narrow else 1
        self.expand: Any = np.s_[None, :] if self.narrow else np.s_[:, None]
        self.out = RowSummary.empty(len(scores))
        self.ones = np.ones(scores.shape[1], dtype=dtype)
        if predicted is not None:
            self.out.predicted[:] = predicted

    def laid_out(self, rows: slice, buffers: Float) -> tuple[Float, Float]:
        """The chunk, (K, n) or (n, K), copied to the first buffer if need be; the second buffer."""
        chunk = self.scores[rows].T if self.narrow else self.scores[rows]
        work, other = (buffer[: chunk.size].reshape(chunk.shape) for buffer in buffers)
        if chunk.dtype == self.dtype and chunk.flags.c_contiguous:
            return chunk, other
        np.copyto(work, chunk)
        return work, other

    def flat_index(self, classes: Int, num_classes: int) -> Int:
        """Positions of one class per row in a raveled chunk of either layout."""
        if self.narrow:
            return classes * len(classes) + np.arange(len(classes))
        return np.arange(len(classes)) * num_classes + classes

    def find_top(self, work: Float, rows: slice) -> Int:
        """Positions in ``work.ravel()`` of the predicted classes, found here if there are few."""
        top, num_classes = self.out.predicted[rows], self.scores.shape[1]
        if self.narrow:  # NumPy's argmax is slow across rows; a maximum of bytes is fast
            falling = np.arange(num_classes, 0, -1, dtype=np.uint8)[:, None]  # the first wins
            first = ((work == work.max(axis=0)) * falling).max(axis=0)
            np.subtract(num_classes, first, out=top, dtype=np.int64, casting="unsafe")
        return self.flat_index(top, num_classes)

    def labels_of(self, rows: slice) -> Int:
        """Labels of a chunk; without labels, what was predicted."""
        return self.out.predicted[rows] if self.labels is None else self.labels[rows]

    def row_sum(self, a: Float) -> Float:
        """Sum over the classes; in float32 in parts, as equal terms round in the same direction."""
        if self.narrow and self.dtype == np.float64:
            # Class by class, as the definition adds them: ties of s are then those of its value.
            return functools.reduce(np.add, a[1:], a[0].copy())
        if self.narrow:
            return _tree_sum(a)
        if self.dtype == np.float64:
            total: Float = a.sum(axis=1)
            return total
        full = a.shape[1] - a.shape[1] % PART
        rest: Float = np.vecdot(a[:, full:], self.ones[full:])  # faster than sum()
        if not full:
            return rest
        parts = np.vecdot(a[:, :full].reshape(len(a), -1, PART), self.ones[:PART])
        return _tree_sum(parts.T.astype(np.float64)) + rest

    def row_dot(self, a: Float, b: Float) -> Float:
        """Sum over the classes of the product."""
        dot: Float = self.row_sum(a * b) if self.narrow else np.vecdot(a, b)
        return dot


def _tree_sum(a: Float) -> Float:
    """Sum of (K, n) over the classes, halves first.

    Whole rows of the matrix are added: NumPy's own reduction adds in another order when n is 1, and
    what a sample gives must not depend on its neighbours.
    """
    total = a
    while len(total) > 1:
        half = len(total) // 2
        odd = total[2 * half :]
        out = total[:half] if total is not a else None
        total = np.add(total[:half], total[half : 2 * half], out=out)
        if len(odd):
            total[:1] += odd
    found: Float = total[0]
    return found


class LogitSweep(_Sweep):
    """With e_j = exp(z_j - base): sums over j != t of e_j, e_j^2 and e_j log e_j.

    In float64 ``base`` is the top logit; in float32 it is 0, or the runner-up's logit.
    """

    def __init__(
        self, scores: Float, labels: Int | None, dtype: np.dtype[Any], predicted: Int | None
    ) -> None:
        super().__init__(scores, labels, dtype, predicted)
        self.top, self.label, self.base, self.total, self.squares, self.weighted = np.empty(
            (6, len(scores)), dtype=dtype
        )

    def fill(self, rows: slice, buffers: Float) -> Float:
        """Add up a chunk; return its exponentials.

        Few calls, each over the whole chunk: short ones between them would keep the other threads
        waiting for the interpreter lock. The rest is done for all rows at once, in ``finish``.
        """
        work, exp = self.laid_out(rows, buffers)
        top_at, flat = self.find_top(work, rows), work.ravel()
        self.top[rows] = flat[top_at]
        self.label[rows] = flat[self.flat_index(self.labels_of(rows), self.scores.shape[1])]
        if self.dtype == np.float64:
            self.base[rows] = self.top[rows]
            target = buffers[0][: work.size].reshape(work.shape)
            with np.errstate(over="ignore"):  # -inf where logits lie 1e308 apart
                work = np.subtract(work, self.top[rows][self.expand], out=target)
        else:
            self.base[rows] = 0
        with np.errstate(over="ignore"):
            np.exp(work, out=exp)
        exp.ravel()[top_at] = 0
        sums = self.add_up(exp, work)
        if self.dtype == np.float32:
            fits = (np.abs(self.top[rows]) <= LARGEST_LOGIT) & (sums[0] >= SMALLEST_TOTAL)
            bad = np.flatnonzero(~(fits & np.isfinite(sums[2])))
            if len(bad):
                self.shift(work, exp, bad, rows, sums)
        elif not np.isfinite(sums[2]).all():
            sums = self.add_up(exp, np.maximum(work, LOWEST_EXPONENT))
        self.total[rows], self.squares[rows], self.weighted[rows] = sums
        return exp

    def add_up(self, exp: Float, logs: Float) -> list[Float]:
        """Sums over the classes of e, e^2 and e log e."""
        with np.errstate(invalid="ignore", over="ignore"):  # these rows are recomputed with a shift
            return [self.row_sum(exp), self.row_dot(exp, exp), self.row_dot(exp, logs)]

    def shift(self, work: Float, exp: Float, bad: Int, rows: slice, sums: list[Float]) -> None:
        """Recompute the ``bad`` rows of a chunk relative to their runner-up."""
        pick = np.s_[:, bad] if self.narrow else np.s_[bad, :]
        logits = work[pick]
        tops = self.out.predicted[rows][bad]
        each = np.arange(len(bad))
        logits[(tops, each) if self.narrow else (each, tops)] = -np.inf
        base = logits.max(axis=self.axis)
        base = np.where(base == -np.inf, self.top[rows][bad], base)  # all others are -inf: s = 0
        logits -= base[self.expand]
        again = np.exp(logits)
        redone = self.add_up(again, np.maximum(logits, LOWEST_EXPONENT, out=logits))
        for column, value in zip(sums, redone, strict=True):
            column[bad] = value
        self.base[rows][bad] = base
        exp[pick] = again

    def scale(self, rows: slice) -> Float64:
        """What the exponentials of these rows are multiplied by to give probabilities."""
        factor = np.exp(self.base[rows].astype(np.float64) - self.top[rows])
        scale: Float64 = factor / (1 + factor * self.total[rows])
        return scale

    def finish(self) -> RowSummary:
        """Turn the sums of all rows into the per-sample quantities."""
        np.equal(self.out.predicted, self.labels_of(slice(None)), out=self.out.correct)

        def work(slices: Iterator[slice]) -> None:
            for rows in slices:
                self._finish(rows)

        over_chunks(work, len(self.scores), ROW_COST)
        return self.out

    def _finish(self, rows: slice) -> None:
        out, correct = self.out, self.out.correct[rows]
        top, total = self.top[rows].astype(np.float64), self.total[rows]
        gap = self.base[rows] - top
        factor = np.exp(gap)
        odds = factor * total
        confidence = 1 / (1 + odds)
        log_norm = np.log1p(odds)
        with np.errstate(over="ignore"):
            label_log_odds = self.label[rows] - top
        label_odds = np.exp(label_log_odds)
        squares = factor**2 * self.squares[rows]
        # sum_j (p_j - [j = y])^2 = (1 - p_y)^2 + sum_{j != y} p_j^2, in odds p_j / p_t. When the
        # prediction is right, 1 - p_y is odds * confidence: nothing cancels.
        miss = np.where(correct, odds, 1 + odds - label_odds)
        rest = np.where(correct, squares, 1 + squares - label_odds**2)
        log_moment = factor * (self.weighted[rows] + gap * total)
        out.odds[rows] = odds
        out.confidence[rows] = confidence
        out.label_log_prob[rows] = label_log_odds - log_norm
        out.label_prob[rows] = label_odds * confidence
        out.brier[rows] = (miss**2 + rest) * confidence**2
        most = np.log(self.scores.shape[1])  # rounding must not exceed it
        out.entropy[rows] = np.clip(log_norm - confidence * log_moment, 0, most)


class ProbSweep(_Sweep):
    """Probabilities: everything is read off directly, in float64.

    Equal confidences are ties, so the odds come from the confidence; where that is 1 but for
    rounding, from the sum of the other classes.
    """

    def __init__(
        self,
        scores: Float,
        labels: Int | None,
        dtype: np.dtype[Any],
        predicted: Int | None,
        total: Float64,
    ) -> None:
        super().__init__(scores, labels, dtype, predicted)
        self.total = total

    def fill(self, rows: slice, buffers: Float) -> Float:
        """Write the columns of a chunk; return its probabilities without the predicted class."""
        given, logs = self.laid_out(rows, buffers)
        probs: Float = buffers[0][: given.size].reshape(given.shape)
        np.minimum(np.divide(given, self.total[rows][self.expand], out=probs), 1, out=probs)
        top_at, flat = self.find_top(probs, rows), probs.ravel()
        label_prob = flat[self.flat_index(self.labels_of(rows), self.scores.shape[1])]
        confidence = flat[top_at]
        logs[...] = 0
        np.log(probs, out=logs, where=probs > 0)
        out = self.out
        out.entropy[rows] = np.clip(-self.row_dot(probs, logs), 0, np.log(self.scores.shape[1]))
        flat[top_at] = 0
        rest = self.row_sum(probs)
        squares = self.row_dot(probs, probs)
        correct = out.predicted[rows] == self.labels_of(rows)
        miss = np.where(correct, rest, 1 - label_prob)
        others = np.where(correct, squares, confidence**2 + squares - label_prob**2)
        out.correct[rows] = correct
        out.confidence[rows] = confidence
        doubt = 1 - confidence
        out.odds[rows] = np.where(doubt < FAINT, rest, doubt) / confidence
        out.label_prob[rows] = label_prob
        out.brier[rows] = miss**2 + others
        with np.errstate(divide="ignore"):
            out.label_log_prob[rows] = np.log(label_prob)
        return probs

    def scale(self, rows: slice) -> Float64:
        """Probabilities need no scaling."""
        return np.ones(rows.stop - rows.start)

    def finish(self) -> RowSummary:
        """Everything has been written by ``fill``."""
        return self.out
