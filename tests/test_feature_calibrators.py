"""ConfidNet and the trust score: what they learn, refuse, write and read."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from calibrant import Confidences, InputError, Predictions, metrics
from calibrant._core.checks import ConvergenceError, NotFittedError
from calibrant.calibrators import ConfidNet, TrustScore
from calibrant.calibrators._features import FeatureCalibrator

SMALL: dict[str, Any] = {"hidden": (16, 8), "epochs": 3, "batch_size": 64}
KINDS: dict[str, Callable[[], Any]] = {
    "ConfidNet": lambda: ConfidNet(**SMALL),
    "TrustScore": lambda: TrustScore(alpha=0.1, k=3),
}


def clusters(num_samples: int, seed: int, *, width: int = 3) -> tuple[Predictions, np.ndarray]:
    """Features around one centre per class, and a classifier that is often right."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, num_samples)
    x = 2 * np.eye(4, width)[labels] + rng.normal(size=(num_samples, width))
    z = np.eye(4)[labels] + rng.normal(size=(num_samples, 4))
    return Predictions(logits=z, labels=labels), x.astype(np.float32)


def unaware(num_samples: int, seed: int) -> tuple[Predictions, np.ndarray]:
    """A classifier whose errors depend on a feature, and whose confidence ignores it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_samples, 4))
    labels = rng.integers(0, 4, num_samples)
    wrong = rng.random(num_samples) > 1 / (1 + np.exp(-6 * (np.abs(x[:, 0]) - 0.7)))
    said = np.where(wrong, labels + rng.integers(1, 4, num_samples), labels) % 4
    z = rng.normal(0, 0.3, (num_samples, 4))
    z[np.arange(num_samples), said] = rng.uniform(2, 5, num_samples)
    return Predictions(logits=z, labels=labels), x


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """On a busy machine the threads of small matrix products mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=KINDS)
def fitted(request: pytest.FixtureRequest) -> Any:
    p, x = clusters(300, 0)
    return KINDS[request.param]().fit(p, features=x)


@pytest.fixture(scope="module")
def head() -> ConfidNet:
    p, x = clusters(300, 0)
    return ConfidNet(**SMALL).fit(p, features=x)


# --- ConfidNet --------------------------------------------------------------------------------


def test_learns_the_probability_of_the_true_class() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (2400, 3))
    margin = 2 * np.sin(2 * x[:, 0]) + x[:, 1]
    p = Predictions.from_binary(logits=margin, labels=np.ones(len(x), int))
    train, test = np.arange(1600), np.arange(1600, 2400)
    c = ConfidNet(hidden=(64, 64), learning_rate=0.01, epochs=20).fit(
        p.take(train), features=x[train]
    )
    found = c.transform(p.take(test), features=x[test])
    truth = 1 / (1 + np.exp(-margin[test]))
    assert np.mean((found.confidence - truth) ** 2) < 0.02 * truth.var()
    assert np.array_equal(found.correct, margin[test] > 0)


def test_ranks_errors_the_confidence_does_not_see() -> None:
    p, x = unaware(2000, 0)
    q, y = unaware(2000, 1)
    c = ConfidNet(hidden=(32, 32), learning_rate=0.01, epochs=20).fit(p, features=x)
    assert metrics.auroc(q) < 0.55
    assert metrics.auroc(c.transform(q, features=y)) > 0.85


def test_only_the_true_class_matters_not_the_top_one() -> None:
    """Half the samples look alike and are wrong: their target is the label's share, 0.1."""
    side = np.arange(400) % 2
    p = Predictions.from_binary(probs=np.full(400, 0.9), labels=side)
    c = ConfidNet(hidden=(), learning_rate=0.05).fit(p, features=side[:, None])
    found = c.transform(p, features=side[:, None]).confidence
    assert found[side == 1] == pytest.approx(0.9, abs=0.02)
    assert found[side == 0] == pytest.approx(0.1, abs=0.02)


def test_same_seed_same_head_other_seed_other_head(head: ConfidNet) -> None:
    p, x = clusters(300, 0)
    again = head.clone().fit(p, features=x)
    other = ConfidNet(**SMALL, seed=1).fit(p, features=x)
    for a, b, c in zip(head.weights_, again.weights_, other.weights_, strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)


def test_global_random_states_are_left_alone() -> None:
    p, x = clusters(100, 0)
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002 - the state others may use
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = ConfidNet(**SMALL).fit(p, features=x)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    torch.manual_seed(8)
    assert np.array_equal(ConfidNet(**SMALL).fit(p, features=x).weights_[0], first.weights_[0])


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_fits_where_gradients_are_off(head: ConfidNet, quiet: Any) -> None:
    p, x = clusters(300, 0)
    with quiet():
        again = head.clone().fit(p, features=x)
    assert np.array_equal(again.weights_[0], head.weights_[0])


def test_keeps_the_epoch_of_least_validation_loss() -> None:
    """Labels unrelated to the features: the longer the training, the worse the head."""
    rng = np.random.default_rng(0)
    p = Predictions(logits=rng.normal(0, 3, (200, 4)), labels=rng.integers(0, 4, 200))
    x = rng.normal(size=(200, 20))
    long = ConfidNet(hidden=(64,), epochs=30, learning_rate=0.01).fit(p, features=x)
    best = int(long.validation_losses_.argmin())
    assert len(long.validation_losses_) == 30
    assert best < 20
    short = ConfidNet(hidden=(64,), epochs=best + 1, learning_rate=0.01).fit(p, features=x)
    assert np.array_equal(short.weights_[0], long.weights_[0])
    held = np.random.default_rng(0).permutation(200)[:20]
    found = long.transform(p, features=x).confidence
    loss = np.mean((found - np.exp(p.label_log_prob))[held] ** 2)
    assert loss == pytest.approx(long.validation_losses_.min(), rel=1e-5)


def test_units_and_origin_of_features_do_not_matter(head: ConfidNet) -> None:
    p, x = clusters(300, 0)
    moved = x.astype(np.float64) * [1e3, 1e-6, 5.0] + [1e6, 0, -3]
    again = head.clone().fit(p, features=moved)
    got, want = again.transform(p, features=moved), head.transform(p, features=x)
    assert got.confidence == pytest.approx(want.confidence, abs=1e-4)


def test_constant_features_are_not_used() -> None:
    p, x = clusters(200, 0)
    for constant in (0.0, 0.1, 1e8):
        wide = np.column_stack([x.astype(np.float64), np.full(200, constant)])
        c = ConfidNet(**SMALL).fit(p, features=wide)
        before = c.transform(p, features=wide).confidence
        wide[:, -1] += 1000
        assert np.array_equal(c.transform(p, features=wide).confidence, before)


def test_far_away_features_give_a_confidence(head: ConfidNet) -> None:
    p, _ = clusters(2, 0)
    far = np.array([[1e100, -1e100, 1e100], [-1e100, 1e99, 1e9]])
    found = head.transform(p, features=far).confidence
    assert ((found >= 0) & (found <= 1)).all()
    deviations = head.mean_ + np.sign(far) * 1e4 / head.scale_
    assert found == pytest.approx(head.transform(p, features=deviations).confidence, rel=1e-9)
    module = head.to_module()(torch.tensor(far)).numpy()
    assert module == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize("hidden", [(), (5,), (16, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_module_agrees(hidden: tuple[int, ...], dtype: torch.dtype) -> None:
    p, x = clusters(200, 0)
    shifted = x + np.float32(100)  # a mean far from 0
    c = ConfidNet(hidden=hidden, epochs=5, learning_rate=0.05).fit(p, features=shifted)
    module = c.to_module()
    want = c.transform(p, features=shifted).confidence
    z = torch.from_numpy(shifted).to(dtype)
    assert module(z).shape == (200,)
    assert module(z).numpy() == pytest.approx(want, abs=1e-5)
    assert want.std() > 0.01


@pytest.mark.slow  # loading the tracer of PyTorch takes ten seconds
def test_module_exports(head: ConfidNet) -> None:
    p, x = clusters(300, 0)
    shapes = {"features": {0: torch.export.Dim("n")}}
    program = torch.export.export(
        head.to_module(), (torch.from_numpy(x[:5]),), dynamic_shapes=shapes
    )
    got = program.module()(torch.from_numpy(x)).numpy()
    assert got == pytest.approx(head.transform(p, features=x).confidence, abs=1e-5)


def test_chunks_are_those_of_the_rows(head: ConfidNet, monkeypatch: pytest.MonkeyPatch) -> None:
    p, x = clusters(300, 0)
    want = head.transform(p, features=x).confidence
    monkeypatch.setattr("calibrant._core.arrays.CHUNK_ELEMENTS", 16 * 7)  # seven rows of 16 units
    assert head.transform(p, features=x).confidence == pytest.approx(want, abs=1e-12)
    again = head.clone().fit(p, features=x)
    assert again.mean_ == pytest.approx(head.mean_, rel=1e-12)
    assert again.scale_ == pytest.approx(head.scale_, rel=1e-12)


def test_two_samples_do_and_one_does_not() -> None:
    p, x = clusters(2, 0)
    found = ConfidNet(**SMALL).fit(p, features=x).transform(p, features=x)
    assert np.isfinite(found.confidence).all()
    with pytest.raises(InputError, match="at least two samples; got 1"):
        ConfidNet(**SMALL).fit(p.take([0]), features=x[:1])


def test_divergence_is_an_error() -> None:
    p, x = clusters(200, 0)
    with pytest.raises(ConvergenceError, match=r"diverged.*Lower learning_rate"):
        ConfidNet(hidden=(8,), epochs=5, learning_rate=1e30).fit(p, features=x)


def test_transform_needs_no_torch(head: ConfidNet, monkeypatch: pytest.MonkeyPatch) -> None:
    p, x = clusters(20, 0)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert len(head.transform(p, features=x)) == 20
    for needs in (head.to_module, lambda: ConfidNet().fit(p, features=x)):
        with pytest.raises(InputError, match=r"pip install 'calibrant\[train\]'"):
            needs()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", 400),
        ("hidden", (0,)),
        ("hidden", (2.5,)),
        ("hidden", (True,)),
        ("hidden", (1,) * 21),
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", 0),
        ("learning_rate", math.nan),
        ("weight_decay", -1),
        ("weight_decay", math.inf),
        ("weight_decay", "1"),
        ("validation_fraction", 0),
        ("validation_fraction", 1),
        ("seed", -1),
        ("seed", 0.5),
    ],
)
def test_bad_parameters_of_confidnet(name: str, value: Any) -> None:
    p, x = clusters(20, 0)
    with pytest.raises(InputError, match=f"^{name} must"):
        ConfidNet(**{name: value}).fit(p, features=x)


def test_weight_decay_shrinks_the_weights() -> None:
    """In a single epoch, since the best one of several may be the first."""
    p, x = clusters(300, 0)
    heavy, light = (
        ConfidNet(hidden=(16,), epochs=1, batch_size=4, learning_rate=0.01, weight_decay=decay)
        for decay in (1.0, 0.0)
    )
    shrunk = np.abs(heavy.fit(p, features=x).weights_[0]).sum()
    assert shrunk < 0.8 * np.abs(light.fit(p, features=x).weights_[0]).sum()


# --- trust score ------------------------------------------------------------------------------


def twin(
    fit: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray], alpha: float, k: int
) -> list[float]:
    """The score after the paper, sample by sample, in plain Python."""
    kept: dict[int, list[tuple[float, ...]]] = {}
    for label in sorted(set(fit[1].tolist())):
        points = [
            tuple(x) for x, y in zip(fit[0].tolist(), fit[1].tolist(), strict=True) if y == label
        ]
        radii = []
        for a in points:
            near = sorted(math.dist(a, b) for b in points)  # itself is the first
            radii.append(near[min(k, len(points)) - 1])
        # The least radius that at most alpha * n exceed.
        limit = min(
            r for r in radii if sum(other > r for other in radii) <= alpha * len(points) + 1e-9
        )
        kept[label] = [x for x, r in zip(points, radii, strict=True) if r <= limit]
    scores = []
    for x, said in zip(new[0].tolist(), new[1].tolist(), strict=True):
        far = {label: min(math.dist(x, b) for b in points) for label, points in kept.items()}
        own = far.pop(said, math.inf)
        other = min(far.values(), default=math.inf)
        if own == 0:
            scores.append(1.0 if other == 0 else math.inf)
        else:
            scores.append(other / own)
    return scores


def drawn(seed: int, *, width: int, whole: bool, classes: int) -> tuple[Predictions, np.ndarray]:
    """Features with labels; whole numbers give ties and equal points."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1.5, (120, width))
    labels = rng.integers(0, classes, 120)
    return Predictions(logits=rng.normal(size=(120, 4)), labels=labels), np.round(x) if whole else x


@pytest.mark.parametrize("classes", [4, 3, 2, 1], ids="{} classes present".format)
@pytest.mark.parametrize(("alpha", "k"), [(0, 10), (0.1, 3), (0.29, 10), (0.9, 2), (0.5, 100)])
@pytest.mark.parametrize(("width", "whole"), [(2, True), (3, False), (20, True), (30, False)])
def test_twin(width: int, whole: bool, alpha: float, k: int, classes: int) -> None:
    p, x = drawn(0, width=width, whole=whole, classes=classes)
    q, y = drawn(1, width=width, whole=whole, classes=4)
    y[:40] = x[:40]  # samples the fit has seen
    c = TrustScore(alpha=alpha, k=k).fit(p, features=x)
    want = np.array(twin((x, p.labels), (y, q.predicted), alpha, k))
    assert c.score(q, features=y) == pytest.approx(want, rel=1e-9)
    found = c.transform(q, features=y)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isinf(want), 1, want / (1 + want))
    assert found.confidence == pytest.approx(share, rel=1e-9)
    assert np.array_equal(found.correct, q.correct)


def test_edges_of_the_score() -> None:
    """Classes 0 and 1 share a point, class 2 has none."""
    p = Predictions(logits=np.zeros((4, 3)), labels=[0, 0, 1, 1])
    c = TrustScore().fit(p, features=[[0.0], [1.0], [1.0], [3.0]])
    q = Predictions(logits=np.eye(3)[[0, 0, 1, 1, 2]], labels=[0, 0, 1, 1, 2])
    x = [[0.0], [1.0], [1.0], [2.5], [9.0]]
    assert c.score(q, features=x).tolist() == [math.inf, 1, 1, 3, 0]
    assert c.transform(q, features=x).confidence.tolist() == [1, 0.5, 0.5, 0.75, 0]
    one = TrustScore().fit(p.take([0, 1]), features=[[0.0], [1.0]])
    assert one.score(q, features=x).tolist() == [math.inf, math.inf, 0, 0, 0]
    assert one.transform(q, features=x).confidence.tolist() == [1, 1, 0, 0, 0]


def test_alpha_leaves_out_the_loneliest() -> None:
    x = np.array([[0.0], [1.0], [2.0], [3.0], [100.0], [50.0], [51.0], [52.0], [53.0], [-900.0]])
    p = Predictions(logits=np.zeros((10, 2)), labels=[0] * 5 + [1] * 5)
    c = TrustScore(alpha=0.2, k=2).fit(p, features=x)
    assert c.points_[:, 0].tolist() == [0, 1, 2, 3, 50, 51, 52, 53]
    assert c.point_classes_.tolist() == [0] * 4 + [1] * 4
    below = TrustScore(alpha=0.19, k=2).fit(p, features=x)  # less than one sample of five
    assert len(below.points_) == 10
    # All radii but one are equal: of equals, all stay.
    assert np.array_equal(TrustScore(alpha=0.4, k=2).fit(p, features=x).points_, c.points_)


def test_alpha_is_a_part_of_the_samples_without_rounding() -> None:
    """0.29 * 100 is 28.999999999999996 and means 29."""
    p = Predictions(logits=np.zeros((100, 2)), labels=[0] * 100)
    c = TrustScore(alpha=0.29, k=2).fit(p, features=1.1 ** np.arange(100)[:, None])
    assert len(c.points_) == 71


def test_score_finds_errors_and_noise_is_left_out() -> None:
    p, x = clusters(1500, 0)
    q, y = clusters(1500, 1)
    good = metrics.auroc(TrustScore().fit(p, features=x).transform(q, features=y))
    assert good > 0.75
    rng = np.random.default_rng(0)
    lost = rng.random(1500) < 0.05  # a label and a place that have nothing to do with each other
    noisy = np.where(lost[:, None], rng.uniform(-20, 20, x.shape), x)
    labels = np.where(lost, rng.integers(0, 4, 1500), p.labels)
    fit = Predictions(logits=p.logits, labels=labels)
    kept = TrustScore(alpha=0.06).fit(fit, features=noisy).points_
    assert np.abs(kept).max() < 10
    assert np.abs(noisy).max() > 15


@pytest.mark.parametrize("width", [3, 40])
def test_order_of_samples_does_not_matter(width: int) -> None:
    p, x = clusters(400, 0, width=width)
    order = np.random.default_rng(0).permutation(400)
    a = TrustScore(alpha=0.2, k=5).fit(p, features=x)
    b = TrustScore(alpha=0.2, k=5).fit(p.take(order), features=x[order])
    q, y = clusters(100, 1, width=width)
    want = a.score(q, features=y)
    assert b.score(q, features=y) == pytest.approx(want, rel=1e-12)
    back = np.arange(100)[::-1]
    assert b.score(q.take(back), features=y[back])[::-1] == pytest.approx(want, rel=1e-12)


def test_equal_points_have_distance_zero_in_many_dimensions() -> None:
    p, x = clusters(300, 0, width=200)
    far = x.astype(np.float64) + 1e4
    score = TrustScore().fit(p, features=far).score(p, features=far)
    assert np.array_equal(np.isinf(score), p.correct)
    assert (score[~p.correct] == 0).all()


def test_blocks_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    p, x = clusters(200, 0)
    c = TrustScore().fit(p, features=x)
    q, y = clusters(100, 1)
    want = c.score(q, features=y)
    monkeypatch.setattr("calibrant.calibrators._trust_score.BLOCK_ELEMENTS", 3 * 7)
    assert np.array_equal(c.score(q, features=y), want)


def test_far_away_features_have_a_score() -> None:
    p, _ = clusters(60, 0)
    x = np.random.default_rng(0).choice([-1e100, 0, 1e-200, 1e100], (60, 3))
    c = TrustScore(alpha=0.1, k=3).fit(p, features=x)
    assert not np.isnan(c.score(p, features=x[::-1])).any()
    assert np.isfinite(c.transform(p, features=x[::-1]).confidence).all()


def test_trust_score_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    p, x = clusters(20, 0)
    monkeypatch.setitem(sys.modules, "sklearn.neighbors", None)
    with pytest.raises(InputError, match=r"pip install 'calibrant\[sklearn\]'"):
        TrustScore().fit(p, features=x)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", -0.1),
        ("alpha", 1),
        ("alpha", math.nan),
        ("alpha", "0"),
        ("alpha", True),
        ("k", 1),
        ("k", 2.5),
        ("k", None),
    ],
)
def test_bad_parameters_of_trust_score(name: str, value: Any) -> None:
    p, x = clusters(20, 0)
    with pytest.raises(InputError, match=f"^{name} must"):
        TrustScore(**{name: value}).fit(p, features=x)


# --- both -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_unfitted(kind: str, tmp_path: Path) -> None:
    p, x = clusters(10, 0)
    c = KINDS[kind]()
    uses = [lambda: c.transform(p, features=x), lambda: c.save(tmp_path / "c.json")]
    uses += [c.to_module] if kind == "ConfidNet" else [lambda: c.score(p, features=x)]
    for use in uses:
        with pytest.raises(NotFittedError, match=f"{kind} is not fitted yet; call fit"):
            use()
    assert not c.is_fitted
    assert list(tmp_path.iterdir()) == []


X = np.zeros((20, 3))


def holed(value: float) -> np.ndarray:
    x = X.copy()
    x[7, 1] = value
    return x


BAD_FEATURES = {
    "one dimension": (X[:, 0], r"shape \(20, D\).*got shape \(20,\)"),
    "three dimensions": (X[:, :, None], r"got shape \(20, 3, 1\)"),
    "too few rows": (X[:19], r"shape \(20, D\).*got shape \(19, 3\)"),
    "no columns": (X[:, :0], r"got shape \(20, 0\)"),
    "NaN": (holed(math.nan), "finite.*got nan in row 7"),
    "infinity": (holed(-math.inf).astype(np.float32), "finite.*got -inf in row 7"),
    "too large": (holed(1e101), r"at most 1e\+100 in size; got 1e\+101 in row 7"),
    "text": ([["a"] * 3] * 20, "real numbers; got dtype"),
    "complex": (X.astype(complex), "real numbers; got dtype complex128"),
    "ragged": ([[1.0], [1.0, 2.0]], "must be one array"),
    "nothing": (None, "features"),
}


@pytest.mark.parametrize("bad", BAD_FEATURES)
def test_bad_features(fitted: Any, bad: str) -> None:
    features, message = BAD_FEATURES[bad]
    p, _ = clusters(20, 0)
    for use in (fitted.transform, fitted.clone().fit):
        with pytest.raises(InputError, match=f"^features.*{message}|^{message}"):
            use(p, features=features)


def test_other_data_than_that_of_the_fit(fitted: Any) -> None:
    p, x = clusters(20, 0)
    with pytest.raises(InputError, match="must have 3 columns like those of the fit; got 2"):
        fitted.transform(p, features=x[:, :2])
    with pytest.raises(InputError, match="must have 4 classes, like the data of the fit; got 2"):
        fitted.transform(Predictions(logits=np.zeros((20, 2)), labels=[0] * 20), features=x)
    for use in (fitted.transform, fitted.clone().fit):
        with pytest.raises(InputError, match="must be Predictions; got Confidences"):
            use(Confidences(confidence=[0.5] * 20, correct=[1] * 20), features=x)


@pytest.mark.parametrize("kind", KINDS)
def test_class_names_must_match(kind: str) -> None:
    p, x = clusters(50, 0)
    named, swapped, unnamed = (
        Predictions(logits=p.logits, labels=p.labels, classes=names, meta={"model": "m"})
        for names in (tuple("abcd"), tuple("abdc"), None)
    )
    c = KINDS[kind]().fit(named, features=x)
    with pytest.raises(InputError, match="got 'd' where the fit had 'c'"):
        c.transform(swapped, features=x)
    assert dict(c.transform(unnamed, features=x).meta) == {"model": "m"}


def test_torch_features(fitted: Any) -> None:
    p, x = clusters(20, 0)
    tensor = torch.from_numpy(x).requires_grad_()
    got, want = fitted.transform(p, features=tensor), fitted.transform(p, features=x)
    assert np.array_equal(got.confidence, want.confidence)
    rough = fitted.transform(p, features=torch.from_numpy(x).to(torch.bfloat16))
    assert rough.confidence == pytest.approx(want.confidence, abs=0.1)


def test_labels_are_never_looked_at_by_transform(fitted: Any) -> None:
    p, x = clusters(50, 1)
    other = Predictions(logits=p.logits, labels=(p.labels + 1) % 4)
    got, want = fitted.transform(other, features=x), fitted.transform(p, features=x)
    assert np.array_equal(got.confidence, want.confidence)
    assert np.array_equal(got.correct, other.correct)


def test_clone_repr_and_new_fit(fitted: Any) -> None:
    assert not fitted.clone().is_fitted
    assert fitted.clone().params() == fitted.params()
    assert eval(repr(fitted)).params() == fitted.params()
    assert repr(ConfidNet()) == "ConfidNet()"
    assert fitted.needs_features
    p, x = clusters(50, 1, width=5)
    again = copy.deepcopy(fitted).fit(p, features=x)
    assert again.num_features_ == 5
    assert len(again.transform(p, features=x)) == 50


def test_pickle(fitted: Any) -> None:
    p, x = clusters(50, 1)
    want = fitted.transform(p, features=x).confidence
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.transform(p, features=x).confidence, want)


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_is_exact(kind: str, tmp_path: Path) -> None:
    p, x = clusters(100, 0)
    p = Predictions(logits=p.logits, labels=p.labels, classes=tuple("abcd"))
    c = KINDS[kind]().fit(p, features=x)
    c.save(tmp_path / "c.json")
    again = type(c).load(tmp_path / "c.json")
    assert type(again) is type(c)
    assert again.params() == c.params()
    assert vars(again).keys() == vars(c).keys()
    for name, value in vars(c).items():
        if name.endswith("_"):
            pairs = (
                zip(value, vars(again)[name], strict=True)
                if name in ("weights_", "biases_")
                else [(value, vars(again)[name])]
            )
            for a, b in pairs:
                assert np.array_equal(a, b)
                assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    q, y = clusters(50, 1)
    want = c.transform(q, features=y).confidence
    assert np.array_equal(again.transform(q, features=y).confidence, want)
    assert type(FeatureCalibrator.load(tmp_path / "c.json")) is type(c)


def test_numpy_parameters_can_be_saved(tmp_path: Path) -> None:
    p, x = clusters(20, 0)
    c = ConfidNet(hidden=[np.int64(4)], epochs=np.int64(1))  # type: ignore[arg-type, list-item]
    c.fit(p, features=x).save(tmp_path / "c.json")
    assert ConfidNet.load(tmp_path / "c.json").hidden == (4,)


def test_the_other_kind_and_no_file(fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "c.json")
    wrong = TrustScore if isinstance(fitted, ConfidNet) else ConfidNet
    kind = type(fitted).__name__
    with pytest.raises(InputError, match=f"c.json must hold a {wrong.__name__}; got a {kind}"):
        wrong.load(tmp_path / "c.json")
    with pytest.raises(FileNotFoundError, match="no such file"):
        wrong.load(tmp_path / "none.json")
    with pytest.raises(InputError, match="must be a regular file; got a folder"):
        wrong.load(tmp_path)


def saved(kind: str, tmp_path: Path) -> dict[str, Any]:
    p, x = clusters(20, 0)
    c = ConfidNet(hidden=(2,), epochs=1) if kind == "ConfidNet" else TrustScore()
    c.fit(p, features=x).save(tmp_path / "good.json")
    data: dict[str, Any] = json.loads((tmp_path / "good.json").read_text())
    return data


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Set the last value at the keys before it."""
    *keys, last, value = path

    def change(data: Any) -> None:
        for key in keys:
            data = data[key]
        data[last] = value

    return change


def drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last = path

    def change(data: Any) -> None:
        for key in keys:
            data = data[key]
        del data[last]

    return change


BOTH = {
    "schema": put("schema", "calibrant.calibrator"),
    "no schema": drop("schema"),
    "version": put("version", 2),
    "version as truth": put("version", True),
    "more fields": put("hook", "os.system"),
    "fewer fields": drop("package"),
    "method": put("method", "Popen"),
    "method as list": put("method", []),
    "base class": put("method", "FeatureCalibrator"),
    "params as list": put("params", []),
    "params as text": put("params", "x"),
    "unknown parameter": put("params", "n", 1),
    "learned by parameter": put("params", "points_", 1),
    "learned as list": put("learned", []),
    "learned as null": put("learned", None),
    "more learned": put("learned", "extra_", 1),
    "no classes": put("num_classes", None),
    "one class": put("num_classes", 1),
    "half a class": put("num_classes", 2.5),
    "too many classes": put("num_classes", 10**12),
    "names too few": put("classes", ["a"]),
    "names are numbers": put("classes", [1, 2, 3, 4]),
    "names as number": put("classes", 4),
}
HOSTILE: dict[str, dict[str, Callable[[dict[str, Any]], None]]] = {
    "ConfidNet": {
        **BOTH,
        "epochs": put("params", "epochs", -1),
        "infinite rate": put("params", "learning_rate", "1e999 as number"),
        "hidden as number": put("params", "hidden", 2),
        "hidden is nested": put("params", "hidden", [[2]]),
        "hidden of another head": put("params", "hidden", [3]),
        "more layers": put("params", "hidden", [2, 2]),
        "no weights": drop("learned", "weights_"),
        "weights as text": put("learned", "weights_", "ab"),
        "weights as object": put("learned", "weights_", {"0": 1, "1": 2}),
        "no layers": put("learned", "weights_", []),
        "layer of text": put("learned", "weights_", 0, [["1", "2"]] * 3),
        "layer of null": put("learned", "weights_", 0, None),
        "ragged layer": put("learned", "weights_", 0, [[1.0, 2.0], [1.0], [1.0, 2.0]]),
        "layer turned": put("learned", "weights_", 0, [[1.0] * 3] * 2),
        "large weight": put("learned", "weights_", 1, [[1e7], [0.0]]),
        "huge weight": put("learned", "weights_", 1, [[1e300], [0.0]]),
        "infinite weight": put("learned", "weights_", 1, [["1e999 as number"], [0.0]]),
        "endless integer": put("learned", "weights_", 1, [[10**400], [0]]),
        "bias as matrix": put("learned", "biases_", 0, [[0.0, 0.0]]),
        "bias too long": put("learned", "biases_", 1, [0.0, 0.0]),
        "mean of another width": put("learned", "mean_", [0.0] * 4),
        "mean is empty": put("learned", "mean_", []),
        "infinite mean": put("learned", "mean_", 0, "1e999 as number"),
        "scale too short": put("learned", "scale_", [1.0]),
        "negative scale": put("learned", "scale_", 0, -1.0),
        "losses as number": put("learned", "validation_losses_", 0.5),
    },
    "TrustScore": {
        **BOTH,
        "alpha": put("params", "alpha", 1.5),
        "alpha as list": put("params", "alpha", [0]),
        "k": put("params", "k", True),
        "no points": put("learned", "points_", []),
        "points without width": put("learned", "points_", [[]] * 20),
        "flat points": put("learned", "points_", [0.0] * 20),
        "deep points": put("learned", "points_", [[[0.0]]] * 20),
        "points of text": put("learned", "points_", [["0", "1", "2"]] * 20),
        "ragged points": put("learned", "points_", 3, [0.0]),
        "infinite point": put("learned", "points_", 0, 0, "1e999 as number"),
        "too large point": put("learned", "points_", 0, 0, 1e101),
        "labels too few": put("learned", "point_classes_", [0]),
        "label too large": put("learned", "point_classes_", -1, 4),
        "negative label": put("learned", "point_classes_", 0, -1),
        "half a label": put("learned", "point_classes_", -1, 3.5),
        "labels fall": put("learned", "point_classes_", 0, 3),
        "labels missing": drop("learned", "point_classes_"),
    },
}


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, table in HOSTILE.items() for n in table])
def test_hostile_files_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    data = saved(kind, tmp_path)
    HOSTILE[kind][name](data)
    text = json.dumps(data).replace('"1e999 as number"', "1e999")
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(
        InputError, match=r"^bad\.json does not contain a valid calibrator: \S"
    ) as caught:
        FeatureCalibrator.load(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


NO_JSON = {
    "empty": b"",
    "binary": bytes(range(256)),
    "cut": b'{"schema": "calibrant.feature_calibrator", "version": 1',
    "NaN": b'{"schema": "calibrant.feature_calibrator", "version": NaN}',
    "infinity": b"[-Infinity]",
    "a name twice": b'{"schema": "a", "schema": "calibrant.feature_calibrator"}',
    "deep": b"[" * 100_000,
    "long number": b"[" + b"1" * 10_000 + b"]",
}


@pytest.mark.parametrize("name", NO_JSON)
def test_what_is_no_json_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(NO_JSON[name])
    with pytest.raises(InputError, match=r"^bad\.json is not a calibrator: \S.*Save it again\.$"):
        FeatureCalibrator.load(tmp_path / "bad.json")


def test_files_that_only_look_odd_are_read(tmp_path: Path) -> None:
    """Whole numbers among the learned are numbers too."""
    data = saved("ConfidNet", tmp_path)
    put("learned", "weights_", 1, [[1], [0]])(data)
    (tmp_path / "odd.json").write_text(json.dumps(data, indent=2))
    assert ConfidNet.load(tmp_path / "odd.json").weights_[1].tolist() == [[1.0], [0.0]]


def test_largest_weights_do_not_overflow(tmp_path: Path) -> None:
    """The worst a file can hold still gives a confidence."""
    p, x = clusters(20, 0)
    c = ConfidNet(hidden=(2,) * 20, epochs=1).fit(p, features=x)
    c.weights_ = [np.full_like(w, 1e6) for w in c.weights_]
    c.weights_[-1][0] = -1e6
    c.save(tmp_path / "c.json")
    again = ConfidNet.load(tmp_path / "c.json")
    assert np.isfinite(again.transform(p, features=x * 1e10).confidence).all()
