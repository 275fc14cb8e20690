"""Real processes for the tests: started as by a terminal, waited for, paused where needed.

A test waits for something it can observe, never for a fixed time: on a busy machine none is long
enough. Limits in seconds are those of an idle machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from calibrant._core import stopping

Found = TypeVar("Found")
PATIENCE = 600  # seconds after which something hangs, however busy the machine is
SPIN = 0.1
ROOT = Path(__file__).parents[1]


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "calibrant.cli", *map(str, arguments)]


def begin(*arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """A command as a terminal starts it: own process group, default signal handlers."""
    return as_in_a_terminal(command(*arguments), **environment)


def begin_python(code: str, *arguments: Any) -> subprocess.Popen[str]:
    return as_in_a_terminal([sys.executable, "-c", code, *map(str, arguments)])


# The command, which says every half second how far it got, and not every ten.
TALKATIVE = """
from calibrant.cli import _common, main
_common.Heartbeat.EVERY = 0.5
main()
"""


def begin_talkative(*arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """A command of which a test waits until it has got somewhere."""
    line = [sys.executable, "-c", TALKATIVE, *map(str, arguments)]
    return as_in_a_terminal(line, **environment)


def wait_for_files(process: subprocess.Popen[str]) -> None:
    """Wait until a stream over many files has told how many it has measured."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.endswith(" files\n"):
            return
    raise AssertionError("it ended")


def begin_script(script: Path, *arguments: Any) -> subprocess.Popen[str]:
    """A program of the user, which can import the tests."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return as_in_a_terminal([sys.executable, str(script), *map(str, arguments)], PYTHONPATH=path)


def as_in_a_terminal(line: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
        preexec_fn=default_signals,  # noqa: PLW1509 - no other threads here
    )


def default_signals() -> None:
    """Whatever the tests themselves were started to ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


# The command, in whose study a trained run waits before its result is written, as long as the
# file `hold` exists and says that there are enough results.
HELD = """
import pathlib, sys, time
from calibrant.study import _execute

hold, real = pathlib.Path(__file__).with_name("hold"), _execute.keep_logits

def keep_logits(run, evaluation, folder, *rest):
    found = real(run, evaluation, folder, *rest)
    while hold.exists() and len(list(folder.parents[1].glob("results/*"))) >= int(hold.read_text()):
        time.sleep(0.05)
    return found

_execute.keep_logits = keep_logits
if __name__ == "__main__":
    from calibrant.cli import main
    main()
"""


def begin_held(folder: Path, results: int, *arguments: Any) -> subprocess.Popen[str]:
    """A study of which only about ``results`` runs finish until the file ``hold`` is deleted."""
    (folder / "held.py").write_text(HELD)
    (folder / "hold").write_text(str(results))
    return begin_script(folder / "held.py", *arguments)


def below(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    return stopping._descendants(pid)


def alive(pids: list[int]) -> list[int]:
    living = {pid for pid, _ in stopping._processes()}
    return [pid for pid in pids if pid in living]


def slowness() -> float:
    """How many times slower than on an idle machine a process currently runs; at least 1."""
    start, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < SPIN:
        pass
    return max(1.0, (time.perf_counter() - start) / SPIN)


def wait_for(done: Callable[[], Found], seconds: float = PATIENCE) -> Found:
    """Wait until something holds, or is found."""
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)  # listing all processes takes CPU time that they need
    return found


def wait_for_the_end(pids: list[int], seconds: float = 2) -> None:
    """All of these processes must end in time; the limit is in seconds of an idle machine."""
    wait_for(lambda: not alive(pids), seconds * max(slowness(), slowness()))


def wait_for_handlers(process: subprocess.Popen[str]) -> None:
    """Wait until a command handles signals itself, where the system shows it."""
    file = Path(f"/proc/{process.pid}/status")
    if file.exists():
        wait_for(lambda: _catches(file, signal.SIGTERM) or process.poll() is not None)


def _catches(file: Path, number: int) -> bool:
    caught = next(line for line in file.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def stop(process: subprocess.Popen[str], number: int) -> tuple[float, str, str, list[int]]:
    """Signal a process group: seconds until it ends, its output, errors, remaining processes.

    The seconds are those of an idle machine: on a busy one divided by how busy it is.
    """
    others, slow = below(process.pid), slowness()
    start = time.monotonic()
    os.killpg(process.pid, number)
    said, error = process.communicate(timeout=PATIENCE)
    seconds = time.monotonic() - start
    slow = max(slow, slowness())
    deadline = time.monotonic() + 2 * slow
    while alive(others) and time.monotonic() < deadline:
        time.sleep(0.02)
    return seconds / slow, said, error, alive(others)
