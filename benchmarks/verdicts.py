"""Verdicts on the claims of the papers from all of evidence/: scales, tuned runs, networks."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from calibrant.papers import (
    CLAIMS,
    NETWORKS,
    TUNED,
    Claim,
    ClaimVerdict,
    Evidence,
    evidence_at,
    judge,
)
from common import ROOT

FOLDER = ROOT / "evidence"
WORDS = ("holds", "does not hold", "cannot tell")
MIXED = "differs between our sources"
#: Where our numbers come from, and what pages call it.
SOURCES = {
    "features": "features",
    TUNED: "features (tuned)",
    "cpu": "cpu",
    NETWORKS: "public networks",
}

Verdicts = dict[str, ClaimVerdict]


@lru_cache
def evidence_of(source: str) -> Evidence:
    return evidence_at(FOLDER, source)


@lru_cache
def by_source() -> dict[str, Verdicts]:
    """The verdict of each source on each claim."""
    return {
        source: {claim.name: verdict for claim, verdict in judge(evidence_of(source), needs=True)}
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


def untuned(names: list[str]) -> list[str]:
    """Decided claims of a paper that tunes its coefficients, where only runs with fixed ones do."""
    papers = {key.paper for key in evidence_of(TUNED).cells}
    asked = (name for name in names if CLAIMS[name].paper in papers)
    return [name for name in asked if _deciding(name) and _deciding(name) <= {"features", "cpu"}]


def _deciding(name: str) -> set[str]:
    return {source for source, word in words_of(name).items() if word != "cannot tell"}


def counts(names: list[str]) -> Counter[str]:
    return Counter(overall(name) for name in names)


def decided_by(source: str, names: list[str]) -> list[str]:
    """The claims that a source decides."""
    return [n for n in names if words_of(n).get(source, "cannot tell") != "cannot tell"]


def are(names: list[str]) -> str:
    """The verb for some claims.

    >>> are(["K1"]), are(["K1", "K4"])
    ('is', 'are')
    """
    return "is" if len(names) == 1 else "are"
