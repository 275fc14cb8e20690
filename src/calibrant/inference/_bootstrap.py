"""The plain bootstrap over samples, and the exact interval of the accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from calibrant._core.arrays import Float64, Int, over_chunks
from calibrant._core.compiled import compiled_rows
from calibrant._core.compiled_simulation import count_draws
from calibrant._core.numerics import expit, logit, normal_quantile
from calibrant.inference._clusters import Clusters, expanded
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import METRICS
from calibrant.metrics._bin_bounds import wilson_interval
from calibrant.metrics._sample import Ranked, Sample

# Elements of the weight matrix created at a time.
WEIGHT_ELEMENTS = 2_000_000
# Elements of the replicates that are evaluated together, so that they stay in the cache.
TOGETHER = 1 << 16


def resample_weights(
    num_samples: int,
    replicates: int,
    seed: int,
    *,
    elements: int = 0,
    clusters: Clusters | None = None,
    order: Int | None = None,
) -> Iterator[Float64]:
    """Yield how often each sample was drawn in each replicate, in batches (r, N).

    The samples drawn are the same for every model with this seed, whatever the batches.
    ``elements`` is the additional memory per replicate of a batch, in elements. With an ``order``,
    weights are those of the samples in this order. A batch is overwritten by the next one.
    """
    batch = max(1, min(replicates, WEIGHT_ELEMENTS // max(num_samples, elements)))
    rng = np.random.default_rng(seed)
    step = max(1, TOGETHER // num_samples)
    whole = None if clusters is None else clusters.resampled_weights(replicates, seed)
    place = np.arange(num_samples)
    if order is not None:
        place[order] = np.arange(num_samples)
    weights = np.empty((batch, num_samples))
    for start in range(0, replicates, batch):
        some = weights[: min(batch, replicates - start)]
        if whole is None:
            for first in range(0, len(some), step):
                few = some[first : first + step]
                _count_draws(rng.integers(0, num_samples, few.shape), place, few)
        else:
            for row, counts in zip(some, whole, strict=False):
                row[place] = counts
        yield some


def _count_draws(drawn: Int, place: Int, weights: Float64) -> None:
    """Write how often each sample was drawn to its place, for a few replicates (r, N)."""
    rows = compiled_rows()
    if len(drawn) > 1:
        begins = np.arange(0, drawn.size, len(place))[:, None]
        drawn, place = drawn + begins, (place + begins).reshape(-1)
    if rows is None:
        weights[:] = np.bincount(place[drawn.reshape(-1)], minlength=len(place)).reshape(
            weights.shape
        )
    else:
        weights[:] = 0
        count_draws(rows, drawn, place, weights.reshape(-1))


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
    parts: list[Float64] = []
    clusters = Clusters.of(sample.source)
    size = len(sample.weight) if clusters is None else clusters.count
    batches = resample_weights(
        len(sample.weight),
        resampling.replicates,
        resampling.seed,
        clusters=clusters,
        # Drawn by their place in the source, so that NLL and log loss of two classes have one
        # interval.
        order=sample.order,
    )
    for drawn in batches:
        parts += replicate_values(
            sample, functions, drawn if sample.unweighted else drawn * sample.weight
        )
    level = resampling.level if clusters is None else expanded(resampling.level, size)
    columns = dict(zip(functions, np.concatenate(parts, axis=1), strict=True))
    return {
        name: replicate_bounds(name, functions[name](sample), column, level, size)
        for name, column in columns.items()
    }


def replicate_values(
    sample: Sample, functions: Mapping[str, Callable[[Sample], float]], weights: Float64
) -> list[Float64]:
    """Each function of each replicate: arrays (functions, replicates), a few replicates each."""
    size = max(1, TOGETHER // weights.shape[1])
    batched = {name for name in functions if name in METRICS and METRICS[name].batched}

    def work(slices: Iterator[slice]) -> list[tuple[int, Float64]]:
        return [(rows.start, some(weights[rows])) for rows in slices]

    def some(few: Float64) -> Float64:
        together = sample.reweighted(few)
        return np.array(
            [
                f(together) if name in batched else [f(sample.reweighted(one)) for one in few]
                for name, f in functions.items()
            ]
        )

    made = over_chunks(work, len(weights), weights.shape[1], step=size)
    parts = (part for found in made for part in found)
    return [values for _, values in sorted(parts, key=lambda part: part[0])]


def replicate_bounds(
    name: str, value: float, column: Float64, level: float, num_samples: int
) -> Bounds:
    """The interval of a metric from its value and its values in bootstrap replicates."""
    if name in METRICS and METRICS[name].scale == "logit" and 0 < value < 1:
        return _logit_bounds(value, column, level, num_samples)
    return _quantiles(column, level)


def _logit_bounds(value: float, values: Float64, level: float, num_samples: int) -> Bounds:
    """Estimate ± z standard errors on the logit scale; NaN where most values are undefined.

    Replicates lie above the estimate, on average, about as far as the estimate lies above the
    truth: average precision counts every positive in its own precision. The bound on that side is
    moved by as much; the other one stays, because the bias is itself only estimated.
    """
    defined = values[~np.isnan(values)]
    if len(defined) <= len(values) / 2:
        return math.nan, math.nan
    least = 1 / num_samples**2  # as near to 0 or 1 as a share of pairs can come
    drawn = logit(np.clip(defined, least, 1 - least))
    reach = normal_quantile((1 + level) / 2) * float(drawn.std(ddof=1))
    middle = float(logit(value))
    bias = float(drawn.mean()) - middle
    low, high = middle - reach - max(bias, 0.0), middle + reach - min(bias, 0.0)
    return float(expit(low)), float(expit(high))


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
