"""Parquet files of predictions: whole, or written piece by piece."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant.io._arrow import arrow_table, check_columns, is_text, table_columns
from calibrant.io._columns import META_KEY, STREAM_ADVICE, Columns, with_header
from calibrant.io._layout import Layout, plan_columns

if TYPE_CHECKING:
    import pyarrow as pa

# Values per row group when writing piece by piece: keeps the footer and the buffers small.
ROW_GROUP_ELEMENTS = 1 << 24
# Scores rarely repeat: dictionary encoding would make files 50 % larger and writing slow.
PARQUET_OPTIONS: dict[str, Any] = {"use_dictionary": False}


def read_parquet_columns(path: Path, layout: Layout) -> Columns:
    ignored: tuple[str, ...] = ()

    def chosen(schema: pa.Schema, where: str) -> list[str]:
        nonlocal ignored
        plan = plan_columns(schema.names, where, layout)
        ignored = plan.ignored
        check_columns(schema, where, plan.becomes)
        return plan.used

    with clear_errors(path, "parquet"):
        table = read_parquet(path, chosen)
        header = (table.schema.metadata or {}).get(META_KEY.encode())
        columns = table_columns(table, path.name, layout)
        return with_header(path, replace(columns, ignored=ignored), header)


def read_parquet(path: Path, check: Callable[[pa.Schema, str], Sequence[str] | None]) -> pa.Table:
    """A whole Parquet file whose columns ``check`` accepts, if it fits into memory.

    Where ``check`` names columns, only those are read.

    Strings are read as codes into a list of the different ones: written that way, a few bytes of
    a file can stand for gigabytes.
    """
    import pyarrow.parquet as pq

    check_regular(path)
    with pq.ParquetFile(path) as file:
        used = check(file.schema_arrow, path.name)
        check_size(parquet_needs(file.metadata, used), path.name, STREAM_ADVICE)
        texts = [field.name for field in file.schema_arrow if is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        return file.read(columns=used)


def parquet_needs(metadata: Any, used: Sequence[str] | None = None) -> int:
    """Bytes that the values of a Parquet file take as they are read and as arrays.

    A run of equal values takes no room in a file, so the number of values counts, not their bytes.
    """
    chunks = parquet_chunks(metadata, used)
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}
    values = sum(c.num_values * widths.get(c.physical_type, 8) for c in chunks)
    return int(2 * values + sum(max(c.total_uncompressed_size, 0) for c in chunks))


def parquet_chunks(metadata: Any, used: Sequence[str] | None = None) -> list[Any]:
    """What a Parquet file says about each column that is ``used``, of each row group.

    PyArrow ends the process, without an exception, if it is asked for a chunk whose statistics do
    not fit the schema. Before it reads it checks the same chunks and raises an exception, so it is
    first told to read a file from which nothing can be read.
    """
    import pyarrow.parquet as pq

    nothing = _NoData()
    try:
        with pq.ParquetFile(nothing, metadata=metadata, pre_buffer=True) as file:
            file.read(use_threads=False)
    except OSError:
        if not nothing.was_read:
            raise
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    names = None if used is None else set(used)
    return [c for c in chunks if names is None or c.path_in_schema.split(".")[0] in names]


class _NoData(io.RawIOBase):
    """A file of any size that ends wherever it is read.

    Its ``read`` raises nothing: PyArrow would keep the exception, and with it all that its
    traceback refers to, for as long as the process runs.
    """

    SIZE = 1 << 62

    def __init__(self) -> None:
        self._place = 0
        self.was_read = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.SIZE}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, _size: int = -1, /) -> bytes:
        self.was_read = True
        return b""


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
    columns = with_header(path, Columns({}), header)
    return columns.classes, columns.meta
