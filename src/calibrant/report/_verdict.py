"""The verdict of a report: is the model overconfident, is N large enough to tell, what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calibrant._core.formatting import show_p
from calibrant.inference import CalibrationTest, Difference, Interval
from calibrant.metrics._binned import wilson_interval
from calibrant.metrics._registry import ACCURACY, CALIBRATION_ERROR, LOG_LOSS, RANKING
from calibrant.predictions import Confidences, Predictions
from calibrant.report._advice import FOLDS, Advice

SURE = 0.05
SLIGHT, STRONG = 0.01, 0.10
# An interval of the gap that reaches no further than this says that the model is calibrated.
NARROW = 0.02
# Below so many samples a correlation is mostly noise: that of two is 1 or -1.
FEWEST = 20
TITLES = {
    "none": "uncalibrated",
    "temperature": "temperature scaling",
    "ensemble_temperature": "ensemble temperature scaling",
    "vector": "vector scaling",
    "structured_vector": "structured vector scaling",
    "structured_matrix": "structured matrix scaling",
    "beta": "beta calibration",
}


@dataclass(frozen=True)
class Verdict:
    """A headline, then sentences by the question they answer."""

    headline: str
    answers: tuple[tuple[str, str], ...]
    kind: str  # over, under, mixed, fine or unknown

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"{asked} {said}" for asked, said in self.answers)])


def gap_interval(p: Predictions | Confidences, level: float = 0.95) -> Interval:
    r"""Mean confidence minus accuracy, with an interval that holds at small N and near 100 %.

    The limits of the two means (normal for the confidence, Wilson for the accuracy) are combined
    for their difference, with their correlation: the distance of the lower limit is
    :math:`\sqrt{x^2 + y^2 - 2 r x y}` for distances x, y of the lower limit of the confidence and
    the upper limit of the accuracy. The plain interval of the differences would be a point where
    every sample is right. Of fewer than 20 samples r counts as 0, which is the cautious side:
    confidence and being right go together in most models, and that makes the interval narrower.

    Reference: Zou (2007), doi:10.1037/1082-989X.12.4.399.

    >>> found = gap_interval(Confidences(confidence=[0.9] * 40, correct=[1] * 30 + [0] * 10))
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.15, 0.042, 0.302)
    """
    confidence, correct = p.confidence, p.correct.astype(np.float64)
    count = len(correct)
    accuracy = float(correct.mean())
    low, high = wilson_interval(np.array([correct.sum()]), np.array([float(count)]), level)
    below, above = accuracy - float(low[0]), float(high[0]) - accuracy
    spread = float(confidence.std(ddof=1)) if count > 1 else 0.0
    reach = NormalDist().inv_cdf((1 + level) / 2) * spread / math.sqrt(count)
    varies = count >= FEWEST and spread > 0 and 0 < accuracy < 1
    r = float(np.corrcoef(confidence, correct)[0, 1]) if varies else 0.0
    gap = float(confidence.mean()) - accuracy
    down = math.sqrt(max(reach**2 + above**2 - 2 * r * reach * above, 0))
    up = math.sqrt(max(reach**2 + below**2 - 2 * r * reach * below, 0))
    return Interval(gap, max(gap - down, -1.0), min(gap + up, 1.0), level)


def verdict_of(
    p: Predictions | Confidences,
    gap: Interval,
    ece: Interval,
    test: CalibrationTest,
    advice: Advice,
) -> Verdict:
    """Put what was found into words."""
    kind = _kind(gap, test)
    says, right = float(p.confidence.mean()), float(p.correct.mean())
    averages = f"it says {_percent(says)} on average and is right {_percent(right)} of the time"
    answers = [
        ("How far off?", _how_far(gap, ece)),
        ("Is N large enough to tell?", _enough(kind, gap, test, p.num_samples)),
        ("What to do?", _what_to_do(advice)),
    ]
    if advice.differences:
        answers += [("What does it gain?", _gain(advice)), ("What does it cost?", _cost(advice))]
    return Verdict(_headline(kind, gap, p.num_samples, averages), tuple(answers), kind)


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
        return f"Right on average, but not everywhere: {averages}, and larger gaps cancel."
    if kind == "fine":
        return f"Calibrated on average, as far as {count:,} samples can tell: {averages}."
    few = "One sample cannot" if count == 1 else f"{count:,} samples are too few to"
    return f"{few} tell whether the model is calibrated: {averages}."


def _how_far(gap: Interval, ece: Interval) -> str:
    word = "too confident" if gap.value >= 0 else "too cautious"
    ends = sorted((gap.low, gap.high) if gap.value >= 0 else (-gap.low, -gap.high))
    text = (
        f"On average {100 * abs(gap.value):.1f} percentage points {word} "
        f"({_level(gap.level)} {100 * ends[0]:.1f} … {100 * ends[1]:.1f}). "
        f"The expected calibration error (ECE) is {_percent(ece.value, 2)}"
    )
    if math.isnan(ece.low):
        return f"{text}."
    bounds = f"{100 * ece.low:.2f} … {_percent(ece.high, 2)}"
    return f"{text}; corrected for chance, {_level(ece.level)} {bounds}."


def _enough(kind: str, gap: Interval, test: CalibrationTest, count: int) -> str:
    size, level = f"N = {count:,}", f"{gap.level:.0%}".replace("%", " %")
    found = {
        "over": f"Yes: with {size} the {level} interval of the gap lies above 0.",
        "under": f"Yes: with {size} the {level} interval of the gap lies on one side of 0.",
        "mixed": "Not for the average gap, whose interval contains 0, but yes for gaps somewhere.",
        "fine": f"Yes: with {size} the average gap is below {100 * NARROW:g} points ({level}).",
        "unknown": f"No: with {size} the interval of the gap contains 0.",
    }
    return f"{found[kind]} A calibrated model shows an ECE this large by chance with {_p(test)}."


def _p(test: CalibrationTest) -> str:
    shown = show_p(test.p_value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def _what_to_do(advice: Advice) -> str:
    if advice.reason:
        return advice.reason
    assert advice.selection is not None
    tried = len(advice.selection.candidates) - 1
    judged = f"in {FOLDS}-fold cross-validation on these samples"
    if advice.chosen is None:
        return (
            f"Leave it uncalibrated: of {tried} calibrators tried {judged}, none is clearly better."
        )
    title = TITLES.get(advice.chosen, advice.chosen)
    learned = "" if advice.temperature is None else f" (T = {advice.temperature:.2f})"
    return (
        f"Use {title}{learned}. Of {tried} calibrators tried {judged} it is the best, or the "
        "simplest among equally good ones. Fit it on samples that are used neither for training "
        "nor for evaluation."
    )


def _gain(advice: Advice) -> str:
    ece, nll = advice.differences[CALIBRATION_ERROR], advice.differences[LOG_LOSS]
    values = [advice.values[when] for when in ("before", "after")]
    eces = " to ".join(_percent(row[CALIBRATION_ERROR], 2) for row in values)
    nlls = " to ".join(_nats(row[LOG_LOSS]) for row in values)
    text = (
        f"On samples it was not fitted to, the ECE goes from {eces} ({_change(ece)}), the NLL "
        f"from {nlls} ({_change(nll, percent=False)})."
    )
    unsure = [name for name, d in (("ECE", ece), ("NLL", nll)) if d.low <= 0 <= d.high]
    if unsure:
        text += f" N is too small to say that the {' and the '.join(unsure)} changes."
    return text


def _cost(advice: Advice) -> str:
    assert advice.selection is not None
    auroc, accuracy = advice.differences[RANKING], advice.differences[ACCURACY]
    keeps = advice.selection.calibrator.keeps_argmax
    rest = "No predicted class changes." if keeps else f"Accuracy: {_change(accuracy)}."
    if math.isnan(auroc.value):
        return f"Refinement is undefined: all predictions are correct, or all are wrong. {rest}"
    start = "Nothing that these samples could show"
    if auroc.high < 0:
        start = "Some refinement"
    elif auroc.low > 0:
        start = "Nothing, it even helps"
    meaning = "how well confidence ranks correct above wrong predictions"
    return f"{start}: the AUROC, {meaning}, changes by {_change(auroc)}. {rest}"


def _change(d: Difference, *, percent: bool = True) -> str:
    if not math.isfinite(d.value):
        return "no interval"
    if percent:
        bounds = f"{100 * d.low:+.2f} … {100 * d.high:+.2f}"
        return f"{100 * d.value:+.2f} points, {_level(d.level)} {bounds}"
    return f"{d.value:+.4f}, {_level(d.level)} {d.low:+.4f} … {d.high:+.4f}"


def _nats(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "infinite"


def _level(level: float) -> str:
    return f"{100 * level:g} % interval"


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"
