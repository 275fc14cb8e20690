"""All metrics in bounded memory: update batch by batch, merge shards, read the result.

Every sum is an integer: counts, and values rounded to multiples of 2^-52. Adding integers is
associative and commutative, so any sharding, any order and any number of threads give bit-identical
results. Nothing overflows: up to 2^53 samples every count is exact, and more are rejected.

Accuracy, confidence, NLL, Brier, entropy, the equal-width family and classwise ECE equal the
in-memory values to 1e-9. Metrics that need a ranking (equal-mass bins, AUROC, AURC and similar,
smooth ECE) are read from a histogram of log s with 512 cells per octave, in which samples of one
cell count as ties; ``error_bounds`` bounds the resulting error on the given data.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from calibrant import io
from calibrant._core.arrays import Bool, Float64, Int, over_chunks
from calibrant._core.checks import (
    InputError,
    check_bins,
    check_choice,
    check_count,
    check_norm,
    refuse,
)
from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant._core.row_summary import ROW_COST
from calibrant.metrics._binning import Binning, BinSums, width_index
from calibrant.metrics._classwise import ClasswiseCounts, summarise_and_count
from calibrant.metrics._exact import ExactSums
from calibrant.metrics._limits import Histogram
from calibrant.metrics._registry import ENTROPY, LOSS, METRICS, SCORE
from calibrant.metrics._streamed import Streamed, slack
from calibrant.predictions import Predictions

# A float32 holds its exponent and the 9 leading bits of its fraction in its upper 18 bits: 512
# cells per octave of s without taking a logarithm. The cells cover 2^-126 <= s < 2^25; smaller s, 0
# included, go to the first cell.
CELLS_PER_OCTAVE = 512
NUM_CELLS = 151 * CELLS_PER_OCTAVE
_CELL_SHIFT = 14
_FIRST_CELL = 1 * CELLS_PER_OCTAVE  # exponent field 1 is 2^-126

# Values are added as high * 2^-26 + low * 2^-52 with whole high and low.
HALF_BITS = 26
HALF = 2.0**HALF_BITS
# bincount adds floats, exactly as long as sums of halves stay below 2^53.
MOST_AT_ONCE = 1 << 26
# Above this a term is summed with Python's integers, which never overflow.
LARGE = 2.0**20
# Counts up to this are exact also as floats.
MOST_SAMPLES = 1 << 53
# What float64 arithmetic may do to a value, relative to 1 or to the value if that is larger.
ROUNDING = 1e-9

STREAMS = {name: metric.stream for name, metric in METRICS.items() if metric.stream}


class _Cells:
    """Count and exact sum of confidence of the wrong and of the correct samples of each cell."""

    def __init__(self, cells: int) -> None:
        self.count: Int = np.zeros(2 * cells, dtype=np.int64)  # wrong, correct, wrong, …
        self.confidence = ExactSums((2 * cells,), 2 * HALF_BITS)

    def add(self, other: _Cells) -> None:
        """Add the counts of other samples."""
        self.count += other.count
        self.confidence.add(other.confidence)

    def add_samples(self, index: Int, correct: Bool, parts: tuple[Float64, Float64]) -> None:
        """Count samples by cell and correctness; ``parts`` are the halves of their confidences."""
        for start in range(0, len(index), MOST_AT_ONCE):
            rows = slice(start, start + MOST_AT_ONCE)
            self._add_some(index[rows] * 2 + correct[rows], parts[0][rows], parts[1][rows])

    def _add_some(self, index: Int, high: Float64, low: Float64) -> None:
        first = int(index.min())  # samples crowd into few cells: touch only those
        index = index - first
        counts = np.bincount(index)
        at = slice(first, first + len(counts))
        self.count[at] += counts
        highs = np.bincount(index, weights=high).astype(np.int64)
        self.confidence.whole[at] += highs >> HALF_BITS
        self.confidence.add_units((highs & (1 << HALF_BITS) - 1) << HALF_BITS, at)
        self.confidence.add_units(np.bincount(index, weights=low).astype(np.int64), at)

    def columns(self, cells: Int | slice = slice(None)) -> tuple[Float64, ...]:
        """Of the given cells: hits, misses, and the sums of confidence of either."""
        count = self.count.reshape(-1, 2)[cells].astype(np.float64)
        confidence = self.confidence.values.reshape(-1, 2)[cells]
        return count[:, 1], count[:, 0], confidence[:, 1], confidence[:, 0]

    @property
    def filled(self) -> Int:
        """Numbers of the cells that have samples."""
        return np.flatnonzero(self.count.reshape(-1, 2).any(axis=1))


class _Counts:
    """The whole numbers that one thread, batch or shard contributes.

    The histogram of log s is larger than a slab of rows, so it is filled once per batch:
    ``ranking`` holds what is to be counted into it.
    """

    def __init__(self, num_classes: int, bins: int, *, cells: int = 0) -> None:
        self.width = _Cells(bins)
        self.cells = _Cells(cells)
        self.ranking: list[tuple[Int, Bool, Float64, Float64]] = []
        self.totals: dict[str, int] = dict.fromkeys((LOSS, SCORE, ENTROPY), 0)
        self.impossible = 0  # labels of probability 0: the NLL is then infinite
        self.classwise = ClasswiseCounts(num_classes, bins)

    def add_rows(self, p: Predictions, bins: int) -> None:
        """Add a slab of predictions."""
        summary = summarise_and_count(p, self.classwise)
        parts = _halves(summary.confidence)
        self.width.add_samples(width_index(summary.confidence, bins), summary.correct, parts)
        self.ranking.append((cell_of(summary.odds), summary.correct, *parts))
        loss = -summary.label_log_prob
        self.totals[SCORE] += exact_sum(summary.brier)
        self.totals[ENTROPY] += exact_sum(summary.entropy)
        if p.num_samples and np.isinf(loss.max()):
            finite = loss[np.isfinite(loss)]
            self.impossible += len(loss) - len(finite)
            loss = finite
        self.totals[LOSS] += exact_sum(loss)

    def add(self, other: _Counts) -> None:
        """Add another's counts to these."""
        self.width.add(other.width)
        if other.cells.count.size:
            self.cells.add(other.cells)
        if other.ranking:
            cell, correct, high, low = map(np.concatenate, zip(*other.ranking, strict=True))
            self.cells.add_samples(cell, correct, (high, low))
        self.impossible += other.impossible
        for name, value in other.totals.items():
            self.totals[name] += value
        self.classwise.add(other.classwise)


def _halves(values: Float64) -> tuple[Float64, Float64]:
    """Split values into whole multiples of 2^-26 and whole multiples of 2^-52."""
    scaled = values * HALF
    high = np.floor(scaled)
    return high, np.rint((scaled - high) * HALF)


def exact_sum(values: Float64) -> int:
    """Sum of non-negative values, each rounded to a multiple of 2^-52, as a whole number of them.

    >>> exact_sum(np.array([0.5, 0.25])) == 3 * 2**50
    True
    """
    if len(values) and values.max() >= LARGE:
        large = values >= LARGE
        rest = sum(_units(value) for value in values[large].tolist())
        return rest + exact_sum(values[~large])
    high, low = _halves(values)
    return (int(high.sum()) << 26) + int(low.sum())


def _units(value: float) -> int:
    """A value of at least 2^20 in units of 2^-52, without overflow."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator << 52) // denominator


def cell_limits(cells: Int) -> tuple[Float64, Float64]:
    """Least and largest confidence in each of the cells.

    The odds were rounded to float32, which can move them across the edge of a cell.
    """

    def odds(number: Int) -> Float64:
        bits = ((number + _FIRST_CELL) << _CELL_SHIFT).astype(np.int32)
        return bits.view(np.float32).astype(np.float64)

    least = np.where(cells == 0, 0, odds(cells) * (1 - 2.0**-23))
    most = np.where(cells == NUM_CELLS - 1, np.inf, odds(cells + 1) * (1 + 2.0**-23))
    return 1 / (1 + most), 1 / (1 + least)


def cell_of(odds: Float64) -> Int:
    """Histogram cell of the odds against each prediction."""
    bits = odds.astype(np.float32).view(np.int32) >> _CELL_SHIFT
    cells: Int = np.clip(bits - _FIRST_CELL, 0, NUM_CELLS - 1).astype(np.int64)
    return cells


class Accumulator:
    """Accumulates the metrics of ``calibrant.measure`` in memory that does not grow with N.

    Parameters
    ----------
    num_classes
        Number of classes K; batches of another shape are rejected.
    bins
        Number of equal-width bins of the ECE family.

    Examples
    --------
    >>> from calibrant import Predictions
    >>> from calibrant.streaming import Accumulator
    >>> total = Accumulator(num_classes=2)
    >>> total.update(logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> total.update(Predictions(logits=[[3.0, 0.0]], labels=[1]))
    >>> round(total.result()["accuracy"], 4)
    0.6667
    """

    def __init__(self, num_classes: int, *, bins: int = 15) -> None:
        check_count("num_classes", num_classes, least=2, most=100_000_000, example=10)
        self._counts = _Counts(num_classes, check_bins(bins), cells=NUM_CELLS)
        self.num_classes = num_classes
        self.bins = bins

    @property
    def num_samples(self) -> int:
        """Samples seen."""
        return int(self._counts.width.count.sum())

    def update(
        self,
        predictions: Predictions | None = None,
        *,
        logits: Any = None,
        probs: Any = None,
        labels: Any = None,
    ) -> None:
        """Add a batch: Predictions, or arrays or tensors as ``Predictions`` takes them."""
        if predictions is None:
            if labels is None:
                raise refuse(
                    "labels",
                    "are required with logits or probs",
                    "got none",
                    "Pass labels=… of the batch.",
                )
            predictions = Predictions(logits=logits, probs=probs, labels=labels)
        self._check_classes(predictions)
        self._check_room(predictions.num_samples)

        def work(slices: Iterator[slice]) -> _Counts:
            counts = _Counts(self.num_classes, self.bins)
            for rows in slices:
                counts.add_rows(predictions._slab(rows), self.bins)
            return counts

        # A thread works through slabs small enough that all their columns stay in the cache.
        cost = max(self.num_classes, ROW_COST)
        for counts in over_chunks(work, predictions.num_samples, cost):
            self._counts.add(counts)

    def _check_classes(self, predictions: Predictions) -> None:
        if not isinstance(predictions, Predictions):
            rule, advice = "must be Predictions", "Or pass logits=… (or probs=…) and labels=…."
            raise refuse("batch", rule, f"got {type(predictions).__name__}", advice)
        if predictions.num_classes != self.num_classes:
            rule = f"must have {self.num_classes} classes, like the batches before"
            got = f"got {predictions.num_classes}"
            raise refuse("batch", rule, got, "Use one accumulator for each set of classes.")

    def _check_room(self, more: int) -> None:
        if self.num_samples + more > MOST_SAMPLES:
            rule = f"holds at most 2^53 = {MOST_SAMPLES:,} samples, so that every count is exact"
            got = f"got {more:,} beside {self.num_samples:,}"
            raise refuse("accumulator", rule, got, "Start another one.")

    def merge(self, other: Accumulator) -> Accumulator:
        """Merge another accumulator into this one, and return this one."""
        if (self.num_classes, self.bins) != (other.num_classes, other.bins):
            rule = f"must have {self.num_classes} classes and {self.bins} bins"
            got = f"got {other.num_classes} classes and {other.bins} bins"
            raise refuse("other", rule, got, "Merge accumulators of one kind.")
        self._check_room(other.num_samples)
        self._counts.add(other._counts)
        return self

    def histogram(self) -> Histogram:
        """The non-empty cells of the histogram of log s, from least to most confident."""
        self._need_samples()
        cells = self._counts.cells
        there = cells.filled[::-1]  # cells run from small s to large
        low, high = cell_limits(there)
        return Histogram(low, high, *cells.columns(there))

    def width_bins(self) -> BinSums:
        """The equal-width bins, as exact as in memory."""
        self._need_samples()
        hits, misses, right, wrong = self._counts.width.columns()
        return BinSums(hits + misses, right + wrong, hits, np.arange(self.bins + 1))

    def _streamed(self) -> Streamed:
        """What metrics are computed from."""
        scale = self.num_samples << 2 * HALF_BITS
        means = {name: total / scale for name, total in self._counts.totals.items()}
        if self._counts.impossible:
            means[LOSS] = math.inf
        return Streamed(means, self.width_bins(), self.histogram(), self._counts.classwise)

    def result(self, *, norm: float = 1, binning: Binning = "width") -> dict[str, float]:
        """Every metric of the panel, by name. ``norm`` and ``binning`` are those of ``ece``."""
        options = self._options(norm, binning)
        known = self._streamed()
        return {name: stream.value(known, options) for name, stream in STREAMS.items()}

    def _options(self, norm: float, binning: Binning) -> dict[str, Any]:
        check_choice("binning", binning, ("width", "mass"))
        self._need_samples()
        return {"bins": self.bins, "norm": check_norm(norm), "binning": binning}

    def error_bounds(self, *, norm: float = 1, binning: Binning = "width") -> dict[str, float]:
        """Largest possible difference of each value of ``result`` from the one computed in memory.

        The bounds always hold and are computed from the data: for each metric that is read from the
        histogram, from the smallest and the largest value that any order of the samples within
        their cells could give (smooth ECE: any confidences within the cells). They are tight when
        cells hold few samples each, and wide when many samples share one. The other metrics are
        exact to rounding: 1e-9, relative where the value is above 1.

        Undefined and infinite values are so in memory too, and have the bound 0. Debiased ECE of so
        few samples that it may be undefined in memory has the bound infinity.
        """
        options = self._options(norm, binning)
        known = self._streamed()
        bounds = {}
        for name, stream in STREAMS.items():
            value = stream.value(known, options)
            limits = stream.limits(known, options) if stream.limits else None
            rounding = ROUNDING * max(1, abs(value)) if math.isfinite(value) else 0.0
            bounds[name] = rounding + slack(value, limits)
        return bounds

    def _need_samples(self) -> None:
        if not self.num_samples:
            raise InputError("The accumulator has no samples yet; call update first.")


# Values of a batch read from Parquet: large enough to keep the threads busy, small enough that the
# few batches in flight stay far below a gigabyte.
BATCH_ELEMENTS = 1_000_000
LEAST_BATCH, MOST_ELEMENTS = 1024, 16 * BATCH_ELEMENTS  # the second wins
BYTES_PER_VALUE = 24  # of a batch as it is read, put into one array and counted
# Bytes read ahead in each column. Without this a whole row group would be held.
READ_AHEAD = 1 << 16


@dataclass(frozen=True)
class ParquetShards:
    """Predictions in Parquet files that may be larger than memory, read batch by batch.

    ``classes`` are the class names of the files; ``meta`` is the metadata they have in common.
    """

    files: tuple[Path, ...]
    num_rows: int
    row_values: int
    labelled: bool
    classes: tuple[str, ...] | None
    meta: Mapping[str, Any]

    @classmethod
    def open(cls, paths: Sequence[str | Path]) -> Self:
        """Read the columns and metadata of all files; reject files without predictions."""
        import pyarrow.parquet as pq

        files = tuple(Path(path) for path in paths)
        rows = values = 0
        schemas = []
        for file in files:
            check_regular(file)
            with clear_errors(file, "parquet", *_arrow_errors()), pq.ParquetFile(file) as opened:
                io.check_columns(opened.schema_arrow, file.name)
                schemas.append(opened.schema_arrow)
                rows += opened.metadata.num_rows
                values += _num_values(opened.metadata)
        if not rows:
            raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
        _check_alike(files, schemas)
        _check_scores(schemas[0].names)
        classes, meta = _common_header(files, schemas)
        labelled = bool({"label", "labels"} & set(schemas[0].names))
        width = max(values // rows, len(schemas[0].names))  # where a file lies, too
        return cls(files, rows, width, labelled, classes, meta)

    def batches(self) -> Iterator[Predictions]:
        """Yield the rows in order. Where there are no labels, all are 0."""
        import pyarrow.parquet as pq

        least = min(LEAST_BATCH, MOST_ELEMENTS // self.row_values)
        size = max(1, least, BATCH_ELEMENTS // self.row_values)
        check_size(size * self.row_values * BYTES_PER_VALUE, f"a batch of {size:,} rows")
        for file in self.files:
            start = 0
            with clear_errors(file, "parquet", *_arrow_errors()):
                opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)
            with opened:
                for batch in _clearly(opened.iter_batches(batch_size=size), file):
                    if batch.num_rows:
                        yield self._predictions(batch, file, start)
                        start += batch.num_rows

    def _predictions(self, batch: Any, file: Path, start: int) -> Predictions:
        with clear_errors(file, "parquet", *_arrow_errors()):
            arrays = io.table_arrays(batch, file.name)
        labels = arrays.get("labels", np.zeros(batch.num_rows, dtype=np.int64))
        try:
            return Predictions(
                logits=arrays.get("logits"),
                probs=arrays.get("probs"),
                labels=labels,
                classes=self.classes,
                meta=self.meta,
            )
        except InputError as error:
            raise InputError(f"{file.name}, counted from row {start:,}: {error}") from error


def parquet_files(patterns: Sequence[str], argument: str = "PATHS") -> list[str]:
    """Files of names, folders and patterns: in the order given, sorted within each."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found |= dict.fromkeys(sorted(_expand(pattern, argument)))
    return list(found)


def _expand(pattern: str, argument: str) -> list[str]:
    if Path(pattern).is_file():  # also names with brackets
        return [pattern]
    if Path(pattern).is_dir():
        pattern = str(Path(pattern) / "*.parquet")
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not found:
        rule, advice = "must match Parquet files", "Quote the pattern and check the folder."
        raise refuse(argument, rule, f"got no file for {pattern!r}", advice)
    return found


def accumulate_parquet(
    paths: Sequence[str | Path],
    *,
    bins: int = 15,
    progress: Callable[[int, int], None] | None = None,
) -> Accumulator:
    """Accumulate Parquet files that may be larger than memory.

    Columns are those of ``Predictions.load``. ``progress`` is called with the rows done and the
    total.
    """
    shards = ParquetShards.open(paths)
    if not shards.labelled:
        rule, advice = "must hold a column label", "Name the label column 'label'."
        raise refuse("paths", rule, "got scores alone", advice)
    total = None
    for predictions in shards.batches():
        total = total or Accumulator(predictions.num_classes, bins=bins)
        total.update(predictions)
        if progress:
            progress(total.num_samples, shards.num_rows)
    if total is None:  # a footer that promises rows which the file does not have
        raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
    return total


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException,)


def _clearly(batches: Iterator[Any], file: Path) -> Iterator[Any]:
    """The same batches; only errors of reading them are renamed, not those of their user."""
    while True:
        with clear_errors(file, "parquet", *_arrow_errors()):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _num_values(metadata: Any) -> int:
    """Values in a file; a list column has as many as its lists hold."""
    groups = (metadata.row_group(k) for k in range(metadata.num_row_groups))
    return sum(group.column(k).num_values for group in groups for k in range(group.num_columns))


def _check_alike(files: Sequence[Path], schemas: Sequence[Any]) -> None:
    """Refuse shards whose columns or types differ."""
    kinds = [sorted(zip(s.names, map(str, s.types), strict=True)) for s in schemas]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise _unlike(files[0], file)


def _unlike(first: Path, other: Path) -> InputError:
    rule = f"must all have the columns, types and class names of {first.name}"
    return refuse("paths", rule, f"got others in {other.name}", "Fix that shard.")


def _check_scores(names: Sequence[str]) -> None:
    if "confidence" in names:
        rule, advice = "must hold logits or probs", "Measure confidences from one file."
        raise refuse("paths", rule, "got confidence columns", advice)


def _common_header(
    files: Sequence[Path], schemas: Sequence[Any]
) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names, which must agree, and the metadata that is the same in all files."""
    headers = [io.parquet_header(file, schema) for file, schema in zip(files, schemas, strict=True)]
    classes, meta = headers[0]
    for file, (names, other) in zip(files, headers, strict=True):
        if names != classes:
            raise _unlike(files[0], file)
        meta = {key: value for key, value in meta.items() if key in other and other[key] == value}
    return classes, meta
