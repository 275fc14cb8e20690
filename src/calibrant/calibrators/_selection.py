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
from calibrant.calibrators._decision import (
    TOLERATED,
    as_good,
    clear_of_doubt,
    excess,
    is_level,
    mean_loss,
    parameters,
    simplicity,
    steady_choice,
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
MEMBER_ONLY = "not chosen alone: a member of the blend"


@dataclass(frozen=True)
class CandidateResult:
    """Out-of-fold result of one candidate, and its verdict.

    ``loss`` is the mean loss, ``behind`` its excess over the lowest, and ``error`` the standard
    error of that paired difference. ``parameters`` of a blend are its weights and those of its
    members.
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

    ``reason`` says why it was chosen. ``untried`` are the default candidates left out because fits
    to this many scores take long.
    """

    chosen: str
    calibrator: Calibrator
    criterion: Criterion
    candidates: tuple[CandidateResult, ...]
    reason: str
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
    samples. A blend pools the other candidates with weights from their out-of-fold predictions,
    and is judged on each fold with weights from the other folds. It is chosen if temperature or
    order-preserving scaling is in it, to which few samples draw it: which single method looks best
    is often chance. Temperature scaling takes its place where the blend gains less than 0.001 on
    it, two standard errors included. The model stays uncalibrated if temperature scaling does not
    lower the loss, or is shown to gain less than 0.001 (which takes 2,000 samples or more), or if
    the model makes fewer than 5 mistakes, unless there is the clear evidence described below.

    Without such a blend the choice is among the others. Of those whose loss is within
    ``standard_errors`` of the best (the standard error of the paired difference), the one with the
    fewest parameters is chosen, or a simpler one whose loss is no higher than its. A blend counts
    here as its weights alone: averaging members makes them less variable, not more.

    A candidate without an optimum inside its bounds, such as temperature scaling when every
    prediction is correct, is rejected, and not pooled. A single method replaces the uncalibrated
    model only on clear evidence: the product over the samples of the out-of-fold probability
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
        0 takes the lowest loss, and prefers neither a blend nor a simple method.
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
    selection = _choose(trials, criterion, standard_errors, members_only, _mistakes(p))
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
    mistakes: int,
) -> Selection:
    sound = [t for t in trials if t.losses is not None]
    if not sound:
        faults = "; ".join(f"{t.name} {t.fault}" for t in trials)
        raise ConvergenceError(f"No candidate has a finite loss: {faults}. Fit on more samples.")
    least = min(sound, key=mean_loss)
    behind = {t.name: excess(t.losses, least.losses) for t in sound}
    alone = [t for t in sound if t.name not in members_only]
    clear = clear_of_doubt(alone, criterion)
    best = min(clear, key=mean_loss)
    level = as_good(clear, best, standard_errors)
    steady = steady_choice(alone, criterion, mistakes) if standard_errors else None
    chosen = steady or min(level, key=simplicity)
    if steady:
        reason = _reason_of_steady(steady, alone)
        verdicts = {t.name: f"rejected: {_beside_steady(t, steady)}" for t in alone}
    else:
        reason = _reason(chosen, best, clear)
        verdicts = {t.name: f"rejected: {_beside(t, best, clear, level)}" for t in alone}
    verdicts |= {t.name: MEMBER_ONLY for t in sound if t not in alone}
    verdicts |= {t.name: "" for t in trials if t not in sound}
    verdicts[chosen.name] = f"chosen: {reason}"
    candidates = [
        CandidateResult(
            t.name,
            t.calibrator,
            mean_loss(t),
            *behind.get(t.name, (math.nan, math.nan)),
            parameters(t),
            verdicts[t.name] + ("" if verdicts[t.name] == MEMBER_ONLY else t.fault),
        )
        for t in trials
    ]
    candidates.sort(key=lambda c: (math.isnan(c.loss), c.loss))
    return Selection(chosen.name, chosen.calibrator, criterion, tuple(candidates), reason)


def _mistakes(p: Predictions | Confidences) -> int:
    """How many samples, or clusters of them, the model errs on."""
    codes = p.belonging.codes
    wrong = np.flatnonzero(~p.correct)
    return len(wrong) if codes is None else len(np.unique(codes[wrong]))


def _beside(
    trial: CandidateTrial,
    best: CandidateTrial,
    clear: list[CandidateTrial],
    level: list[CandidateTrial],
) -> str:
    tied = is_level(trial, best, 1.0)  # "worse" is said beyond the standard error only
    if trial not in clear and (tied or mean_loss(trial) < mean_loss(clear[0])):
        return "not clearly better than the uncalibrated model"
    if trial is best:
        return "best, but not clearly, and more complex"
    if trial in level:
        return "as good, but more complex"
    return "behind the best, but not clearly" if tied else "worse"


def _reason(chosen: CandidateTrial, best: CandidateTrial, clear: list[CandidateTrial]) -> str:
    if clear == [chosen] and chosen.name == UNCALIBRATED:
        return "these samples do not show that calibration helps"
    if chosen is best:
        return "the best"
    pooled = isinstance(chosen.calibrator, Blend)
    return "more stable than a single method" if pooled else "as good as the best, and simpler"


def _beside_steady(trial: CandidateTrial, chosen: CandidateTrial) -> str:
    """Why the steady choice is taken instead."""
    behind, error = excess(trial.losses, chosen.losses)
    if behind > error:
        return "worse"
    if trial.name == UNCALIBRATED:
        return "not shown to be as good"
    seen = "lower on these samples" if behind < -error else "as good"
    pooled = isinstance(chosen.calibrator, Blend)
    return f"{seen}, but {'a single method is less stable' if pooled else 'more complex'}"


def _reason_of_steady(chosen: CandidateTrial, others: list[CandidateTrial]) -> str:
    if chosen is min(others, key=mean_loss):
        return "the best"
    if isinstance(chosen.calibrator, Blend):
        return "more stable than a single method"
    return f"as good as the blend to within {TOLERATED:g}, and simpler"
