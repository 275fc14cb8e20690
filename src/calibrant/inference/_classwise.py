"""The grid bootstrap for classwise ECE: labels of whole rows are simulated, not cells.

With K classes and B bins there are K·B cells of class and bin, most of them with few samples, so
their observed gaps are mostly noise. The populations are therefore built from what can be told:

1. gaps that all classes share, one log-factor per bin, fitted by maximum likelihood;
2. of what each cell deviates from those, the part that exceeds its sampling noise.

Both tilt the stated probabilities, q ∝ p · factor(cell), with rows that still add up to 1. The path
mixes p, q and what lies as far beyond q, so a label at any strength is one drawn from two of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from calibrant._core.arrays import Float64, Int, in_order
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_draws import draw_labels
from calibrant._core.row_summary import log_normalise
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._grid import unseen_populations
from calibrant.inference._resampling import STRENGTHS, Bounds, Resampling
from calibrant.metrics._binning import width_index
from calibrant.metrics._classwise import classwise_ece, gap_norm_slope, mean_gap_norm
from calibrant.metrics._sample import Sample
from calibrant.predictions import Predictions

# Half a pseudo-count keeps the factor of a bin without a single hit above 0.
RIDGE = 0.5
# A deviation counts from one standard deviation of the noise on; factors stay within these.
LEAST_FACTOR, MOST_FACTOR = 0.02, 50.0
# Elements of the simulated counts held at a time.
COUNT_ELEMENTS = 1 << 26
NEWTON_STEPS, LARGEST_STEP, SMALLEST_STEP = 50, 2.0, 1e-6

Result = TypeVar("Result")


def classwise_bounds(
    p: Predictions,
    resampling: Resampling,
    *,
    whole: Predictions | None = None,
    stretch: float = 1.0,
    bins: int = 15,
    norm: float = 1,
) -> Bounds:
    """Interval of the classwise ECE."""
    curve = classwise_curve(p, resampling, whole=whole, stretch=stretch, bins=bins, norm=norm)
    low, high = curve.bounds(resampling.level)
    ranked = Sample.of(p).ranked
    stated = ranked.mean_confidence
    gaps = [
        abs(unseen.accuracy - stated) for unseen in unseen_populations(ranked, resampling.level)
    ]
    # Excess probability of predicted classes is missing in the others: one to two parts in K.
    least, most = 1 / p.num_classes, 2 / p.num_classes if norm == 1 else 1.0
    return min([low, *(least * gap for gap in gaps)]), max([high, *(most * gap for gap in gaps)])


def classwise_curve(
    p: Predictions,
    resampling: Resampling,
    *,
    whole: Predictions | None = None,
    stretch: float = 1.0,
    bins: int = 15,
    norm: float = 1,
) -> ErrorCurve:
    """Simulate the classwise ECE along its path of populations.

    Rows stay as they are while labels are drawn. What drawing other rows would add is the
    variance of the mean, over rows, of their part in the true error.
    """
    draws, seed = resampling.draws, resampling.seed
    cells = _Cells.of(p, bins)
    factor = _shared_factors(cells)[None, :] * np.ones((p.num_classes, 1))
    factor *= _own_factors(p, cells, factor)
    path = _path(p, cells, factor, norm)
    parts = [
        _simulated_hits(p, cells, factor, size, (seed, part))
        for part, size in enumerate(_batches(draws, cells))
    ]
    hits = np.concatenate(parts, axis=1)
    simulated = np.stack([mean_gap_norm(cells.count, h - cells.prob, norm) for h in hits], axis=1)
    gaps = (_mix(path.gap, *_between(strength)) for strength in STRENGTHS)
    truth = np.array([mean_gap_norm(cells.count, gap, norm) for gap in gaps])
    of_rows = np.array([_mix(path.spread, *_between(strength)) for strength in STRENGTHS])
    if whole is None or whole is p:
        observed = float(mean_gap_norm(cells.count, cells.hits - cells.prob, norm))
    else:
        observed = classwise_ece(whole, bins=bins, norm=norm)
    return ErrorCurve(observed, truth, simulated, stretch * of_rows, stretch=stretch)


@dataclass(frozen=True)
class _Cells:
    """Sums over the samples of each class and bin, and each row's probability in each bin."""

    count: Float64
    prob: Float64
    hits: Float64
    mass: Float64

    @classmethod
    def of(cls, p: Predictions, bins: int) -> _Cells:
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

        for some_count, some_prob, some_hits in _over_rows(p, bins, add_up):
            count += some_count
            prob += some_prob
            hits += some_hits
        shape = (p.num_classes, bins)
        return cls(count.reshape(shape), prob.reshape(shape), hits.reshape(shape), mass)


def _over_rows(
    p: Predictions, bins: int, work: Callable[[slice, Float64, Int], Result], columns: int = 1
) -> Iterator[Result]:
    """Yield what ``work`` makes of chunks of rows, from the first to the last.

    It is given the rows, their probabilities, and the cell (class * bins + bin) of each.
    """
    first = np.arange(p.num_classes) * bins

    def chunk(rows: slice) -> Result:
        probs = np.exp(log_normalise(p.scores[rows].astype(np.float64), p.kind))
        index = width_index(probs.ravel(), bins).reshape(probs.shape)
        return work(rows, probs, index + first)

    chunks = in_order(chunk, p.num_samples, max(p.num_classes, columns))
    return (result for _, result in chunks)


def _shared_factors(cells: _Cells) -> Float64:
    """Factor of each bin: the likeliest with q ∝ p · factor(bin), by Newton's method.

    Row i has the probability mass_ib · e^(x_b) / sum of a label in bin b, so its gradient is the
    number of labels in the bin minus the number expected.
    """
    mass, labels = cells.mass, cells.hits.sum(axis=0)
    x = np.zeros(mass.shape[1])
    for _ in range(NEWTON_STEPS):
        q = mass * np.exp(x)
        q /= q.sum(axis=1, keepdims=True)
        expected = q.sum(axis=0)
        curvature = np.diag(expected + RIDGE) - q.T @ q
        step = np.linalg.solve(curvature, labels - expected - RIDGE * x)
        largest = float(np.abs(step).max())
        x += step * min(1.0, LARGEST_STEP / largest) if largest else 0.0
        if largest < SMALLEST_STEP:
            break
    return np.exp(x)


def _own_factors(p: Predictions, cells: _Cells, factor: Float64) -> Float64:
    """Factor of each cell beyond the shared ones: deviations shrunk by the share that is noise."""
    size = cells.count.size
    expected, noise = np.zeros((2, size))

    def add_up(_: slice, probs: Float64, cell: Int) -> tuple[Any, Any]:
        q = _tilted(probs, factor.ravel()[cell])
        variance = (q * (1 - q)).ravel()
        return np.bincount(cell.ravel(), q.ravel(), size), np.bincount(cell.ravel(), variance, size)

    for some, its_noise in _over_rows(p, cells.count.shape[1], add_up):
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


@dataclass(frozen=True)
class _Path:
    """At strengths 0, 1 and 2 the gap of each cell, and the spread of its rows.

    ``spread`` is the standard error of the true error that comes from the rows.
    """

    gap: Float64
    spread: Float64


def _path(p: Predictions, cells: _Cells, factor: Float64, norm: float) -> _Path:
    """The populations of the path, cell by cell; then what each row has in their errors."""
    size, bins = cells.count.size, cells.count.shape[1]
    gap = np.zeros((3, size))

    def moves(probs: Float64, cell: Int) -> Iterator[Float64]:
        populations = _populations(probs, factor.ravel()[cell])
        return (population - probs for population in populations[1:])

    def gaps(_: slice, probs: Float64, cell: Int) -> list[Any]:
        return [np.bincount(cell.ravel(), move.ravel(), size) for move in moves(probs, cell)]

    for some in _over_rows(p, bins, gaps):
        for k, its_gap in enumerate(some, start=1):
            gap[k] += its_gap
    gap = gap.reshape(3, *cells.count.shape)
    slope = gap_norm_slope(cells.count, gap[1], norm).ravel()
    part = np.zeros((3, p.num_samples))

    def parts(rows: slice, probs: Float64, cell: Int) -> None:
        for k, move in enumerate(moves(probs, cell), start=1):
            part[k, rows] = (slope[cell] * move).sum(axis=1)

    deque(_over_rows(p, bins, parts), maxlen=0)
    return _Path(gap, part.std(axis=1) * math.sqrt(p.num_samples))


def _populations(probs: Float64, factor: Float64) -> tuple[Float64, Float64, Float64]:
    """Probabilities at strengths 0, 1 and 2."""
    q = _tilted(probs, factor)
    return probs, q, _normalised(np.maximum(2 * q - probs, 0))


def _simulated_hits(
    p: Predictions, cells: _Cells, factor: Float64, draws: int, seed: tuple[int, int]
) -> Float64:
    """Labels of all rows drawn at each strength, by cell: (strengths, draws, K, B).

    A label at a strength between two populations is drawn from one of them, so along the path it
    changes at most twice. Hits are those at strength 0 and the changes, summed up.
    """
    num_classes, bins = cells.count.shape
    changes = np.zeros((len(STRENGTHS), draws * num_classes * bins), dtype=np.float32)
    rng = np.random.default_rng(seed)
    rows = compiled_rows()

    def ends(_: slice, probs: Float64, cell: Int) -> tuple[Int, Float64]:
        uppers: Float64 = np.cumsum(np.stack(_populations(probs, factor.ravel()[cell])), axis=2)
        uppers[..., -1] = 1
        return cell, uppers

    for cell, uppers in _over_rows(p, bins, ends, columns=draws):
        lots = rng.random((2, len(cell), draws))
        if rows is None:
            _add_changes(changes, cell, uppers, lots)
        else:
            draw_labels(rows, changes, cell, uppers, lots, STRENGTHS)
    hits: Float64 = np.cumsum(changes, axis=0)
    return hits.reshape(len(STRENGTHS), draws, num_classes, bins)


def _add_changes(changes: Any, cell: Int, uppers: Float64, lots: Float64) -> None:
    """Add the labels of a chunk of rows at strength 0, and their changes from there on.

    ``uppers`` are the upper ends of the classes, cumulative probabilities, of three populations;
    ``lots`` are random numbers: of the label, and of the strength at which it changes.
    """
    lot, choice = lots
    draws = lot.shape[1]
    block = np.arange(draws) * (changes.shape[1] // draws)
    labels = [_labels(upper, lot) for upper in uppers]
    drawn = [np.take_along_axis(cell, label, axis=1) + block for label in labels]
    _tally(changes, 0, drawn[0].ravel())
    for before, after, start in ((drawn[0], drawn[1], 0), (drawn[1], drawn[2], 1)):
        moved = before != after
        at = np.searchsorted(STRENGTHS, start + choice[moved], side="right")
        for k in range(1, len(STRENGTHS)):
            now = at == k
            _tally(changes, k, after[moved][now])
            _tally(changes, k, before[moved][now], sign=-1)


def _tally(changes: Any, strength: int, place: Int, *, sign: int = 1) -> None:
    """Count places of one strength: densely if many, one by one if few."""
    if len(place) > changes.shape[1] // 8:
        changes[strength] += sign * np.bincount(place, minlength=changes.shape[1])
    else:
        np.add.at(changes[strength], place, np.float32(sign))


def _tilted(probs: Float64, factor: Float64) -> Float64:
    return _normalised(probs * factor)


def _normalised(weight: Float64) -> Float64:
    normalised: Float64 = weight / weight.sum(axis=1, keepdims=True)
    return normalised


def _labels(upper: Float64, lot: Float64) -> Int:
    """The class drawn by each random number, (rows, draws), in one search over all rows."""
    size, num_classes = upper.shape
    number = np.arange(size)[:, None]
    place = np.searchsorted((upper + number).ravel(), (lot + number).ravel())
    label: Int = np.clip(place.reshape(lot.shape) - number * num_classes, 0, num_classes - 1)
    return label


def _between(strength: float) -> tuple[int, float]:
    """The integer strength at or below, and the fraction towards the next one."""
    return int(strength), strength - int(strength)


def _mix(values: Float64, before: int, share: float) -> Any:
    """Values interpolated between the strengths 0, 1 and 2."""
    return (1 - share) * values[before] + share * values[min(before + 1, 2)]


def _batches(draws: int, cells: _Cells) -> list[int]:
    """Batch sizes of draws whose counts fit into memory."""
    most = max(1, COUNT_ELEMENTS // (len(STRENGTHS) * cells.count.size))
    return [min(most, draws - start) for start in range(0, draws, most)]
