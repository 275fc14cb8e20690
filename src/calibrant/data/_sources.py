"""DATASETS and SHIFTS: where each data set comes from and what reads it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant._core.checks import near_name, refuse
from calibrant._core.import_paths import import_object, is_import_path
from calibrant._core.options import check_option_names
from calibrant.data import _cifar, _digit_files, _image_folders, _news, _sst
from calibrant.data._dataset import Dataset, Kind
from calibrant.data._digits import load_digits
from calibrant.data._download import Remote
from calibrant.data._folder import own_path
from calibrant.data._signals import signals
from calibrant.data._synthetic import synthetic
from calibrant.data._user_npz import read_own


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

    >>> checked_by(DATASETS["cifar10"].remotes), checked_by(SHIFTS["cifar10.2"].remotes)
    ('md5', 'no checksum')
    """
    kinds = {remote.checksum.partition(":")[0] or "no checksum" for remote in remotes}
    return ", ".join(sorted(kinds))


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_SST = (
    Remote(
        "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
        "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
        unpacks="trees",
    ),
)
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
        (Remote(f"{_TORONTO}cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
    ),
    DatasetInfo(
        "cifar100",
        "image",
        "60,000 images 32x32, 100 classes",
        _cifar.CIFAR100.patterns,
        _cifar.load_cifar100,
        (Remote(f"{_TORONTO}cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),),
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
        "1.3 million images, 1,000 classes, decoded on demand",
        _image_folders.IMAGENET_PATTERNS,
        _image_folders.load_imagenet,
    ),
)
DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _INFOS}
_ZENODO = "https://zenodo.org/records/"
_CIFAR10_1 = "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets/"
_CIFAR10_2 = "https://github.com/modestyachts/cifar-10.2/raw/master/"
_V2 = "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/"
_V2_FOLDER = _image_folders.V2_FOLDERS["matched-frequency"]
# Archive, one of the corruptions in it, and its md5.
_IMAGENET_C = (
    ("noise", "gaussian_noise", "e80562d7f6c3f8834afb1ecf27252745"),
    ("blur", "defocus_blur", "2d8e81fdd8e07fef67b9334fa635e45c"),
    ("weather", "fog", "33ffea4db4d93fe4a428c40a6ce0c25d"),
    ("digital", "contrast", "89157860d7b10d5797849337ca2e5c03"),
    ("extra", "speckle_noise", "d492dfba5fc162d8ec2c3cd8ee672984"),
)
_SHIFT_INFOS = (
    ShiftInfo(
        "cifar10.1",
        "2,000 new test images for CIFAR-10",
        ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"),
        (
            Remote(
                f"{_CIFAR10_1}cifar10.1_v6_data.npy",
                "sha256:2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
                inside="cifar10.1",
            ),
            Remote(
                f"{_CIFAR10_1}cifar10.1_v6_labels.npy",
                "sha256:ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
                inside="cifar10.1",
            ),
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
    ShiftInfo(
        "imagenet-v2",
        "10,000 new test images for ImageNet",
        tuple(f"{name}/" for name in _image_folders.V2_FOLDERS.values()),
        (Remote(f"{_V2}imagenetv2-matched-frequency.tar.gz", unpacks=_V2_FOLDER),),
    ),
    ShiftInfo(
        "imagenet-c",
        "published corruptions: imagenet-c/CORRUPTION/LEVEL",
        ("ImageNet-C/",),
        tuple(
            Remote(f"{_ZENODO}2235448/files/{name}.tar", f"md5:{md5}", "ImageNet-C", first)
            for name, first, md5 in _IMAGENET_C
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


def load(name: str | Path, *, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a data set by name, or your own from a path that ends in .npz.

    Parameters
    ----------
    name
        One of ``DATASETS``, the path of a file with ``x_train, y_train, x_test, y_test``, or the
        import path ``package.module:function`` of a function that returns a ``Dataset``.
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
    check(text, options, "name")
    if text.endswith(".npz"):
        return read_own(own_path(text, folder), **options)
    if text not in DATASETS:
        return _call_own(text, options)
    info = DATASETS[text]
    return info.load(**options) if not info.files else info.load(folder, **options)


def check(name: str, options: Collection[str] = (), argument: str = "data") -> None:
    """Reject unknown data sets and options; files are not looked for."""
    if name not in DATASETS and is_import_path(name):
        return
    own = name.endswith(".npz")
    if not own and name not in DATASETS:
        rule = "must be a known data set, or the path of a .npz file"
        raise refuse(argument, rule, f"got {name!r}", near_name(name, DATASETS))
    check_options(read_own if own else DATASETS[name].load, options, name)


PUBLISHED_CORRUPTIONS = {"cifar10-c": 10, "cifar100-c": 100}


def _call_own(path: str, options: dict[str, Any]) -> Dataset:
    function = import_object(path, "data")
    check_options(function, options, path)
    made = function(**options)
    if not isinstance(made, Dataset):
        rule = "must return a calibrant.data.Dataset"
        raise refuse(path, rule, f"got {type(made).__name__}", "Try calibrant.data.from_arrays.")
    return made


def check_options(function: Callable[..., Any], options: Collection[str], name: str) -> None:
    """Reject options that a loader does not take."""
    parameters = inspect.signature(function).parameters
    known = [option for option in parameters if option not in ("folder", "path", "name")]
    check_option_names(name, options, known)
