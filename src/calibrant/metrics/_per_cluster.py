"""One metric of every cluster on its own: each image, patient or document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float64
from calibrant._core.checks import refuse
from calibrant._core.options import check_option_names
from calibrant.metrics._registry import get_metric
from calibrant.predictions import Predictions


@dataclass(frozen=True)
class PerCluster:
    """A metric of each cluster.

    Attributes
    ----------
    clusters
        Names of the clusters, sorted.
    values
        The metric of each; NaN where it is undefined.
    samples
        Number of samples in each.
    """

    clusters: NDArray[Any]
    values: Float64
    samples: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """The mean over clusters in which the metric is defined, each counted once."""
        return float(np.nanmean(self.values)) if np.isfinite(self.values).any() else float("nan")

    def ranked(self, *, best_first: bool = False) -> NDArray[np.int64]:
        """Positions of the clusters from the largest value to the smallest, or the other way."""
        order = np.argsort(self.values if best_first else -self.values, kind="stable")
        return order.astype(np.int64)


def per_cluster(p: Predictions, metric: str, **options: Any) -> PerCluster:
    """Compute a metric for every cluster on its own.

    A calibration error of few samples is biased upward, so values of clusters of different sizes
    are not comparable, and their mean lies above the error of all samples together.

    Parameters
    ----------
    p
        Predictions with clusters; segmentation maps have one cluster per image.
    metric
        Name of a metric.
    options
        Options of the metric.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> maps, truth = rng.normal(size=(3, 4, 8, 8)), rng.integers(0, 4, (3, 8, 8))
    >>> found = per_cluster(Predictions(logits=maps, labels=truth), "accuracy")
    >>> found.clusters, found.samples
    (array([0, 1, 2]), array([64, 64, 64]))
    """
    codes = p.belonging.codes
    if codes is None or p.clusters is None:
        rule, advice = "must have clusters", "Pass clusters=… to Predictions."
        raise refuse("p", rule, "got none", advice)
    chosen = get_metric(metric)
    check_option_names(metric, options, chosen.options)
    samples = np.bincount(codes)
    members = np.split(np.argsort(codes, kind="stable"), np.cumsum(samples)[:-1])
    values = np.array([chosen.function(p.take(some), **options) for some in members])
    return PerCluster(np.unique(p.clusters), values, samples.astype(np.int64))
