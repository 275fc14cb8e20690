"""CIFAR-10 and CIFAR-100 as their authors publish them, and the sets made after them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, refuse
from calibrant._core.files import damaged
from calibrant.data._archives import read_members
from calibrant.data._corruptions import LEVELS
from calibrant.data._dataset import Dataset, check_labels
from calibrant.data._folder import data_folder, first_found, not_found
from calibrant.data._reading import load_npy, load_npz, read_bytes
from calibrant.data._user_npz import images_first, read_own

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
_TEN = "airplane automobile bird cat deer dog frog horse ship truck"
_HUNDRED = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR10_CLASSES, CIFAR100_CLASSES = tuple(_TEN.split()), tuple(_HUNDRED.split())


@dataclass(frozen=True)
class _Layout:
    """How one of the two sets is laid out on disk."""

    name: str
    folder: str
    archive: str
    pickled: tuple[str, str]
    train: tuple[str, ...]
    test: str
    label_bytes: int
    classes: tuple[str, ...]

    @property
    def patterns(self) -> tuple[str, ...]:
        # Not cifar10*.npz, which would take cifar100_….npz and cifar10h_….npz for it.
        own = (f"{self.name}.npz", f"{self.name}_*.npz")
        return (f"{self.folder}/", self.archive, *own)


CIFAR10 = _Layout(
    "cifar10",
    "cifar-10-batches-bin",
    "cifar-10-binary.tar.gz",
    ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    tuple(f"data_batch_{k}.bin" for k in range(1, 6)),
    "test_batch.bin",
    1,
    CIFAR10_CLASSES,
)
CIFAR100 = _Layout(
    "cifar100",
    "cifar-100-binary",
    "cifar-100-binary.tar.gz",
    ("cifar-100-python", "cifar-100-python.tar.gz"),
    ("train.bin",),
    "test.bin",
    2,
    CIFAR100_CLASSES,
)


def load_cifar10(folder: str | Path | None = None) -> Dataset:
    """Load CIFAR-10 (Krizhevsky 2009): 60,000 images 32x32, 10 classes."""
    return _load(CIFAR10, folder)


def load_cifar100(folder: str | Path | None = None) -> Dataset:
    """Load CIFAR-100 with its fine labels (Krizhevsky 2009): 60,000 images 32x32, 100 classes."""
    return _load(CIFAR100, folder)


def _load(layout: _Layout, folder: str | Path | None) -> Dataset:
    root = data_folder(folder)
    path = _find(root, layout)
    if path.suffix == ".npz":
        return read_own(path, name=layout.name, classes=layout.classes)
    files = _files(path, (*layout.train, layout.test), layout)
    parts = [_decode(data, name, layout) for name, data in files.items()]
    x, y = [part[0] for part in parts], [part[1] for part in parts]
    meta = {"source": "published", "file": path.name}
    return Dataset(
        layout.name,
        "image",
        np.concatenate(x[:-1]),
        np.concatenate(y[:-1]),
        x[-1],
        y[-1],
        layout.classes,
        meta,
    )


def _find(root: Path, layout: _Layout) -> Path:
    """The files to read; an error that names the binary version if only pickles are there."""
    try:
        return first_found(root, layout.patterns, layout.name)
    except FileNotFoundError:
        pickled = [name for name in layout.pickled if (root / name).exists()]
        if not pickled:
            raise
    rule = f"must hold the binary version of {layout.name}, {layout.archive}"
    advice = f"Pickle files can run code and are not read. Run: calibrant data get {layout.name}"
    raise refuse("folder", rule, f"found only the pickled Python version, {pickled[0]}", advice)


def _files(path: Path, names: tuple[str, ...], layout: _Layout) -> dict[str, bytes]:
    """The batches of a folder or an archive, in the given order."""
    if path.is_dir():
        found = {name: read_bytes(path / name) for name in names if (path / name).is_file()}
    else:
        members = read_members(path, tuple(f"{layout.folder}/{name}" for name in names))
        found = {name.rpartition("/")[2]: data for name, data in members.items()}
    missing = [name for name in names if name not in found]
    if missing:
        raise damaged(path.name, f"has no file {missing[0]}")
    return {name: found[name] for name in names}


_Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _decode(data: bytes, where: str, layout: _Layout) -> _Part:
    record = layout.label_bytes + PIXELS
    if not data or len(data) % record:
        raise damaged(
            where, f"has {len(data):,} bytes, not a multiple of the record size, {record:,}"
        )
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, record)
    labels = rows[:, layout.label_bytes - 1].astype(np.int64)
    numbers = check_labels(labels, f"the labels of {where}", len(layout.classes))
    return rows[:, layout.label_bytes :].reshape(-1, *SHAPE), numbers


# --- sets made after CIFAR ---------------------------------------------------------------------

_Shift = tuple[NDArray[np.uint8], NDArray[np.int64], dict[str, Any]]


def load_cifar10_1(folder: str | Path | None = None, *, version: str = "v6") -> _Shift:
    """Load CIFAR-10.1 (Recht et al. 2018): 2,000 (v6) or 2,021 (v4) new test images."""
    check_choice("version", version, ("v4", "v6"))
    root = data_folder(folder)
    names = (f"cifar10.1_{version}_data.npy", f"cifar10.1_{version}_labels.npy")
    images, labels = (_beside(root, file, "cifar10.1") for file in names)
    meta = {"source": "published", "version": version}
    return *_labelled(load_npy(images), load_npy(labels), images.name), meta


def load_cifar10_2(folder: str | Path | None = None, *, part: str = "test") -> _Shift:
    """Load CIFAR-10.2 (Lu et al. 2020): 2,000 new test images, or its 10,000 for training."""
    check_choice("part", part, ("test", "train"))
    path = _beside(data_folder(folder), f"cifar102_{part}.npz", "cifar10.2")
    arrays = load_npz(path)
    if not {"images", "labels"} <= arrays.keys():
        raise damaged(path.name, "has no arrays images and labels")
    meta = {"source": "published", "part": part}
    return *_labelled(arrays["images"], arrays["labels"], path.name), meta


def load_cifar_c(
    folder: str | Path | None = None, *, corruption: str, level: int, classes: int = 10
) -> _Shift:
    """Load one level of one corruption of CIFAR-10-C or CIFAR-100-C (Hendrycks 2019)."""
    name = f"CIFAR-{classes}-C"
    root = data_folder(folder) / name
    file = root / f"{corruption}.npy"
    if not file.is_file() or not (root / "labels.npy").is_file():
        looked = (f"{name}/{corruption}.npy", f"{name}/labels.npy")
        raise not_found(root.parent, looked, f"cifar{classes}-c")
    images, labels = load_npy(file), load_npy(root / "labels.npy")
    if len(images) % LEVELS or len(images) != len(labels):
        raise damaged(file.name, f"has {len(images):,} images for {len(labels):,} labels")
    count = len(images) // LEVELS
    part = slice((level - 1) * count, level * count)
    meta = {"source": "published", "corruption": corruption, "level": level}
    return *_labelled(images[part], labels[part], file.name, classes), meta


def load_cifar10h(folder: str | Path | None = None) -> NDArray[np.float64]:
    """Load CIFAR-10H (Peterson et al. 2019): how people label the CIFAR-10 test images.

    Returns
    -------
    ndarray
        (10,000, 10) fractions of the annotators' answers; rows sum to 1, in test-set order.
    """
    root = data_folder(folder)
    patterns = ("cifar10h-probs.npy", "cifar10h-counts.npy", "cifar10h*.npz")
    path = first_found(root, patterns, "cifar10h")
    counts = _human_counts(path).astype(np.float64)
    if counts.shape[1:] != (len(CIFAR10_CLASSES),):
        raise damaged(path.name, f"has the shape {counts.shape} instead of (10000, 10)")
    total = counts.sum(axis=1, keepdims=True)
    if not np.isfinite(counts).all() or counts.min(initial=0) < 0 or not (total > 0).all():
        raise damaged(path.name, "has counts that are negative, missing or all 0")
    shares: NDArray[np.float64] = counts / total
    return shares


def _human_counts(path: Path) -> NDArray[Any]:
    if path.suffix == ".npy":
        return load_npy(path)
    arrays = load_npz(path)
    name = next((name for name in ("counts", "probs") if name in arrays), None)
    if name is None:
        raise damaged(path.name, "has no array counts or probs")
    return arrays[name]


def _beside(root: Path, file: str, name: str) -> Path:
    """A file in the folder, or in a subfolder named after the data set."""
    places = (file, f"{name}/{file}", f"CIFAR-{name.removeprefix('cifar')}/datasets/{file}")
    for place in places:
        if (root / place).is_file():
            return root / place
    raise not_found(root, places, name)


def _labelled(images: NDArray[Any], labels: NDArray[Any], where: str, classes: int = 10) -> _Part:
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        rule = "must hold uint8 images (N, 32, 32, 3)"
        got = f"got {images.dtype} {images.shape}"
        raise refuse(where, rule, got, "Get the file from its authors.")
    numbers = check_labels(labels, f"the labels of {where}", classes)
    if len(numbers) != len(images):
        raise damaged(where, f"has {len(images):,} images but {len(numbers):,} labels")
    return images_first(images), numbers
