"""The functions that replace SciPy's for small files, compared with SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant._core.numerics import (
    central_bounds,
    dct,
    expit,
    idct,
    logit,
    monotone_cubic,
    normal_quantile,
)


@pytest.mark.parametrize("size", [2, 4, 6, 256, 4096])
def test_cosine_transforms(size: int) -> None:
    fft = pytest.importorskip("scipy.fft")
    rows = np.random.default_rng(size).standard_normal((3, 2, size))
    spectrum = fft.dct(rows, type=2)
    np.testing.assert_allclose(dct(rows), spectrum, atol=1e-12 * size)
    np.testing.assert_allclose(idct(spectrum, size), rows, atol=1e-13)
    few = spectrum[..., : size // 2]
    for longer in (size, 2 * size):
        want = fft.idct(few, type=2, n=longer)
        np.testing.assert_allclose(idct(few, longer), want, atol=1e-13)


def test_monotone_cubic() -> None:
    interpolate = pytest.importorskip("scipy.interpolate")
    rng = np.random.default_rng(0)
    for trial in range(200):
        places = np.cumsum(rng.exponential(size=3 + trial % 6))
        values = rng.standard_normal(len(places)).round(trial % 3)  # with ties and level parts
        if trial % 2:
            values.sort()
        at = np.linspace(places[0], places[-1], 57)
        want = interpolate.PchipInterpolator(places, values)(at)
        np.testing.assert_allclose(monotone_cubic(places, values, at), want, atol=1e-12)


def test_normal_and_logistic() -> None:
    special = pytest.importorskip("scipy.special")
    shares = np.concatenate([np.linspace(0.001, 0.999, 97), [1e-12, 1 - 1e-12]])
    for share in shares.tolist():
        assert normal_quantile(share) == pytest.approx(special.ndtri(share), rel=1e-13, abs=1e-15)
    assert (normal_quantile(0.0), normal_quantile(1.0)) == (-math.inf, math.inf)
    np.testing.assert_allclose(logit(shares), special.logit(shares), rtol=1e-13, atol=1e-15)
    values = np.concatenate([special.logit(shares), [-800.0, 0.0, 800.0]])
    np.testing.assert_allclose(expit(values), special.expit(values), rtol=1e-14, atol=1e-300)
    assert float(expit(-1.0)) == pytest.approx(1 / (1 + math.e))


def test_central_bounds() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 10, 999, 1000):
        for tail in (0.4, 0.025, 0.001, 1e-9):
            draws = rng.standard_normal((size, 4)).round(1)
            asked = (tail, 1 - tail)
            expected = np.quantile(draws, asked, axis=0, method="median_unbiased")
            np.testing.assert_array_equal(np.array(central_bounds(draws, tail)), expected)
