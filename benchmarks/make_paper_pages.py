"""Writes docs/papers/*.md between their marks: claims, coefficients, findings, tables, figures.

    python benchmarks/make_paper_pages.py
    python benchmarks/make_paper_pages.py draw RUNS_DIR   # what `calibrant papers run` wrote

Everything comes from the published tables and from evidence/, so anyone can make it again; only
figures that show epochs, samples or predictions need the files of runs at scale features.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from calibrant.papers import (
    CLAIMS,
    FIGURES,
    PAPERS,
    PUBLISHED,
    TUNED,
    ClaimVerdict,
    Evidence,
    Place,
    Results,
    TableComparison,
    compare_table,
    draw_figure,
    judge,
    paper_at,
    published,
    results_of,
    scale_note,
)
from calibrant.papers._claims import details
from calibrant.papers._coefficients import NOTES, coefficients, printed
from calibrant.papers._comparison import Entry
from calibrant.papers._pairs import CE
from calibrant.papers._scales import method_name, shown_data
from common import DOCS, fill, markdown, save_picture
from tuning import PAPER as TUNES
from tuning import TUNED_DATA
from tuning import table as tuned_table
from verdicts import (
    FOLDER,
    MIXED,
    SOURCES,
    WORDS,
    Verdicts,
    are,
    by_source,
    empirical,
    evidence_of,
    overall,
    untuned,
)

WANG = "wang2021"
TRAINED = ("features", "cpu")  # the scales of our runs
#: Figures whose values are in evidence/, at scale features.
DRAWN = {
    WANG: ("figure1", "figure6"),
    TUNES: ("figure1", "figure2", "figure5", "figure7", "figure9"),
}
#: Figures that need the files of a few of these runs; those of formulas need none.
FROM_RUNS = {
    WANG: ("figure2", "figure3", "figure4", "figure5"),
    "singh2021": ("figure1",),
    "mukhoti2020": ("figure1", "figure2"),
    TUNES: ("figure6", "figure10"),
    "loss_report": ("figure1",),
}
FORMULAS = {"mukhoti2020": ("figureA1",), TUNES: ("figure3", "figure4")}
SHOWN_SEEDS = 5  # of the runs whose files are drawn
SOURCES_OF_FIGURES = {
    "drawn from our runs": DRAWN,
    f"drawn from our runs with the seeds 0 to {SHOWN_SEEDS - 1}": FROM_RUNS,
    "which needs no runs": FORMULAS,
}
REPORT_NETWORKS = "ResNet-18, ResNet-50 and VGG-16"
REPORT = {"cross_entropy + negative_entropy", "cross_entropy + logit_norm", "focal"}
#: A verdict on one claim, and on several.
TOLD = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "cannot tell": ("is undecided", "are undecided"),
    MIXED: ("differs between our sources", "differ between our sources"),
}
HB = (
    "At scale cpu, our values after histogram binning are those of the class predicted after it; "
    "the paper keeps the class of the network, and so do our runs at scale features."
)


def number(value: float) -> str:
    return f"{value:.3g}"


def effect(verdict: ClaimVerdict) -> str:
    if verdict.effect is None:
        return "–"
    if verdict.low is None or verdict.high is None:
        return f"{number(verdict.effect)} {verdict.unit}"
    ends = f"{number(verdict.low)} to {number(verdict.high)}"
    return f"{number(verdict.effect)} ({ends}) {verdict.unit}"


def cases(verdict: ClaimVerdict) -> str:
    return "–" if verdict.cases is None else f"{verdict.cases[0]:,} of {verdict.cases[1]:,}"


def told(verdict: ClaimVerdict) -> str:
    """Verdict, effect and cases of one source; a dash if it has no numbers."""
    if verdict.effect is None:
        return "–"
    return f"**{verdict.verdict}**, {effect(verdict)}, {cases(verdict)}"


def claims(paper: str, printed_ones: Verdicts) -> str:
    shown_sources = {s: told for s, told in SOURCES.items() if s != TUNED or paper == TUNES}
    head = ["claim", "", "rule", "published tables", *shown_sources.values(), "why"]
    rows = []
    for claim in CLAIMS.values():
        if claim.paper != paper:
            continue
        said = printed_ones[claim.name]
        shown = f"{said.verdict}, {effect(said)}" if said.effect is not None else "–"
        ours = {source: found[claim.name] for source, found in by_source().items()}
        if claim.rests_on == "mathematics":  # the same whatever the source
            ours = {"features": ours["features"]}
        why = [
            " ".join([f"{SOURCES[source]}: {verdict.reason}", *details(verdict)])
            for source, verdict in ours.items()
            if verdict.effect is not None
        ]
        cells = [told(ours[source]) if source in ours else "–" for source in shown_sources]
        text = f"{claim.statement} ({claim.source})"
        rows.append([claim.name, text, claim.rule, shown, *cells, " ".join(why) or "No numbers."])
    return markdown(head, rows)


def beside(paper: str, table: str) -> str:
    """The rows that have one of ours, each published one followed by ours at every scale."""
    made = {scale: compare_table(paper, table, results_at(paper, scale)) for scale in TRAINED}
    entries: list[Entry] = []
    for printed_one in compare_table(paper, table).entries:
        ours = [
            replace(entry, label=f"{entry.label} ({scale})")
            for scale, comparison in made.items()
            for entry in following(comparison, printed_one)
        ]
        entries += [printed_one, *ours] if ours else []
    if not entries:
        return "There are no results of ours for this table.\n"
    notes = dict.fromkeys(note for comparison in made.values() for note in comparison.notes)
    whole = replace(made[TRAINED[0]], entries=tuple(entries), notes=tuple(notes))
    return whole.to_markdown().partition("\n\n")[2]


def following(comparison: TableComparison, printed_one: Entry) -> list[Entry]:
    """Our rows for a published one, of those that have a value."""
    places = [(entry.place, entry.label) for entry in comparison.entries]
    at = places.index((printed_one.place, printed_one.label)) + 1
    ours = takewhile(lambda entry: entry.ours, comparison.entries[at:])
    return [entry for entry in ours if entry.values]


@lru_cache
def results_at(paper: str, scale: str) -> Results:
    return results_of(paper_at(paper, scale), FOLDER)


def methods(paper: str) -> set[str]:
    """The losses that a paper compares."""
    cells = [
        cell for table in PUBLISHED.get(paper, {}) for cell in published(paper, table).to_pylist()
    ]
    return {method_name(cell["objective"], cell["secondary"]) for cell in cells} or REPORT


def strengths(paper: str) -> str:
    """The coefficients of the paper and of our runs."""
    found: dict[tuple[str, str], set[str]] = {}
    asked = methods(paper)
    for scale in TRAINED:
        for run in results_at(paper, scale).runs():
            own = str(coefficients(run.objective, run.recipe))
            if own != "–" and run.name in asked:
                found.setdefault((run.name, run.data), set()).add(own)
    rows = []
    for (method, data), own in sorted(found.items()):
        theirs = printed(paper, method, data)
        shown = "not printed" if theirs is None else f"{theirs:g}"
        rows.append([f"`{method}`", shown_data(data), shown, ", ".join(sorted(own))])
    table = markdown(["loss", "data", "coefficient in the paper", "ours"], rows)
    return f"{NOTES[paper]}\n\n{table}"


def span(counts: Counter[str]) -> str:
    """The number of seeds of each method: one number, or the least and the most."""
    least, most = min(counts.values()), max(counts.values())
    if most == 1:
        return f"1 seed of {', '.join(f'`{method}`' for method in counts)}"
    return f"{least} seeds" if least == most else f"{least} to {most} seeds"


def findings(paper: str) -> str:
    """What our runs say of the claims, how many there are, and what cannot be said."""
    names = [claim.name for claim in empirical() if claim.paper == paper]
    seeds: dict[str, Counter[str]] = defaultdict(Counter)
    for scale in TRAINED:
        for run in results_at(paper, scale).runs():
            name = f"{Place(run.data, run.model).setting} ({scale})"
            seeds[name][run.name] += 1
    trained = "; ".join(f"{name}: {span(some)}" for name, some in sorted(seeds.items()))
    words = {name: overall(name) for name in names}
    lists = {word: [n for n in names if words[n] == word] for word in (*WORDS, MIXED)}
    text = [
        f"Our runs: {trained}. {scale_note('features')} A claim counts as decided if one of our "
        f"sources decides it. Of {len(names)} empirical claims "
        + ", ".join(f"{len(x)} {TOLD[word][len(x) > 1]}" for word, x in lists.items() if x)
        + ".",
        "\n".join(f"- {word}: {', '.join(some)}" for word, some in lists.items() if some),
    ]
    rest = [
        *undecided(lists["cannot tell"]),
        *fixed(names),
        *networks(paper),
        *unlearned(paper),
    ]
    return "\n\n".join([*text, *rest, *([HB] if paper == WANG else [])])


def fixed(names: list[str]) -> list[str]:
    """The claims that only runs with fixed coefficients decide, though the paper tunes them."""
    some = untuned(names)
    if not some:
        return []
    tuned = by_source()[TUNED]
    asked = [name for name in some if tuned[name].effect is not None]
    rest = [name for name in some if name not in asked]
    needs = " ".join(f"{name}: {tuned[name].needs}" for name in asked if tuned[name].needs)
    without = f" No tuned runs answer {', '.join(rest)}." if rest else ""
    places = dict.fromkeys(place for name in asked for place in tuned[name].tested)
    left = f" With tuned coefficients ({'; '.join(places)}), {', '.join(asked)} {are(asked)} "
    return [
        f"The paper tunes its coefficients. {', '.join(some)} {are(some)} decided only by runs "
        "with fixed coefficients, which test the losses but not the paper's procedure."
        f"{left + 'undecided.' if asked else ''}{without} {needs}".rstrip()
    ]


def networks(paper: str) -> list[str]:
    """Where the claims of the report were tested, which names its networks."""
    if paper in PUBLISHED:
        return []
    tested = dict.fromkeys(
        place
        for verdicts in by_source().values()
        for name in ("R1", "R2", "R3", "R4")
        for place in verdicts[name].tested
    )
    return [f"The report trains {REPORT_NETWORKS}; R1 to R4 were tested on {'; '.join(tested)}."]


def unlearned(paper: str) -> list[str]:
    """The losses that hardly learned: claims that average over them rest partly on that."""
    found, asked = [], methods(paper)
    for scale in TRAINED:
        for place, cells in evidence_of(scale).at(paper, "main", "accuracy").items():
            plain = cells.get(CE)
            for label, cell in cells.items():
                if label.calibrator != "none" or label.method not in asked:
                    continue
                if plain and 2 * cell.mean < plain.mean:
                    shown = f"{100 * cell.mean:.1f} against {100 * plain.mean:.1f} %"
                    found.append(f"`{label.method}` on {place.setting} ({scale}): {shown}")
    words = (
        "Losses with less than half the accuracy of cross-entropy; claims that average over them"
    )
    return [f"{words} rest partly on that: {'; '.join(found)}."] if found else []


def undecided(names: list[str]) -> list[str]:
    """What would decide the claims that are open, by the sources that have numbers for them."""
    rows = []
    for name in names:
        verdicts = {source: found[name] for source, found in by_source().items()}
        tested = {s: v for s, v in verdicts.items() if v.effect is not None} or verdicts
        needs = {verdict.needs for verdict in tested.values()}
        if len(needs) == 1:
            rows.append([name, needs.pop()])
        else:
            rows.append([name, " ".join(f"{SOURCES[s]}: {v.needs}" for s, v in tested.items())])
    return [markdown(["open claim", "what would decide it"], rows)] if rows else []


def pictures(paper: str) -> str:
    """The figures in the order of the paper, with their captions, and whose runs they show."""
    source = {n: told for told, some in SOURCES_OF_FIGURES.items() for n in some.get(paper, ())}
    parts = [
        f"![{figure.caption}]({picture(paper, name)})\n\n"
        f"{printed_name(name)}, {source[name]}. {figure.caption}"
        for name, figure in FIGURES[paper].items()
        if name in source
    ]
    return "\n\n".join(parts)


def picture(paper: str, figure: str) -> str:
    return f"{paper}-{figure}.png"


def printed_name(name: str) -> str:
    """As the paper calls it.

    >>> printed_name("figure7")
    'Figure 7'
    """
    return name.capitalize().replace("Figure", "Figure ")


def blocks() -> dict[str, dict[str, str]]:
    """The text of every marked part, by paper and name."""
    theirs = {claim.name: verdict for claim, verdict in judge(Evidence.published())}
    found = {}
    for paper in PAPERS:
        found[paper] = {
            "claims": claims(paper, theirs),
            "coefficients": strengths(paper),
            "findings": findings(paper),
        }
        for table in PUBLISHED.get(paper, {}):
            found[paper][table] = beside(paper, table)
    tuned = (f"{name}:\n\n{tuned_table(data)}" for data, name in TUNED_DATA.items())
    found[TUNES]["tuned"] = "\n\n".join(tuned)
    for paper in PAPERS:
        found[paper]["figures"] = pictures(paper)
    return found


def draw(figures: dict[str, tuple[str, ...]], folder: Path) -> None:
    for paper, names in figures.items():
        results = results_of(paper_at(paper, "features"), folder)
        for name in names:
            figure = draw_figure(paper, name, results)
            save_picture(figure, DOCS / "papers" / picture(paper, name), most=120_000)


def draw_runs(folder: Path) -> None:
    """The figures that need the files of runs; the caption says which seeds they show."""
    for paper in FROM_RUNS:
        results = results_of(paper_at(paper, "features"), folder)
        seeds = {run.seed for kind in results.at.studies for run in results.runs(kind)}
        if seeds != set(range(SHOWN_SEEDS)):
            raise SystemExit(f"{paper}: the captions say seeds 0 to {SHOWN_SEEDS - 1}, not {seeds}")
    draw(FROM_RUNS, folder)


def main() -> None:
    for paper, parts in blocks().items():
        page = DOCS / "papers" / f"{paper}.md"
        for name, text in parts.items():
            fill(page, name, text)
        print(page.name)
    draw(DRAWN, FOLDER)
    draw(FORMULAS, FOLDER)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["draw", runs]:
            draw_runs(Path(runs))
        case _:
            raise SystemExit(__doc__)
