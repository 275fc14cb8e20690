"""Runs on this machine: several processes, each with a few threads."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calibrant.results import Store
from calibrant.study._execute import execute
from calibrant.study._sharing import share, shared
from calibrant.study._spec import Evaluation, Run

ATTEMPTS = 3
PROBE_SECONDS = 1.0


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
        folders = {run.key: share(run, store.folder / "shared") for run in _one_each(runs)}
        by_data = {_data(run): folders[run.key] for run in _one_each(runs)}
        workers, threads = self.workers, self.threads
        if workers is None or threads is None:
            new = [run for run in runs if not (store.run_folder(run.key) / "run.json").exists()]
            chosen = probe(new[0], by_data[_data(new[0])]) if new else (_cores(), 1)
            workers, threads = workers or chosen[0], threads or chosen[1]
        left = {run.key: 0 for run in runs}  # attempts
        named = {run.key: run for run in runs}
        while left:
            yield from self._pool(named, left, evaluation, store, by_data, workers, threads)

    def _pool(
        self,
        named: Mapping[str, Run],
        left: dict[str, int],
        evaluation: Evaluation,
        store: Store,
        by_data: Mapping[str, Path | None],
        workers: int,
        threads: int,
    ) -> Iterator[tuple[Run, str]]:
        """One pool of processes, until all is done or a process dies and takes the pool along."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["calibrant.train"])
        pool = ProcessPoolExecutor(workers, context, _begin, (threads,))
        futures: dict[Future[bool], str] = {}
        try:
            for key in left:
                where = by_data[_data(named[key])]
                futures[pool.submit(_task, named[key], evaluation, store.folder, where)] = key
            while futures:
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    key = futures.pop(future)
                    ours = future.result()
                    left.pop(key)
                    yield named[key], "done" if ours else "elsewhere"
        except BrokenProcessPool:
            # Which process died is not known; runs that were not begun lose nothing by it.
            for key in list(left):
                left[key] += 1
                if left[key] >= ATTEMPTS and not store.claimed(key):
                    left.pop(key)
                    yield named[key], "died"
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(threads: int) -> None:
    import torch  # noqa: PLC0415

    torch.set_num_threads(threads)


def _task(run: Run, evaluation: Evaluation, folder: Path, data: Path | None) -> bool:
    dataset = None if data is None else shared(data)
    return execute(run, evaluation, Store(folder), dataset)


def _data(run: Run) -> str:
    return f"{run.data} {sorted(run.data_options.items())}"


def _one_each(runs: Sequence[Run]) -> list[Run]:
    """One run for each data set."""
    return list({_data(run): run for run in runs}.values())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def probe(run: Run, data: Path | None) -> tuple[int, int]:
    """Processes and threads with the highest throughput for a run's network.

    One process on all threads against one process a core: a few steps of each.
    """
    cores = _cores()
    if cores == 1 or data is None:
        return cores, 1
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, context) as pool:
        one = pool.submit(_time_steps, run, data, 1).result()
        every = pool.submit(_time_steps, run, data, cores).result()
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
