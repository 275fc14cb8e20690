"""Columns of predictions as Arrow tables, and back: what Parquet and CSV share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import InputError, refuse
from calibrant._core.memory import check_size
from calibrant.io._columns import ARRAY_NAMES, META_KEY, Columns, unknown

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERED = re.compile(r"(logit|prob)_(0|[1-9][0-9]{0,6})\Z")


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


def table_arrays(table: pa.Table | pa.RecordBatch, where: str) -> dict[str, NDArray[Any]]:
    """Turn columns ``label, logit_0 …`` or list columns ``labels, logits`` into arrays.

    Numbered columns become a matrix stored column by column, so that no transposing copy is made.
    """
    if not table.num_rows:  # columns of a CSV file without rows have no type, either
        advice = "Check the filter or the path that produced it."
        raise refuse(where, "must hold at least one sample", "got no rows", advice)
    numbered: dict[str, dict[int, Any]] = {"logit": {}, "prob": {}}
    arrays: dict[str, NDArray[Any]] = {}
    _refuse_twins(table.schema.names, where)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        match = _NUMBERED.match(name)
        if match:
            numbered[match[1]][int(match[2])] = column
        elif name in (*ARRAY_NAMES, "label"):
            arrays["labels" if name == "label" else name] = from_arrow(column, f"{where}: {name}")
        else:
            raise unknown(where, "column", name)
    for stem, columns in numbered.items():
        if columns:
            missing = next(k for k in range(len(columns) + 1) if k not in columns)
            if missing != len(columns):
                raise InputError(
                    f"{where} has no column {stem}_{missing}, but has {stem}_{max(columns)}; "
                    "number the classes from 0 without gaps."
                )
            ordered = [from_arrow(columns[k], f"{where}: {stem}_{k}") for k in range(len(columns))]
            arrays[f"{stem}s"] = np.stack(ordered).T
    return arrays


def _refuse_twins(names: list[str], where: str) -> None:
    """Reject a quantity that occurs twice: it is ambiguous which one is meant."""
    stems = {"logit": "logits", "prob": "probs"}
    matches = [(name, _NUMBERED.match(name)) for name in names]
    plain = ["labels" if name == "label" else name for name, match in matches if not match]
    numbered = {stems[match[1]] for _, match in matches if match}
    twice = [name for name in names if names.count(name) > 1]
    twice += [name for name in plain if plain.count(name) > 1 or name in numbered]
    if twice:
        raise InputError(f"{where} holds {twice[0]} twice; keep one column of each name.")


def from_arrow(column: Any, where: str) -> NDArray[Any]:
    """A column as an array; a list column as a matrix whose lists all have one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise InputError(f"{where} has {column.null_count:,} missing values; fill or drop them.")
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
        check_size(4 * longest * len(column), where)  # NumPy gives each the room of the longest
        names = np.asarray(texts.to_pylist(), dtype=np.str_)
        return names[column.indices.to_numpy()] if pa.types.is_dictionary(kind) else names
    array: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return array


def check_columns(schema: pa.Schema, where: str) -> None:
    """Refuse columns that are no numbers, lists of numbers, truth values or names."""
    import pyarrow as pa

    given: Any
    for name, given in zip(schema.names, schema.types, strict=True):
        kind = given.value_type if is_list(given) else given
        label = name in ("label", "labels") and is_text(given)
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
