"""Roots whose gradient at 0 is 0 instead of infinite."""

from __future__ import annotations

import torch
from torch import Tensor


def root_of(value: Tensor, order: float) -> Tensor:
    """The order-th root of a value >= 0; at 0, and at rounding below it, 0 with gradient 0."""
    if order == 1:
        return value
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1) ** (1 / order), 0)
