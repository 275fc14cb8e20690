"""The pair that ``calibrant select`` chooses against what each paper recommends.

    python benchmarks/headline.py STUDY.toml … --out RESULTS_DIR    # writes evidence/selected.csv

Each study must be finished for some seeds. ``select`` sees the validation samples of the first
``CHOSEN_ON`` seeds only. Chosen and recommended pairs are then compared on the test samples of all
other seeds, from the values in evidence/.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import replace

from calibrant.papers._collected import file_of
from calibrant.study import Study, select
from common import ROOT, markdown
from evidence import NAMES, Values
from findings import differ, values_of

OUT = ROOT / "evidence" / "selected.csv"
COLUMNS = ("data", "objective", "calibrator")
CHOSEN_ON = 2
USED = ("none", "TS", "HB", "SVS")  # calibrators that ``select`` may choose
#: What each paper recommends: loss and calibrator.
RECOMMENDED = {
    "wang2021": ("inverse_focal", "TS-ECE"),
    "singh2021": ("cross_entropy", "TS"),
    "mukhoti2020": ("focal", "TS-ECE"),
    "karandikar2021": ("focal + soft_avuc", "TS-SB-ECE"),
    "loss_report": ("focal", "none"),
}


def choose(paths: list[str], out: str) -> None:
    """Write the choice for each data set; those for other data sets are kept."""
    rows = []
    for study in by_data([Study.load(path) for path in paths]):
        for choice in select(study, out):
            rows.append((choice.best.data, choice.best.objective, choice.best.calibrator))
            print(choice)
    again = {data for data, *_ in rows}
    kept = [tuple(row.values()) for row in chosen() if row["data"] not in again]
    with OUT.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *kept, *rows])


def by_data(studies: list[Study]) -> list[Study]:
    """One study per data set, of all losses and of the calibrators to choose from."""
    found: dict[str, Study] = {}
    for study in studies:
        data = study.runs[0].data
        runs = [*(found[data].runs if data in found else ()), *study.runs]
        kept = {run.key: run for run in runs if run.seed < CHOSEN_ON}
        calibrators = {k: v for k, v in study.evaluation.calibrators.items() if k in USED}
        if data in found:
            calibrators = {**found[data].evaluation.calibrators, **calibrators}
        evaluation = replace(study.evaluation, calibrators=calibrators)
        found[data] = replace(study, runs=tuple(kept.values()), evaluation=evaluation)
    return list(found.values())


def chosen() -> list[dict[str, str]]:
    """The choices written before."""
    if not OUT.exists():
        return []
    with OUT.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def held_out(v: Values, loss: str, calibrator: str, metric: str) -> dict[object, float]:
    """Values on the test samples of the seeds that were not chosen on."""
    found = v.by_seed.get((loss, calibrator, "test", metric), {})
    return {seed: value for seed, value in found.items() if seed >= CHOSEN_ON}


def table() -> str:
    """NLL and ECE of the chosen pair minus those of each recommendation."""
    rows = []
    for row in chosen():
        data = file_of(row["data"]).removesuffix(".parquet")
        v, mine = values_of(data), (row["objective"], row["calibrator"])
        for paper, theirs in RECOMMENDED.items():
            if not held_out(v, *theirs, "nll"):
                continue
            nll = differ(held_out(v, *mine, "nll"), held_out(v, *theirs, "nll"))
            ece = differ(held_out(v, *mine, "ece"), held_out(v, *theirs, "ece"), 100)
            rows.append(
                [
                    NAMES[data],
                    ", ".join(mine),
                    f"{paper}: {', '.join(theirs)}",
                    str(nll.count),
                    f"{nll.shown(3)}, {nll.word}",
                    f"{ece.shown(1)}, {ece.word}",
                ]
            )
    head = [
        "data",
        "chosen",
        "recommended",
        "seeds",
        "NLL, chosen minus recommended",
        "ECE, points",
    ]
    return markdown(head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    choose(arguments.studies, arguments.out)
