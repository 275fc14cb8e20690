"""Many resamples of one data set at once, each with its outcomes along a path of populations.

A sample drawn into a replicate is right or wrong at each strength of the gaps. Along a path its
chance of being right only rises or only falls, so its outcome changes at most once. Sums over bins
are therefore made of the outcomes at the first strength and of the changes: one pass for all
strengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Bool, Float64, Int
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_simulation import Bytes, CompiledSums
from calibrant.metrics._binning import Binning, BinSums, mass_ranks, width_edges, width_index
from calibrant.metrics._sample import Ranked


@dataclass(frozen=True)
class _Changes:
    """Samples, of all resamples in one line, whose outcome changes along a path.

    ``right`` are those that are right at its beginning; ``place`` those that change, at
    ``strength``, by ``gain``.
    """

    right: Int
    ones: Float64
    place: Int
    strength: Int
    gain: Float64

    @classmethod
    def of(cls, first: Bool, change: Bytes, strengths: int) -> _Changes:
        right, place = np.flatnonzero(first), np.flatnonzero(change < strengths)
        gain = np.where(first[place], -1.0, 1.0)
        return cls(right, np.ones(len(right)), place, change[place].astype(np.int64), gain)


@dataclass(frozen=True)
class Simulated:
    """R resamples of N samples, with outcomes at S strengths.

    ``drawn`` is the entry among the distinct confidences of each sample of each resample, (R, N);
    ``first`` its outcome at the first strength; ``change`` the strength from which on the outcome
    is the other one, S where it never is. Where there is no path (S = 1), ``outcome`` may be given
    instead, and need not be 0 or 1.
    """

    confidence: Float64
    drawn: Int
    first: Bool | None = None
    change: Bytes | None = None
    strengths: int = 1
    outcome: Float64 | None = None
    binned: dict[tuple[int, Binning], BinSums] = field(default_factory=dict)

    @cached_property
    def count(self) -> Float64:
        """How often each entry was drawn, (R, entries)."""
        return self._tally(self.drawn, len(self.confidence))

    @cached_property
    def hits(self) -> Float64:
        """Right answers of each entry, (R, S, entries)."""
        return self.hits_by(self.drawn, len(self.confidence))

    @cached_property
    def residual(self) -> Float64:
        """Right answers minus confidence, summed over the samples of each entry."""
        return self.hits - (self.count * self.confidence)[:, None]

    def hits_by(self, place: Int, size: int) -> Float64:
        """Sums of the outcomes by the place (R, N) of each sample."""
        if self.outcome is not None:
            return self._tally(place, size, self.outcome)[:, None]
        start, after = self._steps(place, size)
        changes = self._changes
        return self._from_steps([start[changes.right], after], [changes.ones, changes.gain], size)

    @cached_property
    def _changes(self) -> _Changes:
        assert self.first is not None
        assert self.change is not None
        return _Changes.of(self.first.ravel(), self.change.ravel(), self.strengths)

    def _steps(self, place: Int, size: int) -> tuple[Int, Int]:
        """Where each sample counts in (R, S, size) from the first strength on.

        And where from then on the other outcome counts, of those whose outcome changes.
        """
        rows = np.arange(len(place))[:, None] * (self.strengths * size)
        start: Int = (place + rows).ravel()
        return start, start[self._changes.place] + self._changes.strength * size

    def _from_steps(self, cells: list[Int], gains: list[Float64], size: int) -> Float64:
        """Sums at every strength from where they change."""
        shape = len(self.drawn), self.strengths, size
        found = np.bincount(np.concatenate(cells), np.concatenate(gains), math.prod(shape))
        total = found.astype(np.float64, copy=False).reshape(shape)
        for strength in range(1, self.strengths):
            total[:, strength] += total[:, strength - 1]
        return total

    def bins_of(self, bins: int, binning: Binning) -> Int:
        """The bin of each sample, (R, N)."""
        if binning == "width":
            return width_index(self.confidence, bins)[self.drawn]
        # The rank of the middle sample of each entry, as in ``Ranked.middle``.
        middle = np.cumsum(self.count, axis=1) - (self.count + 1) / 2
        ranks = mass_ranks(float(self.drawn.shape[1]), bins)
        return np.take_along_axis(np.searchsorted(ranks, middle, side="right"), self.drawn, 1)

    def sums(self, bins: int, binning: Binning) -> BinSums:
        """Sums over bins: counts and confidences (R, 1, B), hits (R, S, B)."""
        key = bins, binning
        if key not in self.binned:
            count, stated, hits = self._sums(bins, binning)
            none = np.empty(0, dtype=np.int64)
            self.binned[key] = BinSums(count[:, None], stated[:, None], hits, none)
        return self.binned[key]

    def _sums(self, bins: int, binning: Binning) -> tuple[Float64, Float64, Float64]:
        compiled = self._compiled
        if compiled is None:
            place = self.bins_of(bins, binning)
            stated = self._tally(place, bins, self.confidence[self.drawn])
            return self._tally(place, bins), stated, self.hits_by(place, bins)
        if binning == "width":
            return compiled.over_bins(bins, width_index(self.confidence, bins), None)
        return compiled.over_bins(bins, None, mass_ranks(float(self.drawn.shape[1]), bins))

    @cached_property
    def _compiled(self) -> CompiledSums | None:
        """The compiled sums along a path, where the kernels are in use."""
        rows = compiled_rows()
        if rows is None or self.first is None or self.change is None:
            return None
        given = self.drawn, self.first, self.change, self.confidence
        return CompiledSums(rows, *given, self.strengths)

    @property
    def sizes(self) -> Float64:
        """Number of samples of each resample."""
        return np.full(len(self.drawn), float(self.drawn.shape[1]))

    def on_grid(self, left: Int, part: Float64, cells: int) -> Float64:
        """Residuals gathered in cells, (R, S, cells): ``part`` of each in the cell after its own.

        ``left`` and ``part`` have a number for each entry.
        """
        if self._compiled is not None:
            return self._compiled.over_cells(cells, left, part)
        place, share, stated = left[self.drawn], part[self.drawn], self.confidence[self.drawn]
        if self.outcome is not None:
            residual = self.outcome - stated
            own = self._tally(place, cells, residual * (1 - share))
            return (own + self._tally(place + 1, cells, residual * share))[:, None]
        assert self.first is not None
        start, after = self._steps(place, cells)
        residual, share, gain = (self.first - stated).ravel(), share.ravel(), self._changes.gain
        later = share[self._changes.place]
        return self._from_steps(
            [start, start + 1, after, after + 1],
            [residual * (1 - share), residual * share, gain * (1 - later), gain * later],
            cells,
        )

    def one_by_one(self, statistic: Callable[[Ranked], float]) -> Float64:
        """Apply a statistic of a single resample to every one, (R, S)."""
        return _one_by_one(self, statistic)

    def _tally(self, place: Int, size: int, weight: Float64 | None = None) -> Float64:
        rows = len(place)
        index = (place + np.arange(rows)[:, None] * size).ravel()
        found = np.bincount(index, None if weight is None else weight.ravel(), rows * size)
        return found.astype(np.float64, copy=False).reshape(rows, size)


@dataclass(frozen=True)
class SimulatedCounts:
    """Resamples that are counted by entry: as many of each, and as many right at each strength.

    ``count`` has the shape (R, entries), ``hits`` (R, S, entries). For data that are known as a
    histogram only, of however many samples.
    """

    confidence: Float64
    count: Float64
    hits: Float64
    binned: dict[tuple[int, Binning], BinSums] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> Float64:
        """Number of samples of each resample."""
        sizes: Float64 = self.count.sum(axis=1)
        return sizes

    @cached_property
    def residual(self) -> Float64:
        """Right answers minus confidence, summed over the samples of each entry."""
        return self.hits - (self.count * self.confidence)[:, None]

    def sums(self, bins: int, binning: Binning) -> BinSums:
        """Sums over bins: counts and confidences (R, 1, B), hits (R, S, B)."""
        key = bins, binning
        if key not in self.binned:
            cuts = self._cuts(bins, binning)
            self.binned[key] = BinSums(
                _between(self.count[:, None], cuts),
                _between((self.count * self.confidence)[:, None], cuts),
                _between(self.hits, cuts),
                np.empty(0, dtype=np.int64),
            )
        return self.binned[key]

    def _cuts(self, bins: int, binning: Binning) -> Int:
        """Where each bin begins among the entries of each resample, (R, B + 1)."""
        size = len(self.confidence)
        if binning == "width":
            inner = np.searchsorted(self.confidence, width_edges(bins)[1:-1], side="right")
            return np.tile(np.concatenate(([0], inner, [size])), (len(self.count), 1))
        middle = np.cumsum(self.count, axis=1) - (self.count + 1) / 2
        return np.stack(
            [
                np.concatenate(([0], np.searchsorted(row, mass_ranks(total, bins)), [size]))
                for row, total in zip(
                    np.maximum.accumulate(middle, axis=1), self.sizes, strict=True
                )
            ]
        )

    def on_grid(self, left: Int, part: Float64, cells: int) -> Float64:
        """Residuals gathered in cells, as of ``Simulated``."""
        from scipy.sparse import coo_array

        row = np.tile(np.arange(len(left)), 2)
        place, share = np.concatenate((left, left + 1)), np.concatenate((1 - part, part))
        table = coo_array((share, (place, row)), (cells, len(left))).tocsr()
        flat = self.residual.reshape(-1, len(left))
        grid: Float64 = (table @ flat.T).T.reshape(*self.hits.shape[:2], cells)
        return grid

    def one_by_one(self, statistic: Callable[[Ranked], float]) -> Float64:
        """Apply a statistic of a single resample to every one, (R, S)."""
        return _one_by_one(self, statistic)


Replicates = Simulated | SimulatedCounts


def _one_by_one(replicates: Replicates, statistic: Callable[[Ranked], float]) -> Float64:
    return np.array(
        [
            [statistic(Ranked(replicates.confidence, count, hits)) for hits in at_strengths]
            for count, at_strengths in zip(replicates.count, replicates.hits, strict=True)
        ]
    )


def _between(values: Float64, cuts: Int) -> Float64:
    """Sums of the last axis between cuts that differ by the first."""
    shape = (*values.shape[:-1], values.shape[-1] + 1)
    so_far = np.zeros(shape)
    np.cumsum(values, axis=-1, out=so_far[..., 1:])
    index = np.broadcast_to(cuts[:, None], (*values.shape[:-1], cuts.shape[-1]))
    return np.diff(np.take_along_axis(so_far, index, axis=-1), axis=-1)
