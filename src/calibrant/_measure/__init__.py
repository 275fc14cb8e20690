"""measure() and compare().

The package is private because its functions are ``calibrant.measure`` and ``calibrant.compare``: a
module of that name would hide them.
"""

from typing import TYPE_CHECKING

from calibrant._core.lazy import first_used
from calibrant._measure._grouped import GroupedPanel
from calibrant._measure._labels import LabelPanels, WorstLabel
from calibrant._measure._measure import measure
from calibrant._measure._panel import UPWARD_BIAS, Panel, above_note, bounds_note

if TYPE_CHECKING:
    from calibrant._measure._comparison import Comparison, compare
    from calibrant._measure._fit_summary import FitSummary, fit_summary
    from calibrant._measure._streams import grouped_panel_of_stream, panel_of_stream
else:
    __getattr__ = first_used(
        __name__,
        {
            "_comparison": "Comparison compare",
            "_fit_summary": "FitSummary fit_summary",
            "_streams": "grouped_panel_of_stream panel_of_stream",
        },
    )

__all__ = [
    "UPWARD_BIAS",
    "Comparison",
    "FitSummary",
    "GroupedPanel",
    "LabelPanels",
    "Panel",
    "WorstLabel",
    "above_note",
    "bounds_note",
    "compare",
    "fit_summary",
    "grouped_panel_of_stream",
    "measure",
    "panel_of_stream",
]
