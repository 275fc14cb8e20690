"""Runs on this machine: several processes, each with a few threads."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calibrant._core.arrays import num_threads
from calibrant._core.checks import CalibrationWarning, InputError, check_processes
from calibrant._core.files import read_json, write_bytes
from calibrant._core.processes import Worker, WorkerDied, answered, crew, fork_server
from calibrant.results import Store
from calibrant.study._execute import StudyError, execute
from calibrant.study._executors import Outcome
from calibrant.study._records import Evaluation, Run
from calibrant.study._sharing import share, shared
from calibrant.study._validate import check_training

ATTEMPTS = 3
PROBE_SECONDS = 1.0
SIZE_FILE = "workers.json"
PRELOAD = "calibrant.study._preload"


@dataclass(frozen=True)
class Local:
    """Processes on this machine.

    Attributes
    ----------
    workers, threads
        Number of processes, and threads per process; None for the fastest in a short benchmark.
    """

    workers: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_processes(workers=self.workers, threads=self.threads)

    def begin(self) -> None:
        """Start the process that workers are forked from; it loads PyTorch in the meantime.

        Called while there is something else to do, it saves that time.
        """
        fork_server(PRELOAD)

    def check(self, runs: Sequence[Run]) -> None:
        """Reject what cannot be trained, before anything runs.

        A worker knows it: this process needs no PyTorch, whose loading takes seconds.
        """
        self.begin()
        if "torch" in sys.modules:
            check_training(runs)
            return
        with crew() as workers, suppress(WorkerDied):  # those that run something will say so
            workers.append(_worker(1))
            workers[0].give(runs, check_training, runs)
            answered(workers)
            workers[0].answer()

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Generator[tuple[Run, Outcome], None, None]:
        """Execute the runs; yields each with its outcome."""
        store.prepare([run.key for run in runs])
        with store.alone("setup"):
            by_data = {run.data_key: share(run, store.folder / "shared") for run in _one_each(runs)}
            workers, threads = self._size(runs, by_data, store)
        tasks = _Tasks(evaluation, store, by_data, threads)
        left = list(runs)
        for attempt in range(ATTEMPTS):
            # Runs whose process died are retried one at a time: memory may not suffice for all.
            left = yield from tasks.drain(left, 1 if attempt else workers)
        for run in left:
            yield run, Outcome.DIED

    def _size(
        self, runs: Sequence[Run], by_data: Mapping[str, Path | None], store: Store
    ) -> tuple[int, int]:
        """Workers and threads: as given, else as used before in this folder, else by benchmark."""
        if self.workers is not None and self.threads is not None:
            return self.workers, self.threads
        found = _begun_with(store.folder)
        if found is None:
            found = probe(runs[0], by_data[runs[0].data_key])
            write_bytes(store.folder / SIZE_FILE, json.dumps(found).encode())
        return self.workers or found[0], self.threads or found[1]

    def processes(self, folder: Path) -> int | None:
        """Number of workers: as given, else those used before in this folder, else None."""
        found = _begun_with(folder) if self.workers is None else (self.workers, 1)
        return None if found is None else found[0]


def _worker(threads: int) -> Worker:
    return Worker(PRELOAD, partial(_use_threads, threads))


def _use_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _begun_with(folder: Path) -> tuple[int, int] | None:
    """Workers and threads chosen before for a folder."""
    try:
        workers, threads = read_json(folder / SIZE_FILE)
        Local(workers, threads)
    except (OSError, ValueError, TypeError, OverflowError):
        return None
    return workers, threads


@dataclass(frozen=True)
class _Tasks:
    """What the workers of a study share."""

    evaluation: Evaluation
    store: Store
    by_data: Mapping[str, Path | None]
    threads: int

    def drain(
        self, runs: Sequence[Run], count: int
    ) -> Generator[tuple[Run, Outcome], None, list[Run]]:
        """Execute runs with this number of workers; return those whose process died."""
        died: list[Run] = []
        todo, unstarted = deque(runs), 0
        with crew() as workers:
            while todo or any(worker.task for worker in workers):
                while todo and len(workers) < count:
                    workers.append(_worker(self.threads))
                    self._give(workers[-1], todo.popleft())
                for worker in answered([worker for worker in workers if worker.task]):
                    run = worker.task
                    try:
                        ours, notes = worker.answer()
                    except WorkerDied as dead:
                        (died if dead.started else todo).append(run)
                        unstarted += not dead.started
                        if unstarted == ATTEMPTS:
                            raise StudyError("The worker processes crash on startup.") from None
                        workers.remove(worker)
                        worker.kill()
                        continue
                    if todo:
                        self._give(worker, todo.popleft())
                    for note in notes:
                        warnings.warn(note, CalibrationWarning, stacklevel=2)
                    yield run, Outcome.DONE if ours else Outcome.ELSEWHERE
        return died

    def _give(self, worker: Worker, run: Run) -> None:
        data = self.by_data[run.data_key]
        worker.give(run, _task, run, self.evaluation, self.store.folder, data)


def _task(
    run: Run, evaluation: Evaluation, folder: Path, data: Path | None
) -> tuple[bool, list[str]]:
    """Execute a run; return whether it was ours, and its warnings."""
    dataset = None if data is None else shared(data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        ours = execute(run, evaluation, Store(folder), dataset)
    return ours, [str(w.message) for w in caught if issubclass(w.category, CalibrationWarning)]


def _one_each(runs: Sequence[Run]) -> list[Run]:
    """One run for each data set."""
    return list({run.data_key: run for run in runs}.values())


def probe(run: Run, data: Path | None) -> tuple[int, int]:
    """Processes and threads with the highest throughput for a run's network.

    One process on all threads against one process per core: a few steps of each.
    """
    cores = num_threads()
    if cores == 1 or data is None:
        return cores, 1
    with crew() as workers:
        workers.append(_worker(1))
        seconds = []
        for threads in (1, cores):
            workers[0].give(run, _time_steps, run, data, threads)
            answered(workers)
            try:
                seconds.append(workers[0].answer())
            except (InputError, RuntimeError, WorkerDied):  # the run itself will raise the error
                return cores, 1
    one, every = seconds
    return (1, cores) if every * cores < one else (cores, 1)


class _EnoughError(Exception):
    """The probe has seen enough."""


def _time_steps(run: Run, data: Path, threads: int) -> float:
    """Seconds of a training step: a second of them, or two steps if they are slow."""
    import torch

    from calibrant.train import Moment, Recipe, train

    torch.set_num_threads(threads)
    seen: list[tuple[int, float]] = []

    def report(at: Moment) -> None:
        seen.append((at.epoch * at.steps + at.step, time.perf_counter()))
        if len(seen) > 1 and seen[-1][1] - seen[0][1] > PROBE_SECONDS:
            raise _EnoughError

    dataset = shared(data)
    recipe = Recipe(epochs=1000, batch_size=64, schedule="constant", learning_rate=1e-3)
    with suppress(_EnoughError):
        train(
            dataset,
            model=run.model,
            recipe=recipe,
            calibration=1,
            telemetry=False,
            train_size=min(256, len(dataset.y_train) // 2),
            model_options=run.model_options,
            report=report,
        )
    (first, start), (last, end) = seen[0], seen[-1]
    return (end - start) / (last - first)
