"""Arrays of NumPy's npy format, alone or as a pair of scores and labels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import InputError, refuse
from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant.io._columns import Columns
from calibrant.io._layout import Layout
from calibrant.io._values import matrix_columns


def read_npy_pair(path: Path, layout: Layout, labels: Path | None = None) -> Columns:
    labels = labels or path.with_name("labels.npy")
    kind = _kind_by_name(path)
    if not labels.exists():
        raise FileNotFoundError(
            f"{labels}: no such file. Pass labels=… to name the file with the labels."
        )
    check_regular(labels)
    return _read_npy_files({f"{kind}s": path, "labels": labels}, layout)


def read_npy_alone(path: Path, layout: Layout) -> Columns:
    """Scores, with the labels if they are there."""
    if path.with_name("labels.npy").is_file():
        return read_npy_pair(path, layout)
    return _read_npy_files({f"{_kind_by_name(path)}s": path}, layout)


def _kind_by_name(path: Path) -> str:
    kind = next((kind for kind in ("logit", "prob") if kind in path.stem.lower()), None)
    if kind is None:
        rule = "must be named after its contents, logits or probs"
        advice = "Rename it, for example to logits.npy; the kind is never guessed from the values."
        raise refuse("path", rule, f"got {path.name!r}", advice)
    return kind


def _read_npy_files(files: dict[str, Path], layout: Layout) -> Columns:
    arrays = {name: read_array(file) for name, file in files.items()}
    return matrix_columns(arrays, next(iter(files.values())).name, layout, ())


def read_array(path: Path) -> NDArray[Any]:
    """One array from a .npy file."""
    check_regular(path)
    with clear_errors(path, "npy"), path.open("rb") as stream:
        return read_npy(stream, path.stat().st_size, path.name)


def npy_header(
    stream: IO[bytes], file_size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order (Fortran or C) and type of an array, if they match the bytes available."""
    version = np.lib.format.read_magic(stream)
    headers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in headers:
        raise InputError(f"{where} has npy version {version}; save it again with numpy.save.")
    shape, fortran, dtype = headers[version](stream)
    if dtype.hasobject:
        raise InputError(
            f"{where} holds Python objects, which would need pickle; pickle can run code, so it "
            "is never read. Save plain numbers."
        )
    declared = math.prod(shape) * dtype.itemsize
    body = file_size - stream.tell()
    if declared != body:
        raise InputError(
            f"{where} declares {declared:,} bytes of data but holds {body:,}; the file is cut "
            "short or damaged. Save it again."
        )
    return shape, fortran, dtype


def read_npy(stream: IO[bytes], file_size: int, where: str) -> NDArray[Any]:
    """Read one npy array whose declared size matches the bytes available."""
    shape, fortran, dtype = npy_header(stream, file_size, where)
    declared = math.prod(shape) * dtype.itemsize
    check_size(declared, where)
    data = np.empty(math.prod(shape), dtype=dtype)
    raw, filled = data.view(np.uint8), 0
    while filled < declared:
        piece = stream.read(min(declared - filled, 1 << 24))
        if not piece:
            raise InputError(f"{where} ends early, after {filled:,} of {declared:,} bytes.")
        raw[filled : filled + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        filled += len(piece)
    return data.reshape(shape, order="F" if fortran else "C")
