"""Write the coverage tables of docs/intervals.md from what coverage_grid.py printed.

    python benchmarks/coverage_grid.py classwise … > evidence/coverage/classwise.txt
    python benchmarks/coverage_tables.py

Each line of ``evidence/coverage`` is one population; ``simulations`` in its header says how many
data sets were drawn for the lines below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVIDENCE, PAGE = ROOT / "evidence" / "coverage", ROOT / "docs" / "intervals.md"
MARKS = "<!-- {}: begin -->", "<!-- {}: end -->"
LINE = re.compile(r"K=(\d+) N=(\d+) (\w+) T=([\d.]+): (.*?)  \[")
VALUE = re.compile(r"([\w ]+) ([\d.]+) \(\d+/\d+\)")
POWER = re.compile(r"N=(\d+) power: (.*?), 2 models: (.*?)  \[")
LOW, HIGH = 92.0, 98.0

Row = tuple[int, int, int, str, str, str, float]  # simulations, K, N, population, T, metric, value


def rows(name: str) -> Iterator[Row]:
    """Every coverage in a file."""
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
        if word in ("ece", "mce", "mmce", "nll", "auroc", "aupr", "aurc", "fpr95")
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
        f"{shown(metric)} K = {k}, N = {n:,}, {p}, T = {t}: {value:g} %"
        for _, k, n, p, t, metric, value in sorted(low, key=lambda row: row[-1])
    ]
    return f"{text}{' (' if named else ''}{'; '.join(named)}{')' if named else ''}."


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


def text() -> str:
    """The part of the page between the marks."""
    classwise, binned = list(rows("classwise.txt")), list(rows("binned.txt"))
    many = [row for row in classwise if row[1] > 2]
    two = [row for row in classwise if row[1] == 2]
    by_size = sorted({(r[1], r[2]) for r in many}), sorted({(r[1], r[2]) for r in two})
    parts = [
        "Classwise ECE, by number of classes and samples:",
        table(many, "K, N", by_size[0], slice(1, 3)),
        table(two, "K, N", by_size[1], slice(1, 3)),
        outliers(classwise),
    ]
    for n in sorted({row[2] for row in binned}):
        chosen = [row for row in binned if row[2] == n]
        names = list(dict.fromkeys((row[5],) for row in chosen))
        parts += [
            f"Calibration errors of the top label, K = 5, N = {n:,}:",
            table(chosen, "metric", names, slice(5, 6)),
        ]
    ranking = list(rows("ranking.txt"))
    names = list(dict.fromkeys((row[5],) for row in ranking))
    parts += [
        outliers(binned),
        "Averages and ranking metrics, K = 2, N = 200:",
        table(ranking, "metric", names, slice(5, 6)),
        outliers(ranking),
    ]
    return "\n\n".join(parts)


def power() -> str:
    """How often each test sees a real difference, by metric."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    columns, test = [], ""
    for line in (EVIDENCE / "power.txt").read_text().splitlines():
        if line.startswith("#"):
            test = line.partition(", ")[2]
        elif match := POWER.match(line):
            columns.append((match[2], test))
            for metric, value in re.findall(r"(\w+) ([\d.]+)", match[3]):
                found.setdefault(metric, {})[columns[-1]] = f"{float(value):g}"
    columns.sort()
    head = ["metric", *(f"{change}: {test}" for change, test in columns)]
    lines = [head, ["---"] * len(head)]
    lines += [[shown(metric), *(cells[c] for c in columns)] for metric, cells in found.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The page with its tables made anew."""
    found = PAGE.read_text()
    for name, made in (("coverage", text()), ("power", power())):
        begin, end = (mark.format(name) for mark in MARKS)
        before, _, rest = found.partition(begin)
        _, _, after = rest.partition(end)
        found = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
