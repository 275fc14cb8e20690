"""Signals, dead drivers and full disks, with real processes and real disks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrant
from calibrant._core import processes
from calibrant.results import Store, read_all
from calibrant.study import Local, Study, run_study, status
from tests.processes import (
    PATIENCE,
    as_in_a_terminal,
    begin,
    begin_held,
    begin_python,
    begin_script,
    below,
    command,
    stop,
    wait_for,
    wait_for_handlers,
    wait_for_the_end,
)
from tests.test_study import tiny, toml, values

LONG = {"recipe": {"name": "quick", "epochs": 4000}}
SENTENCE = "Stopped: {}. Run the same command to continue.\n"
LABELS = np.arange(60) % 3
EARLY = "Stopped. Run the same command again.\n"  # before the study is read


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


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# None: as soon as both runs have a checkpoint.
LATER = [(seconds, number) for seconds in (3, None) for number in SIGNALS]


@pytest.mark.parametrize(
    ("after", "number"),
    [
        *((1, number) for number in SIGNALS),
        *(pytest.param(*moment, marks=pytest.mark.slow) for moment in LATER),
    ],
)
def test_a_study_stops_at_once(tmp_path: Path, after: float | None, number: int) -> None:
    """While it or its workers load PyTorch, or in mid-run: one sentence, no process left."""
    start = time.monotonic()
    process = begin(*study_arguments(tmp_path, **LONG))
    wait_for_handlers(process)
    if after is None:
        wait_for(lambda: len(list(tmp_path.glob("out/runs/*/checkpoint.pt"))) == 2)
    else:
        time.sleep(max(0, start + after - time.monotonic()))
    assert process.poll() is None
    working = bool(list(tmp_path.glob("out/locks/*")))
    seconds, _, error, left = stop(process, number)
    assert seconds < 2
    assert process.returncode == 128 + number
    assert error == told_of(0) or (not working and error == EARLY)
    assert not left
    assert not list(tmp_path.glob("out/failed/*"))  # an interrupted run is not a failed run


@pytest.mark.parametrize("moment", ["importing", "looking"])
def test_a_stop_says_what_to_do_from_the_start(tmp_path: Path, moment: str) -> None:
    """Before the study is read, and as soon as the number of its runs is known."""
    begun = tmp_path / "begun"
    hang = (
        "import pathlib, sys, time\n"
        "import calibrant._core.stopping as stopping; stopping.install()\n"
        f"def hang(*a, **k): pathlib.Path({str(begun)!r}).touch(); time.sleep(60)\n"
        "if sys.argv.pop(1) == 'importing': hang()\n"
        "from calibrant.study import Local; Local.begin = hang\n"
        "from calibrant.cli import main; main()\n"
    )
    arguments = study_arguments(tmp_path)
    process = begin_python(hang, moment, *arguments)
    wait_for(begun.exists)
    _, _, error, _ = stop(process, signal.SIGINT)
    assert process.returncode == 130
    assert error == (EARLY if moment == "importing" else told_of(0))


@pytest.mark.parametrize("line", ["calibrant", "-m calibrant", "-m calibrant.cli"])
def test_a_stop_in_the_first_moment_gives_no_traceback(tmp_path: Path, line: str) -> None:
    """While Python loads what the handlers of the signals need."""
    (tmp_path / "calibrant").write_text("import calibrant.cli\n")
    # Python imports this before anything else; the module whose import hangs is the second one.
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys, time\n"
        "class Hang:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'calibrant._core.stopping':\n"
        f"            pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Hang())\n"
    )
    start = [str(tmp_path / line)] if line == "calibrant" else line.split()
    path = os.pathsep.join([str(tmp_path), str(Path(calibrant.__file__).parents[1])])
    process = as_in_a_terminal([sys.executable, *start, "measure", "absent.npz"], PYTHONPATH=path)
    wait_for((tmp_path / "begun").exists)
    seconds, _, error, _ = stop(process, signal.SIGINT)
    assert seconds < 2
    assert (process.returncode, error) == (130, EARLY)


STUCK = """
import hashlib, pathlib, sys, threading, time
from calibrant._core import stopping

def progress():
    pathlib.Path(sys.argv[2]).touch()
    threading.Event().wait()

stopping.install()
with stopping.resumable(progress):
    print("ready", flush=True)
    while sys.argv[1] == "python":
        time.sleep(0.1)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("where", ["python", "compiled code"])
def test_a_second_signal_ends_at_once(tmp_path: Path, where: str) -> None:
    """Even if the clean-up that the first one started never ends."""
    stopping_now = tmp_path / "stopping"
    process = begin_python(STUCK, where, stopping_now)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    wait_for(stopping_now.exists)
    assert process.poll() is None
    seconds, _, error, _ = stop(process, signal.SIGINT)
    assert seconds < 1
    assert process.returncode in (130, -signal.SIGINT)  # a shell sees the same
    assert error == ""


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_nobody(tmp_path: Path) -> None:
    """Twice in a row, while the first is being handled or just after."""
    process = begin(*study_arguments(tmp_path, **LONG))
    others = wait_for(lambda: below(process.pid))
    os.killpg(process.pid, signal.SIGINT)
    seconds, _, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert process.returncode in (130, -signal.SIGINT)
    assert error in (told_of(0), "")
    wait_for_the_end(others)
    assert not left
    assert not list(tmp_path.glob("out/failed/*"))


def told_of(runs: int) -> str:
    return SENTENCE.format(f"{runs} of 6 runs finished")


def wait_for_results(out: Path, count: int) -> None:
    wait_for(lambda: len(list(out.glob("results/*.parquet"))) >= count)


@pytest.mark.slow
def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """Stopped twice on the way, a study ends with the table of one that was not."""
    arguments = study_arguments(tmp_path)
    out = tmp_path / "out"
    for number in (signal.SIGINT, signal.SIGTERM):
        already = len(list(out.glob("results/*.parquet")))
        process = begin_held(tmp_path, already + 1, *arguments)
        wait_for_results(out, already + 1)
        seconds, _, error, left = stop(process, number)
        done = status(tiny(), out).count("done")
        assert already < done < 6
        assert seconds < 2
        # What the two workers have just written may not be counted yet.
        assert error in map(told_of, range(max(already, done - 2), done + 1))
        assert not left
    last = begin(*arguments)
    said, error = last.communicate(timeout=PATIENCE)
    assert (last.returncode, error) == (0, "")
    assert "6 done, 0 running, 0 failed, 0 missing" in said
    run_study(tiny(), tmp_path / "straight", executor=Local(workers=2, threads=1))
    assert values(out) == values(tmp_path / "straight")


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
    seconds, _, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert process.returncode == 130
    assert not left
    assert error.startswith("Stopped: ")
    assert error.endswith(" of 4000 epochs finished. Run the same command to continue.\n")
    from calibrant.train._checkpoint import load_checkpoint

    found = load_checkpoint(tmp_path)
    assert found is not None
    assert found[1]["epoch"] - int(error.split()[1]) in (0, 1)  # saved, but not yet counted
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
    seconds, _, error, left = stop(process, signal.SIGINT)
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
    process = begin_python(code, *command(*study_arguments(tmp_path, seeds=1)))
    wait_for((tmp_path / "out" / "locks").exists)
    os.killpg(process.pid, signal.SIGHUP)
    said, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert "3 done" in said


@pytest.mark.slow
def test_a_program_gets_its_keyboard_interrupt(tmp_path: Path) -> None:
    """Nothing is installed in it; the workers are gone when the exception arrives."""
    script = tmp_path / "main.py"
    script.write_text(
        "import os, sys\n"
        "from calibrant.study import Local, run_study\n"
        "from tests.processes import below\n"
        "from tests.test_study import tiny\n"
        "from tests.test_stopping import LONG\n"
        "if __name__ == '__main__':\n"
        "    try: run_study(tiny(**LONG), sys.argv[1], executor=Local(2, 1))\n"
        "    except KeyboardInterrupt:\n"
        "        kinds = [open(f'/proc/{p}/cmdline').read() for p in below(os.getpid())]\n"
        "        print(len(kinds), 'left:', all('forkserver' in k or 'tracker' in k for k in kinds))\n"  # noqa: E501
    )
    process = begin_script(script, tmp_path / "out")
    wait_for(lambda: list(tmp_path.glob("out/runs/*/checkpoint.pt")))
    seconds, _, error, left = stop(process, signal.SIGINT)
    assert seconds < 2
    assert (process.returncode, error, left) == (0, "", [])
    assert not list(tmp_path.glob("out/failed/*"))


# --- a system that is no Unix -------------------------------------------------------------------

NO_UNIX = """
import os, signal, sys
for name in ("SIGHUP", "SIGKILL", "SIGPIPE", "pthread_sigmask"):
    delattr(signal, name)
for name in ("fork", "register_at_fork", "killpg", "setpgid"):
    delattr(os, name)
sys.modules |= dict.fromkeys(("fcntl", "resource"))  # cannot be imported
from calibrant.cli import main
sys.argv = ["calibrant", *sys.argv[1:]]
main()
"""


def test_measuring_needs_no_unix(tmp_path: Path) -> None:
    """Windows lacks these names; the package is imported and a file measured all the same."""
    path = tmp_path / "p.npz"
    calibrant.Predictions(probs=np.eye(3)[LABELS], labels=LABELS).save(path)
    line = [sys.executable, "-c", NO_UNIX, "measure", str(path), "--no-intervals"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "100.00 %" in done.stdout


# --- a reader that is gone, as in "| head -1" -------------------------------------------------

READER_GONE = 128 + signal.SIGPIPE


def into(write: int, line: list[str]) -> tuple[int, str]:
    """Exit code and errors of a command whose output goes to a descriptor."""
    done = subprocess.run(
        line, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
    )
    os.close(write)
    return done.returncode, done.stderr


def nobody_reads() -> int:
    """The end of a pipe that has no other end."""
    read, write = os.pipe()
    os.close(read)
    return write


SHORT = [("--help",), ("papers", "list")]  # printed by Rich, and by us
MORE = [("--version",), ("study", "run", "--help"), ("data", "list")]


@pytest.mark.parametrize(
    "arguments", [*SHORT, *(pytest.param(more, marks=pytest.mark.slow) for more in MORE)]
)
def test_a_command_without_a_reader_ends_quietly(arguments: tuple[str, ...]) -> None:
    assert into(nobody_reads(), command(*arguments)) == (READER_GONE, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["measure", "compare", "calibrate"])
def test_a_result_without_a_reader_ends_quietly(tmp_path: Path, name: str) -> None:
    file, other = tmp_path / "p.npz", tmp_path / "q.npz"
    rng = np.random.default_rng(0)
    for path in (file, other):
        np.savez(path, logits=rng.normal(size=(60, 3)) + 2 * np.eye(3)[LABELS], labels=LABELS)
    calls = {
        "measure": ["measure", file],
        "compare": ["compare", file, other],
        "calibrate": ["calibrate", "--fit", file, "--apply", other, "--out", tmp_path / "c.npz"],
    }
    assert into(nobody_reads(), command(*calls[name])) == (READER_GONE, "")


@pytest.mark.slow
def test_a_study_without_a_reader_is_finished(tmp_path: Path) -> None:
    """What is printed at its end is lost, its results are not."""
    arguments = study_arguments(tmp_path)
    assert into(nobody_reads(), command(*arguments)) == (READER_GONE, "")
    assert status(tiny(), tmp_path / "out").count("done") == 6
    assert not list(tmp_path.rglob(".*.tmp"))


PRINTING = """
import subprocess, sys
from calibrant._core.files import replacing
from calibrant.cli._output import prepare_streams

prepare_streams()
with replacing(sys.argv[1]) as temporary:
    temporary.touch()
    print(subprocess.Popen(["sleep", "300"]).pid, file=sys.stderr, flush=True)
    print("lost", flush=True)
"""


def test_a_command_without_a_reader_leaves_nothing(tmp_path: Path) -> None:
    """Neither its processes nor what it had begun to write."""
    line = [sys.executable, "-c", PRINTING, str(tmp_path / "new")]
    code, error = into(nobody_reads(), line)
    assert code == READER_GONE
    wait_for_the_end([int(error)])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_under_the_output_is_said() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    sentence = "calibrant: the output cannot be written: No space left on device.\n"
    found = into(os.open("/dev/full", os.O_WRONLY), command("papers", "list"))
    assert found == (2, sentence)


def test_a_closed_output_is_no_error() -> None:
    line = ["sh", "-c", 'exec "$@" >&-', "sh", *command("data", "list")]
    assert into(os.open(os.devnull, os.O_WRONLY), line) == (0, "")


# --- no orphans -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
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
    wait_for_the_end(others)
    process.communicate(timeout=PATIENCE)


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
    process = begin_script(tmp_path / "main.py", tmp_path / "out")
    wait_for(lambda: len(list(tmp_path.glob("out/runs/*/checkpoint.pt"))) == 2)
    others = below(process.pid)
    sleeping = [p for p in others if b"sleep" in Path(f"/proc/{p}/cmdline").read_bytes()]
    assert len(sleeping) == 2
    process.kill()
    wait_for_the_end(others)
    process.communicate(timeout=PATIENCE)


# --- a full disk ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2000 KiB, nearly full at the end of the study."""
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
    """One sentence, no failed run; with more space the same command finishes the study."""
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
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert error == (
        f"calibrant: The study stopped because the disk of {small_disk} is full. Finished runs "
        "are kept. Free some space and run the same command to continue.\n"
    )
    assert not list(small_disk.glob("failed/*"))
    subprocess.run(["mount", "-o", "remount,size=50M", str(small_disk)], check=True)
    again = begin(*arguments)
    said, error = again.communicate(timeout=PATIENCE)
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
    said, error = done.communicate(timeout=PATIENCE)
    assert (done.returncode, error) == (0, "")
    assert said.startswith("0 done, 0 running, 0 failed, 3 missing")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_whose_driver_has_ended_says_nothing(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may find out by its pipe before the thread that watches the driver kills it."""
    monkeypatch.setattr(processes.os, "setpgid", lambda *_: None)
    monkeypatch.setattr(processes, "_die_with_driver", lambda: None)
    ours, theirs = multiprocessing.Pipe()
    with ThreadPoolExecutor(1) as pool:
        if moment == "before":
            ours.close()
        served = pool.submit(processes._serve, theirs, lambda: None)
        if moment == "after":
            assert ours.recv() == processes.STARTED
            for _ in range(3):
                ours.send((int, ()))  # answers that nobody reads
            ours.close()
        assert served.result(PATIENCE) is None
