"""Confidence against accuracy, in bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibrant import metrics
from calibrant._core.arrays import Float64
from calibrant._core.checks import check_bins, near_name, refuse
from calibrant._core.formatting import show
from calibrant.inference import consistency_band
from calibrant.metrics import Reliability
from calibrant.metrics._binning import Binning
from calibrant.metrics._sample import rank
from calibrant.plots._curves import Classwise
from calibrant.plots._inputs import Plottable, PlottableModels, as_models, full_predictions
from calibrant.plots._style import (
    COLOURS,
    REFERENCE,
    Corner,
    axes,
    fact_and_legend,
    finish,
    in_per_cent,
    legend,
    line_style,
    per_cent,
    shown,
    titled,
    whole_numbers,
)
from calibrant.predictions import PositiveClass, Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The strip with the shares of samples lies below the diagram, from FLOOR to CEILING.
FLOOR, CEILING = -0.2, -0.04
MOST_CLASSES = 6
TWO_CLASSES = 2
# Draws of the band, the fewest, and the most samples drawn in all (a second or two).
DRAWS, LEAST_DRAWS, MOST_DRAWN = 1000, 200, 10**8


def reliability_diagram(
    models: PlottableModels,
    *,
    bins: int = 15,
    binning: Binning = "width",
    positive: int | str | bool | None = None,
    counts: bool = True,
    band: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Reliability diagram: accuracy by confidence; a calibrated model lies on the diagonal.

    For two-class models, and wherever ``positive`` names a class, it is about that class: how often
    it occurs against its predicted probability.

    One model is drawn as bars. The hatched gap reaches from the accuracy of a bin to its mean
    confidence: these gaps, weighted by the samples in them, add up to the ECE in the corner.
    Several models are drawn as lines. Points are at the mean confidence of their bin, with the 95 %
    interval of the accuracy (Wilson). Empty bins are left out.

    Parameters
    ----------
    models
        Predictions, Confidences, or a mapping from names to them.
    bins, binning
        As in ``metrics.ece``.
    positive
        The class whose probability is shown, by name or index. By default class 1 if every model
        has two classes, otherwise the predicted class; False always shows the predicted class.
    counts
        Whether to show the fraction of samples per bin below the diagram.
    band
        Whether to show, for one model, where 95 % of the accuracies would lie if the model were
        calibrated: correctness is drawn 1,000 times from the confidences themselves, with a fixed
        seed (``inference.consistency_band``), so that small bins have appropriately wide bands.
        Above 100,000 samples, where bands are narrow, there are fewer draws, at least 200.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Bands: Bröcker and Smith (2007), doi:10.1175/WAF993.1.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> ax = reliability_diagram(load_example("cross_entropy"), bins=10)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence (%)', 'accuracy (%)')
    """
    given = as_models(models)
    if positive is None and not all(map(_is_binary, given.values())):
        positive = False
    found = {name: _view(p, positive=positive) for name, p in given.items()}
    tables = {n: metrics.reliability(p, bins=bins, binning=binning) for n, p in found.items()}
    errors = {n: metrics.ece(p, bins=bins, binning=binning) for n, p in found.items()}
    ax = axes(ax, size=(4.8, 5.0))
    draw_diagonal(ax)
    if len(found) == 1:
        ((name, p),) = found.items()
        _draw_bars(ax, tables[name])
        if band:
            draws = max(MOST_DRAWN // p.num_samples, LEAST_DRAWS)
            limits = consistency_band(p, bins=bins, binning=binning, draws=min(draws, DRAWS))
            _draw_band(ax, tables[name], *limits)
    else:
        for i, (name, table) in enumerate(tables.items()):
            label = titled(name or "(no name)", f"ECE {per_cent(errors[name])}")
            draw_intervals(ax, table, **line_style(i), elinewidth=0.8, label=label)
    if counts:
        _draw_shares(ax, list(tables.values()))
    _frame(ax, *_axis_names(list(found.values())), below=counts)
    text = ""
    if len(found) == 1:
        fact = f"ECE {per_cent(errors[name])}"
        text = f"{shown(name)}\n{fact}" if name else fact
    corner = _free_corner(list(tables.values()))
    fact_and_legend(ax, text, corner, at=(0.02, 1.0) if corner == "upper left" else (0.99, 0.02))
    return ax


def _view(p: Plottable, *, positive: int | str | bool | None) -> Plottable:
    """The record that is shown: of one class, or of the predicted one."""
    if not isinstance(p, Predictions) or positive is False:
        return p
    return p.positive_class(positive)


def _is_binary(p: Plottable) -> bool:
    return isinstance(p, Predictions) and p.num_classes == TWO_CLASSES


def _axis_names(found: Sequence[Plottable]) -> tuple[str, str]:
    names = {p.name if isinstance(p, PositiveClass) else None for p in found}
    if len(names) > 1:
        rule, advice = "must all be about the same class", "Pass positive=…, or positive=False."
        raise refuse("models", rule, f"got {len(names)} of them", advice)
    (name,) = names
    if name is None:
        return "confidence (%)", "accuracy (%)"
    return f"probability of {shown(name)} (%)", f"frequency of {shown(name)} (%)"


def classwise_reliability(
    p: Predictions,
    *,
    classes: Sequence[int | str] | None = None,
    bins: int = 15,
    ax: Axes | None = None,
) -> Axes:
    """The probability of a class against its frequency, one line per class.

    Parameters
    ----------
    p
        Predictions of all classes.
    classes
        Numbers or names of classes; by default the (up to 6) with the largest calibration error,
        worst first. ``metrics.classwise_ece`` is the mean of these errors over all classes.
    bins
        Number of equal-width bins per class.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> ax = classwise_reliability(load_example("cross_entropy"), classes=[3, 8])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['perfect calibration', 'class 3 (3.1 %)', 'class 8 (5.5 %)']
    """
    full_predictions("p", p)
    table = Classwise.of(p, check_bins(bins))
    chosen = _chosen_classes(p, classes, table.error)
    ax = axes(ax, size=(4.8, 4.8))
    draw_diagonal(ax)
    for i, k in enumerate(chosen):
        full = table.count[k] > 0
        name = f"class {k}" if p.classes is None else p.classes[k]
        ax.plot(
            table.probability[k][full],
            table.frequency[k][full],
            **line_style(i),
            label=titled(name or "(no name)", per_cent(table.error[k])),
        )
    _frame(ax, "probability of the class (%)", "frequency of the class (%)")
    legend(ax, title="class (calibration error)", loc="upper left")
    return ax


def ece_by_bins(
    models: PlottableModels,
    *,
    bins: Sequence[int] = range(1, 51),
    binning: Binning = "width",
    ax: Axes | None = None,
) -> Axes:
    """The ECE against the number of bins.

    Parameters
    ----------
    models
        Predictions, Confidences, or a mapping from names to them.
    bins
        Numbers of bins to try.
    binning
        As in ``metrics.ece``.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> ax = ece_by_bins(load_example("cross_entropy"), bins=[5, 10, 15])
    >>> ax.lines[0].get_ydata().round(3)
    array([0.125, 0.125, 0.126])
    """
    found = as_models(models)
    numbers = [check_bins(b) for b in bins]
    if not numbers:
        raise refuse(
            "bins", "must have at least one number of bins", "got none", "Try bins=range(1, 51)."
        )
    ax = axes(ax)
    for i, (name, p) in enumerate(found.items()):
        ranked = rank(p)  # sorted once
        errors = np.array([metrics.ece(ranked, bins=b, binning=binning) for b in numbers])
        label = shown(name) if name or len(found) > 1 else None
        ax.plot(numbers, errors, **line_style(i), markevery=_some(len(numbers)), label=label)
    finish(ax, f"number of bins of equal {binning}", "ECE (%)")
    in_per_cent(ax.yaxis)
    whole_numbers(ax.xaxis)
    ax.set_ylim(bottom=0)
    legend(ax)
    return ax


# --- parts of the diagram ---------------------------------------------------------------------


def _some(points: int) -> int:
    """Every how many points of a line get a marker."""
    return max(1, points // 10)


def draw_diagonal(ax: Axes) -> None:
    """The line on which a calibrated model lies."""
    ax.plot(
        [0, 1],
        [0, 1],
        color=REFERENCE,
        linestyle=(0, (4, 3)),
        linewidth=1.2,
        label="perfect calibration",
        zorder=3,
    )


def _draw_bars(ax: Axes, table: Reliability) -> None:
    """Bars up to the accuracy, hatched gaps between it and the mean confidence, intervals."""
    full = table.count > 0
    left, width = table.edges[:-1][full], np.diff(table.edges)[full]
    accuracy, confidence = table.accuracy[full], table.confidence[full]
    ax.bar(
        left,
        accuracy,
        width,
        align="edge",
        color="#9ecae8",
        edgecolor=COLOURS[0],
        linewidth=0.8,
        zorder=1.5,
    )
    ax.bar(
        left,
        np.abs(accuracy - confidence),
        width,
        bottom=np.minimum(accuracy, confidence),
        align="edge",
        facecolor="none",
        edgecolor="#b04a00",
        hatch="////",
        linewidth=0.8,
        label="gap to the confidence",
        zorder=2,
    )
    draw_intervals(
        ax,
        table,
        color="black",
        fmt="o",
        markersize=3.5,
        elinewidth=1.2,
        label="accuracy, 95 % interval",
    )


def draw_intervals(ax: Axes, table: Reliability, **style: object) -> None:
    """The frequency of each bin that holds samples, with its interval."""
    full = table.count > 0
    middle, low, high = table.accuracy[full], table.lower[full], table.upper[full]
    options = {"capsize": 2, "zorder": 4, **style}
    ax.errorbar(table.confidence[full], middle, yerr=[middle - low, high - middle], **options)  # type: ignore[arg-type]


def _draw_band(ax: Axes, table: Reliability, low: Float64, high: Float64) -> None:
    """Open boxes: bars and hatches stay visible inside."""
    full = table.count > 0
    ax.bar(
        table.edges[:-1][full],
        (high - low)[full],
        np.diff(table.edges)[full],
        bottom=low[full],
        align="edge",
        facecolor=(0, 0, 0, 0.12),
        edgecolor="black",
        linestyle=":",
        linewidth=1.3,
        label="if calibrated (95 %)",
        zorder=2.5,
    )


def _draw_shares(ax: Axes, tables: list[Reliability]) -> None:
    """The share of the samples in each bin, on a scale of its own below the diagram."""
    shares = [table.count / table.count.sum() for table in tables]
    largest = max(float(share.max()) for share in shares)
    for i, (table, share) in enumerate(zip(tables, shares, strict=True)):
        style = line_style(i)
        alone = len(tables) == 1
        ax.stairs(
            FLOOR + share / largest * (CEILING - FLOOR),
            table.edges,
            baseline=FLOOR,
            fill=alone,
            facecolor="0.6",
            edgecolor="0.6" if alone else style["color"],
            linestyle="-" if alone else style["linestyle"],
        )
    ax.axhline(0, color="black", linewidth=0.8, zorder=3)
    ax.text(
        0.01,
        CEILING,
        f"share of samples (at most {show(largest, percent=True, decimals=0)})",
        fontsize="x-small",
        va="top",
        zorder=6,
        bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1},
    )


def _free_corner(tables: list[Reliability]) -> Corner:
    """The corner that the accuracies leave free: above the diagonal, or below it."""
    x = np.concatenate([table.confidence for table in tables])
    y = np.concatenate([table.accuracy for table in tables])
    above, below = (x < 0.6) & (y > 0.7), (x > 0.4) & (y < 0.3)  # noqa: PLR2004 - a legend's size
    return "upper left" if above.sum() <= below.sum() else "lower right"


def _frame(ax: Axes, xlabel: str, ylabel: str, *, below: bool = False) -> None:
    finish(ax, xlabel, ylabel)
    ax.set_xlim(0, 1.01)  # so that points at 1 are not clipped
    ax.set_ylim(FLOOR if below else 0, 1.02)
    ticks = np.linspace(0, 1, 6)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    in_per_cent(ax.xaxis)
    in_per_cent(ax.yaxis)


def _chosen_classes(
    p: Predictions, classes: Sequence[int | str] | None, error: Float64
) -> list[int]:
    if classes is None:
        return [int(k) for k in np.argsort(-error, kind="stable")[:MOST_CLASSES]]
    chosen = [_class_number(p, k) for k in classes]
    if not chosen:
        raise refuse("classes", "must name a class", "got none", "Leave it out for the worst.")
    return chosen


def _class_number(p: Predictions, k: int | str) -> int:
    names = p.classes or ()
    if isinstance(k, str):
        if k not in names:
            advice = near_name(k, names) if names else "These predictions have no class names."
            raise refuse("classes", "must name classes", f"got {k!r}", advice)
        return names.index(k)
    if isinstance(k, bool) or not hasattr(k, "__index__") or not 0 <= k < p.num_classes:
        rule = f"must be names or numbers from 0 to {p.num_classes - 1}"
        raise refuse("classes", rule, f"got {k!r}", "Count classes from 0.")
    return int(k)
