"""Coverage of 95 % intervals of every calibration and ranking metric over a grid of populations.

Labels are drawn from softmax(z / T) while the model states softmax(z): T = 1 is calibrated.
"Peaked" logits single out one class, "spread" ones are normal with standard deviation 2,
"imbalanced" ones prefer class 0. True values come from the same formulas with the true probability
of each outcome in place of the outcome, on a large draw of z.

    python benchmarks/coverage_grid.py classwise [--simulations 200] [--classes 2,5,10,100,1000]
    python benchmarks/coverage_grid.py binned    [--simulations 200] [--classes 5]
    python benchmarks/coverage_grid.py ranking   [--simulations 200] [--classes 2,5]
    python benchmarks/coverage_grid.py stream    [--simulations 200] [--classes 5]
    python benchmarks/coverage_grid.py clustered [--simulations 200] [--classes 5]
        [--sizes 200,1000,10000] [--kinds peaked] [--temperatures 0.5,2]
        [--metrics ece,"ece norm inf"] [--replicates 1000] [--workers 2] [--seed 0]

"stream" measures from the state of an accumulator, and so does "clustered", with every row five
times in a cluster of its own.

One line per population as soon as it is done: coverage in per cent, and in brackets how often the
truth lay below and above the interval.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np

from calibrant import Predictions, metrics
from calibrant._measure import panel_of_stream
from calibrant.inference import Resampling, intervals
from calibrant.metrics._binning import width_index
from calibrant.metrics._sample import Ranked
from calibrant.streaming import Accumulator

STREAMED = {
    name: (name, {})
    for name in metrics.default_metrics("panel")
    if metrics.METRICS[name].interval != "rows"
}
REPEATED = 5  # rows of a cluster
TEMPERATURES = (1.0, 0.5, 1.3, 2.0)
BINS = 15
# Entries of the score matrix from which the truth is computed.
TRUTH_ELEMENTS = 40_000_000
METRICS = {
    "classwise": {"classwise_ece": ("classwise_ece", {})},
    "binned": {
        "ece": ("ece", {}),
        "ece norm 2": ("ece", {"norm": 2}),
        "ece norm inf": ("ece", {"norm": np.inf, "binning": "mass"}),
        "adaptive_ece": ("adaptive_ece", {}),
        "debiased_ece": ("debiased_ece", {}),
        "smooth_ece": ("smooth_ece", {}),
        "mce": ("mce", {}),
        "overconfidence_error": ("overconfidence_error", {}),
        "underconfidence_error": ("underconfidence_error", {}),
        "label_binned_ece": ("label_binned_ece", {}),
        "mmce": ("mmce", {}),
    },
    "ranking": {
        name: (name, {})
        for name in (
            "accuracy",
            "nll",
            "brier",
            "auroc",
            "aupr_success",
            "aupr_error",
            "fpr95",
            "aurc",
            "eaurc",
        )
    },
    "stream": STREAMED,
    "clustered": STREAMED,
}

Job = tuple[str, tuple[str, ...], str, int, int, float, int, int]


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def logits(kind: str, size: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "spread":
        return rng.normal(0, 2, (size, classes))
    if kind == "imbalanced":
        z = rng.normal(0, 1.5, (size, classes))
        z[:, 0] += 2.5
        return z
    z = rng.normal(0, 1, (size, classes))
    z[np.arange(size), rng.integers(0, classes, size)] += np.log(classes) + rng.normal(3, 2, size)
    return z


@cache
def truth(group: str, kind: str, classes: int, temperature: float) -> dict[str, float]:
    rng = np.random.default_rng(12345)
    parts = 8
    size = min(400_000, TRUTH_ELEMENTS // classes) // parts
    cells, columns = np.zeros((classes, BINS)), []
    for _ in range(parts):
        z = logits(kind, size, classes, rng)
        stated, true = softmax(z), softmax(z / temperature)
        if group == "classwise":
            cell = width_index(stated.ravel(), BINS).reshape(stated.shape) + np.arange(
                0, classes * BINS, BINS
            )
            cells += np.bincount(cell.ravel(), (true - stated).ravel(), classes * BINS).reshape(
                cells.shape
            )
        top = stated.argmax(axis=1)
        rows = np.arange(size)
        nll = -(true * np.log(np.maximum(stated, 1e-300))).sum(axis=1)
        brier = (stated**2).sum(axis=1) - 2 * (true * stated).sum(axis=1) + 1
        entropy = -(stated * np.log(np.maximum(stated, 1e-300))).sum(axis=1)
        columns.append((stated[rows, top], true[rows, top], nll, brier, entropy))
    if kind != "imbalanced":  # classes are exchangeable, so their mean is more precise
        cells[:] = cells.mean(axis=0)
    stated, true, nll, brier, entropy = map(np.concatenate, zip(*columns, strict=True))
    order = np.argsort(stated)
    ranked = Ranked(stated[order], np.ones(len(order)), true[order])
    found = {"classwise_ece": np.abs(cells).sum() / classes / (size * parts)}
    found |= {"nll": float(nll.mean()), "brier": float(brier.mean())}
    found |= {"mean_confidence": float(stated.mean()), "mean_entropy": float(entropy.mean())}
    for label, (name, options) in METRICS[group].items():
        if name == "debiased_ece":
            found[label] = metrics.ece(ranked, norm=2, binning="mass")
        elif label not in found:
            found[label] = metrics.METRICS[name].function(ranked, **options)
    return found


def together(p: Predictions, wanted: dict, replicates: int, seed: int) -> dict:
    """Intervals by label. One call for all that need no options: they share their resamples."""
    plain = [name for name, options in wanted.values() if not options]
    shared = intervals(p, plain, replicates=replicates, seed=seed)
    return {
        label: intervals(p, [name], options={name: options}, replicates=replicates, seed=seed)[name]
        if options
        else shared[name]
        for label, (name, options) in wanted.items()
    }


def streamed(p: Predictions, resampling: Resampling) -> dict:
    """Intervals from the state of an accumulator."""
    total = Accumulator(p.num_classes)
    total.update(p)
    panel = panel_of_stream(
        Accumulator.from_state(total.state()), metrics=list(STREAMED), resampling=resampling
    )
    return {name: panel.interval(name) for name in STREAMED}


def simulate(job: Job) -> list[int]:
    """For each metric -1, 0 or 1: the truth lies below, in or above the interval; 9 undefined."""
    group, chosen, kind, classes, size, temperature, replicates, seed = job
    rng = np.random.default_rng(seed)
    z = logits(kind, size, classes, rng)
    labels = (z / temperature + rng.gumbel(size=z.shape)).argmax(axis=1)
    clusters = None
    if group == "clustered":
        keep = np.repeat(np.arange(size // REPEATED), REPEATED)
        z, labels, clusters = z[keep], labels[keep], keep
    p = Predictions(logits=z, labels=labels, clusters=clusters)
    true = truth(group, kind, classes, temperature)
    sides = []
    if METRICS[group] is STREAMED:
        found = streamed(p, Resampling(0.95, replicates, seed))
    else:
        wanted = {one: METRICS[group][one] for one in chosen}
        found = together(p, wanted, replicates, seed)
    for label, i in found.items():
        below, above = true[label] < i.low - 1e-12, true[label] > i.high + 1e-12
        sides.append(9 if np.isnan(i.low) else int(above) - int(below))
    return sides


def line(job: Job, sides: np.ndarray, seconds: float) -> str:
    """Coverage of each metric on one population, with how often the truth lay below and above."""
    _, chosen, kind, classes, size, temperature = job[:6]
    cells = []
    for label, column in zip(chosen, sides.T, strict=True):
        known = column[column != 9]
        below, inside, above = (100 * np.mean(known == s) for s in (-1, 0, 1))
        cells.append(f"{label} {inside:.1f} ({below:.0f}/{above:.0f})")
    where = f"K={classes} N={size} {kind} T={temperature:g}: "
    return where + "; ".join(cells) + f"  [{seconds:.0f} s]"


def populations(classes: int, kinds: str, temperatures: str) -> list[tuple[str, float]]:
    two, more = ("spread", "imbalanced"), ("peaked", "spread")
    asked = kinds.split(",") if kinds else two if classes == 2 else more
    return [(kind, float(t)) for kind in asked for t in temperatures.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("group", choices=METRICS)
    parser.add_argument("--simulations", type=int, default=200)
    parser.add_argument("--classes", default="2,5,10,100,1000")
    parser.add_argument("--sizes", default="200,1000,10000")
    parser.add_argument("--kinds", default="", help="peaked, spread, imbalanced")
    parser.add_argument("--temperatures", default=",".join(f"{t:g}" for t in TEMPERATURES))
    parser.add_argument("--metrics", default="", help="some of the group's; all if not given")
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first data set")
    a = parser.parse_args()
    seeds = range(a.seed, a.seed + a.simulations)
    chosen = tuple(a.metrics.split(",")) if a.metrics else tuple(METRICS[a.group])
    print(f"# {a.simulations} simulations, seeds {seeds[0]} to {seeds[-1]}", flush=True)
    with ProcessPoolExecutor(a.workers) as pool:
        for classes in map(int, a.classes.split(",")):
            for size in map(int, a.sizes.split(",")):
                for kind, t in populations(classes, a.kinds, a.temperatures):
                    start = time.time()
                    jobs = [
                        (a.group, chosen, kind, classes, size, t, a.replicates, k) for k in seeds
                    ]
                    sides = np.array(list(pool.map(simulate, jobs, chunksize=4)))
                    print(line(jobs[0], sides, time.time() - start), flush=True)


if __name__ == "__main__":
    main()
