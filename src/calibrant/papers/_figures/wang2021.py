"""The figures of wang2021: regularised losses are calibrated, and less calibratable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from calibrant import plots
from calibrant._core.arrays import Float64, Int
from calibrant.calibrators import Calibrator, HistogramBinning, TemperatureScaling
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._panel import CALIBRATION, TEST, PlaceRuns, only_panel, panels
from calibrant.papers._figures._sheet import (
    curves,
    headroom,
    nothing,
    one_legend,
    sheet,
    title,
)
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, Place
from calibrant.plots._style import finish, in_per_cent, legend, line_style, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

from calibrant.papers._figures._wang_values import (
    NAMES,
    SPECTRUM,
    along_spectrum,
    best_by_size,
    ece_by_coefficient,
    ece_by_size,
    fitted,
    loss_curves,
    optimal_ece,
)

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


def _best_coefficients(ax: Axes, panel: PlaceRuns) -> None:
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
        (Need("main", NAMES),),
        figure6,
    ),
)
