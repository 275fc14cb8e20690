"""Temperature scaling: softmax(z / T)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from calibrant._core.arrays import Float64, to_floats
from calibrant._core.checks import (
    CalibrationWarning,
    InputError,
    check_bins,
    check_choice,
    check_norm,
    check_positive,
    is_number,
    refuse,
)
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._columns import counts
from calibrant.calibrators._scores import logit_spread
from calibrant.calibrators._soft_ece import EceSearch, least_soft_ece, soft_binned_ece
from calibrant.calibrators._tempered import Tempered, mean
from calibrant.metrics._binned import ece
from calibrant.metrics._binning import Binning, BinSums, width_index
from calibrant.metrics._sample import Sample
from calibrant.predictions import Predictions

WANG_GRID = np.arange(1, 1001) / 100
MUKHOTI_GRID = np.arange(1, 101) / 10
BOUNDS = (0.01, 100.0)
# Rows of the sample from which the search starts.
SAMPLE_ROWS = 2000
# Newton's decrement, the square of a step in units of the NLL, after which to stop: the error left
# is about its square. Sums in float32 carry no more digits, and a start needs few.
SMALL_DECREMENT, SMALL_IN_FLOAT32, SMALL_FOR_START = 1e-12, 1e-8, 1e-6


@dataclass(eq=False, repr=False, kw_only=True)
class TemperatureScaling(Calibrator):
    r"""Temperature scaling: all logits are divided by one number T. Keeps every predicted class.

    Parameters
    ----------
    objective
        ``"nll"``: the temperature that minimises the negative log-likelihood, exactly. ``"ece"``:
        the value of ``grid`` with the lowest ECE (the first in a tie). ``"soft_ece"``: the
        temperature in 0.05 … 20 with the lowest soft-binned ECE (TS-SB-ECE).
    temperature
        A fixed T; ``fit`` is then not needed.
    grid
        Temperatures tried by ``"ece"``: ``"wang2021"`` (0.01, 0.02 … 10), ``"mukhoti2020"``
        (0.1, 0.2 … 10), or a rising list.
    bins, norm, binning
        Settings of the ECE. ``norm`` defaults to 1 for ``"ece"`` and 2 for ``"soft_ece"``.
    softness, form
        Settings of the soft-binned ECE: bin membership is softmax(-(c - centre)² / softness), and
        ``form`` is ``"bin"`` (eq. 11) or ``"label"`` (eq. 12).
    bounds
        The range of T for ``"nll"``. Where the likelihood keeps rising towards T = 0 (every
        prediction is right) or T = infinity (labels unrelated to the logits), no optimum exists:
        the bound is used, with a CalibrationWarning.

    Constant logits carry no information about T, which is then 1.

    References
    ----------
    Guo et al. (2017), arXiv:1706.04599; grids: Wang et al. (2021), Mukhoti et al. (2020),
    arXiv:2002.09437; soft_ece: Karandikar et al. (2021), arXiv:2108.00106.

    >>> from calibrant import Predictions
    >>> p = Predictions(logits=[[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]], labels=[0, 1, 1])
    >>> c = TemperatureScaling().fit(p)
    >>> round(c.temperature_, 4), c.transform(p).confidence.round(4)
    (5.7708, array([0.6667, 0.6667, 0.6667]))
    """

    objective: Literal["nll", "ece", "soft_ece"] = "nll"
    temperature: float | None = None
    grid: str | Sequence[float] = "wang2021"
    bins: int = 15
    norm: float | None = None
    binning: Binning = "width"
    softness: float = 0.01
    form: Literal["bin", "label"] = "bin"
    bounds: tuple[float, float] = BOUNDS

    keeps_argmax = True
    steady = True
    of_confidences = True
    learned: ClassVar = {"temperature_": ()}

    temperature_: float = field(init=False)

    def __post_init__(self) -> None:
        if self.temperature is not None:  # nothing to learn
            self._fix()

    def _fix(self) -> None:
        self.temperature_ = check_positive("temperature", self.temperature or 0, example=1.5)
        self.num_classes_, self.classes_ = None, None

    def check(self) -> None:
        check_choice("objective", self.objective, ("nll", "ece", "soft_ece"))
        check_choice("form", self.form, ("bin", "label"))
        check_choice("binning", self.binning, ("width", "mass"))
        check_bins(self.bins)
        check_positive("softness", self.softness, example=0.01)
        if self.norm is not None:
            check_norm(self.norm)
        self._check_bounds()
        self._grid()

    def _check_bounds(self) -> None:
        pair = isinstance(self.bounds, (tuple, list)) and len(self.bounds) == 2  # noqa: PLR2004
        fine = pair and all(map(is_number, self.bounds))
        if not fine or not 0 < self.bounds[0] < self.bounds[1] < math.inf:
            rule, advice = "must be two increasing numbers above 0", "Try (0.01, 100)."
            raise refuse("bounds", rule, f"got {self.bounds!r}", advice)

    def _grid(self) -> Float64:
        if isinstance(self.grid, str):
            check_choice("grid", self.grid, ("wang2021", "mukhoti2020"))
            return WANG_GRID if self.grid == "wang2021" else MUKHOTI_GRID
        grid = to_floats(self.grid, "grid").astype(np.float64)
        rising = grid.ndim == 1 and len(grid) and grid[0] > 0 and (np.diff(grid) > 0).all()
        if not rising or not np.isfinite(grid[-1]):
            rule, advice = (
                "must be an increasing list of temperatures above 0",
                "Try [0.5, 1, 1.5].",
            )
            raise refuse("grid", rule, f"got {self.grid!r}", advice)
        return grid

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        if self.temperature is not None:
            self._fix()
        elif self.objective == "nll":
            advice = "fit on more samples, widen bounds=…, or set temperature=…"
            self.temperature_ = nll_temperature(p, weights, self.bounds, advice)
        elif self.objective == "ece":
            look = self._mass_ece if self.binning == "mass" else None
            search = EceSearch(p, weights, self._grid(), self._width_ece, look)
            self.temperature_ = search.best_temperature()
        else:
            self.temperature_ = least_soft_ece(
                p, weights, self._soft_ece, bins=self.bins, softness=self.softness
            )

    def _width_ece(self, confidence: Float64, correct: Float64, weights: Float64) -> Float64:
        """ECE of each row of confidences, all of the same samples."""
        rows = len(confidence)
        index = width_index(confidence.ravel(), self.bins).reshape(confidence.shape)
        index += self.bins * np.arange(rows)[:, None]
        count, total, right = (
            np.bincount(index.ravel(), column.ravel(), rows * self.bins)
            .astype(np.float64)
            .reshape(rows, self.bins)
            for column in np.broadcast_arrays(weights, weights * confidence, weights * correct)
        )
        norm = 1 if self.norm is None else self.norm
        sums = BinSums(count, total, right, np.arange(self.bins + 1))
        return np.atleast_1d(ece(sums, norm=norm))

    def _mass_ece(self, p: Predictions, t: float, weights: Float64) -> tuple[Float64, float]:
        """Confidences and ECE; the metric ranks by odds, which differ where confidences are 1."""
        q = TemperatureScaling(temperature=t).transform(p)
        sample = Sample.of(q).reweighted(counts(weights)[q.order])
        norm = 1 if self.norm is None else self.norm
        return q.confidence, ece(sample, bins=self.bins, norm=norm, binning="mass")

    def _soft_ece(self, confidence: Float64, correct: Float64, weights: Float64) -> float:
        norm = 2 if self.norm is None else self.norm
        return soft_binned_ece(
            confidence,
            correct,
            weights,
            bins=self.bins,
            softness=self.softness,
            norm=norm,
            form=self.form,
        )

    def check_learned(self) -> None:
        check_positive("temperature_", self.temperature_, example=1.5)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:  # noqa: ARG002 - shared signature
        return z / learned.temperature_

    def _as_affine(self) -> tuple[Float64, Float64]:
        if self.num_classes_ is None:
            raise InputError("fold_into needs the number of classes: call fit, or use to_module().")
        return np.eye(self.num_classes_) / self.temperature_, np.zeros(self.num_classes_)


def nll_temperature(
    p: Predictions,
    weights: Float64 | None,
    bounds: tuple[float, float] = BOUNDS,
    advice: str = "fit on more samples",
    sharpest: float | None = None,
) -> float:
    """The temperature of least mean NLL, which is convex in beta = 1 / T.

    A sample of the rows gives the starting point; two or three passes over all rows follow, rarely
    more. Where the optimum lies beyond the bounds, the bound is taken and a warning says so; where
    every prediction is right, ``sharpest`` is taken instead of the lower bound.
    """
    rows = Tempered(p)
    if _all_right(rows, weights):
        why = "every label is the predicted class, so the NLL has no minimum above T = 0"
        lowest = bounds[0] if sharpest is None else sharpest
        _warn_bound(lowest, why, advice)
        return lowest
    limits = (1 / bounds[1], 1 / bounds[0])
    start = _start(p, weights, limits) if p.num_samples > 4 * SAMPLE_ROWS else 1.0
    enough = SMALL_DECREMENT if rows.dtype == np.float64 else SMALL_IN_FLOAT32
    beta = _least(lambda x: rows.slope(x, weights), start, limits, enough)
    if beta <= limits[0] * (1 + 1e-9):
        why = "the logits carry little or no information about the labels"
        if p.kind == "probs" and not p.scores[np.arange(p.num_samples), p.labels].all():
            why = "some labels have probability 0, which no temperature changes"
            advice = "methods such as beta and isotonic can be fitted"
        _warn_bound(bounds[1], why, advice)
        return bounds[1]
    if beta >= limits[1] * (1 - 1e-9):
        _warn_bound(bounds[0], "the logits are far too small", advice)
        return bounds[0]
    return 1 / beta


def _start(p: Predictions, weights: Float64 | None, limits: tuple[float, float]) -> float:
    """The beta of least NLL by a sample of the rows.

    Where the columns are known, so is the slope over all rows at beta = 1: the mean of NLL minus
    entropy. What it differs by from that of the sample is taken off at every beta.
    """
    index = np.arange(0, p.num_samples, p.num_samples // SAMPLE_ROWS)
    few = Tempered(p.take(index))
    some = None if weights is None else weights[index]
    slope_of_few = cache(lambda beta: few.slope(beta, some))
    off = 0.0
    if p.swept and p.kind == "logits":
        off = slope_of_few(1.0)[0] + mean(p.label_log_prob + p.entropy, weights)

    def slope(beta: float) -> tuple[float, float]:
        first, second = slope_of_few(beta)
        return first - off, second

    return _least(slope, 1.0, limits, SMALL_FOR_START)


def bounds_for(p: Predictions) -> tuple[tuple[float, float], float]:
    """Bounds that follow the scale of the logits, so that their unit does not matter.

    They are wide, since a few rows can set the scale. At the last temperature given, the one to
    take where no T above 0 is best, a typical row is all but certain.
    """
    spread = logit_spread(p) or 1.0
    return (spread * 1e-8, spread * 1e6), spread / 100


def _all_right(rows: Tempered, weights: Float64 | None) -> bool:
    """Whether each label has the largest logit, and some other class a smaller one."""
    right = rows.label >= rows.top
    if not (right if weights is None else right | (weights == 0)).all():
        return False
    return rows.slope(1e-30, weights)[0] < 0


def _least(
    slope: Callable[[float], tuple[float, float]],
    beta: float,
    limits: tuple[float, float],
    enough: float,
) -> float:
    """Zero of a rising slope by Newton's method on beta, kept inside a shrinking bracket.

    Ends at a limit where the zero lies beyond it.
    """
    low, high = limits
    beta = min(max(beta, low), high)
    while high > low * (1 + 1e-14):
        first, second = slope(beta)
        if first == 0 and second == 0:  # flat: constant logits
            return beta
        low, high = (beta, high) if first < 0 else (low, beta)
        new = beta - first / second if second > 0 else math.nan
        if first * first < enough * second and low <= new <= high:
            return new
        beta = new if low < new < high else math.sqrt(low * high)
    return beta


def _warn_bound(bound: float, why: str, advice: str) -> None:
    warnings.warn(
        f"The temperature that minimises NLL lies outside its bounds: {why}. "
        f"T = {bound:.3g} is used; {advice}.",
        CalibrationWarning,
        stacklevel=5,
    )
