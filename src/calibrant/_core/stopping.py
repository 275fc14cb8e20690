"""Ctrl-C, SIGTERM and SIGHUP: the command ends at once, with one sentence and nothing left behind.

``calibrant`` imports this module, after ``starting``, before anything that takes time. All else is
done by a thread that the signal wakes, because the main thread may be in compiled code for a long
while, and because an exception raised inside an import can be swallowed there and leave half a
module. What the command writes is renamed into place, so that it may end at any moment; its
workers are killed, and so are their own processes.

This is for the command alone. In a program that imports the package nothing is installed, and
Ctrl-C raises ``KeyboardInterrupt`` as usual.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from calibrant._core.starting import EARLY, SIGNALS, UNIX, catch, is_the_command, prints

ROUNDS = 20  # of killing: a process may have started another one meanwhile
SHOW_CURSOR = "\x1b[?25h\n"

_unfinished: set[Path] = set()
_sentences: list[Callable[[], str]] = []
_installed = False


@contextmanager
def removed_on_stop(path: Path) -> Iterator[None]:
    """Name a file or folder that must not stay if the command is stopped in this block."""
    _unfinished.add(path)
    try:
        yield
    finally:
        _unfinished.discard(path)


@contextmanager
def resumable(progress: Callable[[], str]) -> Iterator[None]:
    """Say on a stop in this block how far it got, and that the same command continues it."""
    with _saying(lambda: f"Stopped: {progress()}. Run the same command to continue."):
        yield


@contextmanager
def repeatable(progress: Callable[[], str]) -> Iterator[None]:
    """Say on a stop in this block how far it got, and that the same command begins again."""
    with _saying(lambda: f"Stopped: {progress()}. Run the same command to start again."):
        yield


@contextmanager
def _saying(sentence: Callable[[], str]) -> Iterator[None]:
    _sentences.append(sentence)
    try:
        yield
    finally:
        _sentences.remove(sentence)


def install() -> None:
    """Let the signals end this process; those that it was started to ignore stay ignored."""
    global _installed  # noqa: PLW0603 - signal handlers are global themselves
    if _installed or not UNIX:
        return
    _installed = True
    read, write = os.pipe()
    os.set_blocking(write, False)
    threading.Thread(target=_watch, args=(read,), daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    catch(_freeze)
    os.register_at_fork(after_in_child=_uninstall)


def reinstall() -> None:
    """Take the signals back from a library that took them, if they were ours."""
    if _installed:
        catch(_freeze)


def _uninstall() -> None:
    """A forked process has neither the thread nor a reason to wake it."""
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        if signal.getsignal(number) is _freeze:
            signal.signal(number, signal.SIG_DFL)


def _freeze(*_: object) -> None:
    """Keep the main thread from taking dead workers for failed ones; a second signal ends at once.

    Python calls this before any more code of that thread.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    while True:
        time.sleep(1)


def _watch(read: int) -> None:
    """Wait for one of the signals; Python writes the number of each to the pipe."""
    number = _next_signal(read)
    threading.Thread(target=_end_at_the_next, args=(read,), daemon=True).start()
    text = EARLY
    with suppress(Exception):  # whatever happens here, the command ends
        text = _sentences[-1]() if _sentences else EARLY
    end(128 + number, text)


def _next_signal(read: int) -> int:
    while (number := os.read(read, 1)[0]) not in SIGNALS:
        pass
    return number


def _end_at_the_next(read: int) -> None:
    """End at a second signal, even if the main thread is in compiled code."""
    os._exit(128 + _next_signal(read))


def end(code: int, text: str = "") -> NoReturn:
    """End this process and those below it at once, without unfinished files, with a sentence."""
    try:
        kill_descendants()
        for path in list(_unfinished):
            if path.is_dir():
                import shutil

                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()
        if text and prints():
            start = SHOW_CURSOR if os.isatty(2) else ""
            with suppress(OSError):  # the reader is gone
                os.write(2, f"{start}{text}\n".encode())
    finally:
        os._exit(code)


def kill_descendants() -> None:
    """Kill the processes that this one started, and those that they started."""
    if not UNIX:  # workers need a fork server, so there are none
        return
    for _ in range(ROUNDS):
        found = _descendants(os.getpid())
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _descendants(pid: int) -> list[int]:
    """Living processes below a process."""
    children: dict[int, list[int]] = {}
    for child, parent in _processes():
        children.setdefault(parent, []).append(child)
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        found += new
    return found


def _processes() -> list[tuple[int, int]]:
    """Each living process and its parent."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        command = ["ps", "-axo", "pid=,ppid=,stat="]
        import subprocess

        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
            rows = [line.split() for line in listing.communicate()[0].splitlines()]
        return [(int(p), int(q)) for p, q, s in rows if s[0] != "Z" and int(p) != listing.pid]
    found = []
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended in the meantime
                # The program name, in parentheses, may contain any character.
                state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if state != "Z":
                    found.append((int(entry.name), int(parent)))
    return found


if is_the_command():
    install()
