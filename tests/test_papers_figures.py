"""The figures of the papers: what they need, what they draw, and that it is what was measured."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from scipy.optimize import brentq

from calibrant import metrics
from calibrant._core.checks import InputError
from calibrant.calibrators import HistogramBinning
from calibrant.papers._figures import (
    FIGURES,
    _karandikar_values,
    _levels,
    _wang_values,
    draw_figure,
    karandikar2021,
    mukhoti2020,
    singh2021,
    wang2021,
)
from calibrant.papers._figures._panel import PlaceRuns, only_panel, panels
from calibrant.papers._figures._sheet import NOT_RUN, one_legend, sheet
from calibrant.papers._figures._wang_values import along_spectrum
from calibrant.papers._results import Results
from calibrant.papers._scales import PaperAt, Place, paper_at
from calibrant.results import cohens_d, summarise_runs
from calibrant.study import Local, Run, Study, run_study

NAMES = {
    "loss_report": ["figure1"],
    "wang2021": [f"figure{i}" for i in range(1, 7)],
    "singh2021": ["figure1", "figure2"],
    "mukhoti2020": ["figure1", "figure2", "figureA1"],
    "karandikar2021": [f"figure{i}" for i in range(1, 11)],
}
ALL = [(paper, name) for paper, names in NAMES.items() for name in names]
KINDS = {"main", "coefficients", "sizes", "epochs", "shift", "confidnet"}

# --- a tiny folder of real runs ---------------------------------------------------------------

OURS = Place("digits", "mlp")
COMMON = {
    "data": "digits",
    "models": "mlp",
    "recipe": {"name": "quick", "epochs": 2},
    "calibration": 0.5,
    "telemetry": True,
    "metrics": [
        "accuracy",
        "ece",
        "mean_entropy",
        {"name": "ece", "norm": 2, "binning": "mass", "label": "ece_l2_mass"},
    ],
    "calibrators": [
        "none",
        {"name": "temperature", "label": "TS"},
        {"name": "temperature", "objective": "ece", "label": "TS-ECE"},
        {"name": "temperature", "objective": "soft_ece", "label": "TS-SB-ECE"},
        {"name": "histogram", "label": "HB"},
    ],
}
MAIN = {
    "cross_entropy": "cross_entropy",
    "label_smoothing": "label_smoothing:epsilon=0.05",
    "cross_entropy + logit_norm": "cross_entropy + 0.01*logit_norm",
    "cross_entropy + negative_entropy": "cross_entropy + 0.1*negative_entropy",
    "focal": "focal:gamma=3",
    "focal 1": "focal:gamma=1",
    "inverse_focal": "inverse_focal:gamma=2",
    "cross_entropy + mmce": "cross_entropy + 2*mmce",
    "focal + mmce": "focal:gamma=3 + 2*mmce",
    "squared_error": "squared_error",
}
CORRUPTIONS, LEVELS = ("generated/contrast", "generated/gaussian_noise"), (1, 4)
STUDIES = {
    "main": Study.parse(
        {
            **COMMON,
            "name": "main",
            "seeds": 2,
            "objectives": [{"objective": o, "label": label} for label, o in MAIN.items()],
            "shifts": [f"{corruption}/{level}" for corruption in CORRUPTIONS for level in LEVELS],
        }
    ),
    "sweep": Study.parse(
        {
            **COMMON,
            "name": "sweep",
            "seeds": 2,
            "objectives": [
                {"objective": "label_smoothing:epsilon=0.3", "label": "label_smoothing 0.3"},
            ],
        }
    ),
    "sizes": Study.parse(
        {
            **COMMON,
            "name": "sizes",
            "seeds": 1,
            "objectives": [
                {
                    "objective": "focal:gamma={c}",
                    "c": [1, 9],
                    "train_size": [50, 200],
                    "label": "focal {c} n={train_size}",
                }
            ],
        }
    ),
}


@dataclass(frozen=True)
class TinyAt(PaperAt):
    """A scale whose studies are the ones above."""

    def study(self, kind: str, methods: Iterable[str] | None = None) -> list[Study]:
        found = [STUDIES[name] for name in self.studies.get(kind, ())]
        return [
            replace(s, runs=tuple(r for r in s.runs if methods is None or r.name in set(methods)))
            for s in found
        ]


AT = {
    # cifar100 stands for itself, and is not run; nothing stands for news20
    "wang2021": TinyAt(
        "wang2021",
        "tiny",
        {"main": ("main",), "coefficients": ("sweep",), "sizes": ("sizes",)},
        {
            Place("svhn", "resnet32"): (OURS,),
            Place("cifar10", "resnet32"): (OURS,),
            Place("cifar100", "resnet32"): (Place("cifar100", "resnet32"),),
        },
    ),
    "singh2021": TinyAt(
        "singh2021",
        "tiny",
        {"main": ("main",)},
        {Place("cifar10", model): (OURS,) for model in ("vgg16", "resnet50")},
    ),
    # the question of epochs is asked elsewhere than at the place for cifar10
    "mukhoti2020": TinyAt(
        "mukhoti2020",
        "tiny",
        {"main": ("main",), "epochs": ("main",)},
        {Place("cifar10", "resnet50"): (Place("signals", "cnn1d"),)},
    ),
    "karandikar2021": TinyAt(
        "karandikar2021",
        "tiny",
        {"main": ("main",), "shift": ("main",)},
        {
            Place("cifar100", "wrn28-10"): (OURS,),
            Place("cifar10", "wrn28-10"): (OURS,),
            Place("imagenet", "resnet50"): (OURS,),
        },
    ),
    "loss_report": TinyAt(
        "loss_report", "tiny", {"main": ("main",)}, {Place("cifar10", "resnet18"): (OURS,)}
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    runs = tuple(run for study in STUDIES.values() for run in study.runs)
    every = replace(STUDIES["main"], runs=runs)  # one worker, which loads PyTorch once
    done = run_study(every, out, executor=Local(workers=1, threads=1))
    assert set(done.states.values()) == {"done"}
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Results]:
    return {paper: Results(at, folder) for paper, at in AT.items()}


def grey(fig: Figure) -> list[bool]:
    return [any(t.get_text() == NOT_RUN for t in ax.texts) for ax in fig.axes if ax.axison]


def line(ax: Axes, name: str) -> np.ndarray:
    """Points of the line of a name."""
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        if label == name:
            artist = handle[0] if isinstance(handle, tuple) else handle
            return np.array(artist.get_data())
    raise KeyError(name)


# --- the list ---------------------------------------------------------------------------------


def test_every_figure_of_the_five_papers_is_there() -> None:
    assert {paper: list(figures) for paper, figures in FIGURES.items()} == NAMES
    assert len(ALL) == 22
    for paper, name in ALL:
        info = FIGURES[paper][name]
        assert (info.paper, info.figure) == (paper, name)
        assert info.caption.endswith(".")
        assert info.panels
        assert len(set(info.panels)) == len(info.panels)


@pytest.mark.parametrize(("paper", "name"), ALL)
def test_needs_are_runs_that_the_recipes_have(paper: str, name: str) -> None:
    at = paper_at(paper, "smoke")
    for need in FIGURES[paper][name].needs:
        assert need.kind in KINDS & set(at.studies)
        if need.methods is not None:
            made = {run.name for study in at.study(need.kind, need.methods) for run in study.runs}
            # SVHN alone needs another name for focal loss with gamma 3, at the scale of the paper.
            assert made == set(need.methods) - {"focal 3"}


def test_only_mathematics_needs_no_runs() -> None:
    found = [(paper, name) for paper, name in ALL if not FIGURES[paper][name].needs]
    assert found == [
        ("mukhoti2020", "figureA1"),
        ("karandikar2021", "figure3"),
        ("karandikar2021", "figure4"),
    ]


def test_the_list_does_not_load_matplotlib() -> None:
    code = "import sys, calibrant.papers._figures; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.parametrize(
    ("paper", "name", "message"),
    [
        ("wang2012", "figure1", "wang2021"),
        ("wang2021", "figure7", "must be a figure of wang2021"),
    ],
)
def test_unknown_figures_are_refused(paper: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_figure(paper, name)


def test_results_of_another_paper_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be of wang2021"):
        draw_figure("wang2021", "figure1", Results(AT["singh2021"], tmp_path))


def test_without_matplotlib_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[plots\]'"):
        draw_figure("wang2021", "figure6")


# --- without results --------------------------------------------------------------------------


@pytest.mark.parametrize(("paper", "name"), ALL)
def test_without_results_every_published_panel_says_so(paper: str, name: str) -> None:
    fig, info = draw_figure(paper, name), FIGURES[paper][name]
    drawn = {("wang2021", "figure6"): 1, ("singh2021", "figure1"): 3}
    exact = drawn.get((paper, name), 0) if info.needs else len(info.panels)
    assert sum(grey(fig)) == len(info.panels) - exact
    assert len(grey(fig)) == len(info.panels)


@pytest.mark.parametrize(("paper", "name"), ALL)
def test_an_empty_folder_is_the_same(paper: str, name: str, tmp_path: Path) -> None:
    empty = Results(paper_at(paper, "smoke"), tmp_path)
    drawn = {("wang2021", "figure6"): 1, ("singh2021", "figure1"): 3}
    found = grey(draw_figure(paper, name, empty))
    if FIGURES[paper][name].needs:
        assert found.count(False) == drawn.get((paper, name), 0)
    else:
        assert not any(found)


# --- mathematics ------------------------------------------------------------------------------


def test_optimum_of_cross_entropy_is_the_truth() -> None:
    q = np.linspace(0, 1, 101)
    np.testing.assert_allclose(mukhoti2020.optimum(q, gamma=0), q, atol=1e-12)


@pytest.mark.parametrize("gamma", [1, 2, 3, 5])
def test_optimum_of_focal_loss_has_no_slope(gamma: float) -> None:
    def slope(x: float, q: float) -> float:
        """The derivative of equation 1 of the paper's appendix, by hand."""
        up = gamma * (1 - x) ** (gamma - 1) * math.log(x) - (1 - x) ** gamma / x
        down = gamma * x ** (gamma - 1) * math.log(1 - x) - x**gamma / (1 - x)
        return q * up - (1 - q) * down

    q = np.array([0.001, 0.05, 0.3, 0.5, 0.77, 0.99])
    expected = [brentq(slope, 1e-9, 1 - 1e-9, args=(each,), xtol=1e-15) for each in q]
    np.testing.assert_allclose(mukhoti2020.optimum(q, gamma=gamma), expected, rtol=0, atol=1e-10)


def test_figure_a1_draws_the_optima() -> None:
    (ax,) = draw_figure("mukhoti2020", "figureA1").axes
    q, p = line(ax, "cross-entropy")
    np.testing.assert_allclose(p, q, atol=1e-12)
    assert (q[0], q[-1]) == (0, 1)
    q, p = line(ax, "focal, γ = 3")
    assert (np.diff(p) > 0).all()
    inside = (q > 0) & (q < 1) & (np.abs(q - 0.5) > 1e-9)
    assert (np.abs(p - 0.5) < np.abs(q - 0.5))[inside].all()


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("FL-3", lambda p: -((1 - p) ** 3) * np.log(p)),
        ("FL-1", lambda p: -(1 - p) * np.log(p)),
        ("CE", lambda p: -np.log(p)),
        ("IFL-1", lambda p: -(1 + p) * np.log(p)),
        ("IFL-3", lambda p: -((1 + p) ** 3) * np.log(p)),
    ],
)
def test_wang_figure_6a_draws_the_losses(name: str, formula: object) -> None:
    p, loss = line(draw_figure("wang2021", "figure6").axes[0], name)
    np.testing.assert_allclose(loss, formula(p), rtol=1e-10, atol=1e-14)  # type: ignore[operator]


def test_karandikar_figure_3_draws_soft_membership() -> None:
    for ax, t in zip(
        draw_figure("karandikar2021", "figure3").axes, (0.05, 0.01, 0.001), strict=True
    ):
        c, _ = line(ax, "bin 1")
        shares = np.array([line(ax, f"bin {j}")[1] for j in range(1, 6)])
        scores = np.exp(-((c - np.array([[0.1], [0.3], [0.5], [0.7], [0.9]])) ** 2) / t)
        np.testing.assert_allclose(shares, scores / scores.sum(axis=0), atol=1e-12)


def test_karandikar_figure_4_draws_soft_uncertainty() -> None:
    left, right = draw_figure("karandikar2021", "figure4").axes

    def formula(h: np.ndarray, kappa: float, t: float) -> np.ndarray:
        odds = h * (1 - kappa) / ((1 - h) * kappa)
        return odds ** (1 / t) / (1 + odds ** (1 / t))

    for ax, name, kappa, t in (
        (left, "κ = 0.2", 0.2, 0.25),
        (left, "κ = 0.8", 0.8, 0.25),
        (right, "T = 1", 0.5, 1.0),
    ):
        h, y = line(ax, name)
        np.testing.assert_allclose(y[1:-1], formula(h[1:-1], kappa, t), rtol=1e-9, atol=1e-300)
    h, y = line(right, "T = 1")
    np.testing.assert_allclose(y, h, atol=1e-12)


@pytest.mark.parametrize(
    ("scenario", "ece", "auroc"),
    list(zip(singh2021.SCENARIOS, ("0.06", "0.18", "0.08"), ("77.4", "99.46", "89"), strict=True)),
)
def test_singh_scenarios_have_the_numbers_of_the_paper(
    scenario: singh2021.Scenario, ece: str, auroc: str
) -> None:
    p = scenario.confidences()
    assert p.correct.mean() == 0.5
    assert f"{metrics.ece(p):.2f}" == ece
    digits = len(auroc.partition(".")[2])
    assert f"{100 * metrics.auroc(p):.{digits}f}" == auroc


# --- from results -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), ALL)
def test_every_figure_is_drawn_from_runs(
    paper: str, name: str, results: dict[str, Results]
) -> None:
    fig = draw_figure(paper, name, results[paper])
    found = grey(fig)
    assert not all(found)
    titles = [ax.get_title().replace("\n", " ") for ax in fig.axes]
    if FIGURES[paper][name].needs and (paper, name) != ("karandikar2021", "figure1"):
        named = [*titles, *(text.get_text().replace("\n", " ") for text in _legend_texts(fig))]
        assert any("digits, mlp (for" in words for words in named)


def _legend_texts(fig: Figure) -> list:
    return [text for made in fig.legends for text in made.get_texts()]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_are_saved(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"figure.{ending}"
    draw_figure("karandikar2021", "figure4").savefig(path)
    assert path.stat().st_size > 1000


@pytest.mark.slow
def test_places_that_share_ours_are_drawn_once(results: dict[str, Results]) -> None:
    fig = draw_figure("wang2021", "figure4", results["wang2021"])
    titles = [ax.get_title().replace("\n", " ") for ax in fig.axes if ax.axison]
    assert titles == [
        "digits, mlp (for svhn, resnet32; cifar10, resnet32)",
        "cifar100, resnet32",
        "news20, textcnn",
    ]
    assert grey(fig) == [False, True, True]


@pytest.mark.slow
def test_wang_figure_1_has_the_ece_of_each_coefficient(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    a, _, _, d = draw_figure("wang2021", "figure1", r).axes
    x, y = line(a, "digits, mlp (for svhn, resnet32;\ncifar10, resnet32)")
    np.testing.assert_allclose(x, [0.05, 0.3])
    expected = [
        np.mean([r.value(run, "ece") for run in r.runs(kind, method=method)])
        for kind, method in (("main", "label_smoothing"), ("coefficients", "label_smoothing 0.3"))
    ]
    np.testing.assert_allclose(y, expected)
    x, y = line(d, "focal: γ")
    values = {run.name: r.value(run, "ece") for run in r.runs("sizes")}
    best = [min((1, 9), key=lambda c, n=n: values[f"focal {c} n={n}"]) for n in (50, 200)]
    np.testing.assert_allclose(x, [50, 200])
    np.testing.assert_allclose(y, best)
    assert d.get_title().replace("\n", " ") == "(d) digits, mlp (for cifar10, resnet32)"


@pytest.mark.slow
def test_wang_figure_2_is_after_the_search_for_the_temperature(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    fig = draw_figure("wang2021", "figure2", r)
    for ax, method in zip(fig.axes, wang2021.METHODS, strict=True):
        after = r.value(r.runs(method=method)[0], "ece", "temperature")
        assert f"ECE {100 * after:.1f} %" in [text.get_text() for text in ax.texts]


@pytest.mark.slow
def test_wang_figure_3_ends_at_the_tables(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    fig = draw_figure("wang2021", "figure3", r)
    ours = [ax for ax in fig.axes if "digits" in ax.get_title()]
    assert len(ours) == 2
    for ax, calibrator in zip(ours, ("temperature", "histogram"), strict=True):
        for method, name in wang2021.METHODS.items():
            sizes, errors = line(ax, name)
            table = [r.value(run, "ece", calibrator) for run in r.runs(method=method)]
            np.testing.assert_allclose(errors[-1], np.mean(table))
            assert sizes[-1] == r.predictions(r.runs()[0], "calibration").num_samples
            assert list(sizes) == _wang_values.validation_sizes(int(sizes[-1]))


@pytest.mark.slow
def test_validation_samples_are_nested(results: dict[str, Results]) -> None:
    seen: list[set[bytes]] = []

    class Spy(HistogramBinning):
        def fit(self, p):
            seen.append({row.tobytes() for row in p.logits})
            return super().fit(p)

    (panel,) = panels(results["wang2021"], [Place("cifar10", "resnet32")])
    points = _wang_values.ece_by_size(panel, "cross_entropy", Spy)
    half = len(seen) // 2
    assert half == len(points) > 3
    for some in (seen[:half], seen[half:]):  # seed by seed
        assert [len(rows) for rows in some] == sorted(points)
        assert all(small < large for small, large in pairwise(some))


@pytest.mark.parametrize(
    ("samples", "sizes"),
    [
        (1, [1]),
        (29, [29]),
        (30, [15, 30]),
        (5000, [156, 312, 625, 1250, 2500, 5000]),
    ],
)
def test_validation_sizes_are_halves(samples: int, sizes: list[int]) -> None:
    assert _wang_values.validation_sizes(samples) == sizes


@pytest.mark.slow
def test_wang_figure_4_has_mean_and_range_of_the_epochs(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    ax = draw_figure("wang2021", "figure4", r).axes[0]
    for name, kind, method in (
        ("ε = 0.05", "main", "label_smoothing"),
        ("ε = 0.3", "coefficients", "label_smoothing 0.3"),
    ):
        runs = r.runs(kind, method=method)
        values = np.array([r.epochs(run)["test_optimal_ece"].to_numpy() for run in runs])
        epoch, mean = line(ax, name)
        np.testing.assert_allclose(epoch, [1, 2])
        np.testing.assert_allclose(mean, values.mean(axis=0))
        bands = [band.get_datalim(ax.transData) for band in ax.collections]
        assert any(
            math.isclose(b.y0, values.min()) and math.isclose(b.y1, values.max()) for b in bands
        )


@pytest.mark.slow
def test_wang_figure_5_leaves_out_what_was_not_learned(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    ax = draw_figure("wang2021", "figure5", r).axes[0]
    logits, learned = r.learned(r.runs(method="cross_entropy")[0])
    low, high = (
        min(p.get_data().edges[0] for p in ax.patches),
        max(p.get_data().edges[-1] for p in ax.patches),
    )
    assert (low, high) == (logits[learned >= 0].min(), logits[learned >= 0].max())
    assert "never" not in " ".join(text.get_text() for text in ax.get_legend().get_texts())


@pytest.mark.slow
def test_wang_figure_6_keeps_the_order_of_losses(results: dict[str, Results]) -> None:
    r = results["wang2021"]
    _, b, c, d, e, f = draw_figure("wang2021", "figure6", r).axes
    name = "digits, mlp (for svhn, resnet32;\ncifar10, resnet32)"
    order = ("focal", "focal 1", "cross_entropy", "inverse_focal")
    for ax, metric, calibrator in (
        (b, "accuracy", "none"),
        (c, "ece", "none"),
        (d, "temperature", "temperature"),
        (e, "ece", "temperature"),
        (f, "ece", "histogram"),
    ):
        x, y = line(ax, name)
        np.testing.assert_allclose(x, [-3, -1, 0, 2])
        expected = [
            np.mean([r.value(run, metric, calibrator) for run in r.runs(method=method)])
            for method in order
        ]
        np.testing.assert_allclose(y, expected)
        ticks = [tick.get_text() for tick in ax.get_xticklabels()]
        assert ticks == ["FL-3", "FL-2", "FL-1", "CE", "IFL-1", "IFL-2", "IFL-3"]


def test_wang_figure_6_goes_by_gamma_and_not_by_name() -> None:
    """On SVHN "focal" has gamma 1, on CIFAR-100 gamma 5: each is at its gamma, or not drawn."""
    runs = paper_at("wang2021", "paper").runs("main")

    class Runs:
        ours = True

        def __init__(self, data: str) -> None:
            self.data = data

        def runs(self) -> list[Run]:
            return [run for run in runs if run.data == self.data and run.seed == 0]

        def value(self, run: Run, *_: str) -> float:
            return float(run.objective.partition("gamma=")[2] or 0)

    for data in ("svhn", "cifar10", "cifar100", "news20"):
        found = along_spectrum(cast("PlaceRuns", Runs(data)), "ece", "none")
        assert set(found) <= set(range(-3, 4))
        assert all(values == [abs(gamma)] for gamma, values in found.items()), data
    assert -1 in along_spectrum(cast("PlaceRuns", Runs("svhn")), "ece", "none")


@pytest.mark.slow
def test_singh_figure_2_shows_the_first_run(results: dict[str, Results]) -> None:
    r = results["singh2021"]
    fig = draw_figure("singh2021", "figure2", r)
    p = r.predictions(r.runs(method="cross_entropy")[0])
    numbers = f"ECE {100 * metrics.ece(p):.2f} %, AUROC {100 * metrics.auroc(p):.2f} %"
    assert numbers in fig.axes[0].get_title()
    for name in ("correct", "incorrect"):
        x, y = line(fig.axes[0], name)
        assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-6)
    assert grey(fig) == [False, True, True]


@pytest.mark.slow
def test_mukhoti_figures_are_means_of_the_epochs(results: dict[str, Results]) -> None:
    r = results["mukhoti2020"]

    def mean(method: str, column: str) -> np.ndarray:
        runs = r.runs("epochs", method=method)
        return np.mean([r.epochs(run)[column].to_numpy() for run in runs], axis=0)

    nll, entropy, both = draw_figure("mukhoti2020", "figure1", r).axes
    for ax, name, column in (
        (nll, "training", "train_nll"),
        (nll, "test, incorrect", "test_nll_incorrect"),
        (entropy, "test, correct", "test_entropy_correct"),
        (both, "test error", "test_error"),
        (both, "test ECE", "test_ece"),
    ):
        np.testing.assert_allclose(line(ax, name)[1], mean("cross_entropy", column))
    axes = draw_figure("mukhoti2020", "figure2", r).axes
    for ax, column in zip(axes, mukhoti2020.FIGURE2, strict=False):
        np.testing.assert_allclose(line(ax, "focal, γ = 1")[1], mean("focal 1", column))
    assert nll.get_title().replace("\n", " ") == "(a) NLL: digits, mlp (for cifar10, resnet50)"


@pytest.mark.slow
def test_loss_report_has_the_ece_of_each_epoch(results: dict[str, Results]) -> None:
    r = results["loss_report"]
    fig = draw_figure("loss_report", "figure1", r)
    runs = r.runs(method="cross_entropy + negative_entropy")
    expected = np.mean([r.epochs(run)["test_ece"].to_numpy() for run in runs], axis=0)
    np.testing.assert_allclose(line(fig.axes[0], "entropy regularisation")[1], expected)
    assert grey(fig) == [False, True, True]


# --- karandikar2021 ---------------------------------------------------------------------------


@pytest.mark.slow
def test_karandikar_figure_1_has_cohens_d(results: dict[str, Results]) -> None:
    r = results["karandikar2021"]
    fig = draw_figure("karandikar2021", "figure1", r)
    for ax, calibrator in zip(fig.axes, ("none", "temperature"), strict=True):
        values = {m: list(r.by_seed(OURS, m, "ece", calibrator).values()) for m in MAIN}
        effects = [
            cohens_d(values[primary], values[f"{primary} + mmce"])
            for primary in ("cross_entropy", "focal")
        ]
        over = summarise_runs(effects)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["MMCE"]
        (points,) = [c.lines[0].get_xdata() for c in ax.containers]
        np.testing.assert_allclose(points, [over.mean])


@pytest.mark.slow
def test_karandikar_figure_5_has_the_mean_ece(results: dict[str, Results]) -> None:
    r = results["karandikar2021"]
    (ax,) = draw_figure("karandikar2021", "figure5", r).axes
    found = [c for c in ax.containers if isinstance(c, BarContainer)]
    expected = {
        "none": ("cross_entropy", "focal", "squared_error"),
        "MMCE": ("cross_entropy + mmce", "focal + mmce"),
    }
    assert [c.get_label() for c in found] == list(expected)
    texts = []
    for container, methods in zip(found, expected.values(), strict=True):
        heights = [np.mean(list(r.by_seed(OURS, m, "ece").values())) for m in methods]
        np.testing.assert_allclose([bar.get_height() for bar in container], heights)
        accuracies = [np.mean(list(r.by_seed(OURS, m, "accuracy").values())) for m in methods]
        texts += [f"{100 * a:.1f}" for a in accuracies]
    assert [text.get_text().strip() for text in ax.texts] == texts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "methods"),
    [
        ("figure2", ["cross_entropy"]),
        ("figure9", ["cross_entropy", "focal", "squared_error"]),
    ],
)
def test_karandikar_figures_2_and_9_correct_within_corruptions(
    figure: str, methods: list[str], results: dict[str, Results]
) -> None:
    r = results["karandikar2021"]
    fig = draw_figure("karandikar2021", figure, r)
    assert len(fig.axes) == len(methods)
    for ax, method in zip(fig.axes, methods, strict=True):
        runs = r.runs("shift", method=method)

        def value(run, label, part, r=r):
            return r.value(run, "ece", label, part)

        for i, (name, label) in enumerate(karandikar2021.SCALED.items()):
            levels, means = line(ax, name)
            np.testing.assert_allclose(levels, [0, *LEVELS])
            parts = [["test"], *([f"{c}/{level}" for c in CORRUPTIONS] for level in LEVELS)]
            expected = [np.mean([value(x, label, p) for x in runs for p in some]) for some in parts]
            np.testing.assert_allclose(means, expected)
            # Two conditions: half the spread of their differences, over the root of the subjects.
            bars = ax.containers[len(karandikar2021.SCALED) + i].lines[2][0].get_segments()
            first, second = karandikar2021.SCALED.values()
            for level, segment in zip((0, *LEVELS), bars, strict=True):
                if level:
                    rows = [
                        [
                            np.mean([value(x, c, f"{k}/{level}") for x in runs])
                            for c in (first, second)
                        ]
                        for k in CORRUPTIONS
                    ]
                else:
                    rows = [[value(x, c, "test") for c in (first, second)] for x in runs]
                gaps = np.diff(rows, axis=1)
                reach = gaps.std(ddof=1) / math.sqrt(2) / math.sqrt(len(rows))
                assert segment[1, 1] - segment[0, 1] == pytest.approx(2 * reach)


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["figure7", "figure8"])
def test_karandikar_figures_7_and_8_average_corruptions(
    figure: str, results: dict[str, Results]
) -> None:
    r = results["karandikar2021"]
    for ax, metric in zip(
        draw_figure("karandikar2021", figure, r).axes, ("ece", "error"), strict=True
    ):
        for name, method, label in (
            ("NLL", "cross_entropy", "none"),
            ("NLL + TS", "cross_entropy", "temperature"),
            ("NLL + MMCE", "cross_entropy + mmce", "none"),
        ):
            levels, means = line(ax, name)
            np.testing.assert_allclose(levels, [0, *LEVELS])
            runs = r.runs("shift", method=method)
            hardest = [
                [r.value(run, metric, label, f"{c}/{LEVELS[-1]}") for c in CORRUPTIONS]
                for run in runs
            ]
            np.testing.assert_allclose(means[-1], np.mean(hardest))
            clean = [r.value(run, metric, label) for run in runs]
            np.testing.assert_allclose(means[0], np.mean(clean))
        names = [label for _, label in zip(*ax.get_legend_handles_labels(), strict=True)]
        assert ("Focal + MMCE" in names) == (figure == "figure7")


@pytest.mark.slow
def test_karandikar_figures_6_and_10_pool_the_seeds(results: dict[str, Results]) -> None:
    r = results["karandikar2021"]
    (panel,) = panels(r, [Place("cifar100", "wrn28-10")])
    both = _karandikar_values.pooled(panel, "cross_entropy")
    assert both is not None
    kept = [r.predictions(run) for run in r.runs(method="cross_entropy")]
    assert both.num_samples == sum(p.num_samples for p in kept)
    table = metrics.reliability(both, bins=15)
    left, right = draw_figure("karandikar2021", "figure10", r).axes
    (single,) = draw_figure("karandikar2021", "figure6", r).axes
    for ax in (left, single):
        x, y = line(ax, "NLL")
        np.testing.assert_allclose(x, table.confidence[table.count > 0])
        np.testing.assert_allclose(y, table.accuracy[table.count > 0])
    x, y = line(right, "MSE")
    assert x == pytest.approx(
        np.mean(
            [metrics.mean_entropy(r.predictions(run)) for run in r.runs(method="squared_error")]
        )
    )
    assert y == pytest.approx(np.mean(list(r.by_seed(OURS, "squared_error", "ece").values())))


@pytest.mark.slow
def test_one_corruption_is_corrected_within_seeds(results: dict[str, Results], monkeypatch) -> None:
    r = results["karandikar2021"]
    (panel,) = panels(r, [Place("cifar10", "wrn28-10")], ("shift",))
    monkeypatch.setattr(
        _levels,
        "parse_shift",
        lambda part: (part[:-2], int(part[-1])) if "contrast" in part else None,
    )
    found = _levels.corrected(panel, "focal", karandikar2021.SCALED)
    runs = r.runs("shift", method="focal")
    part = f"{CORRUPTIONS[0]}/1"
    gaps = [
        r.value(x, "ece", "temperature", part) - r.value(x, "ece", "temperature_soft_ece", part)
        for x in runs
    ]
    expected = np.std(gaps, ddof=1) / math.sqrt(2) / math.sqrt(len(gaps))
    assert found["TS"][1][1] == pytest.approx(expected)


# --- what is missing --------------------------------------------------------------------------


@pytest.mark.slow
def test_results_without_their_runs_say_what_they_can(
    results: dict[str, Results], tmp_path: Path
) -> None:
    """The table of values may travel alone: what needs predictions or epochs is grey."""
    shutil.copytree(results["wang2021"].out / "results", tmp_path / "results")
    alone = {paper: Results(at, tmp_path) for paper, at in AT.items()}
    for paper, name in (
        ("wang2021", "figure2"),
        ("wang2021", "figure3"),
        ("wang2021", "figure4"),
        ("wang2021", "figure5"),
        ("singh2021", "figure2"),
        ("mukhoti2020", "figure2"),
        ("loss_report", "figure1"),
        ("karandikar2021", "figure6"),
    ):
        assert all(grey(draw_figure(paper, name, alone[paper]))), (paper, name)
    for paper, name in (("wang2021", "figure6"), ("karandikar2021", "figure7")):
        assert not any(grey(draw_figure(paper, name, alone[paper]))), (paper, name)


@pytest.mark.slow
def test_runs_without_telemetry_are_grey(results: dict[str, Results], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    shutil.copytree(results["loss_report"].out, tmp_path / "runs")
    r = Results(AT["loss_report"], tmp_path / "runs")
    for run in r.runs():
        path = r.store.run_folder(run.key) / "epochs.parquet"
        pq.write_table(pq.read_table(path).select(["epoch", "train_nll"]), path)
    assert all(grey(draw_figure("loss_report", "figure1", r)))


@pytest.mark.slow
def test_a_question_asked_elsewhere_is_answered_there(results: dict[str, Results]) -> None:
    published = Place("cifar10", "resnet50")
    r = results["mukhoti2020"]
    assert only_panel(r, published, ("epochs",)).ours == OURS
    assert only_panel(r, published, ("unknown",)).ours == Place("signals", "cnn1d")
    assert only_panel(None, published, ("epochs",)).ours is None


def test_what_nothing_stands_for_has_a_panel_of_its_own(tmp_path: Path) -> None:
    a, b, c = (Place("cifar10", name) for name in "abc")
    at = TinyAt("wang2021", "tiny", {}, {a: (b,)})  # ours has the name of a published one
    found = panels(Results(at, tmp_path), [a, b, c])
    assert [(panel.ours, panel.published) for panel in found] == [
        (b, (a,)),
        (None, (b,)),
        (None, (c,)),
    ]
    assert [panel.title for panel in found] == [
        "cifar10, b (for cifar10, a)",
        "cifar10, b",
        "cifar10, c",
    ]


def test_a_place_that_stands_for_itself_is_named_once() -> None:
    place = Place("cifar10", "resnet32")
    assert PlaceRuns(None, place, (place,)).title == "cifar10, resnet32"


def test_panels_that_disagree_keep_their_legends() -> None:
    """In a shared legend no line may look like another."""
    for second, merged in (("black", True), ("red", False)):
        fig, ((left, right),) = sheet(1, 2)
        left.plot([0, 1], color="black", label="focal")
        right.plot([0, 1], color=second, label="focal")
        left.legend()
        right.legend()
        one_legend(fig, [left, right])
        assert bool(fig.legends) == merged
        assert (right.get_legend() is None) == merged
