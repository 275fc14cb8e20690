"""The commands ``study run``, ``study status``, ``study table``, ``study tune`` and ``select``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from calibrant._core.checks import check_choice, check_processes, printable, refuse
from calibrant.cli._common import echo, fail, one_line, one_line_errors, one_line_warnings
from calibrant.cli._executors import Address, make_executor
from calibrant.cli._option_groups import OptionGroup

if TYPE_CHECKING:
    from calibrant.study import Executor, Run, Status, Study


app = typer.Typer()
study = typer.Typer(
    no_args_is_help=True, help="Run studies: many training runs from one file, resumable."
)
app.add_typer(study, name="study")


def _processes(what: str) -> Any:
    text = f"Number of {what}; default: chosen by a short benchmark."
    return Annotated[int | None, typer.Option(help=text)]


StudyFile = Annotated[
    str, typer.Argument(help='Study file (TOML), or "quick" for the built-in study.')
]
Out = Annotated[Path, typer.Option(help="Results folder.")]
MOST_SHOWN = 300  # characters of an error in a list
Gpus = Annotated[float, typer.Option(help="Number of GPUs per run (Ray only).")]
Retry = Annotated[bool, typer.Option("--retry", help="Failed runs are repeated.")]
Within = Annotated[float, typer.Option(help="Largest acceptable loss of accuracy, as a fraction.")]
with_workers = OptionGroup(
    "workers",
    {
        "executor": (Annotated[str, typer.Option(help="Executor: local or ray.")], "local"),
        "workers": (_processes("worker processes"), None),
        "threads": (_processes("threads per run"), None),
        "address": (Address, None),
    },
)


@study.command("run")
@one_line_errors
@with_workers
def run_command(
    file: StudyFile,
    *,
    out: Out,
    workers: dict[str, Any],
    gpus: Gpus = 0,
    retry: Retry = False,
) -> None:
    """Run the missing runs of a study, then print its findings.

    The command can be interrupted at any time; run it again to continue. Exit code 1: some runs
    failed.
    """
    from calibrant.results import read_all
    from calibrant.study import answer

    works = study_executor(**workers, gpus=gpus)
    chosen = _load(file)
    now = run_missing(chosen, out, works, retry=retry)
    echo(_counts(now))
    if now.count("done"):
        with one_line_warnings():
            table = read_all(out, labels=chosen.labels)
        echo(_tables(chosen, table))
        echo(answer(chosen, table))
    if now.count("failed"):
        echo(f"calibrant: {now.count('failed')} runs failed; see {out / 'failed'}.", err=True)
        raise typer.Exit(1)


@study.command("status")
@one_line_errors
def status_command(
    file: StudyFile,
    *,
    out: Out,
    workers: Annotated[
        int, typer.Option(help="Number of worker processes, used to estimate the time left.")
    ] = 1,
) -> None:
    """Show how many runs are done, running, failed and missing, and the time left."""
    from calibrant.results import Store
    from calibrant.study import status

    if not out.is_dir():
        rule, advice = "must be a results folder", f"Start with calibrant study run {file} --out …"
        raise refuse("--out", rule, f"got {str(out)!r}, which does not exist", advice)
    check_processes(**{"--workers": workers})
    chosen = _load(file)
    now = status(chosen, out)
    echo(_counts(now, workers))
    if now.damaged:
        echo(_damaged(now))
    store = Store(out)
    for run in chosen.runs:
        failure = store.failure(run.key)
        if now.states[run.key] == "failed" and failure is not None:
            echo(f"failed: {one_line(run)}: {one_line(failure['error'])[:MOST_SHOWN]}")


@study.command("table")
@one_line_errors
def table_command(
    out: Annotated[Path, typer.Argument(help="Results folder.")],
    *,
    rows: Annotated[
        str,
        typer.Option(
            help="Variables shown as rows, separated by commas: data, model, objective, …"
        ),
    ] = "objective",
    cols: Annotated[
        str, typer.Option(help="Variables shown as columns, separated by commas.")
    ] = "calibrator",
    metric: Annotated[str, typer.Option(help="Name of a metric.")] = "ece",
    where: Annotated[
        list[str] | None, typer.Option(help='Filter on a column, such as "part=test". Repeatable.')
    ] = None,
    spread: Annotated[
        str,
        typer.Option(help="Spread over seeds: std (standard deviation) or sem (standard error)."),
    ] = "std",
    baseline: Annotated[
        str | None,
        typer.Option(help="Column that the others are compared with: ▲ higher, ▼ lower."),
    ] = None,
    style: Annotated[
        str, typer.Option("--format", help="Output format: text, markdown, latex or csv.")
    ] = "text",
) -> None:
    """Print a table of means over seeds, with the best in bold and significance markers."""
    from calibrant.results import pivot, read_all

    check_choice("--spread", spread, ("std", "sem"))
    check_choice("--format", style, ("text", "markdown", "latex", "csv"))
    fixed = {"part": "test", **_fixed(where or [])}
    names = [rows.split(","), cols.split(",")]
    for name in (*names[0], *names[1]):
        fixed.pop(name, None)
    with one_line_warnings():
        results = read_all(out)
    made = pivot(
        results,
        rows=names[0],
        cols=names[1],
        metric=metric,
        where=fixed,
        spread=spread,
        baseline=baseline,
    )
    shown = {
        "text": lambda: made.to_text(color=sys.stdout.isatty()),
        "markdown": made.to_markdown,
        "latex": made.to_latex,
        "csv": made.to_csv,
    }
    echo(shown[style]())


@study.command("tune")
@one_line_errors
@with_workers
def tune_command(
    file: StudyFile,
    *,
    out: Out,
    workers: dict[str, Any],
    within: Within = 0.01,
) -> None:
    """Tune the coefficients that the study lists under tune, one at a time, by validation ECE."""
    from calibrant.study import StudyError, tune

    works = study_executor(**workers)
    try:
        with one_line_warnings():
            chosen = _load(file)
            for table in range(len(chosen.tunings)):
                echo(str(tune(chosen, out, executor=works, within=within, table=table)))
    except StudyError as error:
        fail(str(error))


@app.command("select")
@one_line_errors
@with_workers
def select_command(
    file: StudyFile,
    *,
    out: Out,
    score: Annotated[str, typer.Option(help="Score to minimise: nll or brier.")] = "nll",
    within: Within = 0.01,
    workers: dict[str, Any],
) -> None:
    """Choose the best loss and calibrator on validation samples; trains missing runs first."""
    from calibrant.study import select
    from calibrant.study._select import SCORES, check_within

    check_choice("--score", score, SCORES)  # check before hours of training
    check_within("--within", within)
    chosen, works = _load(file), study_executor(**workers)
    run_missing(chosen, out, works)
    for choice in select(chosen, out, score=score, within=within):
        echo(f"{choice}\n")


def _load(file: str) -> Study:
    """The study; checks that need PyTorch are made before the first run."""
    from calibrant.study import Study

    return Study.load(file, training=False)


def _damaged(now: Status) -> str:
    from calibrant.results._store import damaged_files

    return f"{damaged_files(now.damaged)}; the next study run recreates them"


def study_executor(
    executor: str, workers: int | None, threads: int | None, address: str | None, gpus: float = 0
) -> Executor:
    """The executor of a study; rejects options that it does not have."""
    from calibrant.study import EXECUTORS

    if not gpus >= 0:
        raise refuse("--gpus", "must be 0 or more", f"got {gpus}", "Try 0.5.")
    options = {"workers": workers, "threads": threads, "address": address, "gpus": gpus or None}
    found: Executor = make_executor(executor, EXECUTORS, options)
    return found


def _fixed(texts: list[str]) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            rule, advice = "must have the form column=value", 'Write for example "part=test".'
            raise refuse("--where", rule, f"got {text!r}", advice)
        found[name] = _seed(text, value) if name == "seed" else value
    return found


def _seed(text: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        rule, advice = "must have an integer as seed", 'Write for example "seed=0".'
        raise refuse("--where", rule, f"got {text!r}", advice) from None


def _counts(now: Status, workers: int = 1) -> str:
    text = ", ".join(f"{now.count(s)} {s}" for s in ("done", "running", "failed", "missing"))
    left = now.time_left(workers)
    if left and now.count("missing") + now.count("running"):
        minutes, seconds = divmod(round(left), 60)
        text += f"; about {minutes} min {seconds} s left"
    return text


def _tables(chosen: Study, table: Any) -> str:
    """The ECE by objective and calibrator, on the test samples and on each shift."""
    from calibrant.metrics import CALIBRATION_ERROR
    from calibrant.results import pivot

    measured = chosen.evaluation.metrics
    metric = CALIBRATION_ERROR if CALIBRATION_ERROR in measured else next(iter(measured))
    several = [n for n in ("data", "model") if len({getattr(r, n) for r in chosen.runs}) > 1]
    shown = []
    for part in ("test", *chosen.evaluation.shifts):
        order = {
            "part": part,
            "objective": list(dict.fromkeys(run.name for run in chosen.runs)),
            "calibrator": list(chosen.evaluation.calibrators),
        }
        made = pivot(
            table, rows=[*several, "objective"], cols="calibrator", metric=metric, where=order
        )
        shown.append(f"\n{metric}, {part}\n{made.to_text(color=sys.stdout.isatty())}")
    return "\n".join(shown) + "\n"


def run_missing(chosen: Study, out: Path, works: Executor, *, retry: bool = False) -> Status:
    """Run what is missing of a study, with a live table; fatal errors are reported in one line."""
    from calibrant.study import StudyError, run_study

    try:
        with one_line_warnings(), _live(chosen, works, out) as report:
            return run_study(chosen, out, executor=works, retry=retry, report=report)
    except StudyError as error:
        fail(str(error))


@contextmanager
def _live(
    chosen: Study, works: Executor, out: Path
) -> Iterator[Callable[[Run, str, Status], None] | None]:
    """A live table of the study on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    begun, ended = time.monotonic(), 0

    def report(_run: Run, _state: str, now: Status) -> None:
        nonlocal ended
        ended += 1
        rate = ended / (time.monotonic() - begun)
        live.update(_drawn(chosen, now, _time_left(now, works, out, rate)))

    with Live(_drawn(chosen), console=Console(stderr=True), transient=True) as live:
        yield report


def _drawn(chosen: Study, now: Status | None = None, left: float | None = None) -> Table:
    table = Table("objective", "done", "failed", "of", box=None, pad_edge=False)
    for name in dict.fromkeys(run.name for run in chosen.runs):
        keys = [run.key for run in chosen.runs if run.name == name]
        states = [] if now is None else [now.states[key] for key in keys]
        done, failed = states.count("done"), states.count("failed")
        table.add_row(Text(printable(name)), str(done), str(failed or ""), str(len(keys)))
    table.caption = "" if left is None else f"about {left:.0f} s left"
    return table


def _time_left(now: Status, works: Executor, out: Path, rate: float) -> float | None:
    """Seconds left; without a known number of workers, from the rate of finished runs."""
    workers = works.processes(out)
    if workers is not None:
        return now.time_left(workers)
    return (now.count("missing") + now.count("running")) / rate
