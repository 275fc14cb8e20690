"""Kernel calibration: beta kernels around the probabilities of the fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from calibrant._core.arrays import Float64, Int, one_blas_thread
from calibrant._core.checks import InputError, check_choice, check_positive
from calibrant.calibrators._columns import class_columns, confidence_column
from calibrant.calibrators._isotonic import PiecewiseLinear
from calibrant.calibrators._plain import CONFIDENCE_ONLY
from calibrant.predictions import Confidences, Predictions

# Log-odds of the points at which the curve is kept, and the probabilities there.
LARGEST, PER_UNIT = 16, 10
NODES = 1 / (1 + np.exp(-np.linspace(-LARGEST, LARGEST, 2 * LARGEST * PER_UNIT + 1)))
BANDWIDTHS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
# Kernels that sum to less say nothing: the map is linear across such a gap.
EMPTY = 1e-100


@dataclass(eq=False, repr=False, kw_only=True)
class KernelCalibration(PiecewiseLinear):
    """Kernel calibration: the accuracy of samples of about the same confidence, by beta kernels.

    The calibrated confidence is a weighted average over the samples of the fit, 1 where the
    prediction was right (Nadaraya-Watson): at x, a sample with confidence s has the weight of the
    beta distribution with parameters s / h + 1 and (1 - s) / h + 1. The curve is kept at 321 points
    whose log-odds are 0.1 apart, between which samples are shared out, and is linear between them.
    It stays 1 / (2 N + 2) away from 0 and 1.

    Parameters
    ----------
    bandwidth
        The bandwidth h, above 0, or ``"loo"``: of 0.00001 … 1 the one with the least log loss when
        each sample is left out in turn.
    target
        ``"top"``: the confidence in the predicted class, which is kept; the other classes share the
        rest in their old proportions. ``"class"``: each class separately, with one bandwidth, then
        rows are normalised.

    References
    ----------
    Popordanoska, Sayer and Blaschko (2022), arXiv:2210.07810; Chen (1999),
    doi:10.1016/S0167-9473(99)00010-9.
    """

    bandwidth: float | Literal["loo"] = "loo"
    target: Literal["top", "class"] = "top"

    learned: ClassVar = {**PiecewiseLinear.learned, "bandwidth_": ()}

    bandwidth_: float = field(init=False)

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """With ``target="top"``."""
        return self.target == "top"

    def check(self) -> None:
        check_choice("target", self.target, ("top", "class"))
        if self.bandwidth != "loo":
            check_positive("bandwidth", self.bandwidth, example=0.01)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        if self.target == "top":
            columns = iter([(confidence_column(p), p.correct.astype(np.float64))])
        else:
            columns = class_columns(p)
        self._learn_curves(columns, np.ones(p.num_samples) if weights is None else weights)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        w = np.ones(c.num_samples) if weights is None else weights
        self._learn_curves(iter([(c.confidence, c.correct.astype(np.float64))]), w)

    def map_confidence(self, confidence: Float64) -> Float64:
        """The curve at these confidences."""
        return self._at(confidence)

    def _learn_curves(self, columns: Iterator[tuple[Float64, Float64]], w: Float64) -> None:
        found = [(_at_nodes(x, hit, w), _nearest_nodes(x, hit, w)) for x, hit in columns]
        between, nearest = (np.stack(part, axis=2) for part in zip(*found, strict=True))
        least = 1 / (2 * float(w.sum()) + 2)
        with one_blas_thread():
            if self.bandwidth == "loo":
                self.bandwidth_ = min(BANDWIDTHS, key=lambda h: _left_out(h, nearest, least))
            else:
                self.bandwidth_ = float(self.bandwidth)
            near, right = beta_kernels(self.bandwidth_) @ between
        known = near > EMPTY
        values = np.clip(right / np.maximum(near, EMPTY), least, 1 - least)
        self._set([(NODES[some], y[some]) for some, y in zip(known.T, values.T, strict=True)])

    def check_learned(self) -> None:
        super().check_learned()
        alone = self.num_classes_ == CONFIDENCE_ONLY
        rows = 1 if self.target == "top" or alone else self.num_classes_
        if not self.bandwidth_ > 0 or len(self.knots_) != rows:
            raise InputError(
                "bandwidth_ must be above 0 and knots_ have one row, or one per class."
            )

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        if self.target == "top":
            return self._of_the_top(ops, z, learned)
        return self._of_each_class(ops, z, learned)


def _places(x: Float64) -> Float64:
    """Places among the nodes, in log-odds."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(x) - np.log1p(-x)
    places: Float64 = (np.clip(log_odds, -LARGEST, LARGEST) + LARGEST) * PER_UNIT
    return places


def _at_nodes(x: Float64, hit: Float64, weights: Float64) -> Float64:
    """Samples, and hits among them, shared out between the nodes on both sides: means are kept."""
    low = np.minimum(_places(x).astype(np.int64), len(NODES) - 2)
    share: Float64 = np.clip((x - NODES[low]) / (NODES[low + 1] - NODES[low]), 0, 1)
    return _counted(low, hit, weights * (1 - share)) + _counted(low + 1, hit, weights * share)


def _nearest_nodes(x: Float64, hit: Float64, weights: Float64) -> Float64:
    """The same at the nearest node alone, where a sample can be left out."""
    return _counted(np.rint(_places(x)).astype(np.int64), hit, weights)


def _counted(number: Int, hit: Float64, weights: Float64) -> Float64:
    return np.stack([np.bincount(number, w, len(NODES)) for w in (weights, weights * hit)])


@lru_cache(len(BANDWIDTHS))
def beta_kernels(bandwidth: float) -> Float64:
    """The kernel of a sample at each node (columns), at each node (rows)."""
    from scipy.special import betaln

    a, b = NODES / bandwidth, (1 - NODES) / bandwidth
    log_kernel = np.outer(np.log(NODES), a) + np.outer(np.log1p(-NODES), b) - betaln(a + 1, b + 1)
    # Ratios along a row are all that matters.
    kernel: Float64 = np.exp(log_kernel - log_kernel.max(axis=1, keepdims=True))
    return kernel


def _left_out(bandwidth: float, samples: Float64, least: float) -> float:
    """Log loss of all samples and classes, each sample judged by the others."""
    count, hits = samples
    kernel = beta_kernels(bandwidth)
    own = np.diagonal(kernel)[:, None]
    near, right = np.maximum(kernel @ count - own, EMPTY), kernel @ hits
    of_hits = np.clip((right - own) / near, least, 1 - least)
    of_others = np.clip(right / near, least, 1 - least)
    loss = hits * np.log(of_hits) + (count - hits) * np.log1p(-of_others)
    return -float(loss.sum())
