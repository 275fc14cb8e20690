"""Refinement: how well confidence ranks correct above wrong predictions.

All work on the odds against the prediction, so the ranking survives confidences that print as 1.0;
equal odds are ties. All but ``aurc`` and ``eaurc`` are NaN when every prediction is correct, or
every one is wrong: there is then nothing to separate.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from calibrant._core.arrays import Float64, dot
from calibrant._core.checks import check_fraction
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
    pairs = float(ranked.hits_so_far[-1]) * float(ranked.misses_so_far[-1])
    below = ranked.misses_so_far - ranked.misses / 2
    return dot(ranked.hits, below) / pairs if pairs else math.nan


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
    hits, misses = _at_or_above(ranked.hits_so_far), _at_or_above(ranked.misses_so_far)
    return _average_precision(ranked.hits, hits, misses)


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
    return _average_precision(ranked.misses, ranked.misses_so_far, ranked.hits_so_far)


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
    kept, wrong = _at_or_above(ranked.hits_so_far), _at_or_above(ranked.misses_so_far)
    if not kept[0] or not wrong[0]:
        return math.nan
    # A hair's breadth of slack: 0.95 * 20 is 19, whatever the rounding says.
    enough = int(np.count_nonzero(kept >= recall * kept[0] * (1 - 1e-12)))
    return float(wrong[enough - 1] / wrong[0])


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
    if "aurc" not in vars(ranked):  # kept: E-AURC asks for it again
        vars(ranked)["aurc"] = _aurc(ranked)
    return float(vars(ranked)["aurc"])


def _aurc(ranked: Ranked) -> float:
    misses = ranked.misses
    wrong = _at_or_above(ranked.misses_so_far)
    kept = np.append(_at_or_above(ranked.hits_so_far) + wrong, 0.0)
    # Sample j of a group of n with m misses has expected risk (w + j m/n) / (k + j), where k are
    # more confident and w of those wrong; over j = 1 … n that sums to
    # m + (w - k m/n) (H(k + n) - H(k)) with the harmonic numbers H.
    rate = misses / np.where(ranked.count > 0, ranked.count, 1)
    total = misses + (wrong - misses - kept[1:] * rate) * -np.diff(_harmonic(kept))
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


def _at_or_above(so_far: Float64) -> Float64:
    """From counts at or below each confidence, those at or above it."""
    above: Float64 = so_far[-1] - np.concatenate(([0.0], so_far[:-1]))
    return above


def _average_precision(positives: Float64, found: Float64, false: Float64) -> float:
    """Sum over thresholds of precision times the gain in recall.

    ``found`` and ``false`` count positives and negatives flagged at each threshold.
    """
    if not found.max() or not false.max():
        return math.nan
    flagged = found + false
    precision = found / np.where(flagged > 0, flagged, 1)
    return dot(positives, precision) / float(found.max())


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


def unranked_aurc(low: float, high: float) -> tuple[float, float]:
    """Bounds of the AURC of answers that are all right or all wrong, whose bootstrap is a point.

    From a perfect ranking to one by chance, with the accuracy between ``low`` and ``high``.
    """
    return 1 - high - _chance_over_perfect(high), 1 - low


def unranked_eaurc(low: float, high: float) -> tuple[float, float]:
    """Bounds of the E-AURC of answers that are all right or all wrong."""
    return 0.0, _chance_over_perfect(min(max(1 / math.e, low), high))


def _chance_over_perfect(accuracy: float) -> float:
    """AURC of a ranking by chance over that of a perfect one: -a ln a."""
    return -accuracy * math.log(accuracy) if accuracy else 0.0
