"""Panels of streams: of everything an accumulator has seen, or of one accumulator per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant import inference
from calibrant import metrics as m
from calibrant._core.checks import check_choice, refuse
from calibrant._measure._grouped import FEWEST_GROUPS, GroupedPanel, GroupTest, score_test
from calibrant._measure._panel import NO_INTERVAL, Panel, options_by_metric
from calibrant.inference import Interval, Resampling
from calibrant.metrics import CALIBRATION_ERROR
from calibrant.metrics._binning import Binning
from calibrant.metrics._streamed import Streamed
from calibrant.streaming import Accumulator


def panel_of_stream(
    total: Accumulator,
    *,
    norm: float = 1,
    binning: Binning = "width",
    metrics: Sequence[str] | None = None,
    resampling: Resampling | None = None,
    notes: Sequence[str] = (),
) -> Panel:
    """The panel of everything an accumulator has seen; ``resampling`` gives it intervals."""
    names = _names(metrics)
    values = total.result(norm=norm, binning=binning)
    bounds = total.error_bounds(norm=norm, binning=binning)
    options = {"bins": total.bins, "norm": norm, "binning": binning}
    known = total.streamed()
    found = {name: Interval(values[name], *NO_INTERVAL) for name in names}
    assumed = ""
    if resampling is not None:
        found = _intervals(known, values, names, options, resampling)
        assumed = inference.assumed_of(None if known.resampled is None else known.resampled.units)
        notes = (*notes, *_without_interval(names))
    return Panel(
        total.num_samples,
        total.num_classes,
        found,
        options,
        {name: bounds[name] for name in names},
        assumed=assumed,
        notes=tuple(notes),
    )


def _names(metrics: Sequence[str] | None) -> list[str]:
    """The metrics of a panel of a stream: those asked for, if they are among the usual ones."""
    usual = m.default_metrics("panel")
    for name in metrics or ():
        if name not in usual:
            m.get_metric(name)  # refuses unknown names
            rule = "must be one of the default metrics in a stream"
            raise refuse("metrics", rule, f"got {name!r}", "Measure one file in memory.")
    return list(metrics or usual)


def _intervals(
    known: Streamed,
    values: Mapping[str, float],
    names: Sequence[str],
    options: Mapping[str, Any],
    resampling: Resampling,
) -> dict[str, Interval]:
    by_metric = options_by_metric(names, options)
    bounds = inference.stream_bounds(known, names, options=by_metric, resampling=resampling)
    level = resampling.level
    return {name: Interval(values[name], *bounds[name], level) for name in names}


def _without_interval(names: Sequence[str]) -> list[str]:
    """What a panel says about metrics whose intervals need whole rows."""
    rows = [m.METRICS[name].label for name in names if m.METRICS[name].interval == "rows"]
    return [f"No interval in a stream: {label}." for label in rows]


def grouped_panel_of_stream(
    groups: Mapping[str, Accumulator],
    by: str,
    *,
    resampling: Resampling | None = None,
    norm: float = 1,
    binning: Binning = "width",
    metrics: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> GroupedPanel:
    """A panel per group, as ``measure(p, by=…)`` gives it."""
    if len(groups) < FEWEST_GROUPS:
        rule, advice = "must have at least two groups", "Measure all samples together."
        raise refuse("by", rule, f"got {len(groups)} in {by!r}", advice)
    check_choice("binning", binning, ("width", "mass"))
    shape: dict[str, Any] = {"norm": norm, "binning": binning}
    panels = {
        name: panel_of_stream(total, metrics=metrics, resampling=resampling, **shape)
        for name, total in groups.items()
    }
    known = {name: total.streamed() for name, total in groups.items()}
    level, strict = 0.95, None
    if resampling is not None:
        level = resampling.level
        strict = resampling.for_all_of(len(groups))
    one: dict[str, Any] = {"metrics": [CALIBRATION_ERROR], "resampling": strict, **shape}
    worst = {
        name: panel_of_stream(total, **one).interval(CALIBRATION_ERROR)
        for name, total in groups.items()
    }
    simultaneous = {n: Interval(f.value, f.low, f.high, level) for n, f in worst.items()}
    rows = sum(total.num_samples for total in groups.values())
    shares = {name: total.num_samples / rows for name, total in groups.items()}
    assumed = "\n".join([*notes, *([next(iter(panels.values())).assumed] if resampling else [])])
    return GroupedPanel(
        by, panels, CALIBRATION_ERROR, shares, simultaneous, group_gap_test(known), assumed
    )


def group_gap_test(known: Mapping[str, Streamed]) -> GroupTest:
    """Score test of equal mean gaps of the groups, as ``measure(p, by=…)`` has it.

    Clusters are drawn alike in all groups, each a Poisson number of times, so that the covariance
    of sums over replicates is that of the sums by cluster.
    """
    streams = list(known.values())
    gap = np.array([_mean_gap(each) for each in streams])
    size = np.array([float(each.width.count.sum()) for each in streams])
    common = float(size @ gap / size.sum())
    if any(each.resampled is None for each in streams):
        variance = [_gap_variance(each, common) for each in streams]
        return score_test(gap, np.diag(variance), int(size.sum()))
    columns, units = [], 0
    for each, total in zip(streams, size, strict=True):
        assert each.resampled is not None
        found = each.resampled
        units = max(units, found.units)
        residual = found.bin_confidence - found.bin_hits - common * found.bin_count
        columns.append(residual.sum(axis=1)[1:] / total)
    table = np.stack(columns)
    return score_test(gap, np.cov(table), units, draws=table.shape[1])


def _mean_gap(known: Streamed) -> float:
    return float((known.width.confidence - known.width.hits).sum() / known.width.count.sum())


def _gap_variance(known: Streamed, common: float) -> float:
    """Variance of the mean gap if it is ``common``, to the width of the cells."""
    apart, size = known.histogram.apart, float(known.width.count.sum())
    residual = np.where(apart.hits > 0, apart.confidence - 1, apart.confidence)
    return float(apart.count @ (residual - common) ** 2) / size**2
