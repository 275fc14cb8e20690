"""Refills the marked parts of a page: ``<!-- name -->`` … ``<!-- end -->``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCHMARKS = DOCS / "benchmarks.md"


def fill(page: Path, name: str, text: str) -> None:
    """Put a text between the marks of a name; the page must have them once."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    new, count = pattern.subn(lambda match: f"{match[1]}{text.rstrip()}\n{match[2]}", old)
    if count != 1:
        raise SystemExit(f"{page.name} must have one part marked {name!r}, it has {count}")
    page.write_text(new, encoding="utf-8")
