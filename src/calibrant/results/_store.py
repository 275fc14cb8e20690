"""Results of studies: one Parquet file per finished run; all of them as one tidy table.

A file is written under a temporary name and renamed, and contains its own checksum: a file that
exists and is intact means that the run has finished. A failed run leaves its error instead, and a
running one holds a lock that is released with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from calibrant._core.checks import CalibrationWarning, InputError, is_number, refuse
from calibrant._core.files import TEMPORARY, make_output_folder, read_json, writable, write_bytes
from calibrant.results._cache import FACTS, cached_facts, cached_rows, read_facts
from calibrant.results._files import (
    COLUMNS,
    Sealed,
    read_rows,
    read_sealed,
    rows_file,
    table_of,
    write_sealed,
)

LONGEST = 1e12  # seconds of a run
NAMED = 3  # of the damaged files, in a warning


class Store:
    """The folder of a study's results.

    ``results/KEY.parquet`` is a finished run, ``runs/KEY`` what it keeps (weights, logits, epochs),
    ``failed/KEY.json`` an error.

    Parameters
    ----------
    folder
        Created on the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def result_path(self, key: str) -> Path:
        """Where the result of a run goes."""
        return self.folder / "results" / f"{key}.parquet"

    def run_folder(self, key: str) -> Path:
        """What a run keeps."""
        return self.folder / "runs" / key

    def prepare(self, keys: Collection[str]) -> None:
        """Refuse a folder that the results of these runs could not be written to."""
        make_output_folder("out", self.folder)
        for inside in ("locks", "runs", "results"):
            make_output_folder("out", self.folder / inside)
        for inside in ("failed", "shared"):  # made when needed
            if os.path.lexists(self.folder / inside):
                make_output_folder("out", self.folder / inside)
        for key in keys:
            writable(self.result_path(key), "out")
            writable(self._failure(key), "out")

    def write(self, key: str, rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> None:
        """Write a finished run, and forget an earlier failure."""
        self._write(key, table_of(rows), facts)
        self._failure(key).unlink(missing_ok=True)

    def _write(self, key: str, table: pa.Table, facts: Mapping[str, Any]) -> None:
        content = rows_file(table, {FACTS: json.dumps(dict(facts))})
        write_sealed(self.result_path(key), content)

    def facts(self, key: str) -> dict[str, Any] | None:
        """Facts of a finished run; None if it is not finished or its file is damaged."""
        sealed = read_sealed(self.result_path(key))
        return None if sealed is None else _facts_of(sealed)

    def facts_of_all(self, keys: Collection[str]) -> dict[str, dict[str, Any] | None]:
        """Facts of each run as above, faster where there are many."""
        known = cached_facts(self.folder, len(keys))
        found: dict[str, dict[str, Any] | None] = {}
        for key in keys:
            sealed = read_sealed(self.result_path(key))
            digest, facts = known.get(key, ("", None))
            usable = sealed is not None and digest == sealed.digest and _are_facts(facts)
            found[key] = facts if usable else None if sealed is None else _facts_of(sealed)
        return found

    def is_damaged(self, key: str) -> bool:
        """Whether a run has a result that cannot be trusted."""
        return self.result_path(key).exists() and self.facts(key) is None

    def relabel(self, key: str, label: str) -> None:
        """Give a finished run another label of its objective, if it has another."""
        path = self.result_path(key)
        sealed = read_sealed(path)
        facts = None if sealed is None else _facts_of(sealed)
        if sealed is None or facts is None or facts.get("label") == label:
            return
        table = read_rows(path, sealed)
        if table is not None:
            self._write(key, _labelled(table, label), {**facts, "label": label})

    def fail(self, key: str, facts: Mapping[str, Any]) -> None:
        """Leave the record of a failure."""
        text = json.dumps(dict(facts), indent=1)
        write_bytes(_in_folder(self._failure(key)), text.encode())

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
    def claim(self, key: str) -> Iterator[bool]:
        """Hold a run for this process: False if another process has it.

        The system frees the lock when the process ends, however it ends.
        """
        with self._lock(key).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def claimed(self, key: str) -> bool:
        """Whether some process is working on a run; asking needs no write permission."""
        try:
            with self._lock(key, make=False).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Wait until no other process does ``what`` in this folder."""
        with self._lock(what).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _lock(self, name: str, *, make: bool = True) -> Path:
        path = writable(self.folder / "locks" / name)
        return _in_folder(path) if make else path

    def sweep(self) -> None:
        """Remove what stopped processes left unfinished of runs that nobody works on."""
        ending = f".*{TEMPORARY}"
        found = [(path.parent.name, path) for path in self.folder.glob(f"runs/*/{ending}")]
        for kind in ("results", "failed"):
            named = (self.folder / kind).glob(ending)
            found += [(path.name[1:].partition("-")[0], path) for path in named]
        for key, path in found:
            with self.claim(key) as free:
                if free:
                    path.unlink(missing_ok=True)


def _labelled(table: pa.Table, label: str) -> pa.Table:
    """The table of one run with this label of its objective."""
    if not table.num_rows or table["objective"][0].as_py() == label:
        return table
    column = pa.repeat(pa.scalar(label, pa.string()), table.num_rows)
    return table.set_column(COLUMNS.index("objective"), "objective", column)


def _in_folder(path: Path) -> Path:
    """The path, whose folder now exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def read_all(
    folder: str | Path,
    *,
    keys: Collection[str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> pa.Table:
    """All finished runs of a study as one tidy table.

    One row per value, with the columns run, data, model, objective, seed, part (test or a shift),
    calibrator, metric, value. DuckDB, Polars and pandas read it directly. Files that are damaged
    are left out with a warning; the next ``study run`` repeats their runs.

    Parameters
    ----------
    folder
        Results folder written by ``calibrant study run --out``.
    keys
        Keys of the runs to read; None for all in the folder, including those of older studies.
    labels
        Labels of the objectives by run key, as in ``Study.labels``; only these runs are read. None
        for the labels in the files: those of the study that finished last.
    """
    advice = f"Run calibrant study run STUDY.toml --out {folder}."
    if not Path(folder).is_dir():
        rule, got = "must be a results folder", f"got {str(folder)!r}, which does not exist"
        raise refuse("folder", rule, got, f"Check the path, or start a study. {advice}")
    files = sorted((Path(folder) / "results").glob("*.parquet"))
    for wanted in (keys, labels):
        if wanted is not None:
            files = [path for path in files if path.stem in wanted]
    found, damaged = cached_rows(Path(folder), files)
    tables = [
        table if labels is None else _labelled(table, labels[key]) for key, table in found.items()
    ]
    if not tables:
        but = f", but {damaged_files(damaged)}" if damaged else ""
        raise InputError(f"{folder} contains no finished runs{but}. {advice}")
    if damaged:
        text = f"{folder} holds {damaged_files(damaged)}; they are ignored. {advice}"
        warnings.warn(text, CalibrationWarning, stacklevel=2)
    # In one piece: filters of thousands of pieces take longer than reading them.
    return pa.concat_tables(tables).combine_chunks()


def _facts_of(sealed: Sealed) -> dict[str, Any] | None:
    found = read_facts(sealed)
    return found if _are_facts(found) else None


def _are_facts(found: Any) -> bool:
    """Whether these are facts that ``write`` was given, as far as anybody reads them."""
    if not isinstance(found, dict):
        return False
    seconds, held = found.get("seconds", 0.0), found.get("evaluation", {})
    if not (is_number(seconds) and 0 <= seconds < LONGEST and isinstance(held, dict)):
        return False
    lists = [held.get(name, []) for name in ("shift_files", "shifts")]
    tables = [held.get(name, {}) for name in ("metrics", "calibrators")]
    return (
        all(isinstance(names, list) for names in lists)
        and all(
            isinstance(table, dict) and all(isinstance(spec, dict) for spec in table.values())
            for table in tables
        )
        and all(isinstance(name, str) for names in lists for name in names)
    )


def damaged_files(damaged: Sequence[str]) -> str:
    """How many files are damaged, and which.

    >>> damaged_files(["a.parquet"]), damaged_files(list("abcd"))
    ('1 damaged file (a.parquet)', '4 damaged files (a, b, c, …)')
    """
    shown = ", ".join([*damaged[:NAMED], *(["…"] if len(damaged) > NAMED else [])])
    return f"{len(damaged)} damaged file{'s' * (len(damaged) > 1)} ({shown})"
