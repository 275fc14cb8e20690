"""The numbers in the figures of Wang et al. (2021)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from calibrant import metrics
from calibrant._core.arrays import Float64
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import Calibrator
from calibrant.papers._coefficients import exact_name
from calibrant.papers._figures._panel import CALIBRATION, TEST, PlaceRuns
from calibrant.papers._run_measures import coefficient
from calibrant.predictions import Predictions
from calibrant.study import calibrated_top

if TYPE_CHECKING:
    from calibrant.study import Run


# From focal with γ = 3 over cross-entropy to inverse focal with γ̄ = 3: the loss with its
# coefficient, whatever a study calls it -> name, -γ or γ̄.
SPECTRUM = {
    "focal gamma=3": ("FL-3", -3),
    "focal gamma=2": ("FL-2", -2),
    "focal gamma=1": ("FL-1", -1),
    "cross_entropy": ("CE", 0),
    "inverse_focal gamma=1": ("IFL-1", 1),
    "inverse_focal gamma=2": ("IFL-2", 2),
    "inverse_focal gamma=3": ("IFL-3", 3),
}
#: What studies call these losses; the coefficient is that of the objective.
NAMES = (
    "cross_entropy",
    *("focal", "focal 1", "focal 2", "focal 3"),
    *("inverse_focal", "inverse_focal 1", "inverse_focal 3"),
)
SMALLEST = 15  # validation samples: one for each bin
MOST_SIZES = 6


def strength_of(run: Run, method: str) -> float | None:
    """The coefficient of a regularised loss in a run; None if the run is of another loss."""
    swept = coefficient(run.objective)
    # Cross-entropy counts as smoothing by 0 there; the paper's curves begin above it.
    return swept[1] if swept and swept[0] == method and swept[1] > 0 else None


def ece_by_coefficient(
    panel: PlaceRuns, method: str, runs: Iterable[Run] = ()
) -> dict[float, list[float]]:
    """ECE of each seed by coefficient."""
    points: dict[float, list[float]] = {}
    for run in runs or panel.runs():
        strength, error = strength_of(run, method), panel.value(run, "ece")
        if strength is not None and error is not None:
            points.setdefault(strength, []).append(error)
    return points


def best_by_size(panel: PlaceRuns, method: str) -> dict[int, float]:
    """For each training size the coefficient of least mean ECE."""
    by_size: dict[int, list[Run]] = {}
    for run in panel.runs():
        if run.train_size is not None and strength_of(run, method) is not None:
            by_size.setdefault(run.train_size, []).append(run)
    found = {size: ece_by_coefficient(panel, method, runs) for size, runs in by_size.items()}
    return {
        size: min(points, key=lambda strength: float(np.mean(points[strength])))
        for size, points in sorted(found.items())
        if points
    }


def fitted(calibrator: Calibrator, p: Predictions) -> Calibrator:
    """Fit, without the warnings: small samples are the point of figure 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(p)


def validation_sizes(num_samples: int) -> list[int]:
    """All samples, half of them, a quarter ... while there is one for each bin; rising.

    >>> validation_sizes(100)
    [25, 50, 100]
    """
    sizes = [num_samples]
    while len(sizes) < MOST_SIZES and sizes[0] // 2 >= SMALLEST:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def ece_by_size(
    panel: PlaceRuns, method: str, make: Callable[[], Calibrator]
) -> dict[int, list[float]]:
    """ECE of each seed on the test set after a fit on a part of the validation samples.

    A larger part holds the smaller ones; which samples come first is drawn with a fixed seed.
    """
    points: dict[int, list[float]] = {}
    for calibration, test in panel.predictions(method, CALIBRATION, TEST):
        order = np.random.default_rng(0).permutation(calibration.num_samples)
        for size in validation_sizes(calibration.num_samples):
            chosen = calibration.take(np.sort(order[:size]))
            after = calibrated_top(fitted(make(), chosen), test)
            points.setdefault(size, []).append(metrics.ece(after))
    return points


def optimal_ece(panel: PlaceRuns) -> dict[float, tuple[Float64, Float64]]:
    """For each ε the epochs, from 1, and the optimal ECE of each seed (rows) in them."""
    runs: dict[float, list[Run]] = {}
    for run in panel.runs():
        strength = strength_of(run, "label_smoothing")
        if strength is not None:
            runs.setdefault(strength, []).append(run)
    found = {}
    for strength in sorted(runs):
        tables = panel.epochs(runs[strength], ["test_optimal_ece"])
        if tables:
            found[strength] = _by_epoch(tables, "test_optimal_ece")
    return found


def _by_epoch(tables: list[pa.Table], column: str) -> tuple[Float64, Float64]:
    """Epochs, from 1, and the values of each table (rows); NaN where one recorded none."""
    epochs = np.unique(np.concatenate([table["epoch"].to_numpy() for table in tables]))
    values = np.full((len(tables), len(epochs)), np.nan)
    for row, table in zip(values, tables, strict=True):
        row[np.searchsorted(epochs, table["epoch"].to_numpy())] = table[column].to_numpy()
    return epochs + 1.0, values


def loss_curves() -> dict[str, tuple[Float64, Float64]]:
    """Each loss of the spectrum against the probability of the label, from the package's own."""
    import torch

    from calibrant.losses import focal, inverse_focal

    p = np.linspace(0, 1, 501)[1:-1]
    logits = torch.from_numpy(np.stack([np.log(p), np.log1p(-p)], axis=1))
    labels = torch.zeros(len(p), dtype=torch.int64)
    found = {}
    for name, gamma in SPECTRUM.values():
        loss = inverse_focal if gamma > 0 else focal  # γ = 0 is cross-entropy
        found[name] = (p, loss(logits, labels, gamma=abs(gamma)).numpy())
    return found


def along_spectrum(panel: PlaceRuns, metric: str, calibrator: str) -> dict[int, list[float]]:
    """Values of each seed by -γ of focal and γ̄ of inverse focal."""
    found: dict[int, list[float]] = {}
    for run in panel.runs():
        method = exact_name(run.objective)
        value = panel.value(run, metric, calibrator)
        if method in SPECTRUM and run.name in NAMES and value is not None:
            found.setdefault(SPECTRUM[method][1], []).append(value)
    return dict(sorted(found.items()))
