"""Mixed batches with soft targets: mixup and CutMix."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._core.checks import check_count, check_positive, refuse

IMAGE_DIMENSIONS = 4


def mixup(
    inputs: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    alpha: float = 0.2,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Mix each sample with another of the batch, and their labels in the same proportion.

    :math:`x' = \lambda x + (1 - \lambda) x_\pi`, :math:`t' = \lambda t + (1 - \lambda) t_\pi`
    with one :math:`\lambda` ~ Beta(alpha, alpha) and one permutation for the batch.

    Parameters
    ----------
    inputs
        Floating tensor (N, …).
    labels
        Class indices (N,) or target probabilities (N, K).
    num_classes
        K.
    alpha
        Strength, above 0; singh2021 uses 0.2.
    generator
        Source of randomness on the CPU; PyTorch's own if None.

    Returns
    -------
    tuple[Tensor, Tensor]
        Mixed inputs and soft targets (N, K), which every loss here takes as labels.

    References
    ----------
    Zhang et al. 2018, arXiv:1710.09412.

    Examples
    --------
    >>> x, t = mixup(torch.eye(2), torch.tensor([0, 1]), num_classes=2)
    >>> bool(torch.allclose(x, t))
    True
    """
    targets = _soft_targets(inputs, labels, num_classes)
    share, order = _draw(inputs, alpha, generator)
    if not inputs.is_floating_point():
        advice = "Try inputs.float() / 255 for images."
        raise refuse("inputs", "must be floating-point numbers", f"got {inputs.dtype}", advice)
    mixed = torch.lerp(inputs[order], inputs, share)
    return mixed, torch.lerp(targets[order], targets, share)


def cutmix(
    images: Tensor,
    labels: Tensor,
    *,
    num_classes: int,
    alpha: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Paste a rectangle of another image of the batch into each, and mix labels by its area.

    The rectangle has the area 1 - :math:`\lambda` of the image, :math:`\lambda` ~ Beta(alpha,
    alpha), a random centre, and is cut at the border; the targets use the area that was pasted.

    Parameters
    ----------
    images
        (N, channels, height, width).
    labels, num_classes, generator
        As in :func:`mixup`.
    alpha
        Strength, above 0.

    Returns
    -------
    tuple[Tensor, Tensor]
        Mixed images and soft targets (N, K).

    References
    ----------
    Yun et al. 2019, arXiv:1905.04899.

    Examples
    --------
    >>> x, t = cutmix(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 1, 0]), num_classes=2)
    >>> x.shape, t.shape
    (torch.Size([4, 3, 8, 8]), torch.Size([4, 2]))
    """
    if images.ndim != IMAGE_DIMENSIONS:
        rule = "must have the shape (N, channels, height, width)"
        raise refuse("images", rule, f"got {tuple(images.shape)}", "For vectors use mixup.")
    targets = _soft_targets(images, labels, num_classes)
    share, order = _draw(images, alpha, generator)
    height, width = images.shape[2:]
    side = (1 - share) ** 0.5
    rows = _interval(height, side, generator)
    columns = _interval(width, side, generator)
    mixed = images.clone()
    mixed[:, :, rows, columns] = images[order, :, rows, columns]
    pasted = (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)
    return mixed, torch.lerp(targets, targets[order], pasted)


def _soft_targets(inputs: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Labels as (N, K) probabilities."""
    count = check_count("num_classes", num_classes, least=2, most=2**31, example=10)
    shape = (inputs.shape[0], count) if labels.is_floating_point() else (inputs.shape[0],)
    if labels.shape != shape:
        rule = f"must have the shape {shape}"
        advice = "Pass class indices (N,) or target probabilities (N, K)."
        raise refuse("labels", rule, f"got {tuple(labels.shape)}", advice)
    if labels.is_floating_point():
        return labels
    return F.one_hot(labels.long(), count).to(torch.get_default_dtype())


def _draw(inputs: Tensor, alpha: float, generator: torch.Generator | None) -> tuple[float, Tensor]:
    """Share of the first image from Beta(alpha, alpha), and a permutation of the batch."""
    alpha = check_positive("alpha", alpha, example=0.2)
    seed = int(torch.randint(2**62, (), generator=generator))
    order = torch.randperm(inputs.shape[0], generator=generator)
    return random.Random(seed).betavariate(alpha, alpha), order.to(inputs.device)


def _interval(length: int, side: float, generator: torch.Generator | None) -> slice:
    """``side`` of ``length`` around a random centre, cut at the ends."""
    half = side * length / 2
    centre = float(torch.rand((), generator=generator)) * length
    return slice(max(round(centre - half), 0), min(round(centre + half), length))
