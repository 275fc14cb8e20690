"""Files of results: a tidy table, facts about it, and a checksum of the whole file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calibrant._core.checks import InputError
from calibrant._core.files import check_regular, write_bytes
from calibrant._core.memory import check_size
from calibrant.io import is_text, parquet_needs
from calibrant.io._plain_arrays import plain_array

COLUMNS = ("run", "data", "model", "objective", "seed", "part", "calibrator", "metric", "value")
NUMBERS: dict[str, pa.DataType] = {"seed": pa.int64(), "value": pa.float64()}
STRINGS = [name for name in COLUMNS if name not in NUMBERS]
SCHEMA = pa.schema([(name, NUMBERS.get(name, pa.string())) for name in COLUMNS])
CHECKSUM = "checksum"
MARK, BLANK = b"sha256 of this file with zeros here: ", b"0" * 64
BYTES_PER_ROW = 2_000  # of a row of the table as Python objects, which the tables are made from
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


@dataclass(frozen=True)
class Sealed:
    """The contents of a file that agree with the checksum it holds."""

    content: bytes
    digest: str

    @cached_property
    def facts(self) -> dict[str, str]:
        """The metadata of the file; empty if it cannot be read."""
        try:
            held = pq.read_metadata(pa.BufferReader(self.content)).metadata or {}
            return {key.decode(): value.decode() for key, value in held.items()}
        except READ_ERRORS:
            return {}


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The rows of a run as a table."""
    columns = [
        plain_array([row.get(name) for row in rows], SCHEMA.field(name).type) for name in COLUMNS
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def rows_file(table: pa.Table, facts: Mapping[str, str]) -> bytes:
    """A table and facts as the contents of a file, with room for the checksum."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, SCHEMA, compression="zstd", store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({**facts, CHECKSUM: (MARK + BLANK).decode()})
    return bytes(sink.getvalue().to_pybytes())


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file with its own checksum in the place kept for it."""
    digest = hashlib.sha256(content).hexdigest().encode()
    before, _, after = content.rpartition(MARK + BLANK)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, before + MARK + digest + after)


def read_sealed(path: Path) -> Sealed | None:
    """The contents of a file; None if it is missing or does not match its checksum.

    This comes before any parsing, so that damage of any kind never becomes a value.
    """
    try:
        check_regular(path)
        check_size(path.stat().st_size, path.name)
        content = path.read_bytes()
    except (OSError, InputError):
        return None
    before, mark, rest = content.rpartition(MARK)
    digest, after = rest[: len(BLANK)], rest[len(BLANK) :]
    expected = hashlib.sha256(before + mark + BLANK + after).hexdigest()
    return Sealed(content, expected) if mark and digest == expected.encode() else None


def read_rows(path: Path, sealed: Sealed) -> pa.Table | None:
    """The rows of a file; None if they are not results of runs.

    Strings are read as codes into a list of the different ones: written that way, a few bytes of
    a file can stand for gigabytes.
    """
    try:
        source = pa.BufferReader(sealed.content)
        with pq.ParquetFile(source, read_dictionary=STRINGS) as file:
            _check_columns(file.schema_arrow, path.name)
            check_size(parquet_needs(file.metadata), path.name)
            return _plain(file.read(list(COLUMNS), use_threads=False))
    except READ_ERRORS:
        return None


def _check_columns(schema: pa.Schema, where: str) -> None:
    """Refuse a file that is not of a finished run."""
    kinds = {name: schema.field(name).type for name in COLUMNS if name in schema.names}
    wrong = [
        name
        for name in COLUMNS
        if name not in kinds
        or not (kinds[name] == NUMBERS.get(name) or is_text(kinds[name]))
        or schema.names.count(name) > 1
    ]
    if wrong:
        raise InputError(f"{where} has no valid column {wrong[0]!r}.")


def _plain(table: pa.Table) -> pa.Table:
    """The columns of a run as plain strings and numbers, if they fit into memory."""
    if any(column.null_count for column in table.columns):
        raise InputError("A run has missing values.")
    needed = table.num_rows * BYTES_PER_ROW
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            chunks: list[Any] = column.chunks
            lengths = [pc.binary_length(c.dictionary).take(c.indices) for c in chunks]
            needed += sum(pc.sum(found).as_py() or 0 for found in lengths)
    check_size(needed, "a run")
    return table.cast(SCHEMA)
