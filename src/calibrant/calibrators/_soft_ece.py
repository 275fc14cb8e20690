"""Soft-binned ECE as a function of the temperature, and where it is least."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.calibrators._tempered import Tempered, mean
from calibrant.metrics._binned import norm_of_gaps
from calibrant.predictions import Predictions

SOFT_RANGE = (0.05, 20.0)
SOFT_POINTS = 200
FINE_ELEMENTS = 20_000_000
# Most points at which steps with a jump inside are halved, and valleys searched to the bottom.
MOST_POINTS = 10_000
MOST_VALLEYS = 8
# A sample moves far if it moves by more than this fraction of a bin.
FAR = 0.25
# With fewer scores than this, float64 costs next to nothing.
SMALL_SCORES = 500_000


class EceSearch:
    """The best value of a grid without trying all of it.

    Any binned calibration error is at least |mean confidence - accuracy|, and the mean confidence
    falls as T rises. So from where the two cross, the search goes outward until that difference
    alone exceeds the best error found: nothing beyond can be better.
    """

    # In float32 a confidence near an edge may fall on its other side: what comes this close to
    # the best is recomputed in float64.
    CLOSE = 1e-4
    # With few samples calls cost more than sums: so many temperatures are evaluated together.
    TOGETHER, TOGETHER_ELEMENTS = 16, 100_000

    def __init__(
        self,
        p: Predictions,
        weights: Float64 | None,
        grid: Float64,
        error: Callable[[Float64, Float64, Float64], Float64],
        whole: Callable[[Predictions, float, Float64], tuple[Float64, float]] | None = None,
    ) -> None:
        dtype = np.dtype(np.float64 if p.scores.size < SMALL_SCORES else np.float32)
        self.rows, self.grid, self.error, self.whole = Tempered(p, dtype), grid, error, whole
        self.p = p
        self.correct = p.correct.astype(np.float64)
        self.weights = np.ones(p.num_samples) if weights is None else weights
        self.accuracy = mean(self.correct, weights)
        affordable = self.TOGETHER_ELEMENTS // p.num_samples
        self.together = 1 if whole else int(np.clip(affordable, 1, self.TOGETHER))
        self.gap: dict[int, float] = {}
        self.found: dict[int, float] = {}

    def look(self, indices: Sequence[int]) -> None:
        """Evaluate temperatures of the grid that were not evaluated yet."""
        new = [index for index in indices if index not in self.found]
        if new:
            confidence, errors = self.at(self.rows, new)
            self.found.update(zip(new, errors.tolist(), strict=True))
            gaps = (mean(row, self.weights) - self.accuracy for row in confidence)
            self.gap.update(zip(new, gaps, strict=True))

    def at(self, rows: Tempered, indices: Sequence[int]) -> tuple[Float64, Float64]:
        """Confidences, a row per temperature of the grid, and the error of each."""
        if self.whole:
            found = [self.whole(self.p, float(self.grid[i]), self.weights) for i in indices]
            return np.stack([row for row, _ in found]), np.array([value for _, value in found])
        confidence = np.stack([rows.confidence(1 / self.grid[i]) for i in indices])
        return confidence, self.error(confidence, self.correct, self.weights)

    def crossing(self) -> int:
        """The last index at which the mean confidence is above the accuracy; -1 if none."""
        low, high = -1, len(self.grid)
        while high - low > 1:
            middle = (low + high) // 2
            self.look([middle])
            low, high = (middle, high) if self.gap[middle] > 0 else (low, middle)
        return low

    def explore(self) -> None:
        """Evaluate every temperature that can be the best."""
        start = self.crossing()
        for outward in (range(start, -1, -1), range(start + 1, len(self.grid))):
            for first in range(0, len(outward), self.together):
                indices = outward[first : first + self.together]
                self.look(indices)
                if abs(self.gap[indices[-1]]) > min(self.found.values()) + self.CLOSE:
                    break

    def best_temperature(self) -> float:
        self.explore()
        least = min(self.found.values())
        close = sorted(i for i, value in self.found.items() if value <= least + self.CLOSE)
        exact = Tempered(self.p, np.dtype(np.float64))
        values = [float(self.at(exact, [i])[1][0]) for i in close]
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
    member = _members(confidence, bins, softness)
    member *= (weights / member.sum(axis=1))[:, None]
    size = member.sum(axis=0)
    there = np.maximum(size, np.finfo(np.float64).tiny)
    accuracy = member.T @ correct / there
    if form == "bin":
        gap = np.abs(accuracy - member.T @ confidence / there)
        return norm_of_gaps(size / weights.sum(), gap, norm)
    gap = np.abs(accuracy - confidence[:, None])
    return norm_of_gaps((member / weights.sum()).ravel(), gap.ravel(), norm)


def _members(confidence: Float64, bins: int, softness: float) -> Float64:
    """Membership of each confidence in each bin, relative to that in its nearest bin."""
    centres = (np.arange(bins) + 0.5) / bins
    power = -((confidence[:, None] - centres) ** 2) / softness
    member: Float64 = np.exp(power - power.max(axis=1, keepdims=True))
    return member


def least_soft_ece(
    p: Predictions,
    weights: Float64 | None,
    error: Callable[[Float64, Float64, Float64], float],
    *,
    bins: int,
    softness: float,
) -> float:
    """The global optimum: the same bound narrows the range, a dense grid and Brent do the rest."""
    coarse = np.geomspace(*SOFT_RANGE, SOFT_POINTS)

    def errors(confidence: Float64, *samples: Float64) -> Float64:
        return np.array([error(row, *samples) for row in confidence])

    search = EceSearch(p, weights, coarse, errors)
    search.explore()
    # By the bound the best of these is among those near; but for rounding.
    least = min(search.found.values())
    near = [i for i in search.found if abs(search.gap[i]) <= least] or list(search.found)
    low = math.log(coarse[max(min(near) - 1, 0)])
    high = math.log(coarse[min(max(near) + 1, SOFT_POINTS - 1)])
    rows = Tempered(p)

    def look(log_t: float) -> tuple[float, Float64]:
        confidence = rows.confidence(math.exp(-log_t))
        return error(confidence, search.correct, search.weights), confidence

    affordable = FINE_ELEMENTS // p.scores.size
    curve = Curve(look, bins, softness)
    curve.scan(np.linspace(low, high, int(np.clip(affordable, 64, 256))))
    curve.refine(min(affordable, MOST_POINTS))
    return math.exp(curve.least())


def mean_bin(confidence: Float64, bins: int, softness: float) -> Float64:
    """The mean bin of each confidence under its soft membership: a rising function."""
    member = _members(confidence, bins, softness)
    mean: Float64 = member @ np.arange(bins) / member.sum(axis=1)
    return mean


class Curve:
    """A rugged function of one variable, looked at as closely as it is rugged.

    The nearly hard bins of a small softness make it jump where a confidence passes from one bin to
    the next. ``look`` gives the value and the confidences, which fall as T rises: between two
    points where no sample moves far through the bins, there is no hidden jump.
    """

    def __init__(
        self, look: Callable[[float], tuple[float, Float64]], bins: int, softness: float
    ) -> None:
        self.look, self.bins, self.softness = look, bins, softness
        self.found: dict[float, float] = {}
        self.jumps: list[tuple[float, float, float]] = []

    def _see(self, x: float) -> Float64:
        self.found[x], confidence = self.look(x)
        return confidence

    def _far(self, a: Float64, b: Float64) -> bool:
        """Whether a sample moves far. The slope of the mean bin is 2 variance / (softness bins)."""
        steepest = 1 / (2 * self.softness * self.bins) + self.bins
        if np.abs(a - b).max() * steepest <= FAR:
            return False
        places = (mean_bin(c, self.bins, self.softness) for c in (a, b))
        return bool(np.abs(next(places) - next(places)).max() > FAR)

    def scan(self, grid: Float64) -> None:
        """Look at the grid, and note the steps in which a sample moves far."""
        last: tuple[float, Float64] | None = None
        for x in map(float, grid):
            confidence = self._see(x)
            if last is not None and self._far(last[1], confidence):
                self.jumps.append((min(self.found[x], self.found[last[0]]), last[0], x))
            last = x, confidence

    def refine(self, budget: int) -> None:
        """Halve the noted steps, the most promising first, until no sample moves far in one."""
        most = len(self.found) + budget
        for _, low, high in sorted(self.jumps):
            if len(self.found) >= most:
                break
            steps = [((low, self._see(low)), (high, self._see(high)))]
            while steps and len(self.found) < most:
                left, right = steps.pop()
                x = (left[0] + right[0]) / 2
                if not left[0] < x < right[0]:
                    continue
                middle = x, self._see(x)
                halves = (left, middle), (middle, right)
                steps += [h for h in halves if self._far(h[0][1], h[1][1])]

    def least(self) -> float:
        """Where it is least, by Brent's method around the lowest of the points seen."""
        from scipy.optimize import minimize_scalar

        x = np.array(sorted(self.found))
        y = np.array([self.found[v] for v in x])
        padded = np.concatenate([[np.inf], y, [np.inf]])
        valleys = np.flatnonzero((y <= padded[:-2]) & (y <= padded[2:]))
        best = (float(y.min()), float(x[y.argmin()]))
        for k in valleys[np.argsort(y[valleys], kind="stable")][:MOST_VALLEYS]:
            around = x[max(k - 1, 0)], x[min(k + 1, len(x) - 1)]
            found = minimize_scalar(
                lambda v: self.look(v)[0], bounds=around, method="bounded", options={"xatol": 1e-10}
            )
            best = min(best, (float(found.fun), float(found.x)))
        return best[1]
