"""Data sets in memory shared by several processes."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.files import DAMAGE, TEMPORARY, npy_bytes, read_json, write_bytes
from calibrant.data import Dataset, load
from calibrant.study._records import Run

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
MORE = ("vectors", "x_dev", "y_dev")  # optional entries of a data set


def share(run: Run, folder: Path) -> Path | None:
    """Write the arrays of a run's data set to a folder; None if they are not plain arrays.

    Existing files are kept if they match, and rewritten if they are damaged.
    """
    data = load(run.data, **run.data_options)
    if not isinstance(data.x_train, np.ndarray):
        return None
    target = folder / data.hash[:16]
    target.mkdir(parents=True, exist_ok=True)
    for left in target.glob(f".*{TEMPORARY}"):
        left.unlink(missing_ok=True)
    arrays = {name: getattr(data, name) for name in ARRAYS}
    arrays |= {name: data.meta[name] for name in MORE if name in data.meta}
    for name, array in arrays.items():
        if not _holds(target, name, array):
            write_bytes(_path(target, name), npy_bytes(array))
    facts = {
        "name": data.name,
        "kind": data.kind,
        "classes": list(data.classes),
        "vocabulary_size": data.meta.get("vocabulary_size"),
    }
    text = json.dumps(facts).encode()
    path = target / "facts.json"
    if not path.exists() or path.read_bytes() != text:
        write_bytes(path, text)
    return target


def _holds(folder: Path, name: str, array: NDArray[Any]) -> bool:
    """Whether a file holds an array, bit for bit."""
    try:
        found = _mapped(folder, name)
    except DAMAGE:
        return False
    return (
        found.dtype == array.dtype
        and found.shape == array.shape
        and np.array_equal(_bytes(found), _bytes(array))
    )


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@lru_cache(maxsize=4)
def shared(folder: Path) -> Dataset:
    """The data set whose arrays are in a folder: mapped, so that all processes share the pages."""
    facts = read_json(folder / "facts.json")
    arrays: dict[str, Any] = {name: _mapped(folder, name) for name in ARRAYS}
    meta = {"vocabulary_size": facts["vocabulary_size"]}
    meta |= {name: _mapped(folder, name) for name in MORE if _path(folder, name).exists()}
    return Dataset(
        facts["name"], facts["kind"], **arrays, classes=tuple(facts["classes"]), meta=meta
    )


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _mapped(folder: Path, name: str) -> NDArray[Any]:
    """Copy on write: the array counts as writable, but nothing written reaches the file."""
    array: NDArray[Any] = np.load(_path(folder, name), mmap_mode="c", allow_pickle=False)
    return array
