"""Slabs of logits of few classes: ignored rows, edges of blocks and bins, any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant import Predictions, metrics
from calibrant._core import compiled_streams
from calibrant.streaming import Accumulator, _counts
from calibrant.streaming._clusters import ImageTable
from tests.conftest import draw
from tests.test_kernels import BUILT, kernel, needs_extension

IGNORED = 255
BLOCK = 512  # rows, as _rows_slabs.h has it


def added(z: np.ndarray, labels: np.ndarray, ignored: int | None = None, bins: int = 15) -> Any:
    """Everything that a slab adds to a stream, or None where a row is bad."""
    counts, total = _counts.Counts(z.shape[1], bins), _counts.Counts(z.shape[1], bins)
    counts.by_image = ImageTable.of(np.arange(3))
    total.cells = _counts.Cells(_counts.NUM_CELLS)
    with kernel("c"):
        if not counts.add_logits(BUILT, z, labels, ignored, 1):
            return None
        total.add(counts)
    tables = (*total.width.tables, *total.cells.tables, counts.by_image.sums)
    classwise = total.classwise
    classes = classwise.above, classwise.hits, classwise.prob.whole, classwise.prob.part
    sums = classwise.num_rows, total.impossible, total.totals, total.squares
    return (*tables, *classes), sums


def same(one: Any, other: Any) -> bool:
    equal = all((a == b).all() for a, b in zip(one[0], other[0], strict=True))
    return equal and one[1] == other[1]


def layouts(z: np.ndarray) -> dict[str, np.ndarray]:
    """The same rows, as they may lie in memory."""
    room = np.zeros((2 * z.shape[0], z.shape[1] + 3), dtype=z.dtype)
    room[::2, 2:-1] = z
    return {
        "rows": np.ascontiguousarray(z),
        "classes": np.asfortranarray(z),
        "stepped": room[::2, 2:-1],
        "backwards": np.asfortranarray(z[::-1])[::-1],
    }


@needs_extension
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ignored_rows_add_nothing_wherever_they_stand(dtype: str) -> None:
    """At the edges of vectors and blocks, all but one, whole blocks; bad rows among them."""
    for classes in (3, 10, 19, 32):
        for rows in (1, 15, 17, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 77):
            z, labels = draw(rows, classes, spread=9, dtype=dtype)
            place = np.arange(rows)
            for left in (
                place % 10 > 0,
                place % 16 == 15,
                place == rows - 1,
                (place < BLOCK - 1) | (place > BLOCK),
                place >= BLOCK,
                (place // 16) % 2 == 0,
            ):
                given, some = np.where(left, labels, IGNORED), z.copy()
                some[~left] = np.nan
                expected = added(z[left], labels[left])
                for name, other in layouts(some).items():
                    assert same(added(other, given, IGNORED), expected), (classes, rows, name)


@needs_extension
def test_bad_rows_and_labels_are_found_wherever_they_stand() -> None:
    z, labels = draw(BLOCK + 40, 10)
    for place in (0, 16, BLOCK - 1, BLOCK, BLOCK + 39):
        for value in (np.nan, np.inf):
            bad = z.copy()
            bad[place, 3] = value
            assert added(bad, labels) is None
            given = np.where(np.arange(len(z)) == place, IGNORED, labels)
            assert added(bad, given, IGNORED) is not None
            given[place - 1] = 10
            assert added(bad, given, IGNORED) is None
            given[place - 1] = -1
            assert added(bad, given, IGNORED) is None
    z[7] = -np.inf
    assert added(z, labels) is None


@needs_extension
def test_classwise_bins_are_those_of_the_reference() -> None:
    """From one bin to many: sums of 32 bits run over soonest where bins are wide."""
    for classes in (9, 10, 19, 31, 32):
        for bins in (1, 2, 3, 15, 64):
            for spread in (0, 1, 6):
                z, labels = draw(1111, classes, spread=spread)
                z[5], z[6, 2:], z[7] = 0, -np.inf, np.arange(classes) % 2
                z[6, :2] = 1
                z[8, 1:] = -np.inf
                found = {}
                for which in ("numpy", "c"):
                    with kernel(which):
                        counts = metrics._classwise.classwise_counts(
                            Predictions(logits=z, labels=labels), bins=bins
                        )
                        found[which] = counts.count, counts.hits, counts.prob.values
                case = f"{classes} classes, {bins} bins, spread {spread}"
                np.testing.assert_array_equal(found["c"][0], found["numpy"][0], err_msg=case)
                np.testing.assert_array_equal(found["c"][1], found["numpy"][1], err_msg=case)
                near = {"rtol": 1e-7, "atol": 2e-6, "err_msg": case}
                np.testing.assert_allclose(found["c"][2], found["numpy"][2], **near)


@needs_extension
def test_slabs_of_all_instruction_sets_are_the_same() -> None:
    assert BUILT is not None
    best = BUILT.instructions()
    for classes in (5, 10, 19):
        z, labels = draw(2 * BLOCK + 77, classes, spread=20)
        labels[::9] = IGNORED
        found = {}
        for level in ("baseline", "avx2", "avx512"):
            try:
                BUILT.instructions(level)
            except ValueError:
                continue
            found[level] = added(np.asfortranarray(z), labels, IGNORED)
        BUILT.instructions(best)
        for level, one in found.items():
            if level != "baseline":  # without fused multiply-add on x86
                assert same(one, found[best]), level
            assert one[1][:2] == found[best][1][:2]


@needs_extension
def test_cells_must_lie_inside_of_the_tables() -> None:
    cells = _counts.Cells(4)
    given = np.array([0, 7, 7], dtype=np.int32), np.array([0.5, 0.25, 1.0])
    compiled_streams.add_by_cell(BUILT, given, 52, cells.tables)
    assert cells.count.tolist() == [1, 0, 0, 0, 0, 0, 0, 2]
    assert cells.confidence.values.tolist() == [0.5, 0, 0, 0, 0, 0, 0, 1.25]
    for bad in (-1, 8, 2**31 - 1):
        wrong = np.array([0, bad], dtype=np.int32), np.ones(2)
        with pytest.raises(ValueError, match="cell must lie"):
            compiled_streams.add_by_cell(BUILT, wrong, 52, cells.tables)
    assert cells.count.sum() == 3


def test_maps_with_ignored_pixels_are_those_without_them() -> None:
    """Whatever the type of the labels and the layout; only the names of images may differ."""
    rng = np.random.default_rng(4)
    maps = rng.normal(0, 3, (2, 10, 23, 41)).astype(np.float32)
    labels = rng.integers(0, 10, (2, 23, 41))
    labels[:, ::3, 5:] = IGNORED
    labels[1, :, :7] = IGNORED
    left = labels.reshape(-1) != IGNORED
    rows = np.moveaxis(maps, 1, -1).reshape(-1, 10)[left]
    expected = Accumulator(10)
    expected.update(logits=rows, labels=labels.reshape(-1)[left])
    layout = np.ascontiguousarray(np.moveaxis(maps, 1, -1))
    for scores in (maps, np.moveaxis(layout, -1, 1)):
        for dtype in (np.int64, np.int32, np.uint8):
            found = Accumulator(10)
            found.update(logits=scores, labels=labels.astype(dtype), ignore_index=IGNORED)
            assert found.result() == expected.result()
            assert found.num_samples == left.sum()
