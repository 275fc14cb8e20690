"""From contrasts to a verdict on a claim: holds, does not hold, cannot tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from calibrant.papers._contrasts import Contrast, Estimate, Setting, estimate, luck, settings
from calibrant.papers._evidence import Evidence

Word = Literal["holds", "does not hold", "cannot tell"]

#: Results more likely than this under random labels are not evidence: the usual level of a
#: one-sided test, chosen without regard to any claim.
LUCK = 0.05
MARGINS = (0.5, 2.0)  # a margin of ours is tried at half and at twice its size
FEWEST = 3  # cases that "most" can be said of
ROUNDING = 1e-12


@dataclass(frozen=True)
class ClaimVerdict:
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
    tested
        The settings that had data, "data, model".
    margins
        Where a margin is ours: the verdict with half and with twice the margin, as (margin,
        verdict).
    """

    verdict: Word
    effect: float | None
    low: float | None
    high: float | None
    unit: str
    cases: tuple[int, int] | None
    reason: str
    parts: tuple[ClaimVerdict, ...] = ()
    tested: tuple[str, ...] = ()
    margins: tuple[tuple[str, Word], ...] = ()


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, in our words, and its test.

    Attributes
    ----------
    source
        Where the paper says it: section, table or figure.
    rests_on
        "tables" or "figures" of the paper, or "mathematics".
    contrasts
        What is compared. All of them must support the claim.
    change
        Computes further cells from the evidence first, if the contrasts need them.
    own_test
        Gives the verdict where contrasts do not; then ``own_rule`` says how.
    """

    name: str
    paper: str
    statement: str
    source: str
    rests_on: Literal["tables", "figures", "mathematics"]
    contrasts: tuple[Contrast, ...] = ()
    change: Callable[[Evidence], Evidence] | None = None
    own_test: Callable[[Evidence], ClaimVerdict] | None = None
    own_rule: str = ""

    def test(self, evidence: Evidence) -> ClaimVerdict:
        """The verdict of evidence."""
        if self.own_test is not None:
            return self.own_test(evidence)
        return decide(self.change(evidence) if self.change else evidence, self.contrasts)

    @property
    def rule(self) -> str:
        """The quantities, and what they must show for the claim to hold."""
        return self.own_rule or "; ".join(f"{c.what}: {c.rule()}" for c in self.contrasts)


def decide(evidence: Evidence, contrasts: Sequence[Contrast]) -> ClaimVerdict:
    """The verdict on a claim that all its contrasts must support.

    It holds if every part does and luck is excluded, does not hold if one part does not, and else
    cannot be told.
    """
    verdict = _decide(evidence, contrasts)
    tried = []
    for i, contrast in enumerate(contrasts):
        for factor in MARGINS if contrast.own_margin and verdict.tested else ():
            scaled = contrast.with_margin(factor)
            margin = scaled.bounds() if scaled.within else scaled.number(scaled.margin)
            others = [*contrasts[:i], scaled, *contrasts[i + 1 :]]
            tried.append((margin, _decide(evidence, others).verdict))
    return replace(verdict, margins=tuple(tried))


def _decide(evidence: Evidence, contrasts: Sequence[Contrast]) -> ClaimVerdict:
    found = [settings(contrast, evidence) for contrast in contrasts]
    parts = [_part(c, s, evidence.source) for c, s in zip(contrasts, found, strict=True)]
    against = [part for part in parts if part.verdict == "does not hold"]
    unclear = [part for part in parts if part.verdict == "cannot tell"]
    several = len(parts) > 1
    decisive = [*against, *unclear, *parts][0]
    tested = tuple(dict.fromkeys(name for part in parts for name in part.tested))
    whole = replace(decisive, parts=tuple(parts) if several else (), tested=tested)
    if against or unclear:
        return whole
    chance = claim_luck(contrasts, found)
    if chance > LUCK:
        words = f"Randomly permuted labels do as well with probability {100 * chance:.0f} %."
        return replace(whole, verdict="cannot tell", reason=words)
    return replace(
        whole, reason=f"All {len(parts)} parts hold. {whole.reason}" if several else whole.reason
    )


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


def _part(contrast: Contrast, found: Sequence[Setting], source: str) -> ClaimVerdict:
    if not found:
        words = f"{contrast.what}: no data in {source}."
        return ClaimVerdict("cannot tell", None, None, None, contrast.unit, None, words)
    result = estimate(contrast, found)
    tested = tuple(setting.name for setting in found)
    effect, *ends = (contrast.told(x) for x in (result.mean, result.low, result.high))
    low, high = (None if math.isnan(end) else end for end in ends)
    if contrast.mostly:
        word, why = _count(contrast, result)
    elif low is None:
        word, why = "cannot tell", "single runs in fewer than three settings give no interval"
    elif contrast.within:
        word, why = _alike(contrast, result)
    else:
        word, why = _above(contrast, result)
    words = f"{contrast.what}: {why}."
    return ClaimVerdict(word, effect, low, high, contrast.unit, result.cases, words, tested=tested)


def _count(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether most cases are as the claim says."""
    supporting, every = result.cases
    asked = f"inside {contrast.bounds()}" if contrast.within else "as claimed"
    words = f"{supporting} of {every} cases are {asked}"
    if every < FEWEST or 2 * supporting == every:
        return "cannot tell", words
    return "holds" if 2 * supporting > every else "does not hold", words


def _above(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is above its margin."""
    margin = contrast.number(contrast.margin)
    if max(abs(x - contrast.margin) for x in (result.low, result.high)) < ROUNDING:
        return "cannot tell", "every run gives the same, so the measure is too coarse"
    if result.high <= contrast.margin:
        return "does not hold", f"the interval is not above {margin}"
    if contrast.stated is not None and result.high < contrast.stated:
        return "does not hold", f"the interval is below {contrast.number(contrast.stated)}"
    if result.low <= contrast.margin:
        return "cannot tell", f"the interval contains {margin}"
    return _most(result, f"the interval is above {margin}")


def _alike(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is within its bounds."""
    lower, upper = contrast.within or (-math.inf, math.inf)
    bounds = contrast.bounds()
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
