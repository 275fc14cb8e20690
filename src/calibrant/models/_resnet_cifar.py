"""Residual networks of He et al. for 32 x 32 images: depth 6 n + 2, shortcuts without weights."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._core.checks import refuse
from calibrant.models._base import Classifier, Head


class CifarBlock(nn.Module):
    """Two convolutions and a shortcut that pads missing channels with zeros (option A)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride, self.missing = stride, width - channels

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.missing:
            before = self.missing // 2
            x = x[:, :, :: self.stride, :: self.stride]
            x = F.pad(x, (0, 0, 0, 0, before, self.missing - before))
        return F.relu(out + x)


class CifarResNet(Classifier):
    """Three stages of n blocks with 16, 32 and 64 channels, then a linear layer.

    Parameters
    ----------
    depth
        6 n + 2: 8, 20, 32, 44, 56, 110, …
    num_classes, in_channels
        Sizes of the output and the input.

    References
    ----------
    He et al. 2016, arXiv:1512.03385, section 4.2.
    """

    def __init__(self, depth: int, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest or blocks < 1:
            raise refuse("depth", "must be 6 n + 2", f"got {depth}", "Try 8, 20, 32, 56 or 110.")
        self.conv1 = nn.Conv2d(in_channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.head = Head(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, 64)."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return x.mean((2, 3))


def _stage(channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = CifarBlock(channels, width, stride)
    return nn.Sequential(first, *(CifarBlock(width, width, 1) for _ in range(blocks - 1)))
