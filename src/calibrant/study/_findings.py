"""Findings of a study in plain words, for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from calibrant._core.checks import refuse
from calibrant._core.formatting import natural_order, show, show_p_equation
from calibrant.calibrators import UNCALIBRATED
from calibrant.metrics import CALIBRATION_ERROR, LOG_LOSS, METRICS
from calibrant.results import RunComparison, compare_runs, summarise_runs
from calibrant.study._execute import TEST
from calibrant.study._spec import Study

SURE = 0.05
SPOKEN_OF = (CALIBRATION_ERROR, LOG_LOSS)
Method = tuple[str, str]  # objective and calibrator
DataModel = tuple[str, str]  # data and network
Values = Mapping[Method, Mapping[int, float]]  # by seed


def answer(study: Study, table: pa.Table) -> str:
    """Say which objective and calibrator are best, and how certain that is.

    Parameters
    ----------
    study
        The study; its first objective is the baseline.
    table
        Its results, from ``calibrant.results.read_all``.
    """
    lines = []
    for (data, model), said in findings(table, study).items():
        lines += [f"{data}, {model}:", *(f"  {sentence}" for sentence in said)]
    return "\n".join(lines)


def findings(table: pa.Table, study: Study | None = None) -> dict[DataModel, list[str]]:
    r"""Sentences on the best result for each data set and network, and how certain it is.

    The best is compared with the next best by a t-test over seeds, paired where both have the same
    ones.

    Parameters
    ----------
    table
        Results, from ``calibrant.results.read_all``.
    study
        Include only its runs, calibrators and shifts, and report its first objective as a baseline.

    Examples
    --------
    >>> rows = [{"data": "digits", "model": "mlp", "objective": o, "seed": s, "part": "test",
    ...          "calibrator": "none", "metric": "ece", "value": v + 0.001 * s}
    ...         for o, v in (("focal", 0.02), ("brier", 0.05)) for s in (0, 1, 2)]
    >>> print(findings(pa.Table.from_pylist(rows))["digits", "mlp"][0].replace("; ", ";\n"))
    Without post-hoc calibration, focal has the lowest ECE, 2.10 ± 0.10 %;
    next is brier, 5.10 ± 0.10 % (significant: p < 0.001, paired over 3 seeds).
    """
    rows = table.to_pylist() if study is None else _of_study(study, table.to_pylist())
    baseline = None if study is None else study.runs[0].name
    places: dict[DataModel, dict[tuple[str, str], dict[Method, dict[int, float]]]] = {}
    for row in rows:
        parts = places.setdefault((row["data"], row["model"]), {})
        if row["metric"] not in SPOKEN_OF:
            continue
        values = parts.setdefault((row["part"], row["metric"]), {})
        seeds = values.setdefault((row["objective"], row["calibrator"]), {})
        if row["seed"] in seeds:
            rule, advice = "must have one value per seed for each setting", "Name the study."
            raise refuse("table", rule, f"got two for seed {row['seed']}", advice)
        seeds[row["seed"]] = row["value"]
    order = sorted(places) if study is None else [(run.data, run.model) for run in study.runs]
    return {
        place: _sentences(places[place], baseline)
        for place in dict.fromkeys(order)
        if place in places
    }


def _of_study(study: Study, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that belong to the study; the folder may hold others."""
    keys, parts = {run.key for run in study.runs}, {TEST, *study.evaluation.shifts}
    calibrators = study.evaluation.calibrators
    return [
        row
        for row in rows
        if row["run"] in keys and row["part"] in parts and row["calibrator"] in calibrators
    ]


def _sentences(places: Mapping[tuple[str, str], Values], baseline: str | None) -> list[str]:
    ece = {part: values for (part, metric), values in places.items() if metric == CALIBRATION_ERROR}
    test = ece.pop(TEST, {})
    raw = {pair: values for pair, values in test.items() if pair[1] == UNCALIBRATED}
    calibrated = {pair: values for pair, values in test.items() if pair[1] != UNCALIBRATED}
    nll = places.get((TEST, LOG_LOSS), {})
    asked = [
        ("Without post-hoc calibration", CALIBRATION_ERROR, raw),
        ("With post-hoc calibration", CALIBRATION_ERROR, calibrated),
        ("Of all", LOG_LOSS, nll),
        *((f"On {part}", CALIBRATION_ERROR, ece[part]) for part in sorted(ece, key=natural_order)),
    ]
    said = [_best(*question, baseline) for question in asked]
    found = [sentence for sentence in said if sentence]
    if not found:
        return ["Neither ECE nor NLL was measured."]
    most = max(len(values) for _, _, values in asked)
    if most > 1:
        found.append(
            f"Each was picked on these samples, out of up to {most} settings, and p is not "
            "corrected for that."
        )
    return found


def _best(start: str, metric: str, values: Values, baseline: str | None) -> str:
    """The pair with the lowest mean, the next one, and the baseline under the same calibrator."""
    sound = {p: v for p, v in values.items() if np.isfinite(list(v.values())).all()}
    if not sound:
        return ""
    first, *rest = sorted(sound, key=lambda pair: (_mean(sound[pair]), pair))
    text = f"{start}, {_named(first)} has the lowest {METRICS[metric].label}, "
    text += _shown(metric, sound[first])
    others = [(f"next is {_named(rest[0])},", rest[0])] if rest else []
    base = (baseline, first[1]) if baseline is not None else first
    if base in rest[1:]:
        others.append((f"{_named(base)}, the first of the study, has", base))
    for words, pair in others:
        sure = _sure(sound[first], sound[pair])
        text += f"; {words} {_shown(metric, sound[pair])} ({sure})"
    return f"{text}."


def _mean(seeds: Mapping[int, float]) -> float:
    return math.fsum(seeds.values()) / len(seeds)


def _named(pair: Method) -> str:
    return pair[0] if pair[1] == UNCALIBRATED else f"{pair[0]} with {pair[1]}"


def _shown(metric: str, seeds: Mapping[int, float]) -> str:
    percent = METRICS[metric].percent
    mean = show(_mean(seeds), percent=percent)
    if len(seeds) == 1:
        return mean
    spread = show(summarise_runs(list(seeds.values())).std, percent=percent)
    return f"{mean.removesuffix(' %')} ± {spread}"


def _sure(first: Mapping[int, float], other: Mapping[int, float]) -> str:
    """Whether the difference is significant, in words."""
    found, paired = _compared(first, other)
    if math.isnan(found.p_value):
        return "one seed is not enough to compare"
    judged = "significant" if found.p_value < SURE else "may be due to chance"
    how = f"paired over {len(first)} seeds"
    if not paired:
        how = f"{len(first)} against {len(other)} seeds, not paired"
    return f"{judged}: {show_p_equation(found.p_value)}, {how}"


def _compared(first: Mapping[int, float], other: Mapping[int, float]) -> tuple[RunComparison, bool]:
    paired = first.keys() == other.keys()
    a, b = ([seeds[seed] for seed in sorted(seeds)] for seeds in (first, other))
    return compare_runs(a, b, paired=paired), paired
