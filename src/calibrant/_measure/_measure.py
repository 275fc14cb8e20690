"""measure(): one panel, or one per group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, overload

from calibrant._core.checks import refuse
from calibrant._measure._grouped import GroupedPanel, measure_groups
from calibrant._measure._labels import LabelPanels, measure_labels
from calibrant._measure._panel import Panel, measure_one
from calibrant._measure._views import Positive
from calibrant._multilabel import MultiLabel
from calibrant.inference import Resampling
from calibrant.metrics._binning import Binning
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions


class _Options(TypedDict, total=False):
    """Keywords of measure() that do not change what it returns."""

    intervals: bool
    metrics: Sequence[str] | None
    positive: Positive
    bins: int
    norm: float
    binning: Binning
    threshold: float
    costs: tuple[float, float]
    level: float
    replicates: int
    seed: int


@overload
def measure(
    p: Predictions | Confidences, *, by: None = ..., **options: Unpack[_Options]
) -> Panel: ...


@overload
def measure(p: MultiLabel, *, by: None = ..., **options: Unpack[_Options]) -> LabelPanels: ...


@overload
def measure(
    p: Predictions | Confidences, *, by: str, **options: Unpack[_Options]
) -> GroupedPanel: ...


def measure(  # noqa: PLR0913 - all but the first are keywords with defaults
    p: Predictions | Confidences | MultiLabel,
    *,
    intervals: bool = True,
    metrics: Sequence[str] | None = None,
    positive: Positive = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    threshold: float = 0.5,
    costs: tuple[float, float] = (1.0, 1.0),
    by: str | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Panel | GroupedPanel | LabelPanels:
    """Measure calibration and refinement, with intervals.

    Parameters
    ----------
    p
        Predictions, or Confidences (metrics that need all classes are then left out). MultiLabel
        gives one panel per label, and one per average over labels.
    intervals
        Whether to compute intervals: about a second at N = 10,000.
    metrics
        Names from ``calibrant.metrics.METRICS``; by default a set of 18 about the top label. Binary
        models also get a set about the probability of the positive class.
    positive
        The class whose probability is measured against its frequency: its name or index. By default
        class 1 of two, and no class if there are more; False leaves only the top label.
    bins, norm, binning
        Number of bins of the ECE family, and norm and binning of ``ece``. Metrics that are defined
        by their binning keep it.
    threshold, costs
        Threshold of ``net_benefit``; costs of a false positive and a false negative of
        ``expected_cost``.
    by
        One of ``p.groups``: a panel per group, the worst group, and whether groups differ.
    level, replicates, seed
        Confidence level, number of bootstrap replicates, and seed.

    Examples
    --------
    >>> import calibrant
    >>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], labels=[0, 1, 1])
    >>> panel = calibrant.measure(p, intervals=False, metrics=["accuracy", "nll"])
    >>> print(panel)
    3 samples, 2 classes
    <BLANKLINE>
    Top label: confidence in the predicted class against being right
    metric    value    better
    accuracy  66.67 %  higher
    NLL       1.1629   lower
    """
    resampling = Resampling(level, replicates, seed)
    keywords: dict[str, Any] = {
        "intervals": intervals,
        "metrics": metrics,
        "bins": bins,
        "norm": norm,
        "binning": binning,
        "threshold": threshold,
        "costs": costs,
    }
    if isinstance(p, MultiLabel):
        if by is not None:
            rule, advice = "needs Predictions or Confidences", "Measure a label: p.label(name)."
            raise refuse("by", rule, f"got {type(p).__name__}", advice)
        if positive is not None:
            rule, advice = "belongs to one label per sample", "Leave it out: labels are measured."
            raise refuse("positive", rule, f"got {positive!r} for MultiLabel", advice)
        return measure_labels(p, resampling, **keywords)
    if by is None:
        return measure_one(p, resampling, positive=positive, **keywords)
    check_measurable(p)
    return measure_groups(p, by, resampling, positive=positive, **keywords)
