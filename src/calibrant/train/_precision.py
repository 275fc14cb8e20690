"""The fastest number format on this machine, from a short benchmark."""

from __future__ import annotations

import time
from functools import lru_cache

import torch
import torch.nn.functional as F

from calibrant._core.checks import check_choice

CHOICES = ("auto", "bf16", "fp32")
# bf16 must be clearly faster: it costs precision, and where the processor lacks it, it is
# emulated and ten times slower.
WORTH_IT = 1.2


def choose_precision(precision: str, device: str) -> str:
    """Return "bf16" or "fp32"; "auto" measures which is faster.

    Examples
    --------
    >>> choose_precision("fp32", "cpu")
    'fp32'
    """
    check_choice("precision", precision, CHOICES)
    return _probe(device) if precision == "auto" else precision


@lru_cache
def _probe(device: str) -> str:
    """Time forward and backward of a convolution in both formats, best of a few rounds."""
    x = torch.randn(32, 32, 32, 32, device=device).to(memory_format=torch.channels_last)
    weight = torch.randn(32, 32, 3, 3, device=device, requires_grad=True)
    best = {"fp32": float("inf"), "bf16": float("inf")}
    for _ in range(4):
        for name, seconds in best.items():
            start = time.perf_counter()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=name == "bf16"):
                out = F.conv2d(x, weight, padding=1)
            torch.autograd.backward(out.float().sum())
            if device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(seconds, time.perf_counter() - start)
    return "bf16" if best["fp32"] > WORTH_IT * best["bf16"] else "fp32"
