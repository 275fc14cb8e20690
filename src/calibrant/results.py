"""Results of studies: one Parquet file a finished run; all of them as one tidy table.

Existing means finished: a file is written under a temporary name and renamed. A run that failed
leaves its error instead, and one under way holds a lock that ends with its process.
"""

from __future__ import annotations

import fcntl
import json
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from calibrant._checks import CalibrationWarning, InputError, is_number
from calibrant._files import (
    is_text,
    read_json,
    read_parquet,
    read_text,
    replacing,
    writable,
)
from calibrant._memory import check_size

COLUMNS = ("run", "data", "model", "objective", "seed", "part", "calibrator", "metric", "value")
NUMBERS: dict[str, pa.DataType] = {"seed": pa.int64(), "value": pa.float64()}
SCHEMA = pa.schema([(name, NUMBERS.get(name, pa.string())) for name in COLUMNS])
FACTS = b"calibrant"
LONGEST = 1e12  # seconds of a run
NAMED = 3  # of the damaged files, in a warning
BYTES_PER_ROW = 2_000  # of a row of the table as Python objects, which the tables are made from


class Store:
    """The folder of a study's results.

    ``results/KEY.parquet`` is a finished run, ``runs/KEY`` what it keeps (weights, logits, epochs),
    ``failed/KEY.json`` an error.

    Parameters
    ----------
    folder
        Made when something is first written to it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def result_path(self, key: str) -> Path:
        """Where the result of a run goes."""
        return self.folder / "results" / f"{key}.parquet"

    def run_folder(self, key: str) -> Path:
        """What a run keeps."""
        return self.folder / "runs" / key

    def write(self, key: str, rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
        """Write a finished run, and forget an earlier failure."""
        table = pa.Table.from_pylist(rows, SCHEMA)
        table = table.replace_schema_metadata({FACTS: json.dumps(dict(facts)).encode()})
        with replacing(_in_folder(self.result_path(key))) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        self._failure(key).unlink(missing_ok=True)

    def facts(self, key: str) -> dict[str, Any] | None:
        """What is known of a finished run; None if it is not finished or its file is damaged."""
        path = self.result_path(key)
        try:
            found = json.loads(read_parquet(path, _check_columns).schema.metadata[FACTS])
        except (OSError, ValueError, KeyError, TypeError, RecursionError, pa.ArrowException):
            return None  # a cut file, too
        return found if _are_facts(found) else None

    def fail(self, key: str, facts: Mapping[str, Any]) -> None:
        """Leave the record of a failure."""
        with replacing(_in_folder(self._failure(key))) as temporary:
            Path(temporary).write_text(json.dumps(dict(facts), indent=1), encoding="utf-8")

    def failure(self, key: str) -> dict[str, Any] | None:
        """The record of a failure, if there is one."""
        try:
            found = read_json(self._failure(key))
        except (OSError, InputError):
            return None
        return found if isinstance(found, dict) and isinstance(found.get("error"), str) else None

    def _failure(self, key: str) -> Path:
        return self.folder / "failed" / f"{key}.json"

    @contextmanager
    def claim(self, key: str, *, look: bool = False) -> Iterator[bool]:
        """Hold a run for this process: False if another process has it.

        The system frees the lock when the process ends, however it ends. With ``look`` the run
        does not count as begun.
        """
        with _in_folder(writable(self.folder / "locks" / key)).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if not look:
                file.truncate(0)
                file.write(str(time.time()))
                file.flush()
            yield True

    def begun(self, key: str) -> float:
        """When a run was last begun, in seconds since 1970; 0 if never."""
        try:
            return float(read_text(self.folder / "locks" / key, most=100))
        except (OSError, ValueError):
            return 0.0

    def claimed(self, key: str) -> bool:
        """Whether some process is working on a run."""
        if not (self.folder / "locks" / key).exists():
            return False
        with self.claim(key, look=True) as free:
            return not free


def _in_folder(path: Path) -> Path:
    """The path, whose folder now exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def read_all(folder: str | Path, *, keys: Collection[str] | None = None) -> pa.Table:
    """All finished runs of a study as one tidy table.

    One row a value, with the columns run, data, model, objective, seed, part (test or a shift),
    calibrator, metric, value. DuckDB, Polars and pandas read it directly. Files that are damaged
    are left out with a warning; the next ``study run`` repeats their runs.

    Parameters
    ----------
    folder
        What ``calibrant study run --out`` wrote.
    keys
        Of the runs to read; None for all in the folder, also those of older studies.
    """
    advice = f"Run calibrant study run STUDY.toml --out {folder}."
    if not Path(folder).is_dir():
        raise InputError(f"There is no folder {folder}. Check the name, or make it: {advice}")
    files = sorted((Path(folder) / "results").glob("*.parquet"))
    if keys is not None:
        files = [path for path in files if path.stem in keys]
    tables, damaged = [], []
    for path in files:
        try:
            tables.append(_plain(read_parquet(path, _check_columns)))
        except (OSError, ValueError, KeyError, pa.ArrowException):
            damaged.append(path.name)
    if not tables:
        but = f", but {_names(damaged)}" if damaged else ""
        raise InputError(f"{folder} holds no finished runs{but}. {advice}")
    if damaged:
        text = f"{folder} holds {_names(damaged)}; they are left out. {advice}"
        warnings.warn(text, CalibrationWarning, stacklevel=2)
    return pa.concat_tables(tables)


def _check_columns(schema: pa.Schema, where: str) -> None:
    """Refuse a file that is not of a finished run."""
    kinds = {name: schema.field(name).type for name in COLUMNS if name in schema.names}
    wrong = [name for name in COLUMNS
             if name not in kinds or not (kinds[name] == NUMBERS.get(name) or is_text(kinds[name]))
             or schema.names.count(name) > 1]  # fmt: skip
    if wrong:
        raise InputError(f"{where} has no usable column {wrong[0]!r}.")


def _plain(table: pa.Table) -> pa.Table:
    """The columns of a run as plain strings and numbers, if they fit into memory."""
    table = table.select(COLUMNS)
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


def _are_facts(found: Any) -> bool:
    """Whether these are facts that ``write`` was given, as far as anybody reads them."""
    if not isinstance(found, dict):
        return False
    seconds, held = found.get("seconds", 0.0), found.get("evaluation", {})
    if not (is_number(seconds) and 0 <= seconds < LONGEST and isinstance(held, dict)):
        return False
    lists = [held.get(name, []) for name in ("shift_files", "shifts")]
    tables = [held.get(name, {}) for name in ("metrics", "calibrators")]
    return all(isinstance(names, list) for names in lists) and all(
        isinstance(table, dict) and all(isinstance(spec, dict) for spec in table.values())
        for table in tables
    ) and all(isinstance(name, str) for names in lists for name in names)  # fmt: skip


def _names(damaged: list[str]) -> str:
    """How many files are damaged, and which.

    >>> _names(["a.parquet"]), _names(list("abcd"))
    ('1 damaged file (a.parquet)', '4 damaged files (a, b, c, …)')
    """
    shown = ", ".join([*damaged[:NAMED], *(["…"] if len(damaged) > NAMED else [])])
    return f"{len(damaged)} damaged file{'s' * (len(damaged) > 1)} ({shown})"
