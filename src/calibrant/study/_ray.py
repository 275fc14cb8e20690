"""Runs on a Ray cluster: results return to the driver, so no shared disk is needed."""

from __future__ import annotations

import os
import resource
import socket
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._core.checks import CalibrationWarning, check_count, refuse
from calibrant._core.extras import import_extra
from calibrant._core.files import write_bytes
from calibrant._core.stopping import reinstall
from calibrant.data import Dataset, load
from calibrant.results import Store
from calibrant.study._execute import StudyError, disk_error, execute
from calibrant.study._executors import Outcome
from calibrant.study._records import Evaluation, Run

RETRIES = 3
LOCAL_HOST = "127.0.0.1"
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
ANSWER_SECONDS = 5.0
CLIENT = "ray://"
# How a gRPC connection begins: the client's first words, and an empty frame of settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS = 4  # the kind of the frame that the server answers with
OTHER_FILES = 256  # that a driver may have open beside its locks
QUEUED = 2  # runs that wait at the cluster, so that no worker does


@dataclass(frozen=True)
class Ray:
    """A Ray cluster.

    Attributes
    ----------
    address
        Address of an existing cluster, such as "auto" or "10.0.0.1:6379"; None starts one on this
        machine that other machines cannot reach. A process that started with None stays on this
        machine.
    threads, gpus
        Number of cores and GPUs per run.
    options
        Further arguments of ``ray.init``.
    """

    address: str | None = None
    threads: int = 1
    gpus: float = 0
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_count("threads", self.threads, least=1, most=100_000, example=2)
        if self.address not in (None, "auto"):
            _host_and_port(str(self.address))

    def processes(self, folder: Path) -> int | None:
        """None: the cluster decides how many runs are worked on at once."""
        del folder
        return None

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Generator[tuple[Run, Outcome], None, None]:
        """Execute the runs; yields each with what became of it."""
        if self.address is None:
            # Ray reads it when it is imported; its name is that of what it was made for.
            os.environ.setdefault(ONE_MACHINE, "0")
        ray = import_extra("ray", "The executor ray")
        ours = not ray.is_initialized()
        if ours:
            self._connect(ray)
        try:
            yield from self._submit(ray, runs, evaluation, store)
        finally:
            if ours:
                with _stdout_free():
                    ray.shutdown()

    def _connect(self, ray: Any) -> None:
        options: dict[str, Any] = {"log_to_driver": False, **dict(self.options)}
        if self.address is None:
            options = {"include_dashboard": False, **options}
        elif self.address != "auto":
            _check_answers(self.address)
        try:
            with _stdout_free():
                ray.init(address=self.address, **options)
            reinstall()
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            reason = str(error).partition("\n")[0]
            where = self.address or "on this machine"
            raise StudyError(f"Ray ({where}) cannot be used: {reason}") from error
        listens_on = ray.util.get_node_ip_address()
        if self.address is None and listens_on != LOCAL_HOST:
            text = f"Ray listens on {listens_on}, where other machines can reach it"
            text += f". Set {ONE_MACHINE}=0 before ray is imported."
            warnings.warn(text, CalibrationWarning, stacklevel=2)

    def _submit(
        self, ray: Any, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Generator[tuple[Run, Outcome], None, None]:
        task = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=RETRIES)(_task)
        data: dict[str, Any] = {}
        for run in runs:
            if run.data_key not in data:
                data[run.data_key] = ray.put(load(run.data, **run.data_options))
        todo = deque(runs)
        waiting: dict[Any, tuple[Run, ExitStack]] = {}
        with ExitStack() as locks:
            while todo or waiting:
                # A run is locked from when the cluster gets it, so it gets few more than fit.
                while todo and len(waiting) < self._places(ray):
                    run, held = todo.popleft(), locks.enter_context(ExitStack())
                    if not held.enter_context(store.claim(run.key)):
                        held.close()
                        yield run, Outcome.ELSEWHERE
                        continue
                    kept = _files(store.run_folder(run.key))
                    given = data[run.data_key]
                    job = task.remote(run, evaluation, given, self.threads, kept)
                    waiting[job] = (run, held)
                if waiting:
                    with _stdout_free():
                        (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
                    run, held = waiting.pop(ready)
                    with held:
                        outcome = _outcome(ray, ready, run, store)
                    yield run, outcome

    def _places(self, ray: Any) -> int:
        """How many runs to give to the cluster, as it is now: few more than it has room for."""
        there = ray.cluster_resources()
        room = there.get("CPU", 0) // self.threads
        if self.gpus:
            room = min(room, there.get("GPU", 0) // self.gpus)
        return min(int(room) + QUEUED, _open_files(int(room) + QUEUED))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        rule, advice = "must be HOST:PORT, ray://HOST:PORT or auto", "Try 10.0.0.1:6379."
        raise refuse("address", rule, f"got {address!r}", advice)
    return host, int(port)


def _check_answers(address: str) -> None:
    """Refuse an address where no Ray is, for which ``ray.init`` takes minutes."""
    host, port = _host_and_port(address)
    advice = "Check it with: ray status --address HOST:PORT."
    try:
        with socket.create_connection((host.strip("[]"), port), ANSWER_SECONDS) as there:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return  # nothing is said in the clear
            there.sendall(GREETING)
            answer = there.recv(9)
    except OSError as error:
        rule = "must be that of a running Ray cluster"
        raise refuse("address", rule, f"got {address}: {error}", advice) from error
    if len(answer) < 4 or answer[3] != SETTINGS:  # noqa: PLR2004
        rule, got = "must be that of a Ray cluster", f"got {address}, where something else answers"
        raise refuse("address", rule, got, advice)


def _open_files(wanted: int) -> int:
    """How many locks this process may hold at once, after asking the system for so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        most = wanted + OTHER_FILES
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


@contextmanager
def _stdout_free() -> Iterator[None]:
    """Ray prints what its processes complain of to stdout, where our tables go."""
    with redirect_stdout(sys.stderr):
        yield


def _outcome(ray: Any, job: Any, run: Run, store: Store) -> Outcome:
    """Bring home what a worker made; ``DIED`` if its process or its node did."""
    try:
        _bring_home(ray.get(job), run, store)
    except ray.exceptions.RayError as error:
        disk = disk_error(getattr(error, "cause", None))
        if disk is not None:
            raise disk from error
        crashed = ray.exceptions.WorkerCrashedError | ray.exceptions.NodeDiedError
        if not isinstance(error, crashed):
            store.fail(run.key, {"run": str(run), "error": str(error)[-2000:]})
        return Outcome.DIED
    return Outcome.DONE


Files = dict[str, bytes]


def _task(
    run: Run, evaluation: Evaluation, dataset: Dataset, threads: int, kept: Files
) -> dict[str, Files]:
    """Execute a run in a folder of its own on the worker, and return its files."""
    import torch

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as name:
        store = Store(name)
        folder = store.run_folder(run.key)
        folder.mkdir(parents=True)
        for file, content in kept.items():
            (folder / file).write_bytes(content)
        execute(run, evaluation, store, dataset)
        return {
            "runs": {k: v for k, v in _files(folder).items() if k != "checkpoint.pt"},
            "results": _files(store.folder / "results"),
            "failed": _files(store.folder / "failed"),
        }


def _files(folder: Path) -> Files:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _bring_home(found: dict[str, Files], run: Run, store: Store) -> None:
    """Write what a worker returned; the result last."""
    targets = {
        "runs": store.run_folder(run.key),
        "failed": store.folder / "failed",
        "results": store.folder / "results",
    }
    for kind, target in targets.items():
        target.mkdir(parents=True, exist_ok=True)
        for name, content in found[kind].items():
            write_bytes(target / name, content)
    if found["results"]:
        (store.folder / "failed" / f"{run.key}.json").unlink(missing_ok=True)
