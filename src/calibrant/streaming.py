"""The whole panel in bounded memory: update batch by batch, merge shards, read the result.

Every sum is a whole number: counts, and values rounded to multiples of 2^-52. Adding whole numbers
is associative and commutative, so any sharding, any order and any number of threads give the same
bits. Accuracy, confidence, NLL, Brier, entropy, the equal-width family and classwise ECE equal the
in-memory values to 1e-9 relative. What needs a ranking (equal-mass bins, AUROC, AURC and their kin,
smooth ECE) is read from a histogram of log s with 512 cells an octave, in which samples of one cell
count as ties; ``error_bounds`` says how far off that can be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import _files
from calibrant import metrics as m
from calibrant._arrays import Bool, Float64, Int, dot, over_chunks
from calibrant._checks import InputError, check_bins, check_choice, check_norm, refuse
from calibrant._rows import ROW_COST
from calibrant.metrics._binning import Binning, BinSums, mass_ranks, width_index
from calibrant.metrics._classwise import ClasswiseCounts, summarise_and_count
from calibrant.metrics._sample import Ranked
from calibrant.predictions import Predictions

# A float32 holds its exponent and the 9 leading bits of its fraction in its upper 18 bits: 512
# cells an octave of s without taking a logarithm. The cells cover 2^-126 <= s < 2^25; smaller s,
# 0 included, go to the first cell.
CELLS_PER_OCTAVE = 512
NUM_CELLS = 151 * CELLS_PER_OCTAVE
_CELL_SHIFT = 14
_FIRST_CELL = 1 * CELLS_PER_OCTAVE  # exponent field 1 is 2^-126

# Values are kept as high * 2^-26 + low * 2^-52 with whole high and low.
HALF = 2.0**26
# Above this a term is summed with Python's integers, which never overflow.
LARGE = 2.0**20

TOTALS = ("nll", "brier", "entropy")


class _Counts:
    """The whole numbers that one thread, batch or shard contributes.

    The histogram of log s is larger than a slab of rows, so it is filled once a batch: ``ranking``
    holds what is to be counted into it.
    """

    def __init__(self, num_classes: int, bins: int, *, cells: int = 0) -> None:
        self.width: Int = np.zeros((4, bins), dtype=np.int64)
        self.cells: Int = np.zeros((4, cells), dtype=np.int64)
        self.ranking: list[tuple[Int, Bool, Float64, Float64]] = []
        self.totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self.impossible = 0  # labels of probability 0: the NLL is then infinite
        self.classwise = ClasswiseCounts(num_classes, bins)

    def add_rows(self, p: Predictions) -> None:
        """Add a slab of predictions."""
        summary, classwise = summarise_and_count(p, self.width.shape[1])
        self.classwise.add(classwise)
        parts = _halves(summary.confidence)
        index = width_index(summary.confidence, self.width.shape[1])
        _count_into(self.width, index, summary.correct, parts)
        self.ranking.append((cell_of(summary.odds), summary.correct, *parts))
        loss = -summary.label_log_prob
        self.totals["brier"] += exact_sum(summary.brier)
        self.totals["entropy"] += exact_sum(summary.entropy)
        if p.num_samples and np.isinf(loss.max()):
            finite = loss[np.isfinite(loss)]
            self.impossible += len(loss) - len(finite)
            loss = finite
        self.totals["nll"] += exact_sum(loss)

    def add(self, other: _Counts) -> None:
        """Add another's counts to these."""
        self.width += other.width
        if other.cells.size:
            self.cells += other.cells
        if other.ranking:
            cell, correct, high, low = map(np.concatenate, zip(*other.ranking, strict=True))
            _count_into(self.cells, cell, correct, (high, low))
        self.impossible += other.impossible
        for name, value in other.totals.items():
            self.totals[name] += value
        self.classwise.add(other.classwise)


def _count_into(table: Int, index: Int, correct: Bool, parts: tuple[Float64, Float64]) -> None:
    """Add count, hits and the two halves of the confidence sum to the rows of ``table``.

    ``bincount`` adds floats; whole numbers below 2^53 it adds exactly.
    """
    first = int(index.min())
    index = index - first
    counts = np.bincount(index * 2 + correct)
    counts = np.append(counts, 0) if len(counts) % 2 else counts
    part = table[:, first : first + len(counts) // 2]
    part[0] += counts[::2] + counts[1::2]
    part[1] += counts[1::2]
    part[2] += np.bincount(index, weights=parts[0]).astype(np.int64)
    part[3] += np.bincount(index, weights=parts[1]).astype(np.int64)


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


def cell_of(odds: Float64) -> Int:
    """Histogram cell of the odds against each prediction."""
    bits = odds.astype(np.float32).view(np.int32) >> _CELL_SHIFT
    cells: Int = np.clip(bits - _FIRST_CELL, 0, NUM_CELLS - 1).astype(np.int64)
    return cells


class Accumulator:
    """Accumulates the panel of ``calibrant.measure`` in memory that does not grow with N.

    Parameters
    ----------
    num_classes
        K; fixed, so that a batch of another shape is refused.
    bins
        Equal-width bins of the ECE family.

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
        self._counts = _Counts(num_classes, check_bins(bins), cells=NUM_CELLS)
        self.num_classes = num_classes
        self.bins = bins

    @property
    def num_samples(self) -> int:
        """Samples seen."""
        return int(self._counts.width[0].sum())

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
            predictions = Predictions(logits=logits, probs=probs, labels=labels)
        self._check_classes(predictions)

        def work(slices: Iterator[slice]) -> _Counts:
            counts = _Counts(self.num_classes, self.bins)
            for rows in slices:
                counts.add_rows(predictions._slab(rows))
            return counts

        # A thread works through slabs small enough that all their columns stay in the cache.
        cost = max(self.num_classes, ROW_COST)
        for counts in over_chunks(work, predictions.num_samples, cost):
            self._counts.add(counts)

    def _check_classes(self, predictions: Predictions) -> None:
        if predictions.num_classes != self.num_classes:
            rule = f"must have {self.num_classes} classes like the batches before"
            got = f"got {predictions.num_classes}"
            raise refuse("batch", rule, got, "Use one accumulator for each set of classes.")

    def merge(self, other: Accumulator) -> Accumulator:
        """Add what another accumulator has seen to this one, and return this one."""
        if (self.num_classes, self.bins) != (other.num_classes, other.bins):
            rule = f"must have {self.num_classes} classes and {self.bins} bins"
            got = f"got {other.num_classes} classes and {other.bins} bins"
            raise refuse("other", rule, got, "Merge accumulators of one kind.")
        self._counts.add(other._counts)
        return self

    def ranked(self) -> Ranked:
        """The histogram of log s as ties at the mean confidence of each cell."""
        self._need_samples()
        count, hits, high, low = (row.astype(np.float64) for row in self._counts.cells)
        there = count > 0
        confidence = (high / HALF + low / HALF**2)[there] / count[there]
        # Cells run from small s to large; Ranked wants rising confidence.
        return Ranked(confidence[::-1], count[there][::-1], hits[there][::-1])

    def width_bins(self) -> BinSums:
        """The equal-width bins, as exact as in memory."""
        self._need_samples()
        count, hits, high, low = (row.astype(np.float64) for row in self._counts.width)
        return BinSums(count, high / HALF + low / HALF**2, hits, np.arange(self.bins + 1))

    def result(self, *, norm: float = 1, binning: Binning = "width") -> dict[str, float]:
        """Every metric of the panel, by name. ``norm`` and ``binning`` are those of ``ece``."""
        check_norm(norm)
        check_choice("binning", binning, ("width", "mass"))
        counts, ranked, width = self._counts, self.ranked(), self.width_bins()
        n = float(self.num_samples)
        scale = self.num_samples << 52
        mean = {name: total / scale for name, total in counts.totals.items()}
        values = {
            "accuracy": float(width.hits.sum()) / n,
            "mean_confidence": float(width.confidence.sum()) / n,
            "mean_entropy": mean["entropy"],
            "nll": math.inf if counts.impossible else mean["nll"],
            "brier": mean["brier"],
            "ece": m.ece(
                width if binning == "width" else ranked, bins=self.bins, norm=norm, binning=binning
            ),
            "classwise_ece": counts.classwise.ece(1),
        }
        for name in ("mce", "overconfidence_error", "underconfidence_error"):
            values[name] = m.METRICS[name].function(width, bins=self.bins)
        for name in ("adaptive_ece", "debiased_ece"):
            values[name] = m.METRICS[name].function(ranked, bins=self.bins)
        for name in ("smooth_ece", "auroc", "aupr_error", "fpr95", "aurc", "eaurc"):
            values[name] = m.METRICS[name].function(ranked)
        return values

    def error_bounds(self) -> dict[str, float]:
        """How far the histogram can put these metrics from their in-memory values.

        AUROC: half the (correct, wrong) pairs that share a cell. AURC: the misses of each cell
        coming first or last in it. Adaptive ECE: of each cell that holds an edge, up to half the
        samples may belong to the other bin, and the hits or the misses alone be those. Metrics not
        named here are exact to 1e-9 or have no simple bound (debiased and smooth ECE, AUPR, FPR:
        measured at under 1e-3 where cells hold under 1 % of the samples each).
        """
        ranked = self.ranked()
        pairs = float(ranked.hits.sum()) * float(ranked.misses.sum())
        ties = dot(ranked.hits, ranked.misses)
        before = np.cumsum(ranked.count[::-1])[::-1] - ranked.count
        late = float((ranked.misses * ranked.hits / (2 * (before + 1))).sum()) / ranked.total
        edges = mass_ranks(ranked.total, self.bins)
        cut = np.unique(np.searchsorted(np.cumsum(ranked.count), edges, side="right"))
        cut = cut[cut < len(ranked.count)]
        n, h, c = ranked.count[cut], ranked.hits[cut], ranked.confidence[cut]
        moved = np.minimum(n / 2, np.maximum(h * (1 - c), (n - h) * c))
        return {
            "auroc": ties / (2 * pairs) if pairs else 0.0,
            "aurc": late,
            "eaurc": late,
            "adaptive_ece": 2 * float(moved.sum()) / ranked.total,
        }

    def _need_samples(self) -> None:
        if not self.num_samples:
            raise InputError("The accumulator has seen no sample yet; call update first.")


# Values of a batch read from Parquet: large enough to keep the threads busy, small enough that the
# few batches in flight stay far below a gigabyte.
BATCH_ELEMENTS = 1_000_000


def accumulate_parquet(
    paths: Sequence[str | Path],
    *,
    bins: int = 15,
    progress: Callable[[int, int], None] | None = None,
) -> Accumulator:
    """Accumulate Parquet files that may be larger than memory.

    Columns are those of ``Predictions.load``. ``progress`` is called with rows done and rows in
    all.
    """
    import pyarrow as pa  # noqa: PLC0415 - Arrow costs 0.1 s to import
    import pyarrow.dataset as ds  # noqa: PLC0415

    files = [str(path) for path in paths]
    for file in files:
        if not Path(file).is_file():
            raise FileNotFoundError(f"{file}: no such file. Check the path or the pattern.")
    try:
        _check_alike(files)
        data = ds.dataset(files, format="parquet")
        rows = data.count_rows()
        total, done = None, 0
        size = max(1024, BATCH_ELEMENTS // max(len(data.schema.names), 1))
        # Two batches ahead and one file at a time: memory stays flat, reading still overlaps.
        batches = data.to_batches(batch_size=size, batch_readahead=2, fragment_readahead=1)
        for batch in batches:
            if not batch.num_rows:
                continue
            predictions = _from_batch(batch, files[0])
            total = total or Accumulator(predictions.num_classes, bins=bins)
            total.update(predictions)
            done += batch.num_rows
            if progress:
                progress(done, rows)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The Parquet files cannot be read: {reason}. Save them again.") from error
    if total is None:
        raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
    return total


def _check_alike(files: Sequence[str]) -> None:
    """Refuse shards whose columns, types or class names differ: Arrow would drop or cast them."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    first: Any = None
    for file in files:
        schema = pq.read_schema(file)
        header = (schema.metadata or {}).get(_files.META_KEY.encode(), b"{}")
        found = sorted(zip(schema.names, map(str, schema.types), strict=True)), _classes(header)
        first = first or found
        if found != first:
            rule = f"must all have the columns, types and class names of {Path(files[0]).name}"
            raise refuse("paths", rule, f"got others in {Path(file).name}", "Mend that shard.")


def _classes(header: bytes) -> Any:
    try:
        return json.loads(header).get("classes")
    except (ValueError, AttributeError):
        return header


def _from_batch(batch: Any, where: str) -> Predictions:
    arrays = _files.table_arrays(batch, Path(where).name)
    if "confidence" in arrays:
        rule, advice = "must hold logits or probs", "Leave --stream out for confidences."
        raise refuse("paths", rule, "got confidence columns", advice)
    if "labels" not in arrays:
        rule, advice = "must hold a column label", "Name the label column 'label'."
        raise refuse("paths", rule, f"got {', '.join(arrays)}", advice)
    return Predictions(
        logits=arrays.get("logits"), probs=arrays.get("probs"), labels=arrays["labels"]
    )
