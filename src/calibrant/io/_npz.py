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
    ARRAY_NAMES,
    META_KEY,
    STREAM_ADVICE,
    Columns,
    unknown,
    with_header,
)
from calibrant.io._npy import npy_header, read_npy

Needs = Callable[[int, np.dtype[Any]], int]
Members = dict[str, zipfile.ZipInfo]


def read_npz(path: Path) -> Columns:
    """Predictions of an npz file."""
    arrays = read_arrays(path, needs=held, known=(*ARRAY_NAMES, META_KEY), advice=STREAM_ADVICE)
    header = arrays.pop(META_KEY, None)
    return with_header(path, arrays, None if header is None else header.tobytes())


def read_arrays(
    path: Path, *, needs: Needs, known: tuple[str, ...] | None = None, advice: str = ""
) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, if what they need by their headers fits into memory.

    ``needs`` gives the bytes for a number of entries of a type; names not in ``known`` are refused.
    """
    with clear_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        if len(members) != len(infos):
            raise damaged(path.name, "holds an array twice")
        for name in members:
            if known is not None and name not in known:
                raise unknown(path, "array", name)
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
