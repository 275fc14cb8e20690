"""The parts of a report about groups of samples and about clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrant import metrics as m
from calibrant._core.formatting import show, show_level
from calibrant._measure import GroupedPanel, measure
from calibrant.metrics import ACCURACY, CALIBRATION_ERROR, CONFIDENCE, PerCluster
from calibrant.metrics._metric import Use
from calibrant.predictions import Confidences, PositiveClass, Predictions
from calibrant.report._html import (
    Html,
    isolated,
    name_of,
    number,
    number_head,
    row_name,
    section,
    table,
    tag,
)
from calibrant.report._panel_row import panel_row
from calibrant.report._risk import Risk
from calibrant.report._settings import Settings
from calibrant.report._svg import forest_chart, ranked_chart, reliability_chart

if TYPE_CHECKING:
    from calibrant.report._judge import Judged

# The most groups of a grouping that the report shows, and the most that get a diagram.
MOST_GROUPS, MOST_DIAGRAMS = 40, 12
SMALL = 210.0
GROUP_BINS = 10
# The least median size of clusters whose errors are ranked.
LEAST_CLUSTER = 50
MOST_CLUSTERS, MOST_BARS = 20, 2000


@dataclass(frozen=True)
class Grouping:
    """The panels of one grouping, and the reliability of each group."""

    found: GroupedPanel
    tables: Mapping[str, m.Reliability]


def groupings_of(
    p: Predictions | Confidences, risk: Risk | None, settings: Settings
) -> list[Grouping]:
    """The grouping that was asked for, or every one that is not too fine."""
    if settings.by is not None:
        p.belonging.group(settings.by)  # refuses an unknown name
        chosen = [settings.by]
    else:
        chosen = [n for n, c in p.groups.items() if 1 < len(np.unique(c)) <= MOST_GROUPS]
    place: Use = "callback" if risk is None else "labels"
    names = [
        name
        for name in m.default_metrics(place)
        if isinstance(p, Predictions) or m.METRICS[name].top_label
    ]
    positive = False if risk is None else settings.positive
    found = []
    for by in chosen:
        panels = measure(p, by=by, metrics=names, positive=positive, **settings.measuring)
        record: Predictions | Confidences = p if risk is None else risk.record
        column = p.belonging.group(by)
        tables = {
            str(name): m.reliability(record.take(column == name), bins=GROUP_BINS)
            for name in np.unique(column)
        }
        found.append(Grouping(panels, tables))
    return found


def groups_section(judged: Sequence[Judged]) -> Html:
    """One row per group, a forest plot, and reliability by group."""
    parts = [part for j in judged for g in j.groupings for part in _grouping(j, g)]
    if not parts:
        return Html("")
    words = (
        "The error of each group with its interval, largest first. Small groups show larger errors "
        "by chance alone, so read the intervals: those in the chart hold for all groups together."
    )
    return section("groups", "Groups", tag("p", words), *parts)


def _grouping(j: Judged, g: Grouping) -> list[Html]:
    found = g.found
    order = sorted(found, key=lambda name: -_sortable(found.simultaneous[name].value))
    metric = m.METRICS[found.metric]
    forest = forest_chart(
        {name: found.simultaneous[name] for name in order},
        f"{metric.label} by {found.by} (%)",
    )
    title = tag("h3", name_of(j.name), ": by ", name_of(found.by))
    said = tag("ul", *(tag("li", name_of(line)) for line in found.words))
    return [
        title,
        said,
        tag("figure", forest, tag("figcaption", f"{metric.label}, intervals for all groups")),
        _table_of_groups(j, found, order),
        _diagrams(g, order),
    ]


def _sortable(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def _table_of_groups(j: Judged, found: GroupedPanel, order: Sequence[str]) -> Html:
    names = sorted(found[order[0]], key=lambda name: name != found.metric)
    head = [found.by, number_head("samples"), *(number_head(m.METRICS[n].label) for n in names)]
    rows = [panel_row(group, found[group], names) for group in order]
    level = show_level(next(iter(found.simultaneous.values())).level)
    caption = f"{isolated(j.name)} by {isolated(found.by)}, with {level}s of each group"
    return table(caption, head, rows, kind="sortable")


def _diagrams(g: Grouping, order: Sequence[str]) -> Html:
    """Small reliability diagrams, the worst group first."""
    parts = []
    for name in order[:MOST_DIAGRAMS]:
        chart = reliability_chart(
            g.tables[name], f"Reliability of {name}", size=SMALL, x_label="says", y_label="is"
        )
        parts.append(tag("figure", chart, tag("figcaption", name_of(name))))
    rest = len(order) - MOST_DIAGRAMS
    note = [tag("p", f"{rest:,} more groups are in the table.", class_="note")] if rest > 0 else []
    return tag("div", *parts, *note, class_="multiples")


# --- clusters ---------------------------------------------------------------------------------


def cluster_errors(p: Predictions | Confidences) -> dict[str, PerCluster] | None:
    """Metrics of each cluster on its own; None where clusters are too small to have any."""
    codes = p.belonging.codes
    if codes is None or isinstance(p, PositiveClass) or not isinstance(p, Predictions):
        return None
    if np.median(np.bincount(codes)) < LEAST_CLUSTER:
        return None
    return {name: m.per_cluster(p, name) for name in (CALIBRATION_ERROR, CONFIDENCE, ACCURACY)}


def clusters_section(judged: Sequence[Judged]) -> Html:
    """Clusters, such as images, ranked by their calibration error."""
    parts = [part for j in judged if j.per_cluster for part in _clusters(j, j.per_cluster)]
    if not parts:
        return Html("")
    words = (
        "Each cluster (image, patient, document) measured on its own, the worst first. An error of "
        "few samples is larger by chance, so their mean lies above the error of all samples "
        "together, and clusters of different sizes are not comparable."
    )
    return section("clusters", "Clusters, worst first", tag("p", words), *parts)


def _clusters(j: Judged, found: Mapping[str, PerCluster]) -> list[Html]:
    errors = found[CALIBRATION_ERROR]
    order = errors.ranked()
    rows = [
        [
            row_name(name_of(errors.clusters[k])),
            number(f"{errors.samples[k]:,}", float(errors.samples[k])),
            *(
                number(show(float(part.values[k]), percent=True), float(part.values[k]))
                for part in found.values()
            ),
        ]
        for k in order[:MOST_CLUSTERS]
    ]
    head = ["cluster", *map(number_head, ("samples", *(m.METRICS[n].label for n in found)))]
    caption = f"{isolated(j.name)}: {len(rows):,} of {len(errors.values):,} clusters"
    whole = show(j.panel[CALIBRATION_ERROR], percent=True)
    mean = tag(
        "p",
        name_of(j.name),
        f": mean ECE of a cluster {show(errors.mean, percent=True)}; ECE of all samples together "
        f"{whole}.",
    )
    ranked = [float(v) for v in errors.values[order][:MOST_BARS]]
    chart = ranked_chart(
        ranked, "ECE of each cluster, ranked", x_label="clusters, worst first", y_label="ECE (%)"
    )
    return [mean, tag("figure", chart), table(caption, head, rows, kind="sortable")]
