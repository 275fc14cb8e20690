"""The corruptions of CIFAR-C, generated for any set of images."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, check_count, check_seed, refuse
from calibrant.data import _image_ops as pictures
from calibrant.data._image_folders import ImageFiles

Floats = NDArray[np.float32]
LEVELS = 5
CHUNK = 256
IMAGE_DIMENSIONS = 4
# Lengths are given for images of this size and scaled to others.
REFERENCE_SIZE = 32


@dataclass(frozen=True)
class Corruption:
    """One corruption: what it does, and its strength at levels 1 to 5."""

    name: str
    description: str
    apply: Callable[[Floats, float, np.random.Generator], NDArray[Any]]
    strengths: tuple[float, ...]


def corrupt(images: NDArray[np.uint8] | ImageFiles, name: str, level: int, *, seed: int = 0) -> Any:
    """Corrupt images in the manner of CIFAR-C (Hendrycks and Dietterich 2019, arXiv:1903.12261).

    The corruptions are reimplemented and work on images of any size and on greyscale images, so
    results differ from those on the published CIFAR-C files; label them as generated.

    Parameters
    ----------
    images
        uint8 (N, channels, height, width), or ``ImageFiles``.
    name
        One of ``CORRUPTIONS``.
    level
        1 to 5; the distance from the clean image grows with it.
    seed
        Seed of the noise. Levels share their random numbers, so that they differ only in strength.

    Returns
    -------
    ndarray
        uint8 of the same shape; of ``ImageFiles`` images that are corrupted when indexed.

    Examples
    --------
    >>> clean = np.full((2, 3, 32, 32), 100, dtype=np.uint8)
    >>> [int(corrupt(clean, "brightness", level)[0, 0, 0, 0]) for level in (1, 3, 5)]
    [113, 138, 177]
    """
    lazy = isinstance(images, ImageFiles)
    array = images if lazy else np.asarray(images)
    if array.dtype != np.uint8 or len(array.shape) != IMAGE_DIMENSIONS:
        rule = "must be uint8 (N, channels, height, width)"
        got = f"got {array.dtype} {array.shape}"
        raise refuse("images", rule, got, "Try np.rint(255 * images).astype(np.uint8).")
    check_choice("name", name, tuple(CORRUPTIONS))
    check_count("level", level, least=1, most=LEVELS, example=3)
    check_seed(seed)
    found = CorruptedImages(array, name, level, seed)
    return found if lazy else found[:]


class CorruptedImages:
    """Corrupted images that behave like an array and are computed when indexed.

    Noise is drawn chunk by chunk, so an image does not depend on which others are requested. The
    last chunk is kept, so that batches in order compute each chunk once.
    """

    def __init__(self, images: Any, name: str, level: int, seed: int) -> None:
        self.images, self.name, self.level, self.seed = images, name, level, seed
        self.shape, self.dtype = images.shape, np.dtype(np.uint8)
        self._made: tuple[int, NDArray[np.uint8]] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        chosen = np.arange(len(self))[index]
        result = np.empty((*chosen.shape, *self.shape[1:]), dtype=np.uint8)
        starts = chosen - chosen % CHUNK
        for start in np.unique(starts).tolist():
            result[starts == start] = self._chunk(start)[chosen[starts == start] - start]
        return result

    def _chunk(self, start: int) -> NDArray[np.uint8]:
        if self._made is None or self._made[0] != start:
            rng = np.random.default_rng([self.seed, zlib.crc32(self.name.encode()), start])
            part = self.images[start : start + CHUNK]
            clean = part.astype(np.float32) / np.float32(255)
            corruption = CORRUPTIONS[self.name]
            changed = corruption.apply(clean, corruption.strengths[self.level - 1], rng)
            self._made = start, np.rint(255 * np.clip(changed, 0, 1)).astype(np.uint8)
        return self._made[1]


# --- noise ------------------------------------------------------------------------------------


def _gaussian_noise(x: Floats, sd: float, rng: np.random.Generator) -> NDArray[Any]:
    return x + sd * rng.standard_normal(x.shape, dtype=np.float32)


def _shot_noise(x: Floats, relative: float, rng: np.random.Generator) -> NDArray[Any]:
    """Photons are counted: a full pixel has 1/relative² of them."""
    return rng.poisson(x / relative**2) * relative**2


def _impulse_noise(x: Floats, share: float, rng: np.random.Generator) -> NDArray[Any]:
    place, colour = rng.random(x.shape, dtype=np.float32), rng.random(x.shape) < 0.5  # noqa: PLR2004
    return np.where(place < share, colour, x)


def _speckle_noise(x: Floats, sd: float, rng: np.random.Generator) -> NDArray[Any]:
    return x + sd * x * rng.standard_normal(x.shape, dtype=np.float32)


# --- blur -------------------------------------------------------------------------------------


def _scale(x: Floats) -> float:
    return float(min(x.shape[2:])) / REFERENCE_SIZE


def _defocus_blur(x: Floats, radius: float, _: np.random.Generator) -> NDArray[Any]:
    # Half a pixel is no blur, for images of any size.
    return pictures.convolve(x, pictures.disk(0.5 + (radius - 0.5) * _scale(x))[None])


def _glass_blur(x: Floats, reach: float, rng: np.random.Generator) -> NDArray[Any]:
    """Every pixel is taken from a random place near its own."""
    shifts = rng.uniform(-1, 1, (2, len(x), *x.shape[2:]))
    return pictures.displace(x, reach * _scale(x) * shifts)


def _motion_blur(x: Floats, length: float, rng: np.random.Generator) -> NDArray[Any]:
    angles = rng.uniform(-np.pi / 4, np.pi / 4, len(x))
    return pictures.convolve(x, pictures.strokes(length * _scale(x), angles))


def _zoom_blur(x: Floats, zoom: float, _: np.random.Generator) -> NDArray[Any]:
    return pictures.zooms(x, np.linspace(1, 1 + zoom, 8))


# --- weather ----------------------------------------------------------------------------------


def _snow(x: Floats, amount: float, rng: np.random.Generator) -> NDArray[Any]:
    """Bright flakes, streaked by wind, over a paler image."""
    field = rng.standard_normal((len(x), 1, *x.shape[2:]), dtype=np.float32)
    flakes = np.clip(field - 1.6 + amount, 0, 1.5)
    wind = rng.uniform(-np.pi / 3, -np.pi / 6, len(x))
    streaks = pictures.convolve(flakes, pictures.strokes(5 * _scale(x), wind))
    pale = (1 - 0.5 * amount) * x + 0.5 * amount * np.maximum(x, 0.5 + 0.5 * _grey(x))
    result: NDArray[Any] = pale + 1.5 * streaks
    return result


def _frost(x: Floats, amount: float, rng: np.random.Generator) -> NDArray[Any]:
    """Crystals: ridges of a rough field, brighter than what they cover."""
    field = pictures.clouds(rng, len(x), *x.shape[2:], roughness=1.2)
    crystals = (1 - np.abs(2 * field - 1)) ** 2
    cover = amount * crystals[:, None]
    return (1 - cover) * x + cover * (0.6 + 0.4 * field[:, None])


def _fog(x: Floats, amount: float, rng: np.random.Generator) -> NDArray[Any]:
    field = pictures.clouds(rng, len(x), *x.shape[2:], roughness=2.0)[:, None]
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    result: NDArray[Any] = (x + amount * field) * brightest / (brightest + amount)
    return result


# --- colour and detail ------------------------------------------------------------------------


def _grey(x: Floats) -> Floats:
    grey: Floats = x.mean(axis=1, keepdims=True)
    return grey


def _brightness(x: Floats, more: float, _: np.random.Generator) -> NDArray[Any]:
    """Raise the strongest colour of each pixel and keep the hue."""
    value = x.max(axis=1, keepdims=True)
    raised = np.minimum(value + more, 1)
    result: NDArray[Any] = np.where(value > 0, x * raised / np.maximum(value, 1e-6), raised)
    return result


def _contrast(x: Floats, lost: float, _: np.random.Generator) -> NDArray[Any]:
    mean = x.mean(axis=(2, 3), keepdims=True)
    result: NDArray[Any] = mean + (1 - lost) * (x - mean)
    return result


def _elastic_transform(x: Floats, reach: float, rng: np.random.Generator) -> NDArray[Any]:
    shifts = pictures.smooth_noise(rng, (2, len(x), *x.shape[2:]), 2.5 * _scale(x))
    return pictures.displace(x, reach * _scale(x) * shifts)


def _pixelate(x: Floats, lost: float, _: np.random.Generator) -> NDArray[Any]:
    return pictures.coarsen(x, 1 - lost)


def _jpeg_compression(x: Floats, loss: float, _: np.random.Generator) -> NDArray[Any]:
    return pictures.jpeg(x, quality=100 - loss)


_TABLE = (
    Corruption("gaussian_noise", "normal noise", _gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    Corruption("shot_noise", "photon counts", _shot_noise, (0.045, 0.063, 0.1, 0.115, 0.141)),
    Corruption("impulse_noise", "dead pixels", _impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    Corruption(
        "speckle_noise",
        "noise proportional to brightness",
        _speckle_noise,
        (0.06, 0.1, 0.12, 0.16, 0.2),
    ),
    Corruption("defocus_blur", "out of focus", _defocus_blur, (0.8, 1.1, 1.4, 1.8, 2.4)),
    Corruption("glass_blur", "frosted glass", _glass_blur, (0.5, 0.8, 1.1, 1.5, 2.0)),
    Corruption("motion_blur", "camera moved", _motion_blur, (2.5, 3.5, 4.5, 6.0, 8.0)),
    Corruption("zoom_blur", "camera moved closer", _zoom_blur, (0.06, 0.11, 0.16, 0.21, 0.26)),
    Corruption("snow", "flakes in the wind", _snow, (0.15, 0.25, 0.35, 0.45, 0.6)),
    Corruption("frost", "crystals on the lens", _frost, (0.25, 0.35, 0.5, 0.6, 0.75)),
    Corruption("fog", "bright haze", _fog, (0.2, 0.5, 0.75, 1.0, 1.5)),
    Corruption("brightness", "lighter", _brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    Corruption("contrast", "flatter", _contrast, (0.25, 0.5, 0.6, 0.7, 0.85)),
    Corruption("elastic_transform", "stretched", _elastic_transform, (0.4, 0.7, 1.0, 1.4, 1.9)),
    Corruption("pixelate", "large pixels", _pixelate, (0.25, 0.35, 0.5, 0.6, 0.7)),
    Corruption("jpeg_compression", "JPEG blocks", _jpeg_compression, (20, 35, 50, 65, 80)),
)
CORRUPTIONS: dict[str, Corruption] = {corruption.name: corruption for corruption in _TABLE}
