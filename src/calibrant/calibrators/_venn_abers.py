"""Venn-Abers prediction: isotonic regression with both possible labels of each new sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError, check_count, check_seed, refuse
from calibrant._scores import Scores
from calibrant.calibrators._arguments import check_same_classes, check_scores
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._binning import EDGE_ROUNDING
from calibrant.calibrators._columns import class_columns, distinct
from calibrant.calibrators._folds import steady_folds
from calibrant.calibrators._maps import check_map, normalised, probabilities
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import logit_chunk
from calibrant.predictions import Predictions


@dataclass(eq=False, repr=False, kw_only=True)
class VennAbers(Calibrator):
    """Venn-Abers prediction of each class on its probability, then rows are normalised.

    Isotonic regression is fitted twice for each new sample, with the label 0 and with the label 1
    for it. Of the values there, p0 and p1, the one with the true label is calibrated for samples of
    any distribution (``bounds``). ``transform`` merges them into p1 / (1 - p0 + p1), whose log loss
    is least in the worst case. It fits no regression: p0 and p1 are steps between the samples of
    the fit, which are found in O(N log N).

    The published method has two classes; with more, each is set against the rest. That needs K
    curves, each of all samples; pairs of classes would need K (K - 1) / 2, each of few.

    Parameters
    ----------
    folds
        1: the inductive predictor. More: the cross predictor, whose folds are fitted separately and
        merged by geometric means of p1 and of 1 - p0.
    seed
        Random seed of the folds.

    References
    ----------
    Vovk, Petej and Fedorova (2015), arXiv:1511.00213; Manokhin (2017), PMLR 60.

    >>> from calibrant import Predictions, Scores
    >>> p = Predictions.from_binary(probs=[0.1, 0.3, 0.6, 0.8, 0.9], labels=[0, 0, 1, 0, 1])
    >>> c = VennAbers().fit(p)
    >>> new = Scores(probs=[[0.3, 0.7]])
    >>> p0, p1 = c.bounds(new)
    >>> p0[:, 1].round(3), p1[:, 1].round(3), c.predict_proba(new).round(3)
    (array([0.333]), array([0.667]), array([[0.5, 0.5]]))
    """

    folds: int = 1
    seed: int = 0

    gives = "probs"
    of_confidences = True
    learned: ClassVar = {"edges_": ("K", "E"), "lower_": ("K", "B"), "upper_": ("K", "B")}

    edges_: Float64 = field(init=False)
    lower_: Float64 = field(init=False)
    upper_: Float64 = field(init=False)

    def check(self) -> None:
        check_count("folds", self.folds, least=1, most=1000, example=5)
        check_seed(self.seed)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        counts = np.ones(p.num_samples) if weights is None else weights
        masks = [counts > 0]
        if self.folds > 1:
            fold, _ = steady_folds(p, counts, self.folds, self.seed)
            masks = [fold == number for number in np.unique(fold[fold >= 0])]
        tables = [
            _merged([_steps(x[some], hit[some], counts[some]) for some in masks])
            for x, hit in class_columns(p)
        ]
        length = max(len(edges) for edges, _, _ in tables)
        self.edges_, self.lower_, self.upper_ = (
            np.stack([np.pad(c, (0, length + extra - len(c)), mode="edge") for c in column])
            for column, extra in zip(zip(*tables, strict=True), (0, 1, 1), strict=True)
        )

    def check_learned(self) -> None:
        check_map(self.edges_, self.lower_)
        check_map(self.edges_, self.upper_)
        steps = self.lower_.shape[1] == self.upper_.shape[1] == self.edges_.shape[1] + 1
        crossed = self.folds == 1 and not (self.lower_ <= self.upper_).all()
        if not steps or crossed or not (self.upper_ > 0).all():
            raise InputError("lower_ and upper_ must be bounds, one more than edges_.")

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        probs = probabilities(ops, z)
        low, high = self._bounds(ops, probs, learned)
        return normalised(ops, high / (1.0 - low + high), probs)

    def _bounds(self, ops: Any, probs: Any, learned: Any) -> tuple[Any, Any]:
        index = ops.bucket(probs, learned.edges_)
        return ops.take(learned.lower_, index), ops.take(learned.upper_, index)

    def bounds(self, p: Scores) -> tuple[Float64, Float64]:
        """p0 and p1 of each class against the rest, both (N, K), before rows are normalised.

        With two classes, column 1 holds the interval for class 1. Only with ``folds=1``: the cross
        predictor has as many intervals as folds.
        """
        self._need_fit()
        if self.folds != 1:
            rule, advice = "must be 1 for bounds", "Use transform."
            raise refuse("folds", rule, f"got {self.folds}", advice)
        check_scores(p)
        check_same_classes(p, self.num_classes_, self.classes_)
        if "groups_" in vars(self):
            raise InputError("bounds needs one group: call c.groups_[name].bounds(…) for each.")
        z = logit_chunk(p, slice(None), np.dtype(np.float64))
        low, high = self._bounds(NumpyOps, probabilities(NumpyOps, z), self)
        return low, high


Steps = tuple[Float64, Float64, Float64]


def _steps(x: Float64, hit: Float64, counts: Float64) -> Steps:
    """Edges of the bins (lo, hi], and p0 and p1 in each.

    p1 steps just above the samples of the fit and p0 just below them: on a sample, both count it.
    """
    values, number = distinct(x)
    count, total = (np.bincount(number, w).astype(np.float64) for w in (counts, counts * hit))
    high = np.append(with_label_one(count, total), 1.0)
    low = np.append(0.0, 1 - with_label_one(count[::-1], (count - total)[::-1])[::-1])
    above, below = values * (1 + EDGE_ROUNDING), values * (1 - EDGE_ROUNDING)
    edges = np.unique(np.concatenate([above, below]))
    return edges, low[_bins(edges, below)], high[_bins(edges, above)]


def _bins(edges: Float64, steps: Float64) -> Any:
    """For each bin of ``edges``: in which bin of ``steps`` it lies."""
    return np.append(np.searchsorted(steps, edges), len(steps))


def with_label_one(count: Float64, total: Float64) -> Float64:
    """For each of the rising points: its isotonic fit after one more sample with label 1 there.

    ``count`` samples lie at each point, ``total`` of them with label 1. The sample joins the block
    of its point from some point a of that block on, and following blocks while they lie lower. So
    its value is the largest, over a up to its point, of the least slope from (W - 1, S - 1), the
    sums before a less the sample, to an end of a block. Slopes to the ends fall and then rise.
    """
    from scipy.optimize import isotonic_regression

    blocks = isotonic_regression(total / count, weights=count).blocks
    before = np.stack([np.cumsum(count) - count, np.cumsum(total) - total]) - 1
    ends = np.stack([np.cumsum(count), np.cumsum(total)])[:, blocks[1:] - 1]
    rise = np.diff(ends, axis=1)
    following = np.append(rise[1] / rise[0], np.inf)
    low = np.repeat(np.arange(len(blocks) - 1), np.diff(blocks))
    high = np.full(len(count), len(blocks) - 2)
    while (low < high).any():
        middle = (low + high) // 2
        run, up = ends[:, middle] - before
        reached = following[middle] >= up / run
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    run, up = ends[:, low] - before
    found: Float64 = np.maximum.accumulate(up / run)
    return found


def _merged(folds: list[Steps]) -> Steps:
    """Geometric means over folds of p1 and of 1 - p0; bins in which neither changes are one."""
    edges = np.unique(np.concatenate([edges for edges, _, _ in folds]))
    doubt = np.mean([np.log1p(-low[_bins(edges, at)]) for at, low, _ in folds], axis=0)
    log_high = np.mean([np.log(high[_bins(edges, at)]) for at, _, high in folds], axis=0)
    new = (np.diff(doubt) != 0) | (np.diff(log_high) != 0)
    keep = np.append(True, new)
    return edges[new], -np.expm1(doubt[keep]), np.exp(log_high[keep])
