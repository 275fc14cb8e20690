"""Early stopping on the calibration samples, by NLL, ECE, refinement or accuracy."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

from calibrant import metrics
from calibrant._core.checks import CalibrationWarning, check_choice, check_count
from calibrant.calibrators import TemperatureScaling
from calibrant.predictions import Predictions

CRITERIA = ("nll", "ece", "refinement", "accuracy")


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when a quantity on the calibration samples has not improved for ``patience`` epochs.

    The weights of the best epoch are kept.

    Attributes
    ----------
    by
        "nll", "ece", or "refinement": the NLL after temperature scaling, so that training continues
        while the network improves in ways that post-hoc calibration cannot make up for; or
        "accuracy", of whose best epochs the first is kept. With a patience of all epochs nothing
        stops early and the best epoch is kept, as mukhoti2020 does on SST.
    patience
        Epochs to wait for an improvement.

    Examples
    --------
    >>> EarlyStopping("refinement", patience=5)
    EarlyStopping(by='refinement', patience=5)
    """

    by: Literal["nll", "ece", "refinement", "accuracy"] = "nll"
    patience: int = 10

    def __post_init__(self) -> None:
        check_choice("by", self.by, CRITERIA)
        check_count("patience", self.patience, least=1, most=100_000, example=10)

    def score(self, p: Predictions) -> float:
        """What is minimised: the quantity, or minus the accuracy; NaN counts as infinitely bad."""
        if self.by == "accuracy":
            return -metrics.accuracy(p)
        if self.by == "ece":
            return metrics.ece(p)
        if self.by == "refinement":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                p = TemperatureScaling().fit(p).transform(p)
        value = metrics.nll(p)
        return math.inf if math.isnan(value) else value
