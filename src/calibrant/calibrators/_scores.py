"""The scores of predictions as calibrators read them: logits, chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._arrays import Float, Float64
from calibrant._checks import refuse
from calibrant._rows import snapped
from calibrant.predictions import Predictions

# Up to this many scores a pass in float64 is cheap, so nothing is lost to rounding.
EXACT_ELEMENTS = 4_000_000


def working_dtype(p: Predictions) -> np.dtype[Any]:
    """Precision of a fit: float64, but float32 for large float32 matrices."""
    small = p._scores.size <= EXACT_ELEMENTS
    return np.dtype(np.float64 if small or p._scores.dtype == np.float64 else np.float32)


def logit_chunk(
    p: Predictions, rows: slice, dtype: np.dtype[Any], columns: slice = slice(None)
) -> Float:
    """Logits of some rows; where probabilities were given, their logarithms.

    A probability of 0 is taken as the smallest normal number of the dtype it came in: softmax
    outputs that underflowed are small, not impossible. A logit of -inf stays impossible.
    """
    chunk = p._scores[rows, columns]
    if p._kind == "logits":
        return np.ascontiguousarray(chunk, dtype=dtype)
    assert p._total is not None
    logs = np.maximum(chunk, smallest_prob(chunk.dtype), dtype=dtype, order="C")
    np.log(logs, out=logs)
    logs -= np.log(snapped(p._total[rows]))[:, None].astype(dtype)
    return logs


def smallest_prob(dtype: np.dtype[Any]) -> float:
    """What a probability of 0 stands for in this dtype."""
    limits = np.finfo(dtype)
    return float(limits.smallest_subnormal if dtype == np.float16 else limits.tiny)


def label_logits(p: Predictions) -> Float64:
    """The logit of each label; refuses labels that the model calls impossible."""
    z = p._scores[np.arange(p.num_samples), p.labels].astype(np.float64)
    if p._kind == "probs":
        assert p._total is not None
        return np.log(np.maximum(z, smallest_prob(p._scores.dtype))) - np.log(snapped(p._total))
    impossible = np.flatnonzero(np.isneginf(z))
    if len(impossible):
        rule = "must give every label a logit above -inf for a fit"
        advice = "The loss is infinite whatever the fit; drop or relabel such samples."
        raise refuse("predictions", rule, f"got -inf in row {impossible[0]}", advice)
    return z
