"""Wide residual networks WRN-d-k."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant._core.checks import refuse
from calibrant.models._base import Classifier, Head


class WideBlock(nn.Module):
    """Normalisation and ReLU before each of two 3 x 3 convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        same = channels == width
        self.shortcut = None if same else nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        short = x if self.shortcut is None else self.shortcut(out)
        out = self.conv1(out)
        result: Tensor = self.conv2(F.relu(self.bn2(out))) + short
        return result


class WideResNet(Classifier):
    """Three stages of (depth - 4) / 6 blocks with 16 k, 32 k and 64 k channels.

    Parameters
    ----------
    depth
        6 n + 4: 16, 28, 40; or 6 n + 2 by those who do not count the shortcuts' convolutions:
        the 26-10 of mukhoti2020 is this 28-10.
    widen
        The factor k.
    num_classes, in_channels
        Sizes of the output and the input.

    References
    ----------
    Zagoruyko and Komodakis 2016, arXiv:1605.07146.
    """

    def __init__(self, depth: int, widen: int, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if rest not in (0, 2) or blocks < 1:
            rule = "must be 6 n + 4, or 6 n + 2"
            raise refuse("depth", rule, f"got {depth}", "Try 16, 28 or 40.")
        self.conv = nn.Conv2d(in_channels, 16, 3, 1, 1, bias=False)
        stages: list[nn.Module] = []
        channels = 16
        for width, stride in ((16 * widen, 1), (32 * widen, 2), (64 * widen, 2)):
            for i in range(blocks):
                stages.append(WideBlock(channels, width, stride if i == 0 else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(channels)
        self.head = Head(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, 64 k)."""
        return F.relu(self.bn(self.stages(self.conv(x)))).mean((2, 3))
