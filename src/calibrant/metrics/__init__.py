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
from calibrant.metrics._calibration_curve import e50, e90, ici
from calibrant.metrics._classwise import classwise_ece
from calibrant.metrics._decisions import (
    DecisionCurve,
    decision_curve,
    expected_cost,
    net_benefit,
)
from calibrant.metrics._decompositions import (
    BrierDecomposition,
    ECEDecomposition,
    brier_decomposition,
    ece_decomposition,
    refinement_nll,
)
from calibrant.metrics._kernel import kde_ece, mmce, skce
from calibrant.metrics._metric import Metric
from calibrant.metrics._per_cluster import PerCluster, per_cluster
from calibrant.metrics._positive import (
    calibration_in_the_large,
    mean_prediction,
    positive_adaptive_ece,
    positive_auroc,
    positive_average_precision,
    positive_brier,
    positive_debiased_ece,
    positive_ece,
    positive_log_loss,
    positive_smooth_ece,
    prevalence,
)
from calibrant.metrics._ranking import aupr_error, aupr_success, aurc, auroc, eaurc, fpr95
from calibrant.metrics._recalibration import calibration_intercept, calibration_slope
from calibrant.metrics._registry import (
    ACCURACY,
    BRIER_SCORE,
    CALIBRATION_ERROR,
    CONFIDENCE,
    ENTROPY,
    IN_THE_LARGE,
    LOG_LOSS,
    MEAN_PREDICTION,
    METRICS,
    POSITIVE_ERROR,
    POSITIVE_LOSS,
    POSITIVE_RANKING,
    PREVALENCE,
    RANKING,
    SLOPE,
    default_metrics,
    get_metric,
)
from calibrant.metrics._scores import accuracy, brier, mean_confidence, mean_entropy, nll
from calibrant.metrics._smooth import smooth_ece

__all__ = [
    "ACCURACY",
    "BRIER_SCORE",
    "CALIBRATION_ERROR",
    "CONFIDENCE",
    "ENTROPY",
    "IN_THE_LARGE",
    "LOG_LOSS",
    "MEAN_PREDICTION",
    "METRICS",
    "POSITIVE_ERROR",
    "POSITIVE_LOSS",
    "POSITIVE_RANKING",
    "PREVALENCE",
    "RANKING",
    "SLOPE",
    "BrierDecomposition",
    "DecisionCurve",
    "ECEDecomposition",
    "Metric",
    "PerCluster",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "aupr_error",
    "aupr_success",
    "aurc",
    "auroc",
    "brier",
    "brier_decomposition",
    "calibration_in_the_large",
    "calibration_intercept",
    "calibration_slope",
    "classwise_ece",
    "debiased_ece",
    "decision_curve",
    "default_metrics",
    "e50",
    "e90",
    "eaurc",
    "ece",
    "ece_decomposition",
    "expected_cost",
    "fpr95",
    "get_metric",
    "ici",
    "kde_ece",
    "label_binned_ece",
    "mce",
    "mean_confidence",
    "mean_entropy",
    "mean_prediction",
    "mmce",
    "net_benefit",
    "nll",
    "overconfidence_error",
    "per_cluster",
    "positive_adaptive_ece",
    "positive_auroc",
    "positive_average_precision",
    "positive_brier",
    "positive_debiased_ece",
    "positive_ece",
    "positive_log_loss",
    "positive_smooth_ece",
    "prevalence",
    "refinement_nll",
    "reliability",
    "skce",
    "smooth_ece",
    "sweep_ece",
    "underconfidence_error",
]
