"""Populations of very many classes, whose probabilities nearly all lie in the first bin."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from calibrant import Predictions
from calibrant.inference import _tilts, intervals
from calibrant.inference._classwise import _apart_from_rows, classwise_curve
from calibrant.inference._resampling import Resampling
from calibrant.inference._tilts import RowCells, fitted_tilt, over_rows, shared_tilt

BINS = 15
# Classwise ECE of 1,000 classes with spread logits at T = 0.5, from 40,000 rows.
TRUE = 5.994e-4


def spread(temperature: float, size: int, classes: int, seed: int, width: float = 2) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(0, width, (size, classes))
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(logits=z, labels=labels)


@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.0, 2.0])
def test_the_slope_is_that_of_the_temperature(temperature: float) -> None:
    """Labels follow p^(1/T): the first bin has the slope 1/T - 1, which it was not given before."""
    p = spread(temperature, 600, 400, 1, width=1.5)
    cells = RowCells.of(p, BINS)
    assert cells.crowded
    assert shared_tilt(p, cells).slope == pytest.approx(1 / temperature - 1, abs=0.15)


def penalised_surprise(x: np.ndarray, p: Predictions, middle: float) -> float:
    """Minus the log-likelihood of the labels and the ridge, probability by probability."""
    ((_, probs, cell),) = over_rows(p, BINS, lambda *chunk: chunk)
    index = cell % BINS
    weight = np.log(probs) + x[index] + np.where(index == 0, x[BINS] * (np.log(probs) - middle), 0)
    of_label = weight[np.arange(len(probs)), p.labels]
    return float((np.logaddexp.reduce(weight, axis=1) - of_label).sum() + 0.25 * (x**2).sum())


def test_the_shared_tilt_is_the_likeliest_one() -> None:
    """Brute force without levels and without derivatives; levels cost little."""
    p = spread(0.6, 60, 120, 3, width=1.2)
    cells = RowCells.of(p, BINS)
    assert cells.crowded
    tilt = shared_tilt(p, cells)
    want = minimize(penalised_surprise, np.zeros(BINS + 1), (p, tilt.middle), method="BFGS")
    np.testing.assert_allclose(np.log(tilt.factor[0]), want.x[:BINS], atol=0.01)
    assert tilt.slope == pytest.approx(want.x[BINS], abs=0.01)
    assert tilt.slope > 0.3


def test_tilted_rows_follow_the_formula() -> None:
    p = spread(0.6, 20, 200, 4, width=1.2)
    tilt = fitted_tilt(p, RowCells.of(p, BINS))
    ((_, probs, cell),) = over_rows(p, BINS, lambda *chunk: chunk)
    for row, cells, found in zip(probs, cell, tilt.of(probs, cell), strict=True):
        weight = []
        for k, (one, where) in enumerate(zip(row, cells, strict=True)):
            factor = tilt.factor[k, where % BINS]
            power = (one / np.exp(tilt.middle)) ** tilt.slope if where % BINS == 0 else 1.0
            weight.append(one * factor * power)
        np.testing.assert_allclose(found, np.array(weight) / sum(weight), rtol=1e-10)


def test_classes_of_probability_0_have_a_tilt() -> None:
    """log 0 is not a number to multiply with; rows still add up to 1."""
    p = spread(2.0, 100, 300, 5, width=1.5)
    probs = np.where(p.probs < 1e-3, 0, p.probs)
    probs /= probs.sum(axis=1, keepdims=True)
    labels = np.where(probs[np.arange(100), p.labels] > 0, p.labels, probs.argmax(axis=1))
    found = intervals(Predictions(probs=probs, labels=labels), ["classwise_ece"], replicates=140)
    low, high = found["classwise_ece"].low, found["classwise_ece"].high
    assert 0 <= low < high < 1


def test_differences_between_classes_that_rows_explain_are_left_out() -> None:
    """Sums of the same heavy-tailed terms differ by chance alone; sums of other terms do not."""
    rng = np.random.default_rng(0)
    each = -rng.pareto(3, (300, 500))
    same = _apart_from_rows(each.sum(axis=0), (each**2).sum(axis=0), 300)
    assert same.std() < 0.3 * each.sum(axis=0).std()
    assert same.mean() == pytest.approx(each.sum(axis=0).mean())
    other = each * np.where(np.arange(500) < 250, 1, 4)
    kept = _apart_from_rows(other.sum(axis=0), (other**2).sum(axis=0), 300)
    assert kept.std() > 0.95 * other.sum(axis=0).std()


def test_thousand_classes_at_half_the_temperature_cover() -> None:
    """8 of 30 such intervals held the truth, which lay above the others.

    Of 12 at 95 %, fewer than 9 do with probability 2e-4. Strength 1 is the population.
    """
    covered, strength_1 = 0, []
    for seed in range(12):
        p = spread(0.5, 200, 1000, seed)
        found = intervals(p, ["classwise_ece"], replicates=140, seed=seed)["classwise_ece"]
        covered += found.low <= TRUE <= found.high
        strength_1.append(classwise_curve(p, Resampling(replicates=140)).truth[4])
    assert covered >= 9
    assert np.mean(strength_1) == pytest.approx(TRUE, rel=0.1)


def test_without_a_crowded_first_bin_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope is for crowded first bins only; there it matters."""

    def found(p: Predictions) -> tuple[float, float]:
        i = intervals(p, ["classwise_ece"], replicates=140)["classwise_ece"]
        return i.low, i.high

    cases = [spread(0.5, 100, classes, 1) for classes in (2, 10, 100)]
    crowded = spread(0.5, 100, 1000, 1)
    before, with_slope = [found(p) for p in cases], found(crowded)
    monkeypatch.setattr(_tilts, "DOMINANT", np.inf)
    assert [found(p) for p in cases] == before
    assert found(crowded) != with_slope


def test_log_factors_of_bins_need_no_design() -> None:
    """A design that is the identity is not multiplied by: the same bits."""
    rng = np.random.default_rng(4)
    mass, hits = rng.dirichlet(np.full(7, 0.3), 900), rng.multinomial(900, np.full(7, 1 / 7))
    np.testing.assert_array_equal(
        _tilts._likeliest(mass, hits), _tilts._likeliest(mass, hits, np.eye(7))
    )
