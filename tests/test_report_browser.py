"""The report in a real browser: live numbers, hostile names, keyboard, print, size and speed."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from calibrant import Confidences, Predictions, measure, metrics
from calibrant._measure import Panel
from calibrant.calibrators import TemperatureScaling
from calibrant.examples import load_example
from calibrant.report import _judge, _tempered, write_report, write_study_report
from calibrant.report._advice import Advice
from calibrant.report._html import clean
from calibrant.results import pareto_front, pivot, read_all
from tests import browser as web
from tests.conftest import CASES, draw
from tests.once import choosing_among_few
from tests.test_report import HOSTILE, rows, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# One worker starts the browser and writes the reports that several tests open.

TEMPERATURES = (0.25, 0.73, 1.0, 1.01, 1.7, 4.0)
MOST_BYTES = 6_000_000
DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if web.chromium() is None:  # looked for when a test runs: collecting starts nothing
        pytest.skip(web.ABSENT)
    with web.launched() as found:
        yield found


@pytest.fixture(scope="module")
def examples() -> dict[str, Predictions]:
    names = ("cross_entropy", "label_smoothing")
    return {name: load_example(name).take(range(300)) for name in names}


@pytest.fixture(scope="module")
def report(examples: dict[str, Predictions], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    with choosing_among_few():
        write_report(examples, path, replicates=20)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("study")
    write_study_report(written(folder / "results", rows()), folder / "report.html")
    return folder / "results", folder / "report.html"


def tempered(p: Predictions, temperature: float) -> Predictions:
    return Predictions(logits=p.log_probs.astype(np.float64) / temperature, labels=p.labels)


def number(text: str) -> float:
    """A shown number as a fraction."""
    found = re.fullmatch(r"(-?[0-9.]+)( %)?", text)
    assert found, text
    return float(found[1]) / (100 if found[2] else 1)


# --- live numbers -----------------------------------------------------------------------------


def top_only(p: Predictions, temperature: float) -> Predictions:
    """The same gaps in a fixed order of classes, so that ties are ties in floating point too."""
    gaps = np.sort(p.logits - p.logits.max(axis=1, keepdims=True), axis=1)[:, ::-1]
    return Predictions(
        logits=gaps.astype(np.float64) / temperature, labels=np.where(p.correct, 0, 1)
    )


def check_numbers(
    view: web.Opened, model: tuple[int, tuple[str, Predictions]], temperature: float, **binning: Any
) -> None:
    index, (name, p) = model
    at = f"{name} at T = {temperature}, {binning}"
    after = p if temperature == 1 else tempered(p, temperature)
    ranked = top_only(p, temperature) if len(p) == 800 and temperature != 1 else after
    want = pytest.approx(metrics.ece(ranked, **binning), abs=1e-3)
    assert number(view.shown("ece", index)) == want, at
    want = pytest.approx(metrics.mean_confidence(after), abs=1e-3)
    assert number(view.shown("confidence", index)) == want, at
    want = pytest.approx(metrics.nll(after), rel=1e-3, abs=1e-3)
    assert number(view.shown("nll", index)) == want, at


QUICK = ["mixed signs"]
OTHERS = [name for name in CASES if name not in QUICK]
SERIES = ["mixed signs", "N % bins = 1", "two classes", "saturated float32", "many classes"]


# A page takes seconds to load, so it shows all models.
@pytest.mark.parametrize(
    ("names", "exact"),
    [
        pytest.param(QUICK, 10**9, id="quick"),
        pytest.param(OTHERS, 10**9, id="exact", marks=pytest.mark.slow),
        pytest.param(SERIES, 0, id="series", marks=pytest.mark.slow),
    ],
)
def test_live_numbers_are_those_of_the_package(
    names: list[str],
    exact: int,
    browser: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ECE, NLL and mean confidence at any temperature, in bins of either kind and any number."""
    monkeypatch.setattr(_tempered, "EXACT_SCORES", exact)
    monkeypatch.setattr(_judge, "advise", lambda *_, **__: Advice(reason="-"))
    monkeypatch.setattr(_judge, "BUDGET", 10**9)  # every sample of every model
    models = {name: Predictions(logits=CASES[name][0], labels=CASES[name][1]) for name in names}
    write_report(models, tmp_path / "report.html", replicates=20)
    with web.opened(browser, tmp_path / "report.html") as view:
        for binning in ("width", "mass"):
            view.page.click(f'[data-binning="{binning}"]')
            for bins in (15, 4):
                view.page.fill("#bins", str(bins))
                for temperature in TEMPERATURES:
                    view.set_temperature(temperature)
                    for model in enumerate(models.items()):
                        check_numbers(view, model, temperature, bins=bins, binning=binning)
        assert view.complaints == []


@pytest.mark.slow
def test_models_share_the_reach_of_the_slider(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model needs T = 8; the series of the other must hold there too."""
    monkeypatch.setattr(_tempered, "EXACT_SCORES", 0)
    monkeypatch.setattr(_judge, "advise", lambda *_, **__: Advice(reason="-"))
    z, y = draw(997, 10)
    models = {"cold": Predictions(logits=z, labels=y), "hot": Predictions(logits=6 * z, labels=y)}
    write_report(models, tmp_path / "report.html", replicates=20)
    with web.opened(browser, tmp_path / "report.html") as view:
        for temperature in (0.1, 8.0, 10.0):
            view.set_temperature(temperature)
            for index, p in enumerate(models.values()):
                want = metrics.ece(tempered(p, temperature))
                assert number(view.shown("ece", index)) == pytest.approx(want, abs=1e-3)


@pytest.mark.slow
def test_probabilities_on_the_edges_of_bins(browser: Browser, tmp_path: Path) -> None:
    """Rounded probabilities lie on edges; at T = 1 each is in the package's bin."""
    rng = np.random.default_rng(0)
    top = rng.integers(5, 11, 400) / 10
    p = Predictions(probs=np.stack([top, 1 - top], axis=1), labels=rng.integers(0, 2, 400))
    write_report({"p": p}, tmp_path / "report.html", replicates=20)
    with web.opened(browser, tmp_path / "report.html") as view:
        for bins in (5, 10, 15, 20):
            view.page.fill("#bins", str(bins))
            view.settle()
            assert number(view.shown("ece")) == pytest.approx(metrics.ece(p, bins=bins), abs=6e-5)
        assert view.shown("nll") in ("∞", f"{metrics.nll(p):.4f}")


@pytest.mark.slow
def test_confidences_alone(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    c = Confidences(confidence=rng.random(500), correct=rng.random(500) < 0.6)
    write_report({"c": c}, tmp_path / "report.html", replicates=20)
    with web.opened(browser, tmp_path / "report.html") as view:
        for absent in ("#temperature", "#curve", "#curve-table", '[data-metric="nll"]'):
            assert view.page.query_selector(absent) is None
        assert "slider" not in view.page.inner_text("#explore")
        view.page.click('[data-binning="mass"]')
        view.page.fill("#bins", "7")
        view.settle()
        want = metrics.ece(c, bins=7, binning="mass")
        assert number(view.shown("ece")) == pytest.approx(want, abs=6e-5)
        assert view.complaints == []


@pytest.mark.slow
def test_a_part_of_the_samples(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live ECE is that of the stated part; the rest of the page is of all samples."""
    monkeypatch.setattr(_judge, "BUDGET", 20_000)
    p = load_example("cross_entropy")
    write_report({"p": p.take(range(900))}, tmp_path / "report.html", replicates=20)
    with web.opened(browser, tmp_path / "report.html") as view:
        data = json.loads(view.page.inner_text("#data"))["models"][0]
        size = data["samples"]
        assert size < 900
        assert f"a random {size} of its 900 samples" in view.page.inner_text("#explore")
        rows_ = np.sort(np.random.default_rng(0).permutation(900)[:size])
        part = p.take(range(900)).take(rows_)
        for temperature in (1.0, 2.0):
            view.set_temperature(temperature)
            want = part if temperature == 1 else tempered(part, temperature)
            assert number(view.shown("ece")) == pytest.approx(metrics.ece(want), abs=1e-3)


# --- interaction ------------------------------------------------------------------------------


def test_no_requests_and_no_complaints(browser: Browser, report: Path, study: Any) -> None:
    for path in (report, study[1]):
        with web.opened(browser, path) as view:
            view.page.wait_for_timeout(300)
            assert view.requests == [path.resolve().as_uri()]
            assert view.complaints == []
            assert not view.page.is_visible("#problem")


def test_the_policy_stops_what_is_not_ours(browser: Browser, report: Path) -> None:
    """An injected script does not run and an injected image is not fetched."""
    with web.opened(browser, report) as view:
        failed: list[str | None] = []
        view.listen("requestfailed", lambda request: failed.append(request.failure))
        view.page.evaluate("""() => {
            const script = document.createElement("script");
            script.textContent = "window.injected = 1";
            const image = document.createElement("img");
            image.src = "https://example.org/x.png";
            document.body.append(script, image);
        }""")
        view.page.wait_for_timeout(200)
        assert view.page.evaluate("window.injected") is None
        assert failed == ["csp"]
        assert len(view.complaints) == 2  # the policy says so in the console


def test_the_slider_by_keyboard(
    browser: Browser, report: Path, examples: dict[str, Predictions]
) -> None:
    with web.opened(browser, report) as view:
        view.page.focus("#temperature")
        for _ in range(30):
            view.page.keyboard.press("ArrowRight")
        view.settle()
        assert view.page.inner_text("#temperature-shown") == "T = 1.30"
        assert view.page.get_attribute("#temperature", "aria-valuetext") == "T = 1.30"
        for index, p in enumerate(examples.values()):
            want = metrics.ece(tempered(p, 1.3))
            assert number(view.shown("ece", index)) == pytest.approx(want, abs=1e-3)
        said = f"cross_entropy ECE {view.shown('ece')}, NLL {view.shown('nll')}; label_smoothing"
        view.wait_until("document.getElementById('live-said').textContent.startsWith('T = 1.30')")
        assert said in view.page.inner_text("#live-said")  # to a screen reader, once at rest
        view.page.click("#temperature-reset")
        view.settle()
        want = metrics.ece(examples["cross_entropy"])
        assert number(view.shown("ece")) == pytest.approx(want, abs=6e-5)


@pytest.mark.slow
def test_each_model_at_its_best(
    browser: Browser, report: Path, examples: dict[str, Predictions]
) -> None:
    with web.opened(browser, report) as view:
        view.page.click("#temperature-best")
        view.settle()
        assert view.page.inner_text("#temperature-shown") == "each at its best"
        for index, p in enumerate(examples.values()):
            best = TemperatureScaling().fit(p).temperature_
            after = tempered(p, min(max(best, 0.1), 10))
            assert number(view.shown("nll", index)) == pytest.approx(metrics.nll(after), abs=1e-3)
        view.page.click("button[data-temperature] >> nth=0")
        view.settle()
        assert view.page.inner_text("#temperature-shown").startswith("T = ")


@pytest.mark.slow
def test_models_can_be_hidden(browser: Browser, report: Path) -> None:
    drawn = "document.getElementById('reliability').data.length"
    with web.opened(browser, report) as view:
        assert view.page.evaluate(drawn) == 5
        view.page.uncheck('input[data-model="0"]')
        view.settle()
        assert view.page.evaluate(drawn) == 3
        text = view.page.get_attribute("#reliability", "aria-label") or ""
        assert "cross_entropy" not in text
        assert "label_smoothing: ECE " in text
        view.page.uncheck('input[data-model="1"]')
        view.settle()
        view.page.wait_for_timeout(200)
        assert view.page.evaluate(drawn) == 1
        assert view.complaints == []


@pytest.mark.slow
def test_hovering_a_bin_says_how_many_samples_and_the_interval(
    browser: Browser, report: Path, examples: dict[str, Predictions]
) -> None:
    with web.opened(browser, report) as view:
        view.page.uncheck('input[data-model="1"]')
        view.settle()
        view.page.locator("#reliability .points path").last.hover(force=True)
        view.page.wait_for_selector("#reliability .hoverlayer text")
        shown = view.page.locator("#reliability .hoverlayer").text_content() or ""
        table = metrics.reliability(examples["cross_entropy"])
        assert f"{table.count[-1]:,.0f} samples" in shown
        assert f"interval {100 * table.lower[-1]:.1f} … {100 * table.upper[-1]:.1f} %" in shown
        assert f"{table.count[-1]:,.0f} samples" in view.page.inner_text("#reliability-said")


@pytest.mark.slow
def test_charts_by_keyboard(browser: Browser, report: Path) -> None:
    with web.opened(browser, report) as view:
        view.page.focus("#reliability")
        view.page.keyboard.press("ArrowRight")
        first = view.page.inner_text("#reliability-said")
        assert re.match(r"cross_entropy, bin [\d.]+ … [\d.]+ %: \d+ samples?, says ", first)
        view.page.keyboard.press("End")
        assert view.page.inner_text("#reliability-said").startswith("label_smoothing, bin ")
        view.page.keyboard.press("Home")
        assert view.page.inner_text("#reliability-said") == first


@pytest.mark.slow
def test_the_bins_as_a_table(
    browser: Browser, report: Path, examples: dict[str, Predictions]
) -> None:
    with web.opened(browser, report) as view:
        view.page.locator("summary", has_text="The bins as a table").click()
        found = view.page.locator("#bins-table tbody tr")
        tables = [metrics.reliability(p) for p in examples.values()]
        assert found.count() == sum(int((t.count > 0).sum()) for t in tables)
        last = found.last.locator("td").all_inner_texts()
        t = tables[-1]
        b = int(np.flatnonzero(t.count)[-1])
        assert last[2:5] == [
            f"{t.count[b]:,.0f}",
            f"{100 * t.confidence[b]:.2f} %",
            f"{100 * t.accuracy[b]:.2f} %",
        ]


@pytest.mark.slow
def test_tables_are_sorted_by_keyboard(browser: Browser, report: Path) -> None:
    body = "document.querySelector('#classes table').tBodies[0]"
    gaps = f"[...{body}.rows].map(row => Number(row.cells[5].dataset.value))"
    with web.opened(browser, report) as view:
        heading = view.page.locator("#classes table >> nth=0").locator("th button", has_text="gap")
        heading.focus()
        view.page.keyboard.press("Enter")
        rising = view.page.evaluate(gaps)
        assert rising == sorted(rising)
        assert heading.locator("..").get_attribute("aria-sort") == "ascending"
        view.page.keyboard.press("Enter")
        assert view.page.evaluate(gaps) == rising[::-1]


@pytest.mark.slow
def test_the_curve_is_that_of_the_package(
    browser: Browser, report: Path, examples: dict[str, Predictions]
) -> None:
    p = examples["cross_entropy"]
    with web.opened(browser, report) as view:
        view.wait_until("document.getElementById('curve').data?.length === 4")
        curve = view.page.evaluate(
            "document.getElementById('curve').data.map(t => [[...t.x], [...t.y]])"
        )
        for temperature, ece in list(zip(*curve[0], strict=True))[::8]:
            want = metrics.ece(p if temperature == 1 else tempered(p, temperature))
            assert ece == pytest.approx(want, abs=1e-3)
        for temperature, nll in list(zip(*curve[1], strict=True))[::8]:
            assert nll == pytest.approx(metrics.nll(tempered(p, temperature)), abs=1e-3)


# --- hostile names ----------------------------------------------------------------------------


@pytest.mark.slow  # tests/test_report.py reads the same page without a browser
def test_hostile_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    z, y = draw(60, len(HOSTILE))
    ids = [f"<img src=x onerror=alert({i})>" for i in range(60)]
    classes = [f"{i}{name}" for i, name in enumerate(HOSTILE)]
    p = Predictions(logits=z, labels=y, classes=classes, meta={"ids": ids})
    names = ['<script>alert("x")</script>', "<b>bold</b>%{x}", "\u202eRTL 🦊 <br>", "שלום &lt;"]
    write_report(dict.fromkeys(names, p), tmp_path / "r.html", title=HOSTILE[1], replicates=20)
    with web.opened(browser, tmp_path / "r.html") as view:
        view.listen("dialog", lambda dialog: view.complaints.append(dialog.message))
        assert view.page.title() == HOSTILE[1]
        toggles = view.page.locator(".toggle bdi").all_inner_texts()
        assert [text.split() for text in toggles] == [name.split() for name in names]
        shown = view.page.locator("#classes th[scope=row]").all_inner_texts()
        assert {text.strip() for text in shown} <= {clean(name).strip() for name in classes}
        assert "<img src=x onerror=alert(" in view.page.inner_text("#mistakes")
        view.page.focus("#reliability")
        view.page.keyboard.press("ArrowRight")
        view.page.wait_for_selector("#reliability .hoverlayer text")
        hover = view.page.locator("#reliability .hoverlayer").text_content() or ""
        assert names[0] in hover
        assert view.page.locator("main img, main svg a, main script").count() == 0
        assert view.complaints == []


@pytest.mark.slow
def test_hostile_names_in_a_study(browser: Browser, tmp_path: Path) -> None:
    records = [
        {
            **r,
            "objective": HOSTILE[0] if r["objective"] == "ce" else "<b>%{x}</b>",
            "calibrator": "none" if r["calibrator"] == "none" else HOSTILE[5],
        }
        for r in rows()
    ]
    write_study_report(written(tmp_path / "s", records), tmp_path / "r.html")
    with web.opened(browser, tmp_path / "r.html") as view:
        table = view.page.inner_text("#study-table")
        assert HOSTILE[0] in table
        assert "<b>%{x}</b>" in table
        legend = view.page.locator("#shift .legend").text_content() or ""
        assert HOSTILE[0] in legend
        assert view.page.locator("main script, main b").count() == 0
        assert view.complaints == []


# --- the study --------------------------------------------------------------------------------


def study_cells(view: web.Opened) -> list[list[str]]:
    found = view.page.locator("#study-table tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in found]


def test_the_table_of_a_study(browser: Browser, study: tuple[Path, Path]) -> None:
    want = pivot(
        read_all(study[0]),
        rows="objective",
        cols="calibrator",
        metric="ece",
        where={"part": "test"},
    )
    with web.opened(browser, study[1]) as view:
        heads = view.page.locator("#study-table th").all_inner_texts()
        assert heads == [
            "objective",
            "calibrator",
            "samples",
            "seeds",
            "ECE (%)",
            "accuracy (%)",
            "NLL",
            "temperature",
        ]
        found = study_cells(view)
        assert len(found) == 4  # the test samples alone
        for row in found:
            cell = want[row[0], row[1]]
            assert row[4] == f"{100 * cell.mean:.2f} ± {100 * cell.spread:.2f}"
            assert row[3] == "3"
        view.page.select_option("#filter-part", "all")
        assert len(study_cells(view)) == 16
        view.page.select_option("#filter-objective", label="focal")
        assert {row[0] for row in study_cells(view)} == {"focal"}
        view.page.fill("#search", "fog")
        assert {row[2] for row in study_cells(view)} == {"fog/2", "fog/10"}
        assert "4 of 4 settings match the filter, 16 in total" in view.page.inner_text(
            "#table-count"
        )
        view.page.fill("#search", "nothing like it")
        assert study_cells(view) == []
        assert view.complaints == []


@pytest.mark.slow
def test_the_table_of_a_study_is_sorted_by_keyboard(
    browser: Browser, study: tuple[Path, Path]
) -> None:
    with web.opened(browser, study[1]) as view:
        view.page.select_option("#filter-part", "all")
        view.page.locator("#study-table th button", has_text="ECE").focus()
        for direction in (1, -1):
            view.page.keyboard.press("Enter")
            values = [float(row[4].split()[0]) for row in study_cells(view)]
            assert values == sorted(values, reverse=direction < 0)
        view.page.locator("#study-table th button", has_text="samples").click()
        order = list(dict.fromkeys(row[2] for row in study_cells(view)))
        assert order == ["fog/2", "fog/10", "new", "test"]
        best = view.page.locator("#study-table td.best").all_inner_texts()
        assert len(best) >= 3


@pytest.mark.slow
def test_the_front_is_that_of_the_package(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    points = np.round(rng.random((40, 2)), 2)  # ties too
    records = [
        {
            "run": f"k{i}",
            "data": "d",
            "model": "m",
            "objective": f"o{i}",
            "seed": 0,
            "calibrator": "none",
            "part": "test",
            "metric": metric,
            "value": value,
        }
        for i, point in enumerate(points)
        for metric, value in zip(("accuracy", "ece"), point, strict=True)
    ]
    write_study_report(written(tmp_path / "s", records), tmp_path / "r.html")
    front = pareto_front(points, maximise=[True, False])
    with web.opened(browser, tmp_path / "r.html") as view:
        line = view.page.evaluate(
            "(([t]) => [[...t.x], [...t.y]])(document.getElementById('pareto').data)"
        )
        found = sorted(zip(*line, strict=True))
        assert found == sorted(map(tuple, points[front].tolist()))
        # Each point of the front carries the number of its line in the list.
        assert view.page.locator("#front-names li").count() == front.sum()
        numbers = view.page.evaluate(
            "document.getElementById('pareto').data.flatMap(t => t.text ?? []).filter(Boolean)"
        )
        assert sorted(map(int, numbers)) == list(range(1, front.sum() + 1))
        assert not view.page.locator("#shift").count()


@pytest.mark.slow
def test_shifts_follow_the_filter(browser: Browser, study: tuple[Path, Path]) -> None:
    lines = "document.getElementById('shift').data.map(t => [...t.x])"
    with web.opened(browser, study[1]) as view:
        assert view.page.evaluate(lines) == [[0, 2, 10]] * 4
        view.page.select_option("#filter-calibrator", label="TS")
        assert view.page.evaluate(lines) == [[0, 2, 10]] * 2
        view.page.select_option("#shift-family", label="other sets")
        assert len(view.page.evaluate(lines)[0]) == 2
        view.page.select_option("#shift-metric", label="temperature")
        view.page.select_option("#front-x", label="temperature")
        assert view.complaints == []


# --- for everyone, on paper, and fast ---------------------------------------------------------

CONTRAST = """() => {
  const linear = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parse = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const c = parse(getComputedStyle(node).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const faults = [];
  for (const node of document.querySelectorAll("body *:not(script):not(svg *):not(option)")) {
    const own = [...node.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !node.checkVisibility() || node.disabled) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.push(`${node.tagName} ${node.className} ${ratio.toFixed(2)}`);
  }
  return faults;
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme: Any, browser: Browser, report: Path, study: Any) -> None:
    """At least 4.5 between every text and its ground, by the system's scheme and by the button."""
    for path in (report, study[1]):
        with web.opened(browser, path, scheme=scheme) as view:
            assert view.page.evaluate(CONTRAST) == []
            ground = "getComputedStyle(document.body).backgroundColor"
            start = view.page.evaluate(ground)
            for _ in range(2):
                view.page.click("#theme")
            if scheme == "dark":
                view.page.click("#theme")
                view.page.click("#theme")
            assert view.page.evaluate(ground) != start
            view.page.mouse.move(0, 0)
            assert view.page.evaluate(CONTRAST) == []


@pytest.mark.slow
def test_everything_has_a_name(browser: Browser, report: Path, study: Any) -> None:
    """Controls are labelled, charts have a text, headings do not skip a level."""
    kinds = "input, select, button, [role=img], [role=region]"
    named = "n.ariaLabel || n.labels?.length || n.textContent.trim()"
    unnamed = f"[...document.querySelectorAll('{kinds}')].filter(n => !({named})).length"
    for path in (report, study[1]):
        with web.opened(browser, path) as view:
            assert view.page.evaluate(unnamed) == 0
            levels = [
                int(h)
                for h in view.page.evaluate(
                    "[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName[1])"
                )
            ]
            assert levels[0] == 1
            assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
            view.wait_until(
                "[...document.querySelectorAll('[role=img]')].every(n => n.ariaLabel.length > 40)"
            )
            ids = view.page.evaluate("[...document.querySelectorAll('main [id]')].map(n => n.id)")
            assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_it_fits_a_narrow_window(browser: Browser, report: Path, study: Any) -> None:
    for path in (report, study[1]):
        with web.opened(browser, path, size=(340, 700)) as view:
            assert view.page.evaluate("document.documentElement.scrollWidth") <= 340


@pytest.mark.slow
def test_the_first_picture_is_within_two_screens_of_a_phone(
    browser: Browser, report: Path, study: Any
) -> None:
    for path, first in ((report, ".chart"), (study[1], "table.heat")):
        with web.opened(browser, path, size=(390, 844)) as view:
            top = f"document.querySelector('{first}').getBoundingClientRect().top + scrollY"
            assert view.page.evaluate(top) < 2 * 844
    with web.opened(browser, report, size=(390, 844)) as view:
        assert not view.page.is_visible(".answers dl >> nth=0")
        view.page.click(".answers summary >> nth=0")
        assert view.page.is_visible(".answers dl >> nth=0")
        assert not view.page.is_visible(".answers dl >> nth=1")
        view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        view.page.emulate_media(media="print")
        assert view.page.is_visible(".answers dl >> nth=1")
    with web.opened(browser, report) as view:  # on a screen nothing is folded
        assert view.page.is_visible(".answers dl >> nth=1")
        assert not view.page.is_visible(".answers summary >> nth=0")


@pytest.mark.slow
def test_print(browser: Browser, report: Path, study: Any) -> None:
    """On paper: light colours, no controls, charts no wider than the paper."""
    for path in (report, study[1]):
        with web.opened(browser, path, scheme="dark") as view:
            view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            view.page.emulate_media(media="print")
            assert not view.page.is_visible(".controls >> nth=0")
            ground = view.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == "rgb(255, 255, 255)"
            inks = view.page.evaluate("document.querySelector('.chart').layout.font.color")
            assert inks == "#1b1d1f"
            widths = view.page.evaluate(
                "[...document.querySelectorAll('.main-svg')].map(n => n.clientWidth)"
            )
            assert max(widths) <= 660
            view.page.evaluate("dispatchEvent(new Event('afterprint'))")
            view.page.emulate_media(media="screen")
            inks = view.page.evaluate("document.querySelector('.chart').layout.font.color")
            assert inks == "#e8eaed"
            assert view.page.pdf(format="A4")[:5] == b"%PDF-"
            assert view.complaints == []


@pytest.mark.slow
def test_the_picture_of_the_readme(browser: Browser, tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "make_report_picture.py"
    module = runpy.run_path(str(script))
    module["take_picture"](browser, tmp_path / "report.png", replicates=20)
    made, kept = ((folder / "report.png").read_bytes() for folder in (tmp_path, DOCS))
    assert made[:24] == kept[:24]  # a PNG of the same size


def opening_seconds(view: web.Opened) -> float:
    """From the start to the drawn page: by the clock, or on a busy machine by the page's thread."""
    session = view.page.context.new_cdp_session(view.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    view.page.reload()
    view.page.wait_for_selector(web.READY, state="attached")
    measured = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    clock = float(view.page.get_attribute("html", "data-ready") or "nan") / 1000
    return min(clock, measured["TaskDuration"])


def without_intervals(p: Predictions, **options: Any) -> Panel:
    """The panel without intervals: they take a while at this size and are not what is tested."""
    return measure(p, intervals=False, bins=options["bins"])


@pytest.mark.slow
def test_one_model_of_a_thousand_classes_is_small_and_fast(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 samples of 1,000 classes: all embedded, at most 6 MB, drawn within two seconds."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((50_000, 1000), dtype=np.float32) * 1.5
    y = rng.integers(0, 1000, 50_000)
    z[np.arange(50_000), y] += rng.gamma(3, 3, 50_000).astype(np.float32)
    p = Predictions(logits=z, labels=y, classes=[f"class {i}" for i in range(1000)])
    monkeypatch.setattr(_judge, "advise", lambda *_, **__: Advice(reason="-"))
    monkeypatch.setattr(_judge, "measure", without_intervals)
    write_report({"big": p}, tmp_path / "r.html", replicates=20)
    assert (tmp_path / "r.html").stat().st_size <= MOST_BYTES
    with web.opened(browser, tmp_path / "r.html") as view:
        assert any(opening_seconds(view) < 2 for _ in range(3))
        for temperature in (0.5, 1.0, 2.0):
            view.set_temperature(temperature)
            want = metrics.ece(Predictions(logits=z / np.float32(temperature), labels=y))
            assert number(view.shown("ece")) == pytest.approx(want, abs=1e-3)
        assert view.complaints == []
