"""Untrusted archives: no escaping paths, links, devices or decompression bombs."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from calibrant._core.checks import InputError, refuse
from calibrant._core.files import clear_errors, damaged
from calibrant._core.stopping import removed_on_stop
from calibrant.data._reading import PIECE, read_exactly

MAX_MEMBERS = 2_000_000
# No data set here unpacks to 20 times its archive; small archives may unpack to 1 GiB.
MAX_GROWTH = 20
ALWAYS_ALLOWED = 1 << 30
# No header of a tar file is larger; a larger read means a malformed file.
MAX_READ = 1 << 24

_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}


def read_members(archive: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The files of an archive whose paths end in ``names``, as bytes, without unpacking the rest.

    Each is returned under the requested name; missing ones are left out.
    """
    found: dict[str, bytes] = {}
    for path, size, stream in iterate(archive):
        name = next((name for name in names if path == name or path.endswith(f"/{name}")), None)
        if name is None:
            continue
        if name in found:
            raise damaged(archive.name, f"holds {name} twice")
        found[name] = read_exactly(stream, size, f"{archive.name}: {name}")
    return found


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a tar or zip archive into ``folder`` and return the unpacked paths.

    Everything is written to a temporary place and renamed at the end, so that a partial archive is
    never mistaken for a complete one. Existing files are not overwritten.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as work,
        removed_on_stop(Path(work)),
    ):
        for path, _, stream in iterate(archive):
            target = Path(work, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with clear_errors(archive, "archive", tarfile.TarError), target.open("xb") as out:
                shutil.copyfileobj(stream, out, PIECE)
        tops = sorted(Path(work).iterdir())
        for top in tops:
            if (folder / top.name).exists():
                rule = f"must not hold {top.name} already"
                raise refuse("folder", rule, f"got {folder}", "Move it first.")
        return [top.rename(folder / top.name) for top in tops]


def iterate(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Path, size and stream of every file; an unsafe archive raises at the first unsafe entry."""
    limit = max(ALWAYS_ALLOWED, MAX_GROWTH * archive.stat().st_size)
    members = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    count, total = 0, 0
    with clear_errors(archive, "archive", tarfile.TarError):
        for path, size, stream in members(archive, limit):
            count, total = count + 1, total + size
            if count > MAX_MEMBERS or total > limit:
                raise _unsafe(archive, f"unpacks to more than {limit:,} bytes")
            if stream is not None:
                yield _safe_path(archive, path), size, stream
            else:
                _safe_path(archive, path)


_Member = tuple[str, int, IO[bytes] | None]


def _tar_members(archive: Path, limit: int) -> Iterator[_Member]:
    with _tar(archive, limit) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise _unsafe(archive, f"holds {member.name!r}, a link or device")
            yield member.name, member.size, tar.extractfile(member) if member.isreg() else None


def _zip_members(archive: Path, limit: int) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        infos = file.infolist()
        if len(infos) > MAX_MEMBERS or sum(info.file_size for info in infos) > limit:
            raise _unsafe(archive, f"unpacks to more than {limit:,} bytes")
        for info in infos:
            # The upper half is the Unix mode, 0 where the archive was made elsewhere.
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _unsafe(archive, f"holds {info.filename!r}, a link or device")
            if info.is_dir():
                yield info.filename, 0, None
                continue
            with file.open(info) as stream:
                yield info.filename, info.file_size, stream


def _safe_path(archive: Path, name: str) -> str:
    """The path inside the archive, if it cannot leave the folder it is unpacked to."""
    path = PurePosixPath(name)
    odd = "\\" in name or "\0" in name or ":" in name
    if path.is_absolute() or ".." in path.parts or odd:
        raise _unsafe(archive, f"holds the path {name!r}, which leads out of its folder")
    return str(path)


def _unsafe(archive: Path, what: str) -> InputError:
    advice = "Get the archive from its authors."
    return refuse(archive.name, "must be a safe archive", f"it {what}", advice)


class _Limited:
    """A stream that raises beyond ``limit`` bytes in total, or for very large reads."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self._limit = stream, limit

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_READ or self._stream.tell() + size > self._limit + MAX_READ:
            raise tarfile.ReadError("it declares more bytes than it may hold")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != 0 or offset > self._limit + MAX_READ:
            raise tarfile.ReadError("it declares more bytes than it may hold")
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()

    def readable(self) -> bool:
        return True


@contextmanager
def _tar(archive: Path, limit: int) -> Iterator[tarfile.TarFile]:
    opener = _OPENERS.get(archive.suffix, Path.open)
    with opener(archive, "rb") as stream:
        limited = cast("IO[bytes]", _Limited(stream, limit))
        with tarfile.open(fileobj=limited, mode="r:") as tar:
            yield tar
