"""How confidence compares with what people say of the same images (CIFAR-10H).

    python benchmarks/human.py RESULTS_DIR       # writes evidence/human.csv

RESULTS_DIR has finished runs of recipes/features/cifar10.toml with their predictions. About 51
people labelled each test image. Per run, before and after temperature scaling:

- ``nll_people``: cross-entropy of the predicted probabilities to the shares of people, in nats. No
  prediction is below ``entropy_people``, the mean entropy of these shares.
- ``gap_clear``, ``gap_contested``: mean confidence minus the mean share of people who choose the
  predicted class, on images on which at least 95 % of the people agree, and on all others.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from calibrant import Predictions
from calibrant.calibrators import TemperatureScaling
from calibrant.data import load, load_cifar10h
from calibrant.data._splits import stratified_order
from calibrant.papers import Results, paper_at
from common import ROOT, markdown

OUT = ROOT / "evidence" / "human.csv"
COLUMNS = ("loss", "seed", "calibrator", "metric", "value")
PLACE, SEEDS, CLEAR = "features/cifar10/cifar10.npz", 10, 0.95

Shares = NDArray[np.float64]


def compared(p: Predictions, people: Shares) -> dict[str, float]:
    """What the docstring of this module describes, of one run."""
    agree = people[np.arange(len(people)), p.predicted]
    clear = people.max(axis=1) >= CLEAR
    gap = p.confidence - agree
    logs = np.where(people > 0, np.log(np.where(people > 0, people, 1.0)), 0.0)
    return {
        "nll_people": float(-(people * p.log_probs).sum(axis=1).mean()),
        "entropy_people": float(-(people * logs).sum(axis=1).mean()),
        "share_clear": float(clear.mean()),
        "gap_clear": float(gap[clear].mean()),
        "gap_contested": float(gap[~clear].mean()),
    }


def people_of(count: int) -> tuple[Shares, NDArray[np.int64]]:
    """Shares and labels of the test images that the features were extracted from."""
    labels = load("cifar10").y_test
    chosen = np.sort(stratified_order(labels)[:count])
    return load_cifar10h()[chosen], labels[chosen]


def measured(out: str) -> Iterator[tuple[object, ...]]:
    """The rows of the file: the first seeds that kept their predictions, of every loss."""
    results = Results(paper_at("wang2021", "features"), out)
    found: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for run in results.runs():
        seeds = {row[1] for row in found[run.name]}
        if run.data != PLACE or len(seeds) == SEEDS:
            continue
        test, held = results.predictions(run), results.predictions(run, "calibration")
        people, labels = people_of(test.num_samples)
        assert (labels == test.labels).all()
        for name, p in (("none", test), ("TS", TemperatureScaling().fit(held).transform(test))):
            for metric, value in compared(p, people).items():
                found[run.name].append((run.name, run.seed, name, metric, value))
    for rows in found.values():
        yield from rows


def values() -> dict[tuple[str, str, str], list[float]]:
    """Values by loss, calibrator and metric, one per seed."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with OUT.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["loss"], row["calibrator"], row["metric"]].append(float(row["value"]))
    return found


def table() -> str:
    """One row per loss, before and after scaling, and the sentence that explains it."""
    from evidence import spread

    found = values()
    rows = []
    for loss, calibrator in dict.fromkeys(key[:2] for key in found):
        cells = [found[loss, calibrator, m] for m in ("nll_people", "gap_clear", "gap_contested")]
        shown = [spread(cell, percent=i > 0) for i, cell in enumerate(cells)]
        rows.append([loss, str(len(cells[0])), calibrator, *shown])
    head = ["loss", "seeds", "calibrator", "NLL of people's labels", "clear", "contested"]
    least, clear = (found["cross_entropy", "none", m][0] for m in ("entropy_people", "share_clear"))
    words = (
        f"On {100 * clear:.0f} % of the test images at least {100 * CLEAR:.0f} % of the people "
        f"agree (clear); the others are contested. The last two columns are mean confidence minus "
        f"the mean share of people who choose the predicted class, in points. The mean entropy of "
        f"people's labels is {least:.3f} nats; no NLL of them can be lower."
    )
    return f"{words}\n\n{markdown(head, rows)}"


if __name__ == "__main__":
    made = list(measured(sys.argv[1]))
    with OUT.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *made])
