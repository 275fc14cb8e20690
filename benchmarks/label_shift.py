"""Class frequencies of unlabelled data: simulations with known ones, and real networks.

    python benchmarks/label_shift.py simulate [CASE]  # into evidence/label_shift_simulations.csv
    python benchmarks/label_shift.py networks FOLDER  # into evidence/label_shift_networks.csv
    python benchmarks/label_shift.py natural FOLDER   # into evidence/label_shift_natural.csv
    python benchmarks/label_shift.py assumption FOLDER # into evidence/label_shift_assumption.csv
    python benchmarks/label_shift.py tables           # the tables of docs/shift.md

*simulate*: the score of the true class is raised by d, logits are twice the log-likelihood ratios
plus an offset per class: bias-corrected temperature scaling can be exact. "heavy tails" draws the
scores from Student's t with 5 degrees of freedom, where it cannot. "clusters of 5" share their
class and half of the noise.

*networks*: half of each test set is the validation set; the other half is thinned to a long tail
(ten to one, classes in random order), and halved into the target and samples to judge on. "refit"
is bias-corrected temperature scaling fitted to the labels of the target.

*natural*: the validation set is the test set, the target half of a set of photographs from another
source, in seven of the ten classes: samples look different, and class frequencies differ too.

*assumption*: how often the test of the assumption is wrong in simulations where only frequencies
moved, and what it says of those photographs.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from calibrant import Predictions, Scores, label_shift, metrics
from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.inference import Resampling
from calibrant.inference._shift_estimators import permutation_test, sides_of
from common import DOCS, ROOT, fill, markdown

SIMULATIONS = ROOT / "evidence" / "label_shift_simulations.csv"
NETWORKS = ROOT / "evidence" / "label_shift_networks.csv"
NATURAL = ROOT / "evidence" / "label_shift_natural.csv"
ASSUMPTION = ROOT / "evidence" / "label_shift_assumption.csv"
PAGE = DOCS / "shift.md"
# Data sets per line whose intervals, and whose tests, are counted.
DRAWS, REPLICATES = 100, 100
TEST_DRAWS, PERMUTATIONS = 1000, 99
SEEDS = 5
CASES = {  # classes, validation samples, target samples, distance of the classes, kind
    "K = 2": (2, 500, 500, 2.0, ""),
    "K = 2, few": (2, 100, 100, 2.0, ""),
    "K = 5": (5, 500, 500, 2.5, ""),
    "K = 10": (10, 500, 500, 3.0, ""),
    "K = 5, clusters of 5": (5, 500, 500, 2.5, "clusters"),
    "K = 5, heavy tails": (5, 500, 500, 2.5, "tails"),
}
METHODS = {
    "none": "as trained",
    "validation": "calibrated on the validation set",
    "em": "`label_shift`, EM",
    "bbse": "`label_shift`, BBSE",
    "refit": "refitted with labels",
}
# How far above a refit with labels the NLL may lie.
WITHIN = 0.02


def population(
    rng: np.random.Generator, prior: np.ndarray, size: int, distance: float, kind: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Logits, labels and clusters of samples whose classes have this prior."""
    k, of = len(prior), 5 if kind == "clusters" else 1
    labels = np.repeat(rng.choice(k, size // of, p=prior), of)
    noise = rng.standard_t(5, (size, k)) if kind == "tails" else rng.normal(size=(size, k))
    if kind == "clusters":
        shared = np.repeat(rng.normal(size=(size // of, k)), of, axis=0)
        noise = np.sqrt(0.5) * (noise + shared)
    noise[np.arange(size), labels] += distance
    clusters = np.repeat(np.arange(size // of), of) if kind == "clusters" else None
    return 2 * distance * noise + np.linspace(0, 1, k), labels, clusters


def priors(k: int) -> dict[str, np.ndarray]:
    """Equal frequencies (nothing moved), a tail of ten to one, and a class that is gone."""
    tail = np.geomspace(1, 0.1, k)
    gone = np.r_[np.ones(k - 1), 0.0]
    return {"same": np.full(k, 1 / k), "tail": tail / tail.sum(), "gone": gone / gone.sum()}


def sets(
    case: str, prior: np.ndarray, seed: tuple[int, ...]
) -> tuple[Predictions, Scores, np.ndarray | None]:
    """Validation samples with equal class frequencies, a target with others, and its clusters."""
    (k, size, target, *how), rng = CASES[case], np.random.default_rng(seed)
    z, labels, own = population(rng, priors(k)["same"], size, *how)
    u, _, theirs = population(rng, prior, target, *how)
    return Predictions(logits=z, labels=labels, clusters=own), Scores(logits=u), theirs


def simulate(cases: list[str]) -> None:
    """Coverage of the intervals and alarms of the test; lines that the file has are kept."""
    names = ("case", "prior", "method")
    done = {tuple(row[name] for name in names) for row in read(SIMULATIONS)}
    for case in cases or CASES:
        k, *sizes, _, _ = CASES[case]
        for moved, prior in priors(k).items():
            methods = [m for m in ("em", "bbse") if (case, moved, m) not in done]
            if not methods:
                continue
            alarms = np.mean([alarm(*sets(case, prior, (d,))) for d in range(TEST_DRAWS)])
            for method in methods:
                inside, errors = [], []
                for draw in range(DRAWS):
                    p, target, clusters = sets(case, prior, (2026, draw))
                    how = {"method": method, "replicates": REPLICATES, "seed": draw}
                    found = label_shift(p, target, clusters=clusters, **how)
                    inside.append((found.low <= prior + 1e-12) & (prior <= found.high + 1e-12))
                    errors.append(np.abs(found.prior - prior).mean())
                row = {"case": case, "validation": sizes[0], "target": sizes[1], "prior": moved}
                row |= {"method": method, "draws": DRAWS}
                row |= {"coverage": f"{100 * np.mean(inside):.1f}"}
                row |= {"least coverage": f"{100 * np.mean(inside, axis=0).min():.1f}"}
                row |= {"error": f"{100 * np.mean(errors):.2f}"}
                row |= {"test draws": TEST_DRAWS, "alarms": f"{100 * alarms:.1f}"}
                print(row, flush=True)
                append(SIMULATIONS, row)


def alarm(p: Predictions, target: Scores, clusters: np.ndarray | None) -> bool:
    """Whether the test sees a shift at the 5 % level."""
    resampling = Resampling(replicates=PERMUTATIONS)
    return permutation_test(p, target, sides_of(p, target, clusters), resampling)[1] <= 0.05


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def append(path: Path, row: dict[str, object]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def thinned(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Samples with a long tail of class frequencies, in random order."""
    k = int(labels.max()) + 1
    keep = np.geomspace(1, 0.1, k)[rng.permutation(k)]
    rows = [rng.permutation(np.flatnonzero(labels == c)) for c in range(k)]
    chosen = [rows[c][: round(keep[c] * len(rows[c]))] for c in range(k)]
    return rng.permutation(np.concatenate(chosen))


def judged(p: Predictions, seed: int) -> Iterator[tuple[str, float]]:
    """NLL of every method on samples of the target."""
    rng = np.random.default_rng(seed)
    validation, pool = p.split(0.5, seed=seed)
    tail = pool.take(thinned(pool.labels, rng))
    yield from compared(validation, *tail.split(0.5, seed=seed))


def compared(
    validation: Predictions, target: Predictions, test: Predictions
) -> Iterator[tuple[str, float]]:
    """NLL of every method on ``test``, which is like the target."""
    unlabelled = Scores(logits=target.logits)
    made = {
        method: label_shift(validation, unlabelled, method=method, replicates=20).calibrator
        for method in ("em", "bbse")
    }
    made["validation"] = BiasCorrectedTemperature().fit(validation)
    made["refit"] = BiasCorrectedTemperature().fit(target)
    yield "none", metrics.nll(test)
    for name, calibrator in made.items():
        yield name, metrics.nll(calibrator.transform(test))


def read_network(path: Path) -> Predictions:
    with np.load(path) as data:
        return Predictions(logits=data["logits"].astype(np.float32), labels=data["labels"])


def natural(folder: Path) -> None:
    """Networks that were also run on photographs from another source."""
    rows = []
    for path in sorted(folder.glob("cifar10_*_shift.npz")):
        shifted = read_network(path)
        validation = read_network(path.with_name(path.name.replace("_shift", "_test")))
        found: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            for name, value in compared(validation, *shifted.split(0.5, seed=seed)):
                found.setdefault(name, []).append(value)
        name = path.stem.removesuffix("_shift")
        row = {"network": name, "classes": shifted.num_classes, "seeds": SEEDS}
        rows.append(row | {method: f"{np.mean(found[method]):.4f}" for method in METHODS})
        print(rows[-1], flush=True)
    write(NATURAL, rows)


def networks(folder: Path) -> None:
    """Every network of CIFAR-10 and CIFAR-100 with logits of the whole test set."""
    rows = []
    for path in sorted(folder.glob("cifar10*_*.npz")):
        if path.stem.endswith(("_shift", "_val", "_probs")):
            continue
        p = read_network(path)
        found: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            for name, value in judged(p, seed):
                found.setdefault(name, []).append(value)
        gap = np.array(found["em"]) / np.array(found["refit"]) - 1
        rows.append(
            {
                "network": path.stem,
                "classes": p.num_classes,
                "seeds": SEEDS,
                **{name: f"{np.mean(found[name]):.4f}" for name in METHODS},
                "em over refit": f"{gap.mean():.4f}",
            }
        )
        print(rows[-1], flush=True)
    write(NETWORKS, rows)


def assumption(folder: Path) -> None:
    """The test of the assumption, where it does not hold and where it does; lines are kept."""
    done = {(row["data"], row["prior"]) for row in read(ASSUMPTION)}
    for path in sorted(folder.glob("cifar10_*_shift.npz")):
        if (path.stem, "natural") not in done:
            validation = read_network(path.with_name(path.name.replace("_shift", "_test")))
            target = Scores(logits=read_network(path).logits)
            found = label_shift(validation, target, replicates=REPLICATES)
            alarms = int(found.assumption_p_value <= 0.05)
            row = {"data": path.stem, "prior": "natural", "draws": 1, "alarms": alarms}
            append(ASSUMPTION, row)
    for case in ("K = 5", "K = 5, clusters of 5"):
        for moved, prior in priors(CASES[case][0]).items():
            if (case, moved) in done:
                continue
            alarms = 0
            for draw in range(DRAWS):
                p, target, clusters = sets(case, prior, (3, draw))
                found = label_shift(p, target, clusters=clusters, replicates=REPLICATES)
                alarms += int(found.assumption_p_value <= 0.05)
            append(ASSUMPTION, {"data": case, "prior": moved, "draws": DRAWS, "alarms": alarms})


def assumption_words() -> str:
    rows = read(ASSUMPTION)
    held = [row for row in rows if row["prior"] != "natural"]
    broken = [row for row in rows if row["prior"] == "natural"]
    false, draws = (sum(int(row[name]) for row in held) for name in ("alarms", "draws"))
    true = sum(int(row["alarms"]) for row in broken)
    return (
        f"The test of the assumption rejects it at the 5 % level on {true} of these {len(broken)} "
        f"networks, and in {100 * false / draws:.1f} % of {draws:,} simulated data sets in which "
        "only class frequencies moved."
    )


def networks_table() -> str:
    rows = read(NETWORKS)
    head = ["network", *METHODS.values(), "EM vs. refit"]
    lines = [
        [
            f"`{row['network']}`",
            *(f"{float(row[name]):.3f}" for name in METHODS),
            f"{100 * float(row['em over refit']):+.1f} %",
        ]
        for row in rows
    ]
    gaps = np.array([float(row["em over refit"]) for row in rows])
    gains = np.array([float(row["em"]) / float(row["validation"]) - 1 for row in rows])
    words = (
        f"EM lies within {100 * WITHIN:g} % of the refit, or below it, on "
        f"{(gaps <= WITHIN).sum()} of {len(gaps)} networks ({100 * gaps.min():+.1f} to "
        f"{100 * gaps.max():+.1f} %). Against calibration on the validation set alone its NLL "
        f"changes by {100 * gains.max():+.1f} to {100 * gains.min():+.1f} %."
    )
    return f"{markdown(head, lines)}\n\n{words}"


def natural_table() -> str:
    rows = read(NATURAL)
    lines = [[f"`{r['network']}`", *(f"{float(r[m]):.3f}" for m in METHODS)] for r in rows]
    gaps = [float(row["em"]) / float(row["refit"]) - 1 for row in rows]
    worse = sum(float(row["em"]) > float(row["validation"]) for row in rows)
    words = (
        f"EM stays {100 * min(gaps):.0f} to {100 * max(gaps):.0f} % above the refit with labels, "
        f"and is worse than no correction on {worse} of {len(rows)} networks."
    )
    table = markdown(["network", *METHODS.values()], lines)
    return f"{table}\n\n{words} {assumption_words()}"


def simulations_table() -> str:
    shown = {"same": "nothing moved", "tail": "a tail, ten to one", "gone": "a class is gone"}
    head = ["population", "frequencies", "coverage, EM / BBSE", "alarms of the test", "mean error"]
    lines, rows = [], read(SIMULATIONS)
    for case in CASES:
        for prior, words in shown.items():
            em, bbse = (
                next(
                    row
                    for row in rows
                    if (row["case"], row["prior"], row["method"]) == (case, prior, method)
                )
                for method in ("em", "bbse")
            )
            size = f"{case}, {int(em['validation']):,} + {int(em['target']):,}"
            lines.append(
                [
                    size,
                    words,
                    f"{em['coverage']} / {bbse['coverage']}",
                    em["alarms"],
                    f"{em['error']} / {bbse['error']}",
                ]
            )
    first = rows[0]
    return (
        f"{markdown(head, lines)}\n\nIn per cent; {int(first['draws']):,} data sets per line and "
        f"method for coverage and error, {int(first['test draws']):,} for the test. The error is "
        "the mean absolute error of a class frequency, in points."
    )


def blocks() -> dict[str, str]:
    """The text of every marked part of the page."""
    return {
        "networks": networks_table(),
        "natural": natural_table(),
        "simulations": simulations_table(),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["simulate", *cases]:
            simulate(cases)
        case ["networks", folder]:
            networks(Path(folder))
        case ["natural", folder]:
            natural(Path(folder))
        case ["assumption", folder]:
            assumption(Path(folder))
        case ["tables"]:
            for name, text in blocks().items():
                fill(PAGE, name, text)
        case _:
            raise SystemExit(__doc__)
