"""Options by name: read from the command line, and checked against what is known."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from calibrant._core.checks import near_name, refuse


def parse_value(text: str) -> Any:
    """A value as JSON or Python writes it, or else the string itself.

    >>> parse_value("10"), parse_value("1e+3"), parse_value("True"), parse_value("mass")
    (10, 1000.0, True, 'mass')
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"True": True, "False": False, "inf": math.inf}.get(text, text)


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read strings ``key=value``.

    >>> parse_options(["bins=10", "binning=mass"])
    {'bins': 10, 'binning': 'mass'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key or key in found:
            rule, advice = (
                "must have the form key=value, each key once",
                "Write for example bins=10.",
            )
            raise refuse("option", rule, f"got {text!r}", advice)
        found[key] = parse_value(value)
    return found


def check_option_names(what: str, options: Iterable[str], known: Collection[str]) -> None:
    """Reject unknown options, and suggest the closest valid name.

    >>> check_option_names("model mlp", ["hiden"], ["hidden"])
    Traceback (most recent call last):
    calibrant._core.checks.InputError: model mlp has no option 'hiden'. Did you mean 'hidden'?
    """
    for option in options:
        if option not in known:
            advice = near_name(option, known) if known else "It has none."
            raise refuse(what, f"has no option {option!r}", None, advice)
