"""Ensemble temperature scaling: a mixture of scaled, raw and uniform probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._arrays import Float64
from calibrant._checks import ConvergenceError, InputError
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._maps import probabilities
from calibrant.calibrators._temperature import nll_quiet
from calibrant.calibrators._tempered import Tempered
from calibrant.predictions import Predictions

STEPS = 10_000


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling: w1 softmax(z / T) + w2 softmax(z) + w3 / K.

    T is the temperature of least NLL; the weights, on the simplex, are those of least NLL given T.
    Keeps every prediction.

    References
    ----------
    Zhang, Kailkhura and Han (2020), arXiv:2003.07329.
    """

    keeps_argmax = True
    gives = "probs"
    learned: ClassVar = {"temperature_": (), "mixture_": (3,)}

    temperature_: float = field(init=False)
    mixture_: Float64 = field(init=False)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        self.temperature_ = nll_quiet(p, weights)
        rows = Tempered(p)
        parts = [
            np.exp(beta * rows.label - rows.sums(beta, 0)[0]) for beta in (1 / self.temperature_, 1)
        ]
        parts.append(np.full(p.num_samples, 1 / p.num_classes))
        w = np.full(p.num_samples, 1.0) if weights is None else weights
        self.mixture_ = best_mixture(np.stack(parts), w / w.sum())

    def _check_learned(self) -> None:
        fine = self.temperature_ > 0 and (self.mixture_ >= 0).all()
        if not fine or abs(self.mixture_.sum() - 1) > 1e-9:  # noqa: PLR2004
            raise InputError("temperature_ must be above 0 and mixture_ on the simplex.")

    def _forward(self, ops: Any, z: Any, learned: Any) -> Any:
        w, k = learned.mixture_, self.num_classes_ or 1
        scaled = probabilities(ops, z / learned.temperature_)
        return scaled * w[0] + probabilities(ops, z) * w[1] + w[2] / k


def best_mixture(parts: Float64, weights: Float64) -> Float64:
    """Weights m on the simplex that maximise the mean of log(m @ parts), a concave function.

    Newton's method on the weights that are above 0, with the EM step, which never lowers the mean,
    where Newton's leaves the simplex. At the optimum mean(part_j / mixture) is 1 for weights above
    0 and at most 1 for the others.
    """
    m = np.full(len(parts), 1 / len(parts))
    for _ in range(STEPS):
        ratio = parts / (m @ parts)
        slope = ratio @ weights
        if (slope - 1).max() < 1e-10:  # noqa: PLR2004
            best: Float64 = m / m.sum()
            return best
        em = m * slope
        newton = _newton(m, ratio, weights, slope)
        halfway = (m + newton) / 2
        m = max((newton, halfway, em), key=lambda x: float(np.log(x @ parts) @ weights))
        m = np.where((m < 1e-9) & (slope < 1), 0, m)  # noqa: PLR2004 - on its way out
        m /= m.sum()
    raise ConvergenceError("The weights of the mixture did not settle; report this data.")


def _newton(m: Float64, ratio: Float64, weights: Float64, slope: Float64) -> Float64:
    """A Newton step inside the simplex, shortened so that no weight falls below 0.

    Weights that are 0 and should be stay out of it.
    """
    free = np.flatnonzero((m > 0) | (slope > 1))
    size, some = len(free), ratio[free]
    bend = (some * weights) @ some.T
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = bend + 1e-12 * np.trace(bend) * np.eye(size)
    system[size, :size] = system[:size, size] = 1
    step = np.linalg.solve(system, np.concatenate([slope[free], [0.0]]))[:size]
    falling = step < 0
    room = float((m[free][falling] / -step[falling]).min(initial=1.0))
    new = m.copy()
    new[free] = np.maximum(m[free] + min(1.0, room) * step, 0)
    return new
