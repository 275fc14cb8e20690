"""Draw the pictures of the pages on losses: each loss and its slope, soft bins, the soft step."""

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from calibrant import losses
from calibrant.losses import soft_membership, soft_uncertainty

FOLDER = Path(__file__).parents[1] / "docs" / "losses"
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


def against_probability(name: str, num_classes: int, curves: dict, ylim: tuple) -> None:
    """Loss and slope d loss / d p, the other classes sharing what the true one leaves."""
    p = torch.linspace(0.005, 0.999, 400, dtype=torch.float64)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for style, colour, (label, loss) in zip(STYLES, COLOURS, curves.items(), strict=False):
        q = p.clone().requires_grad_()
        rest = ((1 - q) / (num_classes - 1)).unsqueeze(1).expand(-1, num_classes - 1)
        logits = torch.cat([q.unsqueeze(1), rest], 1).log()
        value = loss(logits, torch.zeros(len(p), dtype=torch.int64))
        (slope,) = torch.autograd.grad(value.sum(), q)
        axes[0].plot(p, value.detach(), ls=style, color=colour, label=label)
        axes[1].plot(p, slope, ls=style, color=colour, label=label)
    finish(axes[0], "probability p of the true class", "loss", ylim[0])
    finish(axes[1], "probability p of the true class", "slope d loss / d p", ylim[1])
    axes[0].legend(frameon=False, fontsize=8)
    save(figure, name)


def against_gap() -> None:
    gap = torch.linspace(-8, 8, 401, dtype=torch.float64)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    curves = {
        "logit_norm(p=1)": losses.logit_norm,
        "negative_entropy": losses.negative_entropy,
        "margin_smoothing(margin=3)": lambda z, y: losses.margin_smoothing(z, y, margin=3),
    }
    for style, colour, (label, loss) in zip(STYLES, COLOURS, curves.items(), strict=False):
        g = gap.clone().requires_grad_()
        value = loss(torch.stack([g / 2, -g / 2], 1), torch.zeros(len(gap), dtype=torch.int64))
        (slope,) = torch.autograd.grad(value.sum(), g)
        axes[0].plot(gap, value.detach(), ls=style, color=colour, label=label)
        axes[1].plot(gap, slope, ls=style, color=colour)
    finish(axes[0], "gap between the two logits", "penalty", (-1, 9))
    finish(axes[1], "gap between the two logits", "slope", (-1.1, 1.1))
    axes[0].legend(frameon=False, fontsize=8, loc="upper center")
    save(figure, "regularisers")


def membership() -> None:
    c = torch.linspace(0, 1, 501)
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for ax, temperature in zip(axes, (0.1, 0.01, 0.001), strict=True):
        u = soft_membership(c, 5, temperature)
        for j in range(5):
            ax.plot(c, u[:, j], ls=STYLES[j], color=COLOURS[j])
        finish(ax, "confidence", "", (0, 1.02))
        ax.set_title(f"T = {temperature:g}", fontsize=10)
    axes[0].set_ylabel("share in each of 5 bins")
    save(figure, "membership")


def step() -> None:
    h = torch.linspace(0, 1, 501)
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for ax, kappa in zip(axes, (0.25, 0.5, 0.75), strict=True):
        for style, colour, temperature in zip(STYLES, COLOURS, (1.0, 0.3, 0.1), strict=False):
            t = soft_uncertainty(h, kappa, temperature)
            ax.plot(h, t, ls=style, color=colour, label=f"T = {temperature:g}")
        finish(ax, "normalised entropy h", "", (0, 1.02))
        ax.set_title(f"κ = {kappa:g}", fontsize=10)
    axes[0].set_ylabel("soft uncertainty t(h)")
    axes[0].legend(frameon=False, fontsize=8)
    save(figure, "uncertainty")


def finish(ax: Axes, x: str, y: str, ylim: tuple[float, float]) -> None:
    ax.set(xlabel=x, ylabel=y, ylim=ylim)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def save(figure: mpl.figure.Figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.png", dpi=130)
    plt.close(figure)


def main() -> None:
    mpl.use("Agg")
    against_probability(
        "likelihood",
        10,
        {
            "cross_entropy": losses.cross_entropy,
            "label_smoothing(0.05)": losses.label_smoothing,
            "focal(3)": losses.focal,
            "sample_dependent_focal": losses.sample_dependent_focal,
            "dual_focal(5)": losses.dual_focal,
            "inverse_focal(2)": losses.inverse_focal,
        },
        ((0, 5), (-8, 0.5)),
    )
    against_probability(
        "squared",
        10,
        {
            "cross_entropy": losses.cross_entropy,
            "brier": losses.brier,
            "squared_error": losses.squared_error,
        },
        ((0, 5), (-8, 0.5)),
    )
    against_gap()
    membership()
    step()


if __name__ == "__main__":
    main()
