"""Our own evidence: finished studies into evidence/, and the tables of docs/which.md from there.

    python benchmarks/evidence.py collect RESULTS_DIR   # what `calibrant study run --out` wrote
    python benchmarks/evidence.py add RESULTS_DIR       # the same, keeping the runs that are there
    python benchmarks/evidence.py tables

The tables need nothing but the files in evidence/, so anyone can make them again.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property, lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from calibrant.metrics import METRICS
from calibrant.papers import collect
from calibrant.papers._collected import texts_of
from calibrant.results import compare_runs, summarise_runs
from common import DOCS, ROOT, fill, markdown

FOLDER = ROOT / "evidence"
PAGE = DOCS / "which.md"
NAMES = {
    "features-cifar10": "CIFAR-10, head on features",
    "features-cifar100": "CIFAR-100, head on features",
    "features-news20": "20 Newsgroups, head on word vectors",
    "features-sst2": "SST-2, head on word vectors",
    "cifar10-speednet": "CIFAR-10, speednet",
    "cifar10": "CIFAR-10, ResNet-8",
    "cifar100": "CIFAR-100, speednet",
    "news20": "20 Newsgroups, 1D-CNN",
    "sst2": "SST-2, Tree-LSTM",
}
# Where the file of a data set has the runs of several networks: the file and the network.
NETWORKS = {
    "cifar10-speednet": ("cifar10", "speednet"),
    "cifar10": ("cifar10", "resnet8"),
}
LOSSES = (
    "cross_entropy",
    "label_smoothing",
    "cross_entropy + logit_norm",
    "cross_entropy + negative_entropy",
    "focal",
    "inverse_focal",
    "brier",
    "mixup",
    "cross_entropy + mmce",
    "cross_entropy + avuc",
    "cross_entropy + avuc_gs",
    "cross_entropy + soft_avuc",
    "cross_entropy + soft_binned_ece",
    "focal + mmce",
    "focal + avuc",
    "focal + avuc_gs",
    "focal + soft_avuc",
    "focal + soft_binned_ece",
    "squared_error",
    "squared_error + mmce",
    "squared_error + avuc",
    "squared_error + avuc_gs",
    "squared_error + soft_avuc",
    "squared_error + soft_binned_ece",
)
CALIBRATORS = ("none", "TS", "TS-ECE", "TS-SB-ECE", "HB", "SVS")
NATURAL, KINDS = "tiny_cifar7_shift.npz", ("gaussian_noise", "contrast")


# --- values of the studies --------------------------------------------------------------------

Place = tuple[str, str, str, str]  # objective, calibrator, part, metric


class Values:
    """The values of a data set by place and seed."""

    def __init__(self, data: str) -> None:
        self.by_seed: dict[Place, dict[int, float]] = defaultdict(dict)
        file, network = NETWORKS.get(data, (data, None))
        only = [("model", "==", network)] if network else None
        table: pa.Table = pq.read_table(FOLDER / f"{file}.parquet", filters=only)
        names = ("objective", "calibrator", "part", "metric")
        places = zip(*(texts_of(table[name]) for name in names), strict=True)
        numbers = (table[name].to_numpy().tolist() for name in ("seed", "value"))
        for place, seed, value in zip(places, *numbers, strict=True):
            self.by_seed[place][seed] = value
        found = {objective for objective, *_ in self.by_seed}
        self.losses = [loss for loss in LOSSES if loss in found]

    def over(self, loss: str, method: str, parts: Sequence[str], metric: str) -> list[float]:
        """One value per seed, the mean over parts."""
        columns = [self.by_seed.get((loss, method, part, metric), {}) for part in parts]
        seeds = sorted(set.intersection(*map(set, columns)))
        return [sum(column[seed] for column in columns) / len(columns) for seed in seeds]

    def seeds(self, loss: str) -> str:
        """How many seeds a loss was trained with."""
        return str(len(self.over(loss, "none", ["test"], "nll")))

    @cached_property
    def shared(self) -> list[int]:
        """The seeds that every loss was trained with."""
        plain = [set(self.by_seed[loss, "none", "test", "nll"]) for loss in self.losses]
        return sorted(set.intersection(*plain))

    def of_shared(self, loss: str, method: str, metric: str) -> list[float]:
        """Values on the test samples for these seeds; empty where one is missing."""
        found = self.by_seed.get((loss, method, "test", metric), {})
        there = all(seed in found for seed in self.shared)
        return [found[seed] for seed in self.shared] if there else []

    def shown(self, loss: str, method: str, metric: str, parts: Sequence[str] = ("test",)) -> str:
        """Mean and half the 95 % interval over seeds, in per cent where the metric is."""
        if metric == "temperature":
            parts = ("calibration",)
        values = self.over(loss, method, parts, metric)
        return spread(values, percent=metric in METRICS and METRICS[metric].percent)


values_of = lru_cache(Values)


def spread(values: list[float], *, percent: bool) -> str:
    if not values:
        return "–"
    scale, digits = (100, 1) if percent else (1, 3)
    found = summarise_runs([scale * value for value in values])
    half = "" if math.isnan(found.high) else f"\u00a0±\u00a0{found.high - found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f}{half}"


# --- the tables -------------------------------------------------------------------------------


def seeds() -> str:
    """How often each data set was trained on."""
    counts = {}
    for data, name in NAMES.items():
        values = values_of(data)
        some = sorted({int(values.seeds(loss)) for loss in values.losses})
        counts[name] = f"{some[0]}" if len(some) == 1 else f"{some[0]} to {some[-1]}"
    told = "; ".join(f"{name} {count}" for name, count in counts.items())
    return f"Seeds per loss: {told}."


def losses(data: str) -> str:
    """What each loss gives on clean test samples, before and after calibration."""
    v = values_of(data)
    columns = [
        ("accuracy %", "none", "accuracy"),
        ("AUROC %", "none", "auroc"),
        ("T", "TS", "temperature"),
        ("ECE %", "none", "ece"),
        ("ECE % TS", "TS", "ece"),
        ("NLL", "none", "nll"),
        ("NLL TS", "TS", "nll"),
        ("NLL SVS", "SVS", "nll"),
    ]
    head = ["loss", "seeds", *(name for name, _, _ in columns)]
    rows = (
        [loss, v.seeds(loss), *(v.shown(loss, method, metric) for _, method, metric in columns)]
        for loss in v.losses
    )
    return markdown(head, rows)


def shifts() -> str:
    """ECE of each loss where the test samples have changed."""
    v = values_of("cifar10")
    strong = {level: [f"generated/{kind}/{level}" for kind in KINDS] for level in (1, 3, 5)}
    places = [("natural", [NATURAL]), *((f"corrupted {level}", strong[level]) for level in strong)]
    columns = [
        (f"{name}{' TS' if method == 'TS' else ''}", method, parts)
        for name, parts in places
        for method in ("none", "TS")
    ]
    head = ["loss", "seeds", *(name for name, _, _ in columns)]
    return markdown(
        head,
        (
            [
                loss,
                v.seeds(loss),
                *(v.shown(loss, method, "ece", parts) for _, method, parts in columns),
            ]
            for loss in v.losses
        ),
    )


def calibrators() -> str:
    """Each calibrator on average over all losses."""
    v = values_of("cifar10")
    corrupted = [f"generated/{kind}/{level}" for kind in KINDS for level in range(1, 6)]
    parts = {"test": ["test"], "natural": [NATURAL], "corrupted": corrupted}
    head = ["calibrator"]
    for name in parts:
        head += [f"ECE %, {name}", f"NLL, {name}"]
    rows = []
    for method in CALIBRATORS:
        row = [method]
        for some in parts.values():
            for metric, percent in (("ece", True), ("nll", False)):
                found = [v.over(loss, method, some, metric) for loss in v.losses]
                whole = [value for values in found for value in values]
                mean = sum(whole) / len(whole)
                row.append(f"{100 * mean:.1f}" if percent else f"{mean:.3f}")
        rows.append(row)
    return markdown(head, rows)


def pairs() -> str:
    """The best loss and calibrator by NLL per data set, against cross-entropy."""
    rows = []
    for data, name in NAMES.items():
        v = values_of(data)
        means = {
            (loss, method): summarise_runs(values).mean
            for loss in v.losses
            for method in CALIBRATORS
            if (values := v.of_shared(loss, method, "nll"))
        }
        best, _ = min(means.items(), key=lambda item: item[1])
        nll = v.of_shared(*best, "nll")
        row = [name, f"{len(v.shared)}", ", ".join(best), spread(nll, percent=False)]
        for other in ("none", "TS"):
            plain = v.of_shared("cross_entropy", other, "nll")
            found = compare_runs(nll, plain, paired=True)
            sure = "" if math.isnan(found.low) else f" ({found.low:+.3f} to {found.high:+.3f})"
            row.append(f"{found.difference:+.3f}{sure}")
        accuracies = (v.of_shared(*pair, "accuracy") for pair in (best, ("cross_entropy", "none")))
        row.append(" / ".join(spread(values, percent=True) for values in accuracies))
        rows.append(row)
    head = [
        "data",
        "seeds",
        "best combination",
        "its NLL",
        "minus cross-entropy alone",
        "minus cross-entropy, TS",
        "accuracy %, its / cross-entropy",
    ]
    return markdown(head, rows)


def pretrained(part: str, *, top_only: bool) -> str:
    """Methods on predictions of pretrained networks: means over the networks, rank by NLL."""
    found = judged_networks(part, top_only=top_only)
    names = sorted(found["none", "calibrant"]["nll"])
    shown = ["nll", "ece", "debiased_ece", "brier", "auroc", *([] if top_only else ["accuracy"])]
    rank = ranks({m: v["nll"] for m, v in found.items() if m[1] == "calibrant"}, names)
    heads = [f"{METRICS[name].label}{' %' if METRICS[name].percent else ''}" for name in shown]
    lines = []
    for method, values in sorted(found.items(), key=lambda item: order(*item)):
        cells = [number(mean(values[name]), percent=METRICS[name].percent) for name in shown]
        place = f"{rank[method]:.1f}" if method in rank else ""
        failed = str(len(values["failed"]) or "")
        lines.append([*method, *cells, place, failed])
    head = ["method", "package", *heads, "rank by NLL", "failed"]
    return f"{len(names)} networks.\n\n{markdown(head, lines)}"


Method = tuple[str, str]  # its name and its package
ByNetwork = dict[str, float]


def judged_networks(part: str, *, top_only: bool) -> dict[Method, dict[str, ByNetwork]]:
    """Values by method, metric and network, of the networks that have the part."""
    with (FOLDER / "pretrained.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if row["network"].startswith("imagenet") == top_only
        ]
    judged = {row["network"] for row in rows if row["part"] == part and row["metric"] == "nll"}
    found: dict[Method, dict[str, ByNetwork]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        failed = row["metric"] == "failed"  # the fit, whatever it would be judged on
        if row["network"] in judged and (row["part"] == part or failed):
            by_network = found[row["method"], row["package"]][row["metric"]]
            by_network[row["network"]] = float(row["value"])
    return found


def ranks(nll: dict[Method, ByNetwork], names: list[str]) -> dict[Method, float]:
    """Mean rank of each method, 1 for the lowest NLL; a method that failed comes last."""
    total = dict.fromkeys(nll, 0)
    for name in names:
        for rank, method in enumerate(sorted(nll, key=lambda m: nll[m].get(name, math.inf)), 1):
            total[method] += rank
    return {method: count / len(names) for method, count in total.items()}


def order(method: Method, values: dict[str, ByNetwork]) -> tuple[bool, float]:
    """Ours first, each by mean NLL."""
    return method[1] != "calibrant", mean(values["nll"])


def mean(values: ByNetwork) -> float:
    return sum(values.values()) / len(values) if values else math.nan


def number(value: float, *, percent: bool) -> str:
    return f"{100 * value:.2f}" if percent else f"{value:.4f}"


def blocks() -> dict[str, str]:
    """The text of every marked part of docs/which.md: tables, and sentences made from them."""
    import findings
    import human
    import learning_tables

    return {
        **{data: losses(data) for data in NAMES},
        "seeds": seeds(),
        "pairs": pairs(),
        "shifts": shifts(),
        "calibrators": calibrators(),
        "human": human.table(),
        "pretrained": pretrained("test", top_only=False),
        "pretrained-shift": pretrained("shift", top_only=False),
        "imagenet": pretrained("test", top_only=True),
        **learning_tables.blocks(),
        **findings.blocks(),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect" | "add" as how, out]:
            for name, rows in collect(out, FOLDER, add=how == "add").items():
                print(f"{name}: {rows:,} rows")
        case ["tables"]:
            for name, text in blocks().items():
                fill(PAGE, name, text)
        case _:
            raise SystemExit(__doc__)
