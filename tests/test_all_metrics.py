"""Properties of every metric. A metric added to METRICS is tested here automatically."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import betaln

import calibrant.metrics
from calibrant import Confidences, Predictions, metrics
from calibrant.metrics import METRICS
from tests.conftest import CASES, draw

Z, LABELS = (array[:300] for array in CASES["mixed signs"])
# Metrics of one class have their own laws: tests/test_positive.py.
TOP = {name: metric for name, metric in METRICS.items() if metric.view == "top label"}
EVERY = pytest.mark.parametrize("metric", TOP.values(), ids=TOP)


def value(metric: metrics.Metric, **scores: object) -> float:
    return metric.function(Predictions(**scores))


def test_none_is_missing() -> None:
    """Every public function of predictions that returns a float is in METRICS."""
    scalar = {
        name
        for name, function in vars(calibrant.metrics).items()
        if inspect.isfunction(function)
        and name in calibrant.metrics.__all__
        and inspect.signature(function).return_annotation == "float"
    }
    assert scalar - {"refinement_nll"} == set(METRICS)  # refinement_nll needs a calibrator


@EVERY
def test_docstring_says_range_and_direction_and_shows_an_example(metric: metrics.Metric) -> None:
    text = inspect.getdoc(metric.function) or ""
    assert "Range" in text
    assert ("better" in text) == (metric.better in ("lower", "higher", "neither"))
    assert ">>> " in text


@EVERY
def test_order_of_samples_does_not_matter(metric: metrics.Metric) -> None:
    for name in ("mixed signs", "ties", "saturated float32"):
        z, labels = CASES[name]
        order = np.random.default_rng(1).permutation(len(labels))
        one = value(metric, logits=z, labels=labels)
        other = value(metric, logits=z[order], labels=labels[order])
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12), name


@EVERY
def test_a_constant_added_to_the_logits_does_not_matter(metric: metrics.Metric) -> None:
    z = Z.astype(np.float64)
    for constant in (5.0, -300.0, 40.0):
        one, other = (
            value(metric, logits=z, labels=LABELS),
            value(metric, logits=z + constant, labels=LABELS),
        )
        assert one == pytest.approx(other, rel=1e-7, abs=1e-9)
    # In float32 a multiple of a power of two is added exactly, so the values must agree to 1e-6.
    rounded = np.round(Z * 64) / 64
    for constant in (64.0, -128.0):
        one = value(metric, logits=rounded + np.float32(0), labels=LABELS)
        other = value(metric, logits=rounded + np.float32(constant), labels=LABELS)
        assert one == pytest.approx(other, rel=2e-5, abs=1e-6)


@EVERY
def test_names_of_classes_do_not_matter(metric: metrics.Metric) -> None:
    order = np.random.default_rng(2).permutation(Z.shape[1])
    one = value(metric, logits=Z, labels=LABELS)
    other = value(metric, logits=Z[:, order], labels=np.argsort(order)[LABELS])
    assert one == pytest.approx(other, rel=1e-6, abs=1e-7)


@EVERY
def test_array_kinds_and_precisions_agree(metric: metrics.Metric) -> None:
    half = Z.astype(np.float16)  # exactly representable in every precision
    want = value(metric, logits=half.astype(np.float64), labels=LABELS)
    for scores, labels in (
        (half, LABELS),
        (half.astype(np.float32), LABELS.astype(np.uint8)),
        (np.asfortranarray(half.astype(np.float32)), LABELS),
        (torch.tensor(half), torch.tensor(LABELS)),
        (torch.tensor(half, dtype=torch.float64, requires_grad=True), torch.tensor(LABELS)),
        (half.tolist(), LABELS.tolist()),
    ):
        got = value(metric, logits=scores, labels=labels)
        assert got == pytest.approx(want, rel=1e-5, abs=1e-6)
    brain = torch.tensor(Z).bfloat16()
    want = value(metric, logits=brain.float().numpy(), labels=LABELS)
    assert value(metric, logits=brain, labels=LABELS) == want


@EVERY
def test_probabilities_say_the_same_as_logits(metric: metrics.Metric) -> None:
    p = Predictions(logits=Z.astype(np.float64), labels=LABELS)
    again = Predictions(probs=p.probs, labels=LABELS)
    assert metric.function(p) == pytest.approx(metric.function(again), rel=1e-7, abs=1e-9)


UNDEFINED_SOMEWHERE = {
    "auroc",
    "aupr_success",
    "aupr_error",
    "fpr95",
    "skce",
    "kde_ece",
    "debiased_ece",
}


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(2, 12)),
        elements=st.floats(-100, 100, width=32),
    ),
    st.integers(0, 2**32 - 1),
)
def test_range(z: np.ndarray, seed: int) -> None:
    """All metrics on the same examples: making one costs more than measuring it."""
    labels = np.random.default_rng(seed).integers(0, z.shape[1], len(z))
    p = Predictions(logits=z, labels=labels)
    for name, metric in TOP.items():
        got = metric.function(p)
        if math.isnan(got):
            assert name in UNDEFINED_SOMEWHERE, name
            continue
        high = math.log(z.shape[1]) if name == "mean_entropy" else metric.high
        assert metric.low - 1e-9 <= got <= high + 1e-9, name


@EVERY
def test_one_sample_all_right_and_all_wrong_give_a_number_or_nan(metric: metrics.Metric) -> None:
    for labels in ([0], [1]):
        assert isinstance(value(metric, logits=[[3.0, 1.0]], labels=labels), float)
    for label in (0, 1):
        got = value(metric, logits=np.array([[3.0, 1.0], [2.0, 1.0]] * 20), labels=[label] * 40)
        assert isinstance(got, float)


@EVERY
def test_refuses_what_is_not_predictions(metric: metrics.Metric) -> None:
    with pytest.raises(ValueError, match="Predictions"):
        metric.function(np.zeros((3, 2)))


# --- populations whose truth is known ---------------------------------------------------------

# Half of the samples have confidence 0.9 and accuracy 0.8, half 0.6 and 0.7; two classes.
CONFIDENCE, ACCURACY = np.array([0.6, 0.9]), np.array([0.7, 0.8])
GAP = ACCURACY - CONFIDENCE
BANDWIDTH = 0.05


def true_smooth_ece() -> float:
    t = (np.arange(100_000) + 0.5) / 100_000

    def area(sigma: float) -> float:
        density = sum(
            0.5 * g * np.exp(-0.5 * ((t - sign * c - 2 * m) / sigma) ** 2)
            for c, g in zip(CONFIDENCE, GAP, strict=True)
            for m in (-1, 0, 1)
            for sign in (-1, 1)
        )
        return float(np.abs(density).mean() / (sigma * math.sqrt(2 * math.pi)))

    return brentq(lambda sigma: area(sigma) - sigma, 1e-3, 1)


def true_kde_ece() -> float:
    a, b = CONFIDENCE / BANDWIDTH, (1 - CONFIDENCE) / BANDWIDTH
    total = 0.0
    for c in CONFIDENCE:
        kernel = np.exp(a * math.log(c) + b * math.log(1 - c) - betaln(a + 1, b + 1))
        total += 0.5 * abs(kernel @ ACCURACY / kernel.sum() - c)
    return total


def true_kernel(width: float) -> float:
    k = np.exp(-np.abs(CONFIDENCE[:, None] - CONFIDENCE) / width)
    return float(0.25 * GAP @ k @ GAP)


def true_ranking() -> dict[str, float]:
    right, wrong = ACCURACY / 2, (1 - ACCURACY) / 2
    r, w = right.sum(), wrong.sum()
    # Risk over coverage: 0.2 up to coverage 1/2, then it rises to 0.25.
    risk = 0.5 * 0.2 + (0.5 * 0.3 + (0.1 - 0.5 * 0.3) * math.log(2))
    return {
        "auroc": (right[1] * wrong[0] + (right[0] * wrong[0] + right[1] * wrong[1]) / 2) / (r * w),
        "aupr_success": (right[1] * 0.8 + right[0] * 0.75) / r,
        "aupr_error": (wrong[0] * 0.3 + wrong[1] * 0.25) / w,
        "fpr95": 1.0,
        "aurc": risk,
        "eaurc": risk - (0.25 + 0.75 * math.log(0.75)),
    }


TRUTH = {
    "accuracy": 0.75,
    "mean_confidence": 0.75,
    "mean_entropy": float(
        -(CONFIDENCE * np.log(CONFIDENCE) + (1 - CONFIDENCE) * np.log(1 - CONFIDENCE)).mean()
    ),
    "nll": float(-(ACCURACY * np.log(CONFIDENCE) + (1 - ACCURACY) * np.log(1 - CONFIDENCE)).mean()),
    "brier": float(
        (2 * ACCURACY * (1 - CONFIDENCE) ** 2 + 2 * (1 - ACCURACY) * CONFIDENCE**2).mean()
    ),
    "ece": 0.1,
    "adaptive_ece": 0.1,
    "debiased_ece": 0.1,
    "smooth_ece": true_smooth_ece(),
    "classwise_ece": 0.1,
    "mce": 0.1,
    "overconfidence_error": 0.5 * 0.9 * 0.1,
    "underconfidence_error": 0.5 * 0.4 * 0.1,
    "label_binned_ece": 0.1,
    "sweep_ece": 0.1,
    "kde_ece": true_kde_ece(),
    "mmce": math.sqrt(true_kernel(0.4)),
    "skce": true_kernel(0.3),
    **true_ranking(),
}
OPTIONS = {"kde_ece": {"bandwidth": BANDWIDTH}, "skce": {"width": 0.3}}


@pytest.fixture(scope="module")
def two_levels() -> Predictions:
    rng = np.random.default_rng(0)
    n = 400_000
    level = rng.integers(0, 2, n)
    top = rng.integers(0, 2, n)
    probs = np.empty((n, 2))
    probs[np.arange(n), top] = CONFIDENCE[level]
    probs[np.arange(n), 1 - top] = 1 - CONFIDENCE[level]
    labels = np.where(rng.random(n) < ACCURACY[level], top, 1 - top)
    return Predictions(probs=probs, labels=labels)


@EVERY
def test_converges_to_the_true_value(metric: metrics.Metric, two_levels: Predictions) -> None:
    got = metric.function(two_levels, **OPTIONS.get(metric.name, {}))
    assert got == pytest.approx(TRUTH[metric.name], abs=4e-3)


@pytest.fixture(scope="module")
def calibrated() -> Predictions:
    z, _ = draw(300_000, 6, spread=1.5, dtype="float64", seed=9)
    labels = (z + np.random.default_rng(10).gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(logits=z, labels=labels)


# A nearly empty bin makes the maximum error; the spread within bins the label-binned one.
LIMITS = {"kde_ece": 0.03, "mce": 0.35, "label_binned_ece": 1 / 60 + 0.001}


@EVERY
def test_a_calibrated_population_is_optimal(
    metric: metrics.Metric, calibrated: Predictions
) -> None:
    """Errors vanish; other metrics equal what the model itself expects of them."""
    p = calibrated.take(np.arange(3000)) if metric.name == "kde_ece" else calibrated
    got = metric.function(p)
    if metric.plug_in:
        assert abs(got) < LIMITS.get(metric.name, 0.006)
        return
    probs = calibrated.probs
    expected = {
        "accuracy": probs.max(axis=1).mean(),
        "mean_confidence": probs.max(axis=1).mean(),
        "nll": calibrated.entropy.mean(),
        "mean_entropy": calibrated.entropy.mean(),
        "brier": (1 - (probs**2).sum(axis=1)).mean(),
    }
    if metric.name in expected:
        assert got == pytest.approx(expected[metric.name], abs=5e-3)
    else:  # a ranking by the true probability of being right, against a ranking by chance
        shuffled = Confidences(
            confidence=p.confidence, correct=np.random.default_rng(3).permutation(p.correct)
        )
        chance = metric.function(shuffled)
        assert got > chance + 0.05 if metric.better == "higher" else got < chance - 0.05


@given(arrays(np.float64, st.integers(1, 200), elements=st.floats(0, 1)), st.integers(0, 2**32 - 1))
def test_relations_between_metrics(confidence: np.ndarray, seed: int) -> None:
    correct = np.random.default_rng(seed).random(len(confidence)) < 0.5
    c = Confidences(confidence=confidence, correct=correct)
    ece = metrics.ece(c)
    difference = abs(metrics.accuracy(c) - metrics.mean_confidence(c))
    assert difference <= ece + 1e-12  # one bin cannot see more than many
    assert ece <= metrics.ece(c, norm=2) + 1e-12 <= metrics.mce(c) + 2e-12  # norms rise
    assert ece <= metrics.label_binned_ece(c) + 1e-12  # Jensen
    if metrics.reliability(c, binning="mass").count.min() >= 2:  # none is left out
        assert metrics.debiased_ece(c) <= metrics.adaptive_ece(c, norm=2) + 1e-12
    assert difference <= metrics.smooth_ece(c) + 1e-6
    assert metrics.ece(c, bins=1) == pytest.approx(difference, abs=1e-12)
    flipped = Confidences(confidence=1 - confidence, correct=~correct)
    over, under = (
        metrics.overconfidence_error(c, bins=7),
        metrics.underconfidence_error(flipped, bins=7),
    )
    edges = np.isclose(confidence * 7, np.round(confidence * 7)).any()
    assert edges or over == pytest.approx(under, abs=1e-9)  # mirror images


@given(st.lists(st.sampled_from([0.1, 0.5, 0.5, 0.9]), min_size=1, max_size=60), st.integers(1, 20))
def test_equal_confidences_are_never_split(values: list[float], bins: int) -> None:
    c = Confidences(confidence=values, correct=[True] * len(values))
    table = metrics.reliability(c, bins=bins, binning="mass")
    assert table.count.sum() == len(values)
    assert np.count_nonzero(table.count) <= len(set(values))


@given(st.integers(1, 500), st.integers(1, 40))
def test_equal_mass_sizes_differ_by_one_at_most(num_samples: int, bins: int) -> None:
    confidence = np.random.default_rng(num_samples).permutation(num_samples) / num_samples
    c = Confidences(confidence=confidence, correct=[True] * num_samples)
    count = metrics.reliability(c, bins=bins, binning="mass").count
    assert count.max() - count.min() <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: metrics.ece(p, bins=0), "bins must be a whole number"),
        (lambda p: metrics.ece(p, bins=2.5), "bins must be a whole number"),
        (lambda p: metrics.ece(p, bins=True), "bins must be a whole number"),
        (lambda p: metrics.ece(p, norm=0.5), "norm must be a number p >= 1"),
        (lambda p: metrics.ece(p, norm=math.nan), "norm must be a number p >= 1"),
        (lambda p: metrics.ece(p, binning="mas"), "Did you mean 'mass'"),
        (lambda p: metrics.mmce(p, width=0), "width must be a finite number above 0"),
        (lambda p: metrics.kde_ece(p, bandwidth=-1), "bandwidth must be a finite number of at"),
        (lambda p: metrics.kde_ece(p, bandwidth=1e-9), "at least 1e-08; got 1e-09"),
        (lambda p: metrics.fpr95(p, recall=1.5), "recall must lie strictly between 0 and 1"),
        (lambda p: metrics.reliability(p, level=95), "level must lie strictly between 0 and 1"),
        (lambda p: metrics.get_metric("adaptiv_ece"), "Did you mean 'adaptive_ece'"),
        (lambda p: metrics.classwise_ece(p, bins=0), "bins must be a whole number"),
    ],
)
def test_bad_options_are_refused(call, message: str, predictions: Predictions) -> None:
    with pytest.raises(ValueError, match=message):
        call(predictions)
