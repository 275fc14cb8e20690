"""Reading bytes and arrays that nobody vouches for: sizes first, one clear error, no pickle."""

from __future__ import annotations

import gzip
import lzma
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from numpy.typing import NDArray

from calibrant._checks import InputError
from calibrant._files import FILE_ERRORS, check_regular, read_array, read_npy
from calibrant._memory import check_size

DAMAGE: tuple[type[Exception], ...] = (
    *FILE_ERRORS, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError, struct.error,
    NotImplementedError, RuntimeError, LookupError, OverflowError, SyntaxError,
    tokenize.TokenError,  # from a damaged header of a npy file
)  # fmt: skip
PIECE = 1 << 22


@contextmanager
def clear_errors(where: str | Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Turn the many errors of damaged files, and ``more``, into one sentence."""
    name = where if isinstance(where, str) else where.name
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except (*DAMAGE, *more) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise damaged(name, f"cannot be read as {kind}: {reason}") from error


def damaged(where: str, what: str) -> InputError:
    """The error for a file that is not what its name promises."""
    return InputError(
        f"{where} {what}. The file is damaged, cut short or of another kind; get it again."
    )


def read_bytes(path: Path) -> bytes:
    """A whole file, if it fits into this machine's memory."""
    check_regular(path)
    check_size(path.stat().st_size, path.name)
    return path.read_bytes()


def read_exactly(stream: IO[bytes], size: int, where: str) -> bytes:
    """``size`` bytes, read in pieces so that a false size costs no more than what is there."""
    check_size(2 * size, where)  # the pieces, and the whole that they are joined to
    pieces, missing = [], size
    with clear_errors(where, "a whole file"):
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
    with clear_errors(path, "npz"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        # The arrays, and the form in which a data set holds them.
        check_size(2 * sum(info.file_size for info in infos), path.name)
        names = [info.filename.removesuffix(".npy") for info in infos]
        if len(set(names)) != len(names):
            raise damaged(path.name, "holds an array twice")
        arrays = {}
        for name, info in zip(names, infos, strict=True):
            with archive.open(info) as stream:
                arrays[name] = read_npy(stream, info.file_size, f"{path.name}: {name}")
                if stream.read(1):  # also makes zipfile compare the checksum
                    raise damaged(path.name, f"has more bytes in {name} than it declares")
    return arrays
