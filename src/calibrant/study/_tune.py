"""Tuning one coefficient at a time, on validation data only (karandikar2021, appendix E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import metrics
from calibrant._core.checks import check_at_least, refuse
from calibrant._core.formatting import show
from calibrant.predictions import Predictions
from calibrant.results import Store
from calibrant.study._execute import CALIBRATION, StudyError, file_name
from calibrant.study._executors import Executor
from calibrant.study._records import Evaluation, Run, sources_of
from calibrant.study._run import run_study
from calibrant.study._select import check_validation, check_within
from calibrant.study._spec import Study
from calibrant.study._validate import check_objective, filled, placeholders

#: The weight of the squared norm of the weights, an option of the recipe and not of the objective.
WEIGHT_DECAY = "weight_decay"


@dataclass(frozen=True)
class Trial:
    """One value of one coefficient: validation ECE and accuracy, means over seeds.

    The ECE is that of karandikar2021: L2 norm, 15 bins of equal mass.
    """

    coefficient: str
    value: Any
    objective: str
    ece: float
    accuracy: float
    chosen: bool = False


@dataclass(frozen=True)
class Tuned:
    """The tuned coefficients and all trials.

    ``objective`` is the tuned objective; a tuned ``weight_decay`` is in ``coefficients``.
    """

    objective: str
    coefficients: Mapping[str, Any]
    trials: tuple[Trial, ...]

    def __str__(self) -> str:
        lines = [f"{'coefficient':<12} {'value':>8}  {'ECE':>8}  {'accuracy':>8}"]
        for t in self.trials:
            ece, accuracy = (show(value, percent=True) for value in (t.ece, t.accuracy))
            chosen = "  chosen" if t.chosen else ""
            lines.append(f"{t.coefficient:<12} {t.value!s:>8}  {ece:>8}  {accuracy:>8}{chosen}")
        decay = self.coefficients.get(WEIGHT_DECAY)
        rest = "" if decay is None else f", weight_decay = {decay}"
        return "\n".join([*lines, f"\nTuned: {self.objective}{rest}"])


def tune(
    study: Study,
    out: str | Path,
    *,
    executor: Executor | None = None,
    within: float = 0.01,
    table: int = 0,
) -> Tuned:
    """Tune the coefficients of the study's ``[tune]`` table, one at a time.

    The table has an ``objective`` with ``{coefficients}`` and a list of values for each, in the
    order in which they are tuned; the first value of each list is the starting value.
    ``weight_decay`` is no coefficient of the objective but an option of the recipe, and may be
    tuned like one. Values whose validation accuracy is more than ``within`` below the best are
    excluded; among the rest, the lowest validation ECE (L2 norm, 15 bins of equal mass) wins. So
    does karandikar2021 (appendix E), in the order kappa, T, beta, lambda (the weight decay). Data,
    network, recipe and seeds are those of the study's first data set and network. Finished runs
    are not trained again.

    Parameters
    ----------
    study, out
        The study and its results folder; tuning uses the subfolder ``tuning``.
    executor
        Executor of the runs. Failed runs are retried.
    within
        Largest acceptable loss of accuracy, as a fraction.
    table
        Which table, from 0, where the study has several (``[[tune]]``).
    """
    check_within("within", within)
    check_validation(study.runs)
    text, lists = check_table(study.tunings[table])
    folder = Path(out) / "tuning"  # separate from the study's own results
    best = {name: values[0] for name, values in lists.items()}
    seeds = _seeds(study)
    trials: list[Trial] = []
    for name, values in lists.items():
        tried = [_with(text, {**best, name: value}, seeds) for value in values]
        runs = [run for same in tried for run in same]
        now = run_study(
            replace(study, runs=tuple(runs), evaluation=_nothing()),
            folder,
            executor=executor,
            retry=True,
        )
        if now.count("done") < len(now.states):
            raise StudyError(f"{now.count('failed')} runs failed; see {folder / 'failed'}.")
        found = [
            _judged(name, value, same, Store(folder))
            for value, same in zip(values, tried, strict=True)
        ]
        most = max(trial.accuracy for trial in found)
        fit = [trial for trial in found if trial.accuracy >= most - within]
        winner = min(fit, key=lambda trial: trial.ece)
        best[name] = winner.value
        trials += [replace(trial, chosen=trial is winner) for trial in found]
    return Tuned(filled("tune", text, best), best, tuple(trials))


def check_table(table: Any) -> tuple[str, dict[str, list[Any]]]:
    """The objective and the lists of a table, if every combination can be computed."""
    if not isinstance(table, Mapping) or not isinstance(table.get("objective"), str):
        rule = "must have a table [tune] with an objective"
        advice = 'Write [tune], objective = "cross_entropy + {beta}*mmce", beta = [0.5, 2].'
        raise refuse("study", rule, f"got {table!r}", advice)
    text = table["objective"]
    lists = {name: values for name, values in table.items() if name != "objective"}
    fields = [*placeholders("tune", text), *([WEIGHT_DECAY] if WEIGHT_DECAY in lists else [])]
    for name in {*fields, *lists}:
        if name not in fields or not isinstance(lists.get(name), list) or not lists[name]:
            rule = f"must have a list of values for each {{coefficient}}, here {name!r}"
            raise refuse("tune", rule, f"got {lists.get(name)!r}", "Try beta = [0.5, 2].")
    for value in lists.get(WEIGHT_DECAY, ()):
        check_at_least(WEIGHT_DECAY, value, 0, example=0.0005)
    start = {name: values[0] for name, values in lists.items()}
    for name, values in lists.items():
        for value in values:
            check_objective(filled("tune", text, {**start, name: value}))
    return text, lists


def _with(text: str, values: Mapping[str, Any], seeds: Sequence[Run]) -> list[Run]:
    """The runs of one choice of coefficients, one per seed."""
    decay = {name: values[name] for name in (WEIGHT_DECAY,) if name in values}
    objective = filled("tune", text, dict(values))
    code = sources_of(seeds[0].data, seeds[0].model, objective)
    return [
        replace(run, objective=objective, sources=code, label="", recipe={**run.recipe, **decay})
        for run in seeds
    ]


def _seeds(study: Study) -> list[Run]:
    """The first run with each of its seeds: other runs may share its objective, not its recipe."""
    first = study.runs[0]
    return [run for run in study.runs if replace(run, seed=first.seed) == first]


def _nothing() -> Evaluation:
    """Nothing is evaluated on test samples while tuning."""
    return Evaluation({}, {}, ())


def _judged(name: str, value: Any, runs: Sequence[Run], store: Store) -> Trial:
    found = [Predictions.load(store.run_folder(run.key) / file_name(CALIBRATION)) for run in runs]
    ece = np.mean([metrics.ece(p, norm=2, binning="mass") for p in found])
    accuracy = np.mean([metrics.accuracy(p) for p in found])
    return Trial(name, value, runs[0].objective, float(ece), float(accuracy))
