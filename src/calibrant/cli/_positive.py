"""Options about the positive class, which several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrant._core.checks import refuse
from calibrant.cli._option_groups import OptionGroup, Values

PositiveOption = Annotated[
    str | None,
    typer.Option(
        help="Positive class, by name or index: the one whose probability is measured. Default: "
        "class 1 of a two-class model."
    ),
]
TopLabelOnly = Annotated[
    bool,
    typer.Option("--top-label", help="Top label only, even for a two-class model."),
]
Threshold = Annotated[float, typer.Option(help="Threshold of the net benefit, between 0 and 1.")]
Costs = Annotated[
    str,
    typer.Option(help="Costs of a false positive and of a false negative, for example 1,5."),
]


def _positive_class(positive: str | None, *, top_label: bool) -> int | str | bool | None:
    """The class that is asked about; a whole number is its index."""
    if top_label and positive is not None:
        rule, advice = "cannot be combined with --top-label", "Leave one of them out."
        raise refuse("--positive", rule, None, advice)
    if top_label:
        return False
    return int(positive) if positive is not None and positive.isdecimal() else positive


def _cost_pair(costs: str) -> tuple[float, float]:
    """Two numbers separated by a comma."""
    try:
        of_false, of_missed = (float(part) for part in costs.split(","))
    except ValueError:
        rule, advice = "must be two numbers separated by a comma", "Try --costs 1,5."
        raise refuse("--costs", rule, f"got {costs!r}", advice) from None
    return of_false, of_missed


def _decisions(given: Values) -> Values:
    return {
        "positive": _positive_class(given["positive"], top_label=given["top_label"]),
        "threshold": given["threshold"],
        "costs": _cost_pair(given["costs"]),
    }


with_decisions = OptionGroup(
    "decisions",
    {
        "positive": (PositiveOption, None),
        "top_label": (TopLabelOnly, False),
        "threshold": (Threshold, 0.5),
        "costs": (Costs, "1,1"),
    },
    _decisions,
)
