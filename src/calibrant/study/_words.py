"""What a finished study says, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calibrant.inference import compare_runs
from calibrant.study._execute import TEST
from calibrant.study._spec import NONE, Study

SURE = 0.05
Values = Mapping[tuple[str, str], np.ndarray]


def answer(study: Study, table: pa.Table) -> str:
    """Say which pair of objective and calibrator came out best, and how sure that is.

    Parameters
    ----------
    study
        The study; its first objective is what the others are compared with.
    table
        Its results, from ``calibrant.results.read_all``.
    """
    keys = pa.array([run.key for run in study.runs])
    table = table.filter(pc.is_in(table["run"], keys))  # the folder may hold older runs
    lines = []
    pairs = dict.fromkeys((run.data, run.model) for run in study.runs)
    for data, model in pairs:
        ece = _values(table, study, data, model, TEST, "ece")
        if not ece:
            continue
        lines += [f"{data}, {model}:", *_sentences(study, table, data, model, ece)]
    return "\n".join(lines)


def _sentences(study: Study, table: pa.Table, data: str, model: str, ece: Values) -> list[str]:
    base = study.runs[0].name
    raw = {pair: v for pair, v in ece.items() if pair[1] == NONE}
    found = []
    if raw:
        best = _best(raw)
        found.append(f"Before any repair, {best[0]} has the lowest ECE, {_shown(raw[best])}"
                     + _against(base, raw, best) + ".")  # fmt: skip
    repaired = {pair: v for pair, v in ece.items() if pair[1] != NONE}
    if repaired:
        best = _best(repaired)
        text = f"After repair, {best[0]} with {best[1]} is best, {_shown(repaired[best])}"
        found.append(text + _against(base, repaired, best) + ".")
    nll = _values(table, study, data, model, TEST, "nll")
    finite = {pair: v for pair, v in nll.items() if np.isfinite(v).all()}
    if finite:
        best = _best(finite)
        found.append(f"The lowest NLL has {best[0]} with {best[1]}: {finite[best].mean():.4f}.")
    for shift in study.evaluation.shifts:
        shifted = _values(table, study, data, model, shift, "ece")
        if shifted:
            best = _best(shifted)
            found.append(f"On {shift}, {best[0]} with {best[1]} has the lowest ECE, "
                         f"{_shown(shifted[best])}.")  # fmt: skip
    return [f"  {line}" for line in found]


def _values(
    table: pa.Table, study: Study, data: str, model: str, part: str, metric: str
) -> dict[tuple[str, str], np.ndarray]:
    """Values over the seeds for each pair of objective and calibrator."""
    keep = pc.field("data") == data
    for name, value in (("model", model), ("part", part), ("metric", metric)):
        keep &= pc.field(name) == value
    rows = table.filter(keep).to_pylist()
    names = dict.fromkeys(run.name for run in study.runs)
    found = {
        pair: np.array([r["value"] for r in rows if (r["objective"], r["calibrator"]) == pair])
        for pair in product(names, study.evaluation.calibrators)
    }
    return {pair: values for pair, values in found.items() if len(values)}


def _best(values: Values) -> tuple[str, str]:
    return min(values, key=lambda pair: float(values[pair].mean()))


def _shown(values: np.ndarray) -> str:
    if len(values) == 1:
        return f"{values[0]:.2%}"
    return f"{values.mean():.2%} ± {values.std(ddof=1):.2%}"


def _against(base: str, values: Values, best: tuple[str, str]) -> str:
    """How the best pair compares with the first objective under the same calibrator."""
    other = (base, best[1])
    if best == other or other not in values:
        return ""
    p = compare_runs(values[best], values[other]).p_value
    sure = "cannot tell them apart" if not p < SURE else f"p = {p:.3f}"
    return f"; {base} has {_shown(values[other])} ({sure})"
