"""measure(): the panel of metrics with intervals, as a table and as data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calibrant import inference
from calibrant import metrics as m
from calibrant._core.checks import (
    CalibrationWarning,
    check_bins,
    check_choice,
    check_fraction,
    check_norm,
)
from calibrant._core.formatting import (
    aligned,
    in_html,
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
)
from calibrant._core.memory import check_size
from calibrant._measure._views import (
    Positive,
    by_view,
    names_for,
    risk_sentence,
    seen,
    slope_sentence,
)
from calibrant.inference import Interval, Resampling
from calibrant.io import FILE_NOTES
from calibrant.io._columns import STREAM_ADVICE
from calibrant.metrics._binning import Binning
from calibrant.metrics._decisions import check_costs
from calibrant.metrics._metric import View
from calibrant.predictions import Confidences, PositiveClass, Predictions

if TYPE_CHECKING:
    import pyarrow as pa


NO_INTERVAL = (math.nan, math.nan)
# Memory needed for intervals; measured: 510 to 850 bytes with 2 and 10 classes.
BYTES_PER_SAMPLE = 700
# Smaller bounds are not visible in a table.
SHOWN_BOUND = 5e-5

UPWARD_BIAS = (
    "Intervals of calibration errors allow for the upward bias of the estimate, so a value can lie "
    "above its interval."
)


@dataclass(frozen=True)
class Panel:
    """Measured metrics, with intervals if they were requested.

    Prints as a table; ``panel["ece"]`` is a value; ``to_dict`` and ``to_arrow`` give data. Values
    are fractions; the table shows percentages where they are customary. ``error_bounds`` are set
    for streams: how far a value can be from the one computed in memory. ``positive`` names the
    class whose probability some of the metrics are about; ``assumed`` says what intervals assume;
    ``notes`` are what the reader of the numbers must know about the samples.
    """

    num_samples: int
    num_classes: int | None
    measured: Mapping[str, Interval]
    options: Mapping[str, Any] = field(default_factory=dict)
    error_bounds: Mapping[str, float] = field(default_factory=dict)
    positive: str | None = None
    assumed: str = ""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        if name not in self.measured:
            m.get_metric(name)  # raises for unknown names
            raise KeyError(f"{name} was not measured; pass metrics=[{name!r}, …] to measure.")
        return self.measured[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.measured)

    def interval(self, name: str) -> Interval:
        """Value with bounds."""
        self[name]
        return self.measured[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; undefined values are None, infinite ones the string "inf"."""
        rows = {
            name: {
                "value": json_number(f.value),
                "low": json_number(f.low),
                "high": json_number(f.high),
            }
            for name, f in self.measured.items()
        }
        data: dict[str, Any] = {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "options": {
                key: json_number(value) if isinstance(value, float) else value
                for key, value in self.options.items()
            },
            "metrics": rows,
        }
        if self.positive is not None:
            data["positive"] = self.positive
        if self.assumed:
            data["assumed"] = self.assumed
        if self.notes:
            data["notes"] = list(self.notes)
        if self.error_bounds:
            data["error_bounds"] = {name: json_number(self.error_bounds[name]) for name in self}
        return data

    @property
    def note(self) -> str:
        """What to know about the values beyond the table."""
        bounds = {name: self.error_bounds[name] for name in self if name in self.error_bounds}
        said = "" if self.assumed == inference.INDEPENDENT else self.assumed
        found = "" if self.positive is None else risk_sentence(self.measured, self.positive)
        streamed = bounds_note(bounds) if bounds else ""
        above = above_note(self.measured)
        parts = (streamed, *self.notes, above, found, slope_sentence(self.measured), said)
        return "\n".join(part for part in parts if part)

    def to_arrow(self) -> pa.Table:
        """One row per metric: metric, value, low, high, better, view."""
        import pyarrow as pa

        found = self.measured.values()
        return pa.table(
            {
                "metric": list(self.measured),
                "value": [interval.value for interval in found],
                "low": [interval.low for interval in found],
                "high": [interval.high for interval in found],
                "better": [m.METRICS[name].better for name in self.measured],
                "view": [m.METRICS[name].view for name in self.measured],
            }
        )

    def __str__(self) -> str:
        note = f"\n\n{self.note}" if self.note else ""
        tables = [f"{title}\n" * bool(title) + aligned(rows) for title, rows in self._tables]
        return "\n\n".join([self.size, *tables]) + note

    def _repr_html_(self) -> str:
        """The same table as HTML for notebooks."""
        tables = self._tables
        titles = [f"{title}." if title else "" for title, _ in tables]
        titles[0] = f"{self.size}. {titles[0]}".removesuffix(". ")
        notes = [""] * (len(tables) - 1) + [self.note]
        made = zip(titles, (rows for _, rows in tables), notes, strict=True)
        return "".join(in_html(*each) for each in made)

    @property
    def size(self) -> str:
        """Number of samples and classes, in words."""
        classes = "top label only" if self.num_classes is None else f"{self.num_classes:,} classes"
        return f"{in_samples(self.num_samples)}, {classes}"

    @property
    def _tables(self) -> list[tuple[str, list[list[str]]]]:
        """Titles and rows; one table without a title where only the top label can be meant."""
        views = by_view(list(self.measured))
        if list(views) == ["top label"] and self.num_classes != 2:  # noqa: PLR2004
            return [("", self._rows(list(self.measured)))]
        titles: dict[View, str] = {
            "positive class": f"Probability of class {self.positive} against its frequency",
            "top label": "Top label: confidence in the predicted class against being right",
        }
        return [(titles[view], self._rows(names)) for view, names in views.items()]

    def _rows(self, names: Sequence[str]) -> list[list[str]]:
        with_bounds = any(not math.isnan(found.low) for found in self.measured.values())
        level = next(iter(self.measured.values())).level
        head = ["metric", "value", show_level(level) if with_bounds else "", "better"]
        return [head] + [
            [
                m.METRICS[name].label,
                show(found.value, percent=m.METRICS[name].percent),
                show_bounds(found.low, found.high, percent=m.METRICS[name].percent)
                if with_bounds
                else "",
                m.METRICS[name].direction,
            ]
            for name, found in ((name, self.measured[name]) for name in names)
        ]


def measure_one(
    p: Predictions | Confidences,
    resampling: Resampling,
    *,
    intervals: bool = True,
    metrics: Sequence[str] | None = None,
    positive: Positive = None,
    **shape: Any,
) -> Panel:
    """The panel of one record; ``shape`` are the arguments of ``panel_options``."""
    names = names_for(p, metrics, positive=positive)
    options = panel_options(names, **shape)
    work = _Work(options, intervals, resampling)
    if intervals:
        advice = f"Measure with intervals=False. {STREAM_ADVICE}"
        check_size(BYTES_PER_SAMPLE * len(p), f"Measuring {in_samples(len(p))}", advice)
    found: dict[str, Interval] = {}
    name_of_class = None
    for view, some in by_view(names).items():
        record = seen(p, view, positive)
        name_of_class = record.name if isinstance(record, PositiveClass) else name_of_class
        found |= work.measure(record, some)
    classes = p.num_classes if isinstance(p, Predictions) else None
    ordered = {name: found[name] for name in names}
    assumed = inference.assumption(p) if intervals else ""
    return Panel(
        p.num_samples,
        classes,
        ordered,
        options,
        positive=name_of_class,
        assumed=assumed,
        notes=notes_of(p),
    )


def notes_of(p: Predictions | Confidences) -> tuple[str, ...]:
    """What the reader of the numbers must know: from the reading, and about doubtful scores."""
    kept = p.meta.get(FILE_NOTES, ())
    found = tuple(str(note) for note in kept) if isinstance(kept, list) else ()
    doubt = p.doubt if isinstance(p, Predictions) else ""
    if doubt:
        warnings.warn(doubt, CalibrationWarning, stacklevel=3)
    return (*found, doubt) if doubt else found


@dataclass(frozen=True)
class _Work:
    """How the metrics of one record are measured."""

    options: Mapping[str, Any]
    intervals: bool
    resampling: Resampling

    def measure(self, p: Predictions | Confidences, names: Sequence[str]) -> dict[str, Interval]:
        by_metric = options_by_metric(names, self.options)
        if self.intervals:
            return inference.intervals(p, names, options=by_metric, **vars(self.resampling))
        values = inference.values_of(p, names, options=by_metric)
        return {name: Interval(values[name], *NO_INTERVAL) for name in names}


def panel_options(
    names: Sequence[str],
    *,
    bins: int,
    norm: float,
    binning: Binning,
    threshold: float,
    costs: tuple[float, float],
) -> dict[str, Any]:
    """The options of a panel, checked; decisions only where a metric is about one class."""
    check_choice("binning", binning, ("width", "mass"))
    options = {"bins": check_bins(bins), "norm": check_norm(norm), "binning": binning}
    decisions = {
        "threshold": check_fraction("threshold", threshold, example=0.2),
        "costs": check_costs(costs),
    }
    used = {option for name in names for option in m.METRICS[name].options}
    return options | {name: value for name, value in decisions.items() if name in used}


def options_by_metric(
    names: Sequence[str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """For each metric, those of the panel's options that it takes."""
    return {
        name: {key: options[key] for key in m.METRICS[name].options}
        for name in names
        if m.METRICS[name].options
    }


def above_note(*panels: Mapping[str, Interval]) -> str:
    """Why a calibration error can lie above its interval; empty where none does.

    >>> above_note({"ece": Interval(0.02, 0.01, 0.03)})
    ''
    """
    every = (each for panel in panels for each in panel.items())
    if not any(m.METRICS[n].plug_in and x.value > x.high + SHOWN_BOUND for n, x in every):
        return ""
    return UPWARD_BIAS


def bounds_note(bounds: Mapping[str, float]) -> str:
    """How far the values of a stream can be from those in memory, in words; rounded up.

    >>> bounds_note({"accuracy": 1e-9, "auroc": 0.00121})
    'Read in bounded memory: exact to 0.005 %, except AUROC of correctness ± 0.13 %.'
    """
    wide = [
        f"{m.METRICS[name].label} ± {math.ceil(1e4 * bound - 1e-4) / 100:.2f} %"
        if math.isfinite(bound)
        else f"{m.METRICS[name].label} perhaps undefined"
        for name, bound in bounds.items()
        if bound >= SHOWN_BOUND
    ]
    exceptions = f", except {', '.join(wide)}" if wide else ""
    return f"Read in bounded memory: exact to {100 * SHOWN_BOUND:.3f} %{exceptions}."
