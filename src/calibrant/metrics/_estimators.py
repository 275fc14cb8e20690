"""Calibration errors in the form that the grid bootstrap simulates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.metrics._binned import debiased_square, ece, norm_of_gaps
from calibrant.metrics._binning import Binning, BinSums, bin_sums
from calibrant.metrics._kernel import (
    MMCE_WIDTH,
    kde_ece,
    laplacian_form,
    likeliest_bandwidth,
    median_distance,
    population_kde_ece,
    skce,
)
from calibrant.metrics._sample import Ranked
from calibrant.metrics._simulated import Simulated
from calibrant.metrics._smooth import smooth_errors

Options = Mapping[str, Any]
Statistic = Callable[..., float]
# Added to every bin where the largest gap is simulated.
CALIBRATED_SAMPLES = 10


@dataclass(frozen=True)
class Estimator:
    """A calibration error as the grid bootstrap sees it.

    ``statistic`` is simulated; ``batched`` is the same of many replicates at once; ``population``
    is what it estimates, of a whole population; ``back`` leads from the statistic's scale to the
    metric's. ``bins`` and ``binning`` are those in which the gaps of the populations are taken: the
    metric's own, if it has any. ``one_sided`` says that gaps of one sign do not count. ``excess``
    is the error above that of a calibrated population, where that is not 0 and itself has to be
    estimated. ``at_least`` is an error that this one never falls below. ``unbiased`` says that the
    statistic is right on average, whatever the sharpness of the model; ``many_gaps`` that it is a
    mean over the gaps of bins or places, each of them estimated.
    """

    statistic: Callable[[Ranked], float]
    population: Callable[[Ranked], float]
    batched: Callable[[Any], Float64]
    back: Callable[[float], float] = float
    bins: int = 15
    binning: Binning = "mass"
    one_sided: bool = False
    excess: Estimator | None = None
    at_least: Estimator | None = None
    unbiased: bool = False
    many_gaps: bool = False

    @property
    def family(self) -> tuple[int, Binning, bool]:
        """What the populations depend on."""
        return self.bins, self.binning, self.one_sided

    def least(self, ranked: Ranked) -> float:
        """The error of a calibrated population with these confidences."""
        return self.population(population(ranked, ranked.confidence))


def population(ranked: Ranked, chance: Float64) -> Ranked:
    """These confidences, with the chance of being right in place of the outcome."""
    return Ranked(ranked.confidence, ranked.count, ranked.count * chance)


# --- one maker per kind of metric: (the metric's function, its options, the data) -> Estimator ---


def one_by_one(function: Statistic, options: Options, _: Ranked) -> Estimator:
    """A metric without bins: what is simulated is what is estimated, one replicate at a time."""
    chosen = partial(function, **options)
    return Estimator(chosen, chosen, lambda r: r.one_by_one(chosen))


def smooth(function: Statistic, _: Options, __: Ranked) -> Estimator:
    """Smooth ECE."""
    return Estimator(function, function, smooth_errors)


def mean_embedding(function: Statistic, options: Options, _: Ranked) -> Estimator:
    """MMCE."""
    chosen = partial(function, **options)
    width = options.get("width", MMCE_WIDTH)

    def batched(r: Simulated) -> Float64:
        square = laplacian_form(r.confidence, r.residual, width) / r.drawn.shape[1] ** 2
        root: Float64 = np.sqrt(np.maximum(square, 0))
        return root

    return Estimator(chosen, chosen, batched)


def binned(
    function: Statistic, options: Options, _: Ranked, *, binning: Binning = "width"
) -> Estimator:
    """A metric over bins, in which the gaps of the populations are taken too."""
    bins, binning = options.get("bins", 15), options.get("binning", binning)
    chosen = partial(function, **options)
    of_sums = partial(function, **{k: v for k, v in options.items() if k == "norm"})
    return Estimator(
        chosen,
        chosen,
        lambda r: np.asarray(of_sums(r.sums(bins, binning))),
        bins=bins,
        binning=binning,
    )


def one_sided(function: Statistic, options: Options, ranked: Ranked) -> Estimator:
    """A metric over bins in which gaps of one sign do not count."""
    return replace(binned(function, options, ranked), one_sided=True, many_gaps=True)


def norm_binned(
    function: Statistic, options: Options, ranked: Ranked, *, binning: Binning = "width"
) -> Estimator:
    """ECE of some norm: one above 1 is at least that of norm 1, and infinity is the largest gap."""
    norm = options.get("norm", 1)
    if math.isinf(norm):
        return largest_gap(function, options, ranked, binning=binning)
    found = replace(binned(function, options, ranked, binning=binning), many_gaps=True)
    if norm <= 1:
        return found
    return replace(found, at_least=_mean_gap(found.bins, found.binning, ranked))


def largest_gap(
    function: Statistic, options: Options, ranked: Ranked, *, binning: Binning = "width"
) -> Estimator:
    """The largest gap of any bin, never below the mean gap.

    A bin with one sample has a gap of chance, and where there is one, the largest gap says nothing
    about the other bins. So gaps count as if each bin had a few calibrated samples more.
    """
    bins, binning = options.get("bins", 15), options.get("binning", binning)

    def shrunk(sums: BinSums) -> Float64:
        gap = np.abs(sums.hits - sums.confidence) / (sums.count + CALIBRATED_SAMPLES)
        largest: Float64 = gap.max(axis=-1)
        return largest

    return Estimator(
        lambda r: float(shrunk(bin_sums(r, bins, binning))),
        partial(function, **options),
        lambda r: shrunk(r.sums(bins, binning)),
        bins=bins,
        binning=binning,
        at_least=_mean_gap(bins, binning, ranked),
    )


def _mean_gap(bins: int, binning: Binning, ranked: Ranked) -> Estimator:
    return binned(ece, {"bins": bins, "binning": binning}, ranked)


def label_binned(function: Statistic, options: Options, _: Ranked) -> Estimator:
    """Label-binned ECE, which is not 0 for a calibrated population."""
    bins, binning = options.get("bins", 15), options.get("binning", "width")
    chosen = partial(function, **options)

    def error(r: Simulated, accuracy: Float64) -> Float64:
        place, size = r.bins_of(bins, binning), r.drawn.shape[1]
        share, norm = np.full(size, 1 / size), options.get("norm", 1)
        found = np.empty(accuracy.shape[:2])
        for row, of_bins in enumerate(accuracy):  # one by one they stay in the processor's cache
            distance = of_bins[:, place[row]]
            distance -= r.confidence[r.drawn[row]]
            found[row] = norm_of_gaps(share, np.abs(distance, out=distance), norm)
        return found

    def above(ranked: Ranked) -> float:
        return chosen(ranked) - chosen(population(ranked, ranked.confidence))

    def batched(r: Simulated) -> Float64:
        return error(r, r.sums(bins, binning).accuracy)

    def batched_above(r: Simulated) -> Float64:
        return batched(r) - error(r, r.sums(bins, binning).mean_confidence)

    return Estimator(
        chosen,
        chosen,
        batched,
        bins=bins,
        binning=binning,
        excess=Estimator(above, above, batched_above, bins=bins, binning=binning),
        many_gaps=True,
    )


def debiased(_: Statistic, options: Options, __: Ranked) -> Estimator:
    """The square, which is unbiased; the root of a noisy square is biased."""
    shape: dict[str, Any] = {"norm": 2, "binning": "mass", **options}
    bins, binning = options.get("bins", 15), shape["binning"]
    return Estimator(
        partial(debiased_square, **options),
        lambda r: ece(r, **shape) ** 2,
        lambda r: np.asarray(debiased_square(r.sums(bins, binning))),
        lambda square: math.sqrt(max(square, 0.0)),
        bins=bins,
        binning=binning,
        unbiased=True,
        many_gaps=True,
    )


def kernel(_: Statistic, options: Options, ranked: Ranked) -> Estimator:
    """SKCE with the kernel width chosen from the data."""
    width = options.get("width") or median_distance(ranked)

    def batched(r: Simulated) -> Float64:
        c, size = r.confidence, r.drawn.shape[1]
        own = r.hits @ ((1 - c) ** 2) + (r.count[:, None] - r.hits) @ c**2
        form: Float64 = laplacian_form(c, r.residual, width)
        return (form - own) / (size * (size - 1)) if size > 1 else np.full(own.shape, np.nan)

    return Estimator(
        partial(skce, width=width),
        lambda r: laplacian_form(r.confidence, r.residual, width) / r.total**2,
        batched,
        unbiased=True,
    )


def density(_: Statistic, options: Options, ranked: Ranked) -> Estimator:
    """KDE-ECE; the bandwidth is part of the definition, so it is chosen once."""
    bandwidth = options.get("bandwidth") or likeliest_bandwidth(ranked)
    chosen = {**options, "bandwidth": bandwidth}
    statistic = partial(kde_ece, **chosen)
    return Estimator(
        statistic,
        partial(population_kde_ece, **chosen),
        lambda r: r.one_by_one(statistic),
        many_gaps=True,
    )
