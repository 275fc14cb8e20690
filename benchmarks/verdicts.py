"""Verdicts on the claims of the papers from all of evidence/: two scales, public networks."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from calibrant.papers import (
    CLAIMS,
    NETWORKS,
    Claim,
    ClaimVerdict,
    Evidence,
    evidence_at,
    judge,
)
from calibrant.papers._contrasts import Setting, estimate, settings
from common import ROOT

FOLDER = ROOT / "evidence"
WORDS = ("holds", "does not hold", "cannot tell")
MIXED = "differs between our sources"
#: Where our numbers come from, and what pages call it.
SOURCES = {"features": "features", "cpu": "cpu", NETWORKS: "public networks"}
MOST_SEEDS = 1000

Verdicts = dict[str, ClaimVerdict]


@lru_cache
def evidence_of(source: str) -> Evidence:
    return evidence_at(FOLDER, source)


@lru_cache
def by_source() -> dict[str, Verdicts]:
    """The verdict of each source on each claim."""
    return {
        source: {claim.name: verdict for claim, verdict in judge(evidence_of(source))}
        for source in SOURCES
    }


def empirical() -> list[Claim]:
    return [claim for claim in CLAIMS.values() if claim.rests_on != "mathematics"]


def words_of(name: str) -> dict[str, str]:
    """The verdicts on a claim by source, of the sources that have numbers for it."""
    found = {source: verdicts[name] for source, verdicts in by_source().items()}
    return {source: v.verdict for source, v in found.items() if v.effect is not None}


def overall(name: str) -> str:
    """The verdict of all sources that can tell; one of them is enough."""
    decided = {word for word in words_of(name).values() if word != "cannot tell"}
    if len(decided) > 1:
        return MIXED
    return decided.pop() if decided else "cannot tell"


def counts(names: list[str]) -> Counter[str]:
    return Counter(overall(name) for name in names)


def decided_by(source: str, names: list[str]) -> list[str]:
    """The claims that a source decides."""
    return [n for n in names if words_of(n).get(source, "cannot tell") != "cannot tell"]


def seeds_to_decide(name: str, source: str) -> int | None:
    """About how many seeds would decide, if the means stayed: those that shrink the interval.

    None where seeds are not what is missing: no numbers, no interval, a claim of likeness or of
    most cases, or an interval that excludes the margin already.
    """
    found = []
    for contrast in CLAIMS[name].contrasts:
        had = settings(contrast, evidence_of(source))
        if not had or contrast.within or contrast.mostly:
            return None
        result = estimate(contrast, had)
        gap, reach = abs(result.mean - contrast.margin), (result.high - result.low) / 2
        if math.isnan(reach) or gap == 0:
            return None
        if reach >= gap:
            found.append(fewest_seeds(had) * (reach / gap) ** 2)
    return math.ceil(max(found)) if found else None


def fewest_seeds(had: list[Setting]) -> int:
    return min(setting.values.shape[1] for setting in had)
