"""The command ``shift``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant import io
from calibrant._core.checks import refuse
from calibrant._loading import load_labelled, load_unlabelled
from calibrant.cli._common import (
    Json,
    one_line_errors,
    one_line_warnings,
    progress,
    show,
)
from calibrant.cli._layout import reads_files
from calibrant.cli._option_groups import with_resampling
from calibrant.cli._outputs import (
    OnnxFile,
    SaveFile,
    check_outputs,
    named_outputs,
    write_calibrator,
    written_together,
)
from calibrant.inference import LabelShift, label_shift
from calibrant.predictions import Predictions

app = typer.Typer()


class PriorChoice(StrEnum):
    """Estimators of class frequencies."""

    em = "em"
    bbse = "bbse"


@app.command("shift")
@one_line_errors
@reads_files
@with_resampling
def shift_command(
    validation: Annotated[
        str,
        typer.Argument(help="Labelled predictions for samples that the model was not trained on."),
    ],
    target: Annotated[
        str, typer.Argument(help="File with scores from where the model is used, without labels.")
    ],
    *,
    method: Annotated[
        PriorChoice,
        typer.Option(help="Estimator: maximum likelihood (em), or from predicted classes (bbse)."),
    ] = PriorChoice.em,
    out: Annotated[
        Path | None, typer.Option(help="Output file for the corrected scores of the target.")
    ] = None,
    save: SaveFile = None,
    onnx: OnnxFile = None,
    resampling: dict[str, Any],
    as_json: Json = False,
    layout: dict[str, Any],
) -> None:
    """Estimate the class frequencies of unlabelled data and correct the probabilities for them.

    Assumes label shift: only the class frequencies differ from those of the validation samples.
    Prints the frequencies with intervals, and a test of whether they changed.
    """
    with progress("estimating", unit=""), one_line_warnings():
        found, written = shift_files(
            validation,
            target,
            named_outputs(out, save, onnx),
            layout,
            method=method.value,
            **resampling,
        )
    text = str(found) + (f"\n\nWritten: {', '.join(written)}" if written else "")
    show(found, text, as_json=as_json, as_csv=False, more={"written": written})


def shift_files(
    validation: str,
    target: str,
    outputs: Mapping[str, Path],
    layout: Mapping[str, Any],
    **options: Any,
) -> tuple[LabelShift, list[str]]:
    """Estimate from two files, and write the outputs named; if anything fails, none is written."""
    check_outputs(outputs, [Path(validation), Path(target)])
    writer = io.writer_for(outputs["out"], "--out") if "out" in outputs else None
    p = load_labelled(validation, **layout)
    if not isinstance(p, Predictions):
        rule, advice = "must hold the scores of all classes", "Save logits or probabilities."
        raise refuse(Path(validation).name, rule, "got confidences", advice)
    scores, clusters = load_unlabelled(target, **layout)
    with written_together(outputs) as places:
        found = label_shift(p, scores, clusters=clusters, **options)
        write_calibrator(found.calibrator, places)
        if writer is not None:
            writer(places["out"], found.calibrator.transform(scores).columns())
    return found, list(map(str, outputs.values()))
