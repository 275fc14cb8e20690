"""Every calibrator, ours and peers', on predictions of pretrained networks.

    python benchmarks/pretrained.py LOGITS_DIR

LOGITS_DIR holds npz files (not part of the project): ``logits`` or ``probs`` and ``labels``, or
``confidence`` and ``correct`` where only the top class is known. Methods are fitted on NAME_val, or
on the first half of the test set where there is none, and judged on the other half and on
NAME_shift. Writes evidence/pretrained.csv, one row per value; docs/which.md is generated from it by
``evidence.py``. Continues where it was stopped: what the file has is not computed again.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant import Confidences, Predictions, metrics
from calibrant.calibrators import (
    CALIBRATORS,
    HistogramBinning,
    TemperatureScaling,
    automatic,
    select_calibrator,
)
from common import ROOT

OUT = ROOT / "evidence" / "pretrained.csv"
COLUMNS = ("network", "part", "package", "method", "metric", "value")
# What ``auto`` tried before there was a blend; of more scores than MANY only the first four.
SINGLES = (
    "temperature",
    "ensemble_temperature",
    "vector",
    "structured_vector",
    "beta",
    "structured_matrix",
)
MANY = 300_000
Apply = Callable[[Predictions], Predictions]
Fit = Callable[[Predictions], Apply]


# --- the predictions --------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """What a network said: samples to fit on, and parts to judge on."""

    name: str
    fit: Predictions
    parts: dict[str, Predictions]
    top_only: bool = False


def networks(folder: Path) -> Iterator[Network]:
    """The networks of a folder, those with few classes first."""
    files = {path.stem: path for path in sorted(folder.glob("*.npz"))}
    for stem, path in sorted(files.items(), key=lambda item: ("100" in item[0], item[0])):
        if stem.endswith(("_val", "_shift")):
            continue
        test, top_only = read(path)
        name = stem.removesuffix("_test")
        if f"{name}_val" in files:
            fit, parts = read(files[f"{name}_val"])[0], {"test": test}
        else:
            half = test.num_samples // 2
            fit = test.take(np.arange(half))
            parts = {"test": test.take(np.arange(half, test.num_samples))}
        if f"{name}_shift" in files:
            parts["shift"] = read(files[f"{name}_shift"])[0]
        yield Network(name, fit, parts, top_only)


def read(path: Path) -> tuple[Predictions, bool]:
    """Predictions; those of the top class alone become two classes, wrong and right."""
    with np.load(path, allow_pickle=False) as data:
        if "confidence" in data.files:
            # Known to float32: a 1 is a number that rounds to it, and its rest is not exactly 0.
            c = np.minimum(data["confidence"].astype(np.float64), 1 - 2.0**-25)
            probs = np.stack([1 - c, c], axis=1)
            return Predictions(probs=probs, labels=data["correct"].astype(int)), True
        kind = "logits" if "logits" in data.files else "probs"
        scores = {kind: data[kind].astype(np.float32)}
        return Predictions(**scores, labels=data["labels"].astype(int)), False


# --- the methods ------------------------------------------------------------------------------


def ours() -> dict[str, Fit]:
    variants = {
        "temperature by ECE": lambda: TemperatureScaling(objective="ece"),
        "temperature by soft ECE": lambda: TemperatureScaling(objective="soft_ece"),
        "histogram of classes": lambda: HistogramBinning(target="class"),
        "histogram of classes by mass": lambda: HistogramBinning(target="class", binning="mass"),
    }
    found: dict[str, Fit] = {"none": lambda _: lambda p: p}
    for name, make in (CALIBRATORS | variants).items():
        found[name] = lambda fit, make=make: make().fit(fit).transform
    found["auto"] = lambda fit: automatic(fit).calibrator.transform
    found["auto without blend"] = lambda fit: (
        (
            select_calibrator(fit, SINGLES[: 4 if fit.scores.size > MANY else None])
        ).calibrator.transform
    )
    return found


def peers() -> dict[tuple[str, str], Fit]:
    """Peer methods by package and by our name. All are given probabilities, as they ask."""
    from netcal.binning import HistogramBinning as NetcalBinning
    from netcal.scaling import TemperatureScaling as NetcalTemperature
    from probmetrics import calibrators as pm

    return {
        ("probmetrics", "temperature"): whole(lambda: pm.get_calibrator("temp-scaling")),
        ("netcal", "temperature"): whole(NetcalTemperature, "transform"),
        ("probmetrics", "ensemble_temperature"): whole(pm.ETSCalibrator),
        ("probmetrics", "vector"): whole(pm.VectorScalingCalibrator),
        ("probmetrics", "matrix"): whole(pm.MatrixScalingCalibrator),
        ("probmetrics", "structured_vector"): whole(lambda: pm.get_calibrator("svs")),
        ("probmetrics", "structured_matrix"): whole(lambda: pm.get_calibrator("sms")),
        ("scikit-learn", "platt"): one_against_rest(lambda: pm.get_calibrator("platt")),
        ("scikit-learn", "isotonic"): whole(lambda: pm.get_calibrator("isotonic")),
        ("netcal", "histogram of classes"): whole(lambda: NetcalBinning(15), "transform"),
        ("probmetrics", "spline"): one_against_rest(pm.CDFSplineCalibrator),
    }


def whole(make: Callable[[], object], method: str = "predict_proba") -> Fit:
    """A peer that takes all classes at once."""

    def fitted(fit: Predictions) -> Apply:
        peer = make()
        peer.fit(fit.probs.astype(np.float32), fit.labels)

        def apply(p: Predictions) -> Predictions:
            probs = np.asarray(getattr(peer, method)(p.probs.astype(np.float32)), float)
            if probs.ndim == 1:  # of two classes some give the second alone
                probs = pair(probs)
            return normalised(np.clip(probs, 0, 1), p)

        return apply

    return fitted


def one_against_rest(make: Callable[[], object]) -> Fit:
    """A peer for two classes: one for each class, made to sum to 1, as they are used."""

    def fitted(fit: Predictions) -> Apply:
        columns = []
        for k in range(fit.num_classes):
            peer = make()
            peer.fit(pair(fit.probs[:, k]), (fit.labels == k).astype(int))
            columns.append(peer)

        def apply(p: Predictions) -> Predictions:
            found = [
                np.asarray(peer.predict_proba(pair(p.probs[:, k])))[:, 1]
                for k, peer in enumerate(columns)
            ]
            return normalised(np.clip(np.nan_to_num(np.stack(found, 1)), 1e-12, 1), p)

        return apply

    return fitted


def pair(p: np.ndarray) -> np.ndarray:
    return np.stack([1 - p, p], axis=1)


def normalised(probs: np.ndarray, p: Predictions) -> Predictions:
    return Predictions(probs=probs / probs.sum(axis=1, keepdims=True), labels=p.labels)


# --- judging ----------------------------------------------------------------------------------


def judge(p: Predictions, *, top_only: bool) -> dict[str, float]:
    """Metrics; where only the top class is known, ECE is that of the confidence in it."""
    top = Confidences(confidence=p.probs[:, 1], correct=p.labels == 1) if top_only else p
    found = {
        "nll": metrics.nll(p),
        "ece": metrics.ece(top),
        "debiased_ece": metrics.debiased_ece(top),
        "brier": metrics.brier(p),
        "auroc": metrics.auroc(top),
    }
    return found if top_only else {"accuracy": metrics.accuracy(p), **found}


def rows(network: Network, package: str, method: str, fit: Fit) -> list[tuple[object, ...]]:
    place = (network.name, "test", package, method)
    try:
        apply = fit(network.fit)
        calibrated = {part: apply(p) for part, p in network.parts.items()}
    except Exception as error:  # a method that raises is a result
        print(*place, type(error).__name__, str(error)[:90], flush=True)
        return [(*place, "failed", 1)]
    made: list[tuple[object, ...]] = []
    for part, p in calibrated.items():
        found = judge(p, top_only=network.top_only)
        made += [(network.name, part, package, method, *item) for item in found.items()]
    return made


def main(folder: str) -> None:
    warnings.filterwarnings("ignore")  # the peers'
    methods = {("calibrant", name): fit for name, fit in ours().items()} | peers()
    done = set()
    if OUT.exists():
        with OUT.open(encoding="utf-8", newline="") as file:
            done = {(r["network"], r["package"], r["method"]) for r in csv.DictReader(file)}
    else:
        OUT.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    for network in networks(Path(folder)):
        for (package, method), fit in methods.items():
            if (network.name, package, method) not in done:
                made = rows(network, package, method, fit)
                with OUT.open("a", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(made)
        print(network.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
