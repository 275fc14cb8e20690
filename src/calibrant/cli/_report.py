"""The command ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant import load
from calibrant._core.checks import refuse
from calibrant._core.files import same_file
from calibrant.cli._common import (
    Bins,
    Level,
    Replicates,
    Seed,
    echo,
    one_line_errors,
    one_line_warnings,
    progress,
    refuse_given,
)
from calibrant.cli._measure import distinct_names
from calibrant.predictions import Confidences, Predictions

app = typer.Typer()


@app.command("report")
@one_line_errors
def report_command(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files with predictions, one per model, or the results folder of a study."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output file (HTML).")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    study: Annotated[
        str | None, typer.Option(help='Study file of a results folder, or "quick".')
    ] = None,
    bins: Bins = 15,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
) -> None:
    """Write a self-contained HTML report: a verdict in plain words, and interactive charts.

    Models evaluated on the same samples are compared. The file works offline and makes no network
    requests.
    """
    if any(same_file(out, path) for path in paths):
        raise refuse("--out", "must not be an input", f"got {str(out)!r}", "Choose another name.")
    if any(path.is_dir() for path in paths):
        unused = ["bins", "level", "replicates", "seed"]
        refuse_given(context, unused, "applies to files with predictions, not to a results folder")
        _study_report(paths, out, title, study)
        return
    if study is not None:
        rule, advice = (
            "applies to the results folder of a study",
            "Leave it out, or pass the folder.",
        )
        raise refuse("--study", rule, f"got {study!r} with files", advice)
    from calibrant.report import write_report

    models: dict[str, Predictions | Confidences] = {
        name: load(path) for name, path in zip(distinct_names(paths), paths, strict=True)
    }
    with progress("measuring", unit="") as advance, one_line_warnings():
        verdicts = write_report(
            models,
            out,
            title=title or "Calibration report",
            bins=bins,
            level=level,
            replicates=replicates,
            seed=seed,
            progress=advance,
        )
    for name, verdict in verdicts.items():
        echo(f"{name}: {verdict.headline}")
    echo(f"Written: {out}")


def _study_report(paths: list[Path], out: Path, title: str | None, study: str | None) -> None:
    from calibrant.report import write_study_report
    from calibrant.study import Study

    if len(paths) > 1:
        rule, advice = "must be one folder, or one or more files", "Write one report per study."
        raise refuse("PATHS", rule, f"got {len(paths)} paths", advice)
    chosen = None if study is None else Study.load(study, training=False)
    with one_line_warnings():
        write_study_report(paths[0], out, title=title or "Study report", study=chosen)
    echo(f"Written: {out}")
