"""Signals, dead drivers and full disks, with real processes and real disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant._core import stopping
from calibrant.results import Store, read_all
from calibrant.study import Study, status
from tests.test_study import command, tiny, toml, values, wait_for

LONG = {"recipe": {"name": "quick", "epochs": 4000}}
SENTENCE = "Stopped{}. Run the same command to continue.\n"


def begin(*arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """A command as a terminal starts it: a process group of its own, default signal handlers."""
    return subprocess.Popen(
        command(*arguments),
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


def below(pid: int) -> list[int]:
    """Processes that a process started, and theirs."""
    return stopping._descendants(pid)


def alive(pids: list[int]) -> list[int]:
    living = {pid for pid, _ in stopping._processes()}
    return [pid for pid in pids if pid in living]


def stop(process: subprocess.Popen[str], number: int) -> tuple[float, str, list[int]]:
    """Signal a whole process group: seconds until its end, what it said, and who is left."""
    others = below(process.pid)
    start = time.monotonic()
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=60)
    seconds = time.monotonic() - start
    wait_for(lambda: not alive(others), 2)
    return seconds, error, alive(others)


def study_arguments(folder: Path, **changes: Any) -> list[Any]:
    return [
        "study",
        "run",
        toml(folder, **changes),
        "--out",
        folder / "out",
        "--workers",
        2,
        "--threads",
        1,
    ]


LATER = [pytest.param(seconds, marks=pytest.mark.slow) for seconds in (3, 6, 15)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after", [1, *LATER])
def test_a_study_stops_at_once(tmp_path: Path, after: float, number: int) -> None:
    """While it loads PyTorch, while its workers do, in mid-run: one sentence, nobody left."""
    process = begin(*study_arguments(tmp_path, **LONG))
    time.sleep(after)
    assert process.poll() is None
    seconds, error, left = stop(process, number)
    assert seconds < 2
    assert process.returncode == 128 + number
    assert error in ("Stopped.\n", SENTENCE.format(""), SENTENCE.format(": 0 of 6 runs finished"))
    assert not left
    assert not list(tmp_path.glob("out/failed/*"))  # an interrupted run is not a failed run


def wait_for_results(out: Path, count: int) -> None:
    wait_for(lambda: len(list(out.glob("results/*.parquet"))) >= count)


@pytest.mark.slow
def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """Stopped twice on the way, a study ends with the table of one that was not."""
    arguments = study_arguments(tmp_path)
    out = tmp_path / "out"
    for number, count in ((signal.SIGINT, 1), (signal.SIGTERM, 2)):
        process = begin(*arguments)
        wait_for_results(out, count)
        seconds, error, left = stop(process, number)
        done = status(tiny(), out).count("done")
        assert seconds < 2
        assert error == SENTENCE.format(f": {done} of 6 runs finished") or (
            error == SENTENCE.format(f": {done - 1} of 6 runs finished")  # written, not yet told
        )
        assert not left
    last = begin(*arguments)
    said, error = last.communicate(timeout=200)
    assert (last.returncode, error) == (0, "")
    assert "6 done, 0 running, 0 failed, 0 missing" in said
    straight = tmp_path / "straight"
    arguments[4] = straight
    begin(*arguments).communicate(timeout=200)
    assert values(out) == values(straight)


@pytest.mark.slow
def test_training_stops_at_once_and_goes_on(tmp_path: Path) -> None:
    line = (
        "train",
        "--data",
        "signals",
        "--model",
        "cnn1d",
        "--recipe",
        "quick",
        "--epochs",
        4000,
        "--out",
        tmp_path,
    )
    process = begin(*line)
    wait_for((tmp_path / "checkpoint.pt").exists)
    seconds, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert process.returncode == 130
    assert not left
    assert error.startswith("Stopped: ")
    assert error.endswith(" of 4000 epochs finished. Run the same command to continue.\n")
    from calibrant.train._checkpoint import load_checkpoint

    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found[1]["epoch"] == int(error.split()[1])
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]  # nothing half-written


@pytest.mark.slow
@pytest.mark.parametrize("what", ["papers", "tune", "select"])
def test_other_commands_stop_at_once(tmp_path: Path, what: str) -> None:
    table = {"objective": "focal:gamma={g}", "g": [1, 3]}
    path, out = toml(tmp_path, tune=table, **LONG), tmp_path / "out"
    arguments = {
        "papers": ("papers", "run", "wang2021", "table1", "--out", out),
        "tune": ("study", "tune", path, "--out", out),
        "select": ("select", path, "--out", out),
    }[what]
    process = begin(*arguments, "--workers", 2, "--threads", 1)
    wait_for(lambda: list(tmp_path.rglob("locks/????????????????")) or process.poll() is not None)
    seconds, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert process.returncode == 130
    assert not left
    assert error.startswith("Stopped: ")
    assert error.endswith(" runs finished. Run the same command to continue.\n")
    assert not list(tmp_path.rglob("failed/*"))


@pytest.mark.slow
def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """As ``nohup`` and shells that start a job in the background ask for."""
    code = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"  # noqa: E501
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command(*study_arguments(tmp_path, seeds=1))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for((tmp_path / "out" / "locks").exists)
    os.killpg(process.pid, signal.SIGHUP)
    said, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert "3 done" in said


@pytest.mark.slow
def test_a_program_gets_its_keyboard_interrupt(tmp_path: Path) -> None:
    """Nothing is installed in it; the workers are gone when the exception arrives."""
    script = tmp_path / "main.py"
    script.write_text(
        "import sys, time\n"
        "from calibrant._core import stopping\n"
        "from calibrant.study import Local, run_study\n"
        "from tests.test_study import tiny\n"
        "from tests.test_stopping import LONG\n"
        "import os\n"
        "if __name__ == '__main__':\n"
        "    try: run_study(tiny(**LONG), sys.argv[1], executor=Local(2, 1))\n"
        "    except KeyboardInterrupt:\n"
        "        kinds = [open(f'/proc/{p}/cmdline').read() for p in stopping._descendants(os.getpid())]\n"  # noqa: E501
        "        print(len(kinds), 'left:', all('forkserver' in k or 'tracker' in k for k in kinds))\n"  # noqa: E501
    )
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,  # noqa: PLW1509
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    wait_for(lambda: list(tmp_path.glob("out/runs/*/checkpoint.pt")))
    seconds, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert (process.returncode, error, left) == (0, "", [])
    assert not list(tmp_path.glob("out/failed/*"))


# --- no orphans -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["loading", pytest.param("working", marks=pytest.mark.slow)])
def test_nobody_outlives_the_driver(tmp_path: Path, number: int, moment: str) -> None:
    """Only the driver gets the signal, as from ``kill -9`` or the system short of memory."""
    process = begin(*study_arguments(tmp_path, **LONG))
    if moment == "loading":
        wait_for(lambda: len(below(process.pid)) >= 2)  # the fork server has begun
    else:
        wait_for(lambda: len(list(tmp_path.glob("out/runs/*/checkpoint.pt"))) == 2)
        assert len(below(process.pid)) >= 4
    others = below(process.pid)
    os.kill(process.pid, number)
    process.communicate(timeout=10)
    wait_for(lambda: not alive(others), 2)


NESTED = """
import subprocess, sys
from calibrant.study import _execute
real = _execute.keep_logits
def keep_logits(run, *rest):
    subprocess.Popen(["sleep", "300"])
    return real(run, *rest)
_execute.keep_logits = keep_logits
from calibrant.study import Local, run_study
from tests.test_study import tiny
from tests.test_stopping import LONG
if __name__ == "__main__":
    run_study(tiny(**LONG), sys.argv[1], executor=Local(2, 1))
"""


@pytest.mark.slow
def test_processes_of_workers_end_with_the_driver(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(NESTED)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "out")],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    wait_for(lambda: len(list(tmp_path.glob("out/runs/*/checkpoint.pt"))) == 2)
    others = below(process.pid)
    sleeping = [p for p in others if b"sleep" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert len(sleeping) == 2
    process.kill()
    process.wait()
    wait_for(lambda: not alive(others), 2)


# --- a full disk ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2000 KiB, all but full in the end of the study."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2000k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
def test_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """One sentence, no run failed; with more space the same command ends as if nothing was."""
    path = toml(
        tmp_path,
        data="signals",
        models="cnn1d",
        recipe={"name": "quick", "epochs": 12},
        shifts=[],
        objectives=["cross_entropy", "focal", "brier"],
        seeds=2,
    )
    arguments = ("study", "run", path, "--out", small_disk, "--workers", 2, "--threads", 1)
    process = begin(*arguments)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 2
    assert error == (
        f"calibrant: The study stopped because the disk of {small_disk} is full. Finished runs "
        "are kept. Free some space and run the same command to continue.\n"
    )
    assert not list(small_disk.glob("failed/*"))
    subprocess.run(["mount", "-o", "remount,size=50M", str(small_disk)], check=True)
    again = begin(*arguments)
    said, error = again.communicate(timeout=200)
    assert (again.returncode, error) == (0, "")
    assert "6 done, 0 running, 0 failed, 0 missing" in said
    assert len({row["run"] for row in read_all(small_disk).to_pylist()}) == 6
    assert not list(small_disk.rglob("*.tmp"))
    assert all(Store(small_disk).facts(run.key) for run in Study.load(path).runs)


def test_status_of_a_folder_that_cannot_be_written(small_disk: Path, tmp_path: Path) -> None:
    path = toml(tmp_path, seeds=1)
    begun = tiny(seeds=1).runs[0].key
    (small_disk / "locks").mkdir()
    (small_disk / "locks" / begun).touch()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = begin("study", "status", path, "--out", small_disk)
    said, error = done.communicate(timeout=60)
    assert (done.returncode, error) == (0, "")
    assert said.startswith("0 done, 0 running, 0 failed, 3 missing")
