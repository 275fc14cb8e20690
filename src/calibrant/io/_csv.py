"""CSV files of predictions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from calibrant._core.checks import refuse
from calibrant._core.files import clear_errors
from calibrant._core.memory import check_size
from calibrant.io._arrow import arrow_table, table_columns
from calibrant.io._columns import STREAM_ADVICE, Columns, with_header
from calibrant.io._layout import Layout, check_width
from calibrant.io._text import opened_text, text_pieces

CSV_PREFIX = "# calibrant "
LONGEST_LINE = 1 << 24
# Other separators, and how they are called.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_csv(path: Path, layout: Layout) -> Columns:
    """Predictions of a CSV file."""
    from pyarrow import csv

    with clear_errors(path, "csv"), opened_text(path) as stream:
        first = stream.readline(LONGEST_LINE)
        header = first[len(CSV_PREFIX) :] if first.startswith(CSV_PREFIX.encode()) else None
        names = first if header is None else stream.readline(LONGEST_LINE)
        _check_separator(names, path.name, layout.separator)
        check_width(names.count(layout.separator.encode()) + 1, path.name)
        _check_needs(stream, path, layout.separator)
        table = csv.read_csv(
            stream,
            read_options=csv.ReadOptions(skip_rows=0 if header is None else 1),
            parse_options=csv.ParseOptions(delimiter=layout.separator),
            convert_options=csv.ConvertOptions(decimal_point=layout.decimal),
        )
        return with_header(path, table_columns(table, path.name, layout), header)


def read_tsv(path: Path, layout: Layout) -> Columns:
    """Predictions of a file whose columns are separated by tabs."""
    return read_csv(path, replace(layout, separator="\t"))


def _check_separator(line: bytes, where: str, separator: str) -> None:
    """Recognise a file whose columns are separated by something else."""
    if separator.encode() in line:
        return
    other = next((sign for sign in SEPARATORS if sign.encode() in line), None)
    if other is not None and other != separator:
        rule = f"must have its columns separated by {separator!r}"
        shown = "'\\t'" if other == "\t" else f"'{other}'"
        advice = f"Add separator={shown}; where decimals have a comma, also decimal=','."
        raise refuse(where, rule, f"got {SEPARATORS[other]}", advice)


def _check_needs(stream: BinaryIO, path: Path, separator: str) -> None:
    """Compare with memory: bytes of the text, plus 16 per value: 8 as read, 8 in an array."""
    needed = 0
    for piece in text_pieces(stream, path):
        values = piece.count(separator.encode()) + piece.count(b"\n")
        needed += len(piece) + 16 * values
        check_size(needed, path.name, STREAM_ADVICE)


def write_csv(path: Path, columns: Columns) -> None:
    from pyarrow import csv

    header = columns.header()
    with path.open("wb") as stream:
        if header is not None:
            stream.write(f"{CSV_PREFIX}{header}\n".encode())
        csv.write_csv(arrow_table(columns), stream)
