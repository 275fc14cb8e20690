"""Sets of image files: Tiny-ImageNet, held in memory, and ImageNet, decoded on demand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, check_count, refuse
from calibrant._core.extras import import_extra
from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.data._crops import crop_box
from calibrant.data._dataset import Dataset
from calibrant.data._folder import data_folder, first_found

TINY_PATTERNS = ("tiny-imagenet-200/",)
IMAGENET_PATTERNS = ("imagenet/", "ILSVRC2012/", "ILSVRC/Data/CLS-LOC/")
V2_FOLDERS = {
    "matched-frequency": "imagenetv2-matched-frequency-format-val",
    "threshold-0.7": "imagenetv2-threshold0.7-format-val",
    "top-images": "imagenetv2-top-images-format-val",
}
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
        """As of the equivalent array."""
        return len(self.names), 3, self.size, self.size

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """As of the equivalent array."""
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

    def cropped(
        self, index: NDArray[np.int64], draws: NDArray[np.float64], *, smallest: float
    ) -> NDArray[np.uint8]:
        """Random resized crops of some images; ``draws`` (N, DRAWS) are their random numbers."""
        check_size(len(index) * 3 * self.size**2, f"{len(index):,} images")
        images = np.empty((len(index), 3, self.size, self.size), dtype=np.uint8)
        for image, k, numbers in zip(images, index, draws, strict=True):
            with _opened(self.root / self.names[k]) as file:
                left, top, wide, high = crop_box(numbers, *file.size, smallest=smallest)
                box = (left, top, left + wide, top + high)
                piece = file.convert("RGB").resize(
                    (self.size, self.size), _pillow().Resampling.BILINEAR, box=box
                )
                image[:] = np.asarray(piece).transpose(2, 0, 1)
        return images

    def contents(self) -> list[NDArray[np.uint8]]:
        """Names and sizes of the files, for a hash: reading them all would take hours."""
        text = "\n".join(f"{n} {(self.root / n).stat().st_size}" for n in self.names)
        return [np.frombuffer(f"{self.size} {self.margin}\n{text}".encode(), dtype=np.uint8)]


def decode_image(path: Path, size: int, margin: float) -> NDArray[np.uint8]:
    """One file as uint8 (3, size, size)."""
    with _opened(path) as file:
        width, height = file.size
        shorter = round(size * margin)
        scale = shorter / min(width, height)
        wide, high = (max(size, round(side * scale)) for side in (width, height))
        # Lets the JPEG decoder skip detail that scaling would discard.
        file.draft("RGB", (wide, high))
        image = file.convert("RGB")
        if image.size != (wide, high):
            image = image.resize((wide, high), _pillow().Resampling.BILINEAR)
        left, top = (wide - size) // 2, (high - size) // 2
        pixels = np.asarray(image.crop((left, top, left + size, top + size)))
    return pixels.transpose(2, 0, 1)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An image file of a sensible size."""
    # Pillow's error for vast images has no base of its own.
    formats = ("JPEG", "PNG")
    with clear_errors(path, "an image", Exception), _pillow().open(path, formats=formats) as file:
        width, height = file.size
        if width * height > MAX_PIXELS:
            raise damaged(path.name, f"declares {width:,} x {height:,} pixels")
        yield file


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
    """Load ImageNet (ILSVRC 2012) from ``train`` and ``val``, each with one folder per synset.

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


Shifted = tuple[ImageFiles, NDArray[np.int64], dict[str, Any]]


def load_imagenet_v2(
    folder: str | Path | None = None, *, variant: str = "matched-frequency", size: int = 224
) -> Shifted:
    """Load ImageNet-v2 (Recht et al. 2019): 10,000 new test images for ImageNet.

    The folders are named 0 to 999, by the position of the synset among the sorted ones of ImageNet.
    """
    check_choice("variant", variant, tuple(V2_FOLDERS))
    check_count("size", size, least=8, most=1024, example=224)
    name = V2_FOLDERS[variant]
    root = first_found(data_folder(folder), (f"{name}/", f"imagenet-v2/{name}/"), "imagenet-v2")
    groups = [entry.name for entry in _folders(root)]
    strange = [group for group in groups if not re.fullmatch("[0-9]{1,3}", group)]
    if strange:
        raise damaged(
            root.name, f"has the folder {min(strange)!r}, which is not a class from 0 to 999"
        )
    part = [(file, int(k)) for k in sorted(groups, key=int) for file in _images(root, k)]
    files, labels = _labelled(root, part, size, MARGIN)
    return files, labels, {"source": "published", "file": root.name, "variant": variant}


def load_imagenet_c(
    folder: str | Path | None = None, *, corruption: str, level: int, size: int = 224
) -> Shifted:
    """Load one level of one corruption of ImageNet-C (Hendrycks and Dietterich 2019).

    Its images are the middle of those of ImageNet, 224 x 224, so that nothing more is cut off.
    """
    check_count("size", size, least=8, most=1024, example=224)
    place = f"ImageNet-C/{corruption}/{level}"
    root = first_found(data_folder(folder), (f"{place}/",), "imagenet-c")
    classes = sorted(entry.name for entry in _folders(root))
    original = next((p for n in IMAGENET_PATTERNS for p in data_folder(folder).glob(n[:-1])), None)
    if original is not None:
        strange = {entry.name for entry in _folders(original / "train")} ^ set(classes)
        if strange:
            raise damaged(place, f"has other classes than ImageNet, such as {min(strange)!r}")
    part = [(name, k) for k, group in enumerate(classes) for name in _images(root, group)]
    files, labels = _labelled(root, part, size, 1.0)
    return files, labels, {"source": "published", "corruption": corruption, "level": level}


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
