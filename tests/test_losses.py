"""Losses: golden numbers, limits, theorems; mixing, history, and the objective."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from calibrant import InputError, Predictions, losses, metrics
from calibrant.losses import LOSSES, CorrectnessHistory, Objective, cutmix, mixup
from tests import brute_losses as brute
from tests.close import assert_close
from tests.conftest import CASES
from tests.test_all_losses import batch, one_hot, soften

# --- golden numbers ---------------------------------------------------------------------------


@pytest.fixture
def golden(shared: Path) -> tuple[Tensor, Tensor, dict[str, Any], dict[str, float]]:
    folder = shared / "oracles"
    with np.load(folder / "golden_inputs.npz") as data:
        z, y = torch.tensor(data["logits"]), torch.tensor(data["labels"]).long()
    tf = json.loads((folder / "golden_tf.json").read_text())
    return z.double(), y, tf, json.loads((folder / "golden_torch.json").read_text())


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("soft_binned_ece", {"temperature": 0.01}, "sb_ece_binned_l2_m15_T0.01"),
        ("soft_binned_ece", {"temperature": 0.001}, "sb_ece_binned_l2_m15_T0.001"),
        ("soft_binned_ece", {"temperature": 0.05, "bins": 10}, "sb_ece_binned_l2_m10_T0.05"),
        (
            "soft_binned_ece",
            {"temperature": 1 / (math.log(80) * 15**2)},
            "sb_ece_binned_l2_m15_decay80",
        ),
        ("avuc", {"threshold": 0.5}, "avuc_th0.5_stopFalse"),
        ("avuc", {"threshold": 0.5, "stop_gradient": True}, "avuc_th0.5_stopTrue"),
        ("avuc", {"threshold": 1.0}, "avuc_th1.0_stopFalse"),
        ("avuc", {"threshold": 1.0, "stop_gradient": True}, "avuc_th1.0_stopTrue"),
        ("soft_avuc", {"kappa": 0.5, "temperature": 1.0}, "savuc_theta0.5_T1.0"),
        ("soft_avuc", {"kappa": 0.7, "temperature": 0.1}, "savuc_theta0.7_T0.1"),
        ("soft_avuc", {"kappa": 0.1, "temperature": 0.01}, "savuc_theta0.1_T0.01"),
    ],
)
def test_the_authors_values_and_gradients(golden: Any, name: str, options: Any, key: str) -> None:
    z, y, tf, _ = golden
    z.requires_grad_()
    logits = z
    if "avuc" in name:
        # Their entropy is that of probabilities mixed with 1e-5 of the uniform distribution;
        # without it values differ by 1e-5 to 6e-5. Ours takes the formula as printed.
        logits = (z.softmax(1) * (1 - 1e-5) + 1e-5 / 10).log()
    got = LOSSES[name].function(logits, y, **options)
    (gradient,) = torch.autograd.grad(got, z)
    assert float(got.detach()) == pytest.approx(tf[key]["value"], rel=1e-5)
    # In the hard form theirs leaves the confidence unmixed, which moves gradients by 1.6e-5.
    rtol = 2e-5 if name == "avuc" else 1e-5
    assert float(gradient.norm()) == pytest.approx(tf[key]["grad_norm"], rel=rtol)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("cross_entropy", {}, "ce_mean"),
        ("label_smoothing", {"epsilon": 0.05}, "ls0.05_torch_mean"),
        ("focal", {"gamma": 3}, "focal_g3_mean"),
        ("sample_dependent_focal", {}, "flsd53_mean"),
        ("dual_focal", {"gamma": 5}, "dual_focal_g5_mean"),
        ("brier", {}, "brier_sum_over_classes"),
        ("mmce", {}, "mmce(netcal, sqrt)"),
        ("mmce", {"root": False}, "mmce_m_squared(focal_calibration)"),
        ("mmce_weighted", {}, "mmce_w(netcal MMCEPenalty)"),
        ("dca", {}, "dca(netcal)"),
        ("mdca", {}, "mdca(formula: mean_k|mean p_k - freq_k|)"),
        ("margin_smoothing", {"margin": 10}, "mbls_margin10_penalty"),
        ("margin_smoothing", {"margin": 3}, "mbls_margin3_penalty"),
    ],
)
def test_independent_values(golden: Any, name: str, options: Any, key: str) -> None:
    z, y, _, other = golden
    assert float(LOSSES[name].function(z, y, **options).mean()) == pytest.approx(
        other[key], rel=2e-6, abs=1e-9
    )


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("focal", {"gamma": 0}),
        ("focal", {"gamma": 1e-9}),
        ("inverse_focal", {"gamma": 0}),
        ("dual_focal", {"gamma": 0}),
        ("sample_dependent_focal", {"gamma_low": 0, "gamma_high": 0}),
        ("label_smoothing", {"epsilon": 0}),
        ("label_smoothing", {"epsilon": 0, "spread": "others"}),
    ],
)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_limits_that_are_cross_entropy(name: str, options: Any, *, soft: bool) -> None:
    z, y = batch((40, 6))
    labels = soften(y, 6) if soft else y
    z.requires_grad_()
    ours = LOSSES[name].function(z, labels, **options)
    theirs = F.cross_entropy(z, labels, reduction="none")
    assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    (g,), (h,) = torch.autograd.grad(ours.sum(), z), torch.autograd.grad(theirs.sum(), z)
    assert_close(g, h, rtol=1e-6, atol=1e-8)


def test_the_two_smoothings_are_one_family() -> None:
    z, y = batch((40, 6))
    others = losses.label_smoothing(z, y, epsilon=0.1, spread="others")
    everyone = losses.label_smoothing(z, y, epsilon=0.1 * 6 / 5)
    assert_close(others, everyone)
    uniform = losses.label_smoothing(z, y, epsilon=5 / 6, spread="others")
    assert_close(uniform, -z.log_softmax(1).mean(1))


def test_hard_bins_are_the_limit_of_soft_ones() -> None:
    """Both forms become the metrics of the same name as the bins harden."""
    z, y = CASES["mixed signs"]
    p = Predictions(logits=z.astype("float64"), labels=y)
    logits, labels = torch.tensor(p.logits), torch.tensor(y)
    for norm in (1, 2, 3):
        options = {"bins": 15, "temperature": 1e-7, "norm": norm}
        soft = losses.soft_binned_ece(logits, labels, **options)
        assert float(soft) == pytest.approx(metrics.ece(p, bins=15, norm=norm), rel=1e-4)
        soft = losses.soft_binned_ece(logits, labels, **options, form="label")
        assert float(soft) == pytest.approx(
            metrics.label_binned_ece(p, bins=15, norm=norm), rel=1e-4
        )


def test_the_hard_step_is_the_limit_of_the_soft_one() -> None:
    """S-AvUC at T -> 0 has the groups of AvUC at the threshold kappa log K."""
    z, y = batch((300, 5))
    h = -(z.softmax(1) * z.log_softmax(1)).sum(1)
    right, unsure = z.argmax(1) == y, h > 0.4 * math.log(5)
    sure = 1 - h.tanh()
    bad = h.tanh()[right & unsure].sum() + sure[~right & ~unsure].sum()
    good = sure[right & ~unsure].sum() + h.tanh()[~right & unsure].sum()
    got = losses.soft_avuc(z, y, kappa=0.4, temperature=1e-6)
    assert_close(got, torch.log(1 + bad / good))


def test_soft_uncertainty() -> None:
    h = torch.linspace(0.001, 0.999, 99, dtype=torch.float64)
    assert_close(losses.soft_uncertainty(h, 0.5, 1.0), h)  # the identity
    half = torch.tensor([0.3], dtype=torch.float64)
    assert float(losses.soft_uncertainty(half, 0.3, 0.2)) == pytest.approx(0.5)
    ends = losses.soft_uncertainty(torch.tensor([0.0, 1.0]), 0.3, 0.1)
    assert_close(ends, torch.tensor([0.0, 1.0]))


def test_soft_membership() -> None:
    u = losses.soft_membership(torch.rand(50), 15, 0.01)
    assert_close(u.sum(1), torch.ones(50))
    hard = losses.soft_membership(torch.tensor([0.05, 0.5, 0.99]), 5, 1e-6)
    assert hard.argmax(1).tolist() == [0, 2, 4]


def test_squared_error_is_brier_over_k() -> None:
    z, y = batch((20, 6))
    assert_close(losses.squared_error(z, y), losses.brier(z, y) / 6)
    np.testing.assert_allclose(
        losses.brier(z, y).mean(), metrics.brier(Predictions(logits=z.numpy(), labels=y.numpy()))
    )


@pytest.mark.parametrize("case", ["mixed signs", "two classes", "many classes", "ties"])
def test_penalties_equal_the_metrics(case: str) -> None:
    z, y = CASES[case]
    p = Predictions(logits=z.astype("float64"), labels=y)
    logits, labels = torch.tensor(p.logits), torch.tensor(y)
    assert float(losses.mmce(logits, labels)) == pytest.approx(metrics.mmce(p), rel=1e-6)
    assert float(losses.dca(logits, labels)) == pytest.approx(
        abs(metrics.mean_confidence(p) - metrics.accuracy(p)), rel=1e-6
    )
    assert float(losses.cross_entropy(logits, labels).mean()) == pytest.approx(metrics.nll(p))
    assert float(losses.negative_entropy(logits, labels).mean()) == pytest.approx(
        -metrics.mean_entropy(p)
    )


def test_right_and_sure_has_no_error() -> None:
    z = torch.tensor([[200.0, 0.0], [0.0, 200.0]])
    for name in ("mmce", "mmce_weighted", "mdca", "dca", "brier", "soft_binned_ece"):
        assert float(LOSSES[name].function(z, torch.tensor([0, 1])).sum()) == 0


# --- theorems ---------------------------------------------------------------------------------

logits_lists = st.lists(st.floats(-30, 30), min_size=2, max_size=8)


@given(logits_lists, st.floats(1, 10))
def test_scaling_logits_up_raises_the_top(z: list[float], t: float) -> None:
    """Theorem 1 of loss_report."""
    logits = torch.tensor([z], dtype=torch.float64)
    assert (t * logits).softmax(1).max() >= logits.softmax(1).max() - 1e-15


@given(logits_lists, st.integers(0, 7), st.floats(1, 10))
def test_focal_bounds_cross_entropy_less_entropy(z: list[float], y: int, gamma: float) -> None:
    """Theorem 2 of loss_report: for gamma >= 1, L_focal >= L_ce - gamma H."""
    logits, label = torch.tensor([z], dtype=torch.float64), torch.tensor([y % len(z)])
    bound = losses.cross_entropy(logits, label) + gamma * losses.negative_entropy(logits, label)
    assert losses.focal(logits, label, gamma=gamma) >= bound - 1e-9 * (1 + bound.abs())


@given(logits_lists, st.lists(st.floats(0.01, 1), min_size=8, max_size=8), st.floats(1, 10))
def test_focal_bounds_divergence_less_entropy(z: list[float], q: list[float], gamma: float) -> None:
    """mukhoti2020: L_focal >= KL(q || p) - gamma H(p) for every target q (H(q) >= 0)."""
    logits = torch.tensor([z], dtype=torch.float64)
    target = torch.tensor([q[: len(z)]], dtype=torch.float64)
    target = target / target.sum()
    divergence = (target * (target.log() - logits.log_softmax(1))).sum()
    bound = divergence + gamma * losses.negative_entropy(logits, target)
    assert losses.focal(logits, target, gamma=gamma) >= bound - 1e-9 * (1 + bound.abs())


@given(logits_lists, st.integers(0, 7), st.floats(0, 8))
def test_order_of_the_focal_family(z: list[float], y: int, gamma: float) -> None:
    """Focal <= dual focal <= cross-entropy <= inverse focal, at the same gamma."""
    logits, label = torch.tensor([z], dtype=torch.float64), torch.tensor([y % len(z)])
    names = ("focal", "dual_focal", "inverse_focal")
    low, dual, high = (LOSSES[n].function(logits, label, gamma=gamma) for n in names)
    plain = losses.cross_entropy(logits, label)
    slack = 1e-12 * (1 + plain)
    assert low <= dual + slack
    assert dual <= plain + slack
    assert plain <= high + slack


@given(st.integers(1, 30), st.integers(2, 6), st.integers(0, 1000))
def test_label_binning_is_never_below_binning(n: int, k: int, seed: int) -> None:
    """Jensen's inequality, in its soft form."""
    z, y = batch((n, k), seed=seed)
    for norm in (1, 2):
        by_bin = losses.soft_binned_ece(z, y, norm=norm)
        by_label = losses.soft_binned_ece(z, y, norm=norm, form="label")
        assert by_label >= by_bin - 1e-12


# --- gradients that are written out -----------------------------------------------------------


def test_exponents_may_need_a_gradient() -> None:
    z, y = batch((9, 4))
    gamma = torch.linspace(-2.9, 3, 9, dtype=torch.float64, requires_grad=True)
    z.requires_grad_()
    assert torch.autograd.gradcheck(lambda z, g: losses.adafocal(z, y, gamma=g), (z, gamma))


# --- memory -----------------------------------------------------------------------------------


def test_mmce_never_forms_the_matrix() -> None:
    """At N = 4,096 the N x N kernel would take 64 MiB; the largest tensor stays far below."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, tuple | list) else (out,):
                if isinstance(t, Tensor):
                    largest = max(largest, t.numel() * t.element_size())
            return out

    z, y = batch((4096, 3), dtype=torch.float32)
    z.requires_grad_()
    with Watch():
        (losses.mmce(z, y) + losses.mmce_weighted(z, y)).backward()
    assert largest <= 16 * 4096


# --- mixing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 8.0])
def test_mixup(alpha: float) -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(12) % 5
    x = one_hot(y, 5).float()
    shares = []
    for _ in range(300):
        mixed, target = mixup(x, y, num_classes=5, alpha=alpha, generator=generator)
        assert_close(mixed, target)  # inputs and labels mix alike
        assert_close(target.sum(1), torch.ones(12))
        others = target[target.argmax(1) != y]
        shares.append(float(mixed.amax(1).min()))
        assert len(others) in range(13)
    # Beta(a, a) folded at 1/2: compare the mean with a million draws of NumPy's.
    draws = np.random.default_rng(0).beta(alpha, alpha, 200_000)
    assert np.mean(shares) == pytest.approx(np.maximum(draws, 1 - draws).mean(), abs=0.04)


def test_mixing_is_seeded_and_takes_soft_labels() -> None:
    x, y = torch.rand(6, 3, 8, 8), torch.arange(6) % 3
    for mix in (mixup, cutmix):
        one, again = (
            mix(x, y, num_classes=3, generator=torch.Generator().manual_seed(4)) for _ in range(2)
        )
        other = mix(x, y, num_classes=3, generator=torch.Generator().manual_seed(5))
        assert torch.equal(one[0], again[0])
        assert torch.equal(one[1], again[1])
        assert not torch.equal(one[0], other[0])
        soft = mix(
            x, F.one_hot(y, 3).float(), num_classes=3, generator=torch.Generator().manual_seed(4)
        )
        assert_close(soft[1], one[1])
        assert losses.cross_entropy(torch.zeros(6, 3), one[1]).shape == (6,)


def test_cutmix_labels_by_pasted_area() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.arange(8.0).reshape(8, 1, 1, 1).expand(8, 1, 10, 14)
    for _ in range(100):
        mixed, target = cutmix(x, torch.arange(8), num_classes=8, generator=generator)
        for i in range(8):
            values, counts = mixed[i].unique(return_counts=True)
            want = torch.zeros(8).index_add(0, values.long(), counts / 140)
            assert_close(target[i], want)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cutmix(torch.rand(3, 4), torch.arange(3), num_classes=3), "images must have"),
        (lambda: mixup(torch.rand(3, 4), torch.arange(2), num_classes=3), "labels must have"),
        (lambda: mixup(torch.rand(3, 4), torch.rand(3, 2), num_classes=3), "labels must have"),
        (lambda: mixup(torch.ones(3).long(), torch.arange(3), num_classes=3), "inputs must be"),
        (lambda: mixup(torch.rand(3), torch.arange(3), num_classes=3, alpha=0), "above 0"),
        (lambda: mixup(torch.rand(3), torch.arange(3), num_classes=1), "num_classes"),
    ],
)
def test_bad_mixing(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


# --- history ----------------------------------------------------------------------------------


def test_history() -> None:
    history = CorrectnessHistory(5)
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    history.update(torch.tensor([0, 1, 4]), z, torch.tensor([0, 1, 1]))
    history.update(torch.tensor([0, 1, 3]), z, torch.tensor([1, 1, 1]))
    assert history.rate(torch.tensor([0, 1, 2, 3, 4])).tolist() == [0.5, 0, 0, 1, 1]
    copy = CorrectnessHistory(5)
    copy.load_state_dict(history.state_dict())
    assert torch.equal(copy.rate(torch.arange(5)), history.rate(torch.arange(5)))
    with pytest.raises(InputError, match="num_samples"):
        CorrectnessHistory(0)


def test_ranking_teaches_the_order() -> None:
    """Descent on the loss orders confidences as the rates are, by as much."""
    z = torch.zeros(4, 2, dtype=torch.float64)
    z[:, 0] = torch.tensor([2.0, 1.0, 0.5, 0.1])
    z.requires_grad_()
    rate, y = torch.tensor([0.0, 0.1, 0.3, 0.4]), torch.zeros(4).long()
    optimiser = torch.optim.SGD([z], lr=0.5)
    for _ in range(3000):
        optimiser.zero_grad()
        losses.correctness_ranking(z, y, correctness=rate).backward()
        optimiser.step()
    c = z.softmax(1).amax(1)
    assert (c.diff() > 0).all()


# --- objective --------------------------------------------------------------------------------


def test_objective_is_the_weighted_sum() -> None:
    z, y = batch((20, 5))
    objective = Objective("focal", ["mmce", {"name": "logit_norm", "p": 2}], weight=[2.0, 0.01])
    want = (
        losses.focal(z, y).mean()
        + 2 * losses.mmce(z, y)
        + 0.01 * losses.logit_norm(z, y, p=2).mean()
    )
    total = objective(z, y)
    assert_close(total, want)
    assert list(objective.parts) == ["total", "focal", "mmce", "logit_norm"]
    assert_close(objective.parts["total"], want)
    assert_close(objective.parts["mmce"], losses.mmce(z, y))
    assert not any(part.requires_grad for part in objective.parts.values())
    assert repr(objective) == "Objective(focal + 2 mmce + 0.01 logit_norm(p=2))"


def test_negative_coefficients_where_wang_has_them() -> None:
    """Section 5.2: label smoothing and the norm with negative coefficients; nowhere else."""
    z, y = batch()
    rows, targets = z.tolist(), one_hot(y, z.shape[1]).tolist()
    plain = brute.cross_entropy(rows, targets)
    norm = [sum(map(abs, row)) for row in rows]
    want = sum(a - 0.01 * b for a, b in zip(plain, norm, strict=True)) / len(rows)
    for text in (
        "cross_entropy + -0.01*logit_norm",
        "cross_entropy - 0.01*logit_norm",
        "cross_entropy  -  1e-2*logit_norm:p=1",
    ):
        assert float(Objective.parse(text)(z, y)) == pytest.approx(want, rel=1e-12), text
    assert want < sum(plain) / len(rows)
    sharp = brute.label_smoothing(rows, targets, epsilon=-0.01)
    found = Objective.parse("label_smoothing:epsilon=-0.01")(z, y)
    assert float(found) == pytest.approx(sum(sharp) / len(sharp), rel=1e-12)
    for text in ("cross_entropy - 0.5*mmce", "cross_entropy + -1*negative_entropy"):
        with pytest.raises(InputError, match="weight must be a finite number of at least 0"):
            Objective.parse(text)
    for text in ("focal:gamma=-1", "cross_entropy - nan*logit_norm", "cross_entropy - mmce"):
        with pytest.raises(InputError):
            Objective.parse(text)


def test_no_weight_is_the_primary_alone() -> None:
    z, y = batch((20, 5))
    assert_close(Objective("focal", "mmce", weight=0)(z, y), losses.focal(z, y).mean())


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 3.0, 0.0, 1.5]], ids=["plain", "weights"])
@pytest.mark.parametrize("left_out", [None, 2, -100])
def test_objective_means_as_pytorch_does(weights: Any, left_out: int | None) -> None:
    z, y = batch((20, 5, 3))
    if left_out == -100:
        y[::3] = -100
    objective = Objective(class_weights=weights, ignore_index=left_out)
    tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    want = F.cross_entropy(z, y, tensor, ignore_index=-1 if left_out is None else left_out)
    assert_close(objective(z, y), want)
    assert "class_weights" in objective.state_dict() or weights is None


def test_objective_of_ignored_and_soft_labels() -> None:
    z, y = batch((12, 4))
    marked = y.clone()
    marked[:5] = -1
    objective = Objective("brier", ["soft_binned_ece", "negative_entropy"], [1, 1], ignore_index=-1)
    plain = Objective("brier", ["soft_binned_ece", "negative_entropy"], [1, 1])
    assert_close(objective(z, marked), plain(z[5:], y[5:]))
    assert_close(plain(z, one_hot(y, 4)), plain(z, y))
    weighted = Objective("brier", class_weights=[1.0, 2.0, 0.5, 1.0])
    assert_close(weighted(z, one_hot(y, 4)), weighted(z, y))
    assert float(objective(z, torch.full_like(y, -1))) == 0


def test_objective_with_history() -> None:
    z, y = batch((6, 3))
    history = CorrectnessHistory(6)
    history.update(torch.arange(6), z, y)
    objective = Objective("cross_entropy", "correctness_ranking", weight=0.5)
    rate = history.rate(torch.arange(6))
    want = losses.cross_entropy(z, y).mean() + 0.5 * losses.correctness_ranking(
        z, y, correctness=rate
    )
    assert_close(objective(z, y, correctness=rate), want)
    with pytest.raises(InputError, match="correctness must be given with every batch"):
        objective(z, y)
    with pytest.raises(InputError, match="no loss that takes 'correctnes'"):
        objective(z, y, correctness=rate, correctnes=rate)


# PyTorch 2.13 warns of its own tracing of autograd functions.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_objective_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    quick = functools.partial(torch.compile, backend="aot_eager")  # the default takes a minute
    monkeypatch.setattr(torch, "compile", quick)
    text = "focal:gamma=2 + 0.5*soft_avuc + 2*mmce"
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(12, 4, generator=generator)
    y = torch.randint(4, (12,), generator=generator)
    results = []
    for compiled in (False, True):
        objective = Objective.parse(text, compiled=compiled)
        assert objective.compiled is compiled
        leaf = z.clone().requires_grad_()
        objective(leaf, y).backward()
        results.append((leaf.grad, *objective.parts.values()))
        assert list(objective.parts) == ["total", "focal", "soft_avuc", "mmce"]
    for a, b in zip(*results, strict=True):
        assert_close(a, b)


def test_from_config() -> None:
    config = {
        "primary": {"name": "label_smoothing", "epsilon": 0.1},
        "secondary": [
            {"name": "soft_avuc", "kappa": 0.3, "weight": 0.5},
            "negative_entropy",
        ],
        "ignore_index": -1,
    }
    objective = Objective.from_config(config)
    assert repr(objective) == (
        "Objective(label_smoothing(epsilon=0.1) + 0.5 soft_avuc(kappa=0.3) + 1 negative_entropy)"
    )
    assert config["secondary"][0]["weight"] == 0.5  # the caller's mapping is left alone
    z, y = batch((8, 4))
    want = (
        losses.label_smoothing(z, y, epsilon=0.1).mean()
        + 0.5 * losses.soft_avuc(z, y, kappa=0.3)
        + losses.negative_entropy(z, y).mean()
    )
    assert_close(objective(z, y), want)
    assert repr(Objective.from_config({})) == "Objective(cross_entropy)"
    text = "label_smoothing:epsilon=0.1 + 0.5*soft_avuc:kappa=0.3 + negative_entropy"
    assert repr(Objective(text)) == repr(Objective.parse(text)) == repr(objective)
    assert_close(Objective(text)(z, y), want)
    single = Objective.from_config({"secondary": {"name": "mmce", "weight": 2}})
    assert repr(single) == "Objective(cross_entropy + 2 mmce)"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Objective("focl"), "Did you mean 'focal'"),
        (lambda: Objective({"name": "focal", "gama": 3}), "Did you mean 'gamma'"),
        (lambda: Objective({"gamma": 3}), "must be the name of a loss or a mapping"),
        (lambda: Objective(3), "must be the name of a loss or a mapping"),
        (lambda: Objective({"name": "focal", "gamma": -3}), "gamma must be"),
        (lambda: Objective("focal:gamma=3", "mmce"), "must be left out where primary is a whole"),
        (lambda: Objective("focal + 0.5*mcme"), "Did you mean 'mmce'"),
        (lambda: Objective("cross_entropy", "mcme"), "Did you mean 'mmce'"),
        (lambda: Objective("cross_entropy", "avuc"), "avuc needs the option 'threshold'"),
        (lambda: Objective("cross_entropy", ["mmce", "dca"], [1.0]), "weight must be one number"),
        (lambda: Objective("cross_entropy", "mmce", -1), "weight must be a finite number"),
        (lambda: Objective("cross_entropy", ["mmce", "mmce"]), "name each loss once"),
        (lambda: Objective({"name": "focal", "ignore_index": 1}), "to the Objective itself"),
        (
            lambda: Objective("brier", {"name": "correctness_ranking", "correctness": 1}),
            r"Call objective\(logits, labels, correctness",
        ),
        (lambda: Objective("brier", {"name": "mdca", "bins": 1}), "mdca has no option 'bins'"),
        (lambda: Objective("mmce", class_weights=[1.0, 2.0]), "needs a primary loss that takes"),
        (lambda: Objective.from_config({"primry": "focal"}), "Did you mean 'primary'"),
        (lambda: Objective("focal", compiled="yes"), "compiled must be true or false"),
        (lambda: Objective("mmce", compiled=True, gather=True), "compiled cannot gather"),
    ],
)
def test_bad_objectives(build: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_objective_in_a_training_step_with_autocast() -> None:
    """A step under bf16 autocast moves every parameter, and the loss falls."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    x = torch.randn(64, 4)
    y = x[:, :3].argmax(1)
    objective = Objective("focal", ["soft_binned_ece", "soft_avuc"], [0.5, 0.1])
    optimiser = torch.optim.SGD([*net.parameters()], lr=0.5, momentum=0.9)
    values = []
    for _ in range(60):
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = objective(net(x), y)
        value.backward()
        assert all(p.grad.isfinite().all() for p in net.parameters())
        optimiser.step()
        values.append(float(value.detach()))
    assert values[-1] < 0.5 * values[0]
