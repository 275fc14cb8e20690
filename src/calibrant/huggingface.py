"""A loss and metrics for the Hugging Face Trainer.

``Trainer(…, compute_loss_func=loss_for("focal:gamma=3"), compute_metrics=compute_metrics)``. Needs
only PyTorch; the Trainer calls these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from calibrant.losses import Objective
from calibrant.metrics import default_metrics, get_metric
from calibrant.predictions import Predictions

IGNORED = -100  # the Trainer's label for ignored samples


def loss_for(objective: str | Mapping[str, Any] | Objective) -> Callable[..., Tensor]:
    """Make the ``compute_loss_func`` of a Trainer for classification.

    Parameters
    ----------
    objective
        A string such as ``"focal:gamma=3 + 0.5*mmce"``, the mapping of ``Objective.from_config``,
        or an ``Objective``.

    Examples
    --------
    >>> import torch
    >>> loss = loss_for("cross_entropy")
    >>> loss({"logits": torch.zeros(1, 2)}, torch.tensor([0]))
    tensor(0.6931)
    """
    if isinstance(objective, str):
        chosen = Objective.parse(objective)
    elif isinstance(objective, Objective):
        chosen = objective
    else:
        chosen = Objective.from_config(objective)

    def compute_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Mean of the objective over this batch, or its share of an accumulated step.

        The Trainer sums what it is given over the batches of a step, so that each must count by
        its part of the step's labels.
        """
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs.logits
        value: Tensor = chosen(logits, labels)
        if num_items_in_batch is not None:
            value = value * (labels != IGNORED).sum() / num_items_in_batch
        return value

    return compute_loss


def metrics_for(names: Sequence[str] | None = None) -> Callable[[Any], dict[str, float]]:
    """Make the ``compute_metrics`` of a Trainer from names in ``calibrant.metrics.METRICS``.

    The default is accuracy, NLL, ECE and AUROC of correctness.

    Examples
    --------
    >>> metrics_for(["accuracy"])(([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
    {'accuracy': 0.5}
    """
    chosen = default_metrics("callback") if names is None else names
    functions = {name: get_metric(name).function for name in chosen}

    def compute(evaluated: Any) -> dict[str, float]:
        """Metrics of logits and labels."""
        logits, labels = evaluated
        if isinstance(logits, tuple):  # models that return hidden states too
            logits = logits[0]
        p = Predictions(logits=logits, labels=labels)
        return {name: function(p) for name, function in functions.items()}

    return compute


def compute_metrics(evaluated: Any) -> dict[str, float]:
    """Accuracy, NLL, ECE and AUROC of the logits: a ready ``compute_metrics``."""
    return metrics_for()(evaluated)
