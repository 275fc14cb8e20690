"""Every sample as a function of the temperature, in few numbers: what the page computes from.

At temperature T the odds against the predicted class of a sample are s(T) = sum_j exp(g_j / T),
over the gaps g_j <= 0 between the other logits and the top one. Small data keep all gaps. For large
ones, with g the largest gap, ln s(T) = g / T + h(T), where h lies between 0 and ln(K - 1) and is
smooth in ln T: it is kept as a Chebyshev series in x = ln T / ln R over 1/R <= T <= R, whose size
does not depend on K, and confidences are right to about 1e-5 (1e-6 as a rule). Log-likelihoods
follow from the gap of the label. At T = 1 the page uses the package's own ranking, so that number
is the package's to the bit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from calibrant._core.arrays import Float, Float64, Int, over_chunks
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import TemperatureScaling
from calibrant.metrics._sample import rank
from calibrant.predictions import Confidences, Predictions
from calibrant.report._page import packed

ORDER = 32
# Coefficients are kept as whole multiples of this; later ones are small and compress to nothing.
STEP = 2.0**-17
SMALL = STEP * (2**15 - 1)
# The slider goes from 1/R to R: usually R = 4, more where the best temperature lies near the end.
USUAL_REACH, USUAL_BEST, LARGE_REACH = 4.0, 3.0, 10.0
# With more scores than this, exponentials are computed in float32: right to 1e-6, twice as fast.
FINE_SCORES = 2_000_000
# Up to this many scores all gaps are kept.
EXACT_SCORES = 150_000
# More samples than this are never embedded.
MOST_SAMPLES = 100_000


@dataclass(frozen=True)
class GapSeries:
    """One row per sample: largest gap, gap of the label, and the coefficients of h."""

    second: Float64
    label: Float64
    coefficients: Float64


def series_of(p: Predictions, reach: float) -> GapSeries:
    """Reduce predictions to their series over 1/reach <= T <= reach."""
    nodes = np.cos((np.arange(ORDER) + 0.5) * np.pi / ORDER)
    to_series = 2 / ORDER * chebvander(nodes, ORDER - 1)
    to_series[:, 0] /= 2
    fine = np.float64 if p.num_samples * p.num_classes <= FINE_SCORES else np.float32
    inverse = np.exp(-math.log(reach) * nodes).astype(fine)  # 1 / T
    found = GapSeries(
        np.empty(p.num_samples), np.empty(p.num_samples), np.empty((p.num_samples, ORDER))
    )

    def work(slices: Iterator[slice]) -> None:
        for rows in slices:
            gaps = _gaps(p, rows)
            index = np.arange(len(gaps))
            found.label[rows] = gaps[index, p.labels[rows]]
            gaps[index, p.predicted[rows]] = -np.inf
            second = gaps.max(axis=1)
            found.second[rows] = second
            alone = np.isneginf(second)  # no other class has any probability: h is not used
            gaps[alone] = 0
            lower = (gaps - np.where(alone, 0, second)[:, None]).astype(fine)
            h = [_log_sum_exp(lower * factor) for factor in inverse]
            # Sums in a fixed order, so that equal samples stay equal to the bit.
            parts = [value[:, None] * row for value, row in zip(h, to_series, strict=True)]
            found.coefficients[rows] = np.where(alone[:, None], 0, sum(parts))

    _ = p.predicted  # made once, before the threads
    over_chunks(work, p.num_samples, p.num_classes)
    return found


def _log_sum_exp(values: Float) -> Float64:
    logs: Float64 = np.log(np.exp(values, out=values).sum(axis=1, dtype=np.float64))
    return logs


def _gaps(p: Predictions, rows: slice) -> Float64:
    """Logits minus that of the predicted class, in float64."""
    scores = p.scores[rows].astype(np.float64)
    if p.kind == "probs":
        with np.errstate(divide="ignore"):
            scores = np.log(scores)
    top = scores[np.arange(len(scores)), p.predicted[rows]]
    gaps: Float64 = scores - top[:, None]
    return gaps


def best_temperature(p: Predictions | Confidences) -> float | None:
    """The temperature that minimises NLL on these very samples; None for confidences alone."""
    if not isinstance(p, Predictions):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the page says where the range ends
        return float(TemperatureScaling().fit(p).temperature_)


def reach_for(best: Iterable[float | None]) -> float:
    """How far the slider goes for models of these best temperatures."""
    usual = all(T is None or 1 / USUAL_BEST <= T <= USUAL_BEST for T in best)
    return USUAL_REACH if usual else LARGE_REACH


def embedded(
    p: Predictions | Confidences, *, reach: float, budget: int, seed: int
) -> dict[str, Any]:
    """What the page holds of a model, in at most about ``budget`` letters.

    Where all samples would be more, a random part of them, drawn in the same order for models of
    the same size.
    """
    rows = _random_rows(p.num_samples, MOST_SAMPLES, seed)
    part = p if len(rows) == p.num_samples else p.take(rows)
    columns = _columns(part, reach) if isinstance(part, Predictions) else {}
    found = _packed(part, columns)
    letters = sum(len(field["data"]) for field in found.values())
    if letters > budget:
        rows = _random_rows(len(rows), int(0.95 * budget / letters * len(rows)), seed)
        part = part.take(rows)
        found = _packed(part, {name: column[rows] for name, column in columns.items()})
    whole = part.num_samples == p.num_samples
    series = [found.pop(name) for name in list(found) if name.startswith("coefficient")]
    return {"samples": part.num_samples, "whole": whole, **found, "series": series}


def _random_rows(count: int, most: int, seed: int) -> Int:
    rows: Int = np.sort(np.random.default_rng(seed).permutation(count)[: max(most, 1)])
    return rows


def _columns(p: Predictions, reach: float) -> dict[str, Float64]:
    """What the page needs at temperatures other than 1, one row per sample."""
    if p.num_samples * p.num_classes > EXACT_SCORES:
        series = series_of(p, reach)
        terms = {f"coefficient {k}": series.coefficients[:, k] for k in range(ORDER)}
        return {"second": series.second, "label": series.label, **terms}
    gaps = _gaps(p, slice(None))
    index = np.arange(p.num_samples)
    label = gaps[index, p.labels].copy()
    gaps[index, p.predicted] = -np.inf
    # In a fixed order, so that equal gaps of other classes give equal sums; the top one goes.
    return {"gaps": -np.sort(-gaps, axis=1)[:, :-1], "label": label}


def _packed(p: Predictions | Confidences, columns: Mapping[str, Float64]) -> dict[str, Any]:
    """The package's ranking at T = 1, and the columns for other temperatures."""
    ranked = rank(p)
    kind = "u4" if p.weights is None else "f8"
    found = {
        "confidence": packed(ranked.confidence, "f8"),
        "count": packed(ranked.count, kind),
        "hits": packed(ranked.hits, kind),
    }
    if columns:
        found["correct"] = packed(p.correct, "u1")
    if columns and p.weights is not None:
        found["weight"] = packed(p.weights / p.weights.mean(), "f8")
    for name, column in columns.items():
        if name.startswith("coefficient"):
            kind = "i4" if np.abs(column).max() > SMALL else "i2"
            found[name] = packed(np.rint(column / STEP), kind) | {"scale": STEP}
        else:
            found[name] = packed(column, "f8" if "gaps" in columns else "f4")
    return found
