"""What acting on P(positive) is worth: net benefit and expected cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant._core.arrays import Float64, to_floats
from calibrant._core.checks import check_fraction, is_number, refuse
from calibrant.metrics._positive import Binary, Class, positives
from calibrant.metrics._sample import Ranked


def net_benefit(p: Binary, *, positive: Class = None, threshold: float = 0.5) -> float:
    r"""Net benefit of treating those whose predicted risk is at least the threshold.

    Range -inf to 1, higher is better; treating nobody has 0. :math:`\frac{\mathrm{TP}}{N} -
    \frac{\mathrm{FP}}{N} \frac{t}{1 - t}` with :math:`p_i \ge t` treated: true positives, less
    false positives at the rate of exchange that the threshold t states.

    References
    ----------
    Vickers and Elkin (2006), doi:10.1177/0272989X06295361.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9, 0.3, 0.2, 0.1], labels=[1, 0, 0, 0])
    >>> metrics.net_benefit(p, threshold=0.2)  # 1/4 - 2/4 * 0.2 / 0.8
    0.125
    """
    check_fraction("threshold", threshold, example=0.2)
    ranked = positives(p, positive, "net_benefit")
    true, false = treated(ranked, np.array([threshold]))
    return float(true[0] - false[0] * threshold / (1 - threshold))


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit by threshold: of acting on the predictions, and of treating everybody.

    Treating nobody has the net benefit 0 at every threshold.
    """

    thresholds: Float64
    net_benefit: Float64
    treat_all: Float64


def decision_curve(
    p: Binary, *, positive: Class = None, thresholds: Sequence[float] | Float64 | None = None
) -> DecisionCurve:
    r"""Net benefit at many thresholds.

    A model is of use at the thresholds where its curve lies above both treating everybody,
    :math:`\pi - (1 - \pi) \frac{t}{1 - t}` with the prevalence :math:`\pi`, and treating nobody,
    0. By default the thresholds 0.01, 0.02 … 0.99.

    References
    ----------
    Vickers and Elkin (2006), doi:10.1177/0272989X06295361.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9, 0.3, 0.2, 0.1], labels=[1, 0, 0, 0])
    >>> found = metrics.decision_curve(p, thresholds=[0.2])
    >>> found.net_benefit.round(4), found.treat_all.round(4)  # 1/4 - 2/4 * 1/4, 1/4 - 3/4 * 1/4
    (array([0.125]), array([0.0625]))
    """
    given = np.arange(1, 100) / 100 if thresholds is None else thresholds
    asked = to_floats(given, "thresholds").astype(np.float64)
    if asked.ndim != 1 or not len(asked) or not ((asked > 0) & (asked < 1)).all():
        rule, advice = "must be numbers between 0 and 1", "Try thresholds=[0.05, 0.1, 0.2]."
        raise refuse("thresholds", rule, f"got {thresholds!r}", advice)
    ranked = positives(p, positive, "decision_curve")
    odds = asked / (1 - asked)
    true, false = treated(ranked, asked)
    everybody = ranked.accuracy - (1 - ranked.accuracy) * odds
    return DecisionCurve(asked, true - false * odds, everybody)


def expected_cost(
    p: Binary, *, positive: Class = None, costs: tuple[float, float] = (1.0, 1.0)
) -> float:
    r"""Mean cost of acting on the predictions, given the costs of a false positive and negative.

    Range 0 to infinity, lower is better. Those with :math:`p_i \ge t` are treated, where
    :math:`t = c_\mathrm{FP} / (c_\mathrm{FP} + c_\mathrm{FN})` is the best threshold for calibrated
    probabilities: :math:`\frac1N (c_\mathrm{FP} \mathrm{FP} + c_\mathrm{FN} \mathrm{FN})`. With
    costs (1, 1) it is the error rate at 1/2.

    References
    ----------
    Elkan (2001), The foundations of cost-sensitive learning, IJCAI, pages 973–978.

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions.from_binary(probs=[0.9, 0.3, 0.2, 0.1], labels=[1, 0, 0, 1])
    >>> metrics.expected_cost(p, costs=(1, 4))  # threshold 0.2: two false positives, one missed
    1.5
    """
    of_false, of_missed = check_costs(costs)
    ranked = positives(p, positive, "expected_cost")
    true, false = treated(ranked, np.array([of_false / (of_false + of_missed)]))
    return float(of_false * false[0] + of_missed * (ranked.accuracy - true[0]))


def check_costs(costs: object) -> tuple[float, float]:
    """Return the costs of a false positive and of a false negative, both above 0."""
    pair = tuple(costs) if isinstance(costs, (tuple, list)) else ()
    if len(pair) != 2 or not all(is_number(c) and 0 < c < math.inf for c in pair):  # noqa: PLR2004
        rule = "must be two finite numbers above 0: of a false positive, of a false negative"
        raise refuse("costs", rule, f"got {costs!r}", "Try costs=(1, 5).")
    return float(pair[0]), float(pair[1])


def treated(ranked: Ranked, thresholds: Float64) -> tuple[Float64, Float64]:
    """Share of all samples that are true and false positives at each threshold."""
    first = np.searchsorted(ranked.confidence, thresholds, side="left")
    shares = []
    for count in (ranked.hits, ranked.misses):
        above = np.append(np.cumsum(count[::-1])[::-1], 0.0)
        shares.append(above[first] / ranked.total)
    return shares[0], shares[1]
