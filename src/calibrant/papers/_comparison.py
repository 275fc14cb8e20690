"""A published table next to our results, cell by cell."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant._core.formatting import straight
from calibrant.papers._published import PUBLISHED, published
from calibrant.papers._results import Results
from calibrant.papers._scales import CALIBRATOR_LABELS, Place, method_name, scale_note
from calibrant.results import compare_runs, summarise_runs

BASELINE = "cross_entropy"
LEVEL = 0.05
# The question that a table asks of the runs, where it is not "main".
KINDS = {("singh2021", "table4"): "confidnet"}
TEMPERATURES = {
    "TS": "the temperature that minimises NLL on the calibration samples",
    "TS-ECE": "the temperature that minimises ECE on the calibration samples",
    "TS-fixed": "a fixed temperature (1.5; 1.1 on ImageNet)",
}
AFTER_CALIBRATION = {
    "none": "",
    "temperature": "after TS",
    "temperature_soft_ece": "after TS-SB-ECE",
    "histogram": "after HB",
}
METRIC_WORDS = {
    "ece": "ECE",
    "brier": "Brier",
    "auroc": "AUROC",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
    "temperature": "temperature",
}


@dataclass(frozen=True)
class Value:
    """A cell in the units printed: the mean, its spread, the temperature that led to it, a mark."""

    mean: float
    spread: float | None = None
    temperature: float | None = None
    mark: str = ""
    runs: int = 0

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.2f}"
        temperature = "" if self.temperature is None else f" ({self.temperature:.2f})"
        mark = f" {self.mark}" if self.mark else ""
        return f"{self.mean:.2f}{spread}{temperature}{mark}"


@dataclass(frozen=True)
class Entry:
    """A row of one source: where it is from, what it shows, and its values by column."""

    place: Place
    label: str
    ours: bool
    values: dict[str, Value]


@dataclass(frozen=True)
class TableComparison:
    """A table of a paper, each published row followed by our results."""

    paper: str
    table: str
    columns: tuple[str, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{self.paper}, {self.table}. {PUBLISHED[self.paper][self.table].caption}"

    def cells(self) -> list[list[str]]:
        """Head and rows as text."""
        rows = [["", "", "", *self.columns]]
        for entry in self.entries:
            source = "ours" if entry.ours else "published"
            shown = [str(entry.values.get(column, "–")) for column in self.columns]
            rows.append([str(entry.place), entry.label, source, *shown])
        return rows

    def to_text(self) -> str:
        """Aligned text for the terminal."""
        columns = [straight(column) for column in zip(*self.cells(), strict=True)]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join([self.title, "", *lines, "", *self.notes])

    def to_markdown(self) -> str:
        """A Markdown table with title and notes."""
        head, *rows = self.cells()
        rule = [":---"] * 3 + ["---:"] * len(self.columns)
        table = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))
        return "\n\n".join([self.title, table, *self.notes]) + "\n"

    def to_csv(self) -> str:
        """One line per cell, in the printed units; missing values are empty."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            [
                "source",
                "data",
                "model",
                "part",
                "row",
                "column",
                "mean",
                "spread",
                "temperature",
                "mark",
                "runs",
            ]
        )
        for entry in self.entries:
            place = entry.place
            for column, value in entry.values.items():
                writer.writerow(
                    [
                        "ours" if entry.ours else "published",
                        place.data,
                        place.model,
                        place.part,
                        entry.label,
                        column,
                        value.mean,
                        value.spread,
                        value.temperature,
                        value.mark,
                        value.runs or None,
                    ]
                )
        return file.getvalue()


def compare_table(paper: str, table: str, results: Results | None = None) -> TableComparison:
    """A published table, next to our results if there are any.

    Parameters
    ----------
    paper, table
        A published table, such as "wang2021", "table2".
    results
        Of this paper at some scale.

    Examples
    --------
    >>> made = compare_table("wang2021", "table1")
    >>> made.columns[:2]
    ('cross_entropy', 'label_smoothing')
    >>> print(made.entries[0].label, made.entries[0].values["cross_entropy"])
    ECE 3.03 ± 0.16
    """
    groups: dict[tuple[Place, str], dict[str, dict[str, Any]]] = {}
    columns: dict[str, None] = {}
    for cell in published(paper, table).to_pylist():
        row, column = _labels(paper, cell)
        groups.setdefault((Place(cell["data"], cell["model"]), row), {})[column] = cell
        columns[column] = None
    entries = []
    for (place, row), cells in groups.items():
        printed = {column: _printed(cell) for column, cell in cells.items()}
        entries.append(Entry(place, row, ours=False, values=printed))
        if results is not None:
            kind = KINDS.get((paper, table), "main")
            for standing in results.at.settings.get(place, ()):
                ours = _ours(cells, standing, results, kind)
                entries.append(Entry(standing, row, ours=True, values=ours))
    known = PUBLISHED[paper][table]
    spread = "" if known.spread == "none" else f"± {known.spread}. "
    notes = [f"Published: {spread}{known.citation}"]
    if results is not None:
        notes += _notes_on_ours(results, entries)
    return TableComparison(paper, table, tuple(columns), tuple(entries), tuple(notes))


def _labels(paper: str, cell: dict[str, Any]) -> tuple[str, str]:
    """Row and column of a cell, as the paper arranges its tables."""
    method = method_name(cell["objective"], cell["secondary"])
    metric = METRIC_WORDS.get(cell["metric"], cell["metric"])
    calibrator = AFTER_CALIBRATION[cell["calibrator"]] if metric != "temperature" else "of TS"
    if paper == "singh2021":  # a column is a metric
        return f"{method} {calibrator}".strip(), metric
    if paper == "karandikar2021":  # a column is a metric before or after calibration
        return method, f"{metric} {calibrator}".strip()
    return f"{metric} {calibrator}".strip(), method


def _printed(cell: dict[str, Any]) -> Value:
    return Value(cell["value"], cell["spread"], cell["temperature"], cell["mark"] or "")


def _ours(
    cells: dict[str, dict[str, Any]], place: Place, results: Results, kind: str
) -> dict[str, Value]:
    """Our values for the cells of a row, where there are any."""
    found = {}
    for column, cell in cells.items():
        value = _measured(cell, place, results, kind)
        if value is not None:
            found[column] = value
    return found


def _measured(cell: dict[str, Any], place: Place, results: Results, kind: str) -> Value | None:
    """Mean and spread over seeds of what stands for a published cell, with its mark."""
    metric, method = cell["metric"], method_name(cell["objective"], cell["secondary"])
    calibrator = cell["calibrator"]
    if method == "confidnet":  # not a loss: a confidence learned for the plain model
        method, calibrator = BASELINE, "confidnet"
    ours = list(results.by_seed(place, method, metric, calibrator, kind).values())
    if not ours:
        return None
    scale = 1.0 if metric == "temperature" else 100.0
    found = summarise_runs(ours)
    spread = getattr(found, cell["spread_kind"] or "std")
    temperatures = []
    if cell["temperature"] is not None and metric != "temperature":
        temperatures = list(results.by_seed(place, method, "temperature", calibrator).values())
    same = "none" if calibrator == "confidnet" else calibrator
    baseline = results.by_seed(place, BASELINE, metric, same, kind)
    itself = (method, calibrator) == (BASELINE, same)
    return Value(
        scale * found.mean,
        None if math.isnan(spread) else scale * spread,
        sum(temperatures) / len(temperatures) if temperatures else None,
        "" if itself else _mark(ours, list(baseline.values())),
        len(ours),
    )


def _mark(values: list[float], baseline: list[float]) -> str:
    """Whether values lie above or below those of the baseline, filled if a t-test is sure."""
    if len(values) < 2 or len(baseline) < 2:  # noqa: PLR2004 - no spread, no test
        return ""
    return compare_runs(values, baseline).mark(LEVEL)


def _notes_on_ours(results: Results, entries: Sequence[Entry]) -> list[str]:
    seeds = sorted(
        {value.runs for entry in entries if entry.ours for value in entry.values.values()}
    )
    over = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}" if seeds else "no"
    notes = [
        f"Ours: scale {results.at.scale}, {over} {'seed' if over == '1' else 'seeds'}. "
        f"{scale_note(results.at.scale)}",
        f"▲ ▼ above, below cross-entropy by a two-sample t-test, p < {LEVEL:g}, not corrected; "
        "△ ▽ above, below, not significant.",
    ]
    label = CALIBRATOR_LABELS[results.at.paper].get("temperature")
    if label:
        notes.append(f"TS in ours: {TEMPERATURES[label]}.")
    return [*notes, results.at.note] if results.at.note else notes
