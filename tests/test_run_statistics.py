"""Statistics over runs: plain-Python twins, SciPy as oracle, and what happens without spread."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calibrant import InputError, inference, results
from calibrant.results import (
    RunComparison,
    cohens_d,
    compare_runs,
    pareto_front,
    summarise_runs,
    within_subject_sem,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))
several = st.lists(numbers, min_size=2, max_size=12)
A = [0.0312, 0.0287, 0.0344, 0.0301, 0.0329]
B = [0.0251, 0.0262, 0.0239, 0.0291, 0.0247, 0.0260]


def plain_std(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))


def close(x: float, y: float, *, size: float = 1.0, rel: float = 1e-9) -> bool:
    """Equal up to rounding of values of this size."""
    return x == y or math.isclose(x, y, rel_tol=rel, abs_tol=1e-12 * size)


def test_exported() -> None:
    for module in (results, inference):
        for name in module.__all__:
            assert hasattr(module, name)


# --- one set of runs --------------------------------------------------------------------------


@given(several)
def test_summary_is_the_textbook(values: list[float]) -> None:
    found = summarise_runs(values)
    size = max(map(abs, values))
    n = len(values)
    assert close(found.mean, math.fsum(values) / n, size=size)
    assert close(found.std, plain_std(values), size=size)
    assert close(found.sem, plain_std(values) / math.sqrt(n), size=size)
    assert found.count == n
    assert min(values) <= found.mean <= max(values)
    reach = stats.t.ppf(0.975, n - 1) * plain_std(values) / math.sqrt(n)
    assert close(found.high - found.mean, reach, size=size, rel=1e-6)
    assert close(found.mean - found.low, reach, size=size, rel=1e-6)


def test_summary_against_scipy() -> None:
    found = summarise_runs(A, level=0.9)
    interval = stats.ttest_1samp(A, 0).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert found.sem == pytest.approx(stats.sem(A), rel=1e-12)
    assert found.level == 0.9


def test_one_run_has_no_spread() -> None:
    found = summarise_runs([0.25])
    assert (found.mean, found.count) == (0.25, 1)
    assert all(map(math.isnan, (found.std, found.sem, found.low, found.high)))


@given(numbers, st.integers(2, 30))
def test_equal_runs_have_exactly_no_spread(value: float, count: int) -> None:
    found = summarise_runs([value] * count)
    assert (found.mean, found.std, found.low, found.high) == (value, 0, value, value)


def test_undefined_and_infinite_runs() -> None:
    assert math.isnan(summarise_runs([0.1, math.nan]).mean)
    assert math.isnan(summarise_runs([0.1, math.nan]).std)
    assert summarise_runs([0.1, math.inf]).mean == math.inf
    assert math.isnan(summarise_runs([0.1, math.inf]).std)
    assert math.isnan(summarise_runs([math.inf, -math.inf]).mean)


def test_spread_of_huge_and_tiny_values() -> None:
    assert summarise_runs([1e300, -1e300]).std == pytest.approx(math.sqrt(2) * 1e300)
    assert summarise_runs([1e-300, -1e-300]).std == pytest.approx(math.sqrt(2) * 1e-300)


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], 3.0, ["a"], [None, 1.0], [True, False]])
def test_summary_refuses(values: object) -> None:
    with pytest.raises(InputError, match=r"^values must"):
        summarise_runs(values)  # type: ignore[arg-type]


def test_summary_refuses_levels() -> None:
    with pytest.raises(InputError, match="level must lie"):
        summarise_runs(A, level=95)


# --- within subjects --------------------------------------------------------------------------

tables = st.integers(2, 5).flatmap(
    lambda k: st.lists(st.lists(numbers, min_size=k, max_size=k), min_size=2, max_size=8)
)


def interaction_mean_square(x: list[list[float]]) -> float:
    """Two-way analysis of variance without repetition, by its definition."""
    n, k = len(x), len(x[0])
    grand = sum(map(sum, x)) / (n * k)
    row = [sum(line) / k for line in x]
    column = [sum(line[j] for line in x) / n for j in range(k)]
    squares = sum((x[i][j] - row[i] - column[j] + grand) ** 2 for i in range(n) for j in range(k))
    return squares / ((n - 1) * (k - 1))


@given(tables)
def test_within_subject_errors_pool_to_the_anova(x: list[list[float]]) -> None:
    size = max(abs(v) for line in x for v in line)
    expected = math.sqrt(interaction_mean_square(x) / len(x))
    each = within_subject_sem(x)
    assert close(math.sqrt(float(np.mean(each**2))), expected, size=size, rel=1e-7)
    pooled = within_subject_sem(x, pooled=True)
    assert pooled.shape == each.shape
    assert all(close(float(value), expected, size=size, rel=1e-7) for value in pooled)


@given(tables)
def test_within_subject_errors_by_normalising(x: list[list[float]]) -> None:
    """Cousineau's recipe, step by step."""
    n, k = len(x), len(x[0])
    size = max(abs(v) for line in x for v in line)
    grand = sum(map(sum, x)) / (n * k)
    moved = [[v - sum(line) / k + grand for v in line] for line in x]
    plain = within_subject_sem(x, correction=False)
    corrected = within_subject_sem(x)
    for j in range(k):
        expected = plain_std([line[j] for line in moved]) / math.sqrt(n)
        assert close(float(plain[j]), expected, size=size, rel=1e-7)
        assert close(float(corrected[j]), expected * math.sqrt(k / (k - 1)), size=size, rel=1e-7)


@given(tables, st.lists(numbers, min_size=8, max_size=8))
def test_within_subject_errors_ignore_subject_effects(
    x: list[list[float]], shifts: list[float]
) -> None:
    moved = [[v + shift for v in line] for line, shift in zip(x, shifts, strict=False)]
    np.testing.assert_allclose(within_subject_sem(moved), within_subject_sem(x), atol=1e-8)


def test_two_conditions_are_the_paired_difference() -> None:
    """For two conditions, the error of a difference is sqrt(2) times either bar."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 2)) + 10 * rng.normal(size=(7, 1))
    of_difference = stats.sem(x[:, 0] - x[:, 1])
    np.testing.assert_allclose(math.sqrt(2) * within_subject_sem(x), of_difference, rtol=1e-9)


def test_within_subject_edges() -> None:
    assert np.isnan(within_subject_sem([[1.0, 2.0, 3.0]])).tolist() == [True] * 3
    assert np.isnan(within_subject_sem([[1.0, 2.0], [math.nan, 1.0]])).all()
    for shape in [(3,), (3, 1), (0, 2)]:
        with pytest.raises(InputError, match=r"\(subjects, conditions\)"):
            within_subject_sem(np.zeros(shape))


# --- two sets of runs -------------------------------------------------------------------------


@given(several, several)
def test_cohens_d_is_its_formula(a: list[float], b: list[float]) -> None:
    na, nb = len(a), len(b)
    pooled = ((na - 1) * plain_std(a) ** 2 + (nb - 1) * plain_std(b) ** 2) / (na + nb - 2)
    gap = math.fsum(a) / na - math.fsum(b) / nb
    size = max(map(abs, a + b))
    if math.sqrt(pooled) > 1e-6 * size and abs(gap) > 1e-6 * size:
        assert close(cohens_d(a, b), gap / math.sqrt(pooled), rel=1e-6)
    assert cohens_d(a, b) == -cohens_d(b, a)


@pytest.mark.parametrize("swap", [False, True])
def test_comparison_against_scipy(swap: bool) -> None:
    a, b = (B, A) if swap else (A, B)
    for equal in (True, False):
        found = compare_runs(a, b, equal_variances=equal, level=0.9)
        check(found, stats.ttest_ind(a, b, equal_var=equal), 0.9)
        assert (found.count_a, found.count_b) == (len(a), len(b))
        assert found.d == cohens_d(a, b)
        assert found.difference == pytest.approx(np.mean(a) - np.mean(b), rel=1e-12)
    paired = compare_runs(a[:5], b[:5], paired=True, level=0.9)
    check(paired, stats.ttest_rel(a[:5], b[:5]), 0.9)
    assert paired.d == pytest.approx(paired.t / math.sqrt(5), rel=1e-12)


def check(found: RunComparison, oracle: object, level: float) -> None:
    assert found.t == pytest.approx(oracle.statistic, rel=1e-10)  # type: ignore[attr-defined]
    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)  # type: ignore[attr-defined]
    assert found.dof == pytest.approx(oracle.df, rel=1e-10)  # type: ignore[attr-defined]
    interval = oracle.confidence_interval(level)  # type: ignore[attr-defined]
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


@given(several, several)
def test_interval_and_p_value_agree(a: list[float], b: list[float]) -> None:
    for options in ({}, {"equal_variances": False}):
        found = compare_runs(a, b, **options)
        back = compare_runs(b, a, **options)
        assert (back.difference, back.t, back.d) == (-found.difference, -found.t, -found.d)
        assert back.p_value == found.p_value
        assert 0 <= found.p_value <= 1
        if abs(found.p_value - 0.05) > 1e-6 and found.difference:
            assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)


@given(several)
def test_runs_do_not_differ_from_themselves(a: list[float]) -> None:
    for options in ({}, {"equal_variances": False}, {"paired": True}):
        found = compare_runs(a, a, **options)
        assert (found.difference, found.t, found.p_value, found.d) == (0, 0, 1, 0)


def test_false_alarms_are_as_rare_as_stated() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(compare_runs(*rng.normal(size=(2, 5))).p_value < 0.05 for _ in range(2000))
    assert 65 <= alarms <= 135  # 100 ± 3.6 standard deviations


def test_one_run_each_tells_nothing() -> None:
    for options in ({}, {"equal_variances": False}, {"paired": True}):
        found = compare_runs([0.3], [0.1], **options)
        assert found.difference == pytest.approx(0.2)
        assert all(map(math.isnan, (found.low, found.high, found.t, found.p_value, found.d)))
    assert math.isnan(cohens_d([0.3], [0.1]))


def test_one_run_against_several() -> None:
    """Student borrows the spread of the others; Welch has none to borrow."""
    check(compare_runs([0.05], B), stats.ttest_ind([0.05], B), 0.95)
    assert math.isnan(compare_runs([0.05], B, equal_variances=False).p_value)


@pytest.mark.parametrize("options", [{}, {"equal_variances": False}, {"paired": True}])
def test_no_spread(options: dict[str, bool]) -> None:
    found = compare_runs([0.1] * 3, [0.7] * 3, **options)
    assert (found.t, found.p_value, found.d) == (-math.inf, 0, -math.inf)
    assert found.low == found.high == found.difference == 0.1 - 0.7
    same = compare_runs([0.3] * 3, [0.1 + 0.2] * 3, **options)  # they differ in the last bit
    assert (same.difference, same.t, same.p_value, same.d) == (0, 0, 1, 0)


def test_paired_rounding_is_no_difference() -> None:
    """One number computed in two ways, as the AUROC before and after temperature scaling."""
    a = np.array([0.912, 0.934, 0.921, 0.945])
    found = compare_runs(np.nextafter(a, 1), a, paired=True)
    assert (found.difference, found.p_value) == (0, 1)
    assert compare_runs(a * (1 + 1e-12), a, paired=True).p_value < 0.05


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("options", [{}, {"equal_variances": False}, {"paired": True}])
def test_runs_that_are_not_finite(bad: float, options: dict[str, bool]) -> None:
    for a, b in (([0.1, bad, 0.2], [0.3, 0.1, 0.2]), ([0.1, bad], [0.2, bad])):
        found = compare_runs(a, b, **options)
        assert all(map(math.isnan, (found.low, found.high, found.t, found.p_value, found.d)))
    assert math.isnan(cohens_d([bad] * 2, [1.0, 1.0]))


def test_comparison_refuses() -> None:
    with pytest.raises(InputError, match="as many runs as b when paired; got 2 and 3"):
        compare_runs([1.0, 2.0], [1.0, 2.0, 3.0], paired=True)
    with pytest.raises(InputError, match="equal_variances must be left out"):
        compare_runs(A, A, paired=True, equal_variances=False)
    with pytest.raises(InputError, match="b must have one number per run"):
        compare_runs(A, [])
    with pytest.raises(InputError, match="level must lie"):
        compare_runs(A, B, level=1.0)


# --- the front --------------------------------------------------------------------------------

coarse = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, -math.inf, math.nan])


@st.composite
def clouds(draw: st.DrawFn) -> tuple[list[list[float]], list[bool]]:
    k = draw(st.integers(1, 4))
    flags = draw(st.lists(st.booleans(), min_size=k, max_size=k))
    row = st.lists(coarse, min_size=k, max_size=k)
    return draw(st.lists(row, min_size=1, max_size=10)), flags


def plain_front(points: list[list[float]], maximise: list[bool]) -> list[bool]:
    def better(x: float, y: float, high: bool) -> bool:
        return x > y if high else x < y

    def dominates(q: list[float], p: list[float]) -> bool:
        pairs = list(zip(q, p, maximise, strict=True))
        never_worse = all(x == y or better(x, y, high) for x, y, high in pairs)
        return never_worse and any(better(x, y, high) for x, y, high in pairs)

    return [
        not any(map(math.isnan, p)) and not any(dominates(q, p) for q in points) for p in points
    ]


@given(clouds())
def test_front_against_brute_force(cloud: tuple[list[list[float]], list[bool]]) -> None:
    points, maximise = cloud
    assert pareto_front(points, maximise=maximise).tolist() == plain_front(points, maximise)


def test_front_by_hand() -> None:
    points = [[1.0, 5.0], [2.0, 4.0], [2.0, 4.0], [3.0, 4.5], [math.nan, 0.0], [2.5, 4.5]]
    front = pareto_front(points, maximise=[False, False])
    assert front.tolist() == [True, True, True, False, False, False]
    assert pareto_front(np.zeros((0, 2)), maximise=[True, True]).shape == (0,)
    assert pareto_front(np.array([[1.0], [2.0]]), maximise=np.array([True])).tolist() == [0, 1]


def test_front_refuses() -> None:
    for points, maximise in (
        ([[1.0, 2.0]], [True]),
        ([1.0], [True]),
        ([[1.0]], True),
        ([[1.0, 2.0]], ["lower", "higher"]),
        ([[]], []),
    ):
        with pytest.raises(InputError, match="points must have one column for each"):
            pareto_front(points, maximise=maximise)  # type: ignore[arg-type]
