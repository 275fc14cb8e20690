"""HTML in which everything is escaped unless it is HTML already."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already. Everything else is escaped on its way into the page."""

    __slots__ = ()


def clean(text: object) -> str:
    """Text that HTML and UTF-8 can hold: control characters and halves of letters become �."""
    whole = str(text).encode("utf-8", "replace").decode("utf-8")
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", whole)


def as_html(value: object) -> Html:
    """Escape a value, unless it is HTML already.

    >>> as_html("<b>"), as_html(Html("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Html) else Html(html.escape(clean(value)))


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """An element; what is inside and its attributes are escaped. ``class_`` is written as class.

    >>> tag("td", "a < b", class_="number", title=None)
    '<td class="number">a &lt; b</td>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{as_html(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(as_html, inside))}</{name}>")


def name_of(text: object) -> Html:
    """An untrusted name, isolated from the surrounding text direction."""
    return tag("bdi", text)


def isolated(text: object) -> str:
    """A name isolated likewise inside plain text, where no element is allowed."""
    return f"\N{FIRST STRONG ISOLATE}{clean(text)}\N{POP DIRECTIONAL ISOLATE}"


def section(key: str, title: str, *inside: object) -> Html:
    """A section with a heading of its own."""
    heading = tag("h2", title, id=f"{key}-title")
    return tag("section", heading, *inside, id=key, aria_labelledby=f"{key}-title")


def chart(key: str, label: str, size: str) -> Html:
    """Space for a chart, with a text alternative and a line that describes the current point."""
    plot = tag(
        "div",
        id=key,
        class_=f"chart {size}",
        role="img",
        aria_label=label,
        tabindex="0",
        aria_describedby=f"{key}-said",
    )
    hint = "Hover over the chart, or focus it and use the arrow keys."
    said = tag("p", hint, id=f"{key}-said", class_="said", aria_live="polite")
    return tag("figure", plot, tag("figcaption", label), said)


def table(
    caption: str, head: Sequence[object], rows: Iterable[Sequence[object]], *, kind: str = ""
) -> Html:
    """A table with a caption; a cell that is not a ``td`` or ``th`` yet becomes one."""
    top = tag("tr", *(_heading(cell) for cell in head))
    body = [tag("tr", *map(_cell, row)) for row in rows]
    inside = (tag("caption", caption), tag("thead", top), tag("tbody", *body))
    made = tag("table", *inside, class_=kind or None)
    return tag("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)


def _heading(cell: object) -> Html:
    ready = isinstance(cell, Html) and cell.startswith("<th")
    return Html(cell) if ready else tag("th", cell, scope="col")


def _cell(cell: object) -> Html:
    ready = isinstance(cell, Html) and cell.startswith(("<td", "<th"))
    return Html(cell) if ready else tag("td", cell)


def row_name(*inside: object) -> Html:
    """The first cell of a row, which names it."""
    return tag("th", *inside, scope="row")


def number(text: str, value: float | None = None, bounds: str = "") -> Html:
    """A cell with a number, its interval in small print, and the value that it is sorted by."""
    small = [tag("small", bounds)] if bounds else []
    known = value is not None and not math.isnan(value)
    return tag("td", text, *small, class_="number", data_value=f"{value:.9g}" if known else None)


def number_head(text: str) -> Html:
    """The heading of a column of numbers."""
    return tag("th", text, scope="col", class_="number")
