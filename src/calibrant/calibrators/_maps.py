"""Maps of one number to another, of the confidence or of each class: steps and lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError

TINY = 1e-300
# A class below the predicted one by this fraction is not a tie with it.
BELOW = 1e-6
# A confidence this many times 1 / K keeps the predicted class.
ABOVE = 1 + 1e-5


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


def without_absent(ops: Any, z: Any, scores: Any, gives: str) -> Any:
    """Calibrated scores in which an option that the sample lacks has probability 0.

    ``z`` are the logits before: -inf marks an absent option. Probabilities still sum to 1.
    """
    present = ops.possible(z)
    if gives == "logits":
        return ops.where(present, scores, z)
    zero = scores * 0.0
    left = ops.where(present, scores, zero)
    missing = ops.sum(ops.where(present, zero, zero + 1.0))
    total = ops.sum(left)
    # Rows that have every option are divided by exactly 1.
    return left / ops.where(missing > 0.0, total, total * 0.0 + 1.0)


def kept_above(ops: Any, confidence: Any, z: Any) -> Any:
    """Confidences above 1 / K, where K counts the options of the row: the prediction is kept."""
    zero = ops.lift(z) * 0.0
    options = ops.sum(ops.where(ops.possible(z), zero + 1.0, zero))
    return ops.maximum(confidence, (options * 0.0 + ABOVE) / options)


def with_confidence(ops: Any, probs: Any, top: Any, confidence: Any, present: Any) -> Any:
    """Rows whose predicted class has the given confidence; the others share the rest as before.

    Where another class would come out above the predicted one, the shares of the others are drawn
    towards equal ones just far enough. That fails only for confidences of at most 1 / K. Options
    that are not ``present`` take no share.
    """
    zero = probs * 0.0
    others = ops.where(top, zero, ops.where(present, probs, zero))
    equal = ops.where(top, zero, ops.where(present, zero + 1.0, zero))
    equal = equal / ops.maximum(ops.sum(equal), 1.0)
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
    """Reject decreasing edges and values outside [0, 1] (read from a file)."""
    if (np.diff(edges, axis=1) < 0).any() or not ((values >= 0) & (values <= 1)).all():
        raise InputError("edges must increase and values must lie in [0, 1].")
