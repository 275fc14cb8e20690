"""Building blocks of corruptions: convolution, displacement, scaling, random fields, JPEG blocks.

Images are float32 (N, channels, height, width) in [0, 1]; everything runs over all of them at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]
BLOCK = 8
CHANNELS = 3
HALF_QUALITY = 50
# ITU-T T.81, Annex K: how coarsely each frequency of an 8x8 block is kept at quality 50.
LIGHT_TABLE = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
COLOUR_TABLE = np.full((BLOCK, BLOCK), 99)
COLOUR_TABLE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
# ITU-R BT.601: light and two colour differences of red, green, blue.
TO_YCC = np.array(
    [
        [0.299, 0.587, 0.114],
        [-0.168736, -0.331264, 0.5],
        [0.5, -0.418688, -0.081312],
    ]
)


def convolve(x: Array, kernels: Array) -> Floats:
    """Convolve with one kernel (1, k, k) or one for each image (N, k, k), edges mirrored."""
    from scipy import fft

    height, width = x.shape[2:]
    reach = kernels.shape[-1] // 2
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="symmetric")
    shape = [fft.next_fast_len(n + 2 * reach, real=True) for n in padded.shape[2:]]
    spectrum = fft.rfft2(padded, s=shape) * fft.rfft2(kernels.astype(x.dtype), s=shape)[:, None]
    full = fft.irfft2(spectrum, s=shape)
    result: Floats = full[:, :, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]
    return result


def disk(radius: float, *, fine: int = 8) -> Array:
    """A round kernel; pixels on its rim count by the part inside."""
    reach = math.ceil(radius)
    places = (np.arange((2 * reach + 1) * fine) + 0.5) / fine - reach - 0.5
    inside = places[:, None] ** 2 + places**2 <= radius**2
    side = 2 * reach + 1
    weights = inside.reshape(side, fine, side, fine).sum(axis=(1, 3))
    kernel: Array = weights / weights.sum()
    return kernel


def strokes(length: float, angles: Array, *, points: int = 32) -> Array:
    """For each angle a kernel in the form of a line through the middle."""
    reach = math.ceil(length / 2) + 1
    along = (np.arange(points) + 0.5) / points * length - length / 2
    rows, columns = (np.outer(f(angles), along) + reach for f in (np.sin, np.cos))
    kernels = np.zeros((len(angles), 2 * reach + 1, 2 * reach + 1))
    which = np.arange(len(angles))[:, None]
    for near_row in (0, 1):
        for near_column in (0, 1):
            row, column = np.floor(rows).astype(int), np.floor(columns).astype(int)
            share = np.abs(1 - near_row - (rows - row)) * np.abs(
                1 - near_column - (columns - column)
            )
            np.add.at(kernels, (which, row + near_row, column + near_column), share / points)
    return kernels


def displace(x: Array, shifts: Array) -> Floats:
    """Take each pixel from ``shifts`` (2, N, H, W) pixels further, between pixels linearly."""
    height, width = x.shape[2:]
    rows = np.clip(np.arange(height)[:, None] + shifts[0], 0, height - 1)
    columns = np.clip(np.arange(width) + shifts[1], 0, width - 1)
    top, left = (np.floor(places).astype(np.intp) for places in (rows, columns))
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    bottom, far = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    which = np.arange(len(x))[:, None, None]
    last = x.transpose(0, 2, 3, 1)

    def at(row: Array, column: Array) -> Array:
        return last[which, row, column].transpose(0, 3, 1, 2)

    upper = (1 - right) * at(top, left) + right * at(top, far)
    lower = (1 - right) * at(bottom, left) + right * at(bottom, far)
    result: Floats = (1 - down) * upper + down * lower
    return result


def zooms(x: Array, factors: Array) -> Floats:
    """The mean of the image seen through several zooms, about the middle."""
    total = np.zeros_like(x)
    for factor in factors:
        rows, columns = (_zoom_matrix(n, float(factor)).astype(x.dtype) for n in x.shape[2:])
        total += rows @ x @ columns.T
    result: Floats = total * np.float32(1 / len(factors))
    return result


def _zoom_matrix(size: int, factor: float) -> Array:
    middle = (size - 1) / 2
    places = middle + (np.arange(size) - middle) / factor
    left = np.clip(np.floor(places).astype(int), 0, max(size - 2, 0))
    share = places - left
    matrix = np.zeros((size, size))
    matrix[np.arange(size), left] = 1 - share
    matrix[np.arange(size), np.minimum(left + 1, size - 1)] += share
    return matrix


def coarsen(x: Array, fraction: float) -> Floats:
    """Average over fewer, larger pixels, at the original size."""
    rows, columns = (_coarse_matrix(n, fraction).astype(x.dtype) for n in x.shape[2:])
    result: Floats = rows @ x @ columns.T
    return result


def _coarse_matrix(size: int, fraction: float) -> Array:
    """Average over each of ``fraction * size`` equal pieces, and show it where the piece lies."""
    few = max(round(size * fraction), 1)
    starts, edges = np.arange(size), np.arange(few + 1) * size / few
    overlap = np.minimum(starts + 1, edges[1:, None]) - np.maximum(starts, edges[:-1, None])
    shares = np.maximum(overlap, 0)
    matrix: Array = shares.T @ shares * few / size
    return matrix


def smooth_noise(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Floats:
    """Normal noise, smoothed over the last two axes and scaled back to unit variance."""
    from scipy import ndimage

    noise = rng.standard_normal(shape)
    axes = (len(shape) - 2, len(shape) - 1)
    smooth = ndimage.gaussian_filter(noise, sigma, axes=axes, mode="reflect")
    result: Floats = smooth / smooth.std(axis=axes, keepdims=True).clip(1e-6)
    return result


def clouds(
    rng: np.random.Generator, count: int, height: int, width: int, *, roughness: float
) -> Floats:
    """Random fields in [0, 1] whose strength falls with frequency to the power of roughness."""
    from scipy import fft

    # Drawn at twice the size, because these fields are periodic.
    shape = (2 * height, 2 * width)
    rows, columns = fft.fftfreq(shape[0]), fft.rfftfreq(shape[1])
    frequency = np.hypot(rows[:, None], columns)
    frequency[0, 0] = np.inf
    spectrum = fft.rfft2(rng.standard_normal((count, *shape))) * frequency**-roughness
    field = fft.irfft2(spectrum, s=shape)[:, :height, :width]
    low, high = (f(field, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
    result: Floats = ((field - low) / np.maximum(high - low, 1e-12)).astype(np.float32)
    return result


def jpeg(x: Array, *, quality: float) -> Floats:
    """Quantise 8x8 blocks as a JPEG encoder does, without chroma subsampling."""
    from scipy import fft

    scale = 50 / quality if quality < HALF_QUALITY else 2 - quality / 50
    height, width = x.shape[2:]
    pad = [(0, 0), (0, 0), (0, -height % BLOCK), (0, -width % BLOCK)]
    values = 255 * np.pad(x, pad, mode="edge") - 128
    coloured = x.shape[1] == CHANNELS
    if coloured:
        values = np.rint(np.einsum("dc,nchw->ndhw", TO_YCC, values))
    tables = np.stack(
        [LIGHT_TABLE] + [COLOUR_TABLE if coloured else LIGHT_TABLE] * (x.shape[1] - 1)
    )
    steps = np.clip(np.rint(tables * scale), 1, 255)[:, None, :, None, :]
    blocks = values.reshape(*values.shape[:2], -1, BLOCK, values.shape[3] // BLOCK, BLOCK)
    frequencies = fft.dctn(blocks, axes=(3, 5), norm="ortho")
    kept = np.rint(frequencies / steps) * steps
    restored = fft.idctn(kept, axes=(3, 5), norm="ortho").reshape(values.shape)
    if coloured:
        restored = np.einsum("dc,nchw->ndhw", np.linalg.inv(TO_YCC), restored)
    result: Floats = ((restored[:, :, :height, :width] + 128) / 255).astype(np.float32)
    return result
