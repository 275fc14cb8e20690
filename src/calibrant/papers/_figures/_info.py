"""What is known of a figure before it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant.papers._results import Results
from calibrant.papers._scales import Need

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureInfo:
    """A figure of a paper.

    Attributes
    ----------
    paper, figure
        Names, such as "wang2021" and "figure4".
    caption
        What it shows.
    panels
        What each panel of the published figure shows.
    needs
        The runs it is drawn from; none for pure mathematics.
    draw
        Draws it from results; what has none is a grey sentence.
    """

    paper: str
    figure: str
    caption: str
    panels: tuple[str, ...]
    needs: tuple[Need, ...]
    draw: Callable[[Results | None], Figure]
