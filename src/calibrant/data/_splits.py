"""Seeded splits: stratified, nested, recorded by hash."""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, check_fraction, check_seed, refuse
from calibrant.data._dataset import Dataset, add_to_digest, check_labels
from calibrant.data._trees import Trees, join_trees

LEAST_SAMPLES = 2
DEV = "dev"  # the development set that the authors of the data publish


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
        Number of samples to hold out: an integer (0 for none), or a fraction between 0 and 1.
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
    # Taken from both ends, so that changing one size leaves the other part unchanged.
    return _recorded(order[len(order) - kept :], order[:measured], seed, numbers)


def split_dataset(
    dataset: Dataset,
    *,
    calibration: float | str,
    seed: int = 0,
    train_size: int | None = None,
    calibration_size: int | None = None,
) -> tuple[Dataset, Split]:
    """Split the training samples of a data set as ``split`` does, or take its development set.

    With ``calibration="dev"`` the development set that its authors publish is the calibration part
    and all training samples are left to train on. It is then appended to the training samples of
    the data set returned, so that the split holds indices into these.
    """
    if calibration != DEV:
        if isinstance(calibration, str):
            rule, got = f"must be a number, a fraction or {DEV!r}", f"got {calibration!r}"
            raise refuse("calibration", rule, got, "Try calibration=0.1.")
        sizes = {"train_size": train_size, "calibration_size": calibration_size}
        return dataset, split(dataset.y_train, calibration=calibration, seed=seed, **sizes)
    if "x_dev" not in dataset.meta:
        rule = f"must be a number or a fraction for {dataset.name}"
        got = f"got {DEV!r}, and it has no development set"
        raise refuse("calibration", rule, got, "Try calibration=0.1.")
    x, y = dataset.meta["x_dev"], check_labels(dataset.meta["y_dev"], "y_dev")
    first = len(dataset.y_train)
    kept = _kept("train_size", train_size, first)
    measured = _kept("calibration_size", calibration_size, len(y))
    train = stratified_order(dataset.y_train, seed=seed)[first - kept :]
    held = first + stratified_order(y, seed=seed)[:measured]
    labels = np.concatenate([dataset.y_train, y])
    joined = replace(dataset, x_train=_joined(dataset.x_train, x), y_train=labels)
    return joined, _recorded(train, held, seed, labels)


def _joined(one: Any, two: Any) -> Any:
    return join_trees(one, two) if isinstance(one, Trees) else np.concatenate([one, two])


def _recorded(
    train: NDArray[np.int64], held: NDArray[np.int64], seed: int, labels: NDArray[np.int64]
) -> Split:
    """The sorted parts with the hash of them and of the labels."""
    parts = np.sort(train), np.sort(held)
    digest = hashlib.sha256()
    for array in (*parts, labels):
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
    # Ties between classes are broken at random too.
    present = rng.permutation(present)
    turns = _schedule(tuple(int(n) for n in counts[present]))
    ends = np.cumsum(counts)
    places = np.argsort(turns, kind="stable")
    order = np.empty(len(labels), dtype=np.int64)
    members = [grouped[ends[c] - counts[c] : ends[c]] for c in present]
    order[places] = np.concatenate(members)
    return order


@lru_cache(maxsize=8)  # the runs of a study split the same data again and again
def _schedule(counts: tuple[int, ...]) -> NDArray[np.int64]:
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
    turns.setflags(write=False)
    return turns


def _count(calibration: float, num_samples: int) -> int:
    """The number of samples for a number or a fraction, leaving at least one per part."""
    if isinstance(calibration, float):
        share = check_fraction("calibration", calibration, example=0.1)
        return min(max(round(share * num_samples), 1), num_samples - 1)
    example = max(num_samples // 10, 1)
    return check_count("calibration", calibration, least=0, most=num_samples - 1, example=example)


def _kept(name: str, size: int | None, available: int) -> int:
    if size is None:
        return available
    return check_count(name, size, least=1, most=available, example=available)
