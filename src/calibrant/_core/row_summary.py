"""One pass over the rows of a score matrix: everything the metrics need, in O(N) memory.

For each row let ``t`` be the predicted class (the first of equals) and

    s = sum_{j != t} exp(z_j - z_t)         the odds against the prediction,

so that confidence = 1 / (1 + s). Keeping ``s`` instead of the confidence keeps the ranking of
samples when every confidence prints as 1.0.

Precision. In float32 the difference z_j - z_t loses digits when it is large, which is exactly when
``s`` is tiny. So no such difference is taken: s = exp(b - z_t) * S with the factor in float64 and
S = sum_{j != t} exp(z_j - b). The base b is 0 for rows whose exponentials stay well inside float32,
which is nearly all and needs no subtraction, and the runner-up's logit for the others. ``s`` is
then right to about 3e-7 relative, down to 1e-300; in NumPy to 6e-7 where many terms are equal and
so round in the same direction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant._core import compiled_sweeps
from calibrant._core.arrays import Float, Float64, Int, chunk_rows, over_chunks, row_slices
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_sweeps import ClassTables
from calibrant._core.map_rows import MapRows
from calibrant._core.row_sweeps import (
    FAINT,
    NARROW_CLASSES,
    LogitSweep,
    ProbSweep,
    RowSummary,
    TopLabel,
)

ScoreKind = Literal["logits", "probs"]
# With few classes, equal rows are common and the pass is cheap: float64 throughout, so
# that ties of s are ties of the float64 value.
EXACT_CLASSES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A chunk of rows while its matrix is in the cache; ``others`` may be overwritten.

    The probability of a class j that was not predicted is ``others_j * scale``; the entry of the
    predicted class is 0. ``others`` is (K, n) where ``narrow``, else (n, K).
    """

    rows: slice
    others: Float
    scale: Float64
    narrow: bool


Consumer = Callable[[Block], None]
Made = TypeVar("Made", bound=Consumer)


def summarise_rows(
    scores: Float,
    labels: Int | None,
    kind: ScoreKind,
    predicted: Int | None = None,
    consume: Callable[[], Made] | None = None,
    *,
    total: Float64 | None = None,
    threads: int | None = None,
) -> tuple[RowSummary, list[Made]]:
    """Compute the O(N) columns of a score matrix in one pass.

    ``predicted`` (with many classes) and ``total`` (sums of rows of probabilities) are what the
    checks found. Without labels, the columns of the label are those of the predicted
    class. The columns come from the compiled kernels where they are in use, blocks from NumPy.

    ``consume`` makes a consumer of blocks, one per thread; they are returned. Consumers that add
    whole numbers, or write to their own rows, give results that no number of threads changes.
    """
    rows = compiled_rows()
    if rows is not None:
        if kind == "probs" and total is None:
            total = row_totals(scores)
        columns, _ = _compiled(rows, scores, labels, predicted, total)
        if consume is None:
            return columns, []
        consumers = _sweep(scores, labels, kind, columns.predicted, consume, total, threads)[1]
        return columns, consumers
    return _sweep(scores, labels, kind, predicted, consume, total, threads)


def top_of_maps(maps: MapRows, labels: Int | None) -> TopLabel | None:
    """The top-label columns of maps of few classes; None without compiled kernels."""
    rows = compiled_rows()
    return None if rows is None else compiled_sweeps.sweep_top(rows, maps, labels)


def class_tables(
    scores: Float,
    labels: Int,
    predicted: Int | None,
    total: Float64 | None,
    bins: int,
) -> tuple[RowSummary, ClassTables] | None:
    """The columns and the classwise tables in one pass; None without compiled kernels."""
    rows = compiled_rows()
    if rows is None:
        return None
    return _compiled(rows, scores, labels, predicted, total, bins)


def _compiled(
    rows: Any,
    scores: Float,
    labels: Int | None,
    predicted: Int | None,
    total: Float64 | None,
    bins: int = 0,
) -> tuple[RowSummary, ClassTables]:
    if total is None:
        return compiled_sweeps.sweep_logits(rows, scores, labels, bins)[:2]
    known = (predicted, snapped(total))
    return compiled_sweeps.sweep_probs(rows, scores, labels, known, bins)


def _sweep(
    scores: Float,
    labels: Int | None,
    kind: ScoreKind,
    predicted: Int | None,
    consume: Callable[[], Made] | None,
    total: Float64 | None,
    threads: int | None,
) -> tuple[RowSummary, list[Made]]:
    """The reference: NumPy on one chunk after another."""
    num_rows, num_classes = scores.shape
    exact = kind == "probs" or scores.dtype == np.float64 or num_classes <= EXACT_CLASSES
    dtype = np.dtype(np.float64 if exact else np.float32)
    sweep: LogitSweep | ProbSweep
    if kind == "probs":
        total = row_totals(scores) if total is None else total
        sweep = ProbSweep(scores, labels, dtype, predicted, snapped(total))
    else:
        sweep = LogitSweep(scores, labels, dtype, predicted)
    # Larger chunks than elsewhere: after each of some twenty short calls for a chunk, the threads
    # may wait for the interpreter lock.
    step = 3 * chunk_rows(num_classes) // 2
    size = min(num_rows, step) * num_classes

    def work(slices: Iterator[slice]) -> Made | None:
        consumer = consume() if consume else None
        buffers = np.empty((2, size), dtype=dtype)
        for rows in slices:
            others = sweep.fill(rows, buffers)
            if consumer:
                consumer(Block(rows, others, sweep.scale(rows), sweep.narrow))
        return consumer

    made = over_chunks(work, num_rows, num_classes, threads=threads, step=step, shared=True)
    consumers = [consumer for consumer in made if consumer]
    return sweep.finish(), consumers


def predict_and_check(logits: Float) -> tuple[Int | None, int | None]:
    """Predicted classes, and the first row whose largest logit is not finite.

    NaN counts as largest, so that finds every NaN, +inf and row of -inf. With few classes argmax is
    slow; the extremes of a chunk then tell whether a closer look is needed, and the predicted
    classes are left for later (None). Compiled kernels find them when they need them.
    """
    rows = compiled_rows()
    if rows is not None:
        return None, compiled_sweeps.check_logits(rows, logits)
    num_rows, num_classes = logits.shape
    wide = num_classes > NARROW_CLASSES
    predicted = np.empty(num_rows, dtype=np.int64) if wide else None

    def work(slices: Iterator[slice]) -> int | None:
        for rows in slices:
            chunk = logits[rows]
            if predicted is not None:
                chunk.argmax(axis=1, out=predicted[rows])
                top = chunk[np.arange(len(chunk)), predicted[rows]]
            elif np.isfinite(chunk.min()) and np.isfinite(chunk.max()):
                continue
            else:
                top = chunk.max(axis=1)
            bad = np.flatnonzero(~np.isfinite(top))
            if len(bad):
                return int(rows.start + bad[0])
        return None

    parts = over_chunks(work, num_rows, num_classes, shared=True)
    return predicted, min((row for row in parts if row is not None), default=None)


def row_totals(probs: Float) -> Float64:
    """Sums of rows in float64, the same for a row whatever its neighbours and their layout."""
    with np.errstate(over="ignore", invalid="ignore"):  # validation refuses the sums of infinities
        if probs.shape[1] <= NARROW_CLASSES:
            wide = (column.astype(np.float64) for column in probs.T)
            return functools.reduce(np.add, wide)
        total: Float64 = np.ascontiguousarray(probs).sum(axis=1, dtype=np.float64)
    return total


def top_of_probs(probs: Float, labels: Int | None, predicted: Int, total: Float64) -> TopLabel:
    """The top-label columns of probabilities whose predicted classes and row sums are known."""
    total = snapped(total)
    top = probs[np.arange(len(probs)), predicted].astype(np.float64)
    confidence = np.minimum(top / total, 1)
    doubt = 1 - confidence
    faint = np.flatnonzero(doubt < FAINT)
    for part in row_slices(len(faint), probs.shape[1]):
        rows = faint[part]
        others = probs[rows].astype(np.float64) / total[rows, None]
        others[np.arange(len(rows)), predicted[rows]] = 0
        doubt[rows] = others.sum(axis=1)
    correct = np.ones(len(probs), dtype=np.bool_) if labels is None else predicted == labels
    return TopLabel(predicted, correct, doubt / confidence, confidence)


def entry_probs(
    scores: Float, total: Float64 | None, summary: RowSummary, rows: Int, classes: Int
) -> Float64:
    """Probabilities of single entries (row, class) in float64; ``total`` is None for logits."""
    entry = scores[rows, classes].astype(np.float64)
    if total is not None:
        return np.minimum(entry / snapped(total)[rows], 1)
    top = scores[rows, summary.predicted[rows]].astype(np.float64)
    return np.exp(entry - top) * summary.confidence[rows]


def snapped(total: Float) -> Float64:
    """Row sums of probabilities, with those that are 1 but for rounding set to 1.

    So 0.2 stays 0.2, on its bin edge, though 0.1 + 0.2 + 0.7 is not 1 in floating point.
    """
    return np.where(np.abs(total - 1) < 1e-12, 1.0, total)  # noqa: PLR2004


def odds_against(scores: Float, kind: ScoreKind, column: int) -> Float64:
    """The sum over other classes of p_j / p_k, with all digits: P(k) is 1 / (1 + odds)."""
    odds = np.empty(len(scores))
    others = np.arange(scores.shape[1]) != column
    with np.errstate(over="ignore", divide="ignore"):
        for rows in row_slices(*scores.shape):
            part = scores[rows].astype(np.float64)
            if kind == "logits":
                rest = part[:, others]
                top = rest.max(axis=1)
                finite = np.where(np.isfinite(top), top, 0.0)
                total = np.exp(rest - finite[:, None]).sum(axis=1)
                own = part[:, column]
                with np.errstate(invalid="ignore"):
                    odds[rows] = np.where(top == -np.inf, 0.0, total * np.exp(finite - own))
            else:
                odds[rows] = part[:, others].sum(axis=1) / part[:, column]
    return odds


def log_normalise(scores: Float, kind: ScoreKind) -> NDArray[Any]:
    """Log-probabilities of the whole matrix, row chunk by row chunk; float32 stays float32."""
    out = np.empty(scores.shape, dtype=np.float64 if scores.dtype == np.float64 else np.float32)

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            chunk = scores[rows].astype(np.float64)
            if kind == "probs":
                with np.errstate(divide="ignore"):
                    out[rows] = np.log(chunk / snapped(chunk.sum(axis=1, keepdims=True)))
                continue
            chunk -= chunk.max(axis=1, keepdims=True)
            out[rows] = chunk - np.log(np.exp(chunk).sum(axis=1, keepdims=True))

    over_chunks(work, *scores.shape)
    return out
