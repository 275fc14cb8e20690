"""Convert any array to NumPy, and process cache-sized chunks of rows on all cores.

Arrays of torch, JAX and similar libraries are recognised by their methods, so none is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_seed, refuse

Float = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]
Result = TypeVar("Result")

# Two megabytes of float32: a few such buffers fit the last-level cache, and calls into NumPy are
# long enough that threads seldom wait for the interpreter lock.
CHUNK_ELEMENTS = 512 * 1024
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
    """Return a view of ``array`` that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def chunk_rows(num_columns: int) -> int:
    """Rows of a chunk that fits the cache."""
    return max(1, CHUNK_ELEMENTS // max(1, num_columns))


def row_slices(num_rows: int, num_columns: int) -> Iterator[slice]:
    """Yield the row ranges of the cache-sized chunks of an array."""
    step = chunk_rows(num_columns)
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))


def over_chunks(
    work: Callable[[Iterator[slice]], Result],
    num_rows: int,
    num_columns: int,
    *,
    threads: int | None = None,
) -> list[Result]:
    """Run ``work`` on interleaved chunks of rows, one call per core; return each call's result.

    NumPy frees the interpreter lock inside its loops, so threads share the cores without copies.
    """
    slices = list(row_slices(num_rows, num_columns))
    workers = min(threads or num_threads(), len(slices))
    if workers <= 1 or num_rows * num_columns < PARALLEL_ELEMENTS:
        return [work(iter(slices))]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda first: work(iter(slices[first::workers])), range(workers)))


def fold_numbers(num_samples: int, folds: int, seed: int) -> Int:
    """A random fold of each sample, from 0; sizes differ by at most one."""
    numbers: Int = np.random.default_rng(check_seed(seed)).permutation(num_samples) % folds
    return numbers


def dot(a: Float64, b: Float64) -> float:
    """Inner product of two long columns, on one core.

    BLAS would wake its threads for it, and on a busy machine wait milliseconds for them.
    """
    return float(np.einsum("i,i->", a, b))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep matrix products on the thread that calls them.

    Chunks already share the cores, and on a busy machine BLAS threads wait for one another.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def num_threads() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1
