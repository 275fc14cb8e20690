"""Soft-binned calibration error: bins that overlap, so that the error has a gradient."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from calibrant._core.checks import check_bins, check_choice, check_norm, check_positive
from calibrant.losses._batch import Batch, check_batch
from calibrant.losses._compiled import CompiledLoss, of_columns
from calibrant.losses._outputs import top
from calibrant.losses._ranks import sum_over_ranks
from calibrant.losses._roots import root_of


def soft_binned_ece(
    logits: Tensor,
    labels: Tensor,
    *,
    bins: int = 15,
    temperature: float = 0.01,
    norm: float = 2.0,
    form: Literal["bin", "label"] = "bin",
    ignore_index: int | None = None,
    gather: bool = False,
) -> Tensor:
    r"""Soft-binned expected calibration error of the batch (SB-ECE).

    A sample of confidence c belongs to bin j by the share
    :math:`u_j(c) = \mathrm{softmax}_j(-(c - \xi_j)^2 / T)`, with :math:`\xi_j` the centres of M
    equal bins on [0, 1]. With :math:`S_j = \sum_i u_j(c_i)` and the bins' mean confidence
    :math:`C_j` and accuracy :math:`A_j` in these shares,

    - ``form="bin"``: :math:`(\sum_j \frac{S_j}{N} |A_j - C_j|^p)^{1/p}`,
    - ``form="label"``: :math:`(\frac1N \sum_i \sum_j u_j(c_i) |A_j - c_i|^p)^{1/p}`, never smaller.

    From 0 to 1. As T falls to 0 it becomes the hard-binned error. At the value 0, and at a gap of
    0 with p = 1, the gradient taken is 0. None flows through the correctness.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    bins
        Number of bins M.
    temperature
        Softness T: a sample passes from one bin to the next over about M T of confidence.
    norm
        Order p of the norm, finite.
    form
        Whether to compare accuracy with the bins' confidence or with each sample's.
    gather
        Whether to treat the batches of all ranks of a distributed run as one.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Karandikar et al. 2021, arXiv:2108.00106, equations 8 to 12.

    Examples
    --------
    >>> z = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    >>> soft_binned_ece(z, torch.tensor([0, 0]))
    tensor(0.4319)
    """
    check_choice("form", form, ("bin", "label"))
    order = check_norm(norm, most=100)
    temperature = check_positive("temperature", temperature, example=0.01)
    bins = check_bins(bins)
    batch = check_batch(logits, labels, ignore_index)
    if gather or form == "label":
        return _soft_binned(batch, bins, temperature, order, by_bin=form == "bin", gather=gather)
    return of_columns(
        CompiledLoss("soft_binned_ece", float(bins), temperature, order, of_batch=True),
        lambda: _soft_binned(batch, bins, temperature, order, by_bin=True, gather=False),
        batch,
    )


def _soft_binned(
    batch: Batch, bins: int, temperature: float, order: float, *, by_bin: bool, gather: bool
) -> Tensor:
    c, a, valid = top(batch)
    u = soft_membership(c, bins, temperature)
    if valid is not None:
        u = u * valid.unsqueeze(1)
    total = sum_over_ranks if gather else _alone
    size = total(u.sum(0))
    safe_size = size.clamp_min(torch.finfo(u.dtype).tiny)  # an empty bin has the gap 0 / tiny
    if by_bin:
        gap = total((u * (a - c).unsqueeze(1)).sum(0)) / safe_size
        error = (size * gap.abs() ** order).sum()
    else:
        accuracy = total((u * a.unsqueeze(1)).sum(0)) / safe_size
        error = total((u * (accuracy - c.unsqueeze(1)).abs() ** order).sum())
    count = size.sum().detach()  # the shares of a sample sum to 1
    return root_of(error / count.where(count > 0, 1), order)


def soft_membership(confidence: Tensor, bins: int, temperature: float) -> Tensor:
    r"""Share of each sample in each bin, (N, M): :math:`softmax_j(-(c - \xi_j)^2 / T)`.

    Examples
    --------
    >>> soft_membership(torch.tensor([0.5]), bins=2, temperature=0.01)
    tensor([[0.5000, 0.5000]])
    """
    centres = (torch.arange(bins, dtype=confidence.dtype, device=confidence.device) + 0.5) / bins
    return ((confidence.unsqueeze(1) - centres).square() / -temperature).softmax(1)


def _alone(values: Tensor) -> Tensor:
    return values
