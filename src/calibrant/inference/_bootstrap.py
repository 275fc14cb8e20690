"""The plain bootstrap over samples, and the exact interval of the accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._binned import wilson_interval
from calibrant.metrics._sample import Ranked, Sample

# Elements of the weight matrix made at a time.
WEIGHT_ELEMENTS = 8_000_000


def resampled_rows(num_samples: int, replicates: int, seed: int) -> Iterator[Int]:
    """Yield the samples drawn in each replicate; the same for every model with this seed."""
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        yield rng.integers(0, num_samples, num_samples)


def resample_weights(
    num_samples: int, replicates: int, seed: int, *, elements: int = 0
) -> Iterator[Float64]:
    """Yield how often each sample was drawn in each replicate, in batches (r, N).

    ``elements`` is what else a replicate of a batch will occupy.
    """
    batch = max(1, min(replicates, WEIGHT_ELEMENTS // max(num_samples, elements)))
    rows = resampled_rows(num_samples, replicates, seed)
    for start in range(0, replicates, batch):
        weights = np.empty((min(batch, replicates - start), num_samples))
        for row, drawn in zip(weights, rows, strict=False):
            row[:] = np.bincount(drawn, minlength=num_samples)
        yield weights


def bootstrap_bounds(
    sample: Sample,
    functions: Mapping[str, Callable[[Sample], float]],
    resampling: Resampling,
) -> dict[str, Bounds]:
    """Intervals of functions from bootstrap replicates.

    Metrics on the logit scale get estimate ± z standard errors there: with few errors their
    percentiles are off-centre. All others get the central part of the replicates.
    """
    if not functions:
        return {}

    def evaluate(weight: Float64) -> list[float]:
        drawn = sample.reweighted(weight)
        return [function(drawn) for function in functions.values()]

    rows: list[list[float]] = []
    for weights in resample_weights(len(sample.weight), resampling.replicates, resampling.seed):
        rows += map(evaluate, weights)
    level = resampling.level
    columns = dict(zip(functions, np.array(rows).T, strict=True))
    found = {}
    for name, column in columns.items():
        value = functions[name](sample)
        on_logit = name in METRICS and METRICS[name].scale == "logit" and 0 < value < 1
        found[name] = (
            _logit_bounds(value, column, level, len(sample.weight))
            if on_logit
            else _quantiles(column, level)
        )
    return found


def _logit_bounds(value: float, values: Float64, level: float, num_samples: int) -> Bounds:
    """Estimate ± z standard errors on the logit scale; NaN where most values are undefined."""
    from scipy.special import expit, logit, ndtri

    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return math.nan, math.nan
    least = 1 / num_samples**2  # as near to 0 or 1 as a share of pairs can come
    spread = float(logit(np.clip(defined, least, 1 - least)).std(ddof=1))
    reach = float(ndtri((1 + level) / 2)) * spread
    middle = float(logit(value))
    return float(expit(middle - reach)), float(expit(middle + reach))


def _quantiles(values: Float64, level: float) -> Bounds:
    """The central part of the values; NaN where most are undefined."""
    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return math.nan, math.nan
    tail = (1 - level) / 2
    # "lower" and "higher" never interpolate, so infinite values stay what they are.
    low = np.quantile(defined, tail, method="lower")
    return float(low), float(np.quantile(defined, 1 - tail, method="higher"))


def accuracy_bounds(ranked: Ranked, level: float) -> Bounds:
    """Wilson interval of the accuracy: the bootstrap of 20 hits out of 20 is a point."""
    low, high = wilson_interval(np.array([ranked.hits.sum()]), np.array([ranked.total]), level)
    return float(low[0]), float(high[0])
