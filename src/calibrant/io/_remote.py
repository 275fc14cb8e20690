"""Files on other filesystems, by their URL: read in place, or copied while they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._core.checks import InputError, refuse
from calibrant._core.memory import in_bytes

COPIED_AT_ONCE = 1 << 22
SIGN = "://"


def is_url(path: str | Path) -> bool:
    """Whether a path names a file on another filesystem, such as ``s3://bucket/p.parquet``."""
    return SIGN in str(path)


@dataclass(frozen=True)
class RemoteFile:
    """A file on any filesystem that PyArrow knows, read in place."""

    url: str

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return _unquoted(_without_query(self.url)[0].rpartition("/")[2])

    def __str__(self) -> str:
        return self.url

    def open(self) -> Any:
        """The file for random access; raises FileNotFoundError where there is none."""
        with _clear(self.url):
            system, name, _ = _file_at(self.url)
            return system.open_input_file(name)


def remote_files(pattern: str) -> list[str]:
    """URLs of the files that a URL names: one file, the Parquet files of a folder, or a pattern.

    A question mark begins the options of a filesystem, so of the wildcards only ``*`` and ``**``
    are known.
    """
    from urllib.parse import quote

    from pyarrow import fs

    plain, query = _without_query(pattern)
    base, wild = _fixed_part(plain)
    with _clear(pattern):
        system, name = fs.FileSystem.from_uri(base + query)
        kind = system.get_file_info(name).type
        if not wild and kind == fs.FileType.File:
            return [pattern]
        if kind == fs.FileType.NotFound:
            return []
        wild = wild or "*.parquet"
        choice = fs.FileSelector(name, recursive="/" in wild or "**" in wild)
        found = [info.path for info in system.get_file_info(choice) if info.is_file]
    inner = (path.removeprefix(name).lstrip("/") for path in found)
    wanted = _matcher(wild)
    return [f"{base.rstrip('/')}/{quote(path)}{query}" for path in inner if wanted.match(path)]


def _without_query(url: str) -> tuple[str, str]:
    """A URL, and the options of its filesystem with their question mark."""
    plain, mark, query = url.partition("?")
    return plain, mark + query


def _fixed_part(plain: str) -> tuple[str, str]:
    """The folder before the first wildcard, and the pattern from there on."""
    parts = plain.split("/")
    first = next((k for k, part in enumerate(parts) if "*" in part), len(parts))
    return "/".join(parts[:first]), _unquoted("/".join(parts[first:]))


def _unquoted(text: str) -> str:
    from urllib.parse import unquote  # takes a while to load, and only URLs need it

    return unquote(text)


def _matcher(wild: str) -> re.Pattern[str]:
    """Match a path to a pattern in which ``*`` stays within a folder and ``**`` does not."""
    text = ""
    for part in re.split(r"(\*\*/|\*\*|\*)", wild):
        known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
        text += known.get(part, re.escape(part))
    return re.compile(f"{text}\\Z")


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """A file on any filesystem that PyArrow knows, as a local one."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        with _clear(url):
            system, name, size = _file_at(url)
            place = Path(folder) / Path(name).name
            _check_room(size, Path(folder), url)
            # As it is: by default PyArrow unpacks what ends in .gz.
            with (
                system.open_input_stream(name, compression=None) as source,
                place.open("wb") as target,
            ):
                shutil.copyfileobj(source, target, COPIED_AT_ONCE)
        yield place


def _file_at(url: str) -> tuple[Any, str, int]:
    """Filesystem, path and size of a file."""
    from pyarrow import fs

    system, name = fs.FileSystem.from_uri(url)
    info = system.get_file_info(name)
    if info.type != fs.FileType.File:
        raise FileNotFoundError(f"{url}: no such file. Check the path.")
    return system, name, info.size or 0


@contextmanager
def _clear(url: str) -> Iterator[None]:
    """Turn the many errors of filesystems into one that names the URL."""
    import pyarrow as pa

    if url.startswith(("http://", "https://")):
        advice = "Download it first, or use a URL such as s3://, gs:// or hdfs://."
        raise refuse("path", "must be on a filesystem that PyArrow knows", f"got {url!r}", advice)
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except (pa.ArrowException, ValueError, NotImplementedError, OSError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(f"{url} cannot be read: {reason}. Check the URL.") from error


def _check_room(size: int, folder: Path, url: str) -> None:
    import shutil

    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{url} has {in_bytes(size)}, but only {in_bytes(free)} are free in {folder}. Set "
            "TMPDIR to a folder with more room."
        )
