"""Validation of scores, labels, classes and metadata, with an error that explains each fault."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from calibrant._core import compiled_sweeps, row_summary
from calibrant._core.arrays import Float, Float64, Int, over_chunks, row_slices, to_numpy
from calibrant._core.checks import InputError, check_per_sample, near_name, refuse, shortened
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_sweeps import SHARED_CELLS, ClassTables, sweep_logits
from calibrant._core.map_rows import MapRows
from calibrant._core.row_sweeps import NARROW_CLASSES, RowSummary

# Softmax outputs in float16 or float32, or rounded to four decimals, still pass.
SUM_TOLERANCE = 1e-3
MIN_CLASSES = 2
IF_LOGITS = "If these are logits, pass them as logits=… or name the columns logit_0, logit_1 …"
IF_PERCENT = "If these are per cent, divide by 100, or load the file with percent=True."
# The usual number of bins, and rows from which classwise tables are small beside the scores.
TABLE_BINS, TABLE_ROWS = 15, 1024
# Sums of rows in per cent, rounded or not.
PERCENT_SUMS = (95, 105)
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


def check_names(argument: str, names: Sequence[str], count: int) -> tuple[str, ...]:
    """Names of the columns, each one different."""
    if isinstance(names, str):
        raise refuse(argument, "must be a list of names", f"got {names!r}", "Pass a list.")
    found = tuple(str(name) for name in names)
    if len(found) != count or len(set(found)) != count:
        rule = f"must be {count} different names, one per column"
        got = f"got {len(found)} names, {len(set(found))} different"
        raise refuse(argument, rule, got, "Name every column once.")
    return found


def check_labels(labels: Any, shape: tuple[int, ...], classes: tuple[str, ...] | None) -> Int:
    num_samples, num_classes = shape
    array = to_numpy(labels, "labels")
    check_per_sample("labels", array.shape, num_samples, "label per row of the scores")
    if array.dtype.kind in "UST" or _all_texts(array):
        array = _index_of_names(array, classes)
    if array.dtype.kind not in "biu":
        rule, advice = "must be integers", "Save labels as integers starting at 0."
        raise refuse("labels", rule, f"got dtype {array.dtype}", advice)
    low, high = array.min(), array.max()
    if low < 0 or high >= num_classes:
        rule = f"must lie in 0 … {num_classes - 1}"
        advice = "Count classes from 0; ignore_index=… leaves out marked samples."
        raise refuse("labels", rule, f"got {low} … {high}", advice)
    return array.astype(np.int64)


def class_index(
    positive: int | str | None, num_classes: int, classes: tuple[str, ...] | None
) -> int:
    """The class that ``positive`` names or counts; class 1 of two by default."""
    if positive is None:
        if num_classes == 2:  # noqa: PLR2004
            return 1
        rule, advice = (
            "must be given where there are more than two classes",
            "Try positive=0.",
        )
        raise refuse("positive", rule, f"got {num_classes:,} classes", advice)
    if isinstance(positive, str) and classes is not None:
        if positive in classes:
            return classes.index(positive)
        rule = "must name one of the classes"
        raise refuse("positive", rule, f"got {positive!r}", near_name(positive, classes))
    whole = not isinstance(positive, bool) and hasattr(positive, "__index__")
    if not whole or not 0 <= int(positive) < num_classes:
        rule = f"must be a class from 0 to {num_classes - 1}"
        advice = (
            "To use names, pass classes=['cat', 'dog']."
            if isinstance(positive, str)
            else "Try positive=1."
        )
        raise refuse("positive", rule, f"got {positive!r}", advice)
    return int(positive)


def _all_texts(array: Any) -> bool:
    """Whether an object array, as from a data frame, holds names."""
    return array.dtype.kind == "O" and all(isinstance(value, str) for value in array)


def _index_of_names(array: Any, classes: tuple[str, ...] | None) -> Int:
    if classes is None:
        rule = "must be integers, or names listed in classes"
        advice = "Name all in the order of the columns: classes=['cat', 'dog']."
        shown = ", ".join(repr(shortened(str(name), 20)) for name in np.unique(array)[:3])
        raise refuse("labels", rule, f"got names without classes, such as {shown}", advice)
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
    """Reject NaN, +inf and rows of -inf; return predicted classes if they were cheap."""
    if isinstance(logits, MapRows) and _are_good(logits):
        return None
    predicted, bad = row_summary.predict_and_check(logits)
    if bad is not None:
        raise _bad_logit(logits[bad].max(), bad)
    return predicted


def sweep_and_check(
    logits: Float, labels: Int | None
) -> tuple[RowSummary, ClassTables | None] | None:
    """The same, with the columns of labelled logits and classwise tables unless they are large.

    With many classes the columns are small and one pass over memory takes hardly longer than the
    checks alone. None elsewhere.
    """
    rows, (num_rows, num_classes) = compiled_rows(), logits.shape
    if rows is None or labels is None or num_classes <= NARROW_CLASSES:
        return None
    small = num_rows >= TABLE_ROWS and num_classes * TABLE_BINS <= SHARED_CELLS
    summary, tables, bad = sweep_logits(rows, logits, labels, TABLE_BINS if small else 0)
    if bad is not None:
        raise _bad_logit(logits[bad].max(), bad)
    return summary, tables if small else None


def _are_good(rows: MapRows) -> bool:
    """Whether all positions of maps are good, those that are left out too: a quick look."""
    return all(row_summary.predict_and_check(planes.T)[1] is None for planes in rows.maps)


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
    rows = compiled_rows()
    if rows is not None:
        predicted, sums, bad = compiled_sweeps.check_probs(rows, probs)
        if bad is None:
            return predicted, sums
    return _check_probs(probs)  # NumPy also finds what is wrong


def _check_probs(probs: Float) -> tuple[Int | None, Float64]:
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
                raise refuse("probs", rule, got, _advice_for_sum(total[bad[0]]))
            if predicted is not None:
                chunk.argmax(axis=1, out=predicted[rows])

    over_chunks(work, *probs.shape)
    return predicted, sums


def _advice_for_sum(total: float) -> str:
    low, high = PERCENT_SUMS
    if low <= total <= high:
        return IF_PERCENT
    return f"{IF_LOGITS}; if they are rounded, load the file with renormalise=True."


def look_like_probs(logits: Float) -> bool:
    """Whether every row lies in [0, 1] and sums to 1; stops at the first chunk that does not."""
    for rows in row_slices(*logits.shape):
        chunk = logits[rows]
        inside = chunk.min() >= 0 and chunk.max() <= 1
        if not inside or not (np.abs(row_summary.row_totals(chunk) - 1) <= SUM_TOLERANCE).all():
            return False
    return True


def outside(values: Float, name: str = "probs", start: int = 0) -> InputError:
    bad = np.argwhere(~((values >= 0) & (values <= 1)))[0]
    got = f"got {values[tuple(bad)]:.6g} in row {start + int(bad[0])}"
    percent = values.min() >= 0 and 1 < values.max() <= PERCENT_SUMS[1]
    advice = IF_PERCENT if percent else f"{IF_LOGITS}." if name == "probs" else "Check its unit."
    return refuse(name, "must lie in [0, 1]", got, advice)


def frozen_meta(meta: Mapping[str, Any] | None) -> Mapping[str, Any]:
    try:
        return MappingProxyType(json.loads(json.dumps(dict(meta or {}), allow_nan=False)))
    except (TypeError, ValueError) as error:
        rule, advice = "must be a JSON-serialisable mapping", "Use strings, numbers and lists."
        raise refuse("meta", rule, f"got {error}", advice) from error
