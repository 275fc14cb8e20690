"""Choose loss and calibrator together, on validation samples only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant._core.checks import CalibrationWarning, check_choice, is_number, refuse
from calibrant._core.formatting import show, show_p_equation
from calibrant.calibrators import DEFAULT_FOLDS, Calibrator, out_of_fold
from calibrant.metrics import (
    ACCURACY,
    BRIER_SCORE,
    CALIBRATION_ERROR,
    LOG_LOSS,
    RANKING,
    default_metrics,
)
from calibrant.predictions import Predictions
from calibrant.results import RunComparison, Store, compare_runs, pareto_front
from calibrant.study._execute import CALIBRATION, TEST, file_name
from calibrant.study._records import Evaluation, Run
from calibrant.study._spec import Study

JUDGED = default_metrics("train")
SCORES = (LOG_LOSS, BRIER_SCORE)


@dataclass(frozen=True)
class Candidate:
    """A network trained with an objective and calibrated by a calibrator: means over seeds.

    ``scores`` are the cross-fitted scores on the validation samples, one per seed; ``validation``
    and ``test`` are means of the metrics there.
    """

    data: str
    model: str
    objective: str
    calibrator: str
    scores: NDArray[np.float64]
    validation: dict[str, float]
    test: dict[str, float]

    @property
    def score(self) -> float:
        """Mean over the seeds."""
        return float(self.scores.mean())

    @property
    def name(self) -> str:
        """Objective and calibrator, in words."""
        return f"{self.objective} with {self.calibrator}"


@dataclass(frozen=True)
class Choice:
    """The chosen combination, the runner-up, how certain the choice is, and the Pareto front."""

    best: Candidate
    runner_up: Candidate | None
    comparison: RunComparison | None
    frontier: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    score: str
    within: float
    seeds: str

    def __str__(self) -> str:
        best, test = self.best, self.best.test
        score = f"{self.score} {show(best.score, percent=False)}"
        lines = [
            f"{best.data}, {best.model}: choose {best.name}.",
            f"Cross-fitted validation {score}, the lowest of the "
            f"combinations within {100 * self.within:g} % of the best accuracy "
            f"({len(self.candidates)} combinations in total; {self.seeds} complete).",
            _sure(self),
            "On the test samples, which were not used for the choice: "
            + ", ".join(f"{name} {_shown(name, test[name])}" for name in JUDGED)
            + ".",
            "Pareto front of validation accuracy, ECE and AUROC:",
        ]
        lines += [
            f"  {c.name}: "
            + ", ".join(
                f"{n} {_shown(n, c.validation[n])}" for n in (ACCURACY, CALIBRATION_ERROR, RANKING)
            )
            for c in self.frontier
        ]
        return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    return show(value, percent=metrics.METRICS[name].percent)


def _sure(choice: Choice) -> str:
    if choice.runner_up is None or choice.comparison is None:
        return "There is no runner-up."
    gap, p = choice.comparison.difference, choice.comparison.p_value
    text = f"Against the runner-up, {choice.runner_up.name}: {show(-gap, percent=False)} lower"
    if math.isnan(p):
        return f"{text}; with one seed the uncertainty is unknown. Add seeds."
    judged = "significant" if p < 0.05 else "may be due to chance"  # noqa: PLR2004
    return (
        f"{text}, {judged} (paired over {choice.comparison.count_a} seeds, {show_p_equation(p)})."
    )


def select(
    study: Study, out: str | Path, *, score: str = LOG_LOSS, within: float = 0.01
) -> list[Choice]:
    """Choose objective and calibrator for each data set and network of a finished study.

    Every calibrator is cross-fitted on the validation (calibration) samples of every run.
    Combinations whose mean accuracy there is more than ``within`` below the best are excluded;
    among the rest, the lowest mean score wins. The test samples are not used.

    Parameters
    ----------
    study, out
        The study and its results.
    score
        "nll" or "brier".
    within
        Largest acceptable loss of accuracy, as a fraction.
    """
    check_choice("score", score, SCORES)
    check_within("within", within)
    check_validation(study.runs)
    store = Store(out)
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in study.runs:
        groups.setdefault((run.data, run.model), []).append(run)
    return [_choose(runs, study.evaluation, store, score, within) for runs in groups.values()]


def check_validation(runs: Sequence[Run]) -> None:
    """Reject a study without validation samples."""
    if not all(run.calibration for run in runs):
        rule, advice = "must be above 0, to choose on these samples", "Try calibration = 0.1."
        raise refuse("calibration", rule, "got 0", advice)


def check_within(name: str, value: float) -> float:
    """Return the acceptable loss of accuracy, if it is a fraction below 1."""
    if not is_number(value) or not 0 <= value < 1:
        rule, advice = "must be at least 0 and below 1", "Try 0.01 for one per cent."
        raise refuse(name, rule, f"got {value!r}", advice)
    return float(value)


def _choose(
    runs: Sequence[Run], evaluation: Evaluation, store: Store, score: str, within: float
) -> Choice:
    complete, seeds = _complete(runs, store), {run.seed for run in runs}
    runs = [run for run in runs if run.seed in complete]
    candidates = [
        candidate
        for objective in dict.fromkeys(run.name for run in runs)
        for candidate in _candidates(
            [run for run in runs if run.name == objective], evaluation, store, score
        )
    ]
    if not candidates:
        rule = "must have a seed whose runs are all finished"
        raise refuse("study", rule, "got none", "Run calibrant study run first.")
    accuracy = np.array([c.validation[ACCURACY] for c in candidates])
    fit = [c for c, a in zip(candidates, accuracy, strict=True) if a >= accuracy.max() - within]
    ranked = sorted(fit, key=lambda c: (c.score, c.name))
    points = np.array(
        [[c.validation[n] for n in (ACCURACY, CALIBRATION_ERROR, RANKING)] for c in candidates]
    )
    front = pareto_front(points, maximise=[True, False, True])
    frontier = [c for c, on in zip(candidates, front, strict=True) if on]
    second = ranked[1] if len(ranked) > 1 else None
    comparison = None
    if second is not None:
        comparison = compare_runs(ranked[0].scores, second.scores, paired=True)
    frontier.sort(key=lambda c: c.validation[CALIBRATION_ERROR])
    return Choice(
        ranked[0],
        second,
        comparison,
        tuple(frontier),
        tuple(candidates),
        score,
        within,
        f"{len(complete)} of {len(seeds)} seeds",
    )


def _complete(runs: Sequence[Run], store: Store) -> set[int]:
    """Seeds for which every run has finished; only these are compared."""
    missing = {run.seed for run in runs if store.facts(run.key) is None}
    return {run.seed for run in runs} - missing


def _candidates(
    runs: Sequence[Run], evaluation: Evaluation, store: Store, score: str
) -> list[Candidate]:
    """One for each calibrator: cross-fitted on validation, fitted on it for the test samples."""
    kept: list[tuple[Run, dict[str, Predictions]]] = []
    for run in runs:
        folder = store.run_folder(run.key)
        parts = {part: Predictions.load(folder / file_name(part)) for part in (CALIBRATION, TEST)}
        kept.append((run, parts))
    # Calibrators that use features give no probabilities, so they have no score.
    usable = {k: v for k, v in evaluation.calibrators.items() if not evaluation.from_features(k)}
    only = Evaluation(usable, {name: {"name": name} for name in JUDGED}, ())
    found = []
    for label in usable:
        after = [_cross_fitted(only, label, parts[CALIBRATION]) for _, parts in kept]
        tested = [_applied(only, label, parts) for _, parts in kept]
        validation, test = (
            {name: float(np.mean([getattr(metrics, name)(p) for p in sets])) for name in JUDGED}
            for sets in (after, tested)
        )
        scores = np.array([getattr(metrics, score)(p) for p in after])
        run = runs[0]
        found.append(Candidate(run.data, run.model, run.name, label, scores, validation, test))
    return found


def _applied(evaluation: Evaluation, label: str, parts: Mapping[str, Predictions]) -> Predictions:
    """Test predictions after a calibrator fitted on validation, as they would be deployed."""
    calibrator = evaluation.make(label)
    if not isinstance(calibrator, Calibrator):
        return parts[TEST]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(parts[CALIBRATION]).transform(parts[TEST])


def _cross_fitted(evaluation: Evaluation, label: str, p: Predictions) -> Predictions:
    calibrator = evaluation.make(label)
    if not isinstance(calibrator, Calibrator):
        return p
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return out_of_fold(calibrator, p, None, DEFAULT_FOLDS, seed=0)
