"""Values of a column as people write them: per cent, yes and no, decimal commas, refusals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Bool, Float64, to_floats
from calibrant._core.checks import InputError, refuse
from calibrant._core.memory import check_size
from calibrant._core.validation import check_matrix
from calibrant.io._columns import Columns
from calibrant.io._layout import Layout

TRUTHS = {"yes": True, "true": True, "1": True, "correct": True, "c": True}
TRUTHS |= {"no": False, "false": False, "0": False, "incorrect": False, "i": False}
YES_NO = {"no": 0, "false": 0, "yes": 1, "true": 1}
# No digit can be matched in two ways, or a long cell would take time quadratic in its length.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
_COMMA = re.compile(r"[+-]?\d*,\d+\s*%?\Z")
HUNDRED = 100.0
# Rounding to two decimals moves an entry by at most this much, and a sum of K by K times as much.
ROUNDED = 0.005
LEAST_SLACK = 0.02
PLAIN_NUMBERS = "Save plain numbers, for example as float32."
SKIP_ROWS = "Leave such rows out and count them with skip_unparsable=True."


def numbers(texts: NDArray[np.str_], where: str, *, percent: bool) -> Float64:
    """Strings as numbers; what is not a number becomes NaN. A per cent sign needs ``percent``."""
    found = np.full(len(texts), np.nan)
    for row, raw in enumerate(texts.tolist()):
        text = raw.strip()
        if text.endswith("%"):
            if not percent:
                rule, got = "must hold fractions", f"got {raw!r} in row {row}"
                raise refuse(where, rule, got, "If these are per cent, add percent=True.")
            text = text[:-1].strip()
        if _NUMBER.match(text):
            found[row] = float(text)
    return found


def refuse_text(texts: NDArray[np.str_], bad: Bool, where: str, advice: str) -> InputError:
    """The error for strings where numbers belong."""
    row = int(np.argmax(bad))
    text = str(texts[row])
    if _COMMA.match(text.strip()):
        advice = "This looks like a decimal comma: add decimal=',' (and separator=';')."
    return refuse(where, "must hold real numbers", f"got {text!r} in row {row}", advice)


def fractions(values: NDArray[Any], where: str) -> Float64:
    """Per cent as fractions; refuses what does not look like per cent."""
    wide = _wide(values, where)
    known = wide[~np.isnan(wide)]
    if known.size and known.max() <= 1 and known.max() > 0:
        rule, got = "must be in per cent with percent=True", f"got at most {known.max():g}"
        raise refuse(where, rule, got, "If these are fractions, leave percent=True out.")
    return wide / HUNDRED


def _wide(values: NDArray[Any], where: str) -> Float64:
    """Numbers as float64, if they and what is computed from them fit into memory."""
    floats = to_floats(values, where)
    check_size(2 * floats.size * np.dtype(np.float64).itemsize, where)
    return floats.astype(np.float64, copy=False)


def truths(texts: NDArray[np.str_]) -> tuple[Bool, Bool]:
    """Yes and no, true and false, 1 and 0 as booleans; and which entries are none of them."""
    names, place = np.unique(texts, return_inverse=True)
    found = [TRUTHS.get(name.strip().lower()) for name in names.tolist()]
    value = np.array([bool(truth) for truth in found])
    unknown = np.array([truth is None for truth in found])
    return value[place], unknown[place]


def yes_no(texts: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """Labels yes and no (true and false) as 1 and 0, or None where there are others."""
    names, place = np.unique(texts, return_inverse=True)
    found = [YES_NO.get(name.strip().lower()) for name in names.tolist()]
    if any(number is None for number in found):
        return None
    return np.array(found, dtype=np.int64)[place]


def matrix_columns(
    arrays: dict[str, NDArray[Any]], where: str, layout: Layout, ignored: Sequence[str]
) -> Columns:
    """Columns of a file of arrays, with the options that apply to those."""
    declared = [*layout.singles, layout.prob_columns, layout.logit_columns]
    named = [name for name in declared if name]
    if named:
        rule, advice = "has arrays, not columns", "Save the arrays under their usual names."
        raise refuse(where, rule, f"got the column {named[0]!r}", advice)
    for name in ("probs", "confidence"):
        if layout.percent and name in arrays:
            arrays[name] = fractions(arrays[name], f"{where}: {name}")
    if layout.renormalise and "probs" in arrays:
        arrays["probs"] = renormalised(arrays["probs"], f"{where}: probs")
    return Columns(arrays, layout.classes, ignored=tuple(ignored))


def renormalised(probs: NDArray[Any], where: str) -> Float64:
    """Rows divided by their sums, where rounding to two decimals explains the sums."""
    wide = _wide(probs, where)
    if wide.ndim == 1:
        check_matrix(wide, where)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite sums are refused below
        total = wide.sum(axis=1)
    slack = max(LEAST_SLACK, ROUNDED * wide.shape[1]) + 1e-9
    bad = np.flatnonzero(~(np.abs(total - 1) <= slack))
    if len(bad):
        rule = f"must have rows that sum to 1 ± {slack:.3g} for renormalise=True"
        got = f"got {total[bad[0]]:.6g} in row {bad[0]}"
        raise refuse(where, rule, got, "Rounding does not explain this; check the columns.")
    out: Float64 = wide / total[:, None]
    return out
