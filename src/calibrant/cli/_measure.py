"""The commands ``measure`` and ``compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from calibrant import __version__, compare, measure
from calibrant._core.checks import refuse
from calibrant._loading import load_labelled, load_measurable
from calibrant._measure import Panel
from calibrant.cli._common import (
    BinningChoice,
    BinningOption,
    Bins,
    Csv,
    Json,
    Level,
    Metrics,
    Norm,
    Replicates,
    Seed,
    one_line_errors,
    one_line_warnings,
    refuse_given,
    show,
)
from calibrant.cli._conditions import fail_for_comparison, fail_for_panels, parse_conditions
from calibrant.cli._executors import Address
from calibrant.cli._layout import OPTIONS, reads_files
from calibrant.cli._positive import (
    Costs,
    PositiveOption,
    Threshold,
    TopLabelOnly,
    cost_pair,
    positive_class,
)
from calibrant.cli._stream import (
    FilesExecutor,
    FilesWorkers,
    SkipBad,
    Streaming,
    measure_stream,
)
from calibrant.inference import Resampling

app = typer.Typer()
Record = TypeVar("Record")


@app.command("measure")
@one_line_errors
@reads_files
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
    metrics: Metrics = None,
    positive: PositiveOption = None,
    top_label: TopLabelOnly = False,
    bins: Bins = 15,
    norm: Norm = 1,
    binning: BinningOption = BinningChoice.width,
    threshold: Threshold = 0.5,
    costs: Costs = "1,1",
    by: Annotated[
        str | None,
        typer.Option(help="Name of a grouping in the file: metrics per group, and a test."),
    ] = None,
    intervals: Annotated[bool, typer.Option(help="Compute confidence intervals.")] = True,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="Read Parquet files in bounded memory."),
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
    chosen = _names(metrics)
    shape: dict[str, Any] = {"bins": bins, "norm": norm, "binning": binning.value}
    decisions: dict[str, Any] = {
        "positive": positive_class(positive, top_label=top_label),
        "threshold": threshold,
        "costs": cost_pair(costs),
    }
    resampling: dict[str, Any] = {"level": level, "replicates": replicates, "seed": seed}
    parallel = {"executor": executor, "workers": workers, "address": address}
    more = _origin(paths, **resampling)
    if stream:
        unused = ["labels", "positive", "threshold", "costs", *OPTIONS]
        refuse_given(context, unused, "cannot be used with --stream")
        panel: Any = measure_stream(
            paths,
            Streaming(by, skip_bad, parallel),
            metrics=chosen,
            resampling=Resampling(**resampling) if intervals else None,
            **shape,
        )
    else:
        refuse_given(context, [*parallel, "skip_bad"], "needs --stream")
        keywords = {"intervals": intervals, "metrics": chosen, **resampling, **shape, **decisions}
        with one_line_warnings():
            p: Any = load_measurable(_single(paths), labels=labels, **layout)
            panel = measure(p, by=by, **keywords)
    show(panel, str(panel), as_json=as_json, as_csv=as_csv, more=more)
    single = isinstance(panel, Panel)
    fail_for_panels(conditions, {"": panel} if single else {name: panel[name] for name in panel})


@app.command("compare")
@one_line_errors
@reads_files
def compare_command(
    paths: Annotated[
        list[str], typer.Argument(help="Two or more files with predictions for the same samples.")
    ],
    *,
    metrics: Metrics = None,
    positive: PositiveOption = None,
    top_label: TopLabelOnly = False,
    bins: Bins = 15,
    norm: Norm = 1,
    binning: BinningOption = BinningChoice.width,
    threshold: Threshold = 0.5,
    costs: Costs = "1,1",
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    as_json: Json = False,
    as_csv: Csv = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            help='Condition for exit code 1, for example "difference.nll.low > 0", where the '
            "difference is that of the first model minus the second. Repeatable."
        ),
    ] = None,
    layout: dict[str, Any],
) -> None:
    """Compare models on the same samples: paired differences, intervals, p-values."""
    conditions = parse_conditions(fail_if, of_difference=True)
    with one_line_warnings():
        result = compare(
            load_models(paths, layout),
            metrics=_names(metrics),
            positive=positive_class(positive, top_label=top_label),
            threshold=threshold,
            costs=cost_pair(costs),
            bins=bins,
            norm=norm,
            binning=binning.value,
            level=level,
            replicates=replicates,
            seed=seed,
        )
    facts = {"level": level, "replicates": replicates, "seed": seed}
    show(result, str(result), as_json=as_json, as_csv=as_csv, more=_origin(paths, **facts))
    fail_for_comparison(conditions, result)


def _names(metrics: str | None) -> list[str] | None:
    return [name.strip() for name in metrics.split(",")] if metrics else None


def _single(paths: list[str]) -> str:
    if len(paths) > 1:
        rule, advice = "must be one file", "Add --stream for many Parquet files, or use compare."
        raise refuse("PATHS", rule, f"got {len(paths)}", advice)
    return paths[0]


def _origin(paths: list[str], **facts: Any) -> dict[str, Any]:
    """What JSON output says about where a panel comes from."""
    sizes = [Path(path).stat().st_size for path in paths if Path(path).is_file()]
    return {
        "file": paths[0] if len(paths) == 1 else paths,
        "file_bytes": sum(sizes) if sizes else None,
        "version": __version__,
        **facts,
    }


def load_models(
    paths: list[str],
    layout: Mapping[str, Any],
    read: Callable[..., Record] = load_labelled,  # type: ignore[assignment]
) -> dict[str, Record]:
    """The records of several files, by name."""
    names = distinct_names(paths)
    return {name: read(path, **layout) for name, path in zip(names, paths, strict=True)}


def distinct_names(paths: list[str]) -> list[str]:
    """File names without extension; full paths if those repeat."""
    stems = [Path(path).stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else list(paths)
    if len(set(names)) != len(names):
        rule, advice = "must be different files", "Name each model once."
        raise refuse("PATHS", rule, f"got {names[0]!r} twice", advice)
    return names
