"""Sound files of every kind that the commands read, and hostile copies of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fuzz_texts
from calibrant import MultiLabel, Predictions
from calibrant.data import Dataset
from calibrant.streaming import Monitor
from fuzz_damage import (
    HOSTILE_JSON,
    STUDY,
    damage,
    damage_json,
    damage_zip,
    json_text,
    random_array,
    random_table,
    special,
)

ENDINGS = ("npz", "parquet", "csv", "tsv", "jsonl", "json", "eval", "safetensors", "jsonl.gz")
PREDICTION_BOMBS = ("npz", "parquet", "jsonl.gz", "csv.gz", "json", "eval")
ARRAYS = [
    "logits",
    "probs",
    "labels",
    "confidence",
    "correct",
    "calibrant",
    "clusters",
    "weights",
    "group:x",
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
        for name in ("jsonl.gz", "csv.gz", "json", "eval"):
            self.bombs[name] = folder / f"bomb.{name}"
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
        rng = np.random.default_rng(0)
        z, y = rng.normal(size=(40, 3)).astype("f4"), rng.integers(0, 3, 40)
        sound = Predictions(logits=z, labels=y, classes=list("abc"), meta={"k": [1]})
        for ending in ("npz", "parquet", "csv", "safetensors"):
            sound.save(self.folder / f"p.{ending}")
        np.save(self.folder / "logits.npy", z)
        np.save(self.folder / "labels.npy", y)
        np.savez(
            self.folder / "map.npz",
            logits=rng.normal(size=(4, 3, 5, 4)).astype("f4"),
            labels=rng.integers(0, 3, (4, 5, 4)),
        )
        self._calibrators(sound, rng)
        monitor = Monitor(sound)
        monitor.update(sound)
        monitor.save(self.folder / "monitor.json")

    def _calibrators(self, sound: Predictions, rng: np.random.Generator) -> None:
        from calibrant.calibrators import CALIBRATORS, MultiLabelCalibrator, TrustScore

        inside = self.folder / "calibrators"
        inside.mkdir()
        for name, kind in CALIBRATORS.items():
            kind().fit(sound).save(inside / f"{name}.json")
        several = MultiLabel(probs=rng.random((40, 3)), labels=rng.random((40, 3)) < 0.5)
        several.save(self.folder / "several.npz")
        MultiLabelCalibrator().fit(several).save(inside / "several.json")
        features = rng.normal(size=(40, 2))
        TrustScore().fit(sound, features=features).save(inside / "trust.json")

    def _run(self) -> None:
        from calibrant.data import load
        from calibrant.train import get_recipe, train

        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60, 4)).astype("f4"), np.arange(60) % 3
        np.savez(self.folder / "d.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        images = rng.integers(0, 256, (60, 3, 8, 8)).astype("u1")
        arrays = {"x_train": images, "y_train": y, "x_test": images, "y_test": y}
        np.savez(self.folder / "images.npz", **arrays)
        recipe = get_recipe("quick", epochs=1, batch_size=32)
        train(load(self.folder / "d.npz"), model="mlp", recipe=recipe, out=self.folder / "run")
        self._features(load(self.folder / "images.npz"))

    def _features(self, images: Dataset) -> None:
        """A finished extraction, with the parts that are deleted at its end."""
        from calibrant.train import Backbone, write_features
        from calibrant.train._feature_files import _narrow

        out, network = self.folder / "features", Backbone("fuzz_cases:Tiny", size=16)
        write_features(images, network, out)
        for k, part in enumerate(("train", "test")):
            np.save(out / "parts" / f"images-{part}-{k}.npy", _narrow(network(images.x_test)))

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
        fuzz_texts.write_bombs(self.folder)
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
        head = b"\0\0\x08\x03" + np.array([1 << 21, 28, 28], ">u4").tobytes()
        found["gz"].write_bytes(gzip.compress(head) + fuzz_texts.packed(bytes(1 << 23), 96))


def hostile_predictions(base: Base, folder: Path, rng: random.Random) -> Path:
    """A file of predictions with something wrong."""
    if rng.random() < 0.4:
        return fuzz_texts.write_text(folder, rng)
    ending = rng.choice(["npz", "npz", "parquet", "parquet", "safetensors", "npy"])
    path = folder / f"q.{ending}"
    kind = rng.random()
    if kind < 0.06:
        return special(folder, f"q.{rng.choice(ENDINGS)}", rng)
    if kind < 0.08:
        return base.bombs[rng.choice(PREDICTION_BOMBS)]
    if ending == "npy":
        path = folder / "logits.npy"
        shutil.copy(base.folder / "labels.npy", folder)
        np.save(path, random_array(rng), allow_pickle=False)
        if kind < 0.5:
            path.write_bytes(damage((base.folder / "logits.npy").read_bytes(), rng))
        return path
    whole = "map.npz" if ending == "npz" and rng.random() < 0.2 else f"p.{ending}"
    sound = (base.folder / whole).read_bytes()
    if kind < 0.55 or ending == "safetensors":
        deep = ending == "npz" and rng.random() < 0.6
        path.write_bytes(damage_zip(sound, rng) if deep else damage(sound, rng))
    elif ending == "npz":
        names = rng.sample(ARRAYS, 2)
        names = ["logits", "labels"] if rng.random() < 0.6 else names
        np.savez(path, **{name: random_array(rng) for name in names}, allow_pickle=False)
    elif ending == "parquet":
        pq.write_table(random_table(rng), path)
    return path


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
