"""fit_summary(): what a fitted calibrator did to some predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrant.calibrators import Calibrator
from calibrant.inference import Interval, intervals
from calibrant.metrics import default_metrics
from calibrant.predictions import Predictions


@dataclass(frozen=True)
class FitSummary:
    """NLL and ECE before and after calibration, each with its interval."""

    num_samples: int
    before: Mapping[str, Interval]
    after: Mapping[str, Interval]


def fit_summary(calibrator: Calibrator, p: Predictions, *, groups: Any = None) -> FitSummary:
    """Measure predictions before and after a fitted calibrator.

    On the predictions the calibrator was fitted on, "after" is optimistic: the labels were seen.

    Examples
    --------
    >>> import calibrant
    >>> from calibrant.calibrators import TemperatureScaling
    >>> p = calibrant.Predictions(logits=[[3.0, 0.0], [0.0, 4.0], [2.0, 0.0]], labels=[0, 1, 1])
    >>> found = calibrant.fit_summary(TemperatureScaling().fit(p), p)
    >>> found.after["nll"].value < found.before["nll"].value
    True
    """
    names = default_metrics("summary")
    after = calibrator.transform(p, groups=groups)
    return FitSummary(p.num_samples, intervals(p, names), intervals(after, names))
