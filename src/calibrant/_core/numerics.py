"""A few functions of SciPy without its import, which takes longer than measuring a small file.

The tests compare each with SciPy's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float64


def normal_quantile(share: float) -> float:
    """The value below which a standard normal variable lies with this probability.

    >>> round(normal_quantile(0.975), 4)
    1.96
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(share) if 0 < share < 1 else math.copysign(math.inf, share - 0.5)


def logit(share: Any) -> Any:
    """Log-odds of probabilities strictly between 0 and 1."""
    return np.log(share) - np.log1p(-share)


def expit(log_odds: Any) -> Any:
    """Probabilities of log-odds: the inverse of ``logit``."""
    small = np.exp(-np.abs(log_odds))  # never overflows
    return np.where(log_odds < 0, small, 1) / (1 + small)


def central_bounds(draws: Float64, tail: float) -> tuple[Float64, Float64]:
    """Median-unbiased quantiles ``tail`` and 1 - ``tail`` along the first axis (type 8).

    As ``np.quantile(method="median_unbiased")``, which loads ``numpy.ma``; without NaN.

    Reference: Hyndman and Fan (1996), doi:10.1080/00031305.1996.10473566.
    """
    rows, size = np.sort(draws, axis=0), len(draws)

    def quantile(share: float) -> Float64:
        place = size * share + (1 / 3 + share * (1 - 2 / 3)) - 1
        before = math.floor(place)
        a, b = (rows[min(max(k, 0), size - 1)] for k in (before, before + 1))
        part = place - before
        low: Float64 = a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)  # noqa: PLR2004
        return low

    return quantile(tail), quantile(1 - tail)


def dct(rows: Float64) -> Float64:
    r"""Cosine transform of rows of even length N: :math:`2 \sum_n x_n \cos(\pi k (2n+1) / 2N)`.

    By one real Fourier transform of the even entries followed by the odd ones backwards (Makhoul,
    1980, doi:10.1109/TASSP.1980.1163351).
    """
    turned = np.concatenate([rows[..., ::2], rows[..., ::-2]], axis=-1)
    half = 2 * _turns(rows.shape[-1]) * np.fft.rfft(turned)
    return np.concatenate([half.real, -half.imag[..., -2:0:-1]], axis=-1)


def idct(spectrum: Float64, size: int) -> Float64:
    """The rows of even length ``size`` with this cosine transform, of which the rest is 0."""
    padded = np.zeros((*spectrum.shape[:-1], size + 1))
    padded[..., : spectrum.shape[-1]] = spectrum
    half = padded[..., : size // 2 + 1] - 1j * padded[..., : size // 2 - 1 : -1]
    turned = np.fft.irfft(half / (2 * _turns(size)), size)
    rows = np.empty_like(turned)
    rows[..., ::2], rows[..., ::-2] = turned[..., : size // 2], turned[..., size // 2 :]
    return rows


@functools.cache
def _turns(size: int) -> NDArray[np.complex128]:
    """A quarter turn in steps: exp(-i pi k / 2N) for k = 0 … N / 2."""
    turns: NDArray[np.complex128] = np.exp(-0.5j * np.pi / size * np.arange(size // 2 + 1))
    return turns


def monotone_cubic(places: Float64, values: Float64, at: Float64) -> Float64:
    """Cubic interpolation that rises and falls only where the values do (PCHIP).

    ``places`` rise, at least three of them; ``at`` lies between them. The slope at an inner place
    is the weighted harmonic mean of those of the neighbouring chords, 0 where their signs differ.

    Reference: Fritsch and Butland (1984), doi:10.1137/0905021.
    """
    step = np.diff(places)
    chord = np.diff(values) / step
    before, after = chord[:-1], chord[1:]
    near, far = 2 * step[1:] + step[:-1], step[1:] + 2 * step[:-1]
    same = before * after > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(same, (near + far) / (near / before + far / after), 0.0)
    first, last = _end_slope(step, chord), _end_slope(step[::-1], chord[::-1])
    slope = np.concatenate([[first], inner, [last]])
    left = np.clip(np.searchsorted(places, at, side="right") - 1, 0, len(step) - 1)
    width = step[left]
    t = (at - places[left]) / width
    rise, start, end = chord[left], slope[left], slope[left + 1]
    bend = (3 * rise - 2 * start - end) + t * (start + end - 2 * rise)
    found: Float64 = values[left] + width * t * (start + t * bend)
    return found


def _end_slope(step: Float64, chord: Float64) -> float:
    """Slope at the first place from three points, held back so that nothing overshoots."""
    slope = ((2 * step[0] + step[1]) * chord[0] - step[0] * chord[1]) / (step[0] + step[1])
    if slope * chord[0] <= 0:
        return 0.0
    if chord[0] * chord[1] < 0 and abs(slope) > 3 * abs(chord[0]):
        return float(3 * chord[0])
    return float(slope)
