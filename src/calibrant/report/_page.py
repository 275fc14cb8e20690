"""One file: template, style, scripts, data and Plotly, with nothing to fetch."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibrant import __version__
from calibrant._core.extras import import_extra
from calibrant._core.files import replacing
from calibrant.report._html import Html, as_html

SCRIPTS = ("numbers.js", "charts.js", "tables.js", "models.js", "study.js", "report.js")
JAVASCRIPT = {
    "f8": "Float64Array",
    "f4": "Float32Array",
    "u4": "Uint32Array",
    "i4": "Int32Array",
    "i2": "Int16Array",
    "u1": "Uint8Array",
}


def packed(values: ArrayLike, kind: str) -> dict[str, Any]:
    """An array as compressed text that the page turns into a typed array."""
    array = np.asarray(values).astype(f"<{kind}")
    return {"type": JAVASCRIPT[kind], "data": compressed(array.tobytes())}


def compressed(content: bytes) -> str:
    """Bytes as base64 of gzip, the same for the same bytes."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")


def as_json(data: Mapping[str, Any]) -> Html:
    r"""JSON that is safe inside HTML: ASCII, without <, > and &.

    >>> as_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(text)


def write_page(path: str | Path, *, title: str, body: Html, data: Mapping[str, Any]) -> None:
    """Write the page under a temporary name and rename it.

    Its policy lets two scripts run, known by their hashes, and nothing be fetched.
    """
    own = "\n".join(_part(name) for name in SCRIPTS)
    script = f"(async () => {{\n'use strict';\n{own}\n}})();\n"
    plotly, plotly_hash = _plotly()
    page = Template(_part("template.html")).substitute(
        title=as_html(title),
        version=as_html(__version__),
        style=_part("report.css"),
        body=body,
        data=as_json(data),
        plotly=plotly,
        script=script,
        policy=f"'{_hash(script)}' '{plotly_hash}'",
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def _part(name: str) -> str:
    return resources.files("calibrant.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, str]:
    """The script of Plotly's Python package, compressed, and its hash."""
    offline = import_extra("plotly.offline", "A report")
    text = offline.get_plotlyjs().replace("\r\n", "\n")
    return compressed(text.encode()), _hash(text)


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
