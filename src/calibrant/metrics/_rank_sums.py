"""Sums over samples ranked by confidence: what the ranking metrics are made of.

One pass of the compiled kernels gives all of them, of many resamples at once; NumPy computes each
when it is asked for. Of several resamples, one per row of the counts, they are arrays.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np

from calibrant._core.arrays import Float64, dots
from calibrant._core.compiled import compiled_rows
from calibrant.metrics._sample import Ranked

# Harmonic numbers are looked up below the first and summed as a series from the second on.
HARMONIC_TABLE = 1 << 17
SERIES_FROM = 64
# 0.95 * 20 hits must be 19.
ROUNDING = 1 - 1e-12


class RankSums(Protocol):
    """Sums over the distinct confidences.

    ``area`` is the sum over hits of the misses below, ties counting half; ``success`` and ``error``
    are the sums over hits and over misses of the precision of their detectors; ``risk`` is the sum
    of the risk–coverage curve; ``kept`` are the misses at or above the highest confidence that
    keeps the recall.
    """

    @property
    def hits(self) -> Any: ...
    @property
    def misses(self) -> Any: ...
    @property
    def area(self) -> Any: ...
    @property
    def success(self) -> Any: ...
    @property
    def error(self) -> Any: ...
    @property
    def risk(self) -> Any: ...
    @property
    def kept(self) -> Any: ...


def rank_sums(ranked: Ranked, recall: float = 0.95) -> RankSums:
    """The sums; compiled ones are kept with the counts, because several metrics need them."""
    rows = compiled_rows()
    if rows is None:
        return _Reference(ranked, recall)
    known: dict[float, RankSums] = vars(ranked).setdefault("rank_sums", {})
    if recall not in known:
        known[recall] = _Compiled(rows, ranked, recall)
    return known[recall]


class _Compiled:
    """All sums at once, by the compiled kernels."""

    def __init__(self, rows: Any, ranked: Ranked, recall: float) -> None:
        sums = np.empty((*ranked.count.shape[:-1], 7))
        flat = (np.ascontiguousarray(x).reshape(-1) for x in (ranked.count, ranked.hits))
        into = sums.reshape(-1)
        rows.rank_sums(sums.size // 7, *flat, recall * ROUNDING, _harmonic_table(), into)
        self.hits, self.misses, self.area, *rest = np.moveaxis(sums, -1, 0)
        self.success, self.error, self.risk, self.kept = rest


class _Reference:
    """Each sum in NumPy, when it is needed."""

    def __init__(self, ranked: Ranked, recall: float) -> None:
        self._ranked, self._recall = ranked, recall

    @cached_property
    def hits(self) -> Any:
        return self._ranked.hits_so_far[..., -1]

    @cached_property
    def misses(self) -> Any:
        return self._ranked.misses_so_far[..., -1]

    @cached_property
    def _kept_hits(self) -> Float64:
        return _at_or_above(self._ranked.hits_so_far)

    @cached_property
    def _kept_misses(self) -> Float64:
        return _at_or_above(self._ranked.misses_so_far)

    @cached_property
    def area(self) -> Any:
        ranked = self._ranked
        return dots(ranked.hits, ranked.misses_so_far - ranked.misses / 2)

    @cached_property
    def success(self) -> Any:
        kept = self._kept_hits
        return dots(self._ranked.hits, kept / _some(kept + self._kept_misses))

    @cached_property
    def error(self) -> Any:
        found = self._ranked.misses_so_far
        return dots(self._ranked.misses, found / _some(found + self._ranked.hits_so_far))

    @property
    def risk(self) -> Any:
        known = vars(self._ranked)  # both AURC and E-AURC need it
        if "risk" not in known:
            known["risk"] = self._risk()
        return known["risk"]

    def _risk(self) -> Float64:
        misses, wrong = self._ranked.misses, self._kept_misses
        kept = np.zeros((*misses.shape[:-1], misses.shape[-1] + 1))
        kept[..., :-1] = self._kept_hits + wrong
        # Sample j of a group of n with m misses has expected risk (w + j m/n) / (k + j), where k
        # are more confident and w of those wrong; over j = 1 … n that sums to
        # m + (w - k m/n) (H(k + n) - H(k)) with the harmonic numbers H.
        total = misses / _some(self._ranked.count)
        total *= kept[..., 1:]
        np.subtract(wrong - misses, total, out=total)
        total *= -np.diff(_harmonic(kept))
        total += misses
        return np.asarray(total.sum(axis=-1))

    @property
    def kept(self) -> Any:
        kept = self._kept_hits
        least = self._recall * ROUNDING * kept[..., :1]
        enough = np.count_nonzero(kept >= least, axis=-1, keepdims=True)
        return np.take_along_axis(self._kept_misses, np.maximum(enough, 1) - 1, axis=-1)[..., 0]


def _some(count: Float64) -> Float64:
    """A divisor: 1 where there is nothing."""
    return np.where(count > 0, count, 1)


def _at_or_above(so_far: Float64) -> Float64:
    """From counts at or below each confidence, those at or above it."""
    above = np.empty_like(so_far)
    above[..., 0] = so_far[..., -1]
    np.subtract(so_far[..., -1:], so_far[..., :-1], out=above[..., 1:])
    return above


@cache
def _harmonic_table() -> Float64:
    table = np.arange(float(HARMONIC_TABLE))
    np.reciprocal(table[1:], out=table[1:])
    np.cumsum(table, out=table)
    table -= np.euler_gamma
    return table


def _harmonic(n: Float64) -> Float64:
    """1 + 1/2 + … + 1/n less Euler's constant: from a table, or by the asymptotic series.

    Only differences are used, so the constant drops out. Weights of samples may be fractions.
    """
    small = (n < HARMONIC_TABLE) & ((n == np.floor(n)) | (n < SERIES_FROM))
    out: Float64 = _harmonic_table()[np.where(small, n, 0).astype(np.int64)]
    if not small.all():
        x = n[~small]
        out[~small] = np.log(x) + 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)
    return out
