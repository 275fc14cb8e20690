"""The rows of all runs in one file beside them, so that thousands of runs are read at once.

A run is taken from the cache only if the checksum of its result file is the one the cache was made
from. The cache is sealed like a result; a damaged or outdated one is made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from calibrant.results._files import read_rows, read_sealed, rows_file, write_sealed

CACHE = "table.cache"
# With fewer files the cache saves nothing.
LEAST_FILES = 50


def cached_rows(folder: Path, files: Sequence[Path]) -> tuple[dict[str, pa.Table], list[str]]:
    """Tables by run, and the names of damaged files.

    With many files, the tables of runs that the cache knows are cut out of it.
    """
    whole = {path.stem: found for path in files if (found := read_sealed(path)) is not None}
    damaged = [path.name for path in files if path.stem not in whole]
    known = _load(folder / CACHE) if len(files) >= LEAST_FILES else {}
    tables, fresh = {}, False
    for path in files:
        found = whole.get(path.stem)
        if found is None:
            continue
        held = known.get(path.stem)
        if held is not None and held[0] == found.digest:
            tables[path.stem] = held[1]
            continue
        table = read_rows(path, found)
        if table is None:
            damaged.append(path.name)
            continue
        tables[path.stem], fresh = table, True
    if fresh and len(files) >= LEAST_FILES:
        digests = {key: whole[key].digest for key in tables}
        others = {key: held for key, held in known.items() if key not in tables}
        _save(folder / CACHE, {**others, **{key: (digests[key], tables[key]) for key in tables}})
    return tables, damaged


def _load(path: Path) -> dict[str, tuple[str, pa.Table]]:
    """Digest and rows of each run in the cache; nothing where it is damaged."""
    sealed = read_sealed(path)
    table = None if sealed is None else read_rows(path, sealed)
    if sealed is None or table is None:
        return {}
    try:
        spans = json.loads(sealed.facts["runs"])
        return {
            key: (str(digest), table.slice(int(start), int(length)))
            for key, (digest, start, length) in spans.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError):
        return {}


def _save(path: Path, runs: Mapping[str, tuple[str, pa.Table]]) -> None:
    spans, start = {}, 0
    for key, (digest, table) in runs.items():
        spans[key] = (digest, start, table.num_rows)
        start += table.num_rows
    whole = pa.concat_tables(table for _, table in runs.values())
    try:
        write_sealed(path, rows_file(whole, {"runs": json.dumps(spans)}))
    except OSError:  # a read-only folder is read without a cache
        return
