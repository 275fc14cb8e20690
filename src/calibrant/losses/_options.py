"""Checks of the numbers that losses take as options."""

from __future__ import annotations

import math
import numbers

from calibrant._checks import refuse


def check_at_least(name: str, value: float, least: float, *, example: float) -> float:
    """Return ``value`` if it is a finite number of at least ``least``."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not least <= value < math.inf:
        rule = f"must be a finite number of at least {least:g}"
        raise refuse(name, rule, f"got {value!r}", f"Try {name}={example:g}.")
    return float(value)
