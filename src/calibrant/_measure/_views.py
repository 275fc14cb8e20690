"""What a panel is about: the confidence in the predicted class, or the probability of one class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calibrant import metrics as m
from calibrant._core.checks import refuse
from calibrant._core.formatting import show, show_bounds, show_level
from calibrant.inference import Interval
from calibrant.metrics import IN_THE_LARGE, MEAN_PREDICTION, PREVALENCE, SLOPE
from calibrant.metrics._metric import Use, View
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions

Record = Predictions | Confidences
# The class that is asked about: its name or index, None for class 1 of two, False for none.
Positive = int | str | bool | None
TWO_CLASSES = 2
USES: dict[Use, Use] = {"panel": "binary", "compare": "binary compare"}


def names_for(
    p: Record, metrics: Sequence[str] | None, *, positive: Positive = None, use: Use = "panel"
) -> list[str]:
    """The metrics that were asked for, or those of the place, checked against the record."""
    if isinstance(metrics, str):
        raise refuse("metrics", "must be a list of names", f"got {metrics!r}", "Write [name].")
    check_measurable(p)
    if metrics is None:
        names = _default_names(p, positive, use)
        return names if p.weights is None else [n for n in names if not m.METRICS[n].unweighted]
    for name in metrics:
        if not isinstance(p, Predictions) and not m.get_metric(name).top_label:
            rule = "must be top-label metrics for Confidences"
            raise refuse("metrics", rule, f"got {name!r}", "Build Predictions, or leave it out.")
        m.get_metric(name)
    reasons = {name: m.METRICS[name].unweighted for name in metrics}
    if p.weights is not None and any(reasons.values()):
        name = next(name for name in metrics if reasons[name])
        got = f"got {name!r}: {reasons[name]}"
        raise refuse("metrics", "must take sampling weights", got, "Leave it out.")
    if not metrics:
        raise refuse("metrics", "must name at least one", "got none", "Leave it out for the panel.")
    return list(dict.fromkeys(metrics))


def _default_names(p: Record, positive: Positive, use: Use) -> list[str]:
    if not isinstance(p, Predictions):
        return [name for name in m.default_metrics(use) if m.METRICS[name].top_label]
    top, of_class = list(m.default_metrics(use)), list(m.default_metrics(USES[use]))
    if positive is False or (positive is None and p.num_classes != TWO_CLASSES):
        return top
    both = use == "panel" and p.num_classes == TWO_CLASSES
    return of_class + (top if both else [])


def by_view(names: Sequence[str]) -> dict[View, list[str]]:
    """The names by what they are about."""
    found: dict[View, list[str]] = {}
    for name in names:
        found.setdefault(m.METRICS[name].view, []).append(name)
    return found


def seen(p: Record, view: View, positive: Positive) -> Record:
    """The record that the metrics of a view are computed from."""
    if view == "positive class" and isinstance(p, Predictions):
        return p.positive_class(None if positive is False else positive)
    return p


def risk_sentence(measured: Mapping[str, Interval], name: str) -> str:
    r"""Over- or underestimation of the risk of a class, in words; empty where it was not measured.

    >>> found = {"calibration_in_the_large": Interval(0.03, 0.01, 0.05)}
    >>> found |= {"mean_prediction": Interval(0.08, 0.07, 0.09)}
    >>> found |= {"prevalence": Interval(0.05, 0.04, 0.06)}
    >>> print(risk_sentence(found, "sick").replace(" (", "\n("))
    The risk of class sick is overestimated: 8.00 % predicted on average, 5.00 % observed
    (difference +3.00 %, 95 % interval +1.00 … +5.00 %).
    """
    if not {IN_THE_LARGE, MEAN_PREDICTION, PREVALENCE} <= set(measured):
        return ""
    gap = measured[IN_THE_LARGE]
    predicted, observed = (
        show(measured[key].value, percent=True) for key in (MEAN_PREDICTION, PREVALENCE)
    )
    if math.isnan(gap.low):
        return f"{predicted} of class {name} predicted on average, {observed} observed."
    bounds = show_bounds(gap.low, gap.high, percent=True, signed=True)
    facts = (
        f"{predicted} predicted on average, {observed} observed (difference "
        f"{show(gap.value, percent=True, signed=True)}, {show_level(gap.level)} {bounds})"
    )
    if gap.low > 0:
        return f"The risk of class {name} is overestimated: {facts}."
    if gap.high < 0:
        return f"The risk of class {name} is underestimated: {facts}."
    return (
        f"No significant over- or underestimation of the risk of class {name} on average: {facts}."
    )


def slope_sentence(measured: Mapping[str, Interval]) -> str:
    """Whether predictions are too extreme or not extreme enough; empty where neither is shown.

    >>> slope_sentence({"calibration_slope": Interval(0.6, 0.5, 0.7)})
    'Predictions are too extreme: calibration slope 0.60 (0.50 … 0.70), 1 is ideal.'
    """
    slope = measured.get(SLOPE)
    if slope is None or not (slope.high < 1 or slope.low > 1):
        return ""
    how = "too extreme" if slope.high < 1 else "not extreme enough"
    return (
        f"Predictions are {how}: calibration slope {slope.value:.2f} "
        f"({slope.low:.2f} … {slope.high:.2f}), 1 is ideal."
    )
