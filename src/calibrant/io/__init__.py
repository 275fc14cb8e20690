"""Reading and writing predictions: one module per format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrant._core.checks import refuse
from calibrant._core.files import check_regular, replacing
from calibrant.io._arrow import check_columns, is_list, is_text, table_arrays
from calibrant.io._columns import ARRAY_NAMES, Columns
from calibrant.io._csv import read_csv, write_csv
from calibrant.io._npy import read_array, read_npy, read_npy_alone, read_npy_pair
from calibrant.io._npz import read_arrays, read_npz, write_npz
from calibrant.io._parquet import (
    PARQUET_OPTIONS,
    parquet_header,
    parquet_needs,
    parquet_writer,
    read_parquet,
    read_parquet_columns,
    write_parquet,
)
from calibrant.io._safetensors import read_safetensors, write_safetensors

__all__ = [
    "ARRAY_NAMES",
    "PARQUET_OPTIONS",
    "Columns",
    "check_columns",
    "is_list",
    "is_text",
    "parquet_header",
    "parquet_needs",
    "parquet_writer",
    "read",
    "read_array",
    "read_arrays",
    "read_npy",
    "read_parquet",
    "table_arrays",
    "write",
    "writer_for",
]

READERS: dict[str, Callable[[Path], Columns]] = {
    ".npz": read_npz,
    ".parquet": read_parquet_columns,
    ".csv": read_csv,
    ".safetensors": read_safetensors,
    ".npy": read_npy_pair,
}
WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".npz": write_npz,
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".safetensors": write_safetensors,
}


def read(
    path: str | Path, labels: str | Path | None = None, *, need_labels: bool = True
) -> Columns:
    """Read any supported file; ``labels`` names the second file of a npy pair."""
    path = Path(path)
    reader: Callable[[Path], Columns] = _choose(path, READERS)
    check_regular(path)
    if labels is None and not need_labels and reader is read_npy_pair:
        return read_npy_alone(path)
    if labels is None:
        return reader(path)
    if path.suffix.lower() != ".npy":
        rule = "belongs to a .npy file"
        raise refuse("labels", rule, f"got {path.name}", "Leave it out: this file contains labels.")
    return read_npy_pair(path, Path(labels))


def write(path: str | Path, columns: Columns) -> None:
    """Write a file in the format of its extension."""
    writer = writer_for(path)
    with replacing(path) as temporary:
        writer(temporary, columns)


def writer_for(path: str | Path) -> Callable[[Path, Columns], None]:
    """The writer for files with this extension."""
    writer: Callable[[Path, Columns], None] = _choose(Path(path), WRITERS)
    return writer


def _choose(path: Path, table: dict[str, Any]) -> Any:
    try:
        return table[path.suffix.lower()]
    except KeyError:
        known = ", ".join(table)
        rule = f"must end in {known}"
        raise refuse("path", rule, f"got {path.name!r}", "Convert or rename the file.") from None
