"""Features of whole data sets and shifted test sets in files that ``data.load`` reads.

A pretrained network sees every image once. Each file is assembled from parts that are written as
they are computed, so an interrupted extraction continues where it stopped. ``features.json``
records what made the files and their checksums.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, refuse
from calibrant._core.files import DAMAGE, make_output_folder, npy_bytes, read_json, write_bytes
from calibrant._core.stopping import resumable
from calibrant.data import (
    CORRUPTIONS,
    GENERATED,
    SHIFTS,
    Dataset,
    corrupt,
    load_shift,
    parse_shift,
)
from calibrant.data._corruptions import LEVELS
from calibrant.data._dataset import add_to_digest
from calibrant.data._splits import stratified_order
from calibrant.io import read_array
from calibrant.train._backbones import Backbone
from calibrant.train._word_vectors import WordVectors

PART = 512  # images whose features are written together
MANIFEST = "features.json"
ALL_CORRUPTIONS = "corruptions"
LARGEST = float(np.finfo(np.float16).max)

Progress = Callable[[str, int, int], None]
Samples = tuple[Any, NDArray[np.int64]]


def write_features(  # noqa: PLR0913
    dataset: Dataset,
    backbone: Backbone | WordVectors,
    out: str | Path,
    *,
    shifts: Sequence[str] = (),
    train_samples: int | None = None,
    test_samples: int | None = None,
    shift_samples: int | None = None,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write the features of a data set and of shifted test sets, as float16 npz files.

    The first file, ``NAME.npz``, is a data set of kind "vector"; each shift is a file with
    ``x_test`` and ``y_test``. ``data.load`` and ``data.load_shift`` read them by their paths. An
    interrupted call continues; finished files are checked and kept.

    Parameters
    ----------
    dataset
        A data set of images; for ``WordVectors``, of texts.
    backbone
        What maps samples to features.
    out
        Folder for the files.
    shifts
        Names that ``data.load_shift`` takes; ``generated/CORRUPTION/LEVEL`` for the data set's own
        test images; ``"corruptions"`` for every generated corruption at levels 1 to 5.
    train_samples, test_samples, shift_samples
        Number of samples to take from the training set, the test set and each shift, stratified by
        class; all if None.
    folder
        Folder with the data files; the environment variable ``CALIBRANT_DATA`` if None.
    progress
        Called with the name of the file and the number of images done and in all.

    Returns
    -------
    list of Path
        The file of the data set, then those of the shifts.
    """
    if dataset.kind != backbone.kind:
        rule = "must be images" if backbone.kind == "image" else "must be rows of word numbers"
        advice = "Vectors can be used as they are."
        raise refuse("dataset", rule, f"got kind {dataset.kind!r}", advice)
    if shifts and dataset.kind != "image":
        raise refuse("shifts", "must be none for texts", f"got {list(shifts)}", "Leave them out.")
    _check_counts(dataset, train_samples, test_samples, shift_samples)
    names = [name for shift in shifts for name in _expanded(shift)]
    for name in names:
        if not name.endswith(".npz"):
            parse_shift(name, (GENERATED, *SHIFTS))
    place = _Place(Path(out), backbone, dataset, train_samples, test_samples)
    report = progress or _silent
    chosen = {
        "train": _chosen(dataset.x_train, dataset.y_train, train_samples),
        "test": _chosen(dataset.x_test, dataset.y_test, test_samples),
    }
    with resumable(lambda: f"{len(place.finished)} of {len(names) + 1} files finished"):
        found = [place.file(Path(dataset.name).stem, lambda: chosen, report, dataset.classes)]
        for name in names:
            samples = partial(_shifted, name, dataset, shift_samples, folder)
            found.append(place.file(file_stem(name), samples, report, count=shift_samples))
    return found


def file_stem(shift: str) -> str:
    """The name of the file for a shift, without its suffix.

    >>> file_stem("cifar10-generated/fog/3"), file_stem("shifts/tiny.npz")
    ('cifar10-generated-fog-3', 'tiny')
    """
    return Path(shift).stem if shift.endswith(".npz") else shift.replace("/", "-")


def _check_counts(dataset: Dataset, train: int | None, test: int | None, shift: int | None) -> None:
    """Refuse to take more samples than there are."""
    counts = {
        "train_samples": (train, len(dataset.y_train)),
        "test_samples": (test, len(dataset.y_test)),
        "shift_samples": (shift, len(dataset.y_test)),
    }
    for name, (count, most) in counts.items():
        if count is not None:
            check_count(name, count, least=1, most=most, example=min(most, 2000))


class _Place:
    """A folder of features made with one network, and what is finished in it."""

    def __init__(
        self,
        out: Path,
        network: Backbone | WordVectors,
        dataset: Dataset,
        train: int | None,
        test: int | None,
    ) -> None:
        self.out, self.network = out, network
        made = {
            "backbone": network.name,
            "weights": network.weights_hash,
            "size": network.size,
            "precision": network.precision,
            "data": dataset.name,
            "data_hash": dataset.hash,
            "train_samples": train,
            "test_samples": test,
        }
        make_output_folder("out", out, [MANIFEST])
        make_output_folder("out", out / "parts")
        self.manifest = self._read() or {"made": made, "files": {}, "counts": {}}
        for key, value in made.items():
            if self.manifest["made"].get(key) != value:
                rule = f"must be a folder of features with the same {key.replace('_', ' ')}"
                got = f"{str(out)!r} has {self.manifest['made'].get(key)!r}, not {value!r}"
                raise refuse("out", rule, got, "Choose another folder.")

    @property
    def finished(self) -> Mapping[str, str]:
        """Checksums of finished files by name."""
        files: Mapping[str, str] = self.manifest["files"]
        return files

    def _read(self) -> dict[str, Any] | None:
        path = self.out / MANIFEST
        if not path.exists():
            return None
        found: Any = read_json(path)
        sound = isinstance(found, dict) and all(
            isinstance(found.get(part), dict) for part in ("made", "files", "counts")
        )
        if not sound:
            raise refuse(str(path), "must be a list of feature files", None, "Delete the folder.")
        listed: dict[str, Any] = found
        return listed

    def file(
        self,
        stem: str,
        samples: Callable[[], Mapping[str, Samples]],
        progress: Progress,
        classes: Sequence[str] = (),
        count: int | None = None,
    ) -> Path:
        """Make one file, unless it is finished, undamaged and of ``count`` samples (None: all)."""
        path = self.out / f"{stem}.npz"
        if self._is_finished(path) and self.manifest["counts"].get(path.name) == count:
            return path
        arrays: dict[str, Any] = {"classes": np.array(classes)} if classes else {}
        parts, done = samples(), 0
        total = sum(len(y) for _, y in parts.values())
        for part, (x, y) in parts.items():
            rows = []
            for some in self._features(f"{stem}-{part}", x):
                rows.append(some)
                done += len(some)
                progress(path.name, done, total)
            arrays |= {f"x_{part}": np.concatenate(rows), f"y_{part}": y}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_bytes(path, buffer.getbuffer())
        self.manifest["counts"][path.name] = count
        self.manifest["files"][path.name] = hashlib.sha256(buffer.getbuffer()).hexdigest()
        write_bytes(self.out / MANIFEST, json.dumps(self.manifest, indent=2).encode())
        for leftover in (self.out / "parts").glob(f"{stem}-*.npy"):
            leftover.unlink()
        return path

    def _is_finished(self, path: Path) -> bool:
        """Whether a file is there with the contents that were written."""
        if path.name not in self.finished or not path.is_file():
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == self.finished[path.name]

    def _features(self, name: str, images: Any) -> Iterator[NDArray[np.float16]]:
        """Features of images, part by part; parts that were computed before are read."""
        for start in range(0, len(images), PART):
            some = np.asarray(images[start : start + PART])
            digest = hashlib.sha256()
            add_to_digest(digest, some)
            path = self.out / "parts" / f"{name}-{start}-{digest.hexdigest()[:16]}.npy"
            known = _read_part(path, len(some))
            if known is None:
                known = _narrow(self.network(some))
                write_bytes(path, npy_bytes(known))
            yield known


def _read_part(path: Path, rows: int) -> NDArray[np.float16] | None:
    """Features written before; None if they are missing or damaged."""
    try:
        found = read_array(path)
    except FileNotFoundError:
        return None
    except DAMAGE:
        return None
    return found if found.dtype == np.float16 and len(found) == rows else None


def _narrow(features: NDArray[np.float32]) -> NDArray[np.float16]:
    if not np.isfinite(features).all() or np.abs(features).max(initial=0) > LARGEST:
        rule = f"must return finite features of at most {LARGEST:g}"
        raise refuse("backbone", rule, None, "Scale its output, or check its preprocessing.")
    return features.astype(np.float16)


def _expanded(shift: str) -> list[str]:
    """The shifts that a name expands to."""
    if shift == ALL_CORRUPTIONS:
        return [
            f"{GENERATED}/{name}/{level}" for name in CORRUPTIONS for level in range(1, LEVELS + 1)
        ]
    return [shift]


def _shifted(
    name: str, dataset: Dataset, count: int | None, folder: str | Path | None
) -> Mapping[str, Samples]:
    """Samples of a shift; only those that are kept are corrupted."""
    if name.startswith(f"{GENERATED}/"):
        _, corruption, level = parse_shift(name, (GENERATED,))
        x, y = _chosen(dataset.x_test, dataset.y_test, count)
        return {"test": (corrupt(x, corruption, level), y)}
    x, y, _ = load_shift(name, folder=folder)
    return {"test": _chosen(x, y, count)}


def _chosen(x: Any, y: NDArray[np.int64], count: int | None) -> Samples:
    """A stratified sample of ``count`` test samples, the same for every shift."""
    if count is None or count >= len(y):
        return x, y
    chosen = np.sort(stratified_order(y)[:count])
    return x[chosen], y[chosen]


def _silent(_name: str, _done: int, _total: int) -> None:
    """Report nothing."""
