"""The rows of METRICS that are about the probability of the positive class."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from calibrant.metrics import _estimators as estimators
from calibrant.metrics._calibration_curve import e50, e90, ici
from calibrant.metrics._decisions import expected_cost, net_benefit
from calibrant.metrics._estimators import Estimator
from calibrant.metrics._metric import Metric, Use
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
from calibrant.metrics._recalibration import calibration_intercept, calibration_slope

_row: Callable[..., Metric] = partial(Metric, top_label=False, view="positive class")
NOISE_OF_SAMPLES = "the noise that it subtracts is that of whole samples"
_BOTH: tuple[Use, ...] = ("binary", "binary compare")
_LABELS: tuple[Use, ...] = (*_BOTH, "labels")


def _error(
    function: Callable[..., float],
    label: str,
    *,
    places: tuple[Use, ...] = ("binary",),
    options: tuple[str, ...] = (),
    estimator: Callable[..., Estimator] = estimators.one_by_one,
    unweighted: str = "",
) -> Metric:
    """A calibration error of P(positive), whose estimate noise pushes upward."""
    kept: dict[str, Any] = {"options": options, "interval": "grid", "estimator": estimator}
    kept["unweighted"] = unweighted
    return _row(function, label, "lower", places=places, **kept)


POSITIVE: tuple[Metric, ...] = (
    _row(mean_prediction, "mean prediction", "neither", places=("binary", "labels")),
    _row(prevalence, "prevalence", "neither", places=("binary", "labels"), interval="exact"),
    _row(
        calibration_in_the_large,
        "calibration in the large",
        "neither",
        low=-1,
        places=("binary", "labels"),
        interval="gap",
        target=0,
    ),
    _row(
        calibration_intercept,
        "calibration intercept",
        "neither",
        low=-math.inf,
        high=math.inf,
        places=("binary",),
        percent=False,
        target=0,
    ),
    _row(
        calibration_slope,
        "calibration slope",
        "neither",
        low=-math.inf,
        high=math.inf,
        places=("binary",),
        percent=False,
        target=1,
    ),
    _error(
        positive_ece,
        "positive-class ECE",
        places=_LABELS,
        options=("bins", "norm", "binning"),
        estimator=estimators.norm_binned,
    ),
    _error(
        positive_adaptive_ece,
        "positive-class adaptive ECE",
        options=("bins",),
        estimator=partial(estimators.norm_binned, binning="mass"),
    ),
    _error(
        positive_debiased_ece,
        "positive-class debiased ECE (L2)",
        options=("bins",),
        estimator=estimators.debiased,
        unweighted=NOISE_OF_SAMPLES,
    ),
    _error(
        positive_smooth_ece,
        "positive-class smooth ECE",
        places=_BOTH,
        estimator=estimators.smooth,
    ),
    _error(ici, "ICI", places=_BOTH),
    _error(e50, "E50"),
    _error(e90, "E90"),
    _row(
        positive_log_loss,
        "log loss",
        "lower",
        high=math.inf,
        places=_LABELS,
        percent=False,
    ),
    _row(positive_brier, "Brier (one column)", "lower", places=_LABELS, percent=False),
    _row(positive_auroc, "ROC AUC", "higher", places=_LABELS, scale="logit"),
    _row(positive_average_precision, "average precision", "higher", places=_LABELS, scale="logit"),
    _row(
        net_benefit,
        "net benefit",
        "higher",
        low=-math.inf,
        places=_BOTH,
        options=("threshold",),
        percent=False,
    ),
    _row(
        expected_cost,
        "expected cost",
        "lower",
        high=math.inf,
        places=("binary",),
        options=("costs",),
        percent=False,
    ),
)
