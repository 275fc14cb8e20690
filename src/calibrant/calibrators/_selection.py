"""Selection of the best calibrator on samples that the candidates did not see."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant._core.checks import (
    ConvergenceError,
    check_choice,
    check_folds,
    check_seed,
    is_number,
    near_name,
    refuse,
)
from calibrant._core.formatting import aligned, show_error
from calibrant.calibrators._arguments import check_predictions
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._blend import Blend
from calibrant.calibrators._candidates import (
    BLENDED_ONLY,
    blend_members,
    default_candidates,
    left_out,
    note_of_untried,
)
from calibrant.calibrators._folds import DEFAULT_FOLDS, units_of, usual_folds
from calibrant.calibrators._temperature import TemperatureScaling
from calibrant.calibrators._trials import (
    UNCALIBRATED,
    CandidateTrial,
    Criterion,
    TrialData,
    pools_others,
)
from calibrant.predictions import Confidences, Predictions

#: Method that selects a calibrator.
AUTO = "auto"
# Evidence needed to replace the uncalibrated model, in nats: a factor of 20.
EVIDENCE = math.log(20)
MEMBER_ONLY = "not chosen alone: a member of the blend"


@dataclass(frozen=True)
class CandidateResult:
    """Out-of-fold result of one candidate, and its verdict.

    ``loss`` is the mean loss, ``behind`` its excess over the lowest, and ``error`` the standard
    error of that paired difference. ``parameters`` of a blend are its weights.
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
    """The chosen calibrator, fitted on all samples, and why the others were rejected.

    ``untried`` are the default candidates left out because fits to this many scores take long.
    """

    chosen: str
    calibrator: Calibrator
    criterion: Criterion
    candidates: tuple[CandidateResult, ...]
    untried: tuple[str, ...] = ()

    def __str__(self) -> str:
        label = {"nll": "NLL", "brier": "Brier"}[self.criterion]
        head = ["method", f"{label} out of fold", "behind the best", "parameters", "verdict"]
        rows = [
            [
                c.name,
                show_error(c.loss),
                show_error(c.behind, c.error),
                f"{c.parameters:,}",
                c.verdict,
            ]
            for c in self.candidates
        ]
        table = aligned([head, *rows])
        return f"{table}\n\n{note_of_untried(self.untried)}" if self.untried else table


def select_calibrator(
    p: Predictions | Confidences,
    candidates: Sequence[str | Calibrator] | Mapping[str, Calibrator] | None = None,
    *,
    criterion: Criterion = "nll",
    folds: int = DEFAULT_FOLDS,
    seed: int = 0,
    standard_errors: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Choose a calibrator by its loss on samples it was not fitted to.

    Each candidate is cross-fitted; penalties that it selects itself are selected once, on all
    samples. Among those whose loss is within ``standard_errors`` of the best (the standard error of
    the paired difference), the one with the fewest parameters is chosen, or a simpler one whose
    loss is no higher than its. A blend pools the other candidates with weights from their
    out-of-fold predictions, and is judged on each fold with weights from the other folds. Its
    parameters are its weights alone: averaging members makes them less variable, not more.

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
        temperature, ensemble temperature, order-preserving, vector, structured vector and beta
        scaling, up to 200 classes structured matrix scaling, and the blend of the default members
        of ``Blend`` among them and a spline, which is not chosen alone; of more than 300,000 scores
        no beta and matrix scaling, of more than 5 million only the first two (``Selection.untried``
        names the others); of confidences alone temperature, Platt and beta scaling, isotonic
        regression and their blend. The uncalibrated model (``"none"``) is always a candidate.
        ``"blend"`` or ``Blend()`` without members pools other candidates; a blend with members is
        fitted and judged like any calibrator.
    criterion
        ``"nll"`` or ``"brier"``.
    folds, seed
        Number of folds and seed of the cross-fitting.
    standard_errors
        0 takes the best regardless of its complexity.
    progress
        Called with the number of candidates done and the total.
    """
    if not isinstance(p, Confidences):
        check_predictions(p)
    check_choice("criterion", criterion, ("nll", "brier"))
    check_folds(folds, *units_of(p))
    check_seed(seed)
    if not is_number(standard_errors) or not standard_errors >= 0:
        rule, got = "must be at least 0", f"got {standard_errors!r}"
        raise refuse("standard_errors", rule, got, "Try standard_errors=1.")
    trials: list[CandidateTrial] = []
    entries = _entries(candidates, p)
    keep, pooled = any(map(pools_others, entries.values())), None
    if candidates is None:
        pooled = blend_members(p)
    data = TrialData(p, criterion, folds, seed, keep, pooled)
    for number, (name, calibrator) in enumerate(entries.items()):
        others = trials if pools_others(calibrator) else None
        trials.append(data.attempt(name, calibrator, others))
        if progress:
            progress(number + 1, len(entries))
    members_only = BLENDED_ONLY if candidates is None else ()
    selection = _choose(trials, criterion, standard_errors, members_only)
    return replace(selection, untried=left_out(p) if candidates is None else ())


def automatic(
    p: Predictions | Confidences,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """The selection behind ``auto`` everywhere: in Python, the commands, the report, scikit-learn.

    It is ``select_calibrator`` with its defaults, in fewer folds where there are few samples.
    """
    return select_calibrator(p, folds=usual_folds(p), seed=seed, progress=progress)


def _entries(candidates: Any, p: Predictions | Confidences) -> dict[str, Calibrator]:
    """Calibrators by name, "none" first, and last what pools the others."""
    from calibrant.calibrators import CALIBRATORS

    if candidates is None:
        candidates = default_candidates(p)
    entries: dict[str, Calibrator] = {UNCALIBRATED: TemperatureScaling(temperature=1.0)}
    if isinstance(candidates, Mapping):
        entries |= {str(name): _checked(c) for name, c in candidates.items()}
        return dict(sorted(entries.items(), key=lambda entry: pools_others(entry[1])))
    for candidate in candidates:
        if isinstance(candidate, str):
            if candidate not in CALIBRATORS:
                rule, advice = "must be names of calibrators", near_name(candidate, CALIBRATORS)
                raise refuse("candidates", rule, f"got {candidate!r}", advice)
            entries[candidate] = CALIBRATORS[candidate]()
        else:
            entries[repr(_checked(candidate))] = candidate
    return dict(sorted(entries.items(), key=lambda entry: pools_others(entry[1])))


def _checked(candidate: Any) -> Calibrator:
    if not isinstance(candidate, Calibrator):
        rule, advice = "must be calibrators", "Try ['temperature', Isotonic()]."
        raise refuse("candidates", rule, f"got {candidate!r}", advice)
    return candidate


def _choose(
    trials: list[CandidateTrial],
    criterion: Criterion,
    standard_errors: float,
    members_only: tuple[str, ...],
) -> Selection:
    sound = [t for t in trials if t.losses is not None]
    if not sound:
        faults = "; ".join(f"{t.name} {t.fault}" for t in trials)
        raise ConvergenceError(f"No candidate has a finite loss: {faults}. Fit on more samples.")
    least = min(sound, key=_mean)
    behind = {t.name: _behind(t.losses, least.losses) for t in sound}
    alone = [t for t in sound if t.name not in members_only]
    clear = _clear_of_doubt(alone, criterion)
    best = min(clear, key=_mean)
    level = [t for t in clear if _is_level(t, best, standard_errors)]
    simplest = min(level, key=_simplicity)
    # Small standard errors exclude methods that lie closer to the best than a noisy one that stays.
    level += [t for t in clear if t not in level and _mean(t) <= _mean(simplest)]
    chosen = min(level, key=_simplicity)
    candidates = [
        CandidateResult(
            t.name,
            t.calibrator,
            _mean(t),
            *behind.get(t.name, (math.nan, math.nan)),
            _size(t),
            MEMBER_ONLY
            if t in sound and t not in alone
            else _verdict(t, chosen, best, clear, level),
        )
        for t in trials
    ]
    candidates.sort(key=lambda c: (math.isnan(c.loss), c.loss))
    return Selection(chosen.name, chosen.calibrator, criterion, tuple(candidates))


def _simplicity(trial: CandidateTrial) -> tuple[int, float]:
    """Fewest parameters first, and of equally many the lowest loss."""
    return _size(trial), _mean(trial)


def _clear_of_doubt(sound: list[CandidateTrial], criterion: Criterion) -> list[CandidateTrial]:
    """The uncalibrated model first, then the candidates that are clearly better."""
    before = next((t for t in sound if t.name == UNCALIBRATED), None)
    if before is None:  # its loss is infinite
        return sound
    return [t for t in sound if t is before or _evidence(t, before, criterion) >= EVIDENCE]


def _evidence(trial: CandidateTrial, before: CandidateTrial, criterion: Criterion) -> float:
    """Evidence for a candidate against the uncalibrated model, in nats.

    The logarithm of a product whose factors have a mean of at most 1 if the model is right (an
    e-value): it exceeds log(1 / a) with a probability of at most a. Rare errors that happen to be
    absent prove nothing by it, as a standard error of the losses seen would have it. A cluster is
    one factor, with the mean gain of its samples: the exponential of a mean is at most the mean.
    Where the samples of a cluster hardly go together, as the pixels of an image, it is as many
    factors as its samples are worth.
    """
    assert trial.losses is not None
    assert before.losses is not None
    gain = (before.losses - trial.losses) / before.shares
    factors = gain if criterion == "nll" else np.log1p(gain / 4)
    return float(factors.sum()) * _samples_in_cluster(trial, before)


def _samples_in_cluster(trial: CandidateTrial, before: CandidateTrial) -> float:
    """How many independent samples a cluster is worth for the gain of a candidate, at least 1.

    The mean size of a cluster divided by the design effect: the variance of the gain's mean by
    clusters over that of independent samples, and twice its standard error more.
    """
    if before.unit is None or before.each is None or trial.each is None:
        return 1.0
    gain = before.each - trial.each
    gain = gain - gain.mean()
    sums = np.bincount(before.unit, gain)
    clusters, alone = len(sums), float(gain @ gain)
    if clusters == 1 or alone == 0:
        return 1.0
    effect = clusters / (clusters - 1) * float(sums @ sums) / alone
    cautious = max(effect, 1.0) * (1 + 2 * math.sqrt(2 / (clusters - 1)))
    return max(len(gain) / clusters / cautious, 1.0)


def _is_level(trial: CandidateTrial, best: CandidateTrial, standard_errors: float) -> bool:
    """Whether a candidate is indistinguishable from the best."""
    behind, error = _behind(trial.losses, best.losses)
    return trial is best or behind <= standard_errors * error


def _mean(trial: CandidateTrial) -> float:
    return math.nan if trial.losses is None else float(trial.losses.mean())


def _behind(losses: Any, best: Any) -> tuple[float, float]:
    """Mean and standard error of the loss beyond that of the best, sample by sample."""
    difference = losses - best
    return float(difference.mean()), float(difference.std() / math.sqrt(len(difference)))


def _size(trial: CandidateTrial) -> int:
    if trial.name == UNCALIBRATED or not trial.calibrator.is_fitted:
        return 0
    c = trial.calibrator
    return len(c.used()) if isinstance(c, Blend) else c.num_parameters()


def _verdict(
    trial: CandidateTrial,
    chosen: CandidateTrial,
    best: CandidateTrial,
    clear: list[CandidateTrial],
    level: list[CandidateTrial],
) -> str:
    if trial.losses is None:
        return trial.fault
    if trial is chosen:
        return f"chosen: {_reason(chosen, best, clear)}{trial.fault}"
    tied = _is_level(trial, best, 1.0)  # "worse" is said beyond the standard error only
    if trial not in clear and (tied or _mean(trial) < _mean(clear[0])):
        return f"rejected: not clearly better than the uncalibrated model{trial.fault}"
    if trial is best:
        return f"rejected: best, but not clearly, and more complex{trial.fault}"
    if trial in level:
        return f"rejected: as good, but more complex{trial.fault}"
    if tied:
        return f"rejected: behind the best, but not clearly{trial.fault}"
    return f"rejected: worse{trial.fault}"


def _reason(chosen: CandidateTrial, best: CandidateTrial, clear: list[CandidateTrial]) -> str:
    if clear == [chosen] and chosen.name == UNCALIBRATED:
        return "these samples do not show that calibration helps"
    return "the best" if chosen is best else "as good as the best, and simpler"
