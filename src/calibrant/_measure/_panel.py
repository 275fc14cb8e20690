"""measure(): the panel of metrics with intervals, as a table and as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calibrant import inference
from calibrant import metrics as m
from calibrant._core.checks import check_bins, check_choice, check_norm, refuse
from calibrant._core.formatting import aligned, in_html, in_samples, json_number, show, show_bounds
from calibrant._core.memory import check_size
from calibrant.inference import Interval
from calibrant.metrics._binning import Binning
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions
from calibrant.streaming import Accumulator

if TYPE_CHECKING:
    import pyarrow as pa

NO_INTERVAL = (math.nan, math.nan)
# What intervals need of memory, by measurement: 510 to 850 bytes with 2 and 10 classes.
BYTES_PER_SAMPLE = 700
# Smaller bounds do not show in a table.
SHOWN_BOUND = 5e-5


@dataclass(frozen=True)
class Panel:
    """Measured metrics, with intervals if they were requested.

    Prints as a table; ``panel["ece"]`` is a value; ``to_dict`` and ``to_arrow`` give data. Values
    are fractions; the table shows percentages where they are customary. ``error_bounds`` are set
    for streams: how far a value can be from the one computed in memory.
    """

    num_samples: int
    num_classes: int | None
    measured: Mapping[str, Interval]
    options: Mapping[str, Any] = field(default_factory=dict)
    error_bounds: Mapping[str, float] = field(default_factory=dict)

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
        data = {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "options": {
                key: json_number(value) if isinstance(value, float) else value
                for key, value in self.options.items()
            },
            "metrics": rows,
        }
        if self.error_bounds:
            data["error_bounds"] = {name: json_number(self.error_bounds[name]) for name in self}
        return data

    @property
    def note(self) -> str:
        """What to know about the values beyond the table."""
        if not self.error_bounds:
            return ""
        return bounds_note({name: self.error_bounds[name] for name in self})

    def to_arrow(self) -> pa.Table:
        """One row per metric: metric, value, low, high, better."""
        import pyarrow as pa

        found = self.measured.values()
        return pa.table(
            {
                "metric": list(self.measured),
                "value": [interval.value for interval in found],
                "low": [interval.low for interval in found],
                "high": [interval.high for interval in found],
                "better": [m.METRICS[name].better for name in self.measured],
            }
        )

    def __str__(self) -> str:
        note = f"\n\n{self.note}" if self.note else ""
        return f"{self._size}\n\n{aligned(self._rows)}{note}"

    def _repr_html_(self) -> str:
        """The same table as HTML for notebooks."""
        return in_html(self._size, self._rows, self.note)

    @property
    def _size(self) -> str:
        classes = "top label only" if self.num_classes is None else f"{self.num_classes:,} classes"
        return f"{in_samples(self.num_samples)}, {classes}"

    @property
    def _rows(self) -> list[list[str]]:
        with_bounds = any(not math.isnan(found.low) for found in self.measured.values())
        level = next(iter(self.measured.values())).level
        head = ["metric", "value", f"{100 * level:g}% interval" if with_bounds else "", "better"]
        return [head] + [
            [
                m.METRICS[name].label,
                show(found.value, percent=m.METRICS[name].percent),
                show_bounds(found.low, found.high, percent=m.METRICS[name].percent)
                if with_bounds
                else "",
                {"lower": "lower", "higher": "higher", "neither": ""}[m.METRICS[name].better],
            ]
            for name, found in self.measured.items()
        ]


def measure(  # noqa: PLR0913 - all but the first are keywords with defaults
    p: Predictions | Confidences,
    *,
    intervals: bool = True,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Panel:
    """Measure calibration and refinement, with intervals.

    Parameters
    ----------
    p
        Predictions, or Confidences (metrics that need all classes are then left out).
    intervals
        Whether to compute intervals: about a second at N = 10,000.
    metrics
        Names from ``calibrant.metrics.METRICS``; by default a set of 18.
    bins, norm, binning
        Number of bins of the ECE family, and norm and binning of ``ece``. Metrics that are defined
        by their binning keep it.
    level, replicates, seed
        Confidence level, number of bootstrap replicates, and seed.

    Examples
    --------
    >>> import calibrant
    >>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], labels=[0, 1, 1])
    >>> panel = calibrant.measure(p, intervals=False, metrics=["accuracy", "nll"])
    >>> print(panel)
    3 samples, 2 classes
    <BLANKLINE>
    metric    value    better
    accuracy  66.67 %  higher
    NLL       1.1629   lower
    """
    names = names_for(p, metrics)
    check_choice("binning", binning, ("width", "mass"))
    options = {"bins": check_bins(bins), "norm": check_norm(norm), "binning": binning}
    by_metric = options_by_metric(names, options)
    if intervals:
        advice = "Measure without intervals (--no-intervals), or Parquet with --stream."
        check_size(BYTES_PER_SAMPLE * len(p), f"Measuring {in_samples(len(p))}", advice)
        found = inference.intervals(
            p, names, options=by_metric, level=level, replicates=replicates, seed=seed
        )
    else:
        values = inference.values_of(p, names, options=by_metric)
        found = {name: Interval(values[name], *NO_INTERVAL) for name in names}
    classes = p.num_classes if isinstance(p, Predictions) else None
    return Panel(p.num_samples, classes, found, options)


def names_for(p: Predictions | Confidences, metrics: Sequence[str] | None) -> list[str]:
    if isinstance(metrics, str):
        raise refuse("metrics", "must be a list of names", f"got {metrics!r}", "Write [name].")
    check_measurable(p)
    full = isinstance(p, Predictions)
    if metrics is None:
        return [name for name in m.default_metrics("panel") if full or m.METRICS[name].top_label]
    for name in metrics:
        if not full and not m.get_metric(name).top_label:
            rule = "must be top-label metrics for Confidences"
            raise refuse("metrics", rule, f"got {name!r}", "Build Predictions, or leave it out.")
        m.get_metric(name)
    if not metrics:
        raise refuse("metrics", "must name at least one", "got none", "Leave it out for the panel.")
    return list(dict.fromkeys(metrics))


def options_by_metric(
    names: Sequence[str], options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each metric's own of the panel's options, by metric."""
    return {
        name: {key: options[key] for key in m.METRICS[name].options}
        for name in names
        if m.METRICS[name].options
    }


def panel_of_stream(total: Accumulator, *, norm: float = 1, binning: Binning = "width") -> Panel:
    """The panel of everything an accumulator has seen, without intervals."""
    values = total.result(norm=norm, binning=binning)
    found = {name: Interval(values[name], *NO_INTERVAL) for name in m.default_metrics("panel")}
    options = {"bins": total.bins, "norm": norm, "binning": binning}
    bounds = total.error_bounds(norm=norm, binning=binning)
    return Panel(total.num_samples, total.num_classes, found, options, bounds)


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
