"""Plots of metrics, calibrators and training runs.

Every function draws on ``ax`` and returns it. Without ``ax`` it creates a figure outside pyplot: no
global state changes and nothing has to be closed. ``ax.figure.savefig("plot.png")`` saves it;
``ax.figure`` as the last line of a notebook cell displays it.

Values remain fractions; axes labelled (%) show them as percentages. Lines differ in colour, dash
and marker, bars in colour and hatch, so that they remain distinguishable without colour. Model
names are shown literally, never parsed as formulas.

Needs ``pip install 'calibrant[plots]'``.
"""

from calibrant.plots._confidence import (
    accuracy_confidence,
    confidence_density,
    ece_uncertainty,
    risk_coverage,
)
from calibrant.plots._decisions import decision_curve
from calibrant.plots._effects import effect_sizes
from calibrant.plots._groups import bars, coefficient_sensitivity, lines, pareto, shift_levels
from calibrant.plots._labels import label_reliability
from calibrant.plots._reliability import (
    classwise_reliability,
    ece_by_bins,
    reliability_diagram,
)
from calibrant.plots._temperature import temperature_curve
from calibrant.plots._training import max_logit_histograms, training_curves

__all__ = [
    "accuracy_confidence",
    "bars",
    "classwise_reliability",
    "coefficient_sensitivity",
    "confidence_density",
    "decision_curve",
    "ece_by_bins",
    "ece_uncertainty",
    "effect_sizes",
    "label_reliability",
    "lines",
    "max_logit_histograms",
    "pareto",
    "reliability_diagram",
    "risk_coverage",
    "shift_levels",
    "temperature_curve",
    "training_curves",
]
