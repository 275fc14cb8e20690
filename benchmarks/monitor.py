"""False alarms and detection delay of ``calibrant.streaming.Monitor``, by simulation.

    python benchmarks/monitor.py simulate  # into evidence/monitor.csv
    python benchmarks/monitor.py tables    # the tables of docs/monitor.md

Confidences of a stream are drawn from one of three laws. Calibrated streams: the share that ever
raises an alarm within so many labels, beside Spiegelhalter's test at the 5 % level, repeated after
every hundred labels. Changed streams: labels until the alarm, counted from the change.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit, ndtri

from calibrant import Confidences
from calibrant.streaming import Monitor
from common import DOCS, ROOT, fill, markdown

EVIDENCE, PAGE = ROOT / "evidence" / "monitor.csv", DOCS / "monitor.md"
NULL_STREAMS, NULL_LABELS, EVERY = 1000, 5000, 100
STREAMS, LABELS, START = 200, 10_000, 2000
LAWS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "accurate: 89 % on average": lambda rng, size: expit(rng.normal(3.2, 2.0, size).clip(-1, 12)),
    "middling: 75 % on average": lambda rng, size: rng.uniform(0.5, 1.0, size),
    "two levels: 60 % and 95 %": lambda rng, size: rng.choice([0.6, 0.95], size),
}
CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "log-odds twice as large as they should be": lambda c: expit(logit(c) / 2),
    "log-odds 1.3 times as large": lambda c: expit(logit(c) / 1.3),
    "5 points too sure": lambda c: np.maximum(c - 0.05, 0),
    "2 points too sure": lambda c: np.maximum(c - 0.02, 0),
    "log-odds half as large": lambda c: expit(logit(c) * 2),
    "right in 90 % of cases above 97 % confidence": lambda c: np.where(c > 0.97, 0.9, c),
}
LATE = "after 2,000 calibrated labels"


def alarm(confidence: np.ndarray, correct: np.ndarray, tolerance: float = 0.0) -> int | None:
    """The number of the label that raised an alarm, if any."""
    monitor = Monitor(tolerance=tolerance)
    for start in range(0, len(confidence), 1000):
        rows = slice(start, start + 1000)
        monitor.update(Confidences(confidence=confidence[rows], correct=correct[rows]))
        if monitor.report().alarm:
            break
    return monitor.report().alarm_at


def repeated(confidence: np.ndarray, correct: np.ndarray) -> bool:
    """Whether Spiegelhalter's test, made after every hundred labels, ever rejects."""
    weight = 1 - 2 * confidence
    total = np.cumsum((correct - confidence) * weight)[EVERY - 1 :: EVERY]
    spread = np.cumsum(weight**2 * confidence * (1 - confidence))[EVERY - 1 :: EVERY]
    return bool((np.abs(total) > ndtri(0.975) * np.sqrt(spread)).any())


def null_rows() -> list[dict[str, object]]:
    rows = []
    for law, draw in LAWS.items():
        for tolerance in (0.0, 0.02):
            alarms = peeks = 0
            for seed in range(NULL_STREAMS):
                rng = np.random.default_rng((seed, 1))
                c = draw(rng, NULL_LABELS)
                # With a tolerance, the least favourable of what counts as calibrated.
                hit = rng.random(NULL_LABELS) < np.maximum(c - tolerance, 0)
                alarms += alarm(c, hit, tolerance) is not None
                peeks += repeated(c, hit)
            row = {"law": law, "change": "none", "start": 0, "tolerance": tolerance}
            row |= {"streams": NULL_STREAMS, "labels": NULL_LABELS}
            row |= {"alarms": f"{100 * alarms / NULL_STREAMS:.1f}"}
            peeked = "" if tolerance else f"{100 * peeks / NULL_STREAMS:.1f}"
            rows.append(row | {"repeated": peeked, "q05": "", "median": "", "q95": ""})
            print(rows[-1], flush=True)
    return rows


def delay_rows() -> list[dict[str, object]]:
    rows = []
    law, draw = next(iter(LAWS.items()))
    for change, chance in CHANGES.items():
        for start in (0, START):
            delays = []
            for seed in range(STREAMS):
                rng = np.random.default_rng((seed, 2))
                c = draw(rng, start + LABELS)
                truth = np.where(np.arange(len(c)) < start, c, chance(c))
                found = alarm(c, rng.random(len(c)) < truth)
                if found is None or found > start:  # a false alarm has no delay
                    delays.append(np.inf if found is None else found - start)
            seen = np.isfinite(delays)
            row = {"law": law, "change": change, "start": start, "tolerance": 0.0}
            row |= {"streams": len(delays), "labels": LABELS}
            row |= {"alarms": f"{100 * seen.mean():.1f}", "repeated": ""}
            for name, share in (("q05", 0.05), ("median", 0.5), ("q95", 0.95)):
                value = np.quantile(delays, share, method="higher")
                row[name] = f"{value:.0f}" if np.isfinite(value) else ""
            rows.append(row)
            print(row, flush=True)
    return rows


def simulate() -> None:
    rows = null_rows() + delay_rows()
    with EVIDENCE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read() -> list[dict[str, str]]:
    with EVIDENCE.open(newline="") as file:
        return list(csv.DictReader(file))


def false_alarms(rows: list[dict[str, str]]) -> str:
    found = [row for row in rows if row["change"] == "none"]
    head = ["confidences", "alarms", "alarms, tolerance of 2 points", "Spiegelhalter, repeated"]
    lines = []
    for law in LAWS:
        plain, tolerant = (row for row in found if row["law"] == law)
        lines.append([law, plain["alarms"], tolerant["alarms"], plain["repeated"]])
    first = found[0]
    words = (
        f"Per cent of {int(first['streams']):,} calibrated streams of {int(first['labels']):,} "
        "labels each that ever raised an alarm. With the tolerance, every stream is 2 points too "
        "sure, as much as is tolerated. The last column is Spiegelhalter's test at the 5 % level, "
        f"repeated after every {EVERY} labels."
    )
    return f"{markdown(head, lines)}\n\n{words}"


def delays(rows: list[dict[str, str]]) -> str:
    head = ["change", "from the first label", LATE]
    lines = []
    for change in CHANGES:
        cells = []
        for row in (row for row in rows if row["change"] == change):
            low, middle, high = (
                f"{int(row[name]):,}" if row[name] else f"> {int(row['labels']):,}"
                for name in ("q05", "median", "q95")
            )
            cells.append(f"{middle} ({low} to {high})")
        lines.append([change, *cells])
    first = next(row for row in rows if row["change"] != "none")
    words = (
        f"Labels from the change to the alarm: median, and 5 to 95 % of {STREAMS} streams, less "
        f"those that raised a false alarm before it. Confidences: {first['law']}."
    )
    return f"{markdown(head, lines)}\n\n{words}"


def blocks() -> dict[str, str]:
    """The text of every marked part of the page."""
    rows = read()
    return {"false-alarms": false_alarms(rows), "delays": delays(rows)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["simulate"]:
            simulate()
        case ["tables"]:
            for name, text in blocks().items():
                fill(PAGE, name, text)
        case _:
            raise SystemExit(__doc__)
