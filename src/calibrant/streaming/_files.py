"""Measuring many Parquet files: each is read into accumulators of its own, which are then merged.

A file that cannot be read counts for nothing, so a file is the unit that is skipped, and the one
that is read again where a worker dies. Merging is exact: the result does not depend on which
worker read what, nor on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.arrays import two_ahead
from calibrant._core.belonging import check_group
from calibrant._core.checks import InputError, refuse
from calibrant.io import Layout
from calibrant.predictions import Predictions, note_ignored
from calibrant.streaming._accumulator import Accumulator
from calibrant.streaming._parquet import (
    ParquetShards,
    predictions_of,
    stream_layout,
    unlike,
    without_labels,
)

# Each group needs four megabytes where it is accumulated.
MOST_GROUPS = 256
# Files that are asked for the usual columns where some may be bad.
ASKED = 16
WHOLE = ""  # the name of everything where there are no groups

States = dict[str, bytes]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FilePlan:
    """What to make of each file; ``columns`` and ``classes`` are those of the file ``like``.

    The layout says which columns are read; ``ignored`` are the others of the file ``like``.
    """

    bins: int
    by: str | None
    like: str
    columns: tuple[tuple[str, str], ...]
    classes: tuple[str, ...] | None
    ignored: tuple[str, ...]
    groups: tuple[str, ...]
    layout: Layout

    @classmethod
    def of(cls, shards: ParquetShards, *, bins: int, by: str | None) -> FilePlan:
        """Take the columns and classes of files that are known to be alike."""
        if not shards.labelled:
            raise without_labels("paths")
        first = shards.files[0].name
        known = (shards.columns, shards.classes, shards.ignored, shards.groups, shards.layout)
        return cls(bins, by, first, *known)

    def start(self) -> None:
        """Check the grouping, and say which columns are not used: once, before files are read."""
        if self.by is not None:
            check_group(self.by, self.groups)
        note_ignored(self.like, self.ignored)

    def alike(self, other: FilePlan) -> bool:
        """Whether two files have the same columns, types and class names."""
        return (self.columns, self.classes) == (other.columns, other.classes)

    def check(self, shards: ParquetShards) -> None:
        """Refuse a file whose columns, types or class names differ."""
        if (shards.columns, shards.classes) != (self.columns, self.classes):
            raise unlike(self.like, shards.files[0].name)


@dataclass(frozen=True)
class Part:
    """What came of some files: how many were read, their rows, and those that could not be."""

    files: int = 0
    rows: int = 0
    bad: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Part) -> Part:
        return Part(self.files + other.files, self.rows + other.rows, {**self.bad, **other.bad})


@dataclass(frozen=True)
class FileTotals:
    """Accumulators of files: ``total``, or one per group; and the files that were left out.

    ``bad`` maps the name of a file to the reason.
    """

    groups: Mapping[str, Accumulator]
    num_files: int
    bad: Mapping[str, str]

    @property
    def total(self) -> Accumulator:
        """The accumulator of everything, where there are no groups."""
        return self.groups[WHOLE]


def measure_chunk(files: Sequence[str], plan: FilePlan) -> tuple[Part, States]:
    """Read some files; what a worker does. A bad file is named, and counts for nothing."""
    part, found = Part(), Merged()
    for more, accumulators in measure_files(files, plan):
        part += more
        found.add(accumulators)
    return part, found.states()


@dataclass(frozen=True)
class FilePiece:
    """A batch of a file, or its end: ``bad`` then says what is wrong with the file, if anything."""

    place: int
    batch: Predictions | None = None
    bad: str | None = None


def measure_files(
    files: Sequence[str], plan: FilePlan, progress: Callable[[int], None] | None = None
) -> Iterator[tuple[Part, dict[str, Accumulator]]]:
    """What came of each file; ``progress`` is called with the rows of each batch.

    A batch is read while the one before it is added up, be it of the same file or not.
    """
    refused: dict[int, str] = {}
    found: dict[str, Accumulator] = {}
    for piece in two_ahead(_pieces(files, plan, refused)):
        if piece.batch is None:
            reason = refused.get(piece.place, piece.bad)
            if reason is None:
                yield Part(files=1, rows=sum(each.num_samples for each in found.values())), found
            else:
                yield Part(bad={files[piece.place]: reason}), {}
            found = {}
        elif piece.place not in refused:
            try:
                _add_batch(found, piece.batch, plan)
            except (InputError, OSError) as error:
                refused[piece.place] = _one_line(error)
            else:
                if progress:
                    progress(piece.batch.num_samples)


def _pieces(files: Sequence[str], plan: FilePlan, refused: Container[int]) -> Iterator[FilePiece]:
    """All batches of all files, each file followed by its end; no more of those ``refused``."""
    for place, file in enumerate(files):
        bad = None
        try:
            shards = ParquetShards.open([file], layout=plan.layout, may_be_empty=True)
            plan.check(shards)
            for batch in shards.batches():
                assert isinstance(batch, Predictions)  # files without labels were refused
                yield FilePiece(place, batch)
                if place in refused:
                    break
        except (InputError, OSError) as error:
            bad = _one_line(error)
        yield FilePiece(place, bad=bad)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _add_batch(found: dict[str, Accumulator], batch: Predictions, plan: FilePlan) -> None:
    for name, part in _by_group(batch, plan.by):
        if name not in found:
            _check_groups(len(found))
            found[name] = Accumulator(batch.num_classes, bins=plan.bins)
        found[name].update(part)


def _by_group(batch: Predictions, by: str | None) -> Iterator[tuple[str, Predictions]]:
    if by is None:
        yield WHOLE, batch
        return
    column = batch.belonging.group(by)
    for name in np.unique(column):
        yield str(name), batch.take(column == name)


def _check_groups(count: int) -> None:
    if count >= MOST_GROUPS:
        rule, advice = f"must have at most {MOST_GROUPS} groups", "Choose a coarser grouping."
        raise refuse("by", rule, "got more", advice)


class Merged:
    """Accumulators by group, to which others are added."""

    def __init__(self, groups: Mapping[str, Accumulator] | None = None) -> None:
        self.groups: dict[str, Accumulator] = dict(groups or {})

    def add(self, others: Mapping[str, Accumulator]) -> None:
        """Merge accumulators into those of the same group."""
        for name, other in others.items():
            if name not in self.groups:
                _check_groups(len(self.groups))
                self.groups[name] = other
            else:
                self.groups[name].merge(other)

    def add_states(self, states: States) -> None:
        """Merge the states that a worker returned."""
        self.add({name: Accumulator.from_state(state) for name, state in states.items()})

    def states(self) -> States:
        """The states of all groups, for another process."""
        return {name: total.state() for name, total in self.groups.items()}


def merge_states(*many: States) -> States:
    """One node of the tree in which states are merged."""
    found = Merged()
    for states in many:
        found.add_states(states)
    return found.states()


def common_plan(
    files: Sequence[str], layout: Layout, *, bins: int, by: str | None, skip_bad: bool
) -> FilePlan:
    """The plan that the first file gives; with ``skip_bad`` the one that most of some files give.

    One odd file at the front must not make all others bad.
    """
    tried = files[:: max(1, len(files) // ASKED)] if skip_bad else files[:1]
    plans: list[FilePlan] = []
    for file in tried:
        try:
            shards = ParquetShards.open([file], layout=layout, may_be_empty=True)
            plans.append(FilePlan.of(shards, bins=bins, by=by))
        except (InputError, OSError) as error:
            if not skip_bad:
                raise bad_file({file: str(error)}) from error
    if not plans:
        rule, advice = (
            "must be Parquet files with predictions",
            "Measure one without skip_bad=True.",
        )
        raise refuse("paths", rule, f"got none among {len(tried):,} of them", advice)
    return max(plans, key=lambda plan: sum(plan.alike(other) for other in plans))


def bad_file(bad: Mapping[str, str]) -> InputError:
    """The error for the first file that cannot be measured; it names the file once."""
    file, reason = next(iter(bad.items()))
    name = Path(file.partition("?")[0]).name
    text = reason if file in reason or name in reason else f"{file}: {reason}"
    return InputError(text)


def accumulate_parquet(
    paths: Iterable[str | Path],
    *,
    bins: int = 15,
    progress: Progress | None = None,
    **options: Any,
) -> Accumulator:
    """Accumulate Parquet files that may be larger than memory, in this process.

    Columns are those of ``calibrant.load``, and so are the ``options`` that say what they mean,
    such as ``label_column``. ``progress`` is called with the rows done and the total.
    """
    files = [str(path) for path in paths]
    return in_this_process(files, bins=bins, progress=progress, **options).total


def accumulate_batches(batches: Iterable[Any], *, bins: int = 15, **options: Any) -> Accumulator:
    """Accumulate Arrow tables or record batches with the columns of ``calibrant.load``.

    For engines that hand out Arrow data, such as Spark, Ray Data, DuckDB and Polars. ``options``
    are those of ``accumulate_parquet``.

    >>> import pyarrow as pa
    >>> table = pa.table({"label": [0, 1], "logit_0": [2.0, 0.0], "logit_1": [0.0, 1.0]})
    >>> accumulate_batches([table]).result()["accuracy"]
    1.0
    """
    layout = stream_layout(options)
    total: Accumulator | None = None
    for batch in batches:
        if batch.num_rows:
            predictions = predictions_of(batch, layout)
            total = total or Accumulator(predictions.num_classes, bins=bins)
            total.update(predictions)
    if total is None:
        raise refuse("batches", "must hold at least one row", "got none", "Check the query.")
    return total


def in_this_process(
    files: Sequence[str],
    *,
    bins: int = 15,
    by: str | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> FileTotals:
    """Measure the files one after the other; ``progress`` gets the rows done and the total.

    ``options`` are those of ``accumulate_parquet``.
    """
    part, layout = Part(), stream_layout(options)
    if skip_bad:
        plan = common_plan(files, layout, bins=bins, by=by, skip_bad=True)
        rows, good, part = _openable(files, plan)
    else:
        shards = ParquetShards.open(files, layout=layout)
        plan, rows, good = FilePlan.of(shards, bins=bins, by=by), shards.num_rows, list(files)
    plan.start()
    found, done = Merged(), 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if progress:
            progress(done, rows)

    for more, accumulators in measure_files(good, plan, advance):
        if more.bad and not skip_bad:
            raise bad_file(more.bad)
        part += more
        found.add(accumulators)
    return finished(found, part, len(files))


def _openable(files: Sequence[str], plan: FilePlan) -> tuple[int, list[str], Part]:
    """Rows of the files that can be opened, these files, and what is wrong with the others."""
    rows, good, bad = 0, [], {}
    for file in files:
        try:
            shards = ParquetShards.open([file], layout=plan.layout, may_be_empty=True)
            plan.check(shards)
        except (InputError, OSError) as error:
            bad[file] = " ".join(str(error).split())
        else:
            rows += shards.num_rows
            good.append(file)
    return rows, good, Part(bad=bad)


def finished(found: Merged, part: Part, num_files: int) -> FileTotals:
    """The result, if there is one."""
    if not found.groups:  # a footer may declare rows that the file does not have
        raise refuse("paths", "must hold at least one row", "got none", "Check the pattern.")
    ordered = {name: found.groups[name] for name in sorted(found.groups)}
    return FileTotals(ordered, num_files, dict(sorted(part.bad.items())))
