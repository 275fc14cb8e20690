"""Values of metrics with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from calibrant import metrics as m
from calibrant._checks import check_count, check_fraction, check_seed
from calibrant.inference._bootstrap import Bounds, accuracy_bounds, bootstrap_bounds
from calibrant.inference._classwise import classwise_bounds
from calibrant.inference._curves import STRENGTHS
from calibrant.inference._grid import estimator_of, grid_bounds
from calibrant.metrics._sample import Ranked, Sample
from calibrant.predictions import Confidences, Predictions

LEAST_DRAWS = 20


@dataclass(frozen=True)
class Interval:
    """A value with the interval that holds the true one at the stated level of confidence."""

    value: float
    low: float
    high: float
    level: float = 0.95


def intervals(
    p: Predictions | Confidences,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Values and intervals of the named metrics, all from the same resamples.

    ``options`` gives keyword arguments by metric. Bounds are NaN where N = 1 or the metric is
    undefined in most resamples. The same seed gives the same intervals.

    >>> from calibrant import Confidences
    >>> c = Confidences(confidence=[0.8] * 50, correct=[True] * 40 + [False] * 10)
    >>> found = intervals(c, ["accuracy"])["accuracy"]
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.8, 0.67, 0.888)
    """
    check_fraction("level", level, example=0.95)
    check_count("replicates", replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
    check_seed(seed)
    options = options or {}
    functions = functions_of(names, options)
    values = evaluate(p, functions)
    sample = Sample.of(p)
    bounds = dict.fromkeys(names, (math.nan, math.nan))
    if len(sample.weight) > 1:
        plain = {k: f for k, f in functions.items() if not m.METRICS[k].plug_in and k != "accuracy"}
        biased = [k for k in names if m.METRICS[k].plug_in and k != "classwise_ece"]
        draws = simulated_draws(replicates)
        bounds |= bootstrap_bounds(sample, plain, level=level, replicates=replicates, seed=seed)
        estimators = {k: estimator_of(k, options.get(k, {}), sample.ranked) for k in biased}
        bounds |= grid_bounds(sample, estimators, level=level, draws=draws, seed=seed)
        if "classwise_ece" in names and isinstance(p, Predictions):
            bounds["classwise_ece"] = classwise_bounds(
                p, level=level, draws=draws, seed=seed, **options.get("classwise_ece", {})
            )
        if sample.ranked.accuracy in (0, 1):
            unranked = _unranked_bounds(sample.ranked, level)
            bounds |= {name: unranked[name] for name in names if name in unranked}
    if "accuracy" in names:
        bounds["accuracy"] = accuracy_bounds(sample.ranked, level)
    return {name: Interval(values[name], *_in_range(name, bounds[name]), level) for name in names}


def _unranked_bounds(ranked: Ranked, level: float) -> dict[str, Bounds]:
    """AURC and E-AURC of all right, or all wrong, answers, whose bootstrap is a point.

    From a perfect ranking to one by chance, with accuracies as their own interval allows.
    """
    low, high = accuracy_bounds(ranked, level)

    def excess(accuracy: float) -> float:
        """Chance over perfect: r - (r + (1 - r) ln(1 - r)) with error rate r."""
        return -accuracy * math.log(accuracy) if accuracy else 0.0

    largest = excess(min(max(1 / math.e, low), high))
    return {"aurc": (1 - high - excess(high), 1 - low), "eaurc": (0.0, largest)}


def _in_range(name: str, bounds: Bounds) -> Bounds:
    """Bounds cut off at the ends of the metric's range."""
    low, high = (float(np.clip(x, m.METRICS[name].low, m.METRICS[name].high)) for x in bounds)
    return low, high


def functions_of(
    names: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, partial[float]]:
    """The named metrics with their options."""
    return {name: partial(m.get_metric(name).function, **options.get(name, {})) for name in names}


def evaluate(
    p: Predictions | Confidences, functions: Mapping[str, Callable[..., float]]
) -> dict[str, float]:
    """Each metric once. Classwise ECE goes first: its pass over the scores makes the columns."""
    values: dict[str, float] = {}
    if "classwise_ece" in functions:
        values["classwise_ece"] = functions["classwise_ece"](p)
    sample = Sample.of(p)
    for name, function in functions.items():
        if name != "classwise_ece":
            values[name] = function(sample)
    return values


def values_of(
    p: Predictions | Confidences,
    names: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, float]:
    """Values of the named metrics, without intervals, from one pass over the scores."""
    return evaluate(p, functions_of(names, options or {}))


def simulated_draws(replicates: int) -> int:
    """Draws of the grid bootstrap: each is used at every strength."""
    return max(replicates // len(STRENGTHS), LEAST_DRAWS)
