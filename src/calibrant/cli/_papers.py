"""The commands ``papers list``, ``papers show``, ``papers run`` and ``papers claims``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant._core.checks import check_choice, refuse
from calibrant._core.extras import need_extra
from calibrant._core.files import make_output_folder
from calibrant.cli._common import echo, one_line_errors, one_line_warnings
from calibrant.cli._study import Gpus, Retry, run_missing, study_executor, with_workers

if TYPE_CHECKING:
    from calibrant.papers import Experiment, Results
    from calibrant.study import Study

app = typer.Typer()
papers = typer.Typer(no_args_is_help=True, help="Reproduce the papers: tables, figures and claims.")
app.add_typer(papers, name="papers")

MADE = "papers"  # folder of the tables and figures
Paper = Annotated[str, typer.Argument(help="Name of a paper, such as wang2021; see papers list.")]
Name = Annotated[
    str, typer.Argument(help="Table or figure of the paper, such as table2 or figure4.")
]
ScaleName = Annotated[
    str,
    typer.Option(help="Scale: smoke (seconds), features (an hour), cpu (hours) or paper (GPUs)."),
]


@papers.command("list")
@one_line_errors
def list_command() -> None:
    """List the papers with their tables and figures."""
    from calibrant.papers import PAPERS, citation, experiments

    for paper in PAPERS:
        echo(f"{paper}: {citation(paper)}")
        for name, experiment in experiments(paper).items():
            echo(f"  {name:<10} {experiment.caption}")
        echo()


@papers.command("show")
@one_line_errors
def show_command(
    paper: Paper,
    name: Name,
    *,
    style: Annotated[
        str, typer.Option("--format", help="Output format: text, markdown or csv.")
    ] = "text",
) -> None:
    """Print a published table, or describe a figure."""
    from calibrant.papers import compare_table, get_experiment

    check_choice("--format", style, ("text", "markdown", "csv"))
    experiment = get_experiment(paper, name)
    if not experiment.is_table:
        echo(f"{paper}, {name}. {experiment.caption}")
        echo(f"Draw it: calibrant papers run {paper} {name} --scale smoke --out DIR")
        return
    made = compare_table(paper, name)
    shown = {"text": made.to_text, "markdown": made.to_markdown, "csv": made.to_csv}
    echo(shown[style]())


@papers.command("run")
@one_line_errors
@with_workers
def run_command(
    paper: Paper,
    name: Annotated[str, typer.Argument(help="Table or figure of the paper, or 'all'.")],
    *,
    out: Annotated[Path, typer.Option(help="Folder for the runs, tables and figures.")],
    scale: ScaleName = "smoke",
    formats: Annotated[
        str,
        typer.Option("--format", help="Formats of figures: png, svg, pdf, separated by commas."),
    ] = "png,svg,pdf",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List of the runs, without starting any.")
    ] = False,
    workers: dict[str, Any],
    gpus: Gpus = 0,
    retry: Retry = False,
) -> None:
    """Run the missing runs for a table or figure, then print or draw the results.

    The command can be interrupted at any time; run it again to continue. Tables and figures in the
    same folder share their runs. Exit code 1: some runs failed.
    """
    from calibrant.papers import (
        Results,
        experiments,
        get_experiment,
        merged,
        paper_at,
    )
    from calibrant.papers._experiments import FORMATS

    kinds = [check_choice("--format", kind.strip(), FORMATS) for kind in formats.split(",")]
    at = paper_at(paper, scale)
    wanted = list(experiments(paper).values()) if name == "all" else [get_experiment(paper, name)]
    studies = merged(study for experiment in wanted for study in experiment.studies(at))
    _announce(studies, scale, listed=dry_run)
    if dry_run:
        return
    works = study_executor(**workers, gpus=gpus)
    make_output_folder("--out", out / MADE)
    if not all(experiment.is_table for experiment in wanted):
        need_extra("matplotlib", "A figure")
    failed = sum(run_missing(study, out, works, retry=retry).count("failed") for study in studies)
    results = Results(at, out)
    with one_line_warnings():
        for experiment in wanted:
            _finish(experiment, results, out, kinds)
    if failed:
        echo(f"calibrant: {failed} runs failed; see {out / 'failed'}.", err=True)
        raise typer.Exit(1)


def _announce(studies: list[Study], scale: str, *, listed: bool) -> None:
    """Print the runs and the cost of the paper's recipes."""
    from calibrant.papers import cost, distinct_runs

    runs = distinct_runs(studies)
    if listed:
        for run in runs:
            recipe = ", ".join(f"{key} {value}" for key, value in run.recipe.items())
            echo(f"{run.key}  {run}  [{run.objective}; {recipe}]")
        echo()
    if scale == "paper" and runs:
        echo(f"The recipe of the paper: {cost(runs)}.")
    elif listed:
        echo(f"{len(runs)} runs.")


def _finish(experiment: Experiment, results: Results, out: Path, formats: list[str]) -> None:
    """Write and, for a table, print what was made."""
    folder = out / MADE
    if experiment.is_table:
        made = experiment.table(results)
        paths = experiment.write_table(made, folder, results.at.scale)
        echo(made.to_text())
    else:
        paths = experiment.write_figure(results, folder, formats)
    echo("written: " + ", ".join(map(str, paths)))


@papers.command("claims")
@one_line_errors
def claims_command(
    *,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Results folder of papers run, or evidence; default: the published tables."
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Scale of the results: smoke, features, tuned, cpu, networks or paper; "
            "default: detected."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output.")] = False,
) -> None:
    """Test every claim of the papers: effect, interval, and whether it holds.

    Without --results, the claims are tested on the published numbers.
    """
    from calibrant.papers import (
        Evidence,
        claims_json,
        claims_table,
        evidence_at,
        judge,
        scale_note,
        scale_of,
    )

    if results is None:
        if scale is not None:
            advice = "Name the folder, such as --results evidence."
            raise refuse("--scale", "needs --results", f"got {scale!r}", advice)
        evidence = Evidence.published()
    else:
        scale = scale or scale_of(results)
        evidence = evidence_at(results, scale)
        echo(f"Scale {scale}. {scale_note(scale)}\n", err=as_json)
    with one_line_warnings():
        judged = judge(evidence, needs=True)
    echo(claims_json(judged) if as_json else claims_table(judged))
