"""One pass over the rows of a score matrix: everything the metrics need, at O(N) memory.

For each row let ``t`` be the predicted class (the first of equals) and

    s = sum_{j != t} exp(z_j - z_t)         the odds against the prediction,

so that confidence = 1 / (1 + s). Keeping ``s`` instead of the confidence keeps the ranking of
samples when every confidence prints as 1.0.

Precision. In float32 the difference z_j - z_t loses digits when it is large, which is exactly when
``s`` is tiny. So float32 rows are shifted by their runner-up r: s = exp(z_r - z_t) * S with
S = sum_{j != t} exp(z_j - z_r), where the terms that matter have small exponents, and the factor
is taken in float64. ``s`` is then right to about 3e-7 relative down to 1e-300.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant._arrays import Bool, Float, Float64, Int, chunk_rows, over_chunks

Kind = Literal["logits", "probs"]

# With few classes a chunk is turned on its side, (K, n): reductions over a long axis 0 run at full
# vector speed, reductions over an axis 1 of ten entries do not.
NARROW_CLASSES = 32
# With a handful of classes equal rows are common and the pass is cheap: float64 throughout, so
# that ties of s are ties of the float64 value.
EXACT_CLASSES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """What one chunk of rows says. ``others`` is valid only until the next block is made.

    The probability of a class j that was not predicted is ``others_j * others_scale``.
    """

    rows: slice
    scores: Float
    labels: Int
    top: Int
    odds: Float64
    confidence: Float64
    correct: Bool
    label_log_prob: Float64
    label_prob: Float64
    brier: Float64
    entropy: Float64
    others: Float
    others_scale: Float64
    narrow: bool

    def probs_again(self, rows: Int, classes: Int) -> Float64:
        """Probabilities of a few entries in float64, from logits."""
        logits = self.scores[rows, classes].astype(np.float64)
        top_logits = self.scores[rows, self.top[rows]].astype(np.float64)
        return np.exp(logits - top_logits) * self.confidence[rows]


def flat_index(classes: Int, shape: tuple[int, ...], *, narrow: bool) -> Int:
    """Positions of one class a row in a raveled chunk of either layout."""
    if narrow:
        return classes * shape[1] + np.arange(shape[1])
    return np.arange(shape[0]) * shape[1] + classes


def each_block(
    scores: Float, labels: Int, kind: Kind, consume: Callable[[], Callable[[Block], Any]]
) -> list[Any]:
    """Feed every block to consumers, one consumer a thread; return the consumers.

    ``consume`` makes a consumer. Consumers that write disjoint rows, or add integers, give results
    that do not depend on the number of threads.
    """

    def work(slices: Iterator[slice]) -> Callable[[Block], Any]:
        consumer = consume()
        for block in blocks(scores, labels, kind, slices):
            consumer(block)
        return consumer

    return over_chunks(work, *scores.shape)


def blocks(scores: Float, labels: Int, kind: Kind, slices: Iterator[slice]) -> Iterator[Block]:
    """Yield the block of each row range, reusing two chunk-sized buffers."""
    num_rows, num_classes = scores.shape
    exact = kind == "probs" or scores.dtype == np.float64 or num_classes <= EXACT_CLASSES
    size = min(num_rows, chunk_rows(num_classes)) * num_classes
    buffers = np.empty((2, size), dtype=np.float64 if exact else np.float32)
    narrow = num_classes <= NARROW_CLASSES
    make = _block_of_probs if kind == "probs" else _block_of_logits
    for rows in slices:
        yield make(scores[rows], labels[rows], rows, buffers, narrow=narrow)


def _block_of_logits(
    chunk: Float, labels: Int, rows: slice, buffers: Float, *, narrow: bool
) -> Block:
    work, exp = _laid_out(chunk, buffers, narrow=narrow)
    axis, expand = (0, np.s_[None, :]) if narrow else (1, np.s_[:, None])
    top, top_logit = _argmax(work, narrow=narrow)
    flat, top_at = work.ravel(), flat_index(top, work.shape, narrow=narrow)
    label_logit = flat[flat_index(labels, work.shape, narrow=narrow)]
    flat[top_at] = -np.inf
    base = top_logit if work.dtype == np.float64 else work.max(axis=axis)
    base = np.where(base == -np.inf, top_logit, base)  # every other logit is -inf: s = 0
    np.subtract(work, base[expand], out=work)
    np.exp(work, out=exp)
    total = exp.sum(axis=axis).astype(np.float64)
    squares = _row_dot(exp, exp, narrow=narrow)
    flat[top_at] = 0
    weighted = _row_dot(exp, work, narrow=narrow)
    if not np.isfinite(weighted).all():  # 0 * -inf at logits of -inf; exp is 0 below -800 anyway
        np.maximum(work, -800, out=work)
        weighted = _row_dot(exp, work, narrow=narrow)

    wide_top = top_logit.astype(np.float64)
    gap = base - wide_top
    factor = np.exp(gap)
    return _finish(
        rows, chunk, labels, top, exp, narrow=narrow,
        odds=factor * total,
        others_scale=factor,
        label_log_odds=label_logit.astype(np.float64) - wide_top,
        squares=factor**2 * squares,
        log_moment=factor * (weighted + gap * total),
    )  # fmt: skip


def _block_of_probs(
    chunk: Float, labels: Int, rows: slice, buffers: Float, *, narrow: bool
) -> Block:
    ratio, logs = _laid_out(chunk, buffers, narrow=narrow)
    axis, expand = (0, np.s_[None, :]) if narrow else (1, np.s_[:, None])
    top, top_prob = _argmax(ratio, narrow=narrow)
    flat, top_at = ratio.ravel(), flat_index(top, ratio.shape, narrow=narrow)
    np.divide(ratio, top_prob[expand], out=ratio)
    with np.errstate(divide="ignore"):
        label_log_odds = np.log(flat[flat_index(labels, ratio.shape, narrow=narrow)])
    flat[top_at] = 0
    logs[...] = 0
    np.log(ratio, out=logs, where=ratio > 0)
    return _finish(
        rows, chunk, labels, top, ratio, narrow=narrow,
        odds=ratio.sum(axis=axis),
        others_scale=np.ones(len(labels)),
        label_log_odds=label_log_odds,
        squares=_row_dot(ratio, ratio, narrow=narrow),
        log_moment=_row_dot(ratio, logs, narrow=narrow),
    )  # fmt: skip


def _finish(
    rows: slice, scores: Float, labels: Int, top: Int, others: Float, *, narrow: bool, odds: Float64,
    others_scale: Float64, label_log_odds: Float64, squares: Float64, log_moment: Float64,
) -> Block:  # fmt: skip
    """Turn sums over the classes not predicted into the per-sample quantities.

    With odds o_j = p_j / p_t: ``odds`` = sum o_j, ``squares`` = sum o_j^2 and
    ``log_moment`` = sum o_j log o_j, each over j != t.
    """
    confidence = 1 / (1 + odds)
    log_norm = np.log1p(odds)
    correct = top == labels
    label_log_prob = label_log_odds - log_norm
    label_prob = np.exp(label_log_odds) * confidence
    # sum_j (p_j - [j = y])^2. When the prediction is right, 1 - p_y = odds * confidence exactly.
    miss = np.where(correct, odds * confidence, 1 - label_prob)
    rest = np.where(correct, confidence**2 * squares, confidence**2 * (1 + squares) - label_prob**2)
    return Block(
        rows, scores, labels, top, odds, confidence, correct, label_log_prob, label_prob,
        brier=miss**2 + rest,
        entropy=np.maximum(log_norm - confidence * log_moment, 0),
        others=others, others_scale=others_scale * confidence, narrow=narrow,
    )  # fmt: skip


def _laid_out(chunk: Float, buffers: Float, *, narrow: bool) -> tuple[Float, Float]:
    """Copy the chunk into the first buffer, (K, n) or (n, K); shape the second alike."""
    num_rows, num_classes = chunk.shape
    shape = (num_classes, num_rows) if narrow else (num_rows, num_classes)
    work, other = (buffer[: chunk.size].reshape(shape) for buffer in buffers)
    np.copyto(work, chunk.T if narrow else chunk)
    return work, other


def _argmax(work: Float, *, narrow: bool) -> tuple[Int, Float]:
    if not narrow:
        top = work.argmax(axis=1)
        return top, work[np.arange(len(top)), top]
    largest = work.max(axis=0)
    return (work == largest).argmax(axis=0), largest  # NumPy's argmax is slow across rows


def _row_dot(a: Float, b: Float, *, narrow: bool) -> Float64:
    with np.errstate(invalid="ignore"):  # 0 * -inf, mended by the caller
        dot = np.einsum("kn,kn->n", a, b) if narrow else np.vecdot(a, b)
    return dot.astype(np.float64)


class RowSummary:
    """The O(N) columns every metric but the classwise ones is made from."""

    __slots__ = ("brier", "confidence", "correct", "entropy", "label_log_prob", "odds", "predicted")

    def __init__(self, num_rows: int) -> None:
        self.predicted: Int = np.empty(num_rows, dtype=np.int64)
        self.correct: Bool = np.empty(num_rows, dtype=np.bool_)
        for name in ("odds", "confidence", "label_log_prob", "brier", "entropy"):
            setattr(self, name, np.empty(num_rows))

    odds: Float64
    confidence: Float64
    label_log_prob: Float64
    brier: Float64
    entropy: Float64

    def __call__(self, block: Block) -> None:
        """Write the block's rows."""
        rows = block.rows
        self.predicted[rows] = block.top
        self.correct[rows] = block.correct
        self.odds[rows] = block.odds
        self.confidence[rows] = block.confidence
        self.label_log_prob[rows] = block.label_log_prob
        self.brier[rows] = block.brier
        self.entropy[rows] = block.entropy


def summarise(scores: Float, labels: Int, kind: Kind) -> RowSummary:
    """Make the O(N) columns of a score matrix in one pass."""
    summary = RowSummary(len(labels))
    each_block(scores, labels, kind, lambda: summary)
    return summary


def log_normalise(scores: Float, kind: Kind) -> NDArray[Any]:
    """Log-probabilities of the whole matrix, row chunk by row chunk; float32 stays float32."""
    out = np.empty(scores.shape, dtype=np.float64 if scores.dtype == np.float64 else np.float32)

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            chunk = scores[rows].astype(np.float64)
            if kind == "probs":
                with np.errstate(divide="ignore"):
                    out[rows] = np.log(chunk / chunk.sum(axis=1, keepdims=True))
                continue
            chunk -= chunk.max(axis=1, keepdims=True)
            out[rows] = chunk - np.log(np.exp(chunk).sum(axis=1, keepdims=True))

    over_chunks(work, *scores.shape)
    return out
