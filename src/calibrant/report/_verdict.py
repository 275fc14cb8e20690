"""The verdict of a report: is the model overconfident, is N large enough to tell, what to do."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from calibrant._core.formatting import (
    in_samples,
    show,
    show_bounds,
    show_level,
    show_number,
    show_p_equation,
)
from calibrant._measure._views import risk_sentence
from calibrant.inference import CalibrationTest, Difference, Interval
from calibrant.inference._gap import mean_gap_bounds
from calibrant.metrics import METRICS, RANKING
from calibrant.metrics._sample import rank
from calibrant.predictions import Confidences, Predictions
from calibrant.report._advice import Advice
from calibrant.report._risk import Risk

SURE = 0.05
SLIGHT, STRONG = 0.01, 0.10
# An interval of the gap that reaches no further than this says that the model is calibrated.
NARROW = 0.02
TITLES = {
    "none": "uncalibrated",
    "temperature": "temperature scaling",
    "ensemble_temperature": "ensemble temperature scaling",
    "order_preserving": "order-preserving map",
    "bias_corrected_temperature": "bias-corrected temperature scaling",
    "vector": "vector scaling",
    "matrix": "matrix scaling",
    "structured_vector": "structured vector scaling",
    "structured_matrix": "structured matrix scaling",
    "dirichlet": "Dirichlet calibration",
    "platt": "Platt scaling",
    "beta": "beta calibration",
    "quadratic": "quadratic scaling",
    "histogram": "histogram binning",
    "scaling_binning": "scaling-binning",
    "isotonic": "isotonic regression",
    "centred_isotonic": "centred isotonic regression",
    "venn_abers": "Venn-Abers",
    "spline": "spline",
    "kernel": "kernel calibration",
    "blend": "blend",
}


def titled(verdict: str) -> str:
    """The verdict on a blend with the titles of its members, which follow their weights.

    >>> titled("chosen; weights 0.70 beta, 0.30 order_preserving")
    'chosen; weights 0.70 beta calibration, 0.30 order-preserving map'
    """
    return re.sub(r"(?<=\d )\w+", lambda name: TITLES.get(name[0], name[0]), verdict)


@dataclass(frozen=True)
class Verdict:
    """A headline, then sentences by the question they answer."""

    headline: str
    answers: tuple[tuple[str, str], ...]
    kind: str  # over, under, mixed, fine or unknown

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"{asked} {said}" for asked, said in self.answers)])


def gap_interval(p: Predictions | Confidences, level: float = 0.95) -> Interval:
    """Mean confidence minus accuracy, with its interval.

    >>> found = gap_interval(Confidences(confidence=[0.9] * 40, correct=[1] * 30 + [0] * 10))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.15, 0.042, 0.302)
    """
    ranked = rank(p)
    return Interval(ranked.mean_confidence - ranked.accuracy, *mean_gap_bounds(p, level), level)


def verdict_of(
    p: Predictions | Confidences,
    gap: Interval,
    ece: Interval,
    test: CalibrationTest,
    advice: Advice,
) -> Verdict:
    """Turn the results into sentences."""
    kind = _kind(gap, test)
    means = rank(p).mean_confidence, rank(p).accuracy
    says, right = (show(x, percent=True, decimals=1) for x in means)
    averages = f"it says {says} on average and is right {right} of the time"
    answers = [
        ("How far off?", _how_far(gap, ece)),
        ("Is N large enough to tell?", _enough(kind, gap, test, p.num_samples)),
        ("What to do?", _what_to_do(advice)),
    ]
    answers += _effects(advice)
    return Verdict(_headline(kind, gap, p.num_samples, averages), tuple(answers), kind)


def risk_verdict(risk: Risk, test: CalibrationTest, advice: Advice, top_label: Verdict) -> Verdict:
    """The verdict on the probability of the positive class; that on the top label goes last."""
    gap, count = risk.gap, risk.record.num_samples
    kind = _kind(gap, test)
    how_far = _how_far(gap, risk.error, "too high", "too low", f"probability of {risk.name}")
    answers = [
        ("How far off?", f"{how_far} {risk.slope}".strip()),
        ("Is N large enough to tell?", _enough(kind, gap, test, count)),
        ("What to do?", _what_to_do(advice)),
        *_effects(advice),
        ("And the predicted label?", f"Top label: {top_label.headline}"),
    ]
    sentence = risk_sentence(risk.panel.measured, risk.name)
    if kind == "mixed":
        sentence += " Yet the model is not calibrated: gaps are larger in places."
    return Verdict(sentence, tuple(answers), kind)


def _effects(advice: Advice) -> list[tuple[str, str]]:
    if not advice.differences:
        return []
    return [("What does it gain?", _gain(advice)), ("What does it cost?", _cost(advice))]


def _kind(gap: Interval, test: CalibrationTest) -> str:
    if gap.low > 0:
        return "over"
    if gap.high < 0:
        return "under"
    if test.p_value < SURE:
        return "mixed"
    return "fine" if max(-gap.low, gap.high) <= NARROW else "unknown"


def _headline(kind: str, gap: Interval, count: int, averages: str) -> str:
    if kind in ("over", "under"):
        size = abs(gap.value)
        degree = "slightly " if size < SLIGHT else "strongly " if size >= STRONG else ""
        said = f"{degree}{kind}confident"
        return f"{said[0].upper()}{said[1:]}: {averages}."
    if kind == "mixed":
        return (
            f"Not calibrated, although the average gap is not significant: {averages}, and gaps "
            "are larger in places."
        )
    if kind == "fine":
        return f"Calibrated on average, as far as {in_samples(count)} can tell: {averages}."
    few = "One sample cannot" if count == 1 else f"{count:,} samples are too few to"
    return f"{few} tell whether the model is calibrated: {averages}."


def _how_far(
    gap: Interval,
    ece: Interval,
    above: str = "too confident",
    below: str = "too cautious",
    of_what: str = "",
) -> str:
    word = above if gap.value >= 0 else below
    named = f" of the {of_what}" if of_what else ""
    ends = sorted((gap.low, gap.high) if gap.value >= 0 else (-gap.low, -gap.high))
    text = (
        f"On average {_points(abs(gap.value), 1)} percentage points {word} "
        f"({show_level(gap.level)} {_points(ends[0], 1)} … {_points(ends[1], 1)}). "
        f"The expected calibration error (ECE){named} is {show(ece.value, percent=True)}"
    )
    if math.isnan(ece.low):
        return f"{text}."
    bounds = show_bounds(ece.low, ece.high, percent=True)
    return f"{text}; corrected for chance, {show_level(ece.level)} {bounds}."


def _enough(kind: str, gap: Interval, test: CalibrationTest, count: int) -> str:
    size, interval = f"N = {count:,}", show_level(gap.level)
    found = {
        "over": f"Yes: with {size} the {interval} of the gap lies above 0.",
        "under": f"Yes: with {size} the {interval} of the gap lies below 0.",
        "mixed": "Not for the average gap, whose interval contains 0, but yes for gaps somewhere.",
        "fine": f"Yes: with {size} the average gap is below {100 * NARROW:g} points ({interval}).",
        "unknown": f"No: with {size} the interval of the gap contains 0.",
    }
    chance = show_p_equation(test.p_value)
    return f"{found[kind]} A calibrated model would show an ECE this large with {chance}."


def _what_to_do(advice: Advice) -> str:
    if advice.reason:
        return advice.reason
    assert advice.selection is not None
    tried = len(advice.selection.candidates) - 1
    judged = f"in {advice.folds}-fold cross-validation on these samples"
    if advice.chosen is None:
        return (
            f"Leave it uncalibrated: of {tried} calibrators tried {judged}, none is clearly better."
        )
    title = TITLES.get(advice.chosen, advice.chosen)
    learned = "" if advice.temperature is None else f" (T = {advice.temperature:.2f})"
    return (
        f"Use {title}{learned}. Of {tried} calibrators tried {judged} it is "
        f"{advice.selection.reason}. Fit it on samples that are used neither for training nor for "
        "evaluation."
    )


def _gain(advice: Advice) -> str:
    error, loss = advice.roles[:2]
    ece, nll = advice.differences[error], advice.differences[loss]
    values = [advice.values[when] for when in ("before", "after")]
    eces = " to ".join(show(row[error], percent=True) for row in values)
    nlls = " to ".join(_nats(row[loss]) for row in values)
    names = METRICS[error].label, METRICS[loss].label
    text = (
        f"On samples it was not fitted to, the {names[0]} goes from {eces} ({_change(ece)}), the "
        f"{names[1]} from {nlls} ({_change(nll, percent=False)})."
    )
    unsure = [n for n, d in zip(names, (ece, nll), strict=True) if d.low <= 0 <= d.high]
    if unsure:
        text += f" N is too small to say that the {' and the '.join(unsure)} changes."
    return text


def _cost(advice: Advice) -> str:
    assert advice.selection is not None
    ranking, right = advice.roles[2:4]
    auroc, accuracy = advice.differences[ranking], advice.differences[right]
    keeps = advice.selection.calibrator.keeps_argmax
    rest = "No predicted class changes." if keeps else f"Accuracy: {_change(accuracy)}."
    if math.isnan(auroc.value):
        return f"Refinement is undefined: all predictions are correct, or all are wrong. {rest}"
    start = "Nothing that these samples could show"
    if auroc.high < 0:
        start = "Some refinement"
    elif auroc.low > 0:
        start = "Nothing, it even helps"
    meaning = "the AUROC, how well confidence ranks correct above wrong predictions,"
    if ranking != RANKING:
        meaning = f"the {METRICS[ranking].label} of the class"
    return f"{start}: {meaning} changes by {_change(auroc)}. {rest}"


def _change(d: Difference, *, percent: bool = True) -> str:
    if not math.isfinite(d.value):
        return "no interval"
    if percent:
        low, high = (show_number(x, percent=True, signed=True) for x in (d.low, d.high))
        value = show_number(d.value, percent=True, signed=True)
        return f"{value} points, {show_level(d.level)} {low} … {high}"
    bounds = show_bounds(d.low, d.high, percent=False, signed=True)
    return f"{show(d.value, percent=False, signed=True)}, {show_level(d.level)} {bounds}"


def _nats(value: float) -> str:
    return show(value, percent=False) if math.isfinite(value) else "infinite"


def _points(value: float, decimals: int) -> str:
    return show_number(value, percent=True, decimals=decimals)
