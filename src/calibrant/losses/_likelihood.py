"""Losses of the probability given to the true class: cross-entropy and the focal family.

Each is a function of -log p of the true class. With soft targets t it is the mean of that function
over the classes, weighted by t; so a one-hot target and a class number give the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._core.checks import check_at_least, check_choice, refuse
from calibrant.losses._batch import (
    Batch,
    along_classes,
    check_batch,
    check_class_weights,
    counted,
)
from calibrant.losses._compiled import RIVALS, SPREADS, CompiledLoss, of_columns

# PyTorch ignores the label -100 by default; here only ignore_index does that.
NO_LABEL = -(2**62)
ClassWeights: TypeAlias = Tensor | Sequence[float] | None


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    *,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Cross-entropy, the negative log-likelihood of the true class, in nats.

    :math:`-\log p_y`, or :math:`-\sum_k t_k \log p_k` for soft targets. Range 0 to infinity.

    Parameters
    ----------
    logits
        (N, K) or (N, K, …) for segmentation.
    labels
        Class indices (N, …) or target probabilities (N, K, …).
    class_weights
        K factors, one per class.
    ignore_index
        Class index that marks samples to ignore; their value is 0.

    Returns
    -------
    Tensor
        One value per sample, (N, …).

    Examples
    --------
    >>> cross_entropy(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([0.1269])
    """
    batch = check_batch(logits, labels, ignore_index)
    return weighted(negative_log(batch), batch, class_weights)


def label_smoothing(
    logits: Tensor,
    labels: Tensor,
    *,
    epsilon: float = 0.05,
    spread: Literal["all", "others"] = "all",
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Cross-entropy against targets with a fraction ``epsilon`` of their mass redistributed.

    ``spread="all"`` gives it to all K classes, :math:`t'_k = (1-\epsilon) t_k + \epsilon/K`
    (wang2021, PyTorch). ``spread="others"`` gives it to the K - 1 other classes,
    :math:`t'_k = (1-\epsilon) t_k + \epsilon (1-t_k)/(K-1)` (mukhoti2020). The two are the same
    family: ``others`` with epsilon is ``all`` with epsilon K / (K - 1).

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    epsilon
        Mass redistributed, -1 < epsilon < 1; 0 is cross-entropy. With ``spread="others"`` at most
        (K - 1) / K, where the target is uniform. A negative one sharpens the targets beyond one-hot
        (wang2021, section 5.2, where -0.01 already makes training fail): the loss then has no lower
        bound.
    spread
        Which classes get it.

    References
    ----------
    Szegedy et al. 2016, arXiv:1512.00567; Müller et al. 2019, arXiv:1906.02629.

    Examples
    --------
    >>> label_smoothing(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), epsilon=0.1)
    tensor([0.2269])
    """
    check_choice("spread", spread, ("all", "others"))
    batch = check_batch(logits, labels, ignore_index)
    weights = check_class_weights(class_weights, batch)
    epsilon = _check_epsilon(epsilon, spread, batch.num_classes)
    if weights is None:
        curve = CompiledLoss("label_smoothing", epsilon, wanted=SPREADS)
        value = of_columns(curve, lambda: _smoothed(batch, None, epsilon), batch)
    else:
        value = _smoothed(batch, weights, epsilon)
    return counted(value, batch.valid)


def _smoothed(batch: Batch, weights: Tensor | None, epsilon: float) -> Tensor:
    # PyTorch's own smoothing is "all", fused with the cross-entropy; it must not be negative.
    value = F.cross_entropy(
        batch.logits,
        batch.labels,
        weights,
        reduction="none",
        label_smoothing=max(epsilon, 0.0),
        ignore_index=NO_LABEL,
    )
    if epsilon < 0:
        log_p = F.log_softmax(batch.logits, 1)
        if weights is not None:
            log_p = log_p * along_classes(weights, log_p)
        value = (1 - epsilon) * value - epsilon * log_p.mean(1)
    return value


def _check_epsilon(epsilon: float, spread: str, num_classes: int) -> float:
    """Return epsilon as the ``all`` definition has it."""
    most = 1.0 if spread == "all" else (num_classes - 1) / num_classes
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not -1 < epsilon < 1:
        raise refuse("epsilon", "must lie in -1 < epsilon < 1", f"got {epsilon!r}", "Try 0.05.")
    if epsilon > most:
        rule = f"must be at most (K - 1) / K = {most:g} for spread='others' and K = {num_classes}"
        raise refuse("epsilon", rule, f"got {epsilon!r}", "Try 0.05, or spread='all'.")
    return min(epsilon / most, 1.0)


def focal(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 3.0,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Focal loss: cross-entropy that counts a sample less the better it is already fitted.

    :math:`-(1-p_y)^\gamma \log p_y`. Range 0 to infinity; gamma = 0 is cross-entropy. It is at
    least cross-entropy minus gamma times the entropy of p, so it keeps predictions less confident
    (mukhoti2020).

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma
        How fast well-fitted samples lose weight, >= 0. At p = 1 and gamma < 1, where the weight
        has no derivative, value and gradient are 0, their limits.

    References
    ----------
    Lin et al. 2017, arXiv:1708.02002; Mukhoti et al. 2020, arXiv:2002.09437.

    Examples
    --------
    >>> focal(torch.tensor([[2.0, 0.0]]), torch.tensor([0]), gamma=0)
    tensor([0.1269])
    """
    gamma = check_at_least("gamma", gamma, 0, example=3)
    return _expected(
        lambda nll: focal_power(-torch.expm1(-nll), gamma) * nll,
        CompiledLoss("focal", gamma),
        check_batch(logits, labels, ignore_index),
        class_weights,
    )


def focal_power(base: Tensor, exponent: float | Tensor) -> Tensor:
    """Compute base ** exponent for base >= 0, with a gradient of 0 at base = 0, never infinite."""
    if isinstance(exponent, Tensor) or exponent < 1:
        base = base.clamp_min(torch.finfo(base.dtype).tiny)
    return base**exponent


def sample_dependent_focal(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma_low: float = 5.0,
    gamma_high: float = 3.0,
    threshold: float = 0.2,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Focal loss whose gamma depends on how well the sample is fitted (FLSD-53).

    gamma is ``gamma_low`` where :math:`p_y` < ``threshold``, else ``gamma_high``. The value jumps
    at the threshold; the gradient there is that of ``gamma_high``.

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma_low, gamma_high
        The two exponents, >= 0.
    threshold
        Probability of the true class that parts them.

    References
    ----------
    Mukhoti et al. 2020, arXiv:2002.09437.

    Examples
    --------
    >>> z, y = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
    >>> bool(sample_dependent_focal(z, y) == focal(z, y, gamma=3))
    True
    """
    low = check_at_least("gamma_low", gamma_low, 0, example=5)
    high = check_at_least("gamma_high", gamma_high, 0, example=3)
    check_at_least("threshold", threshold, 0, example=0.2)

    def loss(nll: Tensor) -> Tensor:
        miss = -torch.expm1(-nll)
        weight = torch.where(miss > 1 - threshold, focal_power(miss, low), focal_power(miss, high))
        return weight * nll

    curve = CompiledLoss("sample_dependent_focal", low, high, threshold)
    return _expected(loss, curve, check_batch(logits, labels, ignore_index), class_weights)


def inverse_focal(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 2.0,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Inverse focal loss: cross-entropy that counts a sample more the better it is fitted.

    :math:`-(1+p_y)^\gamma \log p_y`. It makes a network more overconfident, but one that post-hoc
    calibration can improve further (wang2021). gamma = 0 is cross-entropy.

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma
        How fast the weight grows, >= 0.

    References
    ----------
    Wang, Feng, Zhang 2021, "Rethinking calibration of deep neural networks", equation 4.

    Examples
    --------
    >>> inverse_focal(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([0.4490])
    """
    gamma = check_at_least("gamma", gamma, 0, example=2)
    return _expected(
        lambda nll: (1 + (-nll).exp()) ** gamma * nll,
        CompiledLoss("inverse_focal", gamma),
        check_batch(logits, labels, ignore_index),
        class_weights,
    )


def dual_focal(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 5.0,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Dual focal loss: focal loss that also looks at the strongest class below the true one.

    :math:`-(1 - p_y + p_j)^\gamma \log p_y` with :math:`p_j` the largest probability strictly
    below :math:`p_y`, 0 if there is none. Classes that tie with the true one are not below it; at
    such a tie the loss jumps, and the gradient is that of the expression as it stands there. The
    first of equal rivals takes the rival's gradient.

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma
        Exponent, >= 0; 0 is cross-entropy.

    References
    ----------
    Tao, Dong, Xu 2023, arXiv:2305.13665.

    Examples
    --------
    >>> dual_focal(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([9.7756e-05])
    """
    gamma = check_at_least("gamma", gamma, 0, example=5)
    batch = check_batch(logits, labels, ignore_index)
    curve = CompiledLoss("dual_focal", gamma, wanted=RIVALS)
    value = of_columns(curve, lambda: _dual_focal(batch, gamma), batch)
    return weighted(value, batch, class_weights)


def _dual_focal(batch: Batch, gamma: float) -> Tensor:
    log_p = F.log_softmax(batch.logits, 1)
    if batch.soft:
        rival = _largest_below_each(log_p.exp())
    else:
        log_p, rival = _true_and_rival(log_p, batch.labels.unsqueeze(1))
    return focal_power(rival - torch.expm1(log_p), gamma) * -log_p


def _true_and_rival(log_p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of the true class, and the largest probability strictly below it."""
    with torch.no_grad():
        # How far each class lies below; infinite where it does not (threshold is the fast mask).
        below = F.threshold(log_p.gather(1, labels) - log_p, 0.0, torch.inf)
        distance, rival = below.min(1, keepdim=True)
    both = log_p.gather(1, torch.cat([labels, rival], 1))
    return both[:, 0], both[:, 1].exp().where(distance.squeeze(1) < torch.inf, 0)


def _largest_below_each(probs: Tensor) -> Tensor:
    """For each probability, the largest of the same sample strictly below it, else 0."""
    rows = probs.movedim(1, -1).contiguous()
    ascending = rows.sort(-1).values
    position = torch.searchsorted(ascending.detach(), rows.detach())  # how many lie below
    below = ascending.gather(-1, (position - 1).clamp_min(0))
    return below.where(position > 0, 0).movedim(-1, 1)


def _expected(
    loss: Callable[[Tensor], Tensor], curve: CompiledLoss, batch: Batch, class_weights: ClassWeights
) -> Tensor:
    """Mean of ``loss(-log p_k)`` over the target's classes, one value per sample."""
    value = of_columns(curve, lambda: loss(negative_log(batch)), batch)
    return weighted(value, batch, class_weights)


def negative_log(batch: Batch) -> Tensor:
    """-log p of the true class (N, …), or of each class (N, K, …) for soft targets."""
    if batch.soft:
        return -F.log_softmax(batch.logits, 1)
    # PyTorch's cross-entropy is log_softmax and the choice of the true class in one.
    return F.cross_entropy(batch.logits, batch.labels, reduction="none", ignore_index=NO_LABEL)


def weighted(values: Tensor, batch: Batch, class_weights: ClassWeights) -> Tensor:
    """Weigh values of the true class (N, …), or of each class (N, K, …) for soft targets."""
    if class_weights is None and not batch.soft:
        return counted(values, batch.valid)
    weights = check_class_weights(class_weights, batch)
    if batch.soft:
        if weights is not None:
            values = values * along_classes(weights, values)
        return (values * batch.labels).sum(1)
    if weights is not None:
        values = values * weights[batch.labels]
    return counted(values, batch.valid)
