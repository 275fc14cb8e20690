"""Digits and clothes as their authors publish them: SVHN (.mat) and the IDX files of MNIST."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant._core.files import clear_errors, damaged
from calibrant.data._dataset import Dataset, check_labels
from calibrant.data._folder import data_folder, not_found
from calibrant.data._mat import read_mat
from calibrant.data._reading import open_plain_or_gz, read_exactly

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
IDX_STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")
IDX_UBYTE = 0x08
MAX_DIMENSIONS = 3


def load_mnist(folder: str | Path | None = None) -> Dataset:
    """Load MNIST (LeCun et al. 1998): 70,000 grey images 28x28, 10 digits."""
    return _load_idx("mnist", ("mnist", "MNIST/raw", ""), DIGITS, folder)


def load_fashion_mnist(folder: str | Path | None = None) -> Dataset:
    """Load Fashion-MNIST (Xiao et al. 2017): 70,000 grey images 28x28, 10 kinds of clothes."""
    places = ("fashion_mnist", "fashion-mnist", "FashionMNIST/raw")
    return _load_idx("fashion_mnist", places, CLOTHES, folder)


def _load_idx(
    name: str, places: tuple[str, ...], classes: tuple[str, ...], folder: str | Path | None
) -> Dataset:
    root = data_folder(folder)
    paths = next(filter(None, (_idx_paths(root / place) for place in places)), None)
    if paths is None:
        looked = tuple(str(Path(place, f"{IDX_STEMS[0]}[.gz]")) for place in places)
        raise not_found(root, (*looked, "with its three companions"), name)
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    labels = [
        check_labels(y, f"the labels of {path.name}", len(classes))
        for y, path in ((y_train, paths[1]), (y_test, paths[3]))
    ]
    if x_train.ndim != MAX_DIMENSIONS or x_test.ndim != MAX_DIMENSIONS:
        raise damaged(paths[0].name, f"has the shape {x_train.shape} instead of (N, 28, 28)")
    meta = {"source": "published", "file": paths[0].name}
    return Dataset(
        name, "image", x_train[:, None], labels[0], x_test[:, None], labels[1], classes, meta
    )


def _idx_paths(folder: Path) -> list[Path] | None:
    """The four files, plain or packed, if all are there."""
    found = []
    for stem in IDX_STEMS:
        names = (stem, f"{stem}.gz", stem.replace("-idx", ".idx"))
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            return None
        found.append(path)
    return found


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read one IDX file of bytes, plain or packed with gzip."""
    with clear_errors(path, "IDX"), open_plain_or_gz(path) as stream:
        magic = read_exactly(stream, 4, path.name)
        dimensions = magic[3]
        if magic[:3] != bytes((0, 0, IDX_UBYTE)) or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise damaged(
                path.name, f"starts with {magic.hex()}, which is not an IDX file of bytes"
            )
        header = read_exactly(stream, 4 * dimensions, path.name)
        shape = tuple(int(n) for n in np.frombuffer(header, dtype=">u4"))
        size = math.prod(shape)
        data = read_exactly(stream, size, path.name)
        if stream.read(1):
            raise damaged(path.name, f"has more than the {size:,} bytes that {shape} needs")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape).copy()


def load_svhn(folder: str | Path | None = None) -> Dataset:
    """Load SVHN (Netzer et al. 2011): 73,257 + 26,032 images 32x32 of house numbers, 10 digits."""
    root = data_folder(folder)
    places = [
        place
        for place in (root, root / "svhn", root / "SVHN")
        if all((place / file).is_file() for file in SVHN_FILES)
    ]
    if not places:
        raise not_found(root, (*SVHN_FILES, *(f"svhn/{file}" for file in SVHN_FILES)), "svhn")
    (x_train, y_train), (x_test, y_test) = (read_svhn(places[0] / file) for file in SVHN_FILES)
    meta = {"source": "published", "file": SVHN_FILES[0]}
    return Dataset("svhn", "image", x_train, y_train, x_test, y_test, DIGITS, meta)


def read_svhn(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one .mat file: ``X`` uint8 (32, 32, 3, N) and ``y`` (N, 1), where 10 means 0."""
    arrays = read_mat(path, ("X", "y"))
    if arrays.keys() != {"X", "y"}:
        raise damaged(path.name, "has no arrays X and y")
    pixels, digits = arrays["X"], arrays["y"].ravel()
    if pixels.dtype != np.uint8 or pixels.shape[:-1] != (32, 32, 3):
        got = f"{pixels.dtype} {pixels.shape}"
        raise damaged(path.name, f"has X as {got} instead of uint8 (32, 32, 3, N)")
    if len(digits) != pixels.shape[3]:
        raise damaged(path.name, f"has {pixels.shape[3]:,} images but {len(digits):,} labels")
    # Whole numbers from 1 to 10; also refuses what is not a number.
    if not np.isin(digits, np.arange(1, len(DIGITS) + 1)).all():
        raise damaged(path.name, "has labels other than 1 to 10")
    labels = digits.astype(np.int64) % len(DIGITS)
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), labels
