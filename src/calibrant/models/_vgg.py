"""VGG-16 with batch normalisation, in the form for 32 x 32 images: one linear layer."""

from __future__ import annotations

from torch import Tensor, nn

from calibrant.models._base import Classifier, Head

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(Classifier):
    """Thirteen 3 x 3 convolutions in five stages, each followed by pooling.

    Parameters
    ----------
    num_classes, in_channels
        Sizes of the output and the input.

    References
    ----------
    Simonyan and Zisserman 2015, arXiv:1409.1556.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = in_channels
        for widths in STAGES:
            for width in widths:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.body = nn.Sequential(*layers)
        self.head = Head(channels, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, 512)."""
        out: Tensor = self.body(x)
        return out.mean((2, 3))
