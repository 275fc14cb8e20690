"""The contents of a report for each model and for all models together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from calibrant._core.checks import InputError, refuse
from calibrant._measure import Comparison, Panel, compare, measure
from calibrant.inference import ece_test
from calibrant.inference._clusters import design_effect
from calibrant.metrics import CALIBRATION_ERROR, PerCluster
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions
from calibrant.report._advice import Advice, advise
from calibrant.report._belonging import Grouping, cluster_errors, groupings_of
from calibrant.report._html import clean
from calibrant.report._risk import Risk, risk_of
from calibrant.report._settings import Settings
from calibrant.report._tempered import best_temperature, embedded, reach_for
from calibrant.report._verdict import Verdict, gap_interval, risk_verdict, verdict_of

MOST_MODELS = 8
# Characters of embedded data for all models: 6 MB minus the size of Plotly.
BUDGET = 3_700_000
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Judged:
    """A model and everything the report says about it.

    ``panel`` is about the top label, ``risk`` about the positive class, where there is one.
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
    risk: Risk | None = None
    groupings: Sequence[Grouping] = ()
    per_cluster: Mapping[str, PerCluster] | None = None


@dataclass(frozen=True)
class Findings:
    """All models, and the results for all of them together.

    ``comparison`` is a text where the models cannot be compared and None where there is one alone;
    the slider goes from 1 / ``reach`` to ``reach``.
    """

    models: Sequence[Judged]
    comparison: Comparison | str | None
    reach: float


def check_models(models: object) -> None:
    """Reject anything but a mapping of a few names to predictions."""
    if not isinstance(models, Mapping) or not 1 <= len(models) <= MOST_MODELS:
        rule = f"must be 1 to {MOST_MODELS} predictions by name"
        got = f"got {len(models) if isinstance(models, Mapping) else type(models).__name__}"
        advice = (
            'Choose some (in Python {"a": pa, "b": pb}); calibrant compare takes any number of '
            "models."
        )
        raise refuse("models", rule, got, advice)


def judge_models(models: Mapping[str, Any], settings: Settings, progress: Progress) -> Findings:
    """Measure every model and compare them."""
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
    panel = measure(p, positive=False, **settings.measuring)
    risk = risk_of(p, settings)
    advice = advise(p, risk, settings)
    test = ece_test(p, bins=settings.bins, seed=settings.seed)
    error = panel.interval(CALIBRATION_ERROR)
    verdict = verdict_of(p, gap_interval(p, settings.level), error, test, advice)
    if risk is not None:
        test = ece_test(risk.record, bins=settings.bins, seed=settings.seed)
        verdict = risk_verdict(risk, test, advice, top_label=verdict)
    groupings = groupings_of(p, risk, settings)
    found = cluster_errors(p)
    return Judged(name, p, panel, advice, verdict, best, live, risk, groupings, found)


def _compared(
    models: Mapping[str, Predictions | Confidences], settings: Settings
) -> Comparison | str:
    try:
        return compare(
            models, positive=settings.positive, **settings.decisions, **settings.measuring
        )
    except InputError as error:
        return f"The models are shown side by side, but not compared: {error}"


def data_of_models(found: Findings, settings: Settings) -> dict[str, Any]:
    """What the scripts of the page need."""
    z = NormalDist().inv_cdf((1 + settings.level) / 2)
    models = [
        {
            "name": j.name,
            "best": j.best,
            "reach": found.reach,
            # Wilson's interval with z sqrt(d) is that of N / d samples: as many as these are worth.
            "z": z * math.sqrt(design_effect(j.p).larger),
            **j.live,
        }
        for j in found.models
    ]
    return {"bins": settings.bins, "models": models}
