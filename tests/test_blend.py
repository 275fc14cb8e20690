"""The log-linear pool of calibrators: against brute force, in the selection, and at its edges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from calibrant import Confidences, InputError, Predictions, metrics
from calibrant._core.arrays import fold_numbers
from calibrant.calibrators import (
    CALIBRATORS,
    Beta,
    Blend,
    Calibrator,
    EnsembleTemperature,
    HistogramBinning,
    Isotonic,
    OrderPreserving,
    Platt,
    Spline,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    automatic,
    load_calibrator,
    out_of_fold,
    select_calibrator,
)

PRIOR = 10.0
SETS: dict[str, list[Calibrator]] = {
    "two": [TemperatureScaling(), Spline()],
    "scalings": [TemperatureScaling(), VectorScaling(strength=0.1), StructuredVectorScaling()],
    "steady": [Platt(), OrderPreserving(), TemperatureScaling()],
    "probabilities": [EnsembleTemperature(), Beta(), HistogramBinning(target="class"), Isotonic()],
}
# The weights of each set that a penalty draws to.
CENTRES = {
    "two": [1, 0],
    "scalings": [1, 0, 0],
    "steady": [0, 0.5, 0.5],
    "probabilities": [0.25] * 4,
}


def bent(size: int, classes: int, seed: int, *, own: bool = True) -> Predictions:
    """Classes of unequal scale and curved confidence: several methods have something to add.

    Each sample is a cluster of its own, so that the folds are known.
    """
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (size, classes))
    truth = z * np.linspace(0.3, 0.9, classes) + np.linspace(0, 1, classes) - 0.02 * z**2
    labels = (truth + rng.gumbel(size=z.shape)).argmax(axis=1)
    clusters = np.arange(size) if own else None
    return Predictions(logits=z, labels=labels, clusters=clusters)


def losses(w: Any, logs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """NLL of each sample, term by term from the definition."""
    z = sum(weight * log for weight, log in zip(w, logs, strict=True))
    return logsumexp(z, axis=1) - z[np.arange(len(labels)), labels]


def objective(
    w: Any, logs: np.ndarray, labels: np.ndarray, centre: Any, counts: Any = 1.0
) -> float:
    total = (counts * losses(w, logs, labels)).sum()
    return float(total + PRIOR / 2 * ((np.asarray(w) - np.asarray(centre)) ** 2).sum())


def optimum(
    logs: np.ndarray, labels: np.ndarray, centre: Any = None, counts: Any = 1.0
) -> np.ndarray:
    """SciPy's, from two starts, without derivatives of ours; by default drawn to equal weights."""
    if centre is None:
        centre = np.full(len(logs), 1 / len(logs))
    size = len(logs)
    found = [
        minimize(
            objective,
            start,
            args=(logs, labels, centre, counts),
            bounds=[(0, None)] * size,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-7, "maxiter": 1000},
        )
        for start in (np.full(size, 0.1), np.full(size, 1.0))
    ]
    return min(found, key=lambda result: result.fun).x


def held_out(members: list[Calibrator], p: Predictions, fold: np.ndarray) -> np.ndarray:
    """Log-probabilities from fits to the other folds, hyperparameters from a fit to all."""
    out = np.empty((len(members), *p.scores.shape))
    for log, member in zip(out, members, strict=True):
        settled = member.clone().fit(p).settled()
        for number in np.unique(fold):
            held = fold == number
            probs = settled.clone().fit(p.take(~held)).transform(p.take(held)).probs
            log[held] = np.log(np.maximum(np.asarray(probs, dtype=np.float64), 1e-300))
    return out


@pytest.mark.parametrize("members", SETS)
def test_weights_are_the_optimum_of_the_pool(members: str) -> None:
    p = bent(240, 4, 1)
    c = Blend([m.clone() for m in SETS[members]], folds=4, seed=3).fit(p)
    fold = fold_numbers(p.num_samples, 4, 3, p.belonging.codes)
    logs = held_out(SETS[members], p, fold)
    centre = CENTRES[members]
    want = optimum(logs, p.labels, centre)
    least = objective(want, logs, p.labels, centre)
    assert objective(c.weights_, logs, p.labels, centre) <= least + 1e-9
    np.testing.assert_allclose(c.weights_, want, atol=2e-4)
    if members == "two":
        grid = np.linspace(0, 1.5, 31)
        values = [(objective((a, b), logs, p.labels, centre), a, b) for a in grid for b in grid]
        np.testing.assert_allclose(c.weights_, min(values)[1:], atol=0.05)
    # The map is the pool of the members fitted to all samples.
    new = bent(50, 4, 2)
    parts = [np.asarray(m.clone().fit(p).transform(new).log_probs) for m in SETS[members]]
    z = np.tensordot(c.weights_, np.array(parts), 1)
    expected = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    np.testing.assert_allclose(c.transform(new).probs, expected, atol=1e-7)


def test_sampling_weights_reach_the_pool() -> None:
    p, counts = bent(200, 3, 4), np.random.default_rng(0).integers(1, 4, 200).astype(float)
    members = [TemperatureScaling(), Platt()]
    c = Blend(members, folds=4).fit(p, weights=counts)
    fold, logs = fold_numbers(200, 4, 0, p.belonging.codes), []
    for member in members:
        log = np.empty(p.scores.shape)
        for number in range(4):
            held = fold == number
            fitted = member.clone().fit(p.take(~held), weights=counts[~held])
            log[held] = np.log(fitted.transform(p.take(held)).probs)
        logs.append(log)
    want = optimum(np.array(logs), p.labels, [1, 0], counts)
    np.testing.assert_allclose(c.weights_, want, atol=2e-4)


@dataclass(eq=False, repr=False)
class Mistaken(Calibrator):
    """A member that mistakes each class for the next."""

    learned: ClassVar = {}

    def _learn(self, p: Predictions, weights: Any) -> None: ...

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return ops.matmul(ops.lift(z), np.roll(np.eye(4), 1, axis=0))


def test_a_member_that_does_not_pay_costs_nothing() -> None:
    p = bent(600, 4, 5)
    c = Blend([TemperatureScaling(), Mistaken(), VectorScaling(strength=1.0)]).fit(p)
    assert c.weights_[1] == 0
    assert (c.weights_[[0, 2]] > 0).all()
    alone = TemperatureScaling().fit(p).num_parameters() + c.members_[2].num_parameters()
    assert c.num_parameters() == alone + 2
    assert [k for k, _ in c.used()] == [0, 2]
    only = Blend([Mistaken(), Mistaken()]).fit(p)  # nothing is known of the classes then
    np.testing.assert_array_equal(only.weights_, 0)
    np.testing.assert_allclose(only.transform(p).probs, 0.25, atol=1e-12)


def test_few_samples_leave_equal_weights() -> None:
    one = Predictions(logits=[[2.0, 0.0, 1.0]], labels=[1])
    np.testing.assert_array_equal(Blend(["platt", "beta"]).fit(one).weights_, 0.5)
    p = bent(40, 3, 6)
    c = Blend(["platt", TemperatureScaling(temperature=1.0)]).fit(p)
    assert np.abs(c.weights_ - 0.5).max() < 0.5


def test_default_members_depend_on_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    p = bent(60, 3, 7)
    kinds = [
        "TemperatureScaling",
        "OrderPreserving",
        "StructuredVectorScaling",
        "StructuredMatrixScaling",
        "Spline",
    ]
    assert [type(m).__name__ for m in Blend(folds=2).fit(p).members_] == kinds
    wide = Predictions(logits=np.tile(p.logits, (1, 70)), labels=p.labels)
    kinds.remove("StructuredMatrixScaling")
    assert [type(m).__name__ for m in Blend(folds=2).fit(wide).members_] == kinds


def test_clusters_are_never_divided() -> None:
    seen: list[set[int]] = []

    class Spy(TemperatureScaling):
        def _learn(self, p: Predictions, weights: Any) -> None:
            seen.append(set(p.clusters.tolist()))
            super()._learn(p, weights)

    p = bent(120, 3, 8)
    p = Predictions(logits=p.logits, labels=p.labels, clusters=np.arange(120) // 4)
    Blend([Spy(), "platt"], folds=5).fit(p)
    whole = set(range(30))
    assert seen[0] == whole
    held = [whole - part for part in seen[1:]]
    assert sorted(map(len, held)) == [6] * 5
    assert set().union(*held) == whole


def test_confidences_are_pooled_as_log_odds() -> None:
    rng = np.random.default_rng(9)
    confidence = rng.uniform(0.3, 1, 300)
    correct = rng.random(300) < confidence**2
    c = Confidences(confidence=confidence, correct=correct, clusters=np.arange(300))
    members = [TemperatureScaling(), Platt(), Isotonic()]
    blend = Blend([m.clone() for m in members], folds=4).fit(c)
    fold = fold_numbers(300, 4, 0, c.belonging.codes)
    logs = np.empty((3, 300, 2))
    for log, member in zip(logs, members, strict=True):
        for number in range(4):
            held = fold == number
            q = member.clone().fit(c.take(~held)).predict_proba(confidence[held])
            log[held] = np.log(np.stack([1 - q, q], axis=1))
    np.testing.assert_allclose(blend.weights_, optimum(logs, correct.astype(int)), atol=2e-4)
    odds = 0
    for w, member in zip(blend.weights_, members, strict=True):
        q = member.clone().fit(c).predict_proba(confidence)
        odds = odds + w * np.log(q / (1 - q))
    np.testing.assert_allclose(blend.predict_proba(confidence), 1 / (1 + np.exp(-odds)), atol=1e-9)


def test_confidences_survive_the_file(tmp_path: Path) -> None:
    c = Confidences(confidence=np.linspace(0.1, 0.9, 60), correct=np.arange(60) % 3 > 0)
    blend = Blend().fit(c)
    blend.save(tmp_path / "b.json")
    again = load_calibrator(tmp_path / "b.json")
    np.testing.assert_array_equal(again.transform(c).confidence, blend.transform(c).confidence)
    with pytest.raises(InputError, match="VectorScaling"):
        Blend(["temperature", "vector"]).fit(c)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights_", [0.5]),
        ("weights_", [0.5, -0.1]),
        ("members_", []),
        ("members_", 3),
    ],
)
def test_hostile_files_are_refused(name: str, value: object, tmp_path: Path) -> None:
    import json

    Blend(["temperature", "platt"]).fit(bent(60, 3, 10)).save(tmp_path / "b.json")
    data = json.loads((tmp_path / "b.json").read_text())
    data["calibrator"]["learned"][name] = value
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"b\.json"):
        load_calibrator(tmp_path / "b.json")


# --- in the selection -------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["nll", "brier"])
def test_the_blend_is_judged_with_weights_of_the_other_folds(criterion: str) -> None:
    p = bent(300, 4, 11, own=False)
    names = ["temperature", "platt", "beta"]
    found = select_calibrator(p, [*names, "blend"], criterion=criterion, folds=4, seed=2)
    rows = {c.name: c for c in found.candidates}
    fold = fold_numbers(300, 4, 2)
    members = [CALIBRATORS[name]() for name in names]
    logs = held_out(members, p, fold)
    weights = optimum(logs, p.labels, [1, 0, 0])
    blend = rows["blend"].calibrator
    assert isinstance(blend, Blend)
    np.testing.assert_allclose(blend.weights_, weights, atol=2e-4)
    probs = np.empty(p.scores.shape)
    for number in range(4):
        held = fold == number
        w = optimum(logs[:, ~held], p.labels[~held], [1, 0, 0])
        z = np.tensordot(w, logs[:, held], 1)
        probs[held] = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    pooled = Predictions(probs=probs, labels=p.labels)
    want = metrics.nll(pooled) if criterion == "nll" else metrics.brier(pooled)
    assert rows["blend"].loss == pytest.approx(want, abs=1e-6)
    used = [member.num_parameters() for _, member in blend.used()]
    assert len(used) == (weights > 0).sum()
    assert rows["blend"].parameters == len(used) + sum(used)
    assert f"weights {weights[0]:.2f} temperature" in rows["blend"].verdict
    parts = [np.asarray(m.fit(p).transform(p).log_probs) for m in members]
    z = np.tensordot(weights, np.array(parts), 1)
    expected = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    np.testing.assert_allclose(blend.transform(p).probs, expected, atol=1e-4)


def test_auto_takes_the_blend_where_it_is_clearly_better() -> None:
    rng = np.random.default_rng(12)
    z = rng.normal(0, 2, (1500, 4))
    # Sure only where it is very sure, and unequal classes: a curve and a vector, neither alone.
    margin = np.sort(z, axis=1)[:, -1:] - np.sort(z, axis=1)[:, -2:-1]
    truth = z * np.array([0.4, 0.8, 1.0, 1.4]) * np.where(margin > 2, 1.5, 0.2)
    labels = (truth + rng.gumbel(size=z.shape)).argmax(axis=1)
    found = automatic(Predictions(logits=2 * z, labels=labels))
    assert found.chosen == "blend"
    rows = {c.name: c for c in found.candidates}
    members = [type(m).__name__ for m in found.calibrator.members_]
    assert len(members) == 5
    assert rows["temperature"].behind > rows["temperature"].error
    assert "more stable" not in rows["blend"].verdict


def calibrated_model(size: int, seed: int, *, too_sure: float = 1.0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, (size, 3))
    return Predictions(logits=too_sure * z, labels=(z + rng.gumbel(size=z.shape)).argmax(axis=1))


def test_few_samples_get_a_steady_choice() -> None:
    """Which single method looks best is chance; the choice needs no evidence but a lower loss."""
    p = calibrated_model(150, 4, too_sure=2)
    found = automatic(p)
    rows = {c.name: c for c in found.candidates}
    assert found.chosen == "blend"
    assert min(c.loss for c in found.candidates) < rows["blend"].loss
    assert rows["blend"].verdict.startswith("chosen: more stable than a single method; weights")
    assert {c.verdict.split(";")[0] for c in found.candidates} <= {
        rows["blend"].verdict.split(";")[0],
        "not chosen alone: a member of the blend",
        "rejected: worse",
        "rejected: as good, but a single method is less stable",
        "rejected: lower on these samples, but a single method is less stable",
    }
    lowest = select_calibrator(p, standard_errors=0)
    assert lowest.chosen != "blend"  # 0 prefers nothing


def test_a_temperature_is_enough_where_the_blend_gains_next_to_nothing() -> None:
    p = calibrated_model(150, 1, too_sure=1.1)
    found = automatic(p)
    rows = {c.name: c for c in found.candidates}
    gain = rows["none"].loss - rows["temperature"].loss
    assert 0 < p.num_samples * gain < np.log(20)  # lower, but no evidence that would convince alone
    assert found.chosen == "temperature"
    assert found.reason == "as good as the blend to within 0.001, and simpler"
    assert rows["none"].verdict in ("rejected: worse", "rejected: not shown to be as good")


def test_a_model_stays_as_it_is_where_a_temperature_gains_nothing() -> None:
    found = automatic(calibrated_model(150, 0, too_sure=1.1))
    rows = {c.name: c for c in found.candidates}
    assert rows["temperature"].loss > rows["none"].loss
    assert found.chosen == "none"
    assert found.reason == "these samples do not show that calibration helps"


def test_a_model_stays_as_it_is_where_that_is_shown_to_do_no_harm() -> None:
    """Of the same model: 1,000 samples cannot show it, 8,000 can, though a temperature gains."""
    p = calibrated_model(8000, 4, too_sure=1.03)
    assert automatic(p.take(np.arange(1000))).chosen == "temperature"
    found = automatic(p)
    rows = {c.name: c for c in found.candidates}
    assert 0 < rows["none"].loss - rows["temperature"].loss < 0.001
    assert found.chosen == "none"


def test_few_mistakes_ask_for_evidence() -> None:
    """A mistake more or less decides; clusters of samples that err together are one mistake."""
    rng = np.random.default_rng(3)
    labels = rng.integers(3, size=120)
    z = rng.normal(0, 1, (120, 3)) + 6 * np.eye(3)[labels]
    wrong = np.arange(8)
    z[wrong] = 4 * np.eye(3)[(labels[wrong] + 1) % 3] + rng.normal(0, 1, (8, 3))
    keep = {count: np.r_[wrong[:count], 8:120] for count in (4, 8)}
    few, more = (Predictions(logits=z[k], labels=labels[k]) for k in keep.values())
    assert few.num_samples - few.correct.sum() == 4
    chosen = [automatic(p).chosen for p in (few, more)]
    assert chosen == ["none", "blend"]
    clusters = np.maximum(np.arange(120) - 7, 0)
    assert automatic(Predictions(logits=z, labels=labels, clusters=clusters)).chosen == "none"


def test_a_blend_needs_two_sound_candidates() -> None:
    z = np.eye(4)[np.arange(200) % 4] * np.log(3)
    p = Predictions(logits=z, labels=np.arange(200) % 4)
    found = select_calibrator(p, ["temperature", "beta", "blend"])
    verdicts = {c.name: c.verdict for c in found.candidates}
    assert verdicts["temperature"] == "rejected: no optimum inside its bounds"
    assert verdicts["blend"] == "rejected: fewer than two candidates to pool"
    assert found.chosen == "beta"


def test_a_blend_with_members_is_a_candidate_like_any_other() -> None:
    p = bent(300, 4, 14, own=False)
    blend = Blend(["temperature", "platt"])
    found = select_calibrator(p, {"mine": blend, "t": TemperatureScaling()}, folds=3)
    rows = {c.name: c for c in found.candidates}
    nested = out_of_fold(blend.clone().fit(p).settled(), p, None, 3, 0)
    assert rows["mine"].loss == pytest.approx(metrics.nll(nested), abs=1e-9)


@pytest.mark.slow
def test_the_loss_of_the_blend_is_not_optimistic() -> None:
    """Weights of the other folds against nested cross-validation, which costs five times as much.

    The loss that ``auto`` looks at may be too high: members that saw a hard fold are timid on the
    others, whose weights then sharpen the hard one. It must not be too low.
    """
    gaps = []
    for seed in range(4):
        p = bent(300, 4, 100 + seed, own=False)
        by_auto = next(c for c in automatic(p).candidates if c.name == "blend").loss
        gaps.append(metrics.nll(out_of_fold(Blend(), p, None, 5, 0)) - by_auto)
    assert np.mean(gaps) < 0.001, gaps
