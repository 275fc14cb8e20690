"""The registry of data sets and shifts, and the functions that load them by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, near_name, refuse
from calibrant._core.files import damaged
from calibrant.data import _cifar, _digit_files, _image_folders, _news, _sst
from calibrant.data._corruptions import CORRUPTIONS, LEVELS, corrupt
from calibrant.data._dataset import Dataset, Kind, check_labels
from calibrant.data._digits import load_digits
from calibrant.data._download import Remote, fetch
from calibrant.data._folder import data_folder, own_path
from calibrant.data._reading import load_npz
from calibrant.data._signals import signals
from calibrant.data._synthetic import MAX_LEVEL, synthetic
from calibrant.data._user_npz import as_inputs, read_own


@dataclass(frozen=True)
class DatasetInfo:
    """One line of ``DATASETS``.

    Attributes
    ----------
    name, kind, description
        What it is.
    files
        What is looked for in the data folder, in this order; empty for embedded sets.
    load
        The function that loads it.
    remotes
        Where its files are published, with their checksums.
    """

    name: str
    kind: Kind
    description: str
    files: tuple[str, ...]
    load: Callable[..., Dataset]
    remotes: tuple[Remote, ...] = ()

    @property
    def source(self) -> str:
        """Address of the first file, or "" if there is none to fetch."""
        return self.remotes[0].url if self.remotes else ""

    @property
    def checksum(self) -> str:
        """``md5:…`` or ``sha256:…`` of the first file, or "" if none is published."""
        return self.remotes[0].checksum if self.remotes else ""

    @property
    def sha256(self) -> str:
        """The sha256 of the first file, or "" if its authors publish another or none."""
        return self.checksum.removeprefix("sha256:") if self.checksum.startswith("sha256:") else ""


@dataclass(frozen=True)
class ShiftInfo:
    """One line of ``SHIFTS``: a test set that differs from the training set in a known way."""

    name: str
    description: str
    files: tuple[str, ...]
    remotes: tuple[Remote, ...] = ()


def checked_by(remotes: tuple[Remote, ...]) -> str:
    """How the files of a set are verified after they were fetched; "" if there are none to fetch.

    >>> checked_by(DATASETS["cifar10"].remotes), checked_by(DATASETS["sst"].remotes)
    ('md5', 'no checksum')
    """
    kinds = {remote.checksum.partition(":")[0] or "no checksum" for remote in remotes}
    return ", ".join(sorted(kinds))


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_SST = (Remote("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip", unpacks="trees"),)
_NEWS = Remote(
    "https://ndownloader.figshare.com/files/5975967",
    "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    file="20news-bydate.tar.gz",
)
_TINY = Remote(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "md5:90528d7ca1a48142e341f4ef8d21d0de",
    unpacks="tiny-imagenet-200",
)


def _idx_remotes(base: str, inside: str, checksums: tuple[str, ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{base}{stem}.gz", f"md5:{checksum}", inside)
        for stem, checksum in zip(_digit_files.IDX_STEMS, checksums, strict=True)
    )


_INFOS = (
    DatasetInfo("digits", "image", "1,797 handwritten digits 8x8, embedded", (), load_digits),
    DatasetInfo("synthetic", "vector", "known true probabilities, embedded", (), synthetic),
    DatasetInfo("signals", "signal", "noisy waves for quick studies, embedded", (), signals),
    DatasetInfo(
        "cifar10",
        "image",
        "60,000 images 32x32, 10 classes",
        _cifar.CIFAR10.patterns,
        _cifar.load_cifar10,
        (Remote(f"{_TORONTO}cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),),
    ),
    DatasetInfo(
        "cifar100",
        "image",
        "60,000 images 32x32, 100 classes",
        _cifar.CIFAR100.patterns,
        _cifar.load_cifar100,
        (Remote(f"{_TORONTO}cifar-100-python.tar.gz", "md5:eb9058c3a382ffc7106e4002c42a8d85"),),
    ),
    DatasetInfo(
        "svhn",
        "image",
        "99,289 house numbers 32x32, 10 digits",
        _digit_files.SVHN_FILES,
        _digit_files.load_svhn,
        (
            Remote(f"{_SVHN}train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", "svhn"),
            Remote(f"{_SVHN}test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", "svhn"),
        ),
    ),
    DatasetInfo(
        "mnist",
        "image",
        "70,000 grey digits 28x28",
        _digit_files.IDX_STEMS,
        _digit_files.load_mnist,
        _idx_remotes(
            _MNIST,
            "mnist",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
    ),
    DatasetInfo(
        "fashion_mnist",
        "image",
        "70,000 grey clothes 28x28",
        tuple(f"fashion_mnist/{stem}" for stem in _digit_files.IDX_STEMS),
        _digit_files.load_fashion_mnist,
        _idx_remotes(
            _FASHION,
            "fashion_mnist",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    ),
    DatasetInfo(
        "news20",
        "tokens",
        "18,846 messages in 20 groups, by date",
        _news.PATTERNS,
        _news.load_news20,
        (_NEWS,),
    ),
    DatasetInfo(
        "sst", "trees", "11,855 sentiment trees, 5 classes", _sst.PATTERNS, _sst.load_sst, _SST
    ),
    DatasetInfo(
        "sst2", "trees", "9,613 sentiment trees, 2 classes", _sst.PATTERNS, _sst.load_sst2, _SST
    ),
    DatasetInfo(
        "tiny_imagenet",
        "image",
        "110,000 images 64x64, 200 classes",
        _image_folders.TINY_PATTERNS,
        _image_folders.load_tiny_imagenet,
        (_TINY,),
    ),
    DatasetInfo(
        "imagenet",
        "image",
        "1.3 million images, 1,000 classes, decoded when asked for",
        _image_folders.IMAGENET_PATTERNS,
        _image_folders.load_imagenet,
    ),
)
DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _INFOS}

_ZENODO = "https://zenodo.org/records/"
_CIFAR10_1 = "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/"
_CIFAR10_2 = "https://github.com/modestyachts/cifar-10.2/raw/master/"
_SHIFT_INFOS = (
    ShiftInfo(
        "cifar10.1",
        "2,000 new test images for CIFAR-10",
        ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"),
        (
            Remote(f"{_CIFAR10_1}cifar10.1_v6_data.npy", inside="cifar10.1"),
            Remote(f"{_CIFAR10_1}cifar10.1_v6_labels.npy", inside="cifar10.1"),
        ),
    ),
    ShiftInfo(
        "cifar10.2",
        "2,000 more new test images for CIFAR-10",
        ("cifar102_test.npz",),
        (Remote(f"{_CIFAR10_2}cifar102_test.npz", inside="cifar10.2"),),
    ),
    ShiftInfo(
        "cifar10-c",
        "published corruptions: cifar10-c/CORRUPTION/LEVEL",
        ("CIFAR-10-C/",),
        (
            Remote(
                f"{_ZENODO}2535967/files/CIFAR-10-C.tar",
                "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
                unpacks="CIFAR-10-C",
            ),
        ),
    ),
    ShiftInfo(
        "cifar100-c",
        "published corruptions: cifar100-c/CORRUPTION/LEVEL",
        ("CIFAR-100-C/",),
        (
            Remote(
                f"{_ZENODO}3555552/files/CIFAR-100-C.tar",
                "md5:11f0ed0f1191edbf9fa23466ae6021d3",
                unpacks="CIFAR-100-C",
            ),
        ),
    ),
    *(
        ShiftInfo(
            f"{name}-generated",
            f"generated corruptions: {name}-generated/CORRUPTION/LEVEL",
            info.files,
        )
        for name, info in DATASETS.items()
        if info.kind == "image" and name != "imagenet"
    ),
    ShiftInfo("synthetic", "wider spread: synthetic/LEVEL", ()),
    ShiftInfo("signals", "more noise: signals/LEVEL", ()),
)
SHIFTS: dict[str, ShiftInfo] = {info.name: info for info in _SHIFT_INFOS}

Shift = tuple[Any, NDArray[np.int64], dict[str, Any]]


def load(name: str | Path, *, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a data set by name, or your own from a path that ends in .npz.

    Parameters
    ----------
    name
        One of ``DATASETS``, or the path of a file with ``x_train, y_train, x_test, y_test``.
    folder
        Folder with the files; the environment variable ``CALIBRANT_DATA`` if None.
    options
        Options of the loader, for example ``length=200`` for news20 or ``seed=1`` for signals.

    Examples
    --------
    >>> load("synthetic", num_classes=3, level=2)
    Dataset(synthetic: 2,000 training and 5,000 test samples, 3 classes, vector)
    """
    text = str(name)
    if text.endswith(".npz"):
        _check_options(read_own, options, text)
        return read_own(own_path(text, folder), **options)
    if text not in DATASETS:
        rule = "must be a data set, or the path of a .npz file"
        raise refuse("name", rule, f"got {text!r}", near_name(text, DATASETS))
    info = DATASETS[text]
    _check_options(info.load, options, text)
    return info.load(**options) if not info.files else info.load(folder, **options)


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
        _check_options(_own_shift, options, text)
        return _own_shift(own_path(text, folder), **options)
    base, corruption, level = parse_shift(text)
    if base.endswith("-generated"):
        return _generate(base.removesuffix("-generated"), corruption, level, folder, options)
    if base.endswith("-c"):
        _check_options(lambda: None, options, base)
        classes = _PUBLISHED[base]
        return _cifar.load_cifar_c(folder, corruption=corruption, level=level, classes=classes)
    if base in ("synthetic", "signals"):
        data = load(base, level=level, **options)
        return data.x_test, data.y_test, dict(data.meta)
    loader = _cifar.load_cifar10_1 if base == "cifar10.1" else _cifar.load_cifar10_2
    _check_options(loader, options, base)
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


_PUBLISHED = {"cifar10-c": 10, "cifar100-c": 100}


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


_ONLY_PUBLISHED = ("gaussian_blur", "saturate", "spatter")  # in files, but not generated here


def _level(text: str, parts: list[str], most: int, *, least: int) -> int:
    if len(parts) != 1 or parts[0] not in map(str, range(least, most + 1)):
        rule = f"must end in a level from {least} to {most}"
        example = f"{text.rpartition('/')[0] or text}/3"
        raise refuse("name", rule, f"got {text!r}", f"Try {example!r}.")
    return int(parts[0])


def _check_options(function: Callable[..., Any], options: dict[str, Any], name: str) -> None:
    known = [
        option
        for option in inspect.signature(function).parameters
        if option not in ("folder", "path", "name")
    ]
    for option in options:
        if option not in known:
            advice = near_name(option, known) if known else "It has no options."
            raise refuse("options", f"must be options of {name}", f"got {option!r}", advice)
