"""Soft-binned ECE as a function of the temperature, and where it is least."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.calibrators._tempered import Tempered, mean
from calibrant.metrics._binned import norm_of_gaps
from calibrant.predictions import Predictions

SOFT_RANGE = (0.05, 20.0)
SOFT_POINTS = 200
FINE_ELEMENTS = 20_000_000
# Below this many scores float64 costs nothing.
SMALL_SCORES = 500_000


class EceSearch:
    """The best value of a grid without trying all of it.

    Any binned calibration error is at least |mean confidence - accuracy|, and the mean confidence
    falls as T rises. So from where the two cross, the search goes outward until that difference
    alone exceeds the best error found: nothing beyond can be better.
    """

    # In float32 a confidence near an edge may fall on its other side: what comes this close to
    # the best is done again in float64.
    CLOSE = 1e-4

    def __init__(
        self,
        p: Predictions,
        weights: Float64 | None,
        grid: Float64,
        error: Callable[[Float64, Float64, Float64], float],
        whole: Callable[[Predictions, float, Float64], tuple[Float64, float]] | None = None,
    ) -> None:
        dtype = np.dtype(np.float64 if p.scores.size < SMALL_SCORES else np.float32)
        self.rows, self.grid, self.error, self.whole = Tempered(p, dtype), grid, error, whole
        self.p = p
        self.correct = p.correct.astype(np.float64)
        self.weights = np.ones(p.num_samples) if weights is None else weights
        self.accuracy = mean(self.correct, weights)
        self.gap: dict[int, float] = {}
        self.found: dict[int, float] = {}

    def look(self, index: int) -> None:
        confidence, self.found[index] = self.at(self.rows, index)
        self.gap[index] = mean(confidence, self.weights) - self.accuracy

    def at(self, rows: Tempered, index: int) -> tuple[Float64, float]:
        """Confidences and error at a temperature of the grid."""
        if self.whole:
            return self.whole(self.p, float(self.grid[index]), self.weights)
        confidence = rows.confidence(1 / self.grid[index])
        return confidence, self.error(confidence, self.correct, self.weights)

    def crossing(self) -> int:
        """The last index at which the mean confidence is above the accuracy; -1 if none."""
        low, high = -1, len(self.grid)
        while high - low > 1:
            middle = (low + high) // 2
            self.look(middle)
            low, high = (middle, high) if self.gap[middle] > 0 else (low, middle)
        return low

    def explore(self) -> None:
        """Look at every temperature that can be the best."""
        start = self.crossing()
        for indices in (range(start, -1, -1), range(start + 1, len(self.grid))):
            for index in indices:
                if index not in self.found:
                    self.look(index)
                if abs(self.gap[index]) > min(self.found.values()) + self.CLOSE:
                    break

    def best_temperature(self) -> float:
        self.explore()
        least = min(self.found.values())
        close = sorted(i for i, value in self.found.items() if value <= least + self.CLOSE)
        exact = Tempered(self.p, np.dtype(np.float64))
        values = [self.at(exact, i)[1] for i in close]
        return float(self.grid[close[int(np.argmin(np.round(values, 12)))]])


def soft_binned_ece(
    confidence: Float64,
    correct: Float64,
    weights: Float64,
    *,
    bins: int,
    softness: float,
    norm: float,
    form: str,
) -> float:
    """SB-ECE of Karandikar et al. (2021), eq. 11 (``"bin"``) and 12 (``"label"``)."""
    centres = (np.arange(bins) + 0.5) / bins
    power = -((confidence[:, None] - centres) ** 2) / softness
    member = np.exp(power - power.max(axis=1, keepdims=True))
    member *= (weights / member.sum(axis=1))[:, None]
    size = member.sum(axis=0)
    there = np.maximum(size, np.finfo(np.float64).tiny)
    accuracy = member.T @ correct / there
    if form == "bin":
        gap = np.abs(accuracy - member.T @ confidence / there)
        return norm_of_gaps(size / weights.sum(), gap, norm)
    gap = np.abs(accuracy - confidence[:, None])
    return norm_of_gaps((member / weights.sum()).ravel(), gap.ravel(), norm)


def least_soft_ece(
    p: Predictions,
    weights: Float64 | None,
    error: Callable[[Float64, Float64, Float64], float],
) -> float:
    """The global optimum: the same bound narrows the range, a dense grid and Brent do the rest."""
    from scipy.optimize import minimize_scalar

    coarse = np.geomspace(*SOFT_RANGE, SOFT_POINTS)
    search = EceSearch(p, weights, coarse, error)
    search.explore()
    rows = Tempered(p)

    def at(log_t: float) -> float:
        return error(rows.confidence(math.exp(-log_t)), search.correct, search.weights)

    # By the bound the best of these is among those near; but for rounding.
    least = min(search.found.values())
    near = [i for i in search.found if abs(search.gap[i]) <= least] or list(search.found)
    low = math.log(coarse[max(min(near) - 1, 0)])
    high = math.log(coarse[min(max(near) + 1, SOFT_POINTS - 1)])
    # As fine as the size of the data lets us: nearly hard bins make a rugged curve.
    points = int(np.clip(FINE_ELEMENTS // p.scores.size, 64, 1000))
    fine = np.linspace(low, high, points)
    values = np.array([at(x) for x in fine])
    best = (float(values.min()), float(fine[values.argmin()]))
    for k in np.argsort(values)[:3]:
        around = fine[max(k - 1, 0)], fine[min(k + 1, len(fine) - 1)]
        found = minimize_scalar(at, bounds=around, method="bounded", options={"xatol": 1e-10})
        best = min(best, (float(found.fun), float(found.x)))
    return math.exp(best[1])
