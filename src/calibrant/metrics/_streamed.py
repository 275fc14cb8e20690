"""Metrics of a stream: from sums and histograms that do not grow with the number of samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from calibrant._core.arrays import Float64
from calibrant.metrics._binned import adaptive_ece, debiased_ece, ece
from calibrant.metrics._binning import BinSums
from calibrant.metrics._classwise import ClasswiseCounts
from calibrant.metrics._limits import (
    Histogram,
    Limits,
    MassBins,
    debiased_limits,
    mass_ece_limits,
    ranking_limits,
    smooth_slack,
)
from calibrant.metrics._smooth import smooth_ece

# Options of the panel: bins, norm, binning.
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Resampled:
    """Sums over the rows of a stream in replicates that draw whole clusters.

    The first row of each table is of the data themselves, with every cluster once. ``hits`` and
    ``misses`` are by cell of a coarse histogram of log s, from least to most confident; the other
    sums are over the octaves of s. ``units`` is the number of clusters.
    """

    units: int
    hits: Float64
    misses: Float64
    bin_count: Float64
    bin_hits: Float64
    bin_confidence: Float64
    means: Mapping[str, Float64]


@dataclass(frozen=True)
class Streamed:
    """What an accumulator knows: means per sample, equal-width bins, the histogram of log s.

    ``moments`` are the means of the finite values and of their squares; ``impossible`` is the
    number of labels of probability 0. ``resampled`` is there if the samples come in clusters.
    """

    means: Mapping[str, float]
    width: BinSums
    histogram: Histogram
    classwise: ClasswiseCounts | None
    moments: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    impossible: int = 0
    resampled: Resampled | None = None

    @cached_property
    def mass_bins(self) -> MassBins:
        """Limits of the equal-mass bins."""
        return MassBins.of(self.histogram, len(self.width.count))

    @cached_property
    def ranking_limits(self) -> dict[str, Limits]:
        """Limits of the ranking metrics, which share their orders."""
        return ranking_limits(self.histogram)


@dataclass(frozen=True)
class Stream:
    """How a metric is computed from a stream, and the limits of its exact value.

    Without ``limits`` the value is exact up to rounding; limits of None mean the same for one
    choice of options. ``from_histogram`` says that it needs the histogram, at least by default, and
    ``ranks`` that it depends on the order of the confidences alone.
    """

    value: Callable[[Streamed, Options], float]
    limits: Callable[[Streamed, Options], Limits | None] | None = None
    from_histogram: bool = False
    ranks: bool = False


def mean(name: str) -> Stream:
    """A mean per sample, added exactly."""
    return Stream(lambda s, _: s.means[name])


def in_width_bins(function: Callable[..., float]) -> Stream:
    """A metric over equal-width bins, which the stream has exactly."""
    return Stream(lambda s, o: function(s.width, bins=o["bins"]))


def ranking(function: Callable[..., float]) -> Stream:
    """A ranking metric; samples of one cell of the histogram count as ties."""
    return Stream(
        lambda s, _: function(s.histogram.ties),
        lambda s, _: s.ranking_limits[function.__name__],
        from_histogram=True,
        ranks=True,
    )


def _ece(s: Streamed, o: Options) -> float:
    return ece(s.width if o["binning"] == "width" else s.histogram.ties, **o)


def _ece_limits(s: Streamed, o: Options) -> Limits | None:
    return mass_ece_limits(s.mass_bins, o["norm"]) if o["binning"] == "mass" else None


def _smooth_limits(s: Streamed, _: Options) -> Limits:
    value = smooth_ece(s.histogram.apart)
    slack = smooth_slack(s.histogram, value)
    return value - slack, value + slack


def _classwise(s: Streamed, _: Options) -> float:
    assert s.classwise is not None
    return s.classwise.ece(1)


ACCURACY = Stream(lambda s, _: float(s.width.hits.sum()) / float(s.width.count.sum()))
MEAN_CONFIDENCE = Stream(lambda s, _: float(s.width.confidence.sum()) / float(s.width.count.sum()))
ECE = Stream(_ece, _ece_limits)
ADAPTIVE_ECE = Stream(
    lambda s, o: adaptive_ece(s.histogram.ties, bins=o["bins"]),
    lambda s, _: mass_ece_limits(s.mass_bins, 1),
    from_histogram=True,
)
DEBIASED_ECE = Stream(
    lambda s, o: debiased_ece(s.histogram.ties, bins=o["bins"]),
    lambda s, _: debiased_limits(s.mass_bins),
    from_histogram=True,
)
SMOOTH_ECE = Stream(lambda s, _: smooth_ece(s.histogram.apart), _smooth_limits, from_histogram=True)
CLASSWISE_ECE = Stream(_classwise)


def slack(value: float, limits: Limits | None) -> float:
    """How far a streamed value can be from the exact one; NaN limits: undefined in both."""
    if limits is None or math.isnan(limits[0]):
        return 0.0
    return max(limits[1] - value, value - limits[0], 0.0)
