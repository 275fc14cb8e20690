"""Runs on a Ray cluster: results return to the driver, so no shared disk is needed."""

from __future__ import annotations

import resource
import tempfile
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._core.checks import check_processes
from calibrant._core.files import write_bytes
from calibrant._core.ray_cluster import check_address, connected, stdout_free
from calibrant.data import Dataset, load
from calibrant.results import Store
from calibrant.study._execute import disk_error, execute
from calibrant.study._executors import Outcome
from calibrant.study._records import Evaluation, Run
from calibrant.study._validate import check_training

RETRIES = 3
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
        check_processes(threads=self.threads)
        check_address(self.address)

    def check(self, runs: Sequence[Run]) -> None:
        """Reject what cannot be trained, before anything runs."""
        check_training(runs)

    def processes(self, folder: Path) -> int | None:
        """None: the cluster decides how many runs are executed at once."""
        del folder
        return None

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Generator[tuple[Run, Outcome], None, None]:
        """Execute the runs; yields each with its outcome."""
        with connected(self.address, "The executor ray", dict(self.options)) as ray:
            store.prepare([run.key for run in runs])  # a wrong address leaves no folders
            yield from self._submit(ray, runs, evaluation, store)

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
                    with stdout_free():
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


def _open_files(wanted: int) -> int:
    """Number of locks this process may hold, after raising the limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted + OTHER_FILES:
        most = wanted + OTHER_FILES
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, soft - OTHER_FILES)


def _outcome(ray: Any, job: Any, run: Run, store: Store) -> Outcome:
    """Store a worker's files here; ``DIED`` if its process or node died."""
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
    """Write the files that a worker returned, the result file last."""
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
