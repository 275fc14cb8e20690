"""What the command ``calibrate`` prints: what was learned, and the metrics before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrant import metrics as m
from calibrant._core.formatting import (
    aligned,
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
)
from calibrant._measure import Panel, above_note
from calibrant._multilabel import MultiLabel
from calibrant.calibrators import Calibrator, MultiLabelCalibrator, Selection
from calibrant.predictions import Confidences, Predictions


@dataclass(frozen=True)
class CalibrationReport:
    """The fitted calibrator, and the metrics before and after. Prints as text.

    ``before`` and ``after`` are None if there are no labels.
    """

    calibrator: Calibrator | MultiLabelCalibrator
    origin: str
    selection: Selection | None = None
    size: str = ""
    judged: str = ""
    before: Panel | None = None
    after: Panel | None = None
    notes: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [] if self.selection is None else [str(self.selection)]
        parts.append(f"{self.calibrator!r}, {self.origin}: {_learned(self.calibrator)}")
        if self.before is not None and self.after is not None:
            asked = self.before.positive
            risk = (
                "" if asked is None or "labels" in self.size else f"probability of class {asked}, "
            )
            parts += [f"{self.size}, {risk}{self.judged}", _table(self.before, self.after)]
            above = above_note(self.before.measured, self.after.measured)
            parts += [above] if above else []
        parts += self.notes
        if self.written:
            parts.append(f"Written: {', '.join(self.written)}")
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "calibrator": repr(self.calibrator),
            "origin": self.origin,
            "num_parameters": self.calibrator.num_parameters(),
            "learned": _numbers(self.calibrator),
            "selection": None if self.selection is None else _selection_dict(self.selection),
            "judged": self.judged,
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "notes": list(self.notes),
            "written": list(self.written),
        }


def size_in_words(p: Predictions | Confidences | MultiLabel) -> str:
    """Number of samples and of classes or labels."""
    samples = in_samples(p.num_samples)
    if isinstance(p, MultiLabel):
        return f"{samples}, mean over {int(p.mask.any(axis=0).sum()):,} labels"
    if isinstance(p, Predictions):
        return f"{samples}, {p.num_classes:,} classes"
    return f"{samples}, top label only"


def _learned(calibrator: Calibrator | MultiLabelCalibrator) -> str:
    count, numbers = calibrator.num_parameters(), _numbers(calibrator)
    if count == len(numbers) == 1:
        return next(f"{name} = {value:.6g}" for name, value in numbers.items())
    return f"{count:,} parameters"


def _numbers(calibrator: Calibrator | MultiLabelCalibrator) -> dict[str, float]:
    """The fitted parameters that are single numbers."""
    if isinstance(calibrator, MultiLabelCalibrator):
        return {}
    names = [name for name, shape in calibrator.learned.items() if shape == ()]
    return {name.removesuffix("_"): float(getattr(calibrator, name)) for name in names}


def _table(before: Panel, after: Panel) -> str:
    bounded = any(found.low == found.low for found in before.measured.values())  # not NaN
    level = next(iter(before.measured.values())).level
    bounds = show_level(level) if bounded else ""
    rows = [["metric", "before", bounds, "after", bounds]]
    for name in before:
        percent = m.METRICS[name].percent
        row = [m.METRICS[name].label]
        for panel in (before, after):
            found = panel.interval(name)
            row.append(show(found.value, percent=percent))
            row.append(show_bounds(found.low, found.high, percent=percent) if bounded else "")
        rows.append(row)
    return aligned(rows)


def _selection_dict(selection: Selection) -> dict[str, Any]:
    return {
        "chosen": selection.chosen,
        "criterion": selection.criterion,
        "candidates": [
            {
                "name": c.name,
                "loss": json_number(c.loss),
                "behind": json_number(c.behind),
                "error": json_number(c.error),
                "num_parameters": c.parameters,
                "verdict": c.verdict,
            }
            for c in selection.candidates
        ],
        "untried": list(selection.untried),
    }
