"""The driver: runs what is missing, reports failures, and leaves finished runs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from calibrant._core.extras import need_extra
from calibrant._core.files import FULL
from calibrant._core.stopping import resumable
from calibrant.results import Store
from calibrant.study._execute import StudyError, described, is_complete
from calibrant.study._executors import Executor, Outcome
from calibrant.study._local import Local
from calibrant.study._records import Run
from calibrant.study._spec import Study

State = Literal["done", "running", "failed", "missing"]


@dataclass(frozen=True)
class Status:
    """Status of a study: runs by state, and the time that finished runs took.

    ``damaged`` are the names of result files that cannot be trusted; their runs are not done.
    """

    states: dict[str, State]
    seconds: list[float] = field(default_factory=list)
    damaged: tuple[str, ...] = ()

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(value == state for value in self.states.values())

    def time_left(self, workers: int) -> float | None:
        """Estimated seconds until all runs are done; None before any has finished."""
        rest = self.count("missing") + self.count("running")
        if not self.seconds:
            return None
        return rest * sum(self.seconds) / len(self.seconds) / max(workers, 1)


def status(study: Study, out: str | Path) -> Status:
    """Status of the results of a study."""
    return _look(study, Store(out))[0]


def _look(study: Study, store: Store) -> tuple[Status, dict[str, str]]:
    """Where a study stands, and the labels that finished runs have in their files."""
    states: dict[str, State] = {}
    seconds, damaged, labels = [], [], {}
    asked = described(study.evaluation)
    held = store.facts_of_all([run.key for run in study.runs])
    for run in study.runs:
        facts = held[run.key]
        if facts is None and store.is_damaged(run.key):
            damaged.append(store.result_path(run.key).name)
        if facts is not None and is_complete(facts, asked):
            states[run.key] = "done"
            seconds.append(float(facts.get("seconds", 0.0)))
            labels[run.key] = str(facts.get("label", ""))
        elif store.claimed(run.key):
            states[run.key] = "running"
        elif store.failure(run.key) is not None:
            states[run.key] = "failed"
        else:
            states[run.key] = "missing"
    return Status(states, seconds, tuple(damaged)), labels


def run_study(
    study: Study,
    out: str | Path,
    *,
    executor: Executor | None = None,
    retry: bool = False,
    report: Callable[[Run, str, Status], None] | None = None,
) -> Status:
    """Run what is missing of a study.

    It can be interrupted at any time; the same call resumes. Several drivers can work on one
    folder: each run is done by one of them.

    Parameters
    ----------
    study
        From ``Study.load``.
    out
        Folder of the results.
    executor
        ``Local()`` or ``Ray()``.
    retry
        Whether to retry failed runs.
    report
        Called after every run.
    """
    store = Store(out)
    with resumable(lambda: _finished(_results(study, store), len(study.runs))):
        store.sweep()
        now, labels = _look(study, store)
        wanted = ("missing", "running", "failed") if retry else ("missing", "running")
        # Seed by seed, so that an interrupted study has the same seeds for every setting.
        runs = sorted(study.runs, key=lambda run: run.seed)
        todo = list({r.key: r for r in runs if now.states[r.key] in wanted}.values())
        if todo:
            need_extra("torch", "Training")
            works = executor or Local()
            works.check(todo)
            elsewhere = _work(todo, study, store, works, now, report)
            while any(store.claimed(run.key) for run in elsewhere):
                time.sleep(0.5)
            if elsewhere:
                # Runs that a stopped driver left are ours now; what failed there
                # has failed.
                return run_study(study, out, executor=executor, report=report)
            now, labels = _look(study, store)
        _relabel(study, store, labels)
        return now


def _results(study: Study, store: Store) -> int:
    """How many runs have a result, before anyone has looked into it."""
    return sum(store.result_path(run.key).exists() for run in study.runs)


def _finished(done: int, total: int) -> str:
    return f"{done} of {total} runs finished"


def _work(
    todo: Sequence[Run],
    study: Study,
    store: Store,
    executor: Executor,
    now: Status,
    report: Callable[[Run, str, Status], None] | None,
) -> list[Run]:
    """Execute runs; return those that another driver has."""
    states, seconds, elsewhere = dict(now.states), list(now.seconds), []

    def progress() -> str:
        return _finished(list(states.values()).count("done"), len(states))

    try:
        with resumable(progress), closing(executor.work(todo, study.evaluation, store)) as found:
            for run, outcome in found:
                if outcome is Outcome.ELSEWHERE:
                    elsewhere.append(run)
                    continue
                if outcome is Outcome.DIED and store.failure(run.key) is None:
                    store.fail(
                        run.key,
                        {
                            "run": str(run),
                            "error": "The worker process crashed repeatedly.",
                            "traceback": "",
                            "time": time.time(),
                        },
                    )
                facts = store.facts(run.key)
                states[run.key] = "done" if facts is not None else "failed"
                seconds += [] if facts is None else [float(facts.get("seconds", 0.0))]
                if report is not None:
                    report(run, states[run.key], Status(states, seconds))
    except OSError as error:
        raise StudyError(_stopped_by(error, store)) from error
    return elsewhere


def _stopped_by(error: OSError, store: Store) -> str:
    what, first = f"The study stopped: {error}", "Run"
    if error.errno in FULL:
        what = f"The study stopped because the disk of {store.folder} is full"
        first = "Free some space and run"
    return f"{what}. Finished runs are kept. {first} the same command to continue."


def _relabel(study: Study, store: Store, held: Mapping[str, str]) -> None:
    """Give the finished runs the labels of this study, if ``held`` are others.

    Another study may label the same runs differently. One driver at a time relabels all of its
    runs, so that a folder does not end with a mixture.
    """
    if all(study.labels[key] == label for key, label in held.items()):
        return
    with store.alone("labels"):
        for key, label in study.labels.items():
            with store.claim(key) as ours:
                if ours:
                    store.relabel(key, label)
