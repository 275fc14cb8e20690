"""Resamples and labels drawn by the compiled kernels: the same bits as their NumPy reference."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from calibrant import Confidences, InputError, Predictions
from calibrant._core import arrays
from calibrant._core.compiled_draws import draw_labels
from calibrant.inference import _classwise
from calibrant.inference._bootstrap import resample_weights
from calibrant.inference._classwise import classwise_curve
from calibrant.inference._clusters import Clusters
from calibrant.inference._grid import _draws, along
from calibrant.inference._paths import path_of
from calibrant.inference._resampling import STRENGTHS, Resampling
from calibrant.metrics._binning import bin_cuts, bin_sums, sums_between, width_index
from calibrant.metrics._sample import Sample
from calibrant.metrics._simulated import Simulated
from calibrant.metrics._smooth import _cell
from tests.test_kernels import BUILT, kernel, needs_extension


def sample(size: int, digits: int | None = None) -> Sample:
    rng = np.random.default_rng(size)
    c = rng.uniform(0.2, 1, size)
    c = c if digits is None else np.round(c, digits)
    return Sample.of(Confidences(confidence=c, correct=rng.random(size) < c**1.5))


@needs_extension
@pytest.mark.parametrize("given", [sample(700), sample(300, digits=1), sample(1)])
def test_simulated_sums_have_the_bits_of_the_reference(given: Sample) -> None:
    """Every sum, at every strength, in bins of both kinds and in the cells of smooth ECE."""
    drawn, lot = next(_draws(given, Resampling(replicates=140)))
    ranked = given.ranked
    for one_sided, binning in itertools.product((False, True), ("width", "mass")):
        path = path_of(ranked, 15, binning, one_sided)
        found: dict[str, Simulated] = {}
        for which in ("numpy", "c"):
            with kernel(which):
                found[which] = along(ranked, drawn, lot, path)
                found[which].sums(15, "width"), found[which].sums(7, "mass")
                vars(found[which])["grid"] = found[which].on_grid(*_cell(ranked.confidence, 64), 64)
        mine, theirs = found["c"], found["numpy"]
        assert mine._compiled is not None
        assert theirs._compiled is None
        np.testing.assert_array_equal(mine.first, theirs.first)
        np.testing.assert_array_equal(mine.change, theirs.change)
        np.testing.assert_array_equal(vars(mine)["grid"], vars(theirs)["grid"])
        for key, sums in theirs.binned.items():
            for name in ("count", "confidence", "hits"):
                np.testing.assert_array_equal(
                    getattr(mine.binned[key], name), getattr(sums, name), err_msg=f"{key} {name}"
                )


@needs_extension
def test_draws_are_counted_as_the_reference_counts_them() -> None:
    """In any order, of samples and of clusters; each batch must be used before the next is made."""
    rng = np.random.default_rng(0)
    order = rng.permutation(90)
    codes = np.repeat(np.arange(30), 3)
    p = Confidences(confidence=np.full(90, 0.5), correct=codes % 2 == 0, clusters=codes)
    for clusters, chosen in itertools.product((None, Clusters.of(p)), (None, order)):
        how = {"clusters": clusters, "order": chosen, "elements": 400_000}
        found = []
        for which in ("numpy", "c"):
            with kernel(which):
                found.append([w.copy() for w in resample_weights(90, 11, 3, **how)])
        assert len(found[0]) == 3
        np.testing.assert_array_equal(np.concatenate(found[0]), np.concatenate(found[1]))
        plain = np.concatenate(
            [w.copy() for w in resample_weights(90, 11, 3, **(how | {"order": None}))]
        )
        assert (plain.sum(axis=1) == 90).all()
        expected = plain if chosen is None else plain[:, chosen]
        np.testing.assert_array_equal(np.concatenate(found[1]), expected)


@needs_extension
@pytest.mark.parametrize("classes", [2, 60, 300, 5000])
def test_labels_of_many_classes_are_those_of_the_reference(classes: int) -> None:
    """Lots at the ends of classes and of the parts of the guide, classes without probability."""
    rng = np.random.default_rng(classes)
    probs = rng.dirichlet(np.full(classes, 0.05), (3, 12))
    probs[:, 0], probs[:, 1] = np.eye(classes)[0], np.eye(classes)[-1]
    uppers = np.cumsum(probs, axis=2)
    uppers[..., -1] = 1
    lots = rng.random((2, 12, 40))
    lots[0, :, :8] = np.arange(8) / 8
    lots[0, :, 8] = np.nextafter(1, 0)
    middle = uppers[0, :, classes // 2]
    lots[0, :, 9] = np.where(middle < 1, middle, 0)
    cell = rng.integers(0, 5, (12, classes)) + 5 * np.arange(classes)
    mine, theirs = np.zeros((2, len(STRENGTHS), 40 * 5 * classes), dtype=np.float32)
    draw_labels(BUILT, mine, cell, uppers, lots, STRENGTHS)
    _classwise._add_changes(theirs, cell, uppers, lots)
    np.testing.assert_array_equal(mine, theirs)
    for bad in (-0.1, 1.0, np.nan):
        with pytest.raises(ValueError, match="lot"):
            draw_labels(BUILT, mine, cell, uppers, np.full_like(lots, bad), STRENGTHS)


@needs_extension
def test_equal_width_bins_are_those_of_the_reference() -> None:
    """At the edges, a rounding away from them, and everywhere else."""
    rng = np.random.default_rng(0)
    for bins in (1, 2, 3, 15, 49, 1000, 12_345):
        edges = np.arange(bins + 1) / bins
        near = np.concatenate([edges, np.nextafter(edges, 2), np.nextafter(edges, -1), [5e-324]])
        values = np.concatenate([np.clip(near, 0, 1), rng.random(5000)])
        found = []
        for which in ("numpy", "c"):
            with kernel(which):
                found.append(width_index(values, bins))
        np.testing.assert_array_equal(*found)
        assert found[0].min() == 0
        assert found[0].max() == bins - 1


def test_items_made_two_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1, 5):
            made.append(number)
            yield number
        raise RuntimeError("the end")

    for threads in (1, 2):
        monkeypatch.setattr(arrays, "num_threads", lambda threads=threads: threads)
        made.clear()
        found: list[int] = []
        with pytest.raises(RuntimeError, match="the end"):
            found.extend(arrays.two_ahead(items()))
        assert found == made == [1, 2, 3, 4]


def test_shared_chunks_go_to_the_thread_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread holds on to its first chunk until the other has done all the rest."""
    monkeypatch.setattr(arrays, "num_threads", lambda: 2)
    others = threading.Event()

    def work(slices: Iterator[slice]) -> list[slice]:
        done = []
        for rows in slices:
            done.append(rows)
            if rows.start == 0:
                assert others.wait(30)
        others.set()
        return done

    parts = arrays.over_chunks(work, 90, 1_000_000, step=10, shared=True)
    assert sorted(map(len, parts)) == [1, 8]
    every = sorted(rows.start for part in parts for rows in part)
    assert every == list(range(0, 90, 10))


def test_threads_return_results_in_order_and_raise_the_first_error() -> None:
    def fail(number: int) -> int:
        raise ValueError(str(number))

    assert arrays.together([lambda k=k: k * k for k in range(7)]) == [k * k for k in range(7)]
    with pytest.raises(ValueError, match=r"^[01]$"):
        arrays.together([lambda k=k: fail(k) for k in range(2)])


def test_chunks_come_in_order_whatever_finishes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk waits for the second one; a fault in a chunk is raised at its place."""
    monkeypatch.setattr(arrays, "num_threads", lambda: 3)
    rows = arrays.chunk_rows(1000)
    second = threading.Event()

    def work(part: slice) -> int:
        if part.start == rows:
            second.set()
        elif part.start == 0:
            assert second.wait(30)
        if part.start == 4 * rows:
            raise ValueError("the fifth")
        return part.start // rows

    def starts(chunks: int) -> list[int]:
        found = []
        for part, number in arrays.in_order(work, chunks * rows, 1000):
            assert part.start == number * rows
            found.append(number)
        return found

    assert starts(4) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="the fifth"):
        starts(7)


def test_curves_of_classwise_errors_do_not_depend_on_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(0, 2, (400, 12))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    monkeypatch.setattr(arrays, "CHUNK_ELEMENTS", 700)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(arrays, "num_threads", lambda threads=threads: threads)
        curve = classwise_curve(Predictions(logits=z, labels=labels), Resampling(replicates=200))
        found.append((curve.simulated, curve.truth, curve.of_rows))
    for other in found[1:]:
        for mine, theirs in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@needs_extension
def test_what_the_simulation_refuses() -> None:
    """Every pointer is checked before it is used: an error, never a crash."""
    assert BUILT is not None
    two, drawn = np.zeros(2), np.zeros(6, np.int64)
    flags, change, knots = np.zeros(6, bool), np.zeros(6, np.uint8), np.zeros(6)
    sums = (np.zeros(6), np.zeros(6), np.zeros(12))
    bins = (2, 2, 3, drawn, flags, change, two, np.zeros(2, np.int64), None, *sums)
    mass = (2, 2, 3, drawn, flags, change, two, None, two, *sums)
    cells = (2, 2, 3, drawn, flags, change, two, np.zeros(2, np.int64), two, np.zeros(12))
    calls = {
        "count_draws": (drawn, np.zeros(2, np.int64), two),
        "draw_outcomes": (drawn, np.zeros(6), knots, two, flags.copy(), change.copy()),
        "sum_bins": bins,
        "sum_cells": cells,
        "width_bins": (two, 3, np.zeros(2, np.int64)),
    }
    assert BUILT.sum_bins(*mass) == -1
    wrong: dict[str, dict[int, list[object]]] = {
        "count_draws": {
            0: [drawn - 1, drawn + 2, np.zeros(6), drawn[::2], None],
            1: [np.zeros(3, np.int64), np.full(2, 2), np.full(2, -1), two],
            2: [np.zeros(3), np.zeros(2, np.float32), None],
        },
        "draw_outcomes": {
            0: [drawn - 1, drawn + 2, drawn[:5], 3],
            1: [np.zeros(5), None],
            2: [np.zeros(2), knots.astype(np.float32)],
            3: [np.zeros(0), np.zeros(255), None],
            4: [np.zeros(5, bool), np.zeros(6, np.uint8)],
            5: [np.zeros(5, np.uint8), np.zeros(6, bool)],
        },
        "sum_bins": {
            0: [0, -1, 4, 1 << 40, "x"],
            1: [0, 255, 3],
            2: [0, -3, 4, 1 << 62],
            3: [drawn - 1, drawn + 2, drawn[:5]],
            4: [flags[:5], change],
            5: [change[:5], flags],
            6: [np.zeros(0), np.zeros(2, np.float32)],
            7: [np.zeros(3, np.int64), np.full(2, 3), np.full(2, -1), two],
            9: [np.zeros(5), None],
            10: [np.zeros(7)],
            11: [np.zeros(11), np.zeros(12, np.float32)],
        },
        "sum_cells": {
            0: [0, 4],
            2: [0, 4],
            7: [np.full(2, 2), np.full(2, -1), np.zeros(3, np.int64)],
            8: [np.zeros(3), None],
            9: [np.zeros(11)],
        },
        "width_bins": {0: [np.zeros(3), None], 1: [0, 1 << 40], 2: [np.zeros(3, np.int64), two]},
    }
    for name, given in calls.items():
        call = getattr(BUILT, name)
        assert call(*given) == -1
        for place, values in wrong[name].items():
            for value in values:
                changed = [value if k == place else x for k, x in enumerate(given)]
                with pytest.raises((ValueError, TypeError, BufferError)):
                    call(*changed)
    with pytest.raises(ValueError, match="ranks"):
        BUILT.sum_bins(*mass[:8], knots, *sums)


def test_metrics_share_the_sums_over_their_bins() -> None:
    ranked = sample(50).ranked
    assert bin_sums(ranked, 15, "mass") is bin_sums(ranked, 15, "mass")
    for other in ((15, "width"), (14, "mass")):
        assert bin_sums(ranked, *other) is not bin_sums(ranked, 15, "mass")
        fresh = sums_between(ranked, bin_cuts(ranked, *other))
        np.testing.assert_array_equal(bin_sums(ranked, *other).hits, fresh.hits)
    with pytest.raises(InputError, match="binning"):
        bin_sums(ranked, 15, "none")
