"""Loading and downloading data sets and shifted test sets by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, near_name, refuse
from calibrant._core.files import damaged
from calibrant.data import _cifar, _image_folders
from calibrant.data._corruptions import CORRUPTIONS, LEVELS, corrupt
from calibrant.data._dataset import check_labels
from calibrant.data._download import Remote, fetch
from calibrant.data._folder import data_folder, own_path
from calibrant.data._reading import load_npz
from calibrant.data._sources import DATASETS, PUBLISHED_CORRUPTIONS, SHIFTS, check_options, load
from calibrant.data._synthetic import MAX_LEVEL
from calibrant.data._user_npz import as_inputs

GENERATED = "generated"  # base of the names of corruptions of a data set's own test images
Shift = tuple[Any, NDArray[np.int64], dict[str, Any]]


def load_shift(name: str | Path, *, folder: str | Path | None = None, **options: Any) -> Shift:
    """Load a shifted test set, such as ``"cifar10.1"`` or ``"cifar10-c/fog/3"``.

    Parameters
    ----------
    name
        One of ``SHIFTS``, with corruption and level where it has them; or the path of a .npz file
        with ``x_test`` and ``y_test``.
    folder
        Folder with the files; the environment variable ``CALIBRANT_DATA`` if None.
    options
        Options of the loader. For generated shifts: options of the data set, and
        ``corruption_seed``.

    Returns
    -------
    tuple
        Inputs, labels and a dictionary that describes their source; ``source`` is "published",
        "generated", "synthetic" or "npz".

    Examples
    --------
    >>> x, y, meta = load_shift("digits-generated/fog/3")
    >>> x.shape, meta["source"]
    ((600, 1, 8, 8), 'generated')
    """
    text = str(name)
    if text.endswith(".npz"):
        check_options(_own_shift, options, text)
        return _own_shift(own_path(text, folder), **options)
    base, corruption, level = parse_shift(text)
    if base.endswith("-generated"):
        return _generate(base.removesuffix("-generated"), corruption, level, folder, options)
    if base == "imagenet-v2":
        check_options(_image_folders.load_imagenet_v2, options, base)
        return _image_folders.load_imagenet_v2(folder, **options)
    if base == "imagenet-c":
        check_options(_imagenet_c, options, base)
        return _imagenet_c(folder, corruption, level, **options)
    if base.endswith("-c"):
        check_options(lambda: None, options, base)
        classes = PUBLISHED_CORRUPTIONS[base]
        return _cifar.load_cifar_c(folder, corruption=corruption, level=level, classes=classes)
    if base in ("synthetic", "signals"):
        data = load(base, level=level, **options)
        return data.x_test, data.y_test, dict(data.meta)
    loader = _cifar.load_cifar10_1 if base == "cifar10.1" else _cifar.load_cifar10_2
    check_options(loader, options, base)
    return loader(folder, **options)


def parse_shift(text: str, bases: Sequence[str] = tuple(SHIFTS)) -> tuple[str, str, int]:
    """Base, corruption and level of the name of a shift; "" and 0 where it has none.

    >>> parse_shift("cifar10-c/fog/3")
    ('cifar10-c', 'fog', 3)
    """
    base, *parts = text.split("/")
    if base not in bases:
        rule = "must be a shift, or the path of a .npz file"
        raise refuse("name", rule, f"got {text!r}", near_name(base, bases))
    if base.endswith(("generated", "-c")):
        if len(parts) != 2:  # noqa: PLR2004 - a corruption and a level
            rule, advice = f"must read {base}/CORRUPTION/LEVEL", f"Try '{base}/fog/3'."
            raise refuse("name", rule, f"got {text!r}", advice)
        level = _level(text, parts[1:], LEVELS, least=1)
        known = (*CORRUPTIONS, *(_ONLY_PUBLISHED if base.endswith("-c") else ()))
        return base, check_choice("corruption", parts[0], known), level
    if base in ("synthetic", "signals"):
        return base, "", _level(text, parts, MAX_LEVEL, least=0)
    if parts:
        raise refuse("name", f"must be {base!r} alone", f"got {text!r}", "Leave out the rest.")
    return base, "", 0


def download(
    name: str,
    folder: str | Path | None = None,
    *,
    url: str | None = None,
    sha256: str | None = None,
    progress: bool = True,
) -> Path:
    """Download the files of a data set or shift, verify their checksums and unpack them if needed.

    Interrupted downloads resume. Existing files are not downloaded again.

    Parameters
    ----------
    name
        One of ``DATASETS`` or ``SHIFTS``.
    folder
        Folder to download to; the environment variable ``CALIBRANT_DATA`` if None.
    url
        A mirror: the address of the file, or of the folder with the files (ending in /) where
        there are several.
    sha256
        Checksum of the file, where it differs from the published one.
    progress
        Show a progress bar if there is a terminal.

    Returns
    -------
    Path
        The file; the folder where there are several or where an archive was unpacked.
    """
    check_choice("name", name, (*DATASETS, *(shift for shift in SHIFTS if shift not in DATASETS)))
    remotes = DATASETS[name].remotes if name in DATASETS else SHIFTS[name].remotes
    if not remotes:
        rule = "must be a data set that can be downloaded"
        advice = "Embedded and generated sets need no files; get ImageNet from its authors."
        raise refuse("name", rule, f"got {name!r}", advice)
    root = data_folder(folder)
    if len(remotes) > 1 and sha256 is not None:
        rule = f"must be None for the {len(remotes)} files of {name}"
        raise refuse("sha256", rule, f"got {sha256!r}", "Their checksums are known here.")
    paths = [fetch(_mirrored(one, url, sha256), root, progress=progress) for one in remotes]
    return paths[0] if len(paths) == 1 else paths[0].parent


def _mirrored(remote: Remote, url: str | None, sha256: str | None) -> Remote:
    address = remote.url if url is None else urljoin(url, remote.name if url.endswith("/") else "")
    checksum = remote.checksum if sha256 is None else f"sha256:{sha256.lower()}"
    return Remote(address, checksum, remote.inside, remote.unpacks, remote.name)


def _generate(
    name: str, corruption: str, level: int, folder: str | Path | None, options: dict[str, Any]
) -> Shift:
    seed = options.pop("corruption_seed", 0)
    data = load(name, folder=folder, **options)
    images = corrupt(np.asarray(data.x_test), corruption, level, seed=seed)
    meta = {
        "source": "generated",
        "dataset": name,
        "corruption": corruption,
        "level": level,
        "seed": seed,
    }
    return images, data.y_test, meta


def _imagenet_c(
    folder: str | Path | None, corruption: str, level: int, *, size: int = 224
) -> Shift:
    load_c = _image_folders.load_imagenet_c
    return load_c(folder, corruption=corruption, level=level, size=size)


def _own_shift(path: Path, *, layout: str | None = None) -> Shift:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file. Check the path and the working directory.")
    arrays = load_npz(path)
    if not {"x_test", "y_test"} <= arrays.keys():
        raise damaged(path.name, "has no arrays x_test and y_test")
    _, x = as_inputs(arrays["x_test"], f"x_test of {path.name}", layout)
    y = check_labels(arrays["y_test"], f"y_test of {path.name}")
    if len(x) != len(y):
        raise damaged(path.name, f"has {len(x):,} inputs but {len(y):,} labels")
    return x, y, {"source": "npz", "file": path.name}


_ONLY_PUBLISHED = (
    "gaussian_blur",
    "saturate",
    "spatter",
)  # published as files, but not generated here


def _level(text: str, parts: list[str], most: int, *, least: int) -> int:
    if len(parts) != 1 or parts[0] not in map(str, range(least, most + 1)):
        rule = f"must end in a level from {least} to {most}"
        example = f"{text.rpartition('/')[0] or text}/3"
        raise refuse("name", rule, f"got {text!r}", f"Try {example!r}.")
    return int(parts[0])
