"""Files in, calibrated files out: the same as by hand, in bounded memory, all or nothing."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import InputError, Predictions, load_calibrator, measure
from calibrant._core.checks import CalibrationWarning, ConvergenceError
from calibrant._core.options import parse_options
from calibrant.calibrators import (
    CALIBRATORS,
    Calibrator,
    CrossFitted,
    HistogramBinning,
    TemperatureScaling,
    TrustScore,
    VectorScaling,
    automatic,
)
from calibrant.cli import _calibration, _calibration_source
from calibrant.cli._calibration import calibrate_files
from calibrant.cli._calibration_report import CalibrationReport
from calibrant.metrics import default_metrics
from calibrant.streaming import _parquet
from tests import test_readme
from tests.conftest import draw

JUDGED = default_metrics("calibrate")
CLASSES = ["a", "b", "c", "d", "e"]
PAGE = "docs/calibrate.md"


def made(num_samples: int, seed: int, **more: Any) -> Predictions:
    z, labels = draw(num_samples, 5, spread=3, temperature=2, seed=seed)
    return Predictions(logits=z, labels=labels, classes=CLASSES, meta={"network": "n"}, **more)


FIT, TEST = made(300, 1), made(500, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FIT.save(tmp_path / "fit.npz")
    TEST.save(tmp_path / "test.npz")
    return tmp_path


def save_shards(folder: Path, p: Predictions = TEST, *, labels: bool = True) -> Path:
    """Three shards with row groups of 64."""
    target = folder / "shards"
    target.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(p)), 3)):
        p.take(rows).save(target / f"{k}.parquet")
        table = pq.read_table(target / f"{k}.parquet")
        table = table if labels else table.drop_columns(["label"])
        pq.write_table(table, target / f"{k}.parquet", row_group_size=64)
    return target


def quick(folder: Path, **arguments: Any) -> CalibrationReport:
    """A run with few replicates, on fit.npz unless told otherwise."""
    start = {} if "load" in arguments else {"fit": folder / "fit.npz"}
    return calibrate_files(**{**start, "replicates": 20, **arguments})


def same(got: Predictions, want: Predictions) -> None:
    assert got.kind == want.kind
    assert got.scores.dtype == want.scores.dtype
    np.testing.assert_array_equal(got.scores, want.scores)
    np.testing.assert_array_equal(got.labels, want.labels)
    assert (got.classes, dict(got.meta)) == (want.classes, dict(want.meta))


# --- one file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv", "safetensors"])
def test_equals_doing_it_by_hand(folder: Path, ending: str) -> None:
    out = folder / f"out.{ending}"
    report = quick(folder, method="temperature", apply=[folder / "test.npz"], out=out)
    want = TemperatureScaling().fit(FIT).transform(TEST)
    got = Predictions.load(out)
    if ending == "csv":  # which does not say that the numbers are float32
        got = Predictions(
            logits=got.logits.astype("float32"),
            labels=got.labels,
            classes=got.classes,
            meta=got.meta,
        )
    same(got, want)
    options: Any = {"metrics": JUDGED, "replicates": 20}
    assert report.before is not None
    assert report.after is not None
    assert report.before.measured == measure(TEST, **options).measured
    assert report.after.measured == measure(want, **options).measured
    assert report.written == (str(out),)


@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_method(folder: Path, method: str) -> None:
    report = quick(folder, method=method, apply=[folder / "test.npz"], out=folder / "out.npz")
    got, want = Predictions.load(folder / "out.npz"), CALIBRATORS[method]().fit(FIT).transform(TEST)
    same(got, want)
    assert f"{report.calibrator!r}, fitted on 300 samples of fit.npz" in str(report)


def test_the_text(folder: Path) -> None:
    report = quick(
        folder, method="temperature", apply=[folder / "test.npz"], out=folder / "out.npz", level=0.9
    )
    lines = str(report).splitlines()
    temperature = TemperatureScaling().fit(FIT).temperature_
    assert lines[0].endswith(f": temperature = {temperature:.6g}")
    assert "500 samples, 5 classes, test.npz" in lines
    head = "metric before 90 % interval after 90 % interval"
    start = next(k for k, line in enumerate(lines) if " ".join(line.split()) == head)
    assert lines[start + 1].startswith("accuracy")
    assert " % " in lines[start + 1]
    assert lines[start + 2].startswith("NLL")
    assert "%" not in lines[start + 2]
    assert len(lines[start + 1 : lines.index("", start)]) == len(JUDGED)
    assert "parameters" in str(quick(folder, method="vector"))


@pytest.fixture(scope="module")
def auto(tmp_path_factory: pytest.TempPathFactory) -> CalibrationReport:
    folder = tmp_path_factory.mktemp("auto")
    FIT.save(folder / "fit.npz")
    return quick(folder)


def test_auto(auto: CalibrationReport) -> None:
    want = automatic(FIT)
    assert auto.selection is not None
    assert str(auto.selection) == str(want)
    assert str(auto).startswith(str(want))
    same(auto.calibrator.transform(TEST), want.calibrator.transform(TEST))
    assert "slightly optimistic" in str(auto)


def test_to_dict_is_json(folder: Path, auto: CalibrationReport) -> None:
    data = json.loads(json.dumps(auto.to_dict(), allow_nan=False))
    assert data["judged"] == "out of fold"
    assert {c["name"] for c in data["selection"]["candidates"]} >= {"none", "temperature"}
    assert set(data["after"]["metrics"]) == set(JUDGED)
    data = quick(folder, method="temperature").to_dict()
    assert set(data["learned"]) == {"temperature"}
    assert data["selection"] is None


def test_the_fit_data_are_judged_out_of_fold(folder: Path) -> None:
    report = quick(folder, method="histogram", seed=3)
    crossed = CrossFitted(HistogramBinning(), seed=3).fit(FIT)
    assert report.after is not None
    assert report.after["ece"] == measure(crossed.out_of_fold_, intervals=False)["ece"]
    flattering = measure(crossed.transform(FIT), intervals=False)
    assert report.after["ece"] > flattering["ece"]
    assert "looks better than it is" in str(report)
    assert "slightly optimistic" not in str(report)


def test_applying_to_the_data_of_the_fit_is_called_optimistic(folder: Path) -> None:
    out = folder / "out.npz"
    assert "optimistic" in str(quick(folder, method="beta", apply=[folder / "fit.npz"], out=out))
    assert "optimistic" not in str(
        quick(folder, method="beta", apply=[folder / "test.npz"], out=out)
    )


def test_saved_and_loaded(folder: Path) -> None:
    apply = [folder / "test.npz"]
    quick(folder, method="beta", apply=apply, out=folder / "a.npz", save=folder / "c.json")
    report = quick(folder, load=folder / "c.json", apply=apply, out=folder / "b.npz")
    same(Predictions.load(folder / "a.npz"), Predictions.load(folder / "b.npz"))
    assert "from c.json" in str(report)
    assert load_calibrator(folder / "c.json").num_classes_ == 5
    alone = quick(folder, load=folder / "c.json", save=folder / "d.json")
    assert alone.before is None
    again = load_calibrator(folder / "d.json")
    same(again.transform(TEST), Predictions.load(folder / "a.npz"))


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_onnx_runs(folder: Path, method: str) -> None:
    import onnxruntime

    quick(
        folder,
        method=method,
        onnx=folder / "c.onnx",
        apply=[folder / "test.npz"],
        out=folder / "out.npz",
    )
    session = onnxruntime.InferenceSession(folder / "c.onnx", providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"logits": TEST.logits})
    np.testing.assert_allclose(got, Predictions.load(folder / "out.npz").probs, atol=1e-5)


def test_options_and_seed(folder: Path) -> None:
    report = quick(folder, method="histogram", options={"bins": 4, "binning": "mass"})
    assert repr(report.calibrator) == "HistogramBinning(bins=4, binning='mass')"
    seeded = quick(folder, method="vector", seed=5).calibrator
    assert seeded.params() == VectorScaling(seed=5).params()
    fixed = quick(folder, method="temperature", options={"temperature": 1.5}).calibrator
    assert isinstance(fixed, TemperatureScaling)
    assert fixed.temperature_ == 1.5


def test_parse_options() -> None:
    texts = ["a=1", "b=0.5", "c=mass", "d=[1, 2]", "e=null", "f=", "g=x=y", 'h="1"', "i=true"]
    want = {
        "a": 1,
        "b": 0.5,
        "c": "mass",
        "d": [1, 2],
        "e": None,
        "f": "",
        "g": "x=y",
        "h": "1",
        "i": True,
    }
    assert parse_options(texts) == want
    for bad in (["bins"], ["=3"], ["a=1", "a=2"]):
        with pytest.raises(InputError, match="key=value"):
            parse_options(bad)


@pytest.mark.parametrize("ending", ["npz", "parquet", "npy", "csv"])
def test_data_without_labels(folder: Path, ending: str) -> None:
    path = folder / f"logits.{ending}"
    if ending == "npz":
        np.savez(path, logits=TEST.logits)
    elif ending == "npy":
        np.save(path, TEST.logits)
    else:
        TEST.save(path)
        table = pa.table({f"logit_{k}": TEST.logits[:, k] for k in range(5)})
        from pyarrow import csv

        (pq.write_table if ending == "parquet" else csv.write_csv)(table, path)
    report = quick(folder, method="temperature", apply=[path], out=folder / "out.npz")
    assert report.before is None
    assert "no labels" in str(report)
    with np.load(folder / "out.npz") as arrays:
        assert set(arrays.files) - {"calibrant"} == {"logits"}
        got = arrays["logits"]
    want = TemperatureScaling().fit(FIT).transform(TEST).logits
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_warnings_reach_the_caller(folder: Path) -> None:
    right = Predictions(logits=FIT.logits, labels=FIT.predicted)
    right.save(folder / "right.npz")
    with pytest.warns(CalibrationWarning, match="The temperature that minimises NLL"):
        calibrate_files(fit=folder / "right.npz", method="temperature", replicates=20)


# --- shards -----------------------------------------------------------------------------------


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batches of at most 50 rows; the sizes that reach ``transform``."""
    sizes: list[int] = []
    usual = Calibrator.transform

    def transform(self: Calibrator, p: Predictions, **options: Any) -> Predictions:
        sizes.append(len(p))
        return usual(self, p, **options)

    monkeypatch.setattr(_parquet, "LEAST_BATCH", 1)
    monkeypatch.setattr(_parquet, "BATCH_ELEMENTS", 50 * 6)
    monkeypatch.setattr("calibrant.io._parquet.ROW_GROUP_ELEMENTS", 120 * 6)
    monkeypatch.setattr(Calibrator, "transform", transform)
    return sizes


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("how", ["folder", "pattern", "files"])
def test_shards_equal_memory(folder: Path, small_batches: list[int], method: str, how: str) -> None:
    shards = save_shards(folder)
    apply = {
        "folder": [shards],
        "pattern": [shards / "*.parquet"],
        "files": sorted(shards.glob("*.parquet")),
    }[how]
    calls: list[tuple[str, int, int]] = []
    report = quick(
        folder,
        method=method,
        apply=apply,
        out=folder / "out.parquet",
        progress=lambda *call: calls.append(call),
    )
    assert max(small_batches) <= 50
    assert sum(small_batches) == 500
    want = CALIBRATORS[method]().fit(FIT).transform(TEST)
    same(Predictions.load(folder / "out.parquet"), want)
    assert calls[-1] == ("calibrating rows", 500, 500)
    assert report.before is not None
    assert report.after is not None
    for panel, p in ((report.before, TEST), (report.after, want)):
        exact = measure(p, metrics=JUDGED, intervals=False)
        for name in ("accuracy", "nll", "brier", "ece", "classwise_ece"):
            assert panel[name] == pytest.approx(exact[name], rel=1e-9)
        for name in ("adaptive_ece", "auroc"):
            assert panel[name] == pytest.approx(exact[name], abs=0.02)
    assert "No intervals" in str(report)
    assert "interval " not in str(report)


def test_shards_are_written_in_few_row_groups(folder: Path, small_batches: list[int]) -> None:
    quick(folder, method="temperature", apply=[save_shards(folder)], out=folder / "out.parquet")
    metadata = pq.read_metadata(folder / "out.parquet")
    sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
    assert sum(sizes) == 500
    assert max(sizes) < 120 + 50
    assert min(sizes[:-1]) >= 120


def test_the_order_of_shards_is_that_given(folder: Path) -> None:
    files = sorted(save_shards(folder).glob("*.parquet"))[::-1]
    quick(folder, method="temperature", apply=files, out=folder / "out.parquet")
    want = np.concatenate([Predictions.load(file).labels for file in files])
    np.testing.assert_array_equal(Predictions.load(folder / "out.parquet").labels, want)


def test_one_large_file_is_streamed(
    folder: Path, small_batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    TEST.save(folder / "test.parquet")
    arguments: Any = {"method": "beta", "apply": [folder / "test.parquet"]}
    whole = quick(folder, **arguments, out=folder / "a.parquet")
    assert "No intervals" not in str(whole)
    assert max(small_batches) == 500
    small_batches.clear()
    monkeypatch.setattr(_calibration_source, "SLAB_ELEMENTS", 100)
    assert "No intervals" in str(quick(folder, **arguments, out=folder / "b.parquet"))
    assert max(small_batches) <= 50
    same(Predictions.load(folder / "a.parquet"), Predictions.load(folder / "b.parquet"))
    with pytest.raises(InputError, match=r"out must end in \.parquet"):
        quick(folder, **arguments, out=folder / "b.npz")


def test_list_columns_are_read_in_small_batches(folder: Path, small_batches: list[int]) -> None:
    """A list column counts as many values as its lists hold."""
    table = pa.table({"label": TEST.labels, "logits": list(TEST.logits)})
    for k in range(2):
        pq.write_table(table, folder / f"{k}.parquet")
    quick(folder, method="temperature", apply=[folder / "?.parquet"], out=folder / "out.parquet")
    assert max(small_batches) <= 50
    want = TemperatureScaling().fit(FIT).transform(TEST).logits
    got = Predictions.load(folder / "out.parquet").logits
    np.testing.assert_array_equal(got, np.concatenate([want, want]))


def test_shards_of_probabilities_and_of_named_labels(folder: Path) -> None:
    names = np.array(CLASSES)[TEST.labels]
    for k in range(2):
        probs = {f"prob_{j}": column for j, column in enumerate(TEST.probs.T)}
        header = json.dumps({"classes": CLASSES, "meta": {"network": "n", "shard": k}})
        table = pa.table({"label": names, **probs}, metadata={"calibrant": header})
        pq.write_table(table, folder / f"{k}.parquet")
    quick(folder, method="temperature", apply=[folder / "?.parquet"], out=folder / "out.parquet")
    got = Predictions.load(folder / "out.parquet")
    np.testing.assert_array_equal(got.labels, np.tile(TEST.labels, 2))
    assert got.classes == tuple(CLASSES)
    assert dict(got.meta) == {"network": "n"}  # what the shards have in common


def test_shards_without_labels(folder: Path) -> None:
    shards = save_shards(folder, labels=False)
    report = quick(folder, method="temperature", apply=[shards], out=folder / "out.parquet")
    assert "no labels" in str(report)
    assert pq.read_schema(folder / "out.parquet").names == [f"logit_{k}" for k in range(5)]


def test_a_bad_row_is_named_with_its_shard(folder: Path, small_batches: list[int]) -> None:
    shards = save_shards(folder)
    table = pq.read_table(shards / "1.parquet")
    column = table["logit_2"].to_numpy().copy()
    column[70] = np.nan
    at = table.schema.get_field_index("logit_2")
    pq.write_table(table.set_column(at, "logit_2", pa.array(column)), shards / "1.parquet")
    with pytest.raises(InputError, match=r"1\.parquet, counted from row 50: .* NaN.* row 20"):
        quick(folder, method="temperature", apply=[shards], out=folder / "out.parquet")
    assert not (folder / "out.parquet").exists()


# --- all or nothing ---------------------------------------------------------------------------


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ("transform", KeyboardInterrupt),
        ("transform", OSError("no space left")),
        ("measuring", KeyboardInterrupt),
        ("onnx", MemoryError),
    ],
)
def test_an_interrupted_run_leaves_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_batches: list[int],
    broken: str,
    error: Any,
) -> None:
    shards = save_shards(folder)
    before = listing(folder)
    arguments: Any = {"method": "temperature", "save": folder / "c.json", "onnx": folder / "c.onnx"}
    if broken == "measuring":
        arguments |= {"apply": [folder / "test.npz"], "out": folder / "out.npz"}
    else:
        arguments |= {"apply": [shards], "out": folder / "out.parquet"}
    counted = Calibrator.transform

    def fail(self: Any, *given: Any, **options: Any) -> Any:
        if broken == "transform" and len(small_batches) < 7:  # row groups are written by then
            return counted(self, *given, **options)
        raise error

    name = {"transform": "transform", "onnx": "to_onnx"}.get(broken)
    monkeypatch.setattr(*((Calibrator, name, fail) if name else (_calibration, "measure", fail)))
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        quick(folder, **arguments)
    assert listing(folder) == before


def test_what_was_there_stays_if_a_run_fails(folder: Path) -> None:
    (folder / "c.json").write_text("mine")
    np.savez(folder / "bad.npz", logits=[[np.nan, 0.0]])
    with pytest.raises(InputError, match="NaN"):
        quick(
            folder,
            method="temperature",
            save=folder / "c.json",
            apply=[folder / "bad.npz"],
            out=folder / "out.npz",
        )
    assert (folder / "c.json").read_text() == "mine"
    quick(folder, method="temperature", save=folder / "c.json")
    assert load_calibrator(folder / "c.json").is_fitted


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({"fit": None}, "--fit or --load must be given; got neither"),
    "fit and load": ({"load": "c.json"}, "--load cannot be combined with --fit"),
    "load and method": (
        {"fit": None, "load": "c.json", "method": "beta"},
        "load cannot be combined",
    ),
    "load and option": ({"fit": None, "load": "c.json", "options": {"bins": 3}}, "load cannot be"),
    "near method": ({"method": "temprature"}, "Did you mean 'temperature'"),
    "near option": ({"method": "histogram", "options": {"bin": 3}}, "Did you mean 'bins'"),
    "no such option": ({"method": "ensemble_temperature", "options": {"a": 3}}, "It has none"),
    "option of auto": ({"options": {"bins": 3}}, "option belongs to a method"),
    "value": ({"method": "histogram", "options": {"bins": "x"}}, "bins must be a whole"),
    "pair": ({"method": "temperature", "options": {"bounds": 3}}, "bounds must be two increasing"),
    "triple": ({"method": "temperature", "options": {"bounds": [1, 2, 3]}}, "bounds must be two"),
    "text": ({"method": "isotonic", "options": {"floor": "x"}}, "floor must lie in"),
    "seed option": ({"method": "vector", "options": {"seed": -1}}, "seed must be a whole"),
    "seed": ({"seed": -1}, "seed must be a whole"),
    "level": ({"level": 1.0}, "level must lie"),
    "replicates": ({"replicates": 3}, "replicates must be"),
    "apply alone": ({"apply": ["test.npz"]}, "together; got only --apply"),
    "out alone": ({"out": "o.npz"}, "together; got only --out"),
    "absent fit": ({"fit": "absent.npz"}, "no such file"),
    "absent apply": ({"apply": ["absent.npz"], "out": "o.npz"}, "no such file"),
    "absent calibrator": ({"fit": None, "load": "absent.json"}, "no such file"),
    "empty pattern": ({"apply": ["x*.parquet"], "out": "o.parquet"}, "got no file for"),
    "empty folder": ({"apply": ["empty"], "out": "o.parquet"}, "got no file for"),
    "several npz": ({"apply": ["test.npz", "fit.npz"], "out": "o.parquet"}, "or Parquet files"),
    "pattern of npz": ({"apply": ["t*.npz"], "out": "o.parquet"}, "or Parquet files"),
    "ending": ({"apply": ["test.npz"], "out": "o.txt"}, "must end in"),
    "shards to npz": ({"apply": ["shards"], "out": "o.npz"}, r"out must end in \.parquet"),
    "save ending": ({"save": "c.npz"}, r"save must end in \.json"),
    "onnx ending": ({"onnx": "c.json"}, r"onnx must end in \.onnx"),
    "no folder": ({"save": "absent/c.json"}, "an existing folder"),
    "a folder": ({"save": "folder.json"}, "a regular file or a new name; got .*, a folder"),
    "out is fit": ({"apply": ["test.npz"], "out": "fit.npz"}, "must not be an input"),
    "out is apply": ({"apply": ["test.npz"], "out": "test.npz"}, "must not be an input"),
    "out is a link": ({"apply": ["test.npz"], "out": "link.npz"}, "must not be an input"),
    "out is a shard": ({"apply": ["shards"], "out": "shards/1.parquet"}, "must not be an input"),
    "save is load": ({"fit": None, "load": "c.json", "save": "./c.json"}, "must not be an input"),
    "confidences": (
        {"fit": "confidences.npz", "method": "vector"},
        "must hold the scores of all classes for VectorScaling; got confidences",
    ),
    "apply confidences": (
        {"method": "beta", "apply": ["confidences.npz"], "out": "o.npz"},
        "must be predictions or scores, like those of the fit; got confidences",
    ),
    "one sample": ({"fit": "one.npz"}, "at least two samples"),
    "no calibrator": ({"fit": None, "load": "bad.json"}, "is not a calibrator"),
    "features": ({"fit": None, "load": "trust.json", "save": "d.json"}, "must not need features"),
    "by groups": ({"fit": None, "load": "groups.json", "save": "d.json"}, "fitted with groups"),
    "other classes": ({"method": "beta", "apply": ["other.npz"], "out": "o.npz"}, "5 classes"),
    "unlike shards": ({"apply": ["*shard.parquet"], "out": "o.parquet"}, "got others in"),
}


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    FIT.save(folder / "fit.npz")
    TEST.save(folder / "test.npz")
    save_shards(folder)
    FIT.take([0]).save(folder / "one.npz")
    np.savez(folder / "confidences.npz", confidence=[0.5, 0.7], correct=[True, False])
    Predictions(logits=TEST.logits[:, :4], labels=TEST.labels % 4).save(folder / "other.npz")
    TEST.save(folder / "a-shard.parquet")
    Predictions(logits=TEST.logits, labels=TEST.labels).save(folder / "b-shard.parquet")
    for name in ("empty", "folder.json"):
        (folder / name).mkdir()
    (folder / "link.npz").symlink_to(folder / "test.npz")
    (folder / "bad.json").write_text("{")
    TemperatureScaling().fit(FIT).save(folder / "c.json")
    TrustScore().fit(FIT, features=FIT.logits).save(folder / "trust.json")
    halves = np.arange(len(FIT)) % 2
    TemperatureScaling().fit(FIT, groups=halves).save(folder / "groups.json")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input(bad_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments, message = BAD[name]
    monkeypatch.chdir(bad_folder)
    before = listing(bad_folder)
    with pytest.raises((InputError, FileNotFoundError), match=message) as caught:
        calibrate_files(**{"fit": "fit.npz", "replicates": 20, **arguments})
    assert "\n" not in str(caught.value)
    assert listing(bad_folder) == before


def test_a_fit_that_does_not_converge(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: Any) -> None:
        raise ConvergenceError("The fit stopped.")

    monkeypatch.setattr(TemperatureScaling, "_learn", diverge)
    with pytest.raises(ConvergenceError), warnings.catch_warnings():
        quick(folder, method="temperature", save=folder / "c.json")
    assert not (folder / "c.json").exists()


# --- the guide --------------------------------------------------------------------------------


def test_the_guide_names_every_method() -> None:
    assert PAGE in test_readme.PAGES  # where its blocks run
    text = (test_readme.ROOT / PAGE).read_text(encoding="utf-8")
    for name, kind in CALIBRATORS.items():
        assert re.search(rf"^\| `{name}` \|.*`{kind.__name__}`", text, flags=re.MULTILINE), name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (test_readme.ROOT / "docs" / target).exists(), target
