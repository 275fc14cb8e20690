"""Metrics: functions ``metric(predictions, *, options) -> float``. ``METRICS`` lists them all.

Top-label metrics also take ``Confidences``. Conventions (bin edges, ties, units) are stated in each
docstring and tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from calibrant._checks import near_name, refuse
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


@dataclass(frozen=True)
class Metric:
    """What is known of a metric beyond its value.

    ``plug_in`` marks estimates that sampling noise pushes upward, whose intervals are therefore
    corrected for bias; ``percent`` those that tables print in per cent. ``scale`` is the one on
    which the bootstrap distribution is near normal, for metrics whose percentiles are off-centre.
    """

    function: Callable[..., float]
    label: str
    better: Literal["lower", "higher", "neither"]
    low: float
    high: float
    top_label: bool = True
    plug_in: bool = False
    percent: bool = True
    scale: Literal["own", "logit"] = "own"

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(accuracy, "accuracy", "higher", 0, 1),
        Metric(mean_confidence, "mean confidence", "neither", 0, 1),
        Metric(mean_entropy, "mean entropy", "neither", 0, math.inf, top_label=False,
               percent=False),
        Metric(nll, "NLL", "lower", 0, math.inf, top_label=False, percent=False),
        Metric(brier, "Brier", "lower", 0, 2, top_label=False, percent=False),
        Metric(ece, "ECE", "lower", 0, 1, plug_in=True),
        Metric(adaptive_ece, "adaptive ECE", "lower", 0, 1, plug_in=True),
        Metric(debiased_ece, "debiased ECE (L2)", "lower", 0, 1, plug_in=True),
        Metric(smooth_ece, "smooth ECE", "lower", 0, 1, plug_in=True),
        Metric(classwise_ece, "classwise ECE", "lower", 0, 1, top_label=False, plug_in=True),
        Metric(mce, "maximum CE", "lower", 0, 1, plug_in=True),
        Metric(overconfidence_error, "overconfidence error", "lower", 0, 1, plug_in=True),
        Metric(underconfidence_error, "underconfidence error", "lower", 0, 1, plug_in=True),
        Metric(auroc, "AUROC of correctness", "higher", 0, 1, scale="logit"),
        Metric(aupr_success, "AUPR of successes", "higher", 0, 1, scale="logit"),
        Metric(aupr_error, "AUPR of errors", "higher", 0, 1, scale="logit"),
        Metric(fpr95, "FPR at 95 % TPR", "lower", 0, 1),
        Metric(aurc, "AURC", "lower", 0, 1, scale="logit"),
        Metric(eaurc, "E-AURC", "lower", -1, 1, scale="logit"),
        Metric(label_binned_ece, "label-binned ECE", "lower", 0, 1, plug_in=True),
        Metric(sweep_ece, "sweep ECE", "lower", 0, 1, plug_in=True),
        Metric(kde_ece, "KDE-ECE", "lower", 0, 1, plug_in=True),
        Metric(mmce, "MMCE", "lower", 0, 1, plug_in=True),
        Metric(skce, "SKCE", "lower", -1, 1, plug_in=True, percent=False),
    )
}  # fmt: skip


def get_metric(name: str) -> Metric:
    """Look a metric up by name; a misspelt name raises with the near one.

    >>> get_metric("ece").better
    'lower'
    """
    try:
        return METRICS[name]
    except KeyError:
        rule = "must name known metrics"
        raise refuse("metrics", rule, f"got {name!r}", near_name(name, METRICS)) from None
