"""The panel and the comparison: what they hold and how they read."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calibrant import Confidences, InputError, Predictions, compare, measure, metrics
from calibrant._core.formatting import show
from calibrant._measure import bounds_note, panel_of_stream
from calibrant.examples import load_example
from calibrant.inference import Difference
from calibrant.streaming import Accumulator
from tests.conftest import CASES

PANEL = metrics.default_metrics("panel")


def test_panel_values_are_the_metrics(case: tuple[np.ndarray, np.ndarray]) -> None:
    p = Predictions(logits=case[0], labels=case[1])
    panel = measure(p, intervals=False)
    of_class = metrics.default_metrics("binary") if p.num_classes == 2 else ()
    assert list(panel) == [*of_class, *PANEL]
    for name in PANEL:
        want = metrics.METRICS[name].function(Predictions(logits=case[0], labels=case[1]))
        assert panel[name] == pytest.approx(want, rel=1e-12, nan_ok=True), name
    assert math.isnan(panel.interval("nll").low)


def test_panel_as_table_and_data(predictions: Predictions) -> None:
    panel = measure(predictions, replicates=40)
    text = str(panel)
    assert text.startswith("997 samples, 10 classes")
    assert f"{100 * panel['ece']:.2f} %" in text
    assert "95 % interval" in text
    data = json.loads(json.dumps(panel.to_dict()))
    assert data["num_samples"] == 997
    assert data["metrics"]["ece"]["value"] == panel["ece"]
    assert data["metrics"]["ece"]["low"] == panel.interval("ece").low
    table = panel.to_arrow()
    assert table.column_names == ["metric", "value", "low", "high", "better", "view"]
    assert table["metric"].to_pylist() == list(PANEL)
    with pytest.raises(AttributeError):
        panel.num_samples = 3
    with pytest.raises(KeyError, match="was not measured"):
        panel["skce"]
    with pytest.raises(InputError, match="Did you mean 'ece'"):
        panel["ecee"]


def test_undefined_values_are_said_so() -> None:
    right = Predictions(logits=[[3.0, 0.0], [2.0, 0.0]], labels=[0, 0])
    panel = measure(right, replicates=20)
    assert "undefined" in str(panel)
    assert panel.to_dict()["metrics"]["auroc"]["value"] is None


def test_options(predictions: Predictions) -> None:
    panel = measure(predictions, intervals=False, bins=7, norm=2, binning="mass")
    assert panel["ece"] == metrics.ece(predictions, bins=7, norm=2, binning="mass")
    assert panel["mce"] == metrics.mce(predictions, bins=7)
    assert panel["adaptive_ece"] == metrics.adaptive_ece(predictions, bins=7)
    assert panel["classwise_ece"] == metrics.classwise_ece(predictions, bins=7)
    few = measure(predictions, intervals=False, metrics=["skce", "ece", "skce"])
    assert list(few) == ["skce", "ece"]
    every = measure(predictions, intervals=False, metrics=list(metrics.METRICS), positive=0)
    assert len(list(every)) == len(metrics.METRICS)


def test_confidences_leave_out_what_they_cannot_give(predictions: Predictions) -> None:
    c = Confidences(confidence=predictions.confidence, correct=predictions.correct)
    panel = measure(c, replicates=20)
    assert "nll" not in list(panel)
    assert "top label only" in str(panel)
    assert panel["ece"] == pytest.approx(metrics.ece(predictions))
    with pytest.raises(InputError, match="top-label metrics"):
        measure(c, metrics=["nll"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": "ece"}, "list of names"),
        ({"metrics": []}, "at least one"),
        ({"metrics": ["eec"]}, "Did you mean"),
        ({"bins": 0}, "bins"),
        ({"norm": 0}, "norm"),
        ({"binning": "equal"}, "binning"),
        ({"level": 2}, "level"),
        ({"replicates": 1}, "replicates"),
    ],
)
def test_bad_options(arguments: dict, message: str, predictions: Predictions) -> None:
    with pytest.raises(InputError, match=message):
        measure(predictions, **arguments)


def test_refuses_arrays() -> None:
    with pytest.raises(InputError, match="Predictions or Confidences"):
        measure(np.zeros((3, 2)))


def test_panel_of_stream_looks_like_the_panel(predictions: Predictions) -> None:
    total = Accumulator(10)
    total.update(predictions)
    streamed, panel = panel_of_stream(total), measure(predictions, intervals=False)
    assert list(streamed) == list(panel)
    assert streamed["ece"] == pytest.approx(panel["ece"], rel=1e-9)
    assert str(streamed).splitlines()[0] == str(panel).splitlines()[0]
    assert set(streamed.to_dict()["error_bounds"]) == set(streamed)
    assert "error_bounds" not in panel.to_dict()
    assert panel.note == ""


def test_note_of_a_stream() -> None:
    """What shows is named, rounded up; what does not is covered by one figure."""
    near = {"accuracy": 1e-9, "auroc": 0.00121, "fpr95": 1 + 1e-9, "aurc": 4.9e-5}
    assert bounds_note(near) == (
        "Read in bounded memory: exact to 0.005 %, except AUROC of correctness ± 0.13 %, "
        "FPR at 95 % TPR ± 100.00 %."
    )
    assert bounds_note({"ece": 1e-9}) == "Read in bounded memory: exact to 0.005 %."
    assert bounds_note({"debiased_ece": math.inf}).endswith("debiased ECE (L2) perhaps undefined.")
    total = Accumulator(2)
    z = np.stack([1.999 + 5e-6 * np.arange(200), np.zeros(200)], axis=1)
    total.update(logits=z, labels=np.arange(200) % 2)
    panel = panel_of_stream(total)
    for text in (str(panel), panel._repr_html_()):
        assert "AUROC of correctness ± 50.00 %" in text
    assert "accuracy ±" not in str(panel)
    assert " ECE ± " not in panel.note.replace("adaptive ECE", "")
    assert panel_of_stream(total, binning="mass").note.count("ECE ±") == 2


# --- compare ------------------------------------------------------------------------------------


def test_examples_differ_significantly() -> None:
    a, b = load_example("cross_entropy"), load_example("label_smoothing")
    result = compare({"ce": a, "ls": b}, metrics=["ece", "auroc"], replicates=200)
    ece, auroc = result.differences
    assert result.verdict(ece) == "ce is better"
    assert result.verdict(auroc) == "cannot tell"
    assert "1 of 2 differences are statistically significant" in result.summary()
    text = str(result)
    assert "ce − ls" in text
    assert "1,500 samples, the same for every model" in text
    assert json.loads(json.dumps(result.to_dict()))["differences"][0]["metric"] == "ece"
    assert result.to_arrow().num_rows == 2


def test_says_plainly_when_samples_are_too_few() -> None:
    z, labels = CASES["mixed signs"]
    p = Predictions(logits=z[:30], labels=labels[:30])
    q = Predictions(logits=z[:30] * 1.02, labels=labels[:30])
    result = compare({"p": p, "q": q}, metrics=["ece"], replicates=50)
    assert result.summary().startswith("With N = 30 samples, no difference")
    same = compare({"p": p, "again": p}, metrics=["nll"], replicates=20)
    assert same.verdict(same.differences[0]) == "identical"


def test_three_models_are_corrected_together() -> None:
    z, labels = CASES["mixed signs"]
    models = {f"T={t}": Predictions(logits=z / t, labels=labels) for t in (0.5, 1, 1.05)}
    result = compare(models, metrics=["nll"], replicates=100)
    assert [(d.first, d.second) for d in result.differences] == [
        ("T=0.5", "T=1"),
        ("T=0.5", "T=1.05"),
        ("T=1", "T=1.05"),
    ]
    assert all(d.adjusted >= d.p_value for d in result.differences)


def test_directions_and_neither() -> None:
    p = load_example("cross_entropy")
    hot = Predictions(logits=p.logits * 3, labels=p.labels)
    names = ["mean_confidence", "nll"]
    result = compare({"p": p, "hot": hot}, metrics=names, replicates=50)
    assert [result.verdict(d) for d in result.differences] == ["differ", "p is better"]


def test_confidences_and_predictions_together() -> None:
    p = load_example("cross_entropy")
    c = Confidences(confidence=p.confidence, correct=p.correct)
    result = compare({"p": p, "c": c}, replicates=20)
    assert "nll" not in result.values["p"]


def test_what_cannot_be_compared() -> None:
    p = load_example("cross_entropy")
    shuffled = p.take(np.arange(len(p))[::-1])
    for models, message in (
        ({"p": p}, "two or more"),
        ([p, p], "two or more"),
        (5, "two or more names to predictions; got int"),
        ({"p": p.probs}, "got ndarray for 'p'"),
        ({"p": p, "q": p.probs}, "got ndarray for 'q'"),
        ({"p": p, "q": p.take(np.arange(10))}, "same samples"),
        ({"p": p, "q": shuffled}, "same order"),
    ):
        with pytest.raises(InputError, match=message):
            compare(models)


def test_what_rounds_to_zero_has_no_sign() -> None:
    certain = Predictions(probs=[[1.0, 0.0]], labels=[0])
    text = str(measure(certain, replicates=20))
    assert text.startswith("1 sample, 2 classes")
    assert "-0.0" not in text
    assert show(-1e-7, percent=False) == "0.0000"
    assert show(-1e-7, percent=True, signed=True) == "+0.00 %"
    assert show(-0.5, percent=False, signed=True) == "-0.5000"


def test_the_interval_decides_who_is_better() -> None:
    """The biased estimates can point the other way: 2 % of a sharp model, 1 % of a blunt one."""
    p, q = load_example("cross_entropy"), load_example("label_smoothing")
    result = compare({"p": p, "q": q}, metrics=["ece"], replicates=20)
    found = Difference("ece", "p", "q", 0.01, -0.03, -0.01, 0.005, 0.001, adjusted=0.001)
    assert result.verdict(found) == "p is better"
    assert "can lie outside its interval" in str(result)
    assert "can lie outside" not in str(compare({"p": p, "q": q}, metrics=["nll"], replicates=20))
