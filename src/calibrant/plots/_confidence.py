"""Confidence as a ranking: densities, thresholds, coverage; uncertainty against error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from calibrant import metrics
from calibrant._core.checks import check_choice, check_count
from calibrant.metrics._binning import Binning
from calibrant.metrics._sample import check_measurable
from calibrant.plots._curves import accuracy_above, density, evenly_spaced, risk_by_coverage
from calibrant.plots._inputs import Plottable, PlottableModels, as_models, full_predictions
from calibrant.plots._style import (
    COLOURS,
    REFERENCE,
    axes,
    fact_and_legend,
    finish,
    in_per_cent,
    legend,
    line_style,
    per_cent,
    shown,
    titled,
)
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A line with more points looks the same and makes large files.
MOST_POINTS = 2000


def confidence_density(p: Plottable, *, points: int = 400, ax: Axes | None = None) -> Axes:
    """Densities of the confidence of correct and of incorrect predictions.

    The less the two overlap, the better confidence separates correct from incorrect predictions,
    which the AUROC in the corner measures. Each area is 1, regardless of the accuracy. Gaussian
    kernels of Scott's bandwidth, reflected at the lowest confidence there can be, 1 / K (0 for
    ``Confidences``, which do not know K), and at 1. A group without samples is named and not drawn.

    Parameters
    ----------
    p
        Predictions or Confidences.
    points
        Number of points per curve, at least 16.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Singh et al. (2021), Figure 2.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> ax = confidence_density(load_example("cross_entropy"))
    >>> ax.texts[0].get_text()
    'AUROC 84.1 %'
    """
    check_measurable(p)
    check_count("points", points, least=16, most=100_000, example=400)
    ax = axes(ax)
    low = 1 / p.num_classes if isinstance(p, Predictions) else 0.0
    parts = (("correct", p.correct), ("incorrect", ~p.correct))
    for (name, mask), colour, dash in zip(parts, COLOURS, ("-", "--"), strict=False):
        count = int(mask.sum())
        x, y = density(p.confidence[mask], low=low, points=points) if count else ((), ())
        label = f"{name} ({count:,})" if count else f"{name} (none)"
        ax.plot(x, y, color=colour, linestyle=dash, linewidth=1.8, label=label)
        ax.fill_between(x, y, color=colour, alpha=0.2, linewidth=0)
    finish(ax, "confidence (%)", "density (area 1)")
    ax.set_xlim(0, 1)
    top = ax.set_ylim(bottom=0)[1]
    in_per_cent(ax.xaxis)
    text = f"AUROC {per_cent(metrics.auroc(p))}"
    fact_and_legend(ax, text, "upper left", at=(0.02, 0.98 * top))
    return ax


def accuracy_confidence(
    models: PlottableModels,
    *,
    kind: Literal["bin", "above"] = "bin",
    bins: int = 15,
    binning: Binning = "width",
    ax: Axes | None = None,
) -> Axes:
    """Accuracy against confidence, one line per model.

    Parameters
    ----------
    models
        Predictions, Confidences, or a mapping from names to them.
    kind
        ``"bin"``: the accuracy of the samples in each bin, at their mean confidence; a calibrated
        model lies on the diagonal, an overconfident one below it (karandikar2021, Figures 6 and
        10). ``"above"``: the accuracy of the samples with at least that confidence; a calibrated
        model lies above the diagonal.
    bins, binning
        Bins for ``"bin"``, as in ``metrics.ece``. Empty bins are left out.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Karandikar et al. (2021), arXiv:2108.00106; ``"above"``: Lakshminarayanan et al. (2017),
    arXiv:1612.01474.

    Examples
    --------
    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9, 0.8], correct=[1, 0])
    >>> accuracy_confidence(c, kind="above").lines[1].get_ydata()
    array([0.5, 0.5, 1. ])
    """
    found = as_models(models)
    check_choice("kind", kind, ("bin", "above"))
    ax = axes(ax, size=(4.8, 4.4))
    ideal = "perfect calibration" if kind == "bin" else "minimum for a calibrated model"
    ax.plot([0, 1], [0, 1], color=REFERENCE, linestyle=(0, (4, 3)), linewidth=1.2, label=ideal)
    for i, (name, p) in enumerate(found.items()):
        style = line_style(i)
        if kind == "bin":
            table = metrics.reliability(p, bins=bins, binning=binning)
            full = table.count > 0
            x, y = table.confidence[full], table.accuracy[full]
        else:
            x, y = accuracy_above(p)
            some = evenly_spaced(len(x), MOST_POINTS)
            # Left of the lowest confidence all samples are above the threshold.
            x, y = np.append(0.0, x[some]), np.append(y[0], y[some])
            style |= {"drawstyle": "steps-pre", "markevery": max(1, len(x) // 10)}
        ax.plot(x, y, **style, label=shown(name) if name or len(found) > 1 else "model")
    above = "accuracy at this confidence or above (%)"
    finish(ax, "confidence (%)", "accuracy (%)" if kind == "bin" else above)
    ax.set_xlim(0, 1.01)  # so that points at 1 are not clipped
    ax.set_ylim(0, 1.02)
    in_per_cent(ax.xaxis)
    in_per_cent(ax.yaxis)
    legend(ax)
    return ax


def ece_uncertainty(
    models: PlottableModels,
    *,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    ax: Axes | None = None,
) -> Axes:
    """The ECE against the average uncertainty (mean entropy), one point per model.

    A model can be calibrated by being uncertain: at the same height, further left is better.

    Parameters
    ----------
    models
        Predictions, or a mapping from names to them.
    bins, norm, binning
        As in ``metrics.ece``; karandikar2021 has ``norm=2, binning="mass"``.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Karandikar et al. (2021), arXiv:2108.00106, Figure 10.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> models = {name: load_example(name) for name in ("cross_entropy", "label_smoothing")}
    >>> ece_uncertainty(models).get_xlabel()
    'average uncertainty: mean entropy (nats)'
    """
    found = {name: full_predictions("models", p) for name, p in as_models(models).items()}
    ax = axes(ax)
    for i, (name, p) in enumerate(found.items()):
        error = metrics.ece(p, bins=bins, norm=norm, binning=binning)
        style = line_style(i) | {"linestyle": "none", "markersize": 8}
        label = shown(name) if name or len(found) > 1 else None
        ax.plot([metrics.mean_entropy(p)], [error], **style, label=label)
    finish(ax, "average uncertainty: mean entropy (nats)", "ECE (%)")
    in_per_cent(ax.yaxis)
    ax.margins(0.1)
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    legend(ax)
    return ax


def risk_coverage(models: PlottableModels, *, ax: Axes | None = None) -> Axes:
    """Error rate of the most confident samples against how many are kept.

    A model that may abstain keeps the samples it is most confident about. Lower is better. The
    legend shows the area under each curve, ``metrics.aurc``. Ties are averaged over all orders.

    Parameters
    ----------
    models
        Predictions, Confidences, or a mapping from names to them.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Geifman, Uziel and El-Yaniv (2019), arXiv:1805.08206.

    Examples
    --------
    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.9, 0.8], correct=[1, 0])
    >>> ax = risk_coverage({"mine": c})
    >>> ax.lines[0].get_label(), ax.lines[0].get_ydata()
    ('mine (AURC 25.0 %)', array([0. , 0.5]))
    """
    found = as_models(models)
    ax = axes(ax)
    for i, (name, p) in enumerate(found.items()):
        coverage, risk = risk_by_coverage(p)
        some = evenly_spaced(len(risk), MOST_POINTS)
        unnamed = "(no name)" if len(found) > 1 else ""
        ax.plot(
            coverage[some],
            risk[some],
            **line_style(i),
            markevery=max(1, len(some) // 10),
            label=titled(name or unnamed, f"AURC {per_cent(metrics.aurc(p))}"),
        )
    finish(ax, "coverage: samples kept (%)", "error among those kept (%)")
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)
    in_per_cent(ax.xaxis)
    in_per_cent(ax.yaxis)
    legend(ax, least=1)
    return ax
