"""What the claims need that no table holds, from the values of runs alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calibrant.papers._coefficients import exact_name
from calibrant.papers._results import Results
from calibrant.papers._run_measures import FLOOR, Found, coefficient
from calibrant.papers._scales import CALIBRATOR_LABELS
from calibrant.study import Run

Sweep = dict[float, float]  # ECE by coefficient
_GAMMAS = {f"{name} gamma={g}" for name in ("focal", "inverse_focal") for g in (1, 2, 3)}
_LEAST = 3  # coefficients of a sweep


def value_cells(results: Results) -> Iterator[Found]:
    """Every measurement of a paper's runs that needs only their values."""
    measures = {
        "wang2021": (_best_by_size, _sensitivity, _spectrum),
        "singh2021": (_decomposition,),
        "karandikar2021": (_confidence_gap,),
        "loss_report": (_confidence_gap,),
    }
    for measure in measures.get(results.at.paper, ()):
        yield from measure(results)


def _found(run: Run, metric: str, method: str, value: float, calibrator: str = "none") -> Found:
    return Found(run, metric, method, calibrator, "test", value)


# --- wang2021 ----------------------------------------------------------------------------------


def _best_by_size(results: Results) -> Iterator[Found]:
    """The coefficient of lowest ECE for each training size (figure 1d)."""
    for (family, size), (run, sweep) in _sweeps(results, ["sizes"], least=2):
        if size is not None:
            best = min(sweep, key=lambda strength: (sweep[strength], strength))
            yield _found(run, f"best_coefficient {family}", f"n={size}", best)


def _sensitivity(results: Results) -> Iterator[Found]:
    """The best coefficient, and the ECE one step beside it over the lowest (figures 1a to c)."""
    for (family, _), (run, sweep) in _sweeps(results, ["main", "coefficients"], least=_LEAST):
        best = min(sweep, key=lambda strength: (sweep[strength], strength))
        yield _found(run, "best_coefficient", family, best)
        yield _found(run, "neighbour_over_best", family, neighbour_over_best(sweep))


def neighbour_over_best(sweep: Sweep) -> float:
    """ECE one step away from the best coefficient, the worse step, over the ECE at the best.

    >>> neighbour_over_best({0.01: 0.04, 0.03: 0.02, 0.05: 0.06, 0.07: 0.09})
    3.0
    """
    order = sorted(sweep)
    at = order.index(min(order, key=lambda strength: sweep[strength]))
    near = [sweep[order[i]] for i in (at - 1, at + 1) if 0 <= i < len(order)]
    return max(near) / max(sweep[order[at]], FLOOR)


def _sweeps(
    results: Results, kinds: list[str], *, least: int
) -> Iterator[tuple[tuple[str, int | None], tuple[Run, Sweep]]]:
    """ECE by coefficient, for each family, training size, setting and seed."""
    found: dict[tuple[object, ...], tuple[Run, Sweep]] = {}
    for run in {run.key: run for kind in kinds for run in results.runs(kind)}.values():
        swept, value = coefficient(run.objective), results.value(run, "ece")
        if swept is None or value is None or run.name == "mixup":
            continue
        if swept[1] > 0 or "sizes" in kinds:  # cross-entropy is no coefficient of the sweep
            key = (swept[0], run.train_size, run.data, run.model, run.seed)
            found.setdefault(key, (run, {}))[1][swept[1]] = value
    for (family, size, *_), (run, sweep) in found.items():
        if len(sweep) >= least:
            yield (str(family), size if isinstance(size, int) else None), (run, sweep)


def _spectrum(results: Results) -> Iterator[Found]:
    """From focal with gamma 3 over cross-entropy to inverse focal with gamma 3 (figure 6)."""
    runs = {run.key: run for kind in ("main", "coefficients") for run in results.runs(kind)}
    for run in runs.values():
        method = exact_name(run.objective)
        if method not in {*_GAMMAS, "cross_entropy"} or run.name == "mixup":
            continue
        for metric in ("ece", "temperature"):
            for calibrator in CALIBRATOR_LABELS["wang2021"]:
                value = results.value(run, metric, calibrator)
                if value is not None:
                    yield _found(run, f"{metric} along gamma", method, value, calibrator)


# --- singh2021, karandikar2021, loss_report ----------------------------------------------------


def _decomposition(results: Results) -> Iterator[Found]:
    """What equations 9 and 7 miss of the ECE; the latter nothing where no bin is underconfident."""
    for run in results.runs("main"):
        names = ("ece", "mean_confidence", "accuracy", "auroc")
        found = [results.value(run, name) for name in names]
        if any(value is None for value in found):
            continue
        error, confidence, accuracy, area = (float(value or 0) for value in found)
        yield _found(run, "underconfident_part", run.name, error - (confidence - accuracy))
        rest = equation_nine(confidence, accuracy, area)
        yield _found(run, "equation9_residual", run.name, error - rest)


def equation_nine(confidence: float, accuracy: float, auroc: float) -> float:
    """ECE by equation 9 of singh2021, from shares of correct and wrong predictions.

    >>> round(equation_nine(0.85, 0.5, 1.0), 12)
    0.1
    """
    wrong = 1 - accuracy
    beta = 0.0 if math.isnan(auroc) else auroc * 2 * accuracy * wrong
    return confidence - beta - (accuracy**2 + wrong**2) / 2


def _confidence_gap(results: Results) -> Iterator[Found]:
    """Mean confidence minus accuracy."""
    for run in results.runs("main"):
        confidence, accuracy = (results.value(run, m) for m in ("mean_confidence", "accuracy"))
        if confidence is not None and accuracy is not None:
            yield _found(run, "confidence_gap", run.name, confidence - accuracy)
