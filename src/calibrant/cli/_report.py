"""The command ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant._core.checks import refuse
from calibrant._core.files import check_output, same_file
from calibrant._loading import load_measurable
from calibrant.cli._common import (
    Bins,
    echo,
    one_line_errors,
    one_line_warnings,
    progress,
    refuse_given,
)
from calibrant.cli._compare import load_models
from calibrant.cli._layout import OPTIONS, reads_files
from calibrant.cli._option_groups import with_resampling
from calibrant.cli._positive import with_decisions

app = typer.Typer()


@app.command("report")
@one_line_errors
@reads_files
@with_decisions
@with_resampling
def report_command(
    context: typer.Context,
    paths: Annotated[
        list[str],
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
        str | None, typer.Option(help='Study file that the results folder belongs to, or "quick".')
    ] = None,
    decisions: dict[str, Any],
    by: Annotated[
        str | None, typer.Option(help="Grouping of the file to show; default: all of them.")
    ] = None,
    bins: Bins = 15,
    resampling: dict[str, Any],
    layout: dict[str, Any],
) -> None:
    """Write a self-contained HTML report: a verdict in plain words, and interactive charts.

    Models evaluated on the same samples are compared. The file works offline and makes no network
    requests.
    """
    if any(same_file(out, Path(path)) for path in paths):
        raise refuse("--out", "must not be an input", f"got {str(out)!r}", "Choose another name.")
    check_output("--out", out)
    if any(Path(path).is_dir() for path in paths):
        unused = ["bins", "level", "replicates", "seed", "positive", "top_label", "threshold"]
        unused += ["costs", "by", *OPTIONS]
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

    with progress("measuring", unit="") as advance, one_line_warnings():
        verdicts = write_report(
            load_models(paths, layout, load_measurable),
            out,
            title=title or "Calibration report",
            by=by,
            bins=bins,
            **decisions,
            **resampling,
            progress=advance,
        )
    for name, verdict in verdicts.items():
        echo(f"{name}: {verdict.headline}")
    echo(f"Written: {out}")


def _study_report(paths: list[str], out: Path, title: str | None, study: str | None) -> None:
    from calibrant.report import write_study_report
    from calibrant.study import Study

    if len(paths) > 1:
        rule, advice = "must be one folder, or one or more files", "Write one report per study."
        raise refuse("PATHS", rule, f"got {len(paths)} paths", advice)
    chosen = None if study is None else Study.load(study, training=False)
    with one_line_warnings():
        write_study_report(paths[0], out, title=title or "Study report", study=chosen)
    echo(f"Written: {out}")
