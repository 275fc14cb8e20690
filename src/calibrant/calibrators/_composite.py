"""Composite calibrators: chains and cross-fitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, Int, fold_numbers
from calibrant._core.checks import check_folds, check_seed, refuse
from calibrant.calibrators._arguments import put_together
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._folds import units_of
from calibrant.calibrators._maps import TINY
from calibrant.calibrators._plain import with_confidences
from calibrant.predictions import Confidences, Predictions


@dataclass(eq=False, repr=False)
class Chain(Calibrator):
    """A chain of calibrators: each is fitted to the output of the one before it.

    >>> from calibrant.calibrators import Chain, HistogramBinning, TemperatureScaling
    >>> chain = Chain([TemperatureScaling(), HistogramBinning(binning="mass")])
    """

    steps: Sequence[Calibrator]

    learned: ClassVar = {"steps_": ("calibrators",)}

    steps_: list[Calibrator] = field(init=False)

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """If every step does."""
        return all(step.keeps_argmax for step in self.steps)

    @property
    def gives(self) -> Any:  # type: ignore[override]
        """Probabilities if any step gives them, else logits."""
        return "probs" if any(step.gives == "probs" for step in self.steps) else "logits"

    def check(self) -> None:
        fine = isinstance(self.steps, (list, tuple)) and self.steps
        if not fine or not all(isinstance(step, Calibrator) for step in self.steps):
            rule, advice = "must be calibrators", "Try Chain([TemperatureScaling(), …])."
            raise refuse("steps", rule, f"got {self.steps!r}", advice)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        done = []
        for step in self.steps:
            fitted = step.clone().fit_part(p, weights)
            p = fitted.transform(p)
            done.append(fitted)
        self.steps_ = done

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        kind, given, present = "logits", z, ops.possible(z)
        for step, values in zip(self.steps_, learned.steps_, strict=True):
            if kind == "probs":
                z = ops.where(present, ops.log(ops.maximum(z, TINY)), given)
            z, kind = step.mapped(ops, z, values), step.gives
        if kind == "logits" and self.gives == "probs":
            return ops.exp(ops.log_softmax(z))
        return z

    def _as_affine(self) -> tuple[Float64, Float64]:
        matrix, offset = self.steps_[0]._as_affine()
        for step in self.steps_[1:]:
            weight, bias = step._as_affine()
            matrix, offset = weight @ matrix, weight @ offset + bias
        return matrix, offset

    def num_parameters(self) -> int:
        """Number of parameters of all steps together."""
        self._need_fit()
        return sum(step.num_parameters() for step in self.steps_)


@dataclass(eq=False, repr=False)
class CrossFitted(Calibrator):
    """A calibrator fitted on all samples, with out-of-fold predictions for those same samples.

    ``out_of_fold_`` holds the fit data calibrated fold by fold, each by a calibrator that saw only
    the other folds: measure those. ``transform`` uses the calibrator fitted on all samples.

    >>> from calibrant.calibrators import CrossFitted, TemperatureScaling
    >>> c = CrossFitted(TemperatureScaling(), folds=5)
    """

    calibrator: Calibrator
    folds: int = 5
    seed: int = 0

    learned: ClassVar = {"calibrator_": ("calibrators",)}

    calibrator_: Calibrator = field(init=False)
    out_of_fold_: Predictions = field(init=False)

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """If the inner one does."""
        return self.calibrator.keeps_argmax

    @property
    def gives(self) -> Any:  # type: ignore[override]
        """What the inner one gives."""
        return self.calibrator.gives

    def check(self) -> None:
        if not isinstance(self.calibrator, Calibrator):
            rule, advice = "must be a calibrator", "Try CrossFitted(TemperatureScaling())."
            raise refuse("calibrator", rule, f"got {self.calibrator!r}", advice)
        check_seed(self.seed)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        self.out_of_fold_ = out_of_fold(self.calibrator, p, weights, self.folds, self.seed)
        self.calibrator_ = self.calibrator.clone().fit_part(p, weights)

    def fit_transform(self, p: Predictions, *, weights: Any = None) -> Predictions:
        """Fit on predictions and return them calibrated out of fold."""
        return self.fit(p, weights=weights).out_of_fold_

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self.calibrator_.mapped(ops, z, learned.calibrator_)

    def _as_affine(self) -> tuple[Float64, Float64]:
        return self.calibrator_._as_affine()

    def num_parameters(self) -> int:
        """Number of parameters of the calibrator fitted on all samples."""
        self._need_fit()
        return self.calibrator_.num_parameters()


@overload
def out_of_fold(
    calibrator: Calibrator, p: Predictions, weights: Float64 | None, folds: int, seed: int
) -> Predictions: ...
@overload
def out_of_fold(
    calibrator: Calibrator, p: Confidences, weights: Float64 | None, folds: int, seed: int
) -> Confidences: ...
def out_of_fold(
    calibrator: Calibrator,
    p: Predictions | Confidences,
    weights: Float64 | None,
    folds: int,
    seed: int,
) -> Predictions | Confidences:
    """Each fold calibrated by a calibrator that saw only the others."""
    check_folds(folds, *units_of(p))
    fold = fold_numbers(p.num_samples, folds, seed, p.belonging.codes)
    return in_folds(calibrator, p, weights, fold)


def in_folds(
    calibrator: Calibrator, p: Any, weights: Float64 | None, fold: Int
) -> Predictions | Confidences:
    """Out-of-fold predictions for given folds: one number per sample."""
    parts: list[tuple[Bool, Float]] = []
    for number in np.unique(fold):
        held = fold == number
        some = None if weights is None else weights[~held]
        fitted = calibrator.clone().fit_part(p.take(~held), some)
        rest = p.take(held)
        if isinstance(rest, Confidences):
            parts.append((held, fitted.map_confidence(rest.confidence)[:, None]))
        else:
            parts.append((held, fitted.apply(rest)))
    scores = put_together(parts)
    if isinstance(p, Confidences):
        return with_confidences(p, scores[:, 0].astype(np.float64))
    calibrated: Predictions = p.with_scores(calibrator.gives, scores)
    return calibrated
