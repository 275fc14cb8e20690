"""A metric over the temperature."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import CalibrationWarning, check_positive
from calibrant._core.formatting import show
from calibrant.calibrators import TemperatureScaling
from calibrant.metrics import get_metric
from calibrant.plots._inputs import full_predictions
from calibrant.plots._style import COLOURS, axes, finish, in_per_cent, legend
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 121
NATS = {"nll": " (nats)", "mean_entropy": " (nats)"}


def temperature_curve(
    p: Predictions, *, metric: str = "ece", fitted: float | None = None, ax: Axes | None = None
) -> Axes:
    """A metric of softmax(z / T) against the temperature T, with the fitted and the best T.

    The 121 temperatures, evenly spaced on the logarithmic axis, reach from a fifth of the smaller
    to five times the larger of 1 and the fitted T, which is one of them.

    Parameters
    ----------
    p
        Predictions of all classes.
    metric
        Name in ``metrics.METRICS``, such as "ece" or "nll".
    fitted
        A temperature to mark; by default the one that minimises NLL on these predictions,
        ``TemperatureScaling().fit(p)``. If there is no minimum (every prediction is correct), the
        legend says that it is a bound.
    ax
        Axes to draw on; default: a new figure.

    Examples
    --------
    >>> from calibrant.examples import load_example
    >>> ax = temperature_curve(load_example("cross_entropy"), metric="nll")
    >>> [line.get_label() for line in ax.lines[1:]]
    ['fitted T = 2.86', 'best: 0.551 at T = 2.86']
    """
    full_predictions("p", p)
    known = get_metric(metric)
    fit, note = (
        _fitted(p) if fitted is None else (check_positive("fitted", fitted, example=1.5), "")
    )
    temperatures = _temperatures(fit)
    values = np.array(
        [
            known.function(TemperatureScaling(temperature=float(t)).transform(p))
            for t in temperatures
        ]
    )
    ax = axes(ax)
    ax.plot(temperatures, values, color=COLOURS[0], linewidth=1.8, label=known.label)
    ax.axvline(
        fit, color=COLOURS[1], linestyle="--", linewidth=1.5, label=f"fitted T = {fit:.3g}{note}"
    )
    _mark_best(ax, temperatures, values, higher=known.better == "higher", percent=known.percent)
    ax.set_xscale("log")
    _plain_ticks(ax)
    unit = " (%)" if known.percent else NATS.get(metric, "")
    finish(ax, "temperature T (logarithmic)", f"{known.label}{unit}")
    if known.percent:
        in_per_cent(ax.yaxis)
    legend(ax)
    return ax


def _fitted(p: Predictions) -> tuple[float, str]:
    """The temperature that minimises NLL; a note where it is a bound, instead of the warning."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", CalibrationWarning)
        temperature = TemperatureScaling().fit(p).temperature_
    return temperature, " (a bound)" if raised else ""


def _temperatures(fitted: float) -> Float64:
    """The grid of the curve, rising, with the fitted temperature in it."""
    grid = np.geomspace(min(fitted, 1.0) / 5, 5 * max(fitted, 1.0), POINTS - 1)
    return np.sort(np.append(grid, fitted))


def _mark_best(
    ax: Axes, temperatures: Float64, values: Float64, *, higher: bool, percent: bool
) -> None:
    if not np.isfinite(values).any():
        return
    worst = -np.inf if higher else np.inf
    usable = np.where(np.isfinite(values), values, worst)
    best = int(usable.argmax() if higher else usable.argmin())
    value = show(values[best], percent=True) if percent else f"{values[best]:.3g}"
    ax.plot(
        temperatures[best],
        values[best],
        color="black",
        marker="D",
        linestyle="none",
        label=f"best: {value} at T = {temperatures[best]:.3g}",
    )


def _plain_ticks(ax: Axes) -> None:
    """0.5, 1, 2 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
