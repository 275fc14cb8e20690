"""A small fully connected network for vectors."""

from __future__ import annotations

from torch import Tensor, nn

from calibrant.models._base import Classifier, Head


class MLP(Classifier):
    """Hidden layers with ReLU, then a linear layer; images are flattened first.

    Parameters
    ----------
    num_classes, in_features
        Sizes of the output and the input.
    hidden
        Sizes of the hidden layers.
    """

    def __init__(
        self, num_classes: int, in_features: int, hidden: tuple[int, ...] = (128, 128)
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        size = in_features
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.body = nn.Sequential(*layers)
        self.head = Head(size, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer."""
        out: Tensor = self.body(x)
        return out
