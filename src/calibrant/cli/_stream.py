"""``measure --stream``: files larger than memory, here or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant._core.checks import refuse
from calibrant._core.stopping import repeatable
from calibrant._measure import GroupedPanel, Panel
from calibrant.cli._common import progress
from calibrant.cli._executors import make_executor
from calibrant.inference import Resampling

if TYPE_CHECKING:
    from calibrant.streaming import FileTotals, Part

FilesExecutor = Annotated[
    str | None,
    typer.Option(help="Executor of --stream: local or ray; default: this process alone."),
]
FilesWorkers = Annotated[
    int | None, typer.Option(help="Number of worker processes of --executor local.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Files that cannot be read are left out and counted.")
]
SHOWN_FILES = 3


@dataclass(frozen=True)
class Streaming:
    """How files are read: by group or not, what to do with bad ones, and what reads them.

    ``layout`` says what their columns mean.
    """

    by: str | None
    skip_bad: bool
    parallel: Mapping[str, Any]
    layout: Mapping[str, Any]


def measure_stream(
    patterns: Sequence[str],
    how: Streaming,
    *,
    bins: int,
    resampling: Resampling | None,
    **shape: Any,
) -> Panel | GroupedPanel:
    """The panel of the files that the patterns name, or one per group."""
    from calibrant._measure import grouped_panel_of_stream, panel_of_stream
    from calibrant.streaming import parquet_files

    files = parquet_files(patterns)
    if not how.skip_bad:
        _check_endings(files)
    found = _accumulated(files, how, bins)
    notes = _notes(found)
    if how.by is None:
        return panel_of_stream(found.total, resampling=resampling, notes=notes, **shape)
    return grouped_panel_of_stream(
        found.groups, how.by, resampling=resampling, notes=notes, **shape
    )


def _check_endings(files: Sequence[str]) -> None:
    """Reject files of the other formats that the package reads; of the rest the content decides."""
    from calibrant.io import READERS

    for name in map(Path, files):
        if name.suffix.lower() in READERS and name.suffix.lower() != ".parquet":
            rule = "must be Parquet files with --stream"
            raise refuse("PATHS", rule, f"got {name.name}", "Leave --stream out for this file.")


def _accumulated(files: Sequence[str], how: Streaming, bins: int) -> FileTotals:
    from calibrant.streaming import FILE_EXECUTORS, Part, accumulate_files, in_this_process

    keywords: dict[str, Any] = {"bins": bins, "by": how.by, "skip_bad": how.skip_bad, **how.layout}
    options = {key: value for key, value in how.parallel.items() if value is not None}
    if not options:
        with progress("measuring") as advance:
            return in_this_process(files, progress=partial(advance, "measuring"), **keywords)
    executor = make_executor(options.pop("executor", "local"), FILE_EXECUTORS, options)
    so_far = Part()

    def report(part: Part, total: int) -> None:
        nonlocal so_far
        so_far = part
        advance(f"measuring, {part.rows:,} rows", part.files + len(part.bad), total)

    def done() -> str:
        return f"{so_far.files:,} of {len(files):,} files measured"

    with progress("measuring", unit="files") as advance, repeatable(done):
        return accumulate_files(files, executor=executor, progress=report, **keywords)


def _notes(found: FileTotals) -> list[str]:
    """The files that were left out, in a sentence."""
    if not found.bad:
        return []
    shown = "; ".join(list(found.bad.values())[:SHOWN_FILES])
    more = f"; and {len(found.bad) - SHOWN_FILES:,} more" * (len(found.bad) > SHOWN_FILES)
    return [f"Left out: {len(found.bad):,} of {found.num_files:,} files ({shown}{more})."]
