"""The command line: each command calls one function and prints what it returns."""

from __future__ import annotations

import csv
import io
import json
import operator
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from calibrant import __version__, compare, load, measure
from calibrant import metrics as m
from calibrant._checks import CalibrationWarning, ConvergenceError, InputError, refuse
from calibrant.calibrate import calibrate_files, parse_options
from calibrant.measure import Panel, panel_of_stream
from calibrant.predictions import Confidences, Predictions
from calibrant.streaming import accumulate_parquet, parquet_files

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Honest probabilities for neural classifiers: measure, repair, compare.",
)

BAD_INPUT = 2
TERMINATED = 143


class Binning(StrEnum):
    """How confidences are cut into bins."""

    width = "width"
    mass = "mass"


Bins = Annotated[int, typer.Option(help="Bins of the ECE family.")]
Norm = Annotated[float, typer.Option(help="Order p of the ECE's norm; inf for the largest gap.")]
BinningOption = Annotated[Binning, typer.Option(help="Bins of equal width or of equal mass.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
Replicates = Annotated[int, typer.Option(help="Bootstrap replicates.")]
Seed = Annotated[int, typer.Option(help="Seed of the resampling: same seed, same intervals.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Metrics = Annotated[
    str | None, typer.Option(help="Names, separated by commas; default: the panel.")
]


def _one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input ends with exit code 2 and one line, never with a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (InputError, ConvergenceError, OSError, MemoryError) as error:
            _fail(_one_line(error) or type(error).__name__)

    return wrapped


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _fail(message: str) -> NoReturn:
    typer.echo(f"calibrant: {message}", err=True)
    raise typer.Exit(BAD_INPUT)


def _version(value: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if value:
        typer.echo(f"calibrant {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Honest probabilities for neural classifiers."""


@app.command("measure")
@_one_line_errors
def measure_command(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="npz, Parquet, CSV, safetensors or logits.npy; with --stream a pattern."
        ),
    ],
    *,
    labels: Annotated[str | None, typer.Option(help="Labels of logits.npy or probs.npy.")] = None,
    metrics: Metrics = None,
    bins: Bins = 15,
    norm: Norm = 1,
    binning: BinningOption = Binning.width,
    intervals: Annotated[bool, typer.Option(help="Compute intervals.")] = True,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read Parquet in bounded memory.")
    ] = False,
    as_json: Json = False,
    as_csv: Csv = False,
    fail_if: Annotated[
        list[str] | None, typer.Option(help='Exit 1 if true, for example "ece>0.05". Repeatable.')
    ] = None,
) -> None:
    """Measure how far a model's confidence can be trusted.

    With --stream no intervals are computed. Exit code 1: a --fail-if holds; 2: bad input.
    """
    conditions = [_condition(text) for text in fail_if or []]
    chosen = _names(metrics)
    shape: dict[str, Any] = {"bins": bins, "norm": norm, "binning": binning.value}
    if stream:
        panel = _measure_stream(paths, chosen, **shape)
    else:
        p = load(_single(paths), labels=labels)
        panel = measure(p, intervals=intervals, metrics=chosen, level=level, replicates=replicates,
                        seed=seed, **shape)  # fmt: skip
    _print(panel, str(panel), as_json=as_json, as_csv=as_csv)
    failed = [(text, name) for text, name, holds in conditions if holds(_value_for(panel, name))]
    for text, name in failed:
        typer.echo(f"calibrant: failed: {text} ({name} = {panel[name]:.6g})", err=True)
    if failed:
        raise typer.Exit(1)


@app.command("compare")
@_one_line_errors
def compare_command(
    paths: Annotated[list[Path], typer.Argument(help="Two or more files of the same samples.")],
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
    names = _distinct_names(paths)
    models: dict[str, Predictions | Confidences] = {
        name: load(path) for name, path in zip(names, paths, strict=True)
    }
    chosen = _names(metrics)
    result = compare(models, metrics=chosen, bins=bins, norm=norm, binning=binning.value,
                     level=level, replicates=replicates, seed=seed)  # fmt: skip
    _print(result, str(result), as_json=as_json, as_csv=as_csv)


@app.command("calibrate")
@_one_line_errors
def calibrate_command(
    *,
    fit: Annotated[
        Path | None, typer.Option(help="Predictions to fit on, not those of the training.")
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--load", help="A saved calibrator, instead of --fit.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Name of a calibrator; default: auto, the best of several.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help='Of the method, for example "bins=10". Repeatable.'),
    ] = None,
    apply: Annotated[
        list[str] | None,
        typer.Option(help="Predictions to calibrate; Parquet: also a folder or pattern."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write what --apply names.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the calibrator: c.json.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write it as an ONNX model: c.onnx.")] = None,
    level: Level = 0.95,
    replicates: Replicates = 1000,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Repair a model's probabilities: fit a calibrator, apply it, save it.

    Prints the metrics before and after: of --apply where that has labels, else of --fit, out of
    fold. Several Parquet files become one, in bounded memory and without intervals. If anything
    fails, nothing is written.
    """
    with _progress("fitting", unit="") as advance, _one_line_warnings():
        report = calibrate_files(
            fit=fit, load=saved, method=method, options=parse_options(option or []),
            apply=apply or [], out=out, save=save, onnx=onnx, level=level, replicates=replicates,
            seed=seed, progress=advance,
        )  # fmt: skip
    _print(report, str(report), as_json=as_json, as_csv=False)


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """What a fit warns of, once each, as a line on stderr."""
    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CalibrationWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            text = _one_line(message)
            if not issubclass(category, CalibrationWarning):
                usual(message, category, *where, **more)
            elif text not in seen:
                seen.add(text)
                typer.echo(f"calibrant: warning: {text}", err=True)

        warnings.showwarning = show
        yield


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
    with _progress("measuring") as advance:
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
                "must be of the panel with --stream",
                "Measure one file without --stream.",
            )
            raise refuse("--metrics", rule, f"got {name!r}", advice)
    return replace(panel, measured={name: panel.interval(name) for name in chosen})


@contextmanager
def _progress(what: str, unit: str = "rows") -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; nothing elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn(unit), TimeRemainingColumn())  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=None)
        yield lambda now, done, total: bar.update(
            task, description=now, completed=done, total=total
        )


_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def _condition(text: str) -> tuple[str, str, Callable[[float], bool]]:
    """Read ``metric>number`` into its text, the metric's name and a test."""
    match = re.fullmatch(r"\s*([a-z0-9_]+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*", text)
    try:
        if match is None:
            raise ValueError
        name, sign, bound = match[1], match[2], float(match[3])
    except ValueError:
        rule, advice = "must read metric>number", 'Write for example --fail-if "ece>0.05".'
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
            f"{name} is undefined for these predictions, so --fail-if cannot judge it."
        )
    return value


def _distinct_names(paths: list[Path]) -> list[str]:
    """File names without ending; whole paths where those repeat."""
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    if len(set(names)) != len(names):
        rule, advice = "must be different files", "Name each model once."
        raise refuse("PATHS", rule, f"got {names[0]!r} twice", advice)
    return names


def _print(data: Any, text: str, *, as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise refuse("--json/--csv", "takes one of the two", "got both", "Drop one.")
    if as_json:
        typer.echo(json.dumps(data.to_dict(), indent=2))
    elif as_csv:
        table = data.to_arrow()
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    else:
        typer.echo(text)


def main() -> None:
    """Entry point of the ``calibrant`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without − or … shows a ? instead
            stream.reconfigure(errors="replace")
    # Ended by a scheduler, too, unfinished files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    app()


if __name__ == "__main__":
    main()
