"""Conditions of ``--fail-if``: a value or a bound of its interval against a number."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from calibrant import metrics as m
from calibrant._core.checks import InputError, near_name, refuse
from calibrant._measure import Panel
from calibrant.cli._common import echo

if TYPE_CHECKING:
    from calibrant._measure import Comparison

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(
    r"\s*(difference\.)?([a-z0-9_]+)(?:\.(low|high|value))?\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*"
)


@dataclass(frozen=True)
class Condition:
    """One condition, as it was written."""

    text: str
    metric: str
    part: str
    sign: str
    bound: float
    of_difference: bool

    @classmethod
    def parse(cls, text: str, *, of_difference: bool) -> Condition:
        """Read ``metric>number`` or ``metric.low>number``, of a panel or of differences."""
        match = _FORM.fullmatch(text)
        example = "difference.nll.low > 0" if of_difference else "ece.low > 0.02"
        try:
            if match is None or bool(match[1]) != of_difference:
                raise ValueError
            bound = float(match[5])
        except ValueError:
            start = "difference." if of_difference else ""
            rule = (
                f"must compare {start}METRIC, {start}METRIC.low or {start}METRIC.high to a number"
            )
            advice = f'Write for example --fail-if "{example}".'
            raise refuse("--fail-if", rule, f"got {text!r}", advice) from None
        if match[2] not in m.METRICS:
            near = near_name(match[2], m.METRICS)
            raise refuse("--fail-if", "must name a known metric", f"got {match[2]!r}", near)
        return cls(text, match[2], match[3] or "value", match[4], bound, of_difference)

    def holds(self, found: Any) -> bool:
        """Whether it holds for an interval or a difference."""
        value = float(getattr(found, self.part))
        if math.isnan(value):
            if self.part != "value" and not math.isnan(found.value):
                rule = f"needs the interval of {self.metric}, which has none here"
                advice = "A single cluster has none, nor do streams for metrics of whole rows."
                raise refuse("--fail-if", rule, f"got {self.text!r}", advice)
            raise InputError(
                f"{self.metric} is undefined for these predictions, so --fail-if cannot be "
                "evaluated."
            )
        return bool(_OPERATORS[self.sign](value, self.bound))

    def said(self, found: Any) -> str:
        """What was found where the condition holds."""
        part = "" if self.part == "value" else f".{self.part}"
        return f"{self.text} ({self.metric}{part} = {getattr(found, self.part):.6g})"


def parse_conditions(
    texts: Iterable[str] | None, *, of_difference: bool = False, intervals: bool = True
) -> list[Condition]:
    """Read every condition before any work is done."""
    found = [Condition.parse(text, of_difference=of_difference) for text in texts or []]
    for condition in found:
        if condition.part != "value" and not intervals:
            got, advice = f"got {condition.text!r}", "Leave out --no-intervals."
            raise refuse("--fail-if", "needs intervals", got, advice)
    return found


def fail_for_panels(conditions: list[Condition], panels: Mapping[str, Panel]) -> None:
    """Exit with code 1 if a condition holds for any of the panels, keyed by their group."""
    failed = []
    for group, panel in panels.items():
        for condition in conditions:
            if condition.metric not in panel.measured:
                rule, advice = (
                    "must name a measured metric",
                    f"Add it: --metrics {condition.metric},…",
                )
                raise refuse("--fail-if", rule, f"got {condition.metric!r}", advice)
            found = panel.interval(condition.metric)
            if condition.holds(found):
                failed.append(condition.said(found) + (f" in {group}" if group else ""))
    _end(failed)


def fail_for_comparison(conditions: list[Condition], result: Comparison) -> None:
    """Exit with code 1 if a condition holds for any pair of models."""
    failed = []
    for condition in conditions:
        pairs = [d for d in result.differences if d.metric == condition.metric]
        if not pairs:
            rule, advice = "must name a compared metric", f"Add it: --metrics {condition.metric},…"
            raise refuse("--fail-if", rule, f"got {condition.metric!r}", advice)
        failed += [
            f"{d.first} − {d.second}: {condition.said(d)}" for d in pairs if condition.holds(d)
        ]
    _end(failed)


def _end(failed: list[str]) -> None:
    for text in failed:
        echo(f"calibrant: failed: {text}", err=True)
    if failed:
        raise typer.Exit(1)
