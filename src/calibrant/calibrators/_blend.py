"""A log-linear pool of calibrators."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import (
    CalibrationWarning,
    InputError,
    check_count,
    check_seed,
    near_name,
    refuse,
)
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._candidates import blend_members
from calibrant.calibrators._composite import in_folds
from calibrant.calibrators._folds import steady_folds
from calibrant.calibrators._maps import TINY
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._plain import as_binary, check_takes_confidences
from calibrant.calibrators._pool import Pool, member_logits
from calibrant.predictions import Confidences, Predictions

# No option that a sample has is given less than TINY.
LOWEST = math.log(TINY)


def pool_centre(p: Predictions | Confidences, members: Sequence[Calibrator]) -> Float64:
    """Weights that the penalty of a pool draws to: equal, of the steady members or of all."""
    every = not has_steady(p, members)
    drawn = np.array([every or member.steady for member in members], dtype=np.float64)
    centre: Float64 = drawn / drawn.sum()
    return centre


def has_steady(p: Predictions | Confidences, members: Sequence[Calibrator]) -> bool:
    """Whether some members need few samples; of confidences alone, a temperature says too little.

    Confidences want a bias too: temperature scaling is far behind Platt scaling there.
    """
    return isinstance(p, Predictions) and any(member.steady for member in members)


@dataclass(eq=False, repr=False)
class Blend(Calibrator):
    r"""A log-linear pool of calibrators: softmax of :math:`\sum_m w_m \log q_m`, weights >= 0.

    The weights minimise the NLL of the members' out-of-fold predictions, a convex problem, with a
    penalty worth 10 samples. It draws them towards equal weights of temperature and
    order-preserving scaling where these are members: few samples are enough to fit them. Otherwise,
    and for confidences alone, it draws all weights towards 1 / M. A member that does not help gets
    a weight of exactly 0 and costs nothing from then on. The sum of the weights is free, so that a
    pool that would be too timid is sharpened.

    A fit costs ``folds`` + 1 fits of each member; hyperparameters that a member selects itself are
    selected once, on all samples. Predicting costs as much as the members with a weight above 0.

    Parameters
    ----------
    members
        Names from ``CALIBRATORS`` or calibrators. The default is temperature, order-preserving,
        structured vector and structured matrix scaling and a spline of the confidence; of more than
        300,000 scores or 200 classes it is without structured matrix scaling; of confidences alone
        temperature, Platt and beta scaling and isotonic regression.
    folds, seed
        Number of folds of the cross-fitting, and their seed. Samples are assigned by content, so
        that their order does not matter, and clusters are never divided.

    References
    ----------
    Genest and Zidek (1986), doi:10.1214/ss/1177013825; Wolpert (1992),
    doi:10.1016/S0893-6080(05)80023-1.

    >>> from calibrant.calibrators import Blend
    >>> from calibrant.examples import load_example
    >>> c = Blend(["temperature", "structured_vector"]).fit(load_example("cross_entropy"))
    >>> bool((c.weights_ >= 0).all())
    True
    """

    members: Sequence[str | Calibrator] | None = None
    folds: int = 5
    seed: int = 0

    of_confidences = True
    learned: ClassVar = {"members_": ("calibrators",), "weights_": ("M",)}

    members_: list[Calibrator] = field(init=False)
    weights_: Float64 = field(init=False)

    def check(self) -> None:
        if self.members is not None:
            fine = isinstance(self.members, (list, tuple)) and self.members
            if not fine or not all(isinstance(m, (str, Calibrator)) for m in self.members):
                rule, advice = (
                    "must be names of calibrators, or calibrators",
                    "Try ['temperature'].",
                )
                raise refuse("members", rule, f"got {self.members!r}", advice)
            for member in self._made():
                member.check()
        check_count("folds", self.folds, least=2, most=1000, example=5)
        check_seed(self.seed)

    def _made(self, p: Predictions | Confidences | None = None) -> list[Calibrator]:
        """The members, unfitted; by default those for as much data as p."""
        from calibrant.calibrators._registry import CALIBRATORS

        given = blend_members(p) if self.members is None else self.members
        found = []
        for member in given:
            if isinstance(member, str) and member not in CALIBRATORS:
                rule, advice = "must be names of calibrators", near_name(member, CALIBRATORS)
                raise refuse("members", rule, f"got {member!r}", advice)
            found.append(CALIBRATORS[member]() if isinstance(member, str) else member.clone())
        return found

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """If every member with a weight above 0 does."""
        if not self.is_fitted or "groups_" in vars(self):
            return all(member.keeps_argmax for member in self._made())
        return all(member.keeps_argmax for _, member in self.used())

    @property
    def gives(self) -> Literal["logits", "probs"]:  # type: ignore[override]
        """Probabilities if any member gives them, else logits."""
        return "probs" if any(m.gives == "probs" for m in self._made()) else "logits"

    # --- fit ----------------------------------------------------------------------------------

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        self._learn_members(p, weights)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        from calibrant.calibrators._registry import CALIBRATORS

        names = [name for name, kind in CALIBRATORS.items() if kind.of_confidences]
        for member in self._made(c):
            check_takes_confidences(type(member).__name__, names, takes=member.of_confidences)
        self._learn_members(c, weights)

    def _learn_members(self, p: Any, weights: Float64 | None) -> None:
        if weights is not None:
            p, weights = p.take(weights > 0), weights[weights > 0]
        fitted = [member.fit_part(p, weights) for member in self._made(p)]
        counts = np.ones(p.num_samples) if weights is None else weights
        plain = as_binary(p) if isinstance(p, Confidences) else p
        fold, distinct = steady_folds(plain, counts, self.folds, self.seed)
        held_out = []
        if distinct > 1 and len(fitted) > 1:
            with warnings.catch_warnings():  # said by the fit to all samples where it matters
                warnings.simplefilter("ignore", CalibrationWarning)
                held_out = [in_folds(member.settled(), p, weights, fold) for member in fitted]
        self.members_ = fitted
        centre = pool_centre(p, fitted)
        self.weights_ = Pool.of(p, held_out, counts, centre).minimise() if held_out else centre

    def adopt(self, members: list[Calibrator], weights: Float64) -> Self:
        """Take over fitted members and the weights of their pool."""
        self.forget()
        self.members_, self.weights_ = members, weights
        self.num_classes_, self.classes_ = members[0].num_classes_, members[0].classes_
        return self

    def settled(self) -> Self:
        return replace(self, members=[member.settled() for member in self.members_])

    def check_learned(self) -> None:
        if len(self.members_) != len(self.weights_) or not (self.weights_ >= 0).all():
            raise InputError("weights_ must hold a number of at least 0 for each of members_.")
        if any(member.num_classes_ != self.num_classes_ for member in self.members_):
            raise InputError("members_ must have the classes of the blend.")
        if self.gives == "logits" and any(member.gives == "probs" for member in self.members_):
            raise InputError("members_ must be those of the parameter members.")

    def num_parameters(self) -> int:
        """Number of parameters of the members with a weight above 0, and of the weights."""
        self._need_fit()
        if "groups_" in vars(self):
            return super().num_parameters()
        return sum(1 + member.num_parameters() for _, member in self.used())

    # --- transform ----------------------------------------------------------------------------

    def used(self) -> list[tuple[int, Calibrator]]:
        """Position and member of each weight above 0; the first where all are 0."""
        kept = [k for k, weight in enumerate(self.weights_) if weight > 0]
        return [(k, self.members_[k]) for k in kept or [0]]

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        total = None
        for k, member in self.used():
            scores = member.mapped(ops, z, learned.members_[k])
            part = member_logits(ops, scores, member.gives) * learned.weights_[k]
            total = part if total is None else total + part
        if self.gives == "logits":
            return total
        return ops.exp(ops.maximum(ops.log_softmax(total), LOWEST))

    def map_confidence(self, confidence: Float64) -> Float64:
        """Pooled confidences of the members."""
        odds = np.zeros(len(confidence))
        for k, member in self.used():
            found = member.map_confidence(confidence)
            right, wrong = (member_logits(NumpyOps, c, "probs") for c in (found, 1 - found))
            odds += self.weights_[k] * (right - wrong)
        return 0.5 * (1 + np.tanh(odds / 2))

    def _as_affine(self) -> tuple[Float64, Float64]:
        if self.gives == "probs":
            return super()._as_affine()
        parts = [(self.weights_[k], *member._as_affine()) for k, member in self.used()]
        return sum(w * matrix for w, matrix, _ in parts), sum(w * bias for w, _, bias in parts)
