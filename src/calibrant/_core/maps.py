"""Scores of pixels or tokens as rows: one sample per position, one cluster per image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import to_numpy
from calibrant._core.brain_rows import BrainRows
from calibrant._core.checks import refuse
from calibrant._core.map_rows import MapRows, parts_of
from calibrant._core.row_sweeps import NARROW_CLASSES

NAMED_BY = 4096  # scores of an image that tell it from others
LEAST_DIMENSIONS, MOST_DIMENSIONS = 3, 5  # (N, K, L) to (N, K, D, H, W)


def is_map(scores: NDArray[Any]) -> bool:
    """Whether scores have positions beyond samples and classes.

    >>> is_map(np.zeros((2, 3, 4, 4))), is_map(np.zeros((2, 3)))
    (True, False)
    """
    return LEAST_DIMENSIONS <= scores.ndim <= MOST_DIMENSIONS


def rows_of(
    scores: NDArray[Any], labels: Any, belongs: Mapping[str, Any], ignore_index: Any = None
) -> dict[str, Any]:
    """Flatten scores (N, K, …), labels (N, …) and what images or positions belong to.

    Images are the clusters unless clusters are given. Whatever has one entry per image is
    repeated for each of its positions. Positions to be ignored are never laid out. Scores of few
    classes are ``MapRows``.
    """
    count, _, *positions = scores.shape
    truth = check_map_labels(scores, labels).reshape(-1)
    size = math.prod(positions)
    left = None if ignore_index is None else _left_of(truth, ignore_index)

    here = size if left is None else np.diff(np.searchsorted(left, np.arange(count + 1) * size))

    def spread(values: Any, name: str) -> NDArray[Any]:
        array = to_numpy(values, name)
        if array.shape == (count,):
            return np.repeat(array, here)
        flat = array.reshape(-1)
        return flat if left is None or flat.shape != truth.shape else flat.take(left)

    clusters = belongs["clusters"]
    groups, weights = belongs["groups"], belongs["weights"]
    if isinstance(groups, Mapping):
        groups = {name: spread(values, f"groups[{name!r}]") for name, values in groups.items()}
    return {
        "scores": _positions_as_rows(scores, left),
        "labels": truth if left is None else truth.take(left),
        "clusters": spread(np.arange(count) if clusters is None else clusters, "clusters"),
        "groups": groups,
        "weights": None if weights is None else spread(weights, "weights"),
        "batch": _batch_name(scores) if clusters is None else None,
    }


def _batch_name(scores: NDArray[Any]) -> int:
    """A number from 0 to 2^64 - 1 for a batch of maps, made from some of its scores."""
    return int.from_bytes(_digest(scores.flat[:: max(1, -(-scores.size // NAMED_BY))]), "little")


def _digest(some: NDArray[Any]) -> bytes:
    from hashlib import blake2b

    return blake2b(some.astype(np.float64).tobytes(), digest_size=8).digest()


def _positions_as_rows(scores: NDArray[Any], left: NDArray[Any] | None) -> Any:
    """(N, K, …) as rows of K: those of few classes a range at a time, those of many at once."""
    classes = scores.shape[1]
    if classes <= NARROW_CLASSES:
        return MapRows(scores.reshape(*scores.shape[:2], -1), left)
    rows = np.moveaxis(scores, 1, -1).reshape(-1, classes)
    return rows if left is None else rows.take(left, axis=0)


def check_map_labels(scores: NDArray[Any], labels: Any) -> NDArray[Any]:
    """Labels (N, …) that fit scores (N, K, …)."""
    count, _, *positions = scores.shape
    truth = to_numpy(labels, "labels")
    if truth.shape != (count, *positions):
        rule = f"must have shape {(count, *positions)}: one label per position of the scores"
        raise refuse("labels", rule, f"got shape {truth.shape}", "Check the order of the axes.")
    return truth


def some_rows(
    scores: NDArray[Any], labels: NDArray[Any], rows: slice, ignore_index: int | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of scores (N, K, M) and labels (N, M) a range of positions, without those to ignore.

    Positions are counted image by image; the last array says which image each is of. Only these are
    copied: maps of many images are never laid out as rows together.

    >>> scores, labels = np.arange(12.0).reshape(2, 3, 2), np.array([[0, 9], [1, 2]])
    >>> some_rows(scores, labels, slice(1, 4), 9)
    (array([[ 6.,  8., 10.],
           [ 7.,  9., 11.]]), array([1, 2]), array([1, 1]))
    """
    found = []
    for image, inside in parts_of(rows, labels.shape[1]):
        part, asked = scores[image, :, inside], labels[image, inside]
        if ignore_index is not None and not (kept := asked != ignore_index).all():
            left = np.flatnonzero(kept)
            part, asked = part.take(left, axis=1), asked[left]
        rows_here = part.T if len(part) <= NARROW_CLASSES else np.ascontiguousarray(part.T)
        found.append((rows_here, asked, np.full(len(asked), image)))
    if len(found) == 1:
        return found[0]
    parts, asked_of, images = zip(*found, strict=True)
    return np.concatenate(parts), np.concatenate(asked_of), np.concatenate(images)


def image_names(scores: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each map of (N, K, …), made from some of its scores.

    It does not depend on the batch that an image comes in, as its place in the batch does. Images
    with the same scores have the same number.

    >>> maps = np.arange(24.0).reshape(2, 3, 4)
    >>> len({*image_names(maps), *image_names(maps[1:])})
    2
    """
    names = np.empty(len(scores), dtype=np.int64)
    for k, image in enumerate(scores.reshape(len(scores), -1)):
        digest = _digest(image[:: -(-len(image) // NAMED_BY)])
        names[k] = int.from_bytes(digest, "little", signed=True)
    return names


def check_ignore_index(ignore_index: Any) -> None:
    """Reject what is not an integer."""
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, int | np.integer):
        rule, advice = "must be an integer", "Try ignore_index=255."
        raise refuse("ignore_index", rule, f"got {ignore_index!r}", advice)


def without_ignored(rows: Mapping[str, Any], ignore_index: Any) -> dict[str, Any]:
    """Drop the samples whose label is ``ignore_index``."""
    labels = to_numpy(rows["labels"], "labels")
    left = _left_of(labels, ignore_index)
    if left is None:
        return dict(rows)

    def some(values: Any, name: str) -> Any:
        if values is None:
            return None
        if isinstance(values, BrainRows):
            return BrainRows(values.bits.take(left, axis=0))
        array = to_numpy(values, name)
        return _taken(array, left) if array.shape[:1] == labels.shape else array

    groups = rows["groups"]
    if isinstance(groups, Mapping):
        groups = {name: some(values, f"groups[{name!r}]") for name, values in groups.items()}
    names = ("scores", "labels", "clusters", "weights")
    batch = rows.get("batch")
    return {name: some(rows[name], name) for name in names} | {"groups": groups, "batch": batch}


def _left_of(labels: NDArray[Any], ignore_index: Any) -> NDArray[np.int64] | None:
    """The samples whose label is not ``ignore_index``; None where that is all of them."""
    check_ignore_index(ignore_index)
    kept = labels != ignore_index
    if not kept.any():
        rule, advice = "must leave at least one sample", "Check the labels."
        raise refuse("ignore_index", rule, f"got {ignore_index} for all labels", advice)
    return None if kept.all() else np.flatnonzero(kept)


def _taken(array: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Some rows, in the order of the memory: by index this is twice as fast as by a mask."""
    if array.ndim > 1 and array.flags.f_contiguous:
        return array.T.take(rows, axis=-1).T
    return array.take(rows, axis=0)
