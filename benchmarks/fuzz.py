"""Hostile and damaged files through every command that reads one: no traceback, no hang, no bomb.

    python benchmarks/fuzz.py --count 6000 --processes 60

Each input is made from the seed and its number alone, so that a fault can be repeated:
``--first 1234 --count 1``. A worker process calls the command line with Typer's runner; it counts
as a fault if a call ends in anything but an exit code, takes over 10 s of the processor, waits for
a minute, takes over 2 GiB, or prints a control character. The commands believe that 1 GiB is
available, so bombs must be refused by their size. A number of inputs is given to real processes
besides, with an address space of 4 GiB.

The files are made in `fuzz_files.py` and `fuzz_texts.py`, the calls in `fuzz_cases.py`.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_cases import API, case, run_call
from fuzz_files import Base

# Of the processor, and by the clock where a call waits: other work may keep the processor busy.
SECONDS, WAITING = 10, 60
PROGRESS = 500  # calls after which the counts are printed
STARVED = 0.5  # seconds of the processor in that time: more is work, however slow
BYTES, AVAILABLE = 2 << 30, 1 << 30


class HangError(BaseException):
    """A call took too long. Not an Exception, so that nobody catches it on the way."""


def work(first: int, count: int, seed: int, place: Path) -> None:
    """Call the command line; print a line before and after each call."""
    from calibrant._core import memory
    from calibrant.cli import app
    from calibrant.study import Local

    used = 0.0

    def stop(number: int, _: object) -> None:
        nonlocal used
        last, used = used, time.process_time()
        if number == signal.SIGALRM and used - last > STARVED:
            signal.alarm(WAITING)  # it works, but the machine is busy
            return
        raise HangError

    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Base(place)
        memory.available_memory = lambda: AVAILABLE
        Local.work = lambda *_: (run for run in ())  # type: ignore[method-assign, assignment]
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, stop)
        for module in ("calibrant.train", "scipy.optimize", "scipy.stats", "plotly.offline"):
            importlib.import_module(module)  # seconds that no input is to blame for
        for number in range(first, first + count):
            folder = Path(name, "case")
            folder.mkdir()
            arguments = case(number, seed, base, folder)
            print(json.dumps({"begin": number, "arguments": arguments}), flush=True)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAITING)
            start = used = time.process_time()
            try:
                said, code, error = invoked(app, arguments)
            except HangError as hang:
                said, code, error = "", None, hang
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            seconds = time.process_time() - start
            shutil.rmtree(folder)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            fault = "memory" if peak > BYTES else fault_of(error, said, code)
            print(
                json.dumps(
                    {
                        "number": number,
                        "fault": fault,
                        "exit": code,
                        "peak": peak,
                        "kept": resident(),
                        "seconds": seconds,
                        "said": said[-200:],
                    }
                ),
                flush=True,
            )
            if peak > BYTES:
                return  # its peak would be blamed on the next


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


@cache
def runner() -> Any:
    """Typer's runner, which would build all commands anew for every call."""
    import typer.testing

    typer.testing._get_command = cache(typer.testing._get_command)
    return typer.testing.CliRunner()


def invoked(app: Any, arguments: list[str]) -> tuple[str, int | None, BaseException | None]:
    """What one call says, its exit code, and what it raised."""
    if not arguments[0].startswith(API):
        result = runner().invoke(app, arguments)
        return result.output, result.exit_code, result.exception
    try:
        with redirect_stdout(io.StringIO()):  # Python's own messages may hold anything
            return "", run_call(arguments), None
    except Exception as error:
        return "", 1, error


def fault_of(error: BaseException | None, said: str, code: int | None) -> str:
    if isinstance(error, HangError):
        return "hang"
    if error is not None and not isinstance(error, SystemExit):
        last = error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        place = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"
        return f"traceback: {type(error).__name__}: {str(error)[:100]} ({place})"
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in said):
        return "control character"
    return "" if code in (0, 1, 2) else f"exit {code}"


def drive(first: int, count: int, seed: int, place: Path) -> list[dict[str, Any]]:
    """Run inputs in worker processes; one that dies or hangs is replaced."""
    done: list[dict[str, Any]] = []
    following, end = first, first + count
    while following < end:
        command = [
            sys.executable,
            __file__,
            "--worker",
            str(following),
            str(end - following),
            "--seed",
            str(seed),
            "--base",
            str(place),
        ]
        before = len(done)
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
        begun: dict[str, Any] = {}
        assert worker.stdout is not None
        while True:
            ready, _, _ = select.select([worker.stdout], [], [], 20 * WAITING)
            line = worker.stdout.readline() if ready else b""
            if not line:
                break
            record = json.loads(line)
            if "begin" in record:
                begun = record
                continue
            done.append({**begun, **record})
            following, begun = record["number"] + 1, {}
            show(done[-1])
            if len(done) % PROGRESS == 0:
                print(counts_of(done), flush=True)
        worker.kill()
        worker.wait()
        if following < end and begun:
            done.append(
                {
                    **begun,
                    "number": begun["begin"],
                    "seconds": 0,
                    "peak": 0,
                    "exit": None,
                    "fault": f"process ended: {worker.returncode}",
                }
            )
            show(done[-1])
            following = begun["begin"] + 1
        elif following < end and len(done) == before:
            raise RuntimeError("the worker does not start")
    return done


def in_processes(numbers: range, seed: int, place: Path) -> list[dict[str, Any]]:
    """Give inputs to the real command in an address space of 4 GiB."""
    done = []
    limit = 4 << 30
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Base(place)
        for number in numbers:
            folder = Path(name, "case")
            folder.mkdir()
            arguments = case(number, seed, base, folder)
            start = time.perf_counter()
            try:
                found = subprocess.run(
                    real_command(arguments),
                    capture_output=True,
                    check=False,
                    timeout=WAITING,
                    env=environment(),
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                )
                text, code = found.stdout + found.stderr, found.returncode
                fault = "traceback: " + text[-300:].decode() if b"Traceback" in text else ""
                fault = fault or ("" if code in (0, 1, 2) else f"exit {code}")
            except subprocess.TimeoutExpired:
                fault, code = "hang", None
            shutil.rmtree(folder)
            done.append(
                {
                    "number": number,
                    "arguments": arguments,
                    "fault": fault,
                    "exit": code,
                    "seconds": time.perf_counter() - start,
                    "peak": 0,
                }
            )
            show(done[-1])
    return done


def real_command(arguments: list[str]) -> list[str]:
    """The same call in a process of its own."""
    if arguments[0].startswith(API):
        code = "import sys, fuzz_cases; sys.exit(fuzz_cases.run_call(sys.argv[1:]))"
        return [sys.executable, "-c", code, *arguments]
    return [sys.executable, "-m", "calibrant.cli", *arguments]


def environment() -> dict[str, str]:
    """One thread, and the modules of this folder."""
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **threads, "PYTHONPATH": here.rstrip(os.pathsep)}


def show(record: dict[str, Any]) -> None:
    if record["fault"]:
        print(record["number"], " ".join(record["arguments"][:2]), record["fault"], flush=True)


def counts_of(records: list[dict[str, Any]]) -> str:
    faults = Counter(record["fault"].partition(":")[0] for record in records if record["fault"])
    exits = Counter(record["exit"] for record in records)
    slowest = max((record["seconds"] for record in records), default=0)
    peak = max((record["peak"] for record in records), default=0)
    kept = max((record.get("kept", 0) for record in records), default=0)
    return (
        f"{len(records):,} calls: exit codes {dict(sorted(exits.items(), key=str))}; "
        f"faults {dict(faults) or 'none'}; slowest {slowest:.1f} s; "
        f"peak {peak / (1 << 30):.2f} GiB, {kept / (1 << 30):.2f} GiB kept after a call"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, nargs=2, metavar=("FIRST", "COUNT"))
    parser.add_argument("--base", type=Path, help="folder of the sound files; made if missing")
    options = parser.parse_args()
    if options.worker:
        work(*options.worker, options.seed, options.base)
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        sys.exit(run(options, options.base or Path(name, "base")))


def run(options: argparse.Namespace, place: Path) -> bool:
    records = drive(options.first, options.count, options.seed, place)
    print("in one process:", counts_of(records))
    if options.processes:
        step = max(1, options.count // options.processes) | 1
        more = in_processes(range(0, step * options.processes, step), options.seed + 1, place)
        print("in processes of their own:", counts_of(more))
        records += more
    return any(record["fault"] for record in records)


if __name__ == "__main__":
    main()
