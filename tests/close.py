"""``torch.testing.assert_close`` without the imports that its first call makes."""

from __future__ import annotations

from typing import Any

import torch

# What PyTorch allows where nothing is said: relative, absolute.
USUAL = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    **more: Any,
) -> None:
    """The same check.

    PyTorch's own loads distributed tensors, which takes seconds in each process. It decides, and
    explains, where these tensors are not alike and close.
    """
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        alike = actual.shape == expected.shape and actual.dtype == expected.dtype
        if alike and actual.device == expected.device and actual.dtype in USUAL:
            allowed = USUAL[actual.dtype] if rtol is None or atol is None else (rtol, atol)
            if torch.isclose(actual, expected, *allowed).all():
                return
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, **more)
