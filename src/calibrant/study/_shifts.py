"""Shifted test sets, kept in memory from run to run."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from calibrant._core.arrays import num_threads
from calibrant._core.memory import available_memory
from calibrant.data import GENERATED, Dataset, corrupt, load_shift, parse_shift
from calibrant.study._records import Run, fingerprint
from calibrant.study._validate import filled

Samples = tuple[Any, Any]
MOST_BYTES = 4 << 30
FILE_BYTES = 500  # a sample that is a file: its path, as Python holds it


def shifted(shift: str, run: Run, data: Dataset) -> Samples:
    """Shifted test samples and labels; a worker loads or generates them once for all its runs.

    ``generated/CORRUPTION/LEVEL`` corrupts the run's own test images; all else is a name of
    ``load_shift``, in which ``{data}`` is the name of the run's data set.
    """
    name = filled("shifts", shift, {"data": run.data})
    base = name.partition("/")[0]
    if base == GENERATED:
        _, corruption, level = parse_shift(name, (GENERATED,))
        key = (name, data.hash)
        return KEPT.get(
            key, run.key, lambda: (corrupt(data.x_test, corruption, level), data.y_test)
        )
    same = base.removesuffix("-generated") == run.data
    options = run.data_options if same else {}
    if base in ("imagenet-v2", "imagenet-c"):  # files that are decoded to the same size
        options = {name: run.data_options[name] for name in ("size",) if name in run.data_options}
    loaded = (name, json.dumps(dict(options)), fingerprint(name))
    return KEPT.get(loaded, run.key, lambda: load_shift(name, **options)[:2])


class _Entry(NamedTuple):
    samples: Samples
    size: int
    run: str  # the last that used it


class Kept:
    """Samples of shifts, in a limited number of bytes.

    Every run goes through the same shifts in the same order. If they do not all fit, the first ones
    stay and the others are loaded again by every run; were the least recently used dropped, as
    caches do, each would be gone before its next use. Only what the current run has not used makes
    room, such as the shifts of another data set.

    Parameters
    ----------
    most
        Gives the limit.
    """

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._entries: dict[Hashable, _Entry] = {}

    @property
    def size(self) -> int:
        """Bytes in use."""
        return sum(entry.size for entry in self._entries.values())

    def get(self, key: Hashable, run: str, load: Callable[[], Samples]) -> Samples:
        """The samples of a key for a run, loaded unless they are kept."""
        found = self._entries.pop(key, None)
        if found is None:
            samples = load()
            size = size_of(samples)
            if not self._make_room(size, run):
                return samples
        else:
            samples, size, _ = found
        self._entries[key] = _Entry(samples, size, run)  # the last in the order of use
        return samples

    def _make_room(self, size: int, run: str) -> bool:
        """Drop what the run has not used until there is room; False if that is not enough."""
        most, held = self._most(), self.size
        others = [key for key, entry in self._entries.items() if entry.run != run]
        if held + size - sum(self._entries[key].size for key in others) > most:
            return False
        for key in others:
            if held + size > most:
                held -= self._entries.pop(key).size
        return True


def size_of(samples: Samples) -> int:
    """Bytes of samples in memory; of those that are files, an estimate."""
    x, y = samples
    return int(getattr(x, "nbytes", FILE_BYTES * len(y)) + y.nbytes)


def share_of_memory() -> int:
    """A worker for each core may keep its share of a quarter of the memory that is left."""
    return min(MOST_BYTES, available_memory() // (4 * num_threads()))


KEPT = Kept(share_of_memory)
