"""The report without a browser: the verdict, the series, the cases, the study, the file."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from calibrant import Confidences, InputError, Predictions, compare, measure, metrics
from calibrant._core.checks import CalibrationWarning
from calibrant._core.formatting import show
from calibrant.calibrators import CALIBRATORS, UNCALIBRATED, TemperatureScaling
from calibrant.cli import app
from calibrant.examples import EXAMPLES, load_example
from calibrant.inference import CalibrationTest, ece_test
from calibrant.report import _judge as judging
from calibrant.report import _page, write_report, write_study_report
from calibrant.report import _tempered as tempering
from calibrant.report._advice import Advice, advise
from calibrant.report._cases import confident_mistakes, sample_ids, worst_classes
from calibrant.report._decomposition import decomposition
from calibrant.report._heat_map import shade
from calibrant.report._html import Html, as_html, clean, tag
from calibrant.report._page import as_json
from calibrant.report._settings import Settings
from calibrant.report._study import cells_of, families
from calibrant.report._tempered import (
    ORDER,
    GapSeries,
    best_temperature,
    embedded,
    reach_for,
    series_of,
)
from calibrant.report._verdict import TITLES, Verdict, gap_interval, verdict_of
from calibrant.results import Store, read_all
from calibrant.study import Study, findings
from tests.conftest import CASES, draw
from tests.once import _one_selection_per_file, all_candidates, few_candidates  # noqa: F401

pytestmark = pytest.mark.usefixtures("few_candidates")

DIGITS = {name: load_example(name).take(range(400)) for name in EXAMPLES}
SETTINGS = Settings(replicates=40)
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><b>",
    '"onmouseover="x',
    "'x'",
    "a & b &amp; c",
    "\u202eRTL override",
    "שלום",
    "🦊" * 40,
    "$title ${body} %{x}",
    "line\u2028end",
    "nul\x00",
    "half \ud800",
    "<!--",
    "]]>",
    "javascript:alert(1)",
    "  ",
)


# --- the verdict ------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "spread"), [(30, 0.3), (300, 0.3), (100, 0.02)])
def test_the_interval_of_the_gap_covers(count: int, spread: float) -> None:
    """The true mean gap lies inside about 95 of 100 times, also where nearly all is right."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        confidence = 1 - spread * rng.random(count)
        correct = rng.random(count) < confidence - 0.01
        found = gap_interval(Confidences(confidence=confidence, correct=correct))
        inside += found.low <= 0.01 <= found.high
    assert 0.93 <= inside / 1000 <= 0.995


def test_the_interval_of_the_gap_is_narrower_than_without_correlation() -> None:
    """Against the plain paired interval, which is right at this N."""
    rng = np.random.default_rng(1)
    confidence = rng.random(20_000)
    p = Confidences(confidence=confidence, correct=rng.random(20_000) < confidence**1.1)
    found = gap_interval(p)
    difference = p.confidence - p.correct
    half = 1.96 * difference.std(ddof=1) / math.sqrt(len(difference))
    assert found.value == pytest.approx(difference.mean(), abs=1e-12)
    assert found.high - found.value == pytest.approx(half, rel=0.02)
    assert found.value - found.low == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_samples_seldom_accuse_a_calibrated_model(count: int) -> None:
    """A correlation of two samples is ±1; an interval that trusts it nearly vanishes."""
    rng = np.random.default_rng(0)
    accused = 0
    for _ in range(2000):
        confidence = 1 - 0.5 * rng.random(count)
        correct = rng.random(count) < confidence
        found = gap_interval(Confidences(confidence=confidence, correct=correct))
        accused += not found.low <= 0 <= found.high
    assert accused / 2000 <= 0.05


def test_all_right_is_no_proof_of_caution() -> None:
    """20 of 20 right at 99 %: a point by the bootstrap, an interval in truth."""
    found = gap_interval(Confidences(confidence=[0.99] * 20, correct=[1] * 20))
    assert found.low < 0 < found.high
    one = gap_interval(Confidences(confidence=[0.7], correct=[1]))
    assert one.low < 0 < one.high
    assert one.high < 1


def said(p: Predictions | Confidences, advice: Advice | None = None) -> Verdict:
    ece = measure(p, metrics=["ece"], replicates=40).interval("ece")
    return verdict_of(p, gap_interval(p), ece, ece_test(p, draws=200), advice or Advice(reason="-"))


def stated(count: int, confidence: float, hits: int) -> Confidences:
    return Confidences(confidence=[confidence] * count, correct=[1] * hits + [0] * (count - hits))


@pytest.mark.parametrize(
    ("p", "kind", "start"),
    [
        (stated(1000, 0.95, 700), "over", "Strongly overconfident: it says 95.0 % on average"),
        (stated(1000, 0.95, 900), "over", "Overconfident: "),
        (stated(100_000, 0.905, 90_000), "over", "Slightly overconfident: "),
        (stated(1000, 0.7, 900), "under", "Strongly underconfident: "),
        (stated(30, 0.9, 25), "unknown", "30 samples are too few to tell"),
        (stated(1, 0.9, 1), "unknown", "One sample cannot tell"),
        (stated(10_000, 0.9, 9000), "fine", "Calibrated on average, as far as 10,000 samples"),
    ],
)
def test_headlines(p: Confidences, kind: str, start: str) -> None:
    found = said(p)
    assert found.kind == kind
    assert found.headline.startswith(start), found.headline


def test_gaps_that_cancel_are_seen() -> None:
    p = Confidences(confidence=[0.9] * 500 + [0.6] * 500, correct=([1] * 375 + [0] * 125) * 2)
    found = said(p)
    assert found.kind == "mixed"
    assert found.headline.startswith("Not calibrated, although the average gap is not significant")
    assert "Not for the average gap" in dict(found.answers)["Is N large enough to tell?"]


def test_too_few_samples_say_so() -> None:
    answer = dict(said(stated(40, 0.9, 34)).answers)["Is N large enough to tell?"]
    assert answer.startswith("No: with N = 40 the interval of the gap contains 0.")


@pytest.mark.usefixtures("all_candidates")
def test_the_numbers_of_the_verdict() -> None:
    p = DIGITS["cross_entropy"]
    advice = advise(p, None, SETTINGS)
    found = said(p, advice)
    answers = dict(found.answers)
    gap = metrics.mean_confidence(p) - metrics.accuracy(p)
    assert f"On average {100 * gap:.1f} percentage points too confident" in answers["How far off?"]
    assert f"(ECE) is {100 * metrics.ece(p):.2f} %" in answers["How far off?"]
    before, after = advice.values["before"], advice.values["after"]
    assert before["ece"] == metrics.ece(p)
    assert advice.differences["ece"].value == pytest.approx(after["ece"] - before["ece"])
    assert f"to {100 * after['ece']:.2f} %" in answers["What does it gain?"]
    assert f"{advice.differences['nll'].value:+.4f}" in answers["What does it gain?"]
    assert "Accuracy: " in answers["What does it cost?"]
    assert str(found).splitlines()[0] == found.headline


@pytest.mark.usefixtures("all_candidates")
def test_advice_is_judged_on_samples_it_has_not_seen() -> None:
    """Temperature scaling, the truth here: chosen, with its temperature and a gain."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 4)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=2 * z, labels=labels)
    advice = advise(p, None, SETTINGS)
    assert advice.chosen == "temperature"
    assert advice.temperature == pytest.approx(TemperatureScaling().fit(p).temperature_)
    assert advice.differences["ece"].high < 0
    answers = dict(said(p, advice).answers)
    assert "Use temperature scaling (T = " in answers["What to do?"]
    assert answers["What does it cost?"].endswith("No predicted class changes.")
    fine = advise(Predictions(logits=z, labels=labels), None, SETTINGS)
    assert fine.chosen is None
    assert fine.differences == {}
    assert dict(said(p, fine).answers)["What to do?"].startswith("Leave it uncalibrated: ")


def test_no_advice_without_scores_or_samples() -> None:
    few = advise(load_example("cross_entropy").take(range(49)), None, SETTINGS)
    assert few.chosen is None
    assert "Collect more samples" in few.reason
    top = advise(stated(100, 0.9, 80), None, SETTINGS)
    assert (
        "Only confidences were given"
        in dict(said(stated(100, 0.9, 80), top).answers)["What to do?"]
    )


@pytest.mark.usefixtures("all_candidates")
def test_an_undefined_refinement_is_said_so() -> None:
    z = np.random.default_rng(0).normal(size=(200, 3))
    p = Predictions(logits=z, labels=z.argmax(axis=1))
    advice = advise(p, None, SETTINGS)
    assert advice.chosen is not None
    assert "undefined" in dict(said(p, advice).answers)["What does it cost?"]


@pytest.mark.usefixtures("all_candidates")
def test_a_change_that_may_be_chance_is_called_so() -> None:
    p = load_example("cross_entropy").take(range(60))
    advice = advise(p, None, SETTINGS)
    unsure = [d for d in advice.differences.values() if d.low <= 0 <= d.high and d.metric == "ece"]
    answers = dict(
        verdict_of(
            p,
            gap_interval(p),
            measure(p, replicates=40).interval("ece"),
            CalibrationTest("ECE", 0.1, 0.5),
            advice,
        ).answers
    )
    assert ("N is too small" in answers.get("What does it gain?", "")) == bool(unsure)


def test_every_calibrator_has_a_title() -> None:
    """Names in code break across the lines of a table."""
    assert set(TITLES) == {UNCALIBRATED, *CALIBRATORS}
    assert not any("_" in title for title in TITLES.values())


# --- samples as functions of the temperature ---------------------------------------------------


def confidence_at(p: Predictions, temperature: float, reach: float) -> np.ndarray:
    return confidence_of(series_of(p, reach), temperature, reach)


def confidence_of(found: GapSeries, temperature: float, reach: float) -> np.ndarray:
    """What the page computes, in Python."""
    x = math.log(temperature) / math.log(reach)
    basis = np.cos(np.arange(ORDER) * math.acos(min(max(x, -1), 1)))
    return 1 / (1 + np.exp(found.second / temperature + found.coefficients @ basis))


def clusters() -> Predictions:
    """Many classes far below a close rival: the series that is hardest to sum."""
    rows = [[0.0, -near, *[-far] * 998] for near in (0.1, 1, 4) for far in np.linspace(5, 30, 20)]
    return Predictions(logits=rows, labels=[0] * len(rows))


def with_gaps() -> Predictions:
    z = np.random.default_rng(3).normal(size=(200, 6)) * 3
    z[:50, 3:] = -np.inf
    z[:20, 1:] = -np.inf
    return Predictions(logits=z, labels=[0] * 200)


@pytest.mark.parametrize("reach", [4.0, 10.0])
@pytest.mark.parametrize(
    "p",
    [
        *(Predictions(logits=z, labels=y) for z, y in CASES.values()),
        clusters(),
        with_gaps(),
        Predictions(probs=[[0.5, 0.5, 0], [1, 0, 0], [0.2, 0.2, 0.6]], labels=[0, 1, 2]),
    ],
    ids=[*CASES, "clusters", "minus infinity", "probs"],
)
def test_series_give_the_confidence_at_any_temperature(p: Predictions, reach: float) -> None:
    found = series_of(p, reach)
    for temperature in np.exp(np.linspace(-1, 1, 23) * math.log(reach)):
        want = Predictions(logits=p.log_probs.astype(np.float64) / temperature, labels=p.labels)
        got = confidence_of(found, temperature, reach)
        assert np.abs(got - want.confidence).max() < (2e-5 if reach == 4 else 1e-3)
        assert np.abs(got - want.confidence).mean() < 1e-4


@pytest.mark.parametrize("count", [3000, 60_000])
def test_equal_samples_have_equal_series(count: int) -> None:
    z, _ = draw(1, 37)
    found = series_of(Predictions(logits=np.repeat(z, count, axis=0), labels=[0] * count), 4.0)
    assert (found.coefficients == found.coefficients[0]).all()


def test_series_of_many_scores_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Predictions(logits=CASES["many classes"][0], labels=CASES["many classes"][1])
    fine = confidence_at(p, 1.7, 4.0)
    monkeypatch.setattr(tempering, "FINE_SCORES", 0)
    assert np.abs(confidence_at(p, 1.7, 4.0) - fine).max() < 1e-6


def values(field: dict[str, str]) -> np.ndarray:
    kinds = {
        "Float64Array": "f8",
        "Float32Array": "f4",
        "Uint32Array": "u4",
        "Int32Array": "i4",
        "Int16Array": "i2",
        "Uint8Array": "u1",
    }
    return np.frombuffer(
        gzip.decompress(base64.b64decode(field["data"])), f"<{kinds[field['type']]}"
    )


@pytest.mark.parametrize("exact", [0, 10**9])
def test_what_is_embedded_is_the_packages_ranking(
    exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempering, "EXACT_SCORES", exact)
    p = load_example("cross_entropy")
    found = embedded(p, reach=4, budget=10**7, seed=0)
    assert found["whole"]
    assert found["samples"] == 1500
    assert values(found["count"]).sum() == 1500
    assert values(found["hits"]).sum() == p.correct.sum()
    assert np.array_equal(np.sort(p.confidence), values(found["confidence"]))
    assert (values(found["correct"]) == p.correct).all()
    assert len(found["series"]) == (0 if exact else ORDER)
    label = np.take_along_axis(p.logits, p.labels[:, None], 1)[:, 0] - p.logits.max(axis=1)
    assert np.abs(values(found["label"]) - label).max() < 1e-5


def test_small_data_keep_all_gaps() -> None:
    z, y = CASES["ties"]
    p = Predictions(logits=z, labels=y)
    gaps = values(embedded(p, reach=4, budget=10**7, seed=0)["gaps"]).reshape(800, 3)
    assert (np.diff(gaps, axis=1) <= 0).all()
    want = np.sort(z - z.max(axis=1, keepdims=True), axis=1)[:, 2::-1]
    assert np.array_equal(gaps, want)
    assert 1 / (1 + np.exp(gaps).sum(axis=1)) == pytest.approx(p.confidence)


@pytest.mark.parametrize("exact", [0, 10**9])
def test_what_does_not_fit_is_a_random_part_that_is_stated(
    exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempering, "EXACT_SCORES", exact)
    p = load_example("cross_entropy")
    part = embedded(p, reach=4, budget=40_000, seed=0)
    assert not part["whole"]
    assert 100 < part["samples"] < 1500
    assert values(part["count"]).sum() == part["samples"] == len(values(part["correct"]))
    assert set(values(part["confidence"])) <= set(p.confidence)
    fields = [*part["series"], *(f for f in part.values() if isinstance(f, dict))]
    assert sum(len(field["data"]) for field in fields) <= 40_000
    monkeypatch.setattr(tempering, "MOST_SAMPLES", 700)
    assert embedded(p, reach=4, budget=10**7, seed=0)["samples"] == 700


def test_the_slider_reaches_an_unusual_best_temperature() -> None:
    assert reach_for([1.2, None]) == 4
    assert reach_for([1.2, 6.0]) == 10
    z, y = draw(500, 5)
    best = best_temperature(Predictions(logits=6 * z, labels=y))
    assert best is not None
    assert best == pytest.approx(6 * (best_temperature(Predictions(logits=z, labels=y)) or 0))
    assert best_temperature(stated(5, 0.9, 3)) is None


# --- classes and mistakes ---------------------------------------------------------------------


def test_worst_classes_by_brute_force(case: tuple[np.ndarray, np.ndarray]) -> None:
    p = Predictions(logits=case[0], labels=case[1])
    found = worst_classes(p)
    assert sorted(c.index for c in found) == sorted(set(p.predicted.tolist()))
    for c in found:
        mine = p.predicted == c.index
        assert c.count == mine.sum()
        assert c.confidence == pytest.approx(p.confidence[mine].mean())
        assert c.accuracy == pytest.approx(p.correct[mine].mean())
        assert c.low <= c.accuracy <= c.high
    assert [c.beyond for c in found] == sorted((c.beyond for c in found), reverse=True)


def test_mistakes_by_brute_force(case: tuple[np.ndarray, np.ndarray]) -> None:
    p = Predictions(logits=case[0], labels=case[1])
    wrong = [i for i in range(p.num_samples) if not p.correct[i]]
    assert confident_mistakes(p, 10) == sorted(wrong, key=lambda i: p.odds_against[i])[:10]


def test_ids_come_from_the_file_if_they_fit() -> None:
    fits = Confidences(confidence=[0.9, 0.8], correct=[0, 1], meta={"ids": ["img_7", "img_9"]})
    assert list(sample_ids(fits)) == ["img_7", "img_9"]
    assert list(sample_ids(fits.take([1]))) == [0]
    wrong = Confidences(confidence=[0.9], correct=[0], meta={"ids": "x"})
    assert list(sample_ids(wrong)) == [0]


# --- HTML -------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Elements, attributes and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]

    def handle_data(self, data: str) -> None:
        (self.scripts if self.tags[-1:] == ["script"] else self.text).append(data)


def test_everything_is_escaped() -> None:
    assert as_html("<&>\"'") == "&lt;&amp;&gt;&quot;&#x27;"
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
    assert clean("a\x00b\ud800") == "a\ufffdb?"
    for name in HOSTILE:
        text = as_json({"name": clean(name)})
        assert text.isascii()
        assert not set("<>&") & set(text)
        assert json.loads(text)["name"] == clean(name)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    z, y = draw(60, len(HOSTILE))
    p = Predictions(
        logits=z,
        labels=y,
        classes=[f"{i}{name}" for i, name in enumerate(HOSTILE)],
        meta={"<img src=x>": "<svg onload=alert(1)>"},
    )
    models = {HOSTILE[0]: p, HOSTILE[5]: p, HOSTILE[11]: p}
    write_report(models, tmp_path / "r.html", title=HOSTILE[1], replicates=20)
    page = Reader((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 3
    assert not {"b", "svg", "img", "iframe", "object", "link"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not [value for _, name, value in page.attributes if name in ("src", "action")]
    links = [value for _, name, value in page.attributes if name == "href"]
    assert links == ["#main"]
    shown = "".join(page.text)
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[5], "<svg onload=alert(1)>"):
        assert clean(name) in shown


def test_the_file_is_the_same_every_time(tmp_path: Path) -> None:
    p = DIGITS["cross_entropy"].take(range(40))
    for name in ("a", "b"):
        write_report({"m": p}, tmp_path / name, replicates=20)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [path.name for path in tmp_path.iterdir()].count("a") == 1
    assert len(list(tmp_path.iterdir())) == 2  # no temporary file is left


def shown_text(path: Path) -> str:
    return "".join(Reader(path.read_text(encoding="utf-8")).text)


EDGES: dict[str, Predictions | Confidences] = {
    "one sample": Predictions(logits=[[2.0, 0.0]], labels=[0]),
    "one sample, wrong": Predictions(logits=[[2.0, 0.0]], labels=[1]),
    "all right": Predictions(logits=[[3.0, 0.0]] * 60, labels=[0] * 60),
    "all wrong": Predictions(logits=[[3.0, 0.0]] * 60, labels=[1] * 60),
    "constant": Predictions(logits=np.zeros((60, 3)), labels=[0, 1, 2] * 20),
    "never possible": Predictions(probs=[[1.0, 0.0]] * 60, labels=[1] * 60),
    "certain": Predictions(probs=[[1.0, 0.0]] * 60, labels=[0] * 50 + [1] * 10),
    "two classes": Predictions(logits=CASES["two classes"][0], labels=CASES["two classes"][1]),
    "confidences": stated(100, 0.9, 80),
    "one confidence": stated(1, 1.0, 0),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str, tmp_path: Path) -> None:
    p = EDGES[name]
    found = write_report({"m": p}, tmp_path / "r.html", replicates=20)
    text = shown_text(tmp_path / "r.html")
    assert found["m"].headline in text
    assert "nan" not in text.lower()
    assert f"{100 * metrics.accuracy(p):.2f} %" in text


@pytest.mark.slow
def test_several_models_are_compared(tmp_path: Path) -> None:
    models = DIGITS
    write_report(models, tmp_path / "r.html", replicates=40)
    text = shown_text(tmp_path / "r.html")
    result = compare(models, replicates=40)
    assert result.summary() in text
    assert "cross_entropy is better" in text
    other = {"a": models["cross_entropy"], "b": models["cross_entropy"].take(range(40))}
    write_report(other, tmp_path / "r.html", replicates=20)
    assert "not compared: models must contain the same samples" in shown_text(tmp_path / "r.html")


def test_the_part_of_the_samples_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "BUDGET", 5_000)
    z, y = draw(400, 2)
    write_report({"m": Predictions(logits=z, labels=y)}, tmp_path / "r.html", replicates=20)
    assert re.search(r"a random \d+ of its 400 samples", shown_text(tmp_path / "r.html"))


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    p = {"m": stated(10, 0.9, 8)}
    with pytest.raises(InputError, match="1 to 8 predictions by name"):
        write_report({}, tmp_path / "r.html")
    with pytest.raises(InputError, match="1 to 8 predictions by name"):
        write_report({str(i): stated(10, 0.9, 8) for i in range(9)}, tmp_path / "r.html")
    with pytest.raises(InputError, match="1 to 8 predictions by name"):
        write_report(stated(10, 0.9, 8), tmp_path / "r.html")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Predictions or Confidences"):
        write_report({"m": 3}, tmp_path / "r.html")  # type: ignore[dict-item]
    with pytest.raises(InputError, match="bins must be a whole number from 1 to 100"):
        write_report(p, tmp_path / "r.html", bins=101)
    with pytest.raises(InputError, match="level"):
        write_report(p, tmp_path / "r.html", level=2)
    with pytest.raises(InputError, match="path must be a file in an existing folder"):
        write_report(p, tmp_path / "no" / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_without_plotly_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    _page._plotly.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'calibrant\[report\]'"):
        write_report({"m": stated(10, 0.9, 8)}, tmp_path / "r.html", replicates=20)


# --- studies ----------------------------------------------------------------------------------


def rows(**change: Any) -> list[dict[str, Any]]:
    """A tiny study: two objectives, two calibrators, three parts, three seeds."""
    rng = np.random.default_rng(0)
    found = []
    for objective, base in (("ce", 0.1), ("focal", 0.05)):
        for seed in range(3):
            for calibrator, factor in (("none", 1.0), ("TS", 0.3)):
                for part, shift in (("test", 0.0), ("fog/2", 0.1), ("fog/10", 0.2), ("new", 0.3)):
                    place = {
                        "run": f"{objective}{seed}",
                        "data": "digits",
                        "model": "mlp",
                        "objective": objective,
                        "seed": seed,
                        "calibrator": calibrator,
                        "part": part,
                    } | change
                    ece = base * factor + shift + 0.001 * rng.random()
                    found.append({**place, "metric": "ece", "value": ece})
                    found.append({**place, "metric": "accuracy", "value": 0.9 - base})
                    found.append({**place, "metric": "nll", "value": 10 * ece})
            found.append(
                {
                    **place,
                    "calibrator": "TS",
                    "part": "calibration",
                    "metric": "temperature",
                    "value": 1.5 + seed,
                }
            )
    return found


def written(folder: Path, records: list[dict[str, Any]]) -> Path:
    store = Store(folder)
    for key in {record["run"] for record in records}:
        store.write(key, [record for record in records if record["run"] == key], {})
    return folder


def test_cells_are_the_means_over_seeds(tmp_path: Path) -> None:
    records = rows()
    cells = cells_of(read_all(written(tmp_path, records)))
    assert len(cells.rows) == 16
    assert cells.metrics == ("ece", "accuracy", "nll", "temperature")
    for row in cells.rows:
        want = [
            r["value"]
            for r in records
            if tuple(r[k] for k in ("data", "model", "objective", "calibrator", "part")) == row
            and r["metric"] == "ece"
        ]
        assert sorted(cells.of(row, "ece")) == sorted(want)
        has = row[3] == "TS"
        assert cells.of(row, "temperature").tolist() == ([1.5, 2.5, 3.5] if has else [])
    assert cells.rows[0] == ("digits", "mlp", "ce", "none", "test")


def test_shifts_are_in_the_order_of_their_levels() -> None:
    found = families(["test", "fog/2", "fog/10", "new", "a/b/1"])
    assert found[0] == {"name": "fog", "parts": ["test", "fog/2", "fog/10"], "levels": [0, 2, 10]}
    assert found[1]["name"] == "a/b"
    assert found[2] == {"name": "other sets", "parts": ["test", "new"], "levels": None}


def test_the_verdict_names_the_best(tmp_path: Path) -> None:
    folder = written(tmp_path / "s", rows())
    write_study_report(folder, tmp_path / "r.html")
    text = shown_text(tmp_path / "r.html")
    for said in findings(read_all(folder))["digits", "mlp"]:
        assert said in text
    assert "Without post-hoc calibration, focal has the lowest ECE, 5." in text
    assert "(significant: p < 0.001, paired over 3 seeds)" in text
    assert "picked on these samples, out of up to 4 settings" in text


def test_settings_that_cannot_be_told_from_the_best_share_its_shade() -> None:
    rng = np.random.default_rng(0)
    means = {"a": 0.100, "b": 0.101, "c": 0.150, "d": 0.300, "e": 0.2}
    values = {(o, "TS"): dict(enumerate(m + 0.005 * rng.normal(size=6))) for o, m in means.items()}
    values["e", "TS"] = {0: 0.2}  # one seed decides nothing
    values["nan", "TS"] = {0: float("nan"), 1: 0.1}
    found = shade(values)
    best = next(iter(found))
    assert best in {("a", "TS"), ("b", "TS")}
    others = [setting for setting in found if setting != best]
    p = [
        stats.ttest_rel(list(values[best].values()), list(values[s].values())).pvalue
        if len(values[s]) == 6
        else 1.0
        for s in others
    ]
    order, worst = np.argsort(p), 0.0
    for rank, i in enumerate(order):  # Holm by hand
        worst = max(worst, p[i] * (len(p) - rank))
        assert (found[others[i]] == 0) == (worst >= 0.05)
    assert found["a", "TS"] == found["b", "TS"] == found["e", "TS"] == 0
    assert found["d", "TS"] == 6
    assert 0 < found["c", "TS"] < 6
    assert ("nan", "TS") not in found
    assert next(iter(shade(values, higher=True))) == ("d", "TS")


def test_a_study_opens_with_a_heat_map(tmp_path: Path) -> None:
    write_study_report(written(tmp_path / "s", rows()), tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    body = page[page.index("<main") :]
    assert body.index('id="overview"') < body.index('id="verdict"') < body.index('id="table"')
    maps = re.findall(
        r'<div class="heat-map" data-metric="(\w+)"( hidden="")?>(.*?)</table>', body, re.S
    )
    assert maps[0][:2] == ("ece", "")
    assert all(hidden for name, hidden, _ in maps if name != "ece")
    assert all(inside.count("★") == 1 for _, _, inside in maps)


def test_a_study_without_known_metrics_still_has_a_report(tmp_path: Path) -> None:
    records = [{**r, "metric": "mine"} for r in rows() if r["metric"] == "ece"]
    write_study_report(written(tmp_path / "s", records), tmp_path / "r.html")
    assert "Neither ECE nor NLL was measured" in shown_text(tmp_path / "r.html")


def test_two_values_of_one_seed_are_refused(tmp_path: Path) -> None:
    both = rows() + [{**r, "run": r["run"] + "again"} for r in rows()]
    with pytest.raises(InputError, match=r"one value per seed .* Name the study"):
        write_study_report(written(tmp_path / "s", both), tmp_path / "r.html")


def test_a_study_file_keeps_to_its_runs_and_answers(tmp_path: Path) -> None:
    calibrators = ["none", {"name": "temperature", "label": "TS"}]
    first = {"objective": "cross_entropy", "label": "ce"}
    shifts = ["fog/2", "fog/10", "new"]
    study = Study.parse(
        {
            "data": "signals",
            "models": "cnn1d",
            "objectives": [first, "focal"],
            "seeds": 3,
            "calibrators": calibrators,
            "metrics": ["ece"],
        }
    )
    study = replace(study, evaluation=replace(study.evaluation, shifts=tuple(shifts)))
    keys = {(run.name, run.seed): run.key for run in study.runs}
    mine = [
        {**r, "run": keys[r["objective"], r["seed"]], "data": "signals", "model": "cnn1d"}
        for r in rows()
    ]
    older = [{**r, "run": f"old{r['seed']}"} for r in mine if r["objective"] == "ce"]
    folder = written(tmp_path / "s", mine + older)
    write_study_report(folder, tmp_path / "r.html", study=study)
    text = shown_text(tmp_path / "r.html")
    assert "With post-hoc calibration, focal with TS has the lowest ECE" in text
    assert "6 finished runs, 16 settings, 3 seeds" in text
    write_study_report(written(tmp_path / "mine", mine), tmp_path / "r.html")
    assert shown_text(tmp_path / "r.html") == text  # the study changes nothing that is said


# --- command line and notebooks ---------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_for_files(tmp_path: Path) -> None:
    for name, p in DIGITS.items():
        p.save(tmp_path / f"{name}.npz")
    done = run(
        tmp_path / "cross_entropy.npz",
        tmp_path / "label_smoothing.npz",
        "-o",
        tmp_path / "r.html",
        "--replicates",
        20,
        "--title",
        "Digits",
    )
    assert done.exit_code == 0, done.output
    assert "cross_entropy: Strongly overconfident" in done.output
    assert "r.html" in done.output
    assert "<title>Digits</title>" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_command_for_a_folder(tmp_path: Path) -> None:
    done = run(written(tmp_path / "s", rows()), "-o", tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    assert "focal has the lowest ECE" in shown_text(tmp_path / "r.html")
    damaged = next((tmp_path / "s" / "results").iterdir())
    damaged.write_bytes(b"")
    done = run(tmp_path / "s", "-o", tmp_path / "r.html")
    assert done.exit_code == 0
    assert done.stderr.startswith("calibrant: warning: ")
    assert f"1 damaged file ({damaged.name})" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("p.npz", "-o", "p.npz"), "must not be an input"),
        (("p.npz", "--study", "quick"), "applies to the results folder of a study"),
        (("s", "p.npz"), "must be one folder, or one or more files"),
        (("p.npz", "p.npz"), "must be different files"),
        (("none.npz",), "none.npz"),
        (("s",), "contains no finished runs"),
        (("s", "--bins", "7"), "--bins applies to files with predictions"),
        (("s", "--level", "0.9"), "--level applies to files"),
        (("s", "--replicates", "9"), "--replicates applies to files"),
        (("s", "--seed", "0"), "--seed applies to files"),
        (("p.npz", "--bins", "1000"), "bins must be"),
    ],
)
def test_bad_commands_end_in_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    load_example("cross_entropy").save("p.npz")
    before = Path("p.npz").read_bytes()
    Path("s").mkdir()
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert Path("p.npz").read_bytes() == before
    assert not Path("report.html").exists()


def test_notebooks_show_tables() -> None:
    p = load_example("cross_entropy")
    panel = measure(p, replicates=20)
    shown = Reader(panel._repr_html_())
    assert shown.tags.count("table") == 1
    assert f"{100 * panel['ece']:.2f} %" in shown.text
    assert "1,500 samples, 10 classes" in shown.text
    result = compare({HOSTILE[0]: p, HOSTILE[1]: load_example("label_smoothing")}, replicates=20)
    page = Reader(result._repr_html_())
    assert page.tags.count("table") == 2
    assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td", "p", "bdi"}
    assert HOSTILE[0] in page.text
    assert any(result.summary() in text for text in page.text)


def test_what_the_ece_consists_of() -> None:
    p = Confidences(confidence=[0.95, 0.9, 0.8, 0.7], correct=[True, False, True, False])
    judged = [SimpleNamespace(name="a <b>", p=p)]
    page = decomposition(judged)  # type: ignore[arg-type]
    parts = metrics.ece_decomposition(p)
    for value in (parts.ece, parts.alpha, parts.beta, parts.gamma, parts.residual):
        assert show(value, percent=True) in page
    assert "<b>" not in page
    assert parts.ece == pytest.approx(parts.alpha - parts.beta - parts.gamma + parts.residual)


def test_what_the_reader_must_know_stands_in_the_verdict(tmp_path: Path) -> None:
    few = DIGITS["cross_entropy"].take(range(49))  # too few for advice, which takes seconds
    doubtful = Predictions(logits=few.probs, labels=few.labels)
    left_out = "2 of 402 answers could not be read and are left out: '<b>'."
    c = Confidences(confidence=[0.9, 0.6] * 20, correct=[1, 0] * 20, meta={"notes": [left_out]})
    with pytest.warns(CalibrationWarning, match="look like probabilities"):
        write_report({"doubtful": doubtful}, tmp_path / "p.html", replicates=20)
    write_report({"stated": c}, tmp_path / "c.html", replicates=20)
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert re.search(r'<p class="warning"><bdi>These logits look like probabilities', page)
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert f'<p class="note"><bdi>{html.escape(left_out)}</bdi></p>' in page
    assert page.count("2 of 402 answers") == 1
    assert 'id="temperature"' not in page
    assert 'id="curve-table"' not in page
