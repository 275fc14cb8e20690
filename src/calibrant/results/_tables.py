"""From the rows of all runs to a table of means: pivot, order, significance marks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calibrant._core.checks import check_choice, check_fraction, near_name, refuse
from calibrant._core.formatting import natural_order, show_number
from calibrant.metrics import METRICS
from calibrant.results import compare_runs, summarise_runs

if TYPE_CHECKING:
    import pyarrow as pa
from calibrant.results._table import Cell, CellKey, Key, ResultTable, joined

__all__ = ["Cell", "ResultTable", "pivot"]
OWN_COLUMNS = ("metric", "value", "mean", "std", "sem", "count", "best", "mark", "p_value")


def pivot(  # noqa: PLR0913 - all but the first are keywords
    table: pa.Table,
    *,
    rows: str | Sequence[str],
    cols: str | Sequence[str],
    metric: str,
    where: Mapping[str, Any] | None = None,
    spread: str = "std",
    baseline: Any = None,
    baseline_axis: str = "cols",
    alpha: float = 0.05,
    better: str | None = None,
    best: str | None = "row",
) -> ResultTable:
    """Arrange the runs of a study by rows and columns; a cell is the mean over seeds.

    Only seeds are averaged. Every other column must have one value, be in ``rows`` or ``cols``, or
    be fixed by ``where``, so that a cell never mixes different settings; ``run`` may differ between
    seeds. Two values for the same cell and seed raise an error.

    Parameters
    ----------
    table
        Tidy, one row per value: string columns such as run, data, model, objective, part,
        calibrator, and metric; seed; value.
    rows, cols
        Names of columns, one or several. Their values are sorted, numbers in them as numbers; a
        list in ``where`` sets another order.
    metric
        Name of the metric; known ones have a label, direction and unit.
    where
        Filter: column name to a value to keep, or a list of values.
    spread
        "std", the standard deviation over seeds, or "sem", the standard error of the mean; one seed
        has neither.
    baseline, baseline_axis
        The column (or, with "rows", the row) that the others are tested against by Student's
        two-sample t-test: its value, or a tuple where the axis has several names. See
        ``results.compare_runs`` for single seeds and zero spread.
    alpha
        Significance level of that test; p-values are not corrected for the number of cells.
    better
        "lower", "higher" or "neither"; by default what ``METRICS`` says, and "neither" for metrics
        it does not know. Without a direction no cell is best; marks need none.
    best
        Mark the best of each "row" or "column", or None; cells that print the same mean share it,
        and one cell alone is not best.

    Examples
    --------
    >>> import pyarrow as pa
    >>> runs = pa.table({
    ...     "objective": ["ce"] * 3 + ["focal"] * 3, "data": ["digits"] * 6,
    ...     "seed": [0, 1, 2] * 2, "metric": ["ece"] * 6,
    ...     "value": [0.051, 0.049, 0.053, 0.021, 0.025, 0.020],
    ... })
    >>> print(pivot(runs, rows="data", cols="objective", metric="ece", baseline="ce"))
    ECE (%), mean ± std over 3 seeds; lower is better
    <BLANKLINE>
    data    ce           focal
    digits  5.10 ± 0.20  2.20 ± 0.26* ▼
    <BLANKLINE>
    ▲ ▼ higher, lower than ce: two-sample t-test, p < 0.05, not corrected for the number of cells
    △ ▽ higher, lower, not significant
    * best of the row
    """
    check_choice("spread", spread, ("std", "sem"))
    check_choice("baseline_axis", baseline_axis, ("cols", "rows"))
    check_fraction("alpha", alpha, example=0.05)
    if best is not None:
        check_choice("best", best, ("row", "column"))
    row_names, col_names = _names("rows", rows), _names("cols", cols)
    kept = _kept(table, metric, dict(where or {}), (*row_names, *col_names))
    fixed = _fixed(kept, (*row_names, *col_names))
    runs = _runs_by_cell(kept, row_names, col_names)
    row_keys = _ordered({row for row, _ in runs}, row_names, where or {})
    col_keys = _ordered({col for _, col in runs}, col_names, where or {})
    key = _baseline(baseline, col_keys if baseline_axis == "cols" else row_keys)
    cells = {place: _cell(values, spread) for place, values in runs.items()}
    if key is not None:
        cells = _marked(cells, key, axis=1 if baseline_axis == "cols" else 0, alpha=alpha)
    result = ResultTable(
        metric,
        row_names,
        col_names,
        row_keys,
        col_keys,
        cells,
        fixed,
        spread,
        _direction(metric, better),
        best,
        key,
        alpha,
    )
    return replace(result, cells=_with_best(result))


def _names(argument: str, given: str | Sequence[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    taken = [name for name in names if name in OWN_COLUMNS]
    if not names or taken or len(set(names)) < len(names):
        rule = f"must name columns, each once, other than {', '.join(OWN_COLUMNS)}"
        advice = f"Try {argument}='objective' or {argument}=['data', 'model']."
        raise refuse(argument, rule, f"got {given!r}", advice)
    return names


def _kept(
    table: pa.Table, metric: str, where: Mapping[str, Any], names: tuple[str, ...]
) -> dict[str, list[Any]]:
    """Columns of the rows that are asked for, as lists."""
    import pyarrow as pa

    if not isinstance(table, pa.Table):
        advice = "Pass calibrant.results.read_all(folder), or pa.table(data)."
        raise refuse("table", "must be a pyarrow.Table", f"got {type(table).__name__}", advice)
    if not isinstance(metric, str):
        raise refuse("metric", "must be one name", f"got {metric!r}", "Make one table per metric.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refuse("rows and cols", "must differ", f"got {twice!r} in both", "Drop one.")
    if "metric" in where or "value" in where:
        raise refuse(
            "where",
            "must fix neither metric nor value",
            f"got {sorted(where)}",
            "Pass metric='ece' as a separate argument.",
        )
    for name in ("metric", "seed", "value", *names, *where):
        if table.column_names.count(name) != 1:
            advice = near_name(name, table.column_names)
            raise refuse("table", f"must have a column {name!r}", None, advice)
    if not (pa.types.is_floating(table["value"].type) or pa.types.is_integer(table["value"].type)):
        raise refuse(
            "table",
            "must hold numbers in 'value'",
            f"got {table['value'].type}",
            "Cast the column to float64.",
        )
    for name, wanted in {"metric": metric, **where}.items():
        table = _only(table, name, wanted)
    return {name: table[name].to_pylist() for name in table.column_names}


def _only(table: pa.Table, name: str, wanted: Any) -> pa.Table:
    """The rows whose column has a wanted value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    several = isinstance(wanted, Collection) and not isinstance(wanted, str | bytes)
    try:
        values = _values(column, list(wanted) if several else [wanted])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        rule = f"must give {name!r} values of the type {column.type}"
        advice = f"The column begins with {column.slice(0, 2).to_pylist()}."
        raise refuse("where", rule, f"got {wanted!r}", advice) from error
    found = table.filter(pc.is_in(column, value_set=values))
    if not found.num_rows:
        known = sorted({str(value) for value in column.unique().to_pylist()})
        argument = "metric" if name == "metric" else "where"
        advice = near_name(str(wanted), known) if known else "The table is empty."
        raise refuse(argument, "must match at least one row", f"got {name}={wanted!r}", advice)
    return found


def _values(column: Any, wanted: list[Any]) -> Any:
    """Values as an array of the type of a column.

    Strings that the column holds are taken from it: ``pa.array`` loads pandas, if that is
    installed, which takes longer than the whole table.
    """
    import pyarrow as pa

    if pa.types.is_string(column.type):
        held = column.unique()
        places = {value: place for place, value in enumerate(held.to_pylist())}
        if wanted and all(isinstance(value, str) and value in places for value in wanted):
            return pa.concat_arrays([held.slice(places[value], 1) for value in wanted])
    return pa.array(wanted, column.type)


def _fixed(kept: Mapping[str, list[Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """The columns that have one value; refuses if another one varies."""
    free = {*names, "metric", "seed", "value"}
    values = {name: list(dict.fromkeys(col)) for name, col in kept.items() if name not in free}
    varying = {name: some for name, some in values.items() if len(some) > 1 and name != "run"}
    if varying:
        got = "; ".join(
            f"{len(some)} values of {name!r} ({', '.join(map(str, some[:4]))}"
            f"{', …' if len(some) > 4 else ''})"  # noqa: PLR2004
            for name, some in varying.items()
        )
        name, some = next(iter(varying.items()))
        advice = f"Fix it with where={{{name!r}: {some[0]!r}}}, or add it to rows or cols."
        raise refuse("rows and cols", "must leave only seeds to average", f"got {got}", advice)
    return {name: some[0] for name, some in values.items() if len(some) == 1}


def _runs_by_cell(
    kept: Mapping[str, list[Any]], rows: tuple[str, ...], cols: tuple[str, ...]
) -> dict[CellKey, list[float]]:
    """The values of each cell, one per seed, in the order of the seeds."""
    cells: dict[CellKey, dict[Any, float]] = {}
    runs: dict[tuple[Key, Key, Any], Any] = {}
    row_keys = zip(*(kept[name] for name in rows), strict=True)
    col_keys = zip(*(kept[name] for name in cols), strict=True)
    names = kept.get("run") or [None] * len(kept["value"])
    columns = (row_keys, col_keys, kept["seed"], names, kept["value"])
    for row, col, seed, run, value in zip(*columns, strict=True):
        if (row, col, seed) in runs:
            other = runs[row, col, seed]
            of_runs = f" of the runs {other!r} and {run!r}" if other != run else ""
            got = f"got two for {joined((*row, *col))} and seed {seed}{of_runs}"
            advice = "Drop one; for one of several runs, pass where={'run': …}."
            raise refuse("table", "must have one value per seed in each cell", got, advice)
        runs[row, col, seed] = run
        cells.setdefault((row, col), {})[seed] = math.nan if value is None else float(value)
    return {
        place: [seeds[seed] for seed in sorted(seeds, key=natural_order)]
        for place, seeds in cells.items()
    }


def _ordered(
    keys: Collection[Key], names: tuple[str, ...], where: Mapping[str, Any]
) -> tuple[Key, ...]:
    """Keys in the order of the lists in ``where``, else sorted."""
    orders = [where.get(name) for name in names]

    def rank(key: Key) -> list[Any]:
        return [
            order.index(value) if isinstance(order, list | tuple) else natural_order(value)
            for value, order in zip(key, orders, strict=True)
        ]

    return tuple(sorted(keys, key=rank))


def _cell(values: list[float], spread: str) -> Cell:
    found = summarise_runs(values)
    return Cell(found.mean, getattr(found, spread), found.count, tuple(values))


def _baseline(given: Any, keys: tuple[Key, ...]) -> Key | None:
    if given is None:
        return None
    key = tuple(given) if isinstance(given, tuple | list) else (given,)
    if key not in keys:
        known = list(map(joined, keys))
        rule = "must be a value of the columns, or of the rows with baseline_axis='rows'"
        raise refuse("baseline", rule, f"got {given!r}", near_name(joined(key), known))
    return key


def _marked(
    cells: Mapping[CellKey, Cell], baseline: Key, *, axis: int, alpha: float
) -> dict[CellKey, Cell]:
    marked = {}
    for (row, col), cell in cells.items():
        other = cells.get((row, baseline) if axis else (baseline, col))
        itself = (row, col)[axis] == baseline
        marked[row, col] = cell if itself or other is None else _against(cell, other, alpha)
    return marked


def _against(cell: Cell, baseline: Cell, alpha: float) -> Cell:
    found = compare_runs(cell.values, baseline.values)
    return replace(cell, mark=found.mark(alpha), p_value=found.p_value)


def _direction(metric: str, better: str | None) -> str:
    if better is not None:
        return check_choice("better", better, ("lower", "higher", "neither"))
    return METRICS[metric].better if metric in METRICS else "neither"


def _with_best(table: ResultTable) -> dict[CellKey, Cell]:
    """The cells, with the best of each row or column marked so."""
    cells = dict(table.cells)
    if table.best is None or table.better == "neither":
        return cells
    axis = 0 if table.best == "row" else 1
    pick = min if table.better == "lower" else max
    for key in (table.row_keys, table.col_keys)[axis]:
        group = [p for p in cells if p[axis] == key and not math.isnan(cells[p].mean)]
        if len(group) > 1:
            top = show_number(pick(cells[p].mean for p in group), percent=table.percent)
            for p in group:
                shown = show_number(cells[p].mean, percent=table.percent)
                cells[p] = replace(cells[p], best=shown == top)
    return cells
