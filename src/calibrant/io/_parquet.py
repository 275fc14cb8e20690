"""Parquet files of predictions: whole, or written piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant.io._arrow import arrow_table, check_columns, is_text, table_arrays
from calibrant.io._columns import META_KEY, STREAM_ADVICE, Columns, with_header

if TYPE_CHECKING:
    import pyarrow as pa

# Values of a row group written piece by piece: the footer stays small, and so does what is held.
ROW_GROUP_ELEMENTS = 1 << 24
# Scores hardly repeat: a dictionary of them makes files half as large again and writing slow.
PARQUET_OPTIONS: dict[str, Any] = {"use_dictionary": False}


def read_parquet_columns(path: Path) -> Columns:
    with clear_errors(path, "parquet"):
        table = read_parquet(path, check_columns)
        header = (table.schema.metadata or {}).get(META_KEY.encode())
        return with_header(path, table_arrays(table, path.name), header)


def read_parquet(path: Path, check: Callable[[pa.Schema, str], None]) -> pa.Table:
    """A whole Parquet file whose columns ``check`` accepts, if it fits into memory.

    Strings are read as codes into a list of the different ones: written that way, a few bytes of
    a file can stand for gigabytes.
    """
    import pyarrow.parquet as pq

    check_regular(path)
    with pq.ParquetFile(path) as file:
        check(file.schema_arrow, path.name)
        check_size(parquet_needs(file.metadata), path.name, STREAM_ADVICE)
        texts = [field.name for field in file.schema_arrow if is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        return file.read()


def parquet_needs(metadata: Any) -> int:
    """Bytes that the values of a Parquet file take as they are read and as arrays.

    A run of equal values takes no room in a file, so the number of values counts, not their bytes.
    """
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
    values = sum(c.num_values * widths.get(c.physical_type, 8) for c in chunks)
    return int(2 * values + sum(max(c.total_uncompressed_size, 0) for c in chunks))


def write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(columns), path, **PARQUET_OPTIONS)


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[Columns], None]]:
    """Write one file piece by piece. Pieces are gathered into row groups of useful size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None
    pieces: list[Any] = []

    def flush() -> None:
        nonlocal writer
        if pieces:
            writer = writer or pq.ParquetWriter(path, pieces[0].schema, **PARQUET_OPTIONS)
            writer.write_table(pa.concat_tables(pieces))
            pieces.clear()

    def add(columns: Columns) -> None:
        pieces.append(arrow_table(columns))
        if sum(piece.num_rows * piece.num_columns for piece in pieces) >= ROW_GROUP_ELEMENTS:
            flush()

    try:
        yield add
        flush()
    finally:
        if writer is not None:
            writer.close()


def parquet_header(path: Path, schema: Any) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names and metadata of a Parquet file."""
    header = (schema.metadata or {}).get(META_KEY.encode())
    columns = with_header(path, {}, header)
    return columns.classes, columns.meta
