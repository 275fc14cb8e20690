"""Ensemble temperature scaling: a mixture of scaled, raw and uniform probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import ConvergenceError, InputError
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._maps import probabilities
from calibrant.calibrators._scores import num_options
from calibrant.calibrators._temperature import nll_temperature
from calibrant.calibrators._tempered import Tempered
from calibrant.predictions import Predictions

BARRIERS = tuple(10.0**-k for k in range(1, 14))
STEPS = 100
LEAST_GAIN = 1e-4
# Weights below this are 0.
EDGE = 1e-8


@dataclass(eq=False, repr=False, kw_only=True)
class EnsembleTemperature(Calibrator):
    """Ensemble temperature scaling: w1 softmax(z / T) + w2 softmax(z) + w3 / K.

    Where a sample lacks options (logits of -inf), K counts those it has.

    T minimises the NLL, with the bounds and warnings of ``TemperatureScaling``; the weights, on the
    simplex, minimise the NLL given T. Keeps every predicted class.

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
        self.temperature_ = nll_temperature(p, weights)
        rows = Tempered(p)
        parts = [
            np.exp(beta * rows.label - rows.sums(beta, 0)[0]) for beta in (1 / self.temperature_, 1)
        ]
        parts.append(1 / num_options(p))
        w = np.full(p.num_samples, 1.0) if weights is None else weights
        self.mixture_ = best_mixture(np.stack(parts), w / w.sum())

    def check_learned(self) -> None:
        fine = self.temperature_ > 0 and (self.mixture_ >= 0).all()
        if not fine or abs(self.mixture_.sum() - 1) > 1e-9:  # noqa: PLR2004
            raise InputError("temperature_ must be above 0 and mixture_ on the simplex.")

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        w, zero = learned.mixture_, ops.lift(z) * 0.0
        equal = ops.where(ops.possible(z), zero + 1.0, zero)
        scaled = probabilities(ops, z / learned.temperature_)
        return scaled * w[0] + probabilities(ops, z) * w[1] + w[2] * (equal / ops.sum(equal))


def best_mixture(parts: Float64, weights: Float64) -> Float64:
    """Weights m on the simplex that maximise the mean of log(m @ parts), a concave function.

    Newton's method on that mean plus a barrier mu * sum(log m), which keeps m inside; as mu falls
    to nothing so does the barrier's pull. At the optimum mean(part_j / mixture) is 1 for weights
    above 0 and at most 1 for the others.
    """
    size = len(parts)
    m = np.full(size, 1 / size)
    for barrier in BARRIERS:
        for _ in range(STEPS):
            step, gain = _newton_step(m, parts, weights, barrier)
            falling = step < 0
            room = float((m[falling] / -step[falling]).min(initial=np.inf))
            # Damped until close to the optimum, so that the Newton steps never overshoot.
            m = m + min(1.0, 0.9 * room, 1 / (1 + math.sqrt(gain / barrier))) * step
            if gain < LEAST_GAIN * barrier:
                break
    m = np.where(m < EDGE, 0.0, m)
    m /= m.sum()
    slope = (parts / (m @ parts)) @ weights
    if not slope.max() < 1 + EDGE:
        raise ConvergenceError("The mixture weights did not converge; please report this data.")
    return m


def _newton_step(
    m: Float64, parts: Float64, weights: Float64, barrier: float
) -> tuple[Float64, float]:
    """The step within the simplex, and twice its predicted gain."""
    size = len(m)
    ratio = parts / (m @ parts)
    slope = ratio @ weights + barrier / m
    bend = (ratio * weights) @ ratio.T + np.diag(barrier / m**2)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = bend
    system[size, :size] = system[:size, size] = 1
    step = np.linalg.solve(system, np.concatenate([slope, [0.0]]))[:size]
    return step, max(float(step @ bend @ step), 0.0)
