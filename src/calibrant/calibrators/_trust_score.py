"""The trust score: confidence from the distances between a classifier's features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant._core.arrays import Float, Float64, Int
from calibrant._core.checks import InputError, check_count, is_number, refuse
from calibrant._core.extras import import_extra
from calibrant.calibrators._features import LARGEST_FEATURE, FeatureCalibrator, numbers_of
from calibrant.predictions import Predictions

# Numbers of a block of samples, in which neighbours are looked for: 128 MB.
BLOCK_ELEMENTS = 1 << 24


@dataclass(eq=False, repr=False, kw_only=True)
class TrustScore(FeatureCalibrator):
    r"""Trust score: how much closer the predicted class is than any other, in feature space.

    With d(x, c) the distance of x to the nearest fitted sample with label c, the score is
    :math:`\min_{c \ne \hat y} d(x, c) / d(x, \hat y)`, from 0 to infinity, and the confidence
    score / (1 + score); it ranks samples, and is not the probability of being right.

    Parameters
    ----------
    alpha
        Largest fraction of each class that is left out: the samples with the largest distance to
        their k-th neighbour in the class. Ties are kept.
    k
        That neighbour's number, the sample itself being the first; the last one in classes with
        fewer samples.

    Fit on the training set of the classifier. A fitted sample that is scored again has distance
    0 to its own class. Where both distances are 0, the score is 1; where the predicted class has
    no samples, 0; where only the predicted class has any, infinity. Distances are Euclidean, so
    the scale of the features matters. Needs scikit-learn.

    Attributes
    ----------
    points_, point_classes_
        The features kept, (M, D), and their labels, (M,).

    References
    ----------
    Jiang et al. (2018), arXiv:1805.11783.

    >>> from calibrant import Predictions
    >>> p = Predictions(logits=[[1.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> c = TrustScore().fit(p, features=[[0.0], [4.0]])
    >>> c.score(p, features=[[1.0], [2.0]]), c.transform(p, features=[[1.0], [2.0]]).confidence
    (array([3., 1.]), array([0.75, 0.5 ]))
    """

    alpha: float = 0.0
    k: int = 10

    points_: Float64 = field(init=False)
    point_classes_: Int = field(init=False)

    def check(self) -> None:
        if not is_number(self.alpha) or not 0 <= self.alpha < 1:
            rule = "must be at least 0 and below 1"
            raise refuse("alpha", rule, f"got {self.alpha!r}", "Try alpha=0.1.")
        check_count("k", self.k, least=2, most=1_000_000, example=10)

    def forget(self) -> None:
        super().forget()
        self._indices: list[tuple[int, Float64, Any]] | None = None

    def _learn(self, p: Predictions, features: Float) -> None:
        _import_sklearn()
        order = np.argsort(p.labels, kind="stable")
        if self.alpha > 0:
            order = np.concatenate(
                [self._dense(features, rows) for _, rows in _runs(p.labels[order], order)]
            )
        self.points_ = features[order].astype(np.float64)
        self.point_classes_ = p.labels[order]

    def _dense(self, features: Float, rows: Int) -> Int:
        """The rows of a class without its outliers."""
        points = features[rows].astype(np.float64)
        drop = math.floor(self.alpha * len(points) + 1e-9)  # 0.29 * 100 is below 29
        number = min(self.k, len(points))
        radius = _distance(points, points, _index(points), number)
        keep = radius <= np.sort(radius)[len(radius) - 1 - drop]
        kept: Int = rows[keep]
        return kept

    def score(self, p: Predictions, *, features: Any) -> Float64:
        """Return the trust score of each sample, from 0 to infinity."""
        other, own = self._distances(p, self._usable(p, features))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio: Float64 = other / own
        return np.where((other == 0) & (own == 0), 1.0, ratio)

    def _confidence(self, p: Predictions, features: Float) -> Float64:
        other, own = self._distances(p, features)
        with np.errstate(invalid="ignore"):
            share: Float64 = other / (other + own)
        share[(other == 0) & (own == 0)] = 0.5
        share[np.isinf(other)] = 1
        return share

    def _distances(self, p: Predictions, features: Float) -> tuple[Float64, Float64]:
        """Distance of each sample to the nearest other class, and to the predicted one."""
        if self._indices is None:
            self._indices = [
                (label, points, _index(points))
                for label, points in _runs(self.point_classes_, self.points_)
            ]
        other, own = np.full((2, p.num_samples), math.inf)
        step = max(1, BLOCK_ELEMENTS // self.num_features_)
        for start in range(0, p.num_samples, step):
            rows = slice(start, start + step)
            x = features[rows].astype(np.float64)
            for label, points, index in self._indices:
                distance = _distance(x, points, index, 1)
                mine = p.predicted[rows] == label
                own[rows][mine] = distance[mine]
                np.minimum(other[rows], distance, out=other[rows], where=~mine)
        return other, own

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_indices": None}

    def _learned(self) -> Mapping[str, Any]:
        return {"points_": self.points_, "point_classes_": self.point_classes_}

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        points = numbers_of(learned, "points_", (None, None))
        if np.abs(points).max() > LARGEST_FEATURE:
            raise InputError(f"points_ must be at most {LARGEST_FEATURE:g} in size.")
        labels = numbers_of(learned, "point_classes_", (len(points),))
        known = (labels == np.floor(labels)) & (labels >= 0) & (labels < self.num_classes_)
        if not known.all() or (np.diff(labels) < 0).any():
            raise InputError("point_classes_ must be increasing class indices.")
        self.points_, self.point_classes_ = points, labels.astype(np.int64)
        self.num_features_ = points.shape[1]


def _import_sklearn() -> Any:
    """scikit-learn's nearest neighbours, or an error that says how to install it."""
    import_extra("sklearn.neighbors", "TrustScore")
    return import_extra("sklearn", "TrustScore")


def _runs(labels: Int, values: Any) -> Iterator[tuple[int, Any]]:
    """Each label of a sorted list, with its part of ``values``."""
    found, starts = np.unique(labels, return_index=True)
    yield from zip(found.tolist(), np.split(values, starts[1:]), strict=True)


def _index(points: Float64) -> Any:
    return _import_sklearn().neighbors.NearestNeighbors().fit(points)


def _distance(x: Float64, points: Float64, index: Any, number: int) -> Float64:
    """Distance of each row of ``x`` to its ``number``-th neighbour among the points.

    scikit-learn finds the neighbour, but not always the exact distance: in many dimensions it
    expands the square, and equal points get a distance above 0.
    """
    with _import_sklearn().config_context(assume_finite=True):
        near = index.kneighbors(x, n_neighbors=number, return_distance=False)[:, -1]
    gap = points[near]
    np.subtract(x, gap, out=gap)
    distance: Float64 = np.sqrt(np.einsum("ij,ij->i", gap, gap))
    return distance
