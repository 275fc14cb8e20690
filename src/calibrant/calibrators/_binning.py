"""Histogram binning and scaling-binning: step functions of the confidence or of each class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np

from calibrant._core.arrays import Float64
from calibrant._core.checks import InputError, check_bins, check_choice, is_number, refuse
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._columns import class_columns, confidence_column, counts, distinct
from calibrant.calibrators._maps import (
    ABOVE,
    check_map,
    kept_above,
    normalised,
    probabilities,
    steps,
    top_confidence,
    with_confidence,
)
from calibrant.calibrators._plain import CONFIDENCE_ONLY, as_binary
from calibrant.calibrators._temperature import nll_temperature
from calibrant.metrics._binning import Binning, bin_cuts, width_edges
from calibrant.metrics._sample import Ranked
from calibrant.predictions import Confidences, Predictions

Target = Literal["top", "class"]
# More than rounding moves a probability, relative to it. Edges lie this much higher, so that one on
# an edge, as 1 / 3 of three equal classes, is below it on NumPy, PyTorch and ONNX alike.
EDGE_ROUNDING = 1e-13


@dataclass(eq=False, repr=False, kw_only=True)
class _Binned(Calibrator):
    """Step functions of the top confidence (one table) or of each class (one table per class)."""

    bins: int = 15
    binning: Binning = "width"
    target: Target = "top"

    gives = "probs"
    of_confidences = True

    edges_: Float64 = field(init=False)
    values_: Float64 = field(init=False)

    def check(self) -> None:
        check_bins(self.bins)
        check_choice("binning", self.binning, ("width", "mass"))
        check_choice("target", self.target, ("top", "class"))

    def check_learned(self) -> None:
        check_map(self.edges_, self.values_)
        alone = self.num_classes_ == CONFIDENCE_ONLY
        rows = 1 if self.target == "top" or alone else self.num_classes_
        if len(self.edges_) != rows or self.values_.shape[1] != self.edges_.shape[1] + 1:
            raise InputError("edges_ and values_ must have one row for the top class, or K.")

    def _learn_tables(
        self,
        columns: Iterable[tuple[Float64, Float64]],
        weights: Float64 | None,
        prior: float,
        num_classes: int,
    ) -> None:
        """Edges of the bins of each column, and the mean of what belongs to it in each bin."""
        two_classes = self.target == "class" and num_classes == 2  # noqa: PLR2004
        tables = []
        for x, y in islice(columns, int(two_classes), None):
            edges = bin_edges(x, weights, self.bins, self.binning) + EDGE_ROUNDING * two_classes
            tables.append((edges, bin_means(x, y, weights, edges, prior=prior)))
        if two_classes:  # a mirrored bin is left-closed: values on an edge must stay together
            ((edges, means),) = tables
            tables.insert(0, ((1 - edges)[::-1], (1 - means)[::-1]))
        self.edges_, self.values_ = (np.stack(column) for column in zip(*tables, strict=True))

    def map_confidence(self, confidence: Float64) -> Float64:
        """The value of the bin of each confidence."""
        out: Float64 = self.values_[0][np.searchsorted(self.edges_[0], confidence)]
        return out

    def _mapped(self, ops: Any, z: Any, learned: Any) -> Any:
        """Calibrated probabilities of logits."""
        probs = probabilities(ops, z)
        if self.target == "class":
            scores = steps(ops, probs, learned.edges_, learned.values_)
            return normalised(ops, scores, probs)
        top = ops.is_top(z)
        confidence = steps(ops, top_confidence(ops, probs, top), learned.edges_, learned.values_)
        if self.keeps_argmax:
            confidence = kept_above(ops, confidence, z)
        return with_confidence(ops, probs, top, confidence, ops.possible(z))

    def confidences(self, p: Predictions) -> Confidences:
        """The calibrated confidence in the model's own prediction, whatever the other classes get.

        The quantity of Wang et al. (2021); only with ``target="top"``.
        """
        self._need_fit()
        if self.target != "top":
            rule, advice = "must be 'top' for confidences", "Use transform."
            raise refuse("target", rule, f"got {self.target!r}", advice)
        confidence = confidence_column(p, getattr(self, "temperature_", 1.0))
        value = self.values_[0][np.searchsorted(self.edges_[0], confidence)]
        return Confidences(confidence=value, correct=p.correct, meta=p.meta)


def bin_edges(x: Float64, weights: Float64 | None, bins: int, binning: Binning) -> Float64:
    """Inner edges of the bins of some values."""
    if binning == "width":
        inner: Float64 = width_edges(bins)[1:-1] + EDGE_ROUNDING
        return inner
    w = np.ones(len(x)) if weights is None else counts(weights)
    values, number = distinct(x[w > 0])
    count = np.bincount(number, w[w > 0], len(values)).astype(np.float64)
    cuts = bin_cuts(Ranked(values, count, count), bins, "mass")[1:-1]
    # Halfway between neighbours; empty bins lie outside [0, 1].
    padded = np.concatenate([[-1.0], values, [2.0]])
    middle: Float64 = (padded[cuts] + padded[cuts + 1]) / 2
    return middle + EDGE_ROUNDING * np.abs(middle)


def bin_means(
    x: Float64, y: Float64, weights: Float64 | None, edges: Float64, *, prior: float = 0.0
) -> Float64:
    """Mean of y in each bin; the middle of the bin where it is empty.

    ``prior`` samples of 1 and as many of 0 are added to each bin.
    """
    index = np.searchsorted(edges, x, side="left")
    size = len(edges) + 1
    w = np.ones(len(x)) if weights is None else weights
    count = np.bincount(index, w, size)
    total = np.bincount(index, w * y, size)
    ends = np.clip(np.concatenate([[0.0], edges, [1.0]]), 0, 1)
    there = count > 0
    mean = (total + prior) / np.where(there, count + 2 * prior, 1)
    return np.clip(np.where(there, mean, (ends[1:] + ends[:-1]) / 2), 0, 1)


@dataclass(eq=False, repr=False, kw_only=True)
class HistogramBinning(_Binned):
    """Histogram binning: each bin's confidence becomes its accuracy.

    Parameters
    ----------
    bins, binning
        Number of bins, of equal ``"width"`` or equal ``"mass"``. Bins are (lo, hi]; a bin without
        samples in the fit returns its midpoint.
    target
        ``"top"``: the confidence in the predicted class, as Wang et al. (2021); the other classes
        share the rest in their old proportions. ``"class"``: each class separately, then rows are
        normalised; with two classes only the second is fitted, and the first gets the rest.
    floor
        Samples of each outcome added to every bin, so that no probability is exactly 0 or 1. None
        means 0 for ``"top"`` (accuracies as they are; the NLL may be infinite) and a half for
        ``"class"``.

    The predicted class is kept unless its bin's accuracy is at most 1 / K (``"top"``);
    ``confidences`` gives the calibrated confidence of the model's own prediction in any case.

    References
    ----------
    Zadrozny and Elkan (2001); Guo et al. (2017), arXiv:1706.04599; Wang et al. (2021).
    """

    floor: float | None = None

    learned: ClassVar = {"edges_": ("R", "E"), "values_": ("R", "B")}

    def check(self) -> None:
        super().check()
        if self.floor is not None and not (is_number(self.floor) and 0 <= self.floor <= 1):
            raise refuse("floor", "must lie in [0, 1]", f"got {self.floor!r}", "Try floor=0.5.")

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        if self.target == "top":
            columns = iter([(confidence_column(p), p.correct.astype(np.float64))])
            prior = self.floor or 0.0
        else:
            columns = class_columns(p)
            prior = 0.5 if self.floor is None else self.floor
        self._learn_tables(columns, weights, prior, p.num_classes)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        columns = iter([(c.confidence, c.correct.astype(np.float64))])
        self._learn_tables(columns, weights, self.floor or 0.0, CONFIDENCE_ONLY)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self._mapped(ops, z, learned)


@dataclass(eq=False, repr=False, kw_only=True)
class ScalingBinning(_Binned):
    """Scaling-binning: temperature scaling, whose outputs are then averaged in bins.

    Parameters
    ----------
    bins, binning, target
        As in ``HistogramBinning``. With ``"top"`` every prediction is kept.

    The means of the scaled confidences vary less than the accuracies that histogram binning uses,
    and with so few distinct values the remaining calibration error can be measured.

    References
    ----------
    Kumar, Liang and Ma (2019), arXiv:1909.10155.
    """

    binning: Binning = "mass"

    learned: ClassVar = {"temperature_": (), "edges_": ("R", "E"), "values_": ("R", "B")}

    temperature_: float = field(init=False)

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """Bins of the top confidence lie above 1 / K."""
        return self.target == "top"

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        self.temperature_ = nll_temperature(p, weights)
        if self.target == "top":
            columns = iter([confidence_column(p, self.temperature_)])
        else:
            columns = (x for x, _ in class_columns(p, self.temperature_))
        self._learn_tables(((x, x) for x in columns), weights, 0.0, p.num_classes)
        if self.target == "top":  # empty bins below 1 / K would move the prediction
            self.values_ = np.maximum(self.values_, ABOVE / p.num_classes)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        self.temperature_ = nll_temperature(as_binary(c), weights)
        scaled = self._scaled(c.confidence)
        self._learn_tables(iter([(scaled, scaled)]), weights, 0.0, CONFIDENCE_ONLY)

    def map_confidence(self, confidence: Float64) -> Float64:
        """The value of the bin of each scaled confidence."""
        return super().map_confidence(self._scaled(confidence))

    def _scaled(self, confidence: Float64) -> Float64:
        with np.errstate(divide="ignore", over="ignore"):
            log_odds = np.log(confidence) - np.log1p(-confidence)
            out: Float64 = 1 / (1 + np.exp(-log_odds / self.temperature_))
        return out

    def check_learned(self) -> None:
        super().check_learned()
        if not self.temperature_ > 0:
            raise InputError("temperature_ must be above 0.")

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self._mapped(ops, z / learned.temperature_, learned)
