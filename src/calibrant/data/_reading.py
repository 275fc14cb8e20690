"""Reading untrusted bytes and arrays: sizes are checked first, one clear error, no pickle."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from numpy.typing import NDArray

from calibrant._core.files import check_regular, clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.io import read_array, read_arrays

PIECE = 1 << 22


def read_bytes(path: Path) -> bytes:
    """A whole file, if it fits into this machine's memory."""
    check_regular(path)
    check_size(path.stat().st_size, path.name)
    return path.read_bytes()


def read_exactly(stream: IO[bytes], size: int, where: str) -> bytes:
    """``size`` bytes, read in pieces, so that a wrong declared size allocates nothing extra."""
    check_size(2 * size, where)  # the pieces, and the whole that they are joined to
    pieces, missing = [], size
    with clear_errors(where, "a whole file", tarfile.TarError):
        while missing:
            piece = stream.read(min(missing, PIECE))
            if not piece:
                raise damaged(where, f"ends early, {missing:,} of {size:,} bytes are missing")
            pieces.append(piece)
            missing -= len(piece)
    return b"".join(pieces)


@contextmanager
def open_plain_or_gz(path: Path) -> Iterator[IO[bytes]]:
    """The contents of a file, unpacked on the way if its name ends in .gz."""
    if path.suffix == ".gz":
        with gzip.open(path, "rb") as stream:
            yield cast("IO[bytes]", stream)
    else:
        with path.open("rb") as plain:
            yield plain


def load_npy(path: Path) -> NDArray[Any]:
    """One array from a .npy file."""
    with clear_errors(path, "npy"):
        return read_array(path)


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file."""
    # The arrays, and the form in which a data set holds them.
    return read_arrays(path, needs=lambda size, dtype: 2 * size * dtype.itemsize)
