"""Study results by name: lines, bars, effect sizes, trade-offs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._core.checks import check_choice, refuse
from calibrant.plots._inputs import SPREAD_WORDS, check_spread, named, over_seeds
from calibrant.plots._style import (
    REFERENCE,
    axes,
    bar_style,
    finish,
    in_per_cent,
    legend,
    line_style,
    name_ticks,
    shown,
    whole_numbers,
)
from calibrant.results import pareto_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
from calibrant.plots._effects import PAIR, numbers

Values = Sequence[float] | float
Series = Mapping[str, Mapping[Any, Values]]


def lines(
    series: Series,
    *,
    spread: str | None = "sem",
    xlabel: str = "",
    ylabel: str = "",
    logx: bool = False,
    percent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Means over seeds as lines, with error bars.

    Parameters
    ----------
    series
        Name -> x -> values over seeds (or one number). All x are numbers, or all are strings, shown
        in order of first appearance. A single seed has no error bar; a non-finite value leaves a
        gap.
    spread
        "sem", the standard error of the mean, "std", the standard deviation, or None.
    xlabel, ylabel
        Axis labels; " (%)" is added to the second with ``percent``.
    logx
        Whether x is logarithmic; all x must then be above 0.
    percent
        Whether to show the values, which are fractions, as percentages.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> ax = lines({"focal": {1: [0.04, 0.06], 3: [0.02, 0.03]}}, ylabel="ECE", percent=True)
    >>> ax.lines[0].get_ydata(), ax.get_ylabel()
    (array([0.05 , 0.025]), 'ECE (%)')
    """
    advice = "Pass {'name': {x: [value of each seed, …]}}."
    found = {
        name: _points_of(name, points, advice)
        for name, points in named("series", series, advice).items()
    }
    check_spread(spread)
    places = _places(found, logx=logx)
    ax = axes(ax)
    for i, (name, points) in enumerate(found.items()):
        order = sorted(points, key=places.__getitem__)
        middle, reach = np.array(
            [over_seeds(f"series[{name!r}][{x!r}]", points[x], spread) for x in order]
        ).T
        at = np.array([places[x] for x in order])
        ax.errorbar(
            at, middle, yerr=reach, capsize=3, elinewidth=1, **line_style(i), label=shown(name)
        )
    if logx:
        ax.set_xscale("log")
    if any(isinstance(x, str) for x in places):
        name_ticks(ax, list(places.values()), list(places))
    finish(ax, shown(xlabel) if xlabel else "", _value_words(ylabel, percent=percent))
    if percent:
        in_per_cent(ax.yaxis)
    legend(ax, title=SPREAD_WORDS[spread])
    return ax


def shift_levels(
    series: Series,
    *,
    spread: str | None = "sem",
    ylabel: str = "ECE",
    percent: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """A metric under shifts of rising strength: name -> level (0: no shift) -> values over seeds.

    Otherwise like ``lines`` (karandikar2021, Figures 2, 7, 8 and 9).

    Examples
    --------
    >>> ax = shift_levels({"NLL": {0: [0.05, 0.06], 1: [0.08, 0.1], 5: [0.2, 0.25]}})
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('level of shift (0: none)', 'ECE (%)')
    """
    ax = lines(
        series,
        spread=spread,
        xlabel="level of shift (0: none)",
        ylabel=ylabel,
        percent=percent,
        ax=ax,
    )
    whole_numbers(ax.xaxis)
    ax.set_ylim(bottom=min(0, ax.get_ylim()[0]))
    return ax


def coefficient_sensitivity(
    series: Series,
    *,
    spread: str | None = "sem",
    xlabel: str = "coefficient",
    ylabel: str = "ECE",
    logx: bool = False,
    percent: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """A metric against the strength of a regulariser: name -> coefficient -> values over seeds.

    Otherwise like ``lines`` (wang2021, Figure 1).

    Examples
    --------
    >>> ax = coefficient_sensitivity({"digits": {0.01: [0.05], 0.05: [0.02], 0.1: [0.04]}})
    >>> ax.get_xlabel()
    'coefficient'
    """
    return lines(
        series, spread=spread, xlabel=xlabel, ylabel=ylabel, logx=logx, percent=percent, ax=ax
    )


def bars(
    groups: Mapping[str, Mapping[str, Values]],
    *,
    spread: str | None = "sem",
    ylabel: str = "",
    percent: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Means over seeds as bars side by side, with error bars.

    Parameters
    ----------
    groups
        Group -> name -> values over seeds (or one number). A name that is missing from a group
        leaves a gap.
    spread
        "sem", the standard error of the mean, "std", the standard deviation, or None.
    ylabel
        Axis label; " (%)" is added with ``percent``.
    percent
        Whether to show the values, which are fractions, as percentages.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> ax = bars({"digits": {"CE": [0.05, 0.06], "focal": [0.02]}}, ylabel="ECE", percent=True)
    >>> [round(float(bar.get_height()), 3) for bar in ax.patches]
    [0.055, 0.02]
    """
    advice = "Pass {'group': {'name': [value of each seed, …]}}."
    found = {
        group: named(f"groups[{group!r}]", members, advice)
        for group, members in named("groups", groups, advice).items()
    }
    check_spread(spread)
    names = list(dict.fromkeys(name for members in found.values() for name in members))
    width = 0.8 / len(names)
    ax = axes(ax)
    for i, name in enumerate(names):
        at = [g for g, members in enumerate(found.values()) if name in members]
        middle, reach = np.array(
            [
                over_seeds(f"groups[{group!r}][{name!r}]", members[name], spread)
                for group, members in found.items()
                if name in members
            ]
        ).T
        x = np.array(at) + (i - (len(names) - 1) / 2) * width
        ax.bar(x, middle, width, **bar_style(i), label=shown(name))
        ax.errorbar(x, middle, yerr=reach, fmt="none", ecolor="black", capsize=3, elinewidth=1.2)
    ax.margins(y=0.15)  # room for the legend
    name_ticks(ax, range(len(found)), list(found))
    finish(ax, "", _value_words(ylabel, percent=percent))
    ax.grid(visible=False, axis="x")
    if percent:
        in_per_cent(ax.yaxis)
    legend(ax, title=SPREAD_WORDS[spread])
    return ax


def pareto(
    points: Mapping[str, tuple[float, float]],
    *,
    xlabel: str,
    ylabel: str,
    better: tuple[str, str] = ("lower", "lower"),
    ax: Axes | None = None,
) -> Axes:
    """Two metrics of each setting, and their Pareto front.

    Settings on the front are filled and joined by steps; the others are hollow.

    Parameters
    ----------
    points
        Name -> (x, y). A point with a NaN is listed but not drawn.
    xlabel, ylabel
        What the axes say.
    better
        For x and for y, "lower" or "higher".
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> points = {"CE": (0.05, 0.06), "focal": (0.06, 0.02), "MMCE": (0.07, 0.05)}
    >>> ax = pareto(points, xlabel="error", ylabel="ECE")
    >>> ax.lines[0].get_xdata()
    array([0.05, 0.06])
    """
    advice = "Pass {'name': (x, y)}."
    found = {
        name: numbers(f"points[{name!r}]", given, PAIR, advice)
        for name, given in named("points", points, advice).items()
    }
    if isinstance(better, str) or len(better) != PAIR:
        rule = "must be two strings, for x and y"
        raise refuse("better", rule, f"got {better!r}", "Try ('lower', 'lower').")
    for one in better:
        check_choice("better", one, ("lower", "higher"))
    table = np.array(list(found.values()))
    front = pareto_front(table, maximise=[one == "higher" for one in better])
    ax = axes(ax)
    steps = table[front][np.lexsort(table[front].T[::-1])]
    # Between two settings of the front, the best y is that of the one whose x suffices.
    ax.step(
        *steps.T,
        where="post" if better[0] == "lower" else "pre",
        color=REFERENCE,
        linewidth=1.2,
        label="front",
        zorder=1.5,
    )
    for i, (name, (x, y)) in enumerate(found.items()):
        style = line_style(i) | {"linestyle": "none", "markersize": 8, "markeredgewidth": 2}
        style |= {} if front[i] else {"markerfacecolor": "white"}
        drawn = math.isfinite(x) and math.isfinite(y)
        ax.plot([x], [y], **style, label=shown(name) + ("" if drawn else " (no value)"))
    finish(ax, f"{xlabel} ({better[0]} is better)", f"{ylabel} ({better[1]} is better)")
    legend(ax)
    return ax


def _points_of(name: str, points: object, advice: str) -> dict[Any, Any]:
    """The points of one line: x -> values."""
    if not isinstance(points, Mapping) or not points:
        rule = "must be a mapping from x to values, with an entry"
        got = "an empty mapping" if isinstance(points, Mapping) else type(points).__name__
        raise refuse(f"series[{name!r}]", rule, f"got {got}", advice)
    return dict(points)


def _places(found: Mapping[str, Mapping[Any, Any]], *, logx: bool) -> dict[Any, float]:
    """Position of each x: numbers at their value, strings one after the other."""
    every = list(dict.fromkeys(x for points in found.values() for x in points))
    if all(isinstance(x, str) for x in every) and not logx:
        return {x: float(i) for i, x in enumerate(every)}
    for x in every:
        number = isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(x)
        if not number or (logx and x <= 0):
            rule = (
                "must have numbers above 0 as x" if logx else "must have numbers, or strings, as x"
            )
            raise refuse("series", rule, f"got {x!r}", "Leave it out, or set logx=False.")
    return {x: float(x) for x in every}


def _value_words(ylabel: str, *, percent: bool) -> str:
    return " ".join(filter(None, (shown(ylabel) if ylabel else "", "(%)" if percent else "")))
