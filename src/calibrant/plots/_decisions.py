"""The decision curve: what acting on the predicted risk is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calibrant import metrics
from calibrant.plots._inputs import PlottableModels, as_models, full_predictions
from calibrant.plots._style import REFERENCE, axes, finish, in_per_cent, legend, line_style, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def decision_curve(
    models: PlottableModels,
    *,
    positive: int | str | None = None,
    most: float = 0.5,
    ax: Axes | None = None,
) -> Axes:
    """Net benefit by threshold, beside treating everybody and nobody.

    Parameters
    ----------
    models
        Predictions, or a mapping from names to them, for the same samples.
    positive
        The class whose probability is acted on, by name or index; by default class 1 of two.
    most
        The largest threshold shown.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Vickers and Elkin (2006), doi:10.1177/0272989X06295361.

    Examples
    --------
    >>> from calibrant import Predictions
    >>> p = Predictions.from_binary(probs=[0.9, 0.3, 0.2, 0.1], labels=[1, 0, 0, 0])
    >>> ax = decision_curve(p)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('threshold (%)', 'net benefit')
    """
    found = {n: full_predictions("models", p) for n, p in as_models(models).items()}
    curves = {name: metrics.decision_curve(p, positive=positive) for name, p in found.items()}
    ax = axes(ax)
    for k, (name, curve) in enumerate(curves.items()):
        some = curve.thresholds <= most
        style = line_style(k) | {"marker": ""}
        label = shown(name) if name else "model"
        ax.plot(curve.thresholds[some], curve.net_benefit[some], **style, label=label)
    first = next(iter(curves.values()))
    some = first.thresholds <= most
    everybody = first.treat_all[some]
    grey: dict[str, Any] = {"color": REFERENCE, "linewidth": 1}
    ax.plot(first.thresholds[some], everybody, **grey, linestyle="--", label="treat everybody")
    ax.plot([0, most], [0, 0], **grey, linestyle=":", label="treat nobody")
    highest = max(float(curve.net_benefit.max()) for curve in curves.values())
    top = max(highest, float(everybody.max()), 0.01)
    ax.set(xlim=(0, most), ylim=(-0.3 * top, 1.08 * top))
    finish(ax, "threshold (%)", "net benefit")
    in_per_cent(ax.xaxis)
    legend(ax)
    return ax
