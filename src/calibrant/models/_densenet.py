"""DenseNet-121 with bottlenecks and compression, in the form for 32 x 32 images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.models._base import Classifier, Head


class Dense(nn.Module):
    """A layer whose output is joined to its input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return torch.cat([out, x], 1)


class DenseNet(Classifier):
    """Four dense blocks; between them a transition halves channels and size.

    Parameters
    ----------
    layers
        Layers in each block; (6, 12, 24, 16) is DenseNet-121.
    growth
        Channels that each layer adds.
    num_classes, in_channels
        Sizes of the output and the input.

    References
    ----------
    Huang et al. 2017, arXiv:1608.06993.
    """

    def __init__(
        self,
        layers: tuple[int, ...] = (6, 12, 24, 16),
        growth: int = 32,
        num_classes: int = 10,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        channels = 2 * growth
        body: list[nn.Module] = [nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)]
        for number, count in enumerate(layers):
            for _ in range(count):
                body.append(Dense(channels, growth))
                channels += growth
            if number < len(layers) - 1:
                body += [
                    nn.BatchNorm2d(channels),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                channels //= 2
        self.body = nn.Sequential(*body, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.head = Head(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, 1024) for DenseNet-121."""
        out: Tensor = self.body(x)
        return out.mean((2, 3))
