"""One row in a registry is enough: what is registered works everywhere without another list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import calibrant
from calibrant import io
from calibrant.calibrators import CALIBRATORS, TemperatureScaling
from calibrant.cli._study import study_executor
from calibrant.data import DATASETS, Dataset, DatasetInfo, load, signals
from calibrant.examples import load_example
from calibrant.losses import LOSSES, Objective
from calibrant.metrics import METRICS, Metric, accuracy, mean_confidence
from calibrant.predictions import Predictions
from calibrant.study import EXECUTORS, Local, Study
from tests.command import call

EXAMPLES = Path(calibrant.examples.__path__[0])
CROSS_ENTROPY = str(EXAMPLES / "cross_entropy.npz")


def signed_gap(p: Predictions) -> float:
    """Mean confidence minus accuracy."""
    return mean_confidence(p) - accuracy(p)


def test_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Metric(signed_gap, "signed gap", "neither", low=-1, places=("panel", "compare"))
    monkeypatch.setitem(METRICS, row.name, row)
    p, q = load_example("cross_entropy"), load_example("label_smoothing")
    assert "signed gap" in str(calibrant.measure(p, replicates=20))
    assert "signed gap" in str(calibrant.compare({"p": p, "q": q}, replicates=20))
    done = call("measure", CROSS_ENTROPY, "--metrics", "signed_gap", "--fail-if", "signed_gap>0.1")
    assert done.returncode == 1, done.stderr
    assert "12.52 %" in done.stdout
    study = {"data": "signals", "models": "cnn1d", "objectives": "cross_entropy", "recipe": "quick"}
    assert Study.parse({**study, "metrics": ["signed_gap"]}).evaluation.metrics


def test_a_calibrator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @dataclass
    class Half(TemperatureScaling):
        temperature: float | None = 2.0

    monkeypatch.setitem(CALIBRATORS, "half", Half)
    saved = tmp_path / "c.json"
    fit = ("--fit", CROSS_ENTROPY, "--method", "half", "--replicates", "20")
    done = call("calibrate", *fit, "--save", str(saved), "--onnx", str(tmp_path / "c.onnx"))
    assert done.returncode == 0, done.stderr
    assert isinstance(calibrant.load_calibrator(saved), Half)


def test_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "mine", LOSSES["brier"])
    study = {"data": "signals", "models": "cnn1d", "recipe": "quick"}
    assert len(Study.parse({**study, "objectives": ["mine + 0.5*mmce"]}).runs) == 1
    assert repr(Objective("mine + 0.5*mmce")).endswith("+ 0.5 mmce)")


def test_a_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(folder: Path | None = None, *, seed: int = 0) -> Dataset:
        return replace(signals(seed=seed), name="mine")

    monkeypatch.setitem(DATASETS, "mine", DatasetInfo("mine", "signal", "my waves", (), mine))
    assert load("mine", seed=3).name == "mine"
    assert "my waves" in call("data", "list").stdout
    study = {"models": "cnn1d", "objectives": "cross_entropy", "recipe": "quick"}
    assert Study.parse({**study, "data": {"name": "mine", "seed": 3}}).runs


def test_a_file_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(io.READERS, ".zip2", io.READERS[".npz"])
    monkeypatch.setitem(io.WRITERS, ".zip2", io.WRITERS[".npz"])
    path = tmp_path / "p.zip2"
    load_example("cross_entropy").save(path)
    assert calibrant.load(path).num_samples == 1500
    assert ".zip2" in call("measure", str(tmp_path / "p.unknown")).stderr


def test_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Local):
        pass

    monkeypatch.setitem(EXECUTORS, "mine", Mine)
    assert isinstance(study_executor("mine", 1, 1, None, 0), Mine)
