"""The part of a report about the probability of one class: the risk of a binary model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant import metrics as m
from calibrant._core.formatting import show_level
from calibrant._measure import Panel, measure
from calibrant._measure._views import slope_sentence
from calibrant.inference import Interval
from calibrant.metrics import IN_THE_LARGE, POSITIVE_ERROR
from calibrant.predictions import Confidences, PositiveClass, Predictions
from calibrant.report._html import Html, name_of, section, tag
from calibrant.report._settings import Settings
from calibrant.report._svg import lines_chart, reliability_chart

if TYPE_CHECKING:
    from calibrant.report._judge import Judged

TWO_CLASSES = 2
CHART = 420.0
# The decision curve goes as far as anybody's risk does, but at least to this threshold.
LEAST_REACH = 0.2


@dataclass(frozen=True)
class Risk:
    """What the report says about P(positive)."""

    record: PositiveClass
    panel: Panel

    @property
    def name(self) -> str:
        """The positive class."""
        return self.record.name

    @property
    def gap(self) -> Interval:
        """Mean prediction minus prevalence."""
        return self.panel.interval(IN_THE_LARGE)

    @property
    def error(self) -> Interval:
        """The calibration error of P(positive)."""
        return self.panel.interval(POSITIVE_ERROR)

    @property
    def slope(self) -> str:
        """Whether predictions are too extreme or not extreme enough; empty if neither is shown."""
        return slope_sentence(self.panel.measured)


def risk_of(p: Predictions | Confidences, settings: Settings) -> Risk | None:
    """The risk of a two-class model, or of the class that was asked about."""
    asked = settings.positive
    if not isinstance(p, Predictions) or asked is False:
        return None
    if asked is None and p.num_classes != TWO_CLASSES:
        return None
    names = [
        name
        for name in m.default_metrics("binary")
        if p.weights is None or not m.METRICS[name].unweighted
    ]
    panel = measure(p, metrics=names, positive=asked, **settings.decisions, **settings.measuring)
    return Risk(p.positive_class(asked), panel)


def risk_section(judged: Sequence[Judged], settings: Settings) -> Html:
    """Reliability and decision curve of the positive class, model by model."""
    parts = [part for j in judged if j.risk is not None for part in _of_model(j, settings)]
    if not parts:
        return Html("")
    words = (
        "Of all samples to which the model gives a probability, how many are of the class? Points "
        "below the diagonal: the risk is overestimated. Bars show where the samples are. The "
        f"intervals are {show_level(settings.level)}s."
    )
    return section("risk", "Risk", tag("p", words), *parts)


def _of_model(j: Judged, settings: Settings) -> list[Html]:
    assert j.risk is not None
    record, name = j.risk.record, j.risk.name
    table = m.reliability(record, bins=settings.bins, level=settings.level)
    reliability = reliability_chart(
        table,
        f"{j.name}: predicted probability of {name} against its frequency",
        size=CHART,
        x_label=f"probability of {name} (%)",
        y_label=f"frequency of {name} (%)",
    )
    curve = m.decision_curve(record)
    reach = max(LEAST_REACH, min(0.99, float(record.confidence.max())))
    some = curve.thresholds <= reach
    lines = {
        "this model": list(zip(curve.thresholds[some], curve.net_benefit[some], strict=True)),
        "treat everybody": list(zip(curve.thresholds[some], curve.treat_all[some], strict=True)),
        "treat nobody": [(0.0, 0.0), (reach, 0.0)],
    }
    decisions = lines_chart(
        lines,
        f"{j.name}: net benefit of acting on the probability of {name}",
        x_label="threshold (%)",
        y_label="net benefit",
    )
    told = (
        "Decision curve: true positives per sample, less false positives at the rate that the "
        "threshold states. The model is of use where it lies above both other lines."
    )
    return [
        tag("h3", name_of(j.name), ": probability of ", name_of(name)),
        tag("figure", reliability, tag("figcaption", "Reliability of the probability")),
        tag("figure", decisions, tag("figcaption", told)),
    ]
