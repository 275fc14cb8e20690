"""From contrasts to a verdict on a claim: holds, does not hold, cannot tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from calibrant.papers._contrasts import Contrast, Setting, luck, settings
from calibrant.papers._estimates import ONE_SIDE, Estimate, estimate, fewest, repeated_by
from calibrant.papers._evidence import Evidence

Word = Literal["holds", "does not hold", "cannot tell"]

#: Results more likely than this under random labels are not evidence: the usual level of a
#: one-sided test, chosen without regard to any claim.
LUCK = 0.05
MARGINS = (0.5, 2.0)  # a margin of ours is tried at half and at twice its size
FEWEST = 3  # cases that "most" can be said of
ROUNDING = 1e-12
MOST_RUNS = 1000  # what would take more is not a question of time
MOST_REPEATED = 50  # seeds that luck is computed with: it only falls with more


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
    needs
        What would decide a claim that cannot be told, in one sentence.
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
    needs: str = ""


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
        Gives the verdict where contrasts alone do not; then ``own_rule`` says how.
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

    def test_and_need(self, evidence: Evidence) -> ClaimVerdict:
        """The verdict of evidence and, where it cannot tell, what would decide."""
        verdict = self.test(evidence)
        if verdict.verdict != "cannot tell" or verdict.needs:
            return verdict
        changed = self.change(evidence) if self.change else evidence
        found = [settings(contrast, changed) for contrast in self.contrasts]
        return replace(verdict, needs=what_decides(self.contrasts, found))

    @property
    def rule(self) -> str:
        """The quantities, and what they must show for the claim to hold."""
        return self.own_rule or "; ".join(f"{c.what}: {c.rule()}" for c in self.contrasts)


def decide(evidence: Evidence, contrasts: Sequence[Contrast]) -> ClaimVerdict:
    """The verdict on a claim that all its contrasts must support.

    It holds if every part does and luck is excluded, does not hold if one part does not, and else
    cannot be told.
    """
    found = [settings(contrast, evidence) for contrast in contrasts]
    verdict = _decide(contrasts, found, evidence.source)
    tried = []
    for i, contrast in enumerate(contrasts):
        for factor in MARGINS if contrast.own_margin and verdict.tested else ():
            scaled = contrast.with_margin(factor)
            margin = scaled.bounds() if scaled.within else scaled.number(scaled.margin)
            others = [*contrasts[:i], scaled, *contrasts[i + 1 :]]
            tried.append((margin, _decide(others, found, evidence.source).verdict))
    return replace(verdict, margins=tuple(tried))


def _decide(
    contrasts: Sequence[Contrast],
    found: Sequence[Sequence[Setting]],
    source: str = "",
    runs: int | None = None,
) -> ClaimVerdict:
    """The verdict on the settings of each contrast; with ``runs`` what it would be with so many."""
    parts = [_part(c, s, source, runs) for c, s in zip(contrasts, found, strict=True)]
    against = [part for part in parts if part.verdict == "does not hold"]
    unclear = [part for part in parts if part.verdict == "cannot tell"]
    several = len(parts) > 1
    decisive = [*against, *unclear, *parts][0]
    tested = tuple(dict.fromkeys(name for part in parts for name in part.tested))
    whole = replace(decisive, parts=tuple(parts) if several else (), tested=tested)
    if against or unclear:
        return whole
    chance = claim_luck(contrasts, found, runs)
    if chance > LUCK:
        return put_down_to_luck(whole, chance)
    every = {2: "Both"}.get(len(parts), f"All {len(parts)}")
    return replace(whole, reason=f"{every} parts hold. {whole.reason}") if several else whole


def what_decides(contrasts: Sequence[Contrast], found: Sequence[Sequence[Setting]]) -> str:
    """How many seeds (or settings) would decide an open claim, or why no number would.

    Means and spreads of single runs are taken as they are. Decisions by fewer runs are found by
    doubling, then by halving the last step.
    """
    had = [some for some in found if some]
    if not had:
        return "More seeds cannot decide it: there are no runs of this kind."
    kinds = {repeated_by(some) for some in had}
    unit = "seeds per setting" if "seeds" in kinds else "settings"
    low = min(map(fewest, had))
    high = max(low, 1)

    def word(runs: int) -> Word:
        return _decide(contrasts, found, runs=runs).verdict

    while word(high) == "cannot tell":
        if high == MOST_RUNS:
            return _why_never(contrasts, found, unit)
        low, high = high, min(2 * high, MOST_RUNS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if word(middle) == "cannot tell" else (low, middle)
    return (
        f"About {high:,} {unit} would decide it ({word(high)}), if means and spreads stayed as "
        "they are."
    )


def _why_never(contrasts: Sequence[Contrast], found: Sequence[Sequence[Setting]], unit: str) -> str:
    """Why even very many runs leave a claim open."""
    parts = [_part(c, s, "", MOST_RUNS) for c, s in zip(contrasts, found, strict=True)]
    for contrast, some, part in zip(contrasts, found, parts, strict=True):
        if not some:
            return f"More seeds cannot decide it: there are no runs for “{contrast.what}”."
        if part.verdict == "cannot tell" and part.low is None:
            return f"Single runs do not say how many seeds would decide “{contrast.what}”."
        if part.verdict == "cannot tell" and part.low == part.high:
            return f"More seeds cannot decide it: every run gives the same for “{contrast.what}”."
    if all(part.verdict == "holds" for part in parts):
        chance = claim_luck(contrasts, found, MOST_RUNS)
        return (
            "More seeds cannot decide it: in so few settings randomly permuted labels do as well "
            f"with probability {100 * chance:.0f} %."
        )
    return f"More than {MOST_RUNS:,} {unit} would be needed, if means and spreads stayed."


def put_down_to_luck(verdict: ClaimVerdict, chance: float) -> ClaimVerdict:
    """The verdict where randomly permuted labels support the claim too often."""
    words = f"Randomly permuted labels do as well with probability {100 * chance:.0f} %."
    return replace(verdict, verdict="cannot tell", reason=words)


def claim_luck(
    contrasts: Sequence[Contrast], found: Sequence[Sequence[Setting]], runs: int | None = None
) -> float:
    """Chance that random labels support all contrasts as well as the weakest is supported.

    Contrasts of different metrics, or of labels without overlap, are permuted independently; of
    those that overlap only one counts. With ``runs``, as if the seeds were repeated so often.
    """
    about = [(c, s) for c, s in zip(contrasts, found, strict=True) if c.by_labels]
    if not about:
        return 0.0
    worst = max(luck(c, s) for c, s in about)
    if worst > LUCK and runs is not None:
        worst = max(luck(c, [_repeated(setting, runs) for setting in s]) for c, s in about)
    groups: list[set[object]] = []
    for contrast, where in about:
        cells = {
            (contrast.paper, contrast.kind, contrast.metric, x) for s in where for x in s.labels
        }
        groups = [g for g in groups if not g & cells] + [
            cells.union(*(g for g in groups if g & cells))
        ]
    return float(worst ** len(groups))


def _repeated(setting: Setting, runs: int) -> Setting:
    """A setting with its seeds again, until there are as many; printed means stay."""
    had = setting.values.shape[1]
    if setting.variances is not None or runs <= had:
        return setting
    return replace(setting, values=setting.values[:, np.arange(min(runs, MOST_REPEATED)) % had])


def _part(
    contrast: Contrast, found: Sequence[Setting], source: str, runs: int | None = None
) -> ClaimVerdict:
    if not found:
        words = f"{contrast.what}: no data in {source}."
        return ClaimVerdict("cannot tell", None, None, None, contrast.unit, None, words)
    result = estimate(contrast, found, runs)
    tested = tuple(setting.name for setting in found)
    effect, *ends = (contrast.told(x) for x in (result.mean, result.low, result.high))
    low, high = (None if math.isnan(end) else end for end in ends)
    if contrast.mostly:
        word, why = _count(contrast, result)
    elif low is None:
        word, why = "cannot tell", "single runs in fewer than three settings give no interval"
    elif low == high and 0.5**result.runs > ONE_SIDE:
        word, why = "cannot tell", f"{result.runs} runs that all give the same are too few"
    elif contrast.within:
        word, why = _alike(contrast, result)
    else:
        word, why = _above(contrast, result)
    words = f"{contrast.what}: {why}."
    return ClaimVerdict(word, effect, low, high, contrast.unit, result.cases, words, tested=tested)


def _count(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether most cases are as the claim says: beyond chance, where runs were repeated."""
    supporting, every = result.cases
    asked = f"inside {contrast.bounds()}" if contrast.within else "as claimed"
    words = f"{supporting} of {every} cases are {asked}"
    if every < FEWEST or 2 * supporting == every:
        return "cannot tell", words
    many = 2 * supporting > every
    chance = result.confirmed if many else result.contradicted
    if chance is not None and chance > ONE_SIDE:
        return "cannot tell", f"{words}, but noise could change which are the most"
    return "holds" if many else "does not hold", words


def _above(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is above its margin."""
    margin = contrast.number(contrast.margin)
    if max(abs(x - contrast.margin) for x in (result.low, result.high)) < ROUNDING:
        return "cannot tell", "every run gives the same, so the measure is too coarse"
    if result.high <= contrast.margin:
        return "does not hold", f"the interval is not above {margin}"
    if contrast.stated is not None and result.high < contrast.stated:
        return "does not hold", f"the interval is below {contrast.number(contrast.stated)}"
    if _contradicted(result):
        return "does not hold", _contradiction(contrast, result)
    if result.low <= contrast.margin:
        return "cannot tell", f"the interval contains {margin}"
    if contrast.stated is not None and result.mean < contrast.stated:
        return "cannot tell", f"the mean is below {contrast.number(contrast.stated)}"
    return _enough(contrast, result, f"the interval is above {margin}")


def _alike(contrast: Contrast, result: Estimate) -> tuple[Word, str]:
    """Whether the contrast is within its bounds."""
    lower, upper = contrast.within or (-math.inf, math.inf)
    bounds = contrast.bounds()
    if result.high <= lower or result.low >= upper:
        return "does not hold", f"the interval is outside {bounds}"
    if _contradicted(result):
        return "does not hold", _contradiction(contrast, result)
    if result.low <= lower or result.high >= upper:
        return "cannot tell", f"the interval is not inside {bounds}"
    return _enough(contrast, result, f"the interval is inside {bounds}")


def _contradicted(result: Estimate) -> bool:
    """Whether too many cases are against the claim beyond chance."""
    return result.contradicted is not None and result.contradicted <= ONE_SIDE


def _contradiction(contrast: Contrast, result: Estimate) -> str:
    supporting, every = result.cases
    many = "at least one contradicts" if contrast.every else "at least half contradict"
    return f"only {supporting} of {every} cases agree, and {many} it beyond chance"


def _enough(contrast: Contrast, result: Estimate, words: str) -> tuple[Word, str]:
    """More than half of the cases, or all, must agree with the mean."""
    supporting, every = result.cases
    word: Word = "holds" if supporting >= contrast.enough(every) else "cannot tell"
    joint = "and" if word == "holds" else "but only"
    return word, f"{words} {joint} {supporting} of {every} cases agree"
