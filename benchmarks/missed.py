"""Targets that are missed, and why, from the tables of the pages; rewrites docs/benchmarks.md.

A reason stands here for every row that may be missed. Only those of rows that are missed now are
printed, with what was measured, so that the list cannot contradict the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common import BENCHMARKS, DOCS, fill

PAGES = {
    BENCHMARKS: ("metrics", "segmentation", "calibrators", "losses", "training", "studies"),
    DOCS / "cluster.md": ("rates",),
}
NO = "**no**"
UNKNOWN = "The reason is not known yet."
# Which rows, what they have in common, why a target may be missed there. The first match counts.
REASONS = (
    (
        r"whole panel, no intervals|ECE alone|classwise ECE",
        "Panel against the floor",
        "Profiled: the pass that checks the scores makes all columns and the classwise tables, and "
        "reads memory once. Measured by leaving parts out: a quarter of it are the tables, a "
        "twentieth finding the predicted class; the rest is mostly exponentials and three sums. "
        "ECE alone does not need the tables; left for later, they would "
        "cost the panel all exponentials a second time. Sorting, binning and "
        "ranking the columns of the panel, some 6 ms, is the work of one thread.",
    ),
    (
        r"peak extra memory of the panel",
        "Memory of the panel",
        "Eight columns of float64 are kept for each sample, whatever the number of classes; "
        "the rest is a chunk per thread.",
    ),
    (
        r"ECE from .*50,000",
        "ECE of large arrays, against other packages",
        "All of them spend most of their time on one pass over the same scores. Ours also "
        "validates every value.",
    ),
    (
        r"ECE from .*10,000",
        "ECE of small arrays, against other packages",
        "At this size a good part of the time is the fixed cost of a call.",
    ),
    (
        r"without the extension",
        "NumPy instead of the extension",
        "Profiled: half of the time are the exponentials and the three sums of each chunk, a pass "
        "of NumPy each; an eighth is splitting off the first bins of the classes. The target is "
        "what the package took before it had the extension, on another machine. Where the floor "
        "takes 13 ms, that code takes 43 to 48 ms, and today's without the extension the same, "
        "both run in turn: 3.4 to 3.7 × floor.",
    ),
    (
        r"replicates of the panel",
        "Bootstrap intervals",
        "Profiled: with 10 classes, the bootstrap and the simulated outcomes take two fifths of "
        "the CPU time each, spread over random numbers, gathers and sums; the rest are simulated "
        "labels. With 1,000 classes, "
        "two thirds are the classwise error: each of its six passes computes all probabilities and "
        "their bins again, because keeping them would take four times the memory of the scores.",
    ),
    (
        r"from Parquet",
        "Streaming against a bare scan",
        "Profiled: of the time of the thread that adds up, half is one pass over the logits for "
        "all columns, classwise tables and sums, a quarter is making arrays of the batches and "
        "checking them, a twentieth the histogram of odds. PyArrow decodes beside it.",
    ),
    (
        r"calibrant measure",
        "The whole command on a small file",
        "Half of it is imports: NumPy, this package and Typer. The rest is computing, nearly all "
        "of it the simulated and resampled intervals.",
    ),
    (
        r"temperature by NLL",
        "Temperature by NLL",
        "Profiled: two fifths of the CPU time are two passes of Newton's method, a tenth its start "
        "from 2,000 rows. Two fifths are making the predictions: with more than 32 classes, the "
        "pass that checks them computes the columns and classwise tables of the panel, and a "
        "temperature needs little of that.",
    ),
    (
        r"two images",
        "ECE of segmentation maps",
        "Profiled on one thread: half of the CPU time is the sweep of 19 classes, an eighth the "
        "check when the predictions are made. Most of the rest, labels, places and images of the "
        "pixels, is the work of one thread.",
    ),
    (
        r"`Accumulator`",
        "Streamed segmentation maps",
        "Profiled: of the CPU time, a third is the sweep with the tables of all classes, a seventh "
        "gathering the pixels that are not to be ignored and squaring losses, a fourteenth the "
        "bootstrap sums of the images. Six sevenths of it are spent in one compiled call per slab.",
    ),
    (
        r"^auto",
        "Automatic selection",
        "Each candidate is fitted once per fold.",
    ),
    (
        r"vector scaling",
        "Vector scaling against probmetrics",
        "Ours chooses its penalty by cross-validation, which takes several fits; the other "
        "uses a fixed one.",
    ),
    (
        r", 128 × 10$",
        "Losses at 128 × 10",
        "At this size the time is fixed cost, not arithmetic. Profiled: value and gradient are a "
        "compiled call each, together a sixth of `F.cross_entropy`; the rest is PyTorch's, for "
        "the mean, the backward pass and a node that is called from Python, and that of checking "
        "the arguments. The table below it has what share of a training step that is.",
    ),
    (
        r", 4,096 × 1,000$",
        "Losses at 4,096 × 1,000",
        "A penalty needs the probabilities that the cross-entropy has computed a second time, and "
        "a gradient of its own, which PyTorch adds to that of the cross-entropy.",
    ),
    (
        r"(training|evaluation): against the plain loop",
        "Training and evaluation against the plain loop",
        "Most of the time is spent in the network's convolutions. Ours are in bf16 where the"
        " processor has instructions for it, and else the same in both; a loop can only save what"
        " surrounds them. The rows against the fixed batch show how little that is. Measured on one"
        " thread in float32 without any loop: our layout in memory makes the network 1.3 times as"
        " fast as the plain one in evaluation; batch normalisation folded into the convolutions,"
        " which is not done, 1.4 times; the convolutions alone, which nothing can beat, 1.44"
        " (ResNet-8) and 1.50 times (ResNet-20). What is above that comes from loading"
        " images in the plain loop.",
    ),
    (
        r"outside training",
        "Studies with training runs of two seconds",
        "Starting the workers and evaluating weigh little only against longer runs, as the "
        "row of runs of one minute shows.",
    ),
    (
        r"starting the workers",
        "Starting the workers of a study",
        "The import of PyTorch, in the row below it, is most of that; no run can start without "
        "it, and the server that all workers are forked from does it once, without collecting "
        "garbage meanwhile. What is left is the import of this package's training part and the "
        "start of two processes. The command itself needs no PyTorch: a worker checks what can be "
        "trained.",
    ),
    (
        r"two nodes against one worker",
        "Two Ray nodes on one machine",
        "The driver and several processes of Ray's own for each node run on the same two cores as "
        "the two workers.",
    ),
    (
        r"two workers against one",
        "Two workers against one",
        "Two processes share the memory bandwidth and caches of the machine, and starting "
        "them takes its time twice.",
    ),
)


@dataclass(frozen=True)
class Miss:
    """A row whose target is missed."""

    what: str
    measured: str
    target: str


def block(page: Path, name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", page.read_text("utf-8"), re.DOTALL)
    if found is None:
        raise SystemExit(f"{page.name} has no part marked {name!r}")
    return found[1]


def missed(text: str) -> Iterator[Miss]:
    """The rows of tables that have a **no**; with two measured columns, each on its own."""
    head: list[str] = []
    above = ""
    for line in text.splitlines():
        if not line.startswith("| "):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
            continue
        what, *measured, target, kept = cells
        above = above if what.startswith("…") else what
        label = f"{above}: {what[2:]}" if what.startswith("…") else what
        names = head[1:-2] if len(measured) > 1 else [""]
        outcomes = kept.split(", ")
        bounds = target.split(", ") if len(outcomes) > 1 else [target]
        columns = zip(names, measured, bounds, outcomes, strict=False)
        for name, value, bound, outcome in columns:
            if outcome == NO:
                yield Miss(f"{label}, {name}" if name else label, value, bound)


def explained(misses: list[Miss]) -> str:
    """One paragraph for the rows that share a reason."""
    if not misses:
        return "All targets are met."
    groups: dict[tuple[str, str], list[Miss]] = {}
    for one in misses:
        reasons = ((title, why) for row, title, why in REASONS if re.search(row, one.what))
        groups.setdefault(next(reasons, (one.what, UNKNOWN)), []).append(one)
    return "\n".join(
        f"- **{title}.** {why} Measured: "
        + "; ".join(f"{m.what} {m.measured} (target {m.target})" for m in some)
        + "."
        for (title, why), some in groups.items()
    )


def text() -> str:
    pages = ((page, name) for page, names in PAGES.items() for name in names)
    return explained([miss for page, name in pages for miss in missed(block(page, name))])


if __name__ == "__main__":
    fill(BENCHMARKS, "missed", text())
    print(text())
