"""Data sets that several processes read from the same memory."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._files import read_json, replacing
from calibrant.data import Dataset, load
from calibrant.study._spec import Run

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
VECTORS = "vectors"


def share(run: Run, folder: Path) -> Path | None:
    """Write the arrays of a run's data set to a folder, once; None if they are not plain arrays."""
    data = load(run.data, **run.data_options)
    if not isinstance(data.x_train, np.ndarray):
        return None
    target = folder / data.hash[:16]
    if not (target / "facts.json").exists():
        target.mkdir(parents=True, exist_ok=True)
        arrays = {name: getattr(data, name) for name in ARRAYS}
        if VECTORS in data.meta:
            arrays[VECTORS] = data.meta[VECTORS]
        for name, array in arrays.items():
            with replacing(target / f"{name}.npy") as temporary, Path(temporary).open("wb") as file:
                np.save(file, array)
        facts = {"name": data.name, "kind": data.kind, "classes": list(data.classes),
                 "vocabulary_size": data.meta.get("vocabulary_size")}  # fmt: skip
        with replacing(target / "facts.json") as temporary:
            Path(temporary).write_text(json.dumps(facts), encoding="utf-8")
    return target


@lru_cache(maxsize=4)
def shared(folder: Path) -> Dataset:
    """The data set whose arrays are in a folder: mapped, so that all processes share the pages."""
    facts = read_json(folder / "facts.json")
    arrays: dict[str, Any] = {name: _mapped(folder, name) for name in ARRAYS}
    meta = {"vocabulary_size": facts["vocabulary_size"]}
    if (folder / f"{VECTORS}.npy").exists():
        meta[VECTORS] = _mapped(folder, VECTORS)
    return Dataset(
        facts["name"], facts["kind"], **arrays, classes=tuple(facts["classes"]), meta=meta
    )


def _mapped(folder: Path, name: str) -> NDArray[Any]:
    """Copy on write: the array counts as writable, but nothing written reaches the file."""
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
    return array
