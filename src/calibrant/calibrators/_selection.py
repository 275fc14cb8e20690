"""Selection of the best calibrator on samples that the candidates did not see."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import (
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
from calibrant._core.formatting import aligned
from calibrant.calibrators._base import Calibrator, check_predictions
from calibrant.calibrators._composite import out_of_fold
from calibrant.calibrators._temperature import TemperatureScaling
from calibrant.predictions import Predictions

Criterion = Literal["nll", "brier"]
NONE = "none"
# Methods with K^2 parameters are default candidates only up to this many classes.
MATRIX_CLASSES = 200
# Evidence against the model as it is, in nats, without which it is kept: a factor of 20.
EVIDENCE = math.log(20)
AUTOMATIC = ("temperature", "ensemble_temperature", "vector", "structured_vector", "beta")
AUTOMATIC_DENSE = ("structured_matrix",)


@dataclass(frozen=True)
class Candidate:
    """Out-of-fold result of one candidate, and its verdict.

    ``loss`` is the mean loss, ``behind`` its excess over the lowest, and ``error`` the standard
    error of that paired difference.
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

    Each candidate is cross-fitted; penalties that it selects itself are selected once, on all
    samples. Among those whose loss is within ``standard_errors`` of the best (the standard error of
    the paired difference), the one with the fewest parameters is chosen.

    The model is left uncalibrated unless there is clear evidence against it. A candidate without an
    optimum inside its bounds, such as temperature scaling when every prediction is correct, is
    rejected. The others need evidence: the product over the samples of the out-of-fold probability
    of the label, divided by the uncalibrated one, must be at least 20. If the model's probabilities
    are right, a calibrator fitted to other samples reaches that in at most 5 % of cases. With the
    Brier score the factors are 1 + (fall of the loss) / 4, for which the same holds.

    Parameters
    ----------
    p
        Predictions for samples that the model was not trained on.
    candidates
        Names from ``CALIBRATORS``, calibrators, or calibrators by name. The default tries
        temperature, ensemble temperature, vector, structured vector and beta scaling, and up to 200
        classes structured matrix scaling. The uncalibrated model (``"none"``) is always a
        candidate.
    criterion
        ``"nll"`` or ``"brier"``.
    folds, seed
        Number of folds and seed of the cross-fitting.
    standard_errors
        0 takes the best regardless of its complexity.
    progress
        Called with the number of candidates done and the total.
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
    """The selection of ``--method auto``: the best default candidate, regardless of its complexity.

    Ten folds instead of five: methods with many parameters suffer when they see fewer samples.
    """
    folds = min(10, p.num_samples)
    return select_calibrator(p, folds=folds, seed=seed, standard_errors=0, progress=progress)


def _entries(candidates: Any, num_classes: int) -> dict[str, Calibrator]:
    """Calibrators by name, "none" first."""
    from calibrant.calibrators import CALIBRATORS

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
    """Fit a candidate out of fold and on all samples; a failed fit is a verdict, not an error."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            fitted = calibrator.clone().fit_part(p, None)
            unbounded = bool(caught)
            held_out = out_of_fold(fitted.settled(), p, None, folds, seed)
    except (ConvergenceError, InputError) as error:
        return _Trial(name, calibrator, None, f"rejected: the fit failed ({error})")
    losses = -held_out.label_log_prob if criterion == "nll" else held_out.brier_terms
    if unbounded:
        return _Trial(name, fitted, None, "rejected: no optimum inside its bounds")
    note = "; no optimum inside its bounds in some folds" if caught else ""
    if not np.isfinite(losses).all():
        count = int((~np.isfinite(losses)).sum())
        return _Trial(name, fitted, None, f"rejected: gives probability 0 to {count:,} labels")
    return _Trial(name, fitted, np.asarray(losses), note)


def _choose(trials: list[_Trial], criterion: Criterion, standard_errors: float) -> Selection:
    sound = [t for t in trials if t.losses is not None]
    if not sound:
        faults = "; ".join(f"{t.name} {t.fault}" for t in trials)
        raise ConvergenceError(f"No candidate has a finite loss: {faults}. Fit on more samples.")
    least = min(sound, key=_mean)
    behind = {t.name: _behind(t.losses, least.losses) for t in sound}
    clear = _clear_of_doubt(sound, criterion)
    best = min(clear, key=_mean)
    level = [t for t in clear if _is_level(t, best, standard_errors)]
    chosen = min(level, key=lambda t: (_size(t), behind[t.name][0]))
    candidates = [
        Candidate(
            t.name,
            t.calibrator,
            _mean(t),
            *behind.get(t.name, (math.nan, math.nan)),
            _size(t),
            _verdict(t, chosen, best, clear, level),
        )
        for t in trials
    ]
    candidates.sort(key=lambda c: (math.isnan(c.loss), c.loss))
    return Selection(chosen.name, chosen.calibrator, criterion, tuple(candidates))


def _clear_of_doubt(sound: list[_Trial], criterion: Criterion) -> list[_Trial]:
    """The model as it is, first, and what the samples clearly prefer to it."""
    before = next((t for t in sound if t.name == NONE), None)
    if before is None:  # its loss is infinite
        return sound
    return [t for t in sound if t is before or _evidence(t, before, criterion) >= EVIDENCE]


def _evidence(trial: _Trial, before: _Trial, criterion: Criterion) -> float:
    """Evidence for a candidate against the uncalibrated model, in nats.

    The logarithm of a product whose factors have a mean of at most 1 if the model is right (an
    e-value): it exceeds log(1 / a) with a probability of at most a. Rare errors that happen to be
    absent prove nothing by it, as a standard error of the losses seen would have it.
    """
    assert trial.losses is not None
    assert before.losses is not None
    gain = before.losses - trial.losses
    return float((gain if criterion == "nll" else np.log1p(gain / 4)).sum())


def _is_level(trial: _Trial, best: _Trial, standard_errors: float) -> bool:
    """Whether a candidate is indistinguishable from the best."""
    behind, error = _behind(trial.losses, best.losses)
    return trial is best or behind <= standard_errors * error


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


def _verdict(
    trial: _Trial, chosen: _Trial, best: _Trial, clear: list[_Trial], level: list[_Trial]
) -> str:
    if trial.losses is None:
        return trial.fault
    if trial is chosen:
        return f"chosen: {_reason(chosen, best, clear)}{trial.fault}"
    if trial not in clear and _mean(trial) < _mean(clear[0]):
        return f"rejected: not clearly better than the uncalibrated model{trial.fault}"
    if trial is best:
        return f"rejected: best, but not clearly, and more complex{trial.fault}"
    if trial in level:
        return f"rejected: as good, but more complex{trial.fault}"
    return f"rejected: worse{trial.fault}"


def _reason(chosen: _Trial, best: _Trial, clear: list[_Trial]) -> str:
    if clear == [chosen] and chosen.name == NONE:
        return "these samples do not show that calibration helps"
    return "the best" if chosen is best else "as good as the best, and simpler"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _difference(c: Candidate) -> str:
    return "–" if math.isnan(c.behind) else f"{c.behind:.4f} ± {c.error:.4f}"
