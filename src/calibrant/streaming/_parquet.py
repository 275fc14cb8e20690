"""Parquet files larger than memory, read batch by batch."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from calibrant import io
from calibrant._core.checks import (
    InputError,
    refuse,
)
from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant._scores import Scores
from calibrant.predictions import Predictions

# Values of a batch read from Parquet: large enough to keep the threads busy, small enough that the
# few batches in flight stay far below a gigabyte.
BATCH_ELEMENTS = 1_000_000
LEAST_BATCH, MOST_ELEMENTS = 1024, 16 * BATCH_ELEMENTS  # the second wins
BYTES_PER_VALUE = 24  # of a batch as it is read, put into one array and counted
# Bytes read ahead in each column. Without this a whole row group would be held.
READ_AHEAD = 1 << 16


@dataclass(frozen=True)
class ParquetShards:
    """Predictions in Parquet files that may be larger than memory, read batch by batch.

    ``classes`` are the class names of the files; ``meta`` is the metadata they have in common.
    """

    files: tuple[Path, ...]
    num_rows: int
    row_values: int
    labelled: bool
    classes: tuple[str, ...] | None
    meta: Mapping[str, Any]

    @classmethod
    def open(cls, paths: Sequence[str | Path]) -> Self:
        """Read the columns and metadata of all files; reject files without predictions."""
        import pyarrow.parquet as pq

        files = tuple(Path(path) for path in paths)
        rows = values = 0
        schemas = []
        for file in files:
            check_regular(file)
            with clear_errors(file, "parquet", *_arrow_errors()), pq.ParquetFile(file) as opened:
                io.check_columns(opened.schema_arrow, file.name)
                schemas.append(opened.schema_arrow)
                rows += opened.metadata.num_rows
                values += _num_values(opened.metadata)
        if not rows:
            raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
        _check_alike(files, schemas)
        _check_scores(schemas[0].names)
        classes, meta = _common_header(files, schemas)
        labelled = bool({"label", "labels"} & set(schemas[0].names))
        width = max(values // rows, len(schemas[0].names))  # where a file lies, too
        return cls(files, rows, width, labelled, classes, meta)

    def batches(self) -> Iterator[Scores]:
        """Yield the rows in order: predictions, or scores where there are no labels."""
        import pyarrow.parquet as pq

        least = min(LEAST_BATCH, MOST_ELEMENTS // self.row_values)
        size = max(1, least, BATCH_ELEMENTS // self.row_values)
        check_size(size * self.row_values * BYTES_PER_VALUE, f"a batch of {size:,} rows")
        for file in self.files:
            start = 0
            with clear_errors(file, "parquet", *_arrow_errors()):
                opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_AHEAD)
            with opened:
                for batch in _clearly(opened.iter_batches(batch_size=size), file):
                    if batch.num_rows:
                        yield self._record(batch, file, start)
                        start += batch.num_rows

    def _record(self, batch: Any, file: Path, start: int) -> Scores:
        with clear_errors(file, "parquet", *_arrow_errors()):
            arrays = io.table_arrays(batch, file.name)
        kind = Predictions if "labels" in arrays else Scores
        try:
            return kind(**arrays, classes=self.classes, meta=self.meta)
        except InputError as error:
            raise InputError(f"{file.name}, counted from row {start:,}: {error}") from error


def parquet_files(patterns: Sequence[str], argument: str = "PATHS") -> list[str]:
    """Files of names, folders and patterns: in the order given, sorted within each."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found |= dict.fromkeys(sorted(_expand(pattern, argument)))
    return list(found)


def _expand(pattern: str, argument: str) -> list[str]:
    if Path(pattern).is_file():  # also names with brackets
        return [pattern]
    if Path(pattern).is_dir():
        pattern = str(Path(pattern) / "*.parquet")
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not found:
        rule, advice = "must match Parquet files", "Quote the pattern and check the folder."
        raise refuse(argument, rule, f"got no file for {pattern!r}", advice)
    return found


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException,)


def _clearly(batches: Iterator[Any], file: Path) -> Iterator[Any]:
    """The same batches; only errors of reading them are renamed, not those of their user."""
    while True:
        with clear_errors(file, "parquet", *_arrow_errors()):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _num_values(metadata: Any) -> int:
    """Values in a file; a list column has as many as its lists hold."""
    groups = (metadata.row_group(k) for k in range(metadata.num_row_groups))
    return sum(group.column(k).num_values for group in groups for k in range(group.num_columns))


def _check_alike(files: Sequence[Path], schemas: Sequence[Any]) -> None:
    """Refuse shards whose columns or types differ."""
    kinds = [sorted(zip(s.names, map(str, s.types), strict=True)) for s in schemas]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise _unlike(files[0], file)


def _unlike(first: Path, other: Path) -> InputError:
    rule = f"must all have the columns, types and class names of {first.name}"
    return refuse("paths", rule, f"got others in {other.name}", "Fix that shard.")


def _check_scores(names: Sequence[str]) -> None:
    if "confidence" in names:
        rule, advice = "must hold logits or probs", "Measure confidences from one file."
        raise refuse("paths", rule, "got confidence columns", advice)


def _common_header(
    files: Sequence[Path], schemas: Sequence[Any]
) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names, which must agree, and the metadata that is the same in all files."""
    headers = [io.parquet_header(file, schema) for file, schema in zip(files, schemas, strict=True)]
    classes, meta = headers[0]
    for file, (names, other) in zip(files, headers, strict=True):
        if names != classes:
            raise _unlike(files[0], file)
        meta = {key: value for key, value in meta.items() if key in other and other[key] == value}
    return classes, meta
