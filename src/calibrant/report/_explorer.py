"""The part of a report where temperature and bins can be changed."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant._core.formatting import show
from calibrant.metrics import ACCURACY, CALIBRATION_ERROR, CONFIDENCE, LOG_LOSS
from calibrant.predictions import Predictions
from calibrant.report._html import (
    Html,
    as_html,
    chart,
    name_of,
    number_head,
    row_name,
    section,
    table,
    tag,
)
from calibrant.report._judge import Judged
from calibrant.report._settings import Settings


def swatch(index: int) -> Html:
    return tag("span", class_="swatch", data_index=index, aria_hidden="true")


def explorer(judged: Sequence[Judged], settings: Settings, reach: float) -> Html:
    """Controls, the reliability diagram and its readout; a script updates them."""
    words = "Where the points lie below the diagonal, the model is more confident than accurate."
    of_top = any(j.risk is not None for j in judged)
    if of_top:
        words = f"This part is about the top label: the class that the model predicts. {words}"
    if _has_temperature(judged):
        words += (
            " Move the temperature slider to see the effect of dividing all logits by one number: "
            "above 1 the model becomes less confident, below 1 more confident."
        )
    return section(
        "explore",
        "Top label: look closer" if of_top else "Look closer",
        tag("p", words),
        _controls(judged, settings, reach),
        _readout(judged, reach),
        tag("p", id="live-said", class_="unseen", role="status"),
        *_notes(judged),
        chart("reliability", "Reliability diagram", "tall"),
        tag("details", tag("summary", "The bins as a table"), tag("div", id="bins-table")),
        *_curve(judged),
    )


def _has_temperature(judged: Sequence[Judged]) -> bool:
    """Whether a temperature changes any model: it needs the scores of all classes."""
    return any(j.best is not None for j in judged)


def _curve(judged: Sequence[Judged]) -> list[Html]:
    if not _has_temperature(judged):
        return []
    return [
        chart("curve", "ECE and NLL against temperature", "low"),
        tag("details", tag("summary", "The curve as a table"), tag("div", id="curve-table")),
    ]


def _controls(judged: Sequence[Judged], settings: Settings, reach: float) -> Html:
    toggles = [
        tag(
            "label",
            Html(f'<input type="checkbox" checked data-model="{index}">'),
            swatch(index),
            name_of(j.name),
            class_="toggle",
        )
        for index, j in enumerate(judged)
    ]
    several = f"<fieldset><legend>Models</legend>{''.join(toggles)}</fieldset>"
    return Html(f"""<form class="controls" aria-label="What the charts show">
{_slider(judged, reach) if _has_temperature(judged) else ""}
<fieldset><legend>Bins</legend>
<button type="button" data-binning="width" aria-pressed="true">equal width</button>
<button type="button" data-binning="mass" aria-pressed="false">equal mass</button>
<label>number <input type="number" id="bins" min="1" max="100" step="1" value="{settings.bins}">
</label></fieldset>
{several if len(judged) > 1 else ""}
</form>""")


def _slider(judged: Sequence[Judged], reach: float) -> Html:
    best = '<button type="button" id="temperature-best">Each at its best</button>'
    return Html(f"""<fieldset class="temperature"><legend>Temperature</legend>
<input type="range" id="temperature" min="{1 / reach:.4g}" max="{reach:.4g}" step="0.01" value="1"
 aria-label="Temperature: the logits are divided by it" aria-valuetext="T = 1.00">
<output id="temperature-shown" for="temperature" aria-live="off">T = 1.00</output>
<button type="button" id="temperature-reset">Reset</button>
{best if len(judged) > 1 else ""}
</fieldset>""")


def _notes(judged: Sequence[Judged]) -> list[Html]:
    """Notes on the limits of the live figures."""
    notes = []
    for j in judged:
        if not j.live["whole"]:
            part = f"a random {j.live['samples']:,} of its {j.p.num_samples:,} samples"
            rest = f": live figures use {part}; all other figures use all samples."
            notes.append(tag("p", name_of(j.name), rest, class_="note"))
        if j.best is None and _has_temperature(judged):
            rest = (
                ": only confidences were given. The temperature has no effect, because it needs "
                "the scores of all classes."
            )
            notes.append(tag("p", name_of(j.name), rest, class_="note"))
    return notes


def _readout(judged: Sequence[Judged], reach: float) -> Html:
    """The figures that follow the controls, one row per model."""
    moves = _has_temperature(judged)
    names = ("ECE", *(("NLL",) if moves else ()), "mean confidence", "accuracy")
    head = ["model", *map(number_head, (*names, *(("lowest NLL at",) if moves else ())))]
    rows = []
    for index, j in enumerate(judged):
        cells: list[object] = [row_name(swatch(index), name_of(j.name))]
        cells.append(_live(index, "ece", show(j.panel[CALIBRATION_ERROR], percent=True)))
        if moves:
            nll = show(j.panel[LOG_LOSS], percent=False) if isinstance(j.p, Predictions) else "–"
            cells.append(_live(index, "nll", nll))
        cells.append(_live(index, "confidence", show(j.panel[CONFIDENCE], percent=True)))
        cells.append(_live(index, "accuracy", show(j.panel[ACCURACY], percent=True)))
        if moves:
            cells.append(tag("td", _jump(j.best, reach), class_="number"))
        rows.append(cells)
    where = "At T = 1 in bins of equal width" if moves else "In bins of equal width"
    return table(where, head, rows, kind="readout")


def _live(index: int, metric: str, shown: str) -> Html:
    output = tag("output", shown, data_model=index, data_metric=metric, aria_live="off")
    return tag("td", output, class_="number")


def _jump(best: float | None, reach: float) -> Html:
    """A button to the temperature of least NLL, where the slider reaches it."""
    if best is None:
        return as_html("–")
    if not 1 / reach <= best <= reach:
        return as_html(f"T = {best:.3g}")
    return tag("button", f"T = {best:.2f}", type="button", data_temperature=f"{best:.2f}")
