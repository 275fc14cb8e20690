"""Order-preserving calibration: one rising curve, shared by all classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Float64, one_blas_thread, over_chunks
from calibrant._core.checks import ConvergenceError, InputError, check_positive
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import logit_chunk
from calibrant.calibrators._temperature import bounds_for, nll_temperature
from calibrant.predictions import Predictions

# Log-probabilities at which the curve bends: probabilities of 0.61, 0.37, 0.14 … 6e-6.
KNOTS = (0.0, -0.5, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)
# The least slope of the curve; after temperature scaling a slope of 1 changes nothing.
LEAST_SLOPE = 0.01
STEPS = 100
HALVINGS = 40
# Steps that lower the mean loss by less are negligible.
LEAST_GAIN = 1e-14


@dataclass(eq=False, repr=False, kw_only=True)
class OrderPreserving(Calibrator):
    r"""Order-preserving calibration: one rising curve of the log-probability, for all classes.

    Softmax of :math:`g(\log p_k)`, where p are the probabilities after temperature scaling and g
    is piecewise linear with bends at 0.61, 0.37, 0.14, 0.05, 0.02, 0.002, 0.0003 and 0.000006. All
    slopes are above 0, so that the classes of every sample keep their order (the diagonal
    functions of Rahimi et al., who fit a network by gradient descent). The NLL is convex in the
    slopes, and the fit goes to its optimum.

    Parameters
    ----------
    strength
        Factor of the penalty, which shrinks towards temperature scaling (a slope of 1): squared
        differences between neighbouring slopes, and of the first from 1, divided by N.

    References
    ----------
    Rahimi et al. (2020), arXiv:2003.06820.
    """

    strength: float = 5.0

    keeps_argmax = True
    steady = True
    learned: ClassVar = {"scale_": (), "slopes_": (len(KNOTS),)}

    scale_: float = field(init=False)
    slopes_: Float64 = field(init=False)

    def check(self) -> None:
        check_positive("strength", self.strength, example=5)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        bounds, sharpest = bounds_for(p)
        self.scale_ = 1 / nll_temperature(p, weights, bounds, sharpest=sharpest)
        self.slopes_ = _Curve(p, weights, self.scale_, self.strength).best_slopes()

    def check_learned(self) -> None:
        if not self.scale_ > 0 or not (self.slopes_ > 0).all():
            raise InputError("scale_ and slopes_ must be above 0.")

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        f = ops.log_softmax(ops.lift(z) * learned.scale_)
        slopes = learned.slopes_
        out = f * slopes[0]
        for j in range(1, len(KNOTS)):
            out = out + ops.minimum(f - KNOTS[j], 0.0) * (slopes[j] - slopes[j - 1])
        return out


class _Curve:
    """Mean NLL plus penalty as a function of the slopes."""

    def __init__(
        self, p: Predictions, weights: Float64 | None, scale: float, strength: float
    ) -> None:
        self.p, self.scale = p, scale
        counts = np.ones(p.num_samples) if weights is None else weights
        self.weight = counts / counts.sum()
        self.penalty = strength / float(counts.sum())
        self.bends = np.eye(len(KNOTS)) - np.eye(len(KNOTS), k=-1)

    def _parts(self, f: Float64) -> Float64:
        """How much of each log-probability lies in each piece of the curve: (n, K, pieces)."""
        inside: Float64 = np.minimum(f[..., None] - np.array(KNOTS), 0.0)
        inside[..., :-1] -= inside[..., 1:].copy()
        return inside

    def sums(self, slopes: Float64) -> tuple[float, Float64, Float64]:
        """Value, gradient and curvature."""
        size = len(KNOTS)

        def work(slices: Iterator[slice]) -> list[Any]:
            value, gradient, curvature = 0.0, np.zeros(size), np.zeros((size, size))
            for rows in slices:
                w, labels = self.weight[rows], self.p.labels[rows]
                z = logit_chunk(self.p, rows, np.dtype(np.float64))
                x = self._parts(NumpyOps.log_softmax(NumpyOps.lift(z) * self.scale))
                own = x[np.arange(len(labels)), labels]
                log_q = NumpyOps.log_softmax(x @ slopes)
                value -= float(w @ log_q[np.arange(len(labels)), labels])
                q = np.exp(log_q)
                mean = np.einsum("nk,nkj->nj", q, x)
                gradient += w @ (mean - own)
                root = np.sqrt(q * w[:, None])[..., None]
                spread = ((x - mean[:, None]) * root).reshape(-1, size)
                curvature += spread.T @ spread
            return [value, gradient, curvature]

        columns = self.p.num_classes * (3 * size)
        parts = zip(*over_chunks(work, self.p.num_samples, columns), strict=True)
        value, gradient, curvature = (np.sum(part, axis=0) for part in parts)
        bend = self.bends @ (slopes - 1)
        return (
            float(value) + self.penalty * float(bend @ bend),
            gradient + 2 * self.penalty * self.bends.T @ bend,
            curvature + 2 * self.penalty * self.bends.T @ self.bends,
        )

    def best_slopes(self) -> Float64:
        """Newton's method within the bounds, halving steps while the value does not fall."""
        slopes = np.ones(len(KNOTS))
        with one_blas_thread():
            value, gradient, curvature = self.sums(slopes)
            for _ in range(STEPS):
                step = _bounded_step(slopes, gradient, curvature)
                gain = -float(gradient @ step)
                if gain < LEAST_GAIN:
                    return slopes
                for _ in range(HALVINGS):
                    new = self.sums(slopes + step)
                    if new[0] <= value:
                        break
                    step = step / 2
                slopes, (value, gradient, curvature) = slopes + step, new
        raise ConvergenceError("The curve did not converge. Use a larger strength=….")


def _bounded_step(slopes: Float64, gradient: Float64, curvature: Float64) -> Float64:
    """To the minimum of the quadratic model among slopes of at least LEAST_SLOPE."""
    from scipy.optimize import nnls

    root = np.linalg.cholesky(curvature)
    above = slopes - LEAST_SLOPE
    aim = root.T @ above - np.linalg.solve(root, gradient)
    best: Float64 = nnls(root.T, aim)[0]
    return best - above
