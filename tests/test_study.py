"""Studies: expansion, resuming, faults, two drivers, selection, tuning, the command line."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from calibrant import InputError, Predictions, metrics
from calibrant._core.arrays import num_threads
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import ConfidNet, HistogramBinning, TemperatureScaling
from calibrant.cli import _study as commands
from calibrant.cli import app
from calibrant.data import Dataset, load
from calibrant.results import Store, compare_runs, read_all
from calibrant.study import (
    Local,
    Outcome,
    Ray,
    Run,
    Status,
    Study,
    StudyError,
    answer,
    findings,
    run_study,
    select,
    status,
    tune,
)
from calibrant.study import _execute as execution
from calibrant.study._local import probe
from calibrant.study._sharing import share, shared
from calibrant.train import predict, train
from tests.command import call
from tests.processes import PATIENCE, begin, begin_held, begin_python, wait_for

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "signals", "train_size": 200, "test_size": 120},
    "models": {"name": "cnn1d", "width": 4},
    "recipe": {"name": "quick", "epochs": 2},
    "calibration": 0.5,
    "seeds": 2,
    "shifts": ["signals/3"],
    "objectives": ["cross_entropy", {"objective": "focal:gamma={g}", "g": [1, 3]}],
    "calibrators": ["none", {"name": "temperature", "label": "TS"}],
    "metrics": ["accuracy", "nll", "ece"],
}
LOCAL = Local(workers=2, threads=1)


def tiny(**changes: Any) -> Study:
    return Study.parse({**TINY, **changes})


def values(folder: Path) -> list[tuple]:
    """The whole table in one order, to compare."""
    return sorted(tuple(row.values()) for row in read_all(folder).to_pylist())


# One worker finishes the study that most of these tests look at.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run_study(tiny(), folder, executor=LOCAL)
    return folder


# --- the file ---------------------------------------------------------------------------------


def test_expansion() -> None:
    study = tiny()
    assert len(study.runs) == 6
    assert [run.objective for run in study.runs[::2]] == [
        "cross_entropy",
        "focal:gamma=1",
        "focal:gamma=3",
    ]
    assert len({run.key for run in study.runs}) == 6
    assert tiny(seeds=[0, 7]).runs[1].seed == 7
    assert tiny().runs[0].key == study.runs[0].key  # the same in every study
    assert tiny(train_size=50).runs[0].key != study.runs[0].key
    labelled = tiny(objectives=[{"objective": "focal:gamma={g}", "g": [1, 2], "label": "F{g}"}])
    assert [run.name for run in labelled.runs[::2]] == ["F1", "F2"]
    assert tiny(objectives=[{"objective": "cross_entropy", "label": "CE"}]).runs[0].key == (
        study.runs[0].key
    )  # a label is not part of a run


def test_a_changed_file_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    rng = np.random.default_rng(0)
    keys = []
    for size in (40, 60):
        x, y = rng.normal(size=(size, 3)).astype("float32"), np.arange(size) % 2
        np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
        keys.append(tiny(data=str(path), models="mlp").runs[0].key)
    assert keys[0] != keys[1]


def test_built_in_study() -> None:
    quick = Study.load("quick")
    assert len(quick.runs) == 30
    assert list(quick.evaluation.calibrators) == ["none", "TS", "TS-SB-ECE", "HB"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objectivs": []}, "Did you mean 'objectives'"),
        ({"objectives": []}, "must have the setting objectives"),
        ({"objectives": [3]}, "must be strings"),
        ({"objectives": [{"objective": "focal:gamma={g}"}]}, "a list for each"),
        ({"objectives": [{"objective": "focal", "g": [1]}]}, "a list for each"),
        ({"objectives": ["focal", {"objective": "brier", "label": "focal"}]}, "different labels"),
        ({"calibrators": ["temperatur"]}, "Did you mean 'temperature'"),
        ({"calibrators": ["temperature", "temperature"]}, "different labels"),
        ({"calibrators": [{"name": "temperature", "bin": 3}]}, "has no option 'bin'"),
        ({"metrics": ["ecce"]}, "Did you mean 'ece'"),
        ({"metrics": ["ece", {"name": "ece", "norm": 2}]}, "different labels"),
        ({"metrics": [{"name": "ece", "bin": 3}]}, "must fit"),
        ({"seeds": 0}, "seeds"),
        ({"data": [{"name": "signals", "level": n} for n in (0, 5)]}, "data must not repeat"),
        ({"models": [{"name": "mlp", "hidden": [n]} for n in (4, 8)]}, "models must not repeat"),
        ({"data": [{"size": 3}]}, "tables with a name"),
        ({"data": 3}, "tables with a name"),
        ({"data": "signal"}, "data must be a known data set.*Did you mean 'signals'"),
        ({"data": {"name": "signals", "train_sizes": 9}}, "Did you mean 'train_size'"),
        ({"data": {"name": "mine.npz", "train_size": 9}}, "mine.npz has no option"),
        ({"models": "cnn2d"}, "model must name a known network.*Did you mean 'cnn1d'"),
        ({"models": {"name": "cnn1d", "widht": 4}}, "Did you mean 'width'"),
        ({"objectives": "focl"}, "In the objective 'focl'.*Did you mean 'focal'"),
        ({"objectives": "focal:gama=3"}, "Did you mean 'gamma'"),
        ({"objectives": "focal:gamma=-1"}, "In the objective 'focal:gamma=-1', gamma must be"),
        ({"objectives": "cross_entropy + 2*mmc"}, "Did you mean 'mmce'"),
        ({"objectives": [{"objective": "focal:gamma={}"}]}, "plain names in braces"),
        ({"objectives": [{"objective": "focal:gamma={"}]}, "must close every brace"),
        ({"objectives": [{"objective": "focal", "label": "focal {gg}"}]}, "label must use only"),
        ({"objectives": [{"objective": "focal:gamma={g}", "g": [1], "label": "{}"}]}, "names"),
        ({"objectives": [{"objective": "focal", "label": 3}]}, "strings as labels"),
        ({"objectives": [{"objective": "focal", "recipe": "cifr"}]}, "Did you mean 'cifar'"),
        ({"objectives": [{"objective": "focal", "recipe": 3}]}, "a name or a table"),
        ({"objectives": [{"objective": "focal", "recipe": {"epoch": 3}}]}, "mean 'epochs'"),
        ({"objectives": [{"objective": "focal", "train_size": [0]}]}, "train_size must be"),
        (
            {"objectives": ["focal", {"objective": "focal", "recipe": {"mixup": 0.2}}]},
            "objectives must have different labels; got 'focal' twice. Give each its own: label",
        ),
        (
            {"objectives": [{"objective": "focal", "train_size": [20, 40]}]},
            "objectives must have different labels",
        ),
        ({"recipe": "quik"}, "Did you mean 'quick'"),
        ({"recipe": {"name": "quick", "epoch": 3}}, "Did you mean 'epochs'"),
        ({"recipe": {"name": "quick", "epochs": 0}}, "epochs must be"),
        ({"recipe": 3}, "a name or a table"),
        ({"precision": "fp23"}, "Did you mean 'fp32'"),
        ({"calibration": -3}, "calibration must be a fraction .* or an integer number"),
        ({"calibration": 1.0}, "calibration must be a fraction"),
        ({"calibration": 500.7}, "calibration must be a fraction"),
        ({"train_size": 0}, "train_size must be"),
        ({"telemetry": "yes"}, "telemetry must be true or false"),
        ({"seeds": 2.5}, "seeds must be"),
        ({"shifts": 3}, "must be a list of names"),
        ({"shifts": [3]}, "must be a list of names"),
        ({"shifts": ["signal/3"]}, "In the shift 'signal/3'.*Did you mean 'signals'"),
        ({"shifts": ["signals/9"]}, "must end in a level"),
        ({"shifts": ["signals"]}, "must end in a level"),
        ({"shifts": ["generated/fogg/3"]}, "Did you mean 'fog'"),
        ({"shifts": ["generated/spatter/3"]}, "corruption must be"),
        ({"shifts": ["cifar10-c/fog"]}, "must read cifar10-c.CORRUPTION.LEVEL"),
        ({"shifts": ["cifar10.1/3"]}, "must be 'cifar10.1' alone"),
        ({"shifts": ["{dat}/3"]}, "shifts must use only"),
        ({"calibrators": [{"name": "histogram", "bins": 0}]}, "In the calibrator 'histogram', bin"),
        ({"calibrators": [{"name": "confidnet", "epochs": 0}]}, "In the calibrator 'confidnet'"),
        ({"calibrators": [{"name": "none", "bins": 3}]}, "must have no options"),
        ({"calibrators": [{"name": "temperature", "label": 3}]}, "strings as labels"),
        ({"calibrators": []}, "must have the setting calibrators"),
        ({"metrics": []}, "must have the setting metrics"),
    ],
)
def test_bad_studies(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny(**changes)


def test_a_file_in_the_data_folder_has_a_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    keys = set()
    for content in (1, 2):
        x, y = np.full((4, 3), content, dtype=np.float32), np.array([0, 1, 0, 1])
        np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        run = tiny(data="mine.npz", models="mlp").runs[0]
        assert len(run.fingerprint) == 16
        assert run.fingerprint in execution.file_name("mine.npz")
        keys.add(run.key)
    assert len(keys) == 2  # other contents, another run


def test_what_exists_is_taken() -> None:
    """Also where the files of the data are on another machine."""
    shifts = [
        "{data}-c/fog/3",
        "cifar10.1",
        "generated/fog/5",
        "cifar100-generated/snow/1",
        "z.npz",
    ]
    elsewhere = tiny(data=["cifar10", "cifar100"], models="resnet8", shifts=shifts)
    assert elsewhere.evaluation.shifts == tuple(shifts)
    assert tiny(data={"name": "no/such.npz", "layout": "channels_last"}).runs[0].fingerprint == ""
    assert tiny(shifts="signals/3").evaluation.shifts == ("signals/3",)
    assert tiny(calibration=1).runs[0].calibration == 1
    named = tiny(objectives=[{"objective": "focal", "recipe": "cifar"}], recipe="quick")
    assert dict(named.runs[0].recipe) == {"name": "cifar"}


def test_names_are_checked_without_pytorch_but_for_its_own() -> None:
    """Nothing loads it unless training is checked; where it is absent the rest is checked."""
    code = (
        "import sys\n"
        "if sys.argv[1] == 'absent': sys.modules['torch'] = None\n"
        "from calibrant import InputError\n"
        "from calibrant.study import Study\n"
        "base = {'data': 'signals', 'models': 'cnn1d', 'objectives': ['focl']}\n"
        "Study.parse(base, training=sys.argv[1] == 'absent')\n"
        "assert not sys.modules.get('torch')\n"
        "try: Study.parse({**base, 'data': 'signal'})\n"
        "except InputError: print('refused')\n"
    )
    for how in ("absent", "unchecked"):
        done = subprocess.run(
            [sys.executable, "-c", code, how],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.stdout == "refused\n", done.stderr


@pytest.mark.slow
def test_a_worker_checks_the_training_for_a_driver_without_pytorch(tmp_path: Path) -> None:
    """A misspelt loss is refused before anything is written, and runs are finished."""
    code = (
        "import sys\n"
        "from calibrant import InputError\n"
        "from calibrant.study import Local, Study, run_study\n"
        "for name in ('focl', 'focal'):\n"
        f"    settings = {TINY!r} | {{'objectives': [name], 'seeds': 1}}\n"
        "    study = Study.parse(settings, training=False)\n"
        "    try: print(run_study(study, sys.argv[1], executor=Local(1, 1)).count('done'))\n"
        "    except InputError as error: print(error)\n"
        "    print(sorted({'torch'} & set(sys.modules)))\n"
    )
    process = begin_python(code, tmp_path / "out")
    said, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (0, "")
    refused, *rest = said.splitlines()
    assert refused.startswith("In the objective 'focl', loss must name a known loss")
    assert refused.endswith("Did you mean 'focal'?")
    assert rest == ["[]", "1", "[]"]


def test_methods_with_their_own_recipe_and_size() -> None:
    study = tiny(
        seeds=1,
        objectives=[
            "cross_entropy",
            {"objective": "cross_entropy", "recipe": {"mixup": 0.2}, "label": "mixup"},
            {
                "objective": "focal:gamma={g}",
                "g": [1, 3],
                "train_size": [20, 40],
                "label": "focal {g} n={train_size}",
            },
        ],
    )
    plain, mixed, *focal = study.runs
    assert dict(plain.recipe) == {"name": "quick", "epochs": 2}
    assert dict(mixed.recipe) == {"name": "quick", "epochs": 2, "mixup": 0.2}
    assert mixed.key != plain.key
    assert [(r.name, r.train_size) for r in focal] == [
        (f"focal {g} n={n}", n) for g in (1, 3) for n in (20, 40)
    ]
    assert plain.train_size is None


def test_methods_with_their_own_seeds() -> None:
    study = tiny(
        seeds=2,
        objectives=["cross_entropy", {"objective": "brier", "seeds": 3}]
        + [{"objective": "focal:gamma={g}", "g": [1, 3], "seeds": [7]}],
    )
    assert [(r.objective, r.seed) for r in study.runs] == [
        ("cross_entropy", 0),
        ("cross_entropy", 1),
        ("brier", 0),
        ("brier", 1),
        ("brier", 2),
        ("focal:gamma=1", 7),
        ("focal:gamma=3", 7),
    ]
    # The same run, whichever way its seed is written.
    assert study.runs[2].key == tiny(seeds=1, objectives=["brier"]).runs[0].key
    many = [{"objective": "brier", "seeds": 90_000}] * 2
    for wrong, match in (([{"objective": "brier", "seeds": 0}], "seeds must"), (many, "at most")):
        with pytest.raises(InputError, match=match):
            tiny(objectives=wrong)


def test_a_file_extends_another(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('data = "signals"\nmodels = "cnn1d"\nseeds = 4\n')
    (tmp_path / "s.toml").write_text('extends = "base.toml"\nobjectives = "brier"\nseeds = 2\n')
    study = Study.load(tmp_path / "s.toml")
    assert [(r.data, r.objective, r.seed) for r in study.runs] == [
        ("signals", "brier", 0),
        ("signals", "brier", 1),
    ]
    assert study.name == "s"
    for base in ("s.toml", "nowhere.toml"):
        (tmp_path / "s.toml").write_text(f'extends = "{base}"\n')
        with pytest.raises(InputError, match="extends must be another file"):
            Study.load(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text('extends = "base.toml"\n')
    (tmp_path / "base.toml").write_text('extends = "s.toml"\n')
    with pytest.raises(InputError, match="without cycles"):
        Study.load(tmp_path / "s.toml")


def test_bad_file(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("data = [")
    with pytest.raises(InputError, match="cannot be read as TOML"):
        Study.load(tmp_path / "s.toml")


# --- results ----------------------------------------------------------------------------------


def test_results_are_those_of_the_kept_logits(finished: Path) -> None:
    study, table = tiny(), read_all(finished)
    assert table.column_names == [
        "run",
        "data",
        "model",
        "objective",
        "seed",
        "part",
        "calibrator",
        "metric",
        "value",
    ]
    # 6 runs × 2 parts × 2 calibrators × 3 metrics, and one temperature per run
    assert table.num_rows == 6 * 2 * 2 * 3 + 6
    run = study.runs[3]
    folder = Store(finished).run_folder(run.key)
    kept = {part: Predictions.load(folder / f"{part}.npz") for part in ("calibration", "test")}
    fitted = TemperatureScaling().fit(kept["calibration"])
    rows = {
        (r["part"], r["calibrator"], r["metric"]): r["value"]
        for r in table.to_pylist()
        if r["run"] == run.key
    }
    assert rows["test", "none", "ece"] == metrics.ece(kept["test"])
    assert rows["test", "TS", "nll"] == metrics.nll(fitted.transform(kept["test"]))
    assert rows["calibration", "TS", "temperature"] == fitted.temperature_
    shifted = Predictions.load(folder / "shift-signals-3.npz")
    assert rows["signals/3", "none", "accuracy"] == metrics.accuracy(shifted)
    assert rows["signals/3", "none", "accuracy"] < 1
    assert table.to_pandas().groupby("objective")["value"].count().shape == (3,)


@pytest.mark.slow
def test_metrics_with_options_telemetry_and_features(tmp_path: Path) -> None:
    study = tiny(
        seeds=1,
        objectives="cross_entropy",
        telemetry=True,
        metrics=["ece", "nll", {"name": "ece", "norm": 2, "binning": "mass", "label": "ece2"}],
        calibrators=["none", {"name": "confidnet", "hidden": [8], "epochs": 3}],
    )
    assert run_study(study, tmp_path, executor=Local(1, 1)).count("done") == 1
    run, folder = study.runs[0], Store(tmp_path).run_folder(study.runs[0].key)
    found = {
        (row["part"], row["calibrator"], row["metric"]): row["value"]
        for row in read_all(tmp_path).to_pylist()
    }
    for part, name in (("test", "test.npz"), ("signals/3", "shift-signals-3.npz")):
        p = Predictions.load(folder / name)
        assert found[part, "none", "ece2"] == metrics.ece(p, norm=2, binning="mass")
        # A confidence has no likelihood, so no NLL.
        assert 0 < found[part, "confidnet", "ece"] < 1
        assert (part, "confidnet", "nll") not in found
    features = np.load(folder / "features-test.npy")
    data = load(run.data, **run.data_options)
    model = network(folder, data)
    assert features.shape == (120, model.head.in_features)
    logits = features @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy()
    assert np.allclose(logits, Predictions.load(folder / "test.npz").logits, atol=1e-4)
    largest = np.load(folder / "max_logit.npy")
    assert np.allclose(largest, predict(folder, data, part="train").logits.max(axis=1))
    assert len(largest) == len(np.load(folder / "learned.npy"))


def done_here(study: Study, folder: Path, dataset: Dataset | None = None) -> dict[Any, float]:
    """The values of a study of one run, executed in this process."""
    (run,) = study.runs
    store = Store(folder)
    assert execution.execute(run, study.evaluation, store, dataset)
    assert (failure := store.failure(run.key)) is None, failure
    rows = read_all(folder).to_pylist()
    return {(r["part"], r["calibrator"], r["metric"]): r["value"] for r in rows}


@pytest.mark.slow
def test_confidnet_is_trained_on_training_data_and_validated_on_the_hold_out(
    tmp_path: Path,
) -> None:
    """singh2021, appendix A.2; without a hold-out, part of the training data validates."""
    options = {"hidden": [8], "epochs": 4, "learning_rate": 0.01}
    study = tiny(
        seeds=1,
        objectives="cross_entropy",
        shifts=[],
        calibration=0.3,
        metrics=["accuracy", "ece", "auroc"],
        calibrators=["none", {"name": "confidnet", **options}],
    )
    found = done_here(study, tmp_path)
    folder = Store(tmp_path).run_folder(study.runs[0].key)
    parts = ("train", "calibration", "test")
    p = {part: Predictions.load(folder / f"{part}.npz") for part in parts}
    x = {part: np.load(folder / f"features-{part}.npy") for part in parts}
    assert [p[part].num_samples for part in parts] == [140, 60, 120]
    right = ConfidNet(**options).fit(
        p["train"], features=x["train"], validation=(p["calibration"], x["calibration"])
    )
    after = right.transform(p["test"], features=x["test"])
    assert found["test", "confidnet", "ece"] == metrics.ece(after)
    assert found["test", "confidnet", "auroc"] == metrics.auroc(after)
    once = ConfidNet(**options).fit(p["calibration"], features=x["calibration"])
    assert metrics.ece(once.transform(p["test"], features=x["test"])) != metrics.ece(after)
    none = tiny(
        seeds=1,
        objectives="cross_entropy",
        shifts=[],
        calibration=0,
        telemetry=False,
        metrics=["ece"],
        calibrators=[{"name": "confidnet", **options}],
    )
    assert set(done_here(none, tmp_path / "none")) == {("test", "confidnet", "ece")}


def test_histogram_binning_keeps_the_prediction_for_top_label_metrics() -> None:
    """wang2021 recalibrates the confidence of the predicted class; accuracy cannot change."""
    asked = [{"name": "histogram"}, {"name": "histogram", "target": "class", "label": "classes"}]
    study = tiny(
        seeds=1,
        objectives="cross_entropy",
        metrics=["accuracy", "ece", "auroc", "nll", "classwise_ece"],
        calibrators=["none", *asked, {"name": "scaling_binning"}],
        recipe={"name": "quick", "epochs": 1},
    )
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (2, 200, 3))
    held, p = (Predictions(logits=part, labels=rng.integers(0, 3, 200)) for part in z)
    rows = execution.evaluate(study.runs[0], study.evaluation, {"calibration": held, "test": p})
    found = {(r["part"], r["calibrator"], r["metric"]): r["value"] for r in rows}
    fitted = HistogramBinning().fit(held)
    top, whole = fitted.confidences(p), fitted.transform(p)
    assert metrics.accuracy(whole) != metrics.accuracy(p)  # the test can fail
    for name in ("histogram", "scaling_binning"):
        assert found["test", name, "accuracy"] == found["test", "none", "accuracy"]
    assert found["test", "histogram", "ece"] == metrics.ece(top)
    assert found["test", "histogram", "auroc"] == metrics.auroc(top)
    assert found["test", "histogram", "nll"] == metrics.nll(whole)
    assert found["test", "histogram", "classwise_ece"] == metrics.classwise_ece(whole)
    by_class = HistogramBinning(target="class").fit(held).transform(p)
    assert found["test", "classes", "ece"] == metrics.ece(by_class)
    # A result of a version that scored the probabilities is computed again.
    asked_for = execution.described(study.evaluation)
    assert execution.is_complete({"evaluation": asked_for}, asked_for)
    assert not execution.is_complete({"evaluation": {**asked_for, "protocols": {}}}, asked_for)


def test_what_a_run_may_hold_out(tmp_path: Path) -> None:
    """Nothing, where the temperature is fixed; or the development set of the data."""
    fixed = ["none", {"name": "temperature", "temperature": 1.5, "label": "fixed"}]
    one: dict[str, Any] = {"seeds": 1, "objectives": "cross_entropy", "shifts": []}
    study = tiny(**one, calibration=0, calibrators=fixed)
    found = done_here(study, tmp_path / "all")
    folder = Store(tmp_path / "all").run_folder(study.runs[0].key)
    p = Predictions.load(folder / "test.npz")
    scaled = TemperatureScaling(temperature=1.5).transform(p)
    assert found["test", "fixed", "nll"] == metrics.nll(scaled)
    assert len(np.load(folder / "learned.npy")) == 200  # every training sample
    assert not (folder / "calibration.npz").exists()

    data = load("signals", train_size=200, test_size=120)
    dev = load("signals", train_size=200, test_size=50, seed=5)
    data.meta.update(x_dev=dev.x_test, y_dev=dev.y_test)
    study = tiny(
        **one,
        calibration="dev",
        telemetry=True,
        telemetry_samples=60,
        stop={"by": "accuracy", "patience": 2},
    )
    done_here(study, tmp_path / "dev", data)
    folder = Store(tmp_path / "dev").run_folder(study.runs[0].key)
    held = Predictions.load(folder / "calibration.npz")
    assert sorted(held.labels) == sorted(dev.y_test)
    assert len(np.load(folder / "learned.npy")) == 200
    epochs = pa.parquet.read_table(folder / "epochs.parquet").to_pylist()
    assert [row["test_samples"] for row in epochs] == [60, 60]
    best = max(epochs, key=lambda row: row["calibration_accuracy"])
    assert best["calibration_accuracy"] == metrics.accuracy(held)
    again = predict(folder, data, part="calibration")
    np.testing.assert_array_equal(again.logits, held.logits)

    for changes, message in (
        ({"calibration": 0}, "calibration must be above 0 for what is fitted"),
        ({"calibration": 0, "calibrators": fixed, "stop": "nll"}, "stop needs calibration"),
        ({"calibration": "test"}, "calibration must be a fraction"),
        ({"stop": "loss"}, "by must be 'nll'"),
        ({"stop": {"until": 3}}, "stop must be a criterion or a table"),
        ({"telemetry_samples": 0}, "telemetry_samples must be"),
    ):
        with pytest.raises(InputError, match=message):
            tiny(**changes)
    with pytest.raises(InputError, match="no development set"):
        train(load("signals"), model="cnn1d", calibration="dev")


def test_later_settings_leave_the_keys_of_older_runs_alone() -> None:
    run = tiny().runs[0]
    assert run.key == "b5cd2c3269074a77"
    assert replace(run, stop={"by": "nll"}).key != run.key != replace(run, telemetry_samples=5).key


def network(folder: Path, data: Dataset) -> Any:
    from calibrant.models import load_weights
    from calibrant.train import read_run
    from calibrant.train._forward import network_for

    return load_weights(network_for(data, read_run(folder), "cpu"), folder / "weights.pt")


@pytest.mark.slow
def test_results_only_grow(tmp_path: Path) -> None:
    first = tiny(seeds=1, objectives="cross_entropy")
    second = tiny(
        seeds=1, objectives="cross_entropy", shifts=[], metrics=["brier"], calibrators=["histogram"]
    )
    run_study(first, tmp_path, executor=Local(1, 1))
    before = values(tmp_path)
    assert run_study(second, tmp_path, executor=Local(1, 1)).count("done") == 1
    after = values(tmp_path)
    assert set(before) < set(after)
    assert status(first, tmp_path).count("done") == status(second, tmp_path).count("done") == 1


@pytest.mark.slow
def test_seed_by_seed(tmp_path: Path) -> None:
    seen: list[int] = []
    run_study(
        tiny(shifts=[]),
        tmp_path,
        executor=Local(1, 1),
        report=lambda run, *_: seen.append(run.seed),
    )
    assert seen == [0, 0, 0, 1, 1, 1]


def test_shifts(tmp_path: Path) -> None:
    """Of the data by name with its options, and of the user's own images."""
    run = tiny().runs[0]
    data = load("signals", **run.data_options)
    x, y = execution.shifted("{data}/3", run, data)
    assert len(x) == len(y) == 120
    images = np.random.default_rng(0).integers(0, 255, (20, 3, 8, 8), dtype=np.uint8)
    mine = Dataset(
        "mine", "image", images, np.arange(20) % 2, images, np.arange(20) % 2, ("a", "b"), {}
    )
    x, y = execution.shifted("generated/fog/3", run, mine)
    assert x.shape == images.shape
    assert not np.array_equal(x, images)
    with pytest.raises(InputError, match="generated/CORRUPTION/LEVEL"):
        execution.shifted("generated/fog", run, mine)


def test_only_what_is_missing_is_run(finished: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    weights = {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/weights.pt")}
    assert run_study(tiny(), folder, executor=_never()).count("done") == 6
    more = tiny(
        metrics=["accuracy", "nll", "ece", "brier"],
        calibrators=[*TINY["calibrators"], {"name": "histogram", "label": "HB"}],
    )
    assert status(more, folder).count("missing") == 6
    run_study(more, folder, executor=LOCAL)
    assert weights == {p: p.stat().st_mtime_ns for p in folder.glob("runs/*/weights.pt")}
    assert all(Store(folder).facts(run.key)["train_seconds"] > 0 for run in more.runs)
    assert read_all(folder).num_rows == 6 * 2 * 3 * 4 + 6
    seeds = tiny(seeds=3)
    assert status(seeds, folder).count("missing") == 3
    run_study(seeds, folder, executor=LOCAL)
    assert all(p.stat().st_mtime_ns == t for p, t in weights.items())
    assert len(list(folder.glob("runs/*/weights.pt"))) == 9


def _never() -> Any:
    class Never:
        def work(self, *_: Any) -> Any:
            raise AssertionError("nothing was missing")

    return Never()


@pytest.mark.slow
def test_one_worker_and_two_agree(finished: Path, tmp_path: Path) -> None:
    run_study(tiny(), tmp_path, executor=Local(workers=1, threads=1))
    assert values(tmp_path) == values(finished)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no finished runs\. Run"):
        read_all(tmp_path)
    with pytest.raises(
        InputError, match=r"folder must be a results folder; got .*typo', which does not"
    ):
        read_all(tmp_path / "typo")


def row(objective: str, seed: int, value: float, **change: Any) -> dict[str, Any]:
    """One line of a tidy table."""
    return {
        "run": f"{objective} {seed}",
        "data": "signals",
        "model": "cnn1d",
        "objective": objective,
        "seed": seed,
        "part": "test",
        "calibrator": "none",
        "metric": "ece",
        "value": value,
    } | change


def test_damaged_results_are_said(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in range(6):
        store.write(str(seed), [row("ce", seed, 0.1)], {})
    for seed in range(4):
        path = store.result_path(str(seed))
        path.write_bytes(path.read_bytes()[: -40 * (seed % 2)])
    text = r"4 damaged files \(0.parquet, 1.parquet, 2.parquet, …\); they are ignored. Run"
    with pytest.warns(CalibrationWarning, match=text):
        assert read_all(tmp_path).num_rows == 2
    done = CliRunner().invoke(app, ["study", "table", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stderr.startswith("calibrant: warning: ")
    assert len(done.stderr.splitlines()) == 1
    for path in tmp_path.glob("results/[45].parquet"):
        pa.parquet.write_table(pa.table({"value": ["not", "numbers"]}), path)
    with pytest.raises(InputError, match="no finished runs, but 6 damaged files"):
        read_all(tmp_path)


def test_looking_makes_no_folders(tmp_path: Path) -> None:
    folder = tmp_path / "typo"
    store = Store(folder)
    assert store.facts("k") is None
    assert store.failure("k") is None
    assert not store.claimed("k")
    assert status(tiny(), folder).count("missing") == 6
    done = CliRunner().invoke(app, ["study", "status", "quick", "--out", str(folder)])
    assert done.exit_code == 2
    assert "which does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not folder.exists()
    for write in (lambda s: s.write("k", [row("ce", 0, 0.1)], {}), lambda s: s.fail("k", {})):
        write(Store(folder / "a"))
    with Store(folder / "b").claim("k") as ours:
        assert ours


# --- faults -----------------------------------------------------------------------------------


def toml(folder: Path, **changes: Any) -> Path:
    """The tiny study as a file."""
    path = folder / "tiny.toml"
    config = {**TINY, **changes}
    config.pop("name")
    path.write_text("\n".join(f"{key} = {_toml(value)}" for key, value in config.items()))
    return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + "}"
    return (
        "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)
    )


def arguments_of(path: Path, out: Path) -> tuple[Any, ...]:
    return ("study", "run", path, "--out", out, "--workers", 2, "--threads", 1)


@pytest.mark.slow
def test_killed_driver(finished: Path, tmp_path: Path) -> None:
    """SIGKILL of the driver and all its workers, then the same command: the same table."""
    path, out = toml(tmp_path), tmp_path / "out"
    process = begin_held(tmp_path, 1, *arguments_of(path, out))
    wait_for(lambda: list(out.glob("results/*.parquet")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert 0 < status(Study.load(path), out).count("done") < 6
    again = begin(*arguments_of(path, out))
    _, error = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, error
    assert values(out) == values(finished)


@pytest.mark.slow
def test_killed_worker(finished: Path, tmp_path: Path) -> None:
    """SIGKILL of a worker in the middle: the study still completes, with the same table."""
    path, out = toml(tmp_path), tmp_path / "out"
    process = begin_held(tmp_path, 0, *arguments_of(path, out))
    wait_for(lambda: list(out.glob("runs/*/checkpoint.pt")))
    os.kill(wait_for(lambda: _workers(process.pid))[0], signal.SIGKILL)
    (tmp_path / "hold").unlink()
    _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert values(out) == values(finished)


def _workers(session: int) -> list[int]:
    """Processes of a session that hold a lock of a run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) != session:
                continue
            links = [str(fd.readlink()) for fd in (entry / "fd").iterdir()]
        except OSError:
            continue
        if any("/locks/" in link for link in links):
            found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_two_drivers_on_one_folder(finished: Path, tmp_path: Path) -> None:
    path, out = toml(tmp_path), tmp_path / "out"
    both = [begin(*arguments_of(path, out)) for _ in range(2)]
    for process in both:
        _, error = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, error
    assert values(out) == values(finished)


def test_a_run_that_fails(tmp_path: Path) -> None:
    """A failed run leaves its error and traceback, the others go on, and retry repeats it."""
    study = tiny(models=["cnn1d", "resnet8"], seeds=1, objectives=["cross_entropy"])
    now = run_study(study, tmp_path, executor=LOCAL)
    assert (now.count("done"), now.count("failed")) == (1, 1)
    failed = next(run for run in study.runs if now.states[run.key] == "failed")
    record = Store(tmp_path).failure(failed.key)
    assert record is not None
    assert "must take data of the kind 'signal'" in record["error"]
    assert "Traceback" in record["traceback"]
    assert run_study(study, tmp_path, executor=_never()).count("failed") == 1  # no retry unasked
    again = run_study(study, tmp_path, executor=LOCAL, retry=True)
    assert again.count("failed") == 1


def test_a_cut_result_is_repeated(finished: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    want = values(folder)
    first, second, third = sorted(folder.glob("results/*.parquet"))[:3]
    first.write_bytes(first.read_bytes()[:-40])
    second.write_bytes(b"")
    third.unlink()
    logits = folder / "runs" / third.stem / "test.npz"
    logits.write_bytes(logits.read_bytes()[:200])
    now = status(tiny(), folder)
    assert now.count("missing") == 3
    assert set(now.damaged) == {first.name, second.name}
    with pytest.warns(CalibrationWarning, match=r"test\.npz is damaged and will be recreated"):
        assert run_study(tiny(), folder, executor=LOCAL).count("done") == 6
    assert values(folder) == want


class Unchecked:
    """An executor of a test, for runs that can be trained."""

    def check(self, runs: Any) -> None:
        """Accept them."""


def test_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops with one sentence, and what is finished stays finished."""
    study = tiny(seeds=1)

    class OneAtATime(Unchecked):
        def work(self, runs: Any, evaluation: Any, store: Store) -> Any:
            for run in runs:
                execution.execute(run, evaluation, store)
                yield run, "done"

    real, calls = Store.write, []

    def full(self: Store, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(self, *arguments)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(StudyError, match=r"is full.*are kept"):
        run_study(study, tmp_path, executor=OneAtATime())
    monkeypatch.undo()
    assert status(study, tmp_path).count("done") == 1
    assert run_study(study, tmp_path, executor=OneAtATime()).count("done") == 3


def test_a_worker_that_always_dies(tmp_path: Path) -> None:
    """After three attempts the run counts as failed."""
    study = tiny(seeds=1, objectives=["cross_entropy"])

    class Dies(Unchecked):
        def work(self, runs: Any, *_: Any) -> Any:
            for run in runs:
                yield run, Outcome.DIED

    now = run_study(study, tmp_path, executor=Dies())
    assert now.count("failed") == 1
    assert "crashed" in Store(tmp_path).failure(study.runs[0].key)["error"]


def test_locks_end_with_their_process(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.claim("a") as ours:
        assert ours
        assert store.claimed("a")
        with Store(tmp_path).claim("a") as again:
            assert not again
    assert not store.claimed("a")


@pytest.mark.slow
def test_probe(tmp_path: Path) -> None:
    """Processes times threads is the number of cores, whichever way is faster."""
    run = tiny().runs[0]
    cores = num_threads()
    workers, threads = probe(run, share(run, tmp_path))
    assert (workers, threads) in ((1, cores), (cores, 1))


def test_probe_where_cores_are_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert probe(tiny().runs[0], None) == (os.cpu_count(), 1)


def test_shared_data_are_the_same(tmp_path: Path) -> None:
    run = tiny().runs[0]
    data, mapped = load(run.data, **run.data_options), shared(share(run, tmp_path))
    assert data.hash == mapped.hash
    assert isinstance(mapped.x_train.base, np.memmap) or isinstance(mapped.x_train, np.memmap)


def test_shared_data_keep_their_word_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.test_data_formats import write_news

    write_news(tmp_path, "archive")
    (tmp_path / "tiny.txt").write_text("of 1 2 3\n")
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    options = {"remove": ["headers"], "length": 6}
    hashes = []
    for vectors in ({}, {"vectors": "tiny.txt"}):
        run = tiny(data={"name": "news20", **options, **vectors}, models="textcnn").runs[0]
        data, mapped = load(run.data, **run.data_options), shared(share(run, tmp_path / "shared"))
        assert data.hash == mapped.hash
        hashes.append(data.hash)
    assert hashes[0] != hashes[1]
    np.testing.assert_array_equal(mapped.meta["vectors"], data.meta["vectors"])


@pytest.mark.slow
def test_only_the_guilty_run_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that kills its process fails after three attempts; the others are done."""
    study = tiny(
        seeds=1,
        data={"name": "signals", "train_size": 200, "test_size": 120},
        objectives=["cross_entropy", "brier", "focal"],
    )
    guilty = study.runs[1].key
    # The workers are new processes; a folder where a file must go kills this one's task.
    monkeypatch.setenv("CALIBRANT_TEST_DIES", guilty)
    code = (
        "import os\n"
        "from calibrant.study import _execute\n"
        "real = _execute.keep_logits\n"
        "def dies(run, *rest):\n"
        "    if run.key == os.environ.get('CALIBRANT_TEST_DIES'): os._exit(9)\n"
        "    return real(run, *rest)\n"
        "_execute.keep_logits = dies\n"
    )
    (tmp_path / "deadly.py").write_text(code)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import deadly\n"
        "from calibrant.study import Local, run_study\n"
        "from tests.test_study import tiny\n"
        "if __name__ == '__main__':\n"
        "    study = tiny(seeds=1, objectives=['cross_entropy', 'brier', 'focal'])\n"
        "    run_study(study, sys.argv[2], executor=Local(2, 1))\n"
    )
    (tmp_path / "main.py").write_text(script)
    subprocess.run(
        [sys.executable, str(tmp_path / "main.py"), str(tmp_path), str(tmp_path / "out")],
        check=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    now = status(study, tmp_path / "out")
    assert now.states[guilty] == "failed"
    assert now.count("done") == 2


@pytest.mark.slow
def test_an_edited_study_does_not_mix_with_the_old(finished: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    edited = tiny(recipe={"name": "quick", "epochs": 1})
    run_study(edited, folder, executor=LOCAL)
    alone = tmp_path / "alone"
    run_study(edited, alone, executor=LOCAL)
    assert answer(edited, read_all(folder)) == answer(edited, read_all(alone))
    keys = {run.key for run in edited.runs}
    assert sorted(read_all(folder, keys=keys)["value"].to_pylist()) == sorted(
        read_all(alone)["value"].to_pylist()
    )


@pytest.mark.slow
def test_a_changed_shift_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "shift.npz"
    study = None
    found = []
    for noise in (0.0, 5.0):
        data = load("signals", train_size=200, test_size=120)
        x = data.x_test + noise * np.random.default_rng(0).normal(size=data.x_test.shape)
        np.savez(path, x_test=x.astype("float32"), y_test=data.y_test)
        study = tiny(seeds=1, objectives=["cross_entropy"], shifts=[str(path)])
        run_study(study, tmp_path / "out", executor=LOCAL)
        rows = read_all(tmp_path / "out").to_pylist()
        found.append([r["value"] for r in rows if r["part"] == str(path)])
    assert found[0] != found[1]


@pytest.mark.slow
def test_a_missing_shift_fails_its_runs_only(tmp_path: Path) -> None:
    study = tiny(seeds=1, objectives=["cross_entropy"], shifts=["nothing.npz"])
    assert run_study(study, tmp_path, executor=LOCAL).count("failed") == 1


def test_full_disk_at_a_checkpoint_stops_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    class Here(Unchecked):
        def work(self, runs: Any, evaluation: Any, store: Store) -> Any:
            for run in runs:
                execution.execute(run, evaluation, store)
                yield run, "done"

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises((StudyError, RuntimeError), match="is full"):
            run_study(tiny(seeds=1), tmp_path, executor=Here())
    assert status(tiny(seeds=1), tmp_path).count("failed") == 0


# --- choosing ---------------------------------------------------------------------------------


def test_select(finished: Path) -> None:
    (choice,) = select(tiny(), finished, within=0.99)
    assert len(choice.candidates) == 6
    assert choice.best.score == min(c.score for c in choice.candidates)
    assert choice.runner_up is not None
    assert choice.comparison.difference == pytest.approx(choice.best.score - choice.runner_up.score)
    assert choice.best in choice.frontier or choice.best.validation["ece"] > min(
        c.validation["ece"] for c in choice.candidates
    )
    text = str(choice)
    assert "test samples, which were not used for the choice" in text
    assert "within 99 % of" in text
    assert f"accuracy {100 * choice.best.test['accuracy']:.2f} %," in text
    assert choice.best.objective in text
    strict = select(tiny(), finished, within=0.0)[0]
    most = max(c.validation["accuracy"] for c in strict.candidates)
    assert strict.best.validation["accuracy"] == most
    none = next(c for c in choice.candidates if c.calibrator == "none")
    folder = Store(finished).run_folder(tiny().runs[0].key)
    p = Predictions.load(folder / "calibration.npz")
    assert none.scores[0] == pytest.approx(metrics.nll(p))
    assert select(tiny(), finished, score="brier")[0].score == "brier"


def test_select_with_a_missing_run(finished: Path, tmp_path: Path) -> None:
    """Only seeds whose runs are all finished are compared."""
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    Store(folder).result_path(tiny().runs[1].key).unlink()  # cross-entropy, seed 1
    (choice,) = select(tiny(), folder, within=0.99)
    assert "1 of 2 seeds complete" in str(choice)
    assert all(len(candidate.scores) == 1 for candidate in choice.candidates)


def test_options_are_checked_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for within in (-0.01, 1, 5.0, math.nan, True, "0.1"):
        with pytest.raises(InputError, match="within must be at least 0 and below 1"):
            select(tiny(), tmp_path, within=within)
        with pytest.raises(InputError, match="within must be at least 0 and below 1"):
            tune(tiny(), tmp_path, executor=_never(), within=within)
    with pytest.raises(InputError, match="score must be"):
        select(tiny(), tmp_path, score="ece")
    for text in ("focl:gamma={g}", "focal:gamma={g}{}", "focal:gamma={g"):
        study = tiny(tune={"objective": text, "g": [1, 5]})
        with pytest.raises(InputError, match=r"objective 'focl|plain names|close every brace"):
            tune(study, tmp_path, executor=_never())
    with pytest.raises(InputError, match=r"table \[tune\]"):
        tune(tiny(tune="focal"), tmp_path)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it ran first")

    monkeypatch.setattr(commands, "run_missing", never)
    for option, value in (("--score", "ece"), ("--within", "1"), ("--within", "-0.1")):
        done = CliRunner().invoke(
            app, ["select", "quick", "--out", str(tmp_path / "o"), option, value]
        )
        assert done.exit_code == 2
        assert f"{option} must be" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_select_needs_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must have a seed whose runs are all finished"):
        select(tiny(), tmp_path)


def test_tuning_follows_karandikar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time, weight decay too, by L2 ECE of equal mass within 1 % of the best accuracy."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)

    def fake(p_right: float, sharp: float) -> Predictions:
        right = rng.permutation(400) < 400 * p_right
        told = np.where(right, y, (y + 1) % 3)
        z = rng.gamma(2, sharp, (400, 1)) * (np.arange(3) == told[:, None])
        return Predictions(logits=z, labels=y)

    kept = {
        (b, w): fake(0.9 - 0.02 * (b == 3), 1 + b / 3 + 40 * w)
        for b in (1, 2, 3)
        for w in (0.0, 0.01)
    }
    # Value 3 has the lowest ECE of all and too low an accuracy.
    kept[3, 0.0] = Predictions(
        logits=np.log([[0.88, 0.06, 0.06]] * 400), labels=(np.arange(400) >= 352).astype(int)
    )
    seen: list[tuple[float, float]] = []

    def done(study: Study, folder: Path, **_: Any) -> Status:
        for run in study.runs:
            beta = float(run.objective.split()[2].partition("*")[0])
            seen.append((beta, run.recipe["weight_decay"]))
            target = Store(folder).run_folder(run.key) / "calibration.npz"
            target.parent.mkdir(parents=True, exist_ok=True)
            kept[seen[-1]].save(target)
        return Status({run.key: "done" for run in study.runs})

    monkeypatch.setattr("calibrant.study._tune.run_study", done)
    table = {"objective": "cross_entropy + {b}*mmce", "b": [1, 2, 3], "weight_decay": [0.0, 0.01]}
    study = tiny(objectives=["cross_entropy"], seeds=1, tune=[{}, table])
    found = tune(study, tmp_path, table=1)
    ece = {key: metrics.ece(p, norm=2, binning="mass") for key, p in kept.items()}
    accuracy = {key: metrics.accuracy(p) for key, p in kept.items()}
    assert min(ece, key=ece.__getitem__) == (3, 0.0)  # the test can fail
    assert accuracy[3, 0.0] < accuracy[1, 0.0] - 0.01
    beta = min((1, 2), key=lambda b: ece[b, 0.0])
    decay = min((0.0, 0.01), key=lambda w: ece[beta, w])
    assert found.coefficients == {"b": beta, "weight_decay": decay}
    assert [t.ece for t in found.trials] == [ece[s] for s in seen]
    assert seen == [(1, 0.0), (2, 0.0), (3, 0.0), (beta, 0.0), (beta, 0.01)]
    assert str(found).endswith(f"Tuned: cross_entropy + {beta}*mmce, weight_decay = {decay}")
    plain = [metrics.ece(kept[s]) for s in seen]
    assert [t.ece for t in found.trials] != plain  # not the ECE of the panel
    for bad in ([-1], ["x"]):
        with pytest.raises(InputError, match="weight_decay"):
            tune(tiny(tune={**table, "weight_decay": bad}), tmp_path)
    with pytest.raises(InputError, match="calibration must be above 0"):
        tune(tiny(calibration=0, calibrators=["none"], tune=table), tmp_path)


def test_tuning_takes_one_run_per_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that differ from the first in recipe or training size only are none of its seeds."""
    seen: list[Run] = []

    def asked(study: Study, *_: Any, **__: Any) -> Status:
        seen.extend(study.runs)
        return Status({run.key: "failed" for run in study.runs})

    monkeypatch.setattr("calibrant.study._tune.run_study", asked)
    same = [
        "cross_entropy",
        {"objective": "cross_entropy", "recipe": {"mixup": 0.2}, "label": "mixup"},
        {"objective": "cross_entropy", "train_size": 50, "label": "few"},
    ]
    table = {"objective": "cross_entropy + {b}*mmce", "b": [1, 2]}
    with pytest.raises(StudyError, match="4 runs failed"):
        tune(tiny(objectives=same, seeds=2, tune=table), tmp_path)
    assert [(run.objective, run.seed) for run in seen] == [
        (f"cross_entropy + {b}*mmce", seed) for b in (1, 2) for seed in (0, 1)
    ]
    assert not [run for run in seen if "mixup" in run.recipe or run.train_size == 50]


@pytest.mark.slow
def test_tune(tmp_path: Path) -> None:
    table = {"objective": "focal:gamma={g} + {b}*mmce", "g": [1, 5], "b": [0.5, 2]}
    study = tiny(objectives=["cross_entropy"], tune=table)
    found = tune(study, tmp_path, executor=LOCAL, within=0.99)
    assert [t.coefficient for t in found.trials] == ["g", "g", "b", "b"]
    for name in ("g", "b"):
        trials = [t for t in found.trials if t.coefficient == name]
        best = min(trials, key=lambda t: t.ece)
        assert best.chosen
        assert found.coefficients[name] == best.value
    assert found.objective == table["objective"].format(**found.coefficients)
    assert f"{100 * found.trials[0].ece:.2f} %  " in str(found)
    # validation only: no test metric was computed
    assert read_all(tmp_path / "tuning").num_rows == 0
    assert tune(study, tmp_path, executor=_never(), within=0.99) == found
    with pytest.raises(InputError, match="no finished runs"):
        read_all(tmp_path)  # the study's own results are left alone
    with pytest.raises(InputError, match=r"table \[tune\]"):
        tune(tiny(), tmp_path)


def test_words(finished: Path) -> None:
    text = answer(tiny(), read_all(finished))
    assert text.startswith("signals, cnn1d:\n  Without post-hoc calibration, ")
    assert "\n  With post-hoc calibration, " in text
    assert "\n  On signals/3, " in text
    assert text.endswith("out of up to 6 settings, and p is not corrected for that.")


CE, FOCAL, BRIER = (0.10, 0.125, 0.105), (0.05, 0.07, 0.0599), (0.051, 0.0712, 0.0607)


def tidy(*groups: tuple[str, tuple[float, ...]], **change: Any) -> list[dict[str, Any]]:
    return [
        row(name, seed, value, **change) for name, some in groups for seed, value in enumerate(some)
    ]


def test_words_are_those_of_a_paired_test() -> None:
    """The seeds move together, so pairs tell apart what two samples cannot."""
    rows = tidy(("ce", CE), ("focal", FOCAL), ("brier", BRIER))
    (first, last) = findings(pa.Table.from_pylist(rows))["signals", "cnn1d"]
    p = compare_runs(FOCAL, BRIER, paired=True).p_value
    assert p < 0.05 < compare_runs(FOCAL, BRIER).p_value
    assert first == (
        "Without post-hoc calibration, focal has the lowest ECE, 6.00 ± 1.00 %; next is brier, "
        f"6.10 ± 1.01 % (significant: p = {p:.3f}, paired over 3 seeds)."
    )
    assert last == (
        "Each was picked on these samples, out of up to 3 settings, and p is not corrected "
        "for that."
    )
    fewer = [r for r in rows if (r["objective"], r["seed"]) != ("brier", 0)]
    said = findings(pa.Table.from_pylist(fewer))["signals", "cnn1d"][0]
    p = compare_runs(FOCAL, BRIER[1:]).p_value
    assert f"(may be due to chance: p = {p:.3f}, 3 against 2 seeds, not paired)" in said
    one = [r for r in rows if r["seed"] == 0]
    said = findings(pa.Table.from_pylist(one))["signals", "cnn1d"][0]
    assert said == (
        "Without post-hoc calibration, focal has the lowest ECE, 5.00 %; next is brier, 5.10 % "
        "(one seed is not enough to compare)."
    )


def test_words_with_a_study_add_its_first_objective_only() -> None:
    """And keep to its runs, calibrators and parts."""
    objectives = [
        {"objective": o, "label": label}
        for o, label in (("cross_entropy", "ce"), ("focal", "focal"), ("brier", "brier"))
    ]
    study = tiny(seeds=3, objectives=objectives)
    keys = {(run.name, run.seed): run.key for run in study.runs}
    mine = tidy(("ce", CE), ("focal", FOCAL), ("brier", BRIER))
    mine = [{**r, "run": keys[r["objective"], r["seed"]]} for r in mine]
    alone = findings(pa.Table.from_pylist(mine))["signals", "cnn1d"]
    other = [{**r, "calibrator": "HB", "value": 0.0} for r in mine]
    other += [{**r, "part": "signals/5", "value": 0.0} for r in mine]
    other += tidy(("old", (0.0, 0.0, 0.0)))
    table = pa.Table.from_pylist(mine + other)
    told = findings(table, study)["signals", "cnn1d"]
    p = compare_runs(FOCAL, CE, paired=True).p_value
    added = (
        f"; ce, the first of the study, has 11.00 ± 1.32 % (significant: p = {p:.3f}, paired over "
        "3 seeds)."
    )
    assert told == [alone[0][:-1] + added, alone[1]]
    assert answer(study, table) == "signals, cnn1d:\n  " + "\n  ".join(told)


def test_words_for_what_cannot_be_said() -> None:
    rows = tidy(("ce", CE), metric="accuracy")
    found = findings(pa.Table.from_pylist(rows))
    assert found == {("signals", "cnn1d"): ["Neither ECE nor NLL was measured."]}
    assert findings(pa.Table.from_pylist(tidy(("ce", (0.1,))))) == {
        ("signals", "cnn1d"): ["Without post-hoc calibration, ce has the lowest ECE, 10.00 %."]
    }
    rows = tidy(("ce", (math.inf, 1.0)), ("focal", (2.0, 3.0)), metric="nll")
    said = findings(pa.Table.from_pylist(rows))["signals", "cnn1d"][0]
    assert said == "Of all, focal has the lowest NLL, 2.5000 ± 0.7071."
    twice = tidy(("ce", CE)) + tidy(("ce", CE), run="again")
    with pytest.raises(InputError, match="one value per seed"):
        findings(pa.Table.from_pylist(twice))
    shifted = [r for part in ("fog/10", "fog/2") for r in tidy(("ce", CE), part=part)]
    said = findings(pa.Table.from_pylist(shifted))["signals", "cnn1d"]
    assert [line[:9] for line in said] == ["On fog/2,", "On fog/10"]


# --- the command line -------------------------------------------------------------------------


def test_command_line(finished: Path, tmp_path: Path) -> None:
    path = toml(tmp_path)

    done = call("study", "run", path, "--out", finished)
    assert done.returncode == 0, done.stderr
    assert "6 done" in done.stdout
    assert "Without post-hoc calibration" in done.stdout
    done = call("study", "status", path, "--out", finished)
    assert done.stdout.startswith("6 done, 0 running, 0 failed, 0 missing")
    for style, mark in (("text", "±"), ("markdown", "|"), ("latex", "\\toprule"), ("csv", ",")):
        done = call("study", "table", finished, "--metric", "nll", "--format", style)
        assert done.returncode == 0, done.stderr
        assert mark in done.stdout
    done = call("select", path, "--out", finished)
    assert done.returncode == 0, done.stderr
    assert "choose" in done.stdout
    done = call("study", "run", tmp_path / "none.toml", "--out", finished)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("text", ["seed=abc", "seed=", "seed", "seed=1.5"])
def test_a_bad_seed_gives_one_line(text: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["study", "table", str(tmp_path), "--where", text])
    assert done.exit_code == 2
    assert "--where must" in done.stderr
    assert len(done.stderr.splitlines()) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("works", "left"), [(Local(4, 1), 10), (Local(1), 40), (Local(), 20), (Ray(), 12)]
)
def test_time_left_by_what_works(
    works: Any, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four runs of ten seconds each: by the executor's number, or at the pace of the runs."""
    (tmp_path / "workers.json").write_text("[2, 1]")  # what a probe found
    study, screen, clock = tiny(), Terminal(), iter((0.0, 3.0))
    keys = [run.key for run in study.runs]
    now = Status(dict(zip(keys, ["done"] * 2 + ["missing"] * 4, strict=True)), [10.0, 10.0])
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with commands._live(study, works, tmp_path) as report:
        report(study.runs[0], "done", now)
    assert f"about {left} s left" in screen.getvalue()


def test_other_libraries_read_the_table(finished: Path) -> None:
    table = read_all(finished)
    assert isinstance(table, pa.Table)
    frame = table.to_pandas()
    mean = frame[frame.metric == "ece"].groupby("calibrator")["value"].mean()
    assert set(mean.index) == {"none", "TS"}
    assert np.isfinite(mean).all()
