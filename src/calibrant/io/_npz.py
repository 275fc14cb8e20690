"""Archives of NumPy arrays."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.io._columns import (
    META_KEY,
    STREAM_ADVICE,
    Columns,
    check_ignored,
    is_known,
    with_header,
)
from calibrant.io._layout import Layout
from calibrant.io._npy import npy_header, read_npy
from calibrant.io._values import matrix_columns

Needs = Callable[[int, np.dtype[Any]], int]
Members = dict[str, zipfile.ZipInfo]


def read_npz(path: Path, layout: Layout) -> Columns:
    """Predictions of an npz file."""
    ignored: list[str] = []

    def known(name: str) -> bool:
        if name == META_KEY or is_known(name):
            return True
        ignored.append(name)
        return False

    arrays = read_arrays(
        path,
        needs=held,
        known=known,
        advice=STREAM_ADVICE,
    )
    header = arrays.pop(META_KEY, None)
    check_ignored(path.name, "array", ignored, strict=layout.strict)
    columns = matrix_columns(arrays, path.name, layout, ignored)
    return with_header(path, columns, None if header is None else header.tobytes())


def read_arrays(
    path: Path, *, needs: Needs, known: Callable[[str], bool] | None = None, advice: str = ""
) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, if the sizes in their headers fit into memory.

    ``needs`` gives the bytes for a number of entries of a type; arrays not ``known`` are not read.
    """
    with clear_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        if len(members) != len(infos):
            raise damaged(path.name, "holds an array twice")
        members = {name: info for name, info in members.items() if known is None or known(name)}
        check_size(_needed(archive, members, path.name, needs), path.name, advice)
        return {name: _read_member(archive, info, name, path) for name, info in members.items()}


def _needed(archive: zipfile.ZipFile, members: Members, where: str, needs: Needs) -> int:
    needed = 0
    for name, info in members.items():
        with archive.open(info) as stream:
            shape, _, dtype = npy_header(stream, info.file_size, f"{where}: {name}")
        needed += needs(math.prod(shape), dtype)
    return needed


def _read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, path: Path
) -> NDArray[Any]:
    with archive.open(info) as stream:
        array = read_npy(stream, info.file_size, f"{path.name}: {name}")
        if stream.read(1):  # also makes zipfile compare the checksum
            raise damaged(path.name, f"has more bytes in {name} than it declares")
    return array


def held(size: int, dtype: np.dtype[Any]) -> int:
    """Bytes of an array and of the 8-byte numbers that whole numbers are turned into."""
    return size * (dtype.itemsize + (0 if dtype.kind == "f" else 8))


def write_npz(path: Path, columns: Columns) -> None:
    arrays = dict(columns.arrays)
    header = columns.header()
    if header is not None:
        arrays[META_KEY] = np.frombuffer(header.encode(), dtype=np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
