"""Penalties on single predictions that do not use the label: norm, entropy, margin."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibrant._core.checks import check_at_least, check_norm
from calibrant.losses._batch import check_batch, counted
from calibrant.losses._compiled import ENTROPIES, RAMPS, CompiledLoss, of_columns
from calibrant.losses._outputs import negative_entropy_of
from calibrant.losses._written import written


def logit_norm(
    logits: Tensor, labels: Tensor, *, p: float = 1.0, ignore_index: int | None = None
) -> Tensor:
    r"""L_p norm of the logits of each sample, :math:`(\sum_k |z_k|^p)^{1/p}`.

    A penalty against large logits, and so against confidence; the papers add it to cross-entropy
    with p = 1 and weights of 0.001 to 0.05. The labels are not used.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    p
        Order of the norm, 1 <= p <= infinity. Where a logit is exactly 0, or all are, the norm
        has no gradient there and 0 is taken; equal largest logits at p = infinity share it.

    References
    ----------
    Joo and Chung 2020, arXiv:2006.06399; wang2021.

    Examples
    --------
    >>> logit_norm(torch.tensor([[3.0, -4.0]]), torch.tensor([0]), p=2)
    tensor([5.])
    """
    order = check_norm(p, name="p")
    batch = check_batch(logits, labels, ignore_index)
    if order in (1.0, math.inf):
        return counted(torch.linalg.vector_norm(batch.logits, order, 1), batch.valid)
    # The norm is homogeneous: in units of the largest logit no power overflows.
    unit = batch.logits.detach().abs().amax(1, keepdim=True)
    unit = unit.where(unit > 0, 1)
    value = torch.linalg.vector_norm(batch.logits / unit, order, 1) * unit.squeeze(1)
    return counted(value, batch.valid)


def negative_entropy(logits: Tensor, labels: Tensor, *, ignore_index: int | None = None) -> Tensor:
    r"""Negative entropy of the prediction in nats, :math:`\sum_k p_k \log p_k`.

    From -log K (uniform) to 0 (sure): minimising it makes predictions less confident. As a
    secondary loss with weight beta it is entropy regularisation, the confidence penalty. The labels
    are not used.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.

    References
    ----------
    Pereyra et al. 2017, arXiv:1701.06548.

    Examples
    --------
    >>> negative_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor([-0.6931])
    """
    batch = check_batch(logits, labels, ignore_index)
    curve = CompiledLoss("negative_entropy", wanted=ENTROPIES)
    value = of_columns(curve, lambda: negative_entropy_of(batch.logits), batch)
    return counted(value, batch.valid)


def margin_smoothing(
    logits: Tensor, labels: Tensor, *, margin: float = 10.0, ignore_index: int | None = None
) -> Tensor:
    r"""Margin-based label smoothing: how far logits fall more than a margin below the largest.

    :math:`\frac1K \sum_k \max(0, \max_j z_j - z_k - m)`. At margin 0 it acts like label smoothing;
    a positive margin leaves logits alone that are close enough together. The first of equal largest
    logits takes their gradient; exactly at the margin it is 0. The labels are not used.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    margin
        Margin that is not penalised, >= 0; the authors use 6 to 10.

    References
    ----------
    Liu et al. 2022, arXiv:2111.15430.

    Examples
    --------
    >>> margin_smoothing(torch.tensor([[5.0, 0.0]]), torch.tensor([0]), margin=3)
    tensor([1.])
    """
    margin = check_at_least("margin", margin, 0, example=10)
    batch = check_batch(logits, labels, ignore_index)
    z = batch.logits
    curve = CompiledLoss("margin_smoothing", 1 / batch.num_classes, wanted=RAMPS, margin=margin)
    value = of_columns(
        curve, lambda: (z.max(1, keepdim=True).values - margin - z).relu().mean(1), batch
    )
    return counted(value, batch.valid)


def acls(
    logits: Tensor,
    labels: Tensor,
    *,
    margin: float = 10.0,
    top_weight: float = 1.0,
    other_weight: float = 0.1,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Penalty of adaptive and conditional label smoothing (ACLS).

    With the largest logit :math:`z_t` of the sample, :math:`\lambda_t \max(0, z_t - m)^2 +
    \frac{\lambda_o}{K-1} \sum_{k \ne t} \max(0, z_t - z_k - m)^2`: the further a logit is
    beyond the margin, the more it is smoothed. In the sum :math:`z_t` is held fixed, so that only
    the other logits are pulled up. The authors add 0.1 times this penalty to cross-entropy, with
    the defaults here; this is the form of their code. Range 0 to infinity; the labels are not used.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    margin
        Margin m that is not penalised, >= 0.
    top_weight, other_weight
        Factors of the largest and of the other logits, >= 0.

    References
    ----------
    Park et al. 2023, "ACLS: Adaptive and conditional label smoothing for network calibration",
    ICCV, arXiv:2308.11911.

    Examples
    --------
    >>> acls(torch.tensor([[5.0, 0.0]]), torch.tensor([0]), margin=3)
    tensor([4.4000])
    """
    margin = check_at_least("margin", margin, 0, example=10)
    strong = check_at_least("top_weight", top_weight, 0, example=1)
    weak = check_at_least("other_weight", other_weight, 0, example=0.1)
    batch = check_batch(logits, labels, ignore_index)
    weak = weak / (batch.num_classes - 1)
    curve = CompiledLoss("acls", strong, weak, margin, wanted=RAMPS, margin=margin)
    value = of_columns(curve, lambda: _acls(batch.logits, margin, strong, weak), batch)
    return counted(value, batch.valid)


def _acls(logits: Tensor, margin: float, strong: float, weak: float) -> Tensor:
    def value(logits: Tensor) -> tuple[Tensor, ...]:
        largest, predicted = logits.max(1, keepdim=True)
        # The largest logit itself adds nothing to the sum: its distance is 0.
        below = (largest.detach() - margin - logits).relu()
        above = (largest - margin).relu()
        total = strong * above.square().squeeze(1) + weak * below.square().sum(1)
        return total, below, above, predicted

    def gradient(by_value: Tensor, below: Tensor, above: Tensor, predicted: Tensor) -> Tensor:
        by_value = 2 * by_value.unsqueeze(1)
        push = below * (-weak * by_value)
        return push.scatter_add_(1, predicted, strong * above * by_value)

    return written(value, gradient, logits)
