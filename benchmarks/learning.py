"""Learning curve: test NLL of every calibrator, ours and peers', by the number of fit samples.

    python benchmarks/learning.py LOGITS_DIR [--draws 3] [--networks "cifar10_*"]
        [--methods temperature blend auto] [--sizes 200]

LOGITS_DIR is that of ``pretrained.py``. The test set of each network is divided into random halves:
every method is fitted to N samples of the first (draw d takes the d-th N of them) and judged on the
second. Writes evidence/learning.csv, one row per value, and continues where it was stopped;
docs/which.md is generated from it by ``evidence.py``.

The settings of ``Blend`` (which members, how strong a penalty, and which weights it draws to) and
the rule of ``auto`` were chosen on the networks of DEVELOPMENT alone; the page reports the others
separately.
"""

from __future__ import annotations

import argparse
import csv
import functools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrant import Predictions, metrics
from calibrant.calibrators import Blend, Selection, automatic, out_of_fold
from common import ROOT
from pretrained import Fit, one_against_rest, ours, peers
from pretrained import read as read_network

OUT = ROOT / "evidence" / "learning.csv"
COLUMNS = ("network", "num_samples", "draw", "package", "method", "metric", "value")
SIZES = (200, 1000, 5000, 25_000)
# Up to this many samples the loss of the blend is compared with a nested one.
NESTED = 1000
DEVELOPMENT = (
    "cifar10_akamaster_resnet20",
    "cifar10_distiller_resnet8",
    "cifar10_mobilenetv2_x1_0",
    "cifar10_resnet20",
    "cifar10_vgg16_bn",
    "cifar100_mobilenetv2_x1_0",
    "cifar100_resnet20",
    "cifar100_vgg16_bn",
)
# The blend as a candidate: its loss, and a nested one.
JUDGED = "blend in auto"
Key = tuple[str, int, int, str, str]


class BetaCalibrated:
    """The peer betacal with the methods of scikit-learn."""

    def fit(self, probs: np.ndarray, labels: np.ndarray) -> None:
        from betacal import BetaCalibration

        self.inner = BetaCalibration(parameters="abm").fit(probs[:, 1].reshape(-1, 1), labels)

    def predict_proba(self, probs: np.ndarray) -> np.ndarray:
        found = self.inner.predict(probs[:, 1].reshape(-1, 1))
        return np.stack([1 - found, found], axis=1)


@functools.lru_cache(maxsize=1)
def selection(samples: Predictions) -> Selection:
    return automatic(samples)


def pooled(samples: Predictions) -> Any:
    """The blend as a candidate of the selection."""
    return next(c for c in selection(samples).candidates if c.name == "blend")


def methods() -> dict[tuple[str, str], Fit]:
    """Every method by package and name; ``auto`` and ``blend`` are of one selection."""
    found: dict[tuple[str, str], Fit] = {("calibrant", k): fit for k, fit in ours().items()}
    found["calibrant", "auto"] = lambda fit: selection(fit).calibrator.transform
    found["calibrant", "blend"] = lambda fit: pooled(fit).calibrator.transform
    return found | peers() | {("betacal", "beta"): one_against_rest(BetaCalibrated)}


def halves(folder: Path, pattern: str) -> Iterator[tuple[str, Predictions, Predictions]]:
    """Name of each network, samples to fit to, samples to judge on; few classes first."""
    for path in sorted(folder.glob(pattern), key=lambda path: ("100" in path.stem, path.stem)):
        if not path.stem.endswith(("_val", "_shift")):
            p, _ = read_network(path)
            yield path.stem.removesuffix("_test"), *p.split(0.5, seed=0)


def parts(half: Predictions, draw: int, sizes: Sequence[int]) -> Iterator[tuple[int, Predictions]]:
    """Size and samples of each part that a method is fitted to."""
    for size in sizes:
        if (draw + 1) * size <= half.num_samples:
            yield size, half.take(np.arange(draw * size, (draw + 1) * size))


def nll_of(fit: Fit, samples: Predictions, test: Predictions) -> list[tuple[str, float]]:
    try:
        return [("nll", float(metrics.nll(fit(samples)(test))))]
    except Exception as error:  # a method that raises is a result
        print(type(error).__name__, str(error)[:90], flush=True)
        return [("failed", 1.0)]


def optimism(samples: Predictions) -> list[tuple[str, float]]:
    """The loss by which ``auto`` judges the blend, beside that of nested cross-validation."""
    nested = out_of_fold(Blend(), samples, None, 5, 0)
    return [("nll out of fold", pooled(samples).loss), ("nll nested", float(metrics.nll(nested)))]


def read() -> set[Key]:
    if not OUT.exists():
        OUT.write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    with OUT.open(encoding="utf-8", newline="") as file:
        return {
            (r["network"], int(r["num_samples"]), int(r["draw"]), r["package"], r["method"])
            for r in csv.DictReader(file)
        }


def write(key: Key, found: list[tuple[str, float]]) -> None:
    with OUT.open("a", encoding="utf-8", newline="") as file:
        rows = [(*key, metric, f"{value:.6g}") for metric, value in found]
        csv.writer(file, lineterminator="\n").writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logits", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--networks", default="*.npz")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")  # the peers'
    done, asked = read(), given.methods
    every = {m: fit for m, fit in methods().items() if not asked or m[1] in asked}
    for draw in range(given.draws):  # the first part of every network first
        for name, half, test in halves(given.logits, given.networks):
            for size, samples in parts(half, draw, given.sizes):
                for (package, method), fit in every.items():
                    key = (name, size, draw, package, method)
                    if key not in done:
                        write(key, nll_of(fit, samples, test))
                key = (name, size, draw, "calibrant", JUDGED)
                wanted = size <= NESTED and (not asked or JUDGED in asked)
                if wanted and key not in done:
                    write(key, optimism(samples))
                print(name, size, draw, flush=True)


if __name__ == "__main__":
    main()
