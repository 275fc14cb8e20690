"""A model in use: what unlabelled scores say of it, and a test of calibration as labels come in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import check_fraction, is_number, refuse
from calibrant._core.numerics import normal_quantile
from calibrant._scores import Scores
from calibrant.metrics._bin_bounds import wilson_interval
from calibrant.predictions import Confidences, Predictions
from calibrant.streaming._betting import EProcess
from calibrant.streaming._confidence_sums import ConfidenceSums
from calibrant.streaming._monitor_report import MonitoredValue, MonitorReport

Watched = Scores | Predictions | Confidences


@dataclass
class Reference:
    """Samples that the stream is compared with: confidences, and how often they were right.

    ``residual`` is the mean of correct minus confidence. Standard errors are by clusters.
    """

    sums: ConfidenceSums
    confidence_error: float
    residual: float | None = None
    residual_error: float | None = None

    @classmethod
    def of(cls, p: Watched) -> Reference:
        """Sum up records that fit into memory."""
        if p.belonging.weights is not None:
            rule, advice = "must not have sampling weights", "Draw samples in proportion to them."
            raise refuse("reference", rule, None, advice)
        sums = ConfidenceSums()
        sums.add(p.confidence, p.odds_against)
        error = _standard_error(p, p.confidence)
        if not isinstance(p, Predictions | Confidences):
            return cls(sums, error)
        residual = p.correct - p.confidence
        return cls(sums, error, float(residual.mean()), _standard_error(p, residual))


def _standard_error(p: Watched, values: Float64) -> float:
    """Standard error of the mean, by clusters where there are any; NaN for a single one."""
    centred, codes = values - values.mean(), p.belonging.codes
    sums = centred if codes is None else np.bincount(codes, centred)
    units = len(sums)
    if units < 2:  # noqa: PLR2004
        return math.nan
    return math.sqrt(units / (units - 1) * float(sums @ sums)) / len(values)


@dataclass
class Labelled:
    """Labels so far: their number, and of them those of correct predictions."""

    count: int = 0
    correct: int = 0


@dataclass
class Monitor:
    """Watches a calibrated model: without labels, and as labels arrive.

    Unlabelled scores give the accuracy to expect, if the model is still calibrated, and how far
    confidences drifted from the reference. They merge in any order. Labels feed an e-process
    (``calibrant.streaming``): a test of calibration that is valid however often it is looked at,
    because the chance that its e-value ever reaches 1 / alpha is at most alpha if the model is
    calibrated. It is sequential: labels must come in the order in which they arrived, and which
    predictions get a label must not depend on whether they are right. Samples are taken as
    independent.

    Parameters
    ----------
    reference
        Calibrated predictions of samples that neither training nor calibration saw, with labels
        (``Predictions``, ``Confidences``) or without (``Scores``).
    alpha
        Chance of a false alarm, ever.
    tolerance
        How far the probability of being right may lie from the confidence before that counts as
        miscalibration; 0.02 allows for two points. By default nothing is tolerated, and enough
        labels will refute any model.

    Examples
    --------
    >>> import numpy as np
    >>> from calibrant import Confidences
    >>> from calibrant.streaming import Monitor
    >>> monitor = Monitor()
    >>> monitor.update(Confidences(confidence=[0.9] * 40, correct=[True, False] * 20))
    >>> found = monitor.report()
    >>> found.alarm_at, found.e_value > 20
    (14, True)
    """

    reference: Any = None
    alpha: float = 0.05
    tolerance: float = 0.0

    sums: ConfidenceSums = field(default_factory=ConfidenceSums, init=False)
    labelled: Labelled = field(default_factory=Labelled, init=False)
    process: EProcess = field(init=False)
    # Of the scores seen first; confidences alone have none.
    num_classes: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha, example=0.05)
        if not is_number(self.tolerance) or not 0 <= self.tolerance < 1:
            rule, advice = "must be a number from 0 to below 1", "Try tolerance=0.02."
            raise refuse("tolerance", rule, f"got {self.tolerance!r}", advice)
        if self.reference is not None and not isinstance(self.reference, Reference):
            given = _checked("reference", self.reference)
            self._check_classes("reference", given)
            self.reference = Reference.of(given)
        self.process = EProcess(float(self.alpha), float(self.tolerance))

    def update(self, p: Watched, *, counted: bool = False) -> None:
        """Add scores without labels, or predictions with labels, in the order they arrived.

        ``counted`` says that these predictions were added before, without their labels.
        """
        _checked("p", p)
        if p.belonging.weights is not None:
            rule, advice = "cannot be monitored", "Leave them out."
            raise refuse("weights", rule, None, advice)
        labels = isinstance(p, Predictions | Confidences)
        if counted and not labels:
            rule, advice = "needs labels", "Add scores without labels once."
            raise refuse("counted", rule, "got scores alone", advice)
        self._check_classes("scores", p)
        if not counted:
            self.sums.add(p.confidence, p.odds_against)
        if isinstance(p, Predictions | Confidences):
            with np.errstate(divide="ignore"):
                self.process.update(-np.log(p.odds_against), p.correct)
            self.labelled.count += len(p)
            self.labelled.correct += int(p.correct.sum())

    def _check_classes(self, name: str, p: Watched) -> None:
        """Refuse scores of another number of classes: they are of another model."""
        if not isinstance(p, Scores):
            return
        if self.num_classes is not None and p.num_classes != self.num_classes:
            rule = f"must have {self.num_classes} classes, as those before"
            raise refuse(name, rule, f"got {p.num_classes}", "Start a monitor for each model.")
        self.num_classes = p.num_classes

    def merge(self, other: Monitor) -> Monitor:
        """Add the unlabelled samples of another monitor, and return this one.

        Labels form a sequence, which has no place for a second one: a monitor that has seen labels
        can only be merged into.
        """
        if other.labelled.count:
            rule, advice = (
                "must have seen no labels",
                "Update one monitor with all labels, in order.",
            )
            raise refuse("other", rule, f"got {other.labelled.count:,} labels", advice)
        if None not in (known := {self.num_classes, other.num_classes}) and len(known) > 1:
            rule = f"must have watched {self.num_classes} classes"
            raise refuse("other", rule, f"got {other.num_classes}", "Merge monitors of one model.")
        self.num_classes = self.num_classes or other.num_classes
        self.sums.merge(other.sums)
        return self

    def report(self, *, level: float = 0.95) -> MonitorReport:
        """What is known so far. ``level`` is that of the intervals, at this time."""
        check_fraction("level", level, example=0.95)
        z, process = normal_quantile((1 + level) / 2), self.process
        return MonitorReport(
            num_samples=self.sums.count,
            num_labels=self.labelled.count,
            expected_accuracy=self._expected_accuracy(z),
            drift=self._drift(z),
            drift_p_value=self._drift_p_value(),
            accuracy=self._accuracy(level),
            e_value=_exp(process.log_e),
            largest_e_value=_exp(process.largest),
            alarm_at=process.alarm_at,
            refuted_at=process.refuted_at,
            leading=process.leading.words if process.leading else "",
            alpha=self.alpha,
            tolerance=self.tolerance,
            level=level,
        )

    def _expected_accuracy(self, z: float) -> MonitoredValue | None:
        if not self.sums.count:
            return None
        known, variance = self.reference, self.sums.variance_of_mean
        value = self.sums.mean
        if known is not None and known.residual is not None:
            value, variance = value + known.residual, variance + known.residual_error**2
        return MonitoredValue.around(value, z * math.sqrt(variance), (0.0, 1.0))

    def _drift(self, z: float) -> MonitoredValue | None:
        known = self.reference
        if known is None or not self.sums.count:
            return None
        variance = self.sums.variance_of_mean + known.confidence_error**2
        gap = self.sums.mean - known.sums.mean
        return MonitoredValue.around(gap, z * math.sqrt(variance), (-1.0, 1.0))

    def _drift_p_value(self) -> float | None:
        if self.reference is None or not self.sums.count:
            return None
        return self.sums.distance(self.reference.sums)[1]

    def _accuracy(self, level: float) -> MonitoredValue | None:
        count, right = self.labelled.count, self.labelled.correct
        if not count:
            return None
        low, high = wilson_interval(np.array([float(right)]), np.array([float(count)]), level)
        return MonitoredValue(right / count, float(low[0]), float(high[0]))

    def save(self, path: str | Path) -> None:
        """Write the state as JSON; ``Monitor.load`` reads it."""
        from calibrant.streaming._monitor_state import write_monitor

        write_monitor(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Monitor:
        """Read what ``save`` wrote. The file is data: nothing in it is executed."""
        from calibrant.streaming._monitor_state import read_monitor

        return read_monitor(path)


def _checked(name: str, p: Any) -> Watched:
    if not isinstance(p, Scores | Confidences):
        rule, advice = "must be Scores, Predictions or Confidences", "Build Scores(logits=…)."
        raise refuse(name, rule, f"got {type(p).__name__}", advice)
    return p


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf  # noqa: PLR2004 - the largest float
