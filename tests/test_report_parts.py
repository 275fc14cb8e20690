"""The parts of a report about one class, about groups and clusters, and about several labels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import calibrant
from calibrant import Confidences, InputError, MultiLabel, Predictions, metrics
from calibrant.cli import app
from calibrant.inference import Interval
from calibrant.report import _svg, write_report
from calibrant.report._belonging import cluster_errors
from calibrant.report._tempered import embedded
from calibrant.report._verdict import gap_interval
from tests.once import few_candidates  # noqa: F401

pytestmark = pytest.mark.usefixtures("few_candidates")

FEW = {"replicates": 30}
HOSTILE = "<script>alert(1)</script>"


def risky(n: int = 300, *, shift: float = -1.2, **more: object) -> Predictions:
    """A model that overestimates the risk of class 1 where ``shift`` is below 0."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 1.5, n)
    truth = rng.random(n) < 1 / (1 + np.exp(-(odds + shift)))
    return Predictions.from_binary(logits=odds, labels=truth.astype(int), **more)


def page(models: dict, tmp_path: Path, **more: object) -> tuple[str, dict]:
    path = tmp_path / "report.html"
    verdicts = write_report(models, path, **FEW, **more)
    text = path.read_text(encoding="utf-8")
    return text[text.index("<main") : text.index("</main>")], verdicts


def sections(body: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', body)


# --- one class --------------------------------------------------------------------------------


def test_a_binary_report_starts_with_the_risk(tmp_path: Path) -> None:
    p = risky(classes=["healthy", HOSTILE])
    body, verdicts = page({"m": p}, tmp_path)
    first = re.search(r'<p class="headline">(.*?)</p>', body)[1]
    assert first.startswith(
        "The risk of class &lt;script&gt;alert(1)&lt;/script&gt; is overestimated: "
    )
    assert verdicts["m"].kind == "over"
    assert sections(body)[:3] == ["verdict", "risk", "explore"]
    assert "Top label: look closer" in body
    assert "<td>Top label: " not in body
    assert "<dd>Top label: " in body
    assert "a value can lie above its interval" in body
    for caption in ("Probability of ", "Top label: confidence in the predicted class"):
        assert body.count(f"<caption>{caption}") == 1
    assert HOSTILE not in body
    assert body.count("<svg") == 2  # reliability and decision curve
    found = calibrant.measure(p, **FEW).interval("calibration_in_the_large")
    assert f"{100 * found.value:+.2f} %" in first


def test_underestimation_and_other_classes(tmp_path: Path) -> None:
    p = risky(shift=1.5)
    _, verdicts = page({"m": p}, tmp_path)
    assert "risk of class 1 is underestimated" in verdicts["m"].headline
    _, verdicts = page({"m": p}, tmp_path, positive=0)
    assert "risk of class 0 is overestimated" in verdicts["m"].headline
    body, verdicts = page({"m": p}, tmp_path, positive=False)
    assert "risk" not in sections(body)
    assert "confident" in verdicts["m"].headline
    rng = np.random.default_rng(1)
    three = Predictions(logits=rng.normal(0, 2, (80, 3)), labels=rng.integers(0, 3, 80))
    body, verdicts = page({"m": three}, tmp_path, positive=2)
    assert "risk of class 2" in verdicts["m"].headline
    assert "ECE) of the probability of 2 is" in str(verdicts["m"])


def test_binary_models_are_compared_by_the_class(tmp_path: Path) -> None:
    p = risky(120)
    other = p.with_scores("logits", p.scores * 0.7)
    body, _ = page({"a": p, "b": other}, tmp_path)
    assert "The positive-class ECE differs by" in body
    assert body.count("<h3>") >= 4


# --- weights ----------------------------------------------------------------------------------


def test_live_figures_and_the_gap_use_weights() -> None:
    weights = np.array([1.0, 3.0] * 50)
    p = risky(100, weights=weights)
    live = embedded(p, reach=4.0, budget=10**6, seed=0)
    assert live["count"]["type"] == "Float64Array"
    assert "weight" in live
    found = gap_interval(p)
    by_hand = (weights * (p.confidence - p.correct)).sum() / weights.sum()
    assert found.value == pytest.approx(by_hand)
    assert found.low < by_hand < found.high


# --- groups and clusters ----------------------------------------------------------------------


def test_groups_have_rows_a_forest_and_diagrams(tmp_path: Path) -> None:
    site = np.array(["a", "b", HOSTILE])[np.arange(240) % 3]
    ward = np.arange(240) % 2
    p = risky(240, groups={"site": site, "ward": ward}, clusters=np.arange(240) // 2)
    body, _ = page({"m": p}, tmp_path)
    part = body[body.index('<section id="groups"') :]
    part = part[: part.index("</section>")]
    assert part.count("<svg") == 2 + 3 + 2  # two forests, five diagrams
    assert part.count('<th scope="row">') == 3 + 2
    assert "Worst group by positive-class ECE" in part
    assert "Multicalibration error" in part
    assert HOSTILE not in part
    assert "resample the 120 clusters" in body
    body, _ = page({"m": p}, tmp_path, by="ward")
    part = body[body.index('<section id="groups"') :]
    assert part[: part.index("</section>")].count('<th scope="row">') == 2
    with pytest.raises(InputError, match="must name one of the groups"):
        page({"m": p}, tmp_path, by="wards")


def test_images_are_ranked_by_their_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    maps = rng.normal(0, 2, (4, 3, 8, 8))
    truth = (maps / 2 + rng.gumbel(size=maps.shape)).argmax(axis=1)
    truth[2] = (maps[2].argmax(axis=0) + 1) % 3  # this image is always wrong
    p = Predictions(logits=maps, labels=truth)
    body, _ = page({"m": p}, tmp_path)
    part = body[body.index('<section id="clusters"') :]
    names = re.findall(r'<th scope="row"><bdi>(\d+)</bdi></th>', part[: part.index("</section>")])
    errors = [metrics.ece(p.take(p.clusters == k)) for k in range(4)]
    assert [int(name) for name in names] == sorted(range(4), key=lambda k: -errors[k])
    assert f"mean ECE of a cluster {100 * np.mean(errors):.2f} %" in part
    assert cluster_errors(p.take(np.arange(20))) is None  # clusters of few samples
    assert cluster_errors(Confidences(confidence=[0.5], correct=[1], clusters=[0])) is None


# --- several labels ---------------------------------------------------------------------------


def test_the_page_of_several_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal([0, -1, -2], 2, (150, 3))
    y = (rng.random(z.shape) < 1 / (1 + np.exp(-(z - [3, 0, 0])))).astype(float)
    y[:5, 1] = np.nan
    p = MultiLabel(logits=z, labels=y, names=["far", "near", HOSTILE])
    body, verdicts = page({"tagger": p}, tmp_path)
    assert sections(body) == ["verdict", "labels", "reliability-by-label", "method"]
    assert "1 are overestimated on average" in verdicts["tagger"].headline
    assert "far: ECE" in str(verdicts["tagger"])
    assert body.count("<svg") == 1 + 3
    assert HOSTILE not in body
    rows = re.findall(r'<th scope="row"><bdi>(.*?)</bdi></th>', body)
    assert rows[:3] == ["macro", "micro", "far"]
    p.save(tmp_path / "p.csv")
    out = tmp_path / "cli.html"
    given = ["report", str(tmp_path / "p.csv"), "--out", str(out), "--replicates", "30"]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.stderr
    assert "Of 3 labels" in done.stdout
    with pytest.raises(InputError, match="must all be of one kind"):
        write_report({"a": p, "b": risky(60)}, out, **FEW)
    with pytest.raises(InputError, match="belongs to one label per sample"):
        write_report({"a": p}, out, by="x", **FEW)
    few = p.take(np.arange(20))
    _, verdicts = page({"few": few}, tmp_path)
    assert "Collect more samples" in str(verdicts["few"])


# --- charts -----------------------------------------------------------------------------------


def test_charts_put_points_where_the_numbers_are() -> None:
    c = Confidences(confidence=[0.25, 0.25, 0.75, 0.75], correct=[0, 1, 1, 1])
    made = _svg.reliability_chart(
        metrics.reliability(c, bins=2), "a < b", size=400, x_label="says", y_label="is"
    )
    frame = _svg.Frame(400, 400, (0, 1), (0, 1))
    for x, y in ((0.25, 0.5), (0.75, 1.0)):
        assert f'cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}"' in made
    assert "a &lt; b" in made
    forest = _svg.forest_chart(
        {"one": Interval(0.1, 0.05, 0.2), "none": Interval(float("nan"), *[float("nan")] * 2)}, "x"
    )
    assert forest.count("<circle") == 1
    assert forest.count('class="whisker"') == 1
