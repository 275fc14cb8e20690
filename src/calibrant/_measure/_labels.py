"""The panels of a multi-label model: one per label, their averages, and the worst label."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import inference
from calibrant import metrics as m
from calibrant._core.checks import near_name, refuse
from calibrant._core.formatting import (
    aligned,
    in_html,
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
)
from calibrant._measure._panel import (
    NO_INTERVAL,
    Panel,
    above_note,
    measure_one,
    options_by_metric,
)
from calibrant._multilabel import MACRO, MICRO, MultiLabel
from calibrant.inference import Interval, Resampling
from calibrant.metrics import POSITIVE_ERROR

if TYPE_CHECKING:
    import pyarrow as pa

BY_SAMPLE = (
    "Intervals assume independent samples; labels of one sample need not be. Macro and micro "
    "averages draw whole samples."
)

# Times the replicates of the interval that allows for the choice, which needs outer quantiles.
MORE, MOST_REPLICATES = 20, 1_000_000


@dataclass(frozen=True)
class WorstLabel:
    """The label that does worst by a metric.

    Its interval allows for the choice: with L labels it is made at the level 1 - (1 - level) / L
    (Bonferroni), so that it would hold for all of them at once; ``interval.level`` is the level at
    which it then holds for the chosen one.
    """

    label: str
    metric: str
    interval: Interval


@dataclass(frozen=True)
class LabelPanels(Mapping[str, Panel]):
    """One panel per label, by name, and those of the averages, ``"macro"`` and ``"micro"``.

    Macro is the mean over labels, each counting the same; a label for which a metric is undefined
    is left out of its mean. Micro treats every label of every sample as one sample of a binary
    problem, so frequent and fully labelled ones count more.
    """

    num_samples: int
    labels: Mapping[str, Panel]
    macro: Panel
    micro: Panel
    worst: WorstLabel | None = None

    @property
    def panels(self) -> dict[str, Panel]:
        """The panels of the labels, then the averages."""
        return {**self.labels, MACRO: self.macro, MICRO: self.micro}

    def __getitem__(self, name: str) -> Panel:
        if name not in self.panels:
            raise KeyError(f"{name!r} is not a label. {near_name(str(name), self.panels)}")
        return self.panels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.panels)

    def __len__(self) -> int:
        return len(self.panels)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; undefined values are None, infinite ones the string "inf"."""
        data: dict[str, Any] = {
            "num_samples": self.num_samples,
            "labels": {name: panel.to_dict() for name, panel in self.labels.items()},
            MACRO: self.macro.to_dict(),
            MICRO: self.micro.to_dict(),
        }
        if self.worst is not None:
            found = self.worst.interval
            numbers = {key: json_number(getattr(found, key)) for key in ("value", "low", "high")}
            data["worst"] = {
                "label": self.worst.label,
                "metric": self.worst.metric,
                **numbers,
                "level": found.level,
            }
        return data

    def to_arrow(self) -> pa.Table:
        """One row per label and metric: label, metric, value, low, high, better, view."""
        import pyarrow as pa

        tables = []
        for name, panel in self.panels.items():
            table = panel.to_arrow()
            tables.append(table.add_column(0, "label", pa.array([name] * len(table), pa.string())))
        return pa.concat_tables(tables)

    def __str__(self) -> str:
        return "\n\n".join(filter(None, (self._size, aligned(self._rows), self.note)))

    def _repr_html_(self) -> str:
        """The same table as HTML for notebooks."""
        return in_html(f"{self._size}.", self._rows, self.note)

    @property
    def _size(self) -> str:
        return f"{in_samples(self.num_samples)}, {len(self.labels):,} labels"

    @property
    def note(self) -> str:
        """The worst label, and what intervals assume."""
        worst = self.worst
        if worst is None:
            return self.macro.assumed
        metric, found = m.METRICS[worst.metric], worst.interval
        sentence = (
            f"Worst {metric.label}: {worst.label}, {show(found.value, percent=metric.percent)}"
        )
        if math.isnan(found.low):
            return f"{sentence}."
        above = above_note(*(panel.measured for panel in self.panels.values()))
        end = f"{above}\n{self.macro.assumed}" if above else self.macro.assumed
        bounds = show_bounds(found.low, found.high, percent=metric.percent)
        allowed = f"{show_level(found.level)} {bounds}, corrected for the choice"
        known = sum(panel.num_samples > 0 for panel in self.labels.values())
        return f"{sentence} ({allowed} among {known} labels).\n{end}"

    @property
    def _rows(self) -> list[list[str]]:
        """A row per label; the bounds of the leading metric only."""
        lead, names = leading(list(self.macro)), list(self.macro)
        level = self.macro.interval(lead).level
        bounded = any(not math.isnan(p.interval(lead).low) for p in self.panels.values())
        head = ["label", "samples"]
        for name in names:
            head += [m.METRICS[name].label]
            head += [show_level(level)] if bounded and name == lead else []
        rows = [head]
        for label, panel in self.panels.items():
            row = [label, f"{panel.num_samples:,}"]
            for name in names:
                found, percent = panel.interval(name), m.METRICS[name].percent
                row += [show(found.value, percent=percent)]
                if bounded and name == lead:
                    row += [show_bounds(found.low, found.high, percent=percent)]
            rows.append(row)
        return rows


def leading(names: Sequence[str]) -> str:
    """The metric by which the worst label is chosen: the ECE, or else the first."""
    return POSITIVE_ERROR if POSITIVE_ERROR in names else names[0]


def label_metrics(metrics: Sequence[str] | None) -> list[str]:
    """The metrics that were asked for, or those of a label; all are about one class."""
    if isinstance(metrics, str):
        raise refuse("metrics", "must be a list of names", f"got {metrics!r}", "Write [name].")
    if metrics is None:
        return list(m.default_metrics("labels"))
    if not metrics:
        raise refuse("metrics", "must name at least one", "got none", "Leave it out for the panel.")
    for name in metrics:
        if m.get_metric(name).view != "positive class":
            known = [n for n, metric in m.METRICS.items() if metric.view == "positive class"]
            rule = "must be about the probability of a class for MultiLabel"
            raise refuse("metrics", rule, f"got {name!r}", f"Known: {', '.join(known)}.")
    return list(dict.fromkeys(metrics))


def measure_labels(
    p: MultiLabel,
    resampling: Resampling,
    *,
    metrics: Sequence[str] | None,
    intervals: bool,
    **shape: Any,
) -> LabelPanels:
    """The panels of all labels; ``shape`` are the arguments of ``panel_options``."""
    names = label_metrics(metrics)
    how: dict[str, Any] = {"intervals": intervals, **shape}
    known = [name for k, name in enumerate(p.names) if p.mask[:, k].any()]
    panels = {name: measure_one(p.label(name), resampling, metrics=names, **how) for name in known}
    options = next(iter(panels.values())).options
    work = _Averages(p, known, names, options_by_metric(names, options), resampling)
    found = work.with_intervals() if intervals else work.values()
    assumed = BY_SAMPLE if intervals else ""

    def average(kind: str) -> Panel:
        positive = f"a label ({kind} average)"
        return Panel(len(p), 2, found[kind], options, positive=positive, assumed=assumed)

    unknown = {name: Interval(math.nan, *NO_INTERVAL) for name in names}
    empty = Panel(0, 2, unknown, options)
    lead = leading(names)
    worst = _worst(panels, lead)
    if worst is not None:
        more = min(resampling.replicates * min(len(panels), MORE), MOST_REPLICATES)
        strict = replace(resampling.for_all_of(len(panels)), replicates=more)
        panel = measure_one(p.label(worst), strict, metrics=[lead], **how)
        corrected = corrected_interval(
            panels[worst].interval(lead), panel.interval(lead), resampling.level
        )
    chosen = None if worst is None else WorstLabel(worst, lead, corrected)
    every = {name: panels.get(name, empty) for name in p.names}
    return LabelPanels(len(p), every, average(MACRO), average(MICRO), chosen)


def corrected_interval(plain: Interval, strict: Interval, level: float) -> Interval:
    """The interval at the stricter level, which contains the plain one despite simulation noise."""
    low, high = min(plain.low, strict.low), max(plain.high, strict.high)
    return Interval(plain.value, low, high, level)


@dataclass(frozen=True)
class _Averages:
    """Macro and micro averages of the labels that are known for some sample."""

    p: MultiLabel
    labels: Sequence[str]
    names: Sequence[str]
    options: Mapping[str, Mapping[str, Any]]
    resampling: Resampling

    def values(self) -> dict[str, dict[str, Interval]]:
        parts = [
            inference.values_of(self.p.label(n).positive_class(), self.names, options=self.options)
            for n in self.labels
        ]
        table = np.array([[part[name] for name in self.names] for part in parts])
        macro = dict(zip(self.names, inference.mean_defined(table, 0), strict=True))
        micro = inference.values_of(self.p.pooled(), self.names, options=self.options)
        return {
            kind: {name: Interval(float(v[name]), *NO_INTERVAL) for name in self.names}
            for kind, v in ((MACRO, macro), (MICRO, micro))
        }

    def with_intervals(self) -> dict[str, dict[str, Interval]]:
        r = self.resampling
        records = [(self.p.label(n).positive_class(), self.p.known(n)) for n in self.labels]
        macro = inference.macro_intervals(
            records,
            self.names,
            num_samples=len(self.p),
            options=self.options,
            resampling=r,
        )
        micro = inference.micro_intervals(
            self.p.pooled(),
            np.nonzero(self.p.mask)[0],
            self.names,
            num_samples=len(self.p),
            options=self.options,
            resampling=r,
        )
        return {MACRO: macro, MICRO: micro}


def _worst(panels: Mapping[str, Panel], name: str) -> str | None:
    """The label with the worst value; None where no value is worse than another."""
    metric = m.METRICS[name]
    if metric.target is None and metric.better == "neither":
        return None
    target = metric.target if metric.target is not None else 0.0
    sign = -1 if metric.better == "higher" else 1

    def badness(label: str) -> float:
        value = panels[label][name]
        return sign * value if metric.target is None else abs(value - target)

    defined = [label for label in panels if not math.isnan(panels[label][name])]
    return max(defined, key=badness, default=None)
