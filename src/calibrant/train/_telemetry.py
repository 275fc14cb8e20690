"""The training history: the quantities of mukhoti2020 Figures 1, 2 and wang2021 Figure 4.

Every name ``<part>_<quantity>`` is a column; quantities with ``_correct`` and ``_incorrect`` are
means over the samples classified right and wrong. The parts are

- ``train``: the training samples, augmented, as predicted while training;
- ``test``: one fixed, stratified subset of the test set. It is the same in every epoch, the last
  included, and for every seed, so that epochs and runs compare like for like: ECE is biased by the
  number of samples. ``test_samples`` is its size;
- ``final_test``: all test samples, with the weights that are kept; only in the row of the epoch
  of these weights. ``final_test_samples`` is their number.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant import metrics
from calibrant._core.checks import CalibrationWarning, check_count
from calibrant.calibrators import TemperatureScaling
from calibrant.predictions import Confidences, Predictions

# A record of a quarter as many samples as are trained on takes less than a tenth of an epoch.
AFFORDABLE, LEAST = 0.25, 500


class TrainingRecord:
    """Per-sample values of the training predictions of an epoch, and when samples were learned.

    A sample's learned epoch is the first from which it stays right to the end (wang2021, section
    5.1); -1 while it is wrong. The predictions are those made while training, augmented.
    """

    NAMES = ("nll", "entropy", "confidence", "correct")

    def __init__(self, count: int) -> None:
        self.values = torch.full((len(self.NAMES), count), math.nan)
        self.learned = torch.full((count,), -1, dtype=torch.int64)

    @torch.no_grad()
    def add(self, places: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Note the predictions of the samples at ``places``."""
        log_p = logits.detach().float().log_softmax(1)
        p = log_p.exp()
        confidence, predicted = p.max(1)
        nll = -log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
        entropy = -(p * log_p).sum(1)
        correct = (predicted == labels).float()
        self.values[:, places] = torch.stack([nll, entropy, confidence, correct]).cpu()

    def finish(self, epoch: int, merge: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Update the learned epochs and summarise the epoch; samples not seen do not count.

        ``merge`` brings together what several processes noted.
        """
        self.values = merge(self.values)
        right = self.values[3] == 1
        seen = ~self.values[3].isnan()
        self.learned[seen & ~right] = -1
        self.learned[seen & right & (self.learned < 0)] = epoch
        found = self.values[:, seen].double().numpy()
        row = _summary("train", *found)
        self.values.fill_(math.nan)
        return row


def subset_size(asked: int | None, test: int, trained: int) -> int:
    """Number of test samples that every epoch is recorded on: all, if that is cheap enough.

    It depends on counts and not on measured times, so that the same run has the same history.

    >>> subset_size(None, 10_000, 45_000), subset_size(None, 25_000, 45_000)
    (10000, 11250)
    >>> subset_size(2_000, 10_000, 45_000)
    2000
    """
    if asked is not None:
        return check_count("telemetry_samples", asked, least=1, most=test, example=test)
    return min(test, max(LEAST, int(AFFORDABLE * trained)))


def record_on_test(p: Predictions, part: str = "test") -> dict[str, float]:
    """Summarise predictions on test samples, with the temperature that is best on these."""
    row = _summary(part, -p.label_log_prob, p.entropy, p.confidence, p.correct.astype(float))
    row[f"{part}_samples"] = p.num_samples
    row[f"{part}_max_logit"] = float(p.logits.max(axis=1).mean())
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", CalibrationWarning
        )  # no temperature is defined for a network that has learned nothing
        fitted = TemperatureScaling(objective="ece").fit(p)
    row[f"{part}_optimal_temperature"] = fitted.temperature_
    row[f"{part}_optimal_ece"] = metrics.ece(fitted.transform(p))
    return row


def head_norm(model: nn.Module) -> dict[str, float]:
    """Norm of the weights of the last layer."""
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        return {}
    return {"head_norm": float(head.weight.detach().norm())}


def _summary(
    part: str,
    nll: NDArray[np.float64],
    entropy: NDArray[np.float64],
    confidence: NDArray[np.float64],
    correct: NDArray[np.float64],
) -> dict[str, float]:
    right = correct > 0
    row = {
        f"{part}_nll": _mean(nll),
        f"{part}_entropy": _mean(entropy),
        f"{part}_error": 1 - _mean(correct),
        f"{part}_confidence": _mean(confidence),
        f"{part}_ece": _ece(confidence, right),
    }
    for name, mask in (("correct", right), ("incorrect", ~right)):
        row[f"{part}_nll_{name}"] = _mean(nll[mask])
        row[f"{part}_entropy_{name}"] = _mean(entropy[mask])
        row[f"{part}_confidence_{name}"] = _mean(confidence[mask])
        row[f"{part}_ece_{name}"] = _ece(confidence[mask], right[mask])
    return row


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _ece(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    if not len(confidence):
        return math.nan
    return metrics.ece(Confidences(confidence=np.clip(confidence, 0, 1), correct=correct))
