"""What tuning chose for the pairs of karandikar2021, and what that changed.

    calibrant study tune src/calibrant/papers/recipes/features/cifar10-tuning.toml --out TUNED_DIR
    python benchmarks/tuning.py collect cifar10 TUNED_DIR

The trials go into evidence/tuning.csv, the chosen coefficients into the study file
cifar10-tuned.toml, whose runs are collected like all others. The tables of the page come from
evidence/ alone.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from calibrant.papers import Place, Results, paper_at, results_of
from calibrant.papers._scales import RECIPE_FOLDER
from calibrant.results import compare_runs
from calibrant.study import Local, Study, Tuned, tune
from calibrant.study._tune import WEIGHT_DECAY
from common import ROOT, markdown

FOLDER = ROOT / "evidence"
TRIALS = FOLDER / "tuning.csv"
HEAD = ("data", "pair", "coefficient", "value", "ece", "accuracy", "chosen")
RECIPES = RECIPE_FOLDER / "features"
PAPER = "karandikar2021"
COLUMNS = (
    ("accuracy %", "accuracy", "none"),
    ("ECE %", "ece", "none"),
    ("ECE % after TS", "ece", "temperature"),
    ("ECE % after TS-SB-ECE", "ece", "temperature_soft_ece"),
)
#: The Greek letters of the paper.
SYMBOLS = {"kappa": "κ", "T": "T", "beta": "β", WEIGHT_DECAY: "λ"}
#: The data sets that were tuned on, as the page names them.
TUNED_DATA = {"cifar10": "Features of CIFAR-10", "cifar100": "Features of CIFAR-100"}
#: Seeds of the tuned runs.
SEEDS = {"cifar10": 60, "cifar100": 60}
STUDY = """\
# karandikar2021, table 2, with the coefficients that {data}-tuning.toml chose on the calibration
# samples of other seeds. Written by benchmarks/tuning.py.
extends = "{data}-pairs.toml"
seeds = {seeds}
telemetry = false
metrics = [
  "accuracy", "nll", "ece", "mean_confidence",
  {{ name = "ece", norm = 2, binning = "mass", label = "ece_l2_mass" }},
]
calibrators = [
  "none",
  {{ name = "temperature", label = "TS" }},
  {{ name = "temperature", objective = "soft_ece", label = "TS-SB-ECE" }},
]
objectives = [
{lines}
]
"""


# --- from the runs ----------------------------------------------------------------------------


def collect(data: str, out: Path) -> None:
    """Write the trials of a data set, beside those of others, and its tuned study file."""
    study = Study.load(RECIPES / f"{data}-tuning.toml")
    pairs = names(data)
    found = [
        tune(study, out, executor=Local(workers=1, threads=1), table=table)
        for table in range(len(study.tunings))
    ]
    rows = [row for row in read() if row["data"] != data]
    for pair, tuned in zip(pairs, found, strict=True):
        rows += [
            {
                "data": data,
                "pair": pair,
                "coefficient": trial.coefficient,
                "value": trial.value,
                "ece": f"{trial.ece:.6f}",
                "accuracy": f"{trial.accuracy:.6f}",
                "chosen": int(trial.chosen),
            }
            for trial in tuned.trials
        ]
    with TRIALS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    lines = "\n".join(map(_line, pairs, found))
    path = RECIPES / f"{data}-tuned.toml"
    text = STUDY.format(data=data, seeds=SEEDS[data], lines=lines)
    path.write_text(text, encoding="utf-8")


def names(data: str) -> list[str]:
    """The pairs in the order of the tables of coefficients: that of the untuned study."""
    return list(dict.fromkeys(run.name for run in Study.load(RECIPES / f"{data}-pairs.toml").runs))


def _line(pair: str, tuned: Tuned) -> str:
    decay = f"{{ {WEIGHT_DECAY} = {tuned.coefficients[WEIGHT_DECAY]} }}"
    return f'  {{ objective = "{tuned.objective}", recipe = {decay}, label = "{pair}" }},'


# --- from evidence/ ---------------------------------------------------------------------------


def read() -> list[dict[str, Any]]:
    """All trials."""
    if not TRIALS.is_file():
        return []
    with TRIALS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def chosen(data: str) -> dict[str, dict[str, str]]:
    """The values that tuning chose, by pair and coefficient."""
    found: dict[str, dict[str, str]] = {}
    for row in read():
        if row["data"] == data and row["chosen"] == "1":
            found.setdefault(row["pair"], {})[row["coefficient"]] = f"{float(row['value']):g}"
    return found


def table(data: str) -> str:
    """Every tuned pair as it was before and as it is now, with the same seeds."""
    results, place = results_of(paper_at(PAPER, "features"), FOLDER), place_of(data)
    rows = []
    for pair, values in chosen(data).items():
        told = ", ".join(f"{SYMBOLS[name]} {value}" for name, value in values.items())
        seeds = len(results.by_seed(place, pair, "accuracy", kind="tuned"))
        rows.append([f"`{pair}`", told, f"{seeds}", *_changes(results, place, pair)])
    return markdown(["loss", "tuned", "seeds", *(name for name, _, _ in COLUMNS)], rows)


def place_of(data: str) -> Place:
    return Place(f"features/{data}/{data}.npz", "mlp")


def _changes(results: Results, place: Place, pair: str) -> list[str]:
    """Each column before and after, and the interval of the difference over seeds."""
    cells = []
    for _, metric, calibrator in COLUMNS:
        old, new = (
            results.by_seed(place, pair, metric, calibrator, kind) for kind in ("main", "tuned")
        )
        seeds = sorted(old.keys() & new.keys())
        before, after = ([100 * some[seed] for seed in seeds] for some in (old, new))
        found = compare_runs(after, before, paired=True)
        means = f"{sum(before) / len(seeds):.1f} → {sum(after) / len(seeds):.1f}"
        cells.append(f"{means} ({found.low:+.1f} to {found.high:+.1f})")
    return cells


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", data, out]:
            collect(data, Path(out))
        case _:
            raise SystemExit(__doc__)
