"""The command ``measure``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calibrant._core.checks import refuse
from calibrant._loading import load_measurable
from calibrant._measure import Panel, measure
from calibrant.cli._common import (
    Csv,
    Json,
    one_line_errors,
    one_line_warnings,
    origin,
    refuse_given,
    show,
)
from calibrant.cli._conditions import fail_for_panels, parse_conditions
from calibrant.cli._executors import Address
from calibrant.cli._layout import OPTIONS, reads_files
from calibrant.cli._option_groups import with_metrics, with_resampling
from calibrant.cli._positive import with_decisions
from calibrant.cli._stream import (
    FilesExecutor,
    FilesWorkers,
    SkipBad,
    Streaming,
    measure_stream,
)
from calibrant.inference import Resampling

app = typer.Typer()


@app.command("measure")
@one_line_errors
@reads_files
@with_metrics
@with_decisions
@with_resampling
def measure_command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            help="File with predictions: npz, Parquet, CSV, JSON lines, safetensors, logits.npy, "
            "or an evaluation log; with --stream also several files, a folder, a pattern, or a URL "
            "such as s3://bucket/preds/*.parquet."
        ),
    ],
    *,
    labels: Annotated[
        str | None, typer.Option(help="File with the labels for logits.npy or probs.npy.")
    ] = None,
    chosen: dict[str, Any],
    decisions: dict[str, Any],
    by: Annotated[
        str | None,
        typer.Option(
            help="Name of a grouping in the file: metrics per group, and a test for differences."
        ),
    ] = None,
    intervals: Annotated[bool, typer.Option(help="Confidence intervals.")] = True,
    resampling: dict[str, Any],
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Streaming of Parquet files, in bounded memory."),
    ] = False,
    executor: FilesExecutor = None,
    workers: FilesWorkers = None,
    address: Address = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
    as_csv: Csv = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help='Condition for exit code 1, for example "ece.low > 0.02": the lower bound of the '
            "interval. Repeatable."
        ),
    ] = None,
    layout: dict[str, Any],
) -> None:
    """Measure how far a model's confidence can be trusted.

    Exit code 1: a --fail-if condition holds; 2: invalid input.
    """
    conditions = parse_conditions(fail_if, intervals=intervals)
    parallel = {"executor": executor, "workers": workers, "address": address}
    more = origin(paths, **resampling)
    if stream:
        from calibrant.streaming import STREAM_OPTIONS

        others = [name for name in OPTIONS if name not in STREAM_OPTIONS]
        unused = ["labels", "positive", "threshold", "costs", *others]
        refuse_given(context, unused, "cannot be used with --stream")
        with one_line_warnings():
            panel: Any = measure_stream(
                paths,
                Streaming(by, skip_bad, parallel, layout),
                resampling=Resampling(**resampling) if intervals else None,
                **chosen,
            )
    else:
        refuse_given(context, [*parallel, "skip_bad"], "needs --stream")
        keywords = {"intervals": intervals, **chosen, **decisions, **resampling}
        with one_line_warnings():
            p: Any = load_measurable(_single(paths), labels=labels, **layout)
            panel = measure(p, by=by, **keywords)
    show(panel, str(panel), as_json=as_json, as_csv=as_csv, more=more)
    single = isinstance(panel, Panel)
    fail_for_panels(conditions, {"": panel} if single else {name: panel[name] for name in panel})


def _single(paths: list[str]) -> str:
    if len(paths) > 1:
        rule, advice = "must be one file", "Add --stream for many Parquet files, or use compare."
        raise refuse("PATHS", rule, f"got {len(paths)}", advice)
    return paths[0]
