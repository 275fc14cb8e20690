"""Bias-corrected temperature scaling: softmax(s z + b)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Float64, one_blas_thread
from calibrant._core.checks import ConvergenceError
from calibrant.calibrators._affine_problem import TOLERANCE, Problem
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._descent import descend
from calibrant.calibrators._linear import FREE
from calibrant.calibrators._temperature import bounds_for, nll_temperature
from calibrant.calibrators._tempered import Tempered
from calibrant.predictions import Predictions

# Gradients below this are rounding errors.
ROUNDING = 1e-10
STEPS = 2000


@dataclass(eq=False, repr=False, kw_only=True)
class BiasCorrectedTemperature(Calibrator):
    r"""Bias-corrected temperature scaling (BCTS): one scale for all logits, an offset per class.

    :math:`\mathrm{softmax}(s z + b)` of least NLL. The offsets make the mean probability of every
    class equal to its frequency among the labels, which is what correcting for other class
    frequencies needs (``calibrant.label_shift``). A thousandth of K / N per squared parameter
    holds them, so that an optimum exists where a class is absent or the data are separable. The
    K + 1 parameters can be folded into the last layer.

    References
    ----------
    Alexandari, Kundaje and Shrikumar (2020), arXiv:1901.06852.

    >>> from calibrant import Predictions
    >>> z = [[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> p = Predictions(logits=z, labels=[0, 1, 1, 1])
    >>> BiasCorrectedTemperature().fit(p).transform(p).probs.mean(axis=0).round(2)
    array([0.25, 0.75])
    """

    learned: ClassVar = {"scale_": (), "bias_": ("K",)}

    scale_: float = field(init=False)
    bias_: Float64 = field(init=False)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        bounds, sharpest = bounds_for(p)
        beta = 1 / nll_temperature(p, weights, bounds, sharpest=sharpest)
        change, self.bias_ = _least(Problem(p, weights, beta, "logits", dense=False))
        self.scale_ = beta * (1 + change)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return ops.lift(z) * learned.scale_ + learned.bias_

    def _as_affine(self) -> tuple[Float64, Float64]:
        return np.eye(len(self.bias_)) * self.scale_, self.bias_


def _least(problem: Problem) -> tuple[float, Float64]:
    """The change d of the scale and the offsets b of least mean NLL plus penalty.

    The gradient is that of vector scaling with the same entry d in every place of its diagonal.
    """
    k, held = problem.num_classes, 2 * FREE * problem.num_classes / problem.size

    def reduced(gradient: Float64, theta: Float64) -> Float64:
        return np.concatenate([[gradient[:k].sum()], gradient[k:]]) + held * theta

    def gradient(theta: Float64) -> Float64:
        return reduced(problem.gradient(np.concatenate([np.full(k, theta[0]), theta[1:]])), theta)

    theta = np.zeros(k + 1)
    first, _, _, plain = problem.start
    bend = (
        problem.beta**2 * Tempered(problem.p, problem.dtype).slope(problem.beta, problem.weights)[1]
    )
    curvature = np.concatenate([[bend], plain]) + held

    def size(g: Float64) -> float:
        return math.sqrt(float(g @ (g / curvature)))

    g = reduced(first, theta)
    goal = max(TOLERANCE[problem.dtype] * size(g), ROUNDING)
    with one_blas_thread():
        theta, g = descend(
            gradient,
            theta,
            g,
            inverse=lambda v: v / curvature,
            is_small=lambda v: size(v) <= goal,
            steps=STEPS,
        )
    if not size(g) <= 10 * goal:
        raise ConvergenceError(
            f"The fit did not converge: it stopped with a gradient of {size(g):.2g}. Use another "
            "method, such as temperature."
        )
    return float(theta[0]), theta[1:]
