"""Platt, beta and quadratic scaling: a logistic regression per class, then rows are normalised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Bool, Float64, over_chunks
from calibrant._core.checks import ConvergenceError, InputError
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._columns import class_columns
from calibrant.calibrators._maps import TINY
from calibrant.calibrators._ops import IMPOSSIBLE, NumpyOps
from calibrant.calibrators._scores import label_logits, logit_chunk
from calibrant.predictions import Predictions

STEPS = 200
HALVINGS = 40
# Steps that lower the mean loss by less are negligible.
LEAST_GAIN = 1e-14
# A loss below this converges to 0: there is no optimum.
SEPARATED = 1e-9
# A feature with a smaller relative variation is constant up to rounding.
FLAT = 1e-13
# Added to the curvature, relative to it: along what varies less, as the features of beta
# calibration do for tiny logits, the gradient is rounding.
RIDGE = 1e-11


def log_parts(ops: Any, z: Any) -> tuple[Any, Any]:
    """Log p and log (1 - p) of every class, at least -100.

    1 - p of the top class is the sum of the others, so that it keeps its digits.
    """
    z = ops.lift(z)
    shifted = z - ops.max(z)
    e = ops.exp(shifted)
    top, total = ops.is_top(z), ops.sum(e)
    rest = ops.sum(ops.where(top, e * 0.0, e))
    others = ops.where(top, rest + e * 0.0, total - e)
    log_total = ops.log(total)
    log_rest = ops.log(ops.maximum(others, SMALLEST)) - log_total
    return ops.maximum(shifted - log_total, -IMPOSSIBLE), ops.maximum(log_rest, -IMPOSSIBLE)


# Smallest normal float32: exports work in float32.
SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(eq=False, repr=False, kw_only=True)
class _OneVsRest(Calibrator):
    """``smooth`` takes Platt's targets (n + 1) / (n + 2) and 1 / (n + 2) instead of 1 and 0."""

    smooth: bool = True

    of_confidences = True
    num_features: ClassVar[int]
    learned: ClassVar = {"coef_": ("K", "F")}

    coef_: Float64 = field(init=False)

    def _features(self, ops: Any, z: Any) -> list[Any]:
        raise NotImplementedError

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        fit = _Regressions(self, p, weights)
        free = np.ones((p.num_classes, self.num_features), dtype=np.bool_)
        coef, loss = fit.solve(free)
        _check_settled(loss, smooth=self.smooth)
        self.coef_ = fit.raw(coef)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self._regressed(ops, self._features(ops, z), learned)

    def _regressed(self, ops: Any, features: list[Any], learned: Any) -> Any:
        parts = [x * learned.coef_[:, k] for k, x in enumerate(features)]
        score = sum(parts[1:], parts[0])
        # log sigmoid; the softmax of these divides each class's probability by their sum
        return -(ops.maximum(-score, 0.0) + ops.log(1.0 + ops.exp(-ops.maximum(score, -score))))


class _Regressions:
    """K logistic regressions at once; a pass over the scores serves all classes."""

    def __init__(self, owner: _OneVsRest, p: Predictions, weights: Float64 | None) -> None:
        self.owner, self.p = owner, p
        label_logits(p)  # refuses impossible labels
        self.weight = np.full(p.num_samples, 1.0) if weights is None else weights
        hits = np.bincount(p.labels, self.weight, p.num_classes)
        misses = self.weight.sum() - hits
        soft = 1.0 if owner.smooth else 0.0
        with np.errstate(invalid="ignore"):
            self.high = np.where(hits > 0, (hits + soft) / (hits + 2 * soft), 1.0)
            self.low = np.where(misses > 0, soft / (misses + 2 * soft), 0.0)
        self.centre, self.unit = self._standard()

    def _standard(self) -> tuple[Float64, Float64]:
        """Mean and standard deviation of each class's features, 0 and 1 for the constant."""
        p, f, n = self.p, self.owner.num_features, self.weight.sum()

        def moment(centre: Float64, power: int) -> Float64:
            def work(slices: Iterator[slice]) -> Float64:
                total: Float64 = np.sum(
                    [
                        np.einsum("n,fnk->kf", self.weight[rows], (x - centre.T[:, None]) ** power)
                        for rows, x in self._chunks(slices)
                    ],
                    axis=0,
                )
                return total

            parts = over_chunks(work, p.num_samples, p.num_classes * (f + 4))
            found: Float64 = np.sum(parts, axis=0) / n
            return found

        centre = moment(np.zeros((p.num_classes, f)), 1)
        unit = np.sqrt(moment(centre, 2))
        unit = np.where(unit > FLAT * np.abs(centre), unit, 1.0)
        centre[:, -1], unit[:, -1] = 0, 1  # exact, despite rounding
        return centre, unit

    def _chunks(self, slices: Iterator[slice]) -> Iterator[tuple[slice, Float64]]:
        """Rows and their features (F, n, K)."""
        for rows in slices:
            z = logit_chunk(self.p, rows, np.dtype(np.float64))
            yield rows, np.stack(self.owner._features(NumpyOps, z))

    def raw(self, coef: Float64) -> Float64:
        """Coefficients of the features as they are, out of those of standardised ones."""
        out: Float64 = coef / self.unit
        out[:, -1] -= (out * self.centre).sum(axis=1)
        return out

    def sums(self, coef: Float64) -> tuple[Float64, Float64, Float64]:
        """Mean loss, gradient and curvature of each class."""
        p, (k, f) = self.p, coef.shape

        def work(slices: Iterator[slice]) -> list[Float64]:
            total = [np.zeros(k), np.zeros((k, f)), np.zeros((k, f, f))]
            for rows, features in self._chunks(slices):
                w = self.weight[rows]
                x = (features - self.centre.T[:, None]) / self.unit.T[:, None]
                score = np.einsum("fnk,kf->nk", x, coef)
                hit = p.labels[rows, None] == np.arange(k)
                target = np.where(hit, self.high, self.low)
                total[0] += w @ (np.logaddexp(0, score) - target * score)
                mean = 0.5 * (1 + np.tanh(score / 2))
                total[1] += np.einsum("n,nk,fnk->kf", w, mean - target, x)
                bend = w[:, None] * mean * (1 - mean)
                total[2] += np.einsum("nk,fnk,gnk->kfg", bend, x, x)
            return total

        parts = over_chunks(work, p.num_samples, k * (f + 4))
        n = self.weight.sum()
        loss, gradient, curvature = (np.sum(c, axis=0) / n for c in zip(*parts, strict=True))
        return loss, gradient, curvature

    def solve(self, free: Bool) -> tuple[Float64, Float64]:
        """Coefficients (0 where not free) of least loss, and that loss: inf where none is least.

        They are those of standardised features, so that the unit of the logits does not matter.
        Newton's method per class, halving the step while the loss does not fall. A class whose
        next step would gain less than rounding takes it and stops.
        """
        coef = np.zeros(free.shape)  # where every regression has curvature, saturated or not
        resting = np.zeros(len(free), dtype=np.bool_)
        loss, gradient, curvature = self.sums(coef)
        for _ in range(STEPS):
            step = _newton_step(np.where(free, gradient, 0), curvature, free)
            step[resting] = 0
            gain = (np.where(free, gradient, 0) * step).sum(axis=1)
            resting |= gain < LEAST_GAIN
            tried, new = coef - step, self.sums(coef - step)
            for _ in range(HALVINGS):
                worse = ~resting & ~(new[0] <= loss)
                if not worse.any():
                    break
                step[worse] /= 2
                tried, new = coef - step, self.sums(coef - step)
            coef, (loss, gradient, curvature) = tried, new
            if resting.all():
                break
        return coef, np.where(resting & (loss >= SEPARATED), loss, np.inf)


def _check_settled(loss: Float64, *, smooth: bool) -> None:
    if not np.isinf(loss).any():
        return
    advice = (
        "Use another method."
        if smooth
        else "With smooth=False, classes that are absent or perfectly separable have no optimum. "
        "Use smooth=True."
    )
    number = int(np.argmax(np.isinf(loss)))
    raise ConvergenceError(f"The regression of class {number} did not converge. {advice}")


def _newton_step(gradient: Float64, curvature: Float64, free: Bool) -> Float64:
    """Curvature^-1 gradient of each class, over its free coefficients."""
    both = free[:, :, None] & free[:, None, :]
    eye = np.eye(free.shape[1])
    size = np.maximum(np.einsum("kff->k", curvature), TINY)[:, None, None]
    matrix = np.where(both, curvature, 0) + np.where(both, RIDGE * size, size) * eye
    step: Float64 = np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]
    return np.where(free, step, 0)


@dataclass(eq=False, repr=False, kw_only=True)
class Platt(_OneVsRest):
    """Platt scaling of each class's log-odds, then rows are normalised.

    Parameters
    ----------
    smooth
        Use Platt's targets (n + 1) / (n + 2) and 1 / (n + 2) instead of 1 and 0, so that an optimum
        exists for classes that are absent or perfectly separated.

    References
    ----------
    Platt (1999); Zadrozny and Elkan (2002), doi:10.1145/775047.775151.
    """

    num_features: ClassVar[int] = 2
    learned: ClassVar = {"coef_": ("K", 2)}

    def _features(self, ops: Any, z: Any) -> list[Any]:
        x = _log_odds(ops, z)
        return [x, x * 0.0 + 1.0]


@dataclass(eq=False, repr=False, kw_only=True)
class Beta(_OneVsRest):
    """Beta calibration of each class: log-odds a ln p - b ln(1 - p) + c with a, b >= 0.

    Parameters
    ----------
    smooth
        As in ``Platt``; False is the published method.

    References
    ----------
    Kull, Silva Filho and Flach (2017), doi:10.1214/17-EJS1338SI.
    """

    num_features: ClassVar[int] = 3
    learned: ClassVar = {"coef_": ("K", 3)}

    def _features(self, ops: Any, z: Any) -> list[Any]:
        log_p, log_rest = log_parts(ops, z)
        return [log_p, -log_rest, log_p * 0.0 + 1.0]

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        """The best of the four ways to hold a or b at 0 that keeps both from being negative.

        By convexity that is the constrained optimum.
        """
        if not self.smooth:
            apart = [np.inf if _told_apart(x, hit, weights) else 0.0 for x, hit in class_columns(p)]
            _check_settled(np.array(apart), smooth=False)
        fit = _Regressions(self, p, weights)
        free = np.ones((p.num_classes, 3), dtype=np.bool_)
        best, loss = fit.solve(free)
        bad = (best[:, :2] < 0).any(axis=1) | np.isinf(loss)
        loss = np.where(bad, np.inf, loss)
        for a, b in ((True, False), (False, True), (False, False)) if bad.any() else ():
            coef, tried = fit.solve(np.broadcast_to([a, b, True], free.shape))
            better = bad & (tried < loss) & (coef[:, :2] >= 0).all(axis=1)
            best[better], loss[better] = coef[better], tried[better]
        _check_settled(loss, smooth=self.smooth)
        self.coef_ = fit.raw(best)


@dataclass(eq=False, repr=False, kw_only=True)
class QuadraticScaling(_OneVsRest):
    """Quadratic scaling of each class: log-odds a x² + b x + c of the log-odds x.

    That is the log-odds of a class whose scores are normal with a variance of their own. The
    published method has two classes; with more, each is set against the rest and rows are
    normalised. A parabola turns: beyond the log-odds of the fit the curve stays level.

    Parameters
    ----------
    smooth
        As in ``Platt``; False is the published method.

    References
    ----------
    Berta, Holzmüller, Jordan and Bach (2025), arXiv:2511.03685; CalArena (2026), arXiv:2605.30188.
    """

    num_features: ClassVar[int] = 3
    learned: ClassVar = {"coef_": ("K", 3), "low_": ("K",), "high_": ("K",)}

    low_: Float64 = field(init=False)
    high_: Float64 = field(init=False)

    def _features(self, ops: Any, z: Any) -> list[Any]:
        return self._powers(_log_odds(ops, z))

    @staticmethod
    def _powers(x: Any) -> list[Any]:
        return [x * x, x, x * 0.0 + 1.0]

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        super()._learn(p, weights)
        counted = np.ones(p.num_samples, dtype=np.bool_) if weights is None else weights > 0

        def work(slices: Iterator[slice]) -> tuple[Float64, Float64]:
            low, high = np.full((2, p.num_classes), np.inf)
            for rows in slices:
                x = _log_odds(NumpyOps, logit_chunk(p, rows, np.dtype(np.float64)))
                here = counted[rows, None]
                low = np.minimum(low, np.where(here, x, np.inf).min(axis=0))
                high = np.minimum(high, np.where(here, -x, np.inf).min(axis=0))
            return low, -high

        lows, highs = zip(*over_chunks(work, *p.scores.shape), strict=True)
        self.low_, self.high_ = np.min(lows, axis=0), np.max(highs, axis=0)

    def check_learned(self) -> None:
        if not (self.low_ <= self.high_).all():
            raise InputError("low_ must not lie above high_.")

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        x = ops.minimum(ops.maximum(_log_odds(ops, z), learned.low_), learned.high_)
        return self._regressed(ops, self._powers(x), learned)


def _log_odds(ops: Any, z: Any) -> Any:
    log_p, log_rest = log_parts(ops, z)
    return log_p - log_rest


def _told_apart(probs: Float64, hit: Float64, weights: Float64 | None) -> bool:
    """Whether a rising curve can tell a class from the others: its loss then falls without end."""
    counts = np.ones(len(probs)) if weights is None else weights
    inside, outside = (probs[(hit == y) & (counts > 0)] for y in (1, 0))
    if not len(inside) or not len(outside):
        return True
    apart = inside.min() >= outside.max()
    return bool(apart and inside.max() > outside.min())
