"""Numbers and tables as text and HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from calibrant._core.checks import printable

UNDEFINED, NOTHING = "undefined", "–"
# A smaller standard error would be shown as 0.
SHOWN_ERROR = 5e-5


def show(value: float, *, percent: bool, signed: bool = False, decimals: int | None = None) -> str:
    """A number as tables print it, with its unit.

    >>> show(0.1234, percent=True), show(1.5, percent=False), show(float("nan"), percent=True)
    ('12.34 %', '1.5000', 'undefined')
    >>> show(-1e-9, percent=False), show(0.1234, percent=True, decimals=1)
    ('0.0000', '12.3 %')
    """
    text = show_number(value, percent=percent, signed=signed, decimals=decimals)
    return f"{text} %" if percent and text != UNDEFINED else text


def show_number(
    value: float, *, percent: bool, signed: bool = False, decimals: int | None = None
) -> str:
    """A number as tables print it, without its unit: per cent with 2 decimals, others with 4.

    >>> show_number(0.12345, percent=True), show_number(-0.00001, percent=False)
    ('12.35', '0.0000')
    """
    if math.isnan(value):
        return UNDEFINED
    if decimals is None:
        decimals = 2 if percent else 4
    sign = "+z" if signed else "z"  # z: what rounds to 0 has no sign
    return f"{100 * value if percent else value:{sign}.{decimals}f}"


def show_bounds(
    low: float, high: float, *, percent: bool, signed: bool = False, decimals: int | None = None
) -> str:
    """An interval as tables print it.

    >>> show_bounds(0.01, 0.0234, percent=True), show_bounds(math.nan, math.nan, percent=True)
    ('1.00 … 2.34 %', '–')
    """
    if math.isnan(low):
        return NOTHING
    first = show_number(low, percent=percent, signed=signed, decimals=decimals)
    return f"{first} … {show(high, percent=percent, signed=signed, decimals=decimals)}"


def show_error(value: float, error: float | None = None) -> str:
    """A loss, with its standard error if there is one; a dash where it is not defined.

    >>> show_error(0.25), show_error(0.25, 0.01), show_error(math.nan)
    ('0.2500', '0.2500 ± 0.0100', '–')
    >>> show_error(0.00003, 0.00001)
    '3.0e-05 ± 1.0e-05'
    """
    if math.isnan(value):
        return NOTHING
    if error is not None and 0 < error < SHOWN_ERROR:
        return f"{value:.1e} ± {error:.1e}"
    text = show_number(value, percent=False)
    return text if error is None else f"{text} ± {show_number(error, percent=False)}"


def show_p(value: float) -> str:
    """A p-value as tables print it.

    >>> show_p(0.034), show_p(1e-9)
    ('0.034', '< 0.001')
    """
    if math.isnan(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004


def show_p_equation(value: float) -> str:
    """A p-value in a sentence.

    >>> show_p_equation(0.034), show_p_equation(1e-9)
    ('p = 0.034', 'p < 0.001')
    """
    shown = show_p(value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def show_level(level: float) -> str:
    """A confidence level as the name of its interval.

    >>> show_level(0.95), show_level(0.999)
    ('95 % interval', '99.9 % interval')
    """
    return f"{100 * level:g} % interval"


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
    """Cells of a column, padded with spaces to the same display width."""
    from rich.cells import cell_len

    width = max(map(cell_len, cells))
    gaps = [" " * (width - cell_len(cell)) for cell in cells]
    return [gap + cell if right else cell + gap for cell, gap in zip(cells, gaps, strict=True)]


def natural_order(value: Any) -> tuple[bool, Any, str]:
    """Sort key: numbers inside strings compare as numbers, and None comes last.

    >>> sorted(["level 10", "level 9"], key=natural_order)
    ['level 9', 'level 10']
    """
    if isinstance(value, str):
        return False, re.sub(r"\d+", lambda digits: digits[0].zfill(20), value), value
    return (True, 0, "") if value is None else (False, value, "")


def in_html(above: str, rows: Sequence[Sequence[str]], below: str) -> str:
    """Rows of cells as HTML, the first row as headings; empty columns are dropped.

    >>> "<td><bdi>&lt;b&gt;</bdi></td>" in in_html("", [["a"], ["<b>"]], "")
    True
    """
    from html import escape

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
