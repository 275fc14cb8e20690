"""Which calibrator is best here: candidates judged on samples they did not see."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibrant._arrays import Float64
from calibrant._checks import (
    CalibrationWarning,
    ConvergenceError,
    InputError,
    check_choice,
    check_folds,
    check_seed,
    is_number,
    near_name,
    refuse,
)
from calibrant.calibrators._base import Calibrator, check_predictions
from calibrant.calibrators._composite import out_of_fold
from calibrant.calibrators._temperature import TemperatureScaling
from calibrant.measure import aligned
from calibrant.predictions import Predictions

Criterion = Literal["nll", "brier"]
NONE = "none"
# Methods of K^2 numbers are tried by themselves only up to this many classes.
MATRIX_CLASSES = 200
AUTOMATIC = ("temperature", "ensemble_temperature", "vector", "structured_vector", "beta")
AUTOMATIC_DENSE = ("structured_matrix",)


@dataclass(frozen=True)
class Candidate:
    """How one candidate did out of fold, and what became of it.

    ``loss`` is the mean loss, ``behind`` by how much it exceeds that of the best, and ``error`` the
    standard error of that difference, sample by sample.
    """

    name: str
    calibrator: Calibrator
    loss: float
    behind: float
    error: float
    parameters: int
    verdict: str


@dataclass(frozen=True)
class Selection:
    """The chosen calibrator, fitted on all samples, and why the others were rejected."""

    chosen: str
    calibrator: Calibrator
    criterion: Criterion
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        label = {"nll": "NLL", "brier": "Brier"}[self.criterion]
        head = ["method", f"{label} out of fold", "behind the best", "numbers", "verdict"]
        rows = [
            [c.name, _number(c.loss), _difference(c), f"{c.parameters:,}", c.verdict]
            for c in self.candidates
        ]
        return aligned([head, *rows])


def select_calibrator(
    p: Predictions,
    candidates: Sequence[str | Calibrator] | Mapping[str, Calibrator] | None = None,
    *,
    criterion: Criterion = "nll",
    folds: int = 5,
    seed: int = 0,
    standard_errors: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Choose a calibrator by its loss on samples it was not fitted to.

    Each candidate is cross-fitted; penalties it chooses by itself are chosen once, on all samples.
    Of those whose loss is within ``standard_errors`` of the best
    (the standard error of the difference, sample by sample), the one with the fewest learned
    numbers is chosen: what cannot be told apart need not be paid for.

    Parameters
    ----------
    p
        Predictions the model was not trained on.
    candidates
        Names out of ``CALIBRATORS``, calibrators, or calibrators by name. The default tries
        temperature, ensemble temperature, vector, structured vector and beta scaling, and up to
        200 classes structured matrix scaling. Leaving the model as it is (``"none"``) always
        competes.
    criterion
        ``"nll"`` or ``"brier"``.
    folds, seed
        Of the cross-fitting.
    standard_errors
        0 takes the best however complex it is.
    progress
        Called with candidates done and candidates in all.
    """
    check_predictions(p)
    check_choice("criterion", criterion, ("nll", "brier"))
    check_folds(folds, p.num_samples)
    check_seed(seed)
    if not is_number(standard_errors) or not standard_errors >= 0:
        rule, got = "must be at least 0", f"got {standard_errors!r}"
        raise refuse("standard_errors", rule, got, "Try standard_errors=1.")
    trials = []
    entries = _entries(candidates, p.num_classes)
    for number, (name, calibrator) in enumerate(entries.items()):
        trials.append(_try(name, calibrator, p, criterion, folds, seed))
        if progress:
            progress(number + 1, len(entries))
    return _choose(trials, criterion, standard_errors)


def automatic(
    p: Predictions, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Selection:
    """What ``--method auto`` does: the best of the default candidates, however complex.

    Ten folds instead of five: methods of many numbers are held back when they see fewer samples.
    """
    folds = min(10, p.num_samples)
    return select_calibrator(p, folds=folds, seed=seed, standard_errors=0, progress=progress)


def _entries(candidates: Any, num_classes: int) -> dict[str, Calibrator]:
    """Calibrators by name, "none" first."""
    from calibrant.calibrators import CALIBRATORS  # noqa: PLC0415 - it lists what is here

    if candidates is None:
        dense = AUTOMATIC_DENSE if num_classes <= MATRIX_CLASSES else ()
        candidates = [*AUTOMATIC, *dense]
    entries: dict[str, Calibrator] = {NONE: TemperatureScaling(temperature=1.0)}
    if isinstance(candidates, Mapping):
        return entries | {str(name): _checked(c) for name, c in candidates.items()}
    for candidate in candidates:
        if isinstance(candidate, str):
            if candidate not in CALIBRATORS:
                rule, advice = "must be names of calibrators", near_name(candidate, CALIBRATORS)
                raise refuse("candidates", rule, f"got {candidate!r}", advice)
            entries[candidate] = CALIBRATORS[candidate]()
        else:
            entries[repr(_checked(candidate))] = candidate
    return entries


def _checked(candidate: Any) -> Calibrator:
    if not isinstance(candidate, Calibrator):
        rule, advice = "must be calibrators", "Try ['temperature', Isotonic()]."
        raise refuse("candidates", rule, f"got {candidate!r}", advice)
    return candidate


@dataclass(frozen=True)
class _Trial:
    name: str
    calibrator: Calibrator
    losses: Float64 | None
    fault: str = ""


def _try(
    name: str, calibrator: Calibrator, p: Predictions, criterion: Criterion, folds: int, seed: int
) -> _Trial:
    """Fit a candidate out of fold and on all; a fit that fails is a verdict, not an end."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            fitted = calibrator.clone()._learn_part(p, None)
            held_out = out_of_fold(fitted._settled(), p, None, folds, seed)
    except (ConvergenceError, InputError) as error:
        return _Trial(name, calibrator, None, f"rejected: the fit failed ({error})")
    losses = -held_out.label_log_prob if criterion == "nll" else held_out.brier_terms
    fitted._source = (p, None, False)
    note = "; no optimum inside its bounds" if caught else ""
    if not np.isfinite(losses).all():
        count = int((~np.isfinite(losses)).sum())
        return _Trial(name, fitted, None, f"rejected: gives probability 0 to {count:,} labels")
    return _Trial(name, fitted, np.asarray(losses), note)


def _choose(trials: list[_Trial], criterion: Criterion, standard_errors: float) -> Selection:
    sound = [t for t in trials if t.losses is not None]
    best = min(sound, key=_mean)
    behind = {t.name: _behind(t.losses, best.losses) for t in sound}
    level = [
        t for t in sound
        if t is best or behind[t.name][0] <= standard_errors * behind[t.name][1]
    ]  # fmt: skip
    chosen = min(level, key=lambda t: (_size(t), behind[t.name][0]))
    candidates = [
        Candidate(
            t.name,
            t.calibrator,
            _mean(t),
            *behind.get(t.name, (math.nan, math.nan)),
            _size(t),
            _verdict(t, chosen, best, level),
        )
        for t in trials
    ]
    candidates.sort(key=lambda c: (math.isnan(c.loss), c.loss))
    return Selection(chosen.name, chosen.calibrator, criterion, tuple(candidates))


def _mean(trial: _Trial) -> float:
    return math.nan if trial.losses is None else float(trial.losses.mean())


def _behind(losses: Any, best: Any) -> tuple[float, float]:
    """Mean and standard error of the loss beyond that of the best, sample by sample."""
    difference = losses - best
    return float(difference.mean()), float(difference.std() / math.sqrt(len(difference)))


def _size(trial: _Trial) -> int:
    if trial.name == NONE or not trial.calibrator.is_fitted:
        return 0
    return trial.calibrator.num_parameters()


def _verdict(trial: _Trial, chosen: _Trial, best: _Trial, level: list[_Trial]) -> str:
    if trial.losses is None:
        return trial.fault
    if trial is chosen:
        why = "the best" if trial is best else "as good as the best, and simpler"
        return f"chosen: {why}{trial.fault}"
    if trial is best:
        return f"rejected: best, but not clearly, and less simple{trial.fault}"
    if trial in level:
        return f"rejected: as good, but less simple{trial.fault}"
    return f"rejected: worse{trial.fault}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _difference(c: Candidate) -> str:
    return "–" if math.isnan(c.behind) else f"{c.behind:.4f} ± {c.error:.4f}"
