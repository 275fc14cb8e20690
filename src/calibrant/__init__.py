"""Calibrant: calibration of classifiers.

>>> import calibrant
>>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
>>> round(calibrant.metrics.ece(p), 3)
0.194
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from calibrant import calibrators, metrics

# Import stopping first: the imports below take long enough for a Ctrl-C.
from calibrant._core import stopping as _stopping  # noqa: F401
from calibrant._core.checks import InputError
from calibrant._core.version import __version__
from calibrant._measure import Comparison, FitSummary, Panel, compare, fit_summary, measure
from calibrant._scores import Scores
from calibrant.calibrators import load_calibrator
from calibrant.predictions import Confidences, Predictions, load

if TYPE_CHECKING:
    from calibrant import losses

__all__ = [
    "Comparison",
    "Confidences",
    "FitSummary",
    "InputError",
    "Panel",
    "Predictions",
    "Scores",
    "__version__",
    "calibrators",
    "compare",
    "fit_summary",
    "load",
    "load_calibrator",
    "losses",
    "measure",
    "metrics",
]


def __getattr__(name: str) -> ModuleType:
    """Load ``calibrant.losses`` when it is first used, because it needs PyTorch."""
    if name == "losses":
        return importlib.import_module("calibrant.losses")
    raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
