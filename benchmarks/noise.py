"""Simulations behind single sentences of docs/intervals.md; writes evidence/coverage/noise.csv.

    python benchmarks/noise.py

What noise alone does to an ECE, intervals where clusters are not named, and how often tests of
calibration reject. tests/test_pages.py compares the sentences with the file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import numpy as np

from calibrant import Confidences, Predictions, metrics
from calibrant.inference import ece_test, intervals, skce_test, spiegelhalter_test
from cluster_coverage import draw, truths
from common import ROOT

EVIDENCE = ROOT / "evidence" / "coverage" / "noise.csv"
FIRST_SEED = 9_000_000
CLASSES, SPREAD = 5, 2.0
#: Samples, temperature of the labels, data sets.
TESTED = ((1000, 1.0, 1000), (10_000, 1.0, 300), (1000, 1.2, 200), (1000, 0.8, 200))


def predictions(seed: int, size: int, temperature: float = 1.0) -> Predictions:
    """Normal logits of five classes; labels follow softmax(z / T)."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, SPREAD, (size, CLASSES))
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(logits=z, labels=labels)


def noise_alone(seed: int, size: int = 1000) -> dict[str, float]:
    """ECE of a calibrated model."""
    return {"ECE of a calibrated model": metrics.ece(predictions(seed, size))}


def sharper(seed: int, size: int = 1000) -> dict[str, float]:
    """Whether the sharper of two calibrated models has the larger ECE."""
    rng = np.random.default_rng(seed)
    says = rng.uniform(0.5, 1, size)
    right = rng.random(size) < says
    one, other = (
        metrics.ece(Confidences(confidence=c, correct=right)) for c in (np.full(size, 0.75), says)
    )
    return {"sharper model has the larger ECE": float(other > one)}


def unnamed(seed: int) -> dict[str, float]:
    """Whether intervals hold the truth though 100 clusters of 10 identical rows are not named."""
    p = draw(np.random.default_rng(seed), 100, 10, identical=True).independent()
    found = intervals(p, ["accuracy", "ece"], replicates=300, seed=seed)
    return {
        f"coverage without clusters, {name}": float(i.low <= truths()[name] <= i.high)
        for name, i in found.items()
    }


def rejected(seed: int, size: int, temperature: float) -> dict[str, float]:
    """Which tests reject at 5 %. Each has draws of its own: shared ones would err alike."""
    p = predictions(seed, size, temperature)
    simulated = (test(p, draws=199, seed=2 * seed) for test in (ece_test, skce_test))
    return {
        f"{test.name} rejects, N = {size}, T = {temperature:g}": float(test.p_value <= 0.05)
        for test in (spiegelhalter_test(p), *simulated)
    }


def rows() -> Iterator[tuple[str, int, str]]:
    """Each quantity, the number of data sets, and its mean."""
    tasks = [(noise_alone, (), 1000), (sharper, (), 1000), (unnamed, (), 400)]
    tasks += [(rejected, (size, t), count) for size, t, count in TESTED]
    for task, arguments, count in tasks:
        found = [task(FIRST_SEED + k, *arguments) for k in range(count)]
        for name in found[0]:
            yield name, count, f"{np.mean([row[name] for row in found]):.5f}"
            print(name, count, flush=True)


def main() -> None:
    made = list(rows())
    with EVIDENCE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("what", "data_sets", "mean"), *made])


if __name__ == "__main__":
    main()
