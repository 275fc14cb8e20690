"""From contrasts to a verdict on a claim: holds, does not hold, cannot tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from calibrant.papers._contrasts import Contrast, Estimate, Setting, estimate, luck, settings
from calibrant.papers._evidence import Evidence

Word = Literal["holds", "does not hold", "cannot tell"]

#: Results at least this likely under random labels are not evidence. Two settings in which two
#: metrics all agree are one chance in 16, the least that a paper here rests on.
LUCK = 1 / 16
ROUNDING = 1e-12


@dataclass(frozen=True)
class Verdict:
    """What evidence says of a claim, or of a part of it.

    Attributes
    ----------
    verdict
        "holds", "does not hold" or "cannot tell".
    effect, low, high
        Effect and the bounds of its 95 % interval in ``unit``; None if not known. Of a claim with
        several parts, those of the part that decides, else of the first.
    cases
        How many comparisons support the claim, and how many there are.
    reason
        One sentence.
    parts
        Verdicts on the parts, if there are several.
    """

    verdict: Word
    effect: float | None
    low: float | None
    high: float | None
    unit: str
    cases: tuple[int, int] | None
    reason: str
    parts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, in our words, and its test.

    Attributes
    ----------
    rests_on
        "tables" or "figures" of the paper, or "mathematics".
    test
        Gives the verdict on evidence.
    """

    name: str
    paper: str
    statement: str
    rests_on: Literal["tables", "figures", "mathematics"]
    test: Callable[[Evidence], Verdict]


def contrasted(*contrasts: Contrast) -> Callable[[Evidence], Verdict]:
    """The test of a claim that consists of contrasts."""
    return partial(decide, contrasts=contrasts)


def decide(evidence: Evidence, contrasts: Sequence[Contrast]) -> Verdict:
    """The verdict on a claim that all its contrasts must support.

    It holds if every part does and luck is excluded, does not hold if one part does not, and else
    cannot be told.
    """
    found = [settings(contrast, evidence) for contrast in contrasts]
    parts = [_part(c, s, evidence.source) for c, s in zip(contrasts, found, strict=True)]
    against = [part for part in parts if part.verdict == "does not hold"]
    unclear = [part for part in parts if part.verdict == "cannot tell"]
    kept = tuple(parts) if len(parts) > 1 else ()
    if against or unclear:
        return replace((against or unclear)[0], parts=kept)
    chance = claim_luck(contrasts, found)
    if chance > LUCK:
        words = f"Randomly permuted labels do as well with probability {100 * chance:.0f} %."
        return replace(parts[0], verdict="cannot tell", reason=words, parts=kept)
    if not kept:
        return parts[0]
    return replace(parts[0], reason=f"All {len(kept)} parts hold. {parts[0].reason}", parts=kept)


def claim_luck(contrasts: Sequence[Contrast], found: Sequence[Sequence[Setting]]) -> float:
    """Chance that random labels support all contrasts as well as the weakest is supported.

    Contrasts of different metrics, or of labels without overlap, are permuted independently; of
    those that overlap only one counts.
    """
    about = [(c, s) for c, s in zip(contrasts, found, strict=True) if c.by_labels]
    if not about:
        return 0.0
    worst = max(luck(c, s) for c, s in about)
    groups: list[set[object]] = []
    for contrast, where in about:
        cells = {
            (contrast.paper, contrast.kind, contrast.metric, x) for s in where for x in s.labels
        }
        groups = [g for g in groups if not g & cells] + [
            cells.union(*(g for g in groups if g & cells))
        ]
    return float(worst ** len(groups))


def _part(contrast: Contrast, found: Sequence[Setting], source: str) -> Verdict:
    if not found:
        words = f"{contrast.what}: no data in {source}."
        return Verdict("cannot tell", None, None, None, contrast.unit, None, words)
    result = estimate(contrast, found)
    if math.isnan(result.low):
        words = f"{contrast.what}: single runs in fewer than three settings give no interval."
        effect = contrast.told(result.mean)
        return Verdict("cannot tell", effect, None, None, contrast.unit, result.cases, words)
    word, why = _alike(contrast, result) if contrast.within else _above(contrast, result)
    effect, low, high = (contrast.told(x) for x in (result.mean, result.low, result.high))
    words = f"{contrast.what}: {why}."
    return Verdict(word, effect, low, high, contrast.unit, result.cases, words)


def _above(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is above its margin."""
    margin = _number(contrast, contrast.margin)
    if max(abs(x - contrast.margin) for x in (result.low, result.high)) < ROUNDING:
        return "cannot tell", "every run gives the same, so the measure is too coarse"
    if result.high <= contrast.margin:
        return "does not hold", f"the interval is not above {margin}"
    if result.high < contrast.least:
        return "does not hold", f"any effect is below {_number(contrast, contrast.least)}"
    if result.low <= contrast.margin:
        return "cannot tell", f"the interval contains {margin}"
    return _most(result, f"the interval is above {margin}")


def _alike(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is within its bounds."""
    lower, upper = contrast.within or (-math.inf, math.inf)
    bounds = f"{_number(contrast, lower)} to {_number(contrast, upper)}"
    if result.high <= lower or result.low >= upper:
        return "does not hold", f"the interval is outside {bounds}"
    if result.low <= lower or result.high >= upper:
        return "cannot tell", f"the interval is not inside {bounds}"
    return _most(result, f"the interval is inside {bounds}")


def _most(result: Estimate, words: str) -> tuple[Word, str]:
    """More than half of the cases must agree with the mean."""
    supporting, every = result.cases
    word: Word = "holds" if 2 * supporting > every else "cannot tell"
    joint = "and" if word == "holds" else "but only"
    return word, f"{words} {joint} {supporting} of {every} cases agree"


def _number(contrast: Contrast, value: float) -> str:
    return f"{contrast.told(value):.3g}"
