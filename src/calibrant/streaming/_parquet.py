"""Parquet files larger than memory, read batch by batch."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from calibrant import io
from calibrant._core.belonging import groupings
from calibrant._core.checks import (
    InputError,
    refuse,
)
from calibrant._core.files import check_regular, clear_errors
from calibrant._core.memory import check_size
from calibrant._core.options import check_option_names
from calibrant._scores import Scores
from calibrant.predictions import Predictions

# Values of a batch read from Parquet: large enough to keep the threads busy and that little of the
# time goes into Python, small enough that the few batches in flight stay far below a gigabyte.
BATCH_ELEMENTS = 2_000_000
LEAST_BATCH, MOST_ELEMENTS = 1024, 16_000_000  # the second wins
BYTES_PER_VALUE = 24  # copies of a batch: as read, as one array, and while it is counted
# Bytes read ahead in each column. Without this a whole row group would be held.
READ_AHEAD = 1 << 16
# Options of ``calibrant.load`` that streams have, too.
STREAM_OPTIONS = (
    "label_column",
    "prob_columns",
    "logit_columns",
    "cluster_column",
    "group_columns",
    "classes",
    "percent",
    "renormalise",
    "strict",
)

File = Path | io.RemoteFile


def stream_layout(options: Mapping[str, Any]) -> io.Layout:
    """What the columns of a stream mean, from options by name."""
    check_option_names("A stream", options, STREAM_OPTIONS)
    return io.Layout.of(options)


@dataclass(frozen=True)
class ParquetShards:
    """Predictions in Parquet files that may be larger than memory, read batch by batch.

    ``classes`` are the class names of the files; ``meta`` is the metadata they have in common;
    ``columns`` are the names and types of the columns that are read, ``ignored`` the names of the
    others in the first file, ``groups`` the groupings. ``layout`` says which column is what.
    """

    files: tuple[File, ...]
    num_rows: int
    row_values: int
    labelled: bool
    classes: tuple[str, ...] | None
    meta: Mapping[str, Any]
    columns: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    groups: tuple[str, ...]
    layout: io.Layout

    @classmethod
    def open(
        cls,
        paths: Sequence[str | Path],
        *,
        layout: io.Layout | None = None,
        may_be_empty: bool = False,
    ) -> Self:
        """Read the columns and metadata of all files; reject files without predictions."""
        import pyarrow.parquet as pq

        files, layout = tuple(_located(path) for path in paths), layout or io.Layout()
        rows = values = 0
        schemas, plans = [], []
        for file in files:
            with (
                clear_errors(file.name, "parquet", *_arrow_errors()),
                _readable(file) as source,
                pq.ParquetFile(source) as opened,
            ):
                schema = opened.schema_arrow
                plan = io.plan_columns(schema.names, file.name, layout)
                io.check_columns(schema, file.name, plan.becomes)
                _check_kind(plan)
                schemas.append(schema)
                plans.append(plan)
                rows += opened.metadata.num_rows
                values += _num_values(opened.metadata, plan.used)
        if not (rows or may_be_empty):
            raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
        columns = [_columns(schema, plan) for schema, plan in zip(schemas, plans, strict=True)]
        _check_alike(files, columns)
        classes, meta = _common_header(files, schemas)
        first = plans[0]
        return cls(
            files,
            num_rows=rows,
            row_values=max(values // max(rows, 1), len(first.used)),  # paths differ between files
            labelled="labels" in first.becomes.values(),
            classes=layout.classes or first.classes or classes,
            meta=meta,
            columns=columns[0],
            ignored=first.ignored,
            groups=tuple(groupings(first.becomes.values())),
            layout=layout,
        )

    def batches(self) -> Iterator[Scores]:
        """Yield the rows in order: predictions, or scores where there are no labels."""
        import pyarrow.parquet as pq

        least = min(LEAST_BATCH, MOST_ELEMENTS // self.row_values)
        size = max(1, least, BATCH_ELEMENTS // self.row_values)
        check_size(size * self.row_values * BYTES_PER_VALUE, f"a batch of {size:,} rows")
        used = [name for name, _ in self.columns]
        for file in self.files:
            start = 0
            with _readable(file) as source:
                with clear_errors(file.name, "parquet", *_arrow_errors()):
                    opened = pq.ParquetFile(source, **_reading(file))
                with opened:
                    found = opened.iter_batches(batch_size=size, columns=used)
                    for batch in _clearly(found, file):
                        if batch.num_rows:
                            yield self._record(batch, file, start)
                            start += batch.num_rows

    def _record(self, batch: Any, file: File, start: int) -> Scores:
        with clear_errors(file.name, "parquet", *_arrow_errors()):
            arrays = io.table_columns(batch, file.name, self.layout).arrays
        labelled = "labels" in arrays
        names = ("logits", "probs", *(("labels",) if labelled else ()))
        arguments = io.Columns(arrays).arguments(Path(file.name), names, belonging=labelled)
        kind = Predictions if labelled else Scores
        try:
            return kind(**arguments, classes=self.classes, meta=self.meta)
        except InputError as error:
            raise InputError(f"{file.name}, counted from row {start:,}: {error}") from error


def predictions_of(batch: Any, layout: io.Layout) -> Predictions:
    """The predictions in the columns of an Arrow table or record batch."""
    columns = io.table_columns(batch, "batch", layout)
    if "labels" not in columns.arrays:
        raise without_labels("batches")
    arguments = columns.arguments(Path("batch"), ("logits", "probs", "labels"))
    return Predictions(**arguments, classes=columns.classes)


def without_labels(what: str) -> InputError:
    """The error for scores that cannot be measured."""
    advice = "Say which column holds the labels: label_column=…."
    return refuse(what, "must hold a column label", "got scores alone", advice)


def parquet_files(patterns: Sequence[str], argument: str = "PATHS") -> list[str]:
    """Files given by name, folder or pattern: in the order given, sorted within each."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found |= dict.fromkeys(sorted(_expand(pattern, argument)))
    return list(found)


def _expand(pattern: str, argument: str) -> list[str]:
    found = io.remote_files(pattern) if io.is_url(pattern) else _local_files(pattern)
    if not found:
        rule, advice = "must match Parquet files", "Quote the pattern and check the folder."
        raise refuse(argument, rule, f"got no file for {pattern!r}", advice)
    return found


def _local_files(pattern: str) -> list[str]:
    if Path(pattern).is_file():  # names may contain brackets
        return [pattern]
    if Path(pattern).is_dir():
        pattern = str(Path(pattern) / "*.parquet")
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern


def _located(path: str | Path) -> File:
    return io.RemoteFile(str(path)) if io.is_url(path) else Path(path)


@contextmanager
def _readable(file: File) -> Iterator[Any]:
    """What PyArrow reads the file from."""
    if isinstance(file, Path):
        check_regular(file)
        yield file
    else:
        with file.open() as opened:
            yield opened


def _reading(file: File) -> dict[str, Any]:
    """How a file is read: requests of other machines are few and large, a row group each."""
    here = isinstance(file, Path)
    return {"pre_buffer": False, "buffer_size": READ_AHEAD} if here else {"pre_buffer": True}


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException,)


def _clearly(batches: Iterator[Any], file: File) -> Iterator[Any]:
    """The same batches; reading errors are translated, errors of the consumer are not."""
    while True:
        with clear_errors(file.name, "parquet", *_arrow_errors()):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _num_values(metadata: Any, used: Sequence[str]) -> int:
    """Values in the columns that are read; a list column has as many as its lists hold."""
    return sum(chunk.num_values for chunk in io.parquet_chunks(metadata, used))


def _check_alike(files: Sequence[File], columns: Sequence[Any]) -> None:
    """Refuse shards whose columns or types differ."""
    for file, others in zip(files, columns, strict=True):
        if others != columns[0]:
            raise unlike(files[0].name, file.name)


def _columns(schema: Any, plan: io.Plan) -> tuple[tuple[str, str], ...]:
    """Names and types of the columns that are read, in the order of the names."""
    return tuple(sorted((name, str(schema.field(name).type)) for name in plan.used))


def unlike(first: str, other: str) -> InputError:
    """The error for a file that does not belong to the others."""
    rule = f"must all have the columns, types and class names of {first}"
    return refuse("paths", rule, f"got others in {other}", "Fix that shard.")


def _check_kind(plan: io.Plan) -> None:
    if "confidence" in plan.becomes.values():
        rule, advice = "must hold logits or probs", "Measure confidences from one file."
        raise refuse("paths", rule, "got confidence columns", advice)
    if plan.labels:
        rule, advice = "must hold one label per sample", "Measure several from one file."
        raise refuse("paths", rule, f"got {len(plan.labels):,} columns of labels", advice)


def _common_header(
    files: Sequence[File], schemas: Sequence[Any]
) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Class names, which must agree, and the metadata that is the same in all files."""
    headers = [
        io.parquet_header(Path(file.name), schema)
        for file, schema in zip(files, schemas, strict=True)
    ]
    classes, meta = headers[0]
    for file, (names, other) in zip(files, headers, strict=True):
        if names != classes:
            raise unlike(files[0].name, file.name)
        meta = {key: value for key, value in meta.items() if key in other and other[key] == value}
    return classes, meta
