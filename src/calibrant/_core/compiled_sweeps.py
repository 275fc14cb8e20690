"""The compiled sweeps over rows of scores: chunks of rows in, columns and tables out.

The NumPy code in ``row_sweeps`` is the reference. Arrays are put into a form that the extension
takes before they are handed over, and the extension checks them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float, Float64, Int, over_chunks
from calibrant._core.brain_rows import BrainRows
from calibrant._core.map_rows import MapRows, parts_of
from calibrant._core.row_sweeps import NARROW_CLASSES, RowSummary, TopLabel

# With more cells than this, one thread fills the tables: each thread has its own.
SHARED_CELLS = 1 << 20
# Compiled sweeps take about this part of NumPy's time.
LIGHT = 4
NO_TABLES = (0, None, None, None)


@dataclass(frozen=True, slots=True)
class ClassTables:
    """Of every class and bin (K * bins,): entries, probabilities in units of 2^-30, labels.

    The first bin's entries are not counted, as they follow from the number of rows.
    """

    count: Int
    units: Int
    hits: Int

    @classmethod
    def zeros(cls, cells: int) -> ClassTables:
        """Tables to be filled."""
        return cls(*np.zeros((3, cells), dtype=np.int64))

    def add(self, other: ClassTables) -> None:
        """Add the tables of other rows."""
        np.add(self.count, other.count, out=self.count)
        np.add(self.units, other.units, out=self.units)
        np.add(self.hits, other.hits, out=self.hits)


def check_logits(rows: Any, scores: Float) -> int | None:
    """The first bad row."""
    return _first_bad(lambda part: int(rows.check_logits(_entries(scores, part))), scores)


def check_probs(rows: Any, probs: Float) -> tuple[Int, Float64, int | None]:
    """Predicted classes, sums of rows, and the first bad row."""
    predicted = np.empty(len(probs), dtype=np.int64)
    sums = np.empty(len(probs))

    def check(part: slice) -> int:
        return int(rows.check_probs(dense(probs[part]), sums[part], predicted[part]))

    return predicted, sums, _first_bad(check, probs)


def _first_bad(check: Callable[[slice], int], scores: Float) -> int | None:
    def work(slices: Iterator[slice]) -> int | None:
        for part in slices:
            bad = check(part)
            if bad >= 0:
                return int(part.start) + bad
        return None

    parts = over_chunks(work, *scores.shape, light=LIGHT, shared=True)
    return min((row for row in parts if row is not None), default=None)


def sweep_logits(
    rows: Any, logits: Float, labels: Int | None, bins: int = 0
) -> tuple[RowSummary, ClassTables, int | None]:
    """The columns of logits, with ``bins`` also their classwise tables, and the first bad row."""
    out, bad = RowSummary.empty(len(logits)), []

    def sweep(part: slice, tables: ClassTables) -> None:
        given = None if labels is None else labels[part]
        arguments = (bins, tables.count, tables.units, tables.hits) if bins else NO_TABLES
        found = rows.logits(_entries(logits, part), given, *_parts(out, part), *arguments)
        if found >= 0:
            bad.append(int(part.start) + found)

    tables = _over_tables(sweep, logits.shape, bins)
    return out, tables, min(bad, default=None)


def sweep_top(rows: Any, maps: MapRows, labels: Int | None) -> TopLabel:
    """The columns of the predicted class alone, of checked maps of few classes.

    New memory for the others takes longer than to compute them. Positions that are left out are
    skipped where they lie.
    """
    images, classes, size = maps.maps.shape
    odds, confidence = np.empty((2, len(maps)))
    predicted, correct = np.empty(len(maps), dtype=np.int64), np.empty(len(maps), dtype=np.bool_)

    def work(slices: Iterator[slice]) -> None:
        for image, part in (each for one in slices for each in parts_of(one, size)):
            begin = image * size + part.start
            if maps.left is None:
                at = slice(begin, begin + part.stop - part.start)
                some = np.arange(part.stop - part.start)
            else:
                ends = np.searchsorted(maps.left, (begin, begin + part.stop - part.start))
                at = slice(*ends)
                some = maps.left[at] - begin
            given = None if labels is None else labels[at]
            columns = predicted[at], correct[at], odds[at], confidence[at]
            rows.top(dense(maps.maps[image, :, part].T), some, given, *columns)

    over_chunks(work, images * size, classes, light=LIGHT, shared=True)
    return TopLabel(predicted, correct, odds, confidence)


def sweep_probs(
    rows: Any,
    probs: Float,
    labels: Int | None,
    known: tuple[Int | None, Float64],
    bins: int = 0,
) -> tuple[RowSummary, ClassTables]:
    """The columns of checked probabilities; with ``bins``, also their classwise tables.

    ``known`` are predicted classes, where the checks found them, and the sums of the rows.
    """
    predicted, total = known
    if probs.shape[1] > NARROW_CLASSES and predicted is None:
        predicted, _, _ = check_probs(rows, probs)
    out = RowSummary.empty(len(probs), predicted)

    def sweep(part: slice, tables: ClassTables) -> None:
        chunk = dense(probs[part])
        given = None if labels is None else labels[part]
        rows.probs(chunk, total[part], given, *_parts(out, part))
        if bins:
            columns = (out.predicted[part], out.confidence[part], out.label_prob[part])
            filled = (tables.count, tables.units, tables.hits)
            rows.cells(chunk, total[part], given, *columns, bins, *filled)

    return out, _over_tables(sweep, probs.shape, bins)


def _over_tables(
    sweep: Callable[[slice, ClassTables], None], shape: tuple[int, ...], bins: int
) -> ClassTables:
    """Sweep over chunks of rows, each thread with its own tables; return their sums."""
    num_rows, num_classes = shape

    def work(slices: Iterator[slice]) -> ClassTables:
        tables = ClassTables.zeros(num_classes * bins)
        for part in slices:
            sweep(part, tables)
        return tables

    threads = 1 if num_classes * bins > SHARED_CELLS else None
    made = over_chunks(work, num_rows, num_classes, threads=threads, light=LIGHT, shared=True)
    total = made[0]
    for other in made[1:]:
        total.add(other)
    return total


def tempered(rows: Any, chunk: Float, top: Float64, beta: float, *, exact: bool) -> list[Float64]:
    """For each row at inverse temperature beta: log sum exp, mean and variance of the logits."""
    out = list(np.empty((3, len(chunk))))
    rows.tempered(dense(chunk), np.ascontiguousarray(top), beta, exact, *out)
    return out


def _parts(out: RowSummary, part: slice) -> tuple[Any, ...]:
    """A range of all columns, in the order in which the extension takes them."""
    return (
        out.predicted[part],
        out.correct[part],
        out.odds[part],
        out.confidence[part],
        out.label_log_prob[part],
        out.label_prob[part],
        out.brier[part],
        out.entropy[part],
    )


def _entries(scores: Float, part: slice) -> Any:
    """A range of rows as the extension takes them: bfloat16 by its bits."""
    return dense(scores.bits[part] if isinstance(scores, BrainRows) else scores[part])


def dense(chunk: NDArray[Any]) -> NDArray[Any]:
    """The chunk with aligned entries, and dense rows where there are many classes."""
    size = chunk.itemsize
    stepped = all(step % size == 0 for step in chunk.strides)
    dense = chunk.shape[1] <= NARROW_CLASSES or chunk.strides[1] == size
    if dense and stepped and chunk.flags.aligned and chunk.dtype.isnative:
        return chunk
    return np.array(chunk, dtype=chunk.dtype.newbyteorder("="), order="C")
