"""Calibrant: honest probabilities for neural classifiers."""

from calibrant import metrics
from calibrant.predictions import Confidences, Predictions

__version__ = "0.1.0"
