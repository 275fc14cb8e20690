"""Clusters, weights and groups in intervals, comparisons and panels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from benchmarks import cluster_coverage as simulation

import calibrant
from calibrant import Confidences, InputError, Predictions, metrics
from calibrant._measure._grouped import gap_test
from calibrant.inference import (
    INDEPENDENT,
    assumption,
    consistency_band,
    ece_test,
    skce_test,
    spiegelhalter_test,
)
from calibrant.inference._clusters import (
    DesignEffect,
    design_effect,
    expanded,
    proportion_bounds,
    thinned,
)
from calibrant.inference._curves import ErrorCurve
from calibrant.inference._gap import mean_gap_bounds
from calibrant.metrics import METRICS
from tests.command import call

RNG = np.random.default_rng(0)


def sample(n: int, **more: object) -> Predictions:
    z = RNG.normal(0, 2, (n, 3))
    y = (z / 2 + RNG.gumbel(size=z.shape)).argmax(1)
    return Predictions(logits=z, labels=y, **more)


def repeated(p: Predictions, times: int) -> Predictions:
    code = np.repeat(np.arange(len(p)), times)
    return Predictions(logits=p.logits[code], labels=p.labels[code], clusters=code)


def test_repeating_every_sample_adds_no_knowledge() -> None:
    """Intervals of ten identical samples per cluster are as wide as those of one."""
    p = sample(300)
    names = ["accuracy", "nll", "brier", "ece", "smooth_ece", "debiased_ece", "auroc"]
    names += ["classwise_ece"]
    one = calibrant.measure(p, metrics=names, replicates=300)
    ten = calibrant.measure(repeated(p, 10), metrics=names, replicates=300)
    naive = calibrant.measure(repeated(p, 10).independent(), metrics=names, replicates=300)
    for name in names:
        width, tenfold, wrong = (
            x.interval(name).high - x.interval(name).low for x in (one, ten, naive)
        )
        assert 0.75 < tenfold / width < 1.35, name
        assert wrong < 0.7 * width, name
    assert ten["ece"] == pytest.approx(one["ece"], rel=1e-9)


def test_design_effect_of_known_designs() -> None:
    p = sample(2000)
    for times in (1, 4, 10):
        for classwise in (False, True):
            found = design_effect(repeated(p, times), classwise=classwise)
            assert found.noise == pytest.approx(times, rel=0.12)
            assert found.spread == pytest.approx(times, rel=0.12)
    weights = RNG.choice([1.0, 5.0], 2000)
    kish = 1 + (weights.std() / weights.mean()) ** 2
    weighted = Predictions(logits=p.logits, labels=p.labels, weights=weights)
    assert design_effect(weighted).larger == pytest.approx(kish, rel=0.1)
    assert design_effect(p) == design_effect(p, classwise=True) == DesignEffect(1, 1)
    assert thinned(p, 0, 1) is p
    assert expanded(0.95, 10_000) == pytest.approx(0.95, abs=1e-4)


def test_what_clusters_are_worth_has_a_share_of_every_cluster() -> None:
    """One of every ten identical rows; of uneven clusters and weights, to the nearest whole."""
    p = sample(200)
    for times in (2, 10, 100):
        part = thinned(repeated(p, times), 0, times)
        assert part.is_independent
        assert np.array_equal(np.sort(part.logits, axis=0), np.sort(p.logits, axis=0)), times
    sizes = RNG.integers(1, 40, 50)
    code, weight = np.repeat(np.arange(50), sizes), RNG.choice([1.0, 3.0], sizes.sum())
    z = np.stack([code, np.arange(len(code))], axis=1).astype(float)
    uneven = Predictions(logits=z, labels=0 * code, clusters=code, weights=weight)
    part = thinned(uneven, 3, 2.5)
    assert len(part) == round(len(code) / 2.5)
    held = np.bincount(part.logits[:, 0].astype(int), minlength=50)
    share = len(part) * np.bincount(code, weight) / weight.sum()
    assert np.abs(held - share).max() < 1 + 1e-9
    alone = Predictions(logits=z, labels=0 * code, weights=weight)
    rows, count = np.unique(thinned(alone, 3, 4).logits[:, 1], return_counts=True)
    assert len(rows) == count.sum() == round(len(code) / 4)


def test_a_shift_that_clusters_share_widens_intervals_without_more_bias() -> None:
    """All gaps of a cluster move together: their sum varies more than each of them tells."""
    rng = np.random.default_rng(11)
    assert DesignEffect(2.0, 4.5).stretch == pytest.approx(1.5)
    assert DesignEffect(4.5, 2.0).stretch == 1
    shift = np.repeat(rng.normal(0, 0.15, 60), 100)
    confidence = rng.uniform(0.3, 0.9, 6000)
    correct = rng.random(6000) < np.clip(confidence + shift - 0.1, 0, 1)
    unit = np.arange(6000) // 100
    found = design_effect(Confidences(confidence=confidence, correct=correct, clusters=unit))
    assert found.spread > 1.5 * found.noise > 1.5
    simulated = rng.normal([0.02, 0.03, 0.05, 0.07, 0.09, 0.14, 0.19], 0.01, (400, 7))
    plain = ErrorCurve(0.09, np.linspace(0, 0.19, 7), simulated)
    wide = ErrorCurve(0.09, plain.truth, simulated, stretch=1.5)
    assert wide.estimate == pytest.approx(plain.estimate)
    (low, high), (lower, higher) = (curve.bounds(0.95) for curve in (plain, wide))
    assert (higher - lower) / (high - low) == pytest.approx(1.5, abs=0.2)


def test_what_is_assumed_is_said() -> None:
    p = sample(40, clusters=np.arange(40) // 4)
    assert "10 clusters" in assumption(p)
    assert assumption(sample(10)) == INDEPENDENT
    panel = calibrant.measure(p, metrics=["accuracy"], replicates=20)
    assert "10 clusters" in str(panel)
    assert "10 clusters" in panel.to_dict()["assumed"]


def test_accuracy_with_clusters_is_the_t_interval_by_hand() -> None:
    """For many clusters Wilson's interval with the effective size is near mean ± t s / sqrt(C)."""
    means = RNG.binomial(8, 0.6, 400) / 8
    hit = np.concatenate([np.repeat([1, 0], [round(8 * m), 8 - round(8 * m)]) for m in means])
    c = Confidences(confidence=np.full(3200, 0.6), correct=hit, clusters=np.arange(3200) // 8)
    found = calibrant.measure(c, metrics=["accuracy"], replicates=20).interval("accuracy")
    reach = 1.966 * means.std(ddof=1) / math.sqrt(400)
    assert found.low == pytest.approx(means.mean() - reach, abs=1e-3)
    assert found.high == pytest.approx(means.mean() + reach, abs=1e-3)


def test_weights_are_what_repetition_would_be() -> None:
    p = sample(60)
    times = RNG.integers(1, 4, 60)
    weighted = Predictions(logits=p.logits, labels=p.labels, weights=times.astype(float))
    rows = np.repeat(np.arange(60), times)
    twice = Predictions(logits=p.logits[rows], labels=p.labels[rows])
    exact = ["accuracy", "nll", "brier", "ece", "mce", "smooth_ece", "classwise_ece", "auroc"]
    exact += ["mean_confidence", "mean_entropy", "aupr_error", "fpr95", "overconfidence_error"]
    for name in exact:
        got, want = METRICS[name].function(weighted), METRICS[name].function(twice)
        assert got == pytest.approx(want, rel=1e-6), name
    panel = calibrant.measure(weighted, replicates=30)
    assert not {name for name in panel if METRICS[name].unweighted}
    with pytest.raises(InputError, match="must take sampling weights; got 'aurc'"):
        calibrant.measure(weighted, metrics=["aurc"])


def test_compare_counts_clusters() -> None:
    """A difference that is clear for 3,000 samples is not clear for 30 clusters of 100."""
    size, clusters = 3000, np.arange(3000) // 100
    rng = np.random.default_rng(5)
    right = np.repeat(rng.random(30) < 0.7, 100)
    other = np.repeat(rng.random(30) < 0.5, 100)
    models = {
        name: Confidences(confidence=np.full(size, 0.7), correct=hit, clusters=clusters)
        for name, hit in (("a", right), ("b", other))
    }
    clear = {name: c.independent() for name, c in models.items()}
    for metric in ("accuracy", "ece"):
        found = calibrant.compare(models, metrics=[metric], replicates=100).differences[0]
        naive = calibrant.compare(clear, metrics=[metric], replicates=100).differences[0]
        assert found.p_value > 50 * naive.p_value, metric


def test_coverage_in_short() -> None:
    truth = simulation.truths(100_000)
    hits = dict.fromkeys(("accuracy", "nll", "ece"), 0)
    for seed in range(12):
        found = simulation.simulate(seed, "10, identical", 100, tuple(hits))
        for name in hits:
            hits[name] += found[name][0] <= truth[name] <= found[name][1]
    assert min(hits.values()) >= 9, hits


@pytest.mark.slow
@pytest.mark.parametrize("design", simulation.DESIGNS)
def test_coverage(design: str) -> None:
    """40 simulations: a coverage of 92 % gives fewer than 31 with probability 0.001.

    The page on intervals has 200 of each design (benchmarks/cluster_coverage.py).
    """
    truth = simulation.truths()
    found = [simulation.simulate(seed, design, 150) for seed in range(40)]
    for name in simulation.METRICS:
        held = sum(f[name][0] <= truth[name] <= f[name][1] for f in found)
        assert held >= 31, (design, name, held)


# --- groups -----------------------------------------------------------------------------------


def grouped(shift: float = 0.0, n: int = 900) -> Predictions:
    z = RNG.normal(0, 2, (n, 3))
    site = np.array(["a", "b", "c"])[np.arange(n) % 3]
    scale = np.where(site == "c", 1 + shift, 1.0)[:, None]
    y = (z / 2 * scale + RNG.gumbel(size=z.shape)).argmax(1)
    return Predictions(logits=z / 2, labels=y, groups={"site": site})


def test_groups_by_hand() -> None:
    p = grouped(2.0)
    found = calibrant.measure(p, by="site", replicates=60)
    assert list(found) == ["a", "b", "c"]
    for name in found:
        part = p.take(p.groups["site"] == name)
        assert found[name]["ece"] == pytest.approx(metrics.ece(part))
    assert found.worst == "c"
    assert found.differ.p_value < 0.001
    worst = found.simultaneous["c"]
    assert worst.low <= found["c"].interval("ece").low
    scores = {name: metrics.ece(p.take(p.groups["site"] == name)) / 3 for name in found}
    assert found.multicalibration.value == pytest.approx(max(scores.values()))
    text = str(found)
    assert "Worst group by ECE: c" in text
    assert "Mean gaps of the groups differ" in text
    assert found.to_arrow().column_names[0] == "group"
    assert json.dumps(found.to_dict())
    assert "site" in found._repr_html_()
    with pytest.raises(KeyError, match="no group 'd'"):
        found["d"]
    with pytest.raises(
        InputError, match=r"by must name one of the groups.*group_columns=\['sight'\]"
    ):
        calibrant.measure(p, by="sight")


def test_equal_groups_are_seldom_told_apart() -> None:
    p_values = [
        calibrant.measure(grouped(n=300), by="site", intervals=False).differ.p_value
        for _ in range(60)
    ]
    assert sum(p < 0.05 for p in p_values) <= 8  # 3 expected
    assert sum(p < 0.5 for p in p_values) >= 18  # 30 expected


def test_group_command(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    grouped(2.0).save(path)
    done = call("measure", path, "--by", "site", "--no-intervals", "--json", "--fail-if", "ece>0.9")
    assert done.returncode == 0
    assert set(json.loads(done.stdout)["groups"]) == {"a", "b", "c"}
    gate = call("measure", path, "--by", "site", "--no-intervals", "--fail-if", "ece>0.0001")
    assert gate.returncode == 1
    assert "in a" in gate.stderr
    assert call("measure", path, "--by", "ward").returncode == 2


# --- tests of calibration, mean gaps and bins -------------------------------------------------


def calibrated(seed: int, clusters: int, size: int) -> Confidences:
    """Right as often as it says, but all samples of a cluster are right or wrong together."""
    rng = np.random.default_rng(seed)
    said = np.repeat(rng.uniform(0.5, 1, clusters), size)
    hit = np.repeat(rng.random(clusters), size) < said
    return Confidences(confidence=said, correct=hit, clusters=np.repeat(np.arange(clusters), size))


def test_tests_of_calibration_count_clusters() -> None:
    """40 calibrated models, ten identical samples per cluster: few alarms, most if taken alone."""
    alarms = {"ece": 0, "skce": 0, "spiegelhalter": 0, "alone": 0}
    for seed in range(40):
        p = calibrated(seed, 40, 10)
        alarms["ece"] += ece_test(p, draws=60).p_value < 0.05
        alarms["spiegelhalter"] += spiegelhalter_test(p).p_value < 0.05
        alarms["alone"] += ece_test(p.independent(), draws=60).p_value < 0.05
        if seed < 20:
            alarms["skce"] += skce_test(p, draws=60).p_value < 0.05
    assert max(alarms["ece"], alarms["skce"], alarms["spiegelhalter"]) <= 6
    assert alarms["alone"] >= 30
    wrong = Confidences(
        confidence=np.full(400, 0.95),
        correct=np.repeat(np.arange(40) % 2, 10),
        clusters=np.repeat(np.arange(40), 10),
    )
    for test in (ece_test, skce_test):
        assert test(wrong, draws=60).p_value < 0.05
    assert spiegelhalter_test(wrong).p_value < 0.001


def test_signs_of_clusters_are_drawn_together() -> None:
    """With one cluster the residuals keep or turn their sign all at once."""
    p = Confidences(confidence=[0.6, 0.6, 0.9], correct=[1, 1, 0], clusters=[4, 4, 4])
    low, high = consistency_band(p, bins=1, draws=50)
    gap = (0.4 + 0.4 - 0.9) / 3
    assert [low[0], high[0]] == pytest.approx([0.7 + gap, 0.7 - gap])


def test_the_mean_gap_counts_clusters_and_weights() -> None:
    one = calibrated(3, 60, 1)
    ten = calibrated(3, 60, 10)
    assert mean_gap_bounds(ten) == pytest.approx(mean_gap_bounds(one), abs=0.003)
    alone = mean_gap_bounds(ten.independent())
    assert alone[1] - alone[0] < 0.5 * (mean_gap_bounds(one)[1] - mean_gap_bounds(one)[0])
    weighted = Confidences(confidence=one.confidence, correct=one.correct, weights=[2.0] * 60)
    assert mean_gap_bounds(weighted) == pytest.approx(mean_gap_bounds(one.independent()), abs=0.005)


def test_calibration_in_the_large_says_nothing_of_absent_events() -> None:
    """No positive among 20 at 5 % is no proof: the bootstrap would nearly be a point."""
    p = Predictions.from_binary(probs=np.linspace(0.04, 0.06, 20), labels=[0] * 20)
    found = calibrant.measure(p, metrics=["calibration_in_the_large"], replicates=50)
    interval = found.interval("calibration_in_the_large")
    assert interval.low < 0 < interval.high
    assert interval.value == pytest.approx(0.05)


def test_bins_count_clusters() -> None:
    """The interval of a bin is that of the accuracy of its samples, by clusters."""
    p = calibrated(5, 50, 6)
    table = metrics.reliability(p, bins=3)
    for b, (low, high) in enumerate(zip(table.edges[:-1], table.edges[1:], strict=True)):
        inside = (p.confidence > low) & (p.confidence <= high)
        if inside.any():
            want = proportion_bounds(p.take(inside), 0.95)
            assert (table.lower[b], table.upper[b]) == pytest.approx(want)
    plain = metrics.reliability(p.independent(), bins=3)
    assert (table.upper - table.lower)[1:].min() > 1.5 * (plain.upper - plain.lower)[1:].max()
    one = Confidences(confidence=[0.7, 0.7], correct=[1, 0], clusters=["a", "a"])
    only = metrics.reliability(one, bins=1)
    assert (only.lower[0], only.upper[0]) == (0, 1)


def test_pixels_that_do_not_go_together_are_evidence() -> None:
    """20 images whose pixels are independent: a clear gain is seen, as without clusters."""
    rng = np.random.default_rng(1)
    z = rng.normal(0, 2, (20, 4, 8, 8))
    y = (z / 1.6 + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=z, labels=y)
    chosen = calibrant.calibrators.select_calibrator(p, ["temperature"])
    assert chosen.chosen == "temperature"


def test_metrics_of_a_class_need_no_view() -> None:
    """The interval of the prevalence is about the class, not about the predicted label."""
    p = Predictions.from_binary(probs=[0.2] * 40, labels=[1] * 10 + [0] * 30)
    found = calibrant.inference.intervals(p, ["prevalence", "accuracy"], replicates=20)
    assert found["prevalence"].low < 0.25 < found["prevalence"].high < 0.5
    assert found["accuracy"].low > 0.5


def test_words_about_groups_speak_of_all_samples() -> None:
    p = sample(60, clusters=np.arange(60) // 2, groups={"site": np.arange(60) % 3})
    found = calibrant.measure(p, by="site", metrics=["accuracy"], replicates=40)
    assert "30 clusters" in found.assumed
    assert "(p = " in found.words[1]


def test_small_groups_do_not_make_groups_differ() -> None:
    """Three samples, or one cluster, seem to have no noise if centred at their own mean gap."""
    rng = np.random.default_rng(3)
    alarms = {"three samples": 0, "one cluster": 0}
    for _ in range(200):
        confidence = rng.uniform(0.4, 0.99, 603)
        hit = rng.random(603) < confidence
        few = Confidences(confidence=confidence, correct=hit)
        column = np.repeat(["a", "b", "few"], [300, 300, 3])
        alarms["three samples"] += gap_test(few, column).p_value < 0.05
        unit = np.arange(600) // 10
        confidence = rng.uniform(0.4, 0.9, 600)
        hit = rng.random(600) < np.clip(confidence + rng.normal(0, 0.15, 60)[unit], 0, 1)
        c = Confidences(confidence=confidence, correct=hit, clusters=unit)
        column = np.repeat(["a", "b", "one"], [300, 290, 10])
        alarms["one cluster"] += gap_test(c, column).p_value < 0.05
    assert max(alarms.values()) <= 20, alarms  # 10 expected at most; 70 and 160 by a Wald test


def test_a_group_of_one_cluster_has_no_interval_and_says_so() -> None:
    p = grouped()
    site = p.groups["site"].astype("U9")
    site[:3] = "Tiny"  # sorts first: NaN must not hide the other groups
    unit = np.arange(len(p)) // 9
    q = Predictions(logits=p.logits, labels=p.labels, groups={"site": site}, clusters=unit)
    found = calibrant.measure(q, by="site", metrics=["ece"], replicates=40)
    assert math.isnan(found["Tiny"].interval("ece").low)
    assert "Worst group by ECE: Tiny" in str(found)
    assert "(no interval: 3 samples in one cluster)" in str(found)
    whole = found.multicalibration
    assert whole.low <= whole.value <= whole.high
    shares = {name: (site == name).mean() for name in found}
    ends = found.simultaneous
    assert whole.high == max(shares[n] * ends[n].high for n in "abc")
    assert whole.low == max(shares[n] * ends[n].low for n in "abc")


def test_one_cluster_of_all_samples(tmp_path: Path) -> None:
    p = sample(120, clusters=np.zeros(120, dtype=int))
    panel = calibrant.measure(p, metrics=["accuracy", "nll"], replicates=20)
    assert "All samples are in one cluster" in str(panel)
    assert "1 clusters" not in str(panel)
    p.save(tmp_path / "one.npz")
    done = call("report", tmp_path / "one.npz", "-o", tmp_path / "r.html", "--replicates", 20)
    assert done.returncode == 0, done.stderr
    assert "All samples are in one cluster" in (tmp_path / "r.html").read_text(encoding="utf-8")
    fit = ("calibrate", "--fit", tmp_path / "one.npz", "--save", tmp_path / "c.json")
    done = call(*fit, "--method", "temperature")
    assert done.returncode == 0, done.stderr
    assert "All samples are in one cluster, so none can be held out" in done.stdout
    done = call(*fit, "--method", "auto")
    assert done.returncode == 2
    assert "at least two clusters for folds; got 1" in done.stderr


def test_three_clusters_make_three_folds(tmp_path: Path) -> None:
    p = sample(150, clusters=np.arange(150) % 3)
    p.save(tmp_path / "three.npz")
    fit = ("calibrate", "--fit", tmp_path / "three.npz", "--replicates", 20)
    done = call(*fit, "--method", "temperature", "--save", tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    assert "each of 3 folds" in done.stdout
    done = call("report", tmp_path / "three.npz", "-o", tmp_path / "r.html", "--replicates", 20)
    assert done.returncode == 0, done.stderr
    assert "3-fold cross-validation" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="at most 3, the number of clusters; got 5"):
        calibrant.calibrators.select_calibrator(p)


def test_compare_refuses_other_clusters_and_weights() -> None:
    p = sample(40)
    models = {"a": p, "b": Predictions(logits=p.logits, labels=p.labels, clusters=np.arange(40))}
    with pytest.raises(InputError, match="same clusters; got different clusters in 'a' and 'b'"):
        calibrant.compare(models, metrics=["accuracy"], replicates=20)
    models["b"] = Predictions(logits=p.logits, labels=p.labels, weights=np.full(40, 2.0))
    with pytest.raises(InputError, match="must have the same weights"):
        calibrant.compare(models, metrics=["accuracy"], replicates=20)
