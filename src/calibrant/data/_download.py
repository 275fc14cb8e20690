"""Downloads: resumable, verified by checksum, with a progress bar."""

from __future__ import annotations

import http.client
import importlib
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from calibrant._core.checks import InputError, refuse
from calibrant._core.extras import import_extra
from calibrant.data._archives import unpack

ATTEMPTS = 5
DOWNLOAD_BYTES = 1 << 18
TIMEOUT_SECONDS = 30
PARTIAL_CONTENT, OUT_OF_RANGE = 206, 416
# Disk space to leave free: a completely full disk breaks other programs.
SPARE_DISK = 1 << 28

Report = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Remote:
    """One file to fetch.

    Attributes
    ----------
    url
        Its address.
    checksum
        ``md5:…`` or ``sha256:…``, or "" if none is published.
    inside
        Subfolder of the data folder that it is put into.
    unpacks
        The folder in the archive, or "" for a file that is not unpacked.
    file
        Its name on disk, where that differs from the address.
    """

    url: str
    checksum: str = ""
    inside: str = ""
    unpacks: str = ""
    file: str = ""

    @property
    def name(self) -> str:
        """The file's name on disk."""
        return self.file or urlsplit(self.url).path.rpartition("/")[2]


def fetch(remote: Remote, folder: Path, *, progress: bool = True) -> Path:
    """Download one file into ``folder``, unless it already exists with the right checksum.

    An archive is deleted after it is unpacked; later calls look for its folder.
    """
    pooch = _import_pooch()
    target = folder / remote.inside
    if remote.unpacks and (target / remote.unpacks).is_dir():
        return target / remote.unpacks
    _check_url(remote)
    target.mkdir(parents=True, exist_ok=True)
    with _shown(remote.name, progress=progress) as report:

        def downloader(url: str, output: str, _: Any) -> None:
            part = target / f"{remote.name}.part"
            fetch_resuming(url, part, report)
            shutil.move(part, output)

        try:
            path = pooch.retrieve(
                remote.url, remote.checksum or None, remote.name, target, downloader=downloader
            )
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            rule = f"must point to a file with the checksum {remote.checksum}"
            advice = "The file was deleted. Try again, or another mirror with url=…"
            raise refuse("url", rule, f"{remote.url} has a different one", advice) from error
    if not remote.unpacks:
        return Path(path)
    unpack(Path(path), target)
    Path(path).unlink()
    return target / remote.unpacks


def fetch_resuming(url: str, part: Path, report: Report) -> None:
    """Fetch ``url`` into the file ``part``, resuming from what it holds, with several attempts."""
    reason: object = ""
    for _ in range(ATTEMPTS):
        before = part.stat().st_size if part.exists() else 0
        try:
            if _fetch_once(url, part, report):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            error.close()
            raise refuse(
                "url", "must point to a file", f"{url} answers {error}", "Check it."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = error
        if (part.stat().st_size if part.exists() else 0) == before:
            break
    held = part.stat().st_size if part.exists() else 0
    raise InputError(
        f"{url} could not be fetched: {reason}. {held:,} bytes are kept; run the same command to "
        "resume."
    )


def _fetch_once(url: str, part: Path, report: Report) -> bool:
    """Append what the server sends; True once the file is whole."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != OUT_OF_RANGE:
            raise
        # The file is complete, or is another file; the checksum decides.
        error.close()
        return True
    with answer:
        if answer.status != PARTIAL_CONTENT or not _continues(answer.headers, have):
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdecimal() else None
        if total is not None and total - have + SPARE_DISK > shutil.disk_usage(part.parent).free:
            raise refuse(
                "folder", f"must have room for {total:,} bytes", "it has less", "Clean up."
            )
        with part.open("ab" if have else "wb") as out:
            while piece := answer.read(DOWNLOAD_BYTES):
                out.write(piece)
                have += len(piece)
                report(have, total)
    return total is None or have == total


def _continues(headers: Any, start: int) -> bool:
    return str(headers.get("Content-Range", "")).startswith(f"bytes {start}-")


def _check_url(remote: Remote) -> None:
    scheme = urlsplit(remote.url).scheme
    if scheme not in ("http", "https") or not remote.name:
        rule = "must be the http or https address of a file"
        raise refuse("url", rule, f"got {remote.url!r}", "Give the whole address.")
    if scheme == "http" and not remote.checksum:
        rule = "must be https if no checksum is known"
        raise refuse("url", rule, f"got {remote.url!r}", "Pass sha256=… as well.")


def _import_pooch() -> Any:
    pooch = import_extra("pooch", "A download")
    # pooch logs to its own logger, not to the terminal.
    pooch.get_logger().setLevel("WARNING")
    return pooch


@contextmanager
def _shown(name: str, *, progress: bool) -> Iterator[Report]:
    """A progress bar with the time left; nothing where there is no terminal."""
    if not progress or not sys.stderr.isatty():
        yield lambda _have, _total: None
        return
    bars: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console")
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console.Console(stderr=True)) as bar:
        task = bar.add_task(f"Fetching {name}", total=None)
        yield lambda have, total: bar.update(task, completed=have, total=total)
