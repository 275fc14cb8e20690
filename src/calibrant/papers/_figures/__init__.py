"""The figures of the papers, drawn from finished runs.

``FIGURES[paper][figure]`` says what a figure shows and needs; ``draw_figure`` draws it. Panels
without finished runs say so in grey, and mathematical ones need no runs at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant._core.checks import refuse
from calibrant.papers._figures import (
    karandikar2021,
    loss_report,
    mukhoti2020,
    singh2021,
    wang2021,
)
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._published import look_up
from calibrant.papers._results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "FigureInfo", "draw_figure"]

#: Every figure: ``FIGURES[paper][figure]``.
FIGURES: dict[str, dict[str, FigureInfo]] = {}
for _module in (loss_report, wang2021, singh2021, mukhoti2020, karandikar2021):
    for _info in _module.INFOS:
        FIGURES.setdefault(_info.paper, {})[_info.figure] = _info


def draw_figure(paper: str, figure: str, results: Results | None = None) -> Figure:
    """Draw a figure of a paper.

    Parameters
    ----------
    paper
        A key of ``FIGURES``.
    figure
        A key of ``FIGURES[paper]``, such as "figure1".
    results
        Finished runs of that paper at some scale; None for what needs none.

    Returns
    -------
    matplotlib.figure.Figure
        With panels as in the paper; one that has no finished runs says "not run at this scale".

    Examples
    --------
    >>> fig = draw_figure("karandikar2021", "figure4")
    >>> [ax.get_xlabel() for ax in fig.axes]
    ['normalised entropy h*', 'normalised entropy h*']
    """
    found = look_up(FIGURES, paper, "figure", figure)
    if results is not None and results.at.paper != paper:
        rule, advice = f"must be of {paper}", f"Use Results(paper_at({paper!r}, …), folder)."
        raise refuse("results", rule, f"got those of {results.at.paper}", advice)
    return found.draw(results)
