"""The two reduced forms that every metric is computed from.

``Sample`` holds the per-sample columns in order of confidence, with a weight per sample. ``Ranked``
holds what top-label metrics need: for each distinct confidence, how many samples have it and how
many of those are correct. A bootstrap replicate is the same Sample with other weights, and the
histogram of a streamed data set is a Ranked, so one implementation of a metric serves all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, Int, dots, scalar
from calibrant._core.checks import InputError
from calibrant.predictions import Confidences, Predictions


@dataclass(frozen=True)
class Ranked:
    """Distinct confidences in rising order, with counts and correct counts (possibly weighted).

    ``doubt`` is 1 - confidence with all its digits, where they are known. Counts of many resamples
    at once have one resample per row; what is otherwise a number is then an array.
    """

    confidence: Float64
    count: Float64
    hits: Float64
    doubt: Float64 | None = None
    unweighted: bool = False

    @cached_property
    def total(self) -> float:
        """N, the number of samples."""
        return scalar(self.count.sum(axis=-1))

    @cached_property
    def accuracy(self) -> float:
        """Share of correct samples."""
        return scalar(self.hits.sum(axis=-1)) / self.total

    @cached_property
    def mean_confidence(self) -> float:
        """Mean confidence of the samples."""
        return dots(self.confidence, self.count) / self.total

    @property
    def single(self) -> bool:
        """Whether every confidence is that of one sample, which counts once."""
        return self.unweighted and self.total == len(self.confidence)

    @cached_property
    def parts(self) -> tuple[Float64, Float64]:
        """Sums of confidence at each confidence, as ``whole_parts`` has them."""
        high, low = whole_parts(self.confidence)
        if not self.single:
            high *= self.count
            low *= self.count
        return high, low

    @cached_property
    def misses(self) -> Float64:
        """Wrong samples at each confidence."""
        return self.count - self.hits

    @cached_property
    def hits_so_far(self) -> Float64:
        """Correct samples at this confidence or below."""
        return np.cumsum(self.hits, axis=-1)

    @cached_property
    def misses_so_far(self) -> Float64:
        """Wrong samples at this confidence or below."""
        return np.cumsum(self.misses, axis=-1)

    @property
    def middle(self) -> Float64:
        """Rank, counted from 0, of the middle sample at each confidence."""
        if self.single:
            return np.arange(float(len(self.confidence)))
        return self.hits_so_far + self.misses_so_far - (self.count + 1) / 2

    @property
    def residual(self) -> Float64:
        """Sum over the samples at each confidence of (correct - confidence)."""
        return self.hits - self.count * self.confidence


def whole_parts(values: Float64) -> tuple[Float64, Float64]:
    """Values from 0 to 1 as whole numbers of 2^-26, and what is left in whole numbers of 2^-53.

    Whole numbers are added without rounding, so sums do not depend on the order of the samples.
    """
    low = values * 2.0**26
    high = np.floor(low)
    low -= high
    low *= 2.0**27
    return high, np.rint(low, out=low)


@dataclass(frozen=True)
class Sample:
    """Columns of N samples from least to most confident, with weights.

    ``starts`` is where each run of equal odds begins, or None where all are distinct. ``source`` is
    the original record; columns beyond the top label are read from it on demand.
    """

    confidence: Float64
    doubt: Float64
    correct: Float64
    starts: Int | None
    weight: Float64
    order: Int
    source: Predictions | Confidences
    columns: dict[str, tuple[Float64, bool]] = field(default_factory=dict)  # of all replicates
    unweighted: bool = True

    @classmethod
    def of(cls, p: Predictions | Confidences | Sample) -> Sample:
        """Reduce predictions to their sample; a sample is returned as it is."""
        if isinstance(p, Sample):
            return p
        check_measurable(p)
        order = p.order
        odds = p.odds_against[order]
        new = odds[1:] != odds[:-1]
        weights = p.weights  # as weights with a mean of 1, totals stay numbers of samples
        return cls(
            confidence=p.confidence[order],
            doubt=_doubt(odds),
            correct=p.correct[order].astype(np.float64),
            starts=None if new.all() else np.flatnonzero(np.r_[True, new]),
            weight=np.ones(len(p)) if weights is None else (weights / weights.mean())[order],
            order=order,
            source=p,
            unweighted=p.weights is None,
        )

    def reweighted(self, weight: Float64) -> Sample:
        """The same samples with other weights: a bootstrap replicate, or a row of each of many."""
        return replace(self, weight=weight, unweighted=False)

    @cached_property
    def ranked(self) -> Ranked:
        """Counts and hits at each distinct confidence."""
        hits = self.correct if self.unweighted else self.weight * self.correct
        if self.starts is None:
            return Ranked(self.confidence, self.weight, hits, self.doubt, self.unweighted)
        return Ranked(
            self.confidence[self.starts],
            np.add.reduceat(self.weight, self.starts, axis=-1),
            np.add.reduceat(hits, self.starts, axis=-1),
            self.doubt[self.starts],
            self.unweighted,
        )

    def mean(self, name: str, metric: str) -> float:
        """Weighted mean of a column of the source that only full predictions have."""
        if name not in self.columns:
            found = getattr(all_classes(self.source, metric), name)[self.order]
            self.columns[name] = found, bool(np.isfinite(found).all())
        (column, finite), weight = self.columns[name], self.weight
        if not finite:  # 0 times infinity is not 0 in floating point
            column = np.where(weight > 0, column, 0)
        return dots(column, weight) / self.total

    @cached_property
    def total(self) -> float:
        """Sum of the weights."""
        return scalar(self.weight.sum(axis=-1))


def check_measurable(p: object) -> None:
    """Reject anything but Predictions and Confidences."""
    if not isinstance(p, (Predictions, Confidences)):
        raise InputError(
            f"p must be Predictions or Confidences; got {type(p).__name__}. "
            "Build one: Predictions(logits=…, labels=…)."
        )


def all_classes(p: object, metric: str) -> Predictions:
    """Return ``p`` if it has the probabilities of all classes, which the metric needs."""
    if not isinstance(p, Predictions):
        raise InputError(
            f"{metric} needs the probabilities of all classes; got {type(p).__name__}. "
            "Build Predictions(logits=…, labels=…)."
        )
    return p


def _doubt(odds: Float64) -> Float64:
    """1 - confidence from the odds against, which may be 0 or infinite. Overwrites them."""
    confidence = 1 + odds
    np.divide(1, confidence, out=confidence)
    if np.isfinite(odds).all():
        return np.multiply(odds, confidence, out=odds)
    return np.subtract(1, confidence, out=confidence)


Measurable = Predictions | Confidences | Sample


def rank(p: Measurable | Ranked) -> Ranked:
    """Counts and hits by confidence, from any input that a top-label metric accepts."""
    return p if isinstance(p, Ranked) else Sample.of(p).ranked
