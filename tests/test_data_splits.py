"""Splits: disjoint, stratified to within one sample, nested, repeatable, recorded."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import InputError
from calibrant.data import Dataset, make_trees, split
from calibrant.data._splits import split_dataset, stratified_order

labels_of = st.lists(st.integers(0, 6), min_size=2, max_size=120).map(np.array)


@given(labels=labels_of, seed=st.integers(0, 50), data=st.data())
def test_laws(labels: np.ndarray, seed: int, data: st.DataObject) -> None:
    size = len(labels)
    held = data.draw(st.integers(1, size - 1))
    train_size = data.draw(st.integers(1, size - held))
    kept = data.draw(st.integers(1, held))
    whole = split(labels, calibration=held, seed=seed)
    assert sorted([*whole.train, *whole.calibration]) == list(range(size))
    part = split(labels, calibration=held, seed=seed, train_size=train_size, calibration_size=kept)
    assert (len(part.train), len(part.calibration)) == (train_size, kept)
    assert set(part.train) <= set(whole.train)
    assert set(part.calibration) <= set(whole.calibration)
    for indices in (part.train, part.calibration, whole.train, whole.calibration):
        assert (np.diff(indices) > 0).all()
        counts = np.bincount(labels[indices], minlength=7)
        fair = np.bincount(labels, minlength=7) * len(indices) / size
        assert (np.abs(counts - fair) < 1).all()
    again = split(labels, calibration=held, seed=seed, train_size=train_size, calibration_size=kept)
    assert again.hash == part.hash


@given(labels=labels_of, seed=st.integers(0, 50), data=st.data())
def test_subsets_are_prefixes_of_one_order(
    labels: np.ndarray, seed: int, data: st.DataObject
) -> None:
    """Whatever the sizes, one seed has one order, and the parts are its two ends."""
    order = stratified_order(labels, seed=seed)
    held = data.draw(st.integers(1, len(labels) - 1))
    parts = split(labels, calibration=held, seed=seed)
    assert set(parts.calibration) == set(order[:held])
    assert set(parts.train) == set(order[held:])


def test_a_change_of_the_calibration_size_leaves_the_training_subset_alone() -> None:
    labels = np.arange(500) % 7
    parts = [split(labels, calibration=held, train_size=100) for held in (50, 200, 400)]
    for one in parts[1:]:
        np.testing.assert_array_equal(one.train, parts[0].train)


def test_every_prefix_is_fair_even_with_very_unequal_classes() -> None:
    labels = np.repeat(np.arange(30), np.r_[[2000], np.arange(1, 30)])
    order = stratified_order(labels, seed=3)
    hot = np.eye(30)[labels[order]].cumsum(axis=0)
    fair = np.arange(1, len(labels) + 1)[:, None] * np.bincount(labels) / len(labels)
    assert np.abs(hot - fair).max() < 1


def test_seeds_differ_and_the_order_is_random() -> None:
    labels = np.arange(1000) % 10
    hashes = {split(labels, calibration=0.1, seed=seed).hash for seed in range(20)}
    assert len(hashes) == 20
    chosen = np.zeros(1000)
    for seed in range(400):
        chosen[split(labels, calibration=0.1, seed=seed).calibration] += 1
    assert abs(chosen.mean() - 40) < 1e-9
    assert 4.5 < chosen.std() < 7.5  # binomial: 6


def test_the_hash_is_that_of_indices_and_labels() -> None:
    labels = np.array([0, 1, 0, 1, 1])
    parts = split(labels, calibration=2)
    digest = hashlib.sha256()
    for array in (parts.train, parts.calibration, labels):
        digest.update(f"<i8({len(array)},)".encode() + array.astype("<i8").tobytes())
    assert parts.hash == digest.hexdigest()
    assert parts.hash == split(labels.tolist(), calibration=0.4).hash
    assert parts.hash == split(labels.astype(np.uint8), calibration=2).hash
    assert parts.hash != split(1 - labels, calibration=2).hash


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"calibration": -1}, "whole number from 0 to 9"),
        ({"calibration": 10}, "whole number from 0 to 9"),
        ({"calibration": 1.0}, "between 0 and 1"),
        ({"calibration": True}, "whole number"),
        ({"calibration": 3, "train_size": 8}, "train_size must be a whole number from 1 to 7"),
        ({"calibration": 3, "calibration_size": 4}, "calibration_size must be"),
        ({"calibration": 3, "seed": -1}, "seed"),
    ],
)
def test_what_is_refused(options: dict[str, float], match: str) -> None:
    with pytest.raises(InputError, match=match):
        split(np.arange(10) % 2, **options)


def test_labels_that_are_refused() -> None:
    for labels, match in (
        ([0], "2 samples"),
        ([0.5, 1], "integers"),
        ([[0], [1]], "integers"),
        ([-1, 0], "from 0"),
    ):
        with pytest.raises(InputError, match=match):
            split(labels, calibration=1)


def test_a_development_set_is_the_calibration_part() -> None:
    """All training samples stay; trees and arrays alike are joined, in this order."""
    trees = make_trees(
        [([3, 4, -1], [(-1, -1), (-1, -1), (0, 1)], [0, 1, k % 2]) for k in range(7)]
    )
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    for kind, samples in (("trees", trees), ("vector", x)):
        y = np.arange(7) % 2
        parts = samples[:4], y[:4], samples[:2], y[:2]
        meta = {"x_dev": samples[4:], "y_dev": y[4:]}
        data = Dataset("d", kind, *parts, ("a", "b"), meta)
        joined, chosen = split_dataset(data, calibration="dev", seed=3)
        assert chosen.train.tolist() == [0, 1, 2, 3]
        assert chosen.calibration.tolist() == [4, 5, 6]
        np.testing.assert_array_equal(joined.y_train, y)
        if kind == "vector":
            np.testing.assert_array_equal(joined.x_train, x)
        else:
            for one, two in zip(joined.x_train.contents(), trees.contents(), strict=True):
                np.testing.assert_array_equal(one, two)
            np.testing.assert_array_equal(joined.x_train[[5]].words, trees[[5]].words)
        few = split_dataset(data, calibration="dev", train_size=2, calibration_size=1)[1]
        assert (len(few.train), len(few.calibration)) == (2, 1)
        assert few.calibration[0] >= 4
    with pytest.raises(InputError, match="calibration must be a number, a fraction or 'dev'"):
        split_dataset(data, calibration="test")
    assert len(split(np.arange(10) % 2, calibration=0).train) == 10
