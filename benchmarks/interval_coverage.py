"""Do 95 % intervals cover the truth 95 % of the time? And do 5 % tests raise 5 % false alarms?

Populations whose truth is known: logits z are normal, labels are drawn from softmax(z / T), and the
model states softmax(z). T = 1 is perfectly calibrated, T > 1 overconfident, T < 1 underconfident.
True values come from the same formulas applied to four hundred thousand draws of z, with the true
probability of each outcome in place of the outcome.

    python benchmarks/interval_coverage.py [--size 1000] [--simulations 400] [--replicates 500]
                                           [--seed 0]
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from calibrant import Predictions, metrics
from calibrant.inference import ece_test, intervals, skce_test, spiegelhalter_test
from calibrant.metrics._sample import Ranked

CLASSES, SPREAD, DRAWS = 5, 2.0, 400_000
COVERED = ("accuracy", "nll", "brier", "auroc", "debiased_ece", "smooth_ece", "ece",
           "classwise_ece")  # fmt: skip
TEMPERATURES = (1.0, 1.1, 1.5, 2.5, 0.8)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def truth(temperature: float) -> dict[str, float]:
    z = np.random.default_rng(12345).normal(0, SPREAD, (DRAWS, CLASSES))
    stated, true = softmax(z), softmax(z / temperature)
    top = z.argmax(axis=1)
    rows = np.arange(DRAWS)
    order = np.argsort(stated[rows, top])
    ranked = Ranked(stated[rows, top][order], np.ones(DRAWS), true[rows, top][order])
    squares = (stated**2).sum(axis=1) - 2 * (true * stated).sum(axis=1) + 1
    classwise = 0.0
    for k in range(CLASSES):
        index = np.minimum((stated[:, k] * 15).astype(int), 14)
        gaps = np.bincount(index, stated[:, k] - true[:, k], 15) / DRAWS
        classwise += np.abs(gaps).sum() / CLASSES
    return {
        "accuracy": ranked.accuracy,
        "nll": float(-(true * np.log(stated)).sum(axis=1).mean()),
        "brier": float(squares.mean()),
        "auroc": metrics.auroc(ranked),
        "debiased_ece": metrics.ece(ranked, norm=2, binning="mass"),
        "smooth_ece": metrics.smooth_ece(ranked),
        "ece": metrics.ece(ranked),
        "classwise_ece": classwise,
    }


def simulate(job: tuple[float, int, int, int]) -> tuple[dict[str, int], dict[str, bool]]:
    """-1, 0 or 1 a metric: the truth lies below, in or above the interval; tests that reject."""
    temperature, size, replicates, seed = job
    rng = np.random.default_rng(seed)
    z = rng.normal(0, SPREAD, (size, CLASSES))
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = Predictions(logits=z, labels=labels)
    found = intervals(p, COVERED, replicates=replicates, seed=seed)
    true = TRUTH[temperature]
    sides = {k: int(true[k] > i.high + 1e-12) - int(true[k] < i.low) for k, i in found.items()}
    tests = (spiegelhalter_test(p), ece_test(p, draws=199), skce_test(p, draws=199))
    return sides, {test.name: test.p_value < 0.05 for test in tests}


TRUTH = {t: truth(t) for t in TEMPERATURES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    start = time.time()
    print(f"N = {a.size:,}, {a.simulations} simulations, {a.replicates} replicates")
    with ProcessPoolExecutor(2) as pool:
        for t in TEMPERATURES:
            jobs = [(t, a.size, a.replicates, a.seed * 10**6 + k) for k in range(a.simulations)]
            rows = list(pool.map(simulate, jobs, chunksize=4))
            print(f"\nT = {t}: truth below, in, above the interval (%)", flush=True)
            for name in COVERED:
                sides = np.array([row[0][name] for row in rows])
                below, inside, above = (100 * np.mean(sides == s) for s in (-1, 0, 1))
                print(f"  {name:14s} {below:5.1f} {inside:6.1f} {above:5.1f}   "
                      f"(truth {TRUTH[t][name]:.5f})")  # fmt: skip
            for name in rows[0][1]:
                share = 100 * np.mean([row[1][name] for row in rows])
                print(f"  {name + ' test':18s} rejects {share:5.1f} %", flush=True)
    print(f"\n{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
