"""Maps (N, K, M) counted a few thousand positions at a time, so that nothing large is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float
from calibrant._core.checks import InputError
from calibrant._core.compiled import compiled_rows
from calibrant._core.map_rows import parts_of
from calibrant._core.maps import image_names, some_rows
from calibrant._core.row_sweeps import NARROW_CLASSES
from calibrant.predictions import Predictions
from calibrant.streaming._clusters import FEW_CLUSTERS, MOST_CLUSTERED, ImageTable
from calibrant.streaming._counts import Counts

INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class MapSlabs:
    """Scores (N, K, M) and labels (N, M) of a batch of images, which are the clusters."""

    kind: str
    scores: Float
    labels: NDArray[Any]
    ignore_index: int | None

    def counts(self, slices: Iterator[slice], bins: int) -> Counts:
        """Counts of ranges of positions; InputError where one is bad."""
        counts = Counts(self.scores.shape[1], bins)
        if self._compiled is not None:
            counts.by_image = ImageTable.of(self._names)
        for rows in slices:
            if self._compiled is None:
                self._add_rows(counts, rows, bins)
            else:
                self._add_logits(counts, rows)
        return counts

    @cached_property
    def _names(self) -> NDArray[np.int64]:
        return image_names(self.scores)

    @cached_property
    def _compiled(self) -> Any | None:
        """The compiled kernels, where they count such maps in one pass."""
        whole = self.labels.dtype.kind == "i" or self.labels.dtype in (np.uint8, np.uint16)
        few = len(self.scores) <= FEW_CLUSTERS and self.labels.size <= MOST_CLUSTERED
        usual = self.ignore_index is None or INT64.min <= self.ignore_index <= INT64.max
        narrow = self.kind == "logits" and self.scores.shape[1] <= NARROW_CLASSES
        return compiled_rows() if whole and few and usual and narrow else None

    def _add_logits(self, counts: Counts, rows: slice) -> None:
        for image, part in parts_of(rows, self.labels.shape[1]):
            some = self.scores[image, :, part].T
            asked = self.labels[image, part].astype(np.int64)
            if not counts.add_logits(self._compiled, some, asked, self.ignore_index, image):
                raise InputError("A position has bad scores, or a label that is not a class.")

    def _add_rows(self, counts: Counts, rows: slice, bins: int) -> None:
        some, asked, image = some_rows(self.scores, self.labels, rows, self.ignore_index)
        if len(asked):
            given: dict[str, Any] = {self.kind: some, "labels": asked}
            counts.add_rows(Predictions(**given, clusters=self._names[image]), bins)
