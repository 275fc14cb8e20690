"""Base class of all networks: features, then one linear layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Classifier(nn.Module):
    """A network whose logits are ``head(features(x))``.

    Attributes
    ----------
    prepared_with
        How many training samples ``prepare`` is called with once, before the first step of a
        training; 0 for a network that needs none.
    """

    head: nn.Linear
    prepared_with: int = 0

    def prepare(self, samples: Any) -> None:
        """Set what depends on the training data but is not trained, from samples as inputs."""

    def features(self, x: Any) -> Tensor:
        """The input of the last layer."""
        raise NotImplementedError

    def forward(self, x: Any) -> Tensor:
        """Logits (N, K)."""
        logits: Tensor = self.head(self.features(x))
        return logits
