"""The driver: what is missing is run, what failed is told, what is there is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from calibrant._extras import need_extra
from calibrant.results import Store
from calibrant.study._execute import is_complete
from calibrant.study._local import Local
from calibrant.study._spec import Evaluation, Run, Study

State = Literal["done", "running", "failed", "missing"]


class Executor(Protocol):
    """What executes runs: this machine, or a cluster."""

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Iterator[tuple[Run, str]]:
        """Execute runs; yield each with "done", "elsewhere" or "died"."""
        ...


class StudyError(RuntimeError):
    """The study cannot go on; what is finished is kept."""


@dataclass(frozen=True)
class Status:
    """Where a study stands: runs by state, and the seconds that finished ones took."""

    states: dict[str, State]
    seconds: list[float] = field(default_factory=list)

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(value == state for value in self.states.values())

    def time_left(self, workers: int) -> float | None:
        """Seconds until the rest is done by so many workers, None before anything is known."""
        rest = self.count("missing") + self.count("running")
        if not self.seconds:
            return None
        return rest * sum(self.seconds) / len(self.seconds) / max(workers, 1)


def status(study: Study, out: str | Path) -> Status:
    """Look at the results of a study."""
    store = Store(out)
    states: dict[str, State] = {}
    seconds = []
    for run in study.runs:
        facts = store.facts(run.key)
        if is_complete(run, study.evaluation, facts) and facts is not None:
            states[run.key] = "done"
            seconds.append(float(facts.get("seconds", 0.0)))
        elif store.claimed(run.key):
            states[run.key] = "running"
        elif store.failure(run.key) is not None:
            states[run.key] = "failed"
        else:
            states[run.key] = "missing"
    return Status(states, seconds)


def run_study(
    study: Study,
    out: str | Path,
    *,
    executor: Executor | None = None,
    retry: bool = False,
    report: Callable[[Run, str, Status], None] | None = None,
) -> Status:
    """Run what is missing of a study.

    Stopped at any moment, by any means, the same call goes on. Several drivers may work on one
    folder: a run is done by one of them.

    Parameters
    ----------
    study
        From ``Study.load``.
    out
        Folder of the results.
    executor
        ``Local()`` or ``Ray()``.
    retry
        Whether to repeat what failed.
    report
        Called after every run.
    """
    store = Store(out)
    now = status(study, out)
    wanted = ("missing", "running", "failed") if retry else ("missing", "running")
    # Seed by seed, so that a study stopped in the middle compares like with like.
    runs = sorted(study.runs, key=lambda run: run.seed)
    todo = list({r.key: r for r in runs if now.states[r.key] in wanted}.values())
    if not todo:
        return now
    need_extra("torch", "Training")
    states, seconds = dict(now.states), list(now.seconds)
    elsewhere: list[Run] = []
    try:
        for run, outcome in (executor or Local()).work(todo, study.evaluation, store):
            if outcome == "elsewhere":
                elsewhere.append(run)
                continue
            if outcome == "died" and store.failure(run.key) is None:
                store.fail(run.key, {
                    "run": str(run), "error": "The process that worked on it died repeatedly.",
                    "traceback": "", "time": time.time(),
                })  # fmt: skip
            facts = store.facts(run.key)
            states[run.key] = "done" if facts is not None else "failed"
            seconds += [] if facts is None else [float(facts.get("seconds", 0.0))]
            if report is not None:
                report(run, states[run.key], Status(states, seconds))
    except OSError as error:
        raise StudyError(
            f"The study stopped: {error}. What is finished is kept in {out}; run the same command "
            "to go on."
        ) from error
    if not elsewhere:
        return status(study, out)
    while any(store.claimed(run.key) for run in elsewhere):
        time.sleep(0.5)
    # What the other driver left, if it was stopped, is ours now; what failed there has failed.
    return run_study(study, out, executor=executor, report=report)
