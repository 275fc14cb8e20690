"""What the records of runs show, as one number per run: the data behind figures and claims.

Records are epochs, learned samples and kept predictions; what needs no more than the values of a
run is in ``_value_measures``. Curves over epochs are compared between windows of a tenth of
training, since noise alone puts the minimum of single epochs below the end.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant._core.checks import CalibrationWarning
from calibrant.papers._coefficients import exact_name
from calibrant.papers._results import Results
from calibrant.papers._scales import CALIBRATOR_LABELS
from calibrant.predictions import Confidences, Predictions
from calibrant.study import Run, calibrated_top

Values = NDArray[np.float64]


class Found(NamedTuple):
    """A measure of a run: what it is of, and its value; ``part`` is that of the place."""

    run: Run
    metric: str
    method: str
    calibrator: str
    part: str
    value: float

    def measure(self) -> dict[str, Any]:
        """Everything but the run."""
        return {name: value for name, value in self._asdict().items() if name != "run"}


#: Calibration errors below this count as this: less than any table prints.
FLOOR = 1e-5
# A tenth of the calibration samples is few; the mean over several draws of them is taken.
FEW, DRAWS = 0.1, 3
# The validation sizes of wang2021, figure 3, as shares of the calibration samples.
SHARES = (1.0, 0.5, 0.25, 0.125)
NARROW = 100  # bins, for which singh2021 counts the overconfident ones

_REGULARISED = ("cross_entropy", "label_smoothing", "cross_entropy + logit_norm", "focal")
_FOCAL = ("cross_entropy", "focal gamma=1", "focal gamma=2", "focal gamma=3")
_SYMBOLS = {"label_smoothing": "epsilon", "cross_entropy + logit_norm": "alpha", "focal": "gamma"}
# The one coefficient of an objective that wang2021 sweeps.
_SWEEPS = {
    "label_smoothing": re.compile(r"label_smoothing:epsilon=([\d.eE+-]+)"),
    "cross_entropy + logit_norm": re.compile(r"cross_entropy \+ ([\d.eE+-]+)\*logit_norm"),
    "focal": re.compile(r"focal:gamma=([\d.eE+-]+)"),
}


def record_cells(results: Results) -> Iterator[Found]:
    """Every measurement of the records of a paper's runs; runs that kept none give none."""
    measures = {
        "wang2021": (_few_samples, _by_validation_size, _max_logits, _optimal_ece, _memorised),
        "mukhoti2020": (_during_training, _memorised),
        "singh2021": (_bins,),
        "loss_report": (_fluctuation,),
    }
    for measure in measures.get(results.at.paper, ()):
        yield from measure(results)


def _found(
    run: Run, metric: str, method: str, value: float, calibrator: str = "none", part: str = "test"
) -> Found:
    return Found(run, metric, method, calibrator, part, value)


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


def window(curve: Values, end: float) -> float:
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


def _curves(results: Results, run: Run, *names: str) -> list[Values] | None:
    """Columns of the record of epochs; None if one is not there."""
    table = results.epochs(run)
    if not table.num_rows or any(name not in table.column_names for name in names):
        return None
    return [table[name].to_numpy().astype(np.float64) for name in names]


# --- wang2021 ----------------------------------------------------------------------------------


def _few_samples(results: Results) -> Iterator[Found]:
    """ECE after fitting on few samples over ECE after fitting on all (figure 3)."""
    labels = {name: CALIBRATOR_LABELS["wang2021"][name] for name in ("temperature", "histogram")}
    evaluations = [study.evaluation for study in results.at.study("main")]
    for run in _runs(results, ["main"], "calibration.npz"):
        for name, label in labels.items():
            full = results.value(run, "ece", name)
            makers = [e for e in evaluations if label in e.calibrators]
            if run.name in _REGULARISED and full is not None and makers:
                held, test = results.predictions(run, "calibration"), results.predictions(run)
                few = ece_with_few(partial(makers[0].make, label), held, test, run.seed)
                yield _found(run, "few_over_all", run.name, few / max(full, FLOOR), name)


def ece_with_few(make: Callable[[], Any], held: Predictions, test: Predictions, seed: int) -> float:
    """Mean ECE on ``test`` of a calibrator fitted on few of the samples held out."""
    rng = np.random.default_rng(seed)
    count = max(round(FEW * held.num_samples), 1)
    found = []
    for _ in range(DRAWS):
        few = held.take(rng.permutation(held.num_samples)[:count])
        found.append(max(metrics.ece(calibrated_top(_fit(make(), few), test)), FLOOR))
    return float(np.mean(found))


def _by_validation_size(results: Results) -> Iterator[Found]:
    """ECE on the test samples, and the temperature, by validation size (figure 3)."""
    labels = {name: CALIBRATOR_LABELS["wang2021"][name] for name in ("temperature", "histogram")}
    evaluations = [study.evaluation for study in results.at.study("main")]
    for run in _runs(results, ["main"], "calibration.npz"):
        for name, label in labels.items():
            makers = [e for e in evaluations if label in e.calibrators]
            if run.name in _REGULARISED and makers:
                held, test = results.predictions(run, "calibration"), results.predictions(run)
                order = np.random.default_rng(run.seed).permutation(held.num_samples)
                for share in SHARES:
                    some = held.take(order[: max(round(share * held.num_samples), 1)])
                    fitted = _fit(makers[0].make(label), some)
                    part, error = f"validation {share:g}", metrics.ece(calibrated_top(fitted, test))
                    yield _found(run, "ece_by_size", run.name, error, name, part)
                    if name == "temperature":
                        found = float(fitted.temperature_)
                        yield _found(run, "temperature_by_size", run.name, found, name, part)


def _fit(calibrator: Any, p: Predictions) -> Any:
    """Fit without warnings: few samples are the question."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(p)


def _max_logits(results: Results) -> Iterator[Found]:
    """Spread of the largest logits, and how well they tell early from late samples (figure 5)."""
    for run in _runs(results, ["main"], "learned.npy"):
        if run.name in _REGULARISED:
            logits, learned = results.learned(run)
            yield _found(run, "max_logit_spread", run.name, float(np.std(logits)))
            yield _found(run, "early_late_auroc", run.name, early_late_auroc(logits, learned))


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
    """By coefficient: the optimal ECE halfway, how far it ends above its lowest tenth, and when."""
    for run in _runs(results, ["main", "coefficients"], "epochs.parquet"):
        swept = coefficient(run.objective)
        if swept is None or run.name == "mixup":
            continue
        if curves := _curves(results, run, "test_optimal_ece"):
            name = f"{_SYMBOLS[swept[0]]}={swept[1]:g}"
            tenths = [window(curves[0], k / 10) for k in range(1, 11)]
            lowest = int(np.argmin(tenths))
            yield _found(run, "optimal_ece_rise", name, tenths[-1] - tenths[lowest])
            yield _found(run, "optimal_ece_turn", name, (lowest + 1) / 10)
            yield _found(run, "optimal_ece_halfway", name, tenths[4])


# --- mukhoti2020, singh2021, loss_report --------------------------------------------------------


def _during_training(results: Results) -> Iterator[Found]:
    """What happens to NLL, ECE, entropy and the last layer in training (figures 1, 2)."""
    names = ("test_nll_correct", "test_nll_incorrect", "test_entropy_incorrect")
    for run in _runs(results, ["epochs"], "epochs.parquet"):
        method = exact_name(run.objective)
        if method not in _FOCAL or run.name == "mixup":
            continue
        if curves := _curves(results, run, *names):
            for part, curve in zip(("correct", "incorrect"), curves[:2], strict=True):
                yield _found(run, f"nll_rise_{part}", method, _late_rise(curve))
            yield _found(run, "nll_correct_early", method, window(curves[0], 0.1))
            yield _found(run, "nll_correct_late", method, window(curves[0], 1.0))
            yield _found(run, "entropy_incorrect", method, window(curves[2], 1.0))
        if errors := _curves(results, run, "test_ece"):
            yield _found(run, "ece_rise", method, _late_rise(errors[0]))
        if norms := _curves(results, run, "head_norm"):
            yield _found(run, "head_norm_early", method, window(norms[0], 0.1))
            yield _found(run, "head_norm_late", method, window(norms[0], 1.0))


def _memorised(results: Results) -> Iterator[Found]:
    """The training error of the last epoch: near 0 if the network has memorised its samples."""
    for run in _runs(results, ["main"], "epochs.parquet"):
        if errors := _curves(results, run, "train_error"):
            yield _found(run, "train_error", run.name, float(errors[0][-1]))


def _late_rise(curve: Values) -> float:
    """From the middle tenth to the last."""
    return window(curve, 1.0) - window(curve, 0.55)


def _bins(results: Results) -> Iterator[Found]:
    """Equation 7 where no bin is underconfident, and how many of 100 bins are not (section 2.1)."""
    for run in _runs(results, ["main"], "test.npz"):
        p = results.predictions(run)
        if no_bin_underconfident(p):
            residual = metrics.ece(p) - (metrics.mean_confidence(p) - metrics.accuracy(p))
            yield _found(run, "identity_residual", run.name, abs(residual))
        yield _found(run, "overconfident_bins", run.name, overconfident_bins(p))


def overconfident_bins(p: Predictions | Confidences, bins: int = NARROW) -> float:
    """Share of the bins with samples whose accuracy is at most their confidence.

    >>> overconfident_bins(Confidences(confidence=[0.9, 0.92, 0.3], correct=[1, 0, 1]), 15)
    0.5
    """
    table = metrics.reliability(p, bins=bins)
    used = table.count > 0
    return float((table.accuracy[used] <= table.confidence[used]).mean())


def no_bin_underconfident(p: Predictions | Confidences) -> bool:
    """Whether no bin of 15 has a higher accuracy than confidence.

    >>> no_bin_underconfident(Confidences(confidence=[0.9, 0.92], correct=[True, False]))
    True
    >>> no_bin_underconfident(Confidences(confidence=[0.9, 0.3], correct=[True, False]))
    False
    """
    return overconfident_bins(p, 15) == 1


def _fluctuation(results: Results) -> Iterator[Found]:
    """Mean change of the test ECE from epoch to epoch in the second half of training (figure 1)."""
    for run in _runs(results, ["main"], "epochs.parquet"):
        curves = _curves(results, run, "test_ece")
        if curves and len(curves[0]) > 3:  # noqa: PLR2004 - else there is no second half
            late = curves[0][len(curves[0]) // 2 :]
            yield _found(run, "ece_fluctuation", run.name, float(np.abs(np.diff(late)).mean()))
