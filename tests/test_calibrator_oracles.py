"""Every post-hoc calibrator against brute force and peers, written independently of its source."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import expit, logit, logsumexp
from scipy.stats import beta as beta_distribution
from threadpoolctl import threadpool_limits

from calibrant import InputError, Predictions, Scores, metrics
from calibrant._core.arrays import fold_numbers
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import (
    CALIBRATORS,
    Beta,
    CentredIsotonic,
    Chain,
    CrossFitted,
    Dirichlet,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    KernelCalibration,
    MatrixScaling,
    OrderPreserving,
    Platt,
    QuadraticScaling,
    ScalingBinning,
    Spline,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    VennAbers,
    select_calibrator,
)
from calibrant.calibrators._tempered import Tempered
from tests.conftest import CASES, draw


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The oracles' arrays are small: threads would cost more time than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


# --- data -------------------------------------------------------------------------------------


def scaled(n, k, temperature, seed, dtype="float64"):
    """Imbalanced classes and mixed-sign gaps; the best temperature is near the one given."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k)) - np.linspace(0, 4, k)
    labels = (z + 0.3 * np.sin(3 * z) + rng.gumbel(size=z.shape)).argmax(axis=1)
    return (z * temperature).astype(dtype), labels


def skewed(n, k, seed, dtype="float64"):
    """Imbalanced classes, each with its own offset, so that vectors and matrices matter."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k)) - np.linspace(0, 3, k)
    noise = rng.gumbel(size=z.shape) + 0.5 * rng.normal(size=k)
    return z.astype(dtype), (z / 1.5 + 0.4 * np.sin(3 * z) + noise).argmax(axis=1)


def mixed(n, k, seed, dtype="float64", most=9.0):
    """A confident half that is mostly wrong, a timid half that is mostly right."""
    rng = np.random.default_rng(seed)
    z, half, top = rng.normal(0, 1, (n, k)), rng.random(n) < 0.5, rng.integers(0, k, n)
    lead = np.where(half, rng.uniform(most / 3, most, n), rng.uniform(0.1, 0.8, n))
    z[np.arange(n), top] = z.max(axis=1) + lead
    right = rng.random(n) < np.where(half, 0.3, 0.95)
    return z.astype(dtype), np.where(right, top, (top + rng.integers(1, k, n)) % k)


def repeated(n, k, seed, dtype="float64", rows=40):
    """Ties: whole rows that occur many times, bit for bit."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (rows, k))[rng.integers(0, rows, n)]
    return z.astype(dtype), (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)


DATA = {
    "skewed 2": skewed(300, 2, 0, "float32"),
    "skewed 3": skewed(500, 3, 1),
    "skewed 10": skewed(800, 10, 2, "float32"),
    "skewed 100": skewed(600, 100, 3, "float32"),
    "mixed 3": mixed(400, 3, 5),
    "mixed 10": mixed(300, 10, 5, "float32"),
    "repeated 4": repeated(700, 4, 1, "float32"),
    "repeated 3": repeated(301, 3, 7),
    "few": CASES["fewer samples than bins"],
}

# The oracles fit class by class: a hundred classes take most of the time.
EVERY_DATA = [pytest.param(n, marks=pytest.mark.slow) if n == "skewed 100" else n for n in DATA]


def read(z, labels):
    return Predictions(logits=z, labels=labels)


# --- oracles ----------------------------------------------------------------------------------


def log_softmax(z):
    z = np.asarray(z, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def softmax(z):
    return np.exp(log_softmax(z))


def of(matrix, columns):
    return matrix[np.arange(len(columns)), columns]


def mean_nll(z, labels, t=1.0, weights=None):
    return np.average(
        -of(log_softmax(np.asarray(z, dtype=np.float64) / t), labels), weights=weights
    )


def slope(z, labels, t, weights=None):
    """d NLL / d log T."""
    z = np.asarray(z, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)
    return np.average((of(z, labels) - (softmax(z / t) * z).sum(axis=1)) / t, weights=weights)


def best_temperature(z, labels, weights=None):
    """Root of the slope in 1 / T, along which the NLL is convex."""
    root = brentq(
        lambda beta: slope(z, labels, 1 / beta, weights) / beta, 0.01, 100, xtol=1e-15, rtol=1e-14
    )
    return 1 / root


def top_confidence(z, t=1.0):
    """Confidence, and the odds against the prediction, that resolve confidences near 1."""
    z = np.asarray(z, dtype=np.float64)
    terms = np.exp((z - z.max(axis=1, keepdims=True)) / t)
    terms[np.arange(len(z)), z.argmax(axis=1)] = 0
    against = terms.sum(axis=1)
    return 1 / (1 + against), against


def width_bins(values, bins):
    return np.searchsorted(np.arange(1, bins) / bins, values, side="left")


def mass_bins(values, bins):
    """Bins of r times q + 1 and then q samples; ties go where their middle sample falls."""
    order = np.argsort(values, kind="stable")
    q, r = divmod(len(values), bins)
    of_rank = np.repeat(np.arange(bins), [q + 1] * r + [q] * (bins - r))
    ranked = values[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    ends = np.append(starts[1:], len(values)) - 1
    out = np.empty(len(values), dtype=int)
    out[order] = np.repeat(of_rank[(starts + ends) // 2], ends - starts + 1)
    return out


def bin_numbers(values, bins, binning, ranks=None):
    if binning == "width":
        return width_bins(values, bins)
    return mass_bins(values if ranks is None else ranks, bins)


def test_mass_bins_by_hand() -> None:
    """Eight samples in three bins: 3, 3, 2; the tied four have their middle (rank 4) in bin 1."""
    values = np.array([0.9, 0.3, 0.5, 0.5, 0.5, 0.5, 0.2, 0.95])
    assert mass_bins(values, 3).tolist() == [2, 0, 1, 1, 1, 1, 0, 2]
    assert width_bins(np.array([0.0, 0.2, 0.2 + 1e-12, 1.0]), 5).tolist() == [0, 0, 1, 4]


def brute_ece(z, labels, t, bins=15, norm=1.0, binning="width"):
    confidence, against = top_confidence(z, t)
    hit = (z.argmax(axis=1) == labels).astype(float)
    b = bin_numbers(confidence, bins, binning, -against)
    count = np.bincount(b, minlength=bins)
    gap = np.bincount(b, hit, bins) - np.bincount(b, confidence, bins)
    gap, share = np.abs(gap[count > 0]) / count[count > 0], count[count > 0] / len(z)
    return gap.max() if norm == math.inf else (share @ gap**norm) ** (1 / norm)


# --- 1. temperature of least NLL --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.5, 7, 50])
@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_temperature(k, temperature, dtype) -> None:
    z, labels = scaled(600, k, temperature, k, dtype)
    t = TemperatureScaling().fit(read(z, labels)).temperature_
    assert 0.7 < t / temperature < 1.4
    found = minimize_scalar(
        lambda u: mean_nll(z, labels, math.exp(u)),
        bounds=(math.log(0.01), math.log(100)),
        method="bounded",
        options={"xatol": 1e-12, "maxiter": 1000},
    )
    assert mean_nll(z, labels, t) - found.fun < 1e-12
    assert t == pytest.approx(math.exp(found.x), rel=1e-6)
    assert t == pytest.approx(best_temperature(z, labels), rel=1e-9)
    assert abs(slope(z, labels, t)) < 1e-6 * abs(slope(z, labels, 1.0))


@pytest.mark.parametrize("name", ["mixed signs", "saturated float32", "ties", "many classes"])
def test_temperature_of_the_cases(name) -> None:
    z, labels = CASES[name]
    t = TemperatureScaling().fit(read(z, labels)).temperature_
    assert t == pytest.approx(best_temperature(z, labels), rel=1e-8)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 8.0])
def test_temperature_of_large_float32_takes_few_passes(temperature, monkeypatch) -> None:
    """The slope at T = 1, known from the columns or not, changes the start but not the optimum."""
    z, labels = scaled(41_000, 100, temperature, 5, "float32")
    weights = np.random.default_rng(5).gamma(1, size=len(z))
    passes = []

    def counted(self, beta, moments, original=Tempered.sums):
        passes.append(self.p.num_samples)
        return original(self, beta, moments)

    monkeypatch.setattr(Tempered, "sums", counted)
    known = read(z, labels)
    unknown = known.with_scores("logits", z)
    for w in (None, weights):
        expected = best_temperature(z, labels, w)
        for p in (known, unknown):
            passes.clear()
            got = TemperatureScaling().fit(p, weights=w).temperature_
            assert got == pytest.approx(expected, rel=1e-7)
            assert passes.count(len(z)) <= 3
            assert min(passes) < 5000


def test_temperature_against_scikit_learn() -> None:
    from sklearn.calibration import _TemperatureScaling

    rng = np.random.default_rng(0)
    for k, temperature in [(2, 0.2), (3, 1.3), (10, 20), (100, 3)]:
        z, labels = scaled(500, k, temperature, k + 1)
        weights = rng.gamma(1, size=len(z))
        for w in (None, weights):
            peer = 1 / _TemperatureScaling().fit(z, labels, sample_weight=w).beta_
            got = TemperatureScaling().fit(read(z, labels), weights=w).temperature_
            assert got == pytest.approx(peer, rel=1e-6)
            assert got == pytest.approx(best_temperature(z, labels, w), rel=1e-9)


def test_temperature_against_the_public_peer() -> None:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 900)
    x = rng.normal(size=(900, 30)) + 0.5 * np.eye(30)[labels]
    model = LogisticRegression(C=100.0, max_iter=1000).fit(x[:120], labels[:120])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = CalibratedClassifierCV(FrozenEstimator(model), method="temperature")
        want = peer.fit(x[120:500], labels[120:500]).predict_proba(x[500:])
    z = model.decision_function(x)
    calibrator = TemperatureScaling().fit(read(z[120:500], labels[120:500]))
    assert calibrator.temperature_ > 1.5
    got = calibrator.transform(read(z[500:], labels[500:])).probs
    assert got == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_temperature_from_probabilities(k) -> None:
    z, labels = scaled(400, k, 2.5, k)
    from_logits = TemperatureScaling().fit(read(z, labels))
    from_probs = TemperatureScaling().fit(Predictions(probs=softmax(z), labels=labels))
    assert from_probs.temperature_ == pytest.approx(from_logits.temperature_, rel=1e-9)
    got = from_probs.transform(Predictions(probs=softmax(z), labels=labels)).probs
    assert got == pytest.approx(softmax(z / from_logits.temperature_), abs=1e-9)


def test_temperature_shifts_and_impossible_classes() -> None:
    """Neither an offset of a whole row nor a class of probability 0 changes the fit."""
    z, labels = scaled(300, 4, 2, 0)
    rng = np.random.default_rng(0)
    t = TemperatureScaling().fit(read(z, labels)).temperature_
    shifted = z + rng.normal(0, 1e4, (300, 1))
    assert TemperatureScaling().fit(read(shifted, labels)).temperature_ == pytest.approx(t, 1e-9)
    dead = (rng.random(z.shape) < 0.3) & (np.arange(4) != labels[:, None])
    got = TemperatureScaling().fit(read(np.where(dead, -np.inf, z), labels)).temperature_
    assert got == pytest.approx(best_temperature(np.where(dead, -1e6, z), labels), rel=1e-9)
    assert abs(got - t) > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_temperature_without_optimum(k, dtype) -> None:
    z = np.random.default_rng(k).normal(0, 2, (200, k)).astype(dtype)
    with pytest.warns(CalibrationWarning):
        assert TemperatureScaling().fit(read(z, z.argmax(axis=1))).temperature_ == 0.01
    with pytest.warns(CalibrationWarning):
        assert TemperatureScaling().fit(read(z, z.argmin(axis=1))).temperature_ == 100


@pytest.mark.parametrize(("temperature", "bound"), [(500, 100), (0.002, 0.01)])
def test_temperature_beyond_the_bounds(temperature, bound) -> None:
    """An optimum outside the bounds is never cut silently."""
    z, labels = scaled(600, 10, temperature, 1)
    with pytest.warns(CalibrationWarning):
        assert TemperatureScaling().fit(read(z, labels)).temperature_ == bound
    z, labels = scaled(600, 10, 2.0, 1)
    with pytest.warns(CalibrationWarning):
        assert TemperatureScaling(bounds=(3.0, 5.0)).fit(read(z, labels)).temperature_ == 3
    inside = TemperatureScaling(bounds=(1.0, 5.0)).fit(read(z, labels)).temperature_
    assert inside == pytest.approx(best_temperature(z, labels), rel=1e-9)


def test_warning_is_true_where_the_optimum_is_past_the_bound() -> None:
    z, labels = scaled(600, 10, 2.0, 1)
    with pytest.warns(CalibrationWarning) as caught:
        TemperatureScaling(bounds=(0.5, 1.0)).fit(read(z, labels))
    text = str(caught[0].message)
    assert "say nothing about the labels" not in text
    assert "No temperature has the least NLL" not in text


def test_temperature_of_huge_logits() -> None:
    z, labels = scaled(300, 4, 1e300, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert TemperatureScaling().fit(read(z, labels)).temperature_ == 100
    assert {w.category for w in caught} == {CalibrationWarning}


def test_temperature_of_constant_logits() -> None:
    labels = [0, 1, 2, 0, 0]
    for z in (np.zeros((5, 3)), np.arange(5.0)[:, None] * np.ones((1, 3))):
        for dtype in ("float32", "float64"):
            assert TemperatureScaling().fit(read(z.astype(dtype), labels)).temperature_ == 1


def test_temperature_weights() -> None:
    rng = np.random.default_rng(0)
    z, labels = scaled(300, 5, 2, 4)
    times = rng.integers(0, 4, 300)
    weighted = TemperatureScaling().fit(read(z, labels), weights=times).temperature_
    again = TemperatureScaling().fit(read(z, labels), weights=times * 0.37).temperature_
    rows = np.repeat(np.arange(300), times)
    copied = TemperatureScaling().fit(read(z[rows], labels[rows])).temperature_
    plain = TemperatureScaling().fit(read(z, labels)).temperature_
    assert weighted == pytest.approx(copied, rel=1e-10)
    assert weighted == pytest.approx(again, rel=1e-10)
    assert abs(weighted - plain) > 1e-3


# --- 2. temperature of least ECE --------------------------------------------------------------

GRIDS = {"wang2021": np.arange(1, 1001) / 100, "mukhoti2020": np.arange(1, 101) / 10}
ECE_DATA = {
    **{n: CASES[n] for n in ("mixed signs", "two classes", "saturated float32", "float64", "ties")},
    "few": CASES["fewer samples than bins"],
    "repeated": repeated(400, 4, 3),
    **{f"mixed {k} {d}": mixed(400, k, k, d) for k in (2, 3, 10, 100) for d in ("f4", "f8")},
    "underconfident": draw(500, 5, temperature=0.4, seed=3),
    "overconfident": draw(500, 3, temperature=6, seed=4),
}


def assert_least_ece(z, labels, grid, **options) -> None:
    given = grid if isinstance(grid, str) else list(grid)
    values = GRIDS[grid] if isinstance(grid, str) else np.asarray(grid)
    fitted = TemperatureScaling(objective="ece", grid=given, **options).fit(read(z, labels))
    curve = np.array([brute_ece(z, labels, t, **options) for t in values])
    at = np.flatnonzero(np.isclose(values, fitted.temperature_, rtol=0, atol=1e-12))
    assert len(at) == 1
    assert curve[at[0]] - curve.min() < 1e-12
    assert at[0] == np.flatnonzero(curve < curve.min() + 1e-12)[0]


# The oracle computes 1,000 values of ECE; one dtype is enough for the fast tests.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n.endswith("f8") else n for n in ECE_DATA],
)
def test_ece_temperature(name) -> None:
    assert_least_ece(*ECE_DATA[name], "wang2021")


@pytest.mark.parametrize("name", ECE_DATA)
def test_ece_temperature_options(name) -> None:
    z, labels = ECE_DATA[name]
    assert_least_ece(z, labels, "mukhoti2020", bins=10)
    assert_least_ece(z, labels, "mukhoti2020", bins=7, norm=2)
    assert_least_ece(z, labels, np.geomspace(0.3, 8, 60), bins=20, norm=1.5)
    if name != "ties":  # see test_the_first_of_equal_eces
        assert_least_ece(z, labels, "mukhoti2020", bins=20, norm=math.inf)


def test_the_large_minimum_of_mixed_gaps() -> None:
    """The oracle's data are as bad as they should be: no temperature calibrates them."""
    for k in (2, 3, 10, 100):
        z, labels = mixed(400, k, k)
        assert min(brute_ece(z, labels, t) for t in GRIDS["mukhoti2020"]) > 0.3


@pytest.mark.parametrize("seed", range(40))
def test_ece_temperature_of_small_samples(seed) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([4, 6, 10, 30, 100])), int(rng.choice([2, 3, 5]))
    z, labels = (mixed if seed % 2 else scaled)(n, k, *([seed] if seed % 2 else [1.5, seed]))
    for norm in (1, 2, math.inf):
        assert_least_ece(z, labels, np.geomspace(0.2, 8, 25), bins=3, norm=norm)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("k", [2, 3, pytest.param(10, marks=pytest.mark.slow)])
def test_ece_temperature_of_equal_mass(k, norm) -> None:
    grid = np.geomspace(0.8, 10, 80)
    for seed in range(4):
        z, labels = mixed(211, k, seed, most=4.0)
        assert_least_ece(z, labels, grid, binning="mass", norm=norm)
        z, labels = repeated(211, k, seed)
        assert_least_ece(z, labels, np.geomspace(1.5, 10, 60), binning="mass", bins=7, norm=norm)
    z, labels = CASES["mixed signs"]
    assert_least_ece(z, labels, "mukhoti2020", binning="mass", bins=10)


def test_ece_temperature_of_equal_mass_near_one() -> None:
    """Confidences 1 - 1.3e-9 and 1 - 1.4e-11 are different numbers, though not in float32."""
    z, labels = np.array([[5.0, 0], [9, 0], [25, 0], [20.5, 0]]), np.array([0, 0, 0, 1])
    assert len(np.unique(top_confidence(z)[0])) == 4
    by_metric = [
        metrics.ece(read(z / t, labels), bins=3, norm=math.inf, binning="mass") for t in (1.0, 30.0)
    ]
    assert by_metric == pytest.approx([1, 0.6645], abs=1e-3)
    assert_least_ece(z, labels, [1.0, 30.0], bins=3, norm=math.inf, binning="mass")


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "k", "seed"), [(2, 3, 13), (2, 3, 19), (math.inf, 2, 3)])
def test_ece_temperature_of_equal_mass_is_that_of_the_metric(norm, k, seed) -> None:
    """Fit and metric use the same definition of ECE, also where confidences round to 1."""
    z, labels = mixed(300, k, seed)
    options = {"binning": "mass", "norm": norm}
    c = TemperatureScaling(objective="ece", **options).fit(read(z, labels))
    values = [metrics.ece(read(z / t, labels), **options) for t in GRIDS["mukhoti2020"]]
    assert metrics.ece(c.transform(read(z, labels)), **options) <= min(values) + 1e-9


@pytest.mark.parametrize("gap", [400.0, 1000.0, 1e4])
def test_the_first_of_equal_eces(gap) -> None:
    """Every confidence is 1 in float64 at every temperature, so every ECE is the same."""
    z, labels = np.array([[gap, 0.0]] * 4), np.array([0, 0, 0, 1])
    assert {metrics.ece(read(z / t, labels)) for t in GRIDS["wang2021"]} == {0.25}
    assert TemperatureScaling(objective="ece").fit(read(z, labels)).temperature_ == 0.01


def test_the_first_of_equal_largest_gaps() -> None:
    """The largest gap is that of one row of equal logits, whose confidence is 1/4 at every T."""
    z, labels = CASES["ties"]
    at = {metrics.ece(read(z / np.float64(t), labels), bins=20, norm=math.inf) for t in (8.1, 8.8)}
    assert len(at) == 1
    fitted = TemperatureScaling(objective="ece", grid=[8.1, 8.8], bins=20, norm=math.inf)
    assert fitted.fit(read(z, labels)).temperature_ == 8.1


def test_ece_temperature_of_constant_logits_is_the_first() -> None:
    z, labels = np.zeros((50, 3)), np.random.default_rng(0).integers(0, 3, 50)
    for norm in (1, 2, math.inf):
        fitted = TemperatureScaling(objective="ece", norm=norm).fit(read(z, labels))
        assert fitted.temperature_ == 0.01


def test_ece_temperature_weights() -> None:
    rng = np.random.default_rng(1)
    for k in (2, 5):
        z, labels = mixed(200, k, k)
        times = rng.integers(1, 6, 200)
        rows = np.repeat(np.arange(200), times)
        c = TemperatureScaling(objective="ece", grid="mukhoti2020").fit(
            read(z, labels), weights=times
        )
        curve = [brute_ece(z[rows], labels[rows], t) for t in GRIDS["mukhoti2020"]]
        assert c.temperature_ == pytest.approx(GRIDS["mukhoti2020"][np.argmin(curve)], abs=1e-12)


# --- 3. temperature of least soft-binned ECE --------------------------------------------------


def soft_ece(confidence, hit, bins=15, softness=0.01, norm=2.0, form="bin"):
    """Of confidences (N,), or of many sets at once, (…, N)."""
    centres = (np.arange(bins) + 0.5) / bins
    distance = -((confidence[..., None] - centres) ** 2) / softness
    u = np.exp(distance - distance.max(axis=-1, keepdims=True))
    u /= u.sum(axis=-1, keepdims=True)
    mass = u.sum(axis=-2)
    safe = np.where(mass > 0, mass, 1)
    accuracy = (u * hit[:, None]).sum(axis=-2) / safe
    mean = (u * confidence[..., None]).sum(axis=-2) / safe
    if form == "bin":
        total = (mass * np.abs(accuracy - mean) ** norm).sum(axis=-1)
    else:
        gaps = np.abs(accuracy[..., None, :] - confidence[..., None])
        total = (u * gaps**norm).sum(axis=(-1, -2))
    return (total / len(hit)) ** (1 / norm)


def test_soft_ece_oracle_is_golden(shared) -> None:
    inputs = np.load(shared / "oracles" / "golden_inputs.npz")
    z, labels = inputs["logits"], inputs["labels"]
    confidence, hit = top_confidence(z)[0], (z.argmax(axis=1) == labels).astype(float)
    assert soft_ece(confidence, hit) == pytest.approx(0.18447235, abs=3e-8)
    assert soft_ece(confidence, hit, softness=0.001) == pytest.approx(0.22446246, abs=3e-8)
    assert soft_ece(confidence, hit, bins=10, softness=0.05) == pytest.approx(0.16146366, abs=3e-8)


TEMPERATURES = np.geomspace(0.05, 20, 4000)


def confidences_at(z, temperatures):
    """Confidences at many temperatures at once, (T, N)."""
    z = np.asarray(z, dtype=np.float64)
    below = z - z.max(axis=1, keepdims=True)
    return 1 / np.exp(below / temperatures[:, None, None]).sum(axis=-1)


def soft_excess(z, labels, **options):
    """How far the fit's objective lies above the least of the dense grid."""
    hit = (z.argmax(axis=1) == labels).astype(float)
    fitted = TemperatureScaling(objective="soft_ece", **options).fit(read(z, labels))
    assert 0.05 - 1e-9 <= fitted.temperature_ <= 20 + 1e-9
    parts = np.array_split(TEMPERATURES, max(80, z.size // 25))  # each fits the cache
    least = min(soft_ece(confidences_at(z, part), hit, **options).min() for part in parts)
    return soft_ece(top_confidence(z, fitted.temperature_)[0], hit, **options) - least


@pytest.mark.parametrize(
    "options",
    [{}, {"form": "label"}, {"softness": 0.001, "bins": 10}, {"norm": 1, "bins": 7}],
    ids=str,
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mixed signs", marks=pytest.mark.slow),
        "two classes",
        "mixed 3",
        pytest.param("mixed 100", marks=pytest.mark.slow),
        pytest.param("ties", marks=pytest.mark.slow),
    ],
)
def test_soft_ece_temperature(name, options) -> None:
    k = int(name.split()[1]) if name.startswith("mixed ") and name[-1].isdigit() else 0
    z, labels = mixed(120, k, k, "float32") if k else CASES[name]
    assert soft_excess(z[:120], labels[:120], **options) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_soft_ece_temperature_of_small_samples(seed) -> None:
    """Many local minima."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([5, 10, 30])), int(rng.choice([2, 3, 10]))
    z, labels = mixed(n, k, seed) if seed % 2 else draw(n, k, seed=seed)
    options = {
        "bins": int(rng.choice([2, 7, 15])),
        "softness": float(rng.choice([0.1, 0.01, 0.001])),
        "norm": float(rng.choice([1, 1.5, 2, 4])),
        "form": str(rng.choice(["bin", "label"])),
    }
    assert soft_excess(z, labels, **options) <= 1e-9


HARD = [
    (
        [[6.9, -0.6, 0.5], [1.0, 7.2, 0.9], [-0.9, 0.4, 0.6], [-0.1, 5, -0.4], [-0.3, 0.6, -0.2]],
        [0, 2, 2, 2, 1],
        {"bins": 2},
    ),
    (
        [[0, 8.51, 0.7], [1.2, 0.75, 0.5], [1.21, 1.7, 1.4], [1.9, 1.53, 2.36], [1.6, 1.27, 0.6]],
        [0, 1, 1, 2, 2],
        {"bins": 7, "norm": 1.5, "form": "label"},
    ),
]


@pytest.mark.parametrize(
    "softness", [*(pytest.param(s, marks=pytest.mark.slow) for s in (1e-3, 1e-4)), 1e-5]
)
@pytest.mark.parametrize(("z", "labels", "options"), HARD, ids=["bin", "label"])
def test_soft_ece_temperature_of_hard_bins(z, labels, options, softness) -> None:
    """The curve jumps where a confidence passes from bin to bin, and has narrow valleys there."""
    z, labels = np.array(z), np.array(labels)
    for form, bins in itertools.product(("bin", "label"), (2, 7, 15)):
        case = {**options, "form": form, "bins": bins, "softness": softness}
        assert soft_excess(z, labels, **case) <= 1e-9, case


# --- 4. vectors and matrices ------------------------------------------------------------------

STRUCTURES = {
    "vector": (VectorScaling, "logits", "diagonal"),
    "matrix": (MatrixScaling, "logits", "full"),
    "structured_vector": (StructuredVectorScaling, "log_probs", "diagonal"),
    "structured_matrix": (StructuredMatrixScaling, "log_probs", "full"),
    "dirichlet": (Dirichlet, "log_probs", "full"),
}
BIAS = 0.3  # of Dirichlet's bias_strength, as a part of its strength


class Objective:
    """Penalised NLL of softmax((I + D) f + b) and its gradient, by autograd in float64."""

    def __init__(self, name, z, labels, strength, temperature=None):
        _, on, self.shape = STRUCTURES[name]
        n, k = z.shape
        t = best_temperature(z, labels) if temperature is None else temperature
        f = np.asarray(z, dtype=np.float64) / t
        self.f = torch.tensor(f if on == "logits" else log_softmax(f))
        self.labels, self.k = torch.tensor(labels), k
        self.on_diagonal, self.off, self.on_bias = (
            (0.001 * k / n, strength / (k * (k - 1)), BIAS * strength / k)
            if name == "dirichlet"
            else (strength * k / n, strength * k * (k - 1) / n, strength * k / n)
        )

    def __call__(self, weight, bias):
        """Value, and gradients with respect to the free entries."""
        weight = torch.tensor(weight, requires_grad=True)
        bias = torch.tensor(bias, requires_grad=True)
        matrix = torch.diag(weight) if weight.ndim == 1 else weight
        d = matrix - torch.eye(self.k, dtype=torch.float64)
        diagonal = (torch.diagonal(d) ** 2).sum()
        value = (
            torch.nn.functional.cross_entropy(self.f @ matrix.T + bias, self.labels)
            + self.on_diagonal * diagonal
            + self.off * ((d**2).sum() - diagonal)
            + self.on_bias * (bias**2).sum()
        )
        value.backward()
        return value.item(), weight.grad.numpy(), bias.grad.numpy()

    def start(self):
        return np.ones(self.k) if self.shape == "diagonal" else np.eye(self.k)

    def least(self, seed=0):
        """The least value L-BFGS-B finds from a random start."""
        first = self.start()
        x = np.random.default_rng(seed).normal(0, 0.3, first.size + self.k)
        x[: first.size] += first.ravel()

        f, k, diagonal = self.f.numpy(), self.k, np.eye(self.k, dtype=bool)
        penalty = np.where(diagonal, self.on_diagonal, self.off)
        target = np.eye(k)[self.labels.numpy()]

        def both(x):
            """As ``__call__``, but by hand."""
            weight, bias = x[: first.size].reshape(first.shape), x[first.size :]
            d = (weight if weight.ndim == 2 else np.diag(weight)) - np.eye(k)
            log_q = log_softmax(f + f @ d.T + bias)
            value = -(log_q * target).sum() / len(f) + (penalty * d**2).sum()
            residual = (np.exp(log_q) - target) / len(f)
            on_weight = residual.T @ f + 2 * penalty * d
            on_bias = residual.sum(axis=0) + 2 * self.on_bias * bias
            on_weight = on_weight.ravel() if weight.ndim == 2 else np.diagonal(on_weight)
            return value + self.on_bias * (bias**2).sum(), np.concatenate([on_weight, on_bias])

        options = {"maxiter": 5000, "maxfun": 9999, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
        return minimize(both, x, jac=True, method="L-BFGS-B", options=options).fun


def structured(name, strength):
    extra = {"bias_strength": BIAS * strength} if name == "dirichlet" else {}
    return STRUCTURES[name][0](strength=strength, **extra)


# The oracle takes the time; two data sets show every structure in the fast tests.
STRUCTURED_DATA = [
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("skewed 2", "skewed 10", "mixed 3")),
    "skewed 3",
    "ties",
]


@pytest.mark.parametrize("strength", [10.0, 1.0, 0.01])
@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("data", STRUCTURED_DATA)
def test_structured_scaling(data, name, strength) -> None:
    z, labels = DATA[data] if data in DATA else CASES[data]
    p = read(z, labels)
    c = structured(name, strength).fit(p)
    objective = Objective(name, z, labels, strength)
    assert 1 / c.scale_ == pytest.approx(best_temperature(z, labels), rel=1e-8)
    assert c.weight_.shape == objective.start().shape
    value, *gradient = objective(c.weight_, c.bias_)
    _, *at_start = objective(objective.start(), np.zeros(objective.k))
    size = max(np.abs(g).max() for g in gradient)
    assert size < 1e-6 * max(np.abs(g).max() for g in at_start)
    if z.shape[1] < 10 or strength == 1:  # the others take seconds, and their gradient vanishes too
        assert value - objective.least() < 1e-9
    matrix = c.weight_ if c.weight_.ndim == 2 else np.diag(c.weight_)
    want = softmax(objective.f.numpy() @ matrix.T + c.bias_)
    assert c.transform(p).probs == pytest.approx(want, abs=1e-9 if z.dtype == "f8" else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_structured_scaling_of_many_classes(name) -> None:
    """The objective is strictly convex: no gradient, nothing lower."""
    (z, labels), strength = DATA["skewed 100"], 0.1
    assert len(np.unique(labels)) < 100  # absent classes too
    c = structured(name, strength).fit(read(z, labels))
    objective = Objective(name, z, labels, strength)
    _, *gradient = objective(c.weight_, c.bias_)
    _, *at_start = objective(objective.start(), np.zeros(100))
    size = max(np.abs(g).max() for g in gradient)
    assert size < 1e-6 * max(np.abs(g).max() for g in at_start)
    assert 1 / c.scale_ == pytest.approx(best_temperature(z, labels), rel=1e-8)


def test_dirichlet_bias_strength_is_strength_by_default() -> None:
    p = read(*DATA["skewed 3"])
    one, other = Dirichlet(strength=0.1).fit(p), Dirichlet(strength=0.1, bias_strength=0.1).fit(p)
    assert one.bias_ == pytest.approx(other.bias_, abs=1e-12)
    less = Dirichlet(strength=0.1, bias_strength=0.001).fit(p)
    assert np.abs(less.bias_ - one.bias_).max() > 1e-3


@pytest.mark.parametrize("name", ["structured_vector", "structured_matrix"])
@pytest.mark.parametrize(("k", "n"), [(3, 500), (4, 1000), (10, 800)])
def test_structured_scaling_against_probmetrics(name, k, n) -> None:
    z, labels = skewed(n, k, k)
    p = read(z, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from probmetrics.calibrators import get_calibrator

        peer = get_calibrator({"structured_vector": "svs", "structured_matrix": "sms"}[name])
        peer.fit(softmax(z), labels)
        want = peer.predict_proba(softmax(z))
    c = structured(name, 1.0).fit(p)
    if name == "structured_vector":
        weight, bias = peer.v_, peer.b_
    else:
        weight, bias = peer.W_[:, :-1], peer.W_[:, -1]
    objective = Objective(name, z, labels, 1.0)
    ours = objective(c.weight_, c.bias_)[0]
    theirs = objective(weight.astype(np.float64), bias.astype(np.float64))[0]
    assert ours <= theirs
    assert theirs - ours < 1e-3  # the same objective, or nearly
    if name == "structured_vector":
        assert c.transform(p).probs == pytest.approx(want, abs=2e-3)


@pytest.mark.parametrize("name", STRUCTURES)
def test_cross_validated_strength(name) -> None:
    z, labels = DATA["skewed 3"]
    chosen = CALIBRATORS[name](strength="cv").fit(read(z, labels))
    strength, extra = chosen.strength_, {}
    if name == "dirichlet":  # in units of what holds each entry as structured matrix scaling does
        strength = strength / (9 * 4 / 500)
        extra = {"bias_strength": strength * 9 / 500}
    assert min(abs(math.log(strength / s)) for s in (10, 1, 0.1, 0.01, 0.001)) < 1e-9
    fixed = CALIBRATORS[name](strength=chosen.strength_, **extra).fit(read(z, labels))
    assert chosen.weight_ == pytest.approx(fixed.weight_, abs=1e-6)
    assert chosen.bias_ == pytest.approx(fixed.bias_, abs=1e-6)


BENDS = [0, -0.5, -1, -2, -3, -4, -6, -8, -12, -math.inf]


def curve(f, slopes):
    """The integral of the slope from 0 to each log-probability, piece by piece."""
    out = np.zeros_like(f)
    for high, low, slope in zip(BENDS[:-1], BENDS[1:], slopes, strict=True):
        out += slope * np.where(f < high, np.maximum(f, low) - high, 0)
    return out


@pytest.mark.parametrize("strength", [5.0, 0.1])
@pytest.mark.parametrize("name", ["skewed 2", "skewed 3", "skewed 10", "mixed 3", "ties"])
def test_order_preserving(name, strength) -> None:
    """Nothing lower within the bounds, by bounded minimisation from elsewhere."""
    z, labels = DATA[name] if name in DATA else CASES[name]
    c = OrderPreserving(strength=strength).fit(read(z, labels))
    assert 1 / c.scale_ == pytest.approx(best_temperature(z, labels), rel=1e-8)
    f = log_softmax(np.asarray(z, dtype=np.float64) * c.scale_)

    def value(slopes):
        steps = np.diff(slopes, prepend=1.0)
        return mean_nll(curve(f, slopes), labels) + strength * (steps**2).sum() / len(z)

    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10**6}
    start = np.linspace(0.5, 2, 9)
    bounds = [(0.01, None)] * 9
    least = minimize(value, start, method="L-BFGS-B", bounds=bounds, options=options)
    assert value(c.slopes_) - least.fun < 1e-10
    assert least.fun - value(c.slopes_) < 1e-5  # its gradient is by differences
    assert (c.slopes_ >= 0.01 - 1e-12).all()
    got = c.transform(read(z, labels)).probs
    want = softmax(curve(f, c.slopes_))
    assert got == pytest.approx(want, abs=1e-9 if z.dtype == "f8" else 1e-6)


def test_order_preserving_is_held_where_the_curve_would_fall() -> None:
    """Confident predictions that are mostly wrong: the free slope near 1 is negative."""
    c = OrderPreserving(strength=0.1).fit(read(*mixed(2000, 3, 5)))
    assert c.slopes_.min() == pytest.approx(0.01, abs=1e-9)


def test_order_preserving_finds_a_curve() -> None:
    """Labels drawn from a bent curve of the log-probabilities: its slopes are found."""
    rng, slopes = np.random.default_rng(0), np.array([0.5] * 3 + [1.5] * 6)
    z = rng.normal(0, 2.5, (15_000, 6))
    labels = (curve(log_softmax(z), slopes) + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = read(z, labels)
    got = OrderPreserving().fit(p).transform(p).probs
    assert got == pytest.approx(softmax(curve(log_softmax(z), slopes)), abs=0.05)
    assert np.abs(TemperatureScaling().fit(p).transform(p).probs - got).max() > 0.1


# --- 5. Platt and beta ------------------------------------------------------------------------


def log_odds_parts(z):
    """Log p and log (1 - p) of each class, both to full precision."""
    z = np.asarray(z, dtype=np.float64)
    total = logsumexp(z, axis=1)
    others = [logsumexp(np.delete(z, j, axis=1), axis=1) - total for j in range(z.shape[1])]
    return log_softmax(z), np.stack(others, axis=1)


def targets(labels, j, smooth):
    hit = labels == j
    above, below = hit.sum(), (~hit).sum()
    return np.where(hit, (above + 1) / (above + 2), 1 / (below + 2)) if smooth else hit * 1.0


def logistic(x, target):
    """Newton's method, damped, for targets between 0 and 1; the last column of x is 1."""

    def loss(theta):
        return (np.logaddexp(0, x @ theta) - target * (x @ theta)).sum()

    theta = np.zeros(x.shape[1])
    for _ in range(100):
        m = expit(x @ theta)
        step = np.linalg.solve((x.T * (m * (1 - m))) @ x, x.T @ (m - target))
        size = 1.0
        while loss(theta - size * step) > loss(theta) + 1e-13 and size > 1e-9:
            size /= 2
        theta = theta - size * step
        if np.abs(step).max() < 1e-12:
            return theta
    raise AssertionError("the oracle did not converge")


def rows_to_one(q):
    return q / q.sum(axis=1, keepdims=True)


ONE_VS_REST = ["skewed 2", "skewed 3", "skewed 10", "mixed 3", "repeated 4"]


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("name", [*ONE_VS_REST, "ties"])
def test_platt(name, smooth) -> None:
    z, labels = DATA[name] if name in DATA else CASES[name]
    c, (p, rest) = Platt(smooth=smooth).fit(read(z, labels)), log_odds_parts(z)
    odds = p - rest
    want = np.array(
        [
            logistic(np.column_stack([odds[:, j], np.ones(len(z))]), targets(labels, j, smooth))
            for j in range(z.shape[1])
        ]
    )
    assert c.coef_ == pytest.approx(want, abs=1e-8)
    got = c.transform(read(z, labels)).probs
    tolerance = 1e-9 if z.dtype == "f8" else 5e-7
    assert got == pytest.approx(rows_to_one(expit(want[:, 0] * odds + want[:, 1])), abs=tolerance)


def test_platt_against_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    weights = np.random.default_rng(0).gamma(1, size=800)
    z, labels = DATA["skewed 10"]
    p, rest = log_odds_parts(z)
    for w in (None, weights):
        c = Platt(smooth=False).fit(read(z, labels), weights=w)
        for j in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                peer = LogisticRegression(
                    C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000
                ).fit((p - rest)[:, [j]], labels == j, sample_weight=w)
            assert c.coef_[j] == pytest.approx([peer.coef_[0, 0], peer.intercept_[0]], abs=1e-7)


def beta_design(p, rest, j):
    return np.column_stack([p[:, j], -rest[:, j], np.ones(len(p))])


def beta_loss(theta, x, target):
    eta = x @ theta
    return (np.logaddexp(0, eta) - target * eta).mean(), x.T @ (expit(eta) - target) / len(x)


def bounded_beta(x, target):
    return minimize(
        beta_loss,
        [1.0, 1.0, 0.0],
        args=(x, target),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None), (0, None), (None, None)],
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 9999, "maxfun": 99999},
    )


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("name", [*ONE_VS_REST, "ties"])
def test_beta(name, smooth) -> None:
    """Optimal within a, b >= 0: by bounded minimisation and by the KKT conditions."""
    z, labels = DATA[name] if name in DATA else CASES[name]
    c, (p, rest) = Beta(smooth=smooth).fit(read(z, labels)), log_odds_parts(z)
    assert (c.coef_[:, :2] >= 0).all()
    for j in range(z.shape[1]):
        x, target = beta_design(p, rest, j), targets(labels, j, smooth)
        value, gradient = beta_loss(c.coef_[j], x, target)
        assert value - bounded_beta(x, target).fun < 1e-12
        held = np.append(c.coef_[j, :2] == 0, False)
        assert np.abs(gradient[~held]).max() < 1e-9
        assert (gradient[held] > -1e-9).all()
    want = rows_to_one(expit(c.coef_[:, 0] * p - c.coef_[:, 1] * rest + c.coef_[:, 2]))
    tolerance = 1e-9 if z.dtype == "f8" else 5e-7
    assert c.transform(read(z, labels)).probs == pytest.approx(want, abs=tolerance)


def test_beta_is_held_where_the_free_optimum_is_negative() -> None:
    """So that the test above sees active bounds: one coefficient, and both."""
    seen = set()
    for seed in range(6):
        k = 2 + seed % 2
        z, labels = mixed(300, k, seed)
        c = Beta(smooth=False).fit(read(z, labels))
        parts = log_odds_parts(z)
        for j in range(k):
            x, target = beta_design(*parts, j), targets(labels, j, smooth=False)
            free = logistic(x, target)
            held = c.coef_[j, :2] == 0
            seen.add(int(held.sum()))
            assert held.any() == (free[:2] < 0).any()
            assert beta_loss(c.coef_[j], x, target)[0] - bounded_beta(x, target).fun < 1e-12
    assert seen >= {1, 2}


@pytest.mark.parametrize("seed", range(6))
def test_beta_against_betacal(seed) -> None:
    """Its solver stops early on all but seeds 0 and 2; nowhere does it find a lower loss."""
    z, labels = skewed([300, 1000, 3000, 2000, 500, 700][seed], 2, seed)
    probs = softmax(z)[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from betacal import BetaCalibration

        peer = BetaCalibration("abm").fit(probs, labels)
        want = peer.predict(probs)
    c = Beta(smooth=False).fit(read(z, labels))
    got = c.transform(read(z, labels)).probs[:, 1]
    theirs = peer.calibrator_.lr_
    theta = np.append(theirs.coef_[0], theirs.intercept_)
    x = beta_design(*log_odds_parts(z), 1)
    assert beta_loss(c.coef_[1], x, labels)[0] <= beta_loss(theta, x, labels)[0] + 1e-15
    assert got == pytest.approx(want, abs=1e-4 if seed in (0, 2) else 2e-3)
    assert c.coef_[1] == pytest.approx(logistic(x, labels * 1.0), abs=1e-8)
    mirrored = [c.coef_[1, 1], c.coef_[1, 0], -c.coef_[1, 2]]
    assert c.coef_[0] == pytest.approx(mirrored, abs=1e-9)


@pytest.mark.parametrize(
    ("labels", "want"),
    [([0, 1, 0, 0], [0, 0, -math.log(3)]), ([0, 0, 1, 0], None), ([1, 1, 0, 0], [0, 0, 0])],
)
def test_beta_with_an_optimum_on_the_bounds_only(labels, want) -> None:
    """A free curve separates these labels perfectly, one with a, b >= 0 does not."""
    probs, labels = np.array([0.2, 0.4, 0.6, 0.8]), np.array(labels)
    x = np.column_stack([np.log(probs), -np.log1p(-probs), np.ones(4)])
    least = bounded_beta(x, labels)
    assert least.x == pytest.approx(want if want else [1.9382, 0, 0.2353], abs=1e-4)
    p = Predictions(probs=np.column_stack([1 - probs, probs]), labels=labels)
    c = Beta(smooth=False).fit(p)
    assert beta_loss(c.coef_[1], x, labels)[0] - least.fun < 1e-12


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("name", [*ONE_VS_REST, "ties"])
def test_quadratic(name, smooth) -> None:
    """Parabolas of the log-odds, level beyond those of the fit."""
    z, labels = DATA[name] if name in DATA else CASES[name]
    c, (p, rest) = QuadraticScaling(smooth=smooth).fit(read(z, labels)), log_odds_parts(z)
    odds = p - rest
    columns = [np.column_stack([x**2, x, np.ones(len(x))]) for x in odds.T]
    want = np.array([logistic(x, targets(labels, j, smooth)) for j, x in enumerate(columns)])
    assert c.coef_ == pytest.approx(want, rel=1e-6, abs=1e-8)
    new = np.concatenate([z, z * 1.5])
    p, rest = log_odds_parts(new)
    x = np.clip(p - rest, odds.min(axis=0), odds.max(axis=0))
    got = c.transform(Predictions(logits=new, labels=np.tile(labels, 2))).probs
    q = rows_to_one(expit(want[:, 0] * x**2 + want[:, 1] * x + want[:, 2]))
    assert got == pytest.approx(q, abs=1e-8 if z.dtype == "f8" else 2e-6)


@pytest.mark.parametrize("seed", range(4))
def test_quadratic_against_probmetrics(seed) -> None:
    """Its solver stops early: nowhere does it find a lower loss."""
    z, labels = skewed([300, 1000, 3000, 500][seed], 2, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from probmetrics.calibrators import BinaryLogisticCalibrator

        peer = BinaryLogisticCalibrator(type="quadratic")
        peer.fit(softmax(z), labels)
        want = peer.predict_proba(softmax(z))[:, 1]
    c = QuadraticScaling(smooth=False).fit(read(z, labels))
    got = c.transform(read(z, labels)).probs[:, 1]
    x = np.stack([(z[:, 1] - z[:, 0]) ** power for power in (2, 1, 0)], axis=1)
    ours, theirs = (beta_loss(w, x, labels)[0] for w in (c.coef_[1], peer.cal_.coef_[0, ::-1]))
    assert ours <= theirs + 1e-15
    assert got == pytest.approx(want, abs=5e-3)
    assert c.coef_[0] == pytest.approx(c.coef_[1] * [-1, 1, -1], abs=1e-8)


def test_quadratic_of_normal_scores() -> None:
    """Classes with normal scores of different variances: the truth is a parabola."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200_000)
    x = np.where(labels == 1, rng.normal(1, 2, len(labels)), rng.normal(-1, 1, len(labels)))
    c = QuadraticScaling().fit(read(np.stack([np.zeros(len(x)), x], axis=1), labels))
    truth = [1 / 2 - 1 / 8, 1 / 4 + 1, 1 / 2 - 1 / 8 - math.log(2)]
    assert c.coef_[1] == pytest.approx(truth, abs=0.03)


# --- 6. isotonic ------------------------------------------------------------------------------


def peer_isotonic(fit_probs, labels, new, weights=None, floors=(0.0,)):
    """The peer's fit at new points, for each floor of its values."""
    from sklearn.isotonic import IsotonicRegression

    out = np.empty((len(floors), *new.shape))
    for j in range(new.shape[1]):
        peer = IsotonicRegression(out_of_bounds="clip")
        peer.fit(fit_probs[:, j], (labels == j) * 1.0, sample_weight=weights)
        plain = peer.predict(new[:, j])
        for i, floor in enumerate(floors):
            out[i, :, j] = plain
            if floor:  # of the samples of the fit, between which the map is linear
                knots = np.unique(fit_probs[:, j])
                values = np.clip(peer.predict(knots), floor, 1 - floor)
                out[i, :, j] = np.interp(new[:, j], knots, values)
    return out


@pytest.mark.parametrize("name", EVERY_DATA)
def test_isotonic(name) -> None:
    z, labels = DATA[name]
    p, probs = read(z, labels), softmax(z)
    new = skewed(400, z.shape[1], 99)[0] * 1.7  # beyond the range of the fit too
    both = np.concatenate([probs, softmax(new)])
    weights = np.random.default_rng(0).gamma(1, size=len(z))
    for w, floors in [(None, (0, None)), (weights, (0,))]:
        least = [1 / (2 * len(z) + 2) if floor is None else 0 for floor in floors]
        wanted = peer_isotonic(probs, labels, both, w, least)
        for floor, expected in zip(floors, wanted, strict=True):
            c = Isotonic(floor=floor).fit(p, weights=w)
            at_fit, at_new = np.split(expected, [len(z)])
            for want, at in [(at_fit, p), (at_new, read(new, np.zeros(400, int)))]:
                ok = want.sum(axis=1) > 0
                assert ok.mean() > 0.5
                got = c.transform(at).probs[ok]
                assert got == pytest.approx(rows_to_one(want[ok]), abs=1e-9)


def test_isotonic_of_rounded_ties() -> None:
    """Swap two other classes' logits: the same probability, but for the order of summation."""
    z, labels = CASES["ties"]
    p = read(z.astype("float64"), labels)
    [want] = peer_isotonic(p.probs, labels, p.probs)
    rounded = np.round(p.probs, 12)
    assert np.round(want, 9) == pytest.approx(peer_isotonic(rounded, labels, rounded)[0], abs=1e-6)
    assert Isotonic(floor=0).fit(p).transform(p).probs == pytest.approx(rows_to_one(want), abs=1e-6)


def centred(x, hit, weights):
    """Pool by hand, then put each block at its mean; blocks at 0 and 1 keep both ends."""
    blocks = []
    for value in np.unique(x):
        some = x == value
        blocks.append([weights[some].sum(), (weights * hit)[some].sum(), [value, value]])
        blocks[-1].append(blocks[-1][0] * value)
        while len(blocks) > 1 and blocks[-2][1] / blocks[-2][0] >= blocks[-1][1] / blocks[-1][0]:
            last = blocks.pop()
            blocks[-1] = [
                blocks[-1][0] + last[0],
                blocks[-1][1] + last[1],
                [blocks[-1][2][0], last[2][1]],
                blocks[-1][3] + last[3],
            ]
    points = []
    for count, total, ends, moment in blocks:
        at = ends if total in (0, count) else [moment / count]
        points += [(place, total / count) for place in at]
    return np.array(points).T


@pytest.mark.parametrize("name", EVERY_DATA)
def test_centred_isotonic(name) -> None:
    z, labels = DATA[name]
    p, probs, new = read(z, labels), softmax(z), skewed(300, z.shape[1], 99)[0] * 1.7
    whole = np.random.default_rng(0).integers(1, 4, len(z)) * 1.0
    for w, floor in [(None, 0), (whole, 0), (None, None)]:
        c = CentredIsotonic(floor=floor).fit(p, weights=w)
        least = 1 / (2 * len(z) + 2) if floor is None else 0
        ones = np.ones(len(z))
        points = [
            centred(x, (labels == j) * 1.0, ones if w is None else w) for j, x in enumerate(probs.T)
        ]
        for at in (z, new):
            columns = zip(softmax(at).T, points, strict=True)
            want = np.stack(
                [
                    np.interp(x, knots, np.clip(values, least, 1 - least))
                    for x, (knots, values) in columns
                ],
                axis=1,
            )
            ok = want.sum(axis=1) > 0
            got = c.transform(Scores(logits=at)).probs
            assert got[ok] == pytest.approx(rows_to_one(want[ok]), abs=1e-9)


def augmented(x, hit, at, label, counts=None):
    """Isotonic fit at each of some new points, each added to the data with this label."""
    from sklearn.isotonic import IsotonicRegression

    weights = np.append(np.ones(len(x)) if counts is None else counts, 1.0)
    out = []
    for new in at:
        peer = IsotonicRegression()
        fitted = peer.fit(np.append(x, new), np.append(hit, label), sample_weight=weights)
        out.append(fitted.predict([new])[0])
    return np.array(out)


VENN_ABERS = {
    "skewed 2": (skewed(150, 2, 0), skewed(40, 2, 9)),
    "skewed 4": (skewed(120, 4, 1), skewed(25, 4, 8)),
    "few": (skewed(3, 2, 2), skewed(10, 2, 7)),
    "repeated": (repeated(150, 3, 1), repeated(150, 3, 1)),
}


@pytest.mark.parametrize("name", VENN_ABERS)
def test_venn_abers(name) -> None:
    """Two isotonic regressions for every new sample and class, those of the fit among them."""
    (z, labels), (new, _) = VENN_ABERS[name]
    at = np.concatenate([new[:16], z[:8]])
    counts = np.random.default_rng(0).integers(1, 4, len(z)) * 1.0
    for w in (None, counts):
        c = VennAbers().fit(read(z, labels), weights=w)
        p0, p1 = c.bounds(Scores(logits=at))
        for j, (x, here) in enumerate(zip(softmax(z).T, softmax(at).T, strict=True)):
            hit = (labels == j) * 1.0
            assert p0[:, j] == pytest.approx(augmented(x, hit, here, 0.0, w), abs=1e-12)
            assert p1[:, j] == pytest.approx(augmented(x, hit, here, 1.0, w), abs=1e-12)
        assert (p0 < p1).all()
        want = rows_to_one(p1 / (1 - p0 + p1))
        assert c.predict_proba(Scores(logits=at)) == pytest.approx(want, abs=1e-12)
        if z.shape[1] == 2:
            assert p0[:, 0] == pytest.approx(1 - p1[:, 1], abs=1e-12)


def test_cross_venn_abers() -> None:
    """Geometric means over folds that never split a cluster."""
    z, labels = skewed(60, 2, 3)
    cluster, at = np.arange(60) // 3, skewed(30, 2, 6)[0]
    p = Predictions(logits=z, labels=labels, clusters=cluster)
    c = VennAbers(folds=3, seed=5).fit(p)
    fold, new = fold_numbers(60, 3, 5, cluster), Scores(logits=at)
    parts = [VennAbers().fit(read(z[fold == f], labels[fold == f])).bounds(new) for f in range(3)]
    p0, p1 = (np.array([part[i][:, 1] for part in parts]) for i in (0, 1))
    high, doubt = (np.exp(np.log(x).mean(axis=0)) for x in (p1, 1 - p0))
    assert c.predict_proba(new)[:, 1] == pytest.approx(high / (high + doubt), abs=1e-12)
    with pytest.raises(InputError, match="folds must be 1 for bounds"):
        c.bounds(new)


def test_venn_abers_is_calibrated_for_any_scores() -> None:
    """E[y - p] is 0 for p that is p1 where y = 1 and p0 elsewhere; scores are useless here."""
    rng, gaps = np.random.default_rng(0), []
    for _ in range(200):
        x, y = rng.random(107), rng.random(107) < 0.3
        fit = Predictions.from_binary(probs=x[:7], labels=y[:7].astype(int))
        p0, p1 = VennAbers().fit(fit).bounds(Scores(probs=np.stack([1 - x[7:], x[7:]], axis=1)))
        gaps.append((y[7:] - np.where(y[7:], p1[:, 1], p0[:, 1])).mean())
    assert abs(np.mean(gaps)) < 3 * np.std(gaps) / math.sqrt(200)
    assert np.std(gaps) / math.sqrt(200) < 0.01


# --- 7. bins and splines ----------------------------------------------------------------------


def bin_values(b, bins, outcome, floor=0.0, weights=None):
    w = np.ones(len(b)) if weights is None else weights
    count = np.bincount(b, w, bins)
    with np.errstate(invalid="ignore"):
        return (np.bincount(b, w * outcome, bins) + floor) / (count + 2 * floor)


BINNINGS = [("width", 15), ("width", 7), ("mass", 15), ("mass", 7), ("mass", 30)]


@pytest.mark.parametrize(("binning", "bins"), BINNINGS)
@pytest.mark.parametrize("name", EVERY_DATA)
def test_histogram_of_the_top(name, binning, bins) -> None:
    z, labels = DATA[name]
    p, k, top = read(z, labels), z.shape[1], z.argmax(axis=1)
    confidence, against = top_confidence(z)
    b = bin_numbers(confidence, bins, binning, -against)
    for floor in (None, 0.5):
        c = HistogramBinning(bins=bins, binning=binning, floor=floor).fit(p)
        value = bin_values(b, bins, top == labels, floor or 0)[b]
        assert c.confidences(p).confidence == pytest.approx(value, abs=1e-12)
        got = np.asarray(c.transform(p).probs, dtype=np.float64)
        assert got.sum(axis=1) == pytest.approx(1, abs=1e-12)
        above = value > 1 / k
        assert of(got, top)[above] == pytest.approx(value[above], abs=1e-12)
        assert (got.max(axis=1) <= of(got, top) + 1e-12)[above].all()
        shared_rest = softmax(z)
        shared_rest[np.arange(len(z)), top] = 0
        shared_rest *= ((1 - value) / shared_rest.sum(axis=1))[:, None]
        fits = above & (shared_rest.max(axis=1) <= value)
        shared_rest[np.arange(len(z)), top] = value
        assert fits.any() or name == "few"
        assert got[fits] == pytest.approx(shared_rest[fits], abs=1e-12)
        # Where the second class would overtake, the order of the classes stays as it was.
        order = np.argsort(z, axis=1, kind="stable")
        ranked = np.take_along_axis(got, order, axis=1)[above]
        assert (np.diff(ranked, axis=1) >= -1e-12).all()


@pytest.mark.parametrize(("binning", "bins"), BINNINGS)
@pytest.mark.parametrize("name", EVERY_DATA)
def test_histogram_of_each_class(name, binning, bins) -> None:
    z, labels = DATA[name]
    p, probs = read(z, labels), softmax(z)
    numbers = [bin_numbers(column, bins, binning) for column in probs.T]
    for floor in (None, 0.0, 1.0):
        c = HistogramBinning(bins=bins, binning=binning, target="class", floor=floor).fit(p)
        added = 0.5 if floor is None else floor
        columns = [bin_values(b, bins, labels == j, added)[b] for j, b in enumerate(numbers)]
        want = np.stack(columns, axis=1)
        assert (want.sum(axis=1) > 0).all()
        assert c.transform(p).probs == pytest.approx(rows_to_one(of_one_class(want)), abs=1e-12)


def test_histogram_weights() -> None:
    z, labels = DATA["skewed 3"]
    confidence = top_confidence(z)[0]
    w = np.random.default_rng(0).gamma(1, size=len(z))
    b = width_bins(confidence, 15)
    c = HistogramBinning().fit(read(z, labels), weights=w)
    want = bin_values(b, 15, z.argmax(axis=1) == labels, weights=w)[b]
    assert c.confidences(read(z, labels)).confidence == pytest.approx(want, abs=1e-12)
    assert np.abs(bin_values(b, 15, z.argmax(axis=1) == labels)[b] - want).max() > 1e-3


def test_histogram_empty_bins_and_edges() -> None:
    """Bins are (lo, hi]; those without samples give their middle."""
    fit = np.array([0.6] * 4 + [0.61] * 2 + [0.95] * 5)
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1])
    p = Predictions(probs=np.column_stack([fit, 1 - fit]), labels=labels)
    new = np.array([0.6, 0.605, 0.7, 0.71, 0.8, 0.88, 0.9, 0.91, 1.0, 0.55])
    q = Predictions(probs=np.column_stack([new, 1 - new]), labels=np.zeros(10, int))
    want = [0.75, 0, 0, 0.75, 0.75, 0.85, 0.85, 0.8, 0.8, 0.75]
    c = HistogramBinning(bins=10).fit(p)
    assert c.confidences(q).confidence == pytest.approx(want, abs=1e-12)
    c = HistogramBinning(bins=10, target="class", floor=0).fit(p)
    first = dict(zip(new, want, strict=True))
    # The other class has 1 - p: 0.4 is in (0.3, 0.4] with 0.39, and 0.05 in (0, 0.1].
    second = {0.71: 0.25, 0.88: 0.15, 0.91: 0.2}
    for v, other in second.items():
        row = Predictions(probs=np.array([[v, 1 - v]]), labels=[0])
        got = c.transform(row).probs[0]
        assert got == pytest.approx(np.array([first[v], other]) / (first[v] + other), abs=1e-12)


@pytest.mark.parametrize("calibrator", [HistogramBinning, ScalingBinning])
def test_equal_mass_bins_at_new_points(calibrator) -> None:
    """Constant within a bin of the fit, and beyond its ends."""
    z, labels = skewed(301, 2, 8)
    confidence, against = top_confidence(z)
    b = mass_bins(-against, 7)
    c = calibrator(bins=7, binning="mass").fit(read(z, labels))
    at_fit = c.confidences(read(z, labels)).confidence
    order = np.argsort(confidence)
    low, high = order[:-1], order[1:]
    same = b[low] == b[high]
    middle = (confidence[low] + confidence[high])[same] / 2
    ends = np.array([0.5, (1 + confidence.max()) / 2])
    new = np.concatenate([middle, ends])
    q = Predictions(probs=np.column_stack([new, 1 - new]), labels=np.zeros(len(new), int))
    want = np.concatenate([at_fit[low[same]], at_fit[order[[0, -1]]]])
    assert len(np.unique(want)) == 7
    assert c.confidences(q).confidence == pytest.approx(want, abs=1e-12)


def test_histogram_never_splits_equal_confidences() -> None:
    """The same confidence, bit for bit, in one group: one bin, one accuracy."""
    z = np.array([[0.5, 2.5, 3.5], [0.5, 2.5, 3.5], [0.5, 3.5, 2.5], [0.5, 3.5, 2.5]])
    p = read(z, [2, 2, 2, 2])
    assert len(np.unique(p.confidence)) == 1
    c = HistogramBinning(bins=2, binning="mass").fit(p)
    assert c.confidences(p).confidence.tolist() == [0.5] * 4


@pytest.mark.parametrize(("binning", "bins"), BINNINGS)
@pytest.mark.parametrize("name", EVERY_DATA)
def test_scaling_binning(name, binning, bins) -> None:
    z, labels = DATA[name]
    p, top = read(z, labels), z.argmax(axis=1)
    t = best_temperature(z, labels)
    confidence, against = top_confidence(z, t)
    c = ScalingBinning(bins=bins, binning=binning).fit(p)
    assert c.temperature_ == pytest.approx(t, rel=1e-9)
    b = bin_numbers(confidence, bins, binning, -against)
    value = bin_values(b, bins, confidence)[b]
    assert c.confidences(p).confidence == pytest.approx(value, abs=1e-9)
    got = c.transform(p).probs
    assert of(got, top) == pytest.approx(value, abs=1e-9)
    assert (got.max(axis=1) <= of(got, top) + 1e-12).all()
    c = ScalingBinning(bins=bins, binning=binning, target="class").fit(p)
    probs = softmax(np.asarray(z, dtype=np.float64) / t)
    want = np.empty_like(probs)
    for j in range(z.shape[1]):
        b = bin_numbers(probs[:, j], bins, binning)
        want[:, j] = bin_values(b, bins, probs[:, j])[b]
    assert c.transform(p).probs == pytest.approx(rows_to_one(of_one_class(want)), abs=1e-8)


def of_one_class(scores: np.ndarray) -> np.ndarray:
    """Two classes share the bins of the second: the first has the rest."""
    if scores.shape[1] == 2:
        return np.stack([1 - scores[:, 1], scores[:, 1]], axis=1)
    return scores


def natural_basis(at, knots, derivative=0):
    places = np.linspace(0, 1, knots)
    columns = [CubicSpline(places, row, bc_type="natural")(at, derivative) for row in np.eye(knots)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("knots", [7, 5])
@pytest.mark.parametrize("name", [n for n in DATA if n != "few"])
def test_spline(name, knots) -> None:
    """Least squares through (0, 0) and the cumulative accuracy after each sample.

    Tied samples are one point, at their end, that counts once for each of them; the origin counts
    as an average point. The slope is taken in the middle of a sample's, or a group's, ranks.
    """
    z, labels = DATA[name]
    z, labels = z[:512], labels[:512]
    (n, k), top = z.shape, z.argmax(axis=1)
    against = top_confidence(z)[1]
    _, group, count = np.unique(-against, return_inverse=True, return_counts=True)
    if not name.startswith("repeated"):
        assert len(count) == n
    ends = np.append(0, np.cumsum(count)) / n
    accurate = np.append(0, np.cumsum(np.bincount(group, top == labels))) / n
    root = np.sqrt(np.append(count.mean(), count))
    basis = natural_basis(ends, knots)
    theta = np.linalg.lstsq(basis * root[:, None], accurate * root, rcond=None)[0]
    middle = (ends[1:] + ends[:-1]) / 2
    want = np.clip(natural_basis(middle, knots, 1) @ theta, (1 + 1e-5) / k, 1 - 1 / (2 * n + 2))
    got = Spline(knots=knots).fit(read(z, labels)).transform(read(z, labels)).probs
    assert of(got, top) == pytest.approx(want[group], abs=1e-6)
    assert np.ptp(want) > 0.05


def kernel_mean(x, hit, at, bandwidth, weights):
    """Average label at each point, each sample weighed by its beta distribution there."""
    return np.array(
        [
            np.average(
                hit,
                weights=weights
                * beta_distribution.pdf(point, x / bandwidth + 1, (1 - x) / bandwidth + 1),
            )
            for point in at
        ]
    )


def left_out_loss(x, hit, bandwidth, least):
    total = 0.0
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        ones = np.ones(len(x) - 1)
        q = kernel_mean(x[others], hit[others], x[[i]], bandwidth, ones)[0]
        total -= math.log(np.clip(q if hit[i] else 1 - q, least, 1 - least))
    return total


def snapped_to_tenths(x):
    """To log-odds of whole tenths."""
    return expit(np.round(logit(x), 1))


def shared_out(x, hit, weights):
    """Each sample as two, at the tenths of the log-odds around it, with the same mean."""
    low = np.floor(logit(x) * 10) / 10
    below, above = expit(low), expit(low + 0.1)
    share = (x - below) / (above - below)
    counts = np.concatenate([weights * (1 - share), weights * share])
    return np.concatenate([below, above]), np.tile(hit, 2), counts


def mean_at(x, hit, weights, at, bandwidth):
    places, labels, counts = shared_out(x, hit, weights)
    return kernel_mean(places, labels, at, bandwidth, counts)


@pytest.mark.parametrize("name", ["skewed 2", "skewed 3", "repeated 3"])
def test_kernel(name) -> None:
    z, labels = (part[:120] for part in DATA[name])
    probs = softmax(z)
    weights = np.random.default_rng(0).integers(1, 4, 120) * 1.0
    at = expit(np.linspace(-3, 3, 61))
    top, right = probs.max(axis=1), (probs.argmax(axis=1) == labels) * 1.0
    for w in (np.ones(120), weights):
        least = 1 / (2 * w.sum() + 2)
        c = KernelCalibration(bandwidth=0.03).fit(read(z, labels), weights=w)
        want = np.clip(mean_at(top, right, w, at, 0.03), least, 1 - least)
        assert np.interp(at, c.knots_[0], c.values_[0]) == pytest.approx(want, abs=1e-9)
        c = KernelCalibration(bandwidth=0.1, target="class").fit(read(z, labels), weights=w)
        for j, column in enumerate(probs.T):
            want = np.clip(mean_at(column, labels == j, w, at, 0.1), least, 1 - least)
            assert np.interp(at, c.knots_[j], c.values_[j]) == pytest.approx(want, abs=1e-9)


def test_kernel_bandwidth_of_least_loss_without_the_sample() -> None:
    z, labels = (part[:80] for part in DATA["skewed 3"])
    probs, grid = softmax(z), [a * 10.0**b for b in range(-5, 0) for a in (1, 3)] + [1.0]
    top, right = snapped_to_tenths(probs.max(axis=1)), (probs.argmax(axis=1) == labels) * 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples without a neighbour
        losses = [left_out_loss(top, right, h, 1 / 162) for h in grid if h >= 0.01]
    found = KernelCalibration().fit(read(z, labels)).bandwidth_
    assert found == pytest.approx([h for h in grid if h >= 0.01][int(np.argmin(losses))])


def test_kernel_against_probmetrics() -> None:
    """The same but for samples shared out between the points of the curve."""
    z, labels = skewed(2000, 2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from probmetrics.calibrators import KernelCalibrator

        peer = KernelCalibrator(bandwidth=0.02)
        peer.fit(softmax(z), labels)
        want = peer.predict_proba(softmax(z))
    c = KernelCalibration(bandwidth=0.02, target="class").fit(read(z, labels))
    assert c.transform(read(z, labels)).probs == pytest.approx(want, abs=1e-3)


# --- 8. ensemble temperature ------------------------------------------------------------------

ENSEMBLE_DATA = {
    **{n: DATA[n] for n in ("skewed 2", "skewed 10", "skewed 100", "mixed 3", "mixed 10")},
    "repeated": DATA["repeated 4"],
    "ties": CASES["ties"],
    "underconfident": draw(500, 5, temperature=0.4, seed=3),
    "label noise": (mixed(500, 4, 0)[0], mixed(500, 4, 0)[0].argmax(axis=1)),
}
ENSEMBLE_DATA["label noise"][1][::7] = np.arange(72) % 4


@pytest.mark.parametrize("name", ENSEMBLE_DATA)
def test_ensemble_temperature(name) -> None:
    z, labels = ENSEMBLE_DATA[name]
    c = EnsembleTemperature().fit(read(z, labels))
    m, t = c.mixture_, best_temperature(z, labels)
    assert c.temperature_ == pytest.approx(t, rel=1e-8)
    assert (m >= 0).all()
    assert m.sum() == pytest.approx(1, abs=1e-12)
    z64, k = np.asarray(z, dtype=np.float64), z.shape[1]
    parts = np.stack([softmax(z64 / c.temperature_), softmax(z64), np.full(z.shape, 1 / k)])
    q = parts[:, np.arange(len(z)), labels].T
    gain = (q / (q @ m)[:, None]).mean(axis=0)  # KKT: 1 where m > 0, at most 1 elsewhere
    assert np.abs(gain[m > 0] - 1).max() < 1e-8
    assert (gain < 1 + 1e-8).all()
    least = min(
        minimize(
            lambda m: -np.log(q @ m).mean(),
            start,
            jac=lambda m: -(q / (q @ m)[:, None]).mean(0),
            bounds=[(1e-12, 1)] * 3,
            constraints={"type": "eq", "fun": lambda m: m.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        ).fun
        for start in ([1 / 3] * 3, [0.9, 0.05, 0.05], [0.05, 0.9, 0.05])
    )
    assert -np.log(q @ m).mean() - least < 1e-9
    want = np.tensordot(m, parts, axes=1)
    assert c.transform(read(z, labels)).probs == pytest.approx(want, abs=1e-9)


def test_ensemble_temperature_against_a_fine_search() -> None:
    """All three parts at work, and the best of a triangle of 20,301 mixtures is not better."""
    z, labels = CASES["ties"]
    c = EnsembleTemperature().fit(read(z, labels))
    assert (c.mixture_ > 1e-3).all()
    z64 = z.astype(np.float64)
    q = np.stack([of(softmax(z64 / c.temperature_), labels), of(softmax(z64), labels)], axis=1)
    q = np.column_stack([q, np.full(len(z), 1 / 4)])
    a, b = np.meshgrid(np.arange(201) / 200, np.arange(201) / 200)
    inside = a + b <= 1 + 1e-12
    mixtures = np.stack([a[inside], b[inside], np.maximum(1 - a[inside] - b[inside], 0)])
    best = max(np.log(q @ part).mean(axis=0).max() for part in np.array_split(mixtures, 40, axis=1))
    assert np.log(q @ c.mixture_).mean() >= best - 1e-12


# --- 9. cross-fitting, chains and selection ---------------------------------------------------


def out_of_fold(calibrator, z, labels, folds, seed):
    """Probabilities in float64, each from a fit to the other folds."""
    numbers, out = fold_numbers(len(z), folds, seed), np.empty(z.shape)
    for fold in range(folds):
        held = numbers == fold
        c = calibrator.clone().fit(read(z[~held], labels[~held]))
        out[held] = np.asarray(c.transform(read(z[held], labels[held])).probs)
    return out


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        VectorScaling(strength=1.0),
        Platt(),
        Beta(),
        Isotonic(),
        Spline(),
        HistogramBinning(floor=0.5),
        ScalingBinning(),
        EnsembleTemperature(),
        Chain([TemperatureScaling(), HistogramBinning(binning="mass", floor=0.5)]),
    ],
    ids=lambda c: type(c).__name__,
)
@pytest.mark.parametrize(
    "name",
    ["skewed 3", *(pytest.param(n, marks=pytest.mark.slow) for n in ("skewed 10", "repeated 4"))],
)
def test_cross_fitted(name, calibrator) -> None:
    z, labels = DATA[name]
    p = read(z, labels)
    c = CrossFitted(calibrator, folds=4, seed=3).fit(p)
    want = out_of_fold(calibrator, z, labels, 4, 3)
    assert np.asarray(c.out_of_fold_.probs) == pytest.approx(want, abs=1e-12)
    assert c.out_of_fold_.labels.tolist() == labels.tolist()
    on_all = np.asarray(calibrator.clone().fit(p).transform(p).probs)
    tolerance = 1e-12 if z.dtype == "f8" else 5e-7
    assert np.asarray(c.transform(p).probs) == pytest.approx(on_all, abs=tolerance)
    assert np.abs(on_all - want).max() > 1e-4
    other = CrossFitted(calibrator, folds=4, seed=4).fit(p).out_of_fold_.probs
    assert np.abs(np.asarray(other) - want).max() > 1e-6


def test_chain() -> None:
    for name in ("skewed 3", "mixed 10"):
        z, labels = DATA[name]
        p, new = read(z, labels), read(mixed(50, z.shape[1], 77)[0], np.zeros(50, int))
        first = TemperatureScaling().fit(p)
        second = HistogramBinning(binning="mass", floor=0.5).fit(first.transform(p))
        chain = Chain([TemperatureScaling(), HistogramBinning(binning="mass", floor=0.5)]).fit(p)
        for q in (p, new):
            want = second.transform(first.transform(q)).probs
            tolerance = 1e-12 if z.dtype == "f8" else 1e-7
            assert chain.transform(q).probs == pytest.approx(want, abs=tolerance)
        assert chain.num_parameters() == first.num_parameters() + second.num_parameters()


PLAIN = ["temperature", "ensemble_temperature", "platt", "beta", "isotonic", "scaling_binning"]


def losses_by_hand(z, labels, names, criterion, folds, seed):
    losses = {}
    for name in [*names, "none"]:
        calibrator = TemperatureScaling(temperature=1.0) if name == "none" else CALIBRATORS[name]()
        q = out_of_fold(calibrator, z, labels, folds, seed)
        with np.errstate(divide="ignore"):
            losses[name] = (
                -np.log(of(q, labels))
                if criterion == "nll"
                else ((q - np.eye(z.shape[1])[labels]) ** 2).sum(axis=1)
            )
    return losses


def evidence(losses, name, criterion):
    gain = losses["none"] - losses[name]
    return gain.sum() if criterion == "nll" else np.log(1 + gain / 4).sum()


@pytest.mark.parametrize("criterion", ["nll", "brier"])
@pytest.mark.parametrize(
    "name",
    [
        "skewed 3",
        pytest.param("mixed 3", marks=pytest.mark.slow),
        pytest.param("repeated 3", marks=pytest.mark.slow),
        "calibrated",
    ],
)
def test_select_calibrator(name, criterion) -> None:
    z, labels = draw(300, 3, temperature=1.0, seed=9, dtype="float64")
    z, labels = DATA.get(name, (z, labels))
    losses = losses_by_hand(z, labels, PLAIN, criterion, 5, 1)
    best = min(losses, key=lambda n: losses[n].mean())
    clear = [n for n in losses if n == "none" or evidence(losses, n, criterion) >= math.log(20)]
    first = min(clear, key=lambda n: losses[n].mean())
    for errors in (0.0, 1.0, 3.0):
        s = select_calibrator(
            read(z, labels), PLAIN, criterion=criterion, seed=1, standard_errors=errors
        )
        rows = {c.name: c for c in s.candidates}
        assert rows.keys() == losses.keys()
        near = []
        for c in s.candidates:
            behind = losses[c.name] - losses[best]
            error = behind.std() / math.sqrt(len(z))
            assert c.loss == pytest.approx(losses[c.name].mean(), abs=1e-12)
            assert c.behind == pytest.approx(behind.mean(), abs=1e-12)
            assert c.error == pytest.approx(error, abs=1e-12)
            gap = losses[c.name] - losses[first]
            if c.name in clear and gap.mean() <= errors * gap.std() / math.sqrt(len(z)):
                near.append((c.parameters, c.loss, c.name))
            if c.name != "none":
                assert c.parameters == CALIBRATORS[c.name]().fit(read(z, labels)).num_parameters()
        assert rows["none"].parameters == 0
        assert s.chosen == min(near)[2]
        assert (errors > 0) or s.chosen == first
        verdicts = {c.name: c.verdict.split(":")[0] for c in s.candidates}
        assert verdicts.pop(s.chosen) == "chosen"
        assert set(verdicts.values()) == {"rejected"}
        worse = {c.name for c in s.candidates if "worse" in c.verdict}
        less = {n for n in losses if losses[n].mean() < losses["none"].mean()}
        unclear = {c.name for c in s.candidates if "not clearly better than the" in c.verdict}
        gaps = {n: losses[n] - losses[first] for n in losses}
        # Beyond one standard error of the difference a candidate is called worse.
        tied = {n for n, g in gaps.items() if g.mean() <= g.std() / math.sqrt(len(z))}
        assert unclear == (less | tied) - set(clear)
        assert worse == losses.keys() - unclear - {n for *_, n in near} - tied - {s.chosen}
        if s.chosen != "none":
            want = CALIBRATORS[s.chosen]().fit(read(z, labels)).transform(read(z, labels)).probs
            assert s.calibrator.transform(read(z, labels)).probs == pytest.approx(want, abs=1e-12)


def test_selection_prefers_the_simple() -> None:
    """The rules matter on the data above: they prefer a simpler method to the best, and none."""
    z, labels = DATA["skewed 3"]
    chosen = {
        e: select_calibrator(read(z, labels), PLAIN, seed=1, standard_errors=e).chosen
        for e in (0.0, 3.0)
    }
    assert chosen == {0.0: "platt", 3.0: "temperature"}
    z, labels = draw(300, 3, temperature=1.0, seed=9, dtype="float64")
    s = select_calibrator(read(z, labels), PLAIN, seed=1, standard_errors=0)
    assert s.candidates[0].name != s.chosen == "none"


def test_selection_rejects_probability_zero() -> None:
    z, labels = DATA["skewed 3"]
    losses = losses_by_hand(z, labels, ["histogram"], "nll", 5, 1)
    zeros = int(np.isinf(losses["histogram"]).sum())
    assert zeros > 0
    s = select_calibrator(
        read(z, labels), {"mine": HistogramBinning(), "t": TemperatureScaling()}, seed=1
    )
    rows = {c.name: c for c in s.candidates}
    assert rows.keys() == {"mine", "t", "none"}
    assert s.chosen != "mine"
    assert rows["mine"].verdict.startswith("rejected")
    assert "probability 0" in rows["mine"].verdict
    assert str(zeros) in rows["mine"].verdict.replace("probability 0", "")
    assert not math.isfinite(rows["mine"].loss)
    by_brier = select_calibrator(read(z, labels), [HistogramBinning()], seed=1, criterion="brier")
    assert all(math.isfinite(c.loss) for c in by_brier.candidates)
