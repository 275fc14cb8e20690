"""Text files, plain or compressed with gzip, opened as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import refuse
from calibrant._core.memory import PARSED, check_size, in_bytes

GZIP = ".gz"
TEXT_PIECE = 1 << 24
# A table that is packed to less than this share of its text hardly says anything: text beyond the
# first gigabyte is not unpacked then, which would take minutes.
EXPANSION, PLENTY = 200, 1 << 30


def opened_text(path: Path) -> BinaryIO:
    """The bytes of a text file; a compressed one is unpacked as it is read, never as a whole."""
    if path.suffix.lower() != GZIP:
        return path.open("rb")
    import gzip

    return cast(BinaryIO, gzip.open(path))


def text_pieces(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """The whole text in pieces; afterwards the stream is at its beginning again."""
    most = max(PLENTY, EXPANSION * path.stat().st_size)
    stream.seek(0)
    size = 0
    while piece := stream.read(TEXT_PIECE):
        size += len(piece)
        if size > most:
            rule = f"must not unpack to more than {EXPANSION} times its size"
            raise refuse(path.name, rule, f"got over {in_bytes(most)}", "Unpack it with gunzip.")
        yield piece
    stream.seek(0)


def check_parsed(stream: BinaryIO, path: Path) -> None:
    """Fail if the objects of JSON text do not fit into the available memory."""
    size = 0
    for piece in text_pieces(stream, path):
        size += len(piece)
        check_size(PARSED * size, path.name)


def text_array(texts: Sequence[str], where: str) -> NDArray[np.str_]:
    """Strings as an array, if they fit into memory: NumPy pads each to the longest."""
    check_size(4 * max(map(len, texts), default=0) * len(texts), where)
    return np.array(texts, dtype=np.str_)
