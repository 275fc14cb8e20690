"""Data whose true class probabilities are known, so that the true calibration error is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, check_count, check_positive, check_seed
from calibrant.data._dataset import Dataset

Floats = NDArray[np.float64]
MAX_LEVEL = 5
FAMILIES = ("gaussians", "teacher")
# How much wider the inputs of the test set spread at each shift level.
SPREAD = (1.0, 1.2, 1.4, 1.7, 2.1, 2.6)


def synthetic(
    family: str = "gaussians",
    *,
    num_classes: int = 5,
    dimension: int = 10,
    train_size: int = 2_000,
    test_size: int = 5_000,
    separation: float = 2.0,
    level: int = 0,
    seed: int = 0,
) -> Dataset:
    r"""Draw vectors whose true class probabilities are known.

    Labels are drawn from :math:`p(y \mid x)`, which is known for every x and stays the same at
    every shift level; only where the test inputs lie changes. A perfect model therefore remains
    perfect, and any loss under shift is due to the model.

    Parameters
    ----------
    family
        ``"gaussians"``: one Gaussian per class, :math:`p(y \mid x)` by Bayes' rule; a linear model
        can be perfect. ``"teacher"``: a random network of two layers gives the logits.
    num_classes, dimension, train_size, test_size
        Sizes.
    separation
        How far the classes are apart: distance of the centres from their middle, or spread of the
        teacher's logits.
    level
        Shift of the test inputs, from 0 (none) to 5 (2.6 times the spread).
    seed
        Random seed. The task and the training set are the same at every level.

    Returns
    -------
    Dataset
        Vectors float32; ``meta["true_probs_train"]`` and ``meta["true_probs_test"]`` are (N, K),
        ``meta["bayes_error"]`` is the lowest error any model can have on the test set.

    Examples
    --------
    >>> data = synthetic(train_size=100, test_size=50)
    >>> data.meta["true_probs_test"].shape
    (50, 5)
    """
    check_choice("family", family, FAMILIES)
    check_count("num_classes", num_classes, least=2, most=10_000, example=5)
    check_count("dimension", dimension, least=1, most=10_000, example=10)
    check_count("train_size", train_size, least=1, most=10_000_000, example=2_000)
    check_count("test_size", test_size, least=1, most=10_000_000, example=5_000)
    check_positive("separation", separation, example=2.0)
    check_level(level)
    task, draw_train, draw_test = np.random.default_rng(check_seed(seed)).spawn(3)
    make = _gaussians if family == "gaussians" else _teacher
    law = make(task, num_classes, dimension, separation)
    x_train, p_train, y_train = law.draw(draw_train, train_size, 1.0)
    x_test, p_test, y_test = law.draw(draw_test, test_size, SPREAD[level])
    meta: dict[str, Any] = {
        "source": "synthetic",
        "family": family,
        "level": level,
        "seed": seed,
        "true_probs_train": p_train,
        "true_probs_test": p_test,
        "bayes_error": float(1 - p_test.max(axis=1).mean()),
    }
    classes = tuple(map(str, range(num_classes)))
    return Dataset("synthetic", "vector", x_train, y_train, x_test, y_test, classes, meta)


def check_level(level: int) -> int:
    """Return a shift level from 0 to 5."""
    return check_count("level", level, least=0, most=MAX_LEVEL, example=3)


@dataclass(frozen=True)
class _Law:
    """Clouds that inputs come from, and the logits of p(y | x): W₂ h(W₁ x) + b."""

    centres: Floats
    first: Floats | None
    second: Floats
    bias: Floats

    def draw(
        self, rng: np.random.Generator, size: int, spread: float
    ) -> tuple[NDArray[np.float32], Floats, NDArray[np.int64]]:
        """Inputs, their true probabilities and labels drawn from these."""
        chosen = rng.integers(len(self.centres), size=size)
        noise = rng.normal(size=(size, self.centres.shape[1]))
        # The probabilities belong to the returned inputs, which are rounded to float32.
        x = (self.centres[chosen] + spread * noise).astype(np.float32)
        probs = self.probs(x.astype(np.float64))
        return x, probs, draw_labels(rng, probs)

    def probs(self, x: Floats) -> Floats:
        """The true p(y | x)."""
        hidden = x if self.first is None else np.tanh(x @ self.first)
        logits = hidden @ self.second + self.bias
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        probs: Floats = weights / weights.sum(axis=1, keepdims=True)
        return probs


def draw_labels(rng: np.random.Generator, probs: Floats) -> NDArray[np.int64]:
    """One label per row, drawn from the row's probabilities."""
    steps = np.cumsum(probs, axis=1)
    steps[:, -1] = 1  # despite rounding, the last entry must be 1
    labels: NDArray[np.int64] = (rng.random((len(probs), 1)) >= steps).sum(axis=1)
    return labels


def _gaussians(rng: np.random.Generator, classes: int, dimension: int, separation: float) -> _Law:
    """Unit normal clouds at c_k: p(k | x) ∝ exp(x·c_k − |c_k|²/2)."""
    centres = rng.normal(size=(classes, dimension))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    return _Law(centres, None, centres.T, -0.5 * (centres**2).sum(axis=1))


def _teacher(rng: np.random.Generator, classes: int, dimension: int, separation: float) -> _Law:
    """A random network with 4 hidden units per dimension, over normally distributed inputs."""
    width = 4 * dimension
    first = rng.normal(size=(dimension, width)) * (1.5 / np.sqrt(dimension))
    second = rng.normal(size=(width, classes)) * (2 * separation / np.sqrt(width))
    return _Law(np.zeros((1, dimension)), first, second, np.zeros(classes))
