"""The data set record that every loader returns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, refuse

Kind = Literal["image", "vector", "signal", "tokens", "trees"]
# Dimensions and type of the inputs of each kind; trees are a sequence of their own.
LAYOUTS: dict[str, tuple[int, str, str]] = {
    "image": (4, "uint8", "(N, channels, height, width)"),
    "vector": (2, "float32", "(N, D)"),
    "signal": (3, "float32", "(N, channels, length)"),
    "tokens": (2, "int64", "(N, length)"),
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their labels, validated.

    Images are uint8 (N, C, H, W), vectors float32 (N, D), signals float32 (N, C, L), tokens int64
    (N, L) and trees a :class:`Trees`. Labels are int64 from 0. Of tokens and trees,
    ``meta["vocabulary_size"]`` is required for training, and ``meta["vectors"]`` (words, D)
    initialises the word embeddings.

    Examples
    --------
    >>> x = np.zeros((3, 2), dtype=np.float32)
    >>> y = np.array([0, 1, 1])
    >>> Dataset("mine", "vector", x, y, x, y, ("no", "yes"), {})
    Dataset(mine: 3 training and 3 test samples, 2 classes, vector)
    """

    name: str
    kind: Kind
    x_train: Any
    y_train: NDArray[np.int64]
    x_test: Any
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    meta: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            _check_inputs(x, f"x_{part}", self.kind)
            checked = check_labels(y, f"y_{part}", len(self.classes))
            if len(x) != len(checked):
                rule = f"must have one label for each of the {len(x):,} samples of x_{part}"
                raise refuse(f"y_{part}", rule, f"got {len(checked):,}", "Check the two files.")
            object.__setattr__(self, f"y_{part}", checked)

    def __repr__(self) -> str:
        counts = f"{len(self.x_train):,} training and {len(self.x_test):,} test samples"
        return f"Dataset({self.name}: {counts}, {self.num_classes} classes, {self.kind})"

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @cached_property
    def hash(self) -> str:
        """The sha256 of kind, classes, samples, labels and word vectors, not of file names."""
        digest = hashlib.sha256(repr((self.kind, self.classes)).encode())
        vectors = [self.meta["vectors"]] if "vectors" in self.meta else []
        for values in (self.x_train, self.y_train, self.x_test, self.y_test, *vectors):
            add_to_digest(digest, values)
        return digest.hexdigest()


def add_to_digest(digest: hashlib._Hash, values: Any) -> None:
    """Add type, shape and contents of an array, or the ``contents`` of a lazy sequence."""
    arrays: Callable[[], list[NDArray[Any]]] | None = getattr(values, "contents", None)
    for array in [values] if arrays is None else arrays():
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)


def check_labels(labels: Any, name: str, num_classes: int | None = None) -> NDArray[np.int64]:
    """Return labels as int64 (N,), all from 0 and below ``num_classes``."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        rule = "must be integers of shape (N,)"
        raise refuse(name, rule, f"got {array.dtype} {array.shape}", "Try labels.astype(int).")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if low < 0 or (num_classes is not None and high >= num_classes):
        end = "" if num_classes is None else f" to {num_classes - 1}"
        got = f"got {low} to {high}"
        raise refuse(name, f"must be class indices from 0{end}", got, "Number the classes from 0.")
    return array.astype(np.int64, copy=False)


def _check_inputs(x: Any, name: str, kind: str) -> None:
    if kind == "trees":
        return
    ndim, dtype, shape = LAYOUTS[kind]
    if x.dtype != dtype or len(x.shape) != ndim:
        rule = f"must be {dtype} {shape} for kind {kind!r}"
        got = f"got {x.dtype} {tuple(x.shape)}"
        raise refuse(name, rule, got, "Convert it, or name the kind that fits.")
