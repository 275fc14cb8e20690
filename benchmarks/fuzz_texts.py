"""Hostile text files of predictions: CSV with any columns, JSON lines, logs of evaluations."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz_damage import HOSTILE_JSON, damage, damage_json, damage_zip, json_text

Row = dict[str, Any]
ROWS = 24
ZSTD = 93
# How the file is to be read; most of it does not fit most files.
OPTIONS = [
    ["--percent"],
    ["--renormalise"],
    ["--strict"],
    ["--skip-unparsable"],
    ["--label-column", "y"],
    ["--label-column", "doc.label"],
    ["--prob-columns", "prob_*"],
    ["--prob-columns", "p1"],
    ["--logit-columns", "logit_*,x"],
    ["--confidence-column", "metadata.confidence"],
    ["--confidence-column", "confidence", "--correct-column", "x"],
    ["--cluster-column", "x"],
    ["--group-column", "x", "--by", "x"],
    ["--by", "task"],
    ["--classes", "a,b,c"],
    ["--classes", ","],
    ["--separator", ";"],
    ["--separator", ";", "--decimal", ","],
    ["--separator", "\\t"],
    ["--separator", "é"],
    ["--normalise", "byte"],
    ["--normalise", "token"],
    ["--scorer", "choice"],
    ["--positive", "1", "--threshold", "0.3", "--costs", "5,1"],
    ["--top-label"],
    ["--i-mean-it"],
]
CELLS = [
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "85",
    "85%",
    "1e400",
    "nan",
    "x",
    "true",
    "no",
    "yes",
    "C",
    "I",
    "0,5",
    "2020-01-01",
    "0x1",
    "é",
    "\x1b[31m",
    "[/b]",
]
CELLS += ["", '"', "9" * 30, "1" * 200_000 + "x", "a" * 5000, " ", "\x00", "\ud800"]
NAMES = [
    "label",
    "labels",
    "y",
    "x",
    "id",
    "confidence",
    "correct",
    "clusters",
    "weights",
    "group:x",
    "group:",
    "task",
    "logits",
    "probs",
    "logit_0",
    "logit_1",
    "logit_2",
    "logit_00",
    "logit_9999999",
    "logit_a",
    "logit_b",
    "prob_0",
    "prob_1",
    "prob_cat",
    "p1",
]


def options(rng: random.Random) -> list[str]:
    """How to read a file, at random."""
    if rng.random() < 0.5:
        return []
    return [part for choice in rng.sample(OPTIONS, rng.choice([1, 1, 2])) for part in choice]


def write_text(folder: Path, rng: random.Random) -> Path:
    """A text file of predictions, damaged, and packed in some cases."""
    makers: dict[str, Callable[[random.Random], bytes]] = {
        "csv": table,
        "tsv": table,
        "jsonl": lambda rng: lines(rng, plain_rows(rng)),
        "samples_arc_easy_2026-11-16T00-00-00.000000.jsonl": lambda rng: lines(rng, lm_eval_rows()),
        "json": json_log,
        "eval": eval_log,
    }
    name = rng.choice(list(makers))
    content = makers[name](rng)
    if rng.random() < 0.25:
        content = damage(content, rng)
    path = folder / (name if "." in name else f"q.{name}")
    if name != "eval" and rng.random() < 0.15:
        packed = gzip.compress(content, 1)
        path = path.with_name(f"{path.name}.gz")
        content = damage(packed, rng) if rng.random() < 0.3 else packed
    path.write_bytes(content)
    return path


def table(rng: random.Random) -> bytes:
    """Columns with odd names, cells with odd values."""
    sign = rng.choice(",,,;\t|")
    if rng.random() < 0.05:
        count = rng.choice([5_000, 200_000])
        names = [f"logit_{k}" for k in range(count)]
        return f"{sign.join(names)}{sign}label\n{sign.join(['1'] * (count + 1))}\n".encode()
    names = rng.sample(NAMES, rng.randrange(1, 6))
    if rng.random() < 0.6:
        names = rng.choice([["label", "logit_0", "logit_1"], ["confidence", "correct"]])
    if rng.random() < 0.1:
        names[0] = rng.choice(CELLS)
    sound = rng.random() < 0.4
    cells = ["0", "1", "0.5"] if sound else CELLS
    rows = [[rng.choice(cells) for _ in names] for _ in range(ROWS)]
    head = rng.choice(["", "", "", '# calibrant {"classes": ["a"], "meta": {}}\n', "\ufeff"])
    text = head + "\n".join(sign.join(row) for row in [names, *rows])
    return text.encode("utf-8", "surrogatepass")


def plain_rows(rng: random.Random) -> list[Row]:
    """One object per sample, in one of the ways that people write them."""
    kinds: list[Callable[[int], Row]] = [
        lambda k: {"label": k % 3, "logits": [0.5, 1.0, k / 9]},
        lambda k: {"label": k % 2, "probs": [0.25, 0.75]},
        lambda k: {"label": k % 2, "logits": [1.0] * (2 + k % 3)},
        lambda k: {"doc": {"label": k % 2}, "prob_0": 0.5, "prob_1": 0.5, "x": f"g{k % 4}"},
        lambda k: {"confidence": k / ROWS, "correct": k % 2 == 0, "x": "yes"},
        lambda k: {"confidence": f"{k} %", "correct": "yes", "metadata": {"confidence": 0.5}},
        lambda k: {"label": 0, f"logit_{k}": 1.0},
        lambda k: {"y": "cat", "prob_cat": 0.5, "prob_dog": 0.5, "clusters": k // 3},
    ]
    kind = rng.choice(kinds)
    return [kind(k) for k in range(ROWS)]


def lm_eval_rows() -> list[Row]:
    """Samples as lm-evaluation-harness logs them."""
    return [
        {
            "doc_id": k,
            "doc": {"num_tokens": [1, 2, 3]},
            "target": rng_target,
            "arguments": [["question", " a"], ["question", " b"], ["question", " c d"]],
            "resps": [[["-1.5", "False"]], [["-2.5", "False"]], [["-0.5", "True"]]],
            "filtered_resps": [["-1.5", "False"], ["-2.5", "False"], ["-0.5", "True"]],
        }
        for k, rng_target in enumerate([0, "1", "c d"] * (ROWS // 3))
    ]


def inspect_samples() -> list[Row]:
    """Samples as Inspect logs them."""
    tops = [{"token": letter, "logprob": -1.0 - k} for k, letter in enumerate("ABC")]
    return [
        {
            "id": k,
            "choices": ["x", "y", "z"],
            "target": "ABC"[k % 3],
            "output": {
                "choices": [{"logprobs": {"content": [{"token": "A", "top_logprobs": tops}]}}]
            },
            "scores": {"choice": {"value": "CI"[k % 2]}},
            "metadata": {"confidence": 0.7},
        }
        for k in range(ROWS)
    ]


def lines(rng: random.Random, rows: list[Row]) -> bytes:
    """Rows as JSON lines, one of them with something wrong."""
    found = [json_text(row, rng) for row in _spoilt(rows, rng)]
    return rng.choice([b"\n", b"\n", b"\r\n", b""]).join(found)


def _spoilt(rows: list[Row], rng: random.Random) -> list[Any]:
    kind = rng.random()
    if kind < 0.2:
        return rows
    if kind < 0.35:  # the same field everywhere
        name, value = rng.choice([*rows[0], *NAMES]), rng.choice(HOSTILE_JSON)
        return [{**row, name: value} for row in rows]
    at = rng.randrange(len(rows))
    return [*rows[:at], damage_json(rows[at], rng), *rows[at + 1 :]]


def json_log(rng: random.Random) -> bytes:
    """An Inspect log as one JSON file, or a list of objects."""
    if rng.random() < 0.4:
        return json_text(_spoilt(plain_rows(rng), rng), rng)
    log: Any = {"version": 2, "eval": {"task": "t"}, "samples": _spoilt(inspect_samples(), rng)}
    return json_text(damage_json(log, rng) if rng.random() < 0.3 else log, rng)


def eval_log(rng: random.Random) -> bytes:
    """An Inspect log as an archive with one file per sample."""
    header: Any = {"version": 2, "eval": {"task": "t"}}
    if rng.random() < 0.2:
        header = damage_json(header, rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if rng.random() < 0.95:
            archive.writestr("header.json", json_text(header, rng))
        for k, sample in enumerate(_spoilt(inspect_samples(), rng)):
            archive.writestr(f"samples/{k}_epoch_1.json", json_text(sample, rng))
    content = out.getvalue()
    if rng.random() < 0.3:
        content = damage_zip(content, rng)
    if rng.random() < 0.2:  # said to be compressed with zstd, which it is not
        for mark, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
            content = _with_method(content, mark, at)
    return content


def _with_method(content: bytes, mark: bytes, at: int) -> bytes:
    found, start = bytearray(content), content.find(mark)
    while start >= 0:
        found[start + at : start + at + 2] = ZSTD.to_bytes(2, "little")
        start = content.find(mark, start + 4)
    return bytes(found)


def packed(content: bytes, times: int) -> bytes:
    """Content repeated many times, compressed once: a gzip file may have several parts."""
    return gzip.compress(content, 1) * times


def write_bombs(folder: Path) -> dict[str, Path]:
    """Small text files that unpack to gigabytes."""
    deep = {name: folder / f"bomb.{name}" for name in ("jsonl.gz", "csv.gz", "json", "eval")}
    many = b'{"label": 0, "logits": [1, 0]}\n' * (1 << 19)
    deep["jsonl.gz"].write_bytes(packed(many, 64))
    many = b"0,1,0\n" * (1 << 20)
    deep["csv.gz"].write_bytes(gzip.compress(b"label,logit_0,logit_1\n") + packed(many, 128))
    # One long name among many short ones, which NumPy would pad to its length.
    rows = [{"y": "n" * 2_000_000, "p1": 0.5}, *[{"y": "n", "p1": 0.5}] * 4000]
    deep["json"].write_text(json.dumps(rows))
    with zipfile.ZipFile(deep["eval"], "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", "{}")
        with archive.open("samples/0.json", "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(b"[[]," * (1 << 21))
    return deep
