"""Running the papers: recipes, tables beside the published ones, commands."""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from calibrant import InputError, papers
from calibrant.cli import _papers as commands
from calibrant.cli import app
from calibrant.losses import Objective
from calibrant.papers import (
    CLAIMS,
    FIGURES,
    PAPERS,
    PUBLISHED,
    SCALES,
    Place,
    Results,
    compare_table,
    cost,
    distinct_runs,
    experiments,
    get_experiment,
    load_study,
    paper_at,
    published,
    results_of,
    scale_of,
)
from calibrant.papers._figures._panel import panels
from calibrant.papers._scales import RECIPE_FOLDER, method_name
from calibrant.study import Study
from calibrant.study._tune import check_table
from calibrant.train import get_recipe

FILES = [
    (path.parent.name, path.stem)
    for path in RECIPE_FOLDER.glob("*/*.toml")
    if path.stem != "common"
]
EVIDENCE = Path(__file__).parents[1] / "evidence"
TABLES = [(paper, table) for paper, tables in PUBLISHED.items() for table in tables]


# --- recipes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "name"), FILES)
def test_every_recipe_is_a_study(scale: str, name: str) -> None:
    study = Study.load(RECIPE_FOLDER / scale / f"{name}.toml")
    assert study.runs
    assert len({run.key for run in study.runs}) == len(study.runs)
    if not name.endswith(("-tuning", "-tuned")):  # whose epochs nobody looks at
        assert all(run.telemetry for run in study.runs)


@pytest.mark.parametrize("scale", SCALES)
def test_every_file_is_used(scale: str) -> None:
    used = {n for p in PAPERS for names in paper_at(p, scale).studies.values() for n in names}
    assert used == {name for where, name in FILES if where == scale}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("paper", PAPERS)
def test_what_stands_for_what(paper: str, scale: str) -> None:
    at = paper_at(paper, scale)
    places = {
        Place(row["data"], row["model"])
        for table in PUBLISHED.get(paper, {})
        for row in published(paper, table).to_pylist()
    }
    if paper != "loss_report":  # which has no tables
        assert set(at.settings) <= places
    runs = {(run.data, run.model) for kind in ("main", "shift") for run in at.runs(kind)}
    shifts = {shift for study in at.study("main") for shift in study.evaluation.shifts}
    for ours in at.places:
        assert (ours.data, ours.model) in runs
        assert ours.part == "test" or ours.part in shifts


def test_two_of_our_networks_stand_for_a_published_one() -> None:
    """Each has its own rows; a figure shows the first that was asked its questions."""
    at, theirs = paper_at("wang2021", "cpu"), Place("cifar10", "resnet32")
    fast, small = Place("cifar10", "speednet"), Place("cifar10", "resnet8")
    assert at.settings[theirs] == (fast, small)
    assert at.places.index(small) == at.places.index(fast) + 1
    results = results_of(at, EVIDENCE)
    rows = [entry.place for entry in compare_table("wang2021", "table1", results).entries]
    first = rows.index(theirs)
    assert rows[first : first + 3] == [theirs, fast, small]
    [panel] = panels(results, [theirs])
    assert panel.ours == fast
    [panel] = panels(results, [theirs], ("main", "coefficients"))
    assert panel.ours == small  # the one with a sweep of coefficients


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_smoke_and_paper_have_every_published_cell(paper: str, table: str) -> None:
    for scale in ("smoke", "paper"):
        at = paper_at(paper, scale)
        kind = "confidnet" if table == "table4" else "main"
        runs = {(run.data, run.model, run.name) for run in at.runs(kind)}
        for row in published(paper, table).to_pylist():
            place = Place(row["data"], row["model"])
            method = method_name(row["objective"], row["secondary"])
            method = "cross_entropy" if method == "confidnet" else method
            assert at.settings[place]
            for ours in at.settings[place]:
                assert (ours.data, ours.model, method) in runs, (scale, place, method)


@pytest.mark.parametrize(
    ("name", "seeds", "epochs", "milestones"),
    [
        ("wang2021-cifar10", 5, 200, (100, 150)),
        ("singh2021-cifar10", 3, 300, (150, 225)),
        ("mukhoti2020-cifar10", 1, 350, (150, 250)),
        ("mukhoti2020-tiny_imagenet", 1, 100, (40, 60)),
        ("karandikar2021-cifar100", 10, 200, (60, 120, 160)),
        ("karandikar2021-imagenet", 10, 90, (30, 60, 80)),
    ],
)
def test_the_paper_scale_is_faithful(name: str, seeds: int, epochs: int, milestones: tuple) -> None:
    study = load_study("paper", name)
    assert len({run.seed for run in study.runs}) == seeds
    settings = dict(study.runs[0].recipe)
    recipe = get_recipe(settings.pop("name"), **settings)
    assert (recipe.epochs, recipe.milestones, recipe.momentum) == (epochs, milestones, 0.9)


def one(file: str, **changes: Any) -> Any:
    """A run of the paper scale with these settings."""
    runs = load_study("paper", file).runs
    return next(r for r in runs if all(getattr(r, k) == v for k, v in changes.items()))


def test_protocols_of_the_paper_scale() -> None:
    """What the papers say, where it differs from what is usual here."""
    everything = [
        run for scale, name in FILES if scale == "paper" for run in load_study("paper", name).runs
    ]
    assert {run.precision for run in everything} == {"fp32"}
    assert one("mukhoti2020-tiny_imagenet").calibration == 10_000
    sst = one("mukhoti2020-sst2")
    assert (sst.calibration, sst.stop) == ("dev", {"by": "accuracy", "patience": 25})
    for name in ("cifar10", "cifar100", "tiny_imagenet", "sst2"):
        study = load_study("paper", f"mukhoti2020-{name}")
        assert study.evaluation.calibrators["TS-ECE"]["grid"] == "mukhoti2020"
        smooth = [run.objective for run in study.runs if run.name.startswith("label_smoothing")]
        assert {text.partition(":")[2] for text in smooth} == {
            "epsilon=0.05,spread=others",
            "epsilon=0.1,spread=others",
        }
    for name in ("cifar10", "cifar100", "imagenet"):  # the temperature is fixed
        assert one(f"singh2021-{name}").calibration == 0
        if name != "imagenet":
            assert one(f"singh2021-{name}-confidnet").calibration == 0.1
    for run in load_study("paper", "wang2021-svhn").runs:
        assert run.recipe == {"name": "wang2021", "flip": False}
    assert one("wang2021-news20").recipe["name"] == "wang2021-newsgroups"
    for name in ("singh2021-imagenet", "karandikar2021-imagenet"):
        assert one(name).recipe["resized_crop"] == 0.08
    shifts = load_study("paper", "karandikar2021-imagenet").evaluation.shifts
    assert len(shifts) == 15 * 5
    assert len({shift.split("/")[1] for shift in shifts}) == 15
    assert load_study("paper", "singh2021-imagenet").evaluation.shifts == ("imagenet-v2",)


def test_claims_about_one_network_have_seeds() -> None:
    """With one seed in one setting nothing could ever be decided (W4, M3 to M5)."""
    for paper in PAPERS:
        at = paper_at(paper, "paper")
        for kind in at.studies:
            runs = at.runs(kind)
            settings = {(run.data, run.model) for run in runs}
            seeds = {run.seed for run in runs}
            assert len(settings) * len(seeds) >= 5, (paper, kind)


def test_claims_about_named_data_or_networks_have_seeds() -> None:
    """A claim about one data set or network needs an interval: two seeds, or three settings."""
    asked = [
        (claim, contrast)
        for claim in CLAIMS.values()
        for contrast in claim.contrasts
        if contrast.data or contrast.models
    ]
    assert {claim.name for claim, _ in asked} >= {"W8", "S10", "K8", "R5", "R6"}
    for claim, contrast in asked:
        at = paper_at(claim.paper, "paper")
        runs = [
            run
            for kind in at.studies
            for run in at.runs(kind)
            if contrast.concerns(Place(run.data, run.model))
        ]
        settings = {(run.data, run.model) for run in runs}
        assert len(settings) > 2 or len({run.seed for run in runs}) > 1, (claim.name, contrast.what)


def test_label_smoothing_of_two_classes_as_mukhoti_defines_it() -> None:
    """s = (1 - a) q + a (1 - q) / (K - 1): with K = 2, a goes to the other class."""
    text = one("mukhoti2020-sst2", name="label_smoothing").objective
    z, y = torch.tensor([[1.5, -0.5], [0.2, 0.9]]), torch.tensor([0, 0])
    log_p = z.log_softmax(1)
    want = -(0.95 * log_p[:, 0] + 0.05 * log_p[:, 1]).mean()
    assert float(Objective.parse(text)(z, y)) == pytest.approx(float(want), rel=1e-6)


def test_table_a_of_wang_is_repeated_with_a_deeper_network() -> None:
    wanted = get_experiment("wang2021", "table2").studies(paper_at("wang2021", "paper"))
    found = {(run.data, run.model) for study in wanted for run in study.runs}
    assert {("cifar10", "resnet110"), ("cifar100", "resnet110")} <= found
    for data in ("cifar10", "cifar100"):
        plain, deep = (
            {run.name: run.objective for run in load_study("paper", f"wang2021-{name}").runs}
            for name in (data, f"{data}-resnet110")
        )
        assert plain == deep


def test_coefficients_that_a_paper_fixes_are_those_of_its_runs() -> None:
    """At every scale of real data; wang2021 chose others for CIFAR-100, in files of their own."""
    for scale in ("features", "cpu", "paper"):
        for paper in ("singh2021", "mukhoti2020"):
            for run in paper_at(paper, scale).runs("main"):
                if run.name == "focal":
                    assert run.objective == "focal:gamma=3", (scale, paper, run)
                if run.name == "label_smoothing" and run.data != "imagenet":
                    assert "epsilon=0.05" in run.objective, (scale, paper, run)
    shared = {run.key for run in paper_at("wang2021", "cpu").runs("main")}
    ours = [r for r in paper_at("singh2021", "cpu").runs("main") if r.data == "cifar100"]
    assert {r.name for r in ours if r.key not in shared} == {"focal", "label_smoothing"}


def test_the_tuning_of_karandikar() -> None:
    """Appendix E: kappa, T, beta, weight decay, in this order; all pairs of table 2."""
    for scale, name, untuned, pairs in (
        ("paper", "karandikar2021-cifar10", "karandikar2021-cifar10", 18),
        ("paper", "karandikar2021-cifar100", "karandikar2021-cifar100", 18),
        ("paper", "karandikar2021-imagenet", "karandikar2021-imagenet", 6),
        ("features", "cifar10-tuning", "cifar10-pairs", 18),
        ("features", "cifar100-tuning", "cifar100-pairs", 18),
    ):
        study = load_study(scale, name)
        assert len(study.tunings) == pairs
        for table in study.tunings:
            _, lists = check_table(table)
            order = [n for n in ("kappa", "T", "beta", "weight_decay") if n in lists]
            assert list(lists) == order
            assert order[-1] == "weight_decay"
            settings = {**study.runs[0].recipe}
            assert lists["weight_decay"][0] == get_recipe(**settings).weight_decay
        starts = [
            table["objective"].format(**{n: v[0] for n, v in table.items() if isinstance(v, list)})
            for table in study.tunings
        ]
        asked = dict.fromkeys(losses(run.objective) for run in load_study(scale, untuned).runs)
        assert {losses(text) for text in starts} == set(asked)
        if scale == "features":  # benchmarks/tuning.py names the tables by the pairs
            assert list(map(losses, starts)) == list(asked)
            reported = load_study(scale, untuned).runs
            assert {run.seed for run in study.runs}.isdisjoint(run.seed for run in reported)


@pytest.mark.parametrize(("data", "seeds"), [("cifar10", 60), ("cifar100", 60)])
def test_tuned_pairs_have_the_coefficients_that_tuning_chose(data: str, seeds: int) -> None:
    """Of the trials in evidence/: the lowest ECE within one point of the best accuracy."""
    with (EVIDENCE / "tuning.csv").open(encoding="utf-8", newline="") as file:
        every = list(csv.DictReader(file))
    study, tuned = (load_study("features", f"{data}-{name}") for name in ("tuning", "tuned"))
    assert {row["data"] for row in every} == {"cifar10", "cifar100"}
    rows = [row for row in every if row["data"] == data]
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    assert pairs == list(dict.fromkeys(run.name for run in tuned.runs))
    for pair, table in zip(pairs, study.tunings, strict=True):
        text, lists = check_table(table)
        best = {}
        for name, values in lists.items():
            trials = [r for r in rows if (r["pair"], r["coefficient"]) == (pair, name)]
            assert [float(r["value"]) for r in trials] == values
            most = max(float(r["accuracy"]) for r in trials)
            fit = [r for r in trials if float(r["accuracy"]) >= most - 0.01 - 1e-9]
            winner = min(fit, key=lambda r: float(r["ece"]))
            assert [r["chosen"] for r in trials] == [str(int(r is winner)) for r in trials]
            best[name] = float(winner["value"])
        own = [run for run in tuned.runs if run.name == pair]
        assert {run.seed for run in own} == set(range(seeds))
        for run in own:
            assert run.recipe["weight_decay"] == best["weight_decay"]
            assert every_option(run.objective) == every_option(text.format(**best))


def losses(text: str) -> tuple[Any, ...]:
    """The losses of an objective with their weights, and whether gradients are stopped."""
    made = Objective.parse(text)
    rest = [
        (term.loss.name, term.weight, term.options.get("stop_gradient"))
        for term in made.secondaries
    ]
    return made.primary.loss.name, *rest


def test_coefficients_of_wang_are_those_of_its_table() -> None:
    for row in published("wang2021", "table1").to_pylist():
        study = load_study("paper", f"wang2021-{row['data']}")
        method = method_name(row["objective"], row["secondary"])
        run = next(run for run in study.runs if run.name == method)
        if row["coefficient"] is not None:
            assert f"{row['coefficient']:g}" in run.objective


def test_singh_has_two_schedules() -> None:
    study = load_study("paper", "singh2021-cifar10")
    factors = {run.name: get_recipe(run.recipe["name"]).factor for run in study.runs}
    assert factors["cross_entropy"] == factors["mixup"] == 0.2
    assert factors["label_smoothing"] == factors["focal"] == 0.1


@pytest.mark.parametrize(
    ("scale", "name"),
    [
        (scale, name)
        for scale, name in FILES
        if "[[tune]]" in (RECIPE_FOLDER / scale / f"{name}.toml").read_text(encoding="utf-8")
    ],
)
def test_tuning_starts_from_a_run_of_its_scale(scale: str, name: str) -> None:
    """With every option, those that are left at their defaults too."""
    known = {
        every_option(run.objective)
        for where, other in FILES
        if where == scale
        for run in load_study(scale, other).runs
    }
    for table in load_study(scale, name).tunings:
        text, lists = check_table(table)
        assert all(len(set(values)) == len(values) > 1 for values in lists.values())
        first = {name: values[0] for name, values in lists.items()}
        assert every_option(text.format(**first)) in known


def every_option(text: str) -> tuple[Any, ...]:
    """The losses of an objective with their weights and all options, defaults included."""
    made = Objective.parse(text)
    found = []
    for term in (made.primary, *made.secondaries):
        known = inspect.signature(term.loss.function).parameters.items()
        defaults = {n: p.default for n, p in known if p.default is not p.empty}
        chosen = {n: float(v) if type(v) is int else v for n, v in term.options.items()}
        found.append((term.loss.name, term.weight, repr(sorted({**defaults, **chosen}.items()))))
    return tuple(found)


# --- what it costs ----------------------------------------------------------------------------


def test_cost_of_a_network_known_by_hand() -> None:
    """ResNet-20's 41 million multiplications, and ResNet-50's 4.1 billion on ImageNet."""
    run = load_study("paper", "wang2021-cifar10").runs[0]
    run = replace(
        run,
        model="resnet20",
        calibration=0,
        train_size=1,
        recipe={"name": "wang2021", "epochs": 1, "milestones": []},
    )
    assert cost([run]).floating_point_operations / 6 == pytest.approx(41e6, rel=0.03)
    large = load_study("paper", "singh2021-imagenet").runs[0]
    large = replace(large, train_size=1, recipe={"name": "singh2021-imagenet", "epochs": 1})
    assert cost([large, large]).floating_point_operations / 12 == pytest.approx(4.1e9, rel=0.03)
    assert cost([large, large]).runs == 2
    assert "GPU-hours" in str(cost([large]))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name.startswith("wang2021") else pytest.mark.slow)
        for scale, name in FILES
        if scale == "paper"
    ],
)
def test_every_recipe_of_a_paper_has_a_cost(name: str) -> None:
    found = cost(load_study("paper", name).runs)
    assert 0 < found.gpu_hours() < 5000
    assert found.gpu_hours(40) == pytest.approx(found.gpu_hours(20) / 2)


# --- the registry -----------------------------------------------------------------------------


def test_every_table_and_figure_of_the_map() -> None:
    tables = {paper: [n for n in experiments(paper) if n.startswith("table")] for paper in PAPERS}
    figures = {paper: [n for n in experiments(paper) if n.startswith("figure")] for paper in PAPERS}
    assert {paper: len(names) for paper, names in tables.items()} == {
        "loss_report": 0,
        "wang2021": 2,
        "singh2021": 4,
        "mukhoti2020": 4,
        "karandikar2021": 2,
    }
    assert {paper: len(names) for paper, names in figures.items()} == {
        "loss_report": 1,
        "wang2021": 6,
        "singh2021": 2,
        "mukhoti2020": 3,
        "karandikar2021": 10,
    }
    for paper in PAPERS:
        for name, experiment in experiments(paper).items():
            assert experiment.caption
            for need in experiment.needs:
                for scale in SCALES:
                    kinds = paper_at(paper, scale).studies
                    only_there = need.kind == "deeper" and scale != "paper"
                    assert need.kind in kinds or only_there, (paper, name, scale)


def test_only_what_a_table_needs_is_run() -> None:
    at = paper_at("wang2021", "smoke")
    studies = get_experiment("wang2021", "table1").studies(at)
    names = {run.name for run in distinct_runs(studies)}
    assert names == {
        "cross_entropy",
        "label_smoothing",
        "cross_entropy + logit_norm",
        "focal",
    }
    assert get_experiment("karandikar2021", "figure3").studies(at) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: experiments("wang2012"), "Did you mean 'wang2021'"),
        (lambda: get_experiment("wang2021", "table3"), "must be a table or figure of wang2021"),
        (lambda: paper_at("wang2021", "gpu"), "scale must be a known scale"),
    ],
)
def test_unknown_names(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


# --- ours beside the published ----------------------------------------------------------------


@pytest.mark.parametrize(("paper", "table"), TABLES)
def test_published_cells_are_all_shown(paper: str, table: str) -> None:
    made = compare_table(paper, table)
    cells = published(paper, table).to_pylist()
    assert sum(len(entry.values) for entry in made.entries) == len(cells)
    shown = sorted(value.mean for entry in made.entries for value in entry.values.values())
    assert shown == sorted(cell["value"] for cell in cells)
    rows = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert sorted(float(row["mean"]) for row in rows) == shown
    assert made.to_markdown().count("\n| ") == len(made.entries) + 2  # head and rule


class FakeResults(Results):
    """Known values: 0.1 per seed for cross-entropy, more for other losses."""

    def __init__(self, values: dict[tuple[str, str], list[float]]) -> None:
        self.at, self.known = paper_at("wang2021", "smoke"), values

    def by_seed(self, place, method, metric, calibrator="none", kind="main"):
        scale = 10 if metric == "temperature" else 1
        found = self.known.get((method, calibrator), [])
        return {seed: scale * value for seed, value in enumerate(found)}


def test_a_stand_in_is_said(tmp_path: Path) -> None:
    results = Results(paper_at("singh2021", "cpu"), tmp_path)
    text = compare_table("singh2021", "table3", results).to_text()
    assert "7,150 Tiny-ImageNet images from seven of the ten classes" in text
    assert "cifar10, resnet8, tiny_cifar7_shift " in text
    heads = Results(paper_at("singh2021", "features"), tmp_path)
    text = compare_table("singh2021", "table3", heads).to_text()
    assert "features of cifar10, mlp, tiny_cifar7_shift " in text
    assert "what a loss does to a head, not to a representation" in text


def test_ours_are_mean_spread_temperature_and_mark() -> None:
    base, higher, unsure = [0.10, 0.11, 0.12], [0.20, 0.21, 0.22], [0.10, 0.12, 0.14]
    results = FakeResults(
        {
            ("cross_entropy", "temperature"): base,
            ("label_smoothing", "temperature"): higher,
            ("focal", "temperature"): unsure,
            ("cross_entropy + logit_norm", "temperature"): [0.05],
        }
    )
    made = compare_table("wang2021", "table2", results)
    entry = next(e for e in made.entries if e.ours and e.label == "ECE after TS")
    assert str(entry.values["cross_entropy"]) == "11.00 ± 1.00 (1.10)"
    assert str(entry.values["label_smoothing"]) == "21.00 ± 1.00 (2.10) ▲"
    assert str(entry.values["focal"]) == "12.00 ± 2.00 (1.20) △"
    assert str(entry.values["cross_entropy + logit_norm"]) == "5.00 (0.50)"  # no spread, no test
    assert stats.ttest_ind(higher, base).pvalue < 0.05 < stats.ttest_ind(unsure, base).pvalue
    temperatures = next(e for e in made.entries if e.ours and e.label == "temperature of TS")
    assert str(temperatures.values["cross_entropy"]) == "1.10 ± 0.10"
    assert not any(e.values for e in made.entries if e.ours and e.label == "ECE after HB")


# --- everything at the smallest scale ---------------------------------------------------------


@pytest.fixture
def smaller_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The studies of the smoke scale with two epochs, and a fourth of the test signals."""
    recipes = tmp_path / "recipes"
    shutil.copytree(RECIPE_FOLDER, recipes)
    for file, usual, ours in (
        ("common", "epochs = 5", "epochs = 2"),
        ("signals", 'data = "signals"', 'data = { name = "signals", test_size = 500 }'),
    ):
        path = recipes / "smoke" / f"{file}.toml"
        text = path.read_text(encoding="utf-8")
        assert usual in text
        path.write_text(text.replace(usual, ours), encoding="utf-8")
    monkeypatch.setattr("calibrant.papers._scales.RECIPE_FOLDER", recipes)
    load_study.cache_clear()
    yield
    load_study.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("smaller_runs")
def test_everything_at_smoke_scale(tmp_path: Path) -> None:
    """One test, so that the runs are made once and not by every worker."""
    smoke = run_all(tmp_path / "smoke")
    check_tables_and_figures(smoke)
    check_ours_are_the_values_of_the_runs(smoke)
    check_running_again_runs_nothing(smoke)
    check_claims(smoke)


def run_all(folder: Path) -> Path:
    """Every paper at smoke scale in one folder, by the command."""
    for paper in PAPERS:
        # All formats of one paper's figures; the others would only take time.
        formats = "png,svg,pdf" if paper == "singh2021" else "png"
        command = [
            "papers",
            "run",
            paper,
            "all",
            "--out",
            str(folder),
            "--format",
            formats,
            "--workers",
            "2",
            "--threads",
            "1",
        ]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    return folder


def check_tables_and_figures(smoke: Path) -> None:
    made = sorted(path.name for path in (smoke / "papers").iterdir())
    tables = [f"{p}-{t}-smoke.{kind}" for p, t in TABLES for kind in ("csv", "md", "txt")]
    figures = [
        f"{p}-{f}-smoke.{kind}"
        for p in PAPERS
        for f in FIGURES[p]
        for kind in (("pdf", "png", "svg") if p == "singh2021" else ("png",))
    ]
    assert made == sorted([*tables, *figures])
    assert len(tables) == 12 * 3
    assert len([name for name in figures if name.endswith("png")]) == 22
    for paper, table in TABLES:
        text = (smoke / "papers" / f"{paper}-{table}-smoke.csv").read_text(encoding="utf-8")
        rows = list(csv.DictReader(io.StringIO(text)))
        ours = [row for row in rows if row["source"] == "ours"]
        # Every published cell has one of ours, with two runs and a finite number.
        assert len(ours) == PUBLISHED[paper][table].cells
        assert all(row["runs"] == "2" and math.isfinite(float(row["mean"])) for row in ours)


def check_ours_are_the_values_of_the_runs(smoke: Path) -> None:
    results = Results(paper_at("karandikar2021", "smoke"), smoke)
    made = compare_table("karandikar2021", "table2", results)
    entry = next(e for e in made.entries if e.ours and e.label == "focal + mmce")
    kept = [
        results.predictions(run)
        for run in results.runs(place=Place("signals", "cnn1d"), method="focal + mmce")
    ]
    from calibrant import metrics

    found = [100 * metrics.ece(p, norm=2, binning="mass") for p in kept]
    value = entry.values["ECE"]
    assert value.mean == pytest.approx(np.mean(found))
    assert value.spread == pytest.approx(stats.sem(found))


def check_running_again_runs_nothing(smoke: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (smoke / "results").iterdir()}
    done = CliRunner().invoke(app, ["papers", "run", "wang2021", "table2", "--out", str(smoke)])
    assert done.exit_code == 0
    assert "cifar10, resnet32" in done.output
    assert "0.95 ± 0.19 (2.51)" in done.output
    assert before == {path: path.stat().st_mtime_ns for path in (smoke / "results").iterdir()}


def check_claims(smoke: Path) -> None:
    assert scale_of(smoke) == "smoke"
    with pytest.MonkeyPatch.context() as patch:  # both commands judge the same evidence
        patch.setattr(papers, "evidence_at", cache(papers.evidence_at))
        check_verdicts(smoke)


def check_verdicts(smoke: Path) -> None:
    done = CliRunner().invoke(app, ["papers", "claims", "--results", str(smoke), "--json"])
    assert done.exit_code == 0, done.output
    assert "nothing about the paper" in done.stderr
    found = json.loads(done.stdout)
    assert [claim["claim"] for claim in found] == list(CLAIMS)
    assert {claim["verdict"] for claim in found} <= {"holds", "does not hold", "cannot tell"}
    shown = CliRunner().invoke(app, ["papers", "claims", "--results", str(smoke)])
    assert "nothing about the paper" in shown.output.partition("W1")[0]
    assert "W1" in shown.output


# --- commands ---------------------------------------------------------------------------------


def test_list_and_show() -> None:
    listed = CliRunner().invoke(app, ["papers", "list"]).output
    assert all(paper in listed for paper in PAPERS)
    assert listed.count("\n  table") == 12
    assert listed.count("\n  figure") == 22
    table = CliRunner().invoke(app, ["papers", "show", "wang2021", "table2"]).output
    assert "1.35 ± 0.11 (1.11) ▲" in table
    assert "Wang" in table
    figure = CliRunner().invoke(app, ["papers", "show", "wang2021", "figure4"]).output
    assert "papers run wang2021 figure4" in figure


def test_dry_run_of_the_paper_scale(tmp_path: Path) -> None:
    command = [
        "papers",
        "run",
        "mukhoti2020",
        "table1",
        "--scale",
        "paper",
        "--dry-run",
        "--out",
        str(tmp_path / "x"),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if "seed 0" in line]
    assert len(lines) == 50  # ten settings, five losses, one run
    assert "GPU-hours" in done.output
    assert not (tmp_path / "x").exists()


def test_formats_are_checked_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it ran first")

    monkeypatch.setattr(commands, "run_missing", never)
    command = ["papers", "run", "wang2021", "figure4", "--out", str(tmp_path), "--format"]
    done = CliRunner().invoke(app, [*command, "svg,pgn"])
    assert done.exit_code == 2
    assert "--format must be" in done.stderr
    assert "Did you mean 'png'?" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = CliRunner().invoke(app, [*command, "svg, png", "--dry-run"])
    assert done.exit_code == 0, done.output


def test_no_results(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["papers", "claims", "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert "must hold finished runs" in done.output
    assert Study.load("quick")  # a study that is none of the papers' does not count either
