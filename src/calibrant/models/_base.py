"""Base class of all networks: features, then one linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Head(nn.Linear):
    """A last layer that computes in float32 under autocast too.

    Logits in bf16 would have 8 significant bits: too few for confidences.

    Examples
    --------
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     print(Head(4, 2)(torch.ones(1, 4)).dtype, nn.Linear(4, 2)(torch.ones(1, 4)).dtype)
    torch.float32 torch.bfloat16
    """

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, K)."""
        x = x.to(self.weight.dtype)
        if x.is_meta:  # sizes alone, for which there is no autocast
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x)


def keep_logits_precise(model: nn.Module, num_classes: int) -> None:
    """Turn plain linear layers with an output per class into ``Head``; weights and names stay."""
    for layer in model.modules():
        if type(layer) is nn.Linear and layer.out_features == num_classes:
            layer.__class__ = Head


class Classifier(nn.Module):
    """A network whose logits are ``head(features(x))``.

    Attributes
    ----------
    prepared_with
        How many training samples ``prepare`` is called with once, before the first step of a
        training; 0 for a network that needs none.
    """

    head: nn.Linear  # a Head: logits are never rounded to bf16
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
