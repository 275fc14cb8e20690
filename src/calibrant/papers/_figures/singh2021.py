"""The figures of singh2021: calibration and refinement are two things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrant import Confidences, Predictions, metrics, plots
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._panel import TEST, PlaceRuns, panels
from calibrant.papers._figures._sheet import nothing, one_legend, sheet, title
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REAL = Place("cifar10", "vgg16")
PLACES = (
    Place("cifar10", "resnet50"),
    Place("cifar100", "resnet50"),
    Place("imagenet", "resnet50"),
)
HALF = 500


@dataclass(frozen=True)
class Scenario:
    """A made-up classifier of 500 correct and 500 incorrect predictions.

    The confidences of the correct ones are evenly spaced quantiles of Beta(a, b), those of the
    incorrect ones of Beta(b, a). The parameters were searched for, so that ECE and AUROC are those
    that the paper states.
    """

    words: str
    a: float
    b: float

    def confidences(self) -> Confidences:
        """The predictions."""
        from scipy.stats import beta

        correct = beta(self.a, self.b).ppf((np.arange(HALF) + 0.5) / HALF)
        return Confidences(
            confidence=np.concatenate([correct, 1 - correct]), correct=np.repeat([1, 0], HALF)
        )


SCENARIOS = (
    Scenario("calibrated, not refined", 5.689, 4.106),
    Scenario("refined, not calibrated", 6.876, 1.98),
    Scenario("calibrated and refined", 0.704, 0.209),
)
METHODS = {"cross_entropy": "baseline", "label_smoothing": "label smoothing"}


def figure1(results: Results | None) -> Figure:
    """Three made-up scenarios, and what label smoothing does to a real network."""
    fig, rows = sheet(2, 3, width=4.0)
    axes = [ax for row in rows for ax in row]
    for letter, ax, scenario in zip("abc", axes, SCENARIOS, strict=False):
        p = scenario.confidences()
        _draw_density(ax, p)
        numbers = f"ECE {metrics.ece(p):.2f}, AUROC {100 * metrics.auroc(p):.2f} %"
        title(ax, f"({letter}) made up: {scenario.words}", numbers)
    (panel,) = panels(results, [REAL])
    for letter, ax, (method, name) in zip("de", axes[3:], METHODS.items(), strict=False):
        _density(ax, panel, method, f"({letter}) {name}, {panel.title}")
    axes[-1].axis("off")
    one_legend(fig, axes)
    return fig


def figure2(results: Results | None) -> Figure:
    """Densities of the confidence of correct and incorrect predictions, for three data sets."""
    found = panels(results, PLACES)
    fig, ((*axes,),) = sheet(1, len(found), width=4.4)
    for ax, panel in zip(axes, found, strict=True):
        _density(ax, panel, "cross_entropy", panel.title)
    one_legend(fig, axes)
    return fig


def _draw_density(ax: Axes, p: Predictions | Confidences) -> None:
    """Densities under names that all panels share; the AUROC goes into the title."""
    plots.confidence_density(p, ax=ax)
    for text in list(ax.texts):
        text.remove()
    for line, name in zip(ax.lines, ("correct", "incorrect"), strict=True):
        line.set_label(name)


def _density(ax: Axes, panel: PlaceRuns, method: str, words: str) -> None:
    """The densities of one run: the first seed."""
    kept = panel.predictions(method, TEST)
    if kept:
        ((p,), *_) = kept
        _draw_density(ax, p)
        numbers = f"ECE {100 * metrics.ece(p):.2f} %, AUROC {100 * metrics.auroc(p):.2f} %"
        title(ax, words, numbers)
    else:
        nothing(ax)
        title(ax, words)


INFOS = (
    FigureInfo(
        "singh2021",
        "figure1",
        "Calibration and refinement differ: three made-up classifiers of 50 % accuracy, and a "
        "network trained with cross-entropy and with label smoothing.",
        (
            *(f"{letter}: {s.words}" for letter, s in zip("abc", SCENARIOS, strict=True)),
            f"d: baseline, {REAL}",
            f"e: label smoothing, {REAL}",
        ),
        (Need("main", tuple(METHODS)),),
        figure1,
    ),
    FigureInfo(
        "singh2021",
        "figure2",
        "Densities of the confidence of correct and of incorrect predictions of plain networks.",
        tuple(map(str, PLACES)),
        (Need("main", ("cross_entropy",)),),
        figure2,
    ),
)
