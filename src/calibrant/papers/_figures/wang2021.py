"""The figures of wang2021: regularised losses are calibrated, and less calibratable."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from calibrant import metrics, plots
from calibrant._core.arrays import Float64, Int
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import Calibrator, HistogramBinning, TemperatureScaling
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._panel import CALIBRATION, TEST, Panel, only_panel, panels
from calibrant.papers._figures._sheet import (
    curves,
    headroom,
    nothing,
    one_legend,
    sheet,
    title,
)
from calibrant.papers._results import Results
from calibrant.papers._run_measures import coefficient
from calibrant.papers._scales import Need, Place
from calibrant.plots._style import finish, in_per_cent, legend, line_style, whole_numbers
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from calibrant.study import Run

CIFAR10, CIFAR100 = Place("cifar10", "resnet32"), Place("cifar100", "resnet32")
PLACES = (Place("svhn", "resnet32"), CIFAR10, CIFAR100, Place("news20", "textcnn"))
METHODS = {
    "cross_entropy": "cross-entropy",
    "label_smoothing": "label smoothing",
    "cross_entropy + logit_norm": "L1 norm",
    "focal": "focal",
}
# Method -> the letter of its coefficient in the paper.
COEFFICIENTS = {"label_smoothing": "ε", "cross_entropy + logit_norm": "α", "focal": "γ"}
SWEEPS = ("main", "coefficients")
# From focal with γ = 3 over cross-entropy to inverse focal with γ̄ = 3: method -> name, -γ or γ̄.
SPECTRUM = {
    "focal": ("FL-3", -3),
    "focal 2": ("FL-2", -2),
    "focal 1": ("FL-1", -1),
    "cross_entropy": ("CE", 0),
    "inverse_focal 1": ("IFL-1", 1),
    "inverse_focal": ("IFL-2", 2),
    "inverse_focal 3": ("IFL-3", 3),
}
SMALLEST = 15  # validation samples: one for each bin
MOST_SIZES = 6


# --- figure 1: coefficients -------------------------------------------------------------------


def figure1(results: Results | None) -> Figure:
    """ECE against the coefficient, and the best coefficient against the training size."""
    found = panels(results, PLACES, SWEEPS)
    fig, rows = sheet(2, 2, width=4.4)
    axes = [ax for row in rows for ax in row]
    for letter, ax, (method, symbol) in zip("abc", axes, COEFFICIENTS.items(), strict=False):
        series = {panel.title: ece_by_coefficient(panel, method) for panel in found}
        series = {name: points for name, points in series.items() if points}
        if series:
            plots.coefficient_sensitivity(
                series,
                spread="std",
                xlabel=f"coefficient {symbol}",
                ax=ax,
                logx=method == "cross_entropy + logit_norm",
            )
        else:
            nothing(ax)
        title(ax, f"({letter}) {METHODS[method]}")
    _best_coefficients(axes[3], only_panel(results, CIFAR10, ("sizes",)))
    one_legend(fig, axes[:3])
    return fig


def strength_of(run: Run, method: str) -> float | None:
    """The coefficient of a regularised loss in a run; None if the run is of another loss."""
    swept = coefficient(run.objective)
    # Cross-entropy counts as smoothing by 0 there; the paper's curves begin above it.
    return swept[1] if swept and swept[0] == method and swept[1] > 0 else None


def ece_by_coefficient(
    panel: Panel, method: str, runs: Iterable[Run] = ()
) -> dict[float, list[float]]:
    """ECE of each seed by coefficient."""
    points: dict[float, list[float]] = {}
    for run in runs or panel.runs():
        strength, error = strength_of(run, method), panel.value(run, "ece")
        if strength is not None and error is not None:
            points.setdefault(strength, []).append(error)
    return points


def best_by_size(panel: Panel, method: str) -> dict[int, float]:
    """For each training size the coefficient of least mean ECE."""
    by_size: dict[int, list[Run]] = {}
    for run in panel.runs():
        if run.train_size is not None and strength_of(run, method) is not None:
            by_size.setdefault(run.train_size, []).append(run)
    found = {size: ece_by_coefficient(panel, method, runs) for size, runs in by_size.items()}
    return {
        size: min(points, key=lambda strength: float(np.mean(points[strength])))
        for size, points in sorted(found.items())
        if points
    }


def _best_coefficients(ax: Axes, panel: Panel) -> None:
    series = {
        f"{METHODS[method]}: {symbol}": best_by_size(panel, method)
        for method, symbol in COEFFICIENTS.items()
    }
    series = {name: points for name, points in series.items() if points}
    if series:
        plots.lines(
            series, spread=None, xlabel="training samples", ylabel="best coefficient", ax=ax
        )
        ax.set_yscale("log")  # the three differ by two powers of ten
    else:
        nothing(ax)
    title(ax, f"(d) {panel.title}")


# --- figures 2 and 3: after post-hoc calibration ----------------------------------------------


def figure2(results: Results | None) -> Figure:
    """Reliability diagrams of one run of each loss after temperature scaling."""
    (panel,) = panels(results, [CIFAR10])
    fig, rows = sheet(2, 2, width=4.6, height=4.8)
    axes = [ax for row in rows for ax in row]
    for ax, (method, name) in zip(axes, METHODS.items(), strict=True):
        kept = panel.predictions(method, CALIBRATION, TEST)
        if kept:
            (calibration, test), *_ = kept
            after = fitted(TemperatureScaling(objective="ece"), calibration).transform(test)
            plots.reliability_diagram(after, band=False, ax=ax)
        else:
            nothing(ax)
        title(ax, f"{name} after temperature scaling, {panel.title}")
    one_legend(fig, axes)
    return fig


def figure3(results: Results | None) -> Figure:
    """ECE after temperature scaling and after histogram binning against the validation size."""
    found = panels(results, PLACES)
    fig, rows = sheet(2, len(found), width=4.4)
    for row, (words, make) in zip(rows, WAYS.items(), strict=True):
        for ax, panel in zip(row, found, strict=True):
            series = {name: ece_by_size(panel, m, make) for m, name in METHODS.items()}
            series = {name: points for name, points in series.items() if points}
            if series:
                plots.lines(
                    series,
                    spread="std",
                    xlabel="validation samples",
                    ylabel="ECE",
                    logx=True,
                    percent=True,
                    ax=ax,
                )
                sizes = sorted({size for points in series.values() for size in points})
                ax.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
                ax.set_xticks([], minor=True)
            else:
                nothing(ax)
            title(ax, f"{words}, {panel.title}")
    one_legend(fig, [ax for row in rows for ax in row])
    return fig


WAYS: dict[str, Callable[[], Calibrator]] = {
    "temperature scaling": lambda: TemperatureScaling(objective="ece"),
    "histogram binning": HistogramBinning,
}


def fitted(calibrator: Calibrator, p: Predictions) -> Calibrator:
    """Fit, without the warnings: small samples are the point of figure 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(p)


def validation_sizes(num_samples: int) -> list[int]:
    """All samples, half of them, a quarter ... while there is one for each bin; rising.

    >>> validation_sizes(100)
    [25, 50, 100]
    """
    sizes = [num_samples]
    while len(sizes) < MOST_SIZES and sizes[0] // 2 >= SMALLEST:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def ece_by_size(
    panel: Panel, method: str, make: Callable[[], Calibrator]
) -> dict[int, list[float]]:
    """ECE of each seed on the test set after a fit on a part of the validation samples.

    A larger part holds the smaller ones; which samples come first is drawn with a fixed seed.
    """
    points: dict[int, list[float]] = {}
    for calibration, test in panel.predictions(method, CALIBRATION, TEST):
        order = np.random.default_rng(0).permutation(calibration.num_samples)
        for size in validation_sizes(calibration.num_samples):
            after = fitted(make(), calibration.take(np.sort(order[:size]))).transform(test)
            points.setdefault(size, []).append(metrics.ece(after))
    return points


# --- figures 4 and 5: what regularisation loses -----------------------------------------------


def figure4(results: Results | None) -> Figure:
    """Optimal ECE over the epochs of label smoothing, a line for each ε."""
    found = panels(results, PLACES, SWEEPS)
    columns = min(2, len(found))
    fig, rows = sheet(-(-len(found) // columns), columns, width=4.6, height=3.6)
    axes = [ax for row in rows for ax in row]
    for ax in axes[len(found) :]:
        ax.axis("off")
    measured = [optimal_ece(panel) for panel in found]
    strengths = sorted({strength for series in measured for strength in series})
    for ax, panel, series in zip(axes, found, measured, strict=False):
        for strength, (epoch, values) in series.items():
            style = line_style(strengths.index(strength))  # the same in all panels
            style["markevery"] = max(1, len(epoch) // 8)
            ax.plot(epoch, values.mean(axis=0), **style, label=f"ε = {strength:g}")
            ax.fill_between(
                epoch,
                values.min(axis=0),
                values.max(axis=0),
                color=style["color"],
                alpha=0.2,
                linewidth=0,
            )
        if series:
            finish(ax, "epoch", "ECE at the best temperature (%)")
            in_per_cent(ax.yaxis)
            whole_numbers(ax.xaxis)
            legend(ax, least=1, title="mean, and range of the runs")
        else:
            nothing(ax)
        title(ax, panel.title)
    one_legend(fig, axes, columns=6)
    return fig


def optimal_ece(panel: Panel) -> dict[float, tuple[Float64, Float64]]:
    """For each ε the epochs, from 1, and the optimal ECE of each seed (rows) in them."""
    runs: dict[float, list[Run]] = {}
    for run in panel.runs():
        strength = strength_of(run, "label_smoothing")
        if strength is not None:
            runs.setdefault(strength, []).append(run)
    found = {}
    for strength in sorted(runs):
        tables = panel.epochs(runs[strength], ["test_optimal_ece"])
        if tables:
            found[strength] = _by_epoch(tables, "test_optimal_ece")
    return found


def _by_epoch(tables: list[pa.Table], column: str) -> tuple[Float64, Float64]:
    """Epochs, from 1, and the values of each table (rows); NaN where one recorded none."""
    epochs = np.unique(np.concatenate([table["epoch"].to_numpy() for table in tables]))
    values = np.full((len(tables), len(epochs)), np.nan)
    for row, table in zip(values, tables, strict=True):
        row[np.searchsorted(epochs, table["epoch"].to_numpy())] = table[column].to_numpy()
    return epochs + 1.0, values


def figure5(results: Results | None) -> Figure:
    """Histograms of the largest logit by the epoch in which a sample was learned."""
    found = panels(results, (CIFAR10, CIFAR100))
    fig, rows = sheet(len(found), len(METHODS), width=3.8, height=3.6)
    for row, panel in zip(rows, found, strict=True):
        for ax, (method, name) in zip(row, METHODS.items(), strict=True):
            pair = panel.learned(method)
            if pair is None:
                nothing(ax)
            else:
                _draw_logits(ax, *pair)
            title(ax, f"{name}, {panel.title}")
    return fig


def _draw_logits(ax: Axes, logits: Float64, learned: Int) -> None:
    """The samples that were learned: a sample that is wrong at the end has no learned epoch."""
    known = learned >= 0
    if not known.any():
        nothing(ax, "no sample was learned")
        return
    bins = int(np.clip(np.sqrt(known.sum()), 10, 40))
    plots.max_logit_histograms(logits[known], learned[known], bins=bins, ax=ax)
    headroom(ax, 0.35)  # for the legend


# --- figure 6: from focal loss to its inverse -------------------------------------------------


def figure6(results: Results | None) -> Figure:
    """Focal, cross-entropy and inverse focal: the losses, and what training with them gives."""
    found = panels(results, PLACES)
    fig, rows = sheet(2, 3, width=4.4)
    axes = [ax for row in rows for ax in row]
    curves(axes[0], loss_curves(), xlabel="probability of the label", ylabel="loss")
    axes[0].set(xlim=(0, 1), ylim=(0, 5))
    title(axes[0], "(a) the losses")
    for letter, ax, (metric, calibrator, axis, words) in zip(
        "bcdef", axes[1:], MEASURED, strict=True
    ):
        series = {panel.title: along_spectrum(panel, metric, calibrator) for panel in found}
        series = {name: points for name, points in series.items() if points}
        if series:
            plots.lines(series, spread="std", ylabel=axis, percent=metric != "temperature", ax=ax)
            ax.set_xticks(
                [gamma for _, gamma in SPECTRUM.values()], [n for n, _ in SPECTRUM.values()]
            )
        else:
            nothing(ax)
        title(ax, f"({letter}) {words}")
    one_legend(fig, axes[1:])
    return fig


# Panels b to f: metric, calibrator, what the axis says, what the title says.
MEASURED = (
    ("accuracy", "none", "accuracy", "accuracy"),
    ("ece", "none", "ECE", "ECE as trained"),
    ("temperature", "temperature", "temperature", "temperature found by ECE"),
    ("ece", "temperature", "ECE", "ECE after temperature scaling"),
    ("ece", "histogram", "ECE", "ECE after histogram binning"),
)


def loss_curves() -> dict[str, tuple[Float64, Float64]]:
    """Each loss of the spectrum against the probability of the label, from the package's own."""
    import torch

    from calibrant.losses import focal, inverse_focal

    p = np.linspace(0, 1, 501)[1:-1]
    logits = torch.from_numpy(np.stack([np.log(p), np.log1p(-p)], axis=1))
    labels = torch.zeros(len(p), dtype=torch.int64)
    found = {}
    for name, gamma in SPECTRUM.values():
        loss = inverse_focal if gamma > 0 else focal  # γ = 0 is cross-entropy
        found[name] = (p, loss(logits, labels, gamma=abs(gamma)).numpy())
    return found


def along_spectrum(panel: Panel, metric: str, calibrator: str) -> dict[int, list[float]]:
    """Values of each seed by -γ of focal and γ̄ of inverse focal."""
    found = {gamma: panel.values(m, metric, calibrator) for m, (_, gamma) in SPECTRUM.items()}
    return {gamma: values for gamma, values in found.items() if values}


_ALL_FOUR = tuple(map(str, PLACES))

INFOS = (
    FigureInfo(
        "wang2021",
        "figure1",
        "How the ECE depends on the coefficient of three regularised losses, and the best "
        "coefficient as the training set grows. Mean and standard deviation over runs.",
        (
            "a: label smoothing, ECE against ε",
            "b: L1 norm, ECE against α",
            "c: focal, ECE against γ",
            f"d: best coefficient against training size, {CIFAR10}",
        ),
        (
            Need("main", tuple(COEFFICIENTS)),
            Need("coefficients"),
            Need("sizes"),
        ),
        figure1,
    ),
    FigureInfo(
        "wang2021",
        "figure2",
        "Reliability diagrams of one run of each loss after temperature scaling by ECE.",
        tuple(f"{name}, {CIFAR10}" for name in METHODS.values()),
        (Need("main", tuple(METHODS)),),
        figure2,
    ),
    FigureInfo(
        "wang2021",
        "figure3",
        "ECE after temperature scaling and after histogram binning against the number of "
        "validation samples they are fitted on. Mean and standard deviation over runs.",
        tuple(f"{words}, {place}" for words in WAYS for place in PLACES),
        (Need("main", tuple(METHODS)),),
        figure3,
    ),
    FigureInfo(
        "wang2021",
        "figure4",
        "ECE at the temperature that is best on the test set, over the epochs of training with "
        "label smoothing. Mean and range of the runs.",
        _ALL_FOUR,
        (Need("main", ("label_smoothing",)), Need("coefficients")),
        figure4,
    ),
    FigureInfo(
        "wang2021",
        "figure5",
        "Histograms of the largest logit of training samples, by the epoch from which a sample "
        "stayed correct. One run of each loss.",
        tuple(f"{name}, {place}" for place in (CIFAR10, CIFAR100) for name in METHODS.values()),
        (Need("main", tuple(METHODS)),),
        figure5,
    ),
    FigureInfo(
        "wang2021",
        "figure6",
        "Focal loss (FL-γ), cross-entropy (CE) and inverse focal loss (IFL-γ̄): the losses, and "
        "what networks trained with them give. Mean and standard deviation over runs.",
        (
            "a: loss curves",
            *(f"{x}: {words}" for x, (*_, words) in zip("bcdef", MEASURED, strict=True)),
        ),
        (Need("main", tuple(SPECTRUM)),),
        figure6,
    ),
)
