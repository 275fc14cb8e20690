"""Tables of the learning curve, and of the blend beside single methods, from evidence/."""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

from common import ROOT, markdown
from learning import DEVELOPMENT, JUDGED

SINGLE, AUTO, BLEND, TEMPERATURE = "auto without blend", "auto", "blend", "temperature"
FOUND = ("nll", "failed")
# How far above temperature scaling a method may be, and the sizes that were drawn several times.
TOLERATED, DRAWN = 0.001, (200, 1000)
NOT_SINGLE = (SINGLE, AUTO, BLEND)
Method = tuple[str, str]  # its name and its package
ByNetwork = dict[str, dict[Method, float]]  # NLL; infinite where the fit failed


def rows() -> Iterator[dict[str, str]]:
    with (ROOT / "evidence" / "learning.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def curves(data: str) -> dict[int, ByNetwork]:
    """NLL by size, network and method, of networks for some data.

    Of the first draw alone, which every method has been fitted to.
    """
    found: dict[int, ByNetwork] = defaultdict(lambda: defaultdict(dict))
    for row in sorted(rows(), key=lambda row: int(row["num_samples"])):
        first = row["draw"] == "0" and row["metric"] in FOUND
        if first and row["network"].startswith(f"{data}_"):
            value = float(row["value"]) if row["metric"] == "nll" else math.inf
            method = row["method"], row["package"]
            found[int(row["num_samples"])][row["network"]][method] = value
    return {size: known for size, networks in found.items() if (known := judged(networks))}


def judged(networks: ByNetwork) -> ByNetwork:
    """The networks that the methods to be compared have all been fitted to."""
    return {
        network: values
        for network, values in networks.items()
        if all((name, "calibrant") in values for name in (TEMPERATURE, *NOT_SINGLE))
    }


def learning(data: str) -> str:
    """Mean NLL of every method by the number of fit samples."""
    sizes = curves(data)
    methods = sorted({m for found in sizes.values() for values in found.values() for m in values})
    means = {
        m: [mean([v.get(m, math.nan) for v in found.values()]) for found in sizes.values()]
        for m in methods
    }
    order = sorted(methods, key=lambda m: (m[1] != "calibrant", last(means[m]), m))
    lines = [[*m, *map(shown, means[m])] for m in order if not all(map(math.isnan, means[m]))]
    heads = [f"N = {size:,} ({len(found)} networks)" for size, found in sizes.items()]
    return markdown(["method", "package", *heads], lines)


def last(values: list[float]) -> float:
    """The value that methods are sorted by; infinite where it is missing."""
    return math.inf if math.isnan(values[-1]) else values[-1]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def blend() -> str:
    """The blend and ``auto`` beside single methods, on networks that chose settings and others."""
    lines = []
    both = [curves("cifar10"), curves("cifar100")]
    for size in sorted({size for found in both for size in found}):
        known = {n: m for found in both for n, m in found.get(size, {}).items()}
        for what, networks in (
            ("settings chosen here", {n: m for n, m in known.items() if n in DEVELOPMENT}),
            ("others", {n: m for n, m in known.items() if n not in DEVELOPMENT}),
        ):
            if networks:
                lines.append([f"{size:,}", f"{len(networks)}, {what}", *compared(networks)])
    head = [
        "N",
        "networks",
        "temperature",
        SINGLE,
        "best single in hindsight",
        BLEND,
        AUTO,
        "below hindsight: blend, auto",
        "most above temperature: blend, auto",
    ]
    return markdown(head, lines)


def compared(networks: ByNetwork) -> list[str]:
    ours = [
        {name: value for (name, package), value in methods.items() if package == "calibrant"}
        for methods in networks.values()
    ]
    best = [min(v for name, v in m.items() if name not in NOT_SINGLE) for m in ours]
    means = [mean([m[name] for m in ours]) for name in (TEMPERATURE, SINGLE)]
    means += [mean(best), *(mean([m[name] for m in ours]) for name in (BLEND, AUTO))]
    below = [
        sum(m[name] < low for m, low in zip(ours, best, strict=True)) for name in (BLEND, AUTO)
    ]
    worst = [max(m[name] - m[TEMPERATURE] for m in ours) for name in (BLEND, AUTO)]
    return [
        *(shown(value) for value in means),
        ", ".join(str(count) for count in below),
        ", ".join(f"{value:+.4f}" for value in worst),
    ]


def draws() -> str:
    """How far ``auto`` is from temperature scaling when it is fitted to other samples."""
    lines = []
    for size in DRAWN:
        for chosen, networks in sorted(gaps_by_network(size).items(), reverse=True):
            every = [gap for some in networks.values() for gap in some]
            worst = max(networks.values(), key=mean)
            lines.append(
                [
                    f"{size:,}",
                    f"{len(networks)}, {'settings chosen here' if chosen else 'others'}",
                    f"{len(every)}",
                    f"{mean(every):+.4f}",
                    f"{sum(gap > TOLERATED for gap in every)}",
                    f"{max(every):+.4f}",
                    f"{mean(worst):+.4f} ± {standard_error(worst):.4f}",
                ]
            )
    more, most = f"more than {TOLERATED} above", "most above, mean of a network"
    return markdown(["N", "networks", "fits", "mean", more, "most above", most], lines)


def gaps_by_network(
    size: int, first: str = AUTO, second: str = TEMPERATURE, data: str = "cifar"
) -> dict[bool, dict[str, list[float]]]:
    """NLL of one of our methods minus another, of networks that chose settings or not, by draw."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows():
        asked = row["num_samples"] == str(size) and row["network"].startswith(data)
        ours = row["package"] == "calibrant" and row["metric"] == "nll"
        if asked and ours and row["method"] in (first, second):
            found[row["network"], row["draw"]][row["method"]] = float(row["value"])
    gaps: dict[bool, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (network, _), values in sorted(found.items()):
        if len(values) == 2:  # both were fitted to these samples
            gaps[network in DEVELOPMENT][network].append(values[first] - values[second])
    return gaps


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def optimism() -> str:
    """How much lower the loss is that ``auto`` judges the blend by than a nested one."""
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in rows():
        if row["method"] == JUDGED:
            place = (row["network"], row["num_samples"], row["draw"])
            found[place][row["metric"]] = float(row["value"])
    gaps: dict[int, list[float]] = defaultdict(list)
    for (_, size, _), values in found.items():
        gaps[int(size)].append(values["nll nested"] - values["nll out of fold"])
    said = [
        f"{mean(some):+.4f} on average (from {min(some):+.4f} to {max(some):+.4f}) "
        f"at N = {size:,} in {len(some)} fits"
        for size, some in sorted(gaps.items())
    ]
    return (
        "Nested cross-validation of the whole blend minus the loss that `auto` judges it by, in "
        f"nats: {'; '.join(said)}."
    )


def blocks() -> dict[str, str]:
    """The marked parts of docs/which.md that this module makes."""
    data = ("cifar10", "cifar100", "imagenet")
    return {
        **{f"learning-{name}": learning(name) for name in data},
        "blend": blend(),
        "optimism": optimism(),
        "draws": draws(),
    }
