"""Options that say how files are read, the same for every command that reads predictions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from calibrant.cli._option_groups import OptionGroup, Values

PANEL = "How files are read"


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=PANEL)


OPTIONS: dict[str, tuple[Any, Any]] = {
    "label_column": (str | None, _option("Name of the column with the labels.")),
    "prob_columns": (
        str | None,
        _option("Names or pattern of the probability columns, for example 'p_*'."),
    ),
    "logit_columns": (str | None, _option("Names or pattern of the logit columns.")),
    "confidence_column": (str | None, _option("Name of the column with confidences.")),
    "correct_column": (
        str | None,
        _option("Name of the column that says whether predictions were correct."),
    ),
    "cluster_column": (
        str | None,
        _option("Name of the column with clusters, such as patients: samples that go together."),
    ),
    "group_columns": (
        list[str] | None,
        _option("Name of a column with groups, for --by. Repeatable.", "--group-column"),
    ),
    "classes": (
        str | None,
        _option("Class names in the order of the columns, separated by commas."),
    ),
    "separator": (str | None, _option("Separator of a CSV file; default: a comma.")),
    "decimal": (str | None, _option("Decimal mark of a CSV file; default: a point.")),
    "percent": (bool, _option("Probabilities in per cent: 85 instead of 0.85.", "--percent")),
    "renormalise": (
        bool,
        _option("Rounded probabilities are divided by their sum.", "--renormalise"),
    ),
    "strict": (bool, _option("Error if a file has columns that are not used.", "--strict")),
    "skip_unparsable": (
        bool,
        _option(
            "Rows without a readable confidence are left out and counted.", "--skip-unparsable"
        ),
    ),
    "normalise": (
        str | None,
        _option("Normalisation of lm-eval log-likelihoods: raw, token or byte; default: raw."),
    ),
    "scorer": (str | None, _option("Name of the scorer in an Inspect log.")),
    "ignore_index": (int | None, _option("Label of samples to leave out, for example 255.")),
    "i_mean_it": (
        bool,
        _option("No warning where logits look like probabilities.", "--i-mean-it"),
    ),
}


def _given(values: Values) -> Values:
    layout = {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []  # 0 is a label
    }
    if "separator" in layout:
        layout["separator"] = layout["separator"].replace("\\t", "\t")
    return layout


reads_files = OptionGroup(
    "layout",
    {
        name: (Annotated[kind, option], False if kind is bool else None)
        for name, (kind, option) in OPTIONS.items()
    },
    _given,
)
