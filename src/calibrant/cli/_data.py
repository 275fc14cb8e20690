"""The commands ``data list`` and ``data get``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from calibrant._core.checks import refuse
from calibrant.cli._common import echo, one_line_errors

data = typer.Typer(no_args_is_help=True, help="List and download data sets.")
app = typer.Typer()
app.add_typer(data, name="data")


@data.command("list")
@one_line_errors
def list_command() -> None:
    """List the data sets and shifted test sets."""
    from calibrant.data import DATASETS, SHIFTS
    from calibrant.data._sources import checked_by

    table = Table("name", "kind", "download checked by", "what", box=None, pad_edge=False)
    for info in DATASETS.values():
        table.add_row(info.name, info.kind, checked_by(info.remotes), info.description)
    for shift in SHIFTS.values():
        table.add_row(shift.name, "shift", checked_by(shift.remotes), shift.description)
    Console().print(table)


@data.command("get")
@one_line_errors
def get_command(
    name: Annotated[str, typer.Argument(help="Name of a data set.")],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder to download to; default: CALIBRANT_DATA."),
    ] = None,
) -> None:
    """Download a data set. Interrupted downloads resume; checksums are verified."""
    from calibrant.data import download

    if folder is None and "CALIBRANT_DATA" not in os.environ:
        rule, advice = "must be given", "Set CALIBRANT_DATA or pass --data-dir."
        raise refuse("--data-dir", rule, "got none", advice)
    path = download(name, folder or Path(os.environ["CALIBRANT_DATA"]))
    echo(f"Wrote {path}.")
