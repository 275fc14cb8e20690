"""The grid bootstrap for classwise ECE: labels of whole rows are simulated, not cells.

The populations mix the stated probabilities p, tilted ones q (``_tilts``) and what lies as far
beyond q, so a label at any strength is one drawn from two of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_draws import draw_labels
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._grid import unseen_populations
from calibrant.inference._resampling import STRENGTHS, Bounds, Resampling
from calibrant.inference._tilts import RowCells, Tilt, fitted_tilt, normalised, over_rows
from calibrant.metrics._classwise import classwise_ece, gap_norm_slope, mean_gap_norm
from calibrant.metrics._sample import Sample
from calibrant.predictions import Predictions

# Elements of the simulated counts held at a time.
COUNT_ELEMENTS = 1 << 26


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
    cells = RowCells.of(p, bins)
    tilt = fitted_tilt(p, cells)
    path = _path(p, cells, tilt, norm)
    parts = []
    for part, size in enumerate(_batches(draws, cells)):
        hits = _simulated_hits(p, cells, tilt, size, (seed, part))
        errors = [mean_gap_norm(cells.count, h - cells.prob, norm) for h in hits]
        parts.append(np.stack(errors, axis=1))
    simulated = np.concatenate(parts)
    gaps = (_mix(path.gap, *_between(strength)) for strength in STRENGTHS)
    truth = np.array([mean_gap_norm(cells.count, gap, norm) for gap in gaps])
    of_rows = np.array([_mix(path.spread, *_between(strength)) for strength in STRENGTHS])
    if whole is None or whole is p:
        observed = float(mean_gap_norm(cells.count, cells.hits - cells.prob, norm))
    else:
        observed = classwise_ece(whole, bins=bins, norm=norm)
    return ErrorCurve(observed, truth, simulated, stretch * of_rows, stretch=stretch)


@dataclass(frozen=True)
class _Path:
    """At strengths 0, 1 and 2 the gap of each cell, and the spread of its rows.

    ``spread`` is the standard error of the true error that comes from the rows.
    """

    gap: Float64
    spread: Float64


def _path(p: Predictions, cells: RowCells, tilt: Tilt, norm: float) -> _Path:
    """The populations of the path, cell by cell; then what each row has in their errors."""
    size, bins = cells.count.size, cells.count.shape[1]
    gap, squares = np.zeros((2, 3, size))

    def moves(probs: Float64, cell: Int) -> Iterator[Float64]:
        return (population - probs for population in _populations(probs, cell, tilt)[1:])

    def sums(_: slice, probs: Float64, cell: Int) -> list[tuple[Any, Any]]:
        flat = cell.ravel()
        return [
            (
                np.bincount(flat, move.ravel(), size),
                np.bincount(flat, move.ravel() ** 2, size) if cells.crowded else 0.0,
            )
            for move in moves(probs, cell)
        ]

    for some in over_rows(p, bins, sums):
        for k, (its_gap, its_squares) in enumerate(some, start=1):
            gap[k] += its_gap
            squares[k] += its_squares
    gap, squares = (a.reshape(3, *cells.count.shape) for a in (gap, squares))
    if cells.crowded:
        for k in (1, 2):
            gap[k, :, 0] = _apart_from_rows(gap[k, :, 0], squares[k, :, 0], p.num_samples)
    slope = gap_norm_slope(cells.count, gap[1], norm).ravel()
    part = np.zeros((3, p.num_samples))

    def parts(rows: slice, probs: Float64, cell: Int) -> None:
        for k, move in enumerate(moves(probs, cell), start=1):
            part[k, rows] = (slope[cell] * move).sum(axis=1)

    deque(over_rows(p, bins, parts), maxlen=0)
    return _Path(gap, part.std(axis=1) * math.sqrt(p.num_samples))


def _apart_from_rows(gap: Float64, squares: Float64, num_rows: int) -> Float64:
    """Gaps of the classes in one bin, without the part of their differences that rows explain.

    A slope moves probability to the few rows where a class has most of it, so the gap of a class
    depends on which rows were drawn, and the gaps of all classes differ more than in the
    population. They are shrunk towards their mean by the share of their variance that is the
    variance of such sums.
    """
    mean = gap.mean()
    apart = float(((gap - mean) ** 2).sum())
    chance = float((squares - gap**2 / num_rows).sum())
    real = math.sqrt(max(0.0, 1 - chance / apart)) if apart else 0.0
    shrunk: Float64 = mean + real * (gap - mean)
    return shrunk


def _populations(probs: Float64, cell: Int, tilt: Tilt) -> tuple[Float64, Float64, Float64]:
    """Probabilities at strengths 0, 1 and 2."""
    q = tilt.of(probs, cell)
    return probs, q, normalised(np.maximum(2 * q - probs, 0))


def _simulated_hits(
    p: Predictions, cells: RowCells, tilt: Tilt, draws: int, seed: tuple[int, int]
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
        uppers: Float64 = np.cumsum(np.stack(_populations(probs, cell, tilt)), axis=2)
        uppers[..., -1] = 1
        return cell, uppers

    for cell, uppers in over_rows(p, bins, ends, columns=draws):
        lots = rng.random((2, len(cell), draws))
        if rows is None:
            _add_changes(changes, cell, uppers, lots)
        else:
            draw_labels(rows, changes, cell, uppers, lots, STRENGTHS)
    np.cumsum(changes, axis=0, out=changes)
    return changes.reshape(len(STRENGTHS), draws, num_classes, bins)


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


def _batches(draws: int, cells: RowCells) -> list[int]:
    """Batch sizes of draws whose counts fit into memory."""
    most = max(1, COUNT_ELEMENTS // (len(STRENGTHS) * cells.count.size))
    return [min(most, draws - start) for start in range(0, draws, most)]
