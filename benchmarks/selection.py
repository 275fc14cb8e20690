"""Does the automatic choice leave good models alone when validation data has few or no errors?

Good models whose truth is known: accurate, and calibrated but for a temperature near 1. Each is
given a validation set with no error at all, or with one or two, and the calibrator that ``auto``
chooses on it is judged on the population: the expected NLL over twenty thousand draws, with the
true probabilities of the classes in place of labels, beside that of the model as it is.

    python benchmarks/selection.py [--models 200] [--seed 0]
    python benchmarks/selection.py --logits LOGITS_DIR [--sizes 200 1000 5000] [--rules]
        [--networks "cifar10_*.npz"]

The second form takes logits of real networks (npz files with ``logits`` and ``labels``): the choice
is made on samples of the first half and judged on the second half. With ``--rules`` it is compared
with two other rules, of the same candidates: the lowest out-of-fold NLL of ten folds, however
complex the method (the rule of 0.2.0), and the best in hindsight, the candidate with the lowest
NLL on the second half itself.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant import Predictions, metrics
from calibrant.calibrators import Calibrator, automatic, select_calibrator

SIZES = (10, 20, 50, 100, 200, 500)
CLASSES = (2, 3, 5, 10, 30, 100)
SHAPES = ("margins", "mixture")
DRAWS = 20_000
TRIES = 2000


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Model:
    """Labels are drawn from softmax(z); the model states softmax(z / temperature)."""

    shape: str
    num_samples: int
    num_classes: int
    errors: float  # expected in the validation set
    most: int  # allowed there
    temperature: float
    seed: int

    def features(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Scores without their scale: one class stands out, by one margin or by many."""
        z = rng.normal(size=(size, self.num_classes))
        high = 3.0 if self.shape == "mixture" else rng.gamma(4.0, 1.0, size)
        z[np.arange(size), rng.integers(self.num_classes, size=size)] += high
        return z

    def scale(self, rng: np.random.Generator) -> float:
        """What makes the features logits of a model that errs as often as wished."""
        z, wanted = self.features(rng, 4000), self.errors / self.num_samples
        low, high = 0.01, 100.0
        for _ in range(60):
            middle = (low * high) ** 0.5
            rate = 1 - np.exp(log_softmax(middle * z).max(axis=1)).mean()
            low, high = (middle, high) if rate > wanted else (low, middle)
        return middle

    def draw(self, rng: np.random.Generator, scale: float, size: int) -> Predictions:
        z = scale * self.features(rng, size)
        labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        return Predictions(logits=z / self.temperature, labels=labels)

    def validation(self, rng: np.random.Generator, scale: float) -> Predictions:
        for _ in range(TRIES):
            p = self.draw(rng, scale, self.num_samples)
            if self.least <= (~p.correct).sum() <= self.most:
                return p
        raise RuntimeError(f"No validation set with so few errors came up: {self}")

    @property
    def least(self) -> int:
        return min(self.most, 1)

    def excess(self) -> tuple[str, float]:
        """What is chosen, and by how much its NLL exceeds that of the model as it is."""
        rng = np.random.default_rng(self.seed)
        scale = self.scale(rng)
        found = automatic(self.validation(rng, scale))
        test = self.draw(rng, scale, DRAWS)
        truth = np.exp(log_softmax(test.logits * self.temperature))
        terms = test.log_probs - found.calibrator.transform(test).log_probs
        # What cannot happen costs nothing, however small its stated probability.
        return found.chosen, float(np.where(truth > 0, truth * terms, 0).sum(axis=1).mean())


def models(count: int, seed: int) -> list[Model]:
    """Every other validation set is free of errors, the rest have one or two."""
    rng = np.random.default_rng(seed)
    return [
        Model(
            shape=SHAPES[k // 2 % len(SHAPES)],
            num_samples=int(rng.choice(SIZES)),
            num_classes=int(rng.choice(CLASSES)),
            errors=float(np.exp(rng.uniform(np.log(0.1), np.log(2.0)))),
            most=2 * (k % 2),
            temperature=float(np.exp(rng.normal(0, 0.3))),
            seed=1000 * seed + k,
        )
        for k in range(count)
    ]


def simulate(count: int, seed: int) -> None:
    rows = defaultdict(list)
    start = time.perf_counter()
    for model in models(count, seed):
        chosen, excess = model.excess()
        if excess > 0.02:
            print(f"  {excess:+.4f} {chosen} {model}")
        for key in (
            f"N = {model.num_samples}",
            f"{'one or two' if model.most else 'no'} errors",
            "all",
        ):
            rows[key].append((chosen == "none", excess))
    print("| validation sets | models | left uncalibrated | mean excess NLL | worst |")
    print("|---|---|---|---|---|")
    for key in sorted(rows, key=lambda key: (key == "all", "error" in key, len(key), key)):
        kept, excess = np.array(rows[key], dtype=float).T
        print(
            f"| {key} | {len(kept)} | {kept.mean():.0%} | {excess.mean():+.5f} "
            f"| {excess.max():+.5f} |"
        )
    print(f"{time.perf_counter() - start:.0f} s")


def networks(
    folder: Path, pattern: str, seed: int
) -> Iterator[tuple[str, Predictions, Predictions]]:
    """Name of each network, and two halves of its predictions."""
    for path in sorted(folder.glob(pattern)):
        with np.load(path) as data:
            if "logits" not in data or path.stem.endswith(("_val", "_shift")):
                continue
            p = Predictions(logits=data["logits"], labels=data["labels"])
        yield path.stem, *p.split(0.5, seed=seed)


def nll_after(calibrator: Calibrator, test: Predictions) -> float:
    return float(metrics.nll(calibrator.transform(test)))


def real(folder: Path, pattern: str, sizes: list[int], seed: int, *, rules: bool) -> None:
    """NLL of every network as it is, after the automatic choice, and after other rules'."""
    rows = defaultdict(list)
    heads = ["none", "auto", *(["lowest of ten folds", "best in hindsight"] if rules else [])]
    for name, half, test in networks(folder, pattern, seed):
        for size in sizes:
            fit = half.take(np.arange(min(size, half.num_samples)))
            found = automatic(fit, seed=seed)
            chosen, values = [found.chosen], [float(metrics.nll(test))]
            values.append(nll_after(found.calibrator, test))
            if rules:
                lowest = select_calibrator(fit, folds=10, seed=seed, standard_errors=0)
                chosen.append(lowest.chosen)
                every = [c.calibrator for c in found.candidates if c.calibrator.is_fitted]
                values.append(nll_after(lowest.calibrator, test))
                values.append(min(values[0], *(nll_after(c, test) for c in every)))
            rows[size].append(values)
            shown = " | ".join(f"{value:.4f}" for value in values)
            print(f"| {name} | {size} | {', '.join(chosen)} | {shown} |", flush=True)
    for size, values in rows.items():
        print(f"N = {size}, {len(values)} networks: mean NLL", end=" ")
        means = np.array(values).mean(axis=0)
        print(", ".join(f"{head} {mean:.4f}" for head, mean in zip(heads, means, strict=True)))
        if rules:
            print("  " + beside(np.array(values)))


def beside(values: np.ndarray) -> str:
    """How auto compares with the lowest of ten folds, paired by network."""
    gap = values[:, 1] - values[:, 2]
    error = gap.std(ddof=1) / len(gap) ** 0.5
    return (
        f"auto minus lowest: {gap.mean():+.5f} ± {error:.5f} (standard error), "
        f"from {gap.min():+.5f} to {gap.max():+.5f}; lower in {(gap < 0).sum()}, "
        f"equal in {(gap == 0).sum()}, higher in {(gap > 0).sum()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logits", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--networks", default="cifar*.npz")
    parser.add_argument("--rules", action="store_true")
    given = parser.parse_args()
    if given.logits:
        real(given.logits, given.networks, given.sizes, given.seed, rules=given.rules)
    else:
        simulate(given.models, given.seed)


if __name__ == "__main__":
    main()
