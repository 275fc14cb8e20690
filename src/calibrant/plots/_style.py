"""Shared style of all plots: axes, colours, dashes, hatches, names, legends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from unicodedata import bidirectional

from calibrant._core.checks import refuse
from calibrant._core.extras import import_extra
from calibrant._core.formatting import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# The colours of Okabe and Ito (2008) without yellow, which is hard to see on white; neighbours
# differ in lightness, so that they differ in greyscale too.
COLOURS = ("#0072b2", "#e69f00", "#000000", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (9, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "---", "+++", "ooo")
REFERENCE = "0.45"  # the grey of lines that show no data

Corner = Literal["upper left", "lower right"]
LINE_HEIGHT = 16  # points per line of the corner text

WIDTH = 36  # characters per line of a name
LONGEST = 3 * WIDTH
LEFT_TO_RIGHT = "\u200e"  # a mark without width
LETTERS_AN_INCH = 11


def axes(ax: Axes | None, *, size: tuple[float, float] = (5.6, 4.2)) -> Axes:
    """The axes to draw on: those given, or those of a new figure that pyplot does not know."""
    import_extra("matplotlib", "calibrant.plots")
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if ax is None:
        return Figure(figsize=size, layout="constrained").subplots()
    if not isinstance(ax, Axes):
        rule, advice = "must be Matplotlib Axes", "Leave it out for a new figure."
        raise refuse("ax", rule, f"got {type(ax).__name__}", advice)
    return ax


def line_style(index: int, *, dash: int | None = None) -> dict[str, Any]:
    """Colour, dash and marker of the line number ``index``; ``dash`` sets another dash."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[(index if dash is None else dash) % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.6,
    }


def bar_style(index: int) -> dict[str, Any]:
    """Fill, hatch and edge of the bars number ``index``."""
    colour = COLOURS[index % len(COLOURS)]
    return {
        "facecolor": "#7f7f7f" if colour == "#000000" else colour,  # black would hide its hatch
        "hatch": HATCHES[index % len(HATCHES)],
        "edgecolor": "black",
        "linewidth": 0.8,
    }


def area_style(index: int) -> dict[str, Any]:
    """Outline and light fill of the area number ``index``, for areas that overlap."""
    from matplotlib.colors import to_rgba

    colour = COLOURS[index % len(COLOURS)]
    return {
        "facecolor": to_rgba(colour, 0.15),
        "edgecolor": colour,
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 1.6,
    }


def shown(name: str, *, width: int = WIDTH) -> str:
    r"""A name as it is drawn: literal, wrapped to ``width`` characters.

    Dollars start no formula, what cannot be printed becomes a space, and a name that begins with an
    underscore, which Matplotlib would leave out of legends, gets a space in front. Marks around
    names that read from right to left keep what follows them, such as "(3 %)", in its order.

    >>> shown("_cost in $ or $")
    ' _cost in \\$ or \\$'
    """
    text = "".join(letter if letter.isprintable() else " " for letter in name).strip()
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"
    text = "\n".join(textwrap.wrap(text, width)) or "(no name)"
    text = text.replace("$", r"\$")
    if any(bidirectional(letter) in {"R", "AL"} for letter in text):
        text = f"{LEFT_TO_RIGHT}{text}{LEFT_TO_RIGHT}"
    return f" {text}" if text.startswith("_") else text


def titled(name: str, fact: str) -> str:
    """A name with a number in its legend; a model without a name has the number alone."""
    return f"{shown(name)} ({fact})" if name else fact


def per_cent(value: float) -> str:
    """A fraction as a percentage with one decimal, short enough for a legend.

    >>> per_cent(0.0314), per_cent(float("nan"))
    ('3.1 %', 'undefined')
    """
    return show(value, percent=True, decimals=1)


def in_per_cent(axis: Axis) -> None:
    """Print the fractions of an axis as per cent."""
    axis.set_major_formatter(_tick_in_per_cent)  # Matplotlib turns it into a formatter


def _tick_in_per_cent(value: float, _: float | None) -> str:
    return f"{100 * value:.6g}".replace("-", "−")


def whole_numbers(axis: Axis) -> None:
    """Put the ticks of an axis on whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def name_ticks(ax: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Write names below the axes: in lines where they fit side by side, else slanted."""
    room = ax.get_window_extent().width / ax.figure.dpi * LETTERS_AN_INCH
    width = int(room / len(names))
    if width >= 6 and max(map(len, names)) <= 2 * width:  # noqa: PLR2004 - lines of a short word
        ax.set_xticks(places, [shown(name, width=width) for name in names])
    else:
        ax.set_xticks(
            places, [shown(name) for name in names], rotation=30, ha="right", rotation_mode="anchor"
        )


def finish(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes, and keep the frame in the background."""
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def legend(ax: Axes, *, least: int = 2, title: str | None = None, **options: Any) -> None:
    """Add a legend if there are at least ``least`` entries."""
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) < least:
        return
    options = {"loc": "best", "fontsize": "small", "title_fontsize": "small", **options}
    made = ax.legend(
        handles,
        labels,
        title=title,
        alignment="left",
        handlelength=3,
        framealpha=0.85,
        edgecolor="0.85",
        **options,
    )
    made.set_zorder(6)


def fact_and_legend(ax: Axes, text: str, corner: Corner, *, at: tuple[float, float]) -> None:
    """A bold text (or none) in a corner at the data point ``at``, and the legend next to it."""
    from matplotlib.transforms import ScaledTranslation

    inward, va, ha = (-1, "top", "left") if corner == "upper left" else (1, "bottom", "right")
    if text:
        paper = {"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 2}
        ax.text(*at, text, va=va, ha=ha, weight="bold", bbox=paper, zorder=6)
    inches = inward * LINE_HEIGHT / 72 * (text.count("\n") + 1 if text else 0)
    beside = ax.transData + ScaledTranslation(0, inches, ax.figure.dpi_scale_trans)
    legend(ax, loc=corner, bbox_to_anchor=at, bbox_transform=beside, borderaxespad=0.0)
