"""The command ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant._core.options import parse_options
from calibrant.cli._calibration import calibrate_files
from calibrant.cli._common import (
    Json,
    Level,
    Replicates,
    Seed,
    one_line_errors,
    one_line_warnings,
    progress,
    show,
)

app = typer.Typer()


@app.command("calibrate")
@one_line_errors
def calibrate_command(
    *,
    fit: Annotated[
        Path | None, typer.Option(help="Predictions to fit on, not those of the training.")
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--load", help="A saved calibrator, instead of --fit.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Name of a calibrator; default: auto, the best of several.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help='Of the method, for example "bins=10". Repeatable.'),
    ] = None,
    apply: Annotated[
        list[str] | None,
        typer.Option(help="Predictions to calibrate; Parquet: also a folder or pattern."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write what --apply names.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the calibrator: c.json.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write it as an ONNX model: c.onnx.")] = None,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Repair a model's probabilities: fit a calibrator, apply it, save it.

    Prints the metrics before and after: of --apply where that has labels, else of --fit, out of
    fold. Several Parquet files become one, in bounded memory and without intervals. If anything
    fails, nothing is written.
    """
    with progress("fitting", unit="") as advance, one_line_warnings():
        report = calibrate_files(
            fit=fit,
            load=saved,
            method=method,
            options=parse_options(option or []),
            apply=apply or [],
            out=out,
            save=save,
            onnx=onnx,
            level=level,
            replicates=replicates,
            seed=seed,
            progress=advance,
        )
    show(report, str(report), as_json=as_json, as_csv=False)
