"""Shared parts of the commands: options, one-line errors, progress, output."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any, NoReturn, Self

import typer

from calibrant._core.checks import (
    CalibrationWarning,
    ConvergenceError,
    FileNote,
    InputError,
    printable,
    refuse,
    shortened,
)
from calibrant._core.version import __version__
from calibrant.cli._wording import spoken_by
from calibrant.metrics import METRICS

BAD_INPUT = 2
LONGEST_MESSAGE = 4000  # characters: names in a file may have any length


class BinningChoice(StrEnum):
    """Binning of confidences."""

    width = "width"
    mass = "mass"


Bins = Annotated[int, typer.Option(help="Number of bins for the ECE family of metrics.")]
Norm = Annotated[float, typer.Option(help="Order p of the ECE norm; inf for the largest gap.")]
BinningOption = Annotated[BinningChoice, typer.Option(help="Binning: equal width or equal mass.")]
Level = Annotated[float, typer.Option(help="Confidence level.")]
Replicates = Annotated[int, typer.Option(help="Number of bootstrap replicates.")]
Seed = Annotated[int, typer.Option(help="Random seed for the resampling.")]
Json = Annotated[bool, typer.Option("--json", help="JSON output.")]
Csv = Annotated[bool, typer.Option("--csv", help="CSV output.")]
Metrics = Annotated[
    str | None,
    typer.Option(
        help="Names of metrics, separated by commas, such as ece,nll; default: a standard set.",
        autocompletion=lambda incomplete: completed_list(incomplete, METRICS),
    ),
]


def completed_list(incomplete: str, names: Iterable[str]) -> list[str]:
    """What the shell suggests for a list of names: those that continue its last one.

    >>> completed_list("nll,ada", ["ece", "adaptive_ece"])
    ['nll,adaptive_ece']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def metric_names(metrics: str | None) -> list[str] | None:
    """The names in the option --metrics."""
    return [name.strip() for name in metrics.split(",")] if metrics else None


def origin(paths: list[str], **facts: Any) -> dict[str, Any]:
    """What JSON output says about where a panel comes from."""
    sizes = [Path(path).stat().st_size for path in paths if Path(path).is_file()]
    return {
        "file": paths[0] if len(paths) == 1 else paths,
        "file_bytes": sum(sizes) if sizes else None,
        "version": __version__,
        **facts,
    }


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Report invalid input in one line, with exit code 2 and without a traceback.

    Arguments in errors and warnings of the library are named as the options of the command.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        before = _SPOKEN.set(partial(spoken_by, command, kwargs))
        try:
            command(*args, **kwargs)
        except (InputError, ConvergenceError, OSError, MemoryError) as error:
            fail(_message(error) or type(error).__name__)
        finally:
            _SPOKEN.reset(before)

    return wrapped


# Says a message of the library in the options of the command that is running.
_SPOKEN: ContextVar[Callable[[str], str]] = ContextVar("spoken", default=str)


def _message(error: object) -> str:
    """An error or a warning in one line, with its arguments named as options."""
    return _SPOKEN.get()(shortened(one_line(error), LONGEST_MESSAGE))


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
            name = next(p.opts[0] for p in context.command.params if p.name == option)
            raise refuse(name, rule, None, "Leave it out.")


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print each warning of a fit once, as one line on stderr."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CalibrationWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = _message(message)
            if not issubclass(category, CalibrationWarning):
                usual(message, category, *where, **more)
            elif text not in seen:
                seen.add(text)
                kind = "note" if issubclass(category, FileNote) else "warning"
                echo(f"calibrant: {kind}: {text}", err=True)

        warnings.showwarning = show
        yield


class Heartbeat:
    """Progress where there is no terminal: a line on stderr every ten seconds.

    A thread prints it, since a single step can take minutes.
    """

    EVERY = 10.0  # seconds

    def __init__(self, what: str, unit: str) -> None:
        self.unit, self.line = unit, f"{what} …"
        self.ended = Event()
        self.thread = Thread(target=self._beat, daemon=True)

    def __call__(self, now: str, done: int, total: int) -> None:
        self.line = f"{now}: {done:,} of {total:,} {self.unit}".rstrip()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.thread.join()

    def _beat(self) -> None:
        while not self.ended.wait(self.EVERY):
            echo(f"calibrant: {self.line}", err=True)


@contextmanager
def progress(what: str, unit: str = "rows") -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, a line every ten seconds elsewhere."""
    if not sys.stderr.isatty():  # Rich 13 ends a bar that it does not show with an empty line
        with Heartbeat(what, unit) as beat:
            yield beat
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

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


def show(
    data: Any, text: str, *, as_json: bool, as_csv: bool, more: Mapping[str, Any] | None = None
) -> None:
    """Print a result; ``more`` is added to JSON output."""
    if as_json and as_csv:
        raise refuse("--json/--csv", "cannot be combined", "got both", "Drop one.")
    if as_json:
        echo(json.dumps({**(more or {}), **data.to_dict()}, indent=2))
    elif as_csv:
        table = data.to_arrow()
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
        echo(lines.getvalue().removesuffix("\n"))
    else:
        echo(text)
