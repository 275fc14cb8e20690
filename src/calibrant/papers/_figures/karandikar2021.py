"""The figures of karandikar2021: soft objectives, their effects, and shifts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from calibrant import plots
from calibrant.papers._figures._info import FigureInfo
from calibrant.papers._figures._levels import by_seed, corrected
from calibrant.papers._figures._panel import PlaceRuns, panels
from calibrant.papers._figures._sheet import curves, nothing, one_legend, sheet, title
from calibrant.papers._results import Results
from calibrant.papers._scales import Need, Place, method_name
from calibrant.plots._style import line_style
from calibrant.results import summarise_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
from calibrant.papers._figures._karandikar_values import (
    BINS,
    FOCAL,
    MEMBERSHIP_TEMPERATURES,
    MSE,
    NLL,
    PRIMARY,
    SECONDARY,
    by_pair,
    ece_at_entropy,
    effect_on_ece,
    membership,
    pooled,
    shown,
    uncertainty,
)

CIFAR100, CIFAR10 = Place("cifar100", "wrn28-10"), Place("cifar10", "wrn28-10")
IMAGENET = Place("imagenet", "resnet50")
PAIRS = tuple(method_name(first, second) for first in PRIMARY for second in (None, *SECONDARY))
NLL_SOFT = (f"{NLL} + soft_binned_ece", f"{NLL} + soft_avuc")
FOCAL_SOFT = (f"{FOCAL} + soft_binned_ece", f"{FOCAL} + soft_avuc")
TABLE1 = (NLL, f"{NLL} + mmce", FOCAL, *FOCAL_SOFT)
# What the figures compare at each published place.
RELIABILITY = {
    CIFAR100: (*TABLE1, MSE),
    CIFAR10: (*TABLE1, MSE),
    IMAGENET: (NLL, f"{NLL} + mmce", *NLL_SOFT),
}
SHIFTED = {
    CIFAR100: (*TABLE1, f"{FOCAL} + mmce"),
    CIFAR10: (*TABLE1, f"{FOCAL} + mmce"),
    IMAGENET: (NLL, f"{NLL} + mmce", *NLL_SOFT),
}
SCALED = {"TS": "temperature", "TS-SB-ECE": "temperature_soft_ece"}
KAPPAS, UNCERTAINTY_TEMPERATURES = (0.2, 0.5, 0.8), (0.05, 0.25, 1.0)
KAPPA, UNCERTAINTY_TEMPERATURE = 0.5, 0.25


def figure1(results: Results | None) -> Figure:
    """How much each secondary loss lowers the ECE, with and without temperature scaling."""
    found = panels(results, (CIFAR100, CIFAR10, IMAGENET))
    fig, ((*axes,),) = sheet(1, 2, width=4.8, height=3.8)
    ways = {"without": "none", "after": "temperature"}
    for ax, (words, calibrator) in zip(axes, ways.items(), strict=True):
        effects = {name: effect_on_ece(found, s, calibrator) for s, name in SECONDARY.items()}
        known = {name: each for name, each in effects.items() if each}
        if known:
            over = {name: summarise_runs(each) for name, each in known.items()}
            plots.effect_sizes({name: (s.mean, s.low, s.high) for name, s in over.items()}, ax=ax)
            ax.set_xlabel("Cohen's d of the ECE (above 0: the ECE falls)")
        else:
            nothing(ax)
        title(ax, f"{words} temperature scaling")
    one_legend(fig, axes)
    places = " and ".join(panel.title for panel in found if panel.runs())
    if places:
        fig.suptitle(f"mean and 95 % interval over primary losses on {places}", fontsize="small")
    return fig


def figure5(results: Results | None) -> Figure:
    """ECE of every pair of primary and secondary loss, with the accuracy at the foot."""
    found = panels(results, (CIFAR10, CIFAR100, IMAGENET))
    fig, rows = sheet(len(found), 1, width=10, height=3.6)
    for (ax,), panel in zip(rows, found, strict=True):
        groups = by_pair(panel, "ece")
        if groups:
            plots.bars(groups, ylabel="ECE", percent=True, ax=ax)
            _write_accuracies(ax, groups, by_pair(panel, "accuracy"))
            title(ax, panel.title, "at the foot of each bar: accuracy (%)")
        else:
            nothing(ax)
            title(ax, panel.title)
    one_legend(fig, [ax for (ax,) in rows], columns=6)
    return fig


def _write_accuracies(
    ax: Axes,
    groups: Mapping[str, Mapping[str, object]],
    accuracy: Mapping[str, Mapping[str, list[float]]],
) -> None:
    """The mean accuracy in per cent at the foot of each bar."""
    from matplotlib.container import BarContainer

    for container in (c for c in ax.containers if isinstance(c, BarContainer)):
        name = container.get_label()
        there = [group for group, members in groups.items() if name in members]
        for bar, group in zip(container.patches, there, strict=True):
            mean = 100 * float(np.mean(accuracy[group][str(name)]))
            ax.text(
                bar.get_x() + bar.get_width() / 2,
                0,
                f" {mean:.1f}",
                rotation=90,
                ha="center",
                va="bottom",
                fontsize="small",
                zorder=4,
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.8},
            )


def figure2(results: Results | None) -> Figure:
    """Two ways of fitting the temperature under shift, for networks trained with NLL."""
    return _two_temperatures(results, (NLL,))


def figure9(results: Results | None) -> Figure:
    """Two ways of fitting the temperature under shift, a row for each primary loss."""
    return _two_temperatures(results, tuple(PRIMARY))


def _two_temperatures(results: Results | None, methods: tuple[str, ...]) -> Figure:
    found = panels(results, (CIFAR100, CIFAR10), ("shift",))
    fig, rows = sheet(len(methods), len(found), width=4.6)
    for row, method in zip(rows, methods, strict=True):
        for ax, panel in zip(row, found, strict=True):
            series = corrected(panel, method, SCALED)
            if series:
                _draw_corrected(ax, series)
            else:
                nothing(ax)
            title(ax, f"{shown(method)}, {panel.title}")
    one_legend(fig, [ax for row in rows for ax in row])
    return fig


def _draw_corrected(ax: Axes, series: Mapping[str, Mapping[int, tuple[float, float]]]) -> None:
    """Means of shift levels as lines, with the corrected standard errors as error bars."""
    means = {name: {x: mean for x, (mean, _) in points.items()} for name, points in series.items()}
    plots.shift_levels(means, spread=None, ax=ax)
    for i, points in enumerate(series.values()):
        x = sorted(points)
        mean, reach = np.array([points[level] for level in x]).T
        ax.errorbar(
            x, mean, yerr=reach, fmt="none", ecolor=line_style(i)["color"], capsize=3, elinewidth=1
        )
    ax.get_legend().set_title("mean ± standard error within corruptions")  # type: ignore[union-attr]


def figure7(results: Results | None) -> Figure:
    """ECE and error of training objectives under shift, and of NLL after temperature scaling."""
    return _objectives_shifted(results, (CIFAR10, CIFAR100))


def figure8(results: Results | None) -> Figure:
    """The same for ImageNet, with secondary losses beside NLL."""
    return _objectives_shifted(results, (IMAGENET,))


def _objectives_shifted(results: Results | None, published: tuple[Place, ...]) -> Figure:
    found = panels(results, published, ("shift",))
    fig, rows = sheet(len(found), 2, width=4.8)
    for row, panel in zip(rows, found, strict=True):
        drawn = {shown(NLL): (NLL, "none"), f"{shown(NLL)} + TS": (NLL, "temperature")}
        drawn |= {shown(m): (m, "none") for m in _methods(panel, SHIFTED)}
        for ax, (metric, words) in zip(row, {"ece": "ECE", "error": "error"}.items(), strict=True):
            series = {name: by_seed(panel, m, metric, c) for name, (m, c) in drawn.items()}
            series = {name: points for name, points in series.items() if points}
            if series:
                plots.shift_levels(series, ylabel=words, ax=ax)
            else:
                nothing(ax)
            title(ax, f"{words}, {panel.title}")
    one_legend(fig, [ax for row in rows for ax in row])
    return fig


def _methods(panel: PlaceRuns, by_place: Mapping[Place, tuple[str, ...]]) -> list[str]:
    """Methods that the paper compares at the places that a panel stands for."""
    return list(dict.fromkeys(m for place in panel.published for m in by_place[place]))


def figure3(_: Results | None) -> Figure:
    """The share of a confidence in each bin, a panel for each temperature."""
    fig, ((*axes,),) = sheet(1, len(MEMBERSHIP_TEMPERATURES))
    for ax, temperature in zip(axes, MEMBERSHIP_TEMPERATURES, strict=True):
        x, shares = membership(temperature)
        series = {f"bin {j + 1}": (x, share) for j, share in enumerate(shares.T)}
        curves(ax, series, xlabel="confidence", ylabel="share in the bin")
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        title(ax, f"T = {temperature:g}")
    one_legend(fig, axes, columns=BINS)
    return fig


def figure4(_: Results | None) -> Figure:
    """The soft uncertainty of a normalised entropy: a threshold κ and its sharpness T."""
    fig, ((*axes,),) = sheet(1, 2, width=4.2)
    fixed = UNCERTAINTY_TEMPERATURE
    kappas = {f"κ = {k:g}": uncertainty(k, fixed) for k in KAPPAS}
    temperatures = {f"T = {t:g}": uncertainty(KAPPA, t) for t in UNCERTAINTY_TEMPERATURES}
    for ax, series, words in zip(
        axes, (kappas, temperatures), (f"(a) T = {fixed:g}", f"(b) κ = {KAPPA:g}"), strict=True
    ):
        curves(ax, series, xlabel="normalised entropy h*", ylabel="soft uncertainty")
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        title(ax, words)
    return fig


def figure6(results: Results | None) -> Figure:
    """Accuracy against confidence of the methods of table 1a."""
    (panel,) = panels(results, [CIFAR100])
    fig, ((ax,),) = sheet(1, 1, width=5.2, height=4.8)
    _draw_accuracy(ax, panel, TABLE1)
    title(ax, panel.title)
    return fig


def figure10(results: Results | None) -> Figure:
    """Accuracy against confidence, and ECE against uncertainty; a row for each data set."""
    found = panels(results, (CIFAR100, CIFAR10, IMAGENET))
    fig, rows = sheet(len(found), 2, width=4.8, height=4.2)
    for (left, right), panel in zip(rows, found, strict=True):
        methods = _methods(panel, RELIABILITY)
        _draw_accuracy(left, panel, methods)
        series = {shown(m): ece_at_entropy(panel, m) for m in methods}
        series = {name: points for name, points in series.items() if points}
        if series:
            plots.lines(
                series,
                xlabel="average uncertainty: mean entropy (nats)",
                ylabel="ECE",
                percent=True,
                ax=right,
            )
            right.set_ylim(bottom=0)
        else:
            nothing(right)
        for ax in (left, right):
            title(ax, panel.title)
    one_legend(fig, [ax for row in rows for ax in row])
    return fig


def _draw_accuracy(ax: Axes, panel: PlaceRuns, methods: Iterable[str]) -> None:
    models = {shown(m): pooled(panel, m) for m in methods}
    known = {name: p for name, p in models.items() if p is not None}
    if known:
        plots.accuracy_confidence(known, ax=ax)
    else:
        nothing(ax)


_ECE = "ECE with the L2 norm and 15 bins of equal mass"
INFOS = (
    FigureInfo(
        "karandikar2021",
        "figure1",
        f"Effect of each secondary loss on the {_ECE}: Cohen's d over seeds, mean and 95 % "
        "interval over data sets and primary losses.",
        ("without temperature scaling", "after temperature scaling"),
        (Need("main", PAIRS),),
        figure1,
    ),
    FigureInfo(
        "karandikar2021",
        "figure2",
        f"{_ECE} under shift, of networks trained with NLL, after temperature scaling by "
        "likelihood (TS) and by soft-binned ECE (TS-SB-ECE). Mean over corruptions; standard error "
        "without what corruptions differ by for both.",
        (str(CIFAR100), str(CIFAR10)),
        (Need("shift", (NLL,)),),
        figure2,
    ),
    FigureInfo(
        "karandikar2021",
        "figure3",
        "Soft membership of a confidence in five bins: the lower T, the harder the bins.",
        tuple(f"T = {t:g}" for t in MEMBERSHIP_TEMPERATURES),
        (),
        figure3,
    ),
    FigureInfo(
        "karandikar2021",
        "figure4",
        "Soft uncertainty of a normalised entropy: κ is the threshold, T how sharp it is.",
        ("a: several κ", "b: several T"),
        (),
        figure4,
    ),
    FigureInfo(
        "karandikar2021",
        "figure5",
        f"{_ECE} of every primary loss with every secondary loss; the accuracy in per cent stands "
        "at the foot of each bar. Mean and standard error over runs.",
        tuple(map(str, (CIFAR10, CIFAR100, IMAGENET))),
        (Need("main", PAIRS),),
        figure5,
    ),
    FigureInfo(
        "karandikar2021",
        "figure6",
        "Accuracy against confidence in 15 bins of equal width, the runs of each method together.",
        (str(CIFAR100),),
        (Need("main", TABLE1),),
        figure6,
    ),
    FigureInfo(
        "karandikar2021",
        "figure7",
        f"{_ECE} and error under shift by training objective, and of NLL after temperature "
        "scaling. Mean over corruptions; standard error over runs.",
        tuple(f"{words}, {p}" for p in (CIFAR10, CIFAR100) for words in ("ECE", "error")),
        (Need("shift", SHIFTED[CIFAR10]),),
        figure7,
    ),
    FigureInfo(
        "karandikar2021",
        "figure8",
        f"{_ECE} and error under shift by secondary loss beside NLL, and of NLL after temperature "
        "scaling. Mean over corruptions; standard error over runs.",
        (f"ECE, {IMAGENET}", f"error, {IMAGENET}"),
        (Need("shift", SHIFTED[IMAGENET]),),
        figure8,
    ),
    FigureInfo(
        "karandikar2021",
        "figure9",
        f"{_ECE} under shift after temperature scaling by likelihood (TS) and by soft-binned ECE "
        "(TS-SB-ECE), for three primary losses. Mean over corruptions; standard error without what "
        "corruptions differ by for both.",
        tuple(f"{name}, {p}" for name in PRIMARY.values() for p in (CIFAR100, CIFAR10)),
        (Need("shift", tuple(PRIMARY)),),
        figure9,
    ),
    FigureInfo(
        "karandikar2021",
        "figure10",
        f"Accuracy against confidence, and {_ECE} against the mean entropy, by training objective.",
        tuple(
            f"{words}, {p}"
            for p in (CIFAR100, CIFAR10, IMAGENET)
            for words in ("accuracy against confidence", "ECE against uncertainty")
        ),
        (Need("main", tuple(dict.fromkeys(m for some in RELIABILITY.values() for m in some))),),
        figure10,
    ),
)
