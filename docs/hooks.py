"""Docstrings keep to reStructuredText roles; the site shows them as formulas and code."""

from __future__ import annotations

import re
from typing import Any

MATH = re.compile(r":math:<code>(.*?)</code>", re.DOTALL)
ROLE = re.compile(r":(?:func|class|meth|mod):<code>(.*?)</code>", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace the roles in the rendered page."""
    html = MATH.sub(r'<span class="arithmatex">\\(\1\\)</span>', html)
    return ROLE.sub(r"<code>\1</code>", html)
