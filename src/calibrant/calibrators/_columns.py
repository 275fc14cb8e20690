"""Columns of the probability matrix, a block of classes at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calibrant._core.arrays import CHUNK_ELEMENTS, Float64, Int
from calibrant.calibrators._ops import IMPOSSIBLE
from calibrant.calibrators._scores import logit_chunk
from calibrant.calibrators._tempered import Tempered
from calibrant.predictions import Predictions

# Values of a block of classes: eight chunks, so that reading all rows for each block stays rare.
BLOCK_ELEMENTS = 8 * CHUNK_ELEMENTS


def class_columns(p: Predictions, temperature: float = 1.0) -> Iterator[tuple[Float64, Float64]]:
    """For each class: its probabilities, and 1 where it is the label."""
    exact = np.dtype(np.float64)
    rows = Tempered(p, exact)
    (log_total,) = rows.sums(1 / temperature, 0)
    width = max(1, BLOCK_ELEMENTS // p.num_samples)
    for start in range(0, p.num_classes, width):
        some = slice(start, min(start + width, p.num_classes))
        z = logit_chunk(p, slice(None), exact, some)
        z = np.where(np.isneginf(z), rows.top[:, None] - IMPOSSIBLE, z)
        probs = np.exp(z / temperature - log_total[:, None])
        for k in range(some.start, some.stop):
            yield np.minimum(probs[:, k - some.start], 1.0), (p.labels == k).astype(np.float64)


def counts(weights: Float64) -> Float64:
    """Weights as bins of equal mass take them: whole numbers count samples, others are ratios."""
    whole = (weights == np.rint(weights)).all()
    # Rounded, because integer ranks decide where a bin begins.
    return weights if whole else np.round(weights * (len(weights) / weights.sum()), 12)


# Probabilities this close differ only by rounding: they are ties.
TIE = 1e-15


def distinct(x: Float64) -> tuple[Float64, Int]:
    """The distinct values in rising order, and which of them each entry is."""
    order = np.argsort(x)
    rising = x[order]
    new = np.concatenate([[True], np.diff(rising) > TIE])
    number = np.empty(len(x), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return rising[new], number


def confidence_column(p: Predictions, temperature: float = 1.0) -> Float64:
    """Confidence of each row in float64, as the maps of ``transform`` see it."""
    return Tempered(p, np.dtype(np.float64)).confidence(1 / temperature)
