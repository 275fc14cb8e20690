"""The real files, if they are available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.data import batch_trees, load, load_cifar10h, load_glove, load_shift

# Tens of thousands of pictures and texts; ``test_data_formats`` has small files of every kind.
pytestmark = pytest.mark.slow


@pytest.fixture
def folder(unpacked: Path) -> Path:
    return unpacked


@pytest.mark.parametrize(
    ("name", "train", "classes"), [("cifar10", 20_000, 10), ("cifar100", 15_000, 100)]
)
def test_cifar(folder: Path, name: str, train: int, classes: int) -> None:
    data = load(name, folder=folder)
    assert data.x_train.shape == (train, 3, 32, 32)
    assert data.x_test.shape == (10_000, 3, 32, 32)
    assert np.bincount(data.y_test).tolist() == [10_000 // classes] * classes
    # Neighbouring pixels are similar along both axes, which a wrong layout would break.
    x = data.x_test[:200].astype(float)
    for axis in (2, 3):
        assert np.abs(np.diff(x, axis=axis)).mean() < 20


def test_human_labels_belong_to_the_test_set(folder: Path) -> None:
    shares = load_cifar10h(folder)
    agreement = (shares.argmax(axis=1) == load("cifar10", folder=folder).y_test).mean()
    assert agreement > 0.98


def test_a_natural_shift(folder: Path) -> None:
    x, y, _ = load_shift(folder / "tiny_cifar7_shift.npz")
    assert x.shape == (7_150, 3, 32, 32)
    assert set(y.tolist()) == {1, 2, 3, 5, 6, 8, 9}


def test_news(folder: Path) -> None:
    data = load("news20", folder=folder, length=200)
    assert data.x_train.shape == (11_314, 200)
    assert data.x_test.shape == (7_532, 200)
    assert data.num_classes == 20
    assert data.meta["vocabulary_size"] == 20_000
    assert not {"nntp", "organization:"} & set(data.meta["vocabulary"].words[:2_000])
    assert 0.005 < (data.x_train == 1).mean() / (data.x_train > 0).mean() < 0.15


def test_sst(folder: Path) -> None:
    data = load("sst", folder=folder)
    assert (len(data.x_train), len(data.meta["x_dev"]), len(data.x_test)) == (8_544, 1_101, 2_210)
    batch = batch_trees(data.x_train)
    np.testing.assert_array_equal(batch.labels[batch.roots], data.y_train)
    leaves = len(batch.words)
    assert len(batch.labels) == 2 * leaves - len(data.x_train)  # every tree is binary
    table, found = load_glove(folder / "glove.6B.50d.txt", data.meta["vocabulary"])
    assert table.shape[1] == 50
    assert found > 0.9 * len(table)
    two = load("sst2", folder=folder)
    assert (len(two.x_train), len(two.meta["x_dev"]), len(two.x_test)) == (6_920, 872, 1_821)
