"""The figures of mukhoti2020: what happens during training, and what focal loss asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from calibrant import plots
from calibrant._core.arrays import Float64
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._panel import PlaceRuns, only_panel
from calibrant.papers._figures._sheet import curves, nothing, one_legend, sheet, title
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACE = Place("cifar10", "resnet50")
LOSS_LABELS = {
    "cross_entropy": "cross-entropy",
    "focal 1": "focal, γ = 1",
    "focal 2": "focal, γ = 2",
    "focal": "focal, γ = 3",
}
SAMPLES = {
    "training": "train_{}",
    "training, correct": "train_{}_correct",
    "training, incorrect": "train_{}_incorrect",
    "test": "test_{}",
    "test, correct": "test_{}_correct",
    "test, incorrect": "test_{}_incorrect",
}
FIGURE2 = {
    "test_nll": "test NLL (nats)",
    "test_nll_correct": "test NLL, correct (nats)",
    "test_nll_incorrect": "test NLL, incorrect (nats)",
    "test_entropy_incorrect": "test entropy, incorrect (nats)",
    "head_norm": "norm of the last layer's weights",
}
GAMMAS = (1, 2, 3, 5)


def figure1(results: Results | None) -> Figure:
    """NLL, entropy, error and ECE over the epochs of training with cross-entropy."""
    panel = only_panel(results, PLACE, ("epochs",))
    fig, ((*axes,),) = sheet(1, 3, width=4.6, height=4.2)
    for ax, quantity in zip(axes, ("nll", "entropy"), strict=False):
        columns = {name: column.format(quantity) for name, column in SAMPLES.items()}
        _columns(ax, panel, columns, quantity)
    columns = {
        "training error": "train_error",
        "test error": "test_error",
        "test ECE": "test_ece",
    }
    _columns(axes[2], panel, columns, "error")
    axes[2].set_ylabel("error and ECE (%)")
    for ax, words in zip(axes, ("a: NLL", "b: entropy", "c: error and ECE"), strict=True):
        title(ax, f"({words[0]}){words[2:]}: {panel.title}")
    one_legend(fig, axes, columns=3)
    return fig


def _columns(ax: Axes, panel: PlaceRuns, columns: Mapping[str, str], quantity: str) -> None:
    """Several columns of the same runs as one line each."""
    tables = panel.epochs(panel.runs("cross_entropy"), list(columns.values()))
    if not tables:
        nothing(ax)
        return
    by_name = {
        name: [pa.table({"epoch": t["epoch"], quantity: t[column]}) for t in tables]
        for name, column in columns.items()
    }
    plots.training_curves(by_name, quantity=quantity, ax=ax)


def figure2(results: Results | None) -> Figure:
    """Five quantities over the epochs of training with cross-entropy and with focal loss."""
    panel = only_panel(results, PLACE, ("epochs",))
    fig, rows = sheet(2, 3, width=4.2)
    axes = [ax for row in rows for ax in row]
    for letter, ax, (column, words) in zip("abcde", axes, FIGURE2.items(), strict=False):
        tables = {
            name: panel.epochs(panel.runs(loss), [column]) for loss, name in LOSS_LABELS.items()
        }
        tables = {name: some for name, some in tables.items() if some}
        if tables:
            plots.training_curves(tables, quantity=column, ax=ax)
            ax.set_ylabel(words)
        else:
            nothing(ax)
        title(ax, f"({letter}) {panel.title}")
    axes[-1].axis("off")
    one_legend(fig, axes[:-1])
    return fig


def figure_a1(_: Results | None) -> Figure:
    """The probability that minimises the expected loss, against the true probability."""
    q = (1 - np.cos(np.linspace(0, np.pi, 201))) / 2  # close where the curves are steep
    series = {"cross-entropy": (q, optimum(q, gamma=0))}
    series |= {f"focal, γ = {gamma}": (q, optimum(q, gamma=gamma)) for gamma in GAMMAS}
    fig, ((ax,),) = sheet(1, 1, width=4.8, height=4.4)
    curves(ax, series, xlabel="true probability q", ylabel="optimal prediction p̂")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return fig


def optimum(q: Float64, *, gamma: float) -> Float64:
    """The prediction of least expected focal loss for two classes of probability q and 1 - q.

    The loss is convex in the prediction, so its slope over the logit changes sign once. That place
    is kept between two neighbours of 65 points, ten times; their distance ends as 120 / 64^10.

    >>> optimum(np.array([0.1, 0.5]), gamma=0).round(9)
    array([0.1, 0.5])
    """
    import torch

    from calibrant.losses import focal

    steps = np.linspace(0, 1, 65)
    targets = torch.from_numpy(np.stack([q, 1 - q], axis=1).repeat(len(steps), axis=0))
    low, high, rows = np.full(q.shape, -60.0), np.full(q.shape, 60.0), np.arange(len(q))
    for _ in range(10):
        grid = low[:, None] + (high - low)[:, None] * steps
        z = torch.from_numpy(grid.ravel()).requires_grad_()
        loss = focal(torch.stack([z, torch.zeros_like(z)], dim=1), targets, gamma=gamma).sum()
        (slope,) = torch.autograd.grad(loss, z)
        falling = (slope.numpy().reshape(grid.shape) < 0).sum(axis=1)
        right = np.clip(falling, 1, len(steps) - 1)
        low, high = grid[rows, right - 1], grid[rows, right]
    found: Float64 = 1 / (1 + np.exp(-(low + high) / 2))
    return found


INFOS = (
    FigureInfo(
        "mukhoti2020",
        "figure1",
        "NLL, entropy, error and ECE during training with cross-entropy, for training and test "
        "samples, correct and incorrect ones apart.",
        ("a: NLL", "b: entropy", "c: training error, test error, test ECE"),
        (Need("epochs", ("cross_entropy",)),),
        figure1,
    ),
    FigureInfo(
        "mukhoti2020",
        "figure2",
        "How quantities related to calibration change during training with cross-entropy and with "
        "focal loss of γ = 1, 2, 3.",
        tuple(f"{x}: {words}" for x, words in zip("abcde", FIGURE2.values(), strict=True)),
        (Need("epochs", tuple(LOSS_LABELS)),),
        figure2,
    ),
    FigureInfo(
        "mukhoti2020",
        "figureA1",
        "The prediction of least expected loss for a true probability q of one of two classes: q "
        "itself for cross-entropy, nearer to one half for focal loss.",
        ("optimal prediction against the true probability",),
        (),
        figure_a1,
    ),
)
