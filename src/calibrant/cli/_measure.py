"""The commands ``measure`` and ``compare``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant import compare, load, measure
from calibrant import metrics as m
from calibrant._core.checks import InputError, refuse
from calibrant._measure import Panel, panel_of_stream
from calibrant.cli._common import (
    Binning,
    BinningOption,
    Bins,
    Csv,
    Json,
    Level,
    Metrics,
    Norm,
    Replicates,
    Seed,
    echo,
    one_line_errors,
    progress,
    refuse_given,
    show,
)
from calibrant.predictions import Confidences, Predictions
from calibrant.streaming import accumulate_parquet, parquet_files

app = typer.Typer()


@app.command("measure")
@one_line_errors
def measure_command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            help="File with predictions: npz, Parquet, CSV, safetensors or logits.npy; "
            "with --stream also several, a folder or a pattern."
        ),
    ],
    *,
    labels: Annotated[
        str | None, typer.Option(help="File with the labels for logits.npy or probs.npy.")
    ] = None,
    metrics: Metrics = None,
    bins: Bins = 15,
    norm: Norm = 1,
    binning: BinningOption = Binning.width,
    intervals: Annotated[bool, typer.Option(help="Confidence intervals.")] = True,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Streaming of Parquet files in bounded memory, without intervals."
        ),
    ] = False,
    as_json: Json = False,
    as_csv: Csv = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help='Condition for exit code 1, for example "ece>0.05". Repeatable.'),
    ] = None,
) -> None:
    """Measure how far a model's confidence can be trusted.

    Exit code 1: a --fail-if condition holds; 2: invalid input.
    """
    conditions = [_condition(text) for text in fail_if or []]
    chosen = _names(metrics)
    shape: dict[str, Any] = {"bins": bins, "norm": norm, "binning": binning.value}
    if stream:
        unused = ["labels", "level", "replicates", "seed", *(["intervals"] if intervals else [])]
        refuse_given(context, unused, "cannot be used with --stream, which computes no intervals")
        panel = _measure_stream(paths, chosen, **shape)
    else:
        p = load(_single(paths), labels=labels)
        panel = measure(
            p,
            intervals=intervals,
            metrics=chosen,
            level=level,
            replicates=replicates,
            seed=seed,
            **shape,
        )
    show(panel, str(panel), as_json=as_json, as_csv=as_csv)
    failed = [(text, name) for text, name, holds in conditions if holds(_value_for(panel, name))]
    for text, name in failed:
        echo(f"calibrant: failed: {text} ({name} = {panel[name]:.6g})", err=True)
    if failed:
        raise typer.Exit(1)


@app.command("compare")
@one_line_errors
def compare_command(
    paths: Annotated[
        list[Path], typer.Argument(help="Two or more files with predictions for the same samples.")
    ],
    *,
    metrics: Metrics = None,
    bins: Bins = 15,
    norm: Norm = 1,
    binning: BinningOption = Binning.width,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compare models on the same samples: paired differences, intervals, p-values."""
    names = distinct_names(paths)
    models: dict[str, Predictions | Confidences] = {
        name: load(path) for name, path in zip(names, paths, strict=True)
    }
    chosen = _names(metrics)
    result = compare(
        models,
        metrics=chosen,
        bins=bins,
        norm=norm,
        binning=binning.value,
        level=level,
        replicates=replicates,
        seed=seed,
    )
    show(result, str(result), as_json=as_json, as_csv=as_csv)


def _names(metrics: str | None) -> list[str] | None:
    return [name.strip() for name in metrics.split(",")] if metrics else None


def _single(paths: list[str]) -> str:
    if len(paths) > 1:
        rule, advice = "must be one file", "Add --stream for many Parquet files, or use compare."
        raise refuse("PATHS", rule, f"got {len(paths)}", advice)
    return paths[0]


def _measure_stream(
    patterns: list[str], chosen: list[str] | None, *, bins: int, norm: float, binning: Any
) -> Panel:
    with progress("measuring") as advance:
        total = accumulate_parquet(
            parquet_files(patterns), bins=bins, progress=partial(advance, "measuring")
        )
    panel = panel_of_stream(total, norm=norm, binning=binning)
    if chosen is None:
        return panel
    for name in chosen:
        if name not in panel.measured:
            m.get_metric(name)  # refuses unknown names
            rule, advice = (
                "must be one of the default metrics with --stream",
                "Measure one file without --stream.",
            )
            raise refuse("--metrics", rule, f"got {name!r}", advice)
    return replace(panel, measured={name: panel.interval(name) for name in chosen})


_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def _condition(text: str) -> tuple[str, str, Callable[[float], bool]]:
    """Parse ``metric>number`` into its text, the name of the metric and a test."""
    match = re.fullmatch(r"\s*([a-z0-9_]+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*", text)
    try:
        if match is None:
            raise ValueError
        name, sign, bound = match[1], match[2], float(match[3])
    except ValueError:
        rule, advice = "must have the form metric>number", 'Write for example --fail-if "ece>0.05".'
        raise refuse("--fail-if", rule, f"got {text!r}", advice) from None
    m.get_metric(name)
    return text, name, lambda value: bool(_OPERATORS[sign](value, bound))


def _value_for(panel: Panel, name: str) -> float:
    if name not in panel.measured:
        rule, advice = "must name a measured metric", f"Add it: --metrics {name},…"
        raise refuse("--fail-if", rule, f"got {name!r}", advice)
    value = panel[name]
    if value != value:  # noqa: PLR0124 - NaN
        raise InputError(
            f"{name} is undefined for these predictions, so --fail-if cannot be evaluated."
        )
    return value


def distinct_names(paths: list[Path]) -> list[str]:
    """File names without extension; full paths if those repeat."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) != len(names):
        rule, advice = "must be different files", "Name each model once."
        raise refuse("PATHS", rule, f"got {names[0]!r} twice", advice)
    return names
