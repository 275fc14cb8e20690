"""Expected squared difference: calibration error without bins or kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.losses._batch import Batch, check_batch
from calibrant.losses._compiled import CompiledLoss, of_columns
from calibrant.losses._outputs import top_of_ranks

# The variance of the mean over the other samples needs two of them.
MIN_SAMPLES = 3


def esd(
    logits: Tensor, labels: Tensor, *, ignore_index: int | None = None, gather: bool = False
) -> Tensor:
    r"""Expected squared difference of the batch (ESD), an unbiased estimate without parameters.

    With confidence c and correctness a, :math:`\mathbb{E}_{c'}\bigl[\mathbb{E}[(a - c)\,
    \mathbf{1}(c \le c')]^2\bigr]` is 0 exactly where the model is calibrated. For each sample i,
    the mean :math:`\bar g_i` of :math:`g_{ij} = (a_j - c_j)\,\mathbf{1}(c_j \le c_i)` over the
    other samples is squared, and its variance :math:`s_i^2 / (N - 1)` subtracted; the value is the
    mean over i. It is negative by chance near calibration, and 0 for fewer than 3 samples. No
    gradient flows through the correctness or the comparison of confidences.

    Cost: a sort and a few running sums of N numbers.

    Parameters
    ----------
    logits, labels, ignore_index, gather
        As in :func:`mmce`.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Yoon et al. 2023, "ESD: Expected squared difference as a tuning-free trainable calibration
    measure", ICLR, arXiv:2303.02472.

    Examples
    --------
    >>> esd(torch.tensor([[2.0, 0.0], [0.0, 0.5], [1.0, 0.0]]), torch.tensor([0, 0, 0]))
    tensor(-0.0558)
    """
    batch = check_batch(logits, labels, ignore_index)
    if gather:
        return _esd(batch, gather=True)
    curve = CompiledLoss("esd", float(MIN_SAMPLES), of_batch=True)
    return of_columns(curve, lambda: _esd(batch, gather=False), batch)


def _esd(batch: Batch, *, gather: bool) -> Tensor:
    c, a, valid = top_of_ranks(batch, gather=gather)
    counts = torch.ones_like(c) if valid is None else valid.to(c.dtype)
    residual = (a - c) * counts
    n = counts.sum()
    others = (n - 1).clamp_min(1)
    both = torch.stack([residual, residual**2])
    mean, square = ((_up_to_each(c, both) - both) / others).unbind()
    variance = (square - mean**2) / (n - 2).clamp_min(1)  # of the mean: s² / (N - 1)
    total = ((mean**2 - variance) * counts).sum() / n.clamp_min(1)
    return total.where(n >= MIN_SAMPLES, total * 0)


def _up_to_each(place: Tensor, values: Tensor) -> Tensor:
    """For each sample, the sums along each row of ``values`` up to and with its place."""
    rising, order = place.detach().sort()
    running = values[:, order].cumsum(1)
    last = torch.searchsorted(rising, place.detach(), right=True) - 1
    return running[:, last]
