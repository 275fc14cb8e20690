"""The command line: each command calls one function and prints its result."""

from __future__ import annotations

import importlib
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
from calibrant.cli._common import echo
from calibrant.cli._conversion import convert_little
from calibrant.cli._output import prepare_streams


class _Commands(TyperGroup):
    """The commands; usage errors are made safe for the terminal too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_little(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            convert_little(command, ctx)
        return command

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


# The modules in the order of --help, each with the names of their commands and groups of commands.
PARTS = {
    "_measure": ("measure",),
    "_compare": ("compare",),
    "_decompose": ("decompose",),
    "_calibrate": ("calibrate",),
    "_shift": ("shift",),
    "_monitor": ("monitor",),
    "_report": ("report",),
    "_train": ("train", "predict"),
    "_data": ("data",),
    "_study": ("select", "study"),
    "_papers": ("papers",),
}


def _version(value: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if value:
        echo(f"calibrant {__version__} (kernels: {kernel_details()})")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Version of Calibrant."),
    ] = False,
) -> None:
    """Calibration of classifiers."""


def application(command: str | None = None) -> typer.Typer:
    """All commands; where one of them is asked for, those of its module alone.

    To load all of them and read their signatures takes longer than to measure a small file.
    """
    whole = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Calibration of classifiers: measure, compare, calibrate, train.",
    )
    whole.callback()(_root)
    for part in [part for part, names in PARTS.items() if command in names] or PARTS:
        whole.add_typer(importlib.import_module(f"calibrant.cli.{part}").app)
    return whole


def __getattr__(name: str) -> typer.Typer:
    """``app``, all commands, is made when it is first used."""
    if name != "app":
        raise AttributeError(f"module 'calibrant.cli' has no attribute {name!r}")
    return globals().setdefault("app", application())  # type: ignore[no-any-return]


def main() -> None:
    """Entry point of the ``calibrant`` command."""
    prepare_streams()
    install()
    application(*sys.argv[1:2])()
