"""The command ``decompose``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from calibrant import metrics
from calibrant._core.formatting import show
from calibrant._loading import load_labelled
from calibrant.cli._common import (
    BinningChoice,
    BinningOption,
    Bins,
    Json,
    echo,
    one_line_errors,
    one_line_warnings,
)
from calibrant.cli._layout import reads_files
from calibrant.metrics import (
    BRIER_SCORE,
    CALIBRATION_ERROR,
    BrierDecomposition,
    ECEDecomposition,
)
from calibrant.predictions import Predictions

app = typer.Typer()


@app.command("decompose")
@one_line_errors
@reads_files
def decompose_command(
    path: Annotated[str, typer.Argument(help="File with predictions.")],
    *,
    labels: Annotated[
        str | None, typer.Option(help="File with the labels for logits.npy or probs.npy.")
    ] = None,
    bins: Bins = 15,
    binning: BinningOption = BinningChoice.width,
    as_json: Json = False,
    layout: dict[str, Any],
) -> None:
    """Split ECE and Brier score into calibration and refinement."""
    with one_line_warnings():
        p = load_labelled(path, labels=labels, **layout)
    ece = metrics.ece_decomposition(p, bins=bins, binning=binning.value)
    brier = metrics.brier_decomposition(p) if isinstance(p, Predictions) else None
    if as_json:
        found = {CALIBRATION_ERROR: asdict(ece)}
        if brier is not None:
            found[BRIER_SCORE] = asdict(brier)
        echo(json.dumps(found, indent=2))
        return
    echo("\n".join(_ece_lines(ece) + _brier_lines(brier)))


def _ece_lines(parts: ECEDecomposition) -> list[str]:
    rows = [
        ("ECE", parts.ece),
        ("= mean confidence (alpha)", parts.alpha),
        ("- refinement: AUROC times 2PN/(P+N)^2 (beta)", parts.beta),
        ("- (P^2+N^2) / 2(P+N)^2 (gamma)", parts.gamma),
        ("+ residual: what the assumptions miss", parts.residual),
    ]
    note = "P correct and N wrong predictions; singh2021, equation 9."
    return [*(f"{name:<46}{show(value, percent=True):>9}" for name, value in rows), note]


def _brier_lines(parts: BrierDecomposition | None) -> list[str]:
    if parts is None:
        return []
    rows = [
        ("Brier score", parts.brier),
        ("= calibration: what recalibration removes", parts.calibration),
        ("+ refinement: what it leaves", parts.refinement),
    ]
    return ["", *(f"{name:<46}{show(value, percent=False):>9}" for name, value in rows)]
