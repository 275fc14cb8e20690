"""Safetensors files of predictions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.brain_rows import BrainRows
from calibrant._core.checks import InputError
from calibrant._core.extras import import_extra
from calibrant._core.files import clear_errors
from calibrant._core.memory import PARSED, check_size
from calibrant.io._columns import (
    META_KEY,
    STREAM_ADVICE,
    Columns,
    check_ignored,
    is_known,
    with_header,
)
from calibrant.io._layout import Layout
from calibrant.io._text import text_array
from calibrant.io._values import matrix_columns

NAMES_KEY = "calibrant.names"


def read_safetensors(path: Path, layout: Layout) -> Columns:
    safetensors = _import_safetensors()
    with (
        clear_errors(path, "safetensors", safetensors.SafetensorError),
        safetensors.safe_open(path, framework="numpy") as file,
    ):
        every = list(file.keys())
        others = [name for name in every if not is_known(name)]
        check_ignored(path.name, "array", others, strict=layout.strict)
        names = [name for name in every if name not in others]
        parts = [file.get_slice(name) for name in names]
        whole = sum(math.prod(p.get_shape()) for p in parts if not p.get_dtype().startswith("F"))
        check_size(path.stat().st_size + 8 * whole, path.name, STREAM_ADVICE)
        brain = {
            name for name, part in zip(names, parts, strict=True) if part.get_dtype() == "BF16"
        }
        arrays = {name: file.get_tensor(name) for name in names if name not in brain}
        arrays |= _widened(path, brain)
        metadata = file.metadata() or {}
        header = metadata.get(META_KEY)
        names_of = metadata.get(NAMES_KEY)
    if names_of is not None:
        arrays |= _decoded(path, arrays, names_of)
    columns = matrix_columns(arrays, path.name, layout, others)
    return with_header(path, columns, None if header is None else header.encode())


def _widened(path: Path, names: set[str]) -> dict[str, Any]:
    """Tensors in bfloat16, which NumPy does not have, as float32; the file is a checked one."""
    if not names:
        return {}
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        found = {}
        for name in names:
            start, stop = header[name]["data_offsets"]
            file.seek(8 + length + start)
            bits = np.frombuffer(file.read(stop - start), dtype="<u2")
            found[name] = BrainRows(bits)[:].reshape(header[name]["shape"])
    return found


def write_safetensors(path: Path, columns: Columns) -> None:
    header = columns.header()
    arrays = {name: np.ascontiguousarray(array) for name, array in columns.arrays.items()}
    metadata = {} if header is None else {META_KEY: header}
    names_of = {}
    for name, array in arrays.items():
        if (
            array.dtype.kind == "U"
        ):  # tensors cannot hold strings: store codes and a table of strings
            names, codes = np.unique(array, return_inverse=True)
            arrays[name], names_of[name] = codes, names.tolist()
    if names_of:
        metadata[NAMES_KEY] = json.dumps(names_of)
    numpy = _import_safetensors("safetensors.numpy")
    numpy.save_file(arrays, path, metadata=metadata or None)


def _decoded(path: Path, arrays: dict[str, Any], names_of: str) -> dict[str, Any]:
    """Codes turned back into strings."""
    check_size(PARSED * len(names_of), path.name)
    try:
        found = {name: text_array(names, path.name) for name, names in json.loads(names_of).items()}
        for name, names in found.items():
            check_size(names.itemsize * arrays[name].size, path.name)
        return {name: names[arrays[name]] for name, names in found.items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"{path.name} has damaged metadata ({error}); save it again.") from error


def _import_safetensors(part: str = "safetensors") -> Any:
    return import_extra(part, "A .safetensors file")
