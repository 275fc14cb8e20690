"""Text files, plain or compressed with gzip, opened as bytes."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from calibrant._core.memory import check_size

GZIP = ".gz"
TEXT_PIECE = 1 << 24


@contextmanager
def opened_text(path: Path, needs: int = 2) -> Iterator[BinaryIO]:
    """The bytes of a text file; a compressed one is unpacked into memory as far as that goes.

    ``needs`` is how many bytes of memory each byte of text will take.
    """
    if path.suffix.lower() != GZIP:
        with path.open("rb") as stream:
            yield stream
        return
    unpacked = io.BytesIO()
    with gzip.open(path, "rb") as packed:
        while piece := packed.read(TEXT_PIECE):
            check_size(needs * (unpacked.tell() + len(piece)), path.name)
            unpacked.write(piece)
    unpacked.seek(0)
    yield unpacked


def text_array(texts: Sequence[str], where: str) -> NDArray[np.str_]:
    """Strings as an array, if they fit into memory: NumPy pads each to the longest."""
    check_size(4 * max(map(len, texts), default=0) * len(texts), where)
    return np.array(texts, dtype=np.str_)


def size_of(stream: BinaryIO) -> int:
    """Bytes of an opened file."""
    here = stream.tell()
    size = stream.seek(0, io.SEEK_END)
    stream.seek(here)
    return size
