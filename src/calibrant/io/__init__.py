"""Reading and writing predictions: one module per format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrant._core.checks import refuse
from calibrant._core.files import check_regular, replacing
from calibrant.io._arrow import check_columns, is_list, is_text, table_columns
from calibrant.io._columns import ARRAY_NAMES, FILE_NOTES, Columns, hint
from calibrant.io._csv import read_csv, read_tsv, write_csv
from calibrant.io._inspect import read_eval, read_json
from calibrant.io._layout import Layout, Plan, plan_columns
from calibrant.io._logs import is_pattern, read_jsonl
from calibrant.io._npy import read_array, read_npy, read_npy_alone, read_npy_pair
from calibrant.io._npz import read_arrays, read_npz, write_npz
from calibrant.io._parquet import (
    PARQUET_OPTIONS,
    parquet_chunks,
    parquet_header,
    parquet_needs,
    parquet_writer,
    read_parquet,
    read_parquet_columns,
    write_parquet,
)
from calibrant.io._remote import RemoteFile, is_url, local_copy, remote_files
from calibrant.io._safetensors import read_safetensors, write_safetensors
from calibrant.io._text import GZIP

__all__ = [
    "ARRAY_NAMES",
    "FILE_NOTES",
    "PARQUET_OPTIONS",
    "Columns",
    "Layout",
    "Plan",
    "RemoteFile",
    "check_columns",
    "hint",
    "is_list",
    "is_text",
    "is_url",
    "parquet_chunks",
    "parquet_header",
    "parquet_needs",
    "parquet_writer",
    "plan_columns",
    "read",
    "read_array",
    "read_arrays",
    "read_npy",
    "read_parquet",
    "remote_files",
    "table_columns",
    "write",
    "writer_for",
]

READERS: dict[str, Callable[[Path, Layout], Columns]] = {
    ".npz": read_npz,
    ".parquet": read_parquet_columns,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".eval": read_eval,
    ".safetensors": read_safetensors,
    ".npy": read_npy_pair,
}
PACKED = (".csv", ".tsv", ".jsonl", ".json")
WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".npz": write_npz,
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".safetensors": write_safetensors,
}


def read(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    need_labels: bool = True,
    layout: Layout | None = None,
) -> Columns:
    """Read any supported file, local or by URL; ``labels`` is the second file of a npy pair."""
    if is_url(path):
        with local_copy(str(path)) as place:
            return read(place, labels, need_labels=need_labels, layout=layout)
    path, layout = Path(path), layout or Layout()
    reader: Callable[[Path, Layout], Columns] = _choose(_unpacked(path), READERS)
    if reader is read_jsonl and is_pattern(path):
        return read_jsonl(path, layout)
    check_regular(path)
    if labels is None and not need_labels and reader is read_npy_pair:
        return read_npy_alone(path, layout)
    if labels is None:
        return reader(path, layout)
    if path.suffix.lower() != ".npy":
        rule = "belongs to a .npy file"
        raise refuse("labels", rule, f"got {path.name}", "Leave it out: this file contains labels.")
    return read_npy_pair(path, layout, Path(labels))


def _unpacked(path: Path) -> Path:
    """The path without the ending of a compressed text file."""
    inner = path.with_suffix("")
    packed = path.suffix.lower() == GZIP and inner.suffix.lower() in PACKED
    return inner if packed else path


def write(path: str | Path, columns: Columns) -> None:
    """Write a file in the format of its extension."""
    writer = writer_for(path)
    with replacing(path) as temporary:
        writer(temporary, columns)


def writer_for(path: str | Path, argument: str = "path") -> Callable[[Path, Columns], None]:
    """The writer for files with this extension."""
    writer: Callable[[Path, Columns], None] = _choose(Path(path), WRITERS, argument)
    return writer


def _choose(path: Path, table: dict[str, Any], argument: str = "path") -> Any:
    try:
        return table[path.suffix.lower()]
    except KeyError:
        known = ", ".join(table)
        rule = f"must end in {known}"
        got, advice = f"got {path.name!r}", "Choose one of these endings."
        if table is READERS:
            advice = "Convert or rename the file."
        if path.is_dir():
            got, advice = f"{got}, a folder", "Name a file in it."
        raise refuse(argument, rule, got, advice) from None
