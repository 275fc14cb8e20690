"""The result of training, and its state while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from calibrant.data import Split
from calibrant.predictions import Predictions


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network with its predictions and training history.

    Attributes
    ----------
    model
        The network, ready to predict.
    predictions
        On the ``calibration`` and ``test`` samples.
    epochs
        The training history: one mapping per epoch, with losses, errors and temperatures.
        ``test_*`` (such as ``test_ece``, ``test_optimal_ece``) are of one fixed, stratified subset
        of the test set, the same in every epoch and for every seed; ``test_samples`` is its size.
        ``final_test_*`` are of all test samples with the weights that are kept, and only in the row
        of the epoch of these weights. ``train_*`` are of the training samples while training.
    learned
        Per training sample, the epoch from which it stayed correctly classified; -1 if it is wrong.
    max_logit
        Per training sample, the largest logit of the final network; None without telemetry.
    split
        Which samples were trained on.
    settings
        All that determines the run.
    """

    model: nn.Module
    predictions: Mapping[str, Predictions]
    epochs: list[dict[str, float]]
    learned: NDArray[np.int64]
    max_logit: NDArray[np.floating[Any]] | None
    split: Split
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Moment:
    """Progress of training, for a progress bar."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    images_per_second: float
    last: Mapping[str, float]
