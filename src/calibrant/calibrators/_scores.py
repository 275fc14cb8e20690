"""The scores of predictions as calibrators read them: logits, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrant._core.arrays import Float, Float64, over_chunks
from calibrant._core.checks import refuse
from calibrant._core.row_summary import snapped
from calibrant._scores import Scores
from calibrant.predictions import Predictions

# Up to this many scores a pass in float64 is cheap, so nothing is lost to rounding.
EXACT_ELEMENTS = 4_000_000


def working_dtype(p: Predictions) -> np.dtype[Any]:
    """Precision of a fit: float64, but float32 for large float32 matrices."""
    small = p.scores.size <= EXACT_ELEMENTS
    return np.dtype(np.float64 if small or p.scores.dtype == np.float64 else np.float32)


def logit_chunk(
    p: Scores, rows: slice, dtype: np.dtype[Any], columns: slice = slice(None)
) -> Float:
    """Logits of some rows; where probabilities were given, their logarithms.

    A probability of 0 is taken as the smallest normal number of the dtype it came in: softmax
    outputs that underflowed are small, not impossible. A logit of -inf stays impossible.
    """
    chunk = p.scores[rows, columns]
    if p.kind == "logits":
        return np.ascontiguousarray(chunk, dtype=dtype)
    assert p.row_sums is not None
    logs = np.maximum(chunk, smallest_prob(chunk.dtype), dtype=dtype, order="C")
    np.log(logs, out=logs)
    logs -= np.log(snapped(p.row_sums[rows]))[:, None].astype(dtype)
    return logs


def logit_spread(p: Predictions) -> float:
    """How far, on average, logits lie below the largest of their row; -inf left out."""

    def work(slices: Iterator[slice]) -> tuple[float, int]:
        total, count = 0.0, 0
        for rows in slices:
            z = logit_chunk(p, rows, np.dtype(np.float64))
            gap = z.max(axis=1, keepdims=True) - z
            gap = gap[np.isfinite(gap)]
            total, count = total + float(gap.sum()), count + len(gap)
        return total, count

    total, count = np.sum(over_chunks(work, *p.scores.shape), axis=0)
    return float(total / count)


def row_hash(p: Predictions) -> Float64:
    """A hash of each row: equal rows have equal hashes."""
    half, keep = np.uint64(32), np.uint64(11)
    factors = np.random.default_rng(0).integers(2**63, size=p.num_classes, dtype=np.uint64)
    factors |= np.uint64(1)
    out = np.empty(p.num_samples)

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            z = logit_chunk(p, rows, np.dtype(np.float64)) + 0.0  # -0 and 0 are equal
            bits = z.view(np.uint64)
            bits ^= bits >> half  # round numbers have their digits in the upper half alone
            bits *= factors
            out[rows] = bits.sum(axis=1) >> keep  # exact in float64

    over_chunks(work, *p.scores.shape)
    return out


def num_options(p: Scores) -> Float64:
    """How many options each sample has: its logits above -inf."""
    if p.kind == "probs":
        return np.full(p.num_samples, float(p.num_classes))
    options: Float64 = np.isfinite(p.scores).sum(axis=1).astype(np.float64)
    return options


def smallest_prob(dtype: np.dtype[Any]) -> float:
    """The probability that replaces 0 in this dtype."""
    limits = np.finfo(dtype)
    return float(limits.smallest_subnormal if dtype == np.float16 else limits.tiny)


def label_logits(p: Predictions) -> Float64:
    """The logit of each label; refuses labels that the model calls impossible."""
    z = p.scores[np.arange(p.num_samples), p.labels].astype(np.float64)
    if p.kind == "probs":
        assert p.row_sums is not None
        return np.log(np.maximum(z, smallest_prob(p.scores.dtype))) - np.log(snapped(p.row_sums))
    impossible = np.flatnonzero(np.isneginf(z))
    if len(impossible):
        rule = "must have a logit above -inf for every label in a fit"
        advice = "The loss is infinite for any fit; drop or relabel such samples."
        raise refuse("predictions", rule, f"got -inf in row {impossible[0]}", advice)
    return z
