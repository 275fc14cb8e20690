"""Metrics: functions ``metric(predictions, *, options) -> float``. ``METRICS`` lists them all.

Top-label metrics also take ``Confidences``. Conventions (bin edges, ties, units) are stated in each
docstring and tested.
"""

from __future__ import annotations

from calibrant.metrics._binned import (
    Reliability,
    adaptive_ece,
    debiased_ece,
    ece,
    label_binned_ece,
    mce,
    overconfidence_error,
    reliability,
    sweep_ece,
    underconfidence_error,
)
from calibrant.metrics._classwise import classwise_ece
from calibrant.metrics._decompositions import (
    BrierDecomposition,
    ECEDecomposition,
    brier_decomposition,
    ece_decomposition,
    refinement_nll,
)
from calibrant.metrics._kernel import kde_ece, mmce, skce
from calibrant.metrics._ranking import aupr_error, aupr_success, aurc, auroc, eaurc, fpr95
from calibrant.metrics._registry import METRICS, Metric, default_metrics, get_metric
from calibrant.metrics._scores import accuracy, brier, mean_confidence, mean_entropy, nll
from calibrant.metrics._smooth import smooth_ece

__all__ = [
    "METRICS",
    "BrierDecomposition",
    "ECEDecomposition",
    "Metric",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "aupr_error",
    "aupr_success",
    "aurc",
    "auroc",
    "brier",
    "brier_decomposition",
    "classwise_ece",
    "debiased_ece",
    "default_metrics",
    "eaurc",
    "ece",
    "ece_decomposition",
    "fpr95",
    "get_metric",
    "kde_ece",
    "label_binned_ece",
    "mce",
    "mean_confidence",
    "mean_entropy",
    "mmce",
    "nll",
    "overconfidence_error",
    "refinement_nll",
    "reliability",
    "skce",
    "smooth_ece",
    "sweep_ece",
    "underconfidence_error",
]
