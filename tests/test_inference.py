"""Intervals that cover, tests that raise no false alarms, comparisons that are paired."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from calibrant import Confidences, InputError, Predictions, metrics
from calibrant.inference import (
    consistency_band,
    ece_test,
    holm,
    intervals,
    paired_differences,
    skce_test,
    spiegelhalter_test,
)
from calibrant.metrics import METRICS
from calibrant.metrics._classwise import mean_gap_norm, resampled_classwise_cells
from calibrant.metrics._sample import Ranked
from tests.conftest import CASES


def population(temperature: float, size: int, seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (size, 5))
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(logits=z, labels=labels)


def truth(temperature: float) -> dict[str, float]:
    """The same formulas with the true chance of being right in place of the outcome."""
    z = np.random.default_rng(1).normal(0, 2, (200_000, 5))
    p = Predictions(logits=z, labels=np.zeros(len(z), dtype=int))
    true = Predictions(logits=z / temperature, labels=np.zeros(len(z), dtype=int)).confidence
    order = np.argsort(p.confidence)
    ranked = Ranked(p.confidence[order], np.ones(len(z)), true[order])
    return {
        "accuracy": ranked.accuracy,
        "auroc": metrics.auroc(ranked),
        "debiased_ece": metrics.ece(ranked, norm=2, binning="mass"),
        "smooth_ece": metrics.smooth_ece(ranked),
        "ece": metrics.ece(ranked),
    }


@pytest.mark.parametrize("temperature", [1.0, 1.2, 2.0])
def test_intervals_cover(temperature: float) -> None:
    """A quick look; benchmarks/interval_coverage.py simulates more, at two sizes, more metrics.

    Of 60 intervals at 95 %, fewer than 51 cover with probability 1e-4.
    """
    true = truth(temperature)
    covered = dict.fromkeys(true, 0)
    for seed in range(60):
        p = population(temperature, 500, seed)
        for name, found in intervals(p, list(true), replicates=150, seed=seed).items():
            covered[name] += found.low - 1e-12 <= true[name] <= found.high + 1e-12
    assert min(covered.values()) >= 51, covered


def test_plain_bootstrap_would_fail_where_the_grid_bootstrap_covers() -> None:
    """The reason for the grid bootstrap: at T = 1, percentiles of ECE never reach the truth, 0."""
    missed, covered = 0, 0
    for seed in range(20):
        p = population(1.0, 500, seed)
        rng = np.random.default_rng(seed)
        draws = [metrics.ece(p.take(rng.integers(0, 500, 500))) for _ in range(40)]
        missed += min(draws) > 0.005
        covered += intervals(p, ["ece"], replicates=150)["ece"].low == 0
    assert missed == 20
    assert covered >= 17


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_has_an_interval(name: str) -> None:
    for p in (
        population(1.5, 120, 0),
        Predictions(logits=CASES["ties"][0], labels=CASES["ties"][1]),
    ):
        found = intervals(p, [name], replicates=40)[name]
        assert found.value == metrics.METRICS[name].function(p)
        assert found.low <= found.high
        assert METRICS[name].low - 1e-9 <= found.low
        assert found.high <= METRICS[name].high + 1e-9
        if not METRICS[name].plug_in:
            assert found.low <= found.value <= found.high


def test_intervals_are_reproducible_and_narrow_with_n() -> None:
    names = ["nll", "ece", "smooth_ece", "classwise_ece", "auroc"]
    small, large = population(1.5, 400, 0), population(1.5, 6400, 0)
    one, same = (intervals(small, names, replicates=100, seed=4) for _ in range(2))
    other = intervals(small, names, replicates=100, seed=5)
    assert one == same
    assert one != other
    narrow = intervals(large, names, replicates=100, seed=4)
    for name in names:
        ratio = (one[name].high - one[name].low) / (narrow[name].high - narrow[name].low)
        assert 2.4 < ratio < 7, name  # a factor 4 but for noise


def test_degenerate_intervals_are_honest() -> None:
    one = Predictions(logits=[[1.0, 0.0]], labels=[0])
    found = intervals(one, ["nll", "ece", "accuracy"], replicates=20)
    assert math.isnan(found["nll"].low)
    assert math.isnan(found["ece"].high)
    assert found["accuracy"].low < 0.3  # one success proves little
    right = Predictions(logits=[[3.0, 0.0]] * 30, labels=[0] * 30)
    found = intervals(right, ["accuracy", "auroc"], replicates=20)
    assert found["accuracy"].low < 0.9
    assert math.isnan(found["auroc"].value)
    assert math.isnan(found["auroc"].low)
    impossible = Predictions(logits=[[0.0, -np.inf]] * 5, labels=[0, 0, 0, 1, 1])
    assert intervals(impossible, ["nll"], replicates=50)["nll"].high == math.inf


def test_options_reach_the_interval() -> None:
    p = population(1.5, 300, 0)
    found = intervals(p, ["ece"], options={"ece": {"bins": 3, "norm": 2}}, replicates=40)["ece"]
    assert found.value == metrics.ece(p, bins=3, norm=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"level": 95}, "level"), ({"replicates": 5}, "replicates"), ({"replicates": 1.5}, "whole")],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        intervals(population(1, 30, 0), ["ece"], **arguments)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("name", ["mixed signs", "many classes", "two classes", "ties"])
def test_resampled_classwise_equals_the_metric_of_the_resample(name: str, norm: float) -> None:
    z, labels = CASES[name]
    p = Predictions(logits=z, labels=labels)
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(labels), (3, len(labels)))
    weights = np.stack([np.bincount(row, minlength=len(labels)) for row in drawn])
    count, residual = resampled_classwise_cells(p, weights.astype(np.float32))
    got = mean_gap_norm(count, residual, norm)
    want = [metrics.classwise_ece(p.take(row), norm=norm) for row in drawn]
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-7)


# --- tests of calibration ---------------------------------------------------------------------

TESTS = {
    "spiegelhalter": spiegelhalter_test,
    "ece": lambda p: ece_test(p, draws=99),
    "skce": lambda p: skce_test(p, draws=99),
}


@pytest.mark.parametrize("name", TESTS)
def test_false_alarms_are_as_rare_as_stated(name: str) -> None:
    """At 10 % over 300 calibrated data sets: 30 expected, outside 14 … 49 with probability 1e-3."""
    rejected = sum(TESTS[name](population(1.0, 80, seed)).p_value <= 0.1 for seed in range(300))
    assert 14 <= rejected <= 49


@pytest.mark.parametrize("name", TESTS)
def test_miscalibration_is_found(name: str) -> None:
    assert TESTS[name](population(2.0, 1500, 0)).p_value <= 0.01


def test_spiegelhalter_by_the_formula() -> None:
    p = population(1.3, 200, 0)
    a, c = p.correct, p.confidence
    z = ((a - c) * (1 - 2 * c)).sum() / math.sqrt(((1 - 2 * c) ** 2 * c * (1 - c)).sum())
    assert spiegelhalter_test(p).statistic == pytest.approx(z)
    certain = Confidences(confidence=[1.0, 1.0], correct=[1, 1])
    assert spiegelhalter_test(certain).p_value == 1
    assert spiegelhalter_test(certain).statistic == 0
    for confidence in (1.0, 0.0):  # wrong where sure to be right, and the reverse
        wrong = Confidences(confidence=[confidence] * 2, correct=[1, 0])
        assert spiegelhalter_test(wrong).statistic == math.inf
        assert spiegelhalter_test(wrong).p_value == 0


def test_consistency_band_holds_a_calibrated_model() -> None:
    inside = total = 0
    for seed in range(40):
        p = population(1.0, 600, seed)
        low, high = consistency_band(p, bins=8, draws=200, seed=seed)
        table = metrics.reliability(p, bins=8)
        full = table.count > 0
        assert np.isnan(low[~full]).all()
        inside += ((low <= table.accuracy) & (table.accuracy <= high))[full].sum()
        total += full.sum()
    assert 0.92 <= inside / total <= 0.99


# --- comparison -------------------------------------------------------------------------------


def test_pairing_cancels_what_models_share() -> None:
    """The same model with a little noise: far narrower than two independent intervals."""
    p = population(1.5, 2000, 0)
    noise = np.random.default_rng(1).normal(0, 0.05, p.logits.shape)
    q = Predictions(logits=p.logits + noise, labels=p.labels)
    values, (difference,) = paired_differences({"p": p, "q": q}, ["nll"], replicates=200)
    assert difference.value == pytest.approx(metrics.nll(p) - metrics.nll(q))
    assert values["q"]["nll"] == metrics.nll(q)
    alone = intervals(p, ["nll"], replicates=200)["nll"]
    assert difference.high - difference.low < 0.2 * (alone.high - alone.low)
    terms = q.label_log_prob - p.label_log_prob
    assert difference.standard_error == pytest.approx(terms.std() / math.sqrt(2000), rel=0.2)


def test_differences_cover_zero_between_equals() -> None:
    """Two models with independent noise on the same logits: no false alarm beyond the level."""
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 2, (300, 4))
        labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        a, b = (Predictions(logits=z + rng.normal(0, 0.5, z.shape), labels=labels)
                for _ in range(2))  # fmt: skip
        _, found = paired_differences({"a": a, "b": b}, ["nll", "ece"], replicates=60, seed=seed)
        alarms += sum(difference.p_value < 0.05 for difference in found)
    assert alarms <= 15  # 6 of 120 expected


def test_classwise_is_compared_too() -> None:
    p, q = population(1.0, 400, 0), population(1.0, 400, 0)
    _, (difference,) = paired_differences({"p": p, "q": q}, ["classwise_ece"], replicates=40)
    assert (difference.value, difference.standard_error, difference.p_value) == (0, 0, 1)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert np.isnan(holm([0.01, math.nan])[1])
    assert holm([0.01, math.nan])[0] == 0.01
    assert holm([]) == []


def test_interval_of_draws_on_real_logits(shared) -> None:
    """CIFAR-10 test logits: the interval of ECE excludes 0 for an overconfident ResNet-110."""
    data = np.load(shared / "data" / "logits" / "cifar10_kull_resnet110_test.npz")
    p = Predictions(logits=data["logits"], labels=data["labels"])
    found = intervals(p, ["ece", "accuracy"], replicates=100)
    assert 0.035 < found["ece"].low < found["ece"].high < 0.06


# --- found by review, kept -----------------------------------------------------------------------


def test_kde_intervals_hold_their_value_and_reach_zero() -> None:
    found = intervals(Confidences(confidence=[0.2, 0.9], correct=[1, 1]), ["kde_ece"])["kde_ece"]
    assert 0 <= found.low <= found.high <= 1
    c = np.random.default_rng(0).uniform(0.4, 1, 300)
    lows = []
    for seed in range(6):
        hit = np.random.default_rng(seed).random(300) < c
        calibrated = Confidences(confidence=c, correct=hit)
        lows.append(intervals(calibrated, ["kde_ece"], replicates=140)["kde_ece"].low)
    assert sum(low < 0.003 for low in lows) >= 4


def test_many_bins_have_intervals_of_their_own() -> None:
    rng = np.random.default_rng(0)
    c = np.sort(rng.uniform(0.5, 0.9, 3000))
    gap = np.where(np.arange(3000) // 50 % 2, 0.1, -0.1)
    p = Confidences(confidence=c, correct=rng.random(3000) < c + gap)
    for name in ("adaptive_ece", "debiased_ece"):
        found = intervals(p, [name], options={name: {"bins": 60}}, replicates=140)[name]
        assert found.low < found.high


def test_certain_models_keep_an_upper_bound() -> None:
    p = Confidences(confidence=[1.0] * 5, correct=[1] * 5)
    found = intervals(p, ["ece", "smooth_ece"], replicates=20)
    assert found["ece"].high > 0.3
    assert found["smooth_ece"].low == 0


def test_few_samples_decide_nothing() -> None:
    for size, certain in ((1, False), (3, False), (30, True)):
        a = Predictions(logits=[[2.0, 0.0]] * size, labels=[0] * size)
        b = Predictions(logits=[[1.0, 0.0]] * size, labels=[0] * size)
        _, (difference,) = paired_differences({"a": a, "b": b}, ["nll"], replicates=20)
        assert (difference.p_value < 0.05) == certain


def test_one_sample_and_infinite_losses() -> None:
    one = Confidences(confidence=[0.7], correct=[1])
    assert math.isnan(skce_test(one, draws=20).p_value)  # no pair, no test
    p = Predictions(logits=[[0.0, -np.inf]] * 4, labels=[0, 1, 0, 1])
    _, (difference,) = paired_differences({"p": p, "q": p}, ["nll"], replicates=20)
    assert math.isnan(difference.value)


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"replicates": 0}])
def test_bad_seeds_and_replicates(arguments: dict) -> None:
    p = population(1, 30, 0)
    with pytest.raises(InputError):
        paired_differences({"p": p, "q": p}, ["ece"], **arguments)
    with pytest.raises(InputError):
        intervals(p, ["ece"], **arguments)


def test_near_certain_answers_prove_no_more_than_their_number() -> None:
    for confidence in (0.99, 1 - 1e-9, 1.0):
        right = Confidences(confidence=[confidence] * 12, correct=[1] * 12)
        wrong = Confidences(confidence=[confidence] * 12, correct=[0] * 12)
        names = ["accuracy", "ece", "adaptive_ece", "overconfidence_error", "mmce"]
        found = intervals(right, names, replicates=140)
        most = confidence - found["accuracy"].low
        assert most > 0.2
        for name in ("ece", "adaptive_ece", "mmce"):
            assert found[name].low == pytest.approx(0, abs=1e-12)
            assert found[name].high == pytest.approx(most)
        assert found["overconfidence_error"].high == pytest.approx(confidence * most)
        found = intervals(wrong, names, replicates=140)
        assert found["ece"].low == pytest.approx(confidence - found["accuracy"].high)
        assert found["ece"].high == pytest.approx(confidence)


def test_classwise_of_certain_answers() -> None:
    right = Predictions(probs=[[0.99, 0.01]] * 12, labels=[0] * 12)
    found = intervals(right, ["classwise_ece", "ece"], replicates=140)
    assert found["classwise_ece"].high == pytest.approx(found["ece"].high)  # two classes: the same
    assert found["classwise_ece"].low == pytest.approx(0, abs=1e-12)
    many = Predictions(logits=np.eye(100)[np.arange(12)] * 12, labels=np.arange(12))
    high = intervals(many, ["classwise_ece"], replicates=140)["classwise_ece"].high
    assert 0.004 < high < 0.01  # a share of 0.24 wrong makes 2 * 0.24 / 100


@pytest.mark.parametrize(
    ("size", "says", "is_right"), [(30, 0.99, 0.93), (60, 0.999, 0.95), (100, 0.98, 0.96)]
)
def test_intervals_of_near_certain_models_cover(size: int, says: float, is_right: float) -> None:
    """Coverage by adding up the chances of every number of errors; it was 88, 94 and 77 %."""
    covered = 0.0
    for wrong in range(size // 3):
        p = Confidences(confidence=[says] * size, correct=np.arange(size) >= wrong)
        found = intervals(p, ["ece"], replicates=140)["ece"]
        inside = found.low <= says - is_right <= found.high
        covered += inside * binom.pmf(wrong, size, 1 - is_right)
    assert covered >= 0.93


def test_risk_of_all_right_and_all_wrong_answers_is_an_interval() -> None:
    right = Confidences(confidence=np.linspace(0.5, 0.9, 20), correct=[1] * 20)
    found = intervals(right, ["accuracy", "aurc", "eaurc"], replicates=40)
    low = found["accuracy"].low
    assert (found["aurc"].low, found["aurc"].high) == pytest.approx((0, 1 - low))  # by chance
    assert (found["eaurc"].low, found["eaurc"].high) == pytest.approx((0, -low * math.log(low)))
    wrong = Confidences(confidence=np.linspace(0.5, 0.9, 20), correct=[0] * 20)
    found = intervals(wrong, ["accuracy", "aurc", "eaurc"], replicates=40)
    r = 1 - found["accuracy"].high
    assert found["aurc"].low == pytest.approx(r + (1 - r) * math.log(1 - r))  # a perfect ranking
    assert found["aurc"].high == 1
    assert found["eaurc"].high == pytest.approx(-(1 - r) * math.log(1 - r))
    assert set(intervals(right, ["accuracy"], replicates=40)) == {"accuracy"}


def test_undefined_values_have_undefined_intervals() -> None:
    few = Confidences(confidence=np.linspace(0.5, 0.9, 12), correct=[1, 0] * 6)
    found = intervals(few, ["debiased_ece"], replicates=140)["debiased_ece"]
    assert all(map(math.isnan, (found.value, found.low, found.high)))
    # Of 28 samples most share a bin with another, in most resamples too.
    more = Confidences(confidence=np.linspace(0.5, 0.9, 28), correct=[1, 0] * 14)
    found = intervals(more, ["debiased_ece"], replicates=140)["debiased_ece"]
    assert found.low <= found.high


def test_band_checks_its_bins() -> None:
    with pytest.raises(InputError, match="bins must be a whole number"):
        consistency_band(population(1, 30, 0), bins=0)
