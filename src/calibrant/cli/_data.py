"""The commands ``data list``, ``data get`` and ``data features``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from calibrant._core.checks import refuse
from calibrant.cli._common import echo, one_line_errors, progress

data = typer.Typer(no_args_is_help=True, help="List and download data sets, and extract features.")
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
    """Download a data set. Interrupted downloads resume; known checksums are verified."""
    from calibrant.data import DATASETS, SHIFTS, download

    if folder is None and "CALIBRANT_DATA" not in os.environ:
        rule, advice = "must be given", "Pass it, or set the environment variable CALIBRANT_DATA."
        raise refuse("--data-dir", rule, "got none, and CALIBRANT_DATA is not set", advice)
    path = download(name, folder or Path(os.environ["CALIBRANT_DATA"]))
    echo(f"Wrote {path}.")
    remotes = DATASETS[name].remotes if name in DATASETS else SHIFTS[name].remotes
    if not all(remote.checksum for remote in remotes):
        echo(f"No checksum of {name} is known, so the files were not verified.", err=True)


@data.command("features")
@one_line_errors
def features_command(
    *,
    data: Annotated[str, typer.Option(help="Name of a data set, or your own .npz file of images.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the files; an interrupted command resumes.")
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help="Pretrained network, or an import path package.module:factory; for texts, a file "
            "of GloVe vectors."
        ),
    ] = "efficientnet_lite0",
    size: Annotated[
        int | None, typer.Option(help="Height and width that images are resized to.")
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            help="Shifted test set, such as generated/fog/3, or 'corruptions' for every generated "
            "corruption at every level. Repeatable."
        ),
    ] = None,
    train_samples: Annotated[
        int | None, typer.Option(help="Number of training samples to take; default: all.")
    ] = None,
    test_samples: Annotated[
        int | None, typer.Option(help="Number of test samples to take; default: all.")
    ] = None,
    shift_samples: Annotated[
        int | None, typer.Option(help="Number of samples to take from each shift; default: all.")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Numerical precision: auto, bf16 or fp32.")
    ] = "auto",
    folder: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder with the data files; default: CALIBRANT_DATA."),
    ] = None,
) -> None:
    """Extract features with a pretrained network or word vectors, to train classifiers on them.

    Writes a data set of vectors, which train and study accept as a path, and one file per shift.
    """
    from calibrant.data import DATASETS, check, load
    from calibrant.train import Backbone, WordVectors, load_texts, write_features

    check(data, argument="--data")
    network: Backbone | WordVectors
    if data in DATASETS and DATASETS[data].kind in ("tokens", "trees"):
        dataset = load_texts(data, backbone, folder)
        network = WordVectors(dataset, backbone)
    else:
        dataset = load(data, folder=folder)
        network = Backbone(backbone, size=size, precision=precision)
    with progress("extracting", unit="samples") as advance:
        paths = write_features(
            dataset,
            network,
            out,
            shifts=shift or (),
            train_samples=train_samples,
            test_samples=test_samples,
            shift_samples=shift_samples,
            folder=folder,
            progress=advance,
        )
    echo(f"Wrote {paths[0]}.")
    for path in paths[1:]:
        echo(f"Wrote {path}.")
