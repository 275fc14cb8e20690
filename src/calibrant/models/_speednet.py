"""A small network for 32 x 32 images that learns quickly on a processor without a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.models._base import Classifier, Head

PATCH, STRIDE = 4, 2
FILTERS_PER_CHANNEL = 8  # half of the 16 directions of a patch: the rest is mostly noise
LEAST_VARIANCE = 1e-6  # of a direction, where inputs have variance 1: flat images have none


class SpeedBlock(nn.Module):
    """A convolution with batch normalisation, around which its input is carried if it fits."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.carried = channels == width

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn(self.conv(x)))
        return x + out if self.carried else out


class SpeedNet(Classifier):
    """Fixed whitening filters, then five convolutions at 16 x 16, 8 x 8 and 4 x 4 pixels.

    The filters are not trained. ``prepare`` computes them from training images: the directions in
    which 4 x 4 patches vary most, each scaled to variance 1 and not correlated with the others.
    They take every second pixel, which saves three quarters of the time of later layers.

    Parameters
    ----------
    num_classes, in_channels
        Sizes of the output and the input.
    width
        Channels of the first convolution; two and four times as many after each pooling.

    References
    ----------
    Whitening filters, pooling and few layers are common in fast training on CIFAR-10, as in Jordan
    2024, arXiv:2404.00498; this network is smaller than that one.
    """

    prepared_with = 500
    whitening: Tensor

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 32) -> None:
        super().__init__()
        filters = FILTERS_PER_CHANNEL * in_channels
        # Random until they are prepared, so that shapes and weights can be had without any data.
        plain = torch.randn(filters, in_channels, PATCH, PATCH) / PATCH
        self.register_buffer("whitening", plain)
        self.block1 = SpeedBlock(filters, width)
        self.block2 = SpeedBlock(width, 2 * width)
        self.block3 = SpeedBlock(2 * width, 2 * width)
        self.block4 = SpeedBlock(2 * width, 4 * width)
        self.block5 = SpeedBlock(4 * width, 4 * width)
        self.head = Head(4 * width, num_classes)

    @torch.no_grad()
    def prepare(self, samples: Any) -> None:
        """Compute the filters from images as they come into the network."""
        self.whitening.copy_(whitening_filters(samples, len(self.whitening)))

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, 4 * width)."""
        x = self.block1(F.conv2d(x, self.whitening, stride=STRIDE, padding=1))
        x = self.block3(self.block2(F.max_pool2d(x, 2)))
        x = self.block5(self.block4(F.max_pool2d(x, 2)))
        return x.mean((2, 3))


def whitening_filters(images: Tensor, count: int) -> Tensor:
    """Filters (count, channels, 4, 4) whose outputs on these images have unit covariance.

    Parameters
    ----------
    images
        (N, channels, height, width).
    count
        Number of filters: the directions in which patches vary most come first.
    """
    patches = F.unfold(images.double(), PATCH, stride=STRIDE).transpose(1, 2).flatten(0, 1)
    values, vectors = torch.linalg.eigh(patches.T.cov(correction=0))
    filters: Tensor = (vectors / values.clamp(min=LEAST_VARIANCE).sqrt()).T.flip(0)[:count]
    return filters.reshape(count, images.shape[1], PATCH, PATCH).to(images.dtype)
