"""measure() and compare().

The package is private because its functions are ``calibrant.measure`` and ``calibrant.compare``: a
module of that name would hide them.
"""

from calibrant._measure._comparison import Comparison, compare
from calibrant._measure._fit_summary import FitSummary, fit_summary
from calibrant._measure._panel import Panel, bounds_note, measure, panel_of_stream

__all__ = [
    "Comparison",
    "FitSummary",
    "Panel",
    "bounds_note",
    "compare",
    "fit_summary",
    "measure",
    "panel_of_stream",
]
