"""The command ``compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from calibrant._core.checks import refuse
from calibrant._loading import load_labelled
from calibrant._measure import compare
from calibrant.cli._common import (
    Csv,
    Json,
    one_line_errors,
    one_line_warnings,
    origin,
    show,
)
from calibrant.cli._conditions import fail_for_comparison, parse_conditions
from calibrant.cli._layout import reads_files
from calibrant.cli._option_groups import with_metrics, with_resampling
from calibrant.cli._positive import with_decisions

app = typer.Typer()
Record = TypeVar("Record")


@app.command("compare")
@one_line_errors
@reads_files
@with_metrics
@with_decisions
@with_resampling
def compare_command(
    paths: Annotated[
        list[str], typer.Argument(help="Two or more files with predictions for the same samples.")
    ],
    *,
    chosen: dict[str, Any],
    decisions: dict[str, Any],
    resampling: dict[str, Any],
    as_json: Json = False,
    as_csv: Csv = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help='Condition for exit code 1, for example "difference.nll.low > 0" (the first model '
            "minus the second). Repeatable."
        ),
    ] = None,
    layout: dict[str, Any],
) -> None:
    """Compare models on the same samples: paired differences, intervals, p-values."""
    conditions = parse_conditions(fail_if, of_difference=True)
    if len(paths) == 1:
        rule, advice = "must be two or more files", "Use calibrant measure for one."
        raise refuse("PATHS", rule, "got 1", advice)
    with one_line_warnings():
        result = compare(
            load_models(paths, layout),
            **chosen,
            **decisions,
            **resampling,
        )
    show(result, str(result), as_json=as_json, as_csv=as_csv, more=origin(paths, **resampling))
    fail_for_comparison(conditions, result)


def load_models(
    paths: list[str],
    layout: Mapping[str, Any],
    read: Callable[..., Record] = load_labelled,  # type: ignore[assignment]
) -> dict[str, Record]:
    """The records of several files, by name."""
    names = distinct_names(paths)
    return {name: read(path, **layout) for name, path in zip(names, paths, strict=True)}


def distinct_names(paths: list[str]) -> list[str]:
    """File names without extension; full paths if those repeat."""
    stems = [Path(path).stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else list(paths)
    if len(set(names)) != len(names):
        rule, advice = "must be different files", "Name each model once."
        raise refuse("PATHS", rule, f"got {names[0]!r} twice", advice)
    return names
