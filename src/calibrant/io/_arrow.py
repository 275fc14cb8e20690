"""Columns of predictions as Arrow tables, and back: what Parquet and CSV share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.belonging import is_belonging
from calibrant._core.checks import InputError, refuse, shortened
from calibrant._core.memory import check_size
from calibrant._core.validation import outside
from calibrant.io._columns import FILE_NOTES, META_KEY, Columns
from calibrant.io._layout import SCORE_KINDS, Layout, plan_columns
from calibrant.io._values import (
    LEAST_SLACK,
    PLAIN_NUMBERS,
    SKIP_ROWS,
    fractions,
    numbers,
    refuse_text,
    renormalised,
    truths,
    yes_no,
)

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_EXAMPLE = 80  # characters of an answer that could not be read


def arrow_table(columns: Columns) -> pa.Table:
    import pyarrow as pa

    fields: dict[str, Any] = {}
    for name, array in columns.arrays.items():
        if array.ndim == 1:
            fields[name.removesuffix("s") if name == "labels" else name] = array
        else:
            stem = name.removesuffix("s")
            fields |= {
                f"{stem}_{k}": np.ascontiguousarray(column) for k, column in enumerate(array.T)
            }
    header = columns.header()
    return pa.table(fields, metadata=None if header is None else {META_KEY: header})


def table_columns(
    table: pa.Table | pa.RecordBatch, where: str, layout: Layout, *, pad: bool = False
) -> Columns:
    """The columns of a table that mean something, as arrays, and a note on the others.

    Numbered columns become a matrix stored column by column, so that no transposing copy is made.
    ``pad`` fills up lists of different lengths with options of probability 0.
    """
    plan = plan_columns(table.schema.names, where, layout)
    if plan.used and not table.num_rows:  # columns of a CSV file without rows have no type, either
        advice = "Check the filter or the path that produced it."
        raise refuse(where, "must hold at least one sample", "got no rows", advice)
    reader = TableReader(table, where, layout, pad=pad)
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in plan.singles.items():
        arrays |= reader.single(name, array)
    for kind, names in plan.scores.items():
        arrays |= reader.scores(kind, names, alone=bool(plan.labels))
    if plan.labels:
        arrays["labels"] = reader.label_matrix(plan.labels)
    if layout.skip_unparsable and reader.unreadable.any():
        if reader.unreadable.all():
            rule, advice = "must hold at least one answer that can be read", "Check the options."
            shown = ", ".join(dict.fromkeys(reader.examples))
            raise refuse(where, rule, f"got {table.num_rows:,} rows such as {shown}", advice)
        arrays = {name: array[~reader.unreadable] for name, array in arrays.items()}
    if "labels" in arrays and not plan.labels:
        arrays["labels"] = _plain_labels(arrays, layout.classes or plan.classes)
    return Columns(arrays, layout.classes or plan.classes, reader.meta(), plan.ignored)


class TableReader:
    """Reads columns of one table; remembers which rows could not be read."""

    def __init__(self, table: Any, where: str, layout: Layout, *, pad: bool) -> None:
        self.table, self.where, self.layout, self.pad = table, where, layout, pad
        self.unreadable = np.zeros(table.num_rows, dtype=np.bool_)
        self.examples: list[str] = []
        self.options: tuple[int, int] | None = None

    def single(self, name: str, array: str) -> dict[str, NDArray[Any]]:
        """One column, under the name of the array it becomes."""
        column, where = self.table.column(name), f"{self.where}: {name}"
        if array in SCORE_KINDS:
            return self._matrix(array, column, where)
        if array == "confidence":
            return {array: self._scaled(self._readable(column, where), where)}
        if array == "correct":
            return {array: self._truths(column, where)}
        return {array: from_arrow(column, where)}

    def label_matrix(self, names: Sequence[str]) -> NDArray[Any]:
        """A column per label, with NaN where it is missing."""
        columns = []
        for name in names:
            column, where = self.table.column(name), f"{self.where}: {name}"
            if is_text(column.type):
                rule, advice = "must hold 0 and 1", "Leave unknown labels empty."
                raise refuse(where, rule, "got strings", advice)
            columns.append(_floats(column))
        return np.stack(columns).T

    def scores(
        self, kind: str, names: Sequence[str], *, alone: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Columns of one class each, or one of lists; one of numbers is that of class 1 of two.

        ``alone`` says that every column is a label of its own.
        """
        if len(names) == 1 and is_list(self.table.column(names[0]).type):
            return self._matrix(kind, self.table.column(names[0]), f"{self.where}: {names[0]}")
        columns = [
            self._scaled(self._numbers(self.table.column(name), f"{self.where}: {name}"), name)
            if kind == "probs"
            else self._numbers(self.table.column(name), f"{self.where}: {name}")
            for name in names
        ]
        if len(columns) == 1 and not alone:
            (score,) = columns
            if kind == "probs" and not ((score >= 0) & (score <= 1)).all():
                raise outside(score, "probs")
            columns = [1 - score if kind == "probs" else np.zeros_like(score), score]
        return {kind: self._finished(kind, np.stack(columns).T)}

    def _matrix(self, kind: str, column: Any, where: str) -> dict[str, NDArray[Any]]:
        if self.pad and is_list(column.type):
            lengths = _lengths(column)
            low, high = int(lengths.min()), int(lengths.max())
            if low != high:
                self.options = (low, high)
                return {"logits": padded(column, lengths, kind, where)}
        values = from_arrow(column, where)
        if kind == "probs" and self.layout.percent:
            values = fractions(values, where)
        return {kind: self._finished(kind, values)}

    def _finished(self, kind: str, values: NDArray[Any]) -> NDArray[Any]:
        rounded = self.layout.renormalise and kind == "probs" and values.ndim == 2  # noqa: PLR2004
        return renormalised(values, f"{self.where}: probs") if rounded else values

    def _numbers(self, column: Any, where: str, advice: str = PLAIN_NUMBERS) -> NDArray[Any]:
        values = from_arrow(column, where)
        if values.dtype.kind != "U":
            return values
        found = numbers(values, where, percent=self.layout.percent)
        if np.isnan(found).any():
            raise refuse_text(values, np.isnan(found), where, advice)
        return found

    def _scaled(self, values: NDArray[Any], where: str) -> NDArray[Any]:
        return fractions(values, where) if self.layout.percent else values

    def _readable(self, column: Any, where: str) -> NDArray[Any]:
        """Confidences; rows that hold none are refused, or marked to be left out and counted."""
        if not self.layout.skip_unparsable:
            _refuse_missing(column, where)
            return self._numbers(column, where, SKIP_ROWS)
        if not is_text(column.type):
            bad = np.asarray(column.is_null()) | np.isnan(_floats(column))
            return self._mark(_floats(column), bad, ["missing"])
        texts = _texts(column)
        found = numbers(texts, where, percent=self.layout.percent)
        bad = np.isnan(found)
        return self._mark(found, bad, _examples(texts[bad]))

    def _truths(self, column: Any, where: str) -> NDArray[Any]:
        skip = self.layout.skip_unparsable
        if not is_text(column.type):
            if not skip:
                _refuse_missing(column, where)
            if not column.null_count:
                return from_arrow(column, where)
            bad = np.asarray(column.is_null())
            hits: NDArray[Any] = self._mark(_floats(column), bad, ["missing"]) == 1
            return hits
        texts = _texts(column) if skip else from_arrow(column, where)
        found, bad = truths(texts)
        if bad.any() and not skip:
            row = int(np.argmax(bad))
            rule = "must hold yes or no, true or false, 1 or 0"
            raise refuse(where, rule, f"got {str(texts[row])!r} in row {row}", SKIP_ROWS)
        return self._mark(found, bad, _examples(texts[bad]))

    def _mark(self, values: NDArray[Any], bad: Any, examples: list[str]) -> NDArray[Any]:
        self.unreadable |= bad
        self.examples += examples if bad.any() else []
        return values

    def meta(self) -> dict[str, Any]:
        """What a reader of the results must know, to be kept with them."""
        notes = self.notes()
        return {FILE_NOTES: list(notes)} if notes else {}

    def notes(self) -> tuple[str, ...]:
        """Sentences on rows left out and on padded questions."""
        found = []
        if self.unreadable.any():
            left, total = int(self.unreadable.sum()), len(self.unreadable)
            shown = ", ".join(self.examples[:3])
            found.append(
                f"{left:,} of {total:,} answers could not be read and are left out: {shown}."
            )
        if self.options:
            low, high = self.options
            found.append(f"Questions have {low} to {high} options; absent ones have probability 0.")
        return tuple(found)


def _refuse_missing(column: Any, where: str) -> None:
    if column.null_count:
        rule, got = "must hold a value in each row", f"got {column.null_count:,} rows without one"
        raise refuse(where, rule, got, SKIP_ROWS)


def _plain_labels(arrays: Mapping[str, Any], classes: Any) -> NDArray[Any]:
    """Labels yes and no of a two-class problem as 1 and 0; others as they are."""
    labels: NDArray[Any] = arrays["labels"]
    scores = next((arrays[kind] for kind in SCORE_KINDS if kind in arrays), None)
    two = scores is not None and scores.ndim == 2 and scores.shape[1] == 2  # noqa: PLR2004
    if labels.dtype.kind != "U" or classes or not two:
        return labels
    found = yes_no(labels)
    return labels if found is None else found


def _examples(texts: NDArray[Any]) -> list[str]:
    return [repr(shortened(str(text), LONGEST_EXAMPLE)) for text in np.unique(texts)[:3]]


def _floats(column: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(column.to_numpy(), dtype=np.float64)
    return array


def _texts(column: Any) -> NDArray[Any]:
    """Strings, where a missing one is empty; as objects, since answers may be long."""
    return np.array([text or "" for text in column.to_pylist()], dtype=np.object_)


def _lengths(column: Any) -> NDArray[Any]:
    import pyarrow.compute as pc

    if column.null_count:
        return np.zeros(1, dtype=np.int64)
    return np.asarray(pc.list_value_length(column))


def padded(column: Any, lengths: NDArray[Any], kind: str, where: str) -> NDArray[Any]:
    """Lists of different lengths as logits; what a row lacks is -inf."""
    high = int(lengths.max())
    check_size(8 * high * len(lengths), where)
    values = np.asarray(from_arrow(column.combine_chunks().flatten(), where), dtype=np.float64)
    if kind == "probs":
        total = np.repeat(np.add.reduceat(values, np.cumsum(lengths) - lengths), lengths)
        if not ((values >= 0) & (np.abs(total - 1) <= LEAST_SLACK)).all():
            rule, advice = "must hold probabilities that sum to 1", "Check the field."
            raise refuse(where, rule, "got others", advice)
        with np.errstate(divide="ignore"):
            values = np.log(np.maximum(values, np.finfo(np.float64).tiny) / total)
    out = np.full((len(lengths), high), -np.inf)
    out[np.arange(high) < lengths[:, None]] = values
    return out


def from_arrow(column: Any, where: str) -> NDArray[Any]:
    """A column as an array; a list column as a matrix whose lists all have one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise missing_values(where, column.null_count)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if is_list(kind):
        lengths = np.asarray(pc.list_value_length(column))
        low, high = (
            lengths.min(initial=0) if not len(lengths) else lengths.min(),
            lengths.max(initial=0),
        )
        if low != high:
            raise InputError(f"{where} has lists of {low} to {high} entries; give each row K.")
        values = from_arrow(column.flatten(), where)
        return values.reshape(len(column), high or 0)
    if is_text(kind):
        texts = column.dictionary if pa.types.is_dictionary(kind) else column
        longest = pc.max(pc.utf8_length(texts)).as_py() or 0
        check_size(4 * longest * len(column), where)  # NumPy pads every string to the longest
        names = np.asarray(texts.to_pylist(), dtype=np.str_)
        return names[column.indices.to_numpy()] if pa.types.is_dictionary(kind) else names
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def missing_values(where: str, count: int) -> InputError:
    """The error for a column with empty places."""
    values = "1 missing value" if count == 1 else f"{count:,} missing values"
    return InputError(
        f"{where} must hold a value in every row; got {values}. Fill or drop such rows."
    )


def check_columns(schema: pa.Schema, where: str, used: Mapping[str, str] | None = None) -> None:
    """Reject columns other than numbers, lists of numbers, booleans and names.

    ``used`` are the columns that matter and the arrays they become; by default all do.
    """
    import pyarrow as pa

    given: Any
    for name, given in zip(schema.names, schema.types, strict=True):
        if used is not None and name not in used:
            continue
        kind = given.value_type if is_list(given) else given
        array = name if used is None else used[name]
        named = array in ("label", "labels", "confidence", "correct") or is_belonging(array)
        label = named and is_text(given)
        numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (label or numbers or pa.types.is_boolean(kind)):
            rule = "must hold numbers, or lists of numbers (a label also names)"
            got = f"got {given} in {name!r}"
            raise refuse(where, rule, got, "Convert that column.")


def is_list(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a list."""
    import pyarrow as pa

    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a string, or codes into a list of strings."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
