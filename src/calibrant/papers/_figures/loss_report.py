"""The figure of the report on losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant import plots
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._panel import panels
from calibrant.papers._figures._sheet import nothing, one_legend, sheet, title
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, Place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES = tuple(Place("cifar10", model) for model in ("resnet18", "resnet50", "vgg16"))
LOSS_LABELS = {
    "cross_entropy": "cross-entropy",
    "cross_entropy + negative_entropy": "entropy regularisation",
    "cross_entropy + logit_norm": "L1 norm",
    "focal": "focal",
}


def figure1(results: Results | None) -> Figure:
    """ECE on the test set over the epochs, a line for each loss, a panel for each network."""
    found = panels(results, PLACES)
    fig, ((*axes,),) = sheet(1, len(found), width=4.4)
    for ax, panel in zip(axes, found, strict=True):
        tables = {
            name: panel.epochs(panel.runs(loss), ["test_ece"]) for loss, name in LOSS_LABELS.items()
        }
        tables = {name: some for name, some in tables.items() if some}
        if tables:
            plots.training_curves(tables, quantity="ece", ax=ax)
        else:
            nothing(ax)
        title(ax, panel.title)
    one_legend(fig, axes)
    return fig


INFOS = (
    FigureInfo(
        "loss_report",
        "figure1",
        "ECE on the test set during training with four losses, for three networks.",
        tuple(map(str, PLACES)),
        (Need("main", tuple(LOSS_LABELS)),),
        figure1,
    ),
)
