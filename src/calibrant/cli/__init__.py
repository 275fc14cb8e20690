"""The command line: each command calls one function and prints its result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from calibrant import __version__
from calibrant._core.checks import printable
from calibrant._core.compiled import kernel_details
from calibrant._core.stopping import install
from calibrant.cli import (
    _calibrate,
    _data,
    _decompose,
    _measure,
    _monitor,
    _papers,
    _report,
    _shift,
    _study,
    _train,
)
from calibrant.cli._common import echo
from calibrant.cli._output import prepare_streams


class _Commands(TyperGroup):
    """The commands; usage errors are made safe for the terminal too."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _harmless():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        with _harmless():
            return super().invoke(*args, **kwargs)


@contextmanager
def _harmless() -> Iterator[None]:
    """Make the message of a usage error printable: it repeats what was typed, file names too."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "message"):
            error.message = printable(str(error.message))
        raise


PARTS = (
    _measure.app,
    _decompose.app,
    _calibrate.app,
    _shift.app,
    _monitor.app,
    _report.app,
    _train.app,
    _data.app,
    _study.app,
    _papers.app,
)


def _version(value: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if value:
        echo(f"calibrant {__version__} (kernels: {kernel_details()})")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Calibration of classifiers."""


def application(command: str | None = None) -> typer.Typer:
    """All commands; where one of them is asked for, those of its module alone.

    Typer reads the signatures of all commands at each start, which takes longer than to measure a
    small file.
    """
    whole = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Calibration of classifiers: measure, compare, calibrate, train.",
    )
    whole.callback()(_root)
    for part in [part for part in PARTS if command in _names(part)] or PARTS:
        whole.add_typer(part)
    return whole


def _names(part: typer.Typer) -> set[str | None]:
    """Names of its commands and groups of commands."""
    commands = {command.name for command in part.registered_commands}
    return commands | {group.name for group in part.registered_groups}


app = application()


def main() -> None:
    """Entry point of the ``calibrant`` command."""
    prepare_streams()
    install()
    application(*sys.argv[1:2])()
