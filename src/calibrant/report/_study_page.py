"""The report page on a study: heat map, conclusions, table, trade-offs, shifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.report._heat_map import heat_maps
from calibrant.report._html import Html, chart, name_of, section, tag
from calibrant.report._study import StudyCells

if TYPE_CHECKING:
    import pyarrow as pa

    from calibrant.study import Study


def body_of_study(cells: StudyCells, table: pa.Table, study: Study | None) -> Html:
    """All sections."""
    parts = [heat_maps(cells), _verdict(cells, table, study), _settings(), _front()]
    if len({row[-1] for row in cells.rows}) > 1:
        parts.append(_shifts())
    return Html("\n".join(parts))


def _verdict(cells: StudyCells, table: pa.Table, study: Study | None) -> Html:
    from calibrant.study import findings

    runs = len(set(table["run"].to_pylist()))
    seeds = len({seed for row in cells.rows for seed in cells.seeds(row)})
    size = f"{_count(runs, 'finished run')}, {_count(len(cells.rows), 'setting')}, " + _count(
        seeds, "seed"
    )
    cards = [
        tag(
            "article",
            tag("h3", name_of(data), ", ", name_of(model)),
            tag("ul", *(tag("li", name_of(line)) for line in lines)),
            class_="card",
        )
        for (data, model), lines in findings(table, study).items()
    ]
    return section("verdict", "Verdict", tag("p", size, class_="note"), *cards)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _settings() -> Html:
    words = (
        "Means ± standard deviations over seeds; the best of the settings shown is bold. Click a "
        "heading to sort, use the boxes to filter; the charts below follow."
    )
    controls = Html(
        '<form class="controls" id="filters" aria-label="Which settings are shown">'
        '<label>contains <input type="search" id="search" autocomplete="off"></label></form>'
    )
    room = tag(
        "div",
        id="study-table",
        class_="wide",
        tabindex="0",
        role="region",
        aria_label="Settings and their metrics",
    )
    count = tag("p", id="table-count", class_="note", aria_live="polite")
    more = Html('<button type="button" id="show-all" hidden>Show all</button>')
    return section("table", "All settings", tag("p", words), controls, count, room, more)


def _front() -> Html:
    words = (
        "Each point is a setting, averaged over its seeds. Points joined by a line are on the "
        "Pareto front of their data set, network and test set: no other setting is better in one "
        "of the two metrics without being worse in the other. The list below the chart names them."
    )
    controls = _choices(("across", "front-x"), ("up", "front-y"))
    plot = chart("pareto", "Trade-off between two metrics", "tall")
    names = tag("ol", id="front-names", class_="note")
    return section("front", "Trade-offs", tag("p", words), controls, plot, names)


def _shifts() -> Html:
    words = "How do the metrics change under shift? Each line is a setting."
    controls = _choices(("metric", "shift-metric"), ("shift", "shift-family"))
    plot = chart("shift", "A metric under shift", "tall")
    note = tag("p", id="shift-note", class_="note")
    return section("shifts", "Under shift", tag("p", words), controls, plot, note)


def _choices(*boxes: tuple[str, str]) -> Html:
    """Labelled boxes that a script fills."""
    made = [tag("label", f"{label} ", tag("select", id=key)) for label, key in boxes]
    return tag("div", *made, class_="controls")
