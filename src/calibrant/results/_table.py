"""A table of means over runs: as text, Markdown, LaTeX, CSV and data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibrant._core.formatting import NOTHING, json_number, show_number, straight
from calibrant.metrics import METRICS

if TYPE_CHECKING:
    import pyarrow as pa


Key = tuple[Any, ...]  # the values of the row (or column) variables
CellKey = tuple[Key, Key]  # a row and a column


@dataclass(frozen=True)
class Cell:
    """The runs of one cell, as fractions, not percentages.

    ``mark`` is ▲ ▼ (significantly higher, lower than the baseline), △ ▽ (higher, lower) or empty;
    ``p_value`` is that of the test, NaN if there was none.
    """

    mean: float
    spread: float
    count: int
    values: tuple[float, ...] = ()
    best: bool = False
    mark: str = ""
    p_value: float = math.nan


@dataclass(frozen=True)
class ResultTable:
    """One metric by rows and columns, created by ``pivot``; ``print`` shows it.

    ``cells`` holds what there is by (row, column), each a tuple of the values of its variables;
    ``table["focal", "digits"]`` finds a cell. ``fixed`` are the columns that have one value.
    ``to_text``, ``to_markdown`` and ``to_latex`` round, and show percentages where they are
    customary; ``to_csv``, ``to_dict`` and ``to_arrow`` give unrounded fractions.
    """

    metric: str
    rows: tuple[str, ...]
    cols: tuple[str, ...]
    row_keys: tuple[Key, ...]
    col_keys: tuple[Key, ...]
    cells: Mapping[CellKey, Cell]
    fixed: Mapping[str, Any]
    spread: str = "std"
    better: str = "neither"
    best: str | None = "row"
    baseline: Key | None = None
    alpha: float = 0.05

    def __getitem__(self, place: tuple[Any, Any]) -> Cell:
        row, col = (key if isinstance(key, tuple) else (key,) for key in place)
        try:
            return self.cells[row, col]
        except KeyError:
            raise KeyError(f"no runs of {joined(row)}, {joined(col)} in this table") from None

    @property
    def percent(self) -> bool:
        """Whether printed numbers are per cent."""
        return self.metric in METRICS and METRICS[self.metric].percent

    @property
    def title(self) -> str:
        """One line that describes the numbers."""
        label = METRICS[self.metric].label if self.metric in METRICS else self.metric
        unit = " (%)" if self.percent else ""
        counts = sorted({cell.count for cell in self.cells.values()})
        over = f"mean ± {self.spread} over {counts[0]} seeds"
        if counts[-1] == 1:
            over = "one seed"
        elif len(counts) > 1:
            over = f"mean ± {self.spread} over n seeds"
        direction = f"; {self.better} is better" if self.better != "neither" else ""
        return f"{label}{unit}, {over}{direction}"

    @property
    def notes(self) -> list[str]:
        """The lines below the table: what is fixed and what the marks mean."""
        fixed = ", ".join(f"{name} = {_shown(value)}" for name, value in self.fixed.items())
        notes = [fixed] if fixed else []
        if self.baseline is not None:
            notes += [
                f"▲ ▼ higher, lower than {joined(self.baseline)}: two-sample t-test, "
                f"p < {self.alpha:g}, not corrected for the number of cells",
                "△ ▽ higher, lower, not significant",
            ]
        return notes

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, color: bool = False) -> str:
        """Aligned text for the terminal. The best cells are bold in colour, otherwise marked *."""
        labels = [self.rows, *([_shown(value) for value in key] for key in self.row_keys)]
        columns = [straight(list(map(_clean, column))) for column in zip(*labels, strict=True)]
        columns += [self._column_text(col, color=color) for col in self.col_keys]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        notes = [_clean(note) for note in self.notes]
        if not color and any(cell.best for cell in self.cells.values()):
            notes.append(f"* best of the {self.best}")
        return "\n".join([_clean(self.title), "", *lines, *([""] if notes else []), *notes])

    def _column_text(self, col: Key, *, color: bool) -> list[str]:
        """A column with its head; means, spreads, marks and counts stand below one another."""
        cells = [self.cells.get((row, col)) for row in self.row_keys]
        parts = [self._parts(cell) for cell in cells]
        best = [cell is not None and cell.best for cell in cells]
        stars = ["*" * (flag and not color) for flag in best]
        means, spreads, marks, counts = map(list, zip(*parts, strict=True))
        numbers = [
            mean + spread
            for mean, spread in zip(straight(means, right=True), straight(spreads), strict=True)
        ]
        blocks = (numbers, straight(stars), straight(marks), straight(counts, right=True))
        lines = straight([_clean(joined(col)), *map("".join, zip(*blocks, strict=True))])
        if color:
            width = len(numbers[0])
            for i in (i for i, flag in enumerate(best, start=1) if flag):
                lines[i] = f"\x1b[1m{lines[i][:width]}\x1b[0m{lines[i][width:]}"
        return lines

    def _parts(self, cell: Cell | None) -> tuple[str, str, str, str]:
        """Mean, spread, mark and count as printed, each empty where there is nothing to say."""
        if cell is None:
            return NOTHING, "", "", ""
        mean, spread = (show_number(x, percent=self.percent) for x in (cell.mean, cell.spread))
        differ = len({cell.count for cell in self.cells.values()}) > 1
        return (
            mean,
            "" if math.isnan(cell.spread) else f" ± {spread}",
            f" {cell.mark}" if cell.mark else "",
            f" (n={cell.count})" * differ,
        )

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, with the title above and the notes below."""
        head = [*self.rows, *map(joined, self.col_keys)]
        rule = [":---"] * len(self.rows) + ["---:"] * len(self.col_keys)
        body = [
            [*(_in_markdown(_shown(value)) for value in row), *self._cells_of(row, "**{}**")]
            for row in self.row_keys
        ]
        lines = [[_in_markdown(name) for name in head], rule, *body]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([_in_markdown(self.title), table, *map(_in_markdown, self.notes)])

    def to_latex(self) -> str:
        r"""A tabular with booktabs' rules; marks need amssymb. Title and notes follow in small."""
        head = [*self.rows, *map(joined, self.col_keys)]
        lines = [
            [
                *(_in_latex(_shown(value)) for value in row),
                *map(_latex_numbers, self._cells_of(row, r"\textbf{{{}}}")),
            ]
            for row in self.row_keys
        ]
        notes = ". ".join([self.title, *self.notes])
        return "\n".join(
            [
                f"\\begin{{tabular}}{{{'l' * len(self.rows)}{'r' * len(self.col_keys)}}}",
                r"\toprule",
                " & ".join(map(_in_latex, head)) + r" \\",
                r"\midrule",
                *(" & ".join(line) + r" \\" for line in lines),
                r"\bottomrule",
                r"\end{tabular}",
                "",
                rf"{{\footnotesize {_in_latex(notes)}.\par}}",
            ]
        )

    def _cells_of(self, row: Key, bold: str) -> list[str]:
        """The printed cells of a row, the best ones in ``bold``."""
        shown = []
        for col in self.col_keys:
            cell = self.cells.get((row, col))
            mean, spread, mark, count = self._parts(cell)
            number = bold.format(mean + spread) if cell and cell.best else mean + spread
            shown.append(f"{number}{mark}{count}")
        return shown

    def _long(self) -> list[dict[str, Any]]:
        """One record per cell, including missing ones."""
        empty = Cell(math.nan, math.nan, 0)
        records = []
        for row in self.row_keys:
            for col in self.col_keys:
                cell = self.cells.get((row, col), empty)
                names = dict(zip((*self.rows, *self.cols), (*row, *col), strict=True))
                numbers = {"mean": cell.mean, self.spread: cell.spread, "count": cell.count}
                rest = {"best": cell.best, "mark": cell.mark, "p_value": cell.p_value}
                records.append({"metric": self.metric, **names, **numbers, **rest})
        return records

    def to_csv(self) -> str:
        """One line per cell: names, mean, spread, count, unrounded; undefined values are empty."""
        import pyarrow as pa
        from pyarrow import csv

        sink = pa.BufferOutputStream()
        names = [*self.rows, *self.cols, "mean", self.spread, "count"]
        csv.write_csv(self.to_arrow().select(names), sink)
        text: str = sink.getvalue().to_pybytes().decode()
        return text

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; undefined values are None, infinite ones the string "inf"."""
        cells = [
            {name: _as_json(value) for name, value in record.items() if name != "metric"}
            for record in self._long()
        ]
        return {
            "metric": self.metric,
            "better": self.better,
            "spread": self.spread,
            "rows": list(self.rows),
            "cols": list(self.cols),
            "fixed": dict(self.fixed),
            "baseline": None if self.baseline is None else list(self.baseline),
            "alpha": self.alpha,
            "cells": cells,
        }

    def to_arrow(self) -> pa.Table:
        """One row per cell: metric, names, mean, spread, count, best, mark, p_value."""
        import pyarrow as pa

        records = self._long()
        floats = ("mean", self.spread, "p_value")
        columns = {name: [record[name] for record in records] for name in records[0]}
        return pa.table(
            {
                name: pa.array(column, pa.float64(), from_pandas=True)  # NaN becomes null
                if name in floats
                else pa.array(column)
                for name, column in columns.items()
            }
        )


def _shown(value: Any) -> str:
    return NOTHING if value is None else str(value)


def _as_json(value: Any) -> Any:
    return json_number(value) if isinstance(value, float) else value


def joined(key: Key) -> str:
    return " / ".join(map(_shown, key))


def _clean(text: str) -> str:
    """One line that moves no cursor: what cannot be printed becomes a space."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _escaper(table: Mapping[str, str]) -> Callable[[str], str]:
    codes = {ord(letter): escaped for letter, escaped in table.items()}
    return lambda text: _clean(text).translate(codes)


_in_markdown = _escaper({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|~&$"})
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",  # after a line's end these would be its options
    "±": r"$\pm$",
    "▲": r"$\blacktriangle$",
    "▼": r"$\blacktriangledown$",
    "△": r"$\vartriangle$",
    "▽": r"$\triangledown$",
    NOTHING: "--",
}
_in_latex = _escaper(LATEX)


def _latex_numbers(cell: str) -> str:
    """A printed cell with its signs set as mathematics."""
    signs = {sign: LATEX[sign] for sign in "±▲▼△▽"} | {"-": "$-$", NOTHING: LATEX[NOTHING]}
    return cell.translate({ord(sign): mathematics for sign, mathematics in signs.items()})
