"""Reliability of each label of a multi-label model, in small diagrams side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrant import metrics
from calibrant._core.checks import check_bins, refuse
from calibrant._multilabel import MultiLabel
from calibrant.plots._reliability import draw_diagonal, draw_intervals
from calibrant.plots._style import COLOURS, axes, finish, in_per_cent, legend, per_cent, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 12
IN_A_ROW = 4
# The part of the width and height of a label that its diagram takes.
FILLED = 0.72
TOP = 0.92  # the legend is above
INTERVALS = "frequency, 95 % interval"


def label_reliability(
    p: MultiLabel,
    *,
    labels: Sequence[int | str] | None = None,
    bins: int = 10,
    ax: Axes | None = None,
) -> Axes:
    r"""The probability of each label against its frequency, one small diagram per label.

    Parameters
    ----------
    p
        Predictions of several labels per sample.
    labels
        Names or numbers of labels; by default the (up to 12) with the largest ECE, worst first.
    bins
        Number of equal-width bins per label.
    ax
        Axes to draw on, which are divided among the labels; default: a new figure.

    Examples
    --------
    >>> probs, labels = [[0.9, 0.2], [0.4, 0.6]], [[1, 0], [0, 1]]
    >>> p = MultiLabel(probs=probs, labels=labels, names=["cat", "dog"])
    >>> ax = label_reliability(p)
    >>> [small.get_title() for small in ax.child_axes]
    ['dog\nECE 30.0 %', 'cat\nECE 25.0 %']
    """
    if not isinstance(p, MultiLabel):
        rule, advice = "must be MultiLabel", "Build MultiLabel(logits=…, labels=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)
    check_bins(bins)
    errors = {k: _error(p, k, bins) for k in _chosen(p, labels)}
    if labels is None:
        errors = dict(sorted(errors.items(), key=lambda pair: -pair[1])[:MOST_LABELS])
    columns = min(IN_A_ROW, len(errors))
    rows = math.ceil(len(errors) / columns)
    ax = axes(ax, size=(2.1 * columns + 0.6, 2.3 * rows + 0.8))
    for place, (k, error) in enumerate(errors.items()):
        row, column = divmod(place, columns)
        left, bottom = (column + 0.18) / columns, TOP * (1 - (row + 0.9) / rows)
        small = ax.inset_axes((left, bottom, FILLED / columns, TOP * FILLED / rows))
        _draw_label(small, p, k, bins)
        small.set_title(f"{shown(p.names[k], width=18)}\nECE {per_cent(error)}", fontsize="small")
    finish(ax, "probability of the label (%)", "frequency of the label (%)")
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    draw_diagonal(ax)  # both for the legend only
    ax.lines[0].set_data([], [])
    ax.errorbar([], [], yerr=[], color=COLOURS[0], marker="o", label=INTERVALS)
    legend(ax, loc="upper center", ncols=2, frameon=False)
    for part in (*ax.child_axes, ax.get_legend()):  # they lie inside the axes
        if part is not None:
            part.set_in_layout(False)
    return ax


def _chosen(p: MultiLabel, labels: Sequence[int | str] | None) -> list[int]:
    """The columns to draw: known for a sample, unless they were asked for by name."""
    if labels is None:
        return [k for k in range(p.num_labels) if len(p.known(k))]
    if isinstance(labels, str) or not labels:
        raise refuse("labels", "must be a list of labels", f"got {labels!r}", "Write [name].")
    return [p.index(label) for label in labels]


def _error(p: MultiLabel, k: int, bins: int) -> float:
    return metrics.positive_ece(p.label(k), bins=bins)


def _draw_label(ax: Axes, p: MultiLabel, k: int, bins: int) -> None:
    table = metrics.reliability(p.label(k).positive_class(), bins=bins)
    draw_diagonal(ax)
    draw_intervals(ax, table, color=COLOURS[0], marker="o", markersize=3, elinewidth=0.8)
    finish(ax, "", "")
    ax.set(xlim=(0, 1.02), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.tick_params(labelsize="x-small")
    in_per_cent(ax.xaxis)
    in_per_cent(ax.yaxis)
