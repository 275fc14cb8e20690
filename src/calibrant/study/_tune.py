"""Tuning one coefficient at a time, on validation data only (karandikar2021, appendix E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import metrics
from calibrant._core.checks import refuse
from calibrant._core.formatting import show
from calibrant.predictions import Predictions
from calibrant.results import Store
from calibrant.study._execute import CALIBRATION, StudyError, file_name
from calibrant.study._executors import Executor
from calibrant.study._records import Evaluation, Run
from calibrant.study._run import run_study
from calibrant.study._select import check_within
from calibrant.study._spec import Study
from calibrant.study._validate import check_objective, filled, placeholders


@dataclass(frozen=True)
class Trial:
    """One value of one coefficient: validation ECE and accuracy, means over seeds."""

    coefficient: str
    value: Any
    objective: str
    ece: float
    accuracy: float
    chosen: bool = False


@dataclass(frozen=True)
class Tuned:
    """The tuned coefficients and all trials."""

    objective: str
    coefficients: Mapping[str, Any]
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [f"{'coefficient':<12} {'value':>8}  {'ECE':>8}  {'accuracy':>8}"]
        for t in self.trials:
            ece, accuracy = (show(value, percent=True) for value in (t.ece, t.accuracy))
            chosen = "  chosen" if t.chosen else ""
            lines.append(f"{t.coefficient:<12} {t.value!s:>8}  {ece:>8}  {accuracy:>8}{chosen}")
        return "\n".join([*lines, f"\nTuned: {self.objective}"])


def tune(
    study: Study, out: str | Path, *, executor: Executor | None = None, within: float = 0.01
) -> Tuned:
    """Tune the coefficients of the study's ``[tune]`` table, one at a time.

    The table has an ``objective`` with ``{coefficients}`` and a list of values for each, in the
    order in which they are tuned; the first value of each list is the starting value. Values of a
    coefficient whose validation accuracy is more than ``within`` below the best are excluded; among
    the rest, the lowest validation ECE wins. Data, network, recipe and seeds are those of the
    study's first data set and network. Finished runs are not trained again.

    Parameters
    ----------
    study, out
        The study and its results folder; tuning uses the subfolder ``tuning``.
    executor
        Executor of the runs. Failed runs are retried.
    within
        Largest acceptable loss of accuracy, as a fraction.
    """
    check_within("within", within)
    text, lists = _table(study.tune)
    folder = Path(out) / "tuning"  # apart from the study's own results
    best = {name: values[0] for name, values in lists.items()}
    seeds = _seeds(study)
    trials: list[Trial] = []
    for name, values in lists.items():
        objectives = [text.format(**{**best, name: value}) for value in values]
        runs = [replace(run, objective=o, label="") for o in objectives for run in seeds]
        now = run_study(
            replace(study, runs=tuple(runs), evaluation=_nothing()),
            folder,
            executor=executor,
            retry=True,
        )
        if now.count("done") < len(now.states):
            raise StudyError(f"{now.count('failed')} runs failed; see {folder / 'failed'}.")
        found = [
            _judged(name, v, o, runs, Store(folder))
            for v, o in zip(values, objectives, strict=True)
        ]
        most = max(trial.accuracy for trial in found)
        fit = [trial for trial in found if trial.accuracy >= most - within]
        winner = min(fit, key=lambda trial: trial.ece)
        best[name] = winner.value
        trials += [replace(trial, chosen=trial is winner) for trial in found]
    return Tuned(filled("tune", text, best), best, tuple(trials))


def _table(table: Mapping[str, Any] | None) -> tuple[str, dict[str, list[Any]]]:
    if not isinstance(table, Mapping) or not isinstance(table.get("objective"), str):
        rule = "must have a table [tune] with an objective"
        advice = 'Write [tune], objective = "cross_entropy + {beta}*mmce", beta = [0.5, 2].'
        raise refuse("study", rule, f"got {table!r}", advice)
    text = table["objective"]
    lists = {name: values for name, values in table.items() if name != "objective"}
    fields = placeholders("tune", text)
    for name in {*fields, *lists}:
        if name not in fields or not isinstance(lists.get(name), list) or not lists[name]:
            rule = f"must have a list of values for each {{coefficient}}, here {name!r}"
            raise refuse("tune", rule, f"got {lists.get(name)!r}", "Try beta = [0.5, 2].")
    start = {name: values[0] for name, values in lists.items()}
    for name, values in lists.items():
        for value in values:
            check_objective(filled("tune", text, {**start, name: value}))
    return text, lists


def _seeds(study: Study) -> list[Run]:
    """The runs of the first data set, network and objective: one per seed."""
    first = study.runs[0]
    same = (first.data, first.model, first.objective)
    return [run for run in study.runs if (run.data, run.model, run.objective) == same]


def _nothing() -> Evaluation:
    """Nothing is evaluated on test samples while tuning."""
    return Evaluation({}, {}, ())


def _judged(name: str, value: Any, objective: str, runs: Sequence[Run], store: Store) -> Trial:
    found = [
        Predictions.load(store.run_folder(run.key) / file_name(CALIBRATION))
        for run in runs
        if run.objective == objective
    ]
    ece, accuracy = (
        float(np.mean([metric(p) for p in found])) for metric in (metrics.ece, metrics.accuracy)
    )
    return Trial(name, value, objective, ece, accuracy)
