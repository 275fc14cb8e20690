"""What each sample belongs to: its cluster, its groups, and its sampling weight."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float64, Int, read_only, to_floats, to_numpy
from calibrant._core.checks import check_per_sample, near_name, refuse

# Names of the columns in files; the name of a grouping follows the prefix.
CLUSTERS, WEIGHTS, GROUP_PREFIX = "clusters", "weights", "group:"
Groups = Mapping[str, NDArray[Any]]
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd: products of different numbers differ


@dataclass(frozen=True)
class Belonging:
    """Clusters, groups and weights of N samples, checked; each may be absent."""

    clusters: NDArray[Any] | None = None
    groups: Groups = field(default_factory=lambda: MappingProxyType({}))
    weights: Float64 | None = None
    # Where clusters are the numbers of images within a batch of maps: what names that batch.
    batch: int | None = None

    @classmethod
    def of(
        cls,
        clusters: Any,
        groups: Any,
        weights: Any,
        num_samples: int,
        batch: int | None = None,
    ) -> Self:
        """Check the arguments for N samples."""
        if groups is not None and not isinstance(groups, Mapping):
            rule, advice = "must map names to arrays", 'Write groups={"hospital": hospital}.'
            raise refuse("groups", rule, f"got {type(groups).__name__}", advice)
        named = {
            _group_name(name): _names(values, f"groups[{name!r}]", num_samples)
            for name, values in (groups or {}).items()
        }
        return cls(
            None if clusters is None else _names(clusters, CLUSTERS, num_samples),
            MappingProxyType(named),
            None if weights is None else _weights(weights, num_samples),
            batch,
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a file as arguments of a record."""
        groups = {name: arrays[f"{GROUP_PREFIX}{name}"] for name in groupings(arrays)}
        found = {name: arrays[name] for name in (CLUSTERS, WEIGHTS) if name in arrays}
        return found | ({"groups": groups} if groups else {})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns as they are stored in files."""
        found = {CLUSTERS: self.clusters, WEIGHTS: self.weights}
        found |= {f"{GROUP_PREFIX}{name}": array for name, array in self.groups.items()}
        return {name: array for name, array in found.items() if array is not None}

    def arguments(self, rows: Any = slice(None)) -> dict[str, Any]:
        """Some rows, as arguments of a record."""
        taken = self.take(rows)
        return {"clusters": taken.clusters, "groups": taken.groups, "weights": taken.weights}

    def take(self, rows: Any) -> Belonging:
        """The samples at ``rows``."""
        return Belonging(
            None if self.clusters is None else read_only(self.clusters[rows]),
            MappingProxyType({name: read_only(array[rows]) for name, array in self.groups.items()}),
            None if self.weights is None else read_only(self.weights[rows]),
            self.batch,
        )

    @property
    def stream_clusters(self) -> NDArray[Any] | None:
        """The clusters by names that also tell them from those of other batches of maps."""
        if self.clusters is None or self.batch is None:
            return self.clusters
        return (self.clusters.astype(np.uint64) * SPREAD ^ np.uint64(self.batch)).view(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        """Plain values: a read-only mapping cannot be pickled."""
        found = {"clusters": self.clusters, "groups": dict(self.groups), "weights": self.weights}
        return found | {"batch": self.batch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, groups=MappingProxyType(state["groups"]))

    @cached_property
    def codes(self) -> Int | None:
        """The cluster of each sample as a number from 0, in the order of the sorted names."""
        if self.clusters is None:
            return None
        codes: Int = np.unique(self.clusters, return_inverse=True)[1].astype(np.int64)
        return codes

    def num_units(self, num_samples: int) -> int:
        """The number of independent units: clusters, or samples where there are none."""
        return num_samples if self.codes is None else int(self.codes.max()) + 1

    def group(self, name: str) -> NDArray[Any]:
        """The group of each sample under the named grouping."""
        check_group(name, self.groups)
        return self.groups[name]


NONE = Belonging()


def check_group(name: str, known: Collection[str]) -> None:
    """Reject a grouping that is not there."""
    if name not in known:
        column = f"Load a column of the file with group_columns=[{name!r}]."
        near = f"{near_name(name, known)} " if known else ""
        raise refuse("by", "must name one of the groups", f"got {name!r}", near + column)


def groupings(names: Iterable[str]) -> list[str]:
    """The groupings among the names of arrays.

    >>> groupings(["labels", "group:site"])
    ['site']
    """
    return [name.removeprefix(GROUP_PREFIX) for name in names if name.startswith(GROUP_PREFIX)]


def is_belonging(name: str) -> bool:
    """Whether a column of a file holds clusters, weights or a group."""
    return name in (CLUSTERS, WEIGHTS) or (
        name.startswith(GROUP_PREFIX) and len(name) > len(GROUP_PREFIX)
    )


def _group_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        rule, advice = "must have strings as names", 'Write groups={"hospital": hospital}.'
        raise refuse("groups", rule, f"got {name!r}", advice)
    return name


def _names(values: Any, argument: str, num_samples: int) -> NDArray[Any]:
    """A column of integers or strings, one per sample."""
    array = to_numpy(values, argument)
    check_per_sample(argument, array.shape, num_samples)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array):
        array = array.astype(np.str_)
    if array.dtype.kind not in "biuU":
        rule, advice = (
            "must be integers or strings",
            "Fill missing values with a name of their own.",
        )
        raise refuse(argument, rule, f"got dtype {array.dtype}", advice)
    return read_only(array)


def _weights(values: Any, num_samples: int) -> Float64:
    array = to_floats(values, WEIGHTS).astype(np.float64)
    check_per_sample(WEIGHTS, array.shape, num_samples)
    wrong = np.flatnonzero(~((array > 0) & np.isfinite(array)))
    if len(wrong):
        rule, advice = "must be finite numbers above 0", "Leave out samples of weight 0."
        raise refuse(WEIGHTS, rule, f"got {array[wrong[0]]:g} in row {wrong[0]}", advice)
    return read_only(array)
