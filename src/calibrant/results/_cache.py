"""Rows and facts of all runs in one file beside them, so that thousands are read at once.

A run is taken from the cache only if the checksum of its result file is the one the cache was made
from. The cache is sealed like a result; a damaged or outdated one is made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from calibrant._core.memory import PARSED, check_size
from calibrant.results._files import Sealed, read_rows, read_sealed, rows_file, write_sealed

CACHE, FACTS = "table.cache", "calibrant"
# With fewer files the cache saves nothing.
LEAST_FILES = 50


@dataclass(frozen=True)
class _Held:
    """A run in the cache: checksum of its file, rows, and facts as they were read."""

    digest: str
    rows: pa.Table
    facts: Any


def read_facts(sealed: Sealed) -> Any:
    """What the file of a run says about it; None if it cannot be read."""
    try:
        return _parsed(sealed.facts[FACTS])
    except (ValueError, KeyError, RecursionError):
        return None


def _parsed(text: str) -> Any:
    """JSON as objects, if these fit into memory."""
    check_size(PARSED * len(text), "a run")
    return json.loads(text)


def cached_facts(folder: Path, runs: int) -> Mapping[str, tuple[str, Any]]:
    """Checksum and facts of the runs in the cache, where it is worth reading for so many runs."""
    sealed = read_sealed(folder / CACHE) if runs >= LEAST_FILES else None
    spans = {} if sealed is None else _spans(sealed)
    return {key: (digest, facts) for key, (digest, _, _, facts) in spans.items()}


def cached_rows(folder: Path, files: Sequence[Path]) -> tuple[dict[str, pa.Table], list[str]]:
    """Tables by run, and the names of damaged files.

    With many files, the tables of runs that the cache knows are cut out of it.
    """
    many = len(files) >= LEAST_FILES
    known = _load(folder / CACHE) if many else {}
    held, damaged, fresh = {}, [], False
    for path in files:
        sealed = read_sealed(path)
        found = known.get(path.stem)
        if sealed is None:
            damaged.append(path.name)
            continue
        if found is None or found.digest != sealed.digest:
            rows = read_rows(path, sealed)
            if rows is None:
                damaged.append(path.name)
                continue
            found, fresh = _Held(sealed.digest, rows, read_facts(sealed) if many else None), True
        held[path.stem] = found
    if fresh and many:
        _save(folder / CACHE, known | held)
    return {key: found.rows for key, found in held.items()}, damaged


def _load(path: Path) -> dict[str, _Held]:
    """The runs in the cache; none where it is damaged."""
    sealed = read_sealed(path)
    table = None if sealed is None else read_rows(path, sealed)
    if sealed is None or table is None:
        return {}
    return {
        key: _Held(digest, table.slice(start, length), facts)
        for key, (digest, start, length, facts) in _spans(sealed).items()
    }


def _spans(sealed: Sealed) -> dict[str, tuple[str, int, int, Any]]:
    """Checksum, first row, number of rows and facts of each run in the cache."""
    try:
        spans = _parsed(sealed.facts["runs"])
        return {
            key: (str(digest), int(start), int(length), facts)
            for key, (digest, start, length, facts) in spans.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _save(path: Path, runs: Mapping[str, _Held]) -> None:
    spans, start = {}, 0
    for key, held in runs.items():
        spans[key] = (held.digest, start, held.rows.num_rows, held.facts)
        start += held.rows.num_rows
    whole = pa.concat_tables(held.rows for held in runs.values())
    try:
        write_sealed(path, rows_file(whole, {"runs": json.dumps(spans)}))
    except OSError:  # a read-only folder is read without a cache
        return
