"""Malicious and broken files: refused with a clear message before they can do harm."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import InputError
from calibrant.data import _archives, load, unpack
from calibrant.data._archives import read_members
from calibrant.data._digit_files import read_idx, read_svhn
from calibrant.data._mat import read_mat
from calibrant.data._sst import parse_trees
from tests.test_data_formats import cifar_files, write, write_idx, write_svhn


def flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


# --- archives -----------------------------------------------------------------------------------


def tar_with(path: Path, info: tarfile.TarInfo, data: bytes = b"") -> Path:
    info.size = len(data)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(info, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


UNSAFE = {
    "escape": entry("../out"),
    "hidden escape": entry("a/../../out"),
    "absolute": entry("/tmp/out"),
    "backslash": entry("..\\out"),
    "drive": entry("C:out"),
    "symbolic link": entry("a", tarfile.SYMTYPE, "/etc/passwd"),
    "link inside": entry("a", tarfile.SYMTYPE, "b"),
    "hard link": entry("a", tarfile.LNKTYPE, "/etc/passwd"),
    "character device": entry("a", tarfile.CHRTYPE),
    "block device": entry("a", tarfile.BLKTYPE),
    "pipe": entry("a", tarfile.FIFOTYPE),
    "folder outside": entry("../out", tarfile.DIRTYPE),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_tar_members(name: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    archive = tar_with(tmp_path / "a.tar.gz", UNSAFE[name])
    for action in (lambda: unpack(archive, target), lambda: read_members(archive, ("none",))):
        with pytest.raises(InputError, match=r"a\.tar\.gz must be a safe archive"):
            action()
    assert list(target.iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out", "link"])
def test_unsafe_zip_members(name: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    info = zipfile.ZipInfo(name)
    if name == "link":
        info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="must be a safe archive"):
        unpack(tmp_path / "a.zip", target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("form", ["tar.gz", "zip"])
def test_bombs(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_archives, "ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / f"bomb.{form}"
    if form == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", bytes(30 << 20))
    else:
        tar_with(path, entry("zeros"), bytes(30 << 20))
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="unpacks to more than"):
        unpack(path, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_archives, "MAX_MEMBERS", 10)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for k in range(11):
            tar.addfile(entry(str(k)))
    with pytest.raises(InputError, match="more than"):
        unpack(tmp_path / "a.tar", tmp_path)


def test_a_header_that_declares_gigabytes(tmp_path: Path) -> None:
    """tarfile reads an extended header whole, so one of 2 GB would be held in memory."""
    info = entry("x", tarfile.XHDTYPE)
    info.size = 2 << 30
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(1 << 20)))
    with pytest.raises(InputError, match="declares more bytes"):
        unpack(tmp_path / "a.tar.gz", tmp_path)


def test_unpack_keeps_what_is_there(tmp_path: Path) -> None:
    archive = tar_with(tmp_path / "a.tar.gz", entry("set/x.txt"), b"new")
    assert unpack(archive, tmp_path) == [tmp_path / "set"]
    assert (tmp_path / "set" / "x.txt").read_bytes() == b"new"
    (tmp_path / "set" / "x.txt").write_bytes(b"mine")
    with pytest.raises(InputError, match="must not hold set already"):
        unpack(archive, tmp_path)
    assert (tmp_path / "set" / "x.txt").read_bytes() == b"mine"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar.gz", "set"]


def test_a_file_twice_in_an_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for _ in range(2):
            tar.addfile(entry("x"))
    with pytest.raises(InputError):
        unpack(tmp_path / "a.tar", tmp_path)
    with pytest.raises(InputError, match="x twice"):
        read_members(tmp_path / "a.tar", ("x",))


# --- broken files -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_cut_archives(tmp_path: Path, share: float) -> None:
    files, _, _ = cifar_files("cifar10")
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            info = entry(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InputError, match=r"cifar-10-binary\.tar\.gz"):
        load("cifar10", folder=tmp_path)


def test_batches_that_do_not_fit(tmp_path: Path) -> None:
    files, _, _ = cifar_files("cifar10")
    name = "cifar-10-batches-bin/data_batch_2.bin"
    for data, match in (
        (files[name][:-1], "not a multiple of the record size"),
        (b"", "not a multiple of the record size"),
        (b"\x0a" + files[name][1:], "class indices from 0 to 9"),
    ):
        write(tmp_path, files | {name: data})
        with pytest.raises(InputError, match=match):
            load("cifar10", folder=tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=r"has no file data_batch_2\.bin"):
        load("cifar10", folder=tmp_path)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_broken_idx(tmp_path: Path, ending: str) -> None:
    write_idx(tmp_path, ending)
    path = tmp_path / f"train-images-idx3-ubyte{ending}"
    good = path.read_bytes()
    plain = gzip.decompress(good) if ending else good
    pack = gzip.compress if ending else bytes
    for bad, match in (
        (plain[:-1], "ends early"),
        (plain[:7], "ends early"),
        (plain + b"x", "has more than"),
        (b"\x00\x00\x0d" + plain[3:], "not an IDX file of bytes"),
        (plain[:4] + struct.pack(">3I", 2**31, 2**31, 2**31) + plain[16:], "are available"),
        (plain[:4] + struct.pack(">3I", 2**16, 2**10, 2**3) + plain[16:], "ends early"),
    ):
        path.write_bytes(pack(bad))
        with pytest.raises(InputError, match=match):
            read_idx(path)
    if ending:
        path.write_bytes(flipped(good, len(good) - 6, 3))  # the checksum of gzip
        with pytest.raises(InputError, match="cannot be read as IDX"):
            read_idx(path)


@pytest.mark.parametrize("compress", [False, True])
@given(place=st.integers(0, 400) | st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.booleans())
def test_flipped_and_cut_mat_files(
    tmp_path_factory: pytest.TempPathFactory, compress: bool, place: int, bit: int, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("mat")
    write_svhn(folder, compress)
    path = folder / "train_32x32.mat"
    good = path.read_bytes()
    place %= len(good)
    path.write_bytes(good[:place] if cut else flipped(good, place, bit))
    try:
        assert read_svhn(path)[0].shape[1:] == (3, 32, 32)
    except InputError as error:
        assert path.name in str(error)  # noqa: PT017


def test_mat_files_of_something_else(tmp_path: Path) -> None:
    from scipy.io import savemat

    path = tmp_path / "train_32x32.mat"
    x, y = np.zeros((32, 32, 3, 2), np.uint8), np.array([[1], [2]])
    for arrays, match in (
        ({"X": x}, "no arrays X and y"),
        ({"X": x.astype(float), "y": y}, "instead of uint8"),
        ({"X": x[:30], "y": y}, "instead of uint8"),
        ({"X": x, "y": y[:1]}, "2 images but 1 labels"),
        ({"X": x, "y": y - 1}, "labels other than 1 to 10"),
        ({"X": x, "y": y + 0.5}, "labels other than 1 to 10"),
        ({"X": x, "y": y * np.nan}, "labels other than 1 to 10"),
        ({"X": x, "y": "ab"}, "not an array of real numbers"),
        ({"X": x, "y": y + 1j}, "not an array of real numbers"),
    ):
        savemat(path, arrays)
        with pytest.raises(InputError, match=match):
            read_svhn(path)


@pytest.mark.parametrize("compress", [False, True])
def test_mat_files_of_scipy(tmp_path: Path, compress: bool) -> None:
    """Every plain kind of array, small or large, as SciPy writes and reads it."""
    from scipy.io import loadmat, savemat

    rng = np.random.default_rng(0)
    kinds = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8")
    arrays = {f"a_{kind}": (100 * rng.random((3, 2, 4))).astype(kind) for kind in kinds}
    arrays |= {"one": np.array([[7.0]]), "none": np.zeros((0, 3)), "a_longer_name": np.eye(3)}
    savemat(tmp_path / "a.mat", arrays | {"text": "abc"}, do_compression=compress)
    ours, theirs = read_mat(tmp_path / "a.mat", tuple(arrays)), loadmat(tmp_path / "a.mat")
    assert ours.keys() == arrays.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        np.testing.assert_array_equal(array, theirs[name])


@pytest.mark.parametrize("where", ["middle", "header", "end"])
def test_broken_npz(tmp_path: Path, where: str) -> None:
    path = tmp_path / "mine.npz"
    x = np.random.default_rng(0).normal(size=(50, 20))
    np.savez(path, x_train=x, y_train=np.zeros(50, int), x_test=x, y_test=np.zeros(50, int))
    good = path.read_bytes()
    bad = {"middle": flipped(good, 3000, 1), "header": flipped(good, 70, 0), "end": good[:-30]}
    path.write_bytes(bad[where])
    with pytest.raises(InputError, match=r"mine\.npz"):
        load(path)


@pytest.mark.parametrize(
    "line",
    [
        "(3 (2 a) (2 b)",
        "3 a)",
        "(5 a)",
        "(3 a b)",
        "(3 (2 a))",
        "(3 (2 a) (2 b) (2 c))",
        "()",
        "(3)",
        "(3 a) (2 b)",
        "(\u0663 a)",
        "(3 (2 a) b)",
        "(",
        "(2 " * 200_000,
    ],
)
def test_broken_trees(line: str) -> None:
    with pytest.raises(InputError, match=r"train\.txt, line 2, is not a binary tree"):
        parse_trees(f"(2 ok)\n{line}\n", "train.txt")


def test_a_very_deep_tree_is_read_without_recursion() -> None:
    depth = 50_000
    text = "(2 (2 a) " * depth + "(1 b)" + ")" * depth
    words, _, labels = parse_trees(text, "train.txt")[0]
    assert (len(words), labels[-1]) == (2 * depth + 1, 2)


def test_images_that_are_none(tmp_path: Path) -> None:
    from tests.test_data_formats import write_tiny

    write_tiny(tmp_path)
    victim = next((tmp_path / "tiny-imagenet-200" / "train" / "n01" / "images").iterdir())
    good = victim.read_bytes()
    # A JPEG that declares 65,000 x 65,000 pixels.
    start = good.index(b"\xff\xc0")
    vast = good[: start + 5] + b"\xfd\xe8\xfd\xe8" + good[start + 9 :]
    for bad in (b"", b"GIF89a", good[: len(good) // 2], vast):
        victim.write_bytes(bad)
        with pytest.raises(InputError, match=victim.name):
            load("tiny_imagenet", folder=tmp_path)


def test_annotations_cannot_lead_out(tmp_path: Path) -> None:
    from tests.test_data_formats import write_tiny

    write_tiny(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(
        "../../x.png\tn01\n"
    )
    with pytest.raises(InputError, match="unknown class or file"):
        load("tiny_imagenet", folder=tmp_path)
