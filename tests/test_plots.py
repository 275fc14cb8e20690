"""Pictures: every function × every law, drawn data against the metrics, and a few images.

``python tests/test_plots.py`` draws the reference images again; look at them before keeping them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from calibrant import Confidences, InputError, MultiLabel, Predictions, metrics, plots
from calibrant.calibrators import TemperatureScaling
from calibrant.inference import consistency_band
from calibrant.plots import _style
from calibrant.plots._curves import (
    Classwise,
    accuracy_above,
    bandwidth,
    density,
    evenly_spaced,
    learned_groups,
    risk_by_coverage,
)
from calibrant.results import summarise_runs

IMAGES = Path(__file__).parent / "images"
TOLERANCE = 2.0  # root mean square difference, of 255


def draw(num_samples: int, num_classes: int, *, sharpness: float = 1.6, seed: int = 0) -> Any:
    """Logits and labels of an overconfident model (sharpness > 1)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (num_samples, num_classes))
    labels = (z / sharpness + rng.gumbel(size=z.shape)).argmax(axis=1)
    return z, labels


def model(num_samples: int = 600, num_classes: int = 5, **options: Any) -> Predictions:
    z, labels = draw(num_samples, num_classes, **options)
    return Predictions(logits=z, labels=labels)


def epochs_of(seed: int, epochs: int = 12) -> pa.Table:
    """A made-up record of a training."""
    rng = np.random.default_rng(seed)
    falling = 1 / np.arange(1, epochs + 1)
    columns = {"epoch": np.arange(epochs), "head_norm": np.arange(epochs) / 3 + 1}
    for part, level in (("train", 1.0), ("test", 1.3)):
        for name in ("nll", "entropy", "error", "confidence", "ece"):
            for kind in ("", "_correct", "_incorrect"):
                noise = 0.03 * rng.random(epochs)
                columns[f"{part}_{name}{kind}"] = level * falling * (1 + len(kind) / 20) + noise
    columns["test_optimal_ece"] = falling / 10
    return pa.table(columns)


P = model()
Q = model(sharpness=0.6, seed=1)
C = Confidences(confidence=P.confidence, correct=P.correct)
LOGITS = np.random.default_rng(3).normal(8, 2, 400)
LEARNED = np.clip(12 - LOGITS, -1, None).astype(np.int64)
SERIES = {
    "a": {0.0: [0.10, 0.12, 0.11], 1.0: [0.2, 0.25, 0.21], 2.0: [0.3, 0.38, 0.31]},
    "b": {0.0: [0.05, 0.06, 0.04], 1.0: [0.1, 0.12, 0.11], 2.0: [0.2, 0.22, 0.17]},
}
GROUPS = {
    "left": {"a": [0.10, 0.12, 0.11], "b": [0.2, 0.25], "c": [0.3]},
    "right": {"a": [0.05, 0.06, 0.04], "c": [0.12, 0.15]},
}
EFFECTS = {"a": (2.0, 1.0, 3.0), "b": (0.3, -0.4, 1.0), "c": (-1.0, math.nan, math.nan)}
POINTS = {"a": (1.0, 4.0), "b": (2.0, 2.0), "c": (3.0, 3.0), "d": (4.0, 1.0)}


def renamed(names: list[str], values: list[Any]) -> dict[str, Any]:
    return {name: values[i % len(values)] for i, name in enumerate(names)}


def with_classes(names: list[str]) -> Predictions:
    z, labels = draw(200, max(len(names), 2))
    return Predictions(logits=z, labels=labels, classes=(names + ["other"])[: z.shape[1]])


def with_labels(names: list[str]) -> MultiLabel:
    z, _ = draw(200, len(names) + 1)
    return MultiLabel(logits=z[:, 1:], labels=z[:, 1:] > z[:, :-1], names=names)


# What each function draws for things called ``names``.
DRAW: dict[str, Callable[..., Axes]] = {
    "reliability_diagram": lambda n, **k: plots.reliability_diagram(renamed(n, [P, Q]), **k),
    "decision_curve": lambda n, **k: plots.decision_curve(
        renamed(n, [with_classes(["no", "yes"])]), **k
    ),
    "classwise_reliability": lambda n, **k: plots.classwise_reliability(with_classes(n), **k),
    "label_reliability": lambda n, **k: plots.label_reliability(with_labels(n), **k),
    "confidence_density": lambda n, **k: plots.confidence_density(P, **k),
    "accuracy_confidence": lambda n, **k: plots.accuracy_confidence(renamed(n, [P, C]), **k),
    "ece_uncertainty": lambda n, **k: plots.ece_uncertainty(renamed(n, [P, Q]), **k),
    "risk_coverage": lambda n, **k: plots.risk_coverage(renamed(n, [P, C]), **k),
    "ece_by_bins": lambda n, **k: plots.ece_by_bins(renamed(n, [P, C]), bins=range(1, 20), **k),
    "temperature_curve": lambda n, **k: plots.temperature_curve(P, fitted=1.5, **k),
    "training_curves": lambda n, **k: plots.training_curves(
        renamed(n, [[epochs_of(0), epochs_of(1)], epochs_of(2)]), **k
    ),
    "max_logit_histograms": lambda n, **k: plots.max_logit_histograms(LOGITS, LEARNED, **k),
    "lines": lambda n, **k: plots.lines(renamed(n, list(SERIES.values())), **k),
    "shift_levels": lambda n, **k: plots.shift_levels(renamed(n, list(SERIES.values())), **k),
    "coefficient_sensitivity": lambda n, **k: plots.coefficient_sensitivity(
        renamed(n, list(SERIES.values())), **k
    ),
    "bars": lambda n, **k: plots.bars({name: renamed(n, [[1.0, 2.0], [3.0]]) for name in n}, **k),
    "effect_sizes": lambda n, **k: plots.effect_sizes(renamed(n, list(EFFECTS.values())), **k),
    "pareto": lambda n, **k: plots.pareto(
        renamed(n, list(POINTS.values())), xlabel="error", ylabel="ECE", **k
    ),
}
NAMELESS = {"confidence_density", "temperature_curve", "max_logit_histograms"}
EVERY = pytest.mark.parametrize("function", DRAW)


@cache
def drawn(function: str) -> Axes:
    """A plot of two things that several tests look at and none changes."""
    return DRAW[function](["one", "two"])


def render(ax: Axes) -> np.ndarray:
    """Draw the whole figure; a warning or an invalid formula would raise here."""
    ax.figure.set_dpi(40)
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def words(ax: Axes) -> list[str]:
    """All that is written, as the reader sees it but without line breaks and spaces."""
    found = [text.get_text() for text in ax.findobj(Text)]
    return ["".join(text.replace(r"\$", "$").replace("\u200e", "").split()) for text in found]


def legend_texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


# --- laws of all functions --------------------------------------------------------------------


def test_none_is_missing() -> None:
    assert set(DRAW) == set(plots.__all__)
    assert all(getattr(plots, name).__module__.startswith("calibrant.plots.") for name in DRAW)


@EVERY
def test_leaves_no_global_state(function: str) -> None:
    before, figures = dict(mpl.rcParams), plt.get_fignums()
    ax = drawn(function)
    render(ax)
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == figures
    assert isinstance(ax.figure, Figure)


@EVERY
def test_says_what_is_drawn(function: str) -> None:
    ax = drawn(function)
    named_on_axis = function in {"bars", "effect_sizes", "lines", "coefficient_sensitivity"}
    assert named_on_axis or (ax.get_xlabel() and ax.get_ylabel())
    assert ax.get_legend() is not None


@EVERY
def test_draws_on_the_given_axes_however_small(function: str) -> None:
    left, right = Figure(figsize=(4, 2), layout="tight").subplots(1, 2)
    assert DRAW[function](["one", "two"], ax=right) is right
    assert right.has_data()
    assert not left.has_data()
    render(right)


@EVERY
@pytest.mark.parametrize("ax", ["axes", 3, Figure(), plt])
def test_refuses_what_are_no_axes(function: str, ax: object) -> None:
    with pytest.raises(InputError, match="ax must be Matplotlib Axes; got"):
        DRAW[function](["one", "two"], ax=ax)


HOSTILE = [
    "$x$",
    "cost in $",
    r"$\frac{1}{$",
    r"\$5 and $6",
    "_hidden",
    "__init__",
    "<script>alert()",
    "a & b_c^d #1 100%",
    "نموذج",
    "שלום",
    "{0} %s",
    "line\nbreak\ttab\x1b[31m\x00",
    "\u202eflipped",
    "\ud800lone",
    "x" * 400,
    "word " * 50,
    " ",
    "",
]


PARTS = (slice(0, 6), slice(6, 12), slice(12, None))


@pytest.mark.parametrize(
    ("function", "part"),
    [
        # A plot takes a quarter of a second; one of them shows all names in the fast tests.
        pytest.param(f, part, marks=() if i == 0 or f == "bars" else pytest.mark.slow)
        for f in sorted(set(DRAW) - NAMELESS)
        for i, part in enumerate(PARTS)
    ],
)
def test_names_are_shown_as_text(function: str, part: slice) -> None:
    names = HOSTILE[part]
    ax = DRAW[function](names)
    render(ax)
    seen = words(ax)
    for name in names:
        wanted = "".join(c for c in name if c.isprintable() and not c.isspace()) or "(noname)"
        start, end = (wanted[:30], wanted[-30:]) if len(name) > 200 else (wanted, wanted)
        assert any(start in text and end in text for text in seen), name


@pytest.mark.parametrize("name", ["", "_", "$"])
def test_one_model_has_its_name(name: str) -> None:
    for function in ("reliability_diagram", "risk_coverage"):
        ax = DRAW[function]([name])
        render(ax)
        assert any(text.startswith(name) for text in words(ax) if "ECE" in text or "AURC" in text)


def test_dollars_look_like_dollars() -> None:
    """The escaped name has the pixels of the name drawn without any formulas."""
    name = r"$x$ and \$y or $"
    pictures = []
    for text, formulas in ((_style.shown(name), True), (name, False)):
        ax = Figure(figsize=(3, 1)).subplots()
        ax.text(0.1, 0.5, text, parse_math=formulas)
        pictures.append(render(ax))
    np.testing.assert_array_equal(*pictures)


def test_marks_keep_the_order_after_names_from_right_to_left() -> None:
    assert _style.titled("שלום", "3 %") == "\u200eשלום\u200e (3 %)"
    assert _style.titled("plain", "3 %") == "plain (3 %)"


def test_names_below_bars_are_slanted_where_they_do_not_fit() -> None:
    values = {"a": 1.0}
    short = plots.bars({"one": values, "two words": values})
    assert {tick.get_rotation() for tick in short.get_xticklabels()} == {0}
    long = plots.bars({f"name {'of ten letters ' * 2}{i}": values for i in range(8)})
    assert {tick.get_rotation() for tick in long.get_xticklabels()} == {30}
    boxes = [tick.get_window_extent() for tick in short.get_xticklabels()]
    assert not boxes[0].overlaps(boxes[1])


def test_many_things_differ_without_colour() -> None:
    looks = [
        (str(style["linestyle"]), style["marker"]) for style in map(_style.line_style, range(24))
    ]
    assert len(set(looks)) == 24
    assert len({_style.bar_style(i)["hatch"] for i in range(8)}) == 8
    assert len({_style.bar_style(i)["facecolor"] for i in range(7)}) == 7
    assert len({str(_style.area_style(i)["linestyle"]) for i in range(6)}) == 6


def test_neighbouring_colours_differ_in_greyscale() -> None:
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in _style.COLOURS[:4]])
    light = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ (
        0.2126,
        0.7152,
        0.0722,
    )
    lightness = 116 * np.cbrt(light) - 16
    assert np.abs(np.diff(lightness)).min() > 20


# --- extreme samples --------------------------------------------------------------------------

EXTREMES = {
    "one right": Predictions(logits=[[3.0, 0.0]], labels=[0]),
    "one wrong": Predictions(logits=[[3.0, 0.0]], labels=[1]),
    "all right": Predictions(logits=P.logits, labels=P.predicted),
    "all wrong": Predictions(logits=P.logits, labels=(P.predicted + 1) % 5),
    "all equal": Predictions(logits=np.zeros((20, 3)), labels=np.arange(20) % 3),
    "certain": Predictions(probs=[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], labels=[0, 1, 1]),
    "saturated": Predictions(logits=40 * P.logits, labels=P.labels),
}


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind == "certain" else pytest.param(kind, marks=pytest.mark.slow)
        for kind in EXTREMES
    ],
)
def test_extreme_predictions_are_drawn(kind: str) -> None:
    p = EXTREMES[kind]
    c = Confidences(confidence=p.confidence, correct=p.correct)
    figure = Figure(figsize=(16, 16))
    left = iter(figure.subplots(4, 4).flat)
    for models in (p, c, {"a": p, "b": c}):
        plots.reliability_diagram(models, ax=next(left))
    plots.reliability_diagram(p, binning="mass", ax=next(left))
    plots.accuracy_confidence(p, binning="mass", ax=next(left))
    plots.accuracy_confidence(c, kind="above", ax=next(left))
    plots.risk_coverage({"a": p, "b": c}, ax=next(left))
    plots.ece_by_bins({"a": p, "b": c}, bins=[1, 7, 15], binning="mass", ax=next(left))
    plots.confidence_density(p, ax=next(left))
    plots.confidence_density(c, ax=next(left))
    plots.classwise_reliability(p, ax=next(left))
    plots.ece_uncertainty(p, ax=next(left))
    for metric in ("ece", "nll", "auroc"):
        plots.temperature_curve(p, metric=metric, ax=next(left))
    render(next(left))


def test_numbers_that_are_none_are_drawn() -> None:
    nan, inf = math.nan, math.inf
    render(plots.lines({"a": {0: [nan, nan], 1: [1.0, nan], 2: [inf]}, "b": {0: nan}}))
    render(plots.lines({"a": {1: [nan]}}, logx=True, percent=True))
    render(plots.bars({"g": {"a": [nan], "b": [inf, 1.0]}}))
    ax = plots.effect_sizes({"a": (nan, nan, nan), "b": (inf, nan, nan), "c": (1, nan, inf)})
    render(ax)
    ticks = [tick.get_text() for tick in ax.get_yticklabels()]
    assert ticks == ["a\n(no value)", "b\n(infinite)", "c"]
    ax = plots.pareto({"a": (nan, 1.0), "b": (1.0, nan)}, xlabel="x", ylabel="y")
    render(ax)
    assert "a (no value)" in legend_texts(ax)
    nothing = pa.table({"epoch": [0, 1], "test_nll": pa.array([None, nan], pa.float64())})
    render(plots.training_curves({"a": nothing, "b": [nothing, nothing]}))
    render(plots.training_curves(nothing.slice(0, 0)))
    render(plots.max_logit_histograms([3.0], [-1]))
    render(plots.max_logit_histograms([3.0, 3.0], [0, 5]))


# --- what is drawn is what was computed -------------------------------------------------------


def bars_of(ax: Axes, label: str) -> list[Any]:
    (found,) = [box for box in ax.containers if box.get_label() == label]
    return list(found)


def error_bars(container: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two ends of every error bar."""
    segments = np.array(container.lines[2][0].get_segments())
    return segments[:, 0], segments[:, 1]


@pytest.mark.parametrize("p", [P, Q], ids=["overconfident", "underconfident"])
@pytest.mark.parametrize("binning", ["width", "mass"])
def test_reliability_of_one_model(p: Predictions, binning: Any) -> None:
    ax = plots.reliability_diagram(p, bins=10, binning=binning)
    table = metrics.reliability(p, bins=10, binning=binning)
    full = table.count > 0
    assert not full.all() or binning == "mass"  # five classes: none below 20 %
    (accuracy,) = [box for box in ax.containers if str(box.get_label()).startswith("_")]
    np.testing.assert_allclose([bar.get_height() for bar in accuracy], table.accuracy[full])
    np.testing.assert_allclose([bar.get_x() for bar in accuracy], table.edges[:-1][full])
    gaps = bars_of(ax, "gap to the confidence")
    np.testing.assert_allclose([bar.get_height() for bar in gaps], np.abs(table.gap[full]))
    lower = np.minimum(table.accuracy, table.confidence)[full]
    np.testing.assert_allclose([bar.get_y() for bar in gaps], lower)
    weighted = sum(
        bar.get_height() * count for bar, count in zip(gaps, table.count[full], strict=True)
    )
    assert weighted / len(p) == pytest.approx(metrics.ece(p, bins=10, binning=binning))
    low, high = consistency_band(p, bins=10, binning=binning)
    band = bars_of(ax, "if calibrated (95 %)")
    np.testing.assert_allclose([bar.get_y() for bar in band], low[full])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in band], high[full])
    (points,) = [box for box in ax.containers if box.get_label() == "accuracy, 95 % interval"]
    np.testing.assert_allclose(points.lines[0].get_xdata(), table.confidence[full])
    bottom, top = error_bars(points)
    np.testing.assert_allclose(bottom[:, 1], table.lower[full])
    np.testing.assert_allclose(top[:, 1], table.upper[full])
    percent = 100 * metrics.ece(p, bins=10, binning=binning)
    assert f"ECE {percent:.1f} %" in [text.get_text() for text in ax.texts]


def test_reliability_shows_the_shares_of_samples() -> None:
    ax = plots.reliability_diagram({"a": P, "b": Q}, bins=10)
    strips = [patch for patch in ax.patches if hasattr(patch, "get_data")]
    shares = [metrics.reliability(p, bins=10).count / len(p) for p in (P, Q)]
    largest = max(share.max() for share in shares)
    for strip, share in zip(strips, shares, strict=True):
        values, _, baseline = strip.get_data()
        np.testing.assert_allclose(
            (values - baseline) / (values - baseline).max(), share / share.max()
        )
        assert values.max() < 0  # below the diagram
    assert any(f"{100 * largest:.0f}" in text.get_text() for text in ax.texts)
    plain = plots.reliability_diagram(P, counts=False)
    assert plain.get_ylim()[0] == 0
    assert not [patch for patch in plain.patches if hasattr(patch, "get_data")]


def test_reliability_without_a_band() -> None:
    ax = plots.reliability_diagram(P, band=False)
    assert "if calibrated (95 %)" not in legend_texts(ax)


def test_reliability_of_several_models() -> None:
    ax = plots.reliability_diagram({"over": P, "under": Q})
    for p, name, container in zip((P, Q), ("over", "under"), ax.containers, strict=True):
        table = metrics.reliability(p)
        full = table.count > 0
        np.testing.assert_allclose(container.lines[0].get_xdata(), table.confidence[full])
        np.testing.assert_allclose(container.lines[0].get_ydata(), table.accuracy[full])
        assert container.get_label() == f"{name} (ECE {100 * metrics.ece(p):.1f} %)"


def test_the_legend_of_reliability_avoids_the_points() -> None:
    over, under = (model(2000, sharpness=s) for s in (3.0, 0.3))
    places = [plots.reliability_diagram(p).texts[-1].get_position()[1] for p in (over, under)]
    assert places[0] > 0.9
    assert places[1] < 0.1


def test_classwise_reliability() -> None:
    """Against the reliability table of each class's own probability."""
    ax = plots.classwise_reliability(P, classes=[3, 1], bins=8)
    for line, k in zip(ax.lines[1:], (3, 1), strict=True):
        one = Confidences(confidence=P.probs[:, k], correct=P.labels == k)
        table = metrics.reliability(one, bins=8)
        full = table.count > 0
        np.testing.assert_allclose(line.get_xdata(), table.confidence[full], atol=1e-8)
        np.testing.assert_allclose(line.get_ydata(), table.accuracy[full])
        error = metrics.ece(one, bins=8)
        assert line.get_label() == f"class {k} ({100 * error:.1f} %)"
    table = Classwise.of(P, 15)
    assert table.error.mean() == pytest.approx(metrics.classwise_ece(P), rel=1e-12)


def test_classwise_reliability_shows_the_worst_first() -> None:
    p = model(3000, 9)
    errors = [
        metrics.ece(Confidences(confidence=p.probs[:, k], correct=p.labels == k)) for k in range(9)
    ]
    labels = [line.get_label() for line in plots.classwise_reliability(p).lines[1:]]
    assert [label.split(" (")[0] for label in labels] == [
        f"class {k}" for k in np.argsort(errors)[::-1][:6]
    ]


@pytest.mark.parametrize("p", [P, C, EXTREMES["one wrong"], EXTREMES["saturated"]])
def test_densities_have_the_area_one(p: Any) -> None:
    ax = plots.confidence_density(p)
    for line in ax.lines:
        x, y = line.get_data()
        if len(x):
            assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-9)
            assert x[0] == (1 / p.num_classes if isinstance(p, Predictions) else 0)
            assert x[-1] == 1
            assert (y >= 0).all()
    right, wrong = int(p.correct.sum()), int((~p.correct).sum())
    wanted = [
        f"{name} ({n:,})" if n else f"{name} (none)"
        for name, n in (("correct", right), ("incorrect", wrong))
    ]
    assert legend_texts(ax) == wanted


def test_density_is_the_sum_of_reflected_kernels() -> None:
    rng = np.random.default_rng(0)
    low = 0.2
    values = np.clip(1 - rng.exponential(0.15, 300), low, 1)
    x, y = density(values, low=low, points=2000)
    width = bandwidth(values)
    assert width == pytest.approx(values.std() * 300**-0.2)
    brute = np.zeros(len(x))
    for value in values:
        for image in (
            value,
            2 * low - value,
            2 - value,
            2 - (2 * low - value),
            2 * low - (2 - value),
        ):
            brute += np.exp(-(((x - image) / width) ** 2) / 2)
    brute /= 300 * width * math.sqrt(2 * math.pi)
    np.testing.assert_allclose(y, brute, atol=2e-3 * brute.max())


def test_density_corner_has_the_auroc() -> None:
    (text,) = plots.confidence_density(P).texts
    assert text.get_text() == f"AUROC {100 * metrics.auroc(P):.1f} %"
    (text,) = plots.confidence_density(EXTREMES["all right"]).texts
    assert text.get_text() == "AUROC undefined"


def test_accuracy_confidence_in_bins() -> None:
    ax = plots.accuracy_confidence({"a": P, "b": C}, bins=7, binning="mass")
    table = metrics.reliability(P, bins=7, binning="mass")
    for line in ax.lines[1:]:
        np.testing.assert_allclose(line.get_xdata(), table.confidence)
        np.testing.assert_allclose(line.get_ydata(), table.accuracy)


def test_accuracy_above_a_threshold() -> None:
    c = Confidences(confidence=[0.2, 0.5, 0.5, 0.9, 0.9, 1.0], correct=[0, 1, 0, 0, 1, 1])
    for p in (c, P):
        x, y = accuracy_above(p)
        assert x.tolist() == sorted(set(p.confidence.tolist()))
        for t, value in zip(x, y, strict=True):
            assert value == pytest.approx(p.correct[p.confidence >= t].mean())
    line = plots.accuracy_confidence(c, kind="above").lines[1]
    assert line.get_xdata().tolist() == [0, 0.2, 0.5, 0.9, 1.0]
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.5, 0.6, 2 / 3, 1.0])
    assert line.get_drawstyle() == "steps-pre"  # a step ends at its threshold


def test_ece_uncertainty() -> None:
    ax = plots.ece_uncertainty({"a": P, "b": Q}, norm=2, binning="mass")
    for p, line in zip((P, Q), ax.lines, strict=True):
        assert line.get_xdata() == [metrics.mean_entropy(p)]
        assert line.get_ydata() == [metrics.ece(p, norm=2, binning="mass")]


def test_risk_coverage_has_the_area_of_the_metric() -> None:
    tied = Confidences(confidence=np.round(P.confidence, 1), correct=P.correct)
    for p in (P, tied, EXTREMES["saturated"], EXTREMES["one wrong"]):
        coverage, risk = risk_by_coverage(p)
        np.testing.assert_allclose(coverage, np.arange(1, len(p) + 1) / len(p))
        assert risk.mean() == pytest.approx(metrics.aurc(p))
        assert risk[-1] == pytest.approx(1 - metrics.accuracy(p))
        (line,) = plots.risk_coverage(p).lines
        np.testing.assert_array_equal(line.get_ydata(), risk)
        assert line.get_label() == f"AURC {100 * metrics.aurc(p):.1f} %"


def test_risk_coverage_without_ties() -> None:
    order = np.argsort(-P.confidence)
    wrong = ~P.correct[order]
    _, risk = risk_by_coverage(P)
    np.testing.assert_allclose(risk, np.cumsum(wrong) / np.arange(1, len(P) + 1))


def test_long_curves_are_thinned() -> None:
    (line,) = plots.risk_coverage(model(9000)).lines
    assert len(line.get_xdata()) == 2000
    assert line.get_xdata()[[0, -1]] == pytest.approx([1 / 9000, 1])
    assert evenly_spaced(3, 2000).tolist() == [0, 1, 2]


def test_ece_by_bins() -> None:
    ax = plots.ece_by_bins({"a": P, "b": Q}, bins=[2, 9, 30], binning="mass")
    for p, line in zip((P, Q), ax.lines, strict=True):
        assert line.get_xdata().tolist() == [2, 9, 30]
        wanted = [metrics.ece(p, bins=b, binning="mass") for b in (2, 9, 30)]
        np.testing.assert_allclose(line.get_ydata(), wanted)


@pytest.mark.parametrize("metric", ["ece", "nll", "brier", "auroc"])
def test_temperature_curve(metric: str) -> None:
    ax = plots.temperature_curve(P, metric=metric)
    curve, fitted, best = ax.lines
    temperatures, values = curve.get_data()
    assert len(temperatures) == 121
    assert (np.diff(temperatures) >= 0).all()
    brute = []
    for t in temperatures:
        scaled = Predictions(logits=P.logits / t, labels=P.labels)
        brute.append(getattr(metrics, metric)(scaled))
    np.testing.assert_allclose(values, brute, rtol=1e-9, atol=1e-12)
    t = TemperatureScaling().fit(P).temperature_
    assert fitted.get_xdata()[0] == t
    assert t in temperatures
    at = np.argmax(brute) if metric == "auroc" else np.argmin(brute)
    assert best.get_ydata()[0] == pytest.approx(brute[at])
    assert best.get_xdata()[0] == pytest.approx(temperatures[at])
    if metric == "nll":
        assert best.get_xdata()[0] == t
    assert ax.get_xscale() == "log"


def test_temperature_curve_marks_a_given_temperature() -> None:
    ax = plots.temperature_curve(P, fitted=0.02)
    assert ax.lines[1].get_label() == "fitted T = 0.02"
    assert ax.lines[0].get_xdata()[0] == pytest.approx(0.004)
    assert ax.lines[0].get_xdata()[-1] == pytest.approx(5)


def test_temperature_curve_says_what_is_a_bound() -> None:
    ax = plots.temperature_curve(EXTREMES["all right"], metric="nll")
    assert ax.lines[1].get_label() == "fitted T = 0.01 (a bound)"


def test_training_curves_of_one_run() -> None:
    table = epochs_of(0)
    ax = plots.training_curves(table, quantity="ece", part="train")
    (line,) = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 13))
    np.testing.assert_array_equal(line.get_ydata(), table["train_ece"].to_numpy())
    assert ax.get_ylabel() == "training ECE (%)"
    assert not ax.collections  # one seed has no band
    assert ax.get_legend() is None


def test_training_curves_of_several_seeds() -> None:
    tables = [epochs_of(seed) for seed in range(4)]
    ax = plots.training_curves({"mine": tables, "yours": tables[0]})
    values = np.array([table["test_nll"].to_numpy() for table in tables])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), values.mean(axis=0))
    (band,) = ax.collections
    points = band.get_paths()[0].vertices
    sem = values.std(axis=0, ddof=1) / 2
    for i in range(12):
        at = points[np.isclose(points[:, 0], i + 1), 1]
        assert at.max() == pytest.approx(values[:, i].mean() + sem[i])
        assert at.min() == pytest.approx(values[:, i].mean() - sem[i])
    assert legend_texts(ax) == ["mine", "yours"]


def test_training_curves_leave_out_what_was_not_recorded() -> None:
    long = pa.table({"epoch": [0, 1, 2], "test_nll": [1.0, None, 3.0]})
    short = pa.table({"epoch": [0, 1], "test_nll": [2.0, math.inf]})
    (line,) = plots.training_curves([long, short]).lines
    np.testing.assert_array_equal(line.get_ydata(), [1.5, math.nan, 3.0])


def test_training_curves_split_and_parts() -> None:
    table = epochs_of(0)
    ax = plots.training_curves(table, quantity="entropy", split=True)
    assert legend_texts(ax) == ["correct", "incorrect"]
    np.testing.assert_array_equal(
        ax.lines[1].get_ydata(), table["test_entropy_incorrect"].to_numpy()
    )
    both = plots.training_curves(table, part=["train", "test"], split=True)
    assert legend_texts(both) == [
        "training, correct",
        "training, incorrect",
        "test, correct",
        "test, incorrect",
    ]
    assert both.get_ylabel() == "NLL (nats)"
    named = plots.training_curves({"a": table, "b": table}, split=True)
    assert legend_texts(named) == ["a, correct", "a, incorrect", "b, correct", "b, incorrect"]
    looks = {(line.get_color(), line.get_linestyle()) for line in named.lines}
    assert len(looks) == 4
    assert len({line.get_color() for line in named.lines}) == 2  # a colour is a run


def test_training_curves_of_columns_without_a_part() -> None:
    ax = plots.training_curves(epochs_of(0), quantity="head_norm")
    assert ax.get_ylabel() == "norm of the last layer's weights"
    assert plots.training_curves(epochs_of(0), quantity="optimal_ece").get_ylabel() == (
        "test ECE at the best temperature (%)"
    )


def test_training_curves_know_the_names_of_the_record() -> None:
    from calibrant.train import epochs_table
    from calibrant.train._telemetry import record_on_test

    samples = [model(200, seed=1), EXTREMES["all right"], model(200, seed=2)]
    rows = [{"epoch": i} | record_on_test(p) for i, p in enumerate(samples)]
    table = epochs_table(rows)
    for quantity in ("nll", "entropy", "ece", "confidence"):
        for split in (False, True):
            ax = plots.training_curves(table, quantity=quantity, split=split)
    (_, incorrect) = ax.lines  # of the confidence
    assert np.isnan(incorrect.get_ydata()).tolist() == [False, True, False]
    for quantity in ("error", "optimal_ece", "optimal_temperature", "max_logit"):
        ax = plots.training_curves({"a": [table, table]}, quantity=quantity)
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [r[f"test_{quantity}"] for r in rows])


def test_max_logit_histograms() -> None:
    ax = plots.max_logit_histograms(LOGITS, LEARNED, bins=25)
    groups = learned_groups(LEARNED, 3)
    assert len(groups) == 4
    for patch, group in zip(ax.patches, groups, strict=True):
        places = group.places
        values, edges, _ = patch.get_data()
        assert (values * np.diff(edges)).sum() == pytest.approx(1)
        brute = [
            ((LOGITS[places] >= a) & (LOGITS[places] < b)).mean() / (b - a)
            for a, b in pairwise(edges)
        ]
        np.testing.assert_allclose(values[:-1], brute[:-1])
    names = [text.split()[0] for text in legend_texts(ax)]
    assert names == ["early:", "middle:", "late:", "never"]


def test_learned_groups_part_the_samples() -> None:
    rng = np.random.default_rng(0)
    for groups in (1, 2, 3, 5):
        learned = rng.integers(-1, 200, 3000)
        found = learned_groups(learned, groups)
        everyone = np.concatenate([group.places for group in found])
        assert sorted(everyone.tolist()) == list(range(3000))
        *known, never = found
        assert (learned[never.places] == -1).all()
        assert len(known) == groups
        for group in known:
            assert learned[group.places].min() == group.first
            assert learned[group.places].max() == group.last
            assert len(group.places) == pytest.approx((learned >= 0).sum() / groups, abs=40)
        assert all(a.last < b.first for a, b in pairwise(known))


def test_the_names_of_thirds_stay_with_their_third() -> None:
    """Most samples learned at once leave an earlier third empty; the late are still the late."""
    learned = np.array([0] * 90 + [7] * 10)
    ax = plots.max_logit_histograms(np.arange(100.0), learned)
    assert legend_texts(ax) == ["middle: epoch 1 (90)", "late: epoch 8 (10)"]


@pytest.mark.parametrize("spread", ["sem", "std", None])
def test_lines(spread: str | None) -> None:
    ax = plots.lines(SERIES, spread=spread, xlabel="x", ylabel="ECE", percent=True)
    for container, points in zip(ax.containers, SERIES.values(), strict=True):
        found = [summarise_runs(values) for values in points.values()]
        np.testing.assert_allclose(container.lines[0].get_xdata(), list(points))
        np.testing.assert_allclose(container.lines[0].get_ydata(), [f.mean for f in found])
        if spread:
            bottom, top = error_bars(container)
            reach = [getattr(f, spread) for f in found]
            np.testing.assert_allclose((top - bottom)[:, 1] / 2, reach)
    assert ax.get_ylabel() == "ECE (%)"
    title = ax.get_legend().get_title().get_text()
    assert (
        title
        == {"sem": "mean ± standard error", "std": "mean ± standard deviation", None: ""}[spread]
    )


def test_lines_are_sorted_and_take_single_numbers() -> None:
    ax = plots.lines({"a": {3: 0.3, 1: [0.1], 2: np.float32(0.2)}})
    line = ax.containers[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), [0.1, 0.2, 0.3])


def test_lines_over_texts_stand_in_order() -> None:
    ax = plots.lines({"a": {"CE": 1.0, "focal": 2.0}, "b": {"focal": 3.0, "IFL": 4.0}})
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["CE", "focal", "IFL"]
    np.testing.assert_allclose(ax.containers[1].lines[0].get_xdata(), [1, 2])


def test_wrappers_of_lines() -> None:
    levels = plots.shift_levels(SERIES)
    strength = plots.coefficient_sensitivity({"a": {0.1: 0.2, 1: 0.1}}, logx=True)
    assert levels.get_ylim()[0] == 0
    assert strength.get_xscale() == "log"
    assert (levels.get_ylabel(), strength.get_ylabel()) == ("ECE (%)", "ECE (%)")


def test_bars() -> None:
    ax = plots.bars(GROUPS, spread="std", ylabel="ECE")
    heights = {
        box.get_label(): [bar.get_height() for bar in box]
        for box in ax.containers
        if isinstance(box, mpl.container.BarContainer)
    }
    assert heights == {
        "a": pytest.approx([0.11, 0.05]),
        "b": pytest.approx([0.225]),
        "c": pytest.approx([0.3, 0.135]),
    }
    boxes = [bar for bar in ax.patches if bar.get_height() > 0]
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in boxes)
    assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    errors = [box for box in ax.containers if not isinstance(box, mpl.container.BarContainer)]
    bottom, top = error_bars(errors[0])
    np.testing.assert_allclose((top - bottom)[:, 1] / 2, [0.01, 0.01])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["left", "right"]
    for tick, middle in zip(ax.get_xticks(), (0, 1), strict=True):
        assert tick == middle


def test_effect_sizes() -> None:
    ax = plots.effect_sizes(EFFECTS)
    rows = {box.get_label(): box for box in ax.containers}
    clear = rows["interval excludes 0"]
    assert clear.lines[0].get_xdata().tolist() == [2.0]
    assert clear.lines[0].get_ydata().tolist() == [0]
    left, right = error_bars(clear)
    assert (left[0, 0], right[0, 0]) == (1.0, 3.0)
    assert rows["interval includes 0"].lines[0].get_xdata().tolist() == [0.3]
    assert rows["no interval"].lines[0].get_xdata().tolist() == [-1.0]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first on top


@pytest.mark.parametrize(
    ("better", "front"),
    [
        (("lower", "lower"), "abd"),
        (("higher", "higher"), "acd"),
        (("lower", "higher"), "a"),
        (("higher", "lower"), "d"),
    ],
)
def test_pareto(better: tuple[str, str], front: str) -> None:
    ax = plots.pareto(POINTS, xlabel="x", ylabel="y", better=better)
    steps, *points = ax.lines
    assert list(zip(*steps.get_data(), strict=True)) == [POINTS[name] for name in front]
    filled = "".join(
        point.get_label() for point in points if point.get_markerfacecolor() != "white"
    )
    assert filled == front
    wanted = "steps-post" if better[0] == "lower" else "steps-pre"
    assert steps.get_drawstyle() == wanted


@pytest.mark.parametrize("better", [("lower", "lower"), ("higher", "higher")])
def test_the_front_bounds_what_is_reached(better: tuple[str, str]) -> None:
    """No point lies beyond the steps."""
    rng = np.random.default_rng(0)
    points = {str(i): tuple(xy) for i, xy in enumerate(rng.random((40, 2)))}
    steps = plots.pareto(points, xlabel="x", ylabel="y", better=better).lines[0]
    x, y = steps.get_data()
    for px, py in points.values():
        if better[0] == "lower":
            reached = y[x <= px].min() if (x <= px).any() else math.inf
            assert py >= reached or reached == math.inf
        else:
            assert py <= y[x >= px].max()


# --- refusals ---------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "no model": ("models must be a mapping", lambda: plots.reliability_diagram([0.1])),
    "no models": ("models must have an entry", lambda: plots.risk_coverage({})),
    "number as a name": ("models must have strings as names", lambda: plots.ece_by_bins({1: P})),
    "array as a model": (
        "models must hold Predictions or Confidences; got ndarray for 'a'",
        lambda: plots.accuracy_confidence({"a": np.ones(3)}),
    ),
    "bins": ("bins must be a whole number", lambda: plots.reliability_diagram(P, bins=0)),
    "binning": ("binning must be", lambda: plots.reliability_diagram(P, binning="mas")),
    "no bins": ("bins must have at least one number", lambda: plots.ece_by_bins(P, bins=[])),
    "classes of confidences": ("p must be Predictions", lambda: plots.classwise_reliability(C)),
    "class": ("numbers from 0 to 4; got 5", lambda: plots.classwise_reliability(P, classes=[5])),
    "class name": (
        "no class names",
        lambda: plots.classwise_reliability(P, classes=["cat"]),
    ),
    "near class name": (
        "Did you mean 'cat'",
        lambda: plots.classwise_reliability(with_classes(["cat", "dog"]), classes=["cta"]),
    ),
    "no classes": ("classes must name", lambda: plots.classwise_reliability(P, classes=[])),
    "points": ("points must be", lambda: plots.confidence_density(P, points=3)),
    "density of nothing": (
        "p must be Predictions or Confidences",
        lambda: plots.confidence_density(None),
    ),
    "kind": ("kind must be 'bin' or 'above'", lambda: plots.accuracy_confidence(P, kind="over")),
    "entropy of confidences": ("must be Predictions", lambda: plots.ece_uncertainty(C)),
    "metric": ("Did you mean 'nll'", lambda: plots.temperature_curve(P, metric="nl")),
    "fitted": ("fitted must be a finite", lambda: plots.temperature_curve(P, fitted=-1)),
    "temperature of confidences": ("p must be Predictions", lambda: plots.temperature_curve(C)),
    "runs": ("runs must be a mapping", lambda: plots.training_curves(3)),
    "no runs": ("got none for ''", lambda: plots.training_curves([])),
    "runs of texts": ("got str for 'a'", lambda: plots.training_curves({"a": ["b"]})),
    "run of a number": ("runs must be tables", lambda: plots.training_curves({"a": 3})),
    "no epochs": ("column 'epoch'", lambda: plots.training_curves(pa.table({"test_nll": [1.0]}))),
    "quantity": (
        "'test_nl', which is missing. Did you mean 'test_nll'",
        lambda: plots.training_curves(epochs_of(0), quantity="nl"),
    ),
    "texts as a quantity": (
        "quantity must be numbers",
        lambda: plots.training_curves(pa.table({"epoch": [0], "test_nll": ["high"]})),
    ),
    "no split": (
        "'test_optimal_ece_correct', which is missing",
        lambda: plots.training_curves(epochs_of(0), quantity="optimal_ece", split=True),
    ),
    "part": ("part must be", lambda: plots.training_curves(epochs_of(0), part="tset")),
    "no part": ("part must be", lambda: plots.training_curves(epochs_of(0), part=[])),
    "matrix of logits": (
        r"logits must have shape \(N,\)",
        lambda: plots.max_logit_histograms(np.ones((3, 2)), [0, 1, 2]),
    ),
    "infinite logit": (
        "logits must be finite; got inf",
        lambda: plots.max_logit_histograms([1.0, math.inf], [0, 1]),
    ),
    "fractional epochs": (
        "learned must have one integer per sample",
        lambda: plots.max_logit_histograms([1.0, 2.0], [0.5, 1]),
    ),
    "fewer epochs": ("learned must have", lambda: plots.max_logit_histograms([1.0, 2.0], [1])),
    "groups of epochs": (
        "groups must be",
        lambda: plots.max_logit_histograms([1.0], [1], groups=0),
    ),
    "no series": ("series must have an entry", lambda: plots.lines({})),
    "list as series": (r"series\['a'\] must be a mapping", lambda: plots.lines({"a": [1.0]})),
    "empty series": ("got an empty mapping", lambda: plots.lines({"a": {}})),
    "no seeds": (r"series\['a'\]\[1\] must have one", lambda: plots.lines({"a": {1: []}})),
    "text as a value": (r"\[1\] must hold real", lambda: plots.lines({"a": {1: ["x"]}})),
    "mixed x": ("numbers, or strings, as x; got 'x'", lambda: plots.lines({"a": {1: 1, "x": 2}})),
    "infinite x": ("got inf", lambda: plots.lines({"a": {math.inf: 1}})),
    "zero on a log axis": (
        "above 0 as x; got 0",
        lambda: plots.lines({"a": {0: 1.0, 1: 2.0}}, logx=True),
    ),
    "texts on a log axis": ("above 0 as x", lambda: plots.lines({"a": {"x": 1}}, logx=True)),
    "spread": ("spread must be", lambda: plots.lines(SERIES, spread="se")),
    "spread of bars": ("spread must be", lambda: plots.bars(GROUPS, spread="range")),
    "no groups": ("groups must have an entry", lambda: plots.bars({})),
    "flat groups": (r"groups\['g'\] must be a mapping", lambda: plots.bars({"g": [1.0]})),
    "pair as an effect": (
        r"effects\['a'\] must be 3 numbers",
        lambda: plots.effect_sizes({"a": (1.0, 2.0)}),
    ),
    "effect outside": (
        "low <= effect <= high",
        lambda: plots.effect_sizes({"a": (5.0, 1.0, 2.0)}),
    ),
    "bounds swapped": ("low <= effect", lambda: plots.effect_sizes({"a": (math.nan, 2.0, 1.0)})),
    "single coordinate": (
        r"points\['a'\] must be 2 numbers",
        lambda: plots.pareto({"a": [1.0]}, xlabel="", ylabel=""),
    ),
    "better": (
        "better must be 'lower' or 'higher'",
        lambda: plots.pareto(POINTS, xlabel="", ylabel="", better=("lower", "up")),
    ),
    "one better": (
        "better must be two strings",
        lambda: plots.pareto(POINTS, xlabel="", ylabel="", better="lower"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused(case: str) -> None:
    message, call = REFUSED[case]
    with pytest.raises(InputError, match=message):
        call()


def test_without_matplotlib_the_pip_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[plots\]'"):
        plots.risk_coverage(P)


def test_importing_the_module_loads_neither_matplotlib_nor_torch() -> None:
    import subprocess
    import sys

    code = "import sys, calibrant.plots; sys.exit(bool({'matplotlib', 'torch'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- images -----------------------------------------------------------------------------------

PICTURES: dict[str, Callable[[Axes], object]] = {
    "reliability_one": lambda ax: plots.reliability_diagram(P, bins=10, ax=ax),
    "reliability_many": lambda ax: plots.reliability_diagram({"P": P, "Q": Q}, bins=10, ax=ax),
    "confidence_density": lambda ax: plots.confidence_density(P, ax=ax),
    "temperature_curve": lambda ax: plots.temperature_curve(P, fitted=1.5, ax=ax),
    "training_curves": lambda ax: plots.training_curves(
        {"a": [epochs_of(0), epochs_of(1)], "b": epochs_of(2)}, split=True, ax=ax
    ),
    "max_logit_histograms": lambda ax: plots.max_logit_histograms(LOGITS, LEARNED, ax=ax),
    "lines": lambda ax: plots.lines(SERIES, xlabel="x", ylabel="ECE", percent=True, ax=ax),
    "bars": lambda ax: plots.bars(GROUPS, ylabel="ECE", percent=True, ax=ax),
    "effect_sizes": lambda ax: plots.effect_sizes(EFFECTS, ax=ax),
    "pareto": lambda ax: plots.pareto(POINTS, xlabel="error", ylabel="ECE", ax=ax),
}


def picture(name: str) -> np.ndarray:
    """Pixels of a picture, in Matplotlib's own style and font."""
    with mpl.style.context("default"), mpl.rc_context({"font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(5, 4), dpi=60, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        PICTURES[name](figure.subplots())
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].astype(np.float64)


def difference(name: str) -> float:
    """Root mean square difference from the reference, in steps of 255."""
    reference = np.round(plt.imread(IMAGES / f"{name}.png")[..., :3] * 255)
    drawn = picture(name)
    assert drawn.shape == reference.shape
    return float(np.sqrt(np.mean((drawn - reference) ** 2)))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_before(name: str) -> None:
    assert difference(name) < TOLERANCE


def test_no_image_is_left_over() -> None:
    assert {path.stem for path in IMAGES.glob("*.png")} == set(PICTURES)


@pytest.mark.parametrize("name", ["reliability_many", "confidence_density", "lines", "bars"])
def test_another_colour_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ("#009e73", *_style.COLOURS[1:])
    monkeypatch.setattr(_style, "COLOURS", other)
    monkeypatch.setattr("calibrant.plots._confidence.COLOURS", other)
    assert difference(name) > TOLERANCE


def test_another_hatch_or_dash_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_style, "HATCHES", ("xx", *_style.HATCHES[1:]))
    monkeypatch.setattr(_style, "DASHES", (":", *_style.DASHES[1:]))
    assert difference("bars") > TOLERANCE
    assert difference("lines") > TOLERANCE


def write_images() -> None:
    from PIL import Image

    IMAGES.mkdir(exist_ok=True)
    for name in PICTURES:
        Image.fromarray(picture(name).astype(np.uint8)).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    write_images()
