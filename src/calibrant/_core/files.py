"""Reading and writing files safely.

Files are untrusted: nothing is unpickled, only regular files are opened, and their memory needs are
compared with the available memory before anything is allocated.
"""

from __future__ import annotations

import errno
import io
import json
import lzma
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import InputError, refuse
from calibrant._core.memory import in_bytes
from calibrant._core.stopping import removed_on_stop

TEMPORARY = ".tmp"  # suffix of files that are still being written
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk
# Errors of folders that cannot be flushed: some network disks, and unreadable folders.
NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)
# Errors that the file-reading libraries raise for damaged files.
DAMAGE: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    AttributeError,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    LookupError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Write to a temporary name and rename it at the end: readers never see a partial file.

    All files of this package are written this way. The contents are flushed to disk before the
    rename, so this also holds after a power cut. Links are followed, and the permissions of a
    replaced file are kept. Devices, pipes and folders are rejected.
    """
    target = writable(path)
    temporary = _temporary(target)
    with removed_on_stop(temporary):
        try:
            yield temporary
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            _flush(temporary)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    try:
        _flush(target.parent)
    except OSError as error:
        if error.errno not in NO_FLUSH:
            raise


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.stem}-{os.getpid()}-{os.urandom(4).hex()}{TEMPORARY}")


def _flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: str | Path, content: bytes | memoryview) -> None:
    """Write a whole file, or leave the existing one unchanged."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(content)


def writable(path: str | Path, argument: str = "path") -> Path:
    """The path to write to after following links; rejects anything but a regular file."""
    target = _resolved(Path(path))
    if target.exists() and not target.is_file():
        rule, advice = "must be a regular file or a new name", "Choose another name."
        raise refuse(argument, rule, f"got {str(path)!r}, {_kind_of(target)}", advice)
    return target


def check_output(argument: str, path: str | Path) -> None:
    """Refuse a file that could not be written, before the work whose result it is to hold."""
    target = writable(path, argument)
    try:
        _try_to_write(target)
    except OSError as error:
        rule = "must be a file in an existing folder that can be written to"
        got = f"got {str(path)!r} ({error.strerror})"
        raise refuse(argument, rule, got, "Check the path.") from error


def make_output_folder(argument: str, folder: str | Path, files: Iterable[str] = ()) -> None:
    """Make a folder, and refuse it if the ``files`` of a later result could not be written."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _try_to_write(folder / "file")
    except OSError as error:
        if error.errno in FULL:
            raise
        rule, got = "must be a folder that can be written to", f"got {str(folder)!r}"
        raise refuse(argument, rule, f"{got} ({error.strerror})", "Choose another.") from error
    for name in files:
        writable(folder / name, argument)


def _try_to_write(target: Path) -> None:
    temporary = _temporary(target)
    with removed_on_stop(temporary):
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        temporary.unlink()


def check_regular(path: Path) -> None:
    """Reject anything but a regular file: a pipe would block, a device may never end."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file. Check the path and the working directory.")
    if not path.is_file():
        rule, advice = "must be a regular file", "Copy its contents into a file first."
        raise refuse(str(path), rule, f"got {_kind_of(path)}", advice)


def read_text(path: Path, *, most: int) -> str:
    """The contents of a small UTF-8 text file of at most ``most`` bytes."""
    check_regular(path)
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        rule, advice = f"must be at most {in_bytes(most)} long", "Check that it is the right file."
        raise refuse(str(path), rule, "got more", advice)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        advice = "Save it as UTF-8."
        raise refuse(str(path), "must be UTF-8 text", f"got {error}", advice) from error


def read_json(path: Path, *, most: int = 1 << 20) -> Any:
    """The contents of a small JSON file; any defect raises one error."""
    try:
        return json.loads(read_text(path, most=most))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise refuse(str(path), "must be JSON", f"got {reason}", "Write it again.") from error


def same_file(a: Path, b: Path) -> bool:
    """Whether two paths lead to the same file, following links."""
    return _resolved(a) == _resolved(b) or (a.exists() and b.exists() and a.samefile(b))


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # how Python 3.11 and 3.12 report it
        raise OSError(errno.ELOOP, "The links form a loop", str(path)) from error


def _kind_of(path: Path) -> str:
    """What exists at a path, in words."""
    kinds: dict[str, Callable[[], bool]] = {
        "a folder": path.is_dir,
        "a pipe": path.is_fifo,
        "a socket": path.is_socket,
        "a device": path.is_char_device,
    }
    return next((kind for kind, holds in kinds.items() if holds()), "something else")


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Write an array as a .npy file; ``numpy.save`` does not say why a write failed."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@contextmanager
def clear_errors(where: str | Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Turn the many errors of damaged files, and ``more``, into one error."""
    name = where if isinstance(where, str) else where.name
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except (*DAMAGE, *more) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise damaged(name, f"cannot be read as {kind}: {reason}") from error


def damaged(where: str, what: str) -> InputError:
    """The error for a file that does not match its extension."""
    return InputError(
        f"{where} {what}. The file is damaged, truncated or in another format; download or save it "
        "again."
    )
