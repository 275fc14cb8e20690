"""Intervals of a stream: from the sums and histograms that an accumulator keeps.

The counts of the histogram are all that the top label's metrics depend on, and a row-by-row Poisson
bootstrap draws each count n as Poisson(n): the sum of n Poisson(1) weights. So replicates are drawn
from the merged counts, with one seed. They cost the same for any number of rows, and they cannot
depend on how the rows were split, on their order, or on a retry.

- Means: the sums of squares give the standard error, z of them each way.
- Ranking metrics: the Poisson bootstrap of the counts.
- Calibration errors: the grid bootstrap as in memory, over the counts.
- Classwise ECE: none. Its interval simulates whole rows of probabilities, which a stream has not.

Where rows come in clusters, the accumulator has replicates in which each cluster was drawn
Poisson(1) times. Their spread replaces the standard errors, and their design effect says what the
counts are worth, as ``_clusters`` has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64
from calibrant.inference._bootstrap import accuracy_bounds, replicate_bounds
from calibrant.inference._clusters import expanded, share_bounds
from calibrant.inference._grid import bounds_of_curves, curves_along, estimators_of
from calibrant.inference._intervals import in_range
from calibrant.inference._paths import Path
from calibrant.inference._resampling import Bounds, Resampling
from calibrant.metrics import LOG_LOSS, METRICS
from calibrant.metrics._binning import width_index
from calibrant.metrics._sample import Ranked
from calibrant.metrics._simulated import SimulatedCounts
from calibrant.metrics._streamed import Resampled, Streamed

Options = Mapping[str, Mapping[str, Any]]
# Entries of the histogram that is simulated; neighbours are joined until there are no more.
MOST_ENTRIES = 2048
EDGES_KEPT = 15
PARTS = 16
# Elements of a batch of replicates.
BATCH_ELEMENTS = 1 << 20
NO_BOUNDS: Bounds = (math.nan, math.nan)


def stream_bounds(
    known: Streamed, names: Sequence[str], *, options: Options, resampling: Resampling
) -> dict[str, Bounds]:
    """Intervals of the named metrics; NaN for those that have none in a stream."""
    work = _Stream(known, options, resampling)
    bounds = dict.fromkeys(names, NO_BOUNDS)
    if work.units > 1:
        for method, make in _METHODS.items():
            chosen = [name for name in names if METRICS[name].interval == method]
            if chosen:
                bounds |= make(work, chosen)
    return {name: in_range(name, found) for name, found in bounds.items()}


@dataclass(frozen=True)
class _Stream:
    """The input of every method."""

    known: Streamed
    options: Options
    resampling: Resampling

    @cached_property
    def ranked(self) -> Ranked:
        """The histogram, with few enough entries to be simulated."""
        return joined_entries(self.known.histogram.ties)

    @property
    def clusters(self) -> Resampled | None:
        """Replicates of the clusters, if there are any."""
        return self.known.resampled

    @cached_property
    def units(self) -> int:
        """Number of clusters, or of samples where there are none."""
        found = self.clusters
        return int(self.ranked.total) if found is None else found.units

    @property
    def level(self) -> float:
        """The level that the number of clusters asks for."""
        level = self.resampling.level
        return level if self.clusters is None else expanded(level, self.units)

    def accuracy_bounds(self) -> Bounds:
        """Wilson's interval."""
        level, found = self.resampling.level, self.clusters
        if found is None:
            return accuracy_bounds(self.ranked, level)
        share = found.bin_hits.sum(axis=1) / found.bin_count.sum(axis=1)
        return share_bounds(float(share[0]), float(share[1:].var(ddof=1)), self.units, level)


def _exact(work: _Stream, names: list[str]) -> dict[str, Bounds]:
    return dict.fromkeys(names, work.accuracy_bounds())


def _bootstrap(work: _Stream, names: list[str]) -> dict[str, Bounds]:
    ranking = [name for name in names if _ranks(name)]
    found = {name: _mean_bounds(work, name) for name in names if name not in ranking}
    if ranking:
        found |= _ranking_bounds(work, ranking)
    return found


def _ranks(name: str) -> bool:
    stream = METRICS[name].stream
    return stream is not None and stream.ranks


def _mean_bounds(work: _Stream, name: str) -> Bounds:
    """A mean ± z standard errors, or percentiles over replicates of the clusters."""
    from scipy.special import ndtri

    if work.clusters is not None:
        values = _cluster_means(work.clusters, name)
        return replicate_bounds(name, float(values[0]), values[1:], work.level, work.units)
    mean, square = work.known.moments.get(name) or _confidence_moments(work.known)
    size, tail = work.ranked.total, (1 - work.resampling.level) / 2
    error = math.sqrt(max(square - mean**2, 0.0) / (size - 1))
    reach = float(ndtri(1 - tail)) * error
    if name == LOG_LOSS and work.known.impossible:
        # A label of probability 0 makes the mean infinite unless a replicate leaves it out.
        seldom = math.exp(-work.known.impossible) <= tail
        return (math.inf if seldom else mean - reach), math.inf
    return mean - reach, mean + reach


def _confidence_moments(known: Streamed) -> tuple[float, float]:
    """Mean of the confidence, and of its square to the width of the histogram's cells."""
    ties = known.histogram.ties
    return ties.mean_confidence, float(ties.count @ ties.confidence**2) / ties.total


def _cluster_means(found: Resampled, name: str) -> Float64:
    if name in found.means:
        return found.means[name]
    confidence: Float64 = found.bin_confidence.sum(axis=1) / found.bin_count.sum(axis=1)
    return confidence


def _ranking_bounds(work: _Stream, names: list[str]) -> dict[str, Bounds]:
    """Ranking metrics over replicates of the counts."""
    functions = {name: METRICS[name].function for name in names}
    values = {name: function(work.known.histogram.ties) for name, function in functions.items()}
    if work.ranked.accuracy in (0, 1):
        unranked = {name: METRICS[name].unranked for name in names}
        ends = work.accuracy_bounds()
        return {name: make(*ends) for name, make in unranked.items() if make is not None}
    replicates = list(_replicates(work))
    spread = replicates if work.clusters is None else [_spread_out(one) for one in replicates]
    found = {}
    for name, function in functions.items():
        # Entries that were joined, or cells that are coarse, shift all replicates alike.
        drawn = replicates if METRICS[name].unweighted else spread
        first, *others = (function(one) for one in drawn)
        column = np.array(others) + (values[name] - first)
        found[name] = replicate_bounds(name, values[name], column, work.level, work.units)
    return found


def _replicates(work: _Stream) -> Iterator[Ranked]:
    """The data, then their replicates."""
    if work.clusters is not None:
        hits, misses = work.clusters.hits, work.clusters.misses
        place = np.arange(hits.shape[1], dtype=np.float64)  # rankings need the order alone
        for right, wrong in zip(hits, misses, strict=True):
            yield Ranked(place, right + wrong, right)
        return
    ranked, rng = work.ranked, np.random.default_rng(work.resampling.seed)
    yield ranked
    for _ in range(work.resampling.replicates):
        right = wrong = np.zeros(0)
        while not (right.any() or wrong.any()):  # of two samples, every seventh replicate is empty
            right, wrong = rng.poisson(ranked.hits), rng.poisson(ranked.misses)
        yield Ranked(
            ranked.confidence, (right + wrong).astype(np.float64), right.astype(np.float64)
        )


def _spread_out(ranked: Ranked) -> Ranked:
    """The samples of each coarse cell spread evenly over parts of it, for thresholds within."""

    def parts(values: Float64) -> Float64:
        return np.repeat(values / PARTS, PARTS)

    place = np.arange(PARTS * len(ranked.count), dtype=np.float64)
    return Ranked(place, parts(ranked.count), parts(ranked.hits))


def _grid(work: _Stream, names: list[str]) -> dict[str, Bounds]:
    """Calibration errors, over as many counts as they are worth."""
    effect = 1.0 if work.clusters is None else design_effect_of(work.clusters)
    whole = work.ranked
    ranked = Ranked(whole.confidence, whole.count / effect, whole.hits / effect)
    estimators = estimators_of(names, work.options, ranked)
    resampling = replace(work.resampling, level=work.level)

    def simulate(every: Any) -> Any:
        return curves_along(ranked, ranked, every, _lots(ranked, resampling))

    return bounds_of_curves(ranked, estimators, resampling.level, simulate)


def _lots(ranked: Ranked, resampling: Resampling) -> Iterator[Callable[[Path], SimulatedCounts]]:
    """Yield what makes replicates of a path, in batches."""
    step = max(1, BATCH_ELEMENTS // (4 * len(ranked.count)))
    for start in range(0, resampling.draws, step):
        size = min(step, resampling.draws - start)
        yield partial(counted_draws, ranked, size, (resampling.seed, start))


def counted_draws(ranked: Ranked, size: int, seed: tuple[int, int], path: Path) -> SimulatedCounts:
    """Draw how many samples each entry has, then right answers at every strength of the path.

    From one strength to the next, only as many answers change as the chance of being right asks
    for, so that all strengths have much the same noise.
    """
    rng = np.random.default_rng(seed)
    count = rng.multinomial(max(round(ranked.total), 2), ranked.count / ranked.total, size)
    before, *others = path.populations()
    hits = [rng.binomial(count, np.clip(before, 0, 1))]
    for chance in others:
        hits.append(_moved(rng, count, hits[-1], before, chance))
        before = chance
    along = np.stack(hits, axis=1).astype(np.float64)
    return SimulatedCounts(ranked.confidence, count.astype(np.float64), along)


def _moved(rng: Any, count: Any, hits: Any, before: Float64, after: Float64) -> Any:
    """Right answers where the chance was ``before`` and becomes ``after``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(after < before, 1 - after / before, 0)
        won = np.where(after > before, (after - before) / (1 - before), 0)
    wrong = count - hits
    fewer = rng.binomial(hits, np.clip(lost, 0, 1))
    return hits - fewer + rng.binomial(wrong, np.clip(won, 0, 1))


def design_effect_of(found: Resampled) -> float:
    """The larger of two ratios of the variance by clusters to that of independent samples.

    As ``_clusters`` defines them, over octaves of s: of the noise of the cells, and of the sum of
    absolute gaps. Variances by clusters are those over the replicates.
    """
    residual = found.bin_hits - found.bin_confidence
    filled = found.bin_count[0] > 0
    count, hits = found.bin_count[0][filled], found.bin_hits[0][filled]
    gap = residual[0][filled] / count
    centred = residual[1:, filled] - gap * found.bin_count[1:, filled]
    # Of independent samples: a (1 - a) per sample, confidences within a cell being much the same.
    alone = count * np.maximum(hits / count * (1 - hits / count), 0)
    noise = float(centred.var(axis=0, ddof=1).sum())
    spread = float((centred @ np.sign(gap)).var(ddof=1))
    total = float(alone.sum())
    return max(1.0, noise / total, spread / total) if total > 0 else 1.0


def joined_entries(ranked: Ranked) -> Ranked:
    """The same samples with at most some thousand distinct confidences.

    Neighbours are joined that hold few samples together, but none across the edge of a bin.
    """
    if len(ranked.count) <= MOST_ENTRIES:
        return ranked
    middle = np.cumsum(ranked.count) - ranked.count / 2
    rank = np.floor(middle / ranked.total * (MOST_ENTRIES - EDGES_KEPT)).astype(np.int64)
    group = rank * (EDGES_KEPT + 1) + width_index(ranked.confidence, EDGES_KEPT)
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    count = np.add.reduceat(ranked.count, starts)
    stated = np.add.reduceat(ranked.count * ranked.confidence, starts) / count
    return Ranked(stated, count, np.add.reduceat(ranked.hits, starts))


_METHODS: dict[str, Callable[[_Stream, list[str]], dict[str, Bounds]]] = {
    "exact": _exact,
    "bootstrap": _bootstrap,
    "grid": _grid,
}
