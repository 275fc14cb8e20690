"""Laws that hold for every loss, and a test that none is left out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant import InputError
from calibrant.losses import LOSSES, Objective
from tests import brute_losses as brute
from tests.close import assert_close

# Configurations of each loss: its name and options. Options per batch are made to fit the batch.
CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    ("cross_entropy", {}),
    ("label_smoothing", {}),
    ("label_smoothing", {"epsilon": 0.3, "spread": "others"}),
    ("label_smoothing", {"epsilon": -0.01}),
    ("label_smoothing", {"epsilon": -0.3, "spread": "others"}),
    ("focal", {}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"gamma": 1}),
    ("sample_dependent_focal", {}),
    ("sample_dependent_focal", {"gamma_low": 2.0, "gamma_high": 0.5, "threshold": 0.4}),
    ("dual_focal", {}),
    ("dual_focal", {"gamma": 0.7}),
    ("inverse_focal", {}),
    ("inverse_focal", {"gamma": 0.5}),
    ("adafocal", {}),
    ("bsce_gra", {}),
    ("bsce_gra", {"gamma": 0.7, "norm": 1}),
    ("bsce_gra", {"gamma": 3, "norm": math.inf}),
    ("brier", {}),
    ("squared_error", {}),
    ("squared_error", {"on": "logits"}),
    ("squared_error", {"on": "logits", "scale": 15.0, "target": 30.0}),
    ("logit_norm", {}),
    ("logit_norm", {"p": 2}),
    ("logit_norm", {"p": 3.5}),
    ("logit_norm", {"p": math.inf}),
    ("negative_entropy", {}),
    ("margin_smoothing", {}),
    ("margin_smoothing", {"margin": 0.5}),
    ("acls", {}),
    ("acls", {"margin": 0.5, "top_weight": 0.3, "other_weight": 2.0}),
    ("mmce", {}),
    ("mmce", {"width": 0.05, "root": False}),
    ("mmce_weighted", {}),
    ("mmce_weighted", {"width": 1.0, "root": False}),
    ("esd", {}),
    ("avuc", {"threshold": 0.5}),
    ("avuc", {"threshold": 0.8, "stop_gradient": True}),
    ("soft_avuc", {}),
    ("soft_avuc", {"kappa": 0.3, "temperature": 0.1}),
    ("soft_avuc", {"kappa": 0.6, "temperature": 3.0}),
    ("soft_binned_ece", {}),
    ("soft_binned_ece", {"bins": 7, "temperature": 0.001, "norm": 1}),
    ("soft_binned_ece", {"form": "label"}),
    ("soft_binned_ece", {"bins": 10, "norm": 3.5, "form": "label", "temperature": 0.05}),
    ("mdca", {}),
    ("dca", {}),
    ("correctness_ranking", {}),
]
IDS = [
    " ".join([name, *(f"{k}={v}" for k, v in options.items())]) for name, options in CONFIGURATIONS
]
every = pytest.mark.parametrize(("name", "options"), CONFIGURATIONS, ids=IDS)
# Each takes PyTorch a second or two to trace.
COMPILED = [
    pytest.param(n, o, marks=() if n == "mmce" and not o else pytest.mark.slow)
    for n, o in CONFIGURATIONS
]
PRIMARY = [(n, o) for n, o in CONFIGURATIONS if LOSSES[n].role == "primary"]
every_primary = pytest.mark.parametrize(("name", "options"), PRIMARY)


def batch(
    shape: tuple[int, ...] = (7, 4), *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Logits and class numbers; about half of the predictions are right."""
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    other = torch.randint(shape[1], (shape[0], *shape[2:]), generator=generator)
    keep = torch.rand(other.shape, generator=generator) < 0.4
    return z.to(dtype), torch.where(keep, z.argmax(1), other)


def soften(labels: Tensor, num_classes: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    t = torch.rand((*labels.shape, num_classes), generator=generator, dtype=torch.float64) ** 4
    return (t / t.sum(-1, keepdim=True)).movedim(-1, 1)


def one_hot(labels: Tensor, num_classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nn.functional.one_hot(labels, num_classes).movedim(-1, 1).to(dtype)


def rates(labels: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    rate = torch.randint(5, labels.shape, generator=generator, dtype=torch.float64) / 4
    return rate.to(labels.device)


def value(name: str, options: dict[str, Any], z: Tensor, labels: Tensor, **more: Any) -> Tensor:
    shape = labels[:, 0] if labels.is_floating_point() else labels
    more = per_batch(name, rates(shape)) | more
    return LOSSES[name].function(z, labels, **options, **more)


def per_batch(name: str, rate: Tensor) -> dict[str, Tensor]:
    """Options of a batch, from a number in [0, 1] per sample; exponents are of both signs."""
    made = {"correctness": rate, "gamma": 6 * rate - 3}
    return {option: made[option] for option in LOSSES[name].per_batch}


def at(case: str) -> Callable[[str], str]:
    """For ``assert_close``: its message, and the case that it is about."""
    return lambda message: f"{case}: {message}"


def test_none_is_missing() -> None:
    assert {name for name, _ in CONFIGURATIONS} == set(LOSSES)
    assert set(LOSSES) == {
        "cross_entropy",
        "label_smoothing",
        "focal",
        "sample_dependent_focal",
        "dual_focal",
        "inverse_focal",
        "adafocal",
        "bsce_gra",
        "acls",
        "esd",
        "brier",
        "squared_error",
        "logit_norm",
        "negative_entropy",
        "mmce",
        "mmce_weighted",
        "avuc",
        "soft_avuc",
        "soft_binned_ece",
        "mdca",
        "dca",
        "margin_smoothing",
        "correctness_ranking",
    }
    for name in LOSSES:
        assert callable(getattr(brute, name))


@every
def test_equals_the_formula(name: str, options: dict[str, Any]) -> None:
    for shape in ((7, 4), (1, 3), (12, 2), (24, 10), (3, 300)):
        z, y = batch(shape, seed=shape[0])
        more = per_batch(name, rates(y))
        listed = {k: v.tolist() for k, v in more.items()}
        soft, hard = soften(y, shape[1]), one_hot(y, shape[1])
        for labels, rows in ((y, hard), (soft, soft)):
            want = getattr(brute, name)(z.tolist(), rows.tolist(), **options, **listed)
            assert_close(
                value(name, options, z, labels, **more),
                torch.tensor(want, dtype=torch.float64),
                rtol=1e-9,
                atol=1e-12,
                msg=at(f"{shape}, {labels.dtype} labels"),
            )


@every
def test_shape_and_type(name: str, options: dict[str, Any]) -> None:
    for dtype, given in [
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ]:
        z, y = batch(dtype=dtype)
        got = value(name, options, z, y)
        assert got.dtype == given
        assert got.shape == ((7,) if LOSSES[name].per_sample else ())
        widened = value(name, options, z.to(given), y)
        assert_close(got, widened, rtol=0, atol=0)


@every
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_pixels_are_samples(name: str, options: dict[str, Any], *, soft: bool) -> None:
    z, y = batch((3, 4, 2, 5))
    labels = soften(y, 4) if soft else y
    pixels = z.movedim(1, -1).reshape(-1, 4)
    flat_labels = labels.movedim(1, -1).reshape(-1, 4) if soft else y.flatten()
    got = value(name, options, z, labels, **per_batch(name, rates(y)))
    want = value(name, options, pixels, flat_labels, **per_batch(name, rates(y).flatten()))
    assert got.shape == (y.shape if LOSSES[name].per_sample else ())
    assert_close(got.flatten(), want.flatten(), rtol=1e-12, atol=1e-12)


@every
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_gradient(name: str, options: dict[str, Any], *, soft: bool) -> None:
    z, y = batch((6, 3), seed=3)
    labels = soften(y, 3) if soft else y
    z.requires_grad_()
    if is_held(name, options):
        check_held(name, options, z, labels)
        return
    assert torch.autograd.gradcheck(lambda z: value(name, options, z, labels), (z,))


@every
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_second_derivatives(name: str, options: dict[str, Any], *, soft: bool) -> None:
    """As a gradient penalty or a Hessian needs them."""
    z, y = batch((4, 3), seed=3)
    labels = soften(y, 3) if soft else y
    z.requires_grad_()
    if is_held(name, options):
        check_held(name, options, z, labels)
        return
    assert torch.autograd.gradgradcheck(lambda z: value(name, options, z, labels), (z,))


@every
def test_second_derivatives_whatever_the_order_of_samples(
    name: str, options: dict[str, Any]
) -> None:
    """Also where confidences are equal."""
    z, y = batch((12, 4))
    z[3], z[7], z[1] = z[5], z[5].flip(0), z[5].roll(1)
    z.requires_grad_()
    order = torch.arange(12).roll(5)  # neighbours are the pairs of correctness_ranking
    r = rates(y)
    here = value(name, options, z, y, **per_batch(name, r))
    there = value(name, options, z[order], y[order], **per_batch(name, r[order]))
    assert_close(*(_second(total.sum(), z) for total in (here, there)), rtol=1e-9, atol=1e-12)


def _second(total: Tensor, z: Tensor) -> Tensor:
    """Hessian times a vector."""
    direction = torch.linspace(-1, 2, z.numel(), dtype=z.dtype).view_as(z)
    (gradient,) = torch.autograd.grad(total, z, create_graph=True)
    if not gradient.requires_grad:  # linear in the logits
        return torch.zeros_like(z)
    (second,) = torch.autograd.grad((direction * gradient).sum(), z, allow_unused=True)
    return torch.zeros_like(z) if second is None else second


def is_held(name: str, options: dict[str, Any]) -> bool:
    """Whether a part of the loss takes no gradient."""
    return bool(options.get("stop_gradient")) or name in ("bsce_gra", "acls")


def check_held(name: str, options: dict[str, Any], z: Tensor, labels: Tensor) -> None:
    """Value and derivatives are those of the formula with a part of it held at its value."""
    soft = labels if labels.is_floating_point() else one_hot(labels, z.shape[1])

    def held(z: Tensor, fixed: Tensor) -> Tensor:
        return HELD[name](z, fixed, soft, **options).sum()

    got = value(name, options, z, labels).sum()
    (want,) = torch.autograd.grad(held(z, z.detach()), z)
    (gradient,) = torch.autograd.grad(got, z, retain_graph=True)
    assert_close(got, held(z, z.detach()), rtol=1e-9, atol=1e-12)
    assert_close(gradient, want, rtol=1e-8, atol=1e-12)
    second = _second(value(name, options, z, labels).sum(), z)
    assert_close(second, _second(held(z, z.detach()), z), rtol=1e-7, atol=1e-12)
    assert (second.abs().max() > 1e-6) == (name != "acls" or options != {})
    (moving,) = torch.autograd.grad(held(z, z), z)
    assert torch.allclose(gradient, moving) == (name == "acls" and options == {})


def held_avuc(
    z: Tensor, fixed: Tensor, t: Tensor, *, threshold: float, stop_gradient: bool
) -> Tensor:
    """AvUC-GS: the confidences are held."""
    assert stop_gradient
    a, c = t.gather(1, z.argmax(1, keepdim=True))[:, 0], fixed.softmax(1).amax(1)
    h = -(z.softmax(1) * z.log_softmax(1)).sum(1)
    unsure = (h >= threshold).double()
    u, s = unsure * h.tanh(), (1 - unsure) * (1 - h.tanh())
    bad = (a * c * u + (1 - a) * (1 - c) * s).sum()
    return torch.log(1 + bad / (a * c * s + (1 - a) * (1 - c) * u).sum())


def held_bsce_gra(
    z: Tensor, fixed: Tensor, t: Tensor, *, gamma: float = 2, norm: float = 2
) -> Tensor:
    """The distance between prediction and target is held."""
    distance = torch.linalg.vector_norm(fixed.softmax(1) - t, norm, 1)
    return distance**gamma * -(t * z.log_softmax(1)).sum(1)


def held_acls(
    z: Tensor,
    fixed: Tensor,
    _t: Tensor,
    *,
    margin: float = 10,
    top_weight: float = 1,
    other_weight: float = 0.1,
) -> Tensor:
    """The largest logit is held where the others are compared with it."""
    below = (fixed.amax(1, keepdim=True) - z - margin).relu() ** 2
    strong = top_weight * (z.amax(1) - margin).relu() ** 2
    return strong + other_weight * below.sum(1) / (z.shape[1] - 1)


HELD = {"avuc": held_avuc, "bsce_gra": held_bsce_gra, "acls": held_acls}


def _extremes() -> dict[str, tuple[Tensor, Tensor]]:
    big = 1e4 * torch.tensor([[1.0, -1, 0], [-1, 1, 1], [1, 1, -1], [-1, -1, -1], [0, 0, 1]])
    z, y = batch((6, 3))
    sure = torch.tensor([[120.0, 0, 0], [0, 120, 0], [0, 0, 120]])
    return {
        "huge": (big, torch.tensor([0, 0, 2, 1, 2])),
        "huge, all right": (big, big.argmax(1)),
        "huge, all wrong": (big, (big.argmax(1) + 1) % 3),
        "all zero": (torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])),
        "all equal": (torch.full((4, 3), -7.25), torch.tensor([1, 1, 1, 1])),
        "probabilities 0 and 1, right": (sure, torch.tensor([0, 1, 2])),
        "probabilities 0 and 1, wrong": (sure, torch.tensor([1, 2, 0])),
        "one sample, right": (z[:1], z[:1].argmax(1)),
        "one sample, wrong": (z[:1], (z[:1].argmax(1) + 1) % 3),
        "one sample, sure": (sure[:1], torch.tensor([0])),
        "all right": (z, z.argmax(1)),
        "all wrong": (z, (z.argmax(1) + 1) % 3),
        "repeated samples": (z[[0, 0, 1, 1]], y[[0, 0, 1, 1]]),
        "two classes": (
            torch.tensor([[1e4, -1e4], [-1e4, 1e4], [1e-30, 0.0]]),
            torch.tensor([0, 0, 1]),
        ),
        "tiny": (1e-30 * z, y),
    }


EXTREMES = _extremes()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_finite(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    for case, (extreme, y) in EXTREMES.items():
        z = extreme.detach().to(dtype).requires_grad_()
        for labels in (y, soften(y, z.shape[1])):
            got = value(name, options, z, labels)
            (gradient,) = torch.autograd.grad(got.sum(), z)
            assert got.isfinite().all(), case
            assert gradient.isfinite().all(), case
            assert gradient.dtype == dtype, case


@every
def test_order_of_samples(name: str, options: dict[str, Any]) -> None:
    """Also where confidences are equal, and for the gradient."""
    z, y = batch((12, 4))
    z[3], z[7], z[1] = z[5], z[5].flip(0), z[5].roll(1)
    z.requires_grad_()
    order = torch.tensor([4, 9, 1, 0, 11, 2, 7, 3, 10, 8, 6, 5])
    if name == "correctness_ranking":
        order = torch.arange(12).roll(5)  # neighbours are its pairs
    r = rates(y)
    here = value(name, options, z, y, **per_batch(name, r))
    there = value(name, options, z[order], y[order], **per_batch(name, r[order]))
    assert_close(there, here[order] if here.ndim else here, rtol=1e-12, atol=1e-14)
    (g,) = torch.autograd.grad(here.sum(), z, retain_graph=True)
    (h,) = torch.autograd.grad(there.sum(), z)
    assert_close(g, h, rtol=1e-9, atol=1e-13)


@every
def test_order_of_classes(name: str, options: dict[str, Any]) -> None:
    z, y = batch((9, 5))
    order = torch.tensor([3, 0, 4, 1, 2])
    got = value(name, options, z[:, order], order.argsort()[y])
    assert_close(got, value(name, options, z, y), rtol=1e-12, atol=1e-14)


@every
def test_one_hot_targets_equal_class_numbers(name: str, options: dict[str, Any]) -> None:
    z, y = batch((9, 5))
    z.requires_grad_()
    hard, soft = value(name, options, z, y), value(name, options, z, one_hot(y, 5))
    assert_close(soft, hard, rtol=1e-12, atol=1e-14)
    (g,), (h,) = torch.autograd.grad(hard.sum(), z), torch.autograd.grad(soft.sum(), z)
    assert_close(g, h, rtol=1e-9, atol=1e-13)


@every
def test_samples_left_out(name: str, options: dict[str, Any]) -> None:
    z, y = batch((10, 4))
    out = torch.tensor([2, 5, 9])
    marked = y.clone()
    marked[out] = -100
    kept = torch.ones(10, dtype=torch.bool)
    kept[out] = False
    r = rates(y)
    got = value(name, options, z, marked, ignore_index=-100, **per_batch(name, r))
    if LOSSES[name].per_sample:
        want = value(name, options, z, y) * kept
    elif name == "correctness_ranking":
        pairs = [(i, (i + 1) % 10) for i in range(10)]
        pairs = [(i, j) for i, j in pairs if kept[i] and kept[j]]
        c = z.softmax(1).amax(1)
        terms = [
            max(0.0, float((r[i] - r[j]).abs() - (r[i] - r[j]).sign() * (c[i] - c[j])))
            for i, j in pairs
        ]
        want = torch.tensor(sum(terms) / len(terms), dtype=torch.float64)
    else:
        want = value(name, options, z[kept], y[kept])
    assert_close(got, want, rtol=1e-12, atol=1e-14)
    nothing = torch.full_like(y, -100)
    z.requires_grad_()
    empty = value(name, options, z, nothing, ignore_index=-100)
    assert (empty == 0).all()
    (gradient,) = torch.autograd.grad(empty.sum(), z)
    assert (gradient == 0).all()


@every_primary
def test_class_weights(name: str, options: dict[str, Any]) -> None:
    z, y = batch((10, 4))
    weights = torch.tensor([0.5, 1.0, 2.0, 0.0])
    plain = value(name, options, z, y)
    got = value(name, options, z, y, class_weights=weights)
    if name == "label_smoothing":  # the weights see the smoothed target, as in PyTorch
        k, epsilon = 4, options.get("epsilon", 0.05)
        epsilon *= k / (k - 1) if options.get("spread") == "others" else 1
        smooth = (1 - epsilon) * one_hot(y, k) + epsilon / k
        want = -(weights.double() * smooth * z.log_softmax(1)).sum(1)
        assert_close(got, want)
        if epsilon >= 0:
            same = {"reduction": "none", "label_smoothing": epsilon}
            theirs = torch.nn.functional.cross_entropy(z, y, weights.double(), **same)
            assert_close(got, theirs)
    else:
        assert_close(got, plain * weights[y])
    assert_close(value(name, options, z, y, class_weights=weights.tolist()), got)
    soft = value(name, options, z, one_hot(y, 4), class_weights=weights)
    assert_close(soft, got)
    with pytest.raises(InputError, match="one number for each of the 4 classes"):
        value(name, options, z, y, class_weights=[1.0, 2.0])


@every
def test_any_device_and_no_waiting(name: str, options: dict[str, Any]) -> None:
    """The meta device has no values to read, and refuses tensors of another device."""
    z, y = batch((8, 4), dtype=torch.float32)
    z, y = z.to("meta").requires_grad_(), y.to("meta")
    got = value(name, options, z, y, ignore_index=-100)
    assert got.device.type == "meta"
    got.sum().backward()
    assert z.grad is not None
    assert z.grad.shape == z.shape


@every
def test_autocast(name: str, options: dict[str, Any]) -> None:
    z, y = batch((32, 4), dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = value(name, options, z, y)
    assert got.dtype == torch.float32
    assert_close(got, value(name, options, z.float(), y), rtol=1e-6, atol=1e-7)


# PyTorch 2.13 warns of its own tracing of autograd functions.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize(("name", "options"), COMPILED, ids=IDS)
def test_compiles_to_one_graph(name: str, options: dict[str, Any]) -> None:
    torch.compiler.reset()
    spec = {"name": name, **options}
    objective = Objective("cross_entropy", spec, weight=0.5)
    more = per_batch(name, rates(torch.zeros(9)))
    z, y = batch((9, 4), dtype=torch.float32)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    results = []
    for run in (objective, compiled):
        z = z.detach().requires_grad_()
        total = run(z, y, **more)
        total.backward()
        results.append((total.detach(), z.grad, objective.parts[name]))
    for a, b in zip(*results, strict=True):
        assert_close(a, b)


@every
def test_inputs_are_left_alone(name: str, options: dict[str, Any]) -> None:
    z, y = batch()
    before = z.clone(), y.clone()
    value(name, options, z, y, ignore_index=0)
    assert torch.equal(z, before[0])
    assert torch.equal(y, before[1])


BAD_BATCHES: list[tuple[Any, Any, str]] = [
    (torch.zeros(3), torch.zeros(3).long(), r"logits must have the shape \(N, K\)"),
    (torch.zeros(3, 1), torch.zeros(3).long(), "K >= 2"),
    (torch.zeros(3, 4).long(), torch.zeros(3).long(), "floating"),
    ([[1.0, 2.0]], torch.zeros(1).long(), "logits must be a floating-point tensor; got list"),
    (torch.zeros(3, 4), torch.zeros(2).long(), r"labels must have the shape \(3,\)"),
    (torch.zeros(3, 4), torch.zeros(3, 1).long(), r"labels must have the shape \(3,\)"),
    (torch.zeros(3, 4), torch.zeros(3, 5), r"the shape \(3, 4\) of the logits"),
    (torch.zeros(3, 4), torch.zeros(3), r"the shape \(3, 4\) of the logits"),
    (torch.zeros(3, 4), [0, 1, 2], "labels must be a tensor"),
    (torch.zeros(3, 4), torch.zeros(3).bool(), "class numbers"),
    (torch.zeros(3, 4, 2), torch.zeros(3).long(), r"labels must have the shape \(3, 2\)"),
]


@pytest.mark.parametrize("name", LOSSES)
def test_bad_batches(name: str) -> None:
    options = next(o for n, o in CONFIGURATIONS if n == name)
    more = per_batch(name, torch.zeros(3))
    for z, y, message in BAD_BATCHES:
        with pytest.raises(InputError, match=message):
            LOSSES[name].function(z, y, **options, **more)


@every_primary
def test_no_label_is_left_out_unasked(name: str, options: dict[str, Any]) -> None:
    """PyTorch's -100 included."""
    z, y = batch((4, 3))
    y[2] = -100
    with pytest.raises((IndexError, RuntimeError)):
        value(name, options, z, y)


@pytest.mark.parametrize("name", LOSSES)
def test_soft_targets_cannot_be_left_out_by_number(name: str) -> None:
    options = next(o for n, o in CONFIGURATIONS if n == name)
    with pytest.raises(InputError, match="ignore_index needs labels that are class numbers"):
        value(name, options, torch.zeros(3, 4), torch.zeros(3, 4), ignore_index=-1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("label_smoothing", {"epsilon": 1.0}, "-1 < epsilon < 1"),
        ("label_smoothing", {"epsilon": -1}, "-1 < epsilon < 1"),
        ("label_smoothing", {"epsilon": 0.9, "spread": "others"}, "at most"),
        ("label_smoothing", {"spread": "other"}, "Did you mean 'others'"),
        ("focal", {"gamma": -1}, "gamma must be a finite number of at least 0"),
        ("focal", {"gamma": math.nan}, "gamma"),
        ("focal", {"gamma": "3"}, "gamma"),
        ("sample_dependent_focal", {"gamma_low": -1}, "gamma_low"),
        ("dual_focal", {"gamma": math.inf}, "gamma"),
        ("inverse_focal", {"gamma": True}, "gamma"),
        ("adafocal", {"gamma": torch.zeros(2)}, "gamma must be a tensor"),
        ("adafocal", {"gamma": 3.0}, "gamma must be a tensor"),
        ("bsce_gra", {"gamma": -1}, "gamma"),
        ("bsce_gra", {"norm": 0.5}, "norm must be a number"),
        ("acls", {"margin": -1}, "margin"),
        ("acls", {"top_weight": -1}, "top_weight"),
        ("squared_error", {"on": "logit"}, "Did you mean 'logits'"),
        ("squared_error", {"on": "logits", "scale": -1}, "scale"),
        ("logit_norm", {"p": 0.5}, "p must be a number p >= 1"),
        ("margin_smoothing", {"margin": -1}, "margin"),
        ("mmce", {"width": 0.0}, "width must be a finite number of at least 0.02"),
        ("mmce_weighted", {"width": -1}, "width"),
        ("avuc", {"threshold": -0.5}, "threshold"),
        ("soft_avuc", {"kappa": 1.0}, "kappa must lie strictly between 0 and 1"),
        ("soft_avuc", {"temperature": 0}, "must be a finite number above 0"),
        ("soft_binned_ece", {"bins": 0}, "bins"),
        ("soft_binned_ece", {"temperature": 0.0}, "must be a finite number above 0"),
        ("soft_binned_ece", {"norm": math.inf}, "norm"),
        ("soft_binned_ece", {"form": "bins"}, "Did you mean 'bin'"),
        ("correctness_ranking", {"correctness": torch.zeros(2)}, "correctness must be a tensor"),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], message: str) -> None:
    z, y = batch()
    with pytest.raises(InputError, match=message):
        LOSSES[name].function(z, y, **options)


@pytest.mark.parametrize("name", LOSSES)
def test_documented(name: str) -> None:
    loss = LOSSES[name]
    text = inspect.getdoc(loss.function) or ""
    assert ">>> " in text
    assert "Parameters" in text
    if name not in ("cross_entropy",):
        assert "References" in text
    options = [o for o in loss.options if o != "labels"]
    for option in options:
        assert option in text, f"{name} does not document {option}"
