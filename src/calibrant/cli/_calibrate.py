"""The command ``calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant._core.options import parse_options
from calibrant.calibrators import AUTO, CALIBRATORS
from calibrant.cli._calibration import calibrate_files
from calibrant.cli._common import (
    Json,
    completed_list,
    one_line_errors,
    one_line_warnings,
    progress,
    show,
)
from calibrant.cli._layout import reads_files
from calibrant.cli._option_groups import with_resampling
from calibrant.cli._outputs import OnnxFile, SaveFile

app = typer.Typer()


@app.command("calibrate")
@one_line_errors
@reads_files
@with_resampling
def calibrate_command(
    *,
    fit: Annotated[
        str | None,
        typer.Option(help="Predictions to fit on, for samples the model was not trained on."),
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--load", help="Saved calibrator to use instead of --fit.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Name of the calibrator; default: auto, which selects one.",
            autocompletion=lambda incomplete: completed_list(incomplete, (AUTO, *CALIBRATORS)),
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help='Option of the method, for example "bins=10". Repeatable.'),
    ] = None,
    apply: Annotated[
        list[str] | None,
        typer.Option(help="Predictions to calibrate; for Parquet also a folder or pattern."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file for the calibrated predictions of --apply.")
    ] = None,
    save: SaveFile = None,
    onnx: OnnxFile = None,
    resampling: dict[str, Any],
    as_json: Json = False,
    layout: dict[str, Any],
) -> None:
    """Post-hoc calibration: fit a calibrator, apply it, save it.

    Prints the metrics before and after: on --apply if it has labels, otherwise on --fit, out of
    fold. Several Parquet files are written to one, in bounded memory and without intervals. If
    anything fails, nothing is written.
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
            layout=layout,
            progress=advance,
            **resampling,
        )
    show(report, str(report), as_json=as_json, as_csv=False)
