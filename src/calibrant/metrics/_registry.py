"""METRICS: one row per metric, with everything the rest of the package needs to know about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

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
from calibrant.metrics._estimators import Estimator, Options
from calibrant.metrics._kernel import kde_ece, mmce, skce
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
from calibrant.metrics._sample import Ranked
from calibrant.metrics._scores import accuracy, brier, mean_confidence, mean_entropy, nll
from calibrant.metrics._smooth import smooth_ece
from calibrant.metrics._streamed import Stream

Place = Literal["panel", "compare", "calibrate", "train", "callback", "summary"]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Metric:
    """A metric and its properties.

    Parameters
    ----------
    function, label, better, low, high
        How it is computed, what tables call it, which direction is better, and its range.
    places
        Where it is shown by default: the panel of ``measure``, ``compare``, ``calibrate``, the end
        of a training, the callbacks during one, the summary of a fit.
    options
        Which of the panel's options (bins, norm, binning) it takes from there; a metric that is
        defined by its binning keeps it.
    interval
        How its interval is made: ``"exact"`` (Wilson), ``"bootstrap"`` over samples, or for
        estimates that noise pushes upward, a test inverted over simulated populations: of the top
        label (``"grid"``) or of whole rows of probabilities (``"rows"``).
    estimator
        What the grid bootstrap simulates.
    stream
        How it is computed in bounded memory; None where it is not.
    top_label
        Whether confidences and correctness are enough.
    percent
        Whether tables print it in per cent.
    scale
        The scale on which its bootstrap distribution is near normal.
    unranked
        Its bounds, given those of the accuracy, where all answers are right or all are wrong: every
        resample then has the same value.
    """

    function: Callable[..., float]
    label: str
    better: Literal["lower", "higher", "neither"]
    low: float = 0
    high: float = 1
    places: tuple[Place, ...] = ()
    options: tuple[str, ...] = ()
    interval: Literal["exact", "bootstrap", "grid", "rows"] = "bootstrap"
    estimator: Callable[[Callable[..., float], Options, Ranked], Estimator] | None = None
    stream: Stream | None = None
    top_label: bool = True
    percent: bool = True
    scale: Literal["own", "logit"] = "own"
    unranked: Callable[[float, float], Bounds] | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def plug_in(self) -> bool:
        """Whether sampling noise pushes the estimate upward."""
        return self.interval in ("grid", "rows")


def _top_label_error(
    function: Callable[..., float],
    label: str,
    *places: Place,
    options: tuple[str, ...] = (),
    estimator: Callable[..., Estimator] = estimators.as_it_is,
    stream: Stream | None = None,
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
    )


def _width_binned(function: Callable[..., float], label: str) -> Metric:
    """A calibration error of the panel over equal-width bins."""
    stream = streamed.in_width_bins(function)
    return _top_label_error(
        function, label, "panel", options=("bins",), estimator=estimators.binned, stream=stream
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
        ),
        Metric(
            nll,
            "NLL",
            "lower",
            high=math.inf,
            places=("panel", "compare", "calibrate", "train", "callback", "summary"),
            stream=streamed.mean("nll"),
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
            estimator=estimators.binned,
            stream=streamed.ECE,
        ),
        _top_label_error(
            adaptive_ece,
            "adaptive ECE",
            "panel",
            "compare",
            "calibrate",
            options=("bins",),
            estimator=partial(estimators.binned, binning="mass"),
            stream=streamed.ADAPTIVE_ECE,
        ),
        _top_label_error(
            debiased_ece,
            "debiased ECE (L2)",
            "panel",
            "calibrate",
            options=("bins",),
            estimator=estimators.debiased,
            stream=streamed.DEBIASED_ECE,
        ),
        _top_label_error(smooth_ece, "smooth ECE", "panel", "compare", stream=streamed.SMOOTH_ECE),
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
        _width_binned(mce, "maximum CE"),
        _width_binned(overconfidence_error, "overconfidence error"),
        _width_binned(underconfidence_error, "underconfidence error"),
        Metric(
            mean_entropy,
            "mean entropy",
            "neither",
            high=math.inf,
            places=("panel",),
            stream=streamed.mean("mean_entropy"),
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
        ),
        Metric(aupr_success, "AUPR of successes", "higher", scale="logit"),
        Metric(
            aupr_error,
            "AUPR of errors",
            "higher",
            places=("panel",),
            scale="logit",
            stream=streamed.ranking(aupr_error),
        ),
        Metric(
            fpr95, "FPR at 95 % TPR", "lower", places=("panel",), stream=streamed.ranking(fpr95)
        ),
        Metric(
            aurc,
            "AURC",
            "lower",
            places=("panel", "compare"),
            scale="logit",
            stream=streamed.ranking(aurc),
            unranked=unranked_aurc,
        ),
        Metric(
            eaurc,
            "E-AURC",
            "lower",
            low=-1,
            places=("panel",),
            scale="logit",
            stream=streamed.ranking(eaurc),
            unranked=unranked_eaurc,
        ),
        _top_label_error(
            label_binned_ece,
            "label-binned ECE",
            options=("bins",),
            estimator=partial(estimators.binned, floor=True),
        ),
        _top_label_error(sweep_ece, "sweep ECE"),
        _top_label_error(kde_ece, "KDE-ECE", estimator=estimators.density),
        _top_label_error(mmce, "MMCE"),
        Metric(
            skce,
            "SKCE",
            "lower",
            low=-1,
            interval="grid",
            estimator=estimators.kernel,
            percent=False,
        ),
    )
}

# The one metric of its kind where a sentence or a rule needs just one.
ACCURACY, LOG_LOSS, BRIER_SCORE = "accuracy", "nll", "brier"
CALIBRATION_ERROR, RANKING, CONFIDENCE, ENTROPY = "ece", "auroc", "mean_confidence", "mean_entropy"


def default_metrics(place: Place) -> tuple[str, ...]:
    """Names of the metrics that are shown in a place unless others are asked for.

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
