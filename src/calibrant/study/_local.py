"""Runs on this machine: several processes, each with a few threads."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calibrant._arrays import num_threads
from calibrant._checks import InputError
from calibrant._files import read_json, replacing
from calibrant.results import Store
from calibrant.study._execute import execute
from calibrant.study._sharing import share, shared
from calibrant.study._spec import Evaluation, Run

ATTEMPTS = 3
PROBE_SECONDS = 1.0
SIZE_FILE = "workers.json"


@dataclass(frozen=True)
class Local:
    """Processes on this machine.

    Attributes
    ----------
    workers, threads
        Processes, and threads of each; None for what a quick probe finds fastest.
    """

    workers: int | None = None
    threads: int | None = None

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Iterator[tuple[Run, str]]:
        """Execute the runs; yields each with "done", "elsewhere" or "died"."""
        by_data = {run.data_key: share(run, store.folder / "shared") for run in _one_each(runs)}
        workers, threads = self._size(runs, by_data, store)
        pool = _Pool(evaluation, store, by_data, threads)
        left = {run.key: run for run in runs}
        while left:
            suspects = yield from pool.drain(left, list(left), workers)
            # One of those under way killed its process; alone, each shows whether it was.
            for key in suspects:
                for _ in range(ATTEMPTS - 1):
                    if not (yield from pool.drain(left, [key], 1)):
                        break
                else:
                    yield left.pop(key), "died"

    def _size(
        self, runs: Sequence[Run], by_data: Mapping[str, Path | None], store: Store
    ) -> tuple[int, int]:
        """Workers and threads: as given, else as this folder was begun with, else by a probe."""
        if self.workers is not None and self.threads is not None:
            return self.workers, self.threads
        found = _begun_with(store.folder)
        if found is None:
            found = probe(runs[0], by_data[runs[0].data_key])
            store.folder.mkdir(parents=True, exist_ok=True)
            with replacing(store.folder / SIZE_FILE) as temporary:
                Path(temporary).write_text(json.dumps(found), encoding="utf-8")
        return self.workers or found[0], self.threads or found[1]

    def processes(self, folder: Path) -> int | None:
        """How many work on a folder: as given, else as it was begun with; None before that."""
        found = _begun_with(folder) if self.workers is None else (self.workers, 1)
        return None if found is None else found[0]


def _begun_with(folder: Path) -> tuple[int, int] | None:
    """Workers and threads that a probe found for a folder."""
    try:
        workers, threads = read_json(folder / SIZE_FILE)
        return int(workers), int(threads)
    except (OSError, ValueError, TypeError, OverflowError):
        return None


@dataclass(frozen=True)
class _Pool:
    """Processes that execute runs until all are done or one of the processes dies."""

    evaluation: Evaluation
    store: Store
    by_data: Mapping[str, Path | None]
    threads: int

    def drain(
        self, left: dict[str, Run], keys: Sequence[str], workers: int
    ) -> Generator[tuple[Run, str], None, list[str]]:
        """Take finished runs out of ``left``; return those under way when a process died."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["calibrant.train"])
        pool = ProcessPoolExecutor(workers, context, _begin, (self.threads,))
        begun = time.time()
        futures: dict[Future[bool], str] = {}
        try:
            for key in keys:
                run = left[key]
                task = (run, self.evaluation, self.store.folder, self.by_data[run.data_key])
                futures[pool.submit(_task, *task)] = key
            while futures:
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    ours = future.result()
                    yield left.pop(futures.pop(future)), "done" if ours else "elsewhere"
        except BrokenProcessPool:
            under_way = [k for k in keys if k in left and self.store.begun(k) >= begun]
            return under_way or [k for k in keys if k in left]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return []


def _begin(threads: int) -> None:
    import torch  # noqa: PLC0415

    torch.set_num_threads(threads)


def _task(run: Run, evaluation: Evaluation, folder: Path, data: Path | None) -> bool:
    dataset = None if data is None else shared(data)
    return execute(run, evaluation, Store(folder), dataset)


def _one_each(runs: Sequence[Run]) -> list[Run]:
    """One run for each data set."""
    return list({run.data_key: run for run in runs}.values())


def probe(run: Run, data: Path | None) -> tuple[int, int]:
    """Processes and threads with the highest throughput for a run's network.

    One process on all threads against one process a core: a few steps of each.
    """
    cores = num_threads()
    if cores == 1 or data is None:
        return cores, 1
    context = multiprocessing.get_context("forkserver")
    try:
        with ProcessPoolExecutor(1, context) as pool:
            one = pool.submit(_time_steps, run, data, 1).result()
            every = pool.submit(_time_steps, run, data, cores).result()
    except (InputError, RuntimeError):  # the run itself will say what is wrong
        return cores, 1
    return (1, cores) if every * cores < one else (cores, 1)


class _EnoughError(Exception):
    """The probe has seen enough."""


def _time_steps(run: Run, data: Path, threads: int) -> float:
    """Seconds of a training step: a second of them, or two steps if they are slow."""
    import torch  # noqa: PLC0415

    from calibrant.train import Moment, Recipe, train  # noqa: PLC0415

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
            dataset, model=run.model, recipe=recipe, calibration=1, telemetry=False,
            train_size=min(256, len(dataset.y_train) // 2), model_options=run.model_options,
            report=report,
        )  # fmt: skip
    (first, start), (last, end) = seen[0], seen[-1]
    return (end - start) / (last - first)
