"""CSV files of predictions."""

from __future__ import annotations

from pathlib import Path

from calibrant._core.files import clear_errors
from calibrant._core.memory import check_size
from calibrant.io._arrow import arrow_table, table_arrays
from calibrant.io._columns import STREAM_ADVICE, Columns, with_header

CSV_PREFIX = "# calibrant "


def read_csv(path: Path) -> Columns:
    from pyarrow import csv

    with path.open("rb") as stream:
        first = stream.readline(1 << 24)
    header = first[len(CSV_PREFIX) :] if first.startswith(CSV_PREFIX.encode()) else None
    with clear_errors(path, "csv"):
        check_size(_csv_needs(path), path.name, STREAM_ADVICE)
        options = csv.ReadOptions(skip_rows=0 if header is None else 1)
        table = csv.read_csv(path, read_options=options)
        return with_header(path, table_arrays(table, path.name), header)


def _csv_needs(path: Path) -> int:
    """Bytes of the text, and twice 8 of each value in it: as it is read, and as an array."""
    values = 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 24):
            values += piece.count(b",") + piece.count(b"\n")
    return path.stat().st_size + 16 * values


def write_csv(path: Path, columns: Columns) -> None:
    from pyarrow import csv

    header = columns.header()
    with path.open("wb") as stream:
        if header is not None:
            stream.write(f"{CSV_PREFIX}{header}\n".encode())
        csv.write_csv(arrow_table(columns), stream)
