"""Executors: what runs the trainings of a study, on this machine or a cluster."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from calibrant.results import Store
from calibrant.study._records import Evaluation, Run


class Outcome(StrEnum):
    """The outcome of a run that was given to an executor."""

    DONE = "done"
    ELSEWHERE = "elsewhere"
    """Another driver works on it."""
    DIED = "died"
    """Its process died repeatedly."""


class Executor(Protocol):
    """Executes runs, on this machine or a cluster."""

    def check(self, runs: Sequence[Run]) -> None:
        """Reject what cannot be trained, before anything runs."""
        ...

    def work(
        self, runs: Sequence[Run], evaluation: Evaluation, store: Store
    ) -> Generator[tuple[Run, Outcome], None, None]:
        """Execute runs, after ``store.prepare``; yield each with its outcome."""
        ...

    def processes(self, folder: Path) -> int | None:
        """Number of runs executed at once; None if unknown."""
        ...
