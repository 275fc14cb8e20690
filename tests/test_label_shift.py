"""Label shift: priors against brute force and closed forms, intervals, the test, the correction."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from calibrant import (
    Confidences,
    InputError,
    Predictions,
    Scores,
    label_shift,
    load,
    load_calibrator,
    metrics,
)
from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.calibrators._ensemble import best_mixture
from calibrant.inference import Resampling
from calibrant.inference._priors import NearbyPriors, bbse_prior, confusion, em_prior
from calibrant.inference._shift_estimators import (
    MaximumLikelihood,
    permutation_test,
    sides_of,
)
from tests.command import call
from tests.test_pages import PART

ROOT = Path(__file__).parents[1]
EVEN = np.full(3, 1 / 3)


def drawn(prior: Any, size: int, seed: int, distance: float = 2.5) -> tuple[Any, Any]:
    """Logits and labels: twice the log-likelihood ratios of normal scores, plus an offset."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(prior), size, p=prior)
    z = rng.normal(size=(size, len(prior)))
    z[np.arange(size), labels] += distance
    return 2 * distance * z + np.linspace(0, 1, len(prior)), labels


def validation(size: int = 600, seed: int = 0, **more: Any) -> Predictions:
    z, labels = drawn(EVEN, size, seed)
    return Predictions(logits=z, labels=labels, **more)


def ratios(k: int, size: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    probs = softmax(rng.normal(0, 2, (size, k)), axis=1)
    return probs / rng.dirichlet(np.full(k, 5.0))


# --- estimators -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_em_of_two_classes_is_the_maximum_likelihood(seed: int) -> None:
    r, weight = ratios(2, 80, seed), np.random.default_rng(seed).integers(1, 4, 80) * 1.0

    def loss(q: float) -> float:
        return -float(weight @ np.log(r @ [1 - q, q]))

    want = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
    got = em_prior(r, weight, np.array([0.5, 0.5]))
    assert got[1] == pytest.approx(want.x, abs=1e-6)


@pytest.mark.parametrize(("k", "size"), [(3, 100), (5, 300), (8, 60)])
def test_em_is_the_optimum_on_the_simplex(k: int, size: int) -> None:
    r, weight = ratios(k, size, k), np.ones(size)
    got = em_prior(r, weight, np.full(k, 1 / k))
    slope = (weight / size / (r @ got)) @ r  # at the optimum 1 where q > 0, else at most 1
    assert slope.max() < 1 + 1e-6
    np.testing.assert_allclose(slope[got > 1e-6], 1, atol=1e-6)
    np.testing.assert_allclose(got, best_mixture(r.T, weight / size), atol=1e-6)
    found = minimize(
        lambda q: -np.log(r @ q).mean(),
        np.full(k, 1 / k),
        bounds=[(0, 1)] * k,
        constraints=LinearConstraint(np.ones((1, k)), 1, 1),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(got, found.x, atol=1e-4)


def test_replicates_find_the_prior_of_em() -> None:
    rng = np.random.default_rng(0)
    for k, size in ((2, 60), (4, 200), (10, 400)):
        r = ratios(k, size, k)
        nearby = NearbyPriors(r, np.ones(size), em_prior(r, np.ones(size), np.full(k, 1 / k)))
        for _ in range(5):
            weight = np.bincount(rng.integers(0, size, size), minlength=size) * 1.0
            want = em_prior(r, weight, np.full(k, 1 / k))
            np.testing.assert_allclose(nearby.of(r, weight), want, atol=1e-4)


def test_bbse_of_two_classes_by_hand() -> None:
    # 80 % of class 0 and 90 % of class 1 are recognised; 30 % of the target is called class 1.
    joint = np.array([[0.4, 0.05], [0.1, 0.45]])
    share = (0.3 - 0.2) / (0.9 - 0.2)  # 0.2 (1 - q) + 0.9 q = 0.3
    np.testing.assert_allclose(bbse_prior(joint, np.array([0.7, 0.3])), [1 - share, share])
    # Fewer than class 0 alone would give: the negative frequency is set to 0.
    np.testing.assert_allclose(bbse_prior(joint, np.array([0.9, 0.1])), [1, 0])
    got = confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), np.array([1.0, 2.0, 1.0]), 2)
    np.testing.assert_allclose(got, [[0.25, 0], [0.25, 0.5]])


def test_bias_corrected_temperature_is_the_optimum() -> None:
    z, labels = drawn([0.6, 0.3, 0.1], 200, 5)
    weight = np.random.default_rng(0).gamma(2, size=200)
    c = BiasCorrectedTemperature().fit(Predictions(logits=z, labels=labels), weights=weight)
    beta = _best_scale(z, labels, weight)
    held = 1e-3 * 3 / weight.sum()

    def loss(theta: Any) -> float:
        log_probs = log_softmax(z * beta * (1 + theta[0]) + theta[1:], axis=1)
        nll = -(weight @ log_probs[np.arange(200), labels]) / weight.sum()
        return float(nll + held * (theta @ theta))

    want = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    assert c.scale_ == pytest.approx(beta * (1 + want[0]), rel=1e-5)
    np.testing.assert_allclose(c.bias_, want[1:], atol=1e-5)


def _best_scale(z: Any, labels: Any, weight: Any) -> float:
    def loss(beta: float) -> float:
        return -float(weight @ log_softmax(beta * z, axis=1)[np.arange(len(z)), labels])

    found = minimize_scalar(loss, bounds=(1e-3, 2), method="bounded", options={"xatol": 1e-10})
    return float(found.x)


def test_its_mean_probabilities_are_the_class_frequencies() -> None:
    p = validation(400, 3)
    mean = BiasCorrectedTemperature().fit(p).transform(p).probs.mean(axis=0)
    np.testing.assert_allclose(mean, np.bincount(p.labels) / 400, atol=1e-4)


# --- the whole --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["em", "bbse"])
def test_known_priors_are_found_and_corrected_for(method: Any) -> None:
    prior = np.array([0.8, 0.15, 0.05])
    z, labels = drawn(prior, 2000, 1)
    found = label_shift(validation(2000), Scores(logits=z), method=method, replicates=100)
    assert ((found.low <= prior) & (prior <= found.high)).all()
    assert (found.high - found.low < 0.07).all()
    assert found.p_value < 0.02
    np.testing.assert_allclose(found.source_prior, EVEN, atol=0.04)
    truth = Predictions(logits=z, labels=labels)
    best = Predictions(logits=z / 2 - np.linspace(0, 0.5, 3) + np.log(prior), labels=labels)
    plain = BiasCorrectedTemperature().fit(validation(2000)).transform(truth)
    corrected = metrics.nll(found.calibrator.transform(truth))
    assert corrected < metrics.nll(plain) - 0.02
    assert corrected == pytest.approx(metrics.nll(best), rel=0.02)


def test_correction_is_the_rule_of_bayes() -> None:
    p, (z, _) = validation(), drawn([0.7, 0.2, 0.1], 300, 2)
    found = label_shift(p, Scores(logits=z), replicates=20)
    plain = BiasCorrectedTemperature().fit(p).transform(Scores(logits=z)).probs
    prior = found.shrinkage * found.source_prior + (1 - found.shrinkage) * found.prior
    odds = plain * prior / found.source_prior
    assert 1 / 301 <= found.shrinkage < 0.2
    want = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.calibrator.transform(Scores(logits=z)).probs, want, atol=1e-12)


def test_a_class_that_is_gone_stays_possible() -> None:
    z, _ = drawn([0.5, 0.5, 0.0], 400, 4)
    found = label_shift(validation(), Scores(logits=z), replicates=50)
    assert found.prior[2] < 0.02
    assert found.low[2] < 1e-3
    assert np.isfinite(found.calibrator.bias_).all()
    assert (found.calibrator.transform(Scores(logits=z)).probs > 0).all()


def test_replicates_refit_the_calibrator() -> None:
    """One Newton step and the prior in full, beside a whole new fit."""
    p, (z, _) = validation(800), drawn([0.6, 0.3, 0.1], 500, 6)
    target = Scores(logits=z)
    work = MaximumLikelihood(p, target, sides_of(p, target, None))
    rng = np.random.default_rng(0)
    shifts, errors = [], []
    for _ in range(5):
        first, second = (np.bincount(rng.integers(0, n, n), minlength=n) * 1.0 for n in (800, 500))
        c = BiasCorrectedTemperature().fit(p, weights=first)
        source = first @ c.transform(p).probs / first.sum()
        want = em_prior(c.transform(target).probs / source, second, EVEN)
        errors.append(np.abs(work.prior_of(first, second) - want).max())
        shifts.append(np.abs(want - work.prior).max())
    assert max(errors) < 0.1 * np.mean(shifts)


def test_labels_of_the_target_are_not_looked_at() -> None:
    p, (z, labels) = validation(), drawn([0.7, 0.2, 0.1], 200, 2)
    a = label_shift(p, Scores(logits=z), replicates=20)
    b = label_shift(p, Predictions(logits=z, labels=labels), replicates=20)
    assert a.to_dict() == b.to_dict()


@pytest.mark.parametrize("method", ["em", "bbse"])
def test_weights_are_repetitions(method: Any) -> None:
    p, (z, labels) = validation(300), drawn([0.7, 0.2, 0.1], 200, 2)
    times, often = np.tile([1, 2], 150), np.tile([2, 1], 100)
    weighted = label_shift(
        Predictions(logits=p.logits, labels=p.labels, weights=times * 1.0),
        Predictions(logits=z, labels=labels, weights=often * 1.0),
        method=method,
        replicates=20,
    )
    repeated = label_shift(
        p.take(np.repeat(np.arange(300), times)),
        Scores(logits=np.repeat(z, often, axis=0)),
        method=method,
        replicates=20,
    )
    np.testing.assert_allclose(weighted.prior, repeated.prior, atol=1e-4)
    assert weighted.statistic * 1.5 == pytest.approx(repeated.statistic)  # weights have mean 1


def test_clusters_widen_intervals_and_calm_the_test() -> None:
    """Every sample four times: as clusters they tell no more than once."""
    p, (z, _) = validation(150), drawn([0.38, 0.33, 0.29], 150, 8)
    target = Scores(logits=np.repeat(z, 4, axis=0))
    four, unit = p.take(np.repeat(np.arange(150), 4)), np.repeat(np.arange(150), 4)
    clustered = Predictions(logits=four.logits, labels=four.labels, clusters=unit)
    once = label_shift(p, Scores(logits=z), replicates=200)
    alone = label_shift(four, target, replicates=200)
    together = label_shift(clustered, target, clusters=unit, replicates=200)
    width = [np.mean(found.high - found.low) for found in (once, alone, together)]
    assert width[1] / width[0] == pytest.approx(0.5, abs=0.1)
    assert width[2] / width[0] == pytest.approx(1.0, abs=0.15)
    assert together.p_value == pytest.approx(once.p_value, abs=0.1)
    assert alone.p_value < together.p_value


# --- the test ---------------------------------------------------------------------------------


def permuted(p: Predictions, target: Scores, number: int, clusters: Any = None) -> tuple[Any, Any]:
    sides = sides_of(p, target, clusters)
    return permutation_test(p, target, sides, Resampling(replicates=number))


def test_permutations_against_enumeration() -> None:
    """All 70 divisions of eight samples into four and four."""
    z, labels = drawn(EVEN, 8, 11)
    found = permuted(Predictions(logits=z[:4], labels=labels[:4]), Scores(logits=z[4:]), 5000)
    probs = softmax(z, axis=1)

    def pearson(chosen: tuple[int, ...]) -> float:
        rest = [i for i in range(8) if i not in chosen]
        gap = probs[list(chosen)].mean(axis=0) - probs[rest].mean(axis=0)
        return float((gap**2 / probs.mean(axis=0)).sum() * 4 * 4 / 8)

    every = [pearson(chosen) for chosen in itertools.combinations(range(8), 4)]
    assert found[0] == pytest.approx(pearson((0, 1, 2, 3)))
    share = np.mean(np.array(every) >= found[0] - 1e-12)
    assert found[1] == pytest.approx(share, abs=0.03)


def test_alarms_where_nothing_moved() -> None:
    """At most 5 % of data sets, and of clustered ones: 200 each, so up to 18 by chance."""
    for of in (1, 5):
        alarms = 0
        for seed in range(200):
            rng = np.random.default_rng((seed, of))
            labels = np.repeat(rng.integers(0, 2, 40), of)
            z = np.repeat(rng.normal(size=(40, 2)), of, axis=0)
            z[np.arange(40 * of), labels] += 2
            half, unit = 20 * of, np.repeat(np.arange(20), of)
            clusters = unit if of > 1 else None
            p = Predictions(logits=z[:half], labels=labels[:half], clusters=clusters)
            alarms += permuted(p, Scores(logits=z[half:]), 39, clusters)[1] <= 0.05
        assert alarms <= 18


def test_other_changes_are_told_from_class_frequencies() -> None:
    p, (z, _) = validation(1000), drawn([0.7, 0.2, 0.1], 1000, 2)
    held = label_shift(p, Scores(logits=z), replicates=50)
    assert held.assumption_p_value > 0.05
    assert "Class frequencies alone" not in str(held)
    broken = label_shift(p, Scores(logits=z / 2), replicates=50)  # scores are not what they were
    assert broken.assumption_p_value < 0.001
    assert broken.unexplained < -0.02
    assert "Class frequencies alone do not explain the mean confidence" in str(broken)


def test_the_unexplained_gap_by_hand() -> None:
    p, (z, _) = validation(200), drawn([0.7, 0.2, 0.1], 100, 2)
    found = label_shift(p, Scores(logits=z), replicates=20)
    plain = BiasCorrectedTemperature().fit(p)
    known = sum(
        found.prior[k] * plain.transform(p.take(p.labels == k)).confidence.mean() for k in range(3)
    )
    want = plain.transform(Scores(logits=z)).confidence.mean() - known
    assert found.unexplained == pytest.approx(want, abs=1e-9)


# --- texts, files, refusals -------------------------------------------------------------------


def test_text_and_data() -> None:
    p = validation(classes=["cat", "dog", "owl"])
    z, _ = drawn([0.7, 0.2, 0.1], 200, 2)
    found = label_shift(p, Scores(logits=z), replicates=20)
    assert "600 samples for validation, 200 samples in the target, 3 classes" in str(found)
    assert "differ from those of the validation samples: p = 0.048." in str(found)
    assert "cat" in str(found)
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [row["name"] for row in data["classes"]] == ["cat", "dog", "owl"]
    assert sum(row["target"] for row in data["classes"]) == pytest.approx(1)
    same, _ = drawn(EVEN, 200, 9)
    assert "No significant change of the class frequencies" in str(
        label_shift(p, Scores(logits=same), replicates=20)
    )


def test_text_of_many_classes_is_short() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 40
    z = rng.normal(size=(400, 40)) + 3 * np.eye(40)[labels]
    found = label_shift(Predictions(logits=z, labels=labels), Scores(logits=z), replicates=20)
    assert "20 more classes" in str(found)


def test_the_calibrator_is_saved_and_exported(tmp_path: Path) -> None:
    import onnxruntime

    z, _ = drawn([0.7, 0.2, 0.1], 200, 2)
    z = z.astype(np.float32)
    c = label_shift(validation(), Scores(logits=z), replicates=20).calibrator
    want = c.transform(Scores(logits=z)).probs
    c.save(tmp_path / "c.json")
    got = load_calibrator(tmp_path / "c.json").transform(Scores(logits=z)).probs
    np.testing.assert_array_equal(got, want)
    c.to_onnx(tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    np.testing.assert_allclose(session.run(None, {"logits": z})[0], want, atol=1e-5)


@pytest.mark.parametrize("kind", ["probs", "-inf", "float32"])
def test_any_scores(kind: str) -> None:
    z, labels = drawn(EVEN, 400, 1)
    u, _ = drawn([0.7, 0.2, 0.1], 300, 2)
    if kind == "probs":
        p = Predictions(probs=softmax(z, axis=1), labels=labels)
        target = Scores(probs=softmax(u, axis=1))
    elif kind == "-inf":
        z[np.arange(400), (labels + 1) % 3] = -np.inf
        u[:100, 2] = -np.inf
        p, target = Predictions(logits=z, labels=labels), Scores(logits=u)
    else:
        p = Predictions(logits=z.astype(np.float32), labels=labels)
        target = Scores(logits=u.astype(np.float32))
    found = label_shift(p, target, replicates=20)
    assert found.prior.sum() == pytest.approx(1)
    assert (found.low <= found.high).all()


def test_refusals() -> None:
    p, (z, _) = validation(), drawn(EVEN, 50, 2)
    target = Scores(logits=z)
    unit = np.arange(600) % 60
    clustered = Predictions(logits=p.logits, labels=p.labels, clusters=unit)
    blind = Predictions(logits=p.logits + [90, 0, 0], labels=p.labels)
    for words, refused in {
        "p must be Predictions": lambda: label_shift(target, target),  # type: ignore[arg-type]
        "must be Scores": lambda: label_shift(p, z),
        "target must have 3 classes": lambda: label_shift(p, Scores(logits=z[:, :2])),
        "method must be 'em' or 'bbse'": lambda: label_shift(p, target, method="mle"),  # type: ignore[arg-type]
        "no sample of class 2": lambda: label_shift(p.take(p.labels < 2), target),
        "those of validation alone": lambda: label_shift(clustered, target),
        "those of the target alone": lambda: label_shift(p, target, clusters=np.arange(50)),
        "clusters must have shape": lambda: label_shift(clustered, target, clusters=[1, 2]),
        "target must have at least two samples": lambda: label_shift(p, Scores(logits=z[:1])),
        "invertible": lambda: label_shift(blind, target, method="bbse"),
        "level must lie": lambda: label_shift(p, target, level=2),
        "replicates must be": lambda: label_shift(p, target, replicates=2),
    }.items():
        with pytest.raises(InputError, match=words):
            refused()


def test_the_tables_are_those_of_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("label_shift", None)
    import label_shift as script

    found = dict(PART.findall((ROOT / "docs" / "shift.md").read_text(encoding="utf-8")))
    for name, text in script.blocks().items():
        assert found[name] == text.rstrip(), name


# --- the command ------------------------------------------------------------------------------


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    validation(classes=["cat", "dog", "owl"]).save(tmp_path / "val.npz")
    z, _ = drawn([0.7, 0.2, 0.1], 200, 2)
    Scores(logits=z, classes=["cat", "dog", "owl"]).save(tmp_path / "use.npz")
    return tmp_path


def test_the_command(folder: Path) -> None:
    files = [str(folder / name) for name in ("val.npz", "use.npz", "out.npz", "c.json", "c.onnx")]
    outputs = ("--out", files[2], "--save", files[3], "--onnx", files[4])
    done = call("shift", *files[:2], "--replicates", "50", *outputs)
    assert done.returncode == 0, done.stderr
    p, target = Predictions.load(files[0]), load(files[1])
    found = label_shift(p, target, replicates=50)
    assert done.stdout.startswith(str(found))
    assert "Written:" in done.stdout
    want = found.calibrator.transform(target)
    for got in (load(files[2]), load_calibrator(files[3]).transform(target)):
        assert got.classes == ("cat", "dog", "owl")
        np.testing.assert_array_equal(got.scores, want.scores)
    data = json.loads(call("shift", *files[:2], "--replicates", "50", "--json").stdout)
    assert data == {"written": [], **found.to_dict()}
    assert "bbse" in call("shift", *files[:2], "--method", "bbse", "--json").stdout
    for ending in ("npz", "csv"):  # labels of the target are not looked at
        told = folder / f"told.{ending}"
        labels = np.arange(200) % 3
        Predictions(logits=target.logits, labels=labels, classes=p.classes).save(told)
        again = json.loads(call("shift", files[0], told, "--replicates", "50", "--json").stdout)
        assert again["classes"] == data["classes"]


def test_the_command_reads_clusters_of_both_files(folder: Path) -> None:
    z, labels = drawn(EVEN, 120, 1)
    unit = np.repeat(np.arange(40), 3)
    for name, told in (("val.csv", True), ("use.csv", False)):
        head = "who,prob_a,prob_b,prob_c" + (",truth" if told else "")
        probs = softmax(z / 4 if told else z[::-1] / 4, axis=1)
        lines = [
            ",".join([f"u{u}", *map(repr, row.tolist())] + ([str(y)] if told else []))
            for u, row, y in zip(unit, probs, labels, strict=True)
        ]
        (folder / name).write_text("\n".join([head, *lines]) + "\n")
    options = ("--cluster-column", "who", "--label-column", "truth", "--replicates", "20")
    done = call("shift", folder / "val.csv", folder / "use.csv", *options)
    assert done.returncode == 0, done.stderr
    alone = call("shift", folder / "val.csv", folder / "use.csv", *options[2:])
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout != done.stdout


def test_the_command_refuses(folder: Path) -> None:
    val, use = folder / "val.npz", folder / "use.npz"
    Confidences(confidence=[0.5, 0.6], correct=[0, 1]).save(folder / "c.npz")
    for words, arguments in {
        "must hold labels": (use, use),
        "no such file": (val, folder / "absent.npz"),
        "got confidences": (folder / "c.npz", use),
        "must hold logits": (val, folder / "c.npz"),
        "save must end in .json": (val, use, "--save", folder / "c.txt"),
        "must not be an input": (val, use, "--out", use),
        "replicates must be": (val, use, "--replicates", 3, "--out", folder / "o.npz"),
    }.items():
        done = call("shift", *arguments)
        assert done.returncode == 2, words
        assert words in done.stderr.replace("\n", " "), done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["c.npz", "use.npz", "val.npz"]
