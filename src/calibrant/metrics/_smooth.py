"""Smooth calibration error: kernel smoothing with a data-driven scale."""

from __future__ import annotations

import math

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant._core.numerics import dct, idct
from calibrant.metrics._sample import Measurable, Ranked, rank
from calibrant.metrics._simulated import Replicates

# Cells of the grid on [0, 1]. Residuals are split linearly between the two nearest centres, so
# the error is of second order in cell / sigma: under 1e-5 relative down to sigma = 0.01.
CELLS = 4096
# The finest scale the grid resolves well.
SMALLEST_SCALE = 1e-3
# Simulations of fewer samples than this vary at larger scales, which a coarser grid resolves.
MANY_SAMPLES = 10_000
SIGMAS_TRIED = (*(0.25**k for k in range(1, 5)), SMALLEST_SCALE)
# Fixed points are found to this, in far fewer steps than the second.
ROUNDING, MOST_STEPS = 1e-9, 100


def smooth_ece(p: Measurable | Ranked) -> float:
    r"""Smooth calibration error (smECE) of the top label.

    Range 0 to 1, lower is better. With residuals :math:`r_i = [\hat y_i = y_i] - c_i`,
    :math:`\mathrm{smECE}_\sigma = \int_0^1 |\frac1N \sum_i r_i K_\sigma(t, c_i)|\, dt`, where K is
    the Gaussian kernel of width :math:`\sigma` reflected at 0 and 1, taken at the fixed point
    :math:`\sigma = \mathrm{smECE}_\sigma`. No bins to choose; continuous in the predictions.
    Reflection keeps the full weight of samples at exactly 0 or 1. Where the fixed point lies below
    0.001, the value at that width is returned.

    References
    ----------
    Błasiok and Nakkiran (2024), arXiv:2309.12236.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9] * 10, correct=[1] * 5 + [0] * 5)
    >>> round(metrics.smooth_ece(c), 3)
    0.4
    """
    ranked = rank(p)
    residual = ranked.residual
    residual /= ranked.total
    grid = _on_grid(ranked.confidence, residual)
    return float(fixed_points(grid[None])[0])


def smooth_errors(replicates: Replicates) -> Float64:
    """Smooth calibration error of every replicate at every strength."""
    sizes = replicates.sizes
    cells = CELLS if sizes.max() > MANY_SAMPLES else CELLS // 4
    grid = replicates.on_grid(*_cell(replicates.confidence, cells), cells)
    shares = grid / sizes[:, None, None]
    return fixed_points(shares.reshape(-1, cells)).reshape(grid.shape[:2])


def fixed_points(grids: Float64) -> Float64:
    """The sigma at which smECE_sigma = sigma, for each row of residuals on the grid.

    smECE_sigma falls as sigma rises, so the fixed point lies above any sigma below its smECE. The
    scales are tried from the largest down: wide kernels need few cells.
    """
    spectrum, cells = dct(grids), grids.shape[-1]
    root = np.empty(len(grids))
    left = np.arange(len(grids))
    high, below = np.full(len(grids), 1.0), np.full(len(grids), -1.0)
    for low in SIGMAS_TRIED:
        # Scales from this one up need these cosines, and one more where they are rounded down.
        some = spectrum[left, : _cosines(low) + 1]
        area = _smoothed_area(some, np.full(len(left), low), cells)
        inside = area > low
        found = left[inside]
        if len(found):
            bracket = np.full(len(found), low), high[inside]
            ends = (area - low)[inside], below[inside]
            root[found] = _between(some[inside], cells, *bracket, *ends)
        left = left[~inside]
        high, below = np.full(len(left), low), (area - low)[~inside]
        root[left] = area[~inside]
        if not len(left):
            break
    return root


def _between(
    spectrum: Float64, cells: int, low: Float64, high: Float64, above: Float64, below: Float64
) -> Float64:
    """Fixed points between two scales, with smECE - sigma there, by the Illinois rule."""
    root, rows = np.empty(len(spectrum)), np.arange(len(spectrum))
    side = np.zeros(len(spectrum))
    for _ in range(MOST_STEPS):
        sigma = (low * below - high * above) / (below - above)
        excess = _smoothed_area(spectrum, sigma, cells) - sigma
        root[rows] = sigma
        up = excess > 0
        # An end that stays twice is pulled in by halving its value.
        below = np.where(up, np.where(side > 0, below / 2, below), excess)
        above = np.where(up, excess, np.where(side < 0, above / 2, above))
        low, high = np.where(up, sigma, low), np.where(up, high, sigma)
        side = np.where(up, 1, -1)
        open_ = np.minimum(high - low, np.abs(excess)) > ROUNDING
        if not open_.any():
            break
        rows, spectrum = rows[open_], spectrum[open_]
        low, high, above, below, side = (x[open_] for x in (low, high, above, below, side))
    return root


def _on_grid(confidence: Float64, residual: Float64) -> Float64:
    """Residuals gathered on the grid of cell centres."""
    left, part = _cell(confidence, CELLS)
    rest = 1 - part
    rest *= residual
    part *= residual
    low = np.bincount(left, rest, CELLS)
    left += 1
    gathered: Float64 = np.add(low, np.bincount(left, part, CELLS))
    return gathered


def _cell(confidence: Float64, cells: int) -> tuple[Int, Float64]:
    """The cell centre at or below each confidence, and the share of the next one."""
    place = confidence * cells
    place -= 0.5
    np.clip(place, 0, cells - 1, out=place)
    left = place.astype(np.int64)
    np.minimum(left, cells - 2, out=left)
    place -= left
    return left, place


def _cosines(sigma: float) -> int:
    """How many cosines count: exp(-(pi k sigma)^2 / 2) is below 1e-17 beyond this k."""
    return int(9 / (math.pi * sigma)) + 1


def _smoothed_area(spectrum: Float64, sigma: Float64, most_cells: int) -> Float64:
    """Integral of |K_sigma * residuals|. Reflected Gaussian smoothing is diagonal in cosines."""
    wanted = _cosines(float(sigma.min()))  # so a coarser grid loses nothing
    cells = min(most_cells, max(256, 1 << (4 * wanted - 1).bit_length()))
    k = np.arange(min(cells, wanted))
    damped = spectrum[:, : len(k)] * np.exp(-((math.pi * sigma[:, None] * k) ** 2) / 2)
    area: Float64 = np.abs(idct(damped, cells)).sum(axis=-1)
    return area
