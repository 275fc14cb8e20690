"""Inputs of the plots: models by name, and values over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from calibrant._core.arrays import Float64, to_floats
from calibrant._core.checks import check_choice, refuse
from calibrant.predictions import Confidences, Predictions
from calibrant.results import summarise_runs

Plottable = Predictions | Confidences
PlottableModels = Plottable | Mapping[str, Plottable]


def as_models(models: PlottableModels) -> dict[str, Plottable]:
    """Models by name; one alone has the empty name."""
    if isinstance(models, Predictions | Confidences):
        return {"": models}
    found = named("models", models, "Pass {'my model': Predictions(logits=…, labels=…)}.")
    for name, p in found.items():
        if not isinstance(p, Predictions | Confidences):
            rule, advice = "must hold Predictions or Confidences", "Build them from your logits."
            raise refuse("models", rule, f"got {type(p).__name__} for {name!r}", advice)
    return found


def full_predictions(argument: str, p: object) -> Predictions:
    """Return ``p`` if it has the scores of all classes."""
    if not isinstance(p, Predictions):
        rule, advice = "must be Predictions", "Build Predictions(logits=…, labels=…)."
        raise refuse(argument, rule, f"got {type(p).__name__}", advice)
    return p


def named(argument: str, given: object, advice: str) -> dict[str, Any]:
    """A mapping from names to something, with at least one entry."""
    if not isinstance(given, Mapping):
        rule = "must be a mapping from names"
        raise refuse(argument, rule, f"got {type(given).__name__}", advice)
    if not given:
        raise refuse(argument, "must have an entry", "got an empty mapping", advice)
    for name in given:
        if not isinstance(name, str):
            rule = "must have strings as names"
            raise refuse(argument, rule, f"got {name!r}", "Use str(name).")
    return dict(given)


def check_spread(spread: str | None) -> None:
    """Reject an unknown spread."""
    if spread is not None:
        check_choice("spread", spread, ("sem", "std"))


def over_seeds(where: str, values: Any, spread: str | None) -> tuple[float, float]:
    """Mean and spread of the values of several seeds; NaN where there is none to draw."""
    found = summarise_runs(runs_of(where, values))
    mean = found.mean if math.isfinite(found.mean) else math.nan
    return mean, {"sem": found.sem, "std": found.std, None: math.nan}[spread]


def runs_of(where: str, values: Any) -> Float64:
    """One value per seed; a single number is one seed."""
    runs = to_floats(values, where)
    runs = runs.reshape(1) if runs.ndim == 0 else runs
    if runs.ndim != 1 or not len(runs):
        rule, advice = "must have one number per seed", "Leave out what has no runs."
        raise refuse(where, rule, f"got the shape {runs.shape}", advice)
    return runs.astype("float64")


SPREAD_WORDS = {"sem": "mean ± standard error", "std": "mean ± standard deviation", None: None}
