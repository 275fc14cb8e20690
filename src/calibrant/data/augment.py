"""Augmentation of whole batches of images in PyTorch: random crops and flips."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant._core.checks import check_count, refuse
from calibrant.data._crops import DRAWS, crop_box

__all__ = ["crop_and_flip", "random_crop", "random_flip", "random_resized_crop"]

IMAGE_DIMENSIONS = 4


def random_crop(
    images: Tensor,
    *,
    padding: int = 4,
    fill: float = 0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Shift each image by up to ``padding`` pixels in both directions.

    The batch is padded on all sides, and a window of the old size is cut out of each image at a
    place of its own.

    Parameters
    ----------
    images
        (N, channels, height, width), uint8 or floating point.
    padding
        Pixels added on every side.
    fill
        Their value.
    generator
        Source of randomness on the CPU; PyTorch's own if None.

    Returns
    -------
    Tensor
        A tensor of the same shape and type.

    Examples
    --------
    >>> random_crop(torch.ones(8, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([8, 3, 32, 32])
    """
    _check_images(images)
    check_count("padding", padding, least=0, most=1024, example=4)
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4, value=fill)
    # A view of every window; choosing one for each image is the only copy.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    shifts = torch.randint(2 * padding + 1, (2, count), generator=generator)
    rows, columns = shifts.to(images.device)
    return windows[torch.arange(count, device=images.device), :, rows, columns]


def random_resized_crop(
    images: Tensor, *, smallest: float = 0.08, generator: torch.Generator | None = None
) -> Tensor:
    """Cut a piece of random area and shape out of each image and scale it to the old size.

    Its area is between ``smallest`` and 1 of the image, and its width between 3/4 and 4/3 of its
    height, as ImageNet networks are trained. Scaling is bilinear and antialiased.

    Parameters
    ----------
    images
        (N, channels, height, width), uint8 or floating point.
    smallest
        Smallest share of the area, above 0 and at most 1.
    generator
        Source of randomness on the CPU; PyTorch's own if None.

    Returns
    -------
    Tensor
        A tensor of the same shape and type.

    Examples
    --------
    >>> random_resized_crop(torch.ones(8, 3, 32, 32, dtype=torch.uint8)).unique()
    tensor([1], dtype=torch.uint8)
    """
    _check_images(images)
    if not 0 < smallest <= 1:
        rule = "must be above 0 and at most 1"
        raise refuse("smallest", rule, f"got {smallest!r}", "Try smallest=0.08.")
    draws = torch.rand((len(images), DRAWS), generator=generator, dtype=torch.float64).numpy()
    height, width = images.shape[2:]
    made = torch.empty_like(images)
    for target, image, numbers in zip(made, images, draws, strict=True):
        left, top, wide, high = crop_box(numbers, width, height, smallest=smallest)
        piece = image[None, :, top : top + high, left : left + wide]
        scaled = F.interpolate(
            piece.float(), (height, width), mode="bilinear", antialias=True, align_corners=False
        )[0]
        target.copy_(scaled if images.is_floating_point() else scaled.round())
    return made


def random_flip(images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Mirror half of the images, chosen at random, from left to right.

    Parameters
    ----------
    images
        (N, channels, height, width), uint8 or floating point.
    generator
        Source of randomness on the CPU; PyTorch's own if None.

    Returns
    -------
    Tensor
        A tensor of the same shape and type.

    Examples
    --------
    >>> x = torch.arange(4).reshape(1, 1, 1, 4).expand(100, -1, -1, -1)
    >>> sorted({tuple(row) for row in random_flip(x).reshape(100, 4).tolist()})
    [(0, 1, 2, 3), (3, 2, 1, 0)]
    """
    _check_images(images)
    count = len(images)
    mirrored = torch.randint(2, (count,), generator=generator)
    chosen = (torch.arange(count) + count * mirrored).to(images.device)
    # Indexing is faster than torch.where, and does not synchronise with the device.
    return torch.cat([images, images.flip(3)]).index_select(0, chosen)


def crop_and_flip(
    images: Tensor, *, padding: int = 4, generator: torch.Generator | None = None
) -> Tensor:
    """Crop and flip at random: the usual augmentation for CIFAR.

    Examples
    --------
    >>> crop_and_flip(torch.zeros(8, 3, 32, 32)).shape
    torch.Size([8, 3, 32, 32])
    """
    flipped = random_flip(images, generator=generator)
    return random_crop(flipped, padding=padding, generator=generator)


def _check_images(images: Tensor) -> None:
    if images.ndim != IMAGE_DIMENSIONS:
        rule = "must have the shape (N, channels, height, width)"
        advice = "Add the missing dimension with unsqueeze."
        raise refuse("images", rule, f"got {tuple(images.shape)}", advice)
