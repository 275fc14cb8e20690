"""JSON lines: one object per sample, with field names by options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from calibrant._core.checks import InputError, refuse
from calibrant._core.files import clear_errors
from calibrant.io._arrow import missing_values, table_columns
from calibrant.io._columns import Columns
from calibrant.io._layout import Layout, Plan, plan_columns
from calibrant.io._text import check_parsed, opened_text

Row = Mapping[str, Any]
LONGEST_LINE = 1 << 28
SKIPPABLE = ("confidence", "correct")  # with the option skip_unparsable


def read_rows(path: Path) -> list[Row]:
    """The objects of a file of JSON lines; empty lines are skipped."""
    with clear_errors(path, "JSON lines"), opened_text(path) as stream:
        check_parsed(stream, path)
        return _parsed(stream, path.name)


def _parsed(stream: BinaryIO, where: str) -> list[Row]:
    rows: list[Row] = []
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(
                f"{where} cannot be read as JSON lines: {reason} in line {number:,}. Write one "
                "object per line."
            ) from error
        if not isinstance(row, dict):
            rule, got = "must hold one object per line", f"got {type(row).__name__}"
            raise refuse(where, rule, f"{got} in line {number:,}", "Write {…} in each line.")
        rows.append(row)
    if not rows:
        raise refuse(where, "must hold at least one sample", "got no rows", "Check the file.")
    return rows


def rows_columns(rows: Sequence[Row], where: str, layout: Layout) -> Columns:
    """Columns out of objects; dots in a declared name lead into inner objects."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    names |= dict.fromkeys(_inner_names(rows, layout))
    plan = plan_columns(list(names), where, layout)
    table = pa.table({name: _column(rows, name, where, plan) for name in plan.used})
    columns = table_columns(table, where, layout, pad=True)
    inner = {name.partition(".")[0] for name in plan.used}
    return replace(columns, ignored=tuple(name for name in plan.ignored if name not in inner))


def _inner_names(rows: Sequence[Row], layout: Layout) -> Iterator[str]:
    """Declared names that lead into inner objects; ``answers.*`` names all entries of one."""
    declared = [*layout.singles, *(layout.prob_columns or "").split(",")]
    declared += (layout.logit_columns or "").split(",")
    for name in (part.strip() for part in declared):
        outer, dot, inner = name.rpartition(".")
        found = (field(row, outer) for row in rows if dot)
        for parts in (part for part in found if isinstance(part, Mapping)):
            yield from (f"{outer}.{key}" for key in parts if key == inner or "*" in inner)


def field(row: Any, name: str) -> Any:
    """The value under a name, where dots lead into inner objects; None where there is none.

    >>> field({"doc": {"answer": 2}}, "doc.answer")
    2
    """
    if isinstance(row, Mapping) and name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    if not dot or not isinstance(row, Mapping):
        return None
    return field(row.get(first), rest)


def _column(rows: Sequence[Row], name: str, where: str, plan: Plan) -> Any:
    """One field of every row.

    Only what can be skipped may be missing: if that were noticed later, rows of one field each
    would become a table of all fields of all rows.
    """
    values = [field(row, name) for row in rows]
    missing = values.count(None)
    if missing and plan.becomes[name] not in SKIPPABLE:
        raise missing_values(f"{where}: {name}", missing)
    return _array(values)


def _array(values: list[Any]) -> Any:
    """An Arrow array; values of several kinds become strings."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        texts = [None if value is None else _text(value) for value in values]
        return pa.array(texts, type=pa.string())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
