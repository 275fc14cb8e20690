"""Numbers in the prose of the documentation, each against what it comes from.

Generated parts of pages are compared by tests/test_pages.py and tests/test_readme.py; here are
sentences written by hand.
"""

from __future__ import annotations

import csv
import inspect
import itertools
import json
import math
import re
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import coverage_tables
from scipy import stats

from calibrant import InputError, Predictions, data, load, losses, metrics
from calibrant._core import stopping
from calibrant._core.checks import FileNote
from calibrant._measure._comparison import FEW_MODELS, MOST_SHOWN
from calibrant.calibrators import _decision
from calibrant.calibrators._candidates import MATRIX_CLASSES
from calibrant.cli._calibration_source import SLAB_ELEMENTS
from calibrant.inference._curves import SHAPE_UNCERTAINTY
from calibrant.papers import FIGURES, PUBLISHED, load_study, published
from calibrant.report._tempered import EXACT_SCORES, ORDER
from calibrant.study import Study
from calibrant.study import _run as study_run
from calibrant.train import RECIPES
from tests.command import call

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    """A page on one line, so that sentences may be wrapped anywhere."""
    path = ROOT / name if name == "README.md" else DOCS / name
    return " ".join(path.read_text(encoding="utf-8").split())


def error(level: float, count: int) -> float:
    """Standard error of a share, in points."""
    return 100 * math.sqrt(level * (1 - level) / count)


# --- arithmetic -------------------------------------------------------------------------------

MCNEMAR = stats.binomtest(4, 4).pvalue
NORMAL = 2 * stats.norm.sf(4 / math.sqrt(4))  # four discordant samples, all of one sign

WRITTEN = [
    ("intervals.md", f"produces them one time in {1 / 0.8**12:.0f}"),
    ("intervals.md", f"give p = {100 * MCNEMAR:.1f} %; the normal approximation gives"),
    ("intervals.md", f"the normal approximation gives {100 * NORMAL:.1f} %"),
    ("intervals.md", f"standard error is {error(0.95, 200):.1f} points at 95 % with 200 data sets"),
    ("intervals.md", f"and {error(0.05, 300):.1f} points at 5 % with 300"),
    ("intervals.md", f"The standard error of 60 simulations is {error(0.95, 60):.1f} points"),
    ("intervals.md", f"of 40 it is {error(0.95, 40):.1f}"),
    ("intervals.md", f"The bounds are widened by {100 * (SHAPE_UNCERTAINTY - 1):.0f} %"),
    ("multilabel.md", f"a label with 5 events has {100 * 5 / (5 + 20):.0f} %"),
    ("multilabel.md", f"one with 1,000 events {100 * 1000 / (1000 + 20):.0f} %"),
    ("losses/squared.md", f"at most e/(e + 9) = {100 * math.e / (math.e + 9):.0f} %"),
    ("monitor.md", f"An e-value of 20 is thus evidence as strong as p = {1 / 20:g}"),
    ("calibrate.md", f"at least {math.exp(_decision.EVIDENCE):.0f} times as likely"),
    ("calibrate.md", f"fewer than {_decision.MISTAKES} mistakes"),
    ("calibrate.md", f"gains less than {_decision.TOLERATED:g} on it"),
    ("calibrate.md", f"shown to gain less than {_decision.TOLERATED:g} ("),
    ("calibrate.md", f"in at most {100 * math.exp(-_decision.EVIDENCE):.0f} % of cases"),
    ("calibrate.md", f"`auto` tries it up to {MATRIX_CLASSES} classes"),
    ("cli.md", f"For more than {FEW_MODELS} models, the output is a matrix"),
    ("cli.md", f"and the {MOST_SHOWN} clearest differences"),
    ("cli.md", f"more than {SLAB_ELEMENTS // 10**6} million values"),
    ("report.md", f"Data of up to {EXACT_SCORES:,} scores are embedded in full"),
    ("report.md", f"as a series of {ORDER} terms"),
    ("measure.md", f"computes {len(metrics.default_metrics('panel'))} metrics with intervals"),
    ("papers/index.md", f"Their {sum(map(len, PUBLISHED.values()))} tables are included"),
    ("papers/index.md", f"their {sum(map(len, FIGURES.values()))} figures can be drawn"),
]


@pytest.mark.parametrize(("name", "words"), WRITTEN)
def test_numbers_that_follow_from_a_formula_or_a_setting(name: str, words: str) -> None:
    assert words in page(name)


def test_published_cells_are_counted() -> None:
    cells = sum(info.cells for tables in PUBLISHED.values() for info in tables.values())
    assert f"({cells} published cells" in page("papers/index.md")


# --- simulations ------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="noise")
def _noise() -> dict[str, tuple[int, float]]:
    """Data sets and mean of each quantity that benchmarks/noise.py simulates."""
    with (ROOT / "evidence" / "coverage" / "noise.csv").open(encoding="utf-8") as file:
        return {r["what"]: (int(r["data_sets"]), float(r["mean"])) for r in csv.DictReader(file)}


def test_what_noise_alone_does(noise: dict[str, tuple[int, float]]) -> None:
    text = page("intervals.md")
    _, mean = noise["ECE of a calibrated model"]
    assert f"shows an ECE of {100 * mean:.1f} % on average at N = 1,000" in text
    _, share = noise["sharper model has the larger ECE"]
    assert f"the second has the larger ECE in {100 * share:.0f} % of samples" in text
    count, accuracy = noise["coverage without clusters, accuracy"]
    _, ece = noise["coverage without clusters, ece"]
    assert (
        f"contain the true value {100 * accuracy:.0f} % of the time, and those for the ECE "
        f"{100 * ece:.0f} % ({count} simulated data sets)" in text
    )


def test_how_often_tests_of_calibration_reject(noise: dict[str, tuple[int, float]]) -> None:
    """The table of the page, and what is said of power: only where intervals exclude each other."""
    text = (DOCS / "intervals.md").read_text(encoding="utf-8")
    cases = [(1000, 1), (10_000, 1), (1000, 1.2), (1000, 0.8)]
    for name in ("Spiegelhalter", "ECE", "SKCE"):
        found = [noise[f"{name} rejects, N = {size}, T = {t:g}"] for size, t in cases]
        shown = " | ".join(
            f"{100 * share:.1f} ± {error(share, count):.1f}" for count, share in found
        )
        assert f"| {name} | {shown} |" in text
        for count, share in found[:2]:  # no test rejects calibrated models too often
            assert stats.binom.sf(round(share * count) - 1, count, 0.05) > 0.01
    for name, t in itertools.product(("Spiegelhalter", "SKCE"), (1.2, 0.8)):
        (count, least), (_, power) = (
            noise[f"{test} rejects, N = 1000, T = {t:g}"] for test in ("ECE", name)
        )
        assert 100 * (power - least) > 2 * math.hypot(error(power, count), error(least, count))
    assert "Spiegelhalter's test and SKCE reject such models more often than ECE" in " ".join(
        text.split()
    )


def test_clusters_raise_no_false_alarms() -> None:
    """In no design is a metric of equal models told apart too often beyond chance."""
    found = {
        (name, metric): (count, share)
        for (kind, name), (count, shares) in coverage_tables._cluster_designs().items()
        for metric, share in shares.items()
        if kind == "false alarms"
    }
    assert len(found) == 20
    for case, (count, share) in found.items():
        alarms = round(share / 100 * count)
        assert stats.binom.sf(alarms - 1, count, 0.05) > 0.01, case
    assert "Outside 92 to 98 %: none." in page("intervals.md")


def test_false_alarms_of_comparisons() -> None:
    """What is said of all populations together, and of single ones."""
    null = [r for r in coverage_tables.compared() if not r["population"].startswith("power")]
    together: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in null:
        sums = together[row["metric"], row["size"], row["models"]]
        sums[0] += int(row["tables"])
        sums[1] += int(row["tables"]) * float(row["test"]) / 100
    text = page("intervals.md")
    above = {}
    for case, (tables, alarms) in together.items():
        share = 100 * alarms / tables
        # As the table has it: with one more alarm, and one more table without.
        spread = 100 * math.sqrt((alarms + 1) * (tables - alarms + 1) / (tables + 2) ** 3)
        assert share - spread < 7, case
        if share > 7.05:
            above[case] = f"{share:.1f} ± {spread:.1f} %"
    assert list(above) == [("nll", "1000", "2")]
    assert f"NLL at N = 1,000 with two models is at {above['nll', '1000', '2']}" in text
    tables = {
        name: sum(int(row["tables"]) for row in null if row["metric"] == name)
        for name in ("sweep_ece", "kde_ece")
    }
    said = f"Sweep ECE has {tables['sweep_ece']} tables and KDE ECE {tables['kde_ece']}, at N = 300"
    assert said in text
    for row in null:
        if row["metric"] in tables:
            assert (row["size"], row["models"]) == ("300", "2")


def test_a_gate_on_the_value_fails_half_of_perfect_models() -> None:
    """docs/files.md."""
    failed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 2, (500, 5))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        failed += metrics.ece(Predictions(logits=z, labels=y)) > 0.05
    assert 40 <= failed <= 60
    assert "from a perfectly calibrated model with five classes, about half fail" in page(
        "files.md"
    )


# --- settings ---------------------------------------------------------------------------------


def test_the_table_of_recipes() -> None:
    text = (DOCS / "train.md").read_text(encoding="utf-8")
    names = {"sgd": "SGD", "adamw": "AdamW", "adagrad": "AdaGrad"}
    rows = re.findall(r"^\| `([\w-]+)` \| (\d+ .*) \|$", text, re.MULTILINE)
    schedules = {"constant": "constant", "one_cycle": "one cycle"}
    assert dict(rows) == {
        name: " | ".join(
            [
                str(recipe.epochs),
                str(recipe.batch_size),
                f"{names[recipe.optimizer]} {recipe.learning_rate:g}",
                schedules.get(
                    recipe.schedule,
                    f"× {recipe.factor:g} after {', '.join(map(str, recipe.milestones))}",
                ),
            ]
        )
        for name, recipe in RECIPES.items()
    }
    for scale, name in (("paper", "wang2021-news20"), ("cpu", "news20")):
        used = load_study(scale, name).runs[0].recipe["name"]
        assert re.search(rf"`{used}` (?:belongs )?to the scale `{scale}`", page("train.md"))


def test_the_built_in_study() -> None:
    study = Study.load("quick")
    losses, seeds = ({getattr(run, name) for run in study.runs} for name in ("objective", "seed"))
    counts = (len(study.runs), len(losses), len(seeds), len(study.evaluation.calibrators))
    assert counts == (30, 10, 3, 4)
    assert "trains 30 small networks with ten losses" in page("README.md")
    assert "applies four calibrators to each" in page("README.md")
    assert "ten objectives × 3 seeds × 4 calibrators" in page("study.md")


@pytest.mark.parametrize(
    ("scale", "name", "words"),
    [
        ("features", "cifar10", "one hidden layer of {hidden} on features of images"),
        ("features", "cifar10", "pixels, {train_size:,} training samples"),
        ("features", "cifar100", "The same with {train_size:,} training samples"),
        ("features", "news20", "one hidden layer of {hidden} on the mean, largest"),
        ("features", "news20", "of a message, {train_size:,} training samples"),
        ("features", "sst2", "a hidden layer of {hidden}, {train_size:,} training sentences"),
        ("cpu", "cifar10-scratch", "`speednet`, {train_size:,} images"),
        ("cpu", "cifar10", "ResNet-8, {train_size:,} images, {epochs} epochs, no augmentation"),
        ("cpu", "cifar100", "`speednet`, {train_size:,} images, {epochs} epochs, the last 8"),
    ],
)
def test_runs_are_what_the_page_says(scale: str, name: str, words: str) -> None:
    run = load_study(scale, name).runs[0]
    facts = {
        "train_size": run.train_size,
        "epochs": run.recipe.get("epochs"),
        "hidden": run.model_options.get("hidden", [0])[0],
    }
    assert words.format(**facts) in page("which.md")


def test_segmentation_maps_of_the_benchmark() -> None:
    script = (ROOT / "benchmarks" / "segmentation.py").read_text(encoding="utf-8")
    _, classes, height, width = re.search(r"WIDTH = (.*)", script)[1].split(", ")
    said = f"Images of {height} × {width} pixels with {classes} classes, a tenth of the pixels"
    assert said in page("benchmarks.md")
    assert "rng.random(truth.shape) < 0.1" in script


# --- what is printed --------------------------------------------------------------------------


def test_messages_are_those_that_are_printed() -> None:
    with pytest.raises(InputError) as raised:
        Predictions(logits=np.zeros((5, 5)), labels=[1, 2, 3, 4, 5])
    assert str(raised.value) in page("measure.md")
    done = call("measure", str(DOCS / "examples" / "risks.csv"))
    assert (done.returncode, done.stdout) == (2, "")
    assert " ".join(done.stderr.split()) in page("files.md")
    assert 'Stopped: {progress()}. Run the same command to continue."' in inspect.getsource(
        stopping
    )
    assert "of {total} runs finished" in inspect.getsource(study_run)
    assert "5 of 15 runs finished. Run the same command to continue." in page("study.md")


def test_comments_say_what_is_printed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FileNote)
        stated = load(
            DOCS / "examples" / "answers.jsonl",
            correct_column="judge.correct",
            percent=True,
            skip_unparsable=True,
        )
    assert f"# {json.dumps(stated.meta['notes'], ensure_ascii=False)}" in page("language_models.md")
    digits, waves = data.load("digits"), data.load("signals")
    text = page("data.md")
    assert f"# {len(digits.x_train) + len(digits.x_test):,} real handwritten digits 8x8" in text
    assert f"print(digits) # {str(digits).partition(', 10 classes')[0]}, …)" in text
    parts = data.split(waves.y_train, calibration=400, train_size=200, seed=0)
    assert f"print(parts) # {str(parts).rpartition(', ')[0]}, …)" in text
    z, y = torch.tensor([[2.0, 0.0], [0.0, 0.5]]), torch.tensor([0, 0])
    text = page("losses/index.md")
    assert f"# one value per sample: {losses.focal(z, y, gamma=3)!r}" in text
    assert f"# one value per batch: {losses.soft_binned_ece(z, y)!r}" in text
    objective = losses.Objective("focal", {"name": "soft_avuc", "kappa": 0.5}, weight=0.5)
    assert f"print(objective) # {objective}" in text


# --- results of ours --------------------------------------------------------------------------


def test_how_many_samples_a_method_needs() -> None:
    """docs/deploy.md and docs/which.md: a temperature a few hundred, one per class thousands."""
    found: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    with (ROOT / "evidence" / "learning.csv").open(encoding="utf-8") as file:
        for r in csv.DictReader(file):
            if (r["package"], r["metric"], r["draw"]) == ("calibrant", "nll", "0"):
                source = r["network"].partition("_")[0]
                found[source, int(r["num_samples"]), r["method"]].append(float(r["value"]))
    nll = {where: np.mean(values) for where, values in found.items()}
    for source in ("cifar10", "cifar100"):
        few, many = (nll[source, n, "temperature"] for n in (200, 5000))
        assert few < 1.01 * many  # within 1 % of what 25 times as many samples give
        for n, better in ((200, False), (5000, True)):
            below = nll[source, n, "structured_vector"] < nll[source, n, "temperature"]
            assert below == better, (source, n)
    said = "a temperature needs a few hundred labels, `structured_vector` a few thousand"
    assert said in page("deploy.md")
    assert "a few hundred for a temperature, a few thousand for any method with" in page("which.md")


def test_heavy_tails_cost_little_coverage() -> None:
    """docs/shift.md: no heavy-tailed row is significantly below 95 %."""
    text = (DOCS / "shift.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|]*heavy tails[^|]* \| [^|]* \| ([\d.]+) / ([\d.]+) \|", text, re.MULTILINE
    )
    assert len(rows) == 3
    # 100 data sets of 5 classes: an average of 5 shares each with a standard error of 2.2 points.
    assert min(float(x) for row in rows for x in row) > 95 - 2 * error(0.95, 100)
    assert "here it costs little" in text


def cases() -> dict[int, tuple[str, dict[str, str]]]:
    """The cases of docs/comparison.md: number, note, and the result of each package."""
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    [part] = re.findall(r"<!-- cases -->\n(.*?)<!-- end -->", text, re.DOTALL)
    head, _, *rows = [line for line in part.splitlines() if line.startswith("|")]
    packages = [cell.strip() for cell in head.split("|")][4:-1]
    found = {}
    for row in rows[:-1]:
        number, _, _, *cells = [cell.strip() for cell in row.split("|")][1:-1]
        [note] = re.findall(rf"^{number}\. (.*)", part, re.MULTILINE)
        found[int(number)] = (note, dict(zip(packages, cells, strict=True)))
    return found


def test_what_is_said_of_the_cases_is_in_their_table() -> None:
    found = cases()
    assert len(found) == 33

    def wrong(number: int) -> set[str]:
        return {name for name, cell in found[number][1].items() if "wrong" in cell}

    for number, (note, results) in found.items():
        if re.search(r"\b([Aa]ll|Both) agree", note):
            but = re.search(r"agree but (\w+)", note)
            assert wrong(number) == ({but[1]} if but else set()), number
        if "Both agree" in note:
            assert sum(cell != "—" for cell in results.values()) == 2, number
    text = page("comparison.md")
    badly = [number for number in found if "torchmetrics" in wrong(number)]
    assert badly == [6, 7, 9]
    assert "torchmetrics, keeping cases 6, 7 and 9 below in mind" in text
    assert "exact temperature scaling (cases 17 to 20)" in text
    for number in range(17, 21):
        assert found[number][1]["scikit-learn"] == "0 right"
    # The notes in the table of features point to cases about that package.
    for number, package in ((1, "MAPIE"), (11, "MAPIE"), (16, "uncertainty-calibration")):
        assert package in found[number][0], number
    assert "torch-uncertainty has no offsets" in found[25][0]


# --- results of the papers --------------------------------------------------------------------


def cell(paper: str, where: tuple[str, ...], metric: str, calibrator: str = "none") -> float:
    """A printed value; ``where`` is data, network, objective and secondary loss, if any."""
    for table in PUBLISHED[paper]:
        for r in published(paper, table).to_pylist():
            key = (r["data"], r["model"], r["objective"], r["secondary"] or "")
            if key == (*where, "")[:4] and (r["metric"], r["calibrator"]) == (metric, calibrator):
                return float(r["value"])
    raise AssertionError((paper, where, metric, calibrator))


CE, ERL = ("cross_entropy",), ("cross_entropy", "negative_entropy")
SINGH: list[tuple[str, str, tuple[str, str], tuple[str, ...], str]] = [
    # Page, sentence with the value of cross-entropy {a} and of the loss {b}, place, loss, metric.
    (
        "likelihood",
        "from {a} to {b} on CIFAR-10 with ResNet-50",
        ("cifar10", "resnet50"),
        ("label_smoothing",),
        "auroc",
    ),
    (
        "likelihood",
        "and from {a} to {b} on CIFAR-100",
        ("cifar100", "resnet50"),
        ("label_smoothing",),
        "auroc",
    ),
    (
        "likelihood",
        "AUROC {b} against {a} (CIFAR-10)",
        ("cifar10", "resnet50"),
        ("focal",),
        "auroc",
    ),
    (
        "likelihood",
        "{b} against {a} (CIFAR-100) for ResNet-50",
        ("cifar100", "resnet50"),
        ("focal",),
        "auroc",
    ),
    (
        "likelihood",
        "{b} against {a} for VGG-16 on CIFAR-10",
        ("cifar10", "vgg16"),
        ("focal",),
        "auroc",
    ),
    ("regularisers", "it has ECE {b} against {a}", ("cifar100", "resnet50"), ERL, "ece"),
    ("regularisers", "and AUROC {b} against {a}", ("cifar100", "resnet50"), ERL, "auroc"),
    ("regularisers", "on CIFAR-10 {b} against {a}", ("cifar10", "resnet50"), ERL, "ece"),
    ("regularisers", "and {b} against {a} (Table 2)", ("cifar10", "resnet50"), ERL, "auroc"),
    ("ranking", "CIFAR-10 VGG-16 {a} → {b}", ("cifar10", "vgg16"), ("mixup",), "ece"),
    ("ranking", "and {a} → {b}, ResNet-50", ("cifar10", "vgg16"), ("mixup",), "auroc"),
    ("ranking", "ResNet-50 {a} → {b} and", ("cifar10", "resnet50"), ("mixup",), "ece"),
    ("ranking", "and {a} → {b}; CIFAR-100", ("cifar10", "resnet50"), ("mixup",), "auroc"),
    ("ranking", "CIFAR-100 ResNet-50 {a} → {b}", ("cifar100", "resnet50"), ("mixup",), "ece"),
    ("ranking", "and {a} → {b}. On ImageNet", ("cifar100", "resnet50"), ("mixup",), "auroc"),
    (
        "ranking",
        "On ImageNet with ResNet-50 {a} → {b}",
        ("imagenet", "resnet50"),
        ("mixup",),
        "ece",
    ),
    ("ranking", "and {a} → {b} (Table 1)", ("imagenet", "resnet50"), ("mixup",), "auroc"),
]


@pytest.mark.parametrize(("name", "words", "place", "loss", "metric"), SINGH)
def test_sentences_about_singh2021(
    name: str, words: str, place: tuple[str, str], loss: tuple[str, ...], metric: str
) -> None:
    a, b = (f"{cell('singh2021', (*place, *which), metric):.2f}" for which in (CE, loss))
    assert words.format(a=a, b=b) in page(f"losses/{name}.md")


def test_sentences_about_squared_errors() -> None:
    text = page("losses/squared.md")
    for name, words in (
        ("cifar10", "on CIFAR-10 {} with MSE against {} with cross-entropy, {} against {} after"),
        ("cifar100", "on CIFAR-100 {} against {}, and {} against {} after."),
    ):
        values: list[Any] = [
            f"{cell('karandikar2021', (name, 'wrn28-10', loss), 'ece', calibrator):.2f}"
            for calibrator in ("none", "temperature")
            for loss in ("squared_error", "cross_entropy")
        ]
        assert words.format(*values) in text
    for model, words in (
        ("resnet50", "CIFAR-100, ResNet-50 {} against {} %"),
        ("resnet110", "ResNet-110 {} against {} % (Table C.3)"),
    ):
        errors = [
            f"{cell('mukhoti2020', ('cifar100', model, loss), 'error'):.2f}"
            for loss in ("brier", "cross_entropy")
        ]
        assert words.format(*errors) in text


# --- links ------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """What headings of a page are linked by."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    plain = (re.sub(r"[^\w\s-]", "", head.lower()) for head in re.findall(r"^#+ (.*)", text, re.M))
    return {re.sub(r"[-\s]+", "-", head.strip()) for head in plain}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    pages = [*DOCS.rglob("*.md"), *(ROOT / n / "README.md" for n in ("", "evidence", "benchmarks"))]
    linked = 0
    for path in pages:
        text = path.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            found = (path.parent / file).resolve() if file else path
            assert found.exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors(found), f"{path.name}: {target}"
            linked += bool(anchor)
    assert linked > 30
