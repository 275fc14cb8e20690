"""Effect sizes of settings against a baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._core.arrays import to_floats
from calibrant._core.checks import refuse
from calibrant.plots._inputs import named
from calibrant.plots._style import (
    COLOURS,
    REFERENCE,
    axes,
    finish,
    legend,
    shown,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PAIR, TRIPLE = 2, 3


def effect_sizes(
    effects: Mapping[str, tuple[float, float, float]],
    *,
    xlabel: str = "effect size (Cohen's d)",
    ax: Axes | None = None,
) -> Axes:
    """Effects with their intervals, one row each, and a line at zero.

    Points are filled if the interval excludes 0 and hollow otherwise; a cross has no interval
    (karandikar2021, Figure 1).

    Parameters
    ----------
    effects
        Name -> (effect, low, high). Bounds may be NaN. A non-finite effect is listed but not drawn.
    xlabel
        What the axis says.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> ax = effect_sizes({"S-AvUC": (2.1, 1.2, 3.0), "MMCE": (0.4, -0.5, 1.3)})
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['S-AvUC', 'MMCE']
    """
    advice = "Pass {'name': (effect, low, high)}."
    found = {
        name: _effect(name, given, advice)
        for name, given in named("effects", effects, advice).items()
    }
    ax = axes(ax, size=(5.6, 1.2 + 0.4 * len(found)))
    ax.axvline(0, color=REFERENCE, linestyle=(0, (4, 3)), linewidth=1.2)
    for kind, (marker, face) in _EFFECT_KINDS.items():
        rows = [(y, e) for y, e in enumerate(found.values()) if _effect_kind(*e) == kind]
        if rows:
            y = np.array([row for row, _ in rows])
            middle, low, high = np.array([effect for _, effect in rows]).T
            ax.errorbar(
                middle,
                y,
                xerr=[middle - low, high - middle],
                fmt=marker,
                capsize=4,
                color=COLOURS[0],
                markerfacecolor=face,
                markersize=7,
                elinewidth=1.6,
                label=kind,
            )
    ax.set_yticks(range(len(found)), [_effect_words(name, e[0]) for name, e in found.items()])
    ax.set_ylim(len(found) - 0.5, -0.5)
    finish(ax, xlabel, "")
    ax.grid(visible=False, axis="y")
    legend(ax)
    return ax


def numbers(where: str, given: Any, count: int, advice: str) -> tuple[float, ...]:
    found = to_floats(given, where)
    if found.shape != (count,):
        raise refuse(where, f"must be {count} numbers", f"got the shape {found.shape}", advice)
    return tuple(float(x) for x in found)


def _effect(name: str, given: Any, advice: str) -> tuple[float, ...]:
    effect, low, high = found = numbers(f"effects[{name!r}]", given, TRIPLE, advice)
    if low > high or effect < low or effect > high:  # never true of NaN
        rule = "must have low <= effect <= high"
        raise refuse(f"effects[{name!r}]", rule, f"got {found}", advice)
    return found


_EFFECT_KINDS = {
    "interval excludes 0": ("o", COLOURS[0]),
    "interval includes 0": ("o", "white"),
    "no interval": ("X", COLOURS[0]),
}


def _effect_kind(effect: float, low: float, high: float) -> str:
    if not math.isfinite(effect):
        return "not drawn"
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return "interval includes 0" if low <= 0 <= high else "interval excludes 0"


def _effect_words(name: str, effect: float) -> str:
    if math.isfinite(effect):
        return shown(name)
    return f"{shown(name)}\n({'no value' if math.isnan(effect) else 'infinite'})"
