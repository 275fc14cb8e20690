"""Random resized crops: a piece of random area and shape, scaled to the size of the network."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

ATTEMPTS = 10
#: Random numbers per image: area and shape of each attempt, and the place of the crop.
DRAWS = 2 * ATTEMPTS + 2
# Width over height, from 3/4 to 4/3.
WIDEST = 4 / 3


def crop_box(
    draws: NDArray[np.float64], width: int, height: int, *, smallest: float
) -> tuple[int, int, int, int]:
    """Left, top, width and height of a crop, from ``DRAWS`` numbers in [0, 1).

    Its area is between ``smallest`` and 1 of the image, and its width between 3/4 and 4/3 of its
    height (Szegedy et al. 2015, arXiv:1409.4842). If none of ten attempts fits into the image, the
    middle is taken.

    >>> crop_box(np.full(DRAWS, 0.5), 100, 100, smallest=0.08)
    (14, 14, 73, 73)
    >>> crop_box(np.full(DRAWS, 0.999), 10, 100, smallest=0.9)
    (0, 43, 10, 13)
    """
    for area, shape in draws[: 2 * ATTEMPTS].reshape(ATTEMPTS, 2):
        pixels = (smallest + (1 - smallest) * area) * width * height
        ratio = WIDEST ** (2 * shape - 1)
        wide, high = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = draws[-2] * (width - wide + 1), draws[-1] * (height - high + 1)
            return int(left), int(top), wide, high
    wide = min(width, max(round(height * WIDEST), 1))
    high = min(height, max(round(width * WIDEST), 1))
    return (width - wide) // 2, (height - high) // 2, wide, high
