"""The worst-calibrated classes and the most overconfident mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.metrics._binned import wilson_interval
from calibrant.predictions import Confidences, Predictions


@dataclass(frozen=True)
class ClassGap:
    """How the predictions of one class fare: mean confidence, accuracy and its interval."""

    index: int
    count: int
    confidence: float
    accuracy: float
    low: float
    high: float

    @property
    def gap(self) -> float:
        """Confidence minus accuracy."""
        return self.confidence - self.accuracy

    @property
    def beyond(self) -> float:
        """How far the confidence lies outside the interval of the accuracy; below 0 inside."""
        return max(self.confidence - self.high, self.low - self.confidence)


def worst_classes(p: Predictions, *, level: float = 0.95) -> list[ClassGap]:
    """Predicted classes, those first whose gap chance explains least.

    >>> p = Predictions(logits=[[2.0, 0.0]] * 9 + [[0.0, 9.0]] * 9, labels=[0] * 18)
    >>> [found.index for found in worst_classes(p)]
    [1, 0]
    """
    size = p.num_classes
    count = np.bincount(p.predicted, minlength=size).astype(np.float64)
    said = np.bincount(p.predicted, weights=p.confidence, minlength=size)
    hits = np.bincount(p.predicted, weights=p.correct.astype(np.float64), minlength=size)
    low, high = wilson_interval(hits.astype(np.float64), count, level)
    found = [
        ClassGap(
            int(k),
            int(count[k]),
            float(said[k] / count[k]),
            float(hits[k] / count[k]),
            float(low[k]),
            float(high[k]),
        )
        for k in np.flatnonzero(count)
    ]
    return sorted(found, key=lambda c: (-c.beyond, -abs(c.gap), c.index))


def confident_mistakes(p: Predictions | Confidences, most: int) -> list[int]:
    """Positions of wrong samples, the most confident first.

    >>> confident_mistakes(Confidences(confidence=[0.7, 0.9, 0.99], correct=[0, 0, 1]), 5)
    [1, 0]
    """
    wrong = np.flatnonzero(~p.correct)
    order = np.argsort(p.odds_against[wrong], kind="stable")
    return [int(i) for i in wrong[order[:most]]]


def sample_ids(p: Predictions | Confidences) -> Sequence[object]:
    """The list ``ids`` that the predictions' ``meta`` gives, one per sample; else their indices."""
    given = p.meta.get("ids")
    if isinstance(given, list | tuple) and len(given) == p.num_samples:
        return given
    return range(p.num_samples)


def class_name(p: Predictions, index: int) -> str:
    """The name of a class, or its number."""
    return str(index) if p.classes is None else p.classes[index]
