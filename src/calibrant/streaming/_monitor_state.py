"""The state of a monitor as a JSON file, versioned; every number of a file is checked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError, refuse
from calibrant._core.files import read_json, replacing
from calibrant._core.version import __version__
from calibrant.streaming._betting import BETS
from calibrant.streaming._confidence_sums import CONFIDENCE_CELLS, CONFIDENCE_UNITS, ConfidenceSums
from calibrant.streaming._monitor import Labelled, Monitor, Reference

MONITOR_SCHEMA = "calibrant.monitor"
MONITOR_VERSION = 1
MOST_COUNT = 1 << 53
# Logarithms of capitals: far beyond what any number of labels could give.
LARGEST_LOG = 1e12


def write_monitor(monitor: Monitor, path: str | Path) -> None:
    """Write a monitor."""
    process, known = monitor.process, monitor.reference
    data = {
        "schema": MONITOR_SCHEMA,
        "version": MONITOR_VERSION,
        "package": __version__,
        "alpha": monitor.alpha,
        "tolerance": monitor.tolerance,
        "num_classes": monitor.num_classes,
        "reference": None if known is None else _reference_data(known),
        "sums": _sums_data(monitor.sums),
        "labels": monitor.labelled.count,
        "correct": monitor.labelled.correct,
        "log_capital": [_number_or_none(x) for x in process.log_capital.tolist()],
        "largest": _number_or_none(process.largest),
        "alarm_at": process.alarm_at,
        "refuted_at": process.refuted_at,
    }
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, allow_nan=False) + "\n", encoding="utf-8")


def _reference_data(known: Reference) -> dict[str, Any]:
    return {
        "sums": _sums_data(known.sums),
        "confidence_error": _number_or_none(known.confidence_error),
        "residual": known.residual,
        "residual_error": None
        if known.residual_error is None
        else _number_or_none(known.residual_error),
    }


def _sums_data(sums: ConfidenceSums) -> dict[str, Any]:
    place = np.flatnonzero(sums.cells)
    cells = [place.tolist(), sums.cells[place].tolist()]
    return {"count": sums.count, "total": sums.total, "squares": sums.squares, "cells": cells}


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def read_monitor(path: str | Path) -> Monitor:
    """A monitor from a file; any defect raises one error."""
    data = read_json(Path(path))
    faults = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
    try:
        return _monitor_of(data)
    except faults as error:
        reason = " ".join(str(error).split())[:200]
        rule, advice = "must be the state of a monitor", "Start again under another name."
        raise refuse(Path(path).name, rule, f"got a file in which {reason}", advice) from error


def _monitor_of(data: Any) -> Monitor:
    _expect(isinstance(data, dict) and data.get("schema") == MONITOR_SCHEMA, "the schema differs")
    _expect(data["version"] == MONITOR_VERSION, f"the version is {data['version']!r}, not 1")
    names = "schema version package alpha tolerance num_classes reference sums labels correct"
    wanted = {*names.split(), "log_capital", "largest", "alarm_at", "refuted_at"}
    _expect(set(data) == wanted, "fields are missing or unknown")
    known = None if data["reference"] is None else _reference_of(data["reference"])
    monitor = Monitor(known, alpha=data["alpha"], tolerance=data["tolerance"])
    if data["num_classes"] is not None:
        monitor.num_classes = _count(data["num_classes"])
        _expect(monitor.num_classes > 1, "there are fewer than two classes")
    monitor.sums = _sums_of(data["sums"])
    count = _count(data["labels"])
    monitor.labelled = Labelled(count, _count(data["correct"], most=count))
    process = monitor.process
    process.num_labels = count
    process.log_capital = _capital_of(data["log_capital"], count)
    process.refuted_at = _place(data["refuted_at"], count)
    process.alarm_at = _place(data["alarm_at"], count)
    refuted = process.refuted_at is not None
    _expect((data["largest"] is None) == refuted, "the largest e-value does not fit")
    process.largest = math.inf if refuted else _number(data["largest"], least=0.0)
    alarmed = process.largest >= -math.log(monitor.alpha)
    _expect((process.alarm_at is not None) == alarmed, "the alarm does not fit the e-value")
    return monitor


def _capital_of(values: Any, count: int) -> Float64:
    _expect(isinstance(values, list) and len(values) == len(BETS), "the bets are others")
    _expect(all((x is None) == (count == 0) for x in values), "bets have no capital")
    if not count:
        return np.full(len(BETS), -np.inf)
    return np.array([_number(x) for x in values])


def _reference_of(data: Any) -> Reference:
    names = {"sums", "confidence_error", "residual", "residual_error"}
    _expect(set(data) == names, "fields of the reference are missing or unknown")
    sums = _sums_of(data["sums"])
    _expect(sums.count > 0, "the reference is empty")
    error = _error_of(data["confidence_error"])
    if data["residual"] is None:
        _expect(data["residual_error"] is None, "the reference has an error without a residual")
        return Reference(sums, error)
    residual = _number(data["residual"], least=-1.0, most=1.0)
    return Reference(sums, error, residual, _error_of(data["residual_error"]))


def _error_of(value: Any) -> float:
    return math.nan if value is None else _number(value, least=0.0, most=1.0)


def _sums_of(data: Any) -> ConfidenceSums:
    _expect(set(data) == {"count", "total", "squares", "cells"}, "sums are missing or unknown")
    count = _count(data["count"])
    total = _count(data["total"], most=count * CONFIDENCE_UNITS)
    # Each sample is rounded to a unit, so squares may exceed their sum by that much.
    squares = _count(data["squares"], most=total + count)
    place, values = data["cells"]
    _expect(len(place) == len(values), "cells have another number of counts")
    cells = np.zeros(CONFIDENCE_CELLS, dtype=np.int64)
    for cell, number in zip(place, values, strict=True):
        cells[_count(cell, most=CONFIDENCE_CELLS - 1)] += _count(number)
    _expect(len(set(place)) == len(place), "a cell occurs twice")
    _expect(int(cells.astype(object).sum()) == count, "counts do not add up")
    return ConfidenceSums(count, total, squares, cells)


def _place(value: Any, count: int) -> int | None:
    if value is None:
        return None
    found = _count(value, most=count)
    _expect(found > 0, "an alarm comes before the first label")
    return found


def _count(value: Any, most: int = MOST_COUNT) -> int:
    _expect(type(value) is int and 0 <= value <= most, "a count is out of range")
    return int(value)


def _number(value: Any, least: float = -LARGEST_LOG, most: float = LARGEST_LOG) -> float:
    fine = type(value) in (int, float) and least <= value <= most
    _expect(fine, "a number is out of range")
    return float(value)


def _expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it reads like an assertion
    if not holds:
        raise InputError(otherwise)
