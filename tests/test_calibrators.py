"""Each calibrator against a second implementation of its formula, golden numbers and peers."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import expit, log_softmax, logsumexp, softmax

from calibrant import Confidences, InputError, Predictions, metrics
from calibrant._core.arrays import fold_numbers
from calibrant._core.checks import CalibrationWarning, ConvergenceError
from calibrant.calibrators import (
    Beta,
    Chain,
    CrossFitted,
    Dirichlet,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    MatrixScaling,
    Platt,
    ScalingBinning,
    Spline,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    _candidates,
    automatic,
    select_calibrator,
)
from calibrant.calibrators._soft_ece import soft_binned_ece
from tests.conftest import CASES, draw


def nll(z: np.ndarray, y: np.ndarray) -> float:
    return float((logsumexp(z, axis=1) - z[np.arange(len(y)), y]).mean())


def best_temperature(z: np.ndarray, y: np.ndarray) -> float:
    z = z.astype(np.float64)
    found = minimize_scalar(
        lambda x: nll(z * math.exp(-x), y),
        bounds=(-7, 7),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return math.exp(found.x)


def make(num_samples: int, num_classes: int, seed: int, dtype: str = "float64") -> Predictions:
    z, labels = draw(num_samples, num_classes, seed=seed, dtype=dtype)
    return Predictions(logits=z, labels=labels)


# --- temperature ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 6.1, 20.0, 50.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_temperature_is_the_optimum(scale: float, dtype: str) -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(3000, 12)) * 2
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    z = (z * scale).astype(dtype)
    t = TemperatureScaling().fit(Predictions(logits=z, labels=y)).temperature_
    wide = z.astype(np.float64)
    assert nll(wide / t, y) <= nll(wide / best_temperature(z, y), y) + 1e-13

    def slope(log_t: float) -> float:
        u = wide * math.exp(-log_t)
        p = softmax(u, axis=1)
        return float((u[np.arange(len(y)), y] - (p * u).sum(axis=1)).mean())

    assert abs(slope(math.log(t))) < 1e-6 * abs(slope(math.log(t) + 1))


# Slow tests of this file that have an oracle of their own in tests/test_calibrator_oracles.py:
# one of the two is enough for the fast tests.
@pytest.mark.slow
def test_temperature_against_scikit_learn() -> None:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.datasets import make_classification
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    x, y = make_classification(2000, 12, n_informative=8, n_classes=4, random_state=0)
    model = LogisticRegression(C=50, max_iter=2000).fit(x[:300], y[:300])
    peer = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(
        x[300:], y[300:]
    )
    p = Predictions(logits=model.decision_function(x[300:]), labels=y[300:])
    ours = TemperatureScaling().fit(p).transform(p).probs
    np.testing.assert_allclose(ours, peer.predict_proba(x[300:]), atol=1e-6)


def test_probabilities_give_the_same_temperature() -> None:
    p = make(800, 7, 1)
    q = Predictions(probs=p.probs, labels=p.labels)
    a, b = (TemperatureScaling().fit(x).temperature_ for x in (p, q))
    assert a == pytest.approx(b, rel=1e-9)


def test_no_optimum_is_said() -> None:
    z, _ = CASES["mixed signs"]
    right = Predictions(logits=z, labels=z.argmax(axis=1))
    with pytest.warns(CalibrationWarning, match="every label is the predicted class"):
        assert TemperatureScaling().fit(right).temperature_ == 0.01
    wrong = Predictions(logits=z, labels=z.argmin(axis=1))
    with pytest.warns(CalibrationWarning, match="little or no information about the labels"):
        assert TemperatureScaling().fit(wrong).temperature_ == 100
    with pytest.warns(CalibrationWarning):
        assert TemperatureScaling(bounds=(0.2, 3)).fit(right).temperature_ == 0.2
    flat = Predictions(logits=np.ones((9, 3)), labels=np.arange(9) % 3)
    assert TemperatureScaling().fit(flat).temperature_ == 1


def width_ece(c: np.ndarray, hit: np.ndarray, bins: int, norm: float) -> float:
    total = 0.0
    for b in range(bins):
        inside = (c > b / bins) & (c <= (b + 1) / bins)
        if inside.any():
            gap = abs(hit[inside].mean() - c[inside].mean())
            total += inside.mean() * gap**norm
    return total ** (1 / norm)


def mixed(num_samples: int, num_classes: int, seed: int) -> Predictions:
    """Half too sure, half too timid: no temperature fixes both."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (num_samples, num_classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(logits=z * rng.choice([0.2, 4.0], num_samples)[:, None], labels=y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"bins": 7, "norm": 2}, {"grid": "mukhoti2020"}, {"grid": [0.5, 0.9, 1.4, 3.0]}],
    ids=str,
)
@pytest.mark.parametrize("data", ["plain", "mixed"])
def test_ece_temperature_is_the_grids_argmin(options: dict, data: str) -> None:
    p = make(500, 6, 4, "float32") if data == "plain" else mixed(500, 6, 4)
    grid = options.get("grid", np.arange(1, 1001) / 100)
    grid = np.arange(1, 101) / 10 if isinstance(grid, str) else np.asarray(grid)
    bins, norm = options.get("bins", 15), options.get("norm", 1)
    z = p.logits.astype(np.float64)
    values = []
    for t in grid:
        c = softmax(z / t, axis=1).max(axis=1)
        values.append(width_ece(c, p.correct, bins, norm))
    got = TemperatureScaling(objective="ece", **options).fit(p).temperature_
    at = values[int(np.flatnonzero(grid == got)[0])]
    assert at <= min(values) + 1e-12
    assert got == grid[int(np.argmin(np.round(values, 12)))]


def test_equal_mass_temperature_is_the_grids_argmin() -> None:
    p = mixed(300, 5, 9)
    got = TemperatureScaling(objective="ece", binning="mass", grid="mukhoti2020").fit(p)
    values = [
        metrics.adaptive_ece(TemperatureScaling(temperature=float(t)).transform(p))
        for t in np.arange(1, 101) / 10
    ]
    assert got.temperature_ == (np.argmin(values) + 1) / 10


def brute_soft_ece(c, hit, bins, softness, norm, form):
    centres = (np.arange(bins) + 0.5) / bins
    u = softmax(-((c[:, None] - centres) ** 2) / softness, axis=1)
    size = u.sum(axis=0)
    accuracy, confidence = u.T @ hit / size, u.T @ c / size
    if form == "bin":
        return float((size / len(c) * np.abs(accuracy - confidence) ** norm).sum() ** (1 / norm))
    return float((u * np.abs(accuracy - c[:, None]) ** norm).sum() / len(c)) ** (1 / norm)


def test_soft_ece_golden(shared: Path) -> None:
    """The value of the authors' own TensorFlow loss."""
    data = np.load(shared / "oracles" / "golden_inputs.npz")
    p = Predictions(logits=data["logits"], labels=data["labels"])
    arguments = (p.confidence, p.correct.astype(float), np.ones(64))
    got = soft_binned_ece(*arguments, bins=15, softness=0.01, norm=2, form="bin")
    assert got == pytest.approx(0.18447235, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("form", ["bin", "label"])
def test_soft_ece_temperature_is_the_global_optimum(form: str, norm: int) -> None:
    for p in (make(400, 5, 6), mixed(400, 5, 7)):
        c = TemperatureScaling(objective="soft_ece", form=form, norm=norm, bins=10, softness=0.005)
        t = c.fit(p).temperature_

        def at(t: float, p: Predictions = p) -> float:
            conf = softmax(p.logits / t, axis=1).max(axis=1)
            return brute_soft_ece(conf, p.correct.astype(float), 10, 0.005, norm, form)

        assert at(t) <= min(at(x) for x in np.geomspace(0.05, 20, 3000)) + 1e-9


# --- affine maps ------------------------------------------------------------------------------


def objective(c, p: Predictions, num_classes: int):
    """Mean NLL plus penalty as a function of D and b in torch, float64."""
    n, k, s = p.num_samples, num_classes, c.strength_
    z = torch.tensor(p.logits.astype(np.float64)) * c.scale_
    f = torch.log_softmax(z, 1) if c.on == "log_probs" else z
    y = torch.tensor(np.array(p.labels))

    def value(d: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        matrix = torch.diag(d) if d.ndim == 1 else d
        loss = torch.nn.functional.cross_entropy(f + f @ matrix.T + b, y)
        diagonal = torch.diagonal(matrix)
        off = (matrix**2).sum() - (diagonal**2).sum()
        if isinstance(c, Dirichlet):
            penalty = s / (k * (k - 1)) * off + c.bias_strength_ / k * (b**2).sum()
            return loss + penalty + 1e-3 * k / n * (diagonal**2).sum()
        each = s * k / n
        return loss + each * ((diagonal**2).sum() + (b**2).sum()) + each * (k - 1) * off

    return value


AFFINE = [
    VectorScaling(strength=0.3),
    VectorScaling(strength=0.3, on="log_probs"),
    VectorScaling(),
    StructuredVectorScaling(strength=1.0),
    StructuredMatrixScaling(strength=1.0),
    StructuredMatrixScaling(strength=0.01),
    MatrixScaling(strength=0.5),
    Dirichlet(strength=0.1, bias_strength=0.03),
    Dirichlet(),
]


@pytest.mark.parametrize("c", AFFINE, ids=repr)
@pytest.mark.parametrize("num_classes", [2, 5])
def test_affine_fit_is_the_optimum(c, num_classes: int) -> None:
    p = make(400, num_classes, 12)
    c = c.clone().fit(p)
    # The scale is the NLL temperature, searched for over a wider range.
    z = p.logits
    assert nll(z * c.scale_, p.labels) <= nll(z / best_temperature(z, p.labels), p.labels) + 1e-12
    value = objective(c, p, num_classes)

    def gradient(d: np.ndarray, b: np.ndarray) -> np.ndarray:
        parts = [torch.tensor(x, requires_grad=True) for x in (d, b)]
        value(*parts).backward()
        return np.concatenate([part.grad.numpy().ravel() for part in parts])

    dense = c.weight_.ndim == 2
    d = c.weight_ - (np.eye(num_classes) if dense else 1)
    start = gradient(np.zeros_like(d), np.zeros(num_classes))
    assert np.abs(gradient(d, c.bias_)).max() < 1e-6 * np.abs(start).max()
    f = p.logits * c.scale_
    f = log_softmax(f, axis=1) if c.on == "log_probs" else f
    u = (f @ c.weight_.T if dense else f * c.weight_) + c.bias_
    np.testing.assert_allclose(c.transform(p).probs, softmax(u, axis=1), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["svs", "sms"])
def test_structured_scaling_against_probmetrics(method: str) -> None:
    p = make(1500, 5, 13)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from probmetrics.calibrators import get_calibrator

        peer = get_calibrator(method).fit(p.probs, p.labels).predict_proba(p.probs)
    kind = StructuredVectorScaling if method == "svs" else StructuredMatrixScaling
    ours = kind(strength=1.0).fit(p).transform(p).probs
    # Theirs mixes 1 / (n + 1) of the uniform distribution into the features, which moves the rare
    # small probabilities.
    assert np.abs(ours - peer).mean() < 5e-4
    rows = np.arange(p.num_samples)
    assert -np.log(ours[rows, p.labels]).mean() <= -np.log(peer[rows, p.labels]).mean() + 1e-4


def test_strength_is_chosen_by_cross_validation() -> None:
    """Few samples per class need a strong penalty, many with a real offset a weak one."""
    p = make(120, 8, 14)
    assert StructuredMatrixScaling().fit(p).strength_ >= 1
    z, y = draw(6000, 4, seed=15, dtype="float64")
    shifted = Predictions(logits=z * [3, 1, 1, 0.3] + [2, 0, 0, -2], labels=y)
    assert StructuredMatrixScaling().fit(shifted).strength_ < 1


@pytest.mark.slow
def test_large_float32_fit_equals_float64() -> None:
    z, y = draw(12_000, 400, spread=2.0, seed=16)
    for c in (VectorScaling(strength=0.1), StructuredVectorScaling(strength=1.0)):
        a = c.clone().fit(Predictions(logits=z, labels=y))
        b = c.clone().fit(Predictions(logits=z.astype(np.float64), labels=y))
        np.testing.assert_allclose(a.weight_, b.weight_, atol=2e-5)
        np.testing.assert_allclose(a.bias_, b.bias_, atol=2e-4)


# --- one regression per class -----------------------------------------------------------------


def log_odds(p: Predictions) -> np.ndarray:
    z = p.logits.astype(np.float64)
    others = np.stack([logsumexp(np.delete(z, k, axis=1), axis=1) for k in range(z.shape[1])], 1)
    return z - others


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_platt(smooth: bool, num_classes: int) -> None:
    p = make(600, num_classes, 17)
    x, columns = log_odds(p), []
    for k in range(num_classes):
        hit = p.labels == k
        high = (hit.sum() + 1) / (hit.sum() + 2) if smooth else 1.0
        low = 1 / ((~hit).sum() + 2) if smooth else 0.0
        t = np.where(hit, high, low)

        def loss(theta: np.ndarray, x: np.ndarray = x[:, k], t: np.ndarray = t) -> float:
            s = theta[0] * x + theta[1]
            return float((np.logaddexp(0, s) - t * s).mean())

        found = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
        columns.append(expit(found.x[0] * x[:, k] + found.x[1]))
    expected = np.stack(columns, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    got = Platt(smooth=smooth).fit(p).transform(p).probs
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_beta_against_betacal() -> None:
    from betacal import BetaCalibration

    p = make(2000, 2, 18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = BetaCalibration("abm").fit(p.probs[:, 1:], p.labels)
        expected = peer.predict(p.probs[:, 1:])
    got = Beta(smooth=False).fit(p).transform(p).probs[:, 1]
    np.testing.assert_allclose(got, expected, atol=2e-4)


def test_beta_keeps_its_constraints() -> None:
    """Where the free fit has a negative exponent, the constrained optimum is taken."""
    rng = np.random.default_rng(19)
    score = rng.normal(size=3000)
    y = (rng.random(3000) < expit(0.5 * np.abs(score))).astype(int)  # not monotone
    p = Predictions.from_binary(logits=score, labels=y)
    a, b, c = Beta(smooth=False).fit(p).coef_[1]
    assert a >= 0
    assert b >= 0
    lp, lq = np.log(expit(score)), np.log(expit(-score))

    def loss(theta: np.ndarray) -> float:
        s = theta[0] * lp - theta[1] * lq + theta[2]
        return float((np.logaddexp(0, s) - y * s).mean())

    found = minimize(loss, [0.5, 0.5, 0], bounds=[(0, None), (0, None), (None, None)])
    assert loss(np.array([a, b, c])) <= found.fun + 1e-9


def test_separable_regressions_without_smoothing_raise() -> None:
    p = Predictions.from_binary(logits=[-2.0, -1.0, 1.0, 2.0], labels=[0, 0, 1, 1])
    for c in (Platt(smooth=False), Beta(smooth=False)):
        with pytest.raises(ConvergenceError, match="smooth=True"):
            c.fit(p)
    rng = np.random.default_rng(0)
    score = rng.normal(0, 3, 200)
    apart = Predictions.from_binary(logits=score, labels=(score > 0).astype(int))
    with pytest.raises(ConvergenceError, match="class 0 did not converge"):
        Beta(smooth=False).fit(apart)
    assert metrics.accuracy(Beta().fit(apart).transform(apart)) == 1
    tied = Predictions.from_binary(logits=[-1.0, 0.0, 0.0, 1.0], labels=[0, 0, 1, 1])
    with pytest.raises(ConvergenceError, match="smooth=True"):  # apart but for a tie
        Beta(smooth=False).fit(tied)


@pytest.mark.parametrize("kind", [Platt, Beta])
@pytest.mark.parametrize("factor", [1e-3, 1e-6, 1e-9])
def test_tiny_logits_reach_the_optimum(kind: type, factor: float) -> None:
    """Small logits are log-odds in the limit, but for a factor and an offset."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (400, 3))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=z * factor, labels=y)
    got = kind(smooth=False).fit(p).transform(p).probs
    columns = []
    for k in range(3):
        x = z[:, k] - z.mean(axis=1)

        def loss(theta: np.ndarray, x: np.ndarray = x, hit: np.ndarray = y == k) -> float:
            s = theta[0] * x + theta[1]
            return float((np.logaddexp(0, s) - hit * s).mean())

        found = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
        columns.append(expit(found.x[0] * x + found.x[1]))
    expected = np.stack(columns, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected, atol=2e-3 if factor == 1e-3 else 2e-5)


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize(
    "kind",
    [VectorScaling, MatrixScaling, StructuredVectorScaling, StructuredMatrixScaling, Dirichlet],
)
def test_the_unit_of_the_logits_is_irrelevant(kind: type, factor: float) -> None:
    p = make(300, 4, 12)
    scaled = Predictions(logits=p.logits * factor, labels=p.labels)
    expected = kind().fit(p).transform(p).probs
    np.testing.assert_allclose(kind().fit(scaled).transform(scaled).probs, expected, atol=1e-6)


@pytest.mark.parametrize(
    "kind",
    [VectorScaling, MatrixScaling, StructuredVectorScaling, StructuredMatrixScaling, Dirichlet],
)
def test_a_few_huge_logits_do_not_bound_the_temperature(kind: type) -> None:
    """Most of the spread comes from a few rows; the optimum lies far below it."""
    p = make(300, 4, 12)
    z = p.logits.copy()
    z[np.arange(20), p.labels[:20]] += 1e5
    scale = kind(strength=1.0).fit(Predictions(logits=z, labels=p.labels)).scale_
    assert scale == pytest.approx(1 / best_temperature(z, p.labels), rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_full_matrices_of_near_separable_classes_reach_the_optimum(seed: int) -> None:
    """Scales that differ between classes: forty steps of L-BFGS do not do."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(200, 40)) * 2
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=z * np.exp(2 * rng.normal(size=40)), labels=y)
    for c in (Dirichlet(strength=0.003), StructuredMatrixScaling(strength=0.001)):
        c.fit(p)
        value = objective(c, p, 40)
        parts = [torch.tensor(x, requires_grad=True) for x in (c.weight_ - np.eye(40), c.bias_)]
        value(*parts).backward()
        start = [torch.tensor(x, requires_grad=True) for x in (np.zeros((40, 40)), np.zeros(40))]
        value(*start).backward()
        left, first = (max(float(x.grad.abs().max()) for x in both) for both in (parts, start))
        assert left < 1e-6 * first


def test_repeated_rows_have_an_optimum() -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(0, 3, (20, 5))
    y = (z / 3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    z *= np.exp(rng.normal(size=5))
    p = Predictions(logits=np.repeat(z, 50, axis=0), labels=np.repeat(y, 50))
    for c in (Dirichlet(), StructuredMatrixScaling(), Dirichlet(strength=1e-4)):
        out = c.fit(p).transform(p)
        assert metrics.nll(out) < metrics.nll(TemperatureScaling().fit(p).transform(p))


def test_a_fit_without_penalty_says_what_to_change() -> None:
    z = np.random.default_rng(0).normal(0, 2, (100, 3))
    p = Predictions(logits=z, labels=(z + [1, 0, 0]).argmax(axis=1))  # separable by an offset
    for kind in (VectorScaling, MatrixScaling, StructuredMatrixScaling, Dirichlet):
        with pytest.raises(ConvergenceError, match="use a positive strength"):
            kind(strength=0).fit(p)


# --- steps and lines --------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["mixed signs", "ties", "two classes"])
def test_isotonic_against_scikit_learn(data: str) -> None:
    from sklearn.isotonic import IsotonicRegression

    z, y = CASES[data]
    p, new = Predictions(logits=z.astype(float), labels=y), make(300, z.shape[1], 20)
    c = Isotonic(floor=0).fit(p)
    for q in (p, new):
        columns = []
        for k in range(z.shape[1]):
            peer = IsotonicRegression(out_of_bounds="clip")
            columns.append(peer.fit(p.probs[:, k], y == k).predict(q.probs[:, k]))
        expected = np.stack(columns, axis=1)
        sound = expected.sum(axis=1) > 1e-9
        expected = expected[sound] / expected[sound].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(c.transform(q).probs[sound], expected, atol=1e-7)


def test_histogram_of_equal_width_by_hand() -> None:
    p = make(700, 5, 21)
    c = HistogramBinning(bins=10).fit(p)
    conf, hit = p.confidence, p.correct
    index = np.clip(np.ceil(conf * 10).astype(int) - 1, 0, 9)
    values = np.array(
        [hit[index == b].mean() if (index == b).any() else (b + 0.5) / 10 for b in range(10)]
    )
    np.testing.assert_allclose(c.values_[0], values, atol=1e-12)
    np.testing.assert_allclose(c.confidences(p).confidence, values[index], atol=1e-12)
    out = c.transform(p)
    rows = np.arange(700)
    top, given = p.predicted, out.probs
    np.testing.assert_allclose(given[rows, top], values[index], atol=1e-12)
    # The others share the rest as before, unless one of them would overtake the prediction.
    others = p.probs.copy()
    others[rows, top] = 0
    share = others / others.sum(axis=1, keepdims=True) * (1 - values[index])[:, None]
    plain = share.max(axis=1) < values[index] * (1 - 1e-5)
    assert plain.any()
    share[rows, top] = values[index]
    np.testing.assert_allclose(given[plain], share[plain], atol=1e-12)
    above = values[index] > 1 / 5
    np.testing.assert_array_equal(out.predicted[above], top[above])


def test_histogram_of_equal_mass_by_hand() -> None:
    p = make(103, 5, 22)
    c = HistogramBinning(bins=10, binning="mass").fit(p)
    order = np.argsort(p.confidence)
    sizes = [11] * 3 + [10] * 7
    expected = np.empty(103)
    for part in np.split(order, np.cumsum(sizes)[:-1]):
        expected[part] = p.correct[part].mean()
    np.testing.assert_allclose(c.confidences(p).confidence, expected, atol=1e-12)


def test_scaling_binning_by_hand() -> None:
    p = make(200, 5, 23)
    c = ScalingBinning(bins=8).fit(p)
    conf = softmax(p.logits / best_temperature(p.logits, p.labels), axis=1).max(axis=1)
    order = np.argsort(conf)
    expected = np.empty(200)
    for part in np.split(order, 8):
        expected[part] = conf[part].mean()
    np.testing.assert_allclose(c.confidences(p).confidence, expected, atol=1e-7)
    np.testing.assert_allclose(c.transform(p).confidence, expected, atol=1e-7)


def test_spline_follows_the_accuracy() -> None:
    """The calibrated confidence is the accuracy among samples of about that confidence."""
    rng = np.random.default_rng(24)
    conf = rng.uniform(0.55, 0.999, 40_000)
    y = (rng.random(40_000) >= 0.5 + 0.4 * (conf - 0.55) / 0.45).astype(int)
    p = Predictions(probs=np.stack([conf, 1 - conf], axis=1), labels=y)
    out = Spline().fit(p).transform(p)
    assert np.abs(out.confidence - (0.5 + 0.4 * (conf - 0.55) / 0.45)).mean() < 0.02
    assert metrics.ece(out) < 0.02 < metrics.ece(p)


def test_spline_by_hand() -> None:
    from scipy.interpolate import CubicSpline

    p = make(300, 4, 25)
    x, order = np.sort(p.confidence), np.argsort(p.confidence)
    t = np.arange(301) / 300
    height = np.concatenate([[0], np.cumsum(p.correct[order])]) / 300
    knots = np.linspace(0, 1, 7)
    basis = CubicSpline(knots, np.eye(7), bc_type="natural")
    coef = np.linalg.lstsq(basis(t), height, rcond=None)[0]
    slope = np.clip(basis((np.arange(300) + 0.5) / 300, 1) @ coef, 1.00001 / 4, 1 - 1 / 602)
    got = Spline().fit(p).transform(p).confidence[order]
    np.testing.assert_allclose(got, slope, atol=1e-9)
    assert (np.diff(x) > 1e-9).all()


@pytest.mark.parametrize("seed", range(5))
def test_ensemble_weights_are_the_optimum(seed: int) -> None:
    p = mixed(400, 6, seed) if seed % 2 else make(400, 6, seed)
    c = EnsembleTemperature().fit(p)
    rows = np.arange(400)
    parts = np.stack(
        [
            softmax(p.logits / c.temperature_, axis=1)[rows, p.labels],
            softmax(p.logits, axis=1)[rows, p.labels],
            np.full(400, 1 / 6),
        ]
    )
    assert c.mixture_.sum() == pytest.approx(1)
    slope = (parts / (c.mixture_ @ parts)).mean(axis=1)
    assert (slope <= 1 + 1e-8).all()
    np.testing.assert_allclose(slope[c.mixture_ > 0], 1, atol=1e-7)
    grid = np.random.default_rng(0).dirichlet([0.5] * 3, 4000)
    assert np.log(c.mixture_ @ parts).mean() >= np.log(grid @ parts).mean(axis=1).max() - 1e-12


# --- calibrators of calibrators, selection ----------------------------------------------------


def test_cross_fitted_by_hand() -> None:
    p = make(200, 4, 30)
    c = CrossFitted(Platt(), folds=4, seed=3).fit(p)
    fold = fold_numbers(200, 4, 3)
    for k in range(4):
        part = Platt().fit(p.take(fold != k)).transform(p.take(fold == k))
        np.testing.assert_array_equal(c.out_of_fold_.probs[fold == k], part.probs)
    np.testing.assert_array_equal(c.transform(p).probs, Platt().fit(p).transform(p).probs)
    again = CrossFitted(Platt(), folds=4, seed=3).fit_transform(p)
    np.testing.assert_array_equal(again.probs, c.out_of_fold_.probs)


def test_chain_by_hand() -> None:
    p, new = make(300, 4, 31), make(100, 4, 32)
    chain = Chain([TemperatureScaling(), HistogramBinning(binning="mass")]).fit(p)
    first = TemperatureScaling().fit(p)
    second = HistogramBinning(binning="mass").fit(first.transform(p))
    expected = second.transform(first.transform(new)).probs
    np.testing.assert_allclose(chain.transform(new).probs, expected, atol=1e-12)


def test_refinement_of_a_metric_takes_a_calibrator() -> None:
    p = make(500, 4, 33)
    by_hand = metrics.nll(CrossFitted(TemperatureScaling(), folds=5).fit(p).out_of_fold_)
    assert metrics.refinement_nll(p, TemperatureScaling()) == pytest.approx(by_hand)


def test_selection_by_hand() -> None:
    p = make(900, 5, 34)
    found = select_calibrator(p, ["temperature", "platt", "histogram"], folds=3, seed=1)
    rows = {c.name: c for c in found.candidates}
    assert set(rows) == {"none", "temperature", "platt", "histogram"}
    losses = {}
    for name, c in (("temperature", TemperatureScaling()), ("platt", Platt())):
        crossed = CrossFitted(c, folds=3, seed=1).fit(p).out_of_fold_
        losses[name] = -crossed.label_log_prob
        assert rows[name].loss == pytest.approx(losses[name].mean())
    losses["none"] = -p.label_log_prob
    best = min(losses, key=lambda name: losses[name].mean())
    for name, loss in losses.items():
        gap = loss - losses[best]
        assert rows[name].behind == pytest.approx(gap.mean())
        assert rows[name].error == pytest.approx(gap.std() / 30)
    assert rows["histogram"].verdict.startswith("rejected: gives probability 0 to")
    level = [n for n in losses if rows[n].behind <= rows[n].error or n == best]
    simplest = min(level, key=lambda n: {"none": 0, "temperature": 1, "platt": 10}[n])
    assert found.chosen == simplest
    assert rows[simplest].verdict.startswith("chosen")
    assert all("rejected" in row.verdict for name, row in rows.items() if name != simplest)
    assert simplest in str(found)
    greedy = select_calibrator(p, ["temperature", "platt"], folds=3, seed=1, standard_errors=0)
    assert greedy.chosen == best


@pytest.mark.slow
def test_selection_prefers_nothing_for_calibrated_data() -> None:
    rng = np.random.default_rng(35)
    z = rng.normal(0, 1.5, (4000, 3))
    p = Predictions(logits=z, labels=(z + rng.gumbel(size=z.shape)).argmax(axis=1))
    assert select_calibrator(p).chosen == "none"
    assert select_calibrator(p, criterion="brier").chosen == "none"


# --- few or no errors -------------------------------------------------------------------------


def good_model(
    num_samples: int, num_classes: int, errors: int, seed: int
) -> tuple[Predictions, Predictions, np.ndarray]:
    """A calibrated model that errs once in ``num_samples``: validation, test, truth of the test."""
    rng = np.random.default_rng(seed)

    def logits(size: int) -> np.ndarray:
        z = rng.normal(size=(size, num_classes))
        z[np.arange(size), rng.integers(num_classes, size=size)] += rng.gamma(4.0, 1.0, size)
        return z

    few = logits(2000)
    scale = brentq(
        lambda s: (1 - softmax(s * few, axis=1).max(axis=1)).mean() - 1 / num_samples, 0.01, 100
    )
    for _ in range(1000):
        z = scale * logits(num_samples)
        p = Predictions(logits=z, labels=(z + rng.gumbel(size=z.shape)).argmax(axis=1))
        if (~p.correct).sum() == errors:
            break
    z = scale * logits(5000)
    test = Predictions(logits=z, labels=z.argmax(axis=1))
    return p, test, softmax(z, axis=1)


@pytest.mark.parametrize("errors", [0, 1])
@pytest.mark.parametrize(("num_samples", "num_classes"), [(10, 2), (50, 5), (300, 3)])
def test_good_models_are_left_alone(num_samples: int, num_classes: int, errors: int) -> None:
    """A short version of benchmarks/selection.py."""
    p, test, truth = good_model(num_samples, num_classes, errors, 0)
    assert (~p.correct).sum() == errors
    found = automatic(p)
    change = test.log_probs - found.calibrator.transform(test).log_probs
    assert (truth * change).sum(axis=1).mean() < 0.002
    verdicts = {c.name: c.verdict for c in found.candidates}
    assert verdicts["none"] == "chosen: these samples do not show that calibration helps"
    for name in ("temperature", "ensemble_temperature", "vector", "structured_matrix"):
        if errors == 0:
            assert verdicts[name] == "rejected: no optimum inside its bounds"


def test_clear_faults_are_calibrated_without_errors_too() -> None:
    """All right at a confidence of 50 %: nothing tells T, but the model is clearly too timid."""
    z, labels = np.eye(4)[np.arange(200) % 4] * math.log(3), np.arange(200) % 4
    p = Predictions(logits=z, labels=labels)
    found = automatic(p)
    verdicts = {c.name: c.verdict for c in found.candidates}
    assert verdicts["spline"] == "not chosen alone: a member of the blend"
    assert found.chosen == "beta"
    confidence = found.calibrator.transform(p).confidence
    assert ((confidence > 0.9) & (confidence < 1 - 1e-3)).all()


def test_a_simpler_method_with_a_lower_loss_is_preferred() -> None:
    """Temperature lies closer to the best than the ensemble, but its standard error is small."""
    z, labels = draw(300, 4, temperature=3.0, seed=13)
    every = automatic(Predictions(logits=z, labels=labels))
    names = [c.name for c in every.candidates if c.name not in ("none", "blend")]
    found = select_calibrator(Predictions(logits=z, labels=labels), names)
    rows = {c.name: c for c in found.candidates}
    assert rows["temperature"].behind > rows["temperature"].error
    assert rows["ensemble_temperature"].behind < rows["ensemble_temperature"].error
    assert rows["temperature"].loss < rows["ensemble_temperature"].loss
    assert found.chosen == "temperature"


def test_methods_left_out_for_their_cost_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = draw(60, 4, temperature=8.0, seed=2)
    p = Predictions(logits=z, labels=labels)
    every = automatic(p)
    assert every.untried == ()
    assert "Not tried" not in str(every)
    quick = ("temperature", "ensemble_temperature")
    monkeypatch.setattr(_candidates, "BY_SIZE", ((z.size - 1, every), (math.inf, quick)))
    found = automatic(p)
    assert {c.name for c in found.candidates} == {"none", *quick}
    assert found.untried == (
        "order_preserving",
        "vector",
        "structured_vector",
        "beta",
        "spline",
        "structured_matrix",
        "blend",
    )
    assert f"take long: {', '.join(found.untried)}." in str(found)
    assert select_calibrator(p, quick).untried == ()


def test_a_few_samples_suffice_where_the_fault_is_gross() -> None:
    z, labels = draw(60, 4, temperature=8.0, seed=2)
    assert automatic(Predictions(logits=z, labels=labels)).chosen != "none"


@pytest.mark.parametrize(
    "kind",
    [
        EnsembleTemperature,
        ScalingBinning,
        VectorScaling,
        StructuredVectorScaling,
        StructuredMatrixScaling,
        MatrixScaling,
        Dirichlet,
    ],
)
def test_no_optimum_is_said_by_every_method_with_a_temperature(kind: type) -> None:
    z, _ = draw(60, 4, seed=1)
    with pytest.warns(CalibrationWarning, match="every label is the predicted class") as caught:
        kind().fit(Predictions(logits=z, labels=z.argmax(axis=1)))
    assert "bounds=" not in str(caught[0].message)  # an option it does not have


@pytest.mark.parametrize("temperature", [0.02, 0.0125, 60.0])
@pytest.mark.parametrize("kind", [EnsembleTemperature, ScalingBinning])
def test_temperatures_far_from_one(kind: type, temperature: float) -> None:
    """The same range as TemperatureScaling, and so nearly the same calibration."""
    z, labels = draw(4000, 5, temperature=1.0, seed=3, dtype="float64")
    p = Predictions(logits=z * temperature, labels=labels)
    c, plain = kind().fit(p), TemperatureScaling().fit(p)
    assert c.temperature_ == plain.temperature_
    assert metrics.ece(c.transform(p)) < metrics.ece(plain.transform(p)) + 0.01


def test_selection_without_any_sound_candidate_is_said() -> None:
    p = Predictions(logits=np.tile([0.0, 1.0, -np.inf], (30, 1)), labels=np.full(30, 2))
    with pytest.raises(ConvergenceError, match="No candidate has a finite loss: none rejected"):
        select_calibrator(p, ["temperature"])


def test_real_resnet(shared: Path) -> None:
    """ResNet-110 of Kull et al. (2019): temperature scaling leaves a published ECE of 1.13 %."""
    folder = shared / "data" / "logits"
    val, test = (
        Predictions.load(folder / f"cifar10_kull_resnet110_{part}.npz") for part in ("val", "test")
    )
    c = TemperatureScaling().fit(val)
    assert c.temperature_ == pytest.approx(2.395, abs=1e-3)
    assert metrics.ece(c.transform(test)) == pytest.approx(0.0113, abs=5e-5)


@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("kind", [HistogramBinning, ScalingBinning])
def test_bins_of_two_classes_are_those_of_one(kind: type, binning: str) -> None:
    rng = np.random.default_rng(3)
    p1 = rng.random(1000).round(2)  # ties, and values on the edges of ten bins
    labels = (rng.random(1000) < p1**2).astype(int)
    p = Predictions(probs=np.stack([1 - p1, p1], axis=1), labels=labels)
    c = kind(target="class", bins=10, binning=binning).fit(p)
    out = c.transform(p).probs
    assert len(np.unique(out[:, 1].round(12))) <= 10
    index = np.searchsorted(c.edges_[1], probs_of(c, p), side="left")
    np.testing.assert_allclose(out[:, 1], c.values_[1][index], rtol=1e-12)
    if kind is HistogramBinning:
        for b in np.unique(index):
            inside = index == b
            mean = (labels[inside].sum() + 0.5) / (inside.sum() + 1)
            np.testing.assert_allclose(out[inside, 1], mean, rtol=1e-12)


def probs_of(c: HistogramBinning | ScalingBinning, p: Predictions) -> np.ndarray:
    """Probabilities of the second class as the bins see them."""
    z = p.logits / getattr(c, "temperature_", 1.0)
    z = z - z.max(axis=1, keepdims=True)
    return np.exp(z[:, 1]) / np.exp(z).sum(axis=1)


def test_a_probability_of_one_half_is_in_one_bin_of_two_classes() -> None:
    p1 = np.array([0.5] * 4 + [0.6] * 4)
    p = Predictions(probs=np.stack([1 - p1, p1], axis=1), labels=[1, 0, 0, 0, 1, 1, 1, 0])
    c = HistogramBinning(target="class", bins=2, floor=0.0).fit(p)
    np.testing.assert_allclose(c.transform(p).probs[:, 1], [0.25] * 4 + [0.75] * 4)


def test_selection_refuses_bad_seeds_and_folds() -> None:
    p = make(40, 3, 0)
    for arguments, message in (
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"folds": 50}, "folds must be at most 40, the number of samples; got 50. Try folds=5"),
        ({"folds": 1}, "folds must be a whole number from 2"),
        ({"standard_errors": "a"}, "standard_errors must be at least 0"),
    ):
        with pytest.raises(InputError, match=message):
            select_calibrator(p, ["temperature"], **arguments)
    with pytest.raises(InputError, match=r"folds must be at most 3, .*Try folds=3"):
        select_calibrator(p.take(np.arange(3)), ["temperature"])
    with pytest.raises(InputError, match="at least two samples for folds; got 1"):
        select_calibrator(p.take([0]), ["temperature"])


def test_soft_binned_ece_of_large_norms_does_not_underflow() -> None:
    confidence, correct, weights = np.full(20, 0.9), np.zeros(20), np.ones(20)
    for form in ("bin", "label"):
        options = {"bins": 15, "softness": 0.01, "form": form}
        found = soft_binned_ece(confidence, correct, weights, norm=5000, **options)
        assert found == pytest.approx(0.9, rel=1e-6)
    near = np.full(20, 1e-3)  # gaps of 0.001: their 5000th power is 0
    found = soft_binned_ece(near, np.zeros(20), weights, norm=5000, **options)
    assert found == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("wrong", ["cv", -1])
def test_bias_strength_is_a_number(wrong: object) -> None:
    with pytest.raises(InputError, match="bias_strength must be a finite number of at least 0; "):
        Dirichlet(bias_strength=wrong).fit(make(40, 3, 0))


def test_a_stated_certainty_that_is_wrong_is_named_as_the_cause() -> None:
    c = Confidences(confidence=[1.0, 0.9, 0.8, 0.7] * 20, correct=[False, *[True] * 3] * 20)
    with pytest.warns(CalibrationWarning, match=r"some labels have probability 0.* isotonic"):
        TemperatureScaling().fit(c)
