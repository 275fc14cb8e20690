"""What a monitor knows at one time, as data and as sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calibrant._core.formatting import (
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
    show_p_equation,
)


@dataclass(frozen=True)
class MonitoredValue:
    """A value with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def around(cls, value: float, reach: float, ends: tuple[float, float]) -> MonitoredValue:
        """An interval of equal reach on both sides, cut off at the ends of the range."""
        low, high = ends
        if math.isnan(reach):
            return cls(min(max(value, low), high), math.nan, math.nan)
        inside = (min(max(x, low), high) for x in (value, value - reach, value + reach))
        return cls(*inside)

    def shown(self, *, signed: bool = False) -> str:
        """Value and interval in per cent."""
        bounds = show_bounds(self.low, self.high, percent=True, signed=signed)
        return f"{show(self.value, percent=True, signed=signed)} ({bounds})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: json_number(x) for name, x in vars(self).items()}


@dataclass(frozen=True)
class MonitorReport:
    """What a monitor knows. Prints as sentences.

    ``expected_accuracy`` is the mean confidence, plus what correct minus confidence was on average
    in a labelled reference; it holds if the model is still calibrated. ``drift`` is the mean
    confidence minus that of the reference, ``drift_p_value`` that of a Kolmogorov-Smirnov test of
    both distributions. ``accuracy`` is that of the labelled samples. ``e_value`` is the evidence
    against calibration now, ``largest_e_value`` the most there ever was; ``alarm_at`` is the number
    of labels after which it first reached 1 / alpha.
    """

    num_samples: int
    num_labels: int
    expected_accuracy: MonitoredValue | None
    drift: MonitoredValue | None
    drift_p_value: float | None
    accuracy: MonitoredValue | None
    e_value: float
    largest_e_value: float
    alarm_at: int | None
    refuted_at: int | None
    leading: str
    alpha: float
    tolerance: float
    level: float

    @property
    def alarm(self) -> bool:
        """Whether calibration is refuted."""
        return self.alarm_at is not None

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value of calibration: 1 over the largest e-value, at most 1."""
        return min(1.0, 1 / self.largest_e_value) if self.largest_e_value > 0 else 1.0

    def __str__(self) -> str:
        head = (
            f"{in_samples(self.num_samples)}, {self.num_labels:,} labels; {show_level(self.level)}s"
        )
        return "\n".join([head, *self._without_labels(), *self._with_labels()])

    def _without_labels(self) -> list[str]:
        lines = []
        if self.expected_accuracy is not None:
            shown = self.expected_accuracy.shown()
            lines.append(f"Expected accuracy, if still calibrated: {shown}.")
        if self.drift is not None and self.drift_p_value is not None:
            test = f"Kolmogorov-Smirnov {show_p_equation(self.drift_p_value)}"
            lines.append(
                f"Mean confidence against the reference: {self.drift.shown(signed=True)}; {test}."
            )
        return lines

    def _with_labels(self) -> list[str]:
        if self.accuracy is None:
            return ["No labels yet, so calibration cannot be tested."]
        most = f"largest so far {_shown(self.largest_e_value)}, alarm at {1 / self.alpha:g}"
        evidence = f"e-value {_shown(self.e_value)}, {most}"
        within = f" to within {100 * self.tolerance:g} points" if self.tolerance else ""
        lines = [f"Accuracy of the labelled samples: {self.accuracy.shown()}."]
        if self.refuted_at is not None:
            what = "a prediction whose confidence was 1 is wrong, or one of confidence 0 right"
            lines.append(f"Not calibrated{within}: {what} (label {self.refuted_at:,}).")
        elif self.alarm_at is not None:
            lines.append(
                f"Not calibrated{within}: alarm after {self.alarm_at:,} labels; {evidence}. The "
                f"evidence points to a model that is {self.leading}."
            )
        else:
            beyond = f" beyond {100 * self.tolerance:g} points" if self.tolerance else ""
            lines.append(f"No alarm: not enough evidence of miscalibration{beyond}; {evidence}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, MonitoredValue):
                found[name] = value.to_dict()
            else:
                found[name] = json_number(value) if isinstance(value, float) else value
        return {**found, "p_value": self.p_value, "alarm": self.alarm}


def _shown(e_value: float) -> str:
    """An e-value as sentences print it.

    >>> _shown(0.1234), _shown(23.4), _shown(1e9)
    ('0.12', '23.4', '1e+09')
    """
    return f"{e_value:.3g}" if e_value >= 1 else f"{e_value:.2f}"
