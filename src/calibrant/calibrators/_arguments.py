"""Arguments of calibrators, checked: records, weights and groups."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, to_floats, to_numpy
from calibrant._core.checks import CalibrationWarning, refuse
from calibrant._scores import Scores
from calibrant.calibrators._plain import CONFIDENCE_ONLY
from calibrant.predictions import Predictions

# Weights that sum to at most this are fractions, not counts.
ONE_SAMPLE = 1 + 1e-6


def put_together(parts: list[tuple[Bool, Float]]) -> Float:
    """Assemble one matrix from row masks and the rows of each."""
    mask, first = parts[0]
    scores = np.empty((len(mask), first.shape[1]), dtype=first.dtype)
    for mask, part in parts:
        scores[mask] = part
    return scores


def check_predictions(p: object) -> None:
    """Reject inputs without the scores of all classes."""
    if not isinstance(p, Predictions):
        rule, advice = "must be Predictions", "Build Predictions(logits=…, labels=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)


def check_scores(p: object) -> None:
    """Reject inputs without the scores of all classes."""
    if not isinstance(p, Scores):
        rule, advice = "must be Scores or Predictions", "Build Scores(logits=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)


def check_same_classes(p: Scores, num_classes: int | None, classes: tuple[str, ...] | None) -> None:
    """Reject predictions whose classes differ from those of the fit."""
    if num_classes == CONFIDENCE_ONLY:
        rule = "must be confidences, like the data of the fit"
        raise refuse("p", rule, f"got {p.num_classes} classes", "Fit a calibrator to predictions.")
    if num_classes not in (None, p.num_classes):
        rule = f"must have {num_classes} classes, like the data of the fit"
        raise refuse("p", rule, f"got {p.num_classes}", "Fit a calibrator for each model.")
    if classes and p.classes and classes != p.classes:
        pair = next(x for x in zip(classes, p.classes, strict=True) if x[0] != x[1])
        rule = "must have the class names of the fit, in the same order"
        got = f"got {pair[1]!r} where the fit had {pair[0]!r}"
        raise refuse("p", rule, got, "Reorder the columns.")


def tidy(out: Float, z: Float, *, keep: bool, gives: str) -> None:
    """Correct rounding effects: overflowing logits, and ties that would change the argmax."""
    if gives == "logits":
        limit = np.finfo(out.dtype).max
        np.minimum(out, limit, out=out)
        low = np.isneginf(out)
        if low.any():
            out[low & ~np.isneginf(z)] = -limit
    if keep:
        top = z.argmax(axis=1)
        moved = np.flatnonzero(out.argmax(axis=1) != top)
        if len(moved):
            high = out[moved].max(axis=1)
            out[moved, top[moved]] = np.nextafter(high, np.inf, dtype=out.dtype)


def check_weights(weights: Any, num_samples: int) -> Float64 | None:
    """Weights as float64."""
    if weights is None:
        return None
    array = to_floats(weights, "weights").astype(np.float64)
    if array.shape != (num_samples,):
        rule = f"must have shape ({num_samples},): one weight per sample"
        raise refuse(
            "weights",
            rule,
            f"got shape {array.shape}",
            "Check that both come from the same data set.",
        )
    total = float(array.sum())
    if not (array >= 0).all() or not 0 < total < math.inf:
        rule = "must be finite, not negative, and not all 0"
        got = f"got {array.min():.6g} … {array.max():.6g}"
        raise refuse("weights", rule, got, "Drop samples that should not count.")
    if total <= ONE_SAMPLE < num_samples:
        warnings.warn(
            f"weights sum to {total:.3g}, so all samples together count as one. If only their "
            f"ratios matter, multiply them by {num_samples / total:.3g}: their mean is then 1.",
            CalibrationWarning,
            stacklevel=3,
        )
    return array


def check_groups(groups: Any, num_samples: int) -> Any:
    """One name per sample, as strings."""
    array = to_numpy(groups, "groups")
    if array.shape != (num_samples,) or array.dtype.kind not in "biuUS":
        rule = f"must have shape ({num_samples},): one name or integer per sample"
        got = f"got shape {array.shape} of {array.dtype}"
        raise refuse("groups", rule, got, "Convert numbers with fractions to names.")
    return array.astype(np.str_)


def members(names: Any) -> Iterator[tuple[str, Bool]]:
    found, number = np.unique(names, return_inverse=True)
    for k, name in enumerate(found):
        yield str(name), number == k
