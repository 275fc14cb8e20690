"""Convert any array to NumPy, and process cache-sized chunks of rows on all cores.

Arrays of torch, JAX and similar libraries are recognised by their methods, so none is imported.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from threading import Thread
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_seed, refuse

Float = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Result = TypeVar("Result")

# Two megabytes of float32: a few such buffers fit the last-level cache, and calls into NumPy are
# long enough that threads rarely wait for the interpreter lock.
CHUNK_ELEMENTS = 512 * 1024
# Chunks that are larger than that are at least so many per thread, to keep all threads busy.
EVEN_CHUNKS = 4
# Below this many elements, starting threads costs more than it saves.
PARALLEL_ELEMENTS = 1_000_000


def to_numpy(value: Any, name: str) -> NDArray[Any]:
    """Return ``value`` as a NumPy array, without copying where that is possible."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a torch tensor, on any device
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):  # NumPy has no bfloat16; float32 holds it exactly
            value = value.float()
        value = value.numpy()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        advice = "Pass a rectangular array of numbers."
        raise refuse(name, "must be one array", f"got {error}", advice) from error
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    return array


def to_floats(value: Any, name: str) -> Float:
    """Return ``value`` as float16, float32 or float64; whole numbers become float64."""
    array = to_numpy(value, name)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        advice = "Save plain numbers, for example as float32."
        raise refuse(name, "must hold real numbers", f"got dtype {array.dtype}", advice)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of ``array``."""
    view = array.view()
    view.flags.writeable = False
    return view


def chunk_rows(num_columns: int) -> int:
    """Number of rows of a chunk that fits into the cache."""
    return max(1, CHUNK_ELEMENTS // max(1, num_columns))


def row_slices(num_rows: int, num_columns: int, step: int | None = None) -> Iterator[slice]:
    """Yield the row ranges of the cache-sized chunks of an array, or of chunks of ``step`` rows."""
    step = step or chunk_rows(num_columns)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def over_chunks(
    work: Callable[[Iterator[slice]], Result],
    num_rows: int,
    num_columns: int,
    *,
    threads: int | None = None,
    light: int = 1,
    step: int | None = None,
    shared: bool = False,
) -> list[Result]:
    """Run ``work`` on interleaved chunks of rows, one call per core; return each call's result.

    NumPy frees the interpreter lock inside its loops, so threads share the cores without copies.
    Work that is ``light`` times faster per element than NumPy's needs as many times more elements
    before threads pay, and chunks up to as many times larger. ``step`` is the number of rows of a
    chunk, where it is not up to the cache. ``shared`` chunks go to whichever thread is free, where
    it does not matter who has which: a core that was idle may take a millisecond to begin.
    """
    available = threads or num_threads()
    if step is None and light > 1:
        even = -(-num_rows // (EVEN_CHUNKS * available))
        step = min(max(chunk_rows(num_columns), even), light * chunk_rows(num_columns))
    slices = list(row_slices(num_rows, num_columns, step))
    if len(slices) <= 1 or num_rows * num_columns < light * PARALLEL_ELEMENTS:
        return [work(iter(slices))]
    workers = min(available, len(slices))
    if workers <= 1:
        return [work(iter(slices))]
    if shared:
        return _at_once([partial(work, iter(slices))] * workers)  # "next" is one step of Python
    return _at_once([partial(work, iter(slices[first::workers])) for first in range(workers)])


def _at_once(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run each job in a thread, the first in this one; return their results in order.

    The pool of ``concurrent.futures`` takes longer to load than a small file to measure.
    """
    found: dict[int, Result] = {}
    errors: dict[int, BaseException] = {}

    def run(number: int) -> None:
        try:
            found[number] = jobs[number]()
        except BaseException as error:  # raised again by the thread that called
            errors[number] = error

    threads = [Thread(target=run, args=(number,)) for number in range(1, len(jobs))]
    for thread in threads:
        thread.start()
    run(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    return [found[number] for number in range(len(jobs))]


def in_order(
    work: Callable[[slice], Result], num_rows: int, num_columns: int
) -> Iterator[tuple[slice, Result]]:
    """Run ``work`` on chunks of rows on all cores; yield their results from the first to the last.

    Results that are added up in this order have the same bits whatever the number of cores. Only a
    few are held at a time.
    """
    slices = list(row_slices(num_rows, num_columns))
    workers = min(num_threads(), len(slices))
    if workers <= 1:
        yield from ((rows, work(rows)) for rows in slices)
        return
    from concurrent.futures import ThreadPoolExecutor  # takes as long as a small file

    with ThreadPoolExecutor(workers) as pool:
        waiting = deque((rows, pool.submit(work, rows)) for rows in slices[:workers])
        for following in (*slices[workers:], *[None] * workers):
            rows, result = waiting.popleft()
            if following is not None:
                waiting.append((following, pool.submit(work, following)))
            yield rows, result.result()


def two_ahead(items: Iterator[Result]) -> Iterator[Result]:
    """Yield the same items; another thread makes the two that follow while each is used.

    With two, neither waits for the other where some items take longer.
    """
    if num_threads() == 1:
        yield from items
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        following = deque(pool.submit(next, items, None) for _ in range(2))
        while (item := following.popleft().result()) is not None:
            following.append(pool.submit(next, items, None))
            yield item


def together(jobs: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run jobs that share nothing, on all cores; return their results in order."""
    workers = min(num_threads(), len(jobs))
    if workers <= 1:
        return [job() for job in jobs]
    todo = iter(enumerate(jobs))  # each thread takes the next job: "next" is one step of Python

    def work() -> list[tuple[int, Result]]:
        return [(number, job()) for number, job in todo]

    found = dict(pair for pairs in _at_once([work] * workers) for pair in pairs)
    return [found[number] for number in range(len(jobs))]


def fold_numbers(num_samples: int, folds: int, seed: int, clusters: Int | None = None) -> Int:
    """A random fold of each sample, from 0; sizes differ by at most one.

    With ``clusters`` (a number from 0 per sample) no cluster is divided: in random order, each goes
    to the fold that is smallest so far.
    """
    rng = np.random.default_rng(check_seed(seed))
    if clusters is None:
        numbers: Int = rng.permutation(num_samples) % folds
        return numbers
    sizes = np.bincount(clusters)
    fold, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(folds)
    for cluster in rng.permutation(len(sizes)):
        fold[cluster] = filled.argmin()
        filled[fold[cluster]] += sizes[cluster]
    return fold[clusters]


def dot(a: Float64, b: Float64) -> float:
    """Inner product of two long columns, on one core.

    BLAS would start its threads for this, which can cost milliseconds on a busy machine.
    """
    return float(np.einsum("i,i->", a, b))


def scalar(values: Float64) -> float:
    """A float where there is one value; an array of several stays what it is, whatever its type."""
    return float(values) if np.ndim(values) == 0 else cast("float", values)


def dots(a: Float64, b: Float64) -> float:
    """Inner products along the last axis: a float, or an array where there are other axes."""
    return scalar(np.einsum("...i,...i->...", a, b))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products on the thread that calls them.

    Chunks already share the cores, and on a busy machine BLAS threads wait for one another.
    """
    with _blas_libraries().limit(limits=1):
        yield


@cache
def _blas_libraries() -> Any:
    """The BLAS library that NumPy loaded, found once: looking for it takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


_most_threads: int | None = None


def limit_threads(most: int) -> None:
    """Limit this process, one of several on the machine, to ``most`` cores."""
    global _most_threads  # noqa: PLW0603 - a property of the process
    _most_threads = most


def num_threads() -> int:
    """Number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return cores if _most_threads is None else min(cores, _most_threads)
