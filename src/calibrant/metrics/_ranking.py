"""Refinement: how well confidence ranks correct above wrong predictions.

All work on the odds against the prediction, so the ranking survives confidences that print as 1.0;
equal odds are ties. All but ``aurc`` and ``eaurc`` are NaN when every prediction is correct, or
every one is wrong: there is then nothing to separate.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from calibrant._arrays import Float64
from calibrant._checks import check_fraction
from calibrant.metrics._sample import Measurable, Ranked, rank

# Harmonic numbers are looked up below the first and summed as a series from the second on.
HARMONIC_TABLE = 1 << 17
SERIES_FROM = 64


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
    ranked = rank(p)
    hits, misses = ranked.hits, ranked.misses
    pairs = float(hits.sum()) * float(misses.sum())
    below = np.cumsum(misses) - misses / 2
    return float(hits @ below) / pairs if pairs else math.nan


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
    ranked = rank(p)
    return _average_precision(ranked.hits[::-1], ranked.misses[::-1])


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
    ranked = rank(p)
    return _average_precision(ranked.misses, ranked.hits)


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
    ranked = rank(p)
    check_fraction("recall", recall, example=0.95)
    kept, wrong = np.cumsum(ranked.hits[::-1]), np.cumsum(ranked.misses[::-1])
    if not kept[-1] or not wrong[-1]:
        return math.nan
    # A hair's breadth of slack: 0.95 * 20 is 19, whatever the rounding says.
    reached = int(np.argmax(kept >= recall * kept[-1] * (1 - 1e-12)))
    return float(wrong[reached] / wrong[-1])


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
    count, misses = ranked.count[::-1], ranked.misses[::-1]
    there = count > 0
    count, misses = count[there], misses[there]
    after, wrong = np.concatenate(([0.0], np.cumsum(count))), np.cumsum(misses) - misses
    # Sample j of a group of n with m misses has expected risk (wrong + j m/n) / (before + j);
    # summed over j = 1 … n this is m + (wrong - before m/n) (H(before + n) - H(before)).
    rate = misses / count
    total = misses + (wrong - after[:-1] * rate) * np.diff(_harmonic(after))
    return float(total.sum()) / ranked.total


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
    risk = 1 - ranked.accuracy
    optimal = risk + (1 - risk) * math.log1p(-risk) if risk < 1 else 1.0
    return aurc(ranked) - optimal


def _average_precision(positives: Float64, negatives: Float64) -> float:
    """Sum over thresholds of precision times the gain in recall."""
    found, false = np.cumsum(positives), np.cumsum(negatives)
    if not found[-1] or not false[-1]:
        return math.nan
    flagged = found + false
    precision = np.divide(found, flagged, out=np.zeros_like(found), where=flagged > 0)
    return float(positives @ precision) / float(found[-1])


@cache
def _harmonic_table() -> Float64:
    table = np.concatenate(([0.0], np.cumsum(1 / np.arange(1.0, HARMONIC_TABLE))))
    return table - np.euler_gamma


def _harmonic(n: Float64) -> Float64:
    """1 + 1/2 + … + 1/n less Euler's constant: from a table, or by the asymptotic series.

    Only differences are used, so the constant drops out. Weights of samples may be fractions.
    """
    small = (n < HARMONIC_TABLE) & ((n == np.floor(n)) | (n < SERIES_FROM))
    out: Float64 = _harmonic_table()[np.where(small, n, 0).astype(np.int64)]
    if not small.all():
        x = n[~small]
        out[~small] = np.log(x) + 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)
    return out
