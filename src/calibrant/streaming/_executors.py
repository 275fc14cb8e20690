"""What measures files in parallel: processes on this machine, or tasks on a Ray cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from calibrant._core.arrays import limit_threads, num_threads
from calibrant._core.checks import check_processes
from calibrant._core.processes import Worker, WorkerDied, answered, crew
from calibrant._core.ray_cluster import ClusterError, check_address, connected, stdout_free
from calibrant.streaming._files import (
    FilePlan,
    FileTotals,
    Merged,
    Part,
    States,
    bad_file,
    common_plan,
    finished,
    measure_chunk,
    merge_states,
)
from calibrant.streaming._parquet import stream_layout

Chunk = tuple[str, ...]
ATTEMPTS = 3
DIED = "the process that read it died repeatedly, perhaps for lack of memory"
# More tasks would only burden the driver; they then take several files each.
MOST_CHUNKS = 20_000
FAN_IN = 8
QUEUED_PER_CORE = 2
Report = Callable[[Part], None]


class FileExecutor(Protocol):
    """Measures files in parallel."""

    def gather(self, chunks: Sequence[Chunk], plan: FilePlan, report: Report) -> Merged:
        """Measure the files of all chunks; ``report`` is called with what came of each chunk."""
        ...


@dataclass(frozen=True)
class LocalProcesses:
    """Processes on this machine.

    Attributes
    ----------
    workers, threads
        Number of processes, by default one per core, and of threads of each, by default an equal
        share of the cores.
    """

    workers: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_processes(workers=self.workers, threads=self.threads)

    def gather(self, chunks: Sequence[Chunk], plan: FilePlan, report: Report) -> Merged:
        """Measure the chunks; one whose process dies is given to another process."""
        count = self.workers or num_threads()
        threads = self.threads or max(1, num_threads() // count)
        found, todo = Merged(), deque((chunk, 1) for chunk in chunks)
        with crew() as workers:
            while todo or any(worker.task for worker in workers):
                while todo and len(workers) < count:
                    prepare = partial(use_threads, threads)
                    workers.append(Worker("calibrant.streaming._preload", prepare))
                    self._give(workers[-1], todo, plan)
                for worker in answered([worker for worker in workers if worker.task]):
                    chunk, attempt = worker.task
                    try:
                        part, states = worker.answer()
                    except WorkerDied:
                        workers.remove(worker)
                        worker.kill()
                        if attempt < ATTEMPTS:
                            todo.append((chunk, attempt + 1))
                        else:
                            report(Part(bad=dict.fromkeys(chunk, DIED)))
                        continue
                    if todo:
                        self._give(worker, todo, plan)
                    report(part)
                    found.add_states(states)
        return found

    def _give(self, worker: Worker, todo: deque[tuple[Chunk, int]], plan: FilePlan) -> None:
        task = todo.popleft()
        worker.give(task, measure_chunk, task[0], plan)


@dataclass(frozen=True)
class RayTasks:
    """Tasks on a Ray cluster; every node must reach the files under the same names.

    Attributes
    ----------
    address
        Address of an existing cluster, such as "auto" or "10.0.0.1:6379"; None starts one on this
        machine that other machines cannot reach.
    threads
        Number of cores per task.
    options
        Further arguments of ``ray.init``.
    """

    address: str | None = None
    threads: int = 1
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check_processes(threads=self.threads)
        check_address(self.address)

    def gather(self, chunks: Sequence[Chunk], plan: FilePlan, report: Report) -> Merged:
        """Measure the chunks, and merge their states in a tree of tasks.

        A task whose process or node dies is retried by Ray, and a state that was lost with its
        node is made again.
        """
        with connected(self.address, "The executor ray", dict(self.options)) as ray:
            try:
                return self._gather(ray, chunks, plan, report)
            except ray.exceptions.RayError as error:
                reason = str(error).strip().rpartition("\n")[2]
                advice = "Run the command again."
                raise ClusterError(f"The Ray cluster failed: {reason}. {advice}") from error

    def _gather(self, ray: Any, chunks: Sequence[Chunk], plan: FilePlan, report: Report) -> Merged:
        options = {"num_cpus": self.threads, "max_retries": ATTEMPTS - 1}
        read = ray.remote(num_returns=2, **options)(_read_task)
        merge = ray.remote(**options)(merge_states)
        todo = deque(chunks)
        waiting: dict[Any, tuple[Chunk, Any]] = {}
        levels: list[list[Any]] = [[]]
        while todo or waiting:
            room = QUEUED_PER_CORE * int(ray.cluster_resources().get("CPU", 1)) + 1
            while todo and len(waiting) < room:
                chunk = todo.popleft()
                part, states = read.remote(chunk, plan, self.threads)
                waiting[part] = chunk, states
            with stdout_free():
                ready, _ = ray.wait(list(waiting), num_returns=1)
            chunk, states = waiting.pop(ready[0])
            came = _outcome(ray, ready[0], chunk)
            report(came)
            if came.files:
                _climb(levels, states, merge)
        found = Merged()
        for states in ray.get([states for level in levels for states in level]):
            found.add_states(states)
        return found


def _climb(levels: list[list[Any]], states: Any, merge: Any) -> None:
    """Put states into the tree; as many as fan in at a level are merged into one of the next."""
    for k in range(len(levels) + 1):
        if k == len(levels):
            levels.append([])
        levels[k].append(states)
        if len(levels[k]) < FAN_IN:
            return
        states, levels[k] = merge.remote(*levels[k]), []


def _outcome(ray: Any, part: Any, chunk: Chunk) -> Part:
    """What came of a chunk; its files are bad if its process or node died again and again."""
    try:
        found: Part = ray.get(part)
    except (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.OutOfMemoryError,
    ):
        return Part(bad=dict.fromkeys(chunk, DIED))
    return found


def use_threads(threads: int) -> None:
    """Limit a worker to its share of the cores; Arrow decodes columns in threads of its own."""
    import pyarrow as pa

    limit_threads(threads)
    pa.set_cpu_count(threads)


def _read_task(files: Chunk, plan: FilePlan, threads: int) -> tuple[Part, States]:
    use_threads(threads)
    return measure_chunk(files, plan)


FILE_EXECUTORS: dict[str, type[FileExecutor]] = {
    "local": LocalProcesses,
    "ray": RayTasks,
}
"""Every executor of files by its name on the command line; its options are its fields."""


def accumulate_files(
    files: Sequence[str],
    *,
    executor: FileExecutor,
    bins: int = 15,
    by: str | None = None,
    skip_bad: bool = False,
    progress: Callable[[Part, int], None] | None = None,
    **options: Any,
) -> FileTotals:
    """Accumulate Parquet files in parallel, on this machine or a cluster.

    Parameters
    ----------
    files
        Names or URLs, as ``parquet_files`` returns them.
    executor
        ``LocalProcesses(workers=4)`` or ``RayTasks(address="auto")``.
    bins
        Number of equal-width bins of the ECE family.
    by
        One of the groupings of the files: an accumulator per group.
    skip_bad
        Whether files that cannot be read are left out; otherwise the first one raises.
    progress
        Called with what has been read so far and the number of files.
    options
        Options of ``calibrant.load`` that say what the columns mean, such as ``label_column``.
    """
    plan = common_plan(files, stream_layout(options), bins=bins, by=by, skip_bad=skip_bad)
    plan.start()
    so_far = Part()

    def report(part: Part) -> None:
        nonlocal so_far
        if part.bad and not skip_bad:
            raise bad_file(part.bad)
        so_far += part
        if progress:
            progress(so_far, len(files))

    found = executor.gather(_chunks(files), plan, report)
    return finished(found, so_far, len(files))


def _chunks(files: Sequence[str]) -> list[Chunk]:
    size = -(-len(files) // MOST_CHUNKS)
    return [tuple(files[start : start + size]) for start in range(0, len(files), size)]
