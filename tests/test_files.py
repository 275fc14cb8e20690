"""Saving and loading: what round-trips, and which files are refused before they do harm."""

from __future__ import annotations

import io
import json
import pickle
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Confidences, InputError, Predictions, _files, load
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
    assert q._kind == kind
    np.testing.assert_array_equal(q._scores.astype(dtype), scores)
    if ending != ".csv":  # text keeps the value, not the width
        assert q._scores.dtype == dtype
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


def test_parquet_list_columns_and_names(tmp_path: Path) -> None:
    z, labels = draw(30, 5)
    lists = [pa.array(list(z)), pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), 5),
             pa.array(list(z), type=pa.large_list(pa.float32()))]  # fmt: skip
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
    "unknown.csv": (b"a,b\n1,2\n", "unknown column"),
    "near.csv": (b"lable,logit_0,logit_1\n0,1,2\n", "Did you mean 'label'"),
    "gap.csv": (b"label,logit_0,logit_2\n0,1,2\n", "no column logit_1"),
    "words.csv": (b"label,logit_0,logit_1\n0,x,2\n", "must hold real numbers"),
    "missing value.csv": (b"label,logit_0,logit_1\n0,,2\n", "missing values"),
    "nan.csv": (b"label,logit_0,logit_1\n0,nan,2\n", "missing values|NaN"),
    "ragged.csv": (b"label,logit_0,logit_1\n0,1\n", "cannot be read"),
    "empty.csv": (b"", "cannot be read"),
    "no rows.csv": (b"label,logit_0,logit_1\n", "must hold at least one sample; got no rows"),
    "top label.csv": (b"confidence,correct\n0.9,1\n", "must hold logits .or probs. and labels; "),
    "header.csv": (b"# calibrant {]\nlabel,logit_0,logit_1\n0,1,2\n", "metadata"),
    "binary.csv": (bytes(range(256)) * 4, "cannot be read|unknown"),
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
    for ending in (".npz", ".parquet", ".csv", ".safetensors"):
        saved(ending, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(_files, "physical_memory", lambda: 100)
            with pytest.raises(InputError, match="refused before allocation"):
                Predictions.load(tmp_path / f"whole{ending}")


def test_absent_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        Predictions.load(tmp_path / "absent.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(FileNotFoundError, match="no such file"):
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


def test_bfloat16_safetensors_are_refused(tmp_path: Path) -> None:
    header = {
        "logits": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
        "labels": {"dtype": "I64", "shape": [2], "data_offsets": [8, 24]},
    }
    head = json.dumps(header).encode()
    data = struct.pack("<Q", len(head)) + head + b"\0" * 8 + struct.pack("<qq", 0, 1)
    (tmp_path / "p.safetensors").write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        Predictions.load(tmp_path / "p.safetensors")
