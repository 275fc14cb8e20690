"""Calibrant: honest probabilities for neural classifiers.

>>> import calibrant
>>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
>>> round(calibrant.metrics.ece(p), 3)
0.194
"""

from calibrant import calibrators, metrics
from calibrant._checks import InputError
from calibrant.calibrators import load_calibrator
from calibrant.measure import compare, measure
from calibrant.predictions import Confidences, Predictions, load

__version__ = "0.1.0"

__all__ = [
    "Confidences",
    "InputError",
    "Predictions",
    "__version__",
    "calibrators",
    "compare",
    "load",
    "load_calibrator",
    "measure",
    "metrics",
]
