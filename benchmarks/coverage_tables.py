"""Write the coverage tables of docs/intervals.md from what coverage_grid.py printed.

    python benchmarks/coverage_grid.py classwise … > evidence/coverage/classwise.txt
    python benchmarks/interval_coverage.py --near-certain > evidence/coverage/near_certain.txt
    python benchmarks/false_alarms.py --summary
    python benchmarks/coverage_tables.py

Each line of ``evidence/coverage/*.txt`` is one population; ``simulations`` in its header says how
many data sets were drawn for the lines below. Where two lines are about the same population, they
are counted together. ``comparison.csv`` has the false alarms and the power of comparisons.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

from scipy.special import bdtr

ROOT = Path(__file__).parents[1]
EVIDENCE, PAGE = ROOT / "evidence" / "coverage", ROOT / "docs" / "intervals.md"
MARKS = "<!-- {}: begin -->", "<!-- {}: end -->"
LINE = re.compile(r"K=(\d+) N=(\d+) (\w+) T=([\d.]+): (.*?)  \[")
VALUE = re.compile(r"([\w ]+) ([\d.]+) \(\d+/\d+\)")
CLUSTERS = re.compile(r"(coverage|false alarms): (\d+) clusters of (\d+) (\w+) rows: (.*)")
LOW, HIGH = 92.0, 98.0
# A coverage is called a miss where intervals that cover 95 % would show it less often than this.
CHANCE = 0.01
# False alarms in per cent that are allowed at a level of 5 %.
BAR = 7.0

Row = tuple[int, int, int, str, str, str, float]  # simulations, K, N, population, T, metric, value


def rows(name: str) -> list[Row]:
    """Every coverage in a file; lines about the same population are counted together."""
    pooled: dict[tuple[object, ...], tuple[int, float]] = {}
    for simulations, *place, value in _lines(name):
        drawn, mean = pooled.get(tuple(place), (0, 0.0))
        total = drawn + simulations
        pooled[tuple(place)] = total, (drawn * mean + simulations * value) / total
    return [(drawn, *place, round(mean, 1)) for place, (drawn, mean) in pooled.items()]


def _lines(name: str) -> Iterator[Row]:
    simulations = 0
    for line in (EVIDENCE / name).read_text().splitlines():
        if line.startswith("#"):
            simulations = int(re.search(r"(\d+) simulations", line)[1])
        elif match := LINE.match(line):
            for label, value in VALUE.findall(match[5]):
                place = (int(match[1]), int(match[2]), match[3], match[4])
                yield simulations, *place, label.strip(), float(value)


def shown(name: str) -> str:
    """A metric as people write it."""
    words = (
        name.replace("_", " ")
        .replace("label binned", "label-binned")
        .replace("eaurc", "E-AURC")
        .split(" ")
    )
    return " ".join(
        word.upper()
        if word in ("ece", "kde", "mce", "mmce", "skce", "nll", "auroc", "aupr", "aurc", "fpr95")
        else word
        for word in words
    )


def outliers(found: list[Row]) -> str:
    """How many coverages lie outside the bar, and the low ones by name."""
    low = [row for row in found if row[-1] < LOW]
    high = sum(row[-1] > HIGH for row in found)
    text = (
        f"Of {len(found)} coverages, {len(found) - len(low) - high} lie between {LOW:g} and "
        f"{HIGH:g} %, {high} above and {len(low)} below"
    )
    named = [
        f"{shown(metric)} K = {k:,}, N = {n:,}, {p}, T = {t}: {value:g} % of {drawn}"
        for drawn, k, n, p, t, metric, value in sorted(low, key=lambda row: row[-1])
    ]
    if not named:
        return f"{text}."
    missed = sum(bdtr(round(row[0] * row[-1] / 100), row[0], 0.95) < CHANCE for row in low)
    return (
        f"{text} ({'; '.join(named)}). At a true coverage of 95 %, values this low have a "
        f"probability below {100 * CHANCE:g} % in {missed or 'none'} of these cases."
    )


def table(found: list[Row], label: str, keys: list[tuple[object, ...]], at: slice) -> str:
    """Coverages by row key and population."""
    columns = list(dict.fromkeys((row[3], row[4]) for row in found))
    head = [label, *(f"{p} T = {t}" for p, t in columns)]
    lines = [head, ["---"] * len(head)]
    for key in keys:
        cells = {(r[3], r[4]): r[-1] for r in found if tuple(r[at]) == key}
        name = ", ".join(f"{part:,}" if isinstance(part, int) else str(part) for part in key)
        values = (f"{cells[c]:g}" if c in cells else "–" for c in columns)
        lines.append([shown(name), *values])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def drawn(found: list[Row]) -> str:
    """How many data sets there are per population, and the standard error that belongs to it."""
    least, most = min(row[0] for row in found), max(row[0] for row in found)
    errors = [f"{100 * math.sqrt(0.95 * 0.05 / count):.1f}" for count in (least, most)]
    if least == most:
        return f"{least} data sets per population, standard error {errors[0]} points at 95 %"
    return (
        f"{least} to {most} data sets per population, standard error {errors[0]} to {errors[1]} "
        "points at 95 %"
    )


def text() -> str:
    """The part of the page between the marks."""
    classwise, binned = rows("classwise.txt"), rows("binned.txt")
    many = [row for row in classwise if row[1] > 2]
    two = [row for row in classwise if row[1] == 2]
    by_size = sorted({(r[1], r[2]) for r in many}), sorted({(r[1], r[2]) for r in two})
    parts = [
        f"Classwise ECE, by number of classes and samples ({drawn(classwise)}):",
        table(many, "K, N", by_size[0], slice(1, 3)),
        table(two, "K, N", by_size[1], slice(1, 3)),
        outliers(classwise),
    ]
    for n in sorted({row[2] for row in binned}):
        chosen = [row for row in binned if row[2] == n]
        names = list(dict.fromkeys((row[5],) for row in chosen))
        parts += [
            f"Calibration errors of the top label, K = 5, N = {n:,} ({drawn(chosen)}):",
            table(chosen, "metric", names, slice(5, 6)),
        ]
    ranking = rows("ranking.txt")
    names = list(dict.fromkeys((row[5],) for row in ranking))
    parts += [
        outliers(binned),
        f"Averages and ranking metrics, K = 2, N = 200 ({drawn(ranking)}):",
        table(ranking, "metric", names, slice(5, 6)),
        outliers(ranking),
    ]
    return "\n\n".join(parts)


def streams() -> str:
    """Coverage of intervals from the state of an accumulator, alone and in clusters."""
    parts = []
    for name, title in (("stream", "Independent rows"), ("clustered", "Clustered rows")):
        found = list(rows(f"{name}.txt"))
        for k, n in dict.fromkeys((row[1], row[2]) for row in found):
            chosen = [row for row in found if (row[1], row[2]) == (k, n)]
            count = "–".join(f"{c}" for c in sorted({row[0] for row in chosen}))
            names = list(dict.fromkeys((row[5],) for row in chosen))
            parts += [
                f"{title}, K = {k}, N = {n:,}, {count} simulations per population:",
                table(chosen, "metric", names, slice(5, 6)),
            ]
        parts.append(outliers(found))
    return "\n\n".join(parts)


def compared() -> list[dict[str, str]]:
    """The rows of comparison.csv; those about the same cell are counted together."""
    together: dict[tuple[str, ...], list[dict[str, str]]] = {}
    with (EVIDENCE / "comparison.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            place = tuple(row[name] for name in ("population", "size", "models", "metric"))
            together.setdefault(place, []).append(row)
    return [_counted(rows) for rows in together.values()]


def _counted(rows: list[dict[str, str]]) -> dict[str, str]:
    tables = sum(int(row["tables"]) for row in rows)
    found = {**rows[0], "tables": str(tables)}
    for name in ("test", "plain"):
        known = [row for row in rows if row[name]]
        total = sum(int(row["tables"]) * float(row[name]) for row in known)
        found[name] = f"{total / sum(int(row['tables']) for row in known):.1f}" if known else ""
    return found


def comparison(found: list[dict[str, str]], *names: str) -> str:
    """Shares by metric, a column per population, with what these columns of the file say."""

    def column(row: dict[str, str]) -> str:
        models = "" if row["models"] == "2" else f", {row['models']} models"
        return f"{row['population'].removeprefix('power: ')}{models}"

    tables: dict[str, list[int]] = {}
    for row in found:
        tables.setdefault(column(row), []).append(int(row["tables"]))
    columns = list(tables)
    cells: dict[str, dict[str, str]] = {}
    for row in found:
        shares = (f"{float(row[name]):g}" if row[name] else "–" for name in names)
        cells.setdefault(row["metric"], {})[column(row)] = " / ".join(shares)
    counts = (f"{min(n)} to {max(n)}" if min(n) < max(n) else f"{n[0]}" for n in tables.values())
    head = (f"{name} ({count})" for name, count in zip(columns, counts, strict=True))
    lines = [["metric", *head], ["---"] * (len(columns) + 1)]
    lines += [[shown(m), *(by.get(c, "–") for c in columns)] for m, by in cells.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def power() -> str:
    """How often each test sees a real difference, by metric."""
    found = [row for row in compared() if row["population"].startswith("power")]
    return comparison(found, "test", "plain", "plain made valid")


def pooled(null: list[dict[str, str]]) -> str:
    """Shares of all populations together, by metric, size and number of models."""
    sizes = sorted({(int(row["size"]), int(row["models"])) for row in null})
    cells: dict[str, dict[tuple[int, int], tuple[int, float]]] = {}
    for row in null:
        place, tables = (int(row["size"]), int(row["models"])), int(row["tables"])
        before, alarms = cells.setdefault(row["metric"], {}).get(place, (0, 0.0))
        found = before + tables, alarms + tables * float(row["test"]) / 100
        cells[row["metric"]][place] = found

    def share(tables: int, alarms: float) -> str:
        rate = alarms / tables
        # Of one more alarm and one more table without: 0 of 20 is not known exactly either.
        error = math.sqrt((alarms + 1) * (tables - alarms + 1) / (tables + 2) ** 3)
        return f"{100 * rate:.1f} ± {100 * error:.1f} ({tables})"

    head = ["metric", *(f"N = {size:,}, {models} models" for size, models in sizes)]
    lines = [head, ["---"] * len(head)]
    for metric, by in cells.items():
        lines.append([shown(metric), *(share(*by[s]) if s in by else "–" for s in sizes)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _above(null: list[dict[str, str]]) -> str:
    """How many shares are above the bar, and which of them by more than chance."""
    above = [row for row in null if float(row["test"]) > BAR]

    def beyond_chance(row: dict[str, str]) -> bool:
        tables = int(row["tables"])
        return bdtr(round(tables * float(row["test"]) / 100) - 1, tables, 0.05) > 1 - CHANCE

    missed = list(filter(beyond_chance, above))
    named = "; ".join(
        f"{shown(row['metric'])}, {row['population']}, N = {int(row['size']):,}, "
        f"{row['models']} models: {row['test']} % of {row['tables']}"
        for row in missed
    )
    return (
        f"Of {len(null)} shares, {len(above)} are above {BAR:g} %. A test with 5 % false alarms "
        f"would show so many in less than {100 * CHANCE:g} % of runs for "
        f"{len(missed) or 'none'} of them{f' ({named})' if named else ''}."
    )


def alarms() -> str:
    """How often equally calibrated models are told apart, by size, population and metric."""
    null = [row for row in compared() if not row["population"].startswith("power")]
    null.sort(key=lambda row: (row["population"], int(row["models"])))
    parts = [
        "All populations together, ± standard error (number of tables):",
        pooled(null),
        "By population:",
    ]
    for size in sorted({int(row["size"]) for row in null}):
        found = [row for row in null if int(row["size"]) == size]
        parts += [f"N = {size:,}:", comparison(found, "test", "plain")]
    parts.append(_above(null))
    return "\n\n".join(parts)


def clusters() -> str:
    """Coverage of intervals, and false alarms of compare, where samples come in clusters."""
    made = {"coverage": "Coverage of 95 % intervals", "false alarms": "False alarms of `compare`"}
    tables: dict[str, list[list[str]]] = {}
    outside = []
    for (kind, name), (simulations, found) in _cluster_designs().items():
        head = ["clusters", "data sets", *map(shown, found)]
        table = tables.setdefault(kind, [head, ["---"] * len(head)])
        table.append(
            [name, f"{simulations}", *(f"{round(share, 1):g}" for share in found.values())]
        )
        if kind == "coverage":
            outside += [
                f"{shown(metric)} with {name}: {round(share, 1):g} %"
                for metric, share in found.items()
                if not LOW <= round(share, 1) <= HIGH
            ]
    parts = []
    for kind, table in tables.items():
        parts += [f"{made[kind]}, in per cent:", "\n".join(f"| {' | '.join(r)} |" for r in table)]
    missed = f"Outside {LOW:g} to {HIGH:g} %: {'; '.join(outside) if outside else 'none'}."
    return "\n\n".join([*parts[:2], missed, *parts[2:]])


def _cluster_designs() -> dict[tuple[str, str], tuple[int, dict[str, float]]]:
    """Data sets and shares in per cent of each design; lines about one are counted together."""
    pooled: dict[tuple[str, str], tuple[int, dict[str, float]]] = {}
    simulations = 0
    for line in (EVIDENCE / "clusters.txt").read_text().splitlines():
        if line.startswith("#"):
            simulations = int(re.search(r"(\d+) simulations", line)[1])
        elif match := CLUSTERS.match(line):
            kind, count, size, rows_, rest = match.groups()
            place = kind, f"{count} of {size}, {rows_}" if size != "1" else f"{count} of 1"
            found = {name: float(share) for name, share in re.findall(r"(\w+) ([\d.]+)", rest)}
            drawn, before = pooled.get(place, (0, dict.fromkeys(found, 0.0)))
            total = drawn + simulations
            means = {n: (drawn * before[n] + simulations * x) / total for n, x in found.items()}
            pooled[place] = total, means
    return pooled


def near_certain() -> str:
    """Coverage for models that always state one confidence."""
    first, *lines = (EVIDENCE / "near_certain.txt").read_text().splitlines()
    names = first.split("is right")[1].split()
    head = ["N", "says", "is right", *map(shown, names)]
    table = [head, ["---"] * len(head)]
    for line in lines:
        size, says, is_right, *shares = line.split()
        stated = (f"{100 * float(part):g} %" for part in (says, is_right))
        table.append([size, *stated, *(f"{float(share):g}" for share in shares)])
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def page() -> str:
    """The page with its tables replaced."""
    found = PAGE.read_text()
    made_of = {
        "near-certain": near_certain,
        "coverage": text,
        "clusters": clusters,
        "streams": streams,
        "power": power,
        "alarms": alarms,
    }
    for name, make in made_of.items():
        made = make()
        begin, end = (mark.format(name) for mark in MARKS)
        before, _, rest = found.partition(begin)
        _, _, after = rest.partition(end)
        found = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
