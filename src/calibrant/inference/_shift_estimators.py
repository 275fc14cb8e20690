"""Estimates and test of label shift: the prior of any weights of both sets, and permutations.

*Estimate.* The validation samples fit bias-corrected temperature scaling; the prior of the target
maximises the likelihood of its unlabelled scores (``_priors``), or solves for its predicted classes
(``"bbse"``).

*Correction.* Calibrated probabilities times prior over validation frequency, normalised. With many
classes and few samples the estimate is too noisy for that, so it is shrunk towards the validation
frequencies, as far as the likelihood of held-out target samples asks for.

*Replicates.* Validation and target samples are resampled, by clusters where there are any. The
calibrator of a replicate is two Newton steps away from that of the data (the k-step
bootstrap of Davidson and MacKinnon 1999); its prior is estimated in full.

*Test.* If the frequencies did not move, validation and target scores have one distribution, and any
division of the pooled samples into two sets of these sizes is as likely as the one observed. The
statistic is Pearson's, of the mean uncalibrated probabilities of both sets; labels play no part, so
the permutation test is exact at any size.

*Assumption.* If only the frequencies moved, validation samples weighted to the estimated prior have
the mean confidence of the target. The gap that remains, divided by its standard error over the
replicates, is compared with the normal distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._core.arrays import Float64, Int, fold_numbers
from calibrant._core.belonging import Belonging
from calibrant._core.checks import refuse
from calibrant._scores import Scores
from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.calibrators._linear import FREE
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import logit_chunk
from calibrant.inference._clusters import Clusters, mean_one
from calibrant.inference._priors import (
    NearbyPriors,
    bbse_prior,
    check_invertible,
    confusion,
    em_prior,
)
from calibrant.inference._resampling import Resampling
from calibrant.predictions import Predictions

# Elements of the permutations that are evaluated together.
PERMUTED_ELEMENTS = 1 << 21
# Folds of the target that choose the shrinkage.
TARGET_FOLDS = 5
# Newton steps to the calibrator of a replicate.
REFIT_STEPS = 2


@dataclass(frozen=True)
class Side:
    """Sampling weights with a mean of 1, and clusters, of one set."""

    weight: Float64
    codes: Int | None

    @property
    def units(self) -> int:
        return len(self.weight) if self.codes is None else int(self.codes.max()) + 1

    def drawn(self, rng: np.random.Generator) -> Float64:
        """Weights of a bootstrap replicate."""
        times = np.bincount(rng.integers(0, self.units, self.units), minlength=self.units)
        return self.weight * (times if self.codes is None else times[self.codes])

    def sums(self, values: Float64) -> Float64:
        """Weighted sums of the columns, cluster by cluster."""
        rows = values * self.weight[:, None]
        if self.codes is None:
            return rows
        clusters = Clusters(self.codes)
        return np.stack([clusters.sums(column) for column in rows.T], axis=1)


def sides_of(validation: Predictions, target: Scores, clusters: Any) -> tuple[Side, Side]:
    belonging = target.belonging
    if clusters is not None:
        belonging = Belonging.of(clusters, None, belonging.weights, len(target))
    weight = np.ones(len(target))
    if belonging.weights is not None:
        weight = belonging.weights / belonging.weights.mean()
    found = Side(mean_one(validation), validation.belonging.codes), Side(weight, belonging.codes)
    if (found[0].codes is None) != (found[1].codes is None):
        side = "validation" if found[1].codes is None else "the target"
        rule, advice = "must be given for both sets or for neither", "Name them for both."
        raise refuse("clusters", rule, f"got those of {side} alone", advice)
    for name, one in zip(("validation", "target"), found, strict=True):
        if one.units < 2:  # noqa: PLR2004
            what = "samples" if one.codes is None else "clusters"
            rule, advice = f"must have at least two {what}", "Collect more."
            raise refuse(name, rule, f"got {one.units}", advice)
    return found


def replicated_priors(
    work: PriorEstimator, sides: tuple[Side, Side], resampling: Resampling
) -> Iterator[tuple[Float64, float]]:
    """The prior and the unexplained gap of each bootstrap replicate of both sets."""
    rng = np.random.default_rng((resampling.seed, 3))
    for _ in range(resampling.replicates):
        weights = sides[0].drawn(rng), sides[1].drawn(rng)
        prior = work.prior_of(*weights)
        yield prior, work.unexplained(prior, *weights)


# --- the two methods ----------------------------------------------------------------------------


def _features(p: Scores) -> Float64:
    found: Float64 = NumpyOps.lift(logit_chunk(p, slice(None), np.dtype(np.float64)))
    return found


def _probs(scores: Float64) -> Float64:
    found: Float64 = np.exp(NumpyOps.log_softmax(scores))
    return found


class PriorEstimator:
    """The calibrator of the validation samples, and the prior of any weights of both sets."""

    def __init__(self, validation: Predictions, target: Scores, sides: tuple[Side, Side]) -> None:
        self.calibrator = BiasCorrectedTemperature().fit(validation)
        self.z, self.u = _features(validation), _features(target)
        self.sides = sides
        self.weight = sides[0].weight
        self.theta = np.concatenate([[self.calibrator.scale_], self.calibrator.bias_])
        self.source_prior, self.ratio = self._ratio(self.theta, self.weight)
        self.labels = validation.labels
        scaled = (x * self.theta[0] + self.theta[1:] for x in (self.z, self.u))
        self.confidence = [_probs(scores).max(axis=1) for scores in scaled]
        self._prepare(validation, target)
        self.prior = self._whole()

    def _prepare(self, validation: Predictions, target: Scores) -> None:
        """Keep what the method needs besides calibrated probabilities."""

    def _whole(self) -> Float64:
        return self.prior_of(self.weight, self.sides[1].weight)

    def prior_of(self, first: Float64, second: Float64) -> Float64:
        """The prior where validation and target samples have these weights."""
        raise NotImplementedError

    def _ratio(self, theta: Float64, weight: Float64) -> tuple[Float64, Float64]:
        """Mean calibrated probabilities of the validation samples; those of the target over it."""
        prior = weight @ _probs(self.z * theta[0] + theta[1:]) / weight.sum()
        prior = np.maximum(prior, np.finfo(np.float64).tiny)
        return prior, _probs(self.u * theta[0] + theta[1:]) / prior

    def unexplained(self, prior: Float64, first: Float64, second: Float64) -> float:
        """Mean confidence of the target less that of validation samples with its frequencies."""
        counts = np.bincount(self.labels, first, len(prior))
        ratio = prior / np.maximum(counts, np.finfo(np.float64).tiny)
        weight = first * ratio[self.labels]
        known = float(weight @ self.confidence[0]) / float(weight.sum())
        return float(second @ self.confidence[1]) / float(second.sum()) - known

    def shrinkage(self, seed: int) -> float:
        """The share of the validation frequencies in the prior that is corrected for.

        Chosen without labels: the likelihood of each fold of the target under a mixture of the
        validation frequencies and the prior of the other folds is largest. At least one sample.
        """
        side = self.sides[1]
        folds = min(TARGET_FOLDS, side.units)
        fold = fold_numbers(len(side.weight), folds, seed, side.codes)
        held_out = np.empty(len(fold))
        for number in range(folds):
            held = fold == number
            prior = self.prior_of(self.weight, np.where(held, 0.0, side.weight))
            held_out[held] = self.ratio[held] @ prior
        # Under the validation frequencies the ratios of a row sum to 1.
        both = np.stack([held_out, np.ones(len(fold))], axis=1)
        found = em_prior(both, side.weight, np.array([0.5, 0.5]))
        return max(float(found[1]), 1 / (1 + len(fold)))


class MaximumLikelihood(PriorEstimator):
    """The prior by EM."""

    def _whole(self) -> Float64:
        prior = em_prior(self.ratio, self.sides[1].weight, self.source_prior)
        self.nearby = NearbyPriors(self.ratio, self.sides[1].weight, prior)
        return prior

    def _newton_step(self, theta: Float64, weight: Float64) -> Float64:
        """Scale and offsets nearer to those of least NLL where samples have these weights."""
        probs, share = _probs(self.z * theta[0] + theta[1:]), weight / weight.sum()
        along = probs * (self.z - np.vecdot(probs, self.z)[:, None])
        curvature = np.empty((len(theta),) * 2)
        curvature[0, 0] = share @ np.vecdot(along, self.z)
        curvature[0, 1:] = curvature[1:, 0] = share @ along
        curvature[1:, 1:] = np.diag(share @ probs) - (probs * share[:, None]).T @ probs
        probs[np.arange(len(self.labels)), self.labels] -= 1
        slope = np.concatenate([[share @ np.vecdot(probs, self.z)], share @ probs])
        # An offset common to all classes changes nothing: the penalty of the fit holds it.
        held = 2 * FREE * (len(theta) - 1) / len(self.labels)
        step: Float64 = np.linalg.solve(curvature + held * np.eye(len(theta)), slope)
        return theta - step

    def prior_of(self, first: Float64, second: Float64) -> Float64:
        if first is self.weight:
            return self.nearby.of(self.ratio, second)
        theta = self.theta
        for _ in range(REFIT_STEPS):
            theta = self._newton_step(theta, first)
        return self.nearby.of(self._ratio(theta, first)[1], second)


class BlackBox(PriorEstimator):
    """The prior by black-box shift estimation."""

    def _prepare(self, validation: Predictions, target: Scores) -> None:
        self.validation, self.predicted = validation, target.predicted
        check_invertible(self._joint(self.weight))

    def _joint(self, weight: Float64) -> Float64:
        p = self.validation
        return confusion(p.predicted, p.labels, weight, p.num_classes)

    def prior_of(self, first: Float64, second: Float64) -> Float64:
        counts = np.bincount(self.predicted, second, self.validation.num_classes)
        return bbse_prior(self._joint(first), counts / second.sum())


# --- the test -----------------------------------------------------------------------------------


def permutation_test(
    validation: Predictions, target: Scores, sides: tuple[Side, Side], resampling: Resampling
) -> tuple[float, float]:
    """Pearson's statistic of the mean probabilities, and its p-value over permutations."""
    parts = [
        side.sums(np.concatenate([_probs(_features(p)), np.ones((len(p), 1))], axis=1))
        for p, side in zip((validation, target), sides, strict=True)
    ]
    pooled = np.concatenate(parts)
    total, first = pooled.sum(axis=0), parts[0].sum(axis=0)
    observed = float(_pearson(first[None], total)[0])
    rng = np.random.default_rng((resampling.seed, 4))
    inside = np.arange(len(pooled)) < len(parts[0])
    step, reached = max(1, PERMUTED_ELEMENTS // len(pooled)), 0
    for start in range(0, resampling.replicates, step):
        size = min(step, resampling.replicates - start)
        chosen = rng.permuted(np.tile(inside, (size, 1)), axis=1).astype(np.float64)
        found = _pearson(chosen @ pooled, total)
        reached += int((found >= observed * (1 - 1e-12)).sum())
    return observed, (1 + reached) / (1 + resampling.replicates)


def _pearson(first: Float64, total: Float64) -> Float64:
    """Pearson's statistic of rows of sums; the last column is the number of samples."""
    rest = total - first
    gap = first[:, :-1] / first[:, -1:] - rest[:, :-1] / rest[:, -1:]
    pooled = np.maximum(total[:-1] / total[-1], np.finfo(np.float64).tiny)
    factor = first[:, -1] * rest[:, -1] / total[-1]
    found: Float64 = factor * (gap**2 / pooled).sum(axis=1)
    return found
