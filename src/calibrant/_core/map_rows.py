"""Maps (N, K, M) of few classes as rows of K, laid out a range of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Int, over_chunks


@dataclass(frozen=True)
class MapRows:
    """Positions ``left`` of maps, counted image by image, or all of them; read like a matrix.

    Sweeps take a range of rows at a time, which then stays in the cache. To lay out everything
    would take as much memory as the maps, and longer than the sweep.
    """

    maps: NDArray[Any]
    left: Int | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        images, classes, size = self.maps.shape
        return (images * size if self.left is None else len(self.left)), classes

    @property
    def ndim(self) -> int:
        """That of a matrix."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the scores."""
        return self.maps.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice) -> NDArray[Any]:
        if not isinstance(rows, slice):
            row: NDArray[Any] = self[rows : rows + 1][0]
            return row
        planes = list(self._planes(slice(*rows.indices(len(self)))))
        return (planes[0] if len(planes) == 1 else np.concatenate(planes, axis=1)).T

    def _planes(self, rows: slice) -> Iterator[NDArray[Any]]:
        """The rows of each image that the range reaches, class by class."""
        size = self.maps.shape[2]
        if self.left is None:
            for image, part in parts_of(rows, size):
                yield self.maps[image, :, part]
            return
        left = self.left[rows]
        for image in range(int(left[0]) // size, int(left[-1]) // size + 1) if len(left) else (0,):
            low, high = np.searchsorted(left, (image * size, (image + 1) * size))
            # Every place is inside; "raise" would look at each of them.
            yield self.maps[image].take(left[low:high] - image * size, axis=1, mode="clip")

    def matrix(self) -> NDArray[Any]:
        """All rows. Classes stay one after the other: no copy of a single map.

        Each class is copied once, on all cores.
        """
        images, classes, size = self.maps.shape
        if self.left is None:
            return np.moveaxis(self.maps, 1, 0).reshape(classes, -1).T
        left = self.left
        cuts = np.searchsorted(left, np.arange(images + 1) * size)
        parts = [slice(low, high) for low, high in pairwise(cuts.tolist())]
        within = [left[part] - image * size for image, part in enumerate(parts)]
        planes = np.empty((classes, len(left)), dtype=self.dtype)

        def work(slices: Iterator[slice]) -> None:
            for k in (one.start for one in slices):
                for plane, part, places in zip(self.maps[:, k], parts, within, strict=True):
                    # Every place is inside; "raise" would copy once more, to leave nothing half
                    # done.
                    plane.take(places, out=planes[k, part], mode="clip")

        over_chunks(work, classes, len(left), step=1)
        return planes.T


def parts_of(rows: slice, size: int) -> Iterator[tuple[int, slice]]:
    """The images of ``size`` positions that a range of positions reaches, and their parts of it.

    >>> list(parts_of(slice(3, 9), 4))
    [(0, slice(3, 4, None)), (1, slice(0, 4, None)), (2, slice(0, 1, None))]
    """
    for image in range(rows.start // size, -(-rows.stop // size)):
        start = image * size
        yield image, slice(max(rows.start - start, 0), min(rows.stop - start, size))
