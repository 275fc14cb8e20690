"""Smooth calibration error: kernel smoothing with a scale the data choose."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.metrics._sample import Measurable, Ranked, rank

# Cells of the grid on [0, 1]. Residuals are split linearly between the two nearest centres, so
# the error is of second order in cell / sigma: under 1e-5 relative down to sigma = 0.01.
CELLS = 4096
# The finest scale the grid resolves well.
SMALLEST_SCALE = 1e-3


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
    from scipy.optimize import brentq

    ranked = rank(p)
    spectrum = _cosine_spectrum(ranked.confidence, ranked.residual / ranked.total)
    # smECE_sigma falls as sigma rises, and is never below the mean residual: the fixed point lies
    # between any sigma below it and that sigma's smECE.
    low = max(abs(float(spectrum[0])) / 2, SMALLEST_SCALE)
    high = _smoothed_area(spectrum, low)
    if high - low < 1e-9:  # noqa: PLR2004 - all residuals have one sign
        return high
    # A hair's breadth above, for the rounding of the integral.
    return float(brentq(partial(_excess, spectrum), low, 1.001 * high + 1e-6, xtol=1e-9))


def _excess(spectrum: Float64, sigma: float) -> float:
    return _smoothed_area(spectrum, sigma) - sigma


def _cosine_spectrum(confidence: Float64, residual: Float64) -> Float64:
    """Cosine coefficients of the residuals, gathered on the grid of cell centres."""
    from scipy.fft import dct

    place = np.clip(confidence * CELLS - 0.5, 0, CELLS - 1)
    left = np.minimum(place.astype(np.int64), CELLS - 2)
    part = place - left
    grid = np.bincount(left, residual * (1 - part), minlength=CELLS)
    grid += np.bincount(left + 1, residual * part, minlength=CELLS)
    spectrum: Float64 = dct(grid, type=2)
    return spectrum


def _smoothed_area(spectrum: Float64, sigma: float) -> float:
    """Integral of |K_sigma * residuals|. Reflected Gaussian smoothing is diagonal in cosines."""
    from scipy.fft import idct

    # exp(-(pi k sigma)^2 / 2) is below 1e-17 beyond this k, so a coarser grid loses nothing.
    wanted = int(9 / (math.pi * sigma)) + 1
    cells = min(CELLS, max(256, 1 << (4 * wanted - 1).bit_length()))
    k = np.arange(cells)
    damped = spectrum[:cells] * np.exp(-((math.pi * sigma * k) ** 2) / 2)
    smooth = idct(damped, type=2, n=cells)
    return float(np.abs(smooth).sum())
