"""Losses on the compiled kernels against the same losses in PyTorch's operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrant._core.compiled import compiled_rows
from calibrant.losses import LOSSES, _compiled
from tests.test_all_losses import (
    CONFIGURATIONS,
    EXTREMES,
    IDS,
    at,
    batch,
    one_hot,
    per_batch,
    rates,
    value,
)

pytestmark = pytest.mark.skipif(compiled_rows() is None, reason="needs the compiled extension")
every = pytest.mark.parametrize(("name", "options"), CONFIGURATIONS, ids=IDS)
# What PyTorch computes as fast.
IN_PYTORCH = {"cross_entropy", "logit_norm"}
CURVES = [
    (name, options)
    for name, options in CONFIGURATIONS
    if name not in IN_PYTORCH
    and options.get("on") != "logits"
    and options.get("form") != "label"
    and (name != "bsce_gra" or options.get("norm", 2) == 2)
]


@contextmanager
def in_pytorch() -> Iterator[None]:
    """Without the kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compiled, "serves", lambda _batch, _given=None: False)
        yield


def with_gradient(
    name: str, options: dict[str, Any], z: Tensor, y: Tensor, **more: Any
) -> tuple[Tensor, Tensor]:
    """Values, and the gradient of a sum that weighs every sample differently."""
    z = z.detach().requires_grad_()
    got = value(name, options, z, y, **more)
    weights = torch.linspace(-1, 2, got.numel(), dtype=z.dtype).view_as(got) if got.ndim else 1
    (gradient,) = torch.autograd.grad((got * weights).sum(), z)
    return got.detach(), gradient


def cases() -> dict[str, tuple[Tensor, Tensor]]:
    found = {str(shape): batch(shape, seed=shape[1]) for shape in SHAPES}
    z, y = batch((40, 6), seed=5)
    # Within rows only: whether two rows with the same logits in another order tie depends on the
    # order of the sum, and there a kernel has two one-sided gradients.
    found["ties of logits"] = z.round() * torch.linspace(0.8, 1.2, 40)[:, None].to(z), y
    found["ties of confidences"] = z[torch.arange(40) % 7], y
    found["saturated"] = 6 * z, y  # further on, PyTorch loses digits
    # Not those that differ by less than probabilities can show: the kernels compare logits.
    return found | {c: (z.double(), y) for c, (z, y) in EXTREMES.items() if c != "tiny"}


SHAPES = [(1, 2), (5, 2), (1, 3), (9, 3), (33, 4), (16, 5), (128, 10), (3, 16), (7, 17), (20, 1000)]
CASES = cases()


@every
def test_same_as_in_pytorch(name: str, options: dict[str, Any]) -> None:
    for case, (z, y) in CASES.items():
        got = with_gradient(name, options, z, y)
        with in_pytorch():
            want = with_gradient(name, options, z, y)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-11, msg=at(case))


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_single_precision(name: str, options: dict[str, Any]) -> None:
    """Nearer to the answer in float64 than rounding of the logits explains."""
    for case in [*map(str, SHAPES), "ties of logits", "ties of confidences"]:
        z, y = CASES[case][0].float(), CASES[case][1]
        got = with_gradient(name, options, z, y)
        with in_pytorch():
            want = with_gradient(name, options, z.double(), y)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == torch.float32
            torch.testing.assert_close(a.double(), b, rtol=2e-5, atol=2e-6, msg=at(case))


@every
def test_samples_left_out(name: str, options: dict[str, Any]) -> None:
    z, y = batch((50, 6), seed=8)
    y[[0, 3, 4, 49]] = -1
    for labels in (y, torch.full_like(y, -1)):
        got = with_gradient(name, options, z, labels, ignore_index=-1)
        with in_pytorch():
            want = with_gradient(name, options, z, labels, ignore_index=-1)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_the_kernels_serve(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compiled, "serves", _refusing_reference(monkeypatch))
    z, y = batch((6, 3), dtype=torch.float32)
    with_gradient(name, options, z, y)


def _refusing_reference(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``serves``, and no other way left."""
    serves = _compiled.serves

    def only(batch: Any, given: Any = None) -> bool:
        assert serves(batch, given)
        monkeypatch.setattr(torch.nn.functional, "cross_entropy", None)
        monkeypatch.setattr(Tensor, "softmax", None)
        return True

    return only


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_whatever_the_number_of_threads(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    z, y = batch((33, 12), dtype=torch.float32)
    whole = with_gradient(name, options, z, y)
    monkeypatch.setattr(_compiled, "PARALLEL_ELEMENTS", 1)
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        parts = with_gradient(name, options, z, y)
        assert all(torch.equal(a, b) for a, b in zip(parts, whole, strict=True))


def test_class_sums_of_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probabilities of the classes are added up slice by slice, the same in any thread."""
    z, y = batch((50, 7), seed=3)
    y[[1, 20, 49]] = -1
    with in_pytorch():
        want = with_gradient("mdca", {}, z, y, ignore_index=-1)
    monkeypatch.setattr(_compiled, "PARALLEL_ELEMENTS", 1)
    monkeypatch.setattr(_compiled, "ROWS_OF_SUM", 16)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(with_gradient("mdca", {}, z, y, ignore_index=-1))
        assert all(torch.equal(a, b) for a, b in zip(found[-1], found[0], strict=True))
    torch.testing.assert_close(found[0], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_every_instruction_set(name: str, options: dict[str, Any]) -> None:
    kernels: Any = compiled_rows()
    best = kernels.instructions()
    found = []
    try:
        for level in ("baseline", best):
            kernels.instructions(level)
            for dtype in (torch.float32, torch.float64):
                for shape in ((9, 3), (6, 16), (4, 37)):
                    z, y = batch(shape, seed=1, dtype=dtype)
                    found.append((level, *with_gradient(name, options, z, y)))
    finally:
        kernels.instructions(best)
    half = len(found) // 2
    for (_, *a), (_, *b) in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@every
def test_logits_that_are_not_finite(name: str, options: dict[str, Any]) -> None:
    """What PyTorch's operations make of them."""
    for bad in (torch.nan, torch.inf, -torch.inf):
        z, y = batch((5, 4), dtype=torch.float32)
        z[2, 1] = bad
        got = with_gradient(name, options, z, y)
        with in_pytorch():
            want = with_gradient(name, options, z, y)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_changes_in_place_are_noticed(name: str, options: dict[str, Any]) -> None:
    z, y = batch((6, 3))
    leaf = z.requires_grad_()
    z = 2 * leaf
    got = value(name, options, z, y).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        got.backward()


@pytest.mark.parametrize(("name", "options"), CURVES)
def test_values_are_the_users_own(name: str, options: dict[str, Any]) -> None:
    """To change one in place changes no gradient, and nothing is shared between calls."""
    z, y = batch((6, 3))
    _, want = with_gradient(name, options, z, y)
    z.requires_grad_()
    got = value(name, options, z, y)
    with torch.no_grad():
        got.mul_(0)
    weights = torch.linspace(-1, 2, got.numel(), dtype=z.dtype).view_as(got) if got.ndim else 1
    (gradient,) = torch.autograd.grad((got * weights).sum(), z)
    torch.testing.assert_close(gradient, want, rtol=0, atol=0)


BAD_ARGUMENTS: list[dict[int, Any]] = [
    {0: np.zeros((4, 3), np.float16)},
    {0: np.zeros((3, 4), np.float32).T},
    {1: np.array([0, 1, 2, 3])},
    {1: np.array([0, 1, -1, 0])},
    {1: None},
    {2: np.zeros((2, 4))},
    {2: np.zeros((_compiled.BLOCK_WIDTH, 3))},
    {2: np.zeros((_compiled.BLOCK_WIDTH, 4), np.float32)},
    {5: "no loss"},
    {5: "adafocal"},
    {9: np.zeros(3, np.float32)},
    {10: np.zeros(4)},
    {11: np.zeros(3, np.float32)},
    {11: np.zeros((), np.float32)},
    {11: np.zeros(4, np.int32)},
]


@pytest.mark.parametrize("changed", BAD_ARGUMENTS)
def test_kernels_check_what_they_get(changed: dict[int, Any]) -> None:
    kernels: Any = compiled_rows()
    block = np.zeros((_compiled.BLOCK_WIDTH, 4))
    z, y, out = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0]), np.zeros(4, np.float32)
    given = [z, y, block, 0, 0.0, "focal", 3.0, 0.0, 0.0, None, None, out, False]
    assert kernels.loss_value(*given) == -1
    for place, wrong in changed.items():
        given[place] = wrong
    with pytest.raises((ValueError, TypeError)):
        kernels.loss_value(*given)


def test_gradients_check_their_block() -> None:
    kernels: Any = compiled_rows()
    block = np.zeros((_compiled.BLOCK_WIDTH, 4))
    z, y, by = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0]), np.ones(4, np.float32)
    kernels.loss_gradient(z, y, block, 0, 0.0, by, np.empty_like(z))
    for wrong in (by[:3], by.astype(np.float64), np.ones((4, 1), np.float32)):
        with pytest.raises(ValueError, match="by_value"):
            kernels.loss_gradient(z, y, block, 0, 0.0, wrong, np.empty_like(z))
    for wrong in (z[:3], z.astype(np.float64), np.zeros((3, 4), np.float32).T):
        with pytest.raises(ValueError, match="out"):
            kernels.loss_gradient(z, y, block, 0, 0.0, by, wrong)
    for column in (8, 9):
        for wrong in (3.0, -2.0, np.nan):
            bad = block.copy()
            bad[column, 2] = wrong
            with pytest.raises(ValueError, match="classes"):
                kernels.loss_gradient(z, y, bad, 0, 0.0, by, np.empty_like(z))


def test_kernels_of_classes_check_what_they_get() -> None:
    kernels: Any = compiled_rows()
    z, y = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0])
    rows, sums, by = np.zeros((2, 4)), np.zeros(4), np.ones((), np.float32)
    assert kernels.class_gaps(z, rows, sums, y, None) == -1
    kernels.class_gap_gradient(z, rows, sums, by, np.empty_like(z))
    for wrong in (z.astype(np.float16), z[:3], z.T):
        with pytest.raises(ValueError, match="must be"):
            kernels.class_gaps(wrong, rows, sums, y, None)
    for place, name, others in (
        (1, "rows", (rows[:, :3], rows[:1], rows.astype(np.float32))),
        (2, "classes", (sums[:3], np.zeros(4, np.float32))),
        (3, "labels", (None, y[:3], y + 1)),
        (4, "valid", (y, np.ones(3, bool))),
    ):
        for wrong in others:
            given: list[Any] = [z, rows, sums, y, None]
            given[place] = wrong
            with pytest.raises(ValueError, match=name):
                kernels.class_gaps(*given)
    with pytest.raises(ValueError, match="by_value"):
        kernels.class_gap_gradient(z, rows, sums, np.ones(()), np.empty_like(z))
    with pytest.raises(ValueError, match="out"):
        kernels.class_gap_gradient(z, rows, sums, by, np.empty((4, 2), np.float32))
    for classes in (4, 2, -1, -2, 1 << 62):
        with pytest.raises(ValueError, match="classes"):
            kernels.class_slopes(classes, sums, by.copy())
    with pytest.raises(ValueError, match="out"):
        kernels.class_slopes(3, sums, np.ones(2, np.float32))


@every
def test_strided_logits_and_labels(name: str, options: dict[str, Any]) -> None:
    z, y = batch((14, 8))
    more = per_batch(name, rates(y[::2]))
    got = value(name, options, z[::2, ::2], y[::2] // 2, **more)
    want = value(name, options, z[::2, ::2].contiguous(), (y[::2] // 2).contiguous(), **more)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


# Their node gives the gradient among equal confidences, and refuses.
TRANSFORMED = [(n, o) for n, o in CONFIGURATIONS if not n.startswith("mmce")]


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(("name", "options"), TRANSFORMED)
def test_transforms(name: str, options: dict[str, Any]) -> None:
    z, y = batch((6, 4))
    more = per_batch(name, rates(y))
    want = torch.autograd.grad(
        value(name, options, leaf := z.clone().requires_grad_(), y).sum(), leaf
    )
    got = torch.func.grad(lambda z: value(name, options, z, y, **more).sum())(z)
    torch.testing.assert_close(got, want[0], rtol=1e-9, atol=1e-12)
    if LOSSES[name].per_sample and not more:
        function = LOSSES[name].function
        each = torch.func.grad(lambda z, y: function(z[None], y[None], **options).sum())
        torch.testing.assert_close(torch.func.vmap(each)(z, y), want[0], rtol=1e-9, atol=1e-12)


def test_hard_and_one_hot_in_single_precision() -> None:
    """Kernels and PyTorch meet within rounding."""
    z, y = batch((30, 7), dtype=torch.float32)
    for name, options in CURVES:
        hard = value(name, options, z, y)
        soft = value(name, options, z, one_hot(y, 7, torch.float32))
        torch.testing.assert_close(hard, soft, rtol=1e-4, atol=1e-6, msg=at(name))
