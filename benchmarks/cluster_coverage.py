"""Coverage of 95 % intervals where samples come in clusters, and type-I error of compare.

    python benchmarks/cluster_coverage.py [SIMULATIONS] [REPLICATES] [FIRST SEED] > clusters.txt
    python benchmarks/coverage_tables.py  # once that file is in evidence/coverage

Three classes; labels follow the softmax of z / 1.5 + u with a shift u of each cluster, so the model
is overconfident. Identical: a cluster is one sample repeated. Correlated: a cluster has its own u
and a common part of z. Prints one line per design, for coverage_tables.py.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial

import numpy as np

import calibrant
from calibrant import Predictions

METRICS = (
    "accuracy",
    "nll",
    "brier",
    "ece",
    "debiased_ece",
    "smooth_ece",
    "classwise_ece",
    "auroc",
)
DESIGNS = {
    "1, independent": (400, 1, False),
    "10, correlated": (150, 10, False),
    "10, identical": (300, 10, True),
    "100, correlated": (60, 100, False),
    "100, identical": (200, 100, True),
}
NULL = ("accuracy", "nll", "ece", "smooth_ece")
LEVEL = 0.05


def draw(rng: np.random.Generator, clusters: int, size: int, *, identical: bool) -> Predictions:
    """Predictions for some clusters; with ``size`` 1 the marginal population is the same."""
    shared, own = rng.normal(0, 1.2, (clusters, 1, 3)), rng.normal(0, 1.2, (clusters, size, 3))
    z = shared + own
    u = rng.normal(0, 0.7, (clusters, 1, 3))
    y = (z / 1.5 + u + rng.gumbel(size=z.shape)).argmax(axis=2)
    if identical:
        z, y = np.repeat(z[:, :1], size, axis=1), np.repeat(y[:, :1], size, axis=1)
    code = np.repeat(np.arange(clusters), size)
    return Predictions(logits=z.reshape(-1, 3), labels=y.ravel(), clusters=code)


@lru_cache
def truths(size: int = 1_000_000) -> dict[str, float]:
    """Values of the population, from many independent samples."""
    p = draw(np.random.default_rng(123), size, 1, identical=False).independent()
    return {name: calibrant.metrics.METRICS[name].function(p) for name in METRICS}


def simulate(
    seed: int, design: str, replicates: int, metrics: tuple[str, ...] = METRICS
) -> dict[str, tuple[float, float]]:
    """The intervals of one simulated data set."""
    clusters, size, identical = DESIGNS[design]
    p = draw(np.random.default_rng((seed, clusters, size)), clusters, size, identical=identical)
    panel = calibrant.measure(p, metrics=metrics, replicates=replicates, seed=seed)
    return {name: (panel.interval(name).low, panel.interval(name).high) for name in metrics}


def null_difference(seed: int, design: str, replicates: int) -> dict[str, float]:
    """P-values where two models are equally good: the second sees classes 0 and 1 exchanged."""
    clusters, size, identical = DESIGNS[design]
    rng = np.random.default_rng((seed, clusters, size, 1))
    p = draw(rng, clusters, size, identical=identical)
    noise = rng.normal(0, 1, (2, clusters, 1, 3)) + np.zeros((2, clusters, size, 3))
    models = {
        name: p.with_scores("logits", p.logits + shift.reshape(-1, 3))
        for name, shift in zip("ab", noise, strict=True)
    }
    found = calibrant.compare(models, metrics=NULL, replicates=replicates, seed=seed)
    return {d.metric: d.p_value for d in found.differences}


def shares(design: str, kind: str, of_metrics: dict[str, float]) -> str:
    """One line of evidence: the share of simulations by metric, in per cent."""
    clusters, size, identical = DESIGNS[design]
    rows = "independent" if size == 1 else "identical" if identical else "correlated"
    values = ", ".join(f"{name} {100 * share:.1f}" for name, share in of_metrics.items())
    return f"{kind}: {clusters} clusters of {size} {rows} rows: {values}"


def main(simulations: int = 200, replicates: int = 200, first: int = 0) -> None:
    """Print both tables."""
    truth = truths()
    seeds = range(first, first + simulations)
    head = f"# {simulations} simulations, {replicates} replicates, seeds from {first}"
    with ProcessPoolExecutor(2) as pool:
        print(f"{head}: coverage")
        for design in DESIGNS:
            task = partial(simulate, design=design, replicates=replicates)
            found = list(pool.map(task, seeds))
            held = {
                n: float(np.mean([f[n][0] <= truth[n] <= f[n][1] for f in found])) for n in METRICS
            }
            print(shares(design, "coverage", held), flush=True)
        print(f"{head}: type-I error")
        for design in DESIGNS:
            task = partial(null_difference, design=design, replicates=replicates)
            found_p = list(pool.map(task, seeds))
            told = {n: float(np.mean([f[n] < LEVEL for f in found_p])) for n in NULL}
            print(shares(design, "false alarms", told), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
