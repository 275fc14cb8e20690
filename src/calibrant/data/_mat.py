"""Arrays of numbers from MATLAB 5 files (.mat), as SVHN is published.

SciPy's reader trusts the sizes that a file declares and can crash the interpreter over a false
one; this one reads less and trusts nothing.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.data._reading import read_bytes

HEADER = 128
# Version 1.0, written by a little-endian machine.
VERSION = b"\x00\x01IM"
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
# How values are stored, and which classes of MATLAB arrays hold plain numbers.
STORED = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8"}
COMPLEX_FLAG = 0x08
WORD, TAG = 4, 8
MAX_DIMENSIONS = 8


def read_mat(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays called ``names`` in the file; others are skipped."""
    data = memoryview(read_bytes(path))
    if data[HEADER - len(VERSION) : HEADER] != VERSION:
        raise damaged(path.name, "is not a MATLAB 5 file")
    found: dict[str, NDArray[Any]] = {}
    with clear_errors(path, "mat"):
        for content in _matrices(data[HEADER:], path.name):
            name, array = _matrix(content, names, path.name)
            if array is not None:
                if name in found:
                    raise damaged(path.name, f"holds {name} twice")
                found[name] = array
    return found


def _matrices(data: memoryview, where: str) -> Iterator[memoryview]:
    """The contents of every array in the file, unpacked."""
    while data:
        kind, content, data = _element(data, where)
        if kind == COMPRESSED:
            kind, content, _ = _element(_inflate(content, where), where)
        if kind == MATRIX:
            yield content


def _element(data: memoryview, where: str) -> tuple[int, memoryview, memoryview]:
    """Kind and contents of the first element, and what follows it."""
    if len(data) < TAG:
        raise damaged(where, "ends within an element")
    first, size = (int(n) for n in np.frombuffer(data[:TAG], dtype="<u4"))
    if first >> 16:  # small elements keep their size in the upper half, their contents in the tag
        kind, size, start, end = first & 0xFFFF, first >> 16, WORD, TAG
    else:
        padding = 0 if first == COMPRESSED else -size % TAG
        kind, start, end = first, TAG, TAG + size + padding
    if start + size > min(len(data), max(end, TAG)):
        raise damaged(where, f"declares an element of {size:,} bytes but has fewer")
    return kind, data[start : start + size], data[end:]


def _inflate(content: memoryview, where: str) -> memoryview:
    """Unpack one element: its size first, then no more than that."""
    unpacker = zlib.decompressobj()
    tag = unpacker.decompress(content, TAG)
    if len(tag) < TAG:
        raise damaged(where, "ends within a packed element")
    size = int(np.frombuffer(tag, dtype="<u4")[1])
    check_size(size, where)
    body = unpacker.decompress(unpacker.unconsumed_tail, size) if size else b""
    # Reading one byte more than declared makes zlib verify its checksum.
    more = unpacker.decompress(unpacker.unconsumed_tail, 1)
    if more or not unpacker.eof:
        raise damaged(where, f"has a packed element of another size than the {size:,} declared")
    return memoryview(tag + body)


def _matrix(
    content: memoryview, names: tuple[str, ...], where: str
) -> tuple[str, NDArray[Any] | None]:
    """Name and values of an array, or None if it was not requested."""
    flags_kind, flags, content = _element(content, where)
    shape_kind, shape_data, content = _element(content, where)
    name_kind, name_data, content = _element(content, where)
    if (flags_kind, shape_kind, name_kind) != (UINT32, INT32, INT8) or len(flags) != TAG:
        raise damaged(where, "has an array without flags, shape and name")
    name = bytes(name_data).decode("latin-1")
    if name not in names:
        return name, None
    shape = tuple(int(n) for n in np.frombuffer(shape_data, dtype="<i4"))
    kind, values, _ = _element(content, where)
    if flags[0] not in CLASSES or flags[1] & COMPLEX_FLAG or kind not in STORED:
        raise damaged(where, f"holds {name}, which is not an array of real numbers")
    stored = np.dtype(STORED[kind])
    whole = 0 < len(shape) <= MAX_DIMENSIONS and min(shape) >= 0
    if not whole or math.prod(shape) * stored.itemsize != len(values):
        raise damaged(where, f"declares {name} as {shape} but holds {len(values):,} bytes")
    array = np.frombuffer(values, dtype=stored).reshape(shape, order="F")
    # MATLAB stores whole numbers in few bytes, whatever their class.
    return name, array.astype(CLASSES[flags[0]], copy=False)
