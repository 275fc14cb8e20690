"""Writes what the claims came to into docs/papers/*.md, between the marks that each page has.

Run ``calibrant papers run PAPER all --scale cpu --out DIR`` for the five papers first, then
``python benchmarks/make_paper_pages.py DIR``. The words around the tables are written by hand.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from calibrant.papers import (
    PAPERS,
    PUBLISHED,
    Claim,
    Comparison,
    Evidence,
    Results,
    Verdict,
    compare_table,
    judge,
    paper_at,
    scale_of,
)
from common import DOCS, fill, markdown


def number(value: float) -> str:
    return f"{value:.3g}"


def effect(verdict: Verdict) -> str:
    if verdict.effect is None:
        return "–"
    if verdict.low is None or verdict.high is None:
        return f"{number(verdict.effect)} {verdict.unit}"
    return (
        f"{number(verdict.effect)} ({number(verdict.low)} to {number(verdict.high)}) {verdict.unit}"
    )


def cases(verdict: Verdict) -> str:
    return "–" if verdict.cases is None else f"{verdict.cases[0]:,} of {verdict.cases[1]:,}"


def claims(paper: str, published: dict[str, Verdict], ours: list[tuple[Claim, Verdict]]) -> str:
    head = ["claim", "", "published tables", "ours", "effect, 95 % interval", "cases", "why"]
    rows = []
    for claim, verdict in ours:
        if claim.paper == paper:
            said = published[claim.name]
            shown = f"{said.verdict}, {effect(said)}" if said.effect is not None else "–"
            rows.append(
                [
                    claim.name,
                    claim.statement,
                    shown,
                    f"**{verdict.verdict}**",
                    effect(verdict),
                    cases(verdict),
                    verdict.reason,
                ]
            )
    return markdown(head, rows)


def beside(made: Comparison, results: Results) -> str:
    """The rows that have one of ours, as Markdown without the title."""
    known = {*results.at.settings, *results.at.settings.values()}
    kept = replace(made, entries=tuple(e for e in made.entries if e.place in known))
    if not kept.entries:
        return "There are no results for this table at this scale.\n"
    return kept.to_markdown().partition("\n\n")[2]


def main(out: str) -> None:
    scale = scale_of(out)
    published = {claim.name: verdict for claim, verdict in judge(Evidence.published())}
    ours = judge(Evidence.measured(out, scale))
    for paper in PAPERS:
        page = DOCS / "papers" / f"{paper}.md"
        fill(page, "claims", claims(paper, published, ours))
        results = Results(paper_at(paper, scale), out)
        for table in PUBLISHED.get(paper, {}):
            fill(page, table, beside(compare_table(paper, table, results), results))
        print(page.name)


if __name__ == "__main__":
    main(sys.argv[1])
