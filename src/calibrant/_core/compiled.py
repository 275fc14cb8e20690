"""Which implementation of the row sweeps runs: the compiled extension, or NumPy."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from calibrant._core.checks import InputError, refuse

VARIABLE = "CALIBRANT_KERNELS"


@functools.cache
def compiled_rows() -> Any | None:
    """The compiled extension, or None where NumPy serves.

    ``CALIBRANT_KERNELS=numpy`` leaves the extension aside, and ``c`` insists on it.
    """
    choice = os.environ.get(VARIABLE, "")
    if choice not in ("", "c", "numpy"):
        raise refuse(VARIABLE, "must be c or numpy", f"got {choice!r}", "Or leave it unset.")
    if choice == "numpy":
        return None
    try:
        return importlib.import_module("calibrant._core._rows")
    except ImportError as error:
        if choice == "c":
            advice = "install a wheel, or install from source with a C compiler (GCC or Clang)"
            raise InputError(f"{VARIABLE}=c needs the compiled extension; {advice}.") from error
        return None


def kernels() -> str:
    """Which kernels sweep over rows of scores: ``"c"``, or ``"numpy"`` without the extension.

    Both meet the same precision: results differ by rounding. Results of one kind are the same, bit
    for bit, whatever the number of threads.

    >>> kernels() in ("c", "numpy")
    True
    """
    return "numpy" if compiled_rows() is None else "c"


def kernel_details() -> str:
    """The kernels with their instruction set, as ``calibrant --version`` prints them."""
    rows = compiled_rows()
    return "numpy" if rows is None else f"c, {rows.instructions()}"
