"""Cross-entropy whose gradient is weighted by how wrong a sample is."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._core.checks import check_at_least, check_norm
from calibrant.losses._batch import Batch, check_batch
from calibrant.losses._compiled import BRIERS, CompiledLoss, of_columns
from calibrant.losses._likelihood import ClassWeights, weighted

EUCLIDEAN = 2


def bsce_gra(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 2.0,
    norm: float = 2.0,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Cross-entropy weighted by the generalised Brier score of the sample (BSCE-GRA).

    :math:`-u^\gamma \log p_y` with :math:`u = \lVert p - t \rVert_q` the distance between
    prediction and one-hot (or soft) target. No gradient flows through u, so that it weighs the
    gradient of the cross-entropy; in the focal loss, the derivative of the weight weighs it too.
    With the defaults :math:`u^\gamma` is the Brier score. Range 0 to infinity; gamma = 0 is
    cross-entropy.

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma
        Exponent of the weight, >= 0.
    norm
        Order q of the norm, 1 <= q <= infinity.

    References
    ----------
    Lin et al. 2025, "Uncertainty weighted gradients for model calibration", CVPR.

    Examples
    --------
    >>> bsce_gra(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([0.0036])
    """
    gamma = check_at_least("gamma", gamma, 0, example=2)
    order = check_norm(norm, name="norm")
    batch = check_batch(logits, labels, ignore_index)
    if order == EUCLIDEAN:
        curve = CompiledLoss("bsce_gra", gamma, wanted=BRIERS)
        value = of_columns(curve, lambda: _bsce_gra(batch, gamma, order), batch)
    else:
        value = _bsce_gra(batch, gamma, order)
    return weighted(value, batch, class_weights)


def _bsce_gra(batch: Batch, gamma: float, order: float) -> Tensor:
    log_p = F.log_softmax(batch.logits, 1)
    with torch.no_grad():
        gap = log_p.exp()
        if batch.soft:
            gap -= batch.labels
        else:
            chosen = batch.labels.unsqueeze(1)
            gap.scatter_add_(1, chosen, gap.new_full(chosen.shape, -1))
        weight: Tensor = torch.linalg.vector_norm(gap, order, 1) ** gamma
    if batch.soft:
        return -log_p * weight.unsqueeze(1)
    return -log_p.gather(1, chosen).squeeze(1) * weight
