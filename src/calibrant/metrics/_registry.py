"""METRICS: one row per metric, with everything the rest of the package needs to know about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from calibrant._core.checks import near_name, refuse
from calibrant.metrics import _estimators as estimators
from calibrant.metrics import _streamed as streamed
from calibrant.metrics._binned import (
    adaptive_ece,
    debiased_ece,
    ece,
    label_binned_ece,
    mce,
    overconfidence_error,
    sweep_ece,
    underconfidence_error,
)
from calibrant.metrics._classwise import classwise_ece
from calibrant.metrics._estimators import Estimator
from calibrant.metrics._kernel import kde_ece, mmce, skce
from calibrant.metrics._metric import Metric, Use
from calibrant.metrics._positive_rows import NOISE_OF_SAMPLES, POSITIVE
from calibrant.metrics._ranking import (
    aupr_error,
    aupr_success,
    aurc,
    auroc,
    eaurc,
    fpr95,
    unranked_aurc,
    unranked_eaurc,
)
from calibrant.metrics._scores import accuracy, brier, mean_confidence, mean_entropy, nll
from calibrant.metrics._smooth import smooth_ece
from calibrant.metrics._streamed import Stream

# Why some metrics take no sampling weights.
RANKS_OF_SAMPLES = "its risk is a mean over ranks of whole samples"


def _top_label_error(
    function: Callable[..., float],
    label: str,
    *places: Use,
    options: tuple[str, ...] = (),
    estimator: Callable[..., Estimator] = estimators.one_by_one,
    stream: Stream | None = None,
    unweighted: str = "",
) -> Metric:
    """A calibration error of the top label."""
    return Metric(
        function,
        label,
        "lower",
        places=places,
        options=options,
        interval="grid",
        estimator=estimator,
        stream=stream,
        unweighted=unweighted,
    )


def _width_binned(
    function: Callable[..., float],
    label: str,
    estimator: Callable[..., Estimator] = estimators.binned,
) -> Metric:
    """A calibration error of the panel over equal-width bins."""
    stream = streamed.in_width_bins(function)
    return _top_label_error(
        function, label, "panel", options=("bins",), estimator=estimator, stream=stream
    )


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            accuracy,
            "accuracy",
            "higher",
            places=("panel", "compare", "calibrate", "train", "callback"),
            interval="exact",
            stream=streamed.ACCURACY,
        ),
        Metric(
            mean_confidence,
            "mean confidence",
            "neither",
            places=("panel",),
            stream=streamed.MEAN_CONFIDENCE,
            batched=True,
        ),
        Metric(
            nll,
            "NLL",
            "lower",
            high=math.inf,
            places=("panel", "compare", "calibrate", "train", "callback", "summary"),
            stream=streamed.mean("nll"),
            batched=True,
            top_label=False,
            percent=False,
        ),
        Metric(
            brier,
            "Brier",
            "lower",
            high=2,
            places=("panel", "compare", "calibrate", "train"),
            stream=streamed.mean("brier"),
            batched=True,
            top_label=False,
            percent=False,
        ),
        _top_label_error(
            ece,
            "ECE",
            "panel",
            "compare",
            "calibrate",
            "train",
            "callback",
            "summary",
            options=("bins", "norm", "binning"),
            estimator=estimators.norm_binned,
            stream=streamed.ECE,
        ),
        _top_label_error(
            adaptive_ece,
            "adaptive ECE",
            "panel",
            "compare",
            "calibrate",
            options=("bins",),
            estimator=partial(estimators.norm_binned, binning="mass"),
            stream=streamed.ADAPTIVE_ECE,
        ),
        _top_label_error(
            debiased_ece,
            "debiased ECE (L2)",
            "panel",
            "calibrate",
            unweighted=NOISE_OF_SAMPLES,
            options=("bins",),
            estimator=estimators.debiased,
            stream=streamed.DEBIASED_ECE,
        ),
        _top_label_error(
            smooth_ece,
            "smooth ECE",
            "panel",
            "compare",
            estimator=estimators.smooth,
            stream=streamed.SMOOTH_ECE,
        ),
        Metric(
            classwise_ece,
            "classwise ECE",
            "lower",
            places=("panel", "calibrate"),
            options=("bins",),
            interval="rows",
            stream=streamed.CLASSWISE_ECE,
            top_label=False,
        ),
        _width_binned(mce, "maximum CE", estimators.largest_gap),
        _width_binned(overconfidence_error, "overconfidence error", estimators.one_sided),
        _width_binned(underconfidence_error, "underconfidence error", estimators.one_sided),
        Metric(
            mean_entropy,
            "mean entropy",
            "neither",
            high=math.inf,
            places=("panel",),
            stream=streamed.mean("mean_entropy"),
            batched=True,
            top_label=False,
            percent=False,
        ),
        Metric(
            auroc,
            "AUROC of correctness",
            "higher",
            places=("panel", "compare", "calibrate", "train", "callback"),
            scale="logit",
            stream=streamed.ranking(auroc),
            batched=True,
        ),
        Metric(aupr_success, "AUPR of successes", "higher", scale="logit", batched=True),
        Metric(
            aupr_error,
            "AUPR of errors",
            "higher",
            places=("panel",),
            scale="logit",
            stream=streamed.ranking(aupr_error),
            batched=True,
        ),
        Metric(
            fpr95,
            "FPR at 95 % TPR",
            "lower",
            places=("panel",),
            stream=streamed.ranking(fpr95),
            batched=True,
        ),
        Metric(
            aurc,
            "AURC",
            "lower",
            places=("panel", "compare"),
            scale="logit",
            stream=streamed.ranking(aurc),
            batched=True,
            unranked=unranked_aurc,
            unweighted=RANKS_OF_SAMPLES,
        ),
        Metric(
            eaurc,
            "E-AURC",
            "lower",
            low=-1,
            places=("panel",),
            scale="logit",
            stream=streamed.ranking(eaurc),
            batched=True,
            unranked=unranked_eaurc,
            unweighted=RANKS_OF_SAMPLES,
        ),
        _top_label_error(
            label_binned_ece,
            "label-binned ECE",
            options=("bins",),
            estimator=estimators.label_binned,
        ),
        _top_label_error(
            sweep_ece, "sweep ECE", unweighted="it tries as many bins as there are samples"
        ),
        _top_label_error(
            kde_ece,
            "KDE-ECE",
            unweighted="its bandwidth is chosen by leaving out whole samples",
            estimator=estimators.density,
        ),
        _top_label_error(mmce, "MMCE", estimator=estimators.mean_embedding),
        Metric(
            skce,
            "SKCE",
            "lower",
            low=-1,
            interval="grid",
            estimator=estimators.kernel,
            percent=False,
            unweighted="it averages over pairs of distinct samples",
        ),
        *POSITIVE,
    )
}

# The standard metric of each kind, for sentences and rules that need exactly one.
ACCURACY, LOG_LOSS, BRIER_SCORE = "accuracy", "nll", "brier"
CALIBRATION_ERROR, RANKING, CONFIDENCE, ENTROPY = "ece", "auroc", "mean_confidence", "mean_entropy"
MEAN_PREDICTION, PREVALENCE = "mean_prediction", "prevalence"
IN_THE_LARGE, SLOPE, POSITIVE_ERROR = (
    "calibration_in_the_large",
    "calibration_slope",
    "positive_ece",
)
POSITIVE_LOSS, POSITIVE_RANKING = "positive_log_loss", "positive_auroc"


def default_metrics(place: Use) -> tuple[str, ...]:
    """Names of the metrics that are shown in a place by default.

    >>> default_metrics("callback")
    ('accuracy', 'nll', 'ece', 'auroc')
    """
    return tuple(name for name, metric in METRICS.items() if place in metric.places)


def get_metric(name: str) -> Metric:
    """Get a metric by name; a misspelt name raises with the closest one.

    >>> get_metric("ece").better
    'lower'
    """
    try:
        return METRICS[name]
    except KeyError:
        rule = "must name known metrics"
        raise refuse("metrics", rule, f"got {name!r}", near_name(name, METRICS)) from None
