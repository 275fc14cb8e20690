"""The picture a study report opens with: objectives by calibrators, coloured by one metric."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from calibrant._core.formatting import show
from calibrant.inference import holm
from calibrant.metrics import CALIBRATION_ERROR, METRICS
from calibrant.report._html import Html, isolated, name_of, row_name, section, table, tag
from calibrant.report._study import TEST, StudyCells
from calibrant.results import compare_runs, summarise_runs

SURE = 0.05
SHADES = 6  # of the settings that are clearly worse than the best
Combination = tuple[str, str]  # objective and calibrator


def heat_maps(cells: StudyCells) -> Html:
    """One map per data set, network and metric; a box chooses the metric."""
    places = dict.fromkeys(row[:2] for row in cells.rows if row[-1] == TEST)
    metrics = sorted(
        (m for m in cells.metrics if m in METRICS and METRICS[m].better != "neither"),
        key=lambda name: name != CALIBRATION_ERROR,
    )
    maps = [
        tag("div", made, class_="heat-map", data_metric=metric, hidden="" if number else None)
        for number, metric in enumerate(metrics)
        for place in places
        if (made := _map(cells, place, metric))
    ]
    if not maps:
        return Html("")
    options = [tag("option", METRICS[m].label, value=m) for m in metrics]
    box = tag("label", "metric ", tag("select", *options, id="heat-metric"))
    words = (
        "Mean over seeds on the test samples. ★ marks the best setting. Settings with the same "
        "colour as the best are not significantly different from it: a t-test over seeds, paired "
        "where both have the same seeds and corrected for the number of settings (Holm), gives "
        f"p ≥ {SURE:g}. The deeper the blue of the others, the worse they are."
    )
    return section(
        "overview",
        "Objectives and calibrators",
        tag("p", words),
        tag("div", box, class_="controls"),
        *maps,
    )


def _map(cells: StudyCells, place: tuple[str, ...], metric: str) -> Html:
    rows = {(r[2], r[3]): r for r in cells.rows if r[:2] == place and r[-1] == TEST}
    values = {
        setting: cells.values[row, metric]
        for setting, row in rows.items()
        if (row, metric) in cells.values
    }
    if not values:
        return Html("")
    shades = shade(values, higher=METRICS[metric].better == "higher")
    objectives, calibrators = (tuple(dict.fromkeys(part)) for part in zip(*rows, strict=True))
    lines = [
        [row_name(name_of(o)), *(_cell(metric, values, shades, (o, c)) for c in calibrators)]
        for o in objectives
    ]
    data, model = place
    caption = f"{METRICS[metric].label} of {isolated(data)}, {isolated(model)}"
    head = [
        "objective",
        *(tag("th", name_of(c), scope="col", class_="number") for c in calibrators),
    ]
    return table(caption, head, lines, kind="heat")


def _cell(
    metric: str,
    values: Mapping[Combination, Mapping[int, float]],
    shades: Mapping[Combination, int],
    setting: Combination,
) -> Html:
    seeds = values.get(setting)
    if seeds is None or setting not in shades:
        return tag("td", "–", class_="number")
    percent = METRICS[metric].percent
    found = summarise_runs(list(seeds.values()))
    best = setting == next(iter(shades))
    text = f"{'★ ' if best else ''}{show(found.mean, percent=percent)}"
    title = None
    if len(seeds) > 1:
        title = f"± {show(found.std, percent=percent)} over {len(seeds)} seeds"
    same = " best" if best else ""
    return tag("td", text, class_=f"number heat-{shades[setting]}{same}", title=title)


def shade(
    values: Mapping[Combination, Mapping[int, float]], *, higher: bool = False
) -> dict[Combination, int]:
    """Shade of each setting, the best first: 0 for what cannot be told from it, up to SHADES.

    >>> runs = {("a", "TS"): {0: 0.10, 1: 0.11}, ("b", "TS"): {0: 0.50, 1: 0.51}}
    >>> shade(runs), shade(runs, higher=True)
    ({('a', 'TS'): 0, ('b', 'TS'): 6}, {('b', 'TS'): 0, ('a', 'TS'): 6})
    """
    means = {setting: _mean(seeds.values()) for setting, seeds in values.items()}
    sound = {setting: mean for setting, mean in means.items() if math.isfinite(mean)}
    order = sorted(sound, key=lambda setting: -sound[setting] if higher else sound[setting])
    if not order:
        return {}
    best, *others = order
    adjusted = holm([_p_value(values[best], values[other]) for other in others])
    span = abs(sound[order[-1]] - sound[best])
    found = {best: 0}
    for other, p in zip(others, adjusted, strict=True):
        behind = abs(sound[other] - sound[best])
        found[other] = 0 if p >= SURE else min(SHADES, 1 + int(SHADES * behind / span))
    return found


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)


def _p_value(first: Mapping[int, float], other: Mapping[int, float]) -> float:
    """P-value of equal means; 1 if either has a single run, which says nothing of its spread."""
    if len(first) == 1 or len(other) == 1:
        return 1.0
    a, b = ([seeds[seed] for seed in sorted(seeds)] for seeds in (first, other))
    p = compare_runs(a, b, paired=first.keys() == other.keys()).p_value
    return 1.0 if math.isnan(p) else p
