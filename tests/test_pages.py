"""Every result in the documentation comes from the numbers in evidence/.

The marked parts of docs/which.md and docs/papers/*.md are made again and compared. Outside them
these pages state no result: they contain no measured number.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import Predictions, measure
from calibrant.calibrators import TemperatureScaling
from calibrant.examples import load_example
from calibrant.papers import CLAIMS, PUBLISHED, SCALES, judge, published

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ["which.md", *(f"papers/{path.name}" for path in sorted((DOCS / "papers").glob("*2*.md")))]
PART = re.compile(r"<!-- ([\w-]+) -->\n(.*?)\n?<!-- end -->", re.DOTALL)
MEASURED = re.compile(r"[-+]?\d+\.\d+|\d+ (?:%|points)")

LOSSES_PAGE = (DOCS / "losses" / "index.md").read_text(encoding="utf-8")

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
        assert ".npz" not in made[f"papers/{claim.paper}.md"]["claims"]  # places have names
    assert f"{len(CLAIMS)} claims as tests" in (DOCS / "index.md").read_text(encoding="utf-8")


def test_scales_take_as_long_as_the_page_says() -> None:
    text = (DOCS / "papers" / "index.md").read_text(encoding="utf-8")
    for scale in ("features", "cpu"):
        [row] = re.findall(rf"^\| `{scale}` .*", text, re.MULTILINE)
        assert row.endswith(f"{SCALES[scale].rpartition(', ')[2]} |"), scale


@pytest.mark.usefixtures("made")  # which puts the scripts on the path
def test_confidence_beside_the_labels_of_people_by_hand() -> None:
    from human import compared

    people = np.array([[1.0, 0.0], [0.75, 0.25]])
    p = Predictions(probs=np.array([[0.8, 0.2], [0.4, 0.6]]), labels=np.array([0, 0]))
    found = compared(p, people)
    nll = -(math.log(0.8) + 0.75 * math.log(0.4) + 0.25 * math.log(0.6)) / 2
    assert found == pytest.approx(
        {
            "nll_people": nll,
            "entropy_people": -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / 2,
            "share_clear": 0.5,
            "gap_clear": 0.8 - 1.0,
            "gap_contested": 0.6 - 0.25,
        }
    )


@pytest.mark.parametrize("page", PAGES)
def test_no_result_stands_outside(page: str) -> None:
    text = PART.sub("", (DOCS / page).read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert set(MEASURED.findall(text)) <= NO_RESULTS


# By hand and about our results: checked by a test below, or what was compared or chosen.
CHECKED = (
    "`karandikar2021` reports that training for calibration does better under shift (K3), and",
    "Rank by NLL is the mean rank among our methods; 1 is the best.",
    "The best single method in hindsight is the calibrator of ours with the lowest NLL",
)
COMPARED = re.compile(
    r"\b(lower|higher|better|best|worse|worst|most|fewer|wins?|rises?|falls?|lowers?|raises?|beats?|"
    r"no loss|always|never|opposite|memorises?|hardly)\b"
)
OURS = re.compile(r"\b(we|our|ours|us)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", [*PAGES, "papers/loss_report.md", "losses/index.md"])
def test_no_comparison_of_ours_is_written_by_hand(page: str) -> None:
    """Sentences with a comparative about our runs come from the numbers, or from the list above."""
    text = PART.sub("", (DOCS / page).read_text(encoding="utf-8"))
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.:;])\s+|\n\n", text)]
    told = [s for s in sentences if COMPARED.search(s) and OURS.search(s)]
    assert not [s for s in told if not any(known in s or s in known for known in CHECKED)]


def test_the_output_on_the_first_page_is_what_is_printed() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    panel = measure(load_example("cross_entropy"))
    for line in filter(None, shown.splitlines()):
        assert line == "…" or line in str(panel).splitlines(), line
    gap = 100 * (panel["mean_confidence"] - panel["accuracy"])
    said = f"right {panel['accuracy']:.0%} of the time and claims {panel['mean_confidence']:.0%}"
    assert said.replace("%", " %") in text
    assert f"overconfident by about {gap:.1f} percentage points" in text


def test_the_first_sentence_on_calibration_is_what_is_printed() -> None:
    val, test = load_example("cross_entropy").split(0.5, seed=0)
    before, after = (
        measure(p, replicates=100, metrics=["accuracy", "ece"])
        for p in (test, TemperatureScaling().fit(val).transform(test))
    )
    said = f"The ECE falls from {100 * before['ece']:.2f} % to {100 * after['ece']:.2f} %, with an"
    assert said in (DOCS / "calibrate.md").read_text(encoding="utf-8")
    assert after.interval("ece").low == 0
    assert before["accuracy"] == after["accuracy"]


CELL = re.compile(r"(\d+\.\d+) → (\d+\.\d+) \((\d+\.\d+)( %)?\)")


def printed() -> set[tuple[float, ...]]:
    """ECE before and after temperature scaling, with the temperature, and with the accuracy."""
    found: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for paper, tables in PUBLISHED.items():
        for table in tables:
            for r in published(paper, table).to_pylist():
                where = (paper, r["data"], r["model"], r["objective"], r["secondary"])
                cells = found.setdefault(where, {})
                cells[r["metric"], r["calibrator"]] = r["value"]
                if r["temperature"] is not None and r["metric"] == "ece":
                    cells["temperature", r["calibrator"]] = r["temperature"]
    keys = ("ece", "none"), ("ece", "temperature")
    return {
        (*(cells[key] for key in keys), cells[extra])
        for cells in found.values()
        for extra in (("temperature", "temperature"), ("accuracy", "none"))
        if extra in cells and set(keys) <= set(cells)
    }


def test_published_cells_on_the_pages_of_losses() -> None:
    known = printed()
    shown = [
        (path.name, *map(float, cell[:3]))
        for path in sorted((DOCS / "losses").glob("*.md"))
        for cell in CELL.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(shown) > 60
    assert not [cell for cell in shown if cell[1:] not in known]


def cells_of(paper: str, table: str, metric: str, calibrator: str = "none") -> dict[Any, Any]:
    """Published values by data and network, then by method."""
    found: dict[Any, dict[tuple[str, str | None], float]] = {}
    for r in published(paper, table).to_pylist():
        if (r["metric"], r["calibrator"]) == (metric, calibrator):
            where = found.setdefault((r["data"], r["model"]), {})
            where[r["objective"], r["secondary"]] = r["value"]
    return found


def test_sentences_about_published_tables() -> None:
    text = {path.name: path.read_text("utf-8") for path in (DOCS / "losses").glob("*.md")}
    # losses/index.md: temperatures of cross-entropy on images
    temperatures = [
        r["temperature"]
        for r in published("mukhoti2020", "table1").to_pylist()
        if r["objective"] == "cross_entropy" and r["temperature"] and r["data"] != "sst2"
        if not r["secondary"]
    ]
    said = f"fitted temperatures of {min(temperatures)} to {max(temperatures)} on images"
    assert said in text["index.md"]
    # losses/likelihood.md: label smoothing costs the most refinement, also of scaling
    assert "it costs the most refinement" in text["likelihood.md"]
    for found in cells_of("singh2021", "table2", "auroc").values():
        assert min(found, key=found.__getitem__)[0] == "label_smoothing"
    # and of the losses in the rows from wang2021, cross-entropy is lowest after scaling
    assert "cross-entropy has the lowest ECE in each of these rows" in text["likelihood.md"]
    for (data, _), found in cells_of("wang2021", "table2", "ece", "temperature").items():
        shown = {m: v for m, v in found.items() if not m[1] and "inverse" not in m[0]}
        assert data == "svhn" or min(shown, key=shown.__getitem__)[0] == "cross_entropy"


def test_training_for_calibration_under_shift_is_what_we_say(
    made: dict[str, dict[str, str]],
) -> None:
    """losses/index.md: of K3, runs with fixed coefficients say the opposite, tuned ones agree."""
    [sentence] = re.findall(r"`karandikar2021` reports.*?agree with it", LOSSES_PAGE, re.DOTALL)
    assert "K3" in sentence
    assert "with fixed coefficients say the opposite" in sentence
    assert made  # from the same evidence, which is read once
    import verdicts

    for scale in ("features", "cpu"):
        [(_, verdict)] = judge(verdicts.evidence_of(scale), ["K3"])
        assert verdict.verdict == "does not hold"
        assert verdict.high is not None
        assert verdict.high < 1
    [(_, tuned)] = judge(verdicts.evidence_of("tuned"), ["K3"])
    assert tuned.verdict == "holds"
    assert tuned.low is not None
    assert tuned.low > 1


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
