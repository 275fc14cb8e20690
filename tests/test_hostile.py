"""Study files, records, checkpoints and names that would do harm, through the commands."""

from __future__ import annotations

import gzip
import json
import os
import pty
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant import InputError, Predictions, calibrators, compare, measure
from calibrant._core import memory
from calibrant.data import load
from calibrant.data._digit_files import read_idx
from calibrant.models._registry import load_tensors
from calibrant.report import write_report
from calibrant.results import Store, read_all
from calibrant.results._files import COLUMNS
from calibrant.study import Study
from calibrant.study._validate import filled
from calibrant.train import Recipe, predict, train
from tests.command import call
from tests.conftest import draw

STUDY = 'data = "signals"\nmodels = "cnn1d"\nobjectives = "cross_entropy"\n'


def calibrant(*arguments: object, code: int = 2) -> str:
    """What the command prints; it must end with this exit code, without a traceback."""
    done = call(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


# --- studies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{data:>4000000000}",
        "{data!r}",
        "{data.__class__}",
        "{data[0]}",
        "{0}",
        "{}",
        "{data:}x{",
        "{data}" * 400,
    ],
)
def test_templates_take_plain_names(text: str) -> None:
    with pytest.raises(InputError, match=r"names in braces|close every brace|characters long"):
        filled("shifts", text, {"data": "signals"})
    config = {"data": "signals", "models": "cnn1d", "objectives": "brier", "shifts": [text]}
    with pytest.raises(InputError):
        Study.parse(config, training=False)


def test_what_is_put_into_a_template_has_a_limit() -> None:
    with pytest.raises(InputError, match="at most 1,000 characters"):
        filled("label", "{g}" * 300, {"g": "x" * 1001})
    assert filled("label", "{{g}} {g}", {"g": 3}) == "{g} 3"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('extends = ""', "must be another file"),
        ('extends = "."', "must be another file"),
        ('extends = ".."', "must be another file"),
        ('extends = "a/b.toml"', "must be another file"),
        ("extends = 3", "must be another file"),
        (f"seeds = {'9' * 5000}", "cannot be read as TOML"),
        (f"seeds = 0x{'f' * 5000}", "contains an invalid value"),
        (f"seeds = {'[' * 2000}", "cannot be read as TOML"),
        (f"{'a.' * 600}a = 1", "at most 500 dots"),
        (f"# {'x' * (1 << 18)}", "must be at most 262,144 bytes long"),
        ("# \udcff", "must be UTF-8"),
        ("recipe.epochs = 07:32:00", "got the time 07:32:00"),
        ("tune = [{when = 1979-05-27}]", "got the date 1979-05-27"),
    ],
)
def test_study_files_that_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(f"{STUDY}{lines}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message):
        Study.load(file, training=False)


def test_grids_have_a_limit_before_they_are_multiplied_out() -> None:
    many = list(range(1000))
    objective = {"objective": "focal:gamma={a}{b}{c}", "a": many, "b": many, "c": many}
    for objectives in (objective, ["brier"] * 1001):
        config = {"data": "signals", "models": "cnn1d", "objectives": objectives, "seeds": 100}
        with pytest.raises(InputError, match="at most 100,000 runs"):
            Study.parse(config, training=False)


def test_pipes_and_devices_as_study_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "out").mkdir()
    for file in (tmp_path / "pipe.toml", "/dev/zero"):
        said = calibrant("study", "status", file, "--out", tmp_path / "out")
        assert "must be a regular file" in said


# --- results -----------------------------------------------------------------------------------


def rows_of(study: Study, **changes: object) -> list[dict[str, object]]:
    run = study.runs[0]
    row = {
        "run": run.key,
        "data": run.data,
        "model": run.model,
        "objective": run.name,
        "seed": 0,
        "part": "test",
        "calibrator": "none",
        "metric": "ece",
        "value": 0.1,
    }
    return [{**row, **changes}]


def test_damaged_records_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    study, store = Study.load(tmp_path / "s.toml", training=False), Store(tmp_path / "out")
    key = study.runs[0].key
    for record in ("{}", "[]", '{"error": 3}', "[" * 100_000, "9" * 5000):
        store.fail(key, {"error": "x"})
        (tmp_path / "out" / "failed" / f"{key}.json").write_text(record)
        assert store.failure(key) is None
    facts: list[dict[str, object]] = [
        {"seconds": "x"},
        {"seconds": 10**400},
        {"evaluation": 3},
        {"evaluation": {"metrics": []}},
        {"evaluation": {"shift_files": 0.5}},
        {"evaluation": {"calibrators": {"a": 1}}},
    ]
    for found in facts:
        store.write(key, rows_of(study), found)
        assert store.facts(key) is None
    store.write(key, rows_of(study), {})
    assert store.facts(key) == {}
    said = calibrant("study", "status", tmp_path / "s.toml", "--out", tmp_path / "out", code=0)
    assert "1 missing" in said
    store.write(key, rows_of(study, objective=None), {})
    with pytest.raises(InputError, match="no finished runs, but 1 damaged file"):
        read_all(tmp_path / "out")


def test_pipes_in_the_place_of_records(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(STUDY)
    key = Study.load(tmp_path / "s.toml", training=False).runs[0].key
    for place in ("locks", "failed", "results"):
        out = tmp_path / place
        (out / place).mkdir(parents=True)
        name = {"locks": key, "failed": f"{key}.json", "results": f"{key}.parquet"}[place]
        os.mkfifo(out / place / name)
        said = calibrant(
            "study", "status", tmp_path / "s.toml", "--out", out, code=2 if place == "locks" else 0
        )
        assert ("a pipe" if place == "locks" else "1 missing") in said


def test_a_result_file_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "results").mkdir()
    count = 1 << 18
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), ["x" * 9999])
    table = pa.table(
        {name: text for name in COLUMNS if name not in ("seed", "value")}
        | {"seed": np.zeros(count, np.int64), "value": np.zeros(count)}
    )
    pq.write_table(table, tmp_path / "results" / "k.parquet")
    assert (tmp_path / "results" / "k.parquet").stat().st_size < 1e6
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 30)
    with pytest.raises(InputError, match="1 damaged file"):
        read_all(tmp_path)  # 17 GiB as strings


def test_statistics_that_do_not_fit_the_schema(tmp_path: Path) -> None:
    """PyArrow would end the process, without an exception."""
    path = tmp_path / "p.parquet"
    table = pa.table({"prob_0": [0.5, 0.2], "prob_1": [0.5, 0.8], "label": [0, 1]})
    pq.write_table(table, path)
    nullable, needed = (bytes([0x25, kind, 0x18, 5]) + b"label" for kind in (2, 0))
    sound = path.read_bytes()
    assert sound.count(nullable) == 1
    path.write_bytes(sound.replace(nullable, needed))
    for options in ((), ("--stream",)):
        assert "p.parquet cannot be read as parquet" in calibrant("measure", path, *options)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    said = calibrant("report", tmp_path / "a", "-o", tmp_path / "r.html")
    assert said.startswith("calibrant: ")


def test_a_report_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    for target in (tmp_path / "pipe.html", "/dev/null"):
        with pytest.raises(InputError, match="must be a regular file or a new name"):
            write_report({}, target)  # no models would be the next error


# --- weights and data --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    save_data(folder / "d.npz")
    recipe = Recipe(epochs=1, optimizer="adamw", learning_rate=0.001, batch_size=32)
    train(load(folder / "d.npz"), model="mlp", recipe=recipe, out=folder / "run")
    return folder


def save_data(path: Path, **changes: np.ndarray) -> None:
    x = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")
    y = np.arange(60) % 3
    np.savez(path, **{"x_train": x, "y_train": y, "x_test": x, "y_test": y, **changes})


def copy_run(run_folder: Path, folder: Path) -> Path:
    for file in (run_folder / "run").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {},
        [],
        {"data": 3},
        {"data_hash": None},
        {"split": 1},
        {"split": {}},
        {"split": {"calibration": 0, "x": 1}},
    ],
)
def test_settings_of_a_run_of_wrong_types(run_folder: Path, tmp_path: Path, settings) -> None:
    folder = copy_run(run_folder, tmp_path)
    sound = json.loads((folder / "run.json").read_text())
    found = {**sound, **settings} if settings else settings
    (folder / "run.json").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"must hold the settings of a run"):
        predict(folder, load(run_folder / "d.npz"))


@pytest.mark.parametrize("weights", [3, [], {}, {3: torch.zeros(2)}, {"model": {"x": 1}}])
def test_weights_of_wrong_types(run_folder: Path, tmp_path: Path, weights) -> None:
    folder = copy_run(run_folder, tmp_path)
    torch.save(weights, folder / "weights.pt")
    with pytest.raises(InputError, match=r"must be a file of tensors|must fit MLP"):
        predict(folder, load(run_folder / "d.npz"))


def damaged_checkpoint(sound: dict, name: str) -> object:
    facts = json.loads(sound["facts"])
    optimizer = sound["optimizer"]
    return {
        "a list": [],
        "no facts": {**sound, "facts": 3},
        "epoch": {**sound, "facts": json.dumps({**facts, "epoch": "x"})},
        "rows": {**sound, "facts": json.dumps({**facts, "rows": [3]})},
        "model": {**sound, "model": {"x": torch.zeros(1)}},
        "optimizer": {**sound, "optimizer": {}},
        "moments": {
            **sound,
            "optimizer": {
                **optimizer,
                "state": {
                    key: {**state, "exp_avg": torch.zeros(1, 7)}
                    for key, state in optimizer["state"].items()
                },
            },
        },
        "batch options": {**sound, "batch_options": {}},
        "learned": {**sound, "learned": torch.zeros(7)},
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "a list",
        "no facts",
        "epoch",
        "rows",
        "model",
        "optimizer",
        "moments",
        "batch options",
        "learned",
    ],
)
def test_checkpoints_of_wrong_types(run_folder: Path, tmp_path: Path, name: str) -> None:
    sound = torch.load(run_folder / "run" / "checkpoint.pt", weights_only=True)
    torch.save(damaged_checkpoint(sound, name), tmp_path / "checkpoint.pt")
    recipe = Recipe(epochs=1, optimizer="adamw", learning_rate=0.001, batch_size=32)
    with pytest.raises(InputError, match="Delete that file to start again"):
        train(load(run_folder / "d.npz"), model="mlp", recipe=recipe, out=tmp_path)


def test_weights_that_unpack_to_gigabytes(tmp_path: Path, monkeypatch) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data/0", bytes(50_000_000))
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000_000)
    with pytest.raises(InputError, match=r"w.pt needs 47.7 MiB of memory, but only 9.5 MiB are"):
        load_tensors(tmp_path / "w.pt", "path", "")


def test_an_idx_file_that_unpacks_to_gigabytes(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with gzip.open(path, "wb", 1) as stream:
        stream.write(b"\0\0\x08\x03" + np.array([60_000, 28, 28], ">u4").tobytes())
        stream.write(bytes(60_000 * 784))
    assert path.stat().st_size < 300_000
    monkeypatch.setattr(memory, "available_memory", lambda: 20_000_000)
    with pytest.raises(
        InputError, match=r"needs 89.7 MiB of memory, but only 19.1 MiB are available"
    ):
        read_idx(path)


def test_test_labels_that_no_training_sample_has(tmp_path: Path) -> None:
    save_data(tmp_path / "d.npz", y_test=np.arange(60) % 5)
    with pytest.raises(InputError, match=r"y_test must be of the 3 classes .* class 3, '3'"):
        train(load(tmp_path / "d.npz"), model="mlp")
    gap = np.arange(60) % 2 * 2
    save_data(tmp_path / "d.npz", y_train=gap, classes=np.array(["a", "b", "c"]))
    said = calibrant(
        "train",
        "--data",
        tmp_path / "d.npz",
        "--model",
        "mlp",
        "--recipe",
        "quick",
        "--out",
        tmp_path / "run",
    )
    assert "got test samples of class 1, 'b'" in said


def test_the_list_of_data_says_what_is_not_verified() -> None:
    lines = calibrant("data", "list", code=0).splitlines()
    checks = {"cifar10.2": "no checksum", "sst": "sha256", "cifar10.1": "sha256", "cifar10": "md5"}
    for name, check in checks.items():
        assert check in next(line for line in lines if line.startswith(f"{name} "))


def test_deeply_nested_calibrators(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 5000):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(InputError, match="is not a calibrator"):
            calibrators.load_calibrator(tmp_path / "c.json")


def test_intervals_that_memory_cannot_hold(monkeypatch) -> None:
    z, labels = draw(3000, 3)
    monkeypatch.setattr(memory, "available_memory", lambda: 2_000_000)
    with pytest.raises(
        InputError, match=r"Measuring 3,000 samples needs 2.0 MiB .*intervals=False"
    ):
        measure(Predictions(logits=z, labels=labels))
    measure(Predictions(logits=z, labels=labels), intervals=False)


# --- terminals ---------------------------------------------------------------------------------

EVIL = "a\x1b[31m\x07\x9b[b]\u202e"


def controls(text: str) -> set[str]:
    return {letter for letter in text if ord(letter) < 32 or 127 <= ord(letter) < 160} - {"\n"}


def test_names_of_files_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    z, labels = draw(40, 3)
    for name in (EVIL, "other"):
        Predictions(logits=z, labels=labels).save(tmp_path / f"{name}.npz")
    files = [tmp_path / f"{name}.npz" for name in (EVIL, "other")]
    for style in ([], ["--json"], ["--csv"]):
        said = calibrant("compare", *files, "--metrics", "ece", "--replicates", 20, *style, code=0)
        assert not controls(said)
        assert "\u202e" not in said
        assert "x1b[31m" in said or "u001b[31m" in said
    for wrong in (["measure", tmp_path / f"{EVIL}.csv"], ["predict", "x", EVIL, "--out", "y"]):
        assert not controls(calibrant(*wrong))


def test_labels_of_a_study_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    """On a terminal the table that fills is drawn by Rich, whose markup a label may not be."""
    label = json.dumps("[/b]\x1b]0;title\x07")
    objective = f'{{ objective = "cross_entropy", label = {label} }}'
    (tmp_path / "s.toml").write_text(STUDY.replace('"cross_entropy"', objective))
    study = Study.load(tmp_path / "s.toml", training=False)
    Store(tmp_path / "out").fail(study.runs[0].key, {"error": f"{EVIL}\nsecond line"})
    said = calibrant("study", "status", tmp_path / "s.toml", "--out", tmp_path / "out", code=0)
    assert not controls(said)
    assert "[/b]\\x1b]0;title\\x07" in said
    main, side = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "calibrant.cli",
        "study",
        "run",
        str(tmp_path / "s.toml"),
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, stdout=side, stderr=side, check=False, timeout=60)
    os.close(side)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert done.returncode == 1, shown  # the run failed before
    assert "Traceback" not in shown
    assert "\x1b]0;" not in shown


# --- many models -------------------------------------------------------------------------------


def test_many_models_make_a_matrix() -> None:
    models = {}
    for number in range(12):
        z, labels = draw(400, 4, seed=1)
        models[f"m{number}"] = Predictions(logits=z * (1 + number), labels=labels)
    found = compare(models, metrics=["accuracy", "nll"], replicates=100)
    text = str(found)
    lines = text.splitlines()
    assert len(lines) < 60
    best = min(found.values, key=lambda name: found.values[name]["nll"])
    row = next(line for line in lines if line.startswith(f"{best} "))
    assert row.endswith("*")
    told = {
        frozenset((d.first, d.second))
        for d in found.differences
        if d.metric == "nll" and d.adjusted < 0.05
    }
    assert f"NLL: {len(told)} of 66 pairs differ." in lines
    for name in models:
        row = next(line for line in lines if line.startswith(f"{name} "))
        alike = frozenset((name, best)) not in told
        assert row.endswith("=") == (alike and name != best)
    assert len(found.to_dict()["differences"]) == 132
    assert found._repr_html_().count("<tr>") < 60
    few = compare({k: models[k] for k in ("m0", "m1")}, metrics=["nll"], replicates=100)
    assert "m0 − m1" in str(few)


# --- texts and logs ----------------------------------------------------------------------------

QUESTION = {"target": 0, "resps": [[["-1.0", "False"]], [["-2.0", "False"]]]}
LONG_CELL = "1" * 200_000 + "x"


def written(folder: Path, name: str, rows: list[object]) -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("a.jsonl", [{"label": "\ud800", "logits": [1, 0]}], "surrogates not allowed"),
        ("a.jsonl", [{"label": 0, "logit_\ud800": 1, "logit_b": 0}], "surrogates not allowed"),
        ("a.jsonl", [{"label": 10**400, "logits": [1, 0]}], "got names without classes"),
        ("a.jsonl", [{"confidence": LONG_CELL, "correct": 1}], "must hold real numbers"),
        ("a.jsonl", [{LONG_CELL: 1}], "Not used: '111"),
        ("a.jsonl", [{"label": 0, "logits": [[]]}], "a.jsonl"),
        ("samples_a.jsonl", [{"doc_id": 0, "target": 0, "resps": 3}], "cannot be read as a log"),
        ("samples_a.jsonl", [{"doc_id": 0, "target": [], "resps": [[]]}], "without log-likeli"),
        ("a.json", [{"eval": 3, "samples": [3]}], "cannot be read as JSON"),
        ("a.json", [{"eval": {}, "samples": {"a": 1}}], "cannot be read as JSON"),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, name: str, rows: list[object], message: str) -> None:
    """In one line that fits on a terminal, and quickly."""
    said = calibrant("measure", written(tmp_path, name, rows))
    assert message in said
    assert len(said) < 5000
    assert said.count("\n") == 1


def test_a_field_in_each_row_is_no_table_of_all(tmp_path: Path) -> None:
    """20,000 rows of a field each would be 400 million cells."""
    rows: list[object] = [{"label": 0, f"logit_{k}": 1.0} for k in range(20_000)]
    said = calibrant("measure", written(tmp_path, "a.jsonl", rows))
    assert "logit_0 must hold a value in every row; got 19,999 missing values." in said


@pytest.mark.parametrize(
    ("count", "name"), [(5_000, "a.csv"), (300_000, "a.csv"), (30_000, "a.jsonl")]
)
def test_many_columns_take_no_quadratic_time(tmp_path: Path, count: int, name: str) -> None:
    """Comparing each with all others took minutes; so does Arrow for hundreds of thousands."""
    row: dict[str, object] = {**{f"logit_{k}": 0.5 for k in range(count)}, "label": 1}
    path = written(tmp_path, name, [row])
    if name == "a.csv":
        path.write_text("\n".join(",".join(map(str, line)) for line in (row, row.values())))
    if count == 5_000:
        assert "5,000 classes" in calibrant("measure", path, "--no-intervals", code=0)
    else:
        assert f"must have at most 25,000 columns; got {count + 1:,}." in calibrant("measure", path)


@pytest.mark.parametrize("kind", ["documents", "names", "metadata", "packed"])
def test_long_texts_among_short_ones_are_no_bomb(tmp_path: Path, kind: str, monkeypatch) -> None:
    """NumPy pads every string to the longest, and Python's objects are larger than their JSON."""
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 28)
    z, labels = np.zeros((4, 2)), np.zeros(4, dtype=np.int64)
    if kind == "documents":
        rows: list[object] = [{"doc_id": "d" * 10**6, **QUESTION}]
        path = written(tmp_path, "samples_a.jsonl", rows + [{"doc_id": 0, **QUESTION}] * 100)
    elif kind == "names":
        safetensors = pytest.importorskip("safetensors.numpy")
        path = tmp_path / "a.safetensors"
        names = json.dumps({"labels": ["n" * 10**6, *map(str, range(100))]})
        safetensors.save_file(
            {"logits": z, "labels": labels}, path, metadata={"calibrant.names": names}
        )
    elif kind == "metadata":
        path = tmp_path / "a.npz"
        header = b'{"classes": null, "meta": {"a": [' + b"[]," * (1 << 22) + b"0]}}"
        held = np.frombuffer(header, dtype=np.uint8)
        np.savez_compressed(path, logits=z, labels=labels, calibrant=held)
        assert path.stat().st_size < 20_000
    else:
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(b'{"label": 0, "logits": [1, 0]}\n' * (1 << 19), 1))
    assert "MiB of memory, but only 256.0 MiB are available" in calibrant("measure", path)


def test_unreadable_answers_are_quoted_in_short(tmp_path: Path) -> None:
    rows: list[object] = [{"confidence": "I will not say. " * 9999, "correct": 1}]
    path = written(tmp_path, "a.jsonl", rows + [{"confidence": 0.5, "correct": 1}] * 9)
    said = calibrant("measure", path, "--skip-unparsable", "--no-intervals", code=0)
    assert "1 of 10 answers could not be read and are left out: 'I will not say." in said
    assert len(said) < 5000


def test_a_log_whose_member_is_not_what_its_checksum_says(tmp_path: Path) -> None:
    """Python's module does not unpack zstd, so it does not compare that checksum either."""
    sample = json.dumps({"id": 1, "choices": ["x", "y"], "target": "A"}).encode()
    header, changed = b"{}", sample.replace(b'"A"', b'"B"')
    content = archive_with_zstd(
        {"header.json": (header, header), "samples/1.json": (changed, sample)}
    )
    (tmp_path / "a.eval").write_bytes(content)
    said = calibrant("measure", tmp_path / "a.eval")
    assert "a.eval holds another samples/1.json than its checksum says" in said


def archive_with_zstd(members: dict[str, tuple[bytes, bytes]]) -> bytes:
    """A zip file: the contents of each member, and the contents that its checksum is of."""
    body, index = b"", b""
    for name, (held, told) in members.items():
        packed = pa.compress(held, codec="zstd", asbytes=True)
        sizes = struct.pack("<LLLHH", zlib.crc32(told), len(packed), len(held), len(name), 0)
        fixed = struct.pack("<HHHHH", 63, 0, 93, 0, 33)
        entry = b"PK\x01\x02" + struct.pack("<H", 63) + fixed + sizes
        index += entry + struct.pack("<HHHLL", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + fixed + sizes + name.encode() + packed
    end = struct.pack("<HHHHLLH", 0, 0, len(members), len(members), len(index), len(body), 0)
    return body + index + b"PK\x05\x06" + end


@pytest.mark.parametrize("record", ["[]", "{}", '{"made": [], "files": {}}', '{"made": {}}'])
def test_damaged_lists_of_feature_files(tmp_path: Path, record: str) -> None:
    images = np.zeros((8, 3, 8, 8), dtype=np.uint8)
    save_data(tmp_path / "d.npz", x_train=images, x_test=images, y_train=Y, y_test=Y)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "features.json").write_text(record)
    line = ("data", "features", "--data", tmp_path / "d.npz", "--out", tmp_path / "out")
    said = calibrant(*line, "--backbone", "tests.test_backbones:Tiny", "--size", 8)
    assert "features.json must be a list of feature files. Delete the folder." in said


Y = np.arange(8) % 2


# --- everything --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hundred_hostile_inputs_through_every_command() -> None:
    """benchmarks/fuzz.py tries thousands."""
    script = Path(__file__).parents[1] / "benchmarks" / "fuzz.py"
    command = [sys.executable, str(script), "--count", "112", "--processes", "3", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "112 calls" in done.stdout
    assert "faults none" in done.stdout


@pytest.mark.parametrize("name", ["cifar10.2", "sst"])
def test_a_download_that_was_not_verified_is_named(name, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("calibrant.data.download", lambda name, folder: folder / name)
    said = calibrant("data", "get", name, "--data-dir", tmp_path, code=0)
    assert ("No checksum of cifar10.2 is known, so the files" in said) == (name == "cifar10.2")
