"""Metrics of the probability of one class, the positive class, against its frequency.

A two-class model is asked about P(positive), not about the label it would choose: a model that says
40 % where 10 % are positive is never wrong about the label and always wrong about the risk. With
P(positive) in place of the confidence, and "is positive" in place of "is correct", the metrics of
the top label apply as they are (``Predictions.positive_class`` is that record); this module names
them, and adds those that only make sense for one class.
"""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError
from calibrant.metrics._binned import adaptive_ece, debiased_ece, ece
from calibrant.metrics._binning import Binning, BinSums
from calibrant.metrics._ranking import aupr_success, auroc
from calibrant.metrics._sample import Ranked, Sample
from calibrant.metrics._smooth import smooth_ece
from calibrant.predictions import PositiveClass, Predictions

Class = int | str | None
Binary = Predictions | PositiveClass | Sample | Ranked


def positives(p: Binary, positive: Class, metric: str) -> Ranked:
    """Counts and positives at each distinct P(positive); sums over bins are returned unchanged."""
    if isinstance(p, (Ranked, BinSums)):
        return p
    if isinstance(p, Sample):
        source = p.source
        if isinstance(source, PositiveClass):
            return p.ranked
        p = source  # type: ignore[assignment]
    if isinstance(p, Predictions):
        p = p.positive_class(positive)
    if isinstance(p, PositiveClass):
        return Sample.of(p).ranked
    raise InputError(
        f"{metric} needs the probability of a class; got {type(p).__name__}. "
        "Build Predictions(…), or Predictions.from_binary(probs=…, labels=…)."
    )


def mean_prediction(p: Binary, *, positive: Class = None) -> float:
    r"""Mean predicted probability of the positive class.

    Range 0 to 1; neither direction is better in itself: it should equal the ``prevalence``.
    :math:`\frac1N \sum_i p_i` with :math:`p_i = P(y_i = \text{positive})`.

    >>> from calibrant import Predictions, metrics
    >>> metrics.mean_prediction(Predictions.from_binary(probs=[0.5, 0.25], labels=[1, 0]))
    0.375
    """
    return positives(p, positive, "mean_prediction").mean_confidence


def prevalence(p: Binary, *, positive: Class = None) -> float:
    r"""Share of the samples whose label is the positive class.

    Range 0 to 1; neither direction is better. :math:`\frac1N \sum_i y_i`.

    >>> from calibrant import Predictions, metrics
    >>> metrics.prevalence(Predictions.from_binary(probs=[0.5, 0.25], labels=[1, 0]))
    0.5
    """
    return positives(p, positive, "prevalence").accuracy


def calibration_in_the_large(p: Binary, *, positive: Class = None) -> float:
    r"""Mean prediction minus prevalence: how far risk is overestimated on average.

    Range -1 to 1; neither direction is better: 0 is, above it risk is overestimated.
    :math:`\frac1N \sum_i (p_i - y_i)`. On the scale of log-odds: ``calibration_intercept``.

    References
    ----------
    Van Calster et al. (2019), doi:10.1186/s12916-019-1466-7.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.5, 0.25], labels=[1, 0])
    >>> metrics.calibration_in_the_large(p)
    -0.125
    """
    ranked = positives(p, positive, "calibration_in_the_large")
    return ranked.mean_confidence - ranked.accuracy


def positive_ece(
    p: Binary,
    *,
    positive: Class = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
) -> float:
    r"""Expected calibration error of the probability of the positive class.

    Range 0 to 1, lower is better. ``ece`` with P(positive) on [0, 1] in place of the confidence and
    the frequency of positives in place of the accuracy. Biased upward, as ``ece`` is.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), doi:10.1609/aaai.v29i1.9602.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.4] * 10, labels=[1] + [0] * 9)
    >>> round(metrics.positive_ece(p), 4)
    0.3
    """
    return ece(positives(p, positive, "positive_ece"), bins=bins, norm=norm, binning=binning)


def positive_adaptive_ece(
    p: Binary, *, positive: Class = None, bins: int = 15, norm: float = 1
) -> float:
    """ECE of the probability of the positive class over bins that hold equally many samples.

    Range 0 to 1, lower is better. ``positive_ece`` with ``binning="mass"``: where most predictions
    are near 0, as with rare positives, equal widths put nearly all samples into one bin.

    References
    ----------
    Nguyen and O'Connor (2015), arXiv:1508.05154.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.1, 0.2, 0.6, 0.7], labels=[0, 1, 1, 1])
    >>> round(metrics.positive_adaptive_ece(p, bins=2), 4)
    0.35
    """
    return adaptive_ece(positives(p, positive, "positive_adaptive_ece"), bins=bins, norm=norm)


def positive_debiased_ece(
    p: Binary, *, positive: Class = None, bins: int = 15, binning: Binning = "mass"
) -> float:
    """L2 calibration error of the probability of the positive class, sampling noise subtracted.

    Range 0 to 1, lower is better. ``debiased_ece`` of P(positive).

    References
    ----------
    Kumar, Liang and Ma (2019), arXiv:1909.10155; Bröcker (2012), doi:10.1007/s00382-011-1191-1.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.8] * 10, labels=[1] * 5 + [0] * 5)
    >>> round(metrics.positive_debiased_ece(p), 4)
    0.2494
    """
    ranked = positives(p, positive, "positive_debiased_ece")
    return debiased_ece(ranked, bins=bins, binning=binning)


def positive_smooth_ece(p: Binary, *, positive: Class = None) -> float:
    """Smooth calibration error of the probability of the positive class.

    Range 0 to 1, lower is better. ``smooth_ece`` of P(positive).

    References
    ----------
    Błasiok and Nakkiran (2024), arXiv:2309.12236.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9] * 10, labels=[1] * 5 + [0] * 5)
    >>> round(metrics.positive_smooth_ece(p), 3)
    0.4
    """
    return smooth_ece(positives(p, positive, "positive_smooth_ece"))


def positive_brier(p: Binary, *, positive: Class = None) -> float:
    r"""Brier score of the positive class alone, as scikit-learn's ``brier_score_loss`` has it.

    Range 0 to 1, lower is better. :math:`\frac1N \sum_i (p_i - y_i)^2`: one column. ``brier`` sums
    over both classes, which doubles it. Strictly proper.

    References
    ----------
    Brier (1950), doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2.

    >>> from calibrant import Predictions, metrics
    >>> round(metrics.positive_brier(Predictions.from_binary(probs=[0.5, 0.2], labels=[1, 0])), 4)
    0.145
    """
    ranked = positives(p, positive, "positive_brier")
    squares = ranked.hits * doubt_of(ranked) ** 2 + ranked.misses * ranked.confidence**2
    return float(squares.sum()) / ranked.total


def positive_log_loss(p: Binary, *, positive: Class = None) -> float:
    r"""Log loss of positive against not positive, in nats; for two classes it equals ``nll``.

    Range 0 to infinity, lower is better. :math:`-\frac1N \sum_i [y_i \ln p_i + (1 - y_i) \ln(1 -
    p_i)]`. Infinite where what happened had probability 0. Strictly proper.

    References
    ----------
    Gneiting and Raftery (2007), doi:10.1198/016214506000001437.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.5, 0.2], labels=[1, 0])
    >>> round(metrics.positive_log_loss(p), 4)
    0.4581
    """
    ranked = positives(p, positive, "positive_log_loss")
    loss = 0.0
    for count, chance in ((ranked.hits, ranked.confidence), (ranked.misses, doubt_of(ranked))):
        some = count > 0
        with np.errstate(divide="ignore"):
            loss -= float((count[some] * np.log(chance[some])).sum())
    return loss / ranked.total + 0.0


def positive_auroc(p: Binary, *, positive: Class = None) -> float:
    """Area under the ROC curve of P(positive) as a detector of positives.

    Range 0 to 1, higher is better; 0.5 is chance. Ties count half. NaN where all samples are
    positive, or none is. (``auroc`` is about correct answers, not about the class.)

    References
    ----------
    Hanley and McNeil (1982), doi:10.1148/radiology.143.1.7063747.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9, 0.8, 0.3, 0.3], labels=[1, 0, 1, 0])
    >>> metrics.positive_auroc(p)
    0.625
    """
    return auroc(positives(p, positive, "positive_auroc"))


def positive_average_precision(p: Binary, *, positive: Class = None) -> float:
    """Average precision of P(positive) as a detector of positives (area under precision–recall).

    Range 0 to 1, higher is better; the prevalence is chance. Equal predictions are one threshold.
    NaN where all samples are positive, or none is.

    References
    ----------
    Davis and Goadrich (2006), doi:10.1145/1143844.1143874.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9, 0.8, 0.7], labels=[1, 0, 1])
    >>> round(metrics.positive_average_precision(p), 4)
    0.8333
    """
    return aupr_success(positives(p, positive, "positive_average_precision"))


def doubt_of(ranked: Ranked) -> Float64:
    """1 - P(positive), with all its digits where they are known."""
    return 1 - ranked.confidence if ranked.doubt is None else ranked.doubt
