"""Losses whose gradient is written out beside their value: one node in PyTorch's graph for each.

In a small batch an operation with its nodes costs a multiple of the operation alone, and the
arithmetic hardly anything; in a large one, automatic differentiation makes more passes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import torch
from torch import Tensor

from calibrant.losses._compiled import is_traced

# From x: the value, then what its gradient is computed from.
Valued: TypeAlias = Callable[[Tensor], tuple[Tensor, ...]]
# From the gradient by the value, and from what follows the value: the gradient by x.
Gradient: TypeAlias = Callable[..., Tensor]


def written(value: Valued, gradient: Gradient, x: Tensor, *others: Tensor) -> Tensor:
    """``value(x)[0]`` with the gradient ``gradient(by_value, *value(x)[1:])``.

    Both must consist of differentiable operations, of which second derivatives are made. Where
    one of the ``others``, which the value also depends on, needs a gradient, PyTorch derives all
    gradients from ``value``; and in transforms of ``torch.func``, which refuse the node.
    """
    if any(one.requires_grad for one in others):
        return value(x)[0]
    if is_traced():
        return _node(value, gradient, x)
    with suppress(RuntimeError):
        return _node(value, gradient, x)
    return value(x)[0]


def _node(value: Valued, gradient: Gradient, x: Tensor) -> Tensor:
    result: Tensor = _Written.apply(x, value, gradient)  # type: ignore[no-untyped-call]
    return result


class _Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Valued, gradient: Gradient) -> Tensor:
        result, *known = value(x)
        ctx.save_for_backward(x, *known)
        ctx.value, ctx.gradient = value, gradient
        return result

    @staticmethod
    def backward(ctx: Any, by_value: Tensor) -> tuple[Tensor, None, None]:
        x, *known = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            known = ctx.value(x)[1:]
        return ctx.gradient(by_value, *known), None, None
