"""The user's own data: one npz with x_train, y_train, x_test, y_test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import InputError, check_choice, refuse
from calibrant.data._dataset import Dataset, Kind, check_labels
from calibrant.data._reading import load_npz

CHANNELS = (1, 3, 4)
# Dimensions of the arrays of each kind as they come.
FLOATING: dict[int, Kind] = {2: "vector", 3: "signal"}
GREY, COLOUR = 3, 4
TOKENS = 2
PARTS = ("x_train", "y_train", "x_test", "y_test")
MAX_CLASSES = 1_000_000


def read_own(
    path: str | Path,
    *,
    name: str | None = None,
    classes: tuple[str, ...] | None = None,
    layout: str | None = None,
) -> Dataset:
    """Read a data set from one npz file.

    Parameters
    ----------
    path
        File with ``x_train, y_train, x_test, y_test`` and, optionally, the class names ``classes``.
        Inputs are uint8 images (N, C, H, W), (N, H, W, C) or (N, H, W), floating vectors (N, D),
        floating-point signals (N, C, L) or integer tokens (N, L) with 0 for padding.
    name
        Name of the data set; the file name if None.
    classes
        Class names; those of the file, or the class numbers, if None.
    layout
        ``"channels_first"`` or ``"channels_last"`` for images whose shape leaves both open.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    ...     np.savez(folder + "/mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    ...     read_own(folder + "/mine.npz")
    Dataset(mine: 20 training and 20 test samples, 2 classes, vector)
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Check the path and the working directory.")
    arrays = load_npz(path)
    missing = [part for part in PARTS if part not in arrays]
    if missing:
        rule = f"must hold the arrays {', '.join(PARTS)}"
        raise refuse(path.name, rule, f"it has no {', '.join(missing)}", "Save it with np.savez.")
    meta = {"source": "npz", "file": path.name}
    return _made(arrays, path.name, name or path.stem, classes, layout, meta)


def from_arrays(
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    *,
    name: str = "mine",
    classes: Sequence[str] | None = None,
    layout: str | None = None,
) -> Dataset:
    """Make a data set from arrays, of the kinds that ``load`` takes from a .npz file.

    Parameters
    ----------
    x_train, y_train, x_test, y_test
        Samples and class numbers. Pairs from a ``torch.utils.data.Dataset`` go in as
        ``np.stack([x for x, _ in pairs])`` and ``np.array([y for _, y in pairs])``.
    name, classes, layout
        As in a .npz file: the class numbers are the class names if None.

    Examples
    --------
    >>> x, y = np.zeros((4, 3)), np.array([0, 1, 1, 0])
    >>> from_arrays(x, y, x, y)
    Dataset(mine: 4 training and 4 test samples, 2 classes, vector)
    """
    arrays = dict(zip(PARTS, map(np.asarray, (x_train, y_train, x_test, y_test)), strict=True))
    names = None if classes is None else tuple(classes)
    return _made(arrays, "", name, names, layout, {"source": "arrays"})


def _made(
    arrays: dict[str, NDArray[Any]],
    file: str,
    name: str,
    classes: tuple[str, ...] | None,
    layout: str | None,
    meta: dict[str, Any],
) -> Dataset:
    """A data set of the arrays of a file, or of memory where that is empty."""
    where = f" of {file}" if file else ""
    kind, x_train = as_inputs(arrays["x_train"], f"x_train{where}", layout)
    test_kind, x_test = as_inputs(arrays["x_test"], f"x_test{where}", layout)
    if kind != test_kind or x_train.shape[1:] != x_test.shape[1:]:
        rule = "must have training and test inputs of one shape"
        got = f"got {x_train.shape} and {x_test.shape}"
        raise refuse(file or "x_test", rule, got, "Prepare both in the same way.")
    labels = {part: check_labels(arrays[part], part) for part in ("y_train", "y_test")}
    if kind == "tokens":
        meta["vocabulary_size"] = int(max(x_train.max(initial=0), x_test.max(initial=0))) + 1
    names = classes or _class_names(arrays.get("classes"), labels, file or name)
    return Dataset(name, kind, x_train, labels["y_train"], x_test, labels["y_test"], names, meta)


def as_inputs(x: NDArray[Any], name: str, layout: str | None = None) -> tuple[Kind, NDArray[Any]]:
    """The kind of an array, and the array in the form that kind has here."""
    if x.dtype == np.uint8 and x.ndim in (GREY, COLOUR):
        return "image", _as_images(x, name, layout)
    if x.dtype.kind == "f" and x.ndim in FLOATING:
        if not np.isfinite(x).all():
            raise refuse(name, "must be finite", "got NaN or infinity", "Fill or drop those rows.")
        return FLOATING[x.ndim], x.astype(np.float32, copy=False)
    if x.dtype.kind in "iu" and x.ndim == TOKENS:
        if x.min(initial=0) < 0:
            raise refuse(name, "must not be negative", f"got {x.min()}", "Use 0 for padding.")
        return "tokens", x.astype(np.int64, copy=False)
    rule = "must be uint8 images, floating-point vectors or signals, or integer tokens"
    advice = "Images in [0, 1]: np.rint(255 * x).astype(np.uint8)."
    raise refuse(name, rule, f"got {x.dtype} {x.shape}", advice)


def images_first(images: NDArray[Any]) -> NDArray[Any]:
    """Images (N, H, W, C) as (N, C, H, W)."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _as_images(x: NDArray[Any], name: str, layout: str | None) -> NDArray[Any]:
    if x.ndim == GREY:
        return x[:, None]
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if layout is None and first == last:
        rule = f"must have its channels ({CHANNELS} of them) in exactly one of the places 1 and 3"
        advice = "Pass layout='channels_first' or layout='channels_last'."
        raise refuse(name, rule, f"got the shape {x.shape}", advice)
    if layout is not None:
        check_choice("layout", layout, ("channels_first", "channels_last"))
        first = layout == "channels_first"
    return x if first else images_first(x)


def _class_names(
    saved: NDArray[Any] | None, labels: dict[str, NDArray[np.int64]], where: str
) -> tuple[str, ...]:
    count = 1 + max(int(part.max(initial=0)) for part in labels.values())
    if saved is None:
        if count > MAX_CLASSES:
            raise InputError(f"{where} has the class number {count - 1:,}; number them from 0.")
        return tuple(map(str, range(count)))
    if saved.ndim != 1 or saved.dtype.kind != "U" or len(saved) < count:
        rule = f"must name each of the {count} classes"
        got = f"got {saved.dtype} {saved.shape}"
        raise refuse(f"classes of {where}", rule, got, "Save an array of strings.")
    return tuple(map(str, saved))
