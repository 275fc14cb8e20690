"""Candidates of a selection, cross-fitted: each alone, and pooled."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from calibrant._core.arrays import Float64, Int, fold_numbers
from calibrant._core.checks import CalibrationWarning, ConvergenceError, InputError
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._blend import Blend, has_steady, pool_centre
from calibrant.calibrators._composite import in_folds
from calibrant.calibrators._plain import as_binary, with_confidences
from calibrant.calibrators._pool import Pool
from calibrant.predictions import Confidences, Predictions

Criterion = Literal["nll", "brier"]
Record = Predictions | Confidences
#: Name of "no calibrator" in tables and study files.
UNCALIBRATED = "none"


@dataclass(frozen=True)
class CandidateTrial:
    """``losses`` of the independent units: samples, or clusters; ``shares`` are their sizes.

    ``each`` are the losses of the samples themselves, and ``unit`` says which cluster each is of.
    ``held_out`` are the predictions that the losses are of, where a pool needs them. ``steady`` is
    the pool of other candidates that few samples cannot lead far astray.
    """

    name: str
    calibrator: Calibrator
    losses: Float64 | None
    fault: str = ""
    shares: Float64 | float = 1.0
    each: Float64 | None = None
    unit: Int | None = None
    held_out: Record | None = None
    steady: bool = False


def pools_others(calibrator: Calibrator) -> bool:
    """Whether a candidate is the pool of the other candidates: a blend without members."""
    return isinstance(calibrator, Blend) and calibrator.members is None


@dataclass(frozen=True)
class TrialData:
    """Data, loss and folds, the same for every candidate.

    ``keep`` the held-out predictions for a pool, of the candidates named in ``pooled`` or of all.
    """

    p: Record
    criterion: Criterion
    folds: int
    seed: int
    keep: bool = False
    pooled: tuple[str, ...] | None = None

    @property
    def fold(self) -> Int:
        return fold_numbers(self.p.num_samples, self.folds, self.seed, self.p.belonging.codes)

    @property
    def share(self) -> Float64 | None:
        """Weights with a mean of 1."""
        return None if self.p.weights is None else self.p.weights / self.p.weights.mean()

    def attempt(
        self, name: str, calibrator: Calibrator, others: list[CandidateTrial] | None
    ) -> CandidateTrial:
        """Try a candidate; what pools the others is given them."""
        if others is None:
            return self._single(name, calibrator)
        return self._pooled(name, calibrator, others)

    def _single(self, name: str, calibrator: Calibrator) -> CandidateTrial:
        """Fit a candidate out of fold and to all samples; a failed fit is a verdict."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", CalibrationWarning)
                fitted = calibrator.clone().fit_part(self.p, self.share)
                unbounded = bool(caught)
                held_out = in_folds(fitted.settled(), self.p, self.share, self.fold)
        except (ConvergenceError, InputError) as error:
            return CandidateTrial(name, calibrator, None, f"rejected: the fit failed ({error})")
        if unbounded:
            return CandidateTrial(name, fitted, None, "rejected: no optimum inside its bounds")
        note = "; no optimum inside its bounds in some folds" if caught else ""
        return self._judged(name, fitted, held_out, note)

    def _pooled(self, name: str, blend: Calibrator, others: list[CandidateTrial]) -> CandidateTrial:
        """Pool the predictions that the others made out of fold, so that nothing is fitted twice.

        The predictions for a fold are pooled with weights chosen on the other folds. The members
        that predicted those had seen the fold, so the loss is not quite that of a nested
        cross-validation; where they differ much it is the higher one (docs/which.md).
        """
        trials = self._members(others)
        if len(trials) < 2:  # noqa: PLR2004 - one alone is no pool
            return CandidateTrial(name, blend, None, "rejected: fewer than two candidates to pool")
        counts = np.ones(self.p.num_samples) if self.share is None else self.share
        fitted = [t.calibrator for t in trials]
        held = [t.held_out for t in trials if t.held_out is not None]
        pool = Pool.of(self.p, held, counts, pool_centre(self.p, fitted))
        try:
            weights = pool.minimise()
            logits = pool.cross_fitted(weights, self.fold)
        except ConvergenceError as error:
            return CandidateTrial(name, blend, None, f"rejected: the fit failed ({error})")
        found = Blend([m.clone() for m in fitted], folds=self.folds, seed=self.seed)
        if isinstance(self.p, Confidences):
            odds = logits[:, 1] - logits[:, 0]
            held_out: Any = with_confidences(self.p, 0.5 * (1 + np.tanh(odds / 2)))
        else:
            held_out = self.p.with_scores("logits", logits)
        parts = [f"{w:.2f} {t.name}" for w, t in zip(weights, trials, strict=True) if w > 0]
        note = f"; weights {', '.join(parts)}"
        trial = self._judged(name, found.adopt(fitted, weights), held_out, note)
        return replace(trial, steady=has_steady(self.p, fitted))

    def _members(self, others: list[CandidateTrial]) -> list[CandidateTrial]:
        """The sound candidates that are pooled."""
        sound = [t for t in others if t.held_out is not None and t.name != UNCALIBRATED]
        return [t for t in sound if self.pooled is None or t.name in self.pooled]

    def _judged(self, name: str, fitted: Calibrator, held_out: Record, note: str) -> CandidateTrial:
        seen = as_binary(held_out) if isinstance(held_out, Confidences) else held_out
        losses = -seen.label_log_prob if self.criterion == "nll" else seen.brier_terms
        if not np.isfinite(losses).all():
            count = int((~np.isfinite(losses)).sum())
            return CandidateTrial(
                name, fitted, None, f"rejected: gives probability 0 to {count:,} labels"
            )
        units, shares = self._by_unit(losses)
        codes = self.p.belonging.codes
        return CandidateTrial(
            name, fitted, units, note, shares, losses, codes, held_out if self.keep else None
        )

    def _by_unit(self, losses: Float64) -> tuple[Float64, Float64 | float]:
        """Losses by cluster and with sampling weights, scaled so that their mean is weighted.

        With them the size of each unit relative to the mean.
        """
        codes, weights = self.p.belonging.codes, self.p.weights
        if codes is None and weights is None:
            return np.asarray(losses), 1.0
        unit = np.arange(self.p.num_samples) if codes is None else codes
        size = np.bincount(unit, weights)
        total = np.bincount(unit, losses if weights is None else losses * weights)
        return total / size.mean(), size / size.mean()
