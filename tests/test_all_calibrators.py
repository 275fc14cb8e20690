"""Laws that hold for every calibrator, and a test that none is left out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import tracemalloc
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant import InputError, Predictions, Scores, fit_summary, metrics
from calibrant._core.checks import CalibrationWarning, NotFittedError
from calibrant.calibrators import (
    CALIBRATORS,
    Beta,
    BiasCorrectedTemperature,
    Blend,
    Calibrator,
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
    load_calibrator,
)
from calibrant.calibrators._registry import WRAPPERS
from tests.close import assert_close
from tests.conftest import CASES, draw

FACTORIES: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "temperature, ece": lambda: TemperatureScaling(objective="ece"),
    "temperature, ece of equal mass": lambda: TemperatureScaling(
        objective="ece", binning="mass", norm=2, grid="mukhoti2020"
    ),
    "temperature, soft ece": lambda: TemperatureScaling(objective="soft_ece"),
    "temperature, soft label-binned ece": lambda: TemperatureScaling(
        objective="soft_ece", form="label", bins=10
    ),
    "ensemble temperature": EnsembleTemperature,
    "order-preserving": OrderPreserving,
    "bias-corrected temperature": BiasCorrectedTemperature,
    "vector": VectorScaling,
    "vector, fixed strength": lambda: VectorScaling(strength=0.1),
    "matrix": MatrixScaling,
    "structured vector": StructuredVectorScaling,
    "structured vector on logits": lambda: StructuredVectorScaling(on="logits"),
    "structured matrix": StructuredMatrixScaling,
    "dirichlet": Dirichlet,
    "platt": Platt,
    "beta": Beta,
    "quadratic": QuadraticScaling,
    "histogram": HistogramBinning,
    "histogram of equal mass": lambda: HistogramBinning(binning="mass"),
    "histogram of classes": lambda: HistogramBinning(target="class"),
    "histogram of classes, equal mass": lambda: HistogramBinning(target="class", binning="mass"),
    "scaling-binning": ScalingBinning,
    "scaling-binning of classes": lambda: ScalingBinning(target="class"),
    "isotonic": Isotonic,
    "centred isotonic": CentredIsotonic,
    "venn-abers": VennAbers,
    "venn-abers, cross": lambda: VennAbers(folds=4),
    "spline": Spline,
    "kernel": KernelCalibration,
    "kernel of classes": lambda: KernelCalibration(target="class"),
    "blend": lambda: Blend(["temperature", VectorScaling(strength=1.0), "spline"], folds=3),
    "blend, default members": Blend,
    "blend of scalings": lambda: Blend(
        [TemperatureScaling(), VectorScaling(strength=1.0)], folds=3
    ),
    "chain": lambda: Chain([TemperatureScaling(), HistogramBinning(binning="mass")]),
    "chain of scalings": lambda: Chain([TemperatureScaling(), VectorScaling(strength=1.0)]),
    "cross-fitted": lambda: CrossFitted(VectorScaling(strength=1.0), folds=3),
}
DENSE = ("matrix", "structured matrix", "dirichlet")
FOLDABLE = [
    "temperature",
    "bias-corrected temperature",
    "vector",
    "matrix",
    "structured vector on logits",
    "chain of scalings",
    "blend of scalings",
]


# The search for the least soft ECE takes a third of the time of all fits; its map is that of the
# other temperatures. The default members of a blend have laws of their own. Cross Venn-Abers fits
# the inductive kind four times; of the three dense maps the Dirichlet one stays.
SLOW = re.compile(", soft|, default members|, cross|^structured matrix$|^matrix$")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if SLOW.search(name) else name for name in FACTORIES
]
every = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=NAMES, ids=str)
def make(request: pytest.FixtureRequest) -> Callable[[], Calibrator]:
    return FACTORIES[request.param]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Name of the calibrator that ``make`` makes."""
    return request.node.callspec.params["make"]


def predictions(key: str = "mixed signs") -> Predictions:
    z, labels = CASES[key]
    return Predictions(logits=z, labels=labels)


def quietly(calibrator: Calibrator, p: Predictions) -> Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(p)


@cache
def fitted(name: str, key: str = "mixed signs") -> Calibrator:
    """A fit that several tests look at and none changes."""
    return quietly(FACTORIES[name](), predictions(key))


def learned(calibrator: Calibrator) -> dict[str, np.ndarray]:
    return {
        key: np.asarray(value)
        for key, value in vars(calibrator).items()
        if key in calibrator.learned and isinstance(value, (float, np.ndarray))
    }


def test_none_is_missing() -> None:
    tested = {type(make()) for make in FACTORIES.values()}
    assert tested == {*CALIBRATORS.values(), *WRAPPERS}


# --- the contract -----------------------------------------------------------------------------


def test_unfitted_use_raises(make: Callable[[], Calibrator], tmp_path: Path) -> None:
    p = predictions()
    for use in (
        lambda c: c.transform(p),
        lambda c: c.save(tmp_path / "c.json"),
        lambda c: c.to_onnx(tmp_path / "c.onnx"),
        lambda c: c.to_module(),
        lambda c: c.fold_into(torch.nn.Linear(4, 10)),
        lambda c: fit_summary(c, p),
        lambda c: c.num_parameters(),
    ):
        with pytest.raises(NotFittedError, match="fit"):
            use(make())
    assert not list(tmp_path.iterdir())


@every
def test_transform_never_sees_labels(name: str) -> None:
    p, c = predictions(), fitted(name)
    other = Predictions(logits=p.logits, labels=np.roll(p.labels, 1))
    np.testing.assert_array_equal(c.transform(p).probs, c.transform(other).probs)
    np.testing.assert_array_equal(c.transform(other).labels, other.labels)


def test_scores_are_calibrated_as_predictions_are(
    make: Callable[[], Calibrator], name: str
) -> None:
    p = predictions()
    c = fitted(name, "mixed signs")
    scores = Scores(logits=p.logits, classes=p.classes, meta=p.meta)
    found, wanted = c.transform(scores), c.transform(p)
    assert (type(found), type(wanted)) == (Scores, Predictions)
    np.testing.assert_array_equal(found.scores, wanted.scores)


def test_rows_sum_to_one_and_argmax_is_kept(make: Callable[[], Calibrator], name: str) -> None:
    for key in (key for key in CASES if key != "one sample"):
        p = predictions(key)
        if key == "many classes" and name in DENSE:
            p = Predictions(logits=p.logits[:, :60], labels=p.labels % 60)
        c = fitted(name, key) if p.num_classes == CASES[key][0].shape[1] else quietly(make(), p)
        out = c.transform(p)
        probs = np.exp(np.asarray(out.log_probs, dtype=np.float64))
        assert np.isfinite(probs).all(), key
        assert (probs >= 0).all(), key
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5, err_msg=key)
        if c.keeps_argmax:
            np.testing.assert_array_equal(out.predicted, p.predicted, err_msg=key)


def test_order_of_all_classes_is_kept() -> None:
    for key in ("mixed signs", "two classes", "saturated float32", "float64"):
        p, c = predictions(key), fitted("order-preserving", key)
        order = np.argsort(p.logits, axis=1)
        z = np.take_along_axis(c.transform(p).logits.astype(np.float64), order, axis=1)
        assert (np.diff(z, axis=1) >= 0).all(), key


@pytest.mark.parametrize("temperature", [0.013, 0.5, 3.0, 77.0])
def test_argmax_is_kept_at_neighbouring_floats(temperature: float) -> None:
    """Divided by T, floats that differ in the last bit become equal; the first would win."""
    high = np.float32(1.0) + np.finfo(np.float32).eps
    z = np.array([[1.0, high, 0.0], [high, 1.0, 0.5]] * 50, dtype=np.float32)
    z *= np.linspace(0.1, 9, 100, dtype=np.float32)[:, None]
    p = Predictions(logits=z, labels=np.zeros(100, dtype=int))
    out = TemperatureScaling(temperature=temperature).transform(p)
    np.testing.assert_array_equal(out.predicted, p.predicted)


def test_promise_of_the_argmax_is_not_made_in_vain() -> None:
    """Methods that do not promise to keep the argmax do change some predictions."""
    z, labels = draw(2000, 4, spread=1.0, seed=11)
    p = Predictions(logits=z + np.array([1.5, 0, 0, 0], dtype=np.float32), labels=labels)
    for key in ("vector", "matrix", "platt", "beta", "isotonic", "histogram of classes"):
        c = FACTORIES[key]().fit(p)
        assert not c.keeps_argmax
        assert (c.transform(p).predicted != p.predicted).any(), key


def calibrated(num_samples: int, seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (num_samples, 4))
    return Predictions(logits=z, labels=(z + rng.gumbel(size=z.shape)).argmax(axis=1))


def test_leaves_calibrated_data_alone(make: Callable[[], Calibrator], name: str) -> None:
    """Within sampling error: on fresh calibrated data the excess NLL is of the order of P / N.

    Bins of every class also lose what differs inside a bin.
    """
    p, fresh = calibrated(20_000, 0), calibrated(20_000, 1)
    c = make().fit(p)
    out = c.transform(fresh)
    assert metrics.nll(out) - metrics.nll(fresh) < (0.015 if "of classes" in name else 0.006)
    assert np.abs(out.confidence - fresh.confidence).mean() < 0.025


NLL_METHODS = [
    "temperature",
    "ensemble temperature",
    "order-preserving",
    "bias-corrected temperature",
    "vector",
    "matrix",
    "structured vector",
    "structured matrix",
    "dirichlet",
    "chain of scalings",
    "blend of scalings",
]


@pytest.mark.parametrize("key", NLL_METHODS)
def test_fit_lowers_its_own_nll(key: str) -> None:
    for data in ("mixed signs", "two classes", "saturated float32", "ties"):
        p = predictions(data)
        out = fitted(key, data).transform(p)
        assert metrics.nll(out) <= metrics.nll(p) + 1e-9, data


def test_fit_lowers_other_objectives() -> None:
    p = predictions()
    hb = HistogramBinning().fit(p)
    assert metrics.ece(hb.confidences(p)) < 1e-12
    hb = HistogramBinning(binning="mass").fit(p)
    assert metrics.ece(hb.confidences(p), bins=100) < 1e-12
    iso = Isotonic(floor=0).fit(p)
    probs = np.exp(np.asarray(p.log_probs, dtype=np.float64))
    for k in range(p.num_classes):
        fitted = np.interp(probs[:, k], iso.knots_[k], iso.values_[k])
        hit = p.labels == k
        assert ((fitted - hit) ** 2).sum() <= ((probs[:, k] - hit) ** 2).sum()


def test_same_from_any_array(make: Callable[[], Calibrator], name: str) -> None:
    z, labels = draw(120, 4, seed=35)
    p = Predictions(logits=z, labels=labels)
    expected = make().fit(p).transform(p).probs
    for form in (
        z.astype(np.float64),
        torch.from_numpy(z),
        torch.from_numpy(z).double(),
        np.asfortranarray(z),
        z[::-1][::-1],
    ):
        p = Predictions(logits=form, labels=labels)
        got = make().fit(p).transform(p).probs
        np.testing.assert_allclose(got, expected, atol=2e-6)


def test_order_of_samples_is_irrelevant(make: Callable[[], Calibrator], name: str) -> None:
    if name == "cross-fitted":
        pytest.skip("its folds are of the samples as they came")
    p = predictions("float64")
    order = np.random.default_rng(0).permutation(p.num_samples)
    first, second = make().fit(p), make().fit(p.take(order))
    a, b = first.transform(p).probs, second.transform(p).probs
    np.testing.assert_allclose(a, b, atol=1e-7)


def hard_data() -> dict[str, Predictions]:
    rng = np.random.default_rng(2)
    z, labels = draw(300, 5, seed=21)
    masked = z.copy()
    masked[:, 3] = -np.inf
    some = z.copy()
    some[np.arange(300), (labels + 1 + rng.integers(0, 4, 300)) % 5] = -np.inf
    wide, wide_labels = draw(60, 1000, seed=22)
    few, few_labels = draw(20, 60, seed=23)
    probs = np.eye(5, dtype=np.float32)[np.where(rng.random(300) < 0.8, labels, (labels + 1) % 5)]
    return {
        "a class absent": Predictions(logits=z[labels != 2], labels=labels[labels != 2]),
        "one class alone": Predictions(logits=z[labels == 2], labels=labels[labels == 2]),
        "K = 2": predictions("two classes"),
        "K = 1000": Predictions(logits=wide, labels=wide_labels),
        "N < K": Predictions(logits=few, labels=few_labels),
        "one sample, right": Predictions(logits=[[2.0, 0.0, 1.0]], labels=[0]),
        "one sample, wrong": Predictions(logits=[[2.0, 0.0, 1.0]], labels=[1]),
        "constant logits": Predictions(logits=np.full((50, 3), 0.7), labels=np.arange(50) % 3),
        "saturated": Predictions(logits=z * 1e4, labels=labels),
        "all right": Predictions(logits=np.eye(5)[labels] * 9, labels=labels),
        "a masked class": Predictions(logits=masked[labels != 3], labels=labels[labels != 3]),
        "-inf here and there": Predictions(logits=some, labels=labels),
        "one-hot probabilities": Predictions(probs=probs, labels=labels),
        "random labels": Predictions(logits=z, labels=rng.integers(0, 5, 300)),
        "equal rows": Predictions(logits=np.tile(z[:1], (40, 1)), labels=labels[:40]),
    }


HARD = hard_data()


@cache
def fitted_on_hard_data(name: str, data: str) -> Calibrator:
    return quietly(FACTORIES[name](), hard(name, data))


def hard(name: str, data: str) -> Predictions:
    """Hard data; fewer classes where a fit has a parameter for each pair of classes."""
    p = HARD[data]
    if name in DENSE and data == "K = 1000":
        return Predictions(logits=p.logits[:, :120], labels=p.labels % 120)
    return p


def test_hard_data(make: Callable[[], Calibrator], name: str) -> None:
    """An answer with finite probabilities; where no optimum exists, a warning says so."""
    for data in HARD:
        p = hard(name, data)
        if name == "cross-fitted" and p.num_samples < 3:
            with pytest.raises(InputError, match="folds"):
                make().fit(p)
            continue
        c = fitted_on_hard_data(name, data)
        probs = np.exp(np.asarray(c.transform(p).log_probs, dtype=np.float64))
        assert np.isfinite(probs).all(), data
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5, err_msg=data)
        for value in learned(c).values():
            assert np.isfinite(value).all(), data


def test_impossible_label_is_refused(make: Callable[[], Calibrator], name: str) -> None:
    """A label with logit -inf has infinite loss under every fit that looks at all classes."""
    p = Predictions(logits=[[0.0, -np.inf], [1.0, 0.0], [0.0, 1.0]], labels=[1, 0, 1])
    if name.startswith("cross"):
        return
    with pytest.raises(InputError, match="-inf in row 0"):
        make().fit(p)


WEIGHTED = {
    **{name: make for name, make in FACTORIES.items() if name != "cross-fitted"},
    "platt as published": lambda: Platt(smooth=False),
    "beta as published": lambda: Beta(smooth=False),
    "quadratic as published": lambda: QuadraticScaling(smooth=False),
    "isotonic, floor": lambda: Isotonic(floor=0.001),
    "dirichlet, fixed": lambda: Dirichlet(strength=0.1),
}


@pytest.mark.parametrize("key", WEIGHTED)
@pytest.mark.parametrize("data", [pytest.param("plain", marks=pytest.mark.slow), "skewed"])
def test_weights_are_repetitions(key: str, data: str) -> None:
    """Penalties, priors, folds and bins included."""
    z, labels = draw(150, 4, seed=31)
    if data == "skewed":  # where penalties are chosen that are not the usual ones
        z = z * np.array([2.0, 1.0, 1.0, 0.4]) + np.array([1.0, 0.0, 0.0, -1.0])
    times = np.random.default_rng(0).integers(0, 4, 150)
    p = Predictions(logits=z, labels=labels)
    repeated = p.take(np.random.default_rng(1).permutation(np.repeat(np.arange(150), times)))
    weighted = WEIGHTED[key]().fit(p, weights=times)
    plain = WEIGHTED[key]().fit(repeated)
    assert getattr(weighted, "strength_", 0) == pytest.approx(getattr(plain, "strength_", 0))
    np.testing.assert_allclose(weighted.transform(p).probs, plain.transform(p).probs, atol=1e-6)


@pytest.mark.parametrize(
    "key",
    ["temperature", "platt as published", "beta as published", "histogram", "isotonic, floor"],
)
def test_only_ratios_of_weights_matter_without_a_prior(key: str) -> None:
    """Weights that are not whole numbers: sums of them are not exact."""
    p = predictions()
    weights = np.random.default_rng(0).gamma(1, size=p.num_samples)
    a, b = (WEIGHTED[key]().fit(p, weights=weights * c).transform(p).probs for c in (1, 0.37))
    np.testing.assert_allclose(a, b, atol=1e-6)
    few = weights > np.median(weights)
    whole = WEIGHTED[key]().fit(p, weights=few * 0.3).transform(p).probs
    np.testing.assert_allclose(
        whole, WEIGHTED[key]().fit(p.take(few)).transform(p).probs, atol=1e-6
    )


def test_some_weights_choose_other_penalties() -> None:
    """The test above can fail: folds and penalties do depend on the weights."""
    z, labels = draw(150, 4, seed=31)
    p = Predictions(logits=z, labels=labels)
    once, often = (
        StructuredVectorScaling(strength=1.0).fit(p, weights=np.full(150, w)) for w in (1, 20)
    )
    assert np.abs(once.transform(p).probs - often.transform(p).probs).max() > 1e-3


def test_weights_of_one_sample_in_all_are_said() -> None:
    p = predictions()
    shares = np.full(p.num_samples, 1 / p.num_samples)
    with pytest.warns(CalibrationWarning, match="weights sum to 1, so all samples together"):
        StructuredVectorScaling(strength=1.0).fit(p, weights=shares)


def test_groups_without_weight_are_refused() -> None:
    z, labels = draw(60, 3, seed=33)
    p, group = Predictions(logits=z, labels=labels), np.arange(60) % 2
    with pytest.raises(InputError, match="weights must not be all 0 in a group"):
        TemperatureScaling().fit(p, weights=group, groups=group)


@pytest.mark.parametrize("fraction", [0.37, 1 / 3])
def test_bins_of_equal_mass_take_other_weights_as_ratios(fraction: float) -> None:
    z, labels = draw(150, 4, seed=31)
    p = Predictions(logits=z, labels=labels)
    a = HistogramBinning(binning="mass").fit(p, weights=np.full(150, fraction))
    b = HistogramBinning(binning="mass").fit(p)
    np.testing.assert_allclose(a.edges_, b.edges_)


def test_groups() -> None:
    z, labels = draw(600, 4, seed=32)
    group = np.where(np.arange(600) % 3 == 0, "north", "south")
    p = Predictions(logits=np.where((group == "north")[:, None], 3, 1) * z, labels=labels)
    for make in (TemperatureScaling, HistogramBinning, lambda: VectorScaling(strength=1.0)):
        c = make().fit(p, groups=group)
        together = c.transform(p, groups=group)
        for place in ("north", "south"):
            alone = make().fit(p.take(group == place)).transform(p.take(group == place))
            np.testing.assert_array_equal(together.probs[group == place], alone.probs)
    c = TemperatureScaling().fit(p, groups=group)
    north, south = (c.groups_[place].temperature_ for place in ("north", "south"))
    assert north / south == pytest.approx(3, rel=0.3)
    with pytest.raises(InputError, match="groups is required"):
        c.transform(p)
    with pytest.raises(InputError, match="'east'"):
        c.transform(p, groups=np.full(600, "east"))
    with pytest.raises(InputError, match="needs a calibrator fitted with groups"):
        TemperatureScaling().fit(p).transform(p, groups=group)
    with pytest.raises(InputError, match="cannot be exported as one"):
        c.to_module()


def test_groups_survive_the_file(tmp_path: Path) -> None:
    z, labels = draw(300, 3, seed=33)
    p, group = Predictions(logits=z, labels=labels), np.arange(300) % 2
    c = TemperatureScaling().fit(p, groups=group)
    c.save(tmp_path / "c.json")
    again = load_calibrator(tmp_path / "c.json").transform(p, groups=group)
    np.testing.assert_array_equal(again.probs, c.transform(p, groups=group).probs)


@pytest.mark.parametrize("weights", [[1.0], [-1.0, 1.0, 1.0], [0.0] * 3, [math.nan, 1, 1]])
def test_bad_weights(weights: list[float]) -> None:
    p = Predictions(logits=[[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]], labels=[0, 1, 1])
    with pytest.raises(InputError, match="weights"):
        TemperatureScaling().fit(p, weights=weights)


def test_other_classes_are_refused() -> None:
    z, labels = draw(50, 3, seed=34)
    c = TemperatureScaling().fit(Predictions(logits=z, labels=labels, classes=["a", "b", "c"]))
    with pytest.raises(InputError, match="3 classes"):
        c.transform(Predictions(logits=z[:, :2], labels=labels % 2))
    with pytest.raises(InputError, match="'c' where the fit had 'b'"):
        c.transform(Predictions(logits=z, labels=labels, classes=["a", "c", "b"]))
    with pytest.raises(InputError, match="3 classes"):
        c.predict_proba(z[:, :2])
    with pytest.raises(InputError):
        c.transform(object())


@every
def test_summary_and_text(name: str) -> None:
    p, c = predictions(), fitted(name)
    found = fit_summary(c, p)
    assert found.num_samples == p.num_samples
    assert found.before["nll"].value == pytest.approx(metrics.nll(p))
    assert found.after["ece"].value == pytest.approx(metrics.ece(c.transform(p)))
    assert found.before["ece"].low <= found.before["ece"].value <= found.before["ece"].high
    assert type(c).__name__ in repr(c)
    assert c.num_parameters() >= 1
    assert not c.clone().is_fitted


def test_refit_forgets(make: Callable[[], Calibrator]) -> None:
    first, second = predictions("two classes"), calibrated(150, 3)
    c = make().fit(first)
    c.fit(second)
    expected = make().fit(second).transform(second).probs
    np.testing.assert_array_equal(c.transform(second).probs, expected)


@pytest.mark.parametrize(
    "key",
    [
        "temperature",
        pytest.param("structured vector", marks=pytest.mark.slow),
        pytest.param("vector", marks=pytest.mark.slow),
    ],
)
def test_fit_needs_no_second_matrix(key: str) -> None:
    """Extra memory of a fit: chunks, not N x K."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((60_000, 400), dtype=np.float32)
    p = Predictions(logits=z, labels=z.argmax(axis=1) * (rng.random(60_000) < 0.7))
    tracemalloc.start()
    FACTORIES[key]().fit(p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.45 * z.nbytes


# --- other frameworks, files ------------------------------------------------------------------


@every
@pytest.mark.parametrize("data", ["mixed signs", "two classes", "saturated float32"])
def test_module_and_onnx_agree_with_numpy(name: str, data: str, tmp_path: Path) -> None:
    import onnxruntime

    z, p, c = CASES[data][0], predictions(data), fitted(name, data)
    expected = c.transform(p).probs
    module = c.to_module()
    got = torch.softmax(module(torch.from_numpy(z)), dim=1).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)
    c.to_onnx(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    (probs,) = session.run(["probabilities"], {"logits": z})
    np.testing.assert_allclose(probs, expected, atol=1e-5)
    (few,) = session.run(["probabilities"], {"logits": z[:3]})  # any number of rows
    np.testing.assert_allclose(few, expected[:3], atol=1e-5)


EDGED = {
    "top": HistogramBinning,
    "top, equal mass": lambda: HistogramBinning(binning="mass"),
    "class": lambda: HistogramBinning(target="class"),
    "class, equal mass": lambda: HistogramBinning(target="class", binning="mass"),
    "scaling": lambda: ScalingBinning(binning="width"),
    "scaling of classes": lambda: ScalingBinning(binning="width", target="class"),
    "isotonic": Isotonic,
    "venn-abers": VennAbers,
}


@pytest.mark.parametrize(
    "num_classes",
    [k if k in (2, 3, 7, 20) else pytest.param(k, marks=pytest.mark.slow) for k in range(2, 21)],
)
def test_probabilities_on_edges_agree_everywhere(num_classes: int, tmp_path: Path) -> None:
    """Equal probabilities 1 / m, and b / 15, on the edges of fifteen bins."""
    import onnxruntime

    k, rng = num_classes, np.random.default_rng(num_classes)
    level = [[0.0] * m + [-90.0] * (k - m) for m in range(1, k + 1)]
    tops = np.arange(1, 15) / 15
    edges = [[math.log(t), *[math.log((1 - t) / (k - 1))] * (k - 1)] for t in tops]
    rows = np.array(level + edges, dtype=np.float32)
    z = np.concatenate([rows, rows + np.float32(3), rng.normal(0, 2, (60, k)).astype(np.float32)])
    labels = (z * 0.7 + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=z, labels=labels)
    for name, make in EDGED.items():
        c = make().fit(p)
        expected = c.transform(p).probs
        got = torch.softmax(c.to_module()(torch.from_numpy(z)), dim=1).numpy()
        np.testing.assert_allclose(got, expected, atol=1e-6, err_msg=name)
        c.to_onnx(tmp_path / "c.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
        (probs,) = session.run(None, {"logits": z})
        np.testing.assert_allclose(probs, expected, atol=1e-6, err_msg=name)
        shifted = expected[len(rows) : len(rows) + len(level)]
        np.testing.assert_allclose(shifted, expected[: len(level)], atol=1e-6, err_msg=name)


@pytest.mark.slow  # loading the tracer of PyTorch takes ten seconds
@pytest.mark.parametrize("name", FACTORIES)
def test_module_exports_and_keeps_its_state(name: str) -> None:
    module, x = fitted(name).to_module(), torch.from_numpy(CASES["mixed signs"][0][:16])
    assert module.state_dict()
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: rows},))
    assert_close(program.module()(x[:5]), module(x[:5]))


@every
def test_minus_infinity_in_exports(name: str, tmp_path: Path) -> None:
    import onnxruntime

    data = "-inf here and there"
    p, c = HARD[data], fitted_on_hard_data(name, data)
    z, expected = p.logits, c.transform(p).probs
    got = torch.softmax(c.to_module()(torch.tensor(z)), dim=1).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)
    c.to_onnx(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    (probs,) = session.run(None, {"logits": z})
    np.testing.assert_allclose(probs, expected, atol=1e-5)


@every
def test_absent_options_keep_probability_zero(name: str, tmp_path: Path) -> None:
    """Questions with 3, 4 or 5 options, padded: in NumPy, PyTorch and ONNX, and after the file."""
    import onnxruntime

    rng = np.random.default_rng(3)
    z = rng.normal(0, 2, (400, 5)).astype(np.float32)
    options = 3 + np.arange(400) % 3
    z[np.arange(5) >= options[:, None]] = -np.inf
    absent = np.isneginf(z)
    labels = (np.where(absent, -1e9, z) / 2 + rng.gumbel(size=z.shape)).argmax(1)
    p = Predictions(logits=z, labels=labels)
    c = quietly(FACTORIES[name](), p)
    c.save(tmp_path / "c.json")
    c.to_onnx(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    found = {
        "numpy": c.transform(p).probs,
        "file": load_calibrator(tmp_path / "c.json").transform(p).probs,
        "torch": c.to_module()(torch.tensor(z)).softmax(1).numpy(),
        "onnx": session.run(None, {"logits": z})[0],
    }
    for where, probs in found.items():
        assert (probs[absent] == 0).all(), where
        np.testing.assert_allclose(probs.sum(1), 1, atol=2e-6, err_msg=where)
        np.testing.assert_allclose(probs, found["numpy"], atol=2e-5, err_msg=where)


@pytest.mark.parametrize("bias", [True, False])
def test_fold_into_a_linear_layer(make: Callable[[], Calibrator], name: str, bias: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(6, 10, bias=bias)
    x = torch.randn(400, 6) * 4
    z = layer(x).detach()
    labels = (z + torch.randn(400, 10)).argmax(dim=1)
    if name not in FOLDABLE and not (name.startswith(("temperature", "vector", "cross"))):
        with pytest.raises(InputError, match="to_module"):
            fitted(name).fold_into(layer)
        return
    p = Predictions(logits=z, labels=labels)
    c = make().fit(p)
    before = layer.weight.detach().clone()
    folded = c.fold_into(layer)
    got = torch.softmax(folded(x), dim=1).detach().numpy()
    np.testing.assert_allclose(got, c.transform(p).probs, atol=1e-5)
    assert_close(layer.weight.detach(), before)
    with pytest.raises(InputError, match="10 outputs"):
        c.fold_into(torch.nn.Linear(6, 3))
    with pytest.raises(InputError, match=r"torch\.nn\.Linear"):
        c.fold_into(torch.nn.ReLU())


def test_file_round_trip(make: Callable[[], Calibrator], tmp_path: Path) -> None:
    z, labels = draw(150, 4, seed=36)
    p = Predictions(logits=z, labels=labels, classes=[f"k{k}" for k in range(4)])
    c = make().fit(p)
    c.save(tmp_path / "c.json")
    again = load_calibrator(tmp_path / "c.json")
    assert type(again) is type(c)
    assert again.classes_ == p.classes
    np.testing.assert_array_equal(again.transform(p).probs, c.transform(p).probs)
    data = json.loads((tmp_path / "c.json").read_text())
    assert data["schema"] == "calibrant.calibrator"
    assert data["package"]
    again.save(tmp_path / "d.json")
    assert (tmp_path / "d.json").read_text() == (tmp_path / "c.json").read_text()


def test_infinite_norm_survives_the_file(tmp_path: Path) -> None:
    c = TemperatureScaling(objective="ece", norm=math.inf).fit(predictions())
    c.save(tmp_path / "c.json")
    again = load_calibrator(tmp_path / "c.json")
    assert again.params() == c.params()
    assert again.temperature_ == c.temperature_


def changed(data: dict, path: str, value: object) -> dict:
    data = json.loads(json.dumps(data))
    *parents, last = path.split("/")
    inner = data
    for key in parents:
        inner = inner[key]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value
    return data


HOSTILE = [
    ("schema", "other"),
    ("version", 1),
    ("version", 3),
    ("version", "2"),
    ("extra", 1),
    ("calibrator", []),
    ("calibrator", KeyError),
    ("calibrator/method", "os.system"),
    ("calibrator/method", "Calibrator"),
    ("calibrator/method", ["VectorScaling"]),
    ("calibrator/params", {"strength": -1}),
    ("calibrator/params", {"command": "rm"}),
    ("calibrator/params", [1]),
    ("calibrator/num_classes", 0),
    ("calibrator/num_classes", 11),
    ("calibrator/num_classes", 1e30),
    ("calibrator/num_classes", True),
    ("calibrator/classes", ["a"]),
    ("calibrator/classes", 3),
    ("calibrator/learned", {}),
    ("calibrator/learned", KeyError),
    ("calibrator/learned/weight_", [1, 2]),
    ("calibrator/learned/weight_", "1"),
    ("calibrator/learned/weight_", [[1, 2], [3]]),
    ("calibrator/learned/weight_", [None] * 10),
    ("calibrator/learned/weight_", [[0.0] * 10] * 10),
    ("calibrator/learned/bias_", {"calibrator": {}}),
    ("calibrator/learned/scale_", "nan"),
    ("calibrator/learned/scale_", -1.0),
    ("calibrator/learned/more_", 1.0),
    ("calibrator/learned/scale_", "1.5"),
    ("calibrator/learned/scale_", True),
    ("calibrator/groups", []),
    ("summary", {"before": []}),
]


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    VectorScaling(strength=1.0).fit(predictions()).save(tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text())
    bad = tmp_path / "bad.json"
    for path, value in HOSTILE:
        bad.write_text(json.dumps(changed(data, path, value)))
        try:
            load_calibrator(bad)
        except InputError as error:
            assert "bad.json" in str(error), (path, value)  # noqa: PT017 - names the case
        else:
            pytest.fail(f"{path} = {value} was taken")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "\x00", "[" * 100_000, '{"a": 1, "a": 2}', '{"schema": NaN}', "1e999"],
    ids=range(9),
)
def test_broken_json_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=r"bad\.json"):
        load_calibrator(tmp_path / "bad.json")


def test_cut_files_are_refused(tmp_path: Path) -> None:
    TemperatureScaling().fit(predictions()).save(tmp_path / "c.json")
    whole = (tmp_path / "c.json").read_bytes()
    for length in range(0, len(whole) - 2, 37):
        (tmp_path / "bad.json").write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_calibrator(tmp_path / "bad.json")
    with pytest.raises(FileNotFoundError):
        load_calibrator(tmp_path / "absent.json")


def test_fixed_temperature_needs_no_fit(tmp_path: Path) -> None:
    p = predictions()
    c = TemperatureScaling(temperature=1.5)
    np.testing.assert_array_equal(c.transform(p).logits, p.logits / np.float32(1.5))
    c.save(tmp_path / "c.json")
    assert load_calibrator(tmp_path / "c.json").temperature_ == 1.5
    assert c.fit(p).temperature_ == 1.5
    for bad in (0, -1, math.nan, math.inf, "2"):
        with pytest.raises(InputError, match="temperature"):
            TemperatureScaling(temperature=bad)


BAD_PARAMETERS = [
    lambda: TemperatureScaling(objective="nl"),
    lambda: TemperatureScaling(grid="wang"),
    lambda: TemperatureScaling(grid=[1.0, 0.5]),
    lambda: TemperatureScaling(grid=[]),
    lambda: TemperatureScaling(bins=0),
    lambda: TemperatureScaling(norm=0.5),
    lambda: TemperatureScaling(softness=0),
    lambda: TemperatureScaling(form="bins"),
    lambda: TemperatureScaling(bounds=(2, 1)),
    lambda: TemperatureScaling(bounds=(1, 2, 3)),
    lambda: TemperatureScaling(bounds=5),
    lambda: TemperatureScaling(bounds=("a", 2)),
    lambda: HistogramBinning(floor="a"),
    lambda: Isotonic(floor="a"),
    lambda: VectorScaling(seed=-1),
    lambda: VectorScaling(seed=None, strength=1.0),
    lambda: CrossFitted(TemperatureScaling(), seed=None),
    lambda: HistogramBinning(binning="quantile"),
    lambda: HistogramBinning(target="all"),
    lambda: HistogramBinning(floor=-1),
    lambda: VectorScaling(strength="auto"),
    lambda: VectorScaling(strength=-1),
    lambda: VectorScaling(on="probs"),
    lambda: Dirichlet(bias_strength=-2),
    lambda: Isotonic(floor=0.6),
    lambda: CentredIsotonic(floor=0.6),
    lambda: Spline(knots=2),
    lambda: KernelCalibration(bandwidth=0),
    lambda: KernelCalibration(target="all"),
    lambda: OrderPreserving(strength=0),
    lambda: VennAbers(folds=0),
    lambda: VennAbers(seed=-1),
    lambda: Chain([]),
    lambda: Chain(["temperature"]),
    lambda: CrossFitted("temperature"),
    lambda: Blend([]),
    lambda: Blend(["temprature"]),
    lambda: Blend([1]),
    lambda: Blend(["temperature", HistogramBinning(bins=0)]),
    lambda: Blend(["temperature", "beta"], folds=1),
    lambda: CrossFitted(TemperatureScaling(), folds=1),
]


WEIRD = [
    None,
    "x",
    "",
    "cv",
    [],
    [1],
    [1, "a"],
    [2, 1, 0],
    [[1, 2]],
    {"a": 1},
    True,
    -1,
    0,
    1.5,
    math.inf,
    math.nan,
]


@pytest.mark.parametrize("method", CALIBRATORS)
def test_any_value_of_a_parameter_is_taken_or_refused_with_a_sentence(method: str) -> None:
    """A JSON value from the command line or a study file never ends in another error."""
    kind = CALIBRATORS[method]
    for field in (field for field in dataclasses.fields(kind) if field.init):
        for value in WEIRD:
            with contextlib.suppress(InputError):
                kind(**{field.name: value}).check()


@pytest.mark.parametrize("number", range(len(BAD_PARAMETERS)))
def test_bad_parameters(number: int) -> None:
    with pytest.raises(InputError):
        BAD_PARAMETERS[number]().fit(predictions())
