"""Calibrators on plain arrays, and on confidences alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant._core.arrays import Float, Float64, to_floats
from calibrant._core.checks import InputError, refuse
from calibrant._scores import Scores
from calibrant.predictions import Confidences, Predictions

# ``num_classes_`` of a calibrator that was fitted to confidences alone.
CONFIDENCE_ONLY = 1


def is_array(values: object) -> bool:
    """Whether plain logits were given instead of a record."""
    return hasattr(values, "__array__") or hasattr(values, "detach") or isinstance(values, list)


def like_input(values: Any, answer: Callable[[Float], Float]) -> Any:
    """Apply a function of NumPy arrays: NumPy in, NumPy out; torch in, torch out.

    A tensor comes back on its device and in its dtype, without gradients.
    """
    out = answer(to_floats(values, "logits"))
    if not hasattr(values, "detach"):
        return out
    import torch

    return torch.tensor(out, device=values.device, dtype=values.dtype)


def as_binary(c: Confidences) -> Predictions:
    """Being correct as class 1 of two, whose probability is the confidence."""
    return Predictions.from_binary(
        probs=c.confidence, labels=c.correct.astype(np.int64), **c.belonging.arguments()
    )


def binary_scores(confidence: Float64) -> Scores:
    """The same without outcomes."""
    return Scores(probs=np.stack([1 - confidence, confidence], axis=1))


def with_confidences(c: Confidences, confidence: Float64) -> Confidences:
    """The same samples with other confidences."""
    clipped = np.clip(confidence, 0.0, 1.0)
    return Confidences(
        confidence=clipped, correct=c.correct, meta=c.meta, **c.belonging.arguments()
    )


def check_takes_confidences(name: str, names: list[str], *, takes: bool) -> None:
    """Refuse confidences for a method that needs the scores of all classes."""
    if not takes:
        rule = f"must hold the scores of all classes for {name}"
        advice = f"Confidences alone can be calibrated by {', '.join(names)}."
        raise refuse("p", rule, "got confidences", advice)


def check_values(confidence: Any) -> Float64:
    """Confidences given as a plain array."""
    values = to_floats(confidence, "confidence").astype(np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            "confidence must have shape (N,) and lie in [0, 1]: this calibrator was fitted to "
            "confidences alone. Fit one to predictions for logits."
        )
    return values
