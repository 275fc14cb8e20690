"""What `fuzz.py` does to sound files, and values that no file should hold."""

from __future__ import annotations

import io
import json
import os
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

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
    (2, 3, 4, 5),
    (2, 4, 5),
    (2, 3, 2, 2, 2),
]


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
