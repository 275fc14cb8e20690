"""Columns of Arrow from Python's numbers and strings, without pandas.

``pa.array`` first loads pandas, if that is installed, to see whether it was given one of its
objects. That takes longer than to evaluate a small run, and every worker of a study writes tables.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def plain_array(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """What ``pa.array`` makes of whole numbers, floats or strings, where None is a missing one.

    ``kind`` is int64, float64 or string; None to take what fits the values.
    """
    kind = _kind_of(values) if kind is None else kind
    if kind is None:
        return pa.array(values)
    missing = [value is None for value in values]
    valid = pa.py_buffer(np.packbits(np.logical_not(missing), bitorder="little"))
    content = _strings(values) if pa.types.is_string(kind) else [_numbers(values, kind)]
    return pa.Array.from_buffers(kind, len(values), [valid if any(missing) else None, *content])


def _kind_of(values: Sequence[Any]) -> pa.DataType | None:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return pa.string()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds in ({float}, {int, float}) else None


def _numbers(values: Sequence[float | None], kind: pa.DataType) -> pa.Buffer:
    code = "q" if pa.types.is_integer(kind) else "d"
    return pa.py_buffer(array(code, [0 if value is None else value for value in values]))


def _strings(values: Sequence[str | None]) -> list[pa.Buffer]:
    """Where each string ends, behind a 0; and all of them."""
    encoded = [b"" if value is None else value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return [pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
