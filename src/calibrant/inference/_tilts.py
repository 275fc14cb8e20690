"""Tilted probabilities of all classes: what labels could follow instead of the stated ones.

With K classes and B bins there are K·B cells of class and bin, most of them with few samples, so
their observed gaps are mostly noise. A tilt is therefore built from what can be told:

1. what all classes share, by maximum likelihood: one log-factor per bin and, where the first bin
   holds most of the probability, the slope of a further one in log p;
2. of what each cell deviates from that, the part that exceeds its sampling noise.

With very many classes nearly all probabilities lie in the first bin, though they differ by orders
of magnitude: labels of a model at half its temperature follow p² there, and a single factor would
leave them at p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from calibrant._core.arrays import Float64, Int, in_order
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_draws import row_cells, tilted
from calibrant._core.row_summary import log_normalise, snapped
from calibrant.metrics._binning import width_index
from calibrant.predictions import Predictions

# Half a pseudo-count keeps the factor of a bin without a single hit above 0.
RIDGE = 0.5
# A deviation counts from one standard deviation of the noise on; factors stay within these.
LEAST_FACTOR, MOST_FACTOR = 0.02, 50.0
# Share of all probability from which the first bin has a slope.
DOMINANT = 0.75
# The slope is fitted to the probability in levels of a quarter of a nat; the last one is open.
LEVELS, LEVELS_PER_NAT = 64, 4
NEWTON_STEPS, LARGEST_STEP, SMALLEST_STEP = 50, 2.0, 1e-6

Result = TypeVar("Result")


@dataclass(frozen=True)
class RowCells:
    """Sums over the samples of each class and bin, and each row's probability in each bin."""

    count: Float64
    prob: Float64
    hits: Float64
    mass: Float64

    @classmethod
    def of(cls, p: Predictions, bins: int) -> RowCells:
        """Count the rows."""
        size = p.num_classes * bins
        count, prob, hits = np.zeros((3, size))
        mass = np.empty((p.num_samples, bins))

        def add_up(rows: slice, probs: Float64, cell: Int) -> tuple[Any, ...]:
            flat, weight = cell.ravel(), probs.ravel()
            number = np.arange(len(probs))
            by_bin = (number[:, None] * bins + cell % bins).ravel()
            mass[rows] = np.bincount(by_bin, weight, len(probs) * bins).reshape(-1, bins)
            return (
                np.bincount(flat, minlength=size),
                np.bincount(flat, weight, size),
                np.bincount(cell[number, p.labels[rows]], minlength=size),
            )

        for some_count, some_prob, some_hits in over_rows(p, bins, add_up):
            count += some_count
            prob += some_prob
            hits += some_hits
        shape = (p.num_classes, bins)
        return cls(count.reshape(shape), prob.reshape(shape), hits.reshape(shape), mass)

    @property
    def crowded(self) -> bool:
        """Whether the first bin holds most of the probability."""
        return float(self.mass[:, 0].mean()) >= DOMINANT


def over_rows(
    p: Predictions, bins: int, work: Callable[[slice, Float64, Int], Result], columns: int = 1
) -> Iterator[Result]:
    """Yield what ``work`` makes of chunks of rows, from the first to the last.

    It is given the rows, their probabilities, and the cell (class * bins + bin) of each.
    """
    first = np.arange(p.num_classes) * bins
    compiled = compiled_rows()
    total = None if p.row_sums is None else snapped(p.row_sums)

    def chunk(rows: slice) -> Result:
        if compiled is not None:
            sums = None if total is None else total[rows]
            return work(rows, *row_cells(compiled, p.scores[rows], sums, bins))
        probs = np.exp(log_normalise(p.scores[rows].astype(np.float64), p.kind))
        index = width_index(probs.ravel(), bins).reshape(probs.shape)
        return work(rows, probs, index + first)

    chunks = in_order(chunk, p.num_samples, max(p.num_classes, columns))
    return (result for _, result in chunks)


@dataclass(frozen=True)
class Tilt:
    """Probabilities q ∝ p · factor(cell), in the first bin also · e^(slope · depth(p)).

    ``depth`` is log p relative to ``middle``, and not below the last of the levels.
    """

    factor: Float64
    slope: float = 0.0
    middle: float = 0.0

    def of(self, probs: Float64, cell: Any) -> Float64:
        """Tilt rows of probabilities, given their cells."""
        compiled, bins = compiled_rows(), self.factor.shape[1]
        if compiled is not None:
            slope = self.slope, self.middle, _least_prob(bins)
            return tilted(compiled, probs, cell, self.factor, slope)
        weight = probs * self.factor.ravel()[cell]
        if self.slope:
            inside = cell % bins == 0
            weight[inside] *= np.exp(self.slope * (_logs(probs[inside], bins) - self.middle))
        return normalised(weight)


def normalised(weight: Float64) -> Float64:
    """Rows that add up to 1."""
    rows: Float64 = weight / weight.sum(axis=1, keepdims=True)
    return rows


def fitted_tilt(p: Predictions, cells: RowCells) -> Tilt:
    """The tilt of the data: what classes share, then what cells have of their own."""
    shared = shared_tilt(p, cells)
    return replace(shared, factor=shared.factor * _own_factors(p, cells, shared))


def shared_tilt(p: Predictions, cells: RowCells) -> Tilt:
    """The likeliest tilt that is the same for all classes."""
    bins, hits = cells.mass.shape[1], cells.hits.sum(axis=0)
    slope, middle = 0.0, 0.0
    if cells.crowded:
        mass, at_level = _by_level(p, bins)
        depth = _level_logs(bins)
        middle = float(mass.sum(axis=0) @ depth / mass.sum())
        design = np.zeros((LEVELS + bins - 1, bins + 1))
        design[:LEVELS, 0], design[:LEVELS, bins] = 1, depth - middle
        design[LEVELS:, 1:bins] = np.eye(bins - 1)
        mass, hits = np.hstack([mass, cells.mass[:, 1:]]), np.concatenate([at_level, hits[1:]])
        found = _likeliest(mass, hits, design)
        logs, slope = found[:bins], float(found[bins])
    else:
        logs = _likeliest(cells.mass, hits)
    return Tilt(np.exp(logs)[None, :] * np.ones((p.num_classes, 1)), slope, middle)


def _likeliest(mass: Float64, hits: Float64, given: Float64 | None = None) -> Float64:
    """Parameters whose log-factors ``design @ x`` make the labels likeliest, by Newton's method.

    Without a design they are the log-factors themselves.

    Row i has a label in part b of its probability with the probability mass_ib · factor_b / sum,
    so the gradient by a log-factor is the number of labels there minus the number expected.
    """
    design = np.eye(len(hits)) if given is None else given
    x = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        q = mass * np.exp(design @ x)
        q /= q.sum(axis=1, keepdims=True)
        expected = q.sum(axis=0)
        spread = q if given is None else q @ design
        curvature = design.T * expected @ design + RIDGE * np.eye(len(x)) - spread.T @ spread
        step = np.linalg.solve(curvature, design.T @ (hits - expected) - RIDGE * x)
        largest = float(np.abs(step).max())
        x += step * min(1.0, LARGEST_STEP / largest) if largest else 0.0
        if largest < SMALLEST_STEP:
            break
    return x


def _logs(probs: Float64, bins: int) -> Float64:
    """Log-probabilities in the first bin, not below the open level."""
    return np.log(np.maximum(probs, _least_prob(bins)))


def _least_prob(bins: int) -> float:
    """Where the open level begins."""
    return math.exp(-math.log(bins) - LEVELS / LEVELS_PER_NAT)


def _level_logs(bins: int) -> Float64:
    """The log-probability in the middle of each level of the first bin."""
    return -math.log(bins) - (np.arange(LEVELS) + 0.5) / LEVELS_PER_NAT


def _by_level(p: Predictions, bins: int) -> tuple[Float64, Float64]:
    """Each row's probability at each level of the first bin, and the labels at each level."""
    mass, hits = np.empty((p.num_samples, LEVELS)), np.zeros(LEVELS)

    def add_up(rows: slice, probs: Float64, cell: Int) -> Any:
        below = (-math.log(bins) - _logs(probs, bins)) * LEVELS_PER_NAT
        level = np.clip(below.astype(np.intp), 0, LEVELS - 1)
        inside = cell % bins == 0
        number = np.arange(len(probs))
        place = (number[:, None] * LEVELS + level)[inside]
        mass[rows] = np.bincount(place, probs[inside], level.shape[0] * LEVELS).reshape(-1, LEVELS)
        at = number, p.labels[rows]
        return np.bincount(level[at][inside[at]], minlength=LEVELS)

    for some_hits in over_rows(p, bins, add_up):
        hits += some_hits
    return mass, hits


def _own_factors(p: Predictions, cells: RowCells, tilt: Tilt) -> Float64:
    """Factor of each cell beyond the shared tilt: deviations shrunk by the share that is noise."""
    size = cells.count.size
    expected, noise = np.zeros((2, size))

    def add_up(_: slice, probs: Float64, cell: Int) -> tuple[Any, Any]:
        q = tilt.of(probs, cell)
        variance = (q * (1 - q)).ravel()
        return np.bincount(cell.ravel(), q.ravel(), size), np.bincount(cell.ravel(), variance, size)

    for some, its_noise in over_rows(p, cells.count.shape[1], add_up):
        expected += some
        noise += its_noise
    deviation = cells.hits.ravel() - expected
    squares = float((deviation**2).sum())
    # Counts are nearly Poisson: their squared deviations have the variance 2 v² + v.
    chance = float(noise.sum()) + math.sqrt(float((2 * noise**2 + noise).sum()))
    real = math.sqrt(max(0.0, 1 - chance / squares)) if squares else 0.0
    ratio = 1 + real * deviation / np.where(expected > 0, expected, 1)
    bounded: Float64 = np.clip(ratio, LEAST_FACTOR, MOST_FACTOR).reshape(cells.count.shape)
    return bounded
