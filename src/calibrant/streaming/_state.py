"""The state of an accumulator as bytes: an Arrow IPC stream of named arrays of whole numbers.

Bytes from elsewhere are hostile: nothing is unpickled, sizes are checked before anything is
allocated for them, and numbers that no data could give are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._core.arrays import Int
from calibrant._core.checks import InputError, check_bins, check_count, refuse
from calibrant._core.memory import check_size
from calibrant.metrics._classwise import MOST_CELLS
from calibrant.metrics._exact import ExactSums
from calibrant.streaming._clusters import MEANS, ClusterSums
from calibrant.streaming._counts import HALF_BITS, Cells, Counts
from calibrant.streaming._weights import SKETCH_SIZE

VERSION = 1
KEY = b"calibrant accumulator"
Arrays = Mapping[str, Int]
# Decimal digits of the largest sum: float64 squared, times 2^53 samples, in units of 2^-52.
MOST_DIGITS = 700
BYTES_PER_CELL = 100
LARGEST = 1 << 53


@dataclass(frozen=True)
class StateHeader:
    """What an accumulator is of."""

    num_classes: int
    bins: int
    kernels: tuple[str, ...]
    rows: int
    impossible: int
    totals: dict[str, int]
    squares: dict[str, int]


def pack_counts(counts: Counts, head: Mapping[str, Any]) -> bytes:
    """The bytes of the counts; ``head`` says what they are of."""
    arrays = {
        **_cells_arrays("width", counts.width, np.arange(len(counts.width.count) // 2)),
        **_cells_arrays("cells", counts.cells, counts.cells.filled),
        **_table_arrays("above", counts.classwise.above),
        **_table_arrays("hits", counts.classwise.hits),
        **_sums_arrays("prob", counts.classwise.prob),
    }
    if counts.clusters is not None:
        arrays |= {"sketch": counts.clusters.sketch.view(np.int64)}
        arrays |= _table_arrays("cluster counts", counts.clusters.counts)
        arrays |= _sums_arrays("cluster values", counts.clusters.values)
    more = {
        "version": VERSION,
        "rows": counts.classwise.num_rows,
        "impossible": counts.impossible,
        "totals": {name: str(counts.totals[name]) for name in MEANS},
        "squares": {name: str(counts.squares[name]) for name in MEANS},
    }
    return _pack({**head, **more}, arrays)


def unpack_state(state: bytes) -> tuple[StateHeader, Arrays]:
    """Header and arrays of bytes that ``pack_counts`` made; anything else raises."""
    with _one_error():
        header, arrays = _unpack(state)
        if header["version"] != VERSION:
            rule, advice = (
                f"must be of version {VERSION}",
                "Make it with this version of calibrant.",
            )
            raise refuse("state", rule, f"got version {header['version']!r}", advice)
        num_classes = check_count(
            "num_classes", header["num_classes"], least=2, most=100_000_000, example=10
        )
        bins = check_bins(header["bins"])
        _expect(num_classes * bins <= MOST_CELLS, "too many classes and bins")
        kernels = header["kernels"]
        _expect(isinstance(kernels, list) and len(kernels) < len(KEY), "no list of kernels")
        head = StateHeader(
            num_classes,
            bins,
            tuple(str(name)[:20] for name in kernels),
            _whole(header["rows"]),
            _whole(header["impossible"]),
            {name: _whole(header["totals"][name]) for name in MEANS},
            {name: _whole(header["squares"][name]) for name in MEANS},
        )
    check_size(num_classes * bins * BYTES_PER_CELL, "The accumulator of this state")
    return head, arrays


def fill_counts(counts: Counts, head: StateHeader, arrays: Arrays) -> None:
    """Put the arrays into empty counts, after checking that data could have given them."""
    with _one_error():
        _fill_cells("width", counts.width, arrays)
        _fill_cells("cells", counts.cells, arrays)
        classwise = counts.classwise
        _fill_table("above", classwise.above, arrays)
        _fill_table("hits", classwise.hits, arrays)
        _fill_sums("prob", classwise.prob, arrays)
        classwise.num_rows, counts.impossible = head.rows, head.impossible
        counts.totals, counts.squares = head.totals, head.squares
        if "sketch" in arrays:
            counts.clusters = _cluster_sums(arrays)
        _check_consistent(counts)


def _check_consistent(counts: Counts) -> None:
    rows, classwise = counts.classwise.num_rows, counts.classwise
    right = [_total(cells.count[1::2]) for cells in (counts.width, counts.cells)]
    _expect(right[0] == right[1], "correct samples that differ")
    for cells in (counts.width, counts.cells):
        _expect(_total(cells.count) == rows, "counts that do not add up")
        _expect(bool((cells.confidence.values <= cells.count).all()), "confidences above 1")
    _expect(_total(classwise.hits) == rows, "labels that do not add up")
    _expect(bool((classwise.above[:, 1:].sum(axis=1) <= rows).all()), "too many probabilities")
    _expect(bool((classwise.count >= classwise.hits).all()), "more labels than samples")
    _expect(bool((classwise.prob.values <= classwise.count + 1e-6 * rows).all()), "large sums")
    _expect(counts.impossible <= rows, "more impossible labels than samples")
    if counts.clusters is not None:
        _expect(_total(counts.clusters.counts[:-1, 0]) == rows, "clusters that do not add up")


def _cluster_sums(arrays: Arrays) -> ClusterSums:
    found = ClusterSums()
    sketch = arrays["sketch"].view(np.uint64)
    _expect(len(sketch) <= SKETCH_SIZE, "too many hashes")
    _expect(bool((sketch[1:] > sketch[:-1]).all()), "hashes out of order")
    found.sketch = sketch.copy()
    _fill_table("cluster counts", found.counts, arrays)
    _fill_sums("cluster values", found.values, arrays)
    return found


# --- tables that are mostly empty: the places of what is there, and their numbers ---


def _table_arrays(name: str, table: Int) -> dict[str, Int]:
    flat = table.ravel()
    place = np.flatnonzero(flat)
    return {f"{name} at": place, name: flat[place]}


def _fill_table(name: str, table: Int, arrays: Arrays) -> None:
    place, values = arrays[f"{name} at"], arrays[name]
    _expect(len(place) == len(values), f"{name} of another length")
    _check_places(name, place, table.size)
    _expect(_are_counts(values), f"{name} out of range")
    table.ravel()[place] = values


def _check_places(name: str, place: Int, size: int) -> None:
    inside = not len(place) or (place[0] >= 0 and place[-1] < size)
    _expect(bool(inside), f"{name} out of range")
    _expect(bool((place[1:] > place[:-1]).all()), f"{name} out of order")


def _are_counts(values: Int) -> bool:
    return bool(((values >= 0) & (values <= LARGEST)).all())


def _total(values: Int) -> float:
    """A sum that cannot overflow, to rounding."""
    return float(values.astype(np.float64).sum())


def _sums_arrays(name: str, sums: ExactSums) -> dict[str, Int]:
    whole, part = _table_arrays(f"{name} whole", sums.whole), _table_arrays(name, sums.part)
    return whole | part


def _fill_sums(name: str, sums: ExactSums, arrays: Arrays) -> None:
    _fill_table(f"{name} whole", sums.whole, arrays)
    _fill_table(name, sums.part, arrays)
    _expect(bool((sums.part < 1 << sums.bits).all()), f"{name} too large")


def _cells_arrays(name: str, cells: Cells, filled: Int) -> dict[str, Int]:
    pairs = (2 * filled[:, None] + np.arange(2)).ravel()
    sums = {"whole": cells.confidence.whole, "part": cells.confidence.part, "count": cells.count}
    return {f"{name} at": pairs} | {f"{name} {key}": array[pairs] for key, array in sums.items()}


def _fill_cells(name: str, cells: Cells, arrays: Arrays) -> None:
    place = arrays[f"{name} at"]
    _check_places(name, place, len(cells.count))
    sums = {"whole": cells.confidence.whole, "part": cells.confidence.part, "count": cells.count}
    for key, array in sums.items():
        values = arrays[f"{name} {key}"]
        _expect(len(values) == len(place), f"{name} of another length")
        _expect(_are_counts(values), f"{name} out of range")
        array[place] = values
    _expect(bool((cells.confidence.part < 1 << 2 * HALF_BITS).all()), f"{name} too large")


# --- the bytes ---


def _pack(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    import pyarrow as pa

    names, values = list(arrays), [pa.array(array) for array in arrays.values()]
    ends = np.cumsum([0, *map(len, values)])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.concat_arrays(values))
    schema = pa.schema(
        [("name", pa.string()), ("values", pa.large_list(pa.int64()))],
        metadata={KEY: json.dumps(header)},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(names), lists], schema=schema))
    return bytes(sink.getvalue())


def _unpack(state: bytes) -> tuple[dict[str, Any], dict[str, Int]]:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(state)) as reader:
        header = json.loads(reader.schema.metadata[KEY])
        batch = reader.read_next_batch()
    batch.validate(full=True)
    names, lists = batch.column("name"), batch.column("values")
    _expect(lists.type == pa.large_list(pa.int64()), "values of another type")
    _expect(not (names.null_count or lists.null_count or lists.values.null_count), "missing values")
    ends, flat = lists.offsets.to_numpy(), lists.values.to_numpy()
    found = zip(names.to_pylist(), ends[:-1], ends[1:], strict=True)
    return header, {name: flat[start:end] for name, start, end in found}


def _whole(value: Any) -> int:
    """A whole number of at least 0, which JSON holds as a number or, if it is long, as a string."""
    if isinstance(value, str):
        _expect(value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS, "no number")
        return int(value)
    _expect(type(value) is int and 0 <= value <= LARGEST, "no whole number")
    return int(value)


def _expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it reads like an assertion
    if not holds:
        raise ValueError(f"it has {otherwise}")


@contextmanager
def _one_error() -> Iterator[None]:
    """Turn every way in which bytes can be wrong into one error."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (
        pa.ArrowException,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        MemoryError,
        RecursionError,
        AttributeError,
        OSError,
        EOFError,
        StopIteration,
    ) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        rule, advice = "must be what Accumulator.state() returned", "Make it again."
        raise refuse("state", rule, f"got other bytes: {reason}", advice) from error
