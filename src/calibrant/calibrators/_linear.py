r"""Affine maps of the logits: vector, matrix, structured and Dirichlet scaling.

All are :math:`\mathrm{softmax}((I + D)\, f + b)` where f are the logits or the log-probabilities
after temperature scaling, and D is diagonal or full. They differ in f and in the penalty
:math:`\sum r_d D_{kk}^2 + \sum r_o D_{jk}^2 + \sum r_b b_k^2`, which pulls towards plain
temperature scaling. The objective is convex; preconditioned descent goes to its optimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import (
    InputError,
    check_at_least,
    check_choice,
    check_seed,
)
from calibrant.calibrators._affine_problem import Features, Penalty, Problem, row_losses
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._folds import steady_folds
from calibrant.calibrators._temperature import bounds_for, nll_temperature
from calibrant.calibrators._tempered import mean
from calibrant.predictions import Predictions

# In units of K / N: a weak penalty on a diagonal that should be free.
FREE = 1e-3
# Trial fits only need to be accurate enough to be compared.
TRIAL_TOLERANCE = 1e-2
PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
PENALTY_FOLDS = 4
# Standard errors by which another strength must be better than the usual one.
CLEAR = 2.0
# With more scores than this, one fold is enough to compare strengths.
MANY_SCORES = 10_000_000


@dataclass(eq=False, repr=False, kw_only=True)
class _Affine(Calibrator):
    """What the five methods share. ``strength`` multiplies the penalty."""

    strength: float | Literal["cv"] = "cv"
    on: Features = "logits"
    seed: int = 0

    dense: ClassVar[bool] = False
    usual: ClassVar[float] = 1.0
    learned: ClassVar = {"scale_": (), "weight_": ("K",), "bias_": ("K",), "strength_": ()}

    scale_: float = field(init=False)
    weight_: Float64 = field(init=False)
    bias_: Float64 = field(init=False)
    strength_: float = field(init=False)

    def check(self) -> None:
        check_choice("on", self.on, ("logits", "log_probs"))
        if self.strength != "cv":
            check_at_least("strength", self.strength, 0, example=1, otherwise=", or 'cv'")
        check_seed(self.seed)

    def _penalty(self, strength: float, num_samples: float, num_classes: int) -> Penalty:
        """The structured penalty: K / N for each of K numbers, K (K - 1) / N off the diagonal."""
        each = strength * num_classes / num_samples
        return Penalty(each, each * (num_classes - 1), each)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        bounds, sharpest = bounds_for(p)
        beta = 1 / nll_temperature(p, weights, bounds, sharpest=sharpest)
        problem = Problem(p, weights, beta, self.on, self.dense)
        if self.strength == "cv":
            self.strength_ = self._best_strength(problem)
        else:
            self.strength_ = float(self.strength)
        penalty = self._penalty(self.strength_, problem.size, p.num_classes)
        d, self.bias_ = problem.split(problem.minimise(penalty))
        self.scale_ = beta
        self.weight_ = (np.eye(p.num_classes) if self.dense else 1) + d

    def check_learned(self) -> None:
        if not self.scale_ > 0:
            raise InputError("scale_ must be above 0.")

    def num_parameters(self) -> int:
        """Number of entries of matrix and offsets, which hold the temperature too."""
        self._need_fit()
        if "groups_" in vars(self):
            return super().num_parameters()
        return int(self.weight_.size + self.bias_.size)

    def settled(self) -> Self:
        return replace(self, strength=self.strength_)

    def _best_strength(self, problem: Problem) -> float:
        """Of PENALTIES by cross-validation; not the usual one only where that is clearly better."""
        return best_strength(problem, self._penalty, PENALTIES, self.usual, self.seed)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        z = ops.lift(z) * learned.scale_
        f = ops.log_softmax(z) if self.on == "log_probs" else z
        if self.dense:
            return ops.matmul(f, learned.weight_.T) + learned.bias_
        return f * learned.weight_ + learned.bias_

    def _as_affine(self) -> tuple[Float64, Float64]:
        if self.on == "log_probs":
            return super()._as_affine()
        matrix = self.weight_ if self.dense else np.diag(self.weight_)
        return matrix * self.scale_, self.bias_


def best_strength(
    problem: Problem, penalty: Any, strengths: Sequence[float], usual: float, seed: int
) -> float:
    """The strength of least cross-validated NLL.

    Folds are fitted along the path from strong to weak, each from the last, until weaker is clearly
    worse. A strength other than the usual one must be clearly better.
    """
    fold, distinct = steady_folds(problem.p, problem.counts, PENALTY_FOLDS, seed)
    if distinct < 2 * PENALTY_FOLDS:
        return usual
    k = problem.num_classes
    judged = 1 if distinct * k > MANY_SCORES else PENALTY_FOLDS
    inner = [problem.without(fold == number) for number in range(judged)]
    thetas = [np.zeros(len(part.start[0])) for part in inner]
    seen = (fold >= 0) & (fold < judged)
    counts, losses = problem.counts[seen], dict[float, Float64]()
    for strength in strengths:
        found = np.empty(len(fold))
        for number, part in enumerate(inner):
            factor = penalty(strength, part.size, k)
            thetas[number] = part.minimise(factor, start=thetas[number], tolerance=TRIAL_TOLERANCE)
            found[fold == number] = row_losses(problem, thetas[number])[fold == number]
        losses[strength] = found[seen]
        best = min(losses, key=lambda s: mean(losses[s], counts))
        if strength < usual and _clearly_less(losses[best], losses[strength], counts):
            break
    return best if _clearly_less(losses[best], losses[usual], counts) else usual


def _clearly_less(a: Float64, b: Float64, counts: Float64) -> bool:
    gain = b - a
    average = mean(gain, counts)
    deviation = math.sqrt(mean((gain - average) ** 2, counts))
    return average > CLEAR * deviation / math.sqrt(counts.sum())


class VectorScaling(_Affine):
    """Vector scaling: a scale and an offset per class, on the logits.

    Parameters
    ----------
    strength
        Strength of the penalty that shrinks towards temperature scaling, in units of K / N: a
        number, or ``"cv"`` to choose among 10 … 0.001 by cross-validation. 0 is the method of Guo
        et al., which overfits with few samples per class and has no optimum if a class is absent.
    on
        ``"logits"`` (can be folded into the last layer) or ``"log_probs"``.
    seed
        Random seed of the folds.

    References
    ----------
    Guo et al. (2017), arXiv:1706.04599.
    """

    usual = 0.01  # close to the method without a penalty


class MatrixScaling(_Affine):
    """Matrix scaling: a full matrix and an offset per class, on the logits.

    Parameters are those of ``VectorScaling``. The K² parameters need a penalty: the off-diagonal is
    shrunk to 0 in units of K (K - 1) / N.

    References
    ----------
    Guo et al. (2017), arXiv:1706.04599.
    """

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K")}


@dataclass(eq=False, repr=False, kw_only=True)
class StructuredVectorScaling(_Affine):
    """Regularised vector scaling on log-probabilities after temperature scaling (SVS).

    ``strength`` 1 is the published penalty, K / N per squared parameter; ``"cv"`` deviates from it
    only if that is clearly better. Parameters are otherwise those of ``VectorScaling``.

    References
    ----------
    Berta, Holzmüller, Jordan and Bach (2025), arXiv:2511.03685.
    """

    on: Features = "log_probs"


@dataclass(eq=False, repr=False, kw_only=True)
class StructuredMatrixScaling(_Affine):
    """Regularised matrix scaling on log-probabilities after temperature scaling (SMS).

    ``strength`` 1 is the published penalty: K / N for the diagonal and the offsets, K (K - 1) / N
    off the diagonal; ``"cv"`` deviates from it only if that is clearly better. Parameters are
    otherwise those of ``VectorScaling``.

    References
    ----------
    Berta, Holzmüller, Jordan and Bach (2025), arXiv:2511.03685.
    """

    on: Features = "log_probs"

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K")}


@dataclass(eq=False, repr=False, kw_only=True)
class Dirichlet(_Affine):
    """Dirichlet calibration: matrix scaling of the log-probabilities with ODIR.

    Parameters
    ----------
    strength
        Factor of the mean squared off-diagonal entry (lambda), or ``"cv"``: then lambda and mu are
        10 … 0.001 times those at which each entry is held as in ``StructuredMatrixScaling``.
    bias_strength
        Factor of the mean squared offset (mu); None means the same as ``strength``, or chosen with
        it.
    on, seed
        As in ``VectorScaling``.

    The diagonal is all but free: a thousandth of K / N holds it, so that an optimum exists for
    separable data too.

    References
    ----------
    Kull et al. (2019), arXiv:1910.12656.
    """

    bias_strength: float | None = None
    on: Features = "log_probs"

    dense = True
    learned: ClassVar = {**_Affine.learned, "weight_": ("K", "K"), "bias_strength_": ()}

    bias_strength_: float = field(init=False)

    def check(self) -> None:
        super().check()
        if self.bias_strength is not None:
            check_at_least("bias_strength", self.bias_strength, 0, example=1)

    def _penalty(self, strength: float, num_samples: float, num_classes: int) -> Penalty:
        return Penalty(
            FREE * num_classes / num_samples,
            strength / (num_classes * (num_classes - 1)),
            self.bias_strength_ / num_classes,
        )

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        given = self.strength if self.bias_strength is None else self.bias_strength
        self.bias_strength_ = 0.0 if given == "cv" else float(given)
        super()._learn(p, weights)

    def _best_strength(self, problem: Problem) -> float:
        def penalty(times: float, n: float, k: int) -> Penalty:
            bias = self.bias_strength
            return Penalty(
                FREE * k / n, times * k * (k - 1) / n, times * k / n if bias is None else bias / k
            )

        n, k = problem.size, problem.num_classes
        times = best_strength(problem, penalty, PENALTIES, self.usual, self.seed)
        if self.bias_strength is None:
            self.bias_strength_ = times * k**2 / n
        return times * (k * (k - 1)) ** 2 / n

    def settled(self) -> Self:
        return replace(self, strength=self.strength_, bias_strength=self.bias_strength_)
