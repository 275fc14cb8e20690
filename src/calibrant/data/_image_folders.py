"""Sets of image files: Tiny-ImageNet, held in memory, and ImageNet, decoded when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, refuse
from calibrant._core.extras import import_extra
from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.data._dataset import Dataset
from calibrant.data._folder import data_folder, first_found

TINY_PATTERNS = ("tiny-imagenet-200/",)
IMAGENET_PATTERNS = ("imagenet/", "ILSVRC2012/", "ILSVRC/Data/CLS-LOC/")
ENDINGS = (".jpeg", ".jpg", ".png")
# Refused before decoding: the largest image of ImageNet has 20 million pixels.
MAX_PIXELS = 1 << 26
# The middle 7/8 of the image, as ImageNet networks are tested.
MARGIN = 256 / 224
TINY_SIZE = 64


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files that behave like a uint8 array (N, 3, size, size) and are decoded when indexed.

    ``files[np.array([3, 5])]`` gives an array. Each image is scaled so that its shorter side is
    ``round(size * margin)``, and the middle is cut out.
    """

    root: Path
    names: tuple[str, ...]
    size: int
    margin: float = MARGIN

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """As the array would have it."""
        return len(self.names), 3, self.size, self.size

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """As the array would have it."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"ImageFiles({len(self):,} files, {self.size}x{self.size})"

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        chosen = np.arange(len(self))[index]
        check_size(int(chosen.size) * 3 * self.size**2, f"{chosen.size:,} images")
        images = np.empty((chosen.size, 3, self.size, self.size), dtype=np.uint8)
        for image, k in zip(images, chosen.ravel(), strict=True):
            image[:] = decode_image(self.root / self.names[k], self.size, self.margin)
        return images if chosen.ndim else images[0]

    def contents(self) -> list[NDArray[np.uint8]]:
        """Names and sizes of the files, for a hash: reading them all would take hours."""
        text = "\n".join(f"{n} {(self.root / n).stat().st_size}" for n in self.names)
        return [np.frombuffer(f"{self.size} {self.margin}\n{text}".encode(), dtype=np.uint8)]


def decode_image(path: Path, size: int, margin: float) -> NDArray[np.uint8]:
    """One file as uint8 (3, size, size)."""
    pillow = _pillow()
    # Pillow's error for vast images has no base of its own.
    formats = ("JPEG", "PNG")
    with clear_errors(path, "an image", Exception), pillow.open(path, formats=formats) as file:
        width, height = file.size
        if width * height > MAX_PIXELS:
            raise damaged(path.name, f"declares {width:,} x {height:,} pixels")
        shorter = round(size * margin)
        scale = shorter / min(width, height)
        wide, high = (max(size, round(side * scale)) for side in (width, height))
        # Lets the JPEG decoder skip detail that scaling would throw away.
        file.draft("RGB", (wide, high))
        image = file.convert("RGB")
        if image.size != (wide, high):
            image = image.resize((wide, high), pillow.Resampling.BILINEAR)
        left, top = (wide - size) // 2, (high - size) // 2
        pixels = np.asarray(image.crop((left, top, left + size, top + size)))
    return pixels.transpose(2, 0, 1)


def _pillow() -> Any:
    return import_extra("PIL.Image", "An image file")


def load_tiny_imagenet(folder: str | Path | None = None) -> Dataset:
    """Load Tiny-ImageNet (Stanford CS231n): 100,000 + 10,000 images 64x64, 200 classes.

    The test set here is the authors' validation set, since the labels of theirs are not published.
    """
    root = first_found(data_folder(folder), TINY_PATTERNS, "tiny_imagenet")
    classes = tuple(_lines(root / "wnids.txt"))
    train = [
        (name, k)
        for k, group in enumerate(classes)
        for name in _images(root, f"train/{group}/images")
    ]
    numbers = {group: k for k, group in enumerate(classes)}
    test = []
    for line in _lines(root / "val" / "val_annotations.txt"):
        name, group = (*line.split("\t"), "")[:2]
        if group not in numbers or Path(name).name != name:
            raise damaged("val_annotations.txt", f"has the unknown class or file {line[:80]!r}")
        test.append((f"val/images/{name}", numbers[group]))
    (train_files, y_train), (test_files, y_test) = (
        _labelled(root, part, TINY_SIZE, 1.0) for part in (train, test)
    )
    meta = {"source": "published", "file": root.name}
    x_train, x_test = train_files[:], test_files[:]
    return Dataset("tiny_imagenet", "image", x_train, y_train, x_test, y_test, classes, meta)


def load_imagenet(folder: str | Path | None = None, *, size: int = 224) -> Dataset:
    """Load ImageNet (ILSVRC 2012) from ``train`` and ``val``, a folder for each synset in both.

    The inputs are :class:`ImageFiles`: index them with an array of numbers to decode a batch of
    ``size`` x ``size`` images.
    """
    check_count("size", size, least=8, most=1024, example=224)
    root = first_found(data_folder(folder), IMAGENET_PATTERNS, "imagenet")
    classes = tuple(sorted(entry.name for entry in _folders(root / "train")))
    strange = {entry.name for entry in _folders(root / "val")} ^ set(classes)
    if strange:
        rule = "must have the same synset folders in train and val"
        advice = "Move the validation images into folders named by their synsets."
        raise refuse(str(root), rule, f"{min(strange)!r} is in one only", advice)
    parts = [
        [(name, k) for k, group in enumerate(classes) for name in _images(root, f"{part}/{group}")]
        for part in ("train", "val")
    ]
    (x_train, y_train), (x_test, y_test) = (_labelled(root, part, size, MARGIN) for part in parts)
    meta = {"source": "published", "file": root.name, "size": size}
    return Dataset("imagenet", "image", x_train, y_train, x_test, y_test, classes, meta)


def _labelled(
    root: Path, part: list[tuple[str, int]], size: int, margin: float
) -> tuple[ImageFiles, NDArray[np.int64]]:
    if not part:
        raise damaged(root.name, "holds no images where they are expected")
    files = ImageFiles(root, tuple(name for name, _ in part), size, margin)
    return files, np.array([label for _, label in part], dtype=np.int64)


def _folders(path: Path) -> Iterator[os.DirEntry[str]]:
    if not path.is_dir():
        raise damaged(str(path.parent.name), f"has no folder {path.name}")
    return (entry for entry in os.scandir(path) if entry.is_dir())


def _images(root: Path, inside: str) -> list[str]:
    if not (root / inside).is_dir():
        raise damaged(root.name, f"has no folder {inside}")
    names = sorted(entry.name for entry in os.scandir(root / inside))
    return [f"{inside}/{name}" for name in names if name.lower().endswith(ENDINGS)]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise damaged(path.parent.name, f"has no file {path.name}")
    with clear_errors(path, "text"):
        return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
