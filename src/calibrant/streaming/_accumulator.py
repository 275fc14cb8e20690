"""All metrics in bounded memory: update batch by batch, merge shards, read the result.

Every sum is an integer: counts, and values rounded to multiples of 2^-52. Adding integers is
associative and commutative, so any sharding, any order and any number of threads give bit-identical
results, as long as one kind of kernels made them (``Accumulator.kernels``). Nothing overflows: up
to 2^53 samples every count is exact, and more are rejected.

Accuracy, confidence, NLL, Brier, entropy, the equal-width family and classwise ECE equal the
in-memory values to 1e-9. Metrics that need a ranking (equal-mass bins, AUROC, AURC and similar,
smooth ECE) are read from a histogram of log s with 512 cells per octave, in which samples of one
cell count as ties; ``error_bounds`` bounds the resulting error on the given data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrant._core.arrays import Float, over_chunks
from calibrant._core.checks import (
    InputError,
    check_bins,
    check_choice,
    check_count,
    check_norm,
    refuse,
)
from calibrant._core.compiled import kernels
from calibrant._core.maps import check_ignore_index, check_map_labels, is_map
from calibrant._core.row_sweeps import ROW_COST
from calibrant._scores import WHICH_SCORES, rows_of_one
from calibrant.metrics import LOG_LOSS, METRICS
from calibrant.metrics._binning import Binning, BinSums
from calibrant.metrics._limits import Histogram
from calibrant.metrics._streamed import Streamed, slack
from calibrant.predictions import Predictions
from calibrant.streaming._counts import HALF_BITS, NUM_CELLS, Counts, cell_limits
from calibrant.streaming._map_slabs import MapSlabs
from calibrant.streaming._state import fill_counts, pack_counts, unpack_state

# Counts up to this are exact also as floats.
MOST_SAMPLES = 1 << 53
# Rounding error of float64 arithmetic, relative to the value or to 1 if that is larger.
ROUNDING = 1e-9
# A row of a slab counts as at least so many classes.
SLAB_COST = 8
STREAMS = {name: metric.stream for name, metric in METRICS.items() if metric.stream}


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
        self._counts = Counts(num_classes, check_bins(bins), cells=NUM_CELLS)
        self.num_classes = num_classes
        self.bins = bins
        self.kernels: set[str] = set()

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
        ignore_index: int | None = None,
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
            kind, scores = rows_of_one(logits, probs, WHICH_SCORES)
            if is_map(scores) and self._add_maps(kind, scores, labels, ignore_index):
                return
            given: dict[str, Any] = {kind: scores, "labels": labels}
            predictions = Predictions(**given, ignore_index=ignore_index)
        self._check_classes(predictions)
        self._check_room(predictions.num_samples)
        self._check_belonging(predictions)

        def work(slices: Iterator[slice]) -> Counts:
            counts = Counts(self.num_classes, self.bins)
            for rows in slices:
                counts.add_rows(predictions.slab(rows), self.bins)
            return counts

        # A thread works through slabs small enough that all their columns stay in the cache. What
        # the checks have already swept is not swept again.
        size, cost = predictions.num_samples, max(self.num_classes, SLAB_COST)
        step = size if predictions.swept else None
        for counts in over_chunks(work, size, cost, step=step, shared=True):
            self._counts.add(counts)
        self.kernels.add(kernels())

    def _add_maps(self, kind: str, scores: Float, labels: Any, ignore_index: int | None) -> bool:
        """Add maps a few thousand positions at a time, so that nothing large is copied.

        The images are the clusters. False where something is wrong, or where no sample remains:
        the usual way then says what.
        """
        truth = check_map_labels(scores, labels)
        if ignore_index is not None:
            check_ignore_index(ignore_index)
        if scores.shape[1] != self.num_classes or not truth.size:
            return False
        flat, asked = scores.reshape(*scores.shape[:2], -1), truth.reshape(len(truth), -1)
        maps = MapSlabs(kind, flat, asked, ignore_index)

        def work(slices: Iterator[slice]) -> Counts:
            return maps.counts(slices, self.bins)

        self._check_room(truth.size)
        if self.num_samples:
            self._check_clusters(clustered=True)
        try:
            cost = max(self.num_classes, ROW_COST)
            found = over_chunks(work, truth.size, cost, shared=True)
        except InputError:
            return False
        if not any(counts.classwise.num_rows for counts in found):
            return False
        for counts in found:
            self._counts.add(counts)
        self.kernels.add(kernels())
        return True

    def _check_classes(self, predictions: Predictions) -> None:
        if not isinstance(predictions, Predictions):
            rule, advice = "must be Predictions", "Or pass logits=… (or probs=…) and labels=…."
            raise refuse("batch", rule, f"got {type(predictions).__name__}", advice)
        if predictions.num_classes != self.num_classes:
            rule = f"must have {self.num_classes} classes, like the batches before"
            got = f"got {predictions.num_classes}"
            raise refuse("batch", rule, got, "Use one accumulator for each set of classes.")

    def _check_belonging(self, predictions: Predictions) -> None:
        if predictions.weights is not None:
            rule, advice = "cannot be accumulated", "Measure them in memory."
            raise refuse("weights", rule, None, advice)
        if self.num_samples:
            self._check_clusters(clustered=predictions.clusters is not None)

    def _check_clusters(self, *, clustered: bool) -> None:
        if clustered != (self._counts.clusters is not None):
            rule = "must be given for all samples or for none"
            advice = "Write them into every file, or leave them out of all."
            raise refuse("clusters", rule, "got them for some", advice)

    def _check_room(self, more: int) -> None:
        if self.num_samples + more > MOST_SAMPLES:
            rule = f"holds at most 2^53 = {MOST_SAMPLES:,} samples, so that every count is exact"
            got = f"got {more:,} beside {self.num_samples:,}"
            raise refuse("accumulator", rule, got, "Start another one.")

    def merge(self, other: Accumulator) -> Accumulator:
        """Merge another accumulator into this one, and return this one.

        ``kernels`` then names the kernels of both. Counts of compiled and NumPy kernels can be
        merged: they agree to rounding, but only those of one kind are the same bit for bit.
        """
        if (self.num_classes, self.bins) != (other.num_classes, other.bins):
            rule = f"must have {self.num_classes} classes and {self.bins} bins"
            got = f"got {other.num_classes} classes and {other.bins} bins"
            raise refuse("other", rule, got, "Merge accumulators of one kind.")
        self._check_room(other.num_samples)
        if self.num_samples and other.num_samples:
            self._check_clusters(clustered=other._counts.clusters is not None)
        self._counts.add(other._counts)
        self.kernels |= other.kernels
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

    def streamed(self) -> Streamed:
        """The input of the metrics and of their intervals."""
        counts, scale = self._counts, self.num_samples << 2 * HALF_BITS
        means = {name: total / scale for name, total in counts.totals.items()}
        moments = {name: (means[name], counts.squares[name] / scale) for name in means}
        if counts.impossible:
            means[LOG_LOSS] = math.inf
        return Streamed(
            means,
            self.width_bins(),
            self.histogram(),
            counts.classwise,
            moments,
            counts.impossible,
            None if counts.clusters is None else counts.clusters.resampled,
        )

    def state(self) -> bytes:
        """Everything the accumulator knows, for another process or machine.

        An Arrow IPC stream of whole numbers, with a version. ``from_state`` reads it.
        """
        head = {"num_classes": self.num_classes, "bins": self.bins}
        return pack_counts(self._counts, {**head, "kernels": sorted(self.kernels)})

    @classmethod
    def from_state(cls, state: bytes) -> Accumulator:
        """The accumulator whose ``state`` this is; bytes from elsewhere raise ``InputError``.

        >>> total = Accumulator(num_classes=2)
        >>> total.update(logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 0])
        >>> Accumulator.from_state(total.state()).result()["accuracy"]
        0.5
        """
        head, arrays = unpack_state(state)
        found = cls(head.num_classes, bins=head.bins)
        fill_counts(found._counts, head, arrays)
        found.kernels = set(head.kernels)
        return found

    def result(self, *, norm: float = 1, binning: Binning = "width") -> dict[str, float]:
        """Every metric of the panel, by name. ``norm`` and ``binning`` are those of ``ece``."""
        options = self._options(norm, binning)
        known = self.streamed()
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
        known = self.streamed()
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
