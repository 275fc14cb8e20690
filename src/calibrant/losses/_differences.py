"""Differences between mean confidence and accuracy: of the top class, or of every class."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.losses._batch import Batch, check_batch, counted, flat
from calibrant.losses._compiled import CompiledLoss, of_classes, of_columns
from calibrant.losses._outputs import top
from calibrant.losses._ranks import sum_over_ranks


def dca(
    logits: Tensor, labels: Tensor, *, ignore_index: int | None = None, gather: bool = False
) -> Tensor:
    r"""Difference between confidence and accuracy of the batch, :math:`|\bar a - \bar c|`.

    From 0 to 1. At 0 the gradient taken is 0. None flows through the correctness.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    gather
        Whether to treat the batches of all ranks of a distributed run as one.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Liang et al. 2020, arXiv:2009.04057.

    Examples
    --------
    >>> dca(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(0.5000)
    """
    batch = check_batch(logits, labels, ignore_index)
    if gather:
        return _dca(batch, gather=True)
    return of_columns(CompiledLoss("dca", of_batch=True), lambda: _dca(batch, gather=False), batch)


def _dca(batch: Batch, *, gather: bool) -> Tensor:
    c, a, valid = top(batch)
    gap = counted(a - c, valid)
    return _mean_gap(gap.sum(), gap, valid, gather=gather)


def mdca(
    logits: Tensor, labels: Tensor, *, ignore_index: int | None = None, gather: bool = False
) -> Tensor:
    r"""Multi-class difference between confidence and accuracy of the batch (MDCA).

    :math:`\frac1K \sum_k |\frac1N \sum_i p_{ik} - \frac1N \sum_i t_{ik}|`: for every class, the
    mean probability against how often it is the true one. From 0 to 2/K. At a difference of 0 the
    gradient taken is 0.

    Parameters
    ----------
    logits, labels, ignore_index, gather
        As in :func:`dca`.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Hebbalaguppe et al. 2022, arXiv:2203.13834.

    Examples
    --------
    >>> mdca(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0]))
    tensor(0.5000)
    """
    batch = check_batch(logits, labels, ignore_index)
    if gather:
        return _mdca(batch, gather=True)
    return of_classes(lambda: _mdca(batch, gather=False), batch)


def _mdca(batch: Batch, *, gather: bool) -> Tensor:
    probs, valid = flat(batch.logits.softmax(1)), batch.flat_valid
    if valid is not None:
        probs = probs * valid.unsqueeze(1)
    if batch.soft:
        frequency = flat(batch.labels).sum(0)
    else:
        ones = counted(probs.new_ones(probs.shape[0]), valid)
        frequency = torch.zeros_like(probs[0]).index_add(0, batch.labels.flatten(), ones)
    return _mean_gap(probs.sum(0) - frequency, probs[:, 0], valid, gather=gather)


def _mean_gap(gap: Tensor, like: Tensor, valid: Tensor | None, *, gather: bool) -> Tensor:
    """Mean over its entries of |gap / number of samples|."""
    count = like.new_tensor(like.numel()) if valid is None else valid.sum().to(like.dtype)
    if gather:
        gap, count = sum_over_ranks(gap), sum_over_ranks(count)
    return (gap / count.clamp_min(1)).abs().mean()
