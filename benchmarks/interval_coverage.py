"""Do 95 % intervals cover the truth 95 % of the time? And do 5 % tests raise 5 % false alarms?

Populations whose truth is known: logits z are normal, labels are drawn from softmax(z / T), and the
model states softmax(z). T = 1 is perfectly calibrated, T > 1 overconfident, T < 1 underconfident.
True values come from the same formulas applied to four hundred thousand draws of z, with the true
probability of each outcome in place of the outcome.

    python benchmarks/interval_coverage.py [--size 1000] [--simulations 400] [--replicates 500]
                                           [--seed 0]
    python benchmarks/interval_coverage.py --near-certain [--replicates 500]

The second form takes models that always state one confidence, near 100 % or not, and answer few
questions. Their coverage is exact: intervals for every number of errors, weighted by its chance.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from unittest import mock

import numpy as np
from scipy.stats import binom

from calibrant import Confidences, Predictions, metrics
from calibrant.inference import ece_test, intervals, skce_test, spiegelhalter_test
from calibrant.metrics._sample import Ranked

CLASSES, SPREAD, DRAWS = 5, 2.0, 400_000
COVERED = (
    "accuracy",
    "nll",
    "brier",
    "auroc",
    "debiased_ece",
    "smooth_ece",
    "ece",
    "classwise_ece",
)
TEMPERATURES = (1.0, 1.1, 1.5, 2.5, 0.8)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@cache
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
    true = truth(temperature)
    sides = {k: int(true[k] > i.high + 1e-12) - int(true[k] < i.low) for k, i in found.items()}
    drawn = (test(p, draws=199, seed=2 * seed + 1) for test in (ece_test, skce_test))
    tests = (spiegelhalter_test(p), *drawn)
    return sides, {test.name: test.p_value < 0.05 for test in tests}


# Samples, the confidence stated, and the chance of being right.
NEAR_CERTAIN = (
    (30, 0.99, 0.93),
    (60, 0.999, 0.95),
    (100, 0.9999, 0.97),
    (30, 0.999, 0.97),
    (100, 0.99, 0.96),
    (100, 0.98, 0.96),
    (100, 0.97, 0.97),
    (100, 0.95, 0.92),
    (60, 0.97, 0.999),
    (50, 0.6, 0.5),
    (50, 0.6, 0.7),
)
ONE_CONFIDENCE = ("accuracy", "ece", "debiased_ece", "smooth_ece", "overconfidence_error", "skce")
WITHOUT = "ece_without_the_rule"  # that accuracies at the ends of their interval are included


def near_certain(job: tuple[int, float, float, int]) -> dict[str, float]:
    """Chance that each interval holds the truth."""
    size, says, is_right, replicates = job
    gap = is_right - says
    true = {"accuracy": is_right, "overconfidence_error": says * max(-gap, 0), "skce": gap**2}
    true |= dict.fromkeys(("ece", "debiased_ece", "smooth_ece", WITHOUT), abs(gap))
    covered = dict.fromkeys((*ONE_CONFIDENCE, WITHOUT), 0.0)
    for wrong in range(size + 1):
        chance = binom.pmf(wrong, size, 1 - is_right)
        if chance > 1e-5:
            p = Confidences(confidence=[says] * size, correct=np.arange(size) >= wrong)
            found = intervals(p, ONE_CONFIDENCE, replicates=replicates)
            with mock.patch("calibrant.inference._grid.unseen_populations", return_value=[]):
                found |= {WITHOUT: intervals(p, ["ece"], replicates=replicates)["ece"]}
            for name, i in found.items():
                covered[name] += chance * (i.low - 1e-12 <= true[name] <= i.high + 1e-12)
    return covered


def print_near_certain(replicates: int) -> None:
    names = (*ONE_CONFIDENCE, WITHOUT)
    print("   N  says  is right" + "".join(f"  {name:>20s}" for name in names))
    jobs = [(*case, replicates) for case in NEAR_CERTAIN]
    with ProcessPoolExecutor(2) as pool:
        for (size, says, is_right, _), row in zip(jobs, pool.map(near_certain, jobs), strict=True):
            shares = "".join(f"  {100 * row[name]:20.1f}" for name in names)
            print(f"{size:4d} {says:6g} {is_right:7g}{shares}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--near-certain", action="store_true", help="models of one confidence")
    a = parser.parse_args()
    if a.near_certain:
        print_near_certain(a.replicates)
        return
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
                print(
                    f"  {name:14s} {below:5.1f} {inside:6.1f} {above:5.1f}   "
                    f"(truth {truth(t)[name]:.5f})"
                )
            for name in rows[0][1]:
                share = 100 * np.mean([row[1][name] for row in rows])
                print(f"  {name + ' test':18s} rejects {share:5.1f} %", flush=True)
    print(f"\n{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
