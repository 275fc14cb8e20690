"""Tables of runs: hand-computed cells, honest marks, and names that try to break the layout."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from scipy import stats

from calibrant import InputError
from calibrant._core.formatting import natural_order
from calibrant.results import Cell, ResultTable, pivot
from calibrant.results._files import SCHEMA

CE = [0.051, 0.049, 0.053]
FOCAL = [0.021, 0.025, 0.020]
NEWS_CE = [0.10, 0.12, 0.11]
NEWS_FOCAL = [0.11, 0.13, 0.105]


def tidy(*groups: dict[str, Any]) -> pa.Table:
    """A table as studies write it: each group has settings and one value per seed."""
    base = {
        "data": "digits",
        "model": "mlp",
        "objective": "ce",
        "part": "test",
        "calibrator": "none",
        "metric": "ece",
    }
    rows = []
    for number, group in enumerate(groups):
        names = base | {name: value for name, value in group.items() if name != "values"}
        for seed, value in enumerate(group["values"]):
            rows.append({"run": f"{number}-{seed}", "seed": seed, "value": value} | names)
    return pa.Table.from_pylist(rows, SCHEMA)


def four() -> pa.Table:
    return tidy(
        {"values": CE},
        {"objective": "focal", "values": FOCAL},
        {"data": "news", "values": NEWS_CE},
        {"data": "news", "objective": "focal", "values": NEWS_FOCAL},
        {"metric": "nll", "values": [1.0, 2.0]},
    )


def table_of(*groups: dict[str, Any], **options: Any) -> ResultTable:
    return pivot(
        tidy(*groups), **({"rows": "data", "cols": "objective", "metric": "ece"} | options)
    )


def body(text: str) -> list[str]:
    """The lines of the table itself."""
    return text.split("\n\n")[1].split("\n")


# --- what a cell holds ------------------------------------------------------------------------


def test_cells_by_hand() -> None:
    table = pivot(four(), rows="data", cols="objective", metric="ece")
    cell = table["digits", "ce"]
    assert cell.mean == pytest.approx(0.051)
    assert cell.spread == pytest.approx(0.002)
    assert (cell.count, cell.values) == (3, tuple(CE))
    assert table["digits", "focal"].mean == pytest.approx(0.022)
    assert table["digits", "focal"].spread == pytest.approx(math.sqrt(7e-6))
    sem = pivot(four(), rows="data", cols="objective", metric="ece", spread="sem")
    assert sem["digits", "ce"].spread == pytest.approx(0.002 / math.sqrt(3))


def test_text_by_hand() -> None:
    table = pivot(four(), rows="data", cols="objective", metric="ece", baseline="ce")
    assert str(table) == "\n".join(
        [
            "ECE (%), mean ± std over 3 seeds; lower is better",
            "",
            "data    ce             focal",
            "digits   5.10 ± 0.20    2.20 ± 0.26* ▼",
            "news    11.00 ± 1.00*  11.50 ± 1.32  △",
            "",
            "model = mlp, part = test, calibrator = none",
            "▲ ▼ higher, lower than ce: two-sample t-test, p < 0.05, not corrected for the number "
            "of "
            "cells",
            "△ ▽ higher, lower, not significant",
            "* best of the row",
        ]
    )


def test_color_is_bold_and_nothing_else() -> None:
    table = pivot(four(), rows="data", cols="objective", metric="ece")
    colored = table.to_text(color=True)
    assert "\x1b" not in table.to_text()
    assert re.findall("\x1b\\[1m(.*?)\x1b\\[0m", colored) == [" 2.20 ± 0.26", "11.00 ± 1.00"]
    assert body(re.sub("\x1b\\[[01]m", "", colored)) == [
        "data    ce            focal",
        "digits   5.10 ± 0.20   2.20 ± 0.26",
        "news    11.00 ± 1.00  11.50 ± 1.32",
    ]


def test_units_and_decimals() -> None:
    nll = table_of({"metric": "nll", "values": [1.0, 2.0]}, metric="nll")
    assert "1.5000 ± 0.7071" in str(nll)
    assert str(nll).startswith("NLL, mean ± std over 2 seeds; lower is better")
    assert "%" not in str(nll)
    accuracy = table_of({"metric": "accuracy", "values": [0.5, 0.6]}, metric="accuracy")
    assert str(accuracy).startswith("accuracy (%), mean ± std over 2 seeds; higher is better")
    assert "55.00 ± 7.07" in str(accuracy)


def test_one_seed_has_no_spread() -> None:
    table = table_of({"values": [0.05]}, {"objective": "focal", "values": [0.02]}, baseline="ce")
    assert str(table).startswith("ECE (%), one seed; lower is better")
    assert body(str(table)) == ["data    ce    focal", "digits  5.00  2.00* ▽"]
    assert math.isnan(table["digits", "focal"].p_value)
    assert table.to_csv().split("\n")[1:] == [
        '"digits","ce",0.05,,1',
        '"digits","focal",0.02,,1',
        "",
    ]


def test_missing_cells_and_unequal_counts() -> None:
    table = table_of(
        {"values": CE},
        {"objective": "focal", "values": FOCAL[:2]},
        {"data": "news", "values": [0.1]},
        baseline="focal",
    )
    assert "over n seeds" in table.title
    assert body(str(table)) == [
        "data    ce                    focal",
        "digits   5.10 ± 0.20 ▲ (n=3)  2.30 ± 0.28* (n=2)",
        "news    10.00          (n=1)     –",
    ]
    with pytest.raises(KeyError, match="no runs of news, focal"):
        _ = table["news", "focal"]
    missing = [record for record in table.to_dict()["cells"] if record["count"] == 0]
    assert [(record["data"], record["mean"]) for record in missing] == [("news", None)]


def test_undefined_and_infinite() -> None:
    table = table_of(
        {"values": [0.1, math.nan]},
        {"objective": "focal", "values": [0.2, None]},
        {"objective": "mse", "values": [0.3, math.inf]},
        {"objective": "brier", "values": [0.3, 0.3]},
        baseline="ce",
    )
    assert body(str(table))[1].split() == [
        "digits",
        "30.00",
        "±",
        "0.00*",
        "undefined",
        "undefined",
        "inf",
    ]
    assert not any(cell.mark for cell in table.cells.values())
    plain = json.dumps(table.to_dict(), allow_nan=False)
    assert '"mean": "inf"' in plain
    assert table.to_arrow()["mean"].null_count == 2


def test_negative_zero_is_zero() -> None:
    assert "-0" not in str(table_of({"metric": "skce", "values": [-1e-9, 0.0]}, metric="skce"))
    below = table_of({"metric": "skce", "values": [-0.5, -0.5]}, metric="skce")
    assert r"$-$0.5000 $\pm$ 0.0000" in below.to_latex()


# --- best cells and marks ---------------------------------------------------------------------


def best(table: ResultTable) -> set[tuple[Any, Any]]:
    return {(row[0], col[0]) for (row, col), cell in table.cells.items() if cell.best}


def test_best_by_row_by_column_or_not() -> None:
    options: dict[str, Any] = {"rows": "data", "cols": "objective", "metric": "ece"}
    assert best(pivot(four(), **options)) == {("digits", "focal"), ("news", "ce")}
    assert best(pivot(four(), **options, best="column")) == {("digits", "ce"), ("digits", "focal")}
    assert best(pivot(four(), **options, best=None)) == set()
    assert best(pivot(four(), **options, better="higher")) == {("digits", "ce"), ("news", "focal")}
    assert "* best of the column" in str(pivot(four(), **options, best="column"))


def test_best_is_shared_by_what_prints_alike_and_needs_a_rival() -> None:
    tied = table_of({"values": [0.02]}, {"objective": "focal", "values": [0.020001]})
    assert best(tied) == {("digits", "ce"), ("digits", "focal")}
    assert best(table_of({"values": [0.02]})) == set()
    assert "best" not in str(table_of({"values": [0.02]}))


def test_no_direction_no_best() -> None:
    groups = [
        {"metric": m, "objective": o, "values": [0.1 + (o == "ce"), 0.1]}
        for m in ("depth", "mean_confidence")
        for o in ("ce", "focal")
    ]
    for metric in ("depth", "mean_confidence"):
        table = table_of(*groups, metric=metric, baseline="ce")
        assert best(table) == set()
        assert table["digits", "focal"].mark == "▽"
        assert "better" not in table.title
    assert best(table_of(*groups, metric="depth", better="lower")) == {("digits", "focal")}
    assert table_of(*groups, metric="depth").title.startswith("depth, mean")


def plain_p_value(a: list[float], b: list[float]) -> float:
    """Student's two-sample test by its formula; SciPy's own warns where runs are equal."""
    dof = len(a) + len(b) - 2
    if dof == 0:
        return math.nan
    means = [math.fsum(x) / len(x) for x in (a, b)]
    squares = math.fsum((x - m) ** 2 for runs, m in zip((a, b), means, strict=True) for x in runs)
    error = math.sqrt(squares / dof * (1 / len(a) + 1 / len(b)))
    return 0.0 if error < 1e-15 else float(2 * stats.t.sf(abs(means[0] - means[1]) / error, dof))


values = st.lists(st.integers(1, 60).map(lambda x: x / 1000), min_size=1, max_size=5)


@settings(max_examples=60)
@given(values, values)
def test_marks_are_the_two_sample_t_test(a: list[float], b: list[float]) -> None:
    table = table_of({"values": a}, {"objective": "focal", "values": b}, baseline="ce")
    assert table["digits", "ce"].mark == ""
    mark = table["digits", "focal"].mark
    gap = math.fsum(b) / len(b) - math.fsum(a) / len(a)
    if abs(gap) < 1e-12:
        assert mark == ""
        return
    significant = plain_p_value(a, b) < 0.05
    assert mark == (("▲" if gap > 0 else "▼") if significant else ("△" if gap > 0 else "▽"))


def test_baseline_of_the_rows() -> None:
    table = pivot(
        four(), rows="data", cols="objective", metric="ece", baseline="digits", baseline_axis="rows"
    )
    assert [table["news", col].mark for col in ("ce", "focal")] == ["▲", "▲"]
    assert [table["digits", col].mark for col in ("ce", "focal")] == ["", ""]
    assert "than digits:" in str(table)


def test_alpha_of_the_test() -> None:
    groups = [{"values": [1.0, 2.0, 3.0]}, {"objective": "focal", "values": [3.0, 4.0, 5.0]}]
    for alpha, mark in ((0.05, "△"), (0.08, "▲")):  # p = 0.0705
        table = table_of(*groups, baseline="ce", alpha=alpha)
        assert table["digits", "focal"].mark == mark
        assert f"p < {alpha}" in str(table)
        assert table.to_dict()["alpha"] == alpha


# --- which rows are taken ---------------------------------------------------------------------


def test_several_names_on_an_axis() -> None:
    parts = [
        {"part": part, "calibrator": c, "values": [v]}
        for v, (part, c) in enumerate([("test", "none"), ("test", "ts"), ("shift", "none")])
    ]
    table = table_of(
        *parts, rows=["data", "model"], cols=["part", "calibrator"], baseline=("test", "none")
    )
    assert body(str(table)) == [
        "data    model  shift / none  test / none  test / ts",
        "digits  mlp    200.00 △      0.00*        100.00 △",
    ]
    assert table[("digits", "mlp"), ("test", "ts")].mean == 1
    assert table.fixed == {"objective": "ce"}
    assert table.to_arrow().column_names[:5] == ["metric", "data", "model", "part", "calibrator"]


@pytest.mark.parametrize("column", ["model", "part", "calibrator", "objective"])
def test_what_else_varies_is_refused(column: str) -> None:
    groups = [{"values": [0.1, 0.2]}, {column: "other", "values": [0.1, 0.2]}]
    others = {"rows": "data", "cols": "calibrator" if column != "calibrator" else "part"}
    with pytest.raises(InputError, match=rf"only seeds to average; got 2 values of '{column}'"):
        table_of(*groups, **others)
    fixed = table_of(*groups, **others, where={column: "other"})
    assert fixed.fixed[column] == "other"
    assert len(fixed.cells) == 1


def test_a_column_of_ones_own_is_refused_too() -> None:
    table = four().append_column("epoch", pa.array(range(len(four()))))
    with pytest.raises(InputError, match="12 values of 'epoch' \\(0, 1, 2, 3, …\\)"):
        pivot(table, rows="data", cols="objective", metric="ece")


def test_two_values_of_one_seed_are_refused() -> None:
    with pytest.raises(
        InputError, match="got two for digits / ce and seed 0 of the runs '0-0' and '1-0'"
    ):
        table_of({"values": [0.1, 0.2]}, {"values": [0.1, 0.2]})
    kept = table_of({"values": [0.1]}, {"values": [0.2]}, where={"run": "1-0"})
    assert kept["digits", "ce"].mean == 0.2
    same = tidy({"values": [0.1]})
    with pytest.raises(InputError, match=r"seed 0\. Drop"):
        pivot(pa.concat_tables([same, same]), rows="data", cols="objective", metric="ece")


def test_order() -> None:
    names = ["level 10", "level 9", "clean", None]
    groups = [{"part": name, "values": [0.1]} for name in names]
    table = table_of(*groups, rows="part")
    assert [key[0] for key in table.row_keys] == ["clean", "level 9", "level 10", None]
    chosen = ["level 10", None, "level 9"]
    table = table_of(*groups, rows="part", where={"part": chosen})
    assert [key[0] for key in table.row_keys] == chosen
    assert table_of(*groups, where={"part": None}).fixed["part"] is None
    assert sorted(["a" + "9" * 5000, "a1"], key=natural_order)[0] == "a1"


def test_seeds_as_rows_and_dictionary_columns() -> None:
    table = four()
    i = table.column_names.index("objective")
    table = table.set_column(i, "objective", table["objective"].dictionary_encode())
    found = pivot(table, rows="seed", cols="data", metric="ece", where={"objective": "ce"})
    assert [found[seed, "digits"].mean for seed in range(3)] == CE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ecee"}, "at least one row; got metric='ecee'. Did you mean 'ece'"),
        ({"metric": ["ece"]}, "metric must be one name"),
        ({"rows": "dat"}, "must have a column 'dat'. Did you mean 'data'"),
        ({"rows": []}, "rows must name columns"),
        ({"rows": "value"}, "rows must name columns"),
        ({"rows": ["data", "data"]}, "rows must name columns"),
        ({"cols": "data"}, "rows and cols must differ; got 'data' in both"),
        ({"where": {"data": "digit"}}, "got data='digit'. Did you mean 'digits'"),
        ({"where": {"seed": "0"}}, "of the type int64; got '0'. The column begins with [0, 1]"),
        ({"where": {"metric": "nll"}}, "must fix neither metric nor value"),
        ({"where": {"dta": "x"}}, "Did you mean 'data'"),
        ({"baseline": "CE"}, "baseline must be a value of the columns"),
        ({"baseline": "ce", "baseline_axis": "column"}, "baseline_axis must be 'cols' or 'rows'"),
        ({"spread": "sd"}, "spread must be 'std' or 'sem'"),
        ({"better": "up"}, "better must be"),
        ({"best": "col"}, "best must be 'row' or 'column'"),
        ({"alpha": 5}, "alpha must lie"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pivot(four(), **({"rows": "data", "cols": "objective", "metric": "ece"} | options))


def test_refused_tables() -> None:
    options: dict[str, Any] = {"rows": "data", "cols": "objective", "metric": "ece"}
    with pytest.raises(InputError, match=r"must be a pyarrow.Table; got dict"):
        pivot({"value": [1.0]}, **options)
    with pytest.raises(InputError, match="The table is empty"):
        pivot(SCHEMA.empty_table(), **options)
    with pytest.raises(InputError, match="must have a column 'seed'"):
        pivot(four().drop_columns("seed"), **options)
    texts = four().set_column(8, "value", four()["value"].cast(pa.string()))
    with pytest.raises(InputError, match="must hold numbers in 'value'; got string"):
        pivot(texts, **options)


# --- renderers --------------------------------------------------------------------------------

HOSTILE = [
    "a|b",
    "a_b",
    "R&D",
    "50%",
    "two\nlines",
    r"\input{x}",
    "$x^2$",
    "~#{}",
    "<b>",
    "[1]",
    "*x*",
    "`c`",
    "\x1b[31mred",
    "数字",
    'say "x, y"',
    "tab\there",
    "",
]


def hostile_table(names: list[str]) -> ResultTable:
    groups = [
        {"data": row, "objective": col, "values": [0.1 + i / 100, 0.2]}
        for i, row in enumerate(names)
        for col in ("ce", row + "!")
    ]
    return table_of(*groups, baseline="ce")


def test_latex_by_hand() -> None:
    groups = [
        {"data": "R&D_50%", "objective": o, "values": v} for o, v in (("ce", CE), ("f", FOCAL))
    ]
    latex = table_of(*groups, baseline="ce").to_latex()
    assert latex.split("\n")[:7] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"data & ce & f \\",
        r"\midrule",
        r"R\&D\_50\% & 5.10 $\pm$ 0.20 & \textbf{2.20 $\pm$ 0.26} $\blacktriangledown$ \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert latex.split("\n")[8].startswith(r"{\footnotesize ECE (\%), mean $\pm$ std over 3 seeds;")


def test_latex_escapes_every_name() -> None:
    latex = hostile_table(HOSTILE).to_latex()
    lines = latex.split("\n")
    for line in lines[4 : 4 + len(HOSTILE)]:
        assert line.endswith(r" \\")
        assert len(re.findall(r"(?<!\\)&", line)) == len(HOSTILE) + 1
        assert not line.startswith(("[", "*"))
        assert len(re.findall(r"(?<!\\)\{", line)) == len(re.findall(r"(?<!\\)\}", line))
        assert len(re.findall(r"(?<!\\)\$", line)) % 2 == 0
    for forbidden in (r"\input", "\x1b", "\t"):
        assert forbidden not in latex
    assert not re.search(r"(?<!\\)[%#_~^]", latex)
    assert r"\textbackslash{}input\{x\}" in latex


def test_markdown_by_hand() -> None:
    groups = [{"data": "a|b_c", "objective": o, "values": v} for o, v in (("ce", CE), ("f", FOCAL))]
    title, table, *notes = table_of(*groups, baseline="ce").to_markdown().split("\n\n")
    assert title == "ECE (%), mean ± std over 3 seeds; lower is better"
    assert table.split("\n") == [
        "| data | ce | f |",
        "| :--- | ---: | ---: |",
        r"| a\|b\_c | 5.10 ± 0.20 | **2.20 ± 0.26** ▼ |",
    ]
    assert notes[1].startswith("▲ ▼ higher, lower than ce: two-sample t-test")


@given(
    st.lists(st.text(max_size=8) | st.sampled_from(HOSTILE), min_size=1, max_size=4, unique=True)
)
def test_layouts_survive_any_name(names: list[str]) -> None:
    table = hostile_table(names)
    count = 1 + len(table.col_keys)
    for line in table.to_markdown().split("\n\n")[1].split("\n"):
        without_pairs = re.sub(r"\\.", "", line)
        assert without_pairs.count("|") == count + 1
    assert len(table.to_text().split("\n")) == 2 + 1 + len(names) + 1 + 4
    assert len(table.to_latex().split("\n")) == 4 + len(names) + 4
    records = list(csv.DictReader(io.StringIO(table.to_csv(), newline="")))
    found = {(r["data"], r["objective"]): (r["mean"], r["std"], r["count"]) for r in records}
    assert len(found) == len(names) * len(table.col_keys)
    for (row, col), cell in table.cells.items():
        mean, std, size = found[row[0], col[0]]
        assert (float(mean), float(std), int(size)) == (cell.mean, cell.spread, cell.count)


def at(line: str, word: str) -> int:
    """Where on the screen a word starts."""
    return cell_len(line[: line.index(word)])


@pytest.mark.parametrize("color", [False, True])
def test_text_columns_are_straight(color: bool) -> None:
    """Columns and spreads are aligned on the screen, also below wide letters."""
    groups = [
        {"data": row, "objective": col, "values": [first, 0.01 * i]}
        for i, row in enumerate(HOSTILE)
        for col, first in (("ce", 0.9), ("数字 focal", 0.001))
    ]
    text = table_of(*groups, baseline="ce").to_text(color=color)
    head, *lines = body(re.sub("\x1b\\[[01]m", "", text))
    labels = [re.sub(r"[\n\t\x1b]", " ", name) for name in HOSTILE]
    assert at(head, "ce") == max(map(cell_len, labels)) + 2
    assert len({at(line, " ± ") for line in lines}) == 1
    second = at(head, "数字")
    assert second >= at(lines[0], " ± ") + len(" ± 00.00") + 2
    for line in lines:
        assert at(line, " ± ") == at(head, "ce") + 5
        rest = line[line.index(" ± ") + 3 :]
        assert at(line, rest) + at(rest, " ± ") == second + 4  # means below 10 %
    assert {line[: line.index(" ± ") - 5].strip() for line in lines} == set(map(str.strip, labels))


def test_csv_and_arrow_are_unrounded_fractions() -> None:
    table = pivot(four(), rows="data", cols="objective", metric="ece", baseline="ce")
    head, first, *_ = table.to_csv().split("\n")
    cell = table["digits", "ce"]
    assert head == '"data","objective","mean","std","count"'
    assert first == f'"digits","ce",{cell.mean!r},{cell.spread!r},3'
    arrow = table.to_arrow()
    assert arrow.column_names == [
        "metric",
        "data",
        "objective",
        "mean",
        "std",
        "count",
        "best",
        "mark",
        "p_value",
    ]
    assert arrow["mean"].to_pylist() == [
        table[row, col].mean for row in ("digits", "news") for col in ("ce", "focal")
    ]
    assert arrow["p_value"].to_pylist()[0] is None
    assert arrow["mark"].to_pylist() == ["", "▼", "", "△"]


def test_dict_is_plain_data() -> None:
    table = pivot(four(), rows="data", cols="objective", metric="ece", baseline="ce")
    found = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert found["fixed"] == {"model": "mlp", "part": "test", "calibrator": "none"}
    assert (found["rows"], found["cols"], found["baseline"]) == (["data"], ["objective"], ["ce"])
    first = found["cells"][0]
    assert (first["data"], first["objective"], first["count"]) == ("digits", "ce", 3)
    assert first["p_value"] is None


def test_cells_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Cell(0.1, 0.1, 2).mean = 0.2  # type: ignore[misc]
