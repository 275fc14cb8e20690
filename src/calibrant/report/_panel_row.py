"""A row of a report's table with the panel of a group or label."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant._core.formatting import show, show_bounds
from calibrant._measure import Panel
from calibrant.metrics import METRICS
from calibrant.report._html import Html, name_of, number, row_name


def panel_row(title: str, panel: Panel, names: Sequence[str]) -> list[Html]:
    """Title, number of samples, and the value of each metric with its interval."""
    cells = [row_name(name_of(title)), number(f"{panel.num_samples:,}", panel.num_samples)]
    for name in names:
        found, percent = panel.interval(name), METRICS[name].percent
        bounds = f" ({show_bounds(found.low, found.high, percent=percent)})"
        cells.append(number(show(found.value, percent=percent), found.value, bounds))
    return cells
