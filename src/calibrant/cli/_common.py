"""Shared parts of the commands: options, one-line errors, progress, output."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from calibrant._core.checks import (
    CalibrationWarning,
    ConvergenceError,
    InputError,
    printable,
    refuse,
)

BAD_INPUT = 2


class Binning(StrEnum):
    """Binning of confidences."""

    width = "width"
    mass = "mass"


Bins = Annotated[int, typer.Option(help="Number of bins of the ECE family.")]
Norm = Annotated[float, typer.Option(help="Order p of the ECE norm; inf for the largest gap.")]
BinningOption = Annotated[Binning, typer.Option(help="Binning: equal width or equal mass.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
Replicates = Annotated[int, typer.Option(help="Number of bootstrap replicates.")]
Seed = Annotated[int, typer.Option(help="Random seed of the resampling.")]
Json = Annotated[bool, typer.Option("--json", help="JSON output.")]
Csv = Annotated[bool, typer.Option("--csv", help="CSV output.")]
Metrics = Annotated[
    str | None, typer.Option(help="Names of metrics, separated by commas; default: a standard set.")
]


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Report invalid input in one line, with exit code 2 and without a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (InputError, ConvergenceError, OSError, MemoryError) as error:
            fail(one_line(error) or type(error).__name__)

    return wrapped


def echo(text: str = "", *, err: bool = False) -> None:
    """Print text with control characters escaped; all terminal output goes through here.

    File names, labels and error records are untrusted. Only the two codes for bold, which tables
    use, are passed through.
    """
    parts = re.split(r"(\x1b\[[01]m)", text)
    parts[::2] = [printable(part, keep="\n\t") for part in parts[::2]]
    typer.echo("".join(parts), err=err)


def one_line(message: object) -> str:
    return " ".join(str(message).split())


def fail(message: str) -> NoReturn:
    echo(f"calibrant: {message}", err=True)
    raise typer.Exit(BAD_INPUT)


def refuse_given(context: typer.Context, options: list[str], rule: str) -> None:
    """Reject options that have no effect."""
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise refuse(f"--{option}", rule, None, "Leave it out.")


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning of a fit once, as one line on stderr."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CalibrationWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = one_line(message)
            if not issubclass(category, CalibrationWarning):
                usual(message, category, *where, **more)
            elif text not in seen:
                seen.add(text)
                echo(f"calibrant: warning: {text}", err=True)

        warnings.showwarning = show
        yield


@contextmanager
def progress(what: str, unit: str = "rows") -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():  # Rich 13 ends a bar that it does not show with an empty line
        yield lambda now, done, total: None  # noqa: ARG005
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=None)
        yield lambda now, done, total: bar.update(
            task, description=printable(now), completed=done, total=total
        )


def show(data: Any, text: str, *, as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise refuse("--json/--csv", "cannot be combined", "got both", "Drop one.")
    if as_json:
        echo(json.dumps(data.to_dict(), indent=2))
    elif as_csv:
        table = data.to_arrow()
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        echo(lines.getvalue().removesuffix("\n"))
    else:
        echo(text)
