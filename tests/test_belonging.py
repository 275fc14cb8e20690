"""Clusters, groups and weights: kept by every step, and no split divides a cluster."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from calibrant import Confidences, InputError, Predictions, load
from calibrant.calibrators import CrossFitted, TemperatureScaling, VectorScaling, select_calibrator

RNG = np.random.default_rng(0)
N = 60
GIVEN = {
    "clusters": np.array([f"patient {i}" for i in np.arange(N) // 6]),
    "groups": {"site": np.array(["a", "b", "c"])[np.arange(N) % 3], "ward": np.arange(N) % 4},
    "weights": RNG.uniform(0.5, 2, N),
}
Z = RNG.normal(0, 2, (N, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(1)
RECORDS = {
    "predictions": Predictions(logits=Z, labels=Y, **GIVEN),
    "confidences": Confidences(confidence=RNG.random(N), correct=Y == 0, **GIVEN),
    "binary": Predictions.from_binary(logits=Z[:, 0], labels=Y > 0, **GIVEN),
}


def same(one: object, other: object, rows: object = slice(None)) -> None:
    assert (one.clusters == other.clusters[rows]).all()
    assert (one.weights == other.weights[rows]).all()
    assert list(one.groups) == list(other.groups)
    for name, column in other.groups.items():
        assert (one.groups[name] == column[rows]).all()


@pytest.mark.parametrize("p", RECORDS.values(), ids=RECORDS)
def test_kept_by_files_copies_and_parts(p: Predictions | Confidences, tmp_path: Path) -> None:
    for suffix in (".npz", ".parquet", ".csv", ".safetensors"):
        p.save(tmp_path / f"p{suffix}")
        same(load(tmp_path / f"p{suffix}"), p)
        same(type(p).load(tmp_path / f"p{suffix}"), p)
    rows = np.array([5, 1, 44])
    same(p.take(rows), p, rows)
    same(p.take(Y == 0), p, Y == 0)
    same(pickle.loads(pickle.dumps(p)), p)
    same(copy.deepcopy(p), p)
    with pytest.raises(TypeError):
        p.groups["site"] = p.groups["ward"]


def test_kept_by_calibrators_and_slabs() -> None:
    p = RECORDS["predictions"]
    same(TemperatureScaling().fit(p).transform(p), p)
    same(CrossFitted(TemperatureScaling()).fit_transform(p), p)
    same(p.slab(slice(3, 9)), p, slice(3, 9))
    assert Predictions(logits=Z, labels=Y).clusters is None
    assert dict(Predictions(logits=Z, labels=Y).groups) == {}


def test_no_split_divides_a_cluster() -> None:
    ragged = np.repeat(np.arange(20), np.arange(1, 21))
    p = Predictions(
        logits=RNG.normal(0, 1, (210, 3)), labels=RNG.integers(0, 3, 210), clusters=ragged
    )
    for seed in range(5):
        for fraction in (0.01, 0.3, 0.5, 0.99):
            a, b = p.split(fraction, seed=seed)
            assert not set(a.clusters) & set(b.clusters)
            assert len(a) + len(b) == 210
            assert abs(len(a) - fraction * 210) <= 20
    with pytest.raises(InputError, match="two clusters"):
        p.take(ragged == 3).split(0.5, seed=0)


def test_cross_fitting_and_selection_never_divide_a_cluster() -> None:
    seen: list[set[int]] = []

    class Spy(TemperatureScaling):
        def _learn(self, p: Predictions, weights: object) -> None:
            seen.append(set(p.clusters.tolist()))
            super()._learn(p, weights)

    z = RNG.normal(0, 2, (120, 3))
    y = (z / 2 + RNG.gumbel(size=z.shape)).argmax(1)
    p = Predictions(logits=z, labels=y, clusters=np.arange(120) // 4)
    CrossFitted(Spy(), folds=5).fit(p)
    select_calibrator(p, {"spy": Spy()}, folds=5)
    whole = set(range(30))
    folds = [whole - part for part in seen if part != whole]
    assert sorted(map(len, folds)) == [6] * 10
    for five in (folds[:5], folds[5:]):
        assert set().union(*five) == whole


def test_selection_counts_clusters_once() -> None:
    """Repeating every sample ten times as one cluster does not change the selection."""
    z = RNG.normal(0, 2, (80, 3))
    y = (z / 2 + RNG.gumbel(size=z.shape)).argmax(1)
    every = np.arange(80)
    once = Predictions(logits=z, labels=y, clusters=every)
    often = Predictions(
        logits=np.repeat(z, 10, 0), labels=np.repeat(y, 10), clusters=np.repeat(every, 10)
    )
    one, ten = (select_calibrator(p, ["temperature"]) for p in (once, often))
    for a, b in zip(one.candidates, ten.candidates, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.error == pytest.approx(b.error, rel=1e-4, abs=1e-9)
        assert a.verdict == b.verdict


def test_weights_reach_the_fit() -> None:
    weights = np.array([1.0, 3.0] * 30)
    weighted = TemperatureScaling().fit(Predictions(logits=Z, labels=Y, weights=weights))
    rows = np.repeat(np.arange(N), weights.astype(int))
    repeated = TemperatureScaling().fit(Predictions(logits=Z[rows], labels=Y[rows]))
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-5)


def test_stored_weights_are_ratios_and_those_of_a_fit_repetitions() -> None:
    """Told apart by a penalty, which is worth a fixed number of samples."""
    weights = np.array([1.0, 3.0] * 30)

    def fitted(factor: float) -> np.ndarray:
        p = Predictions(logits=Z, labels=Y, weights=factor * weights)
        return VectorScaling(strength=0.1).fit(p).transform(p).probs

    def repeated(factor: float) -> np.ndarray:
        p = Predictions(logits=Z, labels=Y)
        return VectorScaling(strength=0.1).fit(p, weights=factor * weights).transform(p).probs

    assert (fitted(1) == fitted(4)).all()
    assert np.abs(repeated(1) - repeated(4)).max() > 1e-4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": np.arange(3)}, r"clusters must have shape \(60,\)"),
        ({"clusters": np.full(N, np.nan)}, "clusters must be integers or strings"),
        ({"groups": np.arange(N)}, "groups must map names to arrays"),
        ({"groups": {"site": np.arange(5)}}, r"groups\['site'\] must have shape"),
        ({"groups": {3: np.arange(N)}}, "groups must have strings as names"),
        ({"weights": np.zeros(N)}, "weights must be finite numbers above 0; got 0 in row 0"),
        ({"weights": np.full(N, np.inf)}, "weights must be finite"),
        ({"weights": ["a"] * N}, "weights must hold real numbers"),
    ],
)
def test_bad_belonging(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Predictions(logits=Z, labels=Y, **given)
