"""What the figures of the papers show, as one number per run: the data behind their claims.

Curves over epochs are compared between fixed windows (the middle tenth and the last tenth of
training), not from their minimum, which noise alone puts below the end.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant._core.checks import CalibrationWarning
from calibrant.papers._results import Results
from calibrant.papers._scales import CALIBRATORS
from calibrant.predictions import Confidences, Predictions
from calibrant.study import Run

Found = tuple[Run, tuple[str, str, str], float]  # run; metric, method, calibrator; value
Curve = NDArray[np.float64]

#: Calibration errors below this count as this: less than any table prints.
FLOOR = 1e-5
# A tenth of the calibration samples is few; the mean over several draws of them is taken.
FEW, DRAWS = 0.1, 3

_REGULARISED = ("cross_entropy", "label_smoothing", "cross_entropy + logit_norm", "focal")
_FOCAL = ("cross_entropy", "focal 1", "focal 2", "focal")
# The one coefficient of an objective that wang2021 sweeps.
_SWEEPS = {
    "label_smoothing": re.compile(r"label_smoothing:epsilon=([\d.eE+-]+)"),
    "cross_entropy + logit_norm": re.compile(r"cross_entropy \+ ([\d.eE+-]+)\*logit_norm"),
    "focal": re.compile(r"focal:gamma=([\d.eE+-]+)"),
}


def figure_cells(results: Results) -> Iterator[Found]:
    """Every measurement of the finished runs of a paper; runs that kept no records give none."""
    paper = results.at.paper
    if paper == "wang2021":
        yield from _few_samples(results)
        yield from _max_logits(results)
        yield from _optimal_ece(results)
        yield from _best_coefficients(results)
    if paper == "mukhoti2020":
        yield from _during_training(results)
    if paper == "singh2021":
        yield from _identity(results)
    if paper == "loss_report":
        yield from _confidence_gap(results)


def coefficient(objective: str) -> tuple[str, float] | None:
    """Family and coefficient of an objective that a sweep may hold; cross-entropy smooths by 0.

    >>> coefficient("cross_entropy + 0.01*logit_norm")
    ('cross_entropy + logit_norm', 0.01)
    >>> coefficient("cross_entropy")
    ('label_smoothing', 0.0)
    >>> coefficient("focal:gamma=3 + 2*mmce") is None
    True
    """
    if objective == "cross_entropy":
        return "label_smoothing", 0.0
    for family, pattern in _SWEEPS.items():
        if match := pattern.fullmatch(objective):
            return family, float(match[1])
    return None


def window(curve: Curve, end: float) -> float:
    """Mean of a curve over the tenth of training that ends at the share ``end`` of it.

    >>> window(np.arange(20.0), 1.0), window(np.arange(20.0), 0.55)
    (18.5, 9.5)
    >>> window(np.array([4.0, 2.0]), 1.0)
    2.0
    """
    last = max(math.ceil(end * len(curve) - 1e-9), 1)
    return float(curve[max(last - max(round(len(curve) / 10), 1), 0) : last].mean())


def _runs(results: Results, kinds: Iterable[str], file: str) -> list[Run]:
    """Finished runs that kept a file, each once."""
    found = {run.key: run for kind in kinds for run in results.runs(kind)}
    folder = results.store.run_folder
    return [run for run in found.values() if (folder(run.key) / file).exists()]


def _curves(results: Results, run: Run, *names: str) -> list[Curve] | None:
    """Columns of the record of epochs; None if one is not there."""
    table = results.epochs(run)
    if not table.num_rows or any(name not in table.column_names for name in names):
        return None
    return [table[name].to_numpy().astype(np.float64) for name in names]


# --- wang2021 ----------------------------------------------------------------------------------


def _few_samples(results: Results) -> Iterator[Found]:
    """ECE after fitting on few samples over ECE after fitting on all (figure 3)."""
    labels = {name: CALIBRATORS["wang2021"][name] for name in ("temperature", "histogram")}
    evaluations = [study.evaluation for study in results.at.study("main")]
    for run in _runs(results, ["main"], "calibration.npz"):
        for name, label in labels.items():
            full = results.value(run, "ece", name)
            makers = [e for e in evaluations if label in e.calibrators]
            if run.name in _REGULARISED and full is not None and makers:
                held, test = results.predictions(run, "calibration"), results.predictions(run)
                few = ece_with_few(partial(makers[0].make, label), held, test, run.seed)
                yield run, ("few_over_all", run.name, name), few / max(full, FLOOR)


def ece_with_few(make: Callable[[], Any], held: Predictions, test: Predictions, seed: int) -> float:
    """Mean ECE on ``test`` of a calibrator fitted on few of the samples held out."""
    rng = np.random.default_rng(seed)
    count = max(round(FEW * held.num_samples), 1)
    found = []
    for _ in range(DRAWS):
        few = held.take(rng.permutation(held.num_samples)[:count])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # few samples: that is the question
            found.append(max(metrics.ece(make().fit(few).transform(test)), FLOOR))
    return float(np.mean(found))


def _max_logits(results: Results) -> Iterator[Found]:
    """Spread of the largest logits, and how well they tell early from late samples (figure 5)."""
    for run in _runs(results, ["main"], "learned.npy"):
        if run.name in _REGULARISED:
            logits, learned = results.learned(run)
            yield run, ("max_logit_spread", run.name, "none"), float(np.std(logits))
            yield run, ("early_late_auroc", run.name, "none"), early_late_auroc(logits, learned)


def early_late_auroc(max_logit: NDArray[np.float64], learned: NDArray[np.int64]) -> float:
    """How often a sample learned early has a larger logit than one learned late; 0.5 is never.

    Early is up to the median epoch of the learned ones; samples never learned (-1) do not count.
    NaN if all were learned at once.

    >>> early_late_auroc(np.array([9.0, 8.0, 3.0, 4.0, 1.0]), np.array([0, 0, 5, 9, -1]))
    1.0
    """
    kept = learned >= 0
    if not kept.any():
        return math.nan
    epochs, logits = learned[kept], max_logit[kept].astype(np.float64)
    early = epochs <= np.median(epochs)
    if early.all():
        return math.nan
    ranks = np.unique(logits, return_inverse=True)[1] / len(logits)  # any increasing map will do
    return float(metrics.auroc(Confidences(confidence=ranks, correct=early)))


def _optimal_ece(results: Results) -> Iterator[Found]:
    """By smoothing: how far the optimal ECE ends above its lowest, and when that was (figure 4)."""
    for run in _runs(results, ["main", "coefficients"], "epochs.parquet"):
        swept = coefficient(run.objective)
        if swept is None or swept[0] != "label_smoothing" or run.name == "mixup":
            continue
        if curves := _curves(results, run, "test_optimal_ece"):
            name, curve = f"epsilon={swept[1]:g}", curves[0]
            rise = window(curve, 1.0) - float(curve.min())
            yield run, ("optimal_ece_rise", name, "none"), rise
            yield run, ("optimal_ece_turn", name, "none"), (int(curve.argmin()) + 1) / len(curve)


def _best_coefficients(results: Results) -> Iterator[Found]:
    """The coefficient of lowest ECE for each training size (figure 1d)."""
    sweeps: dict[tuple[str, int | None, str, str, int], list[tuple[float, float, Run]]]
    sweeps = defaultdict(list)
    for run in results.runs("sizes"):
        swept, value = coefficient(run.objective), results.value(run, "ece")
        if swept is not None and value is not None:
            family, strength = swept
            key = (family, run.train_size, run.data, run.model, run.seed)
            sweeps[key].append((value, strength, run))
    for (family, size, *_), found in sweeps.items():
        _, best, run = min(found, key=lambda row: row[:2])
        if len(found) > 1 and size is not None:
            yield run, (f"best_coefficient {family}", f"n={size}", "none"), best


# --- mukhoti2020, singh2021, loss_report --------------------------------------------------------


def _during_training(results: Results) -> Iterator[Found]:
    """Late rise of the test NLL, norms of the last layer, entropy where wrong (figures 1, 2)."""
    names = ("test_nll_correct", "test_nll_incorrect", "test_entropy_incorrect")
    for run in _runs(results, ["epochs"], "epochs.parquet"):
        if run.name not in _FOCAL:
            continue
        if curves := _curves(results, run, *names):
            for part, curve in zip(("correct", "incorrect"), curves[:2], strict=True):
                rise = window(curve, 1.0) - window(curve, 0.55)
                yield run, (f"nll_rise_{part}", run.name, "none"), rise
            yield run, ("entropy_incorrect", run.name, "none"), window(curves[2], 1.0)
        if norms := _curves(results, run, "head_norm"):
            yield run, ("head_norm_early", run.name, "none"), window(norms[0], 0.1)
            yield run, ("head_norm_late", run.name, "none"), window(norms[0], 1.0)


def _identity(results: Results) -> Iterator[Found]:
    """|ECE - (mean confidence - accuracy)| where no bin is underconfident (equation 7)."""
    for run in _runs(results, ["main"], "test.npz"):
        p = results.predictions(run)
        if no_bin_underconfident(p):
            residual = metrics.ece(p) - (metrics.mean_confidence(p) - metrics.accuracy(p))
            yield run, ("identity_residual", run.name, "none"), abs(residual)


def no_bin_underconfident(p: Predictions | Confidences) -> bool:
    """Whether no bin of 15 has a higher accuracy than confidence.

    >>> no_bin_underconfident(Confidences(confidence=[0.9, 0.92], correct=[True, False]))
    True
    >>> no_bin_underconfident(Confidences(confidence=[0.9, 0.3], correct=[True, False]))
    False
    """
    table = metrics.reliability(p)
    used = table.count > 0
    return bool((table.accuracy[used] <= table.confidence[used]).all())


def _confidence_gap(results: Results) -> Iterator[Found]:
    """Mean confidence minus accuracy."""
    for run in results.runs("main"):
        confidence, accuracy = (results.value(run, m) for m in ("mean_confidence", "accuracy"))
        if confidence is not None and accuracy is not None:
            yield run, ("confidence_gap", run.name, "none"), confidence - accuracy
