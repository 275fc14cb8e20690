"""Runs on a Ray cluster: results return to the driver, so no disk is shared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._extras import import_extra
from calibrant._files import replacing
from calibrant.data import Dataset, load
from calibrant.results import Store
from calibrant.study._execute import execute
from calibrant.study._spec import Evaluation, Run

RETRIES = 3


@dataclass(frozen=True)
class Ray:
    """A Ray cluster.

    Attributes
    ----------
    address
        Of an existing cluster, such as "auto" or "10.0.0.1:6379"; None starts one on this machine.
    threads, gpus
        Cores and GPUs of each run.
    options
        Further arguments of ``ray.init``.
    """

    address: str | None = None
    threads: int = 1
    gpus: float = 0
    options: tuple[tuple[str, Any], ...] = ()

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Iterator[tuple[Run, str]]:
        """Execute the runs; yields each with "done", "elsewhere" or "died"."""
        ray = import_extra("ray", "The executor ray")
        ours = not ray.is_initialized()
        if ours:
            ray.init(address=self.address, log_to_driver=False, **dict(self.options))
        try:
            yield from self._submit(ray, runs, evaluation, store)
        finally:
            if ours:
                ray.shutdown()

    def _submit(
        self, ray: Any, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Iterator[tuple[Run, str]]:
        task = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_retries=RETRIES)(_task)
        data: dict[str, Any] = {}
        for run in runs:
            if run.data_key not in data:
                data[run.data_key] = ray.put(load(run.data, **run.data_options))
        waiting: dict[Any, tuple[Run, ExitStack]] = {}
        for run in runs:
            held = ExitStack()
            if not held.enter_context(store.claim(run.key)):
                held.close()
                yield run, "elsewhere"
                continue
            kept = _files(store.run_folder(run.key))
            given = data[run.data_key]
            waiting[task.remote(run, evaluation, given, self.threads, kept)] = (run, held)
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            run, held = waiting.pop(ready)
            try:
                _bring_home(ray.get(ready), run, store)
                yield run, "done"
            except ray.exceptions.RayError as error:
                if not isinstance(
                    error, ray.exceptions.WorkerCrashedError | ray.exceptions.NodeDiedError
                ):
                    store.fail(run.key, {"run": str(run), "error": str(error)[-2000:]})
                yield run, "died"
            finally:
                held.close()


Files = dict[str, bytes]


def _task(
    run: Run, evaluation: Evaluation, dataset: Dataset, threads: int, kept: Files
) -> dict[str, Files]:
    """Execute a run in a folder of its own on the worker, and return its files."""
    import torch  # noqa: PLC0415

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
        "runs": store.run_folder(run.key), "failed": store.folder / "failed",
        "results": store.folder / "results",
    }  # fmt: skip
    for kind, target in targets.items():
        target.mkdir(parents=True, exist_ok=True)
        for name, content in found[kind].items():
            with replacing(target / name) as temporary:
                Path(temporary).write_bytes(content)
    if found["results"]:
        (store.folder / "failed" / f"{run.key}.json").unlink(missing_ok=True)
