"""The probability of the positive class: oracles, closed forms, panel, comparison, command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

import calibrant
from calibrant import Confidences, InputError, Predictions, metrics
from calibrant._measure import Panel
from calibrant.inference import Interval
from calibrant.metrics import METRICS, reliability
from tests.command import call

NAMES = [name for name, metric in METRICS.items() if metric.view == "positive class"]


def case(seed: int, n: int = 400, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.5, 1.5, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.6 * z - 0.4)))).astype(int)
    p = 1 / (1 + np.exp(-z))
    return (np.round(p, 1).clip(0.05, 0.95) if ties else p), y


CASES = {"plain": case(0), "ties": case(1, ties=True), "small": case(2, 40), "large": case(3, 3000)}


def binary(p: np.ndarray, y: np.ndarray, **more: object) -> Predictions:
    return Predictions.from_binary(probs=p, labels=y, **more)


@pytest.mark.parametrize(("p", "y"), CASES.values(), ids=CASES)
def test_against_scikit_learn_and_statsmodels(p: np.ndarray, y: np.ndarray) -> None:
    import statsmodels.api as sm  # loaded here: that takes seconds

    b = binary(p, y)
    want = {
        "positive_brier": brier_score_loss(y, p),
        "positive_log_loss": log_loss(y, p),
        "positive_auroc": roc_auc_score(y, p),
        "positive_average_precision": average_precision_score(y, p),
        "mean_prediction": p.mean(),
        "prevalence": y.mean(),
        "calibration_in_the_large": p.mean() - y.mean(),
    }
    x = np.log(p / (1 - p))
    want["calibration_slope"] = sm.Logit(y, sm.add_constant(x)).fit(disp=0, tol=1e-12).params[1]
    family = sm.families.Binomial()
    offset = sm.GLM(y, np.ones(len(y)), family=family, offset=x).fit(tol=1e-12)
    want["calibration_intercept"] = offset.params[0]
    for name, value in want.items():
        assert METRICS[name].function(b) == pytest.approx(value, rel=1e-7, abs=1e-9), name
    assert metrics.nll(b) == pytest.approx(want["positive_log_loss"], rel=1e-9)
    assert metrics.brier(b) == pytest.approx(2 * want["positive_brier"], rel=1e-9)


def test_calibration_curve_is_the_lowess_of_statsmodels() -> None:
    from statsmodels.nonparametric.smoothers_lowess import lowess

    """Exactly up to 128 distinct predictions; beyond, the gathered cells change little."""
    for n, tolerance in ((60, 1e-9), (120, 1e-9), (3000, 3e-4)):
        p, y = case(5, n)
        curve = lowess(y, p, frac=2 / 3, it=0, delta=0, return_sorted=False)
        distance = np.abs(curve.clip(0, 1) - p)
        b = binary(p, y)
        assert metrics.ici(b) == pytest.approx(distance.mean(), abs=tolerance)
        ordered = np.sort(distance)
        assert metrics.e50(b) == pytest.approx(ordered[math.ceil(0.5 * n) - 1], abs=tolerance)
        assert metrics.e90(b) == pytest.approx(ordered[math.ceil(0.9 * n) - 1], abs=2 * tolerance)


@pytest.mark.parametrize(("p", "y"), CASES.values(), ids=CASES)
def test_binned_errors_by_hand(p: np.ndarray, y: np.ndarray) -> None:
    b = binary(p, y)
    which = np.clip(np.ceil(p * 10 - 1e-9).astype(int) - 1, 0, 9)
    gaps = [abs((y - p)[which == k].sum()) for k in range(10)]
    assert metrics.positive_ece(b, bins=10) == pytest.approx(sum(gaps) / len(p), abs=1e-12)
    # P(positive) as a confidence on [0, 1] is all there is to the other errors.
    same = Confidences(confidence=p, correct=y)
    for name in ("adaptive_ece", "debiased_ece", "smooth_ece"):
        of_class = METRICS[f"positive_{name}"].function(b)
        assert of_class == pytest.approx(METRICS[name].function(same), rel=1e-9)
    table = reliability(b.positive_class(), bins=10)
    assert table.count.sum() == len(p)
    assert table.edges[0] == 0


def test_decisions_by_hand() -> None:
    p, y = np.array([0.9, 0.6, 0.3, 0.2, 0.1]), np.array([1, 0, 1, 0, 1])
    b = binary(p, y)
    for t in (0.1, 0.2, 0.25, 0.5, 0.95):
        treated = p >= t
        want = (treated & (y == 1)).mean() - (treated & (y == 0)).mean() * t / (1 - t)
        assert metrics.net_benefit(b, threshold=t) == pytest.approx(want, abs=1e-12)
    assert metrics.expected_cost(b) == pytest.approx(((p >= 0.5) != y).mean())
    # Costs 1 and 3: threshold 1/4, one false positive (0.6), one missed (0.1).
    assert metrics.expected_cost(b, costs=(1, 3)) == pytest.approx((1 + 3) / 5)


@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    p, y = CASES["plain"]
    function = METRICS[name].function
    value = function(binary(p, y))
    flipped = Predictions(probs=np.stack([p, 1 - p], 1), labels=1 - y, classes=["ill", "well"])
    assert function(flipped, positive="ill") == pytest.approx(value, rel=1e-9)
    assert function(flipped, positive=0) == pytest.approx(value, rel=1e-9)
    order = np.random.default_rng(0).permutation(len(y))
    assert function(binary(p[order], y[order])) == pytest.approx(value, rel=1e-9)
    z = np.log(p / (1 - p))
    assert function(Predictions.from_binary(logits=z, labels=y)) == pytest.approx(value, rel=1e-6)
    # One class against the rest of three.
    three = Predictions(probs=np.stack([0.5 * (1 - p), p, 0.5 * (1 - p)], 1), labels=y)
    assert function(three, positive=1) == pytest.approx(value, rel=1e-9)
    with pytest.raises(InputError, match="positive must be given"):
        function(three)
    with pytest.raises(InputError, match="needs the probability of a class"):
        function(Confidences(confidence=p, correct=y))
    assert METRICS[name].low <= value <= METRICS[name].high


def test_weights_count_as_repeated_samples() -> None:
    p, y = CASES["small"]
    times = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = binary(p, y, weights=times.astype(float))
    repeated = binary(np.repeat(p, times), np.repeat(y, times))
    for name in set(NAMES) - {
        "positive_debiased_ece",
        "positive_adaptive_ece",
        "ici",
        "e50",
        "e90",
    }:
        function = METRICS[name].function
        assert function(weighted) == pytest.approx(function(repeated), rel=1e-9), name


def test_extremes() -> None:
    sure = binary(np.array([0.0, 1.0, 0.0, 1.0, 0.5]), np.array([0, 1, 1, 0, 1]))
    assert math.isfinite(metrics.calibration_slope(sure))
    assert metrics.positive_log_loss(sure) == math.inf
    apart = binary(np.array([0.1, 0.2, 0.8]), np.array([0, 0, 1]))
    assert metrics.calibration_slope(apart) == math.inf
    alone = binary(np.array([0.1, 0.2]), np.array([0, 0]))
    assert math.isnan(metrics.calibration_slope(alone))
    assert metrics.calibration_intercept(alone) == -math.inf
    tiny = Predictions.from_binary(logits=np.array([-80.0, -70.0, 3.0]), labels=[0, 1, 1])
    assert metrics.positive_log_loss(tiny) == pytest.approx((70 + math.log1p(math.exp(-3))) / 3)


@pytest.mark.slow
def test_intervals_cover() -> None:
    """A short version of the simulation: a model whose slope, gap and net benefit are known."""
    hits = dict.fromkeys(("calibration_slope", "calibration_intercept", "positive_brier"), 0)
    rng = np.random.default_rng(0)
    z = rng.normal(-1, 1, 200_000)
    q = 1 / (1 + np.exp(-(0.7 * z - 0.3)))
    p = 1 / (1 + np.exp(-z))
    x = np.mean(q * (1 - p) ** 2 + (1 - q) * p**2)
    big = binary(p, rng.random(len(q)) < q)
    truth = {"calibration_slope": 0.7, "positive_brier": x}
    truth["calibration_intercept"] = metrics.calibration_intercept(big)
    for seed in range(30):
        rows = rng.integers(0, len(z), 500)
        sample = binary(p[rows], rng.random(500) < q[rows])
        found = calibrant.measure(sample, metrics=list(hits), replicates=200, seed=seed)
        for name in hits:
            hits[name] += found.interval(name).low <= truth[name] <= found.interval(name).high
    assert min(hits.values()) >= 25, hits  # below with probability 0.001 at a coverage of 0.95


def test_panel_of_a_binary_model() -> None:
    p, y = CASES["plain"]
    b = binary(p, y, classes=["well", "ill"])
    panel = calibrant.measure(b, replicates=50)
    assert panel.positive == "ill"
    assert {"calibration_slope", "ece"} <= set(panel)
    text = str(panel)
    assert text.index("Probability of class ill") < text.index("Top label")
    assert "The risk of class ill is" in text or "underestimation of the risk of class ill" in text
    assert panel.to_dict()["positive"] == "ill"
    assert set(panel.to_arrow().column("view").to_pylist()) == {"positive class", "top label"}
    top = calibrant.measure(b, positive=False, intervals=False)
    assert not set(NAMES) & set(top)
    assert "ill" in panel._repr_html_()
    other = calibrant.measure(b, positive="well", intervals=False)
    assert other["prevalence"] == pytest.approx(1 - panel["prevalence"])


def test_compare_speaks_of_the_class() -> None:
    p, y = CASES["plain"]
    better = 1 / (1 + np.exp(-(0.6 * np.log(p / (1 - p)) - 0.4)))
    models = {"raw": binary(p, y), "true": binary(better, y)}
    found = calibrant.compare(models, replicates=100)
    assert {d.metric for d in found.differences} <= set(NAMES)
    top = calibrant.compare(models, positive=False, replicates=50, metrics=["ece"])
    assert [d.metric for d in top.differences] == ["ece"]


def test_commands(tmp_path: Path) -> None:
    p, y = CASES["plain"]
    path = tmp_path / "p.csv"
    binary(p, y).save(path)
    found = json.loads(
        call("measure", str(path), "--json", "--no-intervals", "--threshold", "0.2").stdout
    )
    assert found["positive"] == "1"
    assert found["metrics"]["net_benefit"]["value"] == pytest.approx(
        metrics.net_benefit(binary(p, y), threshold=0.2)
    )
    gate = call("measure", str(path), "--no-intervals", "--fail-if", "positive_ece>0.0001")
    assert gate.returncode == 1
    assert (
        "positive_ece"
        not in call("measure", str(path), "--json", "--no-intervals", "--top-label").stdout
    )
    for bad in (["--positive", "7"], ["--positive", "x"], ["--costs", "1"], ["--threshold", "2"]):
        assert call("measure", str(path), *bad).returncode == 2


def test_decision_curve_by_hand() -> None:
    p, y = np.array([0.9, 0.4, 0.4, 0.1, 0.05]), np.array([1, 1, 0, 0, 1])
    b = Predictions.from_binary(probs=p, labels=y)
    thresholds = [0.05, 0.1, 0.4, 0.95]
    found = metrics.decision_curve(b, thresholds=thresholds)
    for t, benefit, everybody in zip(thresholds, found.net_benefit, found.treat_all, strict=True):
        treated = p >= t
        true, false = (treated & (y == 1)).mean(), (treated & (y == 0)).mean()
        assert benefit == pytest.approx(true - false * t / (1 - t))
        assert benefit == pytest.approx(metrics.net_benefit(b, threshold=t))
        assert everybody == pytest.approx(0.6 - 0.4 * t / (1 - t))
    assert len(metrics.decision_curve(b).thresholds) == 99
    for bad in ([0.0], [1.0], [], [[0.5]], ["x"]):
        with pytest.raises(InputError, match="thresholds must"):
            metrics.decision_curve(b, thresholds=bad)


def test_plots_speak_of_the_class() -> None:
    from calibrant import plots

    b = Predictions.from_binary(probs=[0.9, 0.2, 0.3], labels=[1, 0, 1], classes=["no", "yes"])
    assert plots.reliability_diagram(b).get_xlabel() == "probability of yes (%)"
    assert plots.reliability_diagram(b, positive="no").get_ylabel() == "frequency of no (%)"
    assert plots.reliability_diagram(b, positive=False).get_xlabel() == "confidence (%)"
    many = Predictions(probs=[[0.5, 0.3, 0.2]] * 3, labels=[0, 1, 2])
    assert plots.reliability_diagram(many).get_xlabel() == "confidence (%)"
    mixed = plots.reliability_diagram({"two": b, "three": many})
    assert mixed.get_xlabel() == "confidence (%)"  # the one thing that both state
    other = Predictions.from_binary(probs=[0.9, 0.2, 0.3], labels=[1, 0, 1], classes=["a", "b"])
    with pytest.raises(InputError, match="same class"):
        plots.reliability_diagram({"one": b, "other": other})
    ax = plots.decision_curve({"a": b, "b": b})
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["a", "b", "treat everybody", "treat nobody"]


def test_one_number_has_one_interval() -> None:
    """Log loss and NLL of two classes are the same, and the Brier score of one column is half."""
    panel = calibrant.measure(binary(*CASES["plain"]), replicates=60)
    loss, same = panel.interval("positive_log_loss"), panel.interval("nll")
    assert (loss.low, loss.high) == pytest.approx((same.low, same.high))
    half, whole = panel.interval("positive_brier"), panel.interval("brier")
    assert (2 * half.low, 2 * half.high) == pytest.approx((whole.low, whole.high))


def test_the_top_label_of_two_classes_is_named() -> None:
    for more in ({"positive": False}, {"metrics": ["ece"]}):
        panel = calibrant.measure(binary(*CASES["plain"]), intervals=False, **more)
        assert "Top label: confidence in the predicted class" in str(panel)


def test_calibrate_speaks_of_the_positive_class(tmp_path: Path) -> None:
    binary(*CASES["plain"]).save(tmp_path / "p.npz")
    done = call(
        "calibrate",
        "--fit",
        tmp_path / "p.npz",
        "--method",
        "platt",
        "--replicates",
        20,
        "--save",
        tmp_path / "c.json",
    )
    assert done.returncode == 0, done.stderr
    assert "probability of class 1, out of fold" in done.stdout
    assert "positive-class ECE" in done.stdout


def test_a_value_above_its_interval_is_explained() -> None:
    found = Interval(0.02, 0.0, 0.01)
    panel = Panel(100, 3, {"smooth_ece": found})
    assert "a value can lie above its interval" in str(panel)
    within = replace(panel, measured={"ece": Interval(0.02, 0, 0.03), "nll": Interval(2, 1, 1.99)})
    assert "above its interval" not in str(within)


def test_groups_of_a_binary_model_name_both_views() -> None:
    p, y = CASES["plain"]
    b = binary(p, y, groups={"site": np.arange(len(y)) % 2}, classes=["well", "ill"])
    text = str(calibrant.measure(b, by="site", intervals=False))
    assert text.index("Class ill:") < text.index("prevalence") < text.index("Top label:")
    assert text.index("Top label:") < text.index("mean confidence")
