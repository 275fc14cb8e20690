"""Options of what works in parallel: processes on this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import typer

from calibrant._core.checks import check_choice, check_processes, refuse

Address = Annotated[str | None, typer.Option(help="Address of an existing Ray cluster.")]


def make_executor(name: str, known: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """The named executor of those known; rejects options that it does not have."""
    check_choice("--executor", name, list(known))
    given = {key: value for key, value in options.items() if value is not None}
    check_processes(**{f"--{option}": given.get(option) for option in ("workers", "threads")})
    takes = {key: {field.name for field in fields(kind)} for key, kind in known.items()}
    for option, value in given.items():
        if option not in takes[name]:
            other = next(other for other, names in takes.items() if option in names)
            rule, advice = f"is only valid with --executor {other}", "Drop one of the two."
            raise refuse(f"--{option}", rule, f"got {value!r} with {name}", advice)
    return known[name](**given)
