"""Draw the pictures of the page on plots, from the embedded examples and a few small trainings.

The trainings (four losses, three seeds, less than a minute each) are kept in the folder given on
the command line, so that a second call only draws.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from calibrant import metrics, plots
from calibrant.calibrators import TemperatureScaling
from calibrant.data import load
from calibrant.examples import load_example
from calibrant.predictions import Predictions
from calibrant.results import compare_runs
from calibrant.train import Recipe, predict, train
from common import save_picture

FOLDER = Path(__file__).parents[1] / "docs" / "plots"
OBJECTIVES = {
    "cross-entropy": "cross_entropy",
    "label smoothing": "label_smoothing:epsilon=0.1",
    "focal, γ = 3": "focal:gamma=3",
    "logit norm": "cross_entropy + 0.01*logit_norm",
}
RECIPE = Recipe(epochs=60, optimizer="adamw", learning_rate=0.003)
SEEDS = range(3)


def main() -> None:
    runs = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    FOLDER.mkdir(exist_ok=True)
    examples = {
        "cross-entropy": load_example("cross_entropy"),
        "label smoothing": load_example("label_smoothing"),
    }
    of_examples(examples)
    for name in OBJECTIVES:
        for seed in SEEDS:
            run(runs, name, seed)
    of_training(runs)
    of_a_study(runs)


def of_examples(models: dict[str, Predictions]) -> None:
    first = models["cross-entropy"]
    figure, axes = panels(1, 2, (9, 4.8))
    plots.reliability_diagram(first, bins=10, ax=axes[0])
    plots.reliability_diagram(models, bins=10, ax=axes[1])
    save(figure, "reliability")

    figure, axes = panels(1, 2, (9, 3.8))
    plots.confidence_density(first, ax=axes[0])
    plots.risk_coverage(models, ax=axes[1])
    save(figure, "confidence")

    figure, axes = panels(1, 3, (12, 3.8))
    plots.accuracy_confidence(models, bins=10, ax=axes[0])
    plots.accuracy_confidence(models, kind="above", ax=axes[1])
    plots.ece_uncertainty(models, ax=axes[2])
    save(figure, "thresholds")

    figure, axes = panels(1, 2, (9, 3.8))
    plots.temperature_curve(first, metric="ece", ax=axes[0])
    plots.temperature_curve(first, metric="nll", ax=axes[1])
    save(figure, "temperature")

    figure, axes = panels(1, 2, (9, 4.2))
    plots.classwise_reliability(first, bins=5, classes=[1, 5, 8], ax=axes[0])
    plots.ece_by_bins(models, ax=axes[1])
    save(figure, "bins")


def run(runs: Path, name: str, seed: int) -> Path:
    """The folder of a run, trained if it is not there yet."""
    folder = runs / f"{list(OBJECTIVES).index(name)}-{seed}"
    if not (folder / "run.json").exists():
        train(
            load("signals"),
            model="cnn1d",
            objective=OBJECTIVES[name],
            recipe=RECIPE,
            seed=seed,
            out=folder,
        )
        print(name, seed)
    return folder


def of_training(runs: Path) -> None:
    tables = {
        name: [pq.read_table(run(runs, name, seed) / "epochs.parquet") for seed in SEEDS]
        for name in OBJECTIVES
    }
    few = {name: tables[name] for name in ("cross-entropy", "focal, γ = 3")}
    figure, axes = panels(1, 3, (13, 4.6))
    plots.training_curves(tables, quantity="ece", ax=axes[0])
    plots.training_curves(few, quantity="nll", split=True, ax=axes[1])
    plots.training_curves(
        tables["cross-entropy"], quantity="error", part=("train", "test"), ax=axes[2]
    )
    save(figure, "training")

    figure, axes = panels(1, 2, (10, 3.8))
    for ax, name in zip(axes, ("cross-entropy", "label smoothing"), strict=True):
        folder = run(runs, name, 0)
        p = predict(folder, load("signals"), part="train")
        plots.max_logit_histograms(p.logits.max(axis=1), np.load(folder / "learned.npy"), ax=ax)
        ax.set_title(name)
    save(figure, "max_logit")


def of_a_study(runs: Path) -> None:
    data = load("signals")
    noise = np.random.default_rng(0).normal(size=data.x_test.shape).astype(data.x_test.dtype)
    shifted: dict = {name: {} for name in OBJECTIVES}
    before_after: dict = {"before": {}, "after temperature scaling": {}}
    errors = {}
    for name in OBJECTIVES:
        on_test = [Predictions.load(run(runs, name, seed) / "test.npz") for seed in SEEDS]
        errors[name] = np.mean([1 - metrics.accuracy(p) for p in on_test])
        before_after["before"][name] = [metrics.ece(p) for p in on_test]
        before_after["after temperature scaling"][name] = [
            metrics.ece(calibrated(run(runs, name, seed))) for seed in SEEDS
        ]
        for level in range(6):
            moved = (data.x_test + 0.3 * level * noise, data.y_test)
            shifted[name][level] = [
                metrics.ece(predict(run(runs, name, seed), data, shift=moved)) for seed in SEEDS
            ]
    figure, axes = panels(1, 2, (10, 3.8))
    plots.shift_levels(shifted, ax=axes[0])
    plots.bars(before_after, ylabel="ECE", percent=True, ax=axes[1])
    save(figure, "study")

    plain = before_after["before"]
    gains = {name: compare_runs(plain["cross-entropy"], plain[name]) for name in OBJECTIVES}
    del gains["cross-entropy"]
    figure, axes = panels(1, 2, (10, 3.4))
    plots.effect_sizes(
        {name: (100 * g.difference, 100 * g.low, 100 * g.high) for name, g in gains.items()},
        xlabel="ECE below that of cross-entropy (points)",
        ax=axes[0],
    )
    points = {name: (100 * errors[name], 100 * np.mean(plain[name])) for name in OBJECTIVES}
    plots.pareto(points, xlabel="error in %", ylabel="ECE in %", ax=axes[1])
    save(figure, "choice")


def calibrated(folder: Path) -> Predictions:
    held_out = Predictions.load(folder / "calibration.npz")
    return TemperatureScaling().fit(held_out).transform(Predictions.load(folder / "test.npz"))


def panels(rows: int, columns: int, size: tuple[float, float]) -> tuple:
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns)


def save(figure: Figure, name: str) -> None:
    save_picture(figure, FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
