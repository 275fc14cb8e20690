"""The worst-calibrated classes and the most overconfident mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.inference._clusters import mean_one
from calibrant.metrics._bin_bounds import cell_bounds
from calibrant.predictions import Confidences, Predictions


@dataclass(frozen=True)
class ClassGap:
    """Predictions of one class: mean confidence, accuracy and its interval."""

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
    """Predicted classes; those whose gap is least likely to be chance come first.

    >>> p = Predictions(logits=[[2.0, 0.0]] * 9 + [[0.0, 9.0]] * 9, labels=[0] * 18)
    >>> [found.index for found in worst_classes(p)]
    [1, 0]
    """
    size = p.num_classes
    weight = mean_one(p)
    count = np.bincount(p.predicted, weight, size)
    said = np.bincount(p.predicted, weight * p.confidence, size)
    hits = np.bincount(p.predicted, weight * p.correct, size)
    number = np.bincount(p.predicted, minlength=size)
    low, high = cell_bounds(p, p.predicted, size, level)
    found = [
        ClassGap(
            int(k),
            int(number[k]),
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
