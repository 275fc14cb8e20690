"""Does `compare` raise false alarms between equally calibrated models, and does it see differences?

    python benchmarks/false_alarms.py [--tables 200] [--sizes 300,1000,5000] [--models 2,5]
        [--populations "sharpness,power: logits × 2"] [--metrics ece,mce] [--replicates 700]
        [--seed 0] [--round 25] [--workers 2] [--found FILE]
    python benchmarks/false_alarms.py --summary [--found FILE]

Populations with equal true calibration errors, in the same bins:

- exchangeable: models share the logits z but for noise of their own; labels from softmax(z);
- exchangeable T = 2: the same, all stated too confidently by a factor 2 of the logits;
- sharpness: q ~ U(0.5, 1) is the chance of being right; every model is calibrated, but one states
  q, one the constant 0.75, one the two levels 0.625 and 0.875, one four levels, one eight;
- gap of 10 points: the same, every model right 10 points less often than it states;
- T = 2: q stated with doubled log-odds, by the others as the mean of that over their levels.

``TOLD_APART`` has the errors that do differ there; sharper models also rank better, so averages and
rankings are compared between exchangeable models only. For rows with a real difference (power) the
models are the exchangeable ones, one of them stated with logits multiplied by 1.3, 2 or 0.5.

Beside the test of ``compare`` there is the plain one: the difference of the two estimates, divided
by its standard deviation over resamples. Every table is one line of FILE, with the least p-value of
both tests after Holm's correction by metric; tables that are already there are not computed again.
``--summary`` writes how often each is below 5 % to evidence/coverage/comparison.csv, beside the
rows of other files (those with another first seed), and for power also how often the plain test is
below the p-value that makes it valid: the one it falls below in 5 % of the tables of the worst of
the equally calibrated populations of that size.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations, product
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from calibrant import Confidences, Predictions
from calibrant.inference import holm, paired_differences
from calibrant.inference._biased import BiasedErrors, by_true_errors, varied_errors
from calibrant.inference._resampling import Resampling
from calibrant.metrics import METRICS, ece
from calibrant.metrics._estimators import binned
from calibrant.metrics._sample import Sample

EVIDENCE = Path(__file__).parents[1] / "evidence" / "coverage" / "comparison.csv"
COLUMNS = (
    "population",
    "size",
    "models",
    "metric",
    "first seed",
    "tables",
    "test",
    "plain",
    "plain made valid",
)
ERRORS = [name for name, metric in METRICS.items() if metric.plug_in and metric.view == "top label"]
OTHERS = [
    name for name, metric in METRICS.items() if not metric.plug_in and metric.view == "top label"
]
SLOW = ("kde_ece", "sweep_ece")
# Tables from which the p-value that makes the plain test valid is taken.
LEAST_TABLES = 40


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
    stated = [q, *(levels(q, number) for number in (1, 2, 4, 8)[: count - 1])]
    return {f"m{k}": Confidences(confidence=c, correct=correct) for k, c in enumerate(stated)}


def doubled_odds(q: np.ndarray) -> np.ndarray:
    return q**2 / (q**2 + (1 - q) ** 2)


def doubled_levels(q: np.ndarray, number: int) -> np.ndarray:
    """The mean of the doubled odds in equal parts of the range of q, by the antiderivative."""

    def area(x: np.ndarray) -> np.ndarray:
        return (x - 0.5) / 2 + np.log(0.5 + 2 * (x - 0.5) ** 2) / 4

    low = 0.5 + np.floor((q - 0.5) * 2 * number) / (2 * number)
    return (area(low + 0.5 / number) - area(low)) * 2 * number


def doubled(rng: np.random.Generator, size: int, count: int, _: float) -> dict:
    q = rng.uniform(0.5, 1, size)
    correct = rng.random(size) < q
    coarse = (doubled_levels(q, number) for number in (1, 2, 4, 8)[: count - 1])
    stated = [doubled_odds(q), *coarse]
    return {f"m{k}": Confidences(confidence=c, correct=correct) for k, c in enumerate(stated)}


def two_levels(rng: np.random.Generator, size: int, _: int, gap: float) -> dict:
    everyone = sharpness(rng, size, 3, gap)
    return {name: everyone[name] for name in ("m0", "m2")}


def stated_scaled(rng: np.random.Generator, size: int, _: int, scale: float) -> dict:
    models = exchangeable(rng, size, 2, 1.0)
    first, second = models.values()
    scaled = Predictions(logits=scale * second.logits, labels=second.labels)
    return {"m0": first, "m1": scaled}


POPULATIONS = {
    "exchangeable": (exchangeable, 1.0),
    "exchangeable T = 2": (exchangeable, 2.0),
    "sharpness": (sharpness, 0.0),
    "sharpness, two levels": (two_levels, 0.0),
    "sharpness, gap of 10 points": (sharpness, 0.1),
    "sharpness, T = 2": (doubled, 0.0),
    "power: logits × 1.3": (stated_scaled, 1.3),
    "power: logits × 2": (stated_scaled, 2.0),
    "power: logits × 0.5": (stated_scaled, 0.5),
}
TWO_MODELS = ("sharpness, two levels", *(name for name in POPULATIONS if "power" in name))
# Errors that are not equal there: kernels see a constant confidence in one place; gaps that differ
# by the confidence average out in wide levels; label-binned ECE counts the width of a bin.
TOLD_APART = {
    "sharpness": ("label_binned_ece",),
    "sharpness, two levels": ("label_binned_ece",),
    "sharpness, gap of 10 points": ("mmce", "skce"),
    "sharpness, T = 2": ("debiased_ece", "mce", "mmce", "skce"),
}

Job = tuple[str, int, int, int, tuple[str, ...], int]


def of_errors(models: dict, names: list[str], replicates: int, seed: int) -> dict:
    """P-values of calibration errors by both tests, pair by pair, from the same resamples."""
    resampling = Resampling(replicates=replicates, seed=seed)
    errors = {m: BiasedErrors.of(p, names, {}, resampling) for m, p in models.items()}
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for name, (test, plain) in found.items():
        function = METRICS[name].function
        values = {m: function(p) for m, p in models.items()}
        varied = {m: e.varied[name] for m, e in errors.items()}
        if name == "mce":  # what is simulated of it is not the metric itself
            varied = {m: largest_gaps(p, resampling) for m, p in models.items()}
        for a, b in combinations(models, 2):
            test.append(by_true_errors(errors[a], errors[b], name).p_value)
            spread = np.nanstd(varied[a] - varied[b], ddof=1)
            gap = abs(values[a] - values[b])
            plain.append(float(2 * ndtr(-gap / spread)) if spread > 0 else 1.0)
    return found


def largest_gaps(p: Predictions | Confidences, resampling: Resampling) -> np.ndarray:
    """MCE on the resamples that are common to all models."""
    sample = Sample.of(p)
    estimators = {"mce": binned(ece, {"norm": np.inf}, sample.ranked)}
    return varied_errors(sample, estimators, resampling)["mce"]


def simulate(job: Job) -> str:
    """One table as a line of the file."""
    population, size, count, replicates, names, seed = job
    make, argument = POPULATIONS[population]
    models = make(np.random.default_rng(seed), size, count, argument)
    top = any(isinstance(p, Confidences) for p in models.values())
    chosen = [n for n in names if METRICS[n].top_label or not top]
    chosen = [n for n in chosen if n not in TOLD_APART.get(population, ())]
    chosen = [n for n in chosen if METRICS[n].plug_in or not top]
    biased = [n for n in chosen if METRICS[n].plug_in]
    found: dict[str, tuple[list[float], ...]] = of_errors(models, biased, replicates, seed)
    others = [n for n in chosen if n not in found]
    if others:
        _, differences = paired_differences(models, others, replicates=replicates, seed=seed)
        for name in others:
            found[name] = ([d.p_value for d in differences if d.metric == name],)
    least = {
        name: [round(float(np.nanmin(holm(values))), 5) for values in tests]
        for name, tests in found.items()
    }
    row = {"population": population, "size": size, "models": count, "seed": seed, "p": least}
    return json.dumps(row, ensure_ascii=False)


def recorded(found: Path) -> Iterator[dict]:
    if found.exists():
        yield from map(json.loads, found.read_text().splitlines())


def key_of(row: dict) -> tuple[str, int, int]:
    return row["population"], row["size"], row["models"]


def jobs(a: argparse.Namespace) -> Iterator[Job]:
    """Tables that are not in the file; a round of all cells before the next one."""
    done = {(*key_of(row), row["seed"]) for row in recorded(a.found)}
    names = tuple(a.metrics.split(","))
    wanted = a.populations.split(";") if a.populations else list(POPULATIONS)
    sizes, counts = (map(int, given.split(",")) for given in (a.sizes, a.models))
    starts = range(a.seed, a.seed + a.tables, a.round)
    for start, size, count, population in product(starts, sizes, counts, wanted):
        if count > 2 and population in TWO_MODELS:
            continue
        for seed in range(start, min(start + a.round, a.seed + a.tables)):
            if (population, size, count, seed) not in done:
                yield population, size, count, a.replicates, names, seed


def summary(found: Path) -> list[dict[str, object]]:
    """How often each test is below 5 %, by population, size, number of models and metric."""
    cells: dict[tuple[str, int, int], dict[str, list]] = defaultdict(lambda: defaultdict(list))
    first = min(row["seed"] for row in recorded(found))
    for row in recorded(found):
        for name, values in row["p"].items():
            cells[key_of(row)][name].append(values)
    valid: dict[tuple[int, str], list[float]] = defaultdict(list)
    for (population, size, count), metrics in cells.items():
        for name, values in metrics.items():
            enough = len(values) >= LEAST_TABLES and len(values[0]) == 2
            if not population.startswith("power") and count == 2 and enough:
                valid[size, name].append(float(np.quantile([p for _, p in values], 0.05)))
    return [
        _share(key, name, first, values, min([0.05, *valid[key[1], name]]))
        for key, metrics in sorted(cells.items(), key=_order)
        for name, values in metrics.items()
    ]


def _order(item: tuple[tuple[str, int, int], dict]) -> tuple[int, int, int]:
    population, size, count = item[0]
    return size, list(POPULATIONS).index(population), count


def _share(key: tuple, name: str, first: int, values: list, valid: float) -> dict[str, object]:
    def below(place: int, level: float) -> str:
        p = [row[place] for row in values if len(row) > place]
        return f"{100 * np.mean(np.less(p, level)):.1f}" if p else ""

    made_valid = below(1, valid) if key[0].startswith("power") else ""
    found = (*key, name, first, len(values), below(0, 0.05), below(1, 0.05), made_valid)
    return dict(zip(COLUMNS, found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--sizes", default="300,1000,5000")
    parser.add_argument("--models", default="2,5")
    parser.add_argument("--metrics", default=",".join(n for n in ERRORS if n not in SLOW))
    parser.add_argument("--populations", default="", help="separated by ;")
    parser.add_argument("--replicates", type=int, default=700)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first table")
    parser.add_argument("--round", type=int, default=25, help="tables of a cell at a time")
    parser.add_argument("--found", type=Path, default=Path("comparison.jsonl"))
    parser.add_argument("--summary", action="store_true")
    a = parser.parse_args()
    if not a.summary:
        with ProcessPoolExecutor(a.workers) as pool, a.found.open("a") as file:
            for line in pool.map(simulate, list(jobs(a))):
                print(line, file=file, flush=True)
        return
    rows = summary(a.found)
    with EVIDENCE.open(newline="") as file:
        earlier = [r for r in csv.DictReader(file) if r["first seed"] != f"{rows[0]['first seed']}"]
    with EVIDENCE.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows([*earlier, *rows])


if __name__ == "__main__":
    main()
