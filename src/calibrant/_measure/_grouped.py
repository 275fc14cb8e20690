"""measure(p, by=…): a panel per group, the worst group, whether groups differ, multicalibration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    show_p_equation,
)
from calibrant._measure._labels import corrected_interval
from calibrant._measure._panel import Panel, above_note, measure_one
from calibrant._measure._views import by_view
from calibrant.inference import Interval, Resampling, assumption
from calibrant.inference._clusters import cluster_sums, mean_one
from calibrant.metrics import CALIBRATION_ERROR, POSITIVE_ERROR
from calibrant.predictions import Confidences, Predictions

FEWEST_GROUPS = 2


@dataclass(frozen=True)
class GroupTest:
    """Test whether the mean gap (probability minus frequency) is the same in all groups."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class GroupedPanel:
    """Panels by group, with what can be said about all groups together.

    ``panel["a"]`` is the panel of group a, ``panel["a"]["ece"]`` a value of it. ``simultaneous``
    are intervals of the calibration error that hold for all groups together at the stated level
    (Bonferroni), so also for the group that looks worst. ``differ`` tests whether the mean gap is
    the same in all groups. ``multicalibration`` is the largest, over groups g, of P(g) times the
    calibration error within g: the error of the groups' indicators as test functions (Gopalan et
    al. 2022, arXiv:2203.01255, after Hébert-Johnson et al. 2018, arXiv:1711.08513).
    """

    by: str
    panels: Mapping[str, Panel]
    metric: str
    shares: Mapping[str, float]
    simultaneous: Mapping[str, Interval]
    differ: GroupTest
    assumed: str = ""

    def __getitem__(self, name: str) -> Panel:
        if name not in self.panels:
            raise KeyError(f"{self.by} has no group {name!r}. {near_name(name, self.panels)}")
        return self.panels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.panels)

    def __len__(self) -> int:
        return len(self.panels)

    @property
    def worst(self) -> str:
        """The group with the largest calibration error."""
        found = self.simultaneous
        return max(
            found,
            key=lambda name: -math.inf if math.isnan(found[name].value) else found[name].value,
        )

    @property
    def multicalibration(self) -> Interval:
        """Largest share of a group times its calibration error, with its interval."""
        level = next(iter(self.simultaneous.values())).level
        value = max(self._scaled("value", math.nan), default=math.nan)
        if not any(math.isfinite(found.low) for found in self.simultaneous.values()):
            return Interval(value, math.nan, math.nan, level)
        # Nothing is known of a group without an interval: its error may be anything.
        return Interval(value, max(self._scaled("low", 0.0)), max(self._scaled("high", 1.0)), level)

    def _scaled(self, end: str, unknown: float) -> list[float]:
        """Share of each group times an end of its interval; NaN counts as ``unknown``."""
        found = {name: getattr(each, end) for name, each in self.simultaneous.items()}
        filled = {name: unknown if math.isnan(x) else x for name, x in found.items()}
        return [self.shares[name] * x for name, x in filled.items() if not math.isnan(x)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""

        def plain(found: Interval) -> dict[str, Any]:
            return {key: json_number(getattr(found, key)) for key in ("value", "low", "high")}

        return {
            "by": self.by,
            "groups": {name: panel.to_dict() for name, panel in self.panels.items()},
            "metric": self.metric,
            "worst": {"group": self.worst, **plain(self.simultaneous[self.worst])},
            "multicalibration": plain(self.multicalibration),
            "differ": {key: json_number(value) for key, value in vars(self.differ).items()},
            "assumed": self.assumed,
        }

    def to_arrow(self) -> Any:
        """One row per group and metric: group, then the columns of a panel."""
        import pyarrow as pa

        tables = []
        for name, panel in self.panels.items():
            table = panel.to_arrow()
            tables.append(table.add_column(0, "group", [[name] * len(table)]))
        return pa.concat_tables(tables)

    def __str__(self) -> str:
        return "\n\n".join([f"By {self.by}", aligned(self._rows), "\n".join(self.words)])

    def _repr_html_(self) -> str:
        """The same table as HTML for notebooks."""
        return in_html(f"By {self.by}", self._rows, " ".join(self.words))

    @property
    def _rows(self) -> list[list[str]]:
        first = next(iter(self.panels.values()))
        sizes = (in_samples(panel.num_samples).split()[0] for panel in self.panels.values())
        rows = [[self.by, *self.panels], ["samples", *sizes]]
        views = by_view(list(first.measured))
        for view, names in views.items():
            if len(views) > 1:
                said = f"Class {first.positive}:" if view == "positive class" else "Top label:"
                rows.append([said, *[""] * len(self.panels)])
            rows += [
                [m.METRICS[name].label, *(_cell(panel, name) for panel in self.panels.values())]
                for name in names
            ]
        return rows  # a column per group

    @property
    def words(self) -> list[str]:
        """The worst group, the test and the multicalibration error in sentences."""
        label, worst = m.METRICS[self.metric].label, self.simultaneous[self.worst]
        measured = any(panel.assumed for panel in self.panels.values())
        count = self.panels[self.worst].num_samples
        size = f"{in_samples(count)}{' in one cluster' * (count > 1)}"
        bounds = f" (no interval: {size})" * measured
        if math.isfinite(worst.low):
            all_groups = f"{show_level(worst.level)} for all groups together"
            bounds = f" ({all_groups}: {show_bounds(worst.low, worst.high, percent=True)})"
        found = self.multicalibration
        told = math.isfinite(found.low)
        spread = f" ({show_bounds(found.low, found.high, percent=True)})" * told
        p = self.differ.p_value
        differ = "No test of whether groups differ: too few samples or clusters."
        if not math.isnan(p):
            verb = "differ" if p < 1 - worst.level else "do not differ significantly"
            differ = f"Mean gaps of the groups {verb} ({show_p_equation(p)})."
        notes = dict.fromkeys(note for panel in self.panels.values() for note in panel.notes)
        above = above_note(*(panel.measured for panel in self.panels.values()))
        return [
            *notes,
            *([above] if above else []),
            f"Worst group by {label}: {self.worst}, {show(worst.value, percent=True)}{bounds}.",
            differ,
            f"Multicalibration error: {show(found.value, percent=True)}{spread}.",
            *([self.assumed] if self.assumed else []),
        ]


def measure_groups(
    p: Predictions | Confidences, by: str, resampling: Resampling, **keywords: Any
) -> GroupedPanel:
    """A panel per group; ``keywords`` are those of ``measure_one``."""
    column = p.belonging.group(by)
    names = np.unique(column)
    if len(names) < FEWEST_GROUPS:
        rule, advice = "must have at least two groups", "Measure without by=."
        raise refuse("by", rule, f"got {len(names)} in {by!r}", advice)
    parts = {str(name): p.take(column == name) for name in names}
    panels = {name: measure_one(part, resampling, **keywords) for name, part in parts.items()}
    first = next(iter(panels.values()))
    metric = POSITIVE_ERROR if POSITIVE_ERROR in first.measured else CALIBRATION_ERROR
    strict, just_one = resampling.for_all_of(len(names)), keywords | {"metrics": [metric]}
    simultaneous = {
        name: measure_one(part, strict, **just_one).interval(metric) for name, part in parts.items()
    }
    weight = mean_one(p)
    shares = {str(name): float(weight[column == name].sum()) / len(p) for name in names}
    record = p
    if metric == POSITIVE_ERROR and isinstance(p, Predictions) and first.positive is not None:
        classes = p.classes or tuple(map(str, range(p.num_classes)))
        record = p.positive_class(classes.index(first.positive))
    at_level = {
        name: corrected_interval(panels[name].measured.get(metric, found), found, resampling.level)
        for name, found in simultaneous.items()
    }
    assumed = assumption(p) if first.assumed else ""
    return GroupedPanel(by, panels, metric, shares, at_level, gap_test(record, column), assumed)


def gap_test(p: Predictions | Confidences, column: Any) -> GroupTest:
    """Score test, robust to clusters, of equal mean gaps in all groups.

    With g the vector of the groups' mean gaps and V its covariance from the sums by cluster of
    residuals minus the mean gap of all samples, W = (Lg)' (L V L')^-1 (Lg) for differences L from
    the last group is compared with chi-squared of G - 1 degrees of freedom. Residuals are centred
    at what they have in common if groups are equal: centred at the gaps of their own groups, those
    of a group of one cluster, or of three samples that are all right, would seem to have no noise.
    A cluster may reach over several groups.
    """
    weight, residual = mean_one(p), p.confidence - p.correct
    _, code = np.unique(column, return_inverse=True)
    groups = int(code.max()) + 1
    size = np.bincount(code, weight)
    gap = np.bincount(code, weight * residual) / size
    part = weight * (residual - (size @ gap) / size.sum()) / size[code]
    sums = np.stack([cluster_sums(p, part * (code == g)) for g in range(groups)])
    return score_test(gap, sums @ sums.T, p.belonging.num_units(len(p)))


def score_test(gap: Any, covariance: Any, units: int, draws: int | None = None) -> GroupTest:
    """Test of equal means, given their covariance if they are equal, of so many clusters.

    A covariance that was itself estimated from ``draws`` replicates makes the statistic that of
    Hotelling.
    """
    from scipy.special import chdtrc, fdtrc

    groups, apart = len(gap), gap[:-1] - gap[-1]
    contrast = np.hstack([np.eye(groups - 1), -np.ones((groups - 1, 1))])
    inner = contrast @ covariance @ contrast.T
    if units <= groups or np.linalg.matrix_rank(inner) < groups - 1:
        return GroupTest(math.nan, math.nan)
    statistic = float(apart @ np.linalg.solve(inner, apart))
    if draws is None:
        return GroupTest(statistic, float(chdtrc(groups - 1, statistic)))
    freedom = draws - groups + 1
    scaled = statistic * freedom / ((draws - 1) * (groups - 1))
    return GroupTest(statistic, float(fdtrc(groups - 1, freedom, scaled)))


def _cell(panel: Panel, name: str) -> str:
    found, percent = panel.interval(name), m.METRICS[name].percent
    value = show(found.value, percent=percent)
    if math.isnan(found.low):
        return value
    return f"{value} ({show_bounds(found.low, found.high, percent=percent)})"
