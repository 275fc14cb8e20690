"""What claims ask of predictions, on public pretrained networks: no training needed.

    python benchmarks/networks.py LOGITS_DIR

LOGITS_DIR as in ``pretrained.py``. Writes evidence/networks.csv, one row per measure and network:
means over random halves of the test set, one half to calibrate on and one to judge (NAME_val and
the test set where there is a NAME_val). ``Evidence.networks`` reads what the claims need from it,
``findings.py`` the rest. A network that is in the file already is not computed again.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import Confidences, Predictions, metrics
from calibrant.calibrators import HistogramBinning, TemperatureScaling
from calibrant.papers._run_measures import ece_with_few, overconfident_bins
from calibrant.papers._value_measures import equation_nine
from common import ROOT

OUT = ROOT / "evidence" / "networks.csv"
COLUMNS = ("data", "network", "part", "calibrator", "metric", "value")
HALVES = 5  # random halves of the test set
BINS = (5, 10, 15, 20, 50, 100)
SIZES = (250, 500, 1000, 2500, 5000)
DRAWS = 20  # of each size
FIXED = 1.5  # the temperature of singh2021 on CIFAR

Row = tuple[str, str, str, float]  # part, calibrator, metric, value
Either = Predictions | Confidences


def read(path: Path) -> Either:
    with np.load(path, allow_pickle=False) as data:
        if "confidence" in data.files:
            correct = data["correct"].astype(bool)
            return Confidences(confidence=data["confidence"].astype(float), correct=correct)
        kind = "logits" if "logits" in data.files else "probs"
        return Predictions(**{kind: data[kind].astype(np.float32)}, labels=data["labels"])


def take(p: Either, chosen: np.ndarray) -> Either:
    if isinstance(p, Predictions):
        return p.take(chosen)
    return Confidences(confidence=p.confidence[chosen], correct=p.correct[chosen])


def calibrated(held: Predictions, parts: dict[str, Predictions], seed: int) -> Iterator[Row]:
    """ECE and AUROC before and after each temperature, and what few samples cost."""
    soft, fixed = TemperatureScaling(objective="soft_ece"), TemperatureScaling(temperature=FIXED)
    fitted: dict[str, Any] = {
        "none": None,
        "temperature": TemperatureScaling().fit(held),
        "temperature_soft_ece": soft.fit(held),
        "temperature_fixed": fixed,
    }
    for part, p in parts.items():
        for name, calibrator in fitted.items():
            q = p if calibrator is None else calibrator.transform(p)
            yield part, name, "ece", metrics.ece(q)
            yield part, name, "ece_l2_mass", metrics.ece(q, norm=2, binning="mass")
            yield part, name, "auroc", metrics.auroc(q)
    test = parts["test"]
    for name, make in (
        ("temperature", lambda: TemperatureScaling(objective="ece")),
        ("histogram", HistogramBinning),
    ):
        fit = make().fit(held)
        after = fit.confidences(test) if name == "histogram" else fit.transform(test)
        if name == "histogram":  # how much a calibrator can change that makes few levels
            yield "test", name, "auroc", metrics.auroc(after)
        few = ece_with_few(make, held, test, seed)
        yield "test", name, "few_over_all", few / max(metrics.ece(after), 1e-5)


def as_they_are(p: Either, seed: int) -> Iterator[Row]:
    """The bins and the equation of singh2021, and how ECE depends on bins and samples."""
    accuracy, confidence = metrics.accuracy(p), metrics.mean_confidence(p)
    nine = equation_nine(confidence, accuracy, metrics.auroc(p))
    yield "test", "none", "overconfident_bins", overconfident_bins(p)
    yield "test", "none", "equation9_residual", metrics.ece(p) - nine
    yield "test", "none", "underconfident_part", metrics.ece(p) - (confidence - accuracy)
    for bins in BINS:
        yield "test", "none", f"ece, {bins} bins", metrics.ece(p, bins=bins)
    rng, count = np.random.default_rng(seed), len(p.confidence)
    for size in SIZES:
        drawn = [take(p, rng.permutation(count)[:size]) for _ in range(DRAWS)]
        yield (
            "test",
            "none",
            f"ece, {size} samples",
            float(np.mean([metrics.ece(q) for q in drawn])),
        )


def place_of(name: str) -> tuple[str, str]:
    """Data set and network of a file, such as imagenet_top1_timm__efficientnet_b1."""
    data, _, network = name.partition("_")
    return data, network.removeprefix("top1_").replace("__", "_")


def network_rows(name: str, files: dict[str, Path]) -> list[tuple[object, ...]]:
    """All measures of a network, means over the halves."""
    data, network = place_of(name)
    found: dict[tuple[str, str, str], list[float]] = {}
    test = read(files.get(f"{name}_test") or files[name])
    rows = list(as_they_are(test, 0))
    if isinstance(test, Predictions):
        held = read(files[f"{name}_val"]) if f"{name}_val" in files else None
        for seed in range(1 if held else HALVES):
            order = np.random.default_rng(seed).permutation(test.num_samples)
            half = test.num_samples // 2
            one, two = (held, test) if held else (test.take(order[:half]), test.take(order[half:]))
            parts = {"test": two}
            if f"{name}_shift" in files:
                parts["shift"] = read(files[f"{name}_shift"])
            rows += calibrated(one, parts, seed)
    for *place, value in rows:
        found.setdefault(tuple(place), []).append(value)
    return [(data, network, *place, float(np.mean(some))) for place, some in found.items()]


def main(folder: str) -> None:
    warnings.filterwarnings("ignore")
    files = {path.stem: path for path in sorted(Path(folder).glob("*.npz"))}
    names = [s.removesuffix("_test") for s in files if not s.endswith(("_val", "_shift"))]
    done = set()
    if OUT.exists():
        with OUT.open(encoding="utf-8", newline="") as file:
            done = {(row["data"], row["network"]) for row in csv.DictReader(file)}
    else:
        OUT.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    for name in names:
        if place_of(name) not in done:
            made = network_rows(name, files)
            with OUT.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(made)
            print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
