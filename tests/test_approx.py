"""``pytest.approx`` of arrays, which tests/conftest.py makes fast: it passes what pytest passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("found", "wanted", "options"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-7], {}),
        ([1.0, 2.0], [1.0, 2.0 + 1e-5], {}),
        ([0.0, 1e-13], [0.0, 0.0], {}),
        ([0.0, 1e-11], [0.0, 0.0], {}),
        ([0.0, 1e-13], [0.0, 0.0], {"rel": 1e-6, "abs": 0.0}),
        ([1e6, 1.0], [1e6 + 0.5, 1.0], {}),
        ([1e6, 1.0], [1e6 + 0.5, 1.0], {"abs": 1e-9}),
        ([1e6, 1.0], [1e6 + 0.5, 1.0], {"abs": 1.0}),
        ([1e6, 1.0], [1e6 + 0.5, 1.0], {"rel": 1e-7, "abs": 0.4}),
        ([1.0, 0.5], [1.0, 0.25], {"abs": 0.25}),
        ([1.0, 0.5], [1.0, 0.25], {"rel": 1.0}),
        ([NAN, 1.0], [NAN, 1.0], {}),
        ([NAN, 1.0], [NAN, 1.0], {"nan_ok": True}),
        ([1.0, 1.0], [NAN, 1.0], {"nan_ok": True}),
        ([INF, -INF], [INF, -INF], {}),
        ([INF, -INF], [INF, INF], {}),
        ([1.0, 1.0], [INF, 1.0], {"abs": 1e300}),
        ([1, 2], [1.0, 2.0], {}),
        ([True, False], [1.0, 0.0], {}),
        ([1.0, 2.0, 3.0], [1.0, 2.0], {}),
        ([[1.0, 2.0]], [1.0, 2.0], {}),
        ([[1.0], [2.0]], [[1.0], [2.1]], {"abs": 0.2}),
        ([], [], {}),
    ],
)
def test_arrays_compare_as_their_elements_do(
    found: list[Any], wanted: list[Any], options: dict[str, Any]
) -> None:
    one_by_one = np.shape(found) == np.shape(wanted) and all(
        a == pytest.approx(b, **options)
        for a, b in zip(np.ravel(found), np.ravel(wanted), strict=True)
    )
    for kind in (np.float32, np.float64):
        expected = pytest.approx(np.array(wanted, dtype=kind), **options)
        if kind is np.float64 or wanted == np.array(wanted, dtype=kind).tolist():
            assert (np.array(found) == expected) is one_by_one
            assert (np.array(found) != expected) is not one_by_one
