"""Refinement: how well confidence ranks correct above wrong predictions.

All work on the odds against the prediction, so the ranking survives confidences that print as 1.0;
equal odds are ties. All but ``aurc`` and ``eaurc`` are NaN when every prediction is correct, or
every one is wrong: there is then nothing to separate.
"""

from __future__ import annotations

import math

import numpy as np

from calibrant._core.arrays import Float64, scalar
from calibrant._core.checks import check_fraction
from calibrant.metrics._rank_sums import rank_sums
from calibrant.metrics._sample import Measurable, Ranked, rank


def auroc(p: Measurable | Ranked) -> float:
    r"""Area under the ROC curve of confidence as a detector of correct predictions.

    Range 0 to 1, higher is better; 0.5 is chance. The chance that a correct prediction has higher
    confidence than a wrong one, ties counting half: :math:`P(c_+ > c_-) + \frac12 P(c_+ = c_-)`.
    NaN when all predictions are correct or all are wrong.

    References
    ----------
    Hand and Till (2001), doi:10.1023/A:1010920819831; Singh et al. (2021), eq. 4.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7, 0.7], correct=[1, 0, 1, 0])
    >>> metrics.auroc(c)
    0.625
    """
    sums = rank_sums(rank(p))
    return _share(sums.area, sums.hits * sums.misses)


def aupr_success(p: Measurable | Ranked) -> float:
    r"""Average precision of confidence as a detector of correct predictions.

    Range 0 to 1, higher is better; the accuracy is chance. :math:`\sum_t (R_t - R_{t-1}) P_t` over
    falling thresholds t, equal confidences together. NaN when all predictions are correct or all
    are wrong.

    References
    ----------
    Hendrycks and Gimpel (2017), arXiv:1610.02136.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7], correct=[1, 0, 1])
    >>> round(metrics.aupr_success(c), 4)
    0.8333
    """
    sums = rank_sums(rank(p))
    return _share(sums.success, np.where(sums.misses > 0, sums.hits, 0))


def aupr_error(p: Measurable | Ranked) -> float:
    r"""Average precision of low confidence as a detector of wrong predictions.

    Range 0 to 1, higher is better; the error rate is chance. As ``aupr_success`` with wrong
    predictions as the positives and thresholds rising from the lowest confidence.

    References
    ----------
    Hendrycks and Gimpel (2017), arXiv:1610.02136.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7], correct=[1, 0, 1])
    >>> metrics.aupr_error(c)
    0.5
    """
    sums = rank_sums(rank(p))
    return _share(sums.error, np.where(sums.hits > 0, sums.misses, 0))


def fpr95(p: Measurable | Ranked, *, recall: float = 0.95) -> float:
    r"""Share of wrong predictions kept at the threshold that keeps 95 % of the correct ones.

    Range 0 to 1, lower is better. The threshold is the highest confidence at which at least
    ``recall`` of the correct predictions lie at or above it. NaN when all predictions are correct
    or all are wrong.

    References
    ----------
    Hendrycks and Gimpel (2017), arXiv:1610.02136.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8, 0.7, 0.6], correct=[1, 0, 1, 0])
    >>> metrics.fpr95(c)
    0.5
    """
    check_fraction("recall", recall, example=0.95)
    sums = rank_sums(rank(p), recall)
    return _share(sums.kept, np.where(sums.hits > 0, sums.misses, 0))


def aurc(p: Measurable | Ranked) -> float:
    r"""Area under the risk–coverage curve.

    Range 0 to 1, lower is better. The mean over k = 1 … N of the error rate among the k most
    confident samples; within a group of equal confidences, the mean over their orders.

    References
    ----------
    Geifman, Uziel and El-Yaniv (2019), arXiv:1805.08206.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8], correct=[1, 0])
    >>> metrics.aurc(c)
    0.25
    """
    ranked = rank(p)
    return scalar(rank_sums(ranked).risk) / ranked.total


def eaurc(p: Measurable | Ranked) -> float:
    r"""AURC above that of a perfect ranking with the same number of errors (E-AURC).

    Range 0 to 1, lower is better. :math:`\mathrm{AURC} - (r + (1 - r) \ln(1 - r))` with error rate
    r; the subtracted area is its large-N limit, so tiny samples can fall slightly below 0.

    References
    ----------
    Geifman, Uziel and El-Yaniv (2019), arXiv:1805.08206.

    >>> from calibrant import Confidences, metrics
    >>> c = Confidences(confidence=[0.9, 0.8], correct=[1, 0])
    >>> round(metrics.eaurc(c), 4)
    0.0966
    """
    ranked = rank(p)
    risk = 1 - np.asarray(ranked.accuracy)
    right = np.where(risk < 1, 1 - risk, 1)  # 0 log 0 is 0
    return scalar(aurc(ranked) - (risk + right * np.log(right)))


def _share(part: Float64 | float, whole: Float64) -> float:
    """Part of a whole; NaN where that is 0. An array where there are many."""
    if np.ndim(whole) == 0:  # one NaN for all, so that results without a value compare equal
        return float(part) / float(whole) if whole > 0 else math.nan
    return scalar(np.divide(part, whole, out=np.full(np.shape(whole), math.nan), where=whole > 0))


def unranked_aurc(low: float, high: float) -> tuple[float, float]:
    """Bounds of the AURC if all predictions are right or all wrong (the bootstrap does not vary).

    From a perfect ranking to a random one, with the accuracy between ``low`` and ``high``.
    """
    return 1 - high - _chance_over_perfect(high), 1 - low


def unranked_eaurc(low: float, high: float) -> tuple[float, float]:
    """Bounds of the E-AURC if all predictions are right or all wrong."""
    return 0.0, _chance_over_perfect(min(max(1 / math.e, low), high))


def _chance_over_perfect(accuracy: float) -> float:
    """AURC of a random ranking minus that of a perfect one: -a ln a."""
    return -accuracy * math.log(accuracy) if accuracy else 0.0
