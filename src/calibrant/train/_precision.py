"""The number format of a training, from what the processor can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from calibrant._core.checks import check_choice

CHOICES = ("auto", "bf16", "fp32")
# Instructions that multiply bf16: two of x86, one of ARM. Without them it is emulated and ten
# times slower.
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


def choose_precision(precision: str, device: str) -> str:
    """Return "bf16" or "fp32"; "auto" is bf16 where the processor has instructions for it.

    Nothing is timed, so the same machine and version of PyTorch always give the same answer.
    Versions without ``torch.cpu.get_capabilities`` cannot tell what the processor has: "fp32".

    Examples
    --------
    >>> choose_precision("fp32", "cpu")
    'fp32'
    """
    check_choice("precision", precision, CHOICES)
    if precision != "auto":
        return precision
    return "bf16" if _has_bf16(device) else "fp32"


def _has_bf16(device: str) -> bool:
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in INSTRUCTIONS)
