"""Poisson(1) weights of clusters that any machine draws alike, and how many clusters there are.

A weight depends on the name of the cluster and the number of the replicate alone. So rows of one
cluster count alike wherever they are read, and a bootstrap over clusters needs neither their list
nor one place that has seen all of them.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPLICATES = 200
# Four weights are read from each 64-bit hash. Chances are rounded to 2^-16.
_LANES, _LEVELS = 4, 1 << 16
# Hashes that are kept to estimate the number of clusters; fewer clusters are counted exactly.
SKETCH_SIZE = 4096

Hashes = NDArray[np.uint64]


def hashes_of(names: NDArray[Any]) -> Hashes:
    """A 64-bit hash of each name: an integer or a string."""
    if names.dtype.kind == "U":
        digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
    return _mixed(names.astype(np.int64).view(np.uint64))


def poisson_weights(hashes: Hashes) -> NDArray[np.uint8]:
    """How often each cluster counts in each replicate, (clusters, R)."""
    words = np.arange(1, REPLICATES // _LANES + 1, dtype=np.uint64)
    mixed = _mixed(hashes[:, None] ^ _mixed(words)).astype("<u8", copy=False)
    weights: NDArray[np.uint8] = _TABLE[mixed.view("<u2")]
    return weights


def merged_sketch(*sketches: Hashes) -> Hashes:
    """The least hashes of all clusters, sorted, each once."""
    return np.unique(np.concatenate(sketches))[:SKETCH_SIZE]


def estimated_count(sketch: Hashes) -> int:
    """Number of clusters: exact if the sketch has room, else from how dense the least hashes lie.

    Reference: Bar-Yossef et al. (2002), doi:10.1007/3-540-45726-7_1; standard error 1.6 %.
    """
    if len(sketch) < SKETCH_SIZE:
        return len(sketch)
    return round((SKETCH_SIZE - 1) * 2.0**64 / (float(sketch[-1]) + 1))


def _mixed(values: Hashes) -> Hashes:
    """SplitMix64 (Steele, Lea and Flood 2014): every bit of the input moves every bit."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def _table() -> NDArray[np.uint8]:
    """The Poisson(1) quantile of each of 2^16 equally likely numbers."""
    chances = np.array([math.exp(-1) / math.factorial(k) for k in range(12)])
    number = (np.arange(_LEVELS) + 0.5) / _LEVELS
    return np.searchsorted(np.cumsum(chances), number).astype(np.uint8)


_TABLE = _table()
