"""Numbers and tables as text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from calibrant._core.checks import printable


def show(value: float, *, percent: bool, signed: bool = False) -> str:
    """A number as tables print it.

    >>> show(0.1234, percent=True), show(1.5, percent=False), show(float("nan"), percent=True)
    ('12.34 %', '1.5000', 'undefined')
    >>> show(-1e-9, percent=False)
    '0.0000'
    """
    if math.isnan(value):
        return "undefined"
    sign = "+z" if signed else "z"  # z: what rounds to 0 has no sign
    return f"{100 * value:{sign}.2f} %" if percent else f"{value:{sign}.4f}"


def show_bounds(low: float, high: float, *, percent: bool, signed: bool = False) -> str:
    """An interval as tables print it."""
    if math.isnan(low):
        return "–"
    shown = (show(x, percent=percent, signed=signed) for x in (low, high))
    low_shown, high_shown = shown
    return f"{low_shown.removesuffix(' %')} … {high_shown}"


def show_p(value: float) -> str:
    """A p-value as tables print it.

    >>> show_p(0.034), show_p(1e-9)
    ('0.034', '< 0.001')
    """
    if math.isnan(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned text; empty columns are dropped.

    >>> print(aligned([["a", "", "bb"], ["ccc", "", "d"]]))
    a    bb
    ccc  d
    """
    columns = [tuple(map(printable, column)) for column in _full_columns(rows)]
    lines = zip(*map(straight, columns), strict=True)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def straight(cells: Sequence[str], *, right: bool = False) -> list[str]:
    """Cells of a column filled up with spaces to one width on the screen."""
    from rich.cells import cell_len

    width = max(map(cell_len, cells))
    gaps = [" " * (width - cell_len(cell)) for cell in cells]
    return [gap + cell if right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]


def natural_order(value: Any) -> tuple[bool, Any, str]:
    """Sort key: numbers inside texts count as numbers, None comes last.

    >>> sorted(["level 10", "level 9"], key=natural_order)
    ['level 9', 'level 10']
    """
    if isinstance(value, str):
        return False, re.sub(r"\d+", lambda digits: digits[0].zfill(20), value), value
    return (True, 0, "") if value is None else (False, value, "")


def in_html(above: str, rows: Sequence[Sequence[str]], below: str) -> str:
    """Rows of cells, the first of them headings, as HTML; empty columns are dropped.

    >>> "<td><bdi>&lt;b&gt;</bdi></td>" in in_html("", [["a"], ["<b>"]], "")
    True
    """
    head, *body = zip(*_full_columns(rows), strict=True)
    top = "".join(f"<th><bdi>{escape(cell)}</bdi></th>" for cell in head)
    lines = (
        "<tr>" + "".join(f"<td><bdi>{escape(cell)}</bdi></td>" for cell in line) + "</tr>"
        for line in body
    )
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    words = [f"<p><bdi>{escape(text)}</bdi></p>" if text else "" for text in (above, below)]
    return f"{words[0]}{table}{words[1]}"


def _full_columns(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [column for column in zip(*rows, strict=True) if any(column)]


def json_number(value: float) -> float | str | None:
    """A JSON value: None for undefined, "inf" for infinite."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def in_samples(count: int) -> str:
    """A number of samples in words.

    >>> in_samples(1), in_samples(2000)
    ('1 sample', '2,000 samples')
    """
    return "1 sample" if count == 1 else f"{count:,} samples"
