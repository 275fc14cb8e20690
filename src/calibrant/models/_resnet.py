"""ResNet-18 and ResNet-50, in the form for small images: a 3 x 3 stem and no pooling before it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.models._base import Classifier, Head


class Basic(nn.Module):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(channels, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, 3, 1),
            nn.BatchNorm2d(width),
        )
        self.shortcut = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions; the last has four times as many channels."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.expansion
        self.body = nn.Sequential(
            _conv(channels, width, 1, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _conv(width, out, 1, 1),
            nn.BatchNorm2d(out),
        )
        self.shortcut = _shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(Classifier):
    """Four stages of 64, 128, 256 and 512 channels (times 4 with bottlenecks).

    Parameters
    ----------
    block
        ``Basic`` (ResNet-18) or ``Bottleneck`` (ResNet-50).
    layers
        Number of blocks in each stage.
    num_classes, in_channels
        Sizes of the output and the input.
    small_images
        Whether to start with a 3 x 3 convolution (32 x 32 and 64 x 64 images), or with the
        7 x 7 one and the pooling of ImageNet.

    References
    ----------
    He et al. 2016, arXiv:1512.03385.
    """

    def __init__(
        self,
        block: type[Basic] | type[Bottleneck],
        layers: tuple[int, int, int, int],
        num_classes: int = 10,
        in_channels: int = 3,
        *,
        small_images: bool = True,
    ) -> None:
        super().__init__()
        if small_images:
            stem = [_conv(in_channels, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        else:
            stem = [
                nn.Conv2d(in_channels, 64, 7, 2, 3, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, 2, 1),
            ]
        self.stem = nn.Sequential(*stem)
        stages: list[nn.Module] = []
        channels = 64
        for width, blocks, stride in zip((64, 128, 256, 512), layers, (1, 2, 2, 2), strict=True):
            for i in range(blocks):
                stages.append(block(channels, width, stride if i == 0 else 1))
                channels = width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.head = Head(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer."""
        out: Tensor = self.stages(self.stem(x))
        return out.mean((2, 3))


def _conv(channels: int, width: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, size, stride, size // 2, bias=False)


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(_conv(channels, width, 1, stride), nn.BatchNorm2d(width))
