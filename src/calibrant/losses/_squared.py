"""Squared errors: of the probabilities (Brier) and of the logits."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._core.checks import check_at_least, check_choice
from calibrant.losses._batch import Batch, check_batch, check_class_weights, sample_weights
from calibrant.losses._compiled import BRIERS, CompiledLoss, of_columns
from calibrant.losses._likelihood import ClassWeights


def brier(
    logits: Tensor,
    labels: Tensor,
    *,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Brier loss: squared distance between probabilities and target, summed over classes.

    :math:`\sum_k (p_k - t_k)^2`, from 0 (certain and correct) to 2 (certain and wrong). Bounded, so
    a sample that cannot be fitted does not drive the logits apart; its gradient vanishes when the
    network is certain and wrong.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    class_weights
        K factors; a sample counts with its class's, or with the mean over its soft target.

    References
    ----------
    Brier 1950, "Verification of forecasts expressed in terms of probability".

    Examples
    --------
    >>> brier(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.5000])
    """
    batch = check_batch(logits, labels, ignore_index)
    value = of_columns(
        CompiledLoss("squared_gap", 1.0, wanted=BRIERS), lambda: _brier(batch), batch
    )
    return _times_weight(value, batch, class_weights)


def _brier(batch: Batch) -> Tensor:
    target = batch.labels if batch.soft else _one_hot(batch)
    return F.mse_loss(batch.logits.softmax(1), target, reduction="none").sum(1)


def squared_error(
    logits: Tensor,
    labels: Tensor,
    *,
    on: Literal["probabilities", "logits"] = "probabilities",
    scale: float = 1.0,
    target: float = 1.0,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Mean squared error over the classes, of the probabilities or of the logits themselves.

    ``on="probabilities"``: :math:`\frac1K \sum_k (p_k - t_k)^2`, the Brier loss over K.
    ``on="logits"``: :math:`\frac1K [a (z_y - b)^2 + \sum_{k \ne y} z_k^2]` with a = ``scale`` and
    b = ``target``, no softmax (Hui and Belkin, who take a = b = 1, and a = 15, b = 30 for 1,000
    classes). With soft targets each class counts by its share:
    :math:`\frac1K \sum_k [a t_k (z_k - b)^2 + (1 - t_k) z_k^2]`.

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`brier`.
    on
        What is compared with the target.
    scale, target
        Weight and wanted value of the true class's logit; used with ``on="logits"``.

    References
    ----------
    Hui and Belkin 2021, arXiv:2006.07322.

    Examples
    --------
    >>> squared_error(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.2500])
    >>> squared_error(torch.tensor([[2.0, 1.0]]), torch.tensor([0]), on="logits")
    tensor([1.])
    """
    check_choice("on", on, ("probabilities", "logits"))
    batch = check_batch(logits, labels, ignore_index)
    if on == "probabilities":
        classes = batch.num_classes
        curve = CompiledLoss("squared_gap", 1 / classes, wanted=BRIERS)
        value = of_columns(curve, lambda: _brier(batch) / classes, batch)
    else:
        scale = check_at_least("scale", scale, 0, example=1)
        target = check_at_least("target", target, 0, example=1)
        value = _of_logits(batch, scale, target)
    return _times_weight(value, batch, class_weights)


def _of_logits(batch: Batch, scale: float, target: float) -> Tensor:
    z = batch.logits
    if batch.soft:
        t = batch.labels
        return (scale * t * (z - target).square() + (1 - t) * z.square()).mean(1)
    true = z.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
    others = z.square().sum(1) - true.square()
    return (scale * (true - target).square() + others) / batch.num_classes


def _one_hot(batch: Batch) -> Tensor:
    # Not F.one_hot, which counts classes on the device and has them last.
    zeros = torch.zeros_like(batch.logits, requires_grad=False)
    return zeros.scatter_(1, batch.labels.unsqueeze(1), 1.0)


def _times_weight(values: Tensor, batch: Batch, class_weights: ClassWeights) -> Tensor:
    weights = sample_weights(batch, check_class_weights(class_weights, batch))
    return values if weights is None else values * weights
