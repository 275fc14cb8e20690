"""Outputs that cannot be written are refused before the work starts, not after it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant import InputError, Predictions
from calibrant.report import write_report
from calibrant.study import Study
from tests.command import call

STUDY = """data = "signals"
models = "cnn1d"
objectives = ["cross_entropy"]
calibration = 0.2
[tune]
objective = "cross_entropy + {beta}*mmce"
beta = [0.5, 2]
"""
SYSTEM = Path("/proc")  # a folder that not even root can write to


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sound inputs; whatever takes time fails."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    x = rng.normal(size=(60, 4)).astype("f4")
    Predictions(logits=x[:, :3], labels=labels).save(tmp_path / "p.npz")
    np.savez(tmp_path / "d.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    images = rng.integers(0, 255, size=(60, 8, 8, 3), dtype=np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "i.npz", **arrays)
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "file").touch()

    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work has begun")

    for place in (
        "calibrant.study._local.share",
        "calibrant.train._loop._Run.train_epoch",
        "calibrant.train._backbones.Backbone.__call__",
        "calibrant.train.predict",
        "calibrant.cli._calibration.load_measurable",
        "calibrant.cli._shift.load_labelled",
        "calibrant.cli._report.load_measurable",
        "calibrant.cli._monitor.load",
    ):
        monkeypatch.setattr(place, work)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ("train", "--data", "d.npz", "--model", "mlp", "--recipe", "quick", "--out")
FOLDERS = {
    "train": TRAIN,
    "features": ("data", "features", "--data", "i.npz", "--backbone", "torch.nn:Flatten", "--out"),
    "study": ("study", "run", "s.toml", "--out"),
    "tune": ("study", "tune", "s.toml", "--out"),
    "select": ("select", "s.toml", "--out"),
    "paper": ("papers", "run", "wang2021", "table2", "--out"),
}
CALIBRATE = ("calibrate", "--fit", "p.npz")
FILES = {
    "calibrated": (*CALIBRATE, "--apply", "p.npz", "--out", "{}.npz"),
    "saved": (*CALIBRATE, "--save", "{}.json"),
    "onnx": (*CALIBRATE, "--onnx", "{}.onnx"),
    "shift": ("shift", "p.npz", "p.npz", "--save", "{}.json"),
    "report": ("report", "p.npz", "--out", "{}.html"),
    "predictions": ("predict", "run", "--data", "d.npz", "--out", "{}.npz"),
    "monitor": ("monitor", "p.npz", "--state", "{}.json"),
}


def refused(*arguments: object) -> str:
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize("command", FOLDERS)
def test_folders_that_cannot_be_written_to(folder: Path, command: str) -> None:
    (folder / "link").symlink_to("absent/folder")
    wrong = ["file", "file/inside", "link"]
    if sys.platform == "linux":
        wrong.append(str(SYSTEM / "out"))
    for out in wrong:
        assert "out must be a folder that can be written to; got" in refused(*FOLDERS[command], out)


@pytest.mark.parametrize("command", FILES)
def test_files_that_cannot_be_written(folder: Path, command: str) -> None:
    ending = FILES[command][-1].removeprefix("{}")
    (folder / f"folder{ending}").mkdir()
    os.mkfifo(folder / f"pipe{ending}")
    wrong = {
        "folder": "must be a regular file or a new name; got .*, a folder",
        "pipe": "must be a regular file or a new name; got .*, a pipe",
        "absent/o": "must be a file in an existing folder that can be written to; got",
        "file/o": "must be a file in an existing folder that can be written to; got",
        "o" * 245: "must be a file in an existing folder that can be written to; got",
    }
    if sys.platform == "linux":
        wrong[str(SYSTEM / "o")] = "that can be written to; got"
    for stem, message in wrong.items():
        said = refused(*(part.replace("{}", stem) for part in FILES[command]))
        assert re.search(message, said)


@pytest.mark.parametrize("inside", ["results", "runs", "locks", "failed", "shared"])
def test_a_part_of_a_results_folder_that_is_a_file(folder: Path, inside: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / inside).touch()
    assert f"out/{inside}" in refused(*FOLDERS["study"], "out")
    assert call("study", "status", "s.toml", "--out", "out").returncode in (0, 2)


@pytest.mark.parametrize("place", ["results/{}.parquet", "failed/{}.json"])
def test_a_result_that_could_not_be_replaced(folder: Path, place: str) -> None:
    key = Study.load(folder / "s.toml", training=False).runs[0].key
    (folder / "out" / place.format(key)).mkdir(parents=True)
    assert "out must be a regular file or a new name" in refused(*FOLDERS["study"], "out")


@pytest.mark.parametrize("name", ["run.json", "weights.pt", "epochs.parquet", "test.npz"])
def test_a_file_of_a_run_that_could_not_be_replaced(folder: Path, name: str) -> None:
    (folder / "run" / name).mkdir(parents=True)
    assert "out must be a regular file or a new name" in refused(*TRAIN, "run")


def test_a_package_that_only_the_output_needs(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("calibrant._core.extras.has_package", lambda name: name == "torch")
    said = refused(*(part.replace("{}", "o") for part in FILES["onnx"]))
    assert "--onnx needs onnx. Install it with" in said
    assert "needs Matplotlib" in refused("papers", "run", "wang2021", "figure2", "--out", "out")
    with pytest.raises(InputError, match="A report needs Plotly"):
        write_report({}, folder / "r.html")  # no models would be the next error
