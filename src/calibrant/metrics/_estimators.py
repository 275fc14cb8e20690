"""Calibration errors as the grid bootstrap simulates them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from calibrant._core.arrays import Float64
from calibrant.metrics._binned import debiased_square, ece
from calibrant.metrics._binning import Binning
from calibrant.metrics._kernel import (
    kde_ece,
    laplacian_form,
    likeliest_bandwidth,
    median_distance,
    population_kde_ece,
    skce,
)
from calibrant.metrics._sample import Ranked

Options = Mapping[str, Any]
Statistic = Callable[..., float]


@dataclass(frozen=True)
class Estimator:
    """A calibration error as the grid bootstrap sees it.

    ``statistic`` is simulated; ``population`` is what it estimates, of a whole population;
    ``back`` leads from the statistic's scale to the metric's. ``bins`` and ``binning`` are those in
    which the gaps of the populations are taken: the metric's own, if it has any. ``floor`` says
    that a calibrated population has an error above 0, which itself has to be estimated.
    """

    statistic: Callable[[Ranked], float]
    population: Callable[[Ranked], float]
    back: Callable[[float], float] = float
    bins: int = 15
    binning: Binning = "mass"
    floor: bool = False

    @property
    def family(self) -> tuple[int, Binning]:
        """What the populations depend on."""
        return self.bins, self.binning

    def least(self, ranked: Ranked) -> float:
        """The error of a calibrated population with these confidences."""
        return self.population(population(ranked, ranked.confidence))

    @property
    def excess(self) -> Estimator:
        """The same error above that of a calibrated population."""
        return replace(
            self,
            statistic=lambda r: self.statistic(r) - self.least(r),
            population=lambda r: self.population(r) - self.least(r),
            floor=False,
        )


def population(ranked: Ranked, chance: Float64) -> Ranked:
    """These confidences, with the chance of being right in place of the outcome."""
    return Ranked(ranked.confidence, ranked.count, ranked.count * chance)


# --- one maker per kind of metric: (the metric's function, its options, the data) -> Estimator ---


def as_it_is(function: Statistic, options: Options, _: Ranked) -> Estimator:
    """A metric without bins: what is simulated is what is estimated."""
    chosen = partial(function, **options)
    return Estimator(chosen, chosen)


def binned(
    function: Statistic,
    options: Options,
    _: Ranked,
    *,
    binning: Binning = "width",
    floor: bool = False,
) -> Estimator:
    """A metric over bins, in which the gaps of the populations are taken too."""
    chosen = partial(function, **options)
    bins, binning = options.get("bins", 15), options.get("binning", binning)
    return Estimator(chosen, chosen, bins=bins, binning=binning, floor=floor)


def debiased(_: Statistic, options: Options, __: Ranked) -> Estimator:
    """The square, which is unbiased; the root of a noisy square is not."""
    shape: dict[str, Any] = {"norm": 2, "binning": "mass", **options}
    return Estimator(
        partial(debiased_square, **options),
        lambda r: ece(r, **shape) ** 2,
        lambda square: math.sqrt(max(square, 0.0)),
        bins=options.get("bins", 15),
        binning=shape["binning"],
    )


def kernel(_: Statistic, options: Options, ranked: Ranked) -> Estimator:
    """SKCE with the kernel width that the data give."""
    width = options.get("width") or median_distance(ranked)
    return Estimator(
        partial(skce, width=width),
        lambda r: laplacian_form(r.confidence, r.residual, width) / r.total**2,
    )


def density(_: Statistic, options: Options, ranked: Ranked) -> Estimator:
    """KDE-ECE; the bandwidth is part of the definition, so it is chosen once."""
    bandwidth = options.get("bandwidth") or likeliest_bandwidth(ranked)
    chosen = {**options, "bandwidth": bandwidth}
    return Estimator(partial(kde_ece, **chosen), partial(population_kde_ece, **chosen))
