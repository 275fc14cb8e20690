"""Maximum mean calibration error: a kernel's view of confidence minus correctness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calibrant._core.checks import check_at_least
from calibrant.losses._batch import Batch, check_batch, counted
from calibrant.losses._compiled import CompiledLoss, of_columns
from calibrant.losses._outputs import top_of_ranks
from calibrant.losses._roots import root_of

MIN_WIDTH = 0.02


def mmce(
    logits: Tensor,
    labels: Tensor,
    *,
    width: float = 0.4,
    root: bool = True,
    ignore_index: int | None = None,
    gather: bool = False,
) -> Tensor:
    r"""Maximum mean calibration error of the batch.

    :math:`\sqrt{\frac{1}{N^2} \sum_{ij} (a_i - c_i)(a_j - c_j)\, e^{-|c_i - c_j| / w}}` with
    confidence c and correctness a. From 0 to 1; 0 where confidence and accuracy agree at the
    kernel's scale. Samples of equal confidence take the mean of their one-sided gradients; at the
    value 0 the root has none, and 0 is taken. No gradient flows through the correctness.

    Cost: a sort and a few sums of N numbers. The kernel falls with the distance in one dimension,
    so the N x N matrix is never formed.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    width
        Scale w of the kernel, at least 0.02.
    root
        Whether to take the root (as Kumar et al. do), or return the mean itself.
    gather
        Whether to treat the batches of all ranks of a distributed run as one; all must have the
        same size.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Kumar, Sarawagi, Jain 2018, "Trainable calibration measures for neural networks from kernel
    mean embeddings", ICML.

    Examples
    --------
    >>> mmce(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(0.5000)
    """
    batch = check_batch(logits, labels, ignore_index)
    return _penalty("kernel_energy", _mmce, batch, width, root=root, gather=gather)


def _mmce(batch: Batch, width: float, *, root: bool, gather: bool) -> Tensor:
    c, a, valid = top_of_ranks(batch, gather=gather)
    count = c.numel() if valid is None else valid.sum().clamp_min(1)
    return _energy(counted(a - c, valid) / count, c, width, root=root)


def mmce_weighted(
    logits: Tensor,
    labels: Tensor,
    *,
    width: float = 0.4,
    root: bool = True,
    ignore_index: int | None = None,
    gather: bool = False,
) -> Tensor:
    r"""Weighted MMCE: right and wrong samples count the same in total, however few are wrong.

    As :func:`mmce`, with the residual :math:`a_i - c_i` of each of the m right samples divided by
    m, and of each of the N - m wrong ones by N - m, instead of by N. A group without members
    contributes nothing. With soft targets a sample belongs to both groups by its share.

    Parameters
    ----------
    logits, labels, width, root, ignore_index, gather
        As in :func:`mmce`.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Kumar, Sarawagi, Jain 2018, ICML, section 4.

    Examples
    --------
    >>> mmce_weighted(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    tensor(0.)
    """
    batch = check_batch(logits, labels, ignore_index)
    return _penalty(
        "kernel_energy_weighted", _mmce_weighted, batch, width, root=root, gather=gather
    )


def _mmce_weighted(batch: Batch, width: float, *, root: bool, gather: bool) -> Tensor:
    c, a, valid = top_of_ranks(batch, gather=gather)
    right, wrong = counted(a, valid), counted(1 - a, valid)
    right = right / _at_least_some(right.sum())
    wrong = wrong / _at_least_some(wrong.sum())
    return _energy(right * (1 - c) - wrong * c, c, width, root=root)


def _at_least_some(total: Tensor) -> Tensor:
    return total.where(total > 0, 1)


def _penalty(
    name: str,
    reference: Callable[..., Tensor],
    batch: Batch,
    width: float,
    *,
    root: bool,
    gather: bool,
) -> Tensor:
    width = check_at_least("width", width, MIN_WIDTH, example=0.4)
    if gather:
        return reference(batch, width, root=root, gather=True)
    curve = CompiledLoss(name, width, float(root), of_batch=True)
    return of_columns(curve, lambda: reference(batch, width, root=root, gather=False), batch)


def _energy(residual: Tensor, confidence: Tensor, width: float, *, root: bool) -> Tensor:
    energy: Tensor = _KernelEnergy.apply(  # type: ignore[no-untyped-call]
        residual, confidence, width
    )
    return root_of(energy, 2) if root else energy


class _KernelEnergy(torch.autograd.Function):
    """Sum of r_i r_j exp(-|c_i - c_j| / w) over all pairs, in O(N log N).

    The gradient is written out, because the order among equal c must not matter to it.
    """

    @staticmethod
    def forward(ctx: Any, residual: Tensor, confidence: Tensor, width: float) -> Tensor:
        field, slope = _fields(residual, confidence, width)
        ctx.width = width
        ctx.save_for_backward(residual, confidence, field, slope)
        return (residual * field).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        residual, confidence, field, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            field, slope = _fields(residual, confidence, ctx.width)
        return 2 * gradient * field, 2 * gradient * residual * slope, None


def _fields(residual: Tensor, confidence: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Sums over j of r_j exp(-|c_i - c_j| / w), and their slopes in c_i; equal c have none.

    In the order of c, the sum over all j before i of r_j exp((c_j - c_i) / w) is a running sum of
    r_j exp(c_j / w), taken at i. Running upwards its last terms are the largest, so it loses
    nothing to rounding.
    """
    place = confidence.detach()
    rising, order = place.sort()
    grow = (confidence / width).exp()
    none = residual.new_zeros(1)
    up = torch.cat([none, (residual * grow)[order].cumsum(0)])
    down = torch.cat([(residual / grow)[order].flip(0).cumsum(0).flip(0), none])
    so_far = torch.cat([none, residual[order].cumsum(0)])
    first = torch.searchsorted(rising, place)  # of the samples equal to i
    behind = torch.searchsorted(rising, place, right=True)
    below, above = up[first] / grow, down[behind] * grow
    equal = so_far[behind] - so_far[first]
    return below + above + equal, (above - below) / width
