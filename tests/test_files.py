"""Saving and loading: what round-trips, and which files are refused before they do harm."""

from __future__ import annotations

import gc
import io
import json
import math
import os
import pickle
import re
import resource
import socket
import stat
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Confidences, InputError, Predictions, load, streaming
from calibrant._core import files, memory
from tests.conftest import draw

META = {"network": "resnet20", "seed": 3, "note": "Grüße, «quotes», 日本", "nested": {"a": [1, 2]}}
FORMATS = (".npz", ".parquet", ".csv", ".safetensors")


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_round_trip(tmp_path: Path, ending: str, dtype: str, kind: str) -> None:
    z, labels = draw(50, 4, dtype=dtype)
    p = Predictions(logits=z, labels=labels)
    classes = ["a", "b,c", 'd"e', "f\ng"]
    scores = z if kind == "logits" else p.probs.astype(dtype)
    p = Predictions(**{kind: scores}, labels=labels, classes=classes, meta=META)
    p.save(tmp_path / f"p{ending}")
    q = Predictions.load(tmp_path / f"p{ending}")
    assert q.kind == kind
    np.testing.assert_array_equal(q.scores.astype(dtype), scores)
    if ending != ".csv":  # text keeps the value, not the width
        assert q.scores.dtype == dtype
    np.testing.assert_array_equal(q.labels, labels)
    assert q.classes == tuple(classes)
    assert q.meta == META
    assert [f.name for f in tmp_path.iterdir()] == [f"p{ending}"]  # no temporary file is left


@pytest.mark.parametrize("ending", FORMATS)
def test_round_trip_without_metadata_and_with_infinities(tmp_path: Path, ending: str) -> None:
    p = Predictions(logits=[[0.5, -np.inf], [1e-30, 1e30]], labels=[0, 1])
    p.save(tmp_path / f"p{ending}")
    q = Predictions.load(tmp_path / f"p{ending}")
    np.testing.assert_array_equal(q.logits, p.logits)
    assert q.meta == {}
    assert q.classes is None


@pytest.mark.parametrize("ending", FORMATS)
def test_confidences_round_trip(tmp_path: Path, ending: str) -> None:
    c = Confidences(confidence=[0.25, 1.0], correct=[False, True], meta=META)
    c.save(tmp_path / f"c{ending}")
    for again in (Confidences.load(tmp_path / f"c{ending}"), load(tmp_path / f"c{ending}")):
        assert again.confidence.tolist() == [0.25, 1.0]
        assert again.correct.tolist() == [False, True]
        assert again.meta == META
    with pytest.raises(InputError, match="must hold"):
        Predictions.load(tmp_path / f"c{ending}")


def test_pair_of_npy_files(tmp_path: Path) -> None:
    z, labels = draw(20, 3)
    np.save(tmp_path / "logits.npy", z)
    np.save(tmp_path / "labels.npy", labels)
    np.save(tmp_path / "truth.npy", np.asfortranarray(labels))
    np.save(tmp_path / "scores.npy", z)
    np.testing.assert_array_equal(Predictions.load(tmp_path / "logits.npy").logits, z)
    p = Predictions.load(tmp_path / "logits.npy", labels=tmp_path / "truth.npy")
    assert (p.labels == labels).all()
    with pytest.raises(InputError, match="never guessed"):
        Predictions.load(tmp_path / "scores.npy")
    with pytest.raises(FileNotFoundError, match="labels"):
        Predictions.load(tmp_path / "logits.npy", labels=tmp_path / "absent.npy")
    p.save(tmp_path / "p.npz")
    with pytest.raises(InputError, match="belongs to a"):
        Predictions.load(tmp_path / "p.npz", labels=tmp_path / "truth.npy")


def test_fortran_order_survives(tmp_path: Path) -> None:
    z, labels = draw(20, 3)
    np.savez(tmp_path / "p.npz", logits=np.asfortranarray(z), labels=labels)
    np.testing.assert_array_equal(Predictions.load(tmp_path / "p.npz").logits, z)


def test_reading_parquet_keeps_nothing(tmp_path: Path) -> None:
    p = Predictions(logits=draw(50, 3)[0], labels=draw(50, 3)[1])
    p.save(tmp_path / "p.parquet")
    load(tmp_path / "p.parquet")
    gc.collect()
    before = pa.total_allocated_bytes()
    for _ in range(5):
        load(tmp_path / "p.parquet")
        streaming.accumulate_parquet([tmp_path / "p.parquet"])
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_parquet_list_columns_and_names(tmp_path: Path) -> None:
    z, labels = draw(30, 5)
    lists = [
        pa.array(list(z)),
        pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), 5),
        pa.array(list(z), type=pa.large_list(pa.float32())),
    ]
    for column in lists:
        pq.write_table(pa.table({"logits": column, "labels": labels}), tmp_path / "p.parquet")
        np.testing.assert_array_equal(Predictions.load(tmp_path / "p.parquet").logits, z)
    names = np.array(["v", "w", "x", "y", "z"])
    table = pa.table({"logits": lists[0], "label": pa.array(names[labels]).dictionary_encode()})
    pq.write_table(table, tmp_path / "p.parquet")
    p = Predictions.load(tmp_path / "p.parquet", classes=list("vwxyz"))
    assert (p.labels == labels).all()
    ragged = pa.table({"logits": pa.array([[1.0, 2.0], [3.0]]), "label": [0, 1]})
    pq.write_table(ragged, tmp_path / "p.parquet")
    with pytest.raises(InputError, match="lists of 1 to 2"):
        Predictions.load(tmp_path / "p.parquet")


def test_columns_are_ordered_by_number(tmp_path: Path) -> None:
    z, labels = draw(5, 12)
    columns = {f"logit_{k}": z[:, k] for k in np.random.default_rng(0).permutation(12)}
    pq.write_table(pa.table({"label": labels, **columns}), tmp_path / "p.parquet")
    np.testing.assert_array_equal(Predictions.load(tmp_path / "p.parquet").logits, z)


def npy(shape: tuple, descr: str = "<f4", body: bytes = b"\0" * 16) -> bytes:
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (117 - len(head)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + body


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def zipped_twice() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("logits.npy", npy((2, 2)))
    return out.getvalue()


def saved(ending: str, tmp_path: Path) -> bytes:
    z, labels = draw(200, 3)
    Predictions(logits=z, labels=labels, meta=META).save(tmp_path / f"whole{ending}")
    return (tmp_path / f"whole{ending}").read_bytes()


def savez(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


Z, Y = draw(4, 3)
SAFE_HEADER = json.dumps(
    {"logits": {"dtype": "F32", "shape": [10**9, 2500], "data_offsets": [0, 10**13]}}
).encode()
HOSTILE = {
    "ten terabytes.npz": (zipped(logits=npy((10**9, 2500)), labels=npy((10**9,))), "declares"),
    "negative shape.npz": (zipped(logits=npy((-1, 2)), labels=npy((4,))), "npz|declares"),
    "body too short.npz": (zipped(logits=npy((4, 3)), labels=npy((4,))), "declares 48 bytes"),
    "objects.npz": (savez(logits=np.array([{"a": 1}], dtype=object), labels=Y), "pickle"),
    "pickle.npz": (pickle.dumps({"logits": 1}), "cannot be read"),
    "garbage.npz": (np.random.default_rng(0).bytes(200), "cannot be read"),
    "empty.npz": (b"", "cannot be read"),
    "unknown.npz": (savez(logit=Z, labels=Y), "Did you mean 'logits'"),
    "no labels.npz": (savez(logits=Z), "must hold labels"),
    "labels alone.npz": (savez(labels=Y), "must hold logits"),
    "mixed.npz": (savez(logits=Z, labels=Y, correct=Y), "only"),
    "meta.npz": (savez(logits=Z, labels=Y, calibrant=np.frombuffer(b"[1]", np.uint8)), "metadata"),
    "nonsense.parquet": (b"PAR1nonsensePAR1", "cannot be read"),
    "empty.parquet": (b"", "cannot be read"),
    "unknown.csv": (
        b"a,b\n1,2\n",
        "Not used: 'a', 'b'. In a table, name the columns: label_column=…",
    ),
    "far.csv": (b"id,pred,score\n1,2,3\n", "'score'. In a table, name"),  # not 'correct'
    "near.csv": (b"lable,logit_0,logit_1\n0,1,2\n", "Did you mean 'label'"),
    "gap.csv": (b"label,logit_0,logit_2\n0,1,2\n", "no column logit_1"),
    "words.csv": (b"label,logit_0,logit_1\n0,x,2\n", "must hold real numbers"),
    "missing value.csv": (
        b"label,logit_0,logit_1\n0,,2\n",
        "logit_0 must hold .*; got 1 missing value\\.",
    ),
    "nan.csv": (b"label,logit_0,logit_1\n0,nan,2\n", "missing value|NaN"),
    "ragged.csv": (b"label,logit_0,logit_1\n0,1\n", "cannot be read"),
    "empty.csv": (b"", "cannot be read"),
    "no rows.csv": (b"label,logit_0,logit_1\n", "must hold at least one sample; got no rows"),
    "top label.csv": (b"confidence,correct\n0.9,1\n", "must hold logits .or probs. and labels; "),
    "header.csv": (b"# calibrant {]\nlabel,logit_0,logit_1\n0,1,2\n", "metadata"),
    "binary.csv": (bytes(range(256)) * 4, "cannot be read|must h"),
    "ten terabytes.safetensors": (struct.pack("<Q", len(SAFE_HEADER)) + SAFE_HEADER, "cannot"),
    "garbage.safetensors": (b"\xff" * 64, "cannot be read"),
    "text.txt": (b"hello", "must end in"),
    "column twice.csv": (b"label,logit_0,logit_0\n0,1,2\n", "logit_0 twice"),
    "label and labels.csv": (b"label,labels,logit_0,logit_1\n0,1,1,2\n", "labels twice"),
    "array twice.npz": (zipped_twice(), "twice"),
    "odd shape.npz": (zipped(logits=npy((True, 2)), labels=npy((4,))), "cannot be read|declares"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    data, message = HOSTILE[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        Predictions.load(tmp_path / name)


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("share", [0.3, 0.7, 0.98])
def test_truncated_files_are_refused(tmp_path: Path, ending: str, share: float) -> None:
    data = saved(ending, tmp_path)
    cut = tmp_path / f"cut{ending}"
    if ending == ".csv":  # cut inside a row: a whole number of rows is a legal, shorter file
        data = data[: int(len(data) * share)]
        data = data[: data.rfind(b",")]
    else:
        data = data[: int(len(data) * share)]
    cut.write_bytes(data)
    with pytest.raises(InputError):
        Predictions.load(cut)


def test_flipped_bits_are_noticed(tmp_path: Path) -> None:
    data = bytearray(saved(".npz", tmp_path))
    data[len(data) // 2] ^= 0x55
    (tmp_path / "flipped.npz").write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        Predictions.load(tmp_path / "flipped.npz")


def test_what_memory_cannot_hold_is_refused(tmp_path: Path, monkeypatch) -> None:
    z, labels = draw(60_000, 6)
    for ending in FORMATS:
        Predictions(logits=z, labels=labels).save(tmp_path / f"p{ending}")
        with monkeypatch.context() as patch:
            patch.setattr(memory, "available_memory", lambda: 1_900_000)
            with pytest.raises(
                InputError, match=r"needs .* MiB of memory, but only 1.8 MiB are avail"
            ):
                Predictions.load(tmp_path / f"p{ending}")
        assert len(Predictions.load(tmp_path / f"p{ending}")) == 60_000


def bomb_npz(path: Path) -> None:
    """392 MiB of zeros in a few megabytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape, width in (("logits", (1 << 23, 10), 4), ("labels", (1 << 23,), 1)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy(shape, "<f4" if width == 4 else "|u1", b""))
                for _ in range(width * math.prod(shape) >> 23):
                    member.write(bytes(1 << 23))


def bomb_parquet(path: Path, rows: int = 1 << 23) -> None:
    """One value, repeated: the file holds it once."""
    zeros = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([0.5]))
    with pq.ParquetWriter(
        path, pa.schema([(f"logit_{k}", pa.float64()) for k in range(8)] + [("label", pa.int64())])
    ) as writer:
        column = zeros.dictionary_decode()
        label = pa.array(np.zeros(rows, np.int64))
        writer.write_table(pa.table([column] * 8 + [label], schema=writer.schema))


def bomb_text_parquet(path: Path) -> None:
    """A name of a megabyte for each of 4,000 samples, written once."""
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, np.int32)), ["x" * (1 << 20)])
    logits = pa.array(np.zeros(4000, np.float32))
    pq.write_table(pa.table({"label": names, "logit_0": logits, "logit_1": logits}), path)


@pytest.mark.parametrize("name", ["npz", "parquet", "text parquet"])
def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, name: str) -> None:
    """A few megabytes that unpack to gigabytes, in a process that may not have these."""
    path = tmp_path / f"bomb.{name.rpartition(' ')[2]}"
    {"npz": bomb_npz, "parquet": bomb_parquet, "text parquet": bomb_text_parquet}[name](path)
    assert path.stat().st_size < 6e6
    done = limited(
        "import calibrant, sys; calibrant.load(sys.argv[1])",
        path,
        gigabytes=0.375 if name == "npz" else 1,
    )
    assert "InputError: bomb" in done.stderr, done.stderr
    assert re.search(
        r"needs [\d.]+ [GM]iB of memory, but only [\d.]+ [GM]iB are available", done.stderr
    )


def limited(code: str, *arguments: object, gigabytes: float) -> subprocess.CompletedProcess[str]:
    """Run Python in an address space of so many gigabytes."""
    limit = int(gigabytes * (1 << 30))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


def test_available_memory_knows_every_limit(tmp_path: Path, monkeypatch) -> None:
    code = "from calibrant._core.memory import available_memory; print(available_memory())"
    found = int(limited(code, gigabytes=1).stdout)
    assert 0 < found < 1 << 30
    assert found < memory._physical()
    for name, content in (("memory.max", 5000), ("memory.current", 3000)):
        (tmp_path / name).write_text(f"{content}\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    group = (tmp_path, *memory.CGROUPS[0][1:])
    assert memory._left_in(*group) == [3000]  # what is cached can be freed
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left_in(*group) == []
    assert memory.available_memory() > 1 << 20


# --- what is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["device", "pipe", "folder", "socket"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/null") if kind == "device" else tmp_path / "target"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "folder":
        path.mkdir()
    if kind == "socket":
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(path))
        bound.close()
    before = path.stat()
    with pytest.raises(InputError, match=f"must be a regular file or a new name; .* a {kind}"):  # noqa: SIM117
        with files.replacing(path) as temporary:
            temporary.write_text("new")
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)
    assert [p.name for p in tmp_path.iterdir()] == ([] if kind == "device" else ["target"])


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.npz", tmp_path / "link.npz"
    link.symlink_to("there/real.npz")
    z, labels = draw(20, 3)
    p = Predictions(logits=z, labels=labels)
    p.save(link)  # a link that leads nowhere yet
    real.chmod(0o604)
    p.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o604
    assert len(Predictions.load(real)) == 20
    assert [f.name for f in (tmp_path / "there").iterdir()] == ["real.npz"]


def test_links_in_a_circle_are_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"circle|Too many levels"):
        files.writable(tmp_path / "a")
    with pytest.raises(OSError, match=r"circle|Too many levels"):
        files.same_file(tmp_path / "a", tmp_path / "c")


def test_a_pipe_or_device_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.npz")
    with pytest.raises(InputError, match="must be a regular file; got a pipe"):
        load(tmp_path / "p.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="must be a regular file; got a device"):
        load(tmp_path / "zero.npz")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("list of lists", pa.array([[[1.0, 2.0]]] * 4)),
        ("struct", pa.array([{"a": 1}] * 4)),
        ("time", pa.array([0] * 4, pa.timestamp("s"))),
        ("decimal", pa.array([1] * 4, pa.decimal128(5))),
        ("bytes", pa.array([b"x"] * 4)),
        ("words", pa.array(["x"] * 4)),
        ("nothing", pa.nulls(4)),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_columns_that_are_no_numbers(tmp_path: Path, name: str, column, stream: bool) -> None:
    one = pa.array([1.0] * 4)
    table = pa.table({"logit_0": one, "logit_1": column, "label": [0] * 4})
    pq.write_table(table, tmp_path / "p.parquet")
    read = streaming.accumulate_parquet if stream else lambda paths: load(paths[0])
    with pytest.raises(InputError, match="must hold numbers"):
        read([tmp_path / "p.parquet"])


def test_a_csv_header_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(b"label,logit_0,logit_\xff\n0,1,2\n")
    with pytest.raises(InputError, match=r"cannot be read|unknown column"):
        load(tmp_path / "p.csv")


def test_absent_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        Predictions.load(tmp_path / "absent.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="must be a regular file; got a folder"):
        Predictions.load(tmp_path / "folder.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    z, labels = draw(20, 3)
    p = Predictions(logits=z, labels=labels)
    p.save(tmp_path / "p.npz")
    before = (tmp_path / "p.npz").read_bytes()

    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        p.save(tmp_path / "p.npz")
    assert (tmp_path / "p.npz").read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["p.npz"]


def test_safetensors_extra_is_named_when_absent(tmp_path: Path, monkeypatch) -> None:
    import sys

    data = saved(".safetensors", tmp_path)
    assert data
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[safetensors\]'"):
        Predictions.load(tmp_path / "whole.safetensors")


def test_bfloat16_safetensors_are_read(tmp_path: Path) -> None:
    logits = draw(40, 7, dtype="float32")[0]
    bits = (logits.view(np.uint32) >> 16).astype("<u2")
    labels = np.arange(40) % 7
    header = {
        "labels": {"dtype": "I64", "shape": [40], "data_offsets": [0, 320]},
        "logits": {"dtype": "BF16", "shape": [40, 7], "data_offsets": [320, 880]},
    }
    head = json.dumps(header).encode()
    data = struct.pack("<Q", len(head)) + head + labels.tobytes() + bits.tobytes()
    path = tmp_path / "p.safetensors"
    path.write_bytes(data)
    p = Predictions.load(path)
    assert (p.logits == (bits.astype(np.uint32) << 16).view(np.float32)).all()
    np.testing.assert_allclose(p.logits, logits, rtol=2**-7)
    assert (p.labels == labels).all()
    path.write_bytes(data[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        Predictions.load(path)
