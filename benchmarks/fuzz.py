"""Hostile and damaged files through every command that reads one: no traceback, no hang, no bomb.

    python benchmarks/fuzz.py --count 6000 --processes 60

Each input is made from the seed and its number alone, so that a fault can be repeated:
``--first 1234 --count 1``. A worker process calls the command line with Typer's runner; it counts
as a fault if a call ends in anything but an exit code, takes over 10 s of the processor (or 60 s by
the clock), takes over 2 GiB, or prints a control character. The commands believe that 1 GiB is
available, so bombs must be refused by their size. A number of inputs is given to real processes
besides, with an address space of 4 GiB.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import io
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Of the processor, and by the clock where a call waits: other work may keep the processor busy.
SECONDS, WAITING = 10, 60
BYTES, AVAILABLE = 2 << 30, 1 << 30
STUDY = """\
data = "signals"
models = ["mlp"]
recipe = { name = "quick", epochs = 1 }
calibration = 0.5
seeds = 2
shifts = ["signals/3"]
calibrators = ["none", { name = "temperature", label = "TS" }]
metrics = ["ece", "nll", "accuracy"]
objectives = [{ objective = "focal:gamma={g}", label = "focal {g}", g = [1, 3] }]
"""
HOSTILE_TOML = [
    "9" * 5000,
    "0x" + "f" * 5000,
    "[" * 3000,
    "[" * 90 + "]" * 90,
    "nan",
    "-inf",
    "1e400",
    "-1",
    "0",
    "true",
    '""',
    '".."',
    '"."',
    '"/"',
    '"{data:>4000000000}"',
    '"{data.__class__}"',
    '"{data[0]}"',
    '"{"',
    '"{}"',
    '"{0}"',
    '"{data!r:>99999999}"',
    "1979-05-27",
    "{}",
    "[]",
    "[[]]",
    "[{}]",
    "{ name = 3 }",
    '{ name = "" }',
    '"\\u0000"',
    '"\\u001b[31m"',
    '"[/b]"',
    '"' + "x" * 20000 + '"',
    '"../../etc/passwd.npz"',
    "[" + "1, " * 3000 + "1]",
    '{ objective = "focal:gamma={a}{b}{c}", a = [%s], b = [%s], c = [%s] }' % (("1, " * 400,) * 3),
    "9223372036854775807",
    "9223372036854775808",
    "[nan]",
    "['a', 1, {}]",
    "07:32:00",
]
HOSTILE_JSON: list[Any] = [
    None,
    True,
    -1,
    0,
    10**4000,
    1e308,
    -1e308,
    "",
    "x" * 5000,
    "\x1b[31m",
    [],
    {},
    [[]],
    [{}],
    [None],
    {"a": 1},
    "nan",
    float("nan"),
    float("inf"),
    [1] * 2000,
    "\ud800",
    [[[[[[1]]]]]],
    {"calibrator": {}},
    {"number": "inf"},
    {"number": []},
    0.5,
    "temperature",
    2**63,
]
METHODS = ("temperature", "isotonic", "vector", "histogram")
DTYPES = [
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "i1",
    "u1",
    "i8",
    "u8",
    "?",
    "U5",
    "S3",
    "M8[s]",
    "V4",
    ">f4",
    ">i8",
    "m8[s]",
]
SHAPES = [
    (),
    (0,),
    (1,),
    (40,),
    (40, 1),
    (40, 3),
    (40, 2),
    (1, 3),
    (0, 3),
    (40, 0),
    (40, 3, 1),
    (2, 40, 3),
    (41, 3),
    (3, 40),
    (40, 300),
]


# As the result files hold their checksum.
MARK, BLANK = b"sha256 of this file with zeros here: ", b"0" * 64


class Base:
    """Sound files of every kind, made once, to damage copies of."""

    def __init__(self, folder: Path) -> None:
        from calibrant.papers import paper_at
        from calibrant.study import Study
        from calibrant.study._execute import described

        self.folder = folder
        self.bombs = {name: folder / f"bomb.{name}" for name in ("npz", "parquet", "gz", "result")}
        if not (folder / "ready").exists():
            folder.mkdir(parents=True)
            self._predictions()
            self._run()
            self._bombs()
            (folder / "s.toml").write_text(STUDY)
        self.study = Study.load(folder / "s.toml", training=False)
        self.rows = [
            {
                "data": run.data,
                "model": run.model,
                "objective": run.name,
                "seed": run.seed,
                "run": run.key,
                "part": part,
                "calibrator": c,
                "metric": m,
                "value": 0.1 + run.seed,
            }
            for run in self.study.runs
            for part in ("test", "signals/3")
            for c in ("none", "TS")
            for m in ("ece", "nll", "accuracy")
        ]
        self.described = described(self.study.evaluation)
        self.paper_key = paper_at("wang2021", "smoke").runs("main")[0].key
        if not (folder / "ready").exists():
            self._results()
            (folder / "ready").touch()

    def _predictions(self) -> None:
        from calibrant import Predictions
        from calibrant.calibrators import CALIBRATORS

        rng = np.random.default_rng(0)
        z, y = rng.normal(size=(40, 3)).astype("f4"), rng.integers(0, 3, 40)
        sound = Predictions(logits=z, labels=y, classes=list("abc"), meta={"k": [1]})
        for ending in ("npz", "parquet", "csv", "safetensors"):
            sound.save(self.folder / f"p.{ending}")
        np.save(self.folder / "logits.npy", z)
        np.save(self.folder / "labels.npy", y)
        for name in METHODS:
            CALIBRATORS[name]().fit(sound).save(self.folder / f"{name}.json")

    def _run(self) -> None:
        from calibrant.data import load
        from calibrant.train import get_recipe, train

        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60, 4)).astype("f4"), np.arange(60) % 3
        np.savez(self.folder / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        recipe = get_recipe("quick", epochs=1, batch_size=32)
        train(load(self.folder / "d.npz"), model="mlp", recipe=recipe, out=self.folder / "run")

    def _results(self) -> None:
        from calibrant.results import Store
        from calibrant.study._execute import described

        store = Store(self.folder / "out")
        *done, last = self.study.runs
        for run in done:
            rows = [row for row in self.rows if row["run"] == run.key]
            store.write(
                run.key, rows, {"evaluation": described(self.study.evaluation), "seconds": 1.0}
            )
        store.fail(last.key, {"run": "r", "error": "E: x", "traceback": "", "time": 0})

    def _bombs(self) -> None:
        """Small files that unpack to gigabytes."""
        found = self.bombs
        with zipfile.ZipFile(found["npz"], "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, shape in (("logits", (1 << 25, 10)), ("labels", (1 << 25,))):
                head = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}".encode()
                head += b" " * (117 - len(head)) + b"\n"
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    member.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
                    for _ in range(int(np.prod(shape)) >> 23):
                        member.write(bytes(1 << 23))
        column = pa.array(np.zeros(1 << 23))
        names = [*(f"logit_{k}" for k in range(10)), "label"]
        label = pa.array(np.zeros(1 << 23, np.int64))
        pq.write_table(pa.table([*[column] * 10, label], names), found["parquet"])
        text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 20, np.int32)), ["x" * 9999])
        columns = ("run", "data", "model", "objective", "part", "calibrator", "metric")
        codes = dict.fromkeys(columns, text)
        table = pa.table({**codes, "seed": label[: 1 << 20], "value": column[: 1 << 20]})
        metadata = {"calibrant": "{}", "checksum": MARK + BLANK}
        pq.write_table(table.replace_schema_metadata(metadata), found["result"])
        with gzip.open(found["gz"], "wb", 1) as stream:
            stream.write(b"\0\0\x08\x03" + np.array([1 << 21, 28, 28], ">u4").tobytes())
            for _ in range(96):
                stream.write(bytes(1 << 23))


# --- damage -----------------------------------------------------------------------------------


def damage(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, insert, repeat or blank out a few bytes."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at : at + rng.choice([1, 4, 100, len(found)])]
        elif kind == 2:
            found[at:at] = rng.randbytes(rng.choice([1, 4, 50]))
        elif kind == 3:
            found[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"])
        elif kind == 4:
            found[at:at] = found[at : at + rng.choice([8, 64])]
        else:
            found[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(found)


def damage_zip(data: bytes, rng: random.Random) -> bytes:
    """Damage the contents of one member, so that no checksum gives it away."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = rng.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, damage(content, rng) if name == chosen else content)
    return out.getvalue()


def damage_json(value: Any, rng: random.Random) -> Any:
    """Replace, delete or add something somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: damage_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], damage_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(HOSTILE_JSON)


def json_text(value: Any, rng: random.Random) -> bytes:
    sys.set_int_max_str_digits(0)
    text = json.dumps(value)
    sys.set_int_max_str_digits(4300)
    if rng.random() < 0.05:
        text = rng.choice(
            ["[" * 100_000, '{"a":' * 50_000, "9" * 5000, "", "null", '{"a":1,"a":2}']
        )
    return text.encode("utf-8", "surrogatepass")


def damaged_toml(rng: random.Random) -> str:
    lines = STUDY.splitlines()
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(lines))
        key = lines[at].split(" = ")[0]
        lines[at] = f"{key} = {rng.choice(HOSTILE_TOML)}"
    extra = [
        "",
        "",
        f"extends = {rng.choice(HOSTILE_TOML)}",
        'extends = "s.toml"',
        "é = 1",
        ".".join("a" * 300) + " = 1",
        f"tune = {rng.choice(HOSTILE_TOML)}",
        '[tune]\nobjective = "focal:gamma={g}"\ng = [1]',
        "\x00",
        "[[a]]",
        f"name = {rng.choice(HOSTILE_TOML)}",
        f"train_size = {rng.choice(HOSTILE_TOML)}",
        f"precision = {rng.choice(HOSTILE_TOML)}",
    ]
    return "\n".join([*lines, rng.choice(extra)])


def random_array(rng: random.Random) -> np.ndarray:
    dtype, shape = np.dtype(rng.choice(DTYPES)), rng.choice(SHAPES)
    size = int(np.prod(shape))
    if rng.random() < 0.5 and dtype.kind in "fiu":
        values = np.random.default_rng(rng.randrange(99)).normal(size=shape) * rng.choice([1, 1e30])
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num(values)).astype(dtype)
    raw = rng.randbytes(size * dtype.itemsize)
    if dtype.kind in "US":
        return np.full(shape, "a", dtype)
    return np.frombuffer(raw, dtype=dtype, count=size).reshape(shape)


def random_table(rng: random.Random) -> pa.Table:
    kinds: list[Callable[[], pa.Array]] = [
        lambda: pa.array(np.random.default_rng(1).normal(size=40)),
        lambda: pa.array(np.random.default_rng(1).normal(size=40).astype("f2")),
        lambda: pa.array([[1.0, 2.0, 0.5]] * 40),
        lambda: pa.array([[1.0]] * 39 + [[]]),
        lambda: pa.array([[[1.0]]] * 40),
        lambda: pa.array([0] * 40, pa.timestamp("s")),
        lambda: pa.array(["a", "b"] * 20).dictionary_encode(),
        lambda: pa.array(["a", "c"] * 20),
        lambda: pa.array([b"x"] * 40),
        lambda: pa.nulls(40),
        lambda: pa.array([1, 0] * 20),
        lambda: pa.array([True] * 40),
        lambda: pa.array([2**63] * 40, pa.uint64()),
        lambda: pa.array([{"a": 1}] * 40),
        lambda: pa.array([None, 1.0] * 20),
        lambda: pa.array([1] * 40, pa.decimal128(9)),
        lambda: pa.array([1] * 40, pa.date32()),
        lambda: pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([[1, 0, 2]] * 40, pa.list_(pa.int8(), 3)),
        lambda: pa.array([["a", "b"]] * 40),
        lambda: pa.array([1] * 40, pa.duration("s")),
    ]
    names = [
        "label",
        "labels",
        "logits",
        "probs",
        "logit_0",
        "logit_1",
        "logit_2",
        "prob_0",
        "prob_1",
        "confidence",
        "correct",
        "x",
        "",
        "logit_00",
        "logit_9999999",
    ]
    chosen = rng.sample(names, rng.randrange(1, 5))
    if rng.random() < 0.5:
        chosen = ["label", "logit_0", "logit_1"]
    columns = [rng.choice(kinds)() if rng.random() < 0.6 else kinds[0]() for _ in chosen]
    table = pa.table(columns, chosen)
    if rng.random() < 0.2:
        table = table.slice(0, 0)
    if rng.random() < 0.2:
        table = table.replace_schema_metadata({"calibrant": rng.choice(["[", "{}", "[" * 9999])})
    return table


# --- cases ------------------------------------------------------------------------------------


def hostile_predictions(base: Base, folder: Path, rng: random.Random) -> Path:
    """A file of predictions with something wrong."""
    ending = rng.choice(["npz", "npz", "parquet", "parquet", "csv", "safetensors", "npy"])
    path = folder / f"q.{ending}"
    kind = rng.random()
    if kind < 0.06:
        return special(folder, f"q.{ending}", rng)
    if kind < 0.08 and ending in base.bombs:
        return base.bombs[ending]
    if ending == "npy":
        path = folder / "logits.npy"
        shutil.copy(base.folder / "labels.npy", folder)
        np.save(path, random_array(rng), allow_pickle=False)
        if kind < 0.5:
            path.write_bytes(damage((base.folder / "logits.npy").read_bytes(), rng))
        return path
    sound = (base.folder / f"p.{ending}").read_bytes()
    if kind < 0.55:
        deep = ending == "npz" and rng.random() < 0.6
        path.write_bytes(damage_zip(sound, rng) if deep else damage(sound, rng))
    elif ending == "npz":
        names = rng.sample(["logits", "probs", "labels", "confidence", "correct", "calibrant"], 2)
        names = ["logits", "labels"] if rng.random() < 0.6 else names
        np.savez(path, **{name: random_array(rng) for name in names}, allow_pickle=False)
    elif ending == "parquet":
        pq.write_table(random_table(rng), path)
    else:
        text = rng.choice(
            [
                b"label,logit_0,logit_1\n",
                b"label,logit_\xff\n",
                b"confidence,correct\n",
                b"\xef\xbb\xbflabel,logit_0,logit_1\n",
                b"",
            ]
        )
        cells = [
            b"0",
            b"1",
            b"-1",
            b"1e400",
            b"nan",
            b"",
            b"x",
            b"\xff",
            b'"',
            b"2020-01-01",
            b"9" * 30,
            b"true",
            b"0x1",
        ]
        rows = b"\n".join(b",".join(rng.choices(cells, k=3)) for _ in range(5))
        path.write_bytes(text + rows)
    return path


def special(folder: Path, name: str, rng: random.Random) -> Path:
    """A pipe, a folder, links that lead nowhere, in a circle or to a device, an odd name."""
    path = folder / name
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        path.symlink_to("nowhere")
    else:
        path = folder / f"\x1b[31m[b]{name}"
        path.write_bytes(b"")
    return path


def case(number: int, seed: int, base: Base, folder: Path) -> list[str]:
    """The arguments of one call; its files are in ``folder``."""
    rng = random.Random(f"{seed}-{number}")
    kinds = [
        measure_case,
        measure_case,
        compare_case,
        calibrate_case,
        calibrate_case,
        json_case,
        json_case,
        report_case,
        predict_case,
        train_case,
        data_case,
        study_case,
        study_case,
        results_case,
        results_case,
        papers_case,
    ]
    return kinds[number % len(kinds)](base, folder, rng)


def measure_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = hostile_predictions(base, folder, rng)
    stream = ["--stream"] if path.suffix == ".parquet" and rng.random() < 0.5 else []
    few = [] if stream else ["--replicates", "20"]
    return ["measure", str(path), *stream, *few, *rng.choice([[], [], ["--json"], ["--csv"]])]


def compare_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = hostile_predictions(base, folder, rng)
    return ["compare", str(base.folder / "p.npz"), str(path), "--replicates", "20"]


def calibrate_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    bad, good = hostile_predictions(base, folder, rng), base.folder / "p.npz"
    fit, apply = (bad, good) if rng.random() < 0.5 else (good, bad)
    out = folder / rng.choice(["o.npz", "o.parquet", "o.csv"])
    if rng.random() < 0.1:
        out = special(folder, "o.npz", rng)
    method = rng.choice(METHODS)
    return [
        "calibrate",
        "--fit",
        str(fit),
        "--method",
        method,
        "--apply",
        str(apply),
        "--out",
        str(out),
        "--replicates",
        "20",
    ]


def json_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    name = rng.choice(METHODS)
    path = folder / "c.json"
    sound = (base.folder / f"{name}.json").read_bytes()
    if rng.random() < 0.05:
        path = special(folder, "c.json", rng)
    elif rng.random() < 0.3:
        path.write_bytes(damage(sound, rng))
    else:
        value = json.loads(sound)
        for _ in range(rng.choice([1, 1, 3])):
            value = damage_json(value, rng)
        path.write_bytes(json_text(value, rng))
    return [
        "calibrate",
        "--load",
        str(path),
        "--apply",
        str(base.folder / "p.npz"),
        "--out",
        str(folder / "o.npz"),
        "--replicates",
        "20",
    ]


def report_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = folder / "r.html"
    if rng.random() < 0.2:
        out = special(folder, "r.html", rng)
    path = hostile_predictions(base, folder, rng)
    if rng.random() < 0.5:
        path = hostile_results(base, folder, rng)
    return ["report", str(path), "-o", str(out)]


def predict_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    run = folder / "run"
    shutil.copytree(base.folder / "run", run)
    name = rng.choice(["run.json", "run.json", "weights.pt"])
    sound = (run / name).read_bytes()
    (run / name).unlink()
    if rng.random() < 0.08:
        special(run, name, rng)
    elif name == "run.json":
        value = damage_json(json.loads(sound), rng)
        (run / name).write_bytes(json_text(value, rng))
    else:
        (run / name).write_bytes(hostile_tensors(sound, rng))
    return [
        "predict",
        str(run),
        "--data",
        str(base.folder / "d.npz"),
        "--out",
        str(folder / "o.npz"),
    ]


def hostile_tensors(sound: bytes, rng: random.Random) -> bytes:
    import torch

    if rng.random() < 0.5:
        return damage_zip(sound, rng) if rng.random() < 0.5 else damage(sound, rng)
    odd = [
        {},
        [],
        3,
        None,
        {"a": 1},
        {3: torch.zeros(2)},
        {"model": 3},
        torch.zeros(3),
        {"state_dict": {"head.weight": torch.zeros(1)}},
        {"facts": "{}"},
        {"facts": 3},
        {"facts": '{"epoch": "x"}', "model": {}},
    ]
    out = io.BytesIO()
    torch.save(rng.choice(odd), out)
    return out.getvalue()


def train_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """A data file, or a checkpoint to go on from, with something wrong."""
    data, out = folder / "d.npz", folder / "run"
    shutil.copy(base.folder / "d.npz", data)
    kind = rng.random()
    if kind < 0.35:
        out.mkdir()
        sound = (base.folder / "run" / "checkpoint.pt").read_bytes()
        (out / "checkpoint.pt").write_bytes(hostile_tensors(sound, rng))
    elif kind < 0.4:
        data.unlink()
        data = special(folder, "d.npz", rng)
    elif kind < 0.7:
        sound = data.read_bytes()
        data.write_bytes(damage_zip(sound, rng) if rng.random() < 0.7 else damage(sound, rng))
    else:
        with np.load(base.folder / "d.npz") as file:
            arrays = dict(file)
        arrays[rng.choice([*arrays, "classes"])] = random_array(rng)
        np.savez(data, **arrays, allow_pickle=False)
    return [
        "train",
        "--data",
        str(data),
        "--out",
        str(out),
        "--model",
        "mlp",
        "--recipe",
        "quick",
        "--epochs",
        "1",
        "--option",
        "batch_size=32",
    ]


def data_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    """MNIST's files with something wrong."""
    inside = folder / "mnist"
    inside.mkdir()
    images = b"\0\0\x08\x03" + np.array([30, 28, 28], ">u4").tobytes() + bytes(30 * 784)
    labels = b"\0\0\x08\x01" + np.array([30], ">u4").tobytes() + bytes(range(10)) * 3
    files = {
        "train-images-idx3-ubyte": images,
        "train-labels-idx1-ubyte": labels,
        "t10k-images-idx3-ubyte": images,
        "t10k-labels-idx1-ubyte": labels,
    }
    chosen = rng.choice(list(files))
    for name, content in files.items():
        packed = gzip.compress(damage(content, rng) if name == chosen else content)
        (inside / f"{name}.gz").write_bytes(damage(packed, rng) if rng.random() < 0.1 else packed)
    if rng.random() < 0.1:
        (inside / "train-images-idx3-ubyte.gz").unlink()
        shutil.copy(base.bombs["gz"], inside / "train-images-idx3-ubyte.gz")
    return [
        "train",
        "--data",
        "mnist",
        "--data-dir",
        str(folder),
        "--out",
        str(folder / "run"),
        "--model",
        "mlp",
        "--recipe",
        "quick",
        "--epochs",
        "1",
    ]


def study_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    path = folder / "s.toml"
    if rng.random() < 0.06:
        path = special(folder, "s.toml", rng)
    elif rng.random() < 0.2:
        path.write_bytes(damage(STUDY.encode(), rng))
    else:
        path.write_text(damaged_toml(rng), encoding="utf-8")
    command = rng.choice([["study", "run"], ["study", "status"], ["select"], ["study", "tune"]])
    out = folder / "out"
    shutil.copytree(base.folder / "out", out)
    return [*command, str(path), "--out", str(out)]


def hostile_results(base: Base, folder: Path, rng: random.Random) -> Path:
    """A folder of results with something wrong."""
    out = folder / "out"
    shutil.copytree(base.folder / "out", out)
    keys = [run.key for run in base.study.runs]
    result = out / "results" / f"{rng.choice(keys[:3])}.parquet"
    place = rng.choice(["result", "result", "failed", "lock", "workers", "results"])
    if place == "results":
        shutil.rmtree(out / "results")
        special(out, "results", rng)
    elif place == "failed":
        path = out / "failed" / f"{keys[3]}.json"
        if rng.random() < 0.2:
            path.unlink()
            special(path.parent, path.name, rng)
        else:
            record = damage_json(json.loads(path.read_text()), rng)
            path.write_bytes(json_text(record, rng))
    elif place == "lock":
        (out / "locks").mkdir()
        special(out / "locks", keys[3], rng)
    elif place == "workers":
        (out / "workers.json").write_bytes(json_text(rng.choice(HOSTILE_JSON), rng))
    else:
        sound = result.read_bytes()
        result.unlink()
        hostile_result(base, result, sound, rng)
    return out


def hostile_result(base: Base, path: Path, sound: bytes, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.1:
        special(path.parent, path.name, rng)
    elif kind < 0.13:
        path.write_bytes(sealed(base.bombs["result"].read_bytes()))
    elif kind < 0.5:
        damaged = damage(sound, rng)
        path.write_bytes(sealed(damaged) if rng.random() < 0.8 else damaged)
    else:
        rows = [dict(rng.choice(base.rows)) for _ in range(rng.choice([0, 1, 6, 12]))]
        for row in rows:
            row[rng.choice(list(row))] = rng.choice([None, "\x1b[31m", "[/b]", "", "x" * 3000])
            row["seed"], row["value"] = rng.choice([0, -1, 2**62]), rng.choice([0.1, float("nan")])
        table = pa.Table.from_pylist(rows) if rows else random_table(rng)
        facts = json_text(damage_json({"evaluation": base.described, "seconds": 1.0}, rng), rng)
        metadata = {"calibrant": facts, "checksum": MARK + BLANK}
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(metadata), sink)
        path.write_bytes(sealed(sink.getvalue().to_pybytes()))


def sealed(content: bytes) -> bytes:
    """A file whose checksum is right, so that what else is wrong with it is reached."""
    before, mark, rest = content.rpartition(MARK)
    after = rest[len(BLANK) :]
    digest = hashlib.sha256(before + mark + BLANK + after).hexdigest().encode()
    return before + mark + digest + after if mark else content


def results_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = str(hostile_results(base, folder, rng))
    file = str(base.folder / "s.toml")
    commands = [
        ["study", "table", out],
        ["study", "status", file, "--out", out],
        ["study", "run", file, "--out", out],
        ["select", file, "--out", out],
        ["report", out, "-o", str(folder / "r.html")],
        ["report", out, "--study", file, "-o", str(folder / "r.html")],
    ]
    return rng.choice(commands)


def papers_case(base: Base, folder: Path, rng: random.Random) -> list[str]:
    out = hostile_results(base, folder, rng)
    inside = out / "results"
    if inside.is_dir():
        sound = next(iter((base.folder / "out" / "results").iterdir())).read_bytes()
        hostile_result(base, inside / f"{base.paper_key}.parquet", sound, rng)
    scale = [] if rng.random() < 0.5 else ["--scale", "smoke"]
    if rng.random() < 0.7:  # the claims take seconds of arithmetic, whatever the files hold
        return ["study", "table", str(out), "--metric", rng.choice(["ece", "nll", "x"])]
    return ["papers", "claims", "--results", str(out), *scale]


# --- running ----------------------------------------------------------------------------------


class HangError(BaseException):
    """A call took too long. Not an Exception, so that nobody catches it on the way."""


def work(first: int, count: int, seed: int, place: Path) -> None:
    """Call the command line; print a line before and after each call."""
    import typer.testing

    from calibrant._core import memory
    from calibrant.cli import app
    from calibrant.study import Local

    def stop(*_: object) -> None:
        raise HangError

    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Base(place)
        memory.available_memory = lambda: AVAILABLE
        Local.work = lambda *_: (run for run in ())  # type: ignore[method-assign, assignment]
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, stop)
        for module in ("calibrant.train", "scipy.optimize", "scipy.stats", "plotly.offline"):
            importlib.import_module(module)  # seconds that no input is to blame for
        runner = typer.testing.CliRunner()
        for number in range(first, first + count):
            folder = Path(name, "case")
            folder.mkdir()
            arguments = case(number, seed, base, folder)
            print(json.dumps({"begin": number, "arguments": arguments}), flush=True)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(WAITING)
            start = time.process_time()
            try:
                result = runner.invoke(app, arguments)
                said, code, error = result.output, result.exit_code, result.exception
            except HangError as hang:
                said, code, error = "", None, hang
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            seconds = time.process_time() - start
            shutil.rmtree(folder)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            fault = "memory" if peak > BYTES else fault_of(error, said, code)
            print(
                json.dumps(
                    {
                        "number": number,
                        "fault": fault,
                        "exit": code,
                        "peak": peak,
                        "seconds": seconds,
                        "said": said[-200:],
                    }
                ),
                flush=True,
            )
            if peak > BYTES:
                return  # its peak would be blamed on the next


def fault_of(error: BaseException | None, said: str, code: int | None) -> str:
    if isinstance(error, HangError):
        return "hang"
    if error is not None and not isinstance(error, SystemExit):
        last = error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        place = f"{Path(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"
        return f"traceback: {type(error).__name__}: {str(error)[:100]} ({place})"
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in said):
        return "control character"
    return "" if code in (0, 1, 2) else f"exit {code}"


def drive(first: int, count: int, seed: int, place: Path) -> list[dict[str, Any]]:
    """Run inputs in worker processes; one that dies or hangs is replaced."""
    done: list[dict[str, Any]] = []
    following, end = first, first + count
    while following < end:
        command = [
            sys.executable,
            __file__,
            "--worker",
            str(following),
            str(end - following),
            "--seed",
            str(seed),
            "--base",
            str(place),
        ]
        before = len(done)
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
        begun: dict[str, Any] = {}
        assert worker.stdout is not None
        while True:
            ready, _, _ = select.select(
                [worker.stdout], [], [], 2 * WAITING if begun else 10 * WAITING
            )
            line = worker.stdout.readline() if ready else b""
            if not line:
                break
            record = json.loads(line)
            if "begin" in record:
                begun = record
                continue
            done.append({**begun, **record})
            following, begun = record["number"] + 1, {}
            show(done[-1])
        worker.kill()
        worker.wait()
        if following < end and begun:
            done.append(
                {
                    **begun,
                    "number": begun["begin"],
                    "seconds": 0,
                    "peak": 0,
                    "exit": None,
                    "fault": f"process ended: {worker.returncode}",
                }
            )
            show(done[-1])
            following = begun["begin"] + 1
        elif following < end and len(done) == before:
            raise RuntimeError("the worker does not start")
    return done


def in_processes(numbers: range, seed: int, place: Path) -> list[dict[str, Any]]:
    """Give inputs to the real command in an address space of 4 GiB."""
    done = []
    limit = 4 << 30
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Base(place)
        for number in numbers:
            folder = Path(name, "case")
            folder.mkdir()
            arguments = case(number, seed, base, folder)
            start = time.perf_counter()
            try:
                found = subprocess.run(
                    [sys.executable, "-m", "calibrant.cli", *arguments],
                    capture_output=True,
                    check=False,
                    timeout=WAITING,
                    env=environment(),
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
                )
                text, code = found.stdout + found.stderr, found.returncode
                fault = "traceback: " + text[-300:].decode() if b"Traceback" in text else ""
                fault = fault or ("" if code in (0, 1, 2) else f"exit {code}")
            except subprocess.TimeoutExpired:
                fault, code = "hang", None
            shutil.rmtree(folder)
            done.append(
                {
                    "number": number,
                    "arguments": arguments,
                    "fault": fault,
                    "exit": code,
                    "seconds": time.perf_counter() - start,
                    "peak": 0,
                }
            )
            show(done[-1])
    return done


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def show(record: dict[str, Any]) -> None:
    if record["fault"]:
        print(record["number"], " ".join(record["arguments"][:2]), record["fault"], flush=True)


def counts_of(records: list[dict[str, Any]]) -> str:
    faults = Counter(record["fault"].partition(":")[0] for record in records if record["fault"])
    exits = Counter(record["exit"] for record in records)
    slowest = max((record["seconds"] for record in records), default=0)
    peak = max((record["peak"] for record in records), default=0)
    return (
        f"{len(records):,} calls: exit codes {dict(sorted(exits.items(), key=str))}; "
        f"faults {dict(faults) or 'none'}; slowest {slowest:.1f} s; peak {peak / (1 << 30):.2f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, nargs=2, metavar=("FIRST", "COUNT"))
    parser.add_argument("--base", type=Path, help="folder of the sound files; made if missing")
    options = parser.parse_args()
    if options.worker:
        work(*options.worker, options.seed, options.base)
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        sys.exit(run(options, options.base or Path(name, "base")))


def run(options: argparse.Namespace, place: Path) -> bool:
    records = drive(options.first, options.count, options.seed, place)
    print("in one process:", counts_of(records))
    if options.processes:
        step = max(1, options.count // options.processes) | 1
        more = in_processes(range(0, step * options.processes, step), options.seed + 1, place)
        print("in processes of their own:", counts_of(more))
        records += more
    return any(record["fault"] for record in records)


if __name__ == "__main__":
    main()
