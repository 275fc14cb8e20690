"""Calibrant beside seven packages: exact cases, and speed; rewrites docs/comparison.md.

    python benchmarks/peers.py [cases] [speed]

netcal, torchmetrics, scikit-learn, probmetrics and uncertainty-calibration must be installed.
MAPIE, torch-uncertainty, and relplot (probmetrics' smooth ECE), are looked for in the folder that
the environment variable CALIBRANT_PEERS names as well; fill it so:

    pip install --no-deps --target FOLDER mapie torch-uncertainty einops seaborn relplot deprecation

What is absent shows as "not installed". Every exact answer is computed here, by loops, quadrature
or a search that calls neither Calibrant nor a peer.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import math
import os
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import calibration as kumar
import netcal.binning
import netcal.metrics
import netcal.regularization
import netcal.scaling
import numpy as np
import probmetrics.calibrators as pm
import torch
from probmetrics.distributions import CategoricalLogits
from probmetrics.metrics import Metrics
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.classification import MulticlassCalibrationError
from torchmetrics.functional.classification import multiclass_calibration_error
from torchmetrics.wrappers import BootStrapper

from calibrant import Confidences, Predictions, calibrators, losses, metrics
from calibrant.inference import intervals
from common import DOCS, best, fill, machine, markdown

PAGE = DOCS / "comparison.md"
PACKAGES = {
    "Calibrant": "calibrant",
    "netcal": "netcal",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "scikit-learn",
    "torch-uncertainty": "torch_uncertainty",
    "probmetrics": "probmetrics",
    "uncertainty-calibration": "uncertainty-calibration",
    "MAPIE": "mapie",
}
TOLERANCE = 0.01  # relative
NEAR_ZERO = 1e-4  # where the exact answer is 0

Array = np.ndarray
Calls = dict[str, Callable[[], float]]


@dataclass(frozen=True)
class Case:
    """A question, its exact answer (or the answers that a convention allows), and who says what."""

    name: str
    exact: float | tuple[float, ...]
    calls: Calls
    why: str
    tolerance: float = TOLERANCE
    near_zero: float = NEAR_ZERO


# --- the packages -----------------------------------------------------------------------------


@cache
def uncertainty() -> types.SimpleNamespace:
    """torch-uncertainty's metrics, losses and scalers.

    Its package file imports torchvision and timm, which these parts do not need. Where they are
    absent, its folders are entered without it.
    """
    spec = importlib.util.find_spec("torch_uncertainty")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("torch_uncertainty")
    if importlib.util.find_spec("torchvision") is None:
        root = Path(spec.submodule_search_locations[0])
        for part in ("", "utils", "metrics", "losses"):
            name = ".".join(["torch_uncertainty", *part.split()])
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [str(root / part)]
    import torch_uncertainty.losses.classification as penalties
    import torch_uncertainty.metrics.classification as measures
    import torch_uncertainty.post_processing as scalers

    return types.SimpleNamespace(metrics=measures, losses=penalties, scalers=scalers)


@cache
def mapie() -> types.ModuleType:
    """MAPIE's measures of calibration."""
    import mapie.metrics.calibration as measures

    return measures


class GivenScores(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose features are its scores: how scikit-learn calibrates a network."""

    def __init__(self, num_classes: int = 2) -> None:
        self.num_classes = num_classes

    @property
    def classes_(self) -> Array:
        return np.arange(self.num_classes)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: Array, y: Array) -> GivenScores:  # noqa: ARG002 - scikit-learn's signature
        return self

    def predict(self, x: Array) -> Array:
        return x.argmax(axis=1)


class GivenLogits(GivenScores):
    def decision_function(self, x: Array) -> Array:
        return x[:, 0] if self.num_classes == 2 else x


class GivenProbabilities(GivenScores):
    def predict_proba(self, x: Array) -> Array:
        return x


def tensor(a: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(a))


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def pairs(p: Array) -> Array:
    return np.stack([1 - p, p], axis=1)


def named_metric(
    name: str, labels: Array, *, logits: Array | None = None, probs: Array | None = None
) -> float:
    """A metric of probmetrics."""
    wanted, y = Metrics.from_names([name]), tensor(labels)
    if logits is not None:
        return wanted.compute_all_from_labels_logits(y, tensor(logits))[name].item()
    return wanted.compute_all_from_labels_probs(y, tensor(probs))[name].item()


def ece_calls(p: Array, y: Array, bins: int = 15) -> Calls:
    """ECE of probabilities."""
    k = p.shape[1]
    return {
        "Calibrant": lambda: metrics.ece(Predictions(probs=p, labels=y), bins=bins),
        "netcal": lambda: netcal.metrics.ECE(bins).measure(p, y),
        "torchmetrics": lambda: multiclass_calibration_error(
            tensor(p), tensor(y), num_classes=k, n_bins=bins
        ),
        "torch-uncertainty": lambda: uncertainty().metrics.CalibrationError(
            task="multiclass", num_classes=k, num_bins=bins
        )(tensor(p), tensor(y)),
        "probmetrics": lambda: named_metric(f"ece-{bins}", y, probs=p),
        "uncertainty-calibration": lambda: kumar.get_ece(p, y, num_bins=bins),
        "MAPIE": lambda: mapie().expected_calibration_error(
            p.argmax(axis=1) == y, p, num_bins=bins, split_strategy="uniform"
        ),
    }


def loader(x: Array, y: Array) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """One batch: what torch-uncertainty's scalers iterate over, at no cost."""
    return [(tensor(x), tensor(y))]


def sklearn_temperature(z: Array, y: Array) -> float:
    model = CalibratedClassifierCV(FrozenEstimator(GivenLogits(z.shape[1])), method="temperature")
    return 1 / model.fit(z, y).calibrated_classifiers_[0].calibrators[0].beta_.item()


def uncertainty_temperature(z: Array, y: Array) -> float:
    scaler = uncertainty().scalers.TemperatureScaler()
    scaler.fit(loader(z, y), progress=False)
    return scaler.temperature[0].item()


def probmetrics_temperature(z: Array, y: Array) -> float:
    scaler = pm.TemperatureScalingCalibrator()
    scaler.fit_torch(CategoricalLogits(tensor(z)), tensor(y))
    return 1 / scaler.invtemp_


def netcal_temperature(p: Array, y: Array) -> float:
    """What it divides by: its attribute ``temperature`` holds the inverse."""
    return 1 / netcal.scaling.TemperatureScaling().fit(p, y).temperature.item()


def temperature_calls(z: Array, y: Array, kind: type = np.float64) -> Calls:
    """The temperature each package fits to logits; netcal takes probabilities, of this type."""
    p = softmax(z.astype(np.float64)).astype(kind)
    return {
        "Calibrant": lambda: (
            calibrators.TemperatureScaling().fit(Predictions(logits=z, labels=y)).temperature_
        ),
        "netcal": lambda: netcal_temperature(p, y),
        "scikit-learn": lambda: sklearn_temperature(z, y),
        "torch-uncertainty": lambda: uncertainty_temperature(z, y),
        "probmetrics": lambda: probmetrics_temperature(z, y),
    }


def after(calls: Calls, change: Callable[[float], float]) -> Calls:
    """The same calls, their results changed."""
    return {name: lambda call=call: change(float(call())) for name, call in calls.items()}


# --- exact answers ----------------------------------------------------------------------------


def exact_ece(confidence: Array, correct: Array, bins: int = 15) -> float:
    """Bin by bin, sums without rounding; 1.0 in the last bin."""
    index = np.clip(np.ceil(confidence.astype(np.float64) * bins).astype(int) - 1, 0, bins - 1)
    gaps = [
        math.fsum(correct[index == b]) - math.fsum(confidence[index == b].astype(np.float64))
        for b in np.unique(index)
    ]
    return math.fsum(abs(gap) for gap in gaps) / len(confidence)


def top(p: Array, y: Array) -> tuple[Array, Array]:
    return p.max(axis=1), p.argmax(axis=1) == y


def exact_classwise(p: Array, y: Array, bins: int = 15) -> float:
    return math.fsum(exact_ece(p[:, k], y == k, bins) for k in range(p.shape[1])) / p.shape[1]


def exact_debiased(confidence: Array, correct: Array, bins: int = 15) -> float:
    """Equal-mass bins by cutting the sorted samples."""
    order, total = np.argsort(confidence), 0.0
    for part in np.array_split(order, bins):
        a, n = correct[part].mean(), len(part)
        gap = a - confidence[part].mean()
        total += n / len(order) * (gap**2 - a * (1 - a) / (n - 1))
    return math.sqrt(max(total, 0))


def exact_smooth(confidence: Array, correct: Array) -> float:
    """Quadrature of the reflected kernel, and bisection for the width that equals its result."""
    t = (np.arange(4000) + 0.5) / 4000
    places, group = np.unique(confidence, return_inverse=True)
    residual = np.bincount(group, correct - confidence) / len(confidence)

    def area(sigma: float) -> float:
        images = [s * places + 2 * m for m in (-2, -1, 0, 1, 2) for s in (1, -1)]
        kernel = sum(np.exp(-(((t[:, None] - c) / sigma) ** 2) / 2) for c in images)
        return np.abs(kernel @ residual).mean() / (sigma * math.sqrt(2 * math.pi))

    low, high = 1e-3, 1.0
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (middle, high) if area(middle) > middle else (low, middle)
    return low


def exact_nll(z: Array, y: Array, t: float = 1.0) -> float:
    """Mean NLL of softmax(z / t) in float64."""
    z = z.astype(np.float64) / t
    shifted = z - z.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]))


def best_temperature(z: Array, y: Array) -> float:
    """By a grid of T that closes in on the best."""
    low, high = math.log(1e-3), math.log(1e4)
    for _ in range(10):
        grid = np.linspace(low, high, 41)
        k = int(np.argmin([exact_nll(z, y, math.exp(x)) for x in grid]))
        low, high = grid[max(k - 1, 0)], grid[min(k + 1, 40)]
    return math.exp((low + high) / 2)


def exact_isotonic(x: Array, y: Array) -> Array:
    """By the max-min formula."""
    y = y[np.argsort(x)].astype(float)
    n = len(y)
    return np.array(
        [max(min(y[a : b + 1].mean() for b in range(i, n)) for a in range(i + 1)) for i in range(n)]
    )


def exact_mmce(confidence: Array, correct: Array) -> float:
    r = correct - confidence
    n = len(r)
    return (
        math.sqrt(
            math.fsum(
                r[i] * r[j] * math.exp(-2.5 * abs(confidence[i] - confidence[j]))
                for i in range(n)
                for j in range(n)
            )
        )
        / n
    )


# --- inputs -----------------------------------------------------------------------------------


def draw(n: int, k: int, temperature: float = 1.0, kind: type = np.float32) -> tuple[Array, Array]:
    """Logits whose best temperature is the given one, but for chance."""
    rng = np.random.default_rng(7)
    z = rng.standard_normal((n, k)) * 2
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return (z * temperature).astype(kind), y


def of_confidence(confidence: Array, correct: Array, k: int = 3) -> tuple[Array, Array]:
    """Probabilities with these top confidences, labels of every class."""
    n = len(confidence)
    p = np.repeat((1 - confidence)[:, None] / (k - 1), k, axis=1)
    first = np.arange(n) % k
    p[np.arange(n), first] = confidence
    return p, np.where(correct, first, (first + 1) % k)


# --- cases: measuring -------------------------------------------------------------------------


def ordinary() -> list[Case]:
    z, y = draw(1000, 5)
    p = softmax(z)
    exact = exact_ece(*top(p, y))
    confidence, correct = top(p, y)
    each = [np.ceil(confidence * 15) == b for b in np.unique(np.ceil(confidence * 15))]
    largest = float(max(abs(correct[b].mean() - confidence[b].mean()) for b in each))
    onehot = np.eye(5)[y]
    brier = float(np.mean([math.fsum((a - b) ** 2) for a, b in zip(p, onehot, strict=True)]))
    double = p.astype(np.float64)
    return [
        Case(
            "ECE of ordinary probabilities",
            exact,
            ece_calls(p, y),
            "1,000 samples, 5 classes, 15 bins. All agree but MAPIE, which makes 14 bins.",
        ),
        Case(
            "Largest gap of any bin (MCE), same data",
            largest,
            {
                "Calibrant": lambda: metrics.mce(Predictions(probs=p, labels=y)),
                "netcal": lambda: netcal.metrics.MCE(15).measure(p, y),
                "torchmetrics": lambda: multiclass_calibration_error(
                    tensor(p), tensor(y), num_classes=5, norm="max"
                ),
                "torch-uncertainty": lambda: uncertainty().metrics.CalibrationError(
                    task="multiclass", num_classes=5, num_bins=15, norm="max"
                )(tensor(p), tensor(y)),
                "probmetrics": lambda: named_metric("mce-15", y, probs=p),
            },
            "All agree.",
        ),
        Case(
            "Brier score, same data",
            brier,
            {
                "Calibrant": lambda: metrics.brier(Predictions(probs=p, labels=y)),
                "scikit-learn": lambda: brier_score_loss(y, double),
                "torch-uncertainty": lambda: uncertainty().metrics.BrierScore(num_classes=5)(
                    tensor(p), tensor(y)
                ),
                "probmetrics": lambda: named_metric("brier", y, probs=p),
            },
            "Summed over the classes (0 to 2). All agree.",
        ),
        Case(
            "MMCE, same data, 200 samples",
            exact_mmce(*top(double[:200], y[:200])),
            {
                "Calibrant": lambda: metrics.mmce(Predictions(probs=p[:200], labels=y[:200])),
                "netcal": lambda: netcal.metrics.MMCE().measure(double[:200], y[:200]),
            },
            "Kernel error without bins. Both agree.",
        ),
        Case(
            "Debiased L2 error, equal mass, same data",
            exact_debiased(*top(double, y)),
            {
                "Calibrant": lambda: metrics.debiased_ece(Predictions(probs=double, labels=y)),
                "uncertainty-calibration": lambda: kumar.get_top_calibration_error(double, y, p=2),
            },
            "Their estimator, with the noise of the bins subtracted. Both agree.",
        ),
    ]


def edges() -> list[Case]:
    confidence = np.repeat([0.94, 1.0], 10)
    correct = np.arange(20) != 19
    p, y = of_confidence(confidence, correct)
    inside = np.random.default_rng(1).uniform(0, 1, (300, 4))
    labels = (inside * 8).argmax(axis=1)
    labels[::4] = np.arange(75) % 4
    two, of_two = of_confidence(np.tile([0.55, 0.75, 0.95], 20), np.arange(60) % 4 > 0, k=4)
    of_two = of_two % 2
    return [
        Case(
            "ECE, half the confidences exactly 1.0",
            exact_ece(confidence, correct),
            ece_calls(p, y),
            "Saturated networks output 1.0, which belongs in the last bin; torchmetrics counts "
            "it in a hidden bin after it (torchmetrics #3510).",
        ),
        Case(
            "ECE from logits between 0 and 1",
            exact_ece(*top(softmax(inside), labels)),
            logit_calls(inside, labels),
            "torchmetrics guesses from the values whether scores are logits, batch by batch. "
            "netcal and uncertainty-calibration take probabilities only.",
        ),
        Case(
            "ECE where 2 of 4 classes occur",
            exact_ece(*top(two, of_two)),
            ece_calls(two, of_two),
            "A subset, a shard or a rare class. netcal mistakes two labels for a two-class "
            "problem; probmetrics drops the classes that do not occur and rescales the rest.",
        ),
    ]


def logit_calls(z: Array, y: Array, bins: int = 15) -> Calls:
    """ECE of logits, from those that take them."""
    t, labels, k = tensor(z), tensor(y), z.shape[1]
    return {
        "Calibrant": lambda: metrics.ece(Predictions(logits=z, labels=y), bins=bins),
        "torchmetrics": lambda: multiclass_calibration_error(t, labels, num_classes=k, n_bins=bins),
        "torch-uncertainty": lambda: uncertainty().metrics.CalibrationError(
            task="multiclass", num_classes=k, num_bins=bins
        )(t, labels),
        "probmetrics": lambda: named_metric(f"ece-{bins}", y, logits=z),
    }


def large() -> list[Case]:
    n = 1_000_000
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.97, 0.99, n).astype(np.float32)
    correct = rng.random(n) < 0.96
    p, y = of_confidence(confidence, correct)
    return [
        Case(
            "ECE of a million samples",
            exact_ece(p.max(axis=1), correct),
            ece_calls(p, y),
            "The pixels of a few images. torchmetrics' multiclass metric adds up counts and "
            "confidences one by one in float32, whatever it is given (PyTorch #124783).",
        ),
    ]


def binned() -> list[Case]:
    confidence = np.repeat([0.6, 0.9], 50)
    correct = np.concatenate([np.arange(50) >= 20, np.arange(50) >= 5])
    p, y = of_confidence(confidence, correct)
    t, labels = tensor(p), tensor(y)
    z, drawn = draw(600, 4)
    absent = softmax(z.astype(np.float64))
    drawn = np.where(drawn == 3, 0, drawn)
    return [
        Case(
            "Adaptive ECE, two tied groups that are calibrated",
            0.0,
            {
                "Calibrant": lambda: metrics.adaptive_ece(Predictions(probs=p, labels=y), bins=10),
                "netcal": lambda: netcal.metrics.ECE(10, equal_intervals=False).measure(p, y),
                "torch-uncertainty": lambda: uncertainty().metrics.AdaptiveCalibrationError(
                    task="multiclass", num_classes=3, num_bins=10
                )(t, labels),
                "uncertainty-calibration": lambda: kumar.get_ece_em(p, y, num_bins=10),
                "MAPIE": lambda: mapie().expected_calibration_error(
                    correct, p, num_bins=10, split_strategy="quantile"
                ),
            },
            "50 samples say 0.6 and 60 % are right, 50 say 0.9 and 90 % are right. Splitting "
            "equal confidences turns the order of the samples into an error.",
        ),
        Case(
            "Classwise ECE, a class never occurs",
            exact_classwise(absent, drawn),
            {
                "Calibrant": lambda: metrics.classwise_ece(Predictions(probs=absent, labels=drawn)),
                "torch-uncertainty": lambda: uncertainty().metrics.ClasswiseCalibrationError(
                    num_classes=4, num_bins=15
                )(tensor(absent), tensor(drawn)),
                "uncertainty-calibration": lambda: kumar.get_ece(absent, drawn, mode="marginal"),
                "MAPIE": lambda: mapie().expected_calibration_error(
                    drawn, absent, 15, "uniform", classwise=True, class_labels=drawn
                ),
            },
            "The probability given to a class that never occurs is an error too. Asked for B bins, "
            "MAPIE makes B - 1.",
        ),
    ]


def smooth() -> list[Case]:
    rng = np.random.default_rng(3)
    inner = rng.uniform(0.5, 0.95, 300).round(2)
    saturated = np.concatenate([np.ones(250), inner[:50]])

    def calls(confidence: Array, correct: Array) -> Calls:
        p, y = of_confidence(confidence, correct)
        single = tensor(p.astype(np.float32))
        return {
            "Calibrant": lambda: metrics.smooth_ece(Predictions(probs=p, labels=y)),
            "torch-uncertainty": lambda: uncertainty().metrics.SmoothCalibrationError(
                kernel_type="reflected"
            )(single, tensor(y)),
            "probmetrics": lambda: named_metric("smece", y, probs=p),
        }

    right = rng.random(300) < 0.6
    return [
        Case(
            "Smooth ECE, confidences below 0.95",
            exact_smooth(inner, right),
            calls(inner, right),
            "Away from 0 and 1 all agree.",
        ),
        Case(
            "Smooth ECE, most confidences exactly 1.0",
            exact_smooth(saturated, right),
            calls(saturated, right),
            "Reflecting the grid about its end point gives samples at exactly 1 half their weight."
            " probmetrics calls relplot.",
        ),
    ]


def ranking() -> list[Case]:
    rng = np.random.default_rng(5)
    margin = rng.uniform(40, 80, 2000)
    wrong = rng.random(2000) < np.interp(margin, [40, 80], [0.4, 0])
    z = np.zeros((2000, 3))
    z[:, 0] = margin
    y = np.where(wrong, 1, 0)
    risk = np.cumsum(wrong[np.argsort(-margin)]) / np.arange(1, 2001)
    confident = np.array([[0.0, -200.0, -200.0], [5.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    labels = np.array([1, 0, 1])
    p = softmax(confident)
    return [
        Case(
            "AURC where every confidence prints as 1.0",
            float(risk.mean()),
            {
                "Calibrant": lambda: metrics.aurc(Predictions(logits=z, labels=y)),
                "torch-uncertainty": lambda: uncertainty().metrics.AURC()(
                    tensor(softmax(z)), tensor(y)
                ),
            },
            "The logits still rank the samples; float64 probabilities no longer do, and the order "
            "of the samples decides instead.",
        ),
        Case(
            "NLL with one confident mistake",
            exact_nll(confident, labels),
            {
                "Calibrant": lambda: metrics.nll(Predictions(logits=confident, labels=labels)),
                "scikit-learn": lambda: log_loss(labels, p, labels=[0, 1, 2]),
                "torch-uncertainty": lambda: uncertainty().metrics.CategoricalNLL()(
                    tensor(p), tensor(labels)
                ),
                "probmetrics": lambda: named_metric("logloss", labels, logits=confident),
            },
            "A logit 200 below the top. scikit-learn's log_loss takes probabilities and clips "
            "them at 2e-16.",
        ),
    ]


def interval() -> list[Case]:
    n, accuracy = 1000, 0.6
    confidence, correct = np.full(n, 0.9), np.arange(n) < accuracy * n
    p, y = of_confidence(confidence, correct)
    exact = 2 * 1.6448536 * math.sqrt(accuracy * (1 - accuracy) / n)

    def ours() -> float:
        c = Confidences(confidence=confidence, correct=correct)
        found = intervals(c, ["ece"], level=0.9)["ece"]
        return found.high - found.low

    def theirs() -> float:
        np.random.seed(0)  # noqa: NPY002 - it draws from the global generator
        low, _, high = kumar.get_calibration_error_uncertainties(
            p, y, p=1, alpha=0.1, mode="top-label"
        )
        return high - low

    def wrapped() -> float:
        torch.manual_seed(0)
        metric = BootStrapper(
            MulticlassCalibrationError(3), num_bootstraps=400, quantile=torch.tensor([0.05, 0.95])
        )
        metric.update(tensor(p), tensor(y))
        low, high = metric.compute()["quantile"]
        return (high - low).item()

    return [
        Case(
            "Width of a 90 % interval of the ECE",
            exact,
            {
                "Calibrant": ours,
                "torchmetrics": wrapped,
                "uncertainty-calibration": theirs,
            },
            "All confidences are 0.9 and 60 % are right, so the ECE is a mean and the width is "
            "known (within 20 % counts as right: bootstraps vary). uncertainty-calibration reads "
            "alpha = 0.1 as 0.1 per cent, so its 90 % interval is a 99.9 % interval (its #13 "
            "asks about such details). torchmetrics: its BootStrapper.",
            0.2,
        ),
    ]


# --- cases: calibrators -------------------------------------------------------------------------


def temperatures() -> list[Case]:
    cases = []
    for true, kind, name, why in (
        (2.0, np.float64, "2", "The plain case. All agree."),
        (
            2.0,
            np.float32,
            "2, all in float32",
            "Networks output float32. netcal's finite differences are lost in rounding, and it "
            "stays at T = 1 (netcal #48, #61).",
        ),
        (6.0, np.float64, "6", "A very overconfident network. All agree."),
        (
            20.0,
            np.float64,
            "20",
            "An extreme one. torch-uncertainty's LBFGS has no line search and ends near T = 0; "
            "netcal clips the probabilities before converting them to logits.",
        ),
    ):
        z, y = draw(2000, 10, true, np.float32)
        least = exact_nll(z, y, best_temperature(z, y))
        calls = after(
            temperature_calls(z, y, kind),
            lambda t, z=z, y=y, least=least: exact_nll(z, y, t) - least,
        )
        cases.append(Case(f"Temperature, true T = {name}: excess NLL", 0.0, calls, why))
    return [*cases, attribute()]


def attribute() -> Case:
    z, y = draw(2000, 10, 2.0)
    p, theirs = softmax(z.astype(np.float64)), netcal.scaling.TemperatureScaling()
    calls = temperature_calls(z, y)
    return Case(
        "What the attribute called temperature holds",
        best_temperature(z, y),
        {
            "Calibrant": calls["Calibrant"],
            "netcal": lambda: theirs.fit(p, y).temperature[0],
            "torch-uncertainty": calls["torch-uncertainty"],
        },
        "The value to divide your logits by. netcal's is the inverse.",
    )


def vector() -> list[Case]:
    z, y = draw(2000, 5, kind=np.float64)
    z = np.log(softmax(1.5 * z + np.array([1.0, 0.5, 0.0, -0.5, -1.0])))
    p, single = np.exp(z), tensor(z.astype(np.float32))

    def nll(parameters: Array) -> float:
        return exact_nll(z * parameters[:5] + parameters[5:], y)

    least = minimize(nll, np.repeat([1.0, 0.0], 5), tol=1e-10).fun

    def excess(q: Array) -> float:
        return float(-np.mean(np.log(q[np.arange(len(y)), y]))) - least

    def ours() -> float:
        given = Predictions(logits=z, labels=y)
        return excess(calibrators.VectorScaling(strength=0).fit(given).transform(given).probs)

    def uncertain() -> float:
        scaler = uncertainty().scalers.VectorScaler(num_classes=5)
        scaler.fit(loader(z, y), progress=False)
        return excess(scaler(tensor(z)).softmax(1).detach().numpy())

    def theirs() -> float:
        scaler = pm.VectorScalingCalibrator()
        scaler.fit_torch(CategoricalLogits(single), tensor(y))
        return excess(scaler.predict_proba_torch(CategoricalLogits(single)).get_probs().numpy())

    return [
        Case(
            "Vector scaling, unequal class biases: excess NLL",
            0.0,
            {
                "Calibrant": ours,
                "netcal": lambda: excess(
                    netcal.scaling.LogisticCalibration().fit(p, y).transform(p)
                ),
                "torch-uncertainty": uncertain,
                "probmetrics": theirs,
            },
            "Guo et al. give each class a scale and an offset. torch-uncertainty has no offsets.",
        ),
    ]


def hard_temperatures() -> list[Case]:
    z, y = draw(2000, 5)
    right, reverse = z.argmax(axis=1), z.argmin(axis=1)
    two = np.where(y < 2, y, 0)
    least = exact_nll(z, two, best_temperature(z, two))
    return [
        Case(
            "Temperature, 2 of 5 classes occur: excess NLL",
            0.0,
            after(temperature_calls(z, two), lambda t: exact_nll(z, two, t) - least),
            "As in case 8, in a fit: the scores determine the number of classes. scikit-learn "
            "uses the labels, and raises if a class is absent.",
        ),
        Case(
            "Temperature, every label right: NLL",
            0.0,
            after(temperature_calls(z, right), lambda t: exact_nll(z, right, t)),
            "No best T exists: the NLL falls to 0 as T does. Any small T above 0 is fine: an NLL "
            "under 0.01 counts as right.",
            near_zero=0.01,
        ),
        Case(
            "Temperature, labels opposite to the logits: share of predictions kept",
            1.0,
            after(temperature_calls(z, reverse), lambda t: float(t > 0)),
            "Temperature scaling must keep every predicted class. A negative T reverses all of "
            "them.",
        ),
    ]


def platt() -> list[Case]:
    rng = np.random.default_rng(11)
    odds = rng.standard_normal(3000) * 4
    y = (rng.random(3000) < 1 / (1 + np.exp(-(0.5 * odds - 0.5)))).astype(int)
    p = 1 / (1 + np.exp(-odds))
    pair = pairs(p)

    def loss(ab: Array) -> float:
        score = ab[0] * odds + ab[1]
        return float(np.mean(np.logaddexp(0, score) - y * score))

    least = minimize(loss, [1.0, 0.0], tol=1e-12).fun

    def excess(q: Array) -> float:
        return float(-np.mean(np.log(np.where(y == 1, q, 1 - q)))) - least

    def sklearn_platt(kind: type, x: Array) -> float:
        return excess(
            CalibratedClassifierCV(FrozenEstimator(kind(2)), method="sigmoid")
            .fit(x, y)
            .predict_proba(x)[:, 1]
        )

    def theirs() -> float:
        scaler = kumar.PlattCalibrator(3000, 10)
        scaler.train_calibration(p, y)
        return excess(scaler.calibrate(p))

    def ours(b: Predictions) -> float:
        return excess(calibrators.Platt().fit(b).transform(b).probs[:, 1])

    return [
        Case(
            "Platt scaling of probabilities: excess NLL",
            0.0,
            {
                "Calibrant": lambda: ours(Predictions.from_binary(probs=p, labels=y)),
                "netcal": lambda: excess(
                    netcal.scaling.LogisticCalibration().fit(p, y).transform(p)
                ),
                "scikit-learn": lambda: sklearn_platt(GivenProbabilities, pair),
                "probmetrics": lambda: excess(
                    pm.get_calibrator("platt").fit(pair, y).predict_proba(pair)[:, 1]
                ),
                "uncertainty-calibration": theirs,
            },
            "A logistic curve should be fitted to log-odds. scikit-learn fits it to the "
            "probabilities themselves when the classifier has predict_proba (scikit-learn "
            "#34312), and "
            'probmetrics\' "platt" calls scikit-learn.',
        ),
        Case(
            "Platt scaling of logits: excess NLL",
            0.0,
            {
                "Calibrant": lambda: ours(Predictions.from_binary(logits=odds, labels=y)),
                "scikit-learn": lambda: sklearn_platt(GivenLogits, odds[:, None]),
                "probmetrics": lambda: excess(
                    pm.get_calibrator("affine-scaling").fit(pair, y).predict_proba(pair)[:, 1]
                ),
            },
            'Given log-odds, all agree. probmetrics: its "affine-scaling", the same curve; its '
            '"platt-logits" raises on any input.',
        ),
    ]


def binned_by_us(p: Array, y: Array, bins: int, binning: str) -> Array:
    c = calibrators.HistogramBinning(bins=bins, binning=binning, target="class", floor=0)
    b = Predictions.from_binary(probs=p, labels=y)
    return c.fit(b).transform(b).probs[:, 1]


def equal_mass_calls(p: Array, y: Array, bins: int) -> dict[str, Callable[[], Array]]:
    """Probabilities of class 1 after histogram binning with equally many samples per bin."""

    def theirs() -> Array:
        c = kumar.HistogramCalibrator(len(p), bins)
        c.train_calibration(p, y)
        return c.calibrate(p)

    return {
        "Calibrant": lambda: binned_by_us(p, y, bins, "mass"),
        "netcal": lambda: (
            netcal.binning.HistogramBinning(bins, equal_intervals=False).fit(p, y).transform(p)
        ),
        "probmetrics": lambda: (
            pm.BinaryHistogramBinningCalibrator(bins, "quantile")
            .fit(pairs(p), y)
            .predict_proba(pairs(p))[:, 1]
        ),
        "uncertainty-calibration": theirs,
    }


def equal_mass() -> list[Case]:
    p = (np.arange(100) + 0.5) / 100
    y = (np.arange(100) * 0.618 % 1 < p).astype(int)
    more = (np.arange(1000) + 0.5) / 1000
    labels = (np.arange(1000) * 0.618 % 1 < more).astype(int)
    return [
        Case(
            "Histogram binning, equal mass: one value",
            float(y[30:40].mean()),
            {
                name: lambda call=call: call()[35]
                for name, call in equal_mass_calls(p, y, 10).items()
            },
            "100 samples, 10 bins. netcal can fit it but not apply it.",
        ),
        Case(
            "Histogram binning, equal mass: how many values",
            15.0,
            {
                name: lambda call=call: float(len(np.unique(np.round(call(), 9))))
                for name, call in equal_mass_calls(more, labels, 15).items()
            },
            "15 bins give 15 values, also when 1,000 samples do not divide evenly among them.",
        ),
    ]


def equal_width() -> list[Case]:
    p = np.repeat([0.45, 0.5, 0.55], 20)
    y = np.concatenate([np.arange(20) < n for n in (2, 12, 18)]).astype(int)

    def uncertain() -> float:
        c, z = uncertainty().scalers.HistogramBinningScaler(num_bins=10), np.log(p / (1 - p))
        c.fit(loader(z, y), progress=False)
        return c(tensor(z)).sigmoid()[30].item()

    return [
        Case(
            "Histogram binning, equal width: the value at 0.5",
            (14 / 40, 30 / 40),
            {
                "Calibrant": lambda: binned_by_us(p, y, 10, "width")[30],
                "netcal": lambda: netcal.binning.HistogramBinning(10).fit(p, y).transform(p)[30],
                "torch-uncertainty": uncertain,
                "probmetrics": lambda: (
                    pm.BinaryHistogramBinningCalibrator(10)
                    .fit(pairs(p), y)
                    .predict_proba(pairs(p))[30, 1]
                ),
            },
            "0.5 may belong to the lower or the upper bin: either answer is right. netcal counts "
            "it in one and reads it from the other.",
        ),
    ]


def monotone() -> list[Case]:
    rng = np.random.default_rng(17)
    p = np.sort(rng.uniform(0.02, 0.98, 60))
    y = (rng.random(60) < p**2).astype(int)
    pair = pairs(p)
    exact = exact_isotonic(p, y)

    def mean_score(q: Array) -> float:
        """Mean Brier score of the fit: the isotonic fit has the least."""
        return float(np.mean((np.ravel(q) - y) ** 2))

    def ours() -> float:
        b = Predictions.from_binary(probs=p, labels=y)
        return mean_score(calibrators.Isotonic(floor=0).fit(b).transform(b).probs[:, 1])

    def uncertain() -> float:
        c, z = uncertainty().scalers.IsotonicRegressionScaler(), np.log(pair)
        c.fit(loader(z, y), progress=False)
        return mean_score(c(tensor(z)).softmax(1)[:, 1].numpy())

    return [
        Case(
            "Isotonic regression: squared error of the fit",
            mean_score(exact),
            {
                "Calibrant": ours,
                "netcal": lambda: mean_score(
                    netcal.binning.IsotonicRegression().fit(p, y).transform(p)
                ),
                "scikit-learn": lambda: mean_score(IsotonicRegression().fit(p, y).predict(p)),
                "torch-uncertainty": uncertain,
                "probmetrics": lambda: mean_score(
                    pm.get_calibrator("isotonic").fit(pair, y).predict_proba(pair)[:, 1]
                ),
            },
            "All agree; all but Calibrant call scikit-learn.",
        ),
    ]


# --- cases: training --------------------------------------------------------------------------


def penalties() -> list[Case]:
    flat, sure = torch.zeros(8, 10), torch.zeros(8, 10)
    sure[:, 0] = 60
    y = torch.zeros(8, dtype=torch.long)
    z = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)) * 3
    labels = torch.arange(64) % 10

    def uncertain(x: torch.Tensor) -> torch.Tensor:
        loss = uncertainty().losses.ConfidencePenaltyLoss
        return loss(reg_weight=1)(x, y) - loss(reg_weight=0)(x, y)

    def weighted(weight: float) -> torch.Tensor:
        objective = losses.Objective("cross_entropy", "dca", weight=weight)
        return objective(z, labels) - losses.Objective("cross_entropy")(z, labels)

    ours = losses.negative_entropy
    theirs = netcal.regularization.ConfidencePenalty(reduction="batchmean")
    dca = netcal.regularization.DCAPenalty
    return [
        Case(
            "Confidence penalty: uniform output minus confident output",
            -math.log(10),
            {
                "Calibrant": lambda: ours(flat, y).mean() - ours(sure, y).mean(),
                "netcal": lambda: theirs(flat) - theirs(sure),
                "torch-uncertainty": lambda: uncertain(flat) - uncertain(sure),
            },
            "Training lowers a penalty: it must be lower for the uniform output. netcal's "
            "PyTorch class has the wrong sign and rewards confidence; its NumPy function of the "
            "same name is correct.",
        ),
        Case(
            "DCA penalty: ratio of weight 10 to weight 1",
            10.0,
            {
                "Calibrant": lambda: weighted(10) / weighted(1),
                "netcal": lambda: dca(weight=10)(z, labels) / dca(weight=1)(z, labels),
            },
            "netcal stores the weight but does not use it.",
        ),
    ]


def cases() -> list[Case]:
    makers = (
        ordinary,
        edges,
        large,
        binned,
        smooth,
        ranking,
        interval,
        temperatures,
        hard_temperatures,
        vector,
        platt,
        equal_mass,
        equal_width,
        monotone,
        penalties,
    )
    return [case for maker in makers for case in maker()]


# --- speed ------------------------------------------------------------------------------------


def speed() -> dict[str, dict[str, float]]:
    """Seconds of each package at each task."""
    z, y = draw(10_000, 100)
    p = softmax(z)
    t, labels = tensor(p), tensor(y)
    given = {
        **logit_calls(z, y),
        "netcal": lambda: netcal.metrics.ECE(15).measure(torch.softmax(tensor(z), 1).numpy(), y),
        "uncertainty-calibration": lambda: kumar.get_ece(torch.softmax(tensor(z), 1).numpy(), y),
    }
    tasks = {
        "ECE from logits": (given, 20),
        "ECE from probabilities": (ece_calls(p, y), 20),
        "classwise ECE from probabilities": (
            {
                "Calibrant": lambda: metrics.classwise_ece(Predictions(probs=p, labels=y)),
                "torch-uncertainty": lambda: uncertainty().metrics.ClasswiseCalibrationError(
                    num_classes=100, num_bins=15
                )(t, labels),
                "uncertainty-calibration": lambda: kumar.get_ece(p, y, mode="marginal"),
            },
            3,
        ),
        "temperature from logits": (temperature_calls(z, y), 5),
    }
    return {task: best(installed(calls), rounds=rounds) for task, (calls, rounds) in tasks.items()}


def installed(calls: Calls) -> Calls:
    """The calls that work; each is run once, which also loads and compiles what it needs."""
    return {name: call for name, call in calls.items() if not isinstance(attempt(call), str)}


# --- the page ---------------------------------------------------------------------------------


def attempt(call: Callable[[], float]) -> float | str:
    """The result as a number, or the short reason why there is none."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return float(call())
    except ModuleNotFoundError:
        return "not installed"
    except Exception as error:  # a peer that raises is a result
        return f"raises {type(error).__name__}"


def is_right(value: float, case: Case) -> bool:
    answers = case.exact if isinstance(case.exact, tuple) else (case.exact,)
    return any(abs(value - a) <= (case.tolerance * abs(a) or case.near_zero) for a in answers)


def number(value: float) -> str:
    return f"{value if abs(value) > 1e-5 else 0:.4g}".replace("-", "−")


def cell(outcome: float | str | None, case: Case) -> str:
    if outcome is None:
        return "—"
    if isinstance(outcome, str):
        return outcome if outcome == "not installed" else f"{outcome}: **wrong**"
    return f"{number(outcome)} {'right' if is_right(outcome, case) else '**wrong**'}"


def case_block(found: list[tuple[Case, dict[str, float | str]]]) -> str:
    head = ["", "case", "exact", *PACKAGES]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    tally = {name: [0, 0] for name in PACKAGES}
    for row, (case, outcomes) in enumerate(found, 1):
        answers = case.exact if isinstance(case.exact, tuple) else (case.exact,)
        cells = [cell(outcomes.get(name), case) for name in PACKAGES]
        for name, shown in zip(PACKAGES, cells, strict=True):
            tally[name][0] += shown.endswith("right")
            tally[name][1] += shown.endswith(("right", "**wrong**"))
        exact = " or ".join(map(number, answers))
        lines.append(f"| {row} | {case.name} | {exact} | {' | '.join(cells)} |")
    total = " | ".join(f"{a} of {b}" for a, b in tally.values())
    lines.append(f"| | **right** | | {total} |")
    reasons = [f"{row}. **{case.name}.** {case.why}" for row, (case, _) in enumerate(found, 1)]
    return "\n".join([*lines, "", *reasons]) + "\n"


def speed_block(times: dict[str, dict[str, float]]) -> str:
    peers = list(PACKAGES)[1:]
    rows = []
    for task, seconds in times.items():
        ours = seconds["Calibrant"]
        cells = [f"{seconds[name] / ours:.3g} ×" if name in seconds else "—" for name in peers]
        rows.append([task, f"{1e3 * ours:.1f} ms", *cells])
    return markdown(["10,000 × 100 float32", "Calibrant", *peers], rows)


def versions() -> str:
    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    names = [*PACKAGES.values(), "relplot"]
    peers = ", ".join(f"{name.replace('_', '-')} {of(name)}" for name in names)
    return f"{peers}. {machine()}\n"


def main() -> None:
    warnings.filterwarnings("ignore")  # the peers'
    logging.disable(logging.CRITICAL)
    if folder := os.environ.get("CALIBRANT_PEERS"):
        sys.path.append(folder)
    parts = sys.argv[1:] or ["cases", "speed"]
    with contextlib.suppress(ModuleNotFoundError):
        uncertainty()
    blocks = {"versions": versions()}
    if "cases" in parts:
        found = []
        for case in cases():
            outcomes = {name: attempt(call) for name, call in case.calls.items()}
            found.append((case, outcomes))
            print(f"{case.name} ({case.exact}):", outcomes, flush=True)
        blocks["cases"] = case_block(found)
    if "speed" in parts:
        blocks["speed"] = speed_block(speed())
        print(blocks["speed"])
    for name, text in blocks.items():
        fill(PAGE, name, text)


if __name__ == "__main__":
    main()
