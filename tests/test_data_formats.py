"""Every loader on tiny files in its authors' format, and its error if no file is found."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calibrant import InputError
from calibrant.data import (
    DATASETS,
    SHIFTS,
    Dataset,
    Vocabulary,
    load,
    load_cifar10h,
    load_glove,
    load_shift,
)

rng = np.random.default_rng(0)


def pixels(count: int) -> np.ndarray:
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar_files(name: str) -> tuple[dict[str, bytes], np.ndarray, list[int]]:
    """The files of one set, and the pixels and labels they hold, test last."""
    ten = name == "cifar10"
    stems = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"] if ten else ["train", "test"]
    folder = "cifar-10-batches-bin" if ten else "cifar-100-binary"
    files, images, labels = {}, [], []
    for k, stem in enumerate(stems):
        x, y = pixels(3), [(k + j) % 10 for j in range(3)]
        head = np.array(y, np.uint8)[:, None]
        if not ten:
            head = np.hstack([np.full_like(head, 19), head])
        files[f"{folder}/{stem}.bin"] = np.hstack([head, x]).tobytes()
        images.append(x)
        labels += y
    return files, np.concatenate(images).reshape(-1, 3, 32, 32), labels


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_cifar(tmp_path: Path, name: str, packed: bool) -> None:
    files, images, labels = cifar_files(name)
    if packed:
        write_tar(tmp_path / f"cifar-{name.removeprefix('cifar')}-binary.tar.gz", files)
    else:
        write(tmp_path, files)
    data = load(name, folder=tmp_path)
    np.testing.assert_array_equal(np.concatenate([data.x_train, data.x_test]), images)
    assert [*data.y_train, *data.y_test] == labels
    assert len(data.x_test) == 3
    assert len(set(data.classes)) == data.num_classes == int(name.removeprefix("cifar"))


def test_cifar_is_looked_for_in_the_stated_order(tmp_path: Path) -> None:
    x = pixels(3).reshape(-1, 3, 32, 32)
    np.savez(tmp_path / "cifar10_mine.npz", x_train=x[:2], y_train=[0, 1], x_test=x[2:], y_test=[9])
    np.savez(tmp_path / "cifar100_mine.npz", x_train=[1])  # must not be taken for CIFAR-10
    assert load("cifar10", folder=tmp_path).meta["file"] == "cifar10_mine.npz"
    files, _, _ = cifar_files("cifar10")
    write_tar(tmp_path / "cifar-10-binary.tar.gz", files)
    assert load("cifar10", folder=tmp_path).meta["file"] == "cifar-10-binary.tar.gz"
    write(tmp_path, files)
    assert load("cifar10", folder=tmp_path).meta["file"] == "cifar-10-batches-bin"


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        ("cifar10", "cifar-10-batches-py/test_batch", "cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    ],
)
def test_the_pickled_version_of_cifar_is_refused(
    tmp_path: Path, name: str, found: str, wanted: str
) -> None:
    write(tmp_path, {found: b"\x80\x02}."})
    with pytest.raises(InputError, match=rf"binary version of {name}, {wanted}.*data get {name}"):
        load(name, folder=tmp_path)


def write_idx(folder: Path, ending: str) -> dict[str, np.ndarray]:
    arrays = {
        "train-images-idx3-ubyte": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "train-labels-idx1-ubyte": np.array([0, 1, 9, 3, 4], np.uint8),
        "t10k-images-idx3-ubyte": rng.integers(0, 256, (2, 28, 28), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.array([7, 8], np.uint8),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in arrays.items():
        header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
        data = header + array.tobytes()
        (folder / f"{stem}{ending}").write_bytes(gzip.compress(data) if ending else data)
    return arrays


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "inside"),
    [("mnist", ""), ("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion_mnist", "fashion_mnist")],
)
def test_idx(tmp_path: Path, name: str, inside: str, ending: str) -> None:
    arrays = write_idx(tmp_path / inside, ending)
    data = load(name, folder=tmp_path)
    np.testing.assert_array_equal(data.x_train[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.x_test[:, 0], arrays["t10k-images-idx3-ubyte"])
    assert data.y_train.tolist() == [0, 1, 9, 3, 4]


def test_fashion_is_not_taken_for_mnist(tmp_path: Path) -> None:
    write_idx(tmp_path / "fashion_mnist", "")
    with pytest.raises(FileNotFoundError, match="calibrant data get mnist"):
        load("mnist", folder=tmp_path)


def write_svhn(folder: Path, compress: bool = True) -> np.ndarray:
    from scipy.io import savemat

    x = rng.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    y = np.array([[10], [1], [2], [9]], np.uint8)
    for file in ("train_32x32.mat", "test_32x32.mat"):
        savemat(folder / file, {"X": x, "y": y}, do_compression=compress)
    return x


@pytest.mark.parametrize("compress", [False, True])
def test_svhn(tmp_path: Path, compress: bool) -> None:
    x = write_svhn(tmp_path, compress)
    data = load("svhn", folder=tmp_path)
    assert data.y_test.tolist() == [0, 1, 2, 9]  # the authors write 10 for the digit 0
    for k in range(4):
        np.testing.assert_array_equal(data.x_train[k], x[..., k].transpose(2, 0, 1))


def news_files() -> dict[str, bytes]:
    files = {}
    for part in ("train", "test"):
        for k, group in enumerate(("alt.atheism", "sci.space", "talk.religion.misc")):
            text = f"From: x\nSubject: leak\n\nword{'s' * k} caf\xe9 body{part}\nof {group}\n"
            files[f"20news-bydate-{part}/{group}/{100 + k}"] = text.encode("latin-1")
    return files


def write_news(folder: Path, form: str) -> None:
    files = news_files()
    if form == "archive":
        write_tar(folder / "20news-bydate.tar.gz", files)
    elif form == "folders":
        write(folder, files)
    elif form == "folder of folders":
        write(folder / "20news-bydate", files)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [(*name.split("/"), data.decode("latin-1")) for name, data in files.items()]
        table = pa.table(
            {
                "split": [row[0].rpartition("-")[2] for row in rows],
                "label": [0] * len(rows),
                "group": [row[1] for row in rows],
                "docid": [int(row[2]) for row in rows],
                "text": [row[3] for row in rows],
            }
        )
        pq.write_table(table, folder / "news20_bydate.parquet")


@pytest.mark.parametrize("form", ["archive", "folders", "folder of folders", "parquet"])
def test_news(tmp_path: Path, form: str) -> None:
    write_news(tmp_path, form)
    data = load("news20", folder=tmp_path, length=6, remove=("headers",))
    assert data.y_train.tolist() == data.y_test.tolist() == [0, 14, 19]
    assert data.x_train.dtype == np.int64
    assert data.x_train.shape == (3, 6)
    vocabulary = data.meta["vocabulary"]
    assert data.meta["vocabulary_size"] == len(vocabulary) > data.x_test.max()
    assert "leak" not in vocabulary.words
    words = [vocabulary.words[k] for k in data.x_train[0]]
    assert words == ["word", "caf", "bodytrain", "of", "alt", "atheism"]
    assert data.x_test[0].tolist()[2] == 1  # "bodytest" is unknown to the training vocabulary
    assert len(load("news20", folder=tmp_path, remove=()).meta["vocabulary"].words) > len(
        vocabulary
    )


TREES = {
    "train.txt": "(3 (2 Good) (3 film))\n(2 (2 so) (2 so))\n(0 (1 (1 bad) (2 and)) (0 dull))\n",
    "dev.txt": "(4 great)\n",
    "test.txt": "(1 (2 Good) (0 (2 grief) (2 !)))\n(2 (2 it) (3 is))\n",
}


def write_trees(folder: Path, form: str) -> None:
    files = {f"trees/{name}": text.encode() for name, text in TREES.items()}
    if form == "zip":
        with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    elif form == "tar":
        write_tar(folder / "sst_trees.tar.xz", files, "w:xz")
    else:
        write(folder, files)


@pytest.mark.parametrize("form", ["folder", "zip", "tar"])
def test_sst(tmp_path: Path, form: str) -> None:
    write_trees(tmp_path, form)
    data = load("sst", folder=tmp_path)
    assert data.y_train.tolist() == [3, 2, 0]
    assert data.y_test.tolist() == [1, 2]
    assert data.meta["y_dev"].tolist() == [4]
    assert data.x_train[2].labels.tolist() == [1, 2, 1, 0, 0]
    assert data.x_test[0].words.tolist()[1:3] == [1, 1]  # unknown words
    everything = load("sst", folder=tmp_path, vocabulary="all")
    assert 1 not in everything.x_test.words
    two = load("sst2", folder=tmp_path)
    assert two.y_train.tolist() == [1, 0]
    assert two.y_test.tolist() == [0]
    assert two.x_train[1].labels.tolist() == [0, -1, 0, 0, 0]


@pytest.mark.parametrize("name", ["news20", "sst", "sst2"])
def test_word_vectors_of_a_data_set(tmp_path: Path, name: str) -> None:
    """From the data folder or a path; another hash; a missing file is refused."""
    write_news(tmp_path, "archive")
    write_trees(tmp_path, "folder")
    word = "of" if name == "news20" else "good"
    options = {"remove": ("headers",)} if name == "news20" else {}
    (tmp_path / "tiny.txt").write_text(f"{word} 1 2 3\n")
    plain = load(name, folder=tmp_path, **options)
    data = load(name, folder=tmp_path, vectors="tiny.txt", **options)
    assert data.meta["vectors"].shape == (data.meta["vocabulary_size"], 3)
    assert data.meta["vectors_found"] == 1
    row = data.meta["vectors"][data.meta["vocabulary"].numbers[word]]
    assert row.tolist() == [1, 2, 3]
    assert data.hash != plain.hash
    assert load(name, folder=tmp_path, vectors=tmp_path / "tiny.txt", **options).hash == data.hash
    with pytest.raises(FileNotFoundError, match=r"none\.txt: no such file"):
        load(name, folder=tmp_path, vectors="none.txt", **options)


def write_images(path: Path, count: int, size: tuple[int, int] = (64, 64)) -> None:
    from PIL import Image

    path.mkdir(parents=True, exist_ok=True)
    for k in range(count):
        image = Image.new("RGB" if k % 2 else "L", size, (200, 30 * k, 10) if k % 2 else 90)
        image.save(path / f"{path.parent.name}_{k}.JPEG")


def write_tiny(folder: Path) -> None:
    root = folder / "tiny-imagenet-200"
    for group in ("n01", "n02"):
        write_images(root / "train" / group / "images", 3)
    write_images(root / "val" / "images", 2)
    (root / "wnids.txt").write_text("n02\nn01\n")
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t62\t62\n"
    )


def test_tiny_imagenet(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    data = load("tiny_imagenet", folder=tmp_path)
    assert data.x_train.shape == (6, 3, 64, 64)
    assert data.classes == ("n02", "n01")
    assert data.y_test.tolist() == [1, 0]
    assert abs(int(data.x_test[1, 0, 5, 5]) - 200) < 4
    assert abs(int(data.x_test[0, 2, 5, 5]) - 90) < 4  # a grey file


def write_imagenet(folder: Path) -> None:
    for part in ("train", "val"):
        for group in ("n02", "n01"):
            write_images(folder / "imagenet" / part / group, 2, size=(80, 50))


def test_imagenet_is_decoded_when_asked_for(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    data = load("imagenet", folder=tmp_path, size=32)
    assert data.classes == ("n01", "n02")
    assert data.x_train.shape == (4, 3, 32, 32)
    assert data.x_train[np.array([3, 0])].shape == (2, 3, 32, 32)
    assert data.x_train[1:3].shape == (2, 3, 32, 32)
    assert data.x_train[0].shape == (3, 32, 32)
    assert data.y_train.tolist() == [0, 0, 1, 1]
    assert data.hash == load("imagenet", folder=tmp_path, size=32).hash
    assert data.hash != load("imagenet", folder=tmp_path, size=40).hash
    (tmp_path / "imagenet" / "val" / "n03").mkdir()
    with pytest.raises(InputError, match="same synset folders in train and val; 'n03'"):
        load("imagenet", folder=tmp_path)


def test_imagenet_is_never_decoded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from calibrant.data import corrupt
    from calibrant.data._image_folders import ImageFiles
    from calibrant.study import Study
    from calibrant.study._sharing import share
    from calibrant.train import Recipe, predict, train

    write_imagenet(tmp_path)
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    data = load("imagenet", size=32)
    most: list[int] = []
    decode = ImageFiles.__getitem__

    def noted(self: ImageFiles, index: object) -> np.ndarray:
        found = decode(self, index)
        most.append(len(found) if found.ndim == 4 else 1)
        return found

    whole = corrupt(data.x_test[:], "gaussian_noise", 3)
    monkeypatch.setattr(ImageFiles, "__getitem__", noted)
    monkeypatch.setattr("calibrant.train._inputs.DECODED", 2)
    monkeypatch.setattr("calibrant.train._forward.EVALUATION_BATCH", 2)
    monkeypatch.setattr("calibrant.data._corruptions.CHUNK", 2)
    recipe = Recipe(epochs=1, batch_size=2, learning_rate=0.01)
    trained = train(data, model="resnet8", recipe=recipe, calibration=2, out=tmp_path / "run")
    assert len(trained.predictions["test"]) == 4
    shifted = corrupt(data.x_test, "gaussian_noise", 3)
    assert shifted.shape == (4, 3, 32, 32)
    assert len(predict(tmp_path / "run", data, shift=(shifted, data.y_test))) == 4
    study = {"data": {"name": "imagenet", "size": 32}, "models": "resnet8"}
    run = Study.parse({**study, "objectives": ["focal"]}).runs[0]
    assert share(run, tmp_path / "shared") is None
    assert max(most) == 2
    monkeypatch.setattr("calibrant.data._corruptions.CHUNK", 256)
    again = corrupt(data.x_test, "gaussian_noise", 3)
    np.testing.assert_array_equal(again[np.array([3, 0])], whole[[3, 0]])


def save_image(path: Path, value: int, size: tuple[int, int] = (64, 48)) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def test_imagenet_v2(tmp_path: Path) -> None:
    """Folders are class numbers: in order of their names, 10 would come before 2."""
    root = tmp_path / "imagenetv2-matched-frequency-format-val"
    for k in (0, 1, 2, 10, 999):
        save_image(root / str(k) / "a.jpeg", 20 * (k % 10) + 5)
    x, y, meta = load_shift("imagenet-v2", folder=tmp_path, size=32)
    assert y.tolist() == [0, 1, 2, 10, 999]
    assert x.shape == (5, 3, 32, 32)
    assert np.abs(x[:].mean(axis=(1, 2, 3)) - np.array([5, 25, 45, 5, 185])).max() < 3
    assert meta["variant"] == "matched-frequency"
    with pytest.raises(FileNotFoundError, match="imagenetv2-top-images-format-val"):
        load_shift("imagenet-v2", folder=tmp_path, variant="top-images")
    with pytest.raises(InputError, match="variant must be"):
        load_shift("imagenet-v2", folder=tmp_path, variant="top")
    with pytest.raises(InputError, match="must be 'imagenet-v2' alone"):
        load_shift("imagenet-v2/3", folder=tmp_path)
    (root / "n01440764").mkdir()
    with pytest.raises(InputError, match="'n01440764', which is not a class"):
        load_shift("imagenet-v2", folder=tmp_path)


def test_imagenet_c(tmp_path: Path) -> None:
    """One folder per corruption, level and synset; nothing more is cut off its images."""
    from PIL import Image

    framed = np.full((224, 224, 3), 200, np.uint8)
    framed[8:-8, 8:-8] = 100
    for group, level in (("n02", 3), ("n01", 3), ("n01", 4), ("n02", 4)):
        path = tmp_path / "ImageNet-C" / "fog" / str(level) / group / "ILSVRC2012_val_1.JPEG"
        path.parent.mkdir(parents=True)
        Image.fromarray(framed // (1 + (group == "n01"))).save(path, quality=100)
    x, y, meta = load_shift("imagenet-c/fog/3", folder=tmp_path)
    assert y.tolist() == [0, 1]
    assert meta["corruption"] == "fog"
    assert meta["level"] == 3
    assert x.shape == (2, 3, 224, 224)
    np.testing.assert_allclose(x[1][:, 0, 0], 200, atol=3)  # the frame is still there
    np.testing.assert_allclose(x[0][:, 0, 0], 100, atol=3)
    assert load_shift("imagenet-c/fog/4", folder=tmp_path, size=64)[0].shape[2:] == (64, 64)
    with pytest.raises(FileNotFoundError, match="ImageNet-C/fog/5"):
        load_shift("imagenet-c/fog/5", folder=tmp_path)
    write_imagenet(tmp_path)
    groups = sorted(path.name for path in (tmp_path / "imagenet" / "train").iterdir())
    if groups == ["n01", "n02"]:
        assert load_shift("imagenet-c/fog/3", folder=tmp_path)[1].tolist() == [0, 1]
    (tmp_path / "imagenet" / "train" / "n09").mkdir()
    with pytest.raises(InputError, match="other classes than ImageNet, such as 'n09'"):
        load_shift("imagenet-c/fog/3", folder=tmp_path)


def test_random_resized_crops_of_files(tmp_path: Path) -> None:
    """Like those of an array, from the whole image and not from its middle."""
    from PIL import Image

    from calibrant.data._crops import DRAWS, crop_box
    from calibrant.data._image_folders import ImageFiles

    rng = np.random.default_rng(0)
    draws = rng.random((400, DRAWS))
    for width, height in ((100, 60), (30, 200)):
        boxes = [crop_box(d, width, height, smallest=0.08) for d in draws]
        for left, top, wide, high in boxes:
            assert left >= 0
            assert top >= 0
            assert left + wide <= width
            assert top + high <= height
            assert 0.7 < wide / high < 1.4
        if width == 100:
            areas = np.array([b[2] * b[3] for b in boxes]) / (width * height)
            assert 0.07 < areas.min() < 0.15
            assert areas.max() > 0.7
            assert {left == 0 for left, *_ in boxes} == {True, False}
            assert max(b[0] + b[2] for b in boxes) == width
    picture = np.broadcast_to(np.arange(200, dtype=np.uint8)[None, :, None], (100, 200, 3))
    Image.fromarray(np.ascontiguousarray(picture)).save(tmp_path / "a.png")
    files = ImageFiles(tmp_path, ("a.png",), 16)
    found = files.cropped(np.zeros(50, np.int64), draws[:50], smallest=0.08)
    for image, numbers in zip(found, draws, strict=False):
        left, _, wide, _ = crop_box(numbers, 200, 100, smallest=0.08)
        middle = left + (wide - 1) / 2
        assert image.mean() == pytest.approx(middle, abs=1)
    assert found[:, :, :, 0].min() < 10  # beyond what the middle of the image holds
    assert found[:, :, :, -1].max() > 190


def test_the_middle_of_an_image_is_cut_out(tmp_path: Path) -> None:
    from PIL import Image

    from calibrant.data._image_folders import decode_image

    wide = np.zeros((40, 80, 3), np.uint8)
    wide[:, 20:60] = 255
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert decode_image(tmp_path / "wide.png", 40, 1.0).min() == 255


def test_pillow_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[data\]'"):
        load("tiny_imagenet", folder=tmp_path)


# --- every data set -----------------------------------------------------------------------------

WRITERS: dict[str, Callable[[Path], object]] = {
    "digits": lambda folder: None,
    "synthetic": lambda folder: None,
    "signals": lambda folder: None,
    "cifar10": lambda folder: write(folder, cifar_files("cifar10")[0]),
    "cifar100": lambda folder: write(folder, cifar_files("cifar100")[0]),
    "svhn": write_svhn,
    "mnist": lambda folder: write_idx(folder, ".gz"),
    "fashion_mnist": lambda folder: write_idx(folder / "fashion_mnist", ""),
    "news20": lambda folder: write_news(folder, "archive"),
    "sst": lambda folder: write_trees(folder, "folder"),
    "sst2": lambda folder: write_trees(folder, "zip"),
    "tiny_imagenet": write_tiny,
    "imagenet": write_imagenet,
}
DTYPES = {"image": "uint8", "vector": "float32", "signal": "float32", "tokens": "int64"}


def test_none_is_missing() -> None:
    assert set(WRITERS) == set(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[name](tmp_path)
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path))
    data, info = load(name), DATASETS[name]
    assert isinstance(data, Dataset)
    assert (data.name, data.kind) == (name, info.kind)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert len(x) == len(y) > 0
        assert y.dtype == np.int64
        assert 0 <= y.min() <= y.max() < data.num_classes == len(data.classes)
        if data.kind != "trees":
            assert x.dtype == DTYPES[data.kind]
        assert len(x[np.array([0, 0])]) == 2
    if data.kind in ("tokens", "trees"):
        assert data.meta["vocabulary_size"] > 2
    assert data.meta["source"]
    assert data.hash == load(name).hash
    assert len(data.hash) == 64
    assert "test samples" in repr(data)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.files])
def test_nothing_found(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load(name, folder=tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert f"calibrant data get {name}" in message
    assert DATASETS[name].files[0].rstrip("/") in message


@pytest.mark.parametrize("name", DATASETS)
def test_unknown_options_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'lenght'"):
        load(name, folder=tmp_path, lenght=3)


def test_embedded_sets_have_no_files_and_others_say_where_they_come_from() -> None:
    for name, info in DATASETS.items():
        assert bool(info.files) == (name not in ("digits", "synthetic", "signals"))
        assert bool(info.source) == (bool(info.files) and name != "imagenet")
        if info.source and not name.startswith("sst"):
            assert info.checksum.startswith(("md5:", "sha256:"))
    assert len(DATASETS["news20"].sha256) == 64
    assert DATASETS["cifar10"].sha256 == DATASETS["digits"].sha256 == ""


def test_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Did you mean 'cifar10'"):
        load("cifar-10", folder=tmp_path)
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    with pytest.raises(
        InputError, match=r"Pass folder=…, or set the environment variable CALIBRANT_DATA"
    ):
        load("cifar10")
    with pytest.raises(InputError, match="must be a folder"):
        load("cifar10", folder=tmp_path / "none")


def test_labels_and_hash_of_the_record() -> None:
    x = np.zeros((2, 3), np.float32)
    good = Dataset("a", "vector", x, np.array([0, 1]), x, np.array([1, 1]), ("p", "q"), {})
    other = Dataset("b", "vector", x, np.array([0, 1]), x, np.array([1, 0]), ("p", "q"), {})
    assert good.hash != other.hash
    with pytest.raises(InputError, match="class indices from 0 to 1; got 0 to 2"):
        Dataset("a", "vector", x, np.array([0, 2]), x, np.array([1, 1]), ("p", "q"), {})
    with pytest.raises(InputError, match="one label for each of the 2"):
        Dataset("a", "vector", x, np.array([0]), x, np.array([1, 1]), ("p", "q"), {})
    with pytest.raises(InputError, match="must be uint8"):
        Dataset("a", "image", x, np.array([0, 1]), x, np.array([1, 1]), ("p", "q"), {})
    with pytest.raises(InputError, match="must be integers"):
        Dataset("a", "vector", x, np.array([0.0, 1]), x, np.array([1, 1]), ("p", "q"), {})


# --- the user's own npz -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "kind", "shape"),
    [
        (np.zeros((4, 5)), "vector", (4, 5)),
        (np.zeros((4, 2, 7), np.float32), "signal", (4, 2, 7)),
        (np.zeros((4, 9), np.int32), "tokens", (4, 9)),
        (np.zeros((4, 8, 6), np.uint8), "image", (4, 1, 8, 6)),
        (np.zeros((4, 8, 6, 3), np.uint8), "image", (4, 3, 8, 6)),
        (np.zeros((4, 3, 8, 6), np.uint8), "image", (4, 3, 8, 6)),
    ],
)
def test_own(tmp_path: Path, x: np.ndarray, kind: str, shape: tuple[int, ...]) -> None:
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, x_train=x, y_train=[0, 1, 2, 1], x_test=x[:2], y_test=[0, 3])
    data = load(path)
    assert (data.kind, data.x_train.shape, data.num_classes) == (kind, shape, 4)
    assert load("mine.npz", folder=tmp_path).hash == data.hash
    shifted, labels, meta = load_shift(path)
    np.testing.assert_array_equal(shifted, data.x_test)
    assert labels.tolist() == [0, 3]
    assert meta["source"] == "npz"


def test_own_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    good = {
        "x_train": np.zeros((2, 3)),
        "y_train": [0, 1],
        "x_test": np.ones((2, 3)),
        "y_test": [0, 1],
    }

    def refused(match: str, **changes: object) -> None:
        np.savez(path, **(good | changes))
        with pytest.raises(InputError, match=match):
            load(path)

    refused("finite", x_train=np.full((2, 3), np.nan))
    refused("one shape", x_test=np.ones((2, 4)))
    refused("must be integers", y_test=np.array([0.5, 1]))
    refused("from 0", y_test=np.array([-1, 1]))
    refused("255 \\* x", x_train=np.zeros((2, 3, 8, 8)))
    refused("layout='channels_first'", x_train=np.zeros((2, 3, 8, 3), np.uint8))
    refused("pickle", x_train=np.array([object(), None], dtype=object))
    refused("name each of the 2 classes", classes=np.array(["a"]))
    refused("one label for each", y_train=[0, 1, 1])
    np.savez(path, x_train=good["x_train"])
    with pytest.raises(InputError, match="it has no y_train, x_test, y_test"):
        load(path)
    np.savez(path, **good, classes=np.array(["cat", "dog"]))
    assert load(path).classes == ("cat", "dog")
    ambiguous = {
        "x_train": np.zeros((2, 3, 8, 3), np.uint8),
        "x_test": np.zeros((2, 3, 8, 3), np.uint8),
    }
    np.savez(path, **(good | ambiguous))
    assert load(path, layout="channels_last").x_train.shape == (2, 3, 3, 8)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(tmp_path / "none.npz")


# --- shifts -------------------------------------------------------------------------------------


def test_cifar10_1_and_2(tmp_path: Path) -> None:
    x = rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "cifar10.1_v6_data.npy", x)
    np.save(tmp_path / "cifar10.1_v6_labels.npy", np.array([1, 2, 3, 9], np.int32))
    (tmp_path / "cifar10.2").mkdir()
    np.savez(tmp_path / "cifar10.2" / "cifar102_test.npz", images=x, labels=[0, 1, 2, 3])
    for name, labels in (("cifar10.1", [1, 2, 3, 9]), ("cifar10.2", [0, 1, 2, 3])):
        images, y, meta = load_shift(name, folder=tmp_path)
        np.testing.assert_array_equal(images, x.transpose(0, 3, 1, 2))
        assert y.tolist() == labels
        assert meta["source"] == "published"
    with pytest.raises(FileNotFoundError, match=r"calibrant data get cifar10\.1"):
        load_shift("cifar10.1", folder=tmp_path, version="v4")


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_c(tmp_path: Path, classes: int) -> None:
    root = tmp_path / f"CIFAR-{classes}-C"
    root.mkdir()
    x = rng.integers(0, 256, (15, 32, 32, 3), dtype=np.uint8)
    np.save(root / "fog.npy", x)
    np.save(root / "labels.npy", np.tile([0, 5, classes - 1], 5))
    images, y, meta = load_shift(f"cifar{classes}-c/fog/4", folder=tmp_path)
    np.testing.assert_array_equal(images, x[9:12].transpose(0, 3, 1, 2))
    assert y.tolist() == [0, 5, classes - 1]
    assert (meta["source"], meta["level"]) == ("published", 4)
    with pytest.raises(FileNotFoundError, match=f"get cifar{classes}-c"):
        load_shift(f"cifar{classes}-c/snow/4", folder=tmp_path)


def test_generated_and_embedded_shifts() -> None:
    x, y, meta = load_shift("digits-generated/contrast/5")
    clean = load("digits")
    assert meta["source"] == "generated"
    assert x.shape == clean.x_test.shape
    np.testing.assert_array_equal(y, clean.y_test)
    assert load_shift("signals/4")[2]["level"] == 4
    assert load_shift("synthetic/2", num_classes=3)[2]["true_probs_test"].shape == (5000, 3)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("cifar10-d/fog/3", "Did you mean 'cifar10-c'"),
        ("cifar10-c/fog", "must read cifar10-c/CORRUPTION/LEVEL; .* Try .cifar10-c/fog/3"),
        ("cifar10-c/fog/6", "must end in a level"),
        ("cifar10-c/fog/3/1", "must read cifar10-c/CORRUPTION/LEVEL"),
        ("cifar10-c/../3", "corruption must be"),
        ("digits-generated/smog/3", "Did you mean 'fog'|corruption must be"),
        ("digits-generated/saturate/3", "corruption must be"),
        ("cifar10.1/3", "alone"),
        ("signals", "must end in a level from 0 to 5"),
    ],
)
def test_shift_names_that_are_refused(name: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=match):
        load_shift(name, folder=tmp_path)


def test_every_shift_is_listed_with_what_it_needs() -> None:
    assert {
        "cifar10.1",
        "cifar10.2",
        "cifar10-c",
        "cifar100-c",
        "digits-generated",
        "synthetic",
        "signals",
    } <= set(SHIFTS)
    assert all(info.description for info in SHIFTS.values())


@pytest.mark.parametrize("form", ["probs", "counts", "npz"])
def test_cifar10h(tmp_path: Path, form: str) -> None:
    counts = rng.integers(0, 50, (6, 10)) + 1
    if form == "npz":
        np.savez(tmp_path / "cifar10h_counts.npz", counts=counts.astype(np.uint8))
    else:
        values = counts / counts.sum(1, keepdims=True) if form == "probs" else counts
        np.save(tmp_path / f"cifar10h-{form}.npy", values)
    np.testing.assert_allclose(load_cifar10h(tmp_path), counts / counts.sum(1, keepdims=True))
    np.save(tmp_path / "cifar10h-probs.npy", np.zeros((2, 10)))
    with pytest.raises(InputError, match="all 0"):
        load_cifar10h(tmp_path)


def test_glove(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2 3\ncat -1 0.5 2e-1\n\u00a0 7 7 7\n", encoding="utf-8")
    vocabulary = Vocabulary.build([["cat", "dog", "the"]])
    table, found = load_glove(path, vocabulary)
    assert (table.shape, found, table.dtype) == ((5, 3), 2, np.float32)
    assert table[0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(table[vocabulary.numbers["cat"]], [-1, 0.5, 0.2])
    np.testing.assert_array_equal(table, load_glove(path, vocabulary)[0])
    path.write_text("the 1 2 3\ncat name@domain.com 7 7 7\nthe . . 7 7 7\ncat 4 5 6\n")
    table, found = load_glove(path, vocabulary)
    assert found == 2
    assert table[vocabulary.numbers["the"]].tolist() == [1, 2, 3]
    assert table[vocabulary.numbers["cat"]].tolist() == [4, 5, 6]
    for text in ("the 1 2\ncat 1\n", "the 1\ncat 1 2\n", "the x y\n", "no 1\n", "the nan 1\n"):
        path.write_text(text)
        with pytest.raises(InputError, match=r"glove\.txt"):
            load_glove(path, vocabulary)
    with pytest.raises(FileNotFoundError):
        load_glove(tmp_path / "none.txt", vocabulary)
