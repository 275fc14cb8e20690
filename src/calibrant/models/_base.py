"""Base class of all networks: features, then one linear layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Classifier(nn.Module):
    """A network whose logits are ``head(features(x))``."""

    head: nn.Linear

    def features(self, x: Any) -> Tensor:
        """The input of the last layer."""
        raise NotImplementedError

    def forward(self, x: Any) -> Tensor:
        """Logits (N, K)."""
        logits: Tensor = self.head(self.features(x))
        return logits
