"""The row of a metric: everything the rest of the package needs to know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from calibrant.metrics._estimators import Estimator, Options
from calibrant.metrics._sample import Ranked
from calibrant.metrics._streamed import Stream

Use = Literal[
    "panel",
    "compare",
    "calibrate",
    "train",
    "callback",
    "summary",
    "binary",
    "binary compare",
    "labels",
]
View = Literal["top label", "positive class"]
Range = tuple[float, float]


@dataclass(frozen=True)
class Metric:
    """A metric and its properties.

    Parameters
    ----------
    function, label, better, low, high
        How it is computed, what tables call it, which direction is better, and its range.
    places
        Where it is shown by default: the panel of ``measure``, ``compare``, ``calibrate``, the end
        of a training, the callbacks during one, the summary of a fit; of a binary model the panel
        and the comparison; and the panels of a multi-label model.
    options
        Which of the panel's options (bins, norm, binning) it takes from there; a metric that is
        defined by its binning keeps it.
    interval
        How its interval is made: ``"exact"`` (Wilson), ``"gap"`` (a mean minus a share),
        ``"bootstrap"`` over samples, or for estimates that noise pushes upward, a test inverted
        over simulated populations: of the top label (``"grid"``) or of whole rows of probabilities
        (``"rows"``).
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
    view
        What it is about: the confidence in the predicted class (``"top label"``) or the probability
        of one class (``"positive class"``).
    target
        The value of a calibrated model, where neither lower nor higher is better.
    unweighted
        Why it takes no sampling weights, where it does not.
    unranked
        Its bounds, given those of the accuracy, where all answers are right or all are wrong: every
        resample then has the same value.
    batched
        Whether it takes many resamples at once, one per row of the sample's weights.
    """

    function: Callable[..., float]
    label: str
    better: Literal["lower", "higher", "neither"]
    low: float = 0
    high: float = 1
    places: tuple[Use, ...] = ()
    options: tuple[str, ...] = ()
    interval: Literal["exact", "gap", "bootstrap", "grid", "rows"] = "bootstrap"
    estimator: Callable[[Callable[..., float], Options, Ranked], Estimator] | None = None
    stream: Stream | None = None
    top_label: bool = True
    percent: bool = True
    scale: Literal["own", "logit"] = "own"
    unranked: Callable[[float, float], Range] | None = None
    view: View = "top label"
    target: float | None = None
    unweighted: str = ""
    batched: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def plug_in(self) -> bool:
        """Whether sampling noise pushes the estimate upward."""
        return self.interval in ("grid", "rows")

    @property
    def direction(self) -> str:
        """What is better, in a word: lower, higher, near a target, or nothing."""
        if self.target is not None:
            return f"near {self.target:g}"
        return "" if self.better == "neither" else self.better
