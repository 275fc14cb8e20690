"""The contents of a report for each model and for all models together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from calibrant._core.checks import InputError, refuse
from calibrant._measure import Comparison, Panel, compare, measure
from calibrant.inference import Resampling, ece_test
from calibrant.metrics._registry import CALIBRATION_ERROR
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions
from calibrant.report._advice import Advice, advise
from calibrant.report._html import clean
from calibrant.report._tempered import best_temperature, embedded, reach_for
from calibrant.report._verdict import Verdict, gap_interval, verdict_of

MOST_MODELS = 8
# Letters of embedded data, for all models together: what Plotly leaves of 6 MB.
BUDGET = 3_700_000
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Settings(Resampling):
    """How everything in a report is computed."""

    bins: int = 15


@dataclass(frozen=True)
class Judged:
    """A model with all that is said about it.

    ``best`` is the temperature of least NLL, None for confidences alone; ``live`` what the page
    computes from.
    """

    name: str
    p: Predictions | Confidences
    panel: Panel
    advice: Advice
    verdict: Verdict
    best: float | None
    live: Mapping[str, Any]


@dataclass(frozen=True)
class Findings:
    """All models, and what goes for them together.

    ``comparison`` is a text where the models cannot be compared and None where there is one alone;
    the slider goes from 1 / ``reach`` to ``reach``.
    """

    models: Sequence[Judged]
    comparison: Comparison | str | None
    reach: float


def judge_models(
    models: Mapping[str, Predictions | Confidences], settings: Settings, progress: Progress
) -> Findings:
    """Measure every model and compare them."""
    if not isinstance(models, Mapping) or not 1 <= len(models) <= MOST_MODELS:
        rule = f"must be a mapping of 1 to {MOST_MODELS} names to predictions"
        got = f"got {type(models).__name__}"
        got += f" of {len(models)}" if isinstance(models, Mapping) else ""
        advice = (
            'Write write_report({"a": pa}, "report.html"); compare (calibrant compare) takes any '
            "number of models."
        )
        raise refuse("models", rule, got, advice)
    for p in models.values():
        check_measurable(p)
    bests = [best_temperature(p) for p in models.values()]
    reach = reach_for(bests)
    judged = []
    for done, ((name, p), best) in enumerate(zip(models.items(), bests, strict=True)):
        progress(f"measuring {clean(name)}", done, len(models) + 1)
        live = embedded(p, reach=reach, budget=BUDGET // len(models), seed=settings.seed)
        judged.append(_judged(clean(name), p, settings, best, live))
    progress("comparing", len(models), len(models) + 1)
    comparison = _compared(models, settings) if len(models) > 1 else None
    progress("writing", len(models) + 1, len(models) + 1)
    return Findings(judged, comparison, reach)


def _judged(
    name: str,
    p: Predictions | Confidences,
    settings: Settings,
    best: float | None,
    live: Mapping[str, Any],
) -> Judged:
    panel = measure(p, **vars(settings))
    advice = advise(p, **vars(settings))
    test = ece_test(p, bins=settings.bins, seed=settings.seed)
    verdict = verdict_of(
        p, gap_interval(p, settings.level), panel.interval(CALIBRATION_ERROR), test, advice
    )
    return Judged(name, p, panel, advice, verdict, best, live)


def _compared(
    models: Mapping[str, Predictions | Confidences], settings: Settings
) -> Comparison | str:
    try:
        return compare(models, **vars(settings))
    except InputError as error:
        return f"The models are shown side by side, but not compared: {error}"


def data_of_models(found: Findings, settings: Settings) -> dict[str, Any]:
    """What the scripts of the page need."""
    models = [
        {"name": j.name, "best": j.best, "reach": found.reach, **j.live} for j in found.models
    ]
    z = NormalDist().inv_cdf((1 + settings.level) / 2)
    return {"bins": settings.bins, "z": z, "models": models}
