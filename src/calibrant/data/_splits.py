"""Seeded splits: stratified, nested, recorded by hash."""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, check_fraction, check_seed, refuse
from calibrant.data._dataset import add_to_digest, check_labels

LEAST_SAMPLES = 2


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted indices of the training samples and the calibration samples."""

    train: NDArray[np.int64]
    calibration: NDArray[np.int64]
    seed: int
    hash: str

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} train, {len(self.calibration):,} calibration"
        return f"Split({sizes}, seed {self.seed}, {self.hash[:12]})"


def split(
    labels: Any,
    *,
    calibration: float,
    seed: int = 0,
    train_size: int | None = None,
    calibration_size: int | None = None,
) -> Split:
    """Hold out samples for calibration, and keep the requested number of each part.

    Every part is stratified to within one sample per class. Parts are nested: with the same seed, a
    smaller part is a subset of a larger one, and no sample moves from one part to the other when
    sizes change, as long as both sizes fit.

    Parameters
    ----------
    labels
        Class numbers (N,) of the training set.
    calibration
        Number of samples to hold out: an integer, or a fraction between 0 and 1.
    seed
        Random seed.
    train_size, calibration_size
        Number of samples to keep of each part; all if None.

    Returns
    -------
    Split
        With the sha256 of the sample numbers and labels.

    Examples
    --------
    >>> s = split(np.arange(1000) % 4, calibration=0.2, train_size=100)
    >>> s
    Split(100 train, 200 calibration, seed 0, cb1446b04b84)
    >>> np.bincount(s.train % 4)
    array([25, 25, 25, 25])
    """
    numbers = check_labels(labels, "labels")
    if len(numbers) < LEAST_SAMPLES:
        raise refuse("labels", "must have at least 2 samples", f"got {len(numbers)}", "Add some.")
    held = _count(calibration, len(numbers))
    kept = _kept("train_size", train_size, len(numbers) - held)
    measured = _kept("calibration_size", calibration_size, held)
    order = stratified_order(numbers, seed=seed)
    # From the two ends, so that a change of one size leaves the other part alone.
    parts = np.sort(order[len(order) - kept :]), np.sort(order[:measured])
    digest = hashlib.sha256()
    for array in (*parts, numbers):
        add_to_digest(digest, array)
    return Split(*parts, seed, digest.hexdigest())


def stratified_order(labels: NDArray[np.int64], *, seed: int = 0) -> NDArray[np.int64]:
    """A random order in which every prefix has its share of each class to within one sample.

    Class c, a share q of the samples, should have had q·m of the first m places. Its j-th place
    (from 0) therefore comes no earlier than j/q and before (j+1)/q. Giving each place to the class
    that must have one first keeps all of these promises: they are the windows of a periodic
    schedule with full load, for which the earliest deadline is optimal (Liu and Layland 1973).
    """
    rng = np.random.default_rng(check_seed(seed))
    shuffled = rng.permutation(len(labels))
    grouped = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    present = np.flatnonzero(counts)
    # Which class goes first among equals is random too.
    present = rng.permutation(present)
    turns = _schedule([int(n) for n in counts[present]])
    ends = np.cumsum(counts)
    places = np.argsort(turns, kind="stable")
    order = np.empty(len(labels), dtype=np.int64)
    members = [grouped[ends[c] - counts[c] : ends[c]] for c in present]
    order[places] = np.concatenate(members)
    return order


def _schedule(counts: list[int]) -> NDArray[np.int64]:
    """Which class has each place: the earliest deadline among those whose turn has come."""
    total = sum(counts)
    waiting = [(0, k) for k in range(len(counts))]
    ready: list[tuple[int, int]] = []
    given = [0] * len(counts)
    turns = np.empty(total, dtype=np.int64)
    for place in range(total):
        while waiting and waiting[0][0] <= place:
            k = heapq.heappop(waiting)[1]
            heapq.heappush(ready, (-(-(given[k] + 1) * total // counts[k]), k))
        k = heapq.heappop(ready)[1]
        turns[place] = k
        given[k] += 1
        if given[k] < counts[k]:
            heapq.heappush(waiting, (given[k] * total // counts[k], k))
    return turns


def _count(calibration: float, num_samples: int) -> int:
    """How many samples a number or a share means, leaving one for each part."""
    if isinstance(calibration, float):
        share = check_fraction("calibration", calibration, example=0.1)
        return min(max(round(share * num_samples), 1), num_samples - 1)
    example = max(num_samples // 10, 1)
    return check_count("calibration", calibration, least=1, most=num_samples - 1, example=example)


def _kept(name: str, size: int | None, available: int) -> int:
    if size is None:
        return available
    return check_count(name, size, least=1, most=available, example=available)
