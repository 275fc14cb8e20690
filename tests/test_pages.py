"""Every result in the documentation comes from the numbers in evidence/.

The marked parts of docs/which.md and docs/papers/*.md are made again and compared. Outside of them
these pages may state no result: no measured number stands there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibrant.papers import CLAIMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ["which.md", *(f"papers/{path.name}" for path in sorted((DOCS / "papers").glob("*2*.md")))]
PART = re.compile(r"<!-- ([\w-]+) -->\n(.*?)\n?<!-- end -->", re.DOTALL)
MEASURED = re.compile(r"[-+]?\d+\.\d+|\d+ (?:%|points)")

# Examples, levels, names of data sets, and bounds of a search.
NO_RESULTS = {"90 %", "95 %", "-10.1", "-10.2", "0.01"}


@pytest.fixture(scope="module", name="made")
def _made() -> Iterator[dict[str, dict[str, str]]]:
    """The text of every marked part, by page."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import evidence
        import make_paper_pages

        papers = make_paper_pages.blocks()
        yield {
            "which.md": evidence.blocks(),
            **{f"papers/{paper}.md": parts for paper, parts in papers.items()},
        }
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_every_marked_part_is_what_the_numbers_give(made: dict[str, dict[str, str]]) -> None:
    for page, parts in made.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        found = dict(PART.findall(text))
        assert set(found) == set(parts), page
        for name, part in parts.items():
            assert found[name] == part.rstrip(), f"{page}, {name}: run the script again"


def test_every_claim_has_its_verdict_on_its_page(made: dict[str, dict[str, str]]) -> None:
    for name, claim in CLAIMS.items():
        assert f"| {name} | {claim.statement}" in made[f"papers/{claim.paper}.md"]["claims"]
    assert f"{len(CLAIMS)} claims as tests" in (DOCS / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_no_result_stands_outside(page: str) -> None:
    text = PART.sub("", (DOCS / page).read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert set(MEASURED.findall(text)) <= NO_RESULTS


def test_words_that_the_numbers_do_not_support_are_gone() -> None:
    pages = {
        page: (DOCS / page).read_text(encoding="utf-8") for page in (*PAGES, "losses/index.md")
    }
    for words in (
        "come out the same way",
        "which no temperature changes",
        "those that the papers recommend",
        "straight out of training, or under shift",
    ):
        assert not [page for page, text in pages.items() if words in text], words
    best = re.search(r"`cross_entropy \+ 2\*mmce`", pages["which.md"])
    assert best is None  # like for like the interval contains 0
