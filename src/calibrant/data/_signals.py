"""Noisy waves: a task that trains in seconds and makes networks overconfident."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, check_fraction, check_seed
from calibrant.data._dataset import Dataset
from calibrant.data._synthetic import check_level

CLASSES = ("sine", "square", "triangle", "saw", "pulse", "chirp")
LENGTH = 64
NOISE = 0.6
PULSE = 0.2  # fraction of the cycle that is high
# The noise of the test set at each shift level, relative to that of the training set.
NOISE_LEVELS = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)


def signals(
    *,
    train_size: int = 800,
    test_size: int = 2_000,
    label_noise: float = 0.1,
    level: int = 0,
    seed: int = 0,
) -> Dataset:
    """Generate noisy waves of six shapes with random frequency, phase and amplitude.

    The noise makes shapes overlap, and a fraction of the labels is random in both training and
    test, so no model can be perfect. Yet a small convolutional network memorises the few training
    samples and becomes overconfident.

    Parameters
    ----------
    train_size, test_size
        Sizes. The training set is meant to be halved: 400 samples for training, 400 for
        calibration.
    label_noise
        Fraction of labels that are replaced by a random class.
    level
        Shift of the test set, from 0 (none) to 5 (twice the noise).
    seed
        Random seed. The training set is the same at every level.

    Returns
    -------
    Dataset
        Signals float32 (N, 1, 64).

    Examples
    --------
    >>> signals()
    Dataset(signals: 800 training and 2,000 test samples, 6 classes, signal)
    """
    check_count("train_size", train_size, least=1, most=10_000_000, example=800)
    check_count("test_size", test_size, least=1, most=10_000_000, example=2_000)
    if label_noise != 0:
        check_fraction("label_noise", label_noise, example=0.1)
    check_level(level)
    train, test = np.random.default_rng(check_seed(seed)).spawn(2)
    x_train, y_train = _draw(train, train_size, label_noise, 1.0)
    x_test, y_test = _draw(test, test_size, label_noise, NOISE_LEVELS[level])
    meta = {"source": "synthetic", "level": level, "seed": seed, "label_noise": label_noise}
    return Dataset("signals", "signal", x_train, y_train, x_test, y_test, CLASSES, meta)


def _draw(
    rng: np.random.Generator, size: int, label_noise: float, noise: float
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    shape = rng.integers(len(CLASSES), size=size)
    cycles, start = rng.uniform(2, 6, (size, 1)), rng.random((size, 1))
    height = rng.uniform(0.7, 1.3, (size, 1))
    time = np.linspace(0, 1, LENGTH, endpoint=False)
    waves = _waves(time, cycles, start)[shape, np.arange(size)]
    x = height * waves + NOISE * noise * rng.normal(size=(size, LENGTH))
    replaced = rng.random(size) < label_noise
    labels = np.where(replaced, rng.integers(len(CLASSES), size=size), shape)
    return x[:, None].astype(np.float32), labels.astype(np.int64)


def _waves(
    time: NDArray[np.float64], cycles: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Every shape for every sample, (classes, N, length), each of about unit strength."""
    turn = cycles * time + start
    phase = turn % 1
    sine = np.sin(2 * np.pi * turn)
    return np.stack(
        [
            1.41 * sine,
            np.sign(sine),
            1.73 * (1 - 4 * np.abs(phase - 0.5)),
            1.73 * (2 * phase - 1),
            np.where(phase < PULSE, 2.0, -0.5),
            1.41 * np.sin(2 * np.pi * (turn + cycles * time * (time - 0.5))),
        ]
    )
