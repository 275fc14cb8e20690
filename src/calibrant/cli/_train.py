"""The commands ``train`` and ``predict``. PyTorch is loaded when they run, not before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from calibrant import io, measure
from calibrant._core.checks import check_choice, check_share_or_count, refuse
from calibrant._core.files import check_output
from calibrant._core.formatting import show
from calibrant._core.options import parse_options
from calibrant.cli._common import echo, fail, one_line_errors
from calibrant.metrics import default_metrics

if TYPE_CHECKING:
    from calibrant.data import Dataset
    from calibrant.train import EarlyStopping, Moment

app = typer.Typer()

DataOption = Annotated[str, typer.Option(help="Name of a data set, or your own .npz file.")]
DataFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder with the data files; default: CALIBRANT_DATA."),
]


@app.command("train")
@one_line_errors
def train_command(
    *,
    data: DataOption,
    out: Annotated[Path, typer.Option(help="Folder of the run; an interrupted run resumes.")],
    model: Annotated[
        str,
        typer.Option(
            help="Name of a network, such as resnet20, cnn1d or mlp; or package.module:name."
        ),
    ] = "resnet20",
    objective: Annotated[
        str,
        typer.Option(
            help='Training objective, such as "focal:gamma=3" or "cross_entropy + 2*mmce".'
        ),
    ] = "cross_entropy",
    recipe: Annotated[
        str,
        typer.Option(
            help="Name of a recipe: epochs, optimiser and schedule, such as quick or cifar."
        ),
    ] = "cifar",
    option: Annotated[
        list[str] | None,
        typer.Option(help='Option of the recipe, such as "learning_rate=0.05". Repeatable.'),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs; overrides the recipe.")
    ] = None,
    calibration: Annotated[
        str,
        typer.Option(
            help="Training samples held out for calibration: a fraction, a number, or dev for the "
            "development set of the data."
        ),
    ] = "0.1",
    train_size: Annotated[
        int | None, typer.Option(help="Number of training samples to use; default: all.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed of split, weights, order and augmentation.")
    ] = 0,
    stop: Annotated[
        str | None,
        typer.Option(help="Criterion for early stopping: nll, ece, refinement or accuracy."),
    ] = None,
    patience: Annotated[
        int, typer.Option(help="Number of epochs without improvement before --stop ends the run.")
    ] = 10,
    telemetry: Annotated[
        bool, typer.Option(help="Training history, recorded on test samples after every epoch.")
    ] = True,
    telemetry_samples: Annotated[
        int | None,
        typer.Option(
            help="Number of test samples for the training history; default: chosen by size."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Numerical precision: auto, bf16 or fp32.")
    ] = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compilation with torch.compile.")
    ] = False,
    folder: DataFolder = None,
) -> None:
    """Train a network and write its weights, training history and predictions.

    Under torchrun, each batch is split among the processes. After an interruption, run it again: it
    resumes from the last epoch and ends with the same weights.
    """
    from calibrant.train import TrainingError, get_recipe, train

    kept = _share_or_number(calibration)
    changes: dict[str, Any] = parse_options(option or [])
    if epochs is not None:
        changes["epochs"] = epochs
    chosen = get_recipe(recipe, **changes)
    stopping = None if stop is None else _stopping(stop, patience)
    dataset = _load(data, folder)
    try:
        with _bar() as report:
            trained = train(
                dataset,
                model=model,
                objective=objective,
                recipe=chosen,
                seed=seed,
                out=out,
                calibration=kept,
                train_size=train_size,
                telemetry=telemetry,
                telemetry_samples=telemetry_samples,
                stop=stopping,
                precision=precision,
                compiled=compiled,
                report=report,
            )
    except TrainingError as error:
        fail(str(error))
    echo(
        str(measure(trained.predictions["test"], metrics=default_metrics("train"), replicates=200))
    )
    echo(f"\nWrote {out}: weights, epochs.parquet, calibration.npz, test.npz.")


@app.command("predict")
@one_line_errors
def predict_command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    *,
    out: Annotated[Path, typer.Option(help="Output file for the predictions, such as preds.npz.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Data set that the run was trained on, or the path of your own .npz file."
        ),
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split to predict: train, calibration or test.")
    ] = "test",
    shift: Annotated[
        str | None, typer.Option(help='Shifted test set, such as "cifar10-c/fog/3".')
    ] = None,
    folder: DataFolder = None,
) -> None:
    """Write the predictions of a trained network: logits and labels, for measure and calibrate."""
    from calibrant.data import DATASETS, load_shift
    from calibrant.train import predict, read_run

    io.writer_for(out, "--out")
    check_output("--out", out)
    name = data or read_run(run)["data"]
    if data is None and name not in DATASETS:
        rule, advice = "must name the file the run was trained on", f"Try --data {name}.npz."
        raise refuse("--data", rule, "got none", advice)
    dataset = _load(name, folder)
    shifted = None if shift is None else load_shift(shift, folder=folder)[:2]
    p = predict(run, dataset, part=split, shift=shifted)
    p.save(out)
    echo(f"Wrote {out}: {p.num_samples:,} predictions of {p.num_classes} classes.")


def _share_or_number(text: str) -> float | int | str:
    """Parse --calibration: an integer is a number of samples, a decimal a fraction, or "dev".

    >>> _share_or_number("0.1"), _share_or_number("500"), _share_or_number("dev")
    (0.1, 500, 'dev')
    """
    if text == "dev":
        return text
    value: float | int | str = text
    with suppress(ValueError):
        value = int(text) if text.isdecimal() else float(text)
    return check_share_or_count("--calibration", value, example=0.1, least=0, written=text)


def _stopping(criterion: str, patience: int) -> EarlyStopping:
    """The early stopping that --stop asks for."""
    from calibrant.train import EarlyStopping
    from calibrant.train._stopping import CRITERIA

    check_choice("--stop", criterion, CRITERIA)
    return EarlyStopping(criterion, patience)  # type: ignore[arg-type]


def _load(name: str, folder: Path | None) -> Dataset:
    from calibrant.data import check, load

    check(name, argument="--data")
    return load(name, folder=folder)


@contextmanager
def _bar() -> Iterator[Callable[[Moment], None] | None]:
    """A progress bar with loss, accuracy, ECE, speed and time left on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    text = TextColumn("epoch {task.description}"), TextColumn("{task.fields[now]}")
    columns = (text[0], BarColumn(), text[1], TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("1", total=None, now="")

        def report(at: Moment) -> None:
            now = f"loss {at.loss:.3f}"
            if "test_error" in at.last:
                accuracy = show(1 - at.last["test_error"], percent=True, decimals=1)
                ece = show(at.last["test_ece"], percent=True, decimals=1)
                now += f" · accuracy {accuracy} · ECE {ece}"
            now += f" · {at.images_per_second:,.0f}/s"
            done, total = at.epoch * at.steps + at.step, at.epochs * at.steps
            bar.update(
                task,
                description=f"{at.epoch + 1}/{at.epochs}",
                completed=done,
                total=total,
                now=now,
            )

        yield report
