"""Safetensors files of predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.extras import import_extra
from calibrant._core.files import clear_errors
from calibrant._core.memory import check_size
from calibrant.io._columns import (
    ARRAY_NAMES,
    META_KEY,
    STREAM_ADVICE,
    Columns,
    unknown,
    with_header,
)


def read_safetensors(path: Path) -> Columns:
    safetensors = _import_safetensors()
    with (
        clear_errors(path, "safetensors", safetensors.SafetensorError),
        safetensors.safe_open(path, framework="numpy") as file,
    ):
        names = list(file.keys())
        others = [name for name in names if name not in ARRAY_NAMES]
        if others:
            raise unknown(path, "array", others[0])
        parts = [file.get_slice(name) for name in names]
        whole = sum(math.prod(p.get_shape()) for p in parts if not p.get_dtype().startswith("F"))
        check_size(path.stat().st_size + 8 * whole, path.name, STREAM_ADVICE)
        arrays = {name: file.get_tensor(name) for name in names}
        if any(array.dtype.name == "bfloat16" for array in arrays.values()):
            # NumPy knows it once some package, such as onnx, was imported; that must not matter.
            raise TypeError("NumPy has no bfloat16")
        header = (file.metadata() or {}).get(META_KEY)
    return with_header(path, arrays, None if header is None else header.encode())


def write_safetensors(path: Path, columns: Columns) -> None:
    header = columns.header()
    arrays = {name: np.ascontiguousarray(array) for name, array in columns.arrays.items()}
    numpy = _import_safetensors("safetensors.numpy")
    numpy.save_file(arrays, path, metadata=None if header is None else {META_KEY: header})


def _import_safetensors(part: str = "safetensors") -> Any:
    return import_extra(part, "A .safetensors file")
