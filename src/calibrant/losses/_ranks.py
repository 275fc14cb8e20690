"""Sums over the ranks of a distributed run, with the gradient that makes it equal one process.

DistributedDataParallel averages the gradients of the R ranks. The backward pass here sums what
each rank sends to the shared sum, R times the gradient of one process, and the average brings it
back. Every rank must hold a batch and call the loss.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: object, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx: object, gradient: Tensor) -> Tensor:
        return sum_over_ranks(gradient)  # which is itself differentiable


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum ``values`` over all ranks; ``values`` itself outside a distributed run."""
    if not (dist.is_available() and dist.is_initialized()):
        return values
    total: Tensor = _SumOverRanks.apply(values)  # type: ignore[no-untyped-call]
    return total


def join_ranks(values: Tensor) -> Tensor:
    """Join the N ``values`` of each of R ranks into one vector of R·N, the same on every rank.

    All ranks must have the same N.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return values
    slots = values.new_zeros(dist.get_world_size(), *values.shape)
    return sum_over_ranks(slots.index_add(0, _rank(values), values[None])).flatten(0, 1)


def _rank(like: Tensor) -> Tensor:
    return torch.tensor([dist.get_rank()], device=like.device)
