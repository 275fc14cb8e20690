"""Does `compare` raise false alarms between equally calibrated models, and does it see differences?

    python benchmarks/false_alarms.py [--simulations 200] [--sizes 300,1000,5000] [--models 2,5]
                                      [--metrics ece,adaptive_ece,…] [--replicates 700] [--seed 0]

Null populations (equal true calibration error, in the same bins):

- exchangeable: models share the logits z but for noise of their own; labels from softmax(z);
- exchangeable T = 2: the same, all stated too confidently by a factor 2 of the logits;
- sharpness: q ~ U(0.5, 1) is the chance of being right; every model is calibrated, but one states
  q, one the constant 0.75, one the two levels 0.625 and 0.875, one four levels, one eight;
- gap of 10 points: the same, every model right 10 points less often than it states.

A family is every pair of one table of one metric; a false alarm is any p < 5 % after Holm's
correction. For rows with a real difference (power) the models are the exchangeable ones, one of
them stated with logits multiplied by 1.3 or 2.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from calibrant import Confidences, Predictions
from calibrant.inference import holm, paired_differences
from calibrant.metrics import METRICS

TOP = [name for name, metric in METRICS.items() if metric.top_label and metric.plug_in]
EXCHANGEABLE = [*TOP, "classwise_ece", "accuracy", "nll", "brier", "auroc", "aurc"]
SLOW = ("kde_ece", "sweep_ece")


def exchangeable(rng: np.random.Generator, size: int, count: int, scale: float) -> dict:
    z = rng.normal(0, 2, (size, 4))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    noisy = [scale * (z + rng.normal(0, 0.7, z.shape)) for _ in range(count)]
    return {f"m{k}": Predictions(logits=s, labels=labels) for k, s in enumerate(noisy)}


def levels(q: np.ndarray, number: int) -> np.ndarray:
    """The mean of q ~ U(0.5, 1) in equal parts of its range."""
    return 0.5 + (np.floor((q - 0.5) * 2 * number) + 0.5) / (2 * number)


def sharpness(rng: np.random.Generator, size: int, count: int, gap: float) -> dict:
    q = rng.uniform(0.5, 1, size)
    correct = rng.random(size) < q - gap
    stated = [q, levels(q, 1), levels(q, 2), levels(q, 4), levels(q, 8)][:count]
    return {f"m{k}": Confidences(confidence=c, correct=correct) for k, c in enumerate(stated)}


def two_levels(rng: np.random.Generator, size: int, _: int, gap: float) -> dict:
    everyone = sharpness(rng, size, 5, gap)
    return {name: everyone[name] for name in ("m0", "m2")}


def stated_louder(rng: np.random.Generator, size: int, _: int, scale: float) -> dict:
    models = exchangeable(rng, size, 2, 1.0)
    first, second = models.values()
    louder = Predictions(logits=scale * second.logits, labels=second.labels)
    return {"m0": first, "m1": louder}


POPULATIONS = {
    "exchangeable": (exchangeable, 1.0),
    "exchangeable T = 2": (exchangeable, 2.0),
    "sharpness": (sharpness, 0.0),
    "sharpness, two levels": (two_levels, 0.0),
    "sharpness, gap of 10 points": (sharpness, 0.1),
    "power: logits × 1.3": (stated_louder, 1.3),
    "power: logits × 2": (stated_louder, 2.0),
}


def simulate(job: tuple[str, int, int, int, tuple[str, ...], int]) -> dict[str, bool]:
    population, size, count, replicates, names, seed = job
    make, argument = POPULATIONS[population]
    models = make(np.random.default_rng(seed), size, count, argument)
    top = any(isinstance(p, Confidences) for p in models.values())
    names = tuple(name for name in names if name in TOP or not top)
    _, found = paired_differences(models, names, replicates=replicates, seed=seed)
    by_metric = {name: [d.p_value for d in found if d.metric == name] for name in names}
    return {name: any(p < 0.05 for p in holm(values)) for name, values in by_metric.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--sizes", default="300,1000,5000")
    parser.add_argument("--models", default="2,5")
    parser.add_argument("--metrics", default=",".join(n for n in EXCHANGEABLE if n not in SLOW))
    parser.add_argument("--populations", default=",".join(POPULATIONS))
    parser.add_argument("--replicates", type=int, default=700)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first table")
    a = parser.parse_args()
    names = tuple(a.metrics.split(","))
    with ProcessPoolExecutor(a.workers) as pool:
        for size in map(int, a.sizes.split(",")):
            for population in POPULATIONS:
                if not any(population.startswith(p) for p in a.populations.split(",")):
                    continue
                for count in map(int, a.models.split(",")):
                    if count > 2 and ("power" in population or "two" in population):
                        continue
                    start = time.time()
                    jobs = [
                        (population, size, count, a.replicates, names, k)
                        for k in range(a.seed, a.seed + a.simulations)
                    ]
                    rows = list(pool.map(simulate, jobs, chunksize=2))
                    shares = "; ".join(
                        f"{name} {100 * np.mean([r[name] for r in rows]):.1f}" for name in rows[0]
                    )
                    print(
                        f"N={size} {population}, {count} models: {shares}"
                        f"  [{time.time() - start:.0f} s]",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
