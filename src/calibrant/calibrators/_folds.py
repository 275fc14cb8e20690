"""Folds by content: independent of the order of the samples, and of weights against repetition."""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64, Int, fold_numbers
from calibrant.calibrators._scores import label_logits, row_hash
from calibrant.calibrators._tempered import Tempered
from calibrant.predictions import Confidences, Predictions

#: Number of folds of cross-fitting where none is given.
DEFAULT_FOLDS = 5


def units_of(p: Predictions | Confidences) -> tuple[int, str]:
    """How many samples, or clusters of them, folds can be made of, and what they are."""
    what = "samples" if p.clusters is None else "clusters"
    return p.belonging.num_units(p.num_samples), what


def usual_folds(p: Predictions | Confidences) -> int:
    """The default number of folds, or fewer where there are not so many samples or clusters."""
    return min(DEFAULT_FOLDS, units_of(p)[0])


def steady_folds(p: Predictions, counts: Float64, folds: int, seed: int) -> tuple[Int, int]:
    """Folds by content, and how many distinct rows there are; -1 for rows that do not count.

    Equal rows share a fold, so that a weight has the same effect as repeating the row; nor does the
    order in which samples came matter. Clusters are never divided. With fewer distinct rows or
    clusters than ``folds``, each is a fold.
    """
    codes = p.belonging.codes
    if codes is not None:
        distinct = len(np.unique(codes))
        fold = fold_numbers(p.num_samples, min(folds, distinct), seed, codes)
        return np.where(counts > 0, fold, -1), distinct
    keys = np.stack([row_hash(p), Tempered(p).top, label_logits(p), p.labels])
    order = np.lexsort(keys)
    order = order[counts[order] > 0]
    new = np.concatenate([[True], (np.diff(keys[:, order]) != 0).any(axis=0)])
    distinct = int(new.sum())
    fold = np.full(p.num_samples, -1)
    fold[order] = fold_numbers(distinct, min(folds, distinct), seed)[np.cumsum(new) - 1]
    return fold, distinct
