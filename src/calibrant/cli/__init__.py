"""The command line: each command calls one function and prints its result."""

from __future__ import annotations

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


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Calibration of classifiers: measure, compare, calibrate, train.",
)
for part in (
    _measure,
    _decompose,
    _calibrate,
    _shift,
    _monitor,
    _report,
    _train,
    _data,
    _study,
    _papers,
):
    app.add_typer(part.app)


def _version(value: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if value:
        echo(f"calibrant {__version__} (kernels: {kernel_details()})")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Calibration of classifiers."""


def main() -> None:
    """Entry point of the ``calibrant`` command."""
    prepare_streams()
    install()
    app()
