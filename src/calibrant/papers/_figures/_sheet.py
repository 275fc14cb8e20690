"""The paper a figure is drawn on: panels in rows, titles, one legend, grey sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from calibrant._core.extras import import_extra
from calibrant.plots._style import finish, legend, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOT_RUN = "not run at this scale"
LETTERS_PER_INCH = 13  # of small type
HANDLE_LETTERS = 8  # what the line before a name takes


def sheet(
    rows: int, columns: int, *, width: float = 3.8, height: float = 3.4
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows and columns of panels, each of a size in inches."""
    import_extra("matplotlib", "A figure")
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return fig, fig.subplots(rows, columns, squeeze=False).tolist()


def title(ax: Axes, *lines: str) -> None:
    """Write a title of lines, each broken where it is wider than the panel."""
    grid = ax.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    inches = grid.figure.get_figwidth() / grid.ncols  # type: ignore[union-attr]
    letters = int(inches * LETTERS_PER_INCH)
    ax.set_title("\n".join(textwrap.fill(line, letters) for line in lines), fontsize="small")


def nothing(ax: Axes, sentence: str = NOT_RUN) -> None:
    """Say in grey that a panel has nothing to show."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_color("0.85")
    ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color="0.5")


def headroom(ax: Axes, share: float) -> None:
    """Leave a share of the height above the data free, for what is written there."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, low + (high - low) / (1 - share))


def curves(
    ax: Axes,
    series: Mapping[str, tuple[Any, Any]],
    *,
    xlabel: str,
    ylabel: str,
) -> None:
    """Functions as smooth lines: name -> (x, y)."""
    for i, (name, (x, y)) in enumerate(series.items()):
        ax.plot(x, y, **line_style(i) | {"marker": ""}, label=name)
    finish(ax, xlabel, ylabel)
    legend(ax)


def one_legend(fig: Figure, axes: Sequence[Axes], *, columns: int = 4) -> None:
    """Put what the legends of the panels say into one below them, in as many columns as fit.

    Where a name looks different in two panels, because one of them lacks another, each panel keeps
    its own.
    """
    entries: list[list[tuple[Any, str]]] = [
        list(zip(*ax.get_legend_handles_labels(), strict=True)) for ax in axes
    ]
    entries.sort(key=len, reverse=True)  # the fullest panel sets the order
    found: dict[str, Any] = {}
    for handle, label in chain.from_iterable(entries):
        if _look(found.setdefault(label, handle)) != _look(handle):
            return
    legends = [made for ax in axes if (made := ax.get_legend()) is not None]
    headings = [made.get_title().get_text() for made in legends]
    for made in legends:
        made.remove()
    if found:
        longest = max(len(line) for label in found for line in label.split("\n"))
        fitting = int(fig.get_figwidth() * LETTERS_PER_INCH / (longest + HANDLE_LETTERS))
        fig.legend(
            found.values(),
            found.keys(),
            loc="outside lower center",
            title=next(filter(None, headings), None),
            frameon=False,
            ncols=max(1, min(columns, fitting, len(found))),
            fontsize="small",
            title_fontsize="small",
        )


def _look(handle: Any) -> list[str]:
    """What tells one line, point or bar of a legend from another."""
    artist = handle[0] if isinstance(handle, tuple) else handle  # error bars, groups of bars
    named = (f"get_{name}" for name in ("color", "linestyle", "marker", "facecolor", "hatch"))
    return [repr(getattr(artist, get)()) for get in named if hasattr(artist, get)]
