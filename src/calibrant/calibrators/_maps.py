"""Maps of one number to another, of the confidence or of each class: steps and lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError

TINY = 1e-300
# A class below the predicted one by this part is not taken for equal to it.
BELOW = 1e-6


def steps(ops: Any, x: Any, edges: Any, values: Any) -> Any:
    """The value of the bin (lo, hi] that holds each entry."""
    return ops.take(values, ops.bucket(x, edges))


def lines(ops: Any, x: Any, knots: Any, values: Any, slopes: Any) -> Any:
    """Linear between knots, constant outside. ``knots`` rise; the last slope is 0."""
    index = ops.bucket(x, knots[:, 1:])
    inside = ops.maximum(x, ops.take(knots, index))  # below the first knot
    return ops.take(values, index) + ops.take(slopes, index) * (inside - ops.take(knots, index))


def slopes_of(knots: Float64, values: Float64) -> Float64:
    """Slopes of the pieces between knots; 0 after the last, and where knots are repeated."""
    rise, run = np.diff(values, axis=1), np.diff(knots, axis=1)
    slope = np.divide(rise, run, out=np.zeros_like(rise), where=run > 0)
    return np.concatenate([slope, np.zeros((len(knots), 1))], axis=1)


def probabilities(ops: Any, z: Any) -> Any:
    """Softmax, with impossible classes at exp(-100)."""
    return ops.exp(ops.log_softmax(ops.lift(z)))


def top_confidence(ops: Any, probs: Any, top: Any) -> Any:
    """Probability of the predicted class, (N, 1)."""
    return ops.sum(ops.where(top, probs, probs * 0.0))


def with_confidence(ops: Any, probs: Any, top: Any, confidence: Any) -> Any:
    """Rows whose predicted class has the given confidence; the others share the rest as before.

    Where another class would come out above the predicted one, the shares of the others are drawn
    towards equal ones just far enough. That fails only for confidences of at most 1 / K.
    """
    zero = probs * 0.0
    others = ops.where(top, zero, probs)
    equal = ops.where(top, zero, zero + 1.0)
    equal = equal / ops.sum(equal)
    rest = ops.sum(others)
    share = ops.where(rest > TINY, others / ops.maximum(rest, TINY), equal)
    doubt = 1.0 - confidence
    largest = doubt * ops.max(share)
    excess = largest - confidence * (1.0 - BELOW)
    spread = ops.maximum(largest - doubt * ops.max(equal), TINY)
    pull = ops.minimum(ops.maximum(excess / spread, 0.0), 1.0)
    share = share + pull * (equal - share)
    return ops.where(top, confidence + zero, doubt * share)


def normalised(ops: Any, scores: Any, probs: Any) -> Any:
    """Scores divided by their sum; the uncalibrated row where all are 0."""
    total = ops.sum(scores)
    return ops.where(total > TINY, scores / ops.maximum(total, TINY), probs)


def check_map(edges: Float64, values: Float64) -> None:
    """Refuse edges that fall and values that are no probabilities (read from a file)."""
    if (np.diff(edges, axis=1) < 0).any() or not ((values >= 0) & (values <= 1)).all():
        raise InputError("edges must rise and values must lie in [0, 1].")
