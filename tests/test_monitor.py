"""Monitoring: what unlabelled scores tell, the e-process against brute force, hostile states."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, kolmogorov, logit
from scipy.stats import ks_2samp

from calibrant import Confidences, InputError, Predictions, Scores
from calibrant.calibrators import TemperatureScaling
from calibrant.streaming import Monitor
from calibrant.streaming._betting import (
    BETS,
    BIN_EDGES,
    BLOCK_LABELS,
    SHARES,
    EProcess,
    log_factors,
)
from calibrant.streaming._confidence_sums import ConfidenceSums
from tests.command import call
from tests.test_pages import PART

ROOT = Path(__file__).parents[1]


def stream(size: int, seed: int, scale: float = 1.0) -> Confidences:
    """Confidences whose log-odds are ``scale`` times what they should be."""
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 1.5, size)
    return Confidences(confidence=expit(scale * x), correct=rng.random(size) < expit(x))


def logits(size: int, seed: int, scale: float = 1.0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (size, 4))
    return Predictions(logits=scale * z, labels=(z + rng.gumbel(size=z.shape)).argmax(axis=1))


# --- the e-process ----------------------------------------------------------------------------


def factor(bet: Any, c: float, hit: bool, tolerance: float) -> float:
    """What the capital of a bet is multiplied by, in plain probabilities."""
    edges = (0.0, *BIN_EDGES, 1.0)
    if bet.cell is not None and not edges[bet.cell] <= c < edges[bet.cell + 1]:
        return 1.0
    x = float(logit(c))
    up = bet.shift > 0 if bet.scale == 1 else (bet.scale > 1) == (x > 0)
    null = min(c + tolerance, 1.0) if up else max(c - tolerance, 0.0)
    if null in (0.0, 1.0):
        return 1.0
    if bet.scale == 1:
        p = float(expit(logit(null) + bet.shift))
    else:
        p = float(expit(bet.scale * x))
        p = max(p, null) if up else min(p, null)
    return p / null if hit else (1 - p) / (1 - null)


@pytest.mark.parametrize("tolerance", [0.0, 0.03])
def test_the_process_against_loops(tolerance: float) -> None:
    p = stream(600, 0, 1.4)
    process = EProcess(0.05, tolerance)
    process.update(logit(p.confidence), p.correct)
    capital, reserve, path = [0.0] * len(BETS), 1.0, []
    for t, (c, hit) in enumerate(zip(p.confidence, p.correct, strict=True)):
        if t % BLOCK_LABELS == 0:
            j = t // BLOCK_LABELS + 1
            capital = [x + s / (j * (j + 1)) for x, s in zip(capital, SHARES, strict=True)]
            reserve -= 1 / (j * (j + 1))
        found = (factor(bet, c, hit, tolerance) for bet in BETS)
        capital = [x * f for x, f in zip(capital, found, strict=True)]
        path.append(reserve + sum(capital))
    assert process.log_e == pytest.approx(math.log(path[-1]), abs=1e-9)
    assert process.largest == pytest.approx(max(0.0, math.log(max(path))), abs=1e-9)
    reached = [t + 1 for t, e in enumerate(path) if e >= 20]
    assert process.alarm_at == (reached[0] if reached else None)
    assert SHARES.sum() == pytest.approx(1)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.3])
def test_no_bet_gains_where_the_model_is_calibrated(tolerance: float) -> None:
    """The mean factor is 1 under calibration, and at most 1 within the tolerance."""
    c = np.array([0.001, 0.2, 0.5, 0.6, 0.9, 0.97, 0.995, 1 - 1e-12])
    hit, miss = (
        np.exp(log_factors(logit(c), np.full(len(c), right), tolerance)) for right in (True, False)
    )
    for off in (-tolerance, 0.0, tolerance):
        chance = np.clip(c + off, 0, 1)[:, None]
        mean = chance * hit + (1 - chance) * miss
        assert (mean <= 1 + 1e-9).all()
        if tolerance == 0:
            np.testing.assert_allclose(mean, 1, atol=1e-9)


def test_batches_do_not_matter() -> None:
    p = stream(900, 1, 1.2)
    once, often = Monitor(), Monitor()
    once.update(p)
    for start in range(0, 900, 70):
        often.update(p.take(np.arange(start, min(start + 70, 900))))
    for name in ("log_e", "largest"):
        a, b = (getattr(monitor.process, name) for monitor in (once, often))
        assert a == pytest.approx(b, rel=1e-9)
    assert once.process.alarm_at == often.process.alarm_at


def test_false_alarms_at_any_time() -> None:
    """Of 200 calibrated streams watched after every label, at most 5 %: up to 18 by chance."""
    alarms = 0
    for seed in range(200):
        monitor = Monitor()
        monitor.update(stream(800, seed))
        alarms += monitor.report().alarm
    assert alarms <= 18


def test_miscalibration_is_seen_early_and_late() -> None:
    delays = []
    for seed in range(10):
        monitor = Monitor()
        monitor.update(stream(1500, seed, 2.5))
        delays.append(monitor.report().alarm_at)
        assert "overconfident" in monitor.report().leading
    assert np.median(delays) < 150
    monitor = Monitor()
    monitor.update(stream(2000, 3))
    assert not monitor.report().alarm
    monitor.update(stream(1500, 4, 2.5))
    assert 2000 < monitor.report().alarm_at < 2600
    timid = Monitor()
    timid.update(stream(3000, 5, 0.4))
    assert timid.report().leading.startswith("underconfident")


def test_tolerated_miscalibration_raises_no_alarm() -> None:
    rng = np.random.default_rng(0)
    c = rng.uniform(0.6, 0.95, 20_000)
    p = Confidences(confidence=c, correct=rng.random(20_000) < c - 0.03)
    strict, tolerant = Monitor(), Monitor(tolerance=0.04)
    for monitor in (strict, tolerant):
        monitor.update(p)
    assert strict.report().alarm
    assert not tolerant.report().alarm
    assert "miscalibration beyond 4 points" in str(tolerant.report())


def test_certainty_that_is_wrong_refutes() -> None:
    monitor = Monitor()
    monitor.update(Confidences(confidence=[1.0, 1.0, 0.9], correct=[1, 1, 1]))
    assert not monitor.report().alarm
    monitor.update(Confidences(confidence=[0.8, 1.0, 0.9], correct=[1, 0, 1]))
    found = monitor.report()
    assert (found.refuted_at, found.alarm_at, found.e_value) == (5, 5, math.inf)
    assert "confidence was 1 is wrong" in str(found)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["e_value"] == "inf"
    tolerant = Monitor(tolerance=0.05)
    tolerant.update(Confidences(confidence=[1.0] * 40, correct=[1, 0] * 20))
    assert tolerant.report().alarm
    assert tolerant.report().refuted_at is None


# --- without labels ---------------------------------------------------------------------------


def test_expected_accuracy_covers_the_accuracy() -> None:
    """That of the population, also of an overconfident model whose reference has labels."""
    truth, hits = logits(200_000, 0).correct.mean(), 0
    for seed in range(200):
        monitor = Monitor(logits(400, 1000 + seed, 1.3))
        monitor.update(Scores(logits=logits(600, 2000 + seed, 1.3).logits))
        found = monitor.report().expected_accuracy
        hits += found.low <= truth <= found.high
    assert 180 <= hits <= 198


def test_drift_of_confidences() -> None:
    known, same, other = logits(3000, 0), logits(2000, 1), logits(2000, 2, 0.5)
    monitor = Monitor(known)
    monitor.update(Scores(logits=same.logits))
    calm = monitor.report()
    assert calm.drift.low < 0 < calm.drift.high
    assert calm.drift_p_value > 0.05
    gap = same.confidence.mean() - known.confidence.mean()
    assert calm.drift.value == pytest.approx(gap, abs=1e-9)
    spread = same.confidence.var(ddof=1) / 2000 + known.confidence.var(ddof=1) / 3000
    assert calm.drift.high - gap == pytest.approx(1.959964 * math.sqrt(spread), rel=1e-4)
    monitor = Monitor(known)
    monitor.update(Scores(logits=other.logits))
    moved = monitor.report()
    assert moved.drift.high < 0
    assert moved.drift_p_value < 1e-6


def test_kolmogorov_smirnov_against_scipy() -> None:
    a, b = logits(800, 0), logits(700, 1, 0.9)
    sums = []
    for p in (a, b):
        sums.append(ConfidenceSums())
        sums[-1].add(p.confidence, p.odds_against)
    distance, p_value = sums[0].distance(sums[1])
    exact = ks_2samp(a.confidence, b.confidence)
    assert distance == pytest.approx(exact.statistic, abs=0.02)
    assert distance <= exact.statistic + 1e-12  # cells tie samples
    assert p_value == pytest.approx(kolmogorov(math.sqrt(800 * 700 / 1500) * distance))


def test_a_labelled_reference_corrects_the_expectation() -> None:
    """Overconfident all along: accuracy is expected as far below confidence as it was before."""
    known, new = logits(20_000, 0, 2.0), logits(20_000, 1, 2.0)
    alone, told = Monitor(Scores(logits=known.logits)), Monitor(known)
    for monitor in (alone, told):
        monitor.update(Scores(logits=new.logits))
    truth = new.correct.mean()
    assert alone.report().expected_accuracy.low > truth + 0.05
    assert told.report().expected_accuracy.value == pytest.approx(truth, abs=0.01)


def test_clusters_of_the_reference_widen_the_interval() -> None:
    p = logits(300, 0)
    rows = np.repeat(np.arange(300), 5)
    five = p.take(rows)
    clustered = Predictions(logits=five.logits, labels=five.labels, clusters=rows)
    for one, other in ((clustered, p), (five, five)):
        assert Monitor(one).reference.residual_error == pytest.approx(
            Monitor(other).reference.residual_error, rel=0.01
        )


def test_unlabelled_monitors_merge_in_any_order() -> None:
    parts = [Scores(logits=logits(200, seed).logits) for seed in range(4)]
    whole, ahead, back = Monitor(), Monitor(), Monitor()
    for p in parts:
        whole.update(p)
    shards = [Monitor() for _ in parts]
    for shard, p in zip(shards, parts, strict=True):
        shard.update(p)
    for shard, other in zip(shards, shards[::-1], strict=True):
        ahead.merge(shard)
        back.merge(other)
    assert whole.report() == ahead.report() == back.report()
    labelled = Monitor()
    labelled.update(stream(10, 0))
    with pytest.raises(InputError, match="other must have seen no labels; got 10 labels"):
        whole.merge(labelled)
    labelled.merge(whole)
    assert labelled.report().num_samples == 810


def test_labels_that_come_later_count_once() -> None:
    p = logits(500, 0)
    at_once, later = Monitor(), Monitor()
    at_once.update(p)
    later.update(Scores(logits=p.logits))
    assert "No labels yet" in str(later.report())
    later.update(p, counted=True)
    assert at_once.report() == later.report()
    assert at_once.report().accuracy.value == pytest.approx(p.correct.mean())


# --- states and refusals ----------------------------------------------------------------------


def watched() -> Monitor:
    monitor = Monitor(logits(300, 0), alpha=0.1, tolerance=0.01)
    monitor.update(Scores(logits=logits(200, 1).logits))
    monitor.update(logits(400, 2, 3.0))
    return monitor


def test_the_state_survives_the_file(tmp_path: Path) -> None:
    refuted = Monitor(Scores(logits=logits(300, 0).logits))
    refuted.update(Confidences(confidence=[1.0], correct=[0]))
    for number, monitor in enumerate((watched(), Monitor(), refuted)):
        path = tmp_path / f"{number}.json"
        monitor.save(path)
        again = Monitor.load(path)
        assert again.report() == monitor.report()
        for one in (monitor, again):
            one.update(logits(300, 3))
        assert again.report() == monitor.report()


WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("schema",), "calibrant.calibrator"),
    (("version",), 2),
    (("alpha",), 0),
    (("alpha",), None),
    (("tolerance",), 1),
    (("tolerance",), "0"),
    (("labels",), -1),
    (("labels",), 0),
    (("labels",), 4.0),
    (("correct",), 10**9),
    (("log_capital",), []),
    (("log_capital", 0), None),
    (("log_capital", 0), 1e300),
    (("log_capital", 0), "1"),
    (("largest",), None),
    (("largest",), 0.5),
    (("alarm_at",), None),
    (("alarm_at",), 0),
    (("alarm_at",), 10**6),
    (("refuted_at",), 3),
    (("sums",), None),
    (("sums", "count"), 1),
    (("sums", "total"), 1 << 70),
    (("sums", "squares"), 1 << 70),
    (("sums", "cells"), [[0], [1, 2]]),
    (("sums", "cells", 0, 0), 10**9),
    (("sums", "cells", 0, 0), -1),
    (("sums", "cells", 1, 0), 1 << 62),
    (("sums", "cells", 1, 0), True),
    (("reference", "residual"), 7),
    (("reference", "residual_error"), -1),
    (("reference", "confidence_error"), "x"),
    (("reference", "sums", "count"), 0),
    (("reference",), []),
    (("reference",), {}),
    (("more",), 1),
]


def test_hostile_states_are_refused(tmp_path: Path) -> None:
    watched().save(tmp_path / "s.json")
    text = (tmp_path / "s.json").read_text()
    for place, value in WRONG:
        data = json.loads(text)
        part = data
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
        (tmp_path / "bad.json").write_text(json.dumps(data))
        try:
            Monitor.load(tmp_path / "bad.json")
        except InputError as error:
            assert "bad.json" in str(error), (place, value)  # noqa: PT017 - names the case
        else:
            pytest.fail(f"{place} = {value} was taken")
    for broken in (
        "",
        "{",
        "[]",
        "null",
        "\x00",
        "[" * 100_000,
        "1e999",
        text[:200],
        " " * 3_000_000,
    ):
        (tmp_path / "bad.json").write_text(broken)
        with pytest.raises(InputError, match=r"bad\.json"):
            Monitor.load(tmp_path / "bad.json")
    with pytest.raises(FileNotFoundError):
        Monitor.load(tmp_path / "absent.json")


def test_refusals() -> None:
    p = logits(50, 0)
    weighted = Predictions(logits=p.logits, labels=p.labels, weights=np.ones(50))
    for words, refused in {
        "alpha must lie": lambda: Monitor(alpha=2),
        "tolerance must be": lambda: Monitor(tolerance=-0.1),
        "reference must be Scores": lambda: Monitor(p.logits),
        "p must be Scores": lambda: Monitor().update(p.logits),
        "weights cannot be monitored": lambda: Monitor().update(weighted),
        "reference must not have sampling weights": lambda: Monitor(weighted),
        "counted needs labels": lambda: Monitor().update(Scores(logits=p.logits), counted=True),
        "level must lie": lambda: Monitor().report(level=1),
    }.items():
        with pytest.raises(InputError, match=words):
            refused()
    fewer = Scores(logits=p.logits[:, :2])
    other = Monitor()
    other.update(fewer)
    for words, refused in {
        "scores must have 4 classes": lambda: Monitor(p).update(fewer),
        "other must have watched 4 classes": lambda: Monitor(p).merge(other),
    }.items():
        with pytest.raises(InputError, match=words):
            refused()
    assert Monitor().merge(other).num_classes == 2
    Monitor(p).update(Confidences(confidence=[0.9], correct=[True]))  # of any number of classes
    assert "0 samples, 0 labels" in str(Monitor().report())
    single = Monitor(p.take([0]))
    single.update(Scores(logits=p.logits[:1]))
    assert math.isnan(single.report().expected_accuracy.low)
    json.dumps(single.report().to_dict(), allow_nan=False)


# --- the command ------------------------------------------------------------------------------


def test_the_command_goes_on_where_it_stopped(tmp_path: Path) -> None:
    known, first, second = logits(400, 0), logits(300, 1), logits(600, 2, 4.0)
    for name, p in (("ref", known), ("second", second)):
        p.save(tmp_path / f"{name}.npz")
    Scores(logits=first.logits).save(tmp_path / "first.npz")
    state, out = tmp_path / "m.json", []
    start = ("--reference", tmp_path / "ref.npz", "--tolerance", 0.01, "--state", state)
    for arguments in (
        (tmp_path / "first.npz", *start),
        (tmp_path / "second.npz", "--state", state),
    ):
        done = call("monitor", *arguments, "--fail-on-alarm")
        out.append((done.returncode, done.stdout, done.stderr))
    monitor = Monitor(known, tolerance=0.01)
    monitor.update(Scores(logits=first.logits))
    assert out[0] == (0, f"{monitor.report()}\n", "")
    monitor.update(second)
    assert out[1] == (1, f"{monitor.report()}\n", "")
    data = json.loads(call("monitor", "--state", state, "--json").stdout)
    assert data == json.loads(json.dumps(monitor.report().to_dict()))
    late = call("monitor", tmp_path / "second.npz", "--counted", "--json")
    assert json.loads(late.stdout)["num_samples"] == 0


def test_the_command_applies_a_calibrator(tmp_path: Path) -> None:
    p = logits(500, 0, 3.0)
    p.save(tmp_path / "p.npz")
    c = TemperatureScaling().fit(logits(2000, 1, 3.0))
    c.save(tmp_path / "c.json")
    raw, scaled = (
        json.loads(call("monitor", tmp_path / "p.npz", "--json", *more).stdout)
        for more in ((), ("--load", tmp_path / "c.json"))
    )
    assert raw["alarm"]
    assert not scaled["alarm"]
    confidence = c.transform(p).confidence.mean()
    assert scaled["expected_accuracy"]["value"] == pytest.approx(confidence, abs=1e-6)


def test_the_command_refuses(tmp_path: Path) -> None:
    p = logits(50, 0)
    p.save(tmp_path / "p.npz")
    Predictions(logits=p.logits[:, :2], labels=p.labels % 2).save(tmp_path / "two.npz")
    watched().save(tmp_path / "m.json")
    (tmp_path / "bad.json").write_text("{}")
    used = tmp_path / "p.npz"
    for words, arguments in {
        "--reference is set when a monitor starts": (
            "--state",
            tmp_path / "m.json",
            "--reference",
            used,
        ),
        "--alpha is set when a monitor starts": ("--state", tmp_path / "m.json", "--alpha", 0.1),
        "bad.json must be the state of a monitor": (used, "--state", tmp_path / "bad.json"),
        "alpha must lie strictly": (used, "--alpha", 3),
        "scores must have 4 classes, as those before; got 2": (
            tmp_path / "two.npz",
            "--state",
            tmp_path / "m.json",
        ),
        "no such file": (tmp_path / "absent.npz",),
        "FILES or --state must be given; got neither": (),
        "absent.json": (used, "--load", tmp_path / "absent.json"),
    }.items():
        done = call("monitor", *arguments)
        assert done.returncode == 2, words
        assert words in done.stderr.replace("\n", " "), done.stderr


def test_the_tables_are_those_of_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("monitor", None)
    import monitor as script

    found = dict(PART.findall((ROOT / "docs" / "monitor.md").read_text(encoding="utf-8")))
    for name, text in script.blocks().items():
        assert found[name] == text.rstrip(), name
