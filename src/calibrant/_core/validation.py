"""Validation of scores, labels, classes and metadata, with an error that explains each fault."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from calibrant._core import row_summary
from calibrant._core.arrays import Float, Float64, Int, over_chunks, to_numpy
from calibrant._core.checks import InputError, near_name, refuse
from calibrant._core.row_sweeps import NARROW_CLASSES

# Softmax outputs in float16 or float32, or rounded to four decimals, still pass.
SUM_TOLERANCE = 1e-3
MIN_CLASSES = 2
IF_LOGITS = "If these are logits, pass them as logits=… or name the columns logit_0, logit_1 …"
TWO_COLUMNS = (
    "For one score per sample, save both columns, prob_0 and prob_1 (in Python: "
    "Predictions.from_binary)."
)


def check_matrix(scores: Float, name: str) -> None:
    """Reject scores that are not (N, K) with at least one sample and two classes."""
    if scores.ndim != MIN_CLASSES:
        rule = "must have shape (N, K): one row per sample, one column per class"
        raise refuse(name, rule, f"got shape {scores.shape}", TWO_COLUMNS)
    if scores.shape[0] == 0:
        advice = "Check the filter or the path that produced it."
        raise refuse(name, "must hold at least one sample", f"got shape {scores.shape}", advice)
    if scores.shape[1] < MIN_CLASSES:
        raise refuse(name, "must have K >= 2 columns", f"got shape {scores.shape}", TWO_COLUMNS)


def check_classes(classes: Sequence[str] | None, num_classes: int) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if isinstance(classes, str):
        raise refuse("classes", "must be a list of names", f"got {classes!r}", "Pass a list.")
    names = tuple(str(name) for name in classes)
    if len(names) != num_classes or len(set(names)) != num_classes:
        rule = f"must be {num_classes} different names, one per column"
        got = f"got {len(names)} names, {len(set(names))} different"
        raise refuse("classes", rule, got, "Name every column once.")
    return names


def check_labels(labels: Any, shape: tuple[int, ...], classes: tuple[str, ...] | None) -> Int:
    num_samples, num_classes = shape
    array = to_numpy(labels, "labels")
    if array.shape != (num_samples,):
        rule = f"must have shape ({num_samples},): one label per row of the scores"
        raise refuse(
            "labels",
            rule,
            f"got shape {array.shape}",
            "Check that both come from the same data set.",
        )
    if array.dtype.kind in "UST" or _all_texts(array):
        array = _index_of_names(array, classes)
    if array.dtype.kind not in "biu":
        rule, advice = "must be integers", "Save labels as integers starting at 0."
        raise refuse("labels", rule, f"got dtype {array.dtype}", advice)
    low, high = array.min(), array.max()
    if low < 0 or high >= num_classes:
        rule = f"must lie in 0 … {num_classes - 1}"
        advice = "Count classes from 0; drop samples marked with an ignore index."
        raise refuse("labels", rule, f"got {low} … {high}", advice)
    return array.astype(np.int64)


def _all_texts(array: Any) -> bool:
    """Whether an array of objects, as data frames give, holds names."""
    return array.dtype.kind == "O" and all(isinstance(value, str) for value in array)


def _index_of_names(array: Any, classes: tuple[str, ...] | None) -> Int:
    if classes is None:
        rule = "must be integers, or names listed in classes"
        advice = "Save labels as integers starting at 0 (or pass classes=[…] in Python)."
        raise refuse("labels", rule, "got names without classes", advice)
    index = {name: k for k, name in enumerate(classes)}
    try:
        texts = array.astype(np.str_)
    except UnicodeDecodeError as error:
        raise refuse(
            "labels",
            "must be names",
            f"got bytes that are not valid text ({error})",
            "Save names as strings.",
        ) from error
    names, inverse = np.unique(texts, return_inverse=True)
    unknown = [str(name) for name in names if name not in index]
    if unknown:
        raise refuse(
            "labels",
            "must be names listed in classes",
            f"got {unknown[0]!r}",
            near_name(unknown[0], classes),
        )
    return np.array([index[str(name)] for name in names], dtype=np.int64)[inverse]


def check_logits(logits: Float) -> Int | None:
    """Reject NaN, +inf and rows of -inf; return the predicted classes if they were computed."""
    predicted, bad = row_summary.predict_and_check(logits)
    if bad is not None:
        raise _bad_logit(logits[bad].max(), bad)
    return predicted


def _bad_logit(value: Any, row: int) -> InputError:
    if np.isnan(value):
        rule, advice = "must not hold NaN", "Find the layer that overflowed; drop or fix the row."
    elif value > 0:
        rule = "must not hold +inf"
        advice = "If these are log-odds of 100 % certainty, use a large finite number."
    else:
        rule = "must have a finite entry in each row"
        advice = "A row of -inf gives every class probability 0; fix the row."
    return refuse("logits", rule, f"got {value} in row {row}", advice)


def check_probs(probs: Float) -> tuple[Int | None, Float64]:
    """Reject rows that are not probabilities; return predicted classes (if cheap) and sums."""
    wide = probs.shape[1] > NARROW_CLASSES
    predicted = np.empty(len(probs), dtype=np.int64) if wide else None
    sums = np.empty(len(probs))

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            chunk = probs[rows]
            total = sums[rows] = row_summary.row_totals(chunk)
            if not chunk.min() >= 0:  # NaN included
                raise outside(chunk, start=rows.start)
            bad = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
            if len(bad):  # without negative entries, a sum of 1 leaves none above 1
                rule = f"must sum to 1 (to within {SUM_TOLERANCE:g}) in each row"
                got = f"got {total[bad[0]]:.6g} in row {rows.start + int(bad[0])}"
                advice = f"{IF_LOGITS}; if not, renormalise them."
                raise refuse("probs", rule, got, advice)
            if predicted is not None:
                chunk.argmax(axis=1, out=predicted[rows])

    over_chunks(work, *probs.shape)
    return predicted, sums


def outside(values: Float, name: str = "probs", start: int = 0) -> InputError:
    bad = np.argwhere(~((values >= 0) & (values <= 1)))[0]
    got = f"got {values[tuple(bad)]:.6g} in row {start + int(bad[0])}"
    advice = f"{IF_LOGITS}." if name == "probs" else "Check its unit."
    return refuse(name, "must lie in [0, 1]", got, advice)


def frozen_meta(meta: Mapping[str, Any] | None) -> Mapping[str, Any]:
    try:
        return MappingProxyType(json.loads(json.dumps(dict(meta or {}), allow_nan=False)))
    except (TypeError, ValueError) as error:
        rule, advice = "must be a JSON-serialisable mapping", "Use strings, numbers and lists."
        raise refuse("meta", rule, f"got {error}", advice) from error
