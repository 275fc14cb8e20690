"""Every metric against brute force, golden numbers and peers."""

from __future__ import annotations

import itertools
import json
import math
import warnings

import mpmath
import numpy as np
import pytest

from calibrant import Confidences, Predictions, metrics
from calibrant.metrics._kernel import population_kde_ece
from calibrant.metrics._sample import Ranked, rank
from tests.brute import Brute
from tests.conftest import CASES, draw

# Metrics of one class have their own oracles: tests/test_positive.py.
TOP = {name: row for name, row in metrics.METRICS.items() if row.view == "top label"}

SLOW = {"smooth_ece", "mmce", "skce", "kde_ece", "auroc"}
OPTIONS = {"kde_ece": {"bandwidth": 0.07}}


# The brute-force integral of smooth ECE takes seconds for each set of data but these.
QUICKLY = ("ties", "one sample", "fewer samples than bins")


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        *((name, tuple(CASES)) for name in TOP if name != "smooth_ece"),
        ("smooth_ece", QUICKLY),
        pytest.param(
            "smooth_ece",
            tuple(case for case in CASES if case not in QUICKLY),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{len(given)} cases",
)
def test_brute_force(name: str, cases: tuple[str, ...]) -> None:
    options = OPTIONS.get(name, {})
    # The trapezoids of the brute-force integral are good to 1e-5; all else to float32 precision.
    tolerance = 2e-5 if name == "smooth_ece" else 1e-6
    for case in cases:
        z, labels = CASES[case]
        if name in SLOW:
            few = 30 if name == "smooth_ece" else 60
            z, labels = z[:few], labels[:few]
        p, brute = Predictions(logits=z, labels=labels), Brute(z, labels)
        got, want = metrics.METRICS[name].function(p, **options), getattr(brute, name)(**options)
        assert got == pytest.approx(want, abs=tolerance, nan_ok=True), case


@pytest.mark.parametrize("norm", [1, 1.5, 2, 7, math.inf])
@pytest.mark.parametrize("binning", ["width", "mass"])
@pytest.mark.parametrize("bins", [1, 2, 10, 15, 400])
def test_ece_options(norm: float, binning: str, bins: int) -> None:
    z, labels = CASES["mixed signs"]
    p, brute = Predictions(logits=z, labels=labels), Brute(z, labels)
    want = brute.ece(bins=bins, norm=norm, binning=binning)
    assert metrics.ece(p, bins=bins, norm=norm, binning=binning) == pytest.approx(want, abs=1e-7)
    if norm < math.inf:
        want = brute.label_binned_ece(bins=bins, norm=norm, binning=binning)
        got = metrics.label_binned_ece(p, bins=bins, norm=norm, binning=binning)
        assert got == pytest.approx(want, abs=1e-7)


@pytest.mark.parametrize(("bins", "norm"), [(1, 1), (2, 1), (5, 2), (15, 2), (100, 1)])
@pytest.mark.parametrize("name", ["mixed signs", "N % bins = 1", "ties", "float64"])
def test_classwise_options(name: str, bins: int, norm: float) -> None:
    z, labels = CASES[name]
    want = Brute(z, labels).classwise_ece(bins=bins, norm=norm)
    got = metrics.classwise_ece(Predictions(logits=z, labels=labels), bins=bins, norm=norm)
    assert got == pytest.approx(want, abs=1e-7)


def test_classwise_on_the_edges() -> None:
    """Probabilities exactly on bin edges belong to the bin below, for labels and entries alike."""
    probs = np.array([[0.2, 0.8], [0.4, 0.6], [0.6, 0.4], [1.0, 0.0]])
    p = Predictions(probs=probs, labels=[0, 1, 1, 0])
    by_hand = 0.0
    for k in range(2):
        for b in range(5):
            rows = [
                i
                for i in range(4)
                if b / 5 < probs[i, k] <= (b + 1) / 5 or (b == 0 and probs[i, k] == 0)
            ]
            by_hand += abs(sum((p.labels[i] == k) - probs[i, k] for i in rows)) / 4 / 2
    assert metrics.classwise_ece(p, bins=5) == pytest.approx(by_hand, abs=1e-9)


def test_round_probabilities_stay_on_their_edge() -> None:
    """0.1 + 0.2 + 0.7 is not 1 in floating point; 0.7 must still lie in the bin that ends there."""
    p = Predictions(probs=np.array([[0.1, 0.2, 0.7]] * 3), labels=[2, 2, 0])
    assert p.confidence.tolist() == [0.7] * 3
    table = metrics.reliability(p, bins=10)
    assert table.count[6] == 3


def test_golden_numbers(shared) -> None:
    """Values of independent implementations, collected outside this project."""
    inputs = np.load(shared / "oracles" / "golden_inputs.npz")
    golden = json.loads((shared / "oracles" / "golden_torch.json").read_text())
    p = Predictions(logits=inputs["logits"], labels=inputs["labels"])
    table = {
        "ece15_l1_guo(verified get_ece)": metrics.ece(p),
        "ece15_em_l1(verified)": metrics.adaptive_ece(p),
        "ece15_em_l2_plugin(verified)": metrics.adaptive_ece(p, norm=2),
        "ece15_em_l2_debiased(verified)": metrics.debiased_ece(p),
        "marginal_l1_ew15(verified)": metrics.classwise_ece(p),
        "mce15(netcal)": metrics.mce(p),
        "mmce(netcal, sqrt)": metrics.mmce(p),
        "em_ece_sweep_norm1(caltrain)": metrics.sweep_ece(p),
        "em_ece_sweep_norm2(caltrain)": metrics.sweep_ece(p, norm=2),
        "ew_ece_sweep_norm2(caltrain)": metrics.sweep_ece(p, norm=2, binning="width"),
        "label_binned_ew15_norm1(caltrain)": metrics.label_binned_ece(p),
        "label_binned_ew15_norm2(caltrain)": metrics.label_binned_ece(p, norm=2),
        "kde_toplabel_p1_bw0.1": metrics.kde_ece(p, bandwidth=0.1),
        "aurc_mean": metrics.aurc(p),
        "eaurc_crl": metrics.eaurc(p),
        "brier_sum_over_classes": metrics.brier(p),
        "entropy_mean_nats": metrics.mean_entropy(p),
        "ce_mean": metrics.nll(p),
    }
    for name, value in table.items():
        assert value == pytest.approx(golden[name], abs=1e-6), name
    # relplot bisects to 1e-3; probcal counts the residuals of both outcomes.
    assert metrics.smooth_ece(p) == pytest.approx(golden["smece(relplot)"], abs=5e-4)
    assert 2 * metrics.skce(p) == pytest.approx(golden["skce_uq_default(probcal)"], abs=1e-7)


@pytest.mark.filterwarnings("ignore")
class TestPeers:
    """Peers on data they handle: distinct confidences off the bin edges, no saturation."""

    z, labels = draw(3001, 7, spread=1.7, seed=11, dtype="float64")
    p = Predictions(logits=z, labels=labels)

    def test_scikit_learn(self) -> None:
        from sklearn.metrics import (
            average_precision_score,
            brier_score_loss,
            log_loss,
            roc_auc_score,
        )

        p, hit = self.p, self.p.correct
        close = pytest.approx
        assert metrics.nll(p) == close(log_loss(p.labels, p.probs), rel=1e-9)
        brier = brier_score_loss(p.labels, p.probs, scale_by_half=False)
        assert metrics.brier(p) == close(brier, rel=1e-9)
        assert metrics.auroc(p) == close(roc_auc_score(hit, p.confidence), rel=1e-12)
        success = average_precision_score(hit, p.confidence)
        assert metrics.aupr_success(p) == close(success, rel=1e-9)
        errors = average_precision_score(~hit, -p.confidence)
        assert metrics.aupr_error(p) == close(errors, rel=1e-9)

    def test_uncertainty_calibration(self) -> None:
        import calibration

        p = self.p
        assert metrics.ece(p) == pytest.approx(
            calibration.get_ece(p.probs, p.labels, num_bins=15), abs=1e-9
        )
        assert metrics.adaptive_ece(p) == pytest.approx(
            calibration.get_ece_em(p.probs, p.labels, num_bins=15), abs=1e-9
        )
        for debias, value in (
            (False, metrics.adaptive_ece(p, norm=2)),
            (True, metrics.debiased_ece(p)),
        ):
            want = calibration.lower_bound_scaling_top_ce(
                p.probs, p.labels, p=2, debias=debias, num_bins=15
            )
            assert value == pytest.approx(want, abs=1e-9)

    def test_netcal(self) -> None:
        from netcal.metrics import ECE, MCE, MMCE

        p = self.p.take(np.arange(800))
        assert metrics.ece(p) == pytest.approx(ECE(15).measure(p.probs, p.labels), abs=1e-6)
        assert metrics.mce(p) == pytest.approx(MCE(15).measure(p.probs, p.labels), abs=1e-6)
        assert metrics.mmce(p) == pytest.approx(MMCE().measure(p.probs, p.labels), abs=1e-6)

    def test_probcal(self) -> None:
        from probcal.metrics.kernel import skce

        p = self.p.take(np.arange(600))
        want = skce(p.correct.astype(int), p.confidence)
        assert 2 * metrics.skce(p) == pytest.approx(want, rel=1e-6)

    def test_incerto_smooth_ece(self) -> None:
        import torch
        from incerto.calibration import smooth_ece

        want = float(smooth_ece(torch.tensor(self.z), torch.tensor(self.labels)))
        assert metrics.smooth_ece(self.p) == pytest.approx(want, abs=2e-3)


def test_saturated_ranking_survives() -> None:
    """Float32 confidences that all print 1.0 still rank, because s does."""
    gap = np.linspace(30, 60, 200, dtype=np.float32)
    z = np.stack([gap, np.zeros_like(gap)], axis=1)
    labels = (np.arange(200) < 40).astype(int)  # the 40 least confident are wrong
    p = Predictions(logits=z, labels=labels)
    assert (p.confidence.astype(np.float32) == 1).all()
    assert metrics.auroc(p) == 1.0
    assert metrics.fpr95(p) == 0.0
    assert metrics.aurc(p) == pytest.approx(Brute(z, labels).aurc())
    assert metrics.adaptive_ece(p, bins=5) == pytest.approx(0.2, abs=1e-9)


def test_confidences_agree_with_predictions(predictions: Predictions) -> None:
    c = Confidences(confidence=predictions.confidence, correct=predictions.correct)
    for name, metric in TOP.items():
        if metric.top_label:
            assert metric.function(c) == pytest.approx(metric.function(predictions), abs=1e-9), name
        else:
            with pytest.raises(ValueError, match="needs the probabilities of all classes"):
                metric.function(c)


def test_brier_decomposition_is_exact_and_matches_isotonic_regression() -> None:
    from sklearn.isotonic import IsotonicRegression

    z, labels = CASES["mixed signs"]
    p = Predictions(logits=z, labels=labels)
    parts = metrics.brier_decomposition(p)
    loss = 0.0
    for k in range(p.num_classes):
        fitted = IsotonicRegression().fit_transform(p.probs[:, k], labels == k)
        loss += ((fitted - (labels == k)) ** 2).sum()
    assert parts.refinement == pytest.approx(loss / len(labels), abs=1e-6)
    assert parts.brier == pytest.approx(metrics.brier(p), abs=1e-12)
    assert parts.calibration + parts.refinement == pytest.approx(parts.brier, abs=1e-12)
    share = np.bincount(labels, minlength=10) / len(labels)
    assert parts.uncertainty == pytest.approx(1 - (share**2).sum(), abs=1e-12)
    assert parts.calibration >= 0
    assert 0 <= parts.resolution <= parts.uncertainty


def test_ece_decomposition_of_an_overconfident_model() -> None:
    """Singh et al. (2021): ECE is mean confidence less accuracy when every bin is overconfident."""
    rng = np.random.default_rng(0)
    c = rng.uniform(0.6, 1, 20_000)
    hit = rng.random(20_000) < c - 0.3
    parts = metrics.ece_decomposition(Confidences(confidence=c, correct=hit))
    assert parts.ece == pytest.approx(parts.alpha - hit.mean(), abs=1e-12)
    assert parts.ece == pytest.approx(
        parts.alpha - parts.beta - parts.gamma + parts.residual, abs=1e-15
    )
    right = hit.mean()
    assert parts.gamma == pytest.approx((right**2 + (1 - right) ** 2) / 2)


def test_the_rank_formula_of_singh_is_misprinted() -> None:
    """Equation 4 subtracts N (N + 1) / 2, Hand and Till P (P + 1) / 2: four right of 29."""
    rank = np.arange(1, 30)
    right = np.isin(rank, [13, 27, 28, 29])
    positive, negative, total = 4, 25, int(rank[right].sum())
    printed = (total - negative * (negative + 1) / 2) / (positive * negative)
    meant = (total - positive * (positive + 1) / 2) / (positive * negative)
    pairs = [(a > b) for a in rank[right] for b in rank[~right]]
    assert printed == -2.28
    assert meant == np.mean(pairs) == 0.87
    parts = metrics.ece_decomposition(Confidences(confidence=rank / 30, correct=right))
    assert parts.beta == pytest.approx(0.87 * 2 * 4 * 25 / 29**2, rel=1e-12)
    assert parts.gamma == pytest.approx((4**2 + 25**2) / (2 * 29**2), rel=1e-12)
    for number in ("-2.28", "0.87"):
        assert number in (metrics.ece_decomposition.__doc__ or "")


def test_refinement_nll_is_cross_fitted(predictions: Predictions) -> None:
    seen: list[int] = []

    class Halve:
        """Fits nothing; records the size it was given."""

        def fit(self, p: Predictions) -> Halve:
            seen.append(len(p))
            return self

        def transform(self, p: Predictions) -> Predictions:
            return Predictions(logits=p.logits / 2, labels=p.labels)

    value = metrics.refinement_nll(predictions, Halve(), folds=4)
    halved = Predictions(logits=predictions.logits / 2, labels=predictions.labels)
    assert value == pytest.approx(metrics.nll(halved), rel=1e-12)
    assert len(seen) == 4
    assert sum(seen) == 3 * len(predictions)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_reliability_table(binning: str, case: tuple[np.ndarray, np.ndarray]) -> None:
    p = Predictions(logits=case[0], labels=case[1])
    table = metrics.reliability(p, bins=15, binning=binning)
    full = table.count > 0
    assert table.count.sum() == p.num_samples
    assert len(table.edges) == 16
    assert (np.diff(table.edges) >= 0).all()
    assert np.isnan(table.accuracy[~full]).all()
    assert (table.lower[full] <= table.accuracy[full]).all()
    assert (table.accuracy[full] <= table.upper[full]).all()
    ece = (table.count[full] / p.num_samples) @ np.abs(table.gap[full])
    assert ece == pytest.approx(metrics.ece(p, binning=binning), abs=1e-12)
    assert str(table).count("\n") == 15


def test_real_resnet110(shared) -> None:
    """The published ECE of this network is 4.75 % (Kull et al. 2019)."""
    data = np.load(shared / "data" / "logits" / "cifar10_kull_resnet110_test.npz")
    p = Predictions(logits=data["logits"], labels=data["labels"])
    assert metrics.ece(p) == pytest.approx(0.0475, abs=5e-5)


def test_warnings_are_errors_here() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("a warning", UserWarning, stacklevel=1)


# --- found by review, kept -----------------------------------------------------------------------


def test_equal_confidences_from_probabilities_are_ties() -> None:
    probs = np.array(
        [[0.7, 0.1, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05], [0.7, 0.3, 0, 0], [0.7, 0.15, 0.1, 0.05]]
    )
    assert metrics.auroc(Predictions(probs=probs, labels=[0, 1, 0, 1])) == 0.5


@pytest.mark.parametrize("num_classes", [5, 40, 100])
def test_rounded_probabilities_do_not_depend_on_the_way_they_are_read(num_classes: int) -> None:
    from calibrant import measure

    rng = np.random.default_rng(num_classes)
    probs = np.round(rng.dirichlet(np.full(num_classes, 0.2), 300), 2)
    probs[:, 0] = np.maximum(1 - probs[:, 1:].sum(axis=1), 0)
    probs /= probs.sum(axis=1, keepdims=True)
    labels = rng.integers(0, num_classes, 300)
    one = metrics.auroc(Predictions(probs=probs, labels=labels))
    other = measure(Predictions(probs=probs, labels=labels), intervals=False)["auroc"]
    column_major = Predictions(probs=np.asfortranarray(probs), labels=labels)
    assert one == other == metrics.auroc(column_major)
    faint = np.array([[1.0, *[1e-20] * (num_classes - 1)], [1.0, *[1e-25] * (num_classes - 1)]])
    p = Predictions(probs=faint, labels=[1, 0])
    assert metrics.auroc(p) == 1.0  # confidences print 1.0, and still rank


@pytest.mark.parametrize(("num_classes", "value"), [(24, 0.04167), (28, 0.03571), (60, 0.01667)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_labels_and_entries_meet_in_one_bin(num_classes: int, value: float, order: str) -> None:
    probs = np.full((num_classes, num_classes), value, order=order)
    p = Predictions(probs=probs, labels=np.arange(num_classes))
    assert metrics.classwise_ece(p, bins=num_classes) == pytest.approx(0, abs=1e-6)


def test_classwise_of_large_norms_does_not_underflow() -> None:
    p = Predictions(probs=[[0.99, 0.01]] * 3, labels=[0] * 3)
    assert metrics.classwise_ece(p, norm=200) == pytest.approx(0.01, rel=1e-6)


def test_too_many_cells_are_refused() -> None:
    p = Predictions(logits=np.zeros((2, 300)), labels=[0, 1])
    with pytest.raises(ValueError, match="number of classes must be at most"):
        metrics.classwise_ece(p, bins=1_000_000)


def test_byte_order_does_not_matter() -> None:
    z = np.random.default_rng(0).normal(0, 1e5, (50, 12))
    labels = np.arange(50) % 12
    one = Predictions(logits=z, labels=labels)
    other = Predictions(logits=z.astype(">f8"), labels=labels.astype(">i4"))
    assert metrics.nll(one) == metrics.nll(other)


def test_entropy_of_offset_logits() -> None:
    for num_classes, offset in ((32, -37.0), (1000, 37.0)):
        z = np.random.default_rng(0).normal(0, 1, (50, num_classes)).astype(np.float32)
        p = Predictions(logits=z + np.float32(offset), labels=np.zeros(50, int))
        wide = Predictions(logits=(z + np.float32(offset)).astype(np.float64), labels=p.labels)
        np.testing.assert_allclose(p.entropy, wide.entropy, atol=2e-6)


def test_a_probability_an_ulp_above_one() -> None:
    p = Predictions(probs=[[1.0000000000000002, 0.0]] * 2, labels=[0, 0])
    assert p.confidence.tolist() == [1.0, 1.0]
    assert metrics.nll(p) == 0.0


def test_logits_at_the_ends_of_float64() -> None:
    p = Predictions(logits=[[1e308, -1e308], [0.0, 1.0]], labels=[0, 1])
    assert p.confidence[0] == 1.0


@pytest.mark.parametrize("norm", [2, 60, 1000, math.inf])
def test_kde_ece_of_large_norms(norm: float) -> None:
    z, labels = (a[:60] for a in CASES["mixed signs"])
    p, brute = Predictions(logits=z, labels=labels), Brute(z, labels)
    got = metrics.kde_ece(p, bandwidth=0.07, norm=norm)
    most = brute.kde_ece(bandwidth=0.07, norm=math.inf)
    if norm < 100:  # brute force underflows beyond
        assert got == pytest.approx(brute.kde_ece(bandwidth=0.07, norm=norm), abs=1e-6)
    else:
        assert most * 60 ** (-1 / norm) - 1e-6 <= got <= most + 1e-6
    # One sample out of reach of every other takes the accuracy of the nearest.
    alone = Confidences(confidence=[0.001, 0.8, 0.8, 0.8], correct=[1, 1, 1, 0])
    gaps = [2 / 3 - 0.001, 0.8 - 0.5, 0.8 - 0.5, 1 - 0.8]
    want = max(gaps) if norm > 100 else (sum(gap**norm for gap in gaps) / 4) ** (1 / norm)
    got = metrics.kde_ece(alone, bandwidth=1e-4, norm=norm)
    assert got == pytest.approx(want, rel=0.002 if norm == 1000 else 1e-12)


def precise_kde_ece(
    confidence: list[float], hit: list[float], bandwidth: float, *, leave_one_out: bool = True
) -> float:
    """The formula with 60 digits, kernel by kernel."""
    with mpmath.workdps(60):
        h, least = mpmath.mpf(bandwidth), mpmath.mpf("1e-300")
        c = [mpmath.mpf(float(x)) for x in confidence]

        def kernel(place: mpmath.mpf, centre: mpmath.mpf) -> mpmath.mpf:
            a, b = centre / h, (1 - centre) / h
            at, beside = max(place, least), max(1 - place, least)
            log_norm = mpmath.loggamma(a + 1) + mpmath.loggamma(b + 1) - mpmath.loggamma(a + b + 2)
            return mpmath.exp(a * mpmath.log(at) + b * mpmath.log(beside) - log_norm)

        gaps = []
        for i, place in enumerate(c):
            others = [j for j in range(len(c)) if j != i or not leave_one_out]
            weights = [kernel(place, c[j]) for j in others]
            good = mpmath.fsum(w * hit[j] for w, j in zip(weights, others, strict=True))
            gaps.append(abs(good / mpmath.fsum(weights) - place))
        return float(mpmath.fsum(gaps) / len(c))


KDE_CASES = {
    "two": ([0.2, 0.9], [0, 0]),
    "ends": ([0.0, 1.0, 0.4], [1, 0, 1]),
    "ends with ties": ([0.0, 0.0, 1.0, 1.0, 0.999999], [1, 0, 0, 1, 1]),
    "ties": ([0.7, 0.7, 0.7, 0.3, 0.3], [1, 0, 1, 1, 0]),
    "ties and one alone": ([0.7, 0.7, 0.1], [1, 0, 0]),
    "close": ([0.6, 0.6001, 0.6002, 0.61], [1, 0, 1, 0]),
    "next to 1": ([1 - 1e-12, 1 - 3e-12, 1 - 1e-15, 0.5], [1, 0, 1, 0]),
    "spread": ([0.05, 0.31, 0.33, 0.58, 0.77, 0.93, 0.95], [0, 1, 0, 1, 0, 1, 1]),
}


@pytest.mark.parametrize("bandwidth", [10.0, 0.5, 0.05, 1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("case", KDE_CASES)
def test_kde_ece_with_many_digits(case: str, bandwidth: float) -> None:
    """However small the kernels are: the estimate is a ratio of them."""
    confidence, hit = KDE_CASES[case]
    p = Confidences(confidence=confidence, correct=hit)
    want = precise_kde_ece(confidence, hit, bandwidth)
    assert metrics.kde_ece(p, bandwidth=bandwidth) == pytest.approx(want, abs=1e-8)


def test_isolated_samples_are_not_calibrated() -> None:
    wrong = Confidences(confidence=[0.2, 0.9], correct=[0, 0])
    for bandwidth in (0.5, 0.05, 1e-3, 1e-8):
        assert metrics.kde_ece(wrong, bandwidth=bandwidth) == pytest.approx(0.55, rel=1e-15)
    assert metrics.kde_ece(wrong) == pytest.approx(0.55, rel=1e-15)
    assert math.isnan(metrics.kde_ece(Confidences(confidence=[0.2], correct=[0])))


@pytest.mark.parametrize("bandwidth", [0.5, 0.05, 1e-3, 1e-8])
@pytest.mark.parametrize("case", KDE_CASES)
def test_kde_ece_of_a_population(case: str, bandwidth: float) -> None:
    """With nothing left out; and the limit of ``kde_ece`` for many copies of each sample."""
    confidence, hit = KDE_CASES[case]
    ranked = rank(Confidences(confidence=confidence, correct=hit))
    got = population_kde_ece(ranked, bandwidth=bandwidth)
    want = precise_kde_ece(confidence, hit, bandwidth, leave_one_out=False)
    assert got == pytest.approx(want, abs=1e-8)
    many = Ranked(ranked.confidence, 1e9 * ranked.count, 1e9 * ranked.hits, ranked.doubt)
    assert metrics.kde_ece(many, bandwidth=bandwidth) == pytest.approx(got, abs=1e-8)


def test_kde_ece_of_a_replicate_without_some_samples() -> None:
    """Samples of weight 0 are not there, the nearest one included."""
    ranked = rank(Confidences(confidence=[0.2, 0.5, 0.9], correct=[0, 1, 0]))
    drawn = Ranked(ranked.confidence, np.array([1.0, 0, 2]), np.zeros(3), ranked.doubt)
    assert metrics.kde_ece(drawn, bandwidth=1e-3) == pytest.approx((0.2 + 0.9 + 0.9) / 3)


def test_debiased_ece_is_undefined_where_nothing_can_be_estimated() -> None:
    """Twelve samples alone in their bins, all wrong at 90 to 99 %: no noise can be subtracted."""
    wrong = Confidences(confidence=np.linspace(0.9, 0.99, 12), correct=[0] * 12)
    assert math.isnan(metrics.debiased_ece(wrong))
    # Eleven of fifteen bins hold two samples, then four hold one: those are left out.
    c = np.linspace(0.5, 0.99, 26)
    some = Confidences(confidence=c, correct=[0] * 26)
    pairs = c[:22].reshape(11, 2).mean(axis=1)
    assert metrics.debiased_ece(some) == pytest.approx(math.sqrt((pairs**2).mean()))
    assert math.isnan(metrics.debiased_ece(some.take(np.arange(20))))  # 10 of 20 are left out


def test_debiased_square_is_unbiased() -> None:
    """Its mean over all outcomes, each weighted by its chance, is the square of the true gap."""
    from calibrant.metrics._binned import debiased_square

    chance, mean = 0.7, 0.0
    for outcome in itertools.product((0, 1), repeat=4):
        c = Confidences(confidence=[0.9] * 4, correct=outcome)
        weight = math.prod(chance if hit else 1 - chance for hit in outcome)
        mean += weight * debiased_square(c)
    assert mean == pytest.approx(0.2**2)


def test_sweep_ece_of_more_samples_than_bins_may_be_asked_for() -> None:
    n = 1_000_001
    c = np.linspace(0.1, 0.9, n)
    hit = np.arange(n) > n // 2  # accuracy never falls, so every sample is its own bin
    want = np.abs(hit - c).mean()
    assert metrics.sweep_ece(Confidences(confidence=c, correct=hit)) == pytest.approx(want)


def test_loss_of_certain_right_answers_has_no_sign() -> None:
    p = Predictions(probs=[[1.0, 0.0]] * 2, labels=[0, 0])
    for value in (metrics.nll(p), metrics.mean_entropy(p), metrics.brier(p)):
        assert math.copysign(1, value) == 1


def test_refinement_nll_checks_what_it_is_given() -> None:
    p = Predictions(logits=np.eye(3), labels=[0, 1, 2])
    for arguments, message in (
        ((np.zeros((3, 2)), None), "needs the probabilities of all classes; got ndarray"),
        ((p, None, 5), "folds must be at most 3, the number of samples; got 5"),
        ((p.take([0]), None), "at least two samples for folds; got 1"),
        ((p, None, 2, -1), "seed must be a whole number"),
    ):
        names = ("p", "calibrator", "folds", "seed")
        with pytest.raises(ValueError, match=message):
            metrics.refinement_nll(**dict(zip(names, arguments, strict=False)))
