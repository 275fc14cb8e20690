"""The command ``monitor``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant._core.checks import refuse
from calibrant._core.files import check_output, same_file
from calibrant._loading import load
from calibrant._multilabel import MultiLabel
from calibrant.calibrators import Calibrator, load_calibrator
from calibrant.cli._common import Json, Level, one_line_errors, one_line_warnings, show
from calibrant.cli._layout import reads_files
from calibrant.streaming import Monitor

app = typer.Typer()


@app.command("monitor")
@one_line_errors
@reads_files
def monitor_command(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files of scores, with labels or without, in the order they arrived."),
    ] = None,
    *,
    reference: Annotated[
        str | None,
        typer.Option(help="Calibrated predictions to compare with, when the monitor starts."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="File that keeps the state between calls (JSON).")
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option("--load", help="Saved calibrator to apply to all files, for example c.json."),
    ] = None,
    counted: Annotated[
        bool,
        typer.Option(
            "--counted", help="Labels only: the samples were already counted without labels."
        ),
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(help="Largest probability of ever raising a false alarm; default: 0.05."),
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Tolerated miscalibration, as a fraction; default: 0.")
    ] = None,
    level: Level = 0.95,
    fail_on_alarm: Annotated[
        bool,
        typer.Option("--fail-on-alarm", help="Exit code 1 if calibration is refuted."),
    ] = False,
    as_json: Json = False,
    layout: dict[str, Any],
) -> None:
    """Monitor a calibrated model in production: expected accuracy, drift, a repeatable test.

    Without labels: the accuracy to expect if the model is still calibrated, and the drift of its
    confidences. With labels, as they come in: a test of calibration that may be repeated at any
    time. The probability that it ever raises a false alarm is at most alpha.
    """
    settings = {"alpha": alpha, "tolerance": tolerance}
    if not files and reference is None and state is None:
        advice = "Name files of scores, or the --state of a monitor that has started."
        raise refuse("FILES or --state", "must be given", "got neither", advice)
    _check_state(state, files or [])
    with one_line_warnings():
        fitted = None if calibrator is None else _loaded(calibrator)
        monitor = _started(state, reference, fitted, settings, layout)
        for path in files or []:
            monitor.update(_record(path, fitted, layout), counted=counted)
    if state is not None:
        monitor.save(state)
    report = monitor.report(level=level)
    show(report, str(report), as_json=as_json, as_csv=False)
    if fail_on_alarm and report.alarm:
        raise typer.Exit(1)


def _started(
    state: Path | None,
    reference: str | None,
    calibrator: Calibrator | None,
    settings: Mapping[str, float | None],
    layout: Mapping[str, Any],
) -> Monitor:
    """The monitor of the state file, or a new one."""
    given = {name: value for name, value in settings.items() if value is not None}
    if state is None or not state.exists():
        known = None if reference is None else _record(reference, calibrator, layout)
        return Monitor(known, **given)
    for name, value in {"reference": reference, **given}.items():
        if value is not None:
            rule, advice = "is set when a monitor starts", "Leave it out, or name another --state."
            raise refuse(f"--{name}", rule, f"got {state.name}, which has started", advice)
    return Monitor.load(state)


def _loaded(path: Path) -> Calibrator:
    fitted = load_calibrator(path)
    if not isinstance(fitted, Calibrator):
        rule, advice = "must need neither features nor several labels here", "Apply it in Python."
        raise refuse("--load", rule, f"got {type(fitted).__name__}", advice)
    return fitted


def _record(path: str, calibrator: Calibrator | None, layout: Mapping[str, Any]) -> Any:
    p = load(path, **layout)
    if isinstance(p, MultiLabel):
        rule, advice = "must have one label per sample", "Monitor each label on its own."
        raise refuse(Path(path).name, rule, f"got {p.num_labels:,}", advice)
    return p if calibrator is None else calibrator.transform(p)


def _check_state(state: Path | None, files: Sequence[str]) -> None:
    if state is None:
        return
    check_output("--state", state)
    if any(same_file(state, Path(file)) for file in files):
        rule, advice = "must not be one of the files", "Choose another name."
        raise refuse("--state", rule, f"got {str(state)!r}", advice)
