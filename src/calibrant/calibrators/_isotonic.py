"""Isotonic regression per class, and the spline of the confidence: piecewise linear maps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from calibrant._core.arrays import Bool, Float64
from calibrant._core.checks import InputError, check_count, is_number, refuse
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._columns import TIE, class_columns, confidence_column, distinct
from calibrant.calibrators._maps import (
    ABOVE,
    check_map,
    kept_above,
    lines,
    normalised,
    probabilities,
    slopes_of,
    top_confidence,
    with_confidence,
)
from calibrant.calibrators._ops import NumpyOps
from calibrant.predictions import Confidences, Predictions


@dataclass(eq=False, repr=False, kw_only=True)
class PiecewiseLinear(Calibrator):
    """A piecewise linear map, of the confidence or a class."""

    gives = "probs"
    of_confidences = True
    learned: ClassVar = {"knots_": ("R", "L"), "values_": ("R", "L"), "slopes_": ("R", "L")}

    knots_: Float64 = field(init=False)
    values_: Float64 = field(init=False)
    slopes_: Float64 = field(init=False)

    def _set(self, tables: list[tuple[Float64, Float64]]) -> None:
        """Keep the maps in one table, the shorter ones filled up with their last knot."""
        length = max(2, *(len(x) for x, _ in tables))
        fill = [
            np.pad(column, (0, length - len(column)), mode="edge")
            for table in tables
            for column in table
        ]
        self.knots_, self.values_ = np.stack(fill[::2]), np.stack(fill[1::2])
        self.slopes_ = slopes_of(self.knots_, self.values_)

    def check_learned(self) -> None:
        check_map(self.knots_, self.values_)
        if not np.array_equal(self.slopes_, slopes_of(self.knots_, self.values_)):
            raise InputError("slopes_ must be those of knots_ and values_.")

    def _lines(self, ops: Any, x: Any, learned: Any) -> Any:
        return lines(ops, x, learned.knots_, learned.values_, learned.slopes_)

    def _of_each_class(self, ops: Any, z: Any, learned: Any) -> Any:
        """Each class by its own curve, then rows are normalised."""
        probs = probabilities(ops, z)
        return normalised(ops, self._lines(ops, probs, learned), probs)

    def _of_the_top(self, ops: Any, z: Any, learned: Any) -> Any:
        """The confidence by the only curve, kept above 1 / K; other classes share the rest."""
        probs, top = probabilities(ops, z), ops.is_top(z)
        confidence = self._lines(ops, top_confidence(ops, probs, top), learned)
        confidence = kept_above(ops, confidence, z)
        return with_confidence(ops, probs, top, confidence, ops.possible(z))

    def _at(self, confidence: Float64) -> Float64:
        """The only curve at these confidences."""
        out: Float64 = self._lines(NumpyOps, confidence[:, None], self)[:, 0]
        return out


@dataclass(eq=False, repr=False, kw_only=True)
class Isotonic(PiecewiseLinear):
    """Isotonic regression of each class on its probability, then rows are normalised.

    Between the samples of the fit the map is linear, outside constant.

    Parameters
    ----------
    floor
        Smallest distance of a class probability from 0 and 1. None means 1 / (2 N + 2), half a
        sample: exact zeros would make the NLL infinite. 0 keeps the fit unchanged.

    References
    ----------
    Zadrozny and Elkan (2002), doi:10.1145/775047.775151.
    """

    floor: float | None = None

    def check(self) -> None:
        number = is_number(self.floor)
        if self.floor is not None and not (number and 0 <= self.floor < 0.5):  # noqa: PLR2004
            raise refuse("floor", "must lie in [0, 0.5)", f"got {self.floor!r}", "Try 0.001.")

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        n = p.num_samples if weights is None else float(weights.sum())
        least = 1 / (2 * n + 2) if self.floor is None else self.floor
        tables = []
        for x, hit in class_columns(p):
            knots, values = self._knots(x, hit, weights)
            tables.append((knots, np.clip(values, least, 1 - least)))
        self._set(tables)

    def _knots(self, x: Float64, y: Float64, weights: Float64 | None) -> tuple[Float64, Float64]:
        """The samples of the fit without inner points of level stretches, and the values there."""
        values, _, fitted = _isotonic_fit(x, y, weights)
        inner = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
        keep = np.concatenate([[True], ~inner, [True]]) if len(values) > 1 else np.ones(1, np.bool_)
        return values[keep], fitted[keep]

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self._of_each_class(ops, z, learned)


@dataclass(eq=False, repr=False, kw_only=True)
class CentredIsotonic(Isotonic):
    """Centred isotonic regression of each class on its probability, then rows are normalised.

    Isotonic regression is level where samples were pooled. Here each level stretch becomes one
    point, at the mean probability of its samples, and the map is linear between those points: it
    rises strictly, so that samples which the model ranks stay ranked. Stretches at 0 and 1 stay.
    Outside the points the map is constant. Parameters are those of ``Isotonic``.

    References
    ----------
    Oron and Flournoy (2017), doi:10.1080/19466315.2017.1286256.
    """

    def _knots(self, x: Float64, y: Float64, weights: Float64 | None) -> tuple[Float64, Float64]:
        values, count, fitted = _isotonic_fit(x, y, weights)
        starts = np.flatnonzero(np.concatenate([[True], np.diff(fitted) > 0]))
        ends = np.append(starts[1:], len(fitted)) - 1
        middle = np.add.reduceat(count * values, starts) / np.add.reduceat(count, starts)
        level = fitted[starts]
        stays = (level <= TIE) | (level >= 1 - TIE)
        pairs = np.where(stays, values[[starts, ends]], middle)
        new = np.stack([np.ones(len(level), dtype=np.bool_), pairs[1] > pairs[0]], axis=1)
        return pairs.T[new], np.stack([level, level], axis=1)[new]


def _isotonic_fit(
    x: Float64, y: Float64, weights: Float64 | None
) -> tuple[Float64, Float64, Float64]:
    """The distinct values of x, how many samples each has, and the isotonic fit of y there."""
    from scipy.optimize import isotonic_regression

    w = np.ones(len(x)) if weights is None else weights
    values, number = distinct(x[w > 0])
    count = np.bincount(number, w[w > 0]).astype(np.float64)
    mean = np.bincount(number, (w * y)[w > 0]) / count
    return values, count, np.clip(isotonic_regression(mean, weights=count).x, 0, 1)


@dataclass(eq=False, repr=False, kw_only=True)
class Spline(PiecewiseLinear):
    """Spline calibration of the confidence: the slope of the smoothed cumulative accuracy.

    Samples are sorted by confidence; a natural cubic spline is fitted by least squares to the
    fraction of correct samples among the least confident fraction t, and its slope at t is the
    calibrated confidence, kept above 1 / K so that every predicted class is kept.

    Parameters
    ----------
    knots
        Number of evenly spaced knots.

    References
    ----------
    Gupta et al. (2021), arXiv:2006.12800.
    """

    knots: int = 7

    keeps_argmax = True

    # Points of the map that are kept.
    POINTS: ClassVar[int] = 512

    def check(self) -> None:
        check_count("knots", self.knots, least=3, most=1000, example=7)

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        self._learn_map(confidence_column(p), p.correct, weights, ABOVE / p.num_classes)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        total = c.num_samples if weights is None else float(weights.sum())
        self._learn_map(c.confidence, c.correct, weights, 1 / (2 * total + 2))

    def map_confidence(self, confidence: Float64) -> Float64:
        """The curve at these confidences."""
        return self._at(confidence)

    def num_parameters(self) -> int:
        """Heights of the spline at its knots; the map is kept at more points than that."""
        self._need_fit()
        return super().num_parameters() if "groups_" in vars(self) else self.knots

    def _learn_map(
        self, confidence: Float64, correct: Bool, weights: Float64 | None, least: float
    ) -> None:
        w = np.ones(len(confidence)) if weights is None else weights
        x, number = distinct(confidence[w > 0])
        count = np.bincount(number, w[w > 0]).astype(np.float64)
        hits = np.bincount(number, (w * correct)[w > 0]).astype(np.float64)
        knots, values = _spline_map(x, count, hits, self.knots, self.POINTS)
        most = 1 - 1 / (2 * count.sum() + 2)
        self._set([(knots, np.clip(values, least, max(most, least)))])

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        return self._of_the_top(ops, z, learned)


def _spline_map(
    x: Float64, count: Float64, hits: Float64, num_knots: int, points: int
) -> tuple[Float64, Float64]:
    """Confidences and the slope of the cumulative accuracy there."""
    from scipy.interpolate import CubicSpline

    total = count.sum()
    if len(x) <= num_knots:  # too few to fit a curve to
        return x, np.full(len(x), hits.sum() / total)
    end = np.cumsum(count) / total
    at = np.concatenate([[0.0], end])
    height = np.concatenate([[0.0], np.cumsum(hits) / total])
    basis = CubicSpline(np.linspace(0, 1, num_knots), np.eye(num_knots), bc_type="natural")
    weight = np.sqrt(np.concatenate([[count.mean()], count]))
    coef = np.linalg.lstsq(basis(at) * weight[:, None], height * weight, rcond=None)[0]
    some = np.unique(np.linspace(0, len(x) - 1, min(points, len(x))).round().astype(np.int64))
    # Confidences that agree to nine digits share a point, so that no slope depends on rounding.
    some = some[np.concatenate([[True], np.diff(x[some].round(9)) > 0])]
    middle = end - count / (2 * total)
    slope: Float64 = basis(middle[some], 1) @ coef
    return x[some], slope
