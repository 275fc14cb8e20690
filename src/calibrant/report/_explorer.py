"""The part of a report where temperature and bins can be changed."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant._core.formatting import show
from calibrant.metrics._registry import ACCURACY, CALIBRATION_ERROR, CONFIDENCE, LOG_LOSS
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
from calibrant.report._judge import Judged, Settings


def swatch(index: int) -> Html:
    return tag("span", class_="swatch", data_index=index, aria_hidden="true")


def explorer(judged: Sequence[Judged], settings: Settings, reach: float) -> Html:
    """Controls, the reliability diagram and its readout; a script makes them move."""
    words = (
        "Where the points lie below the diagonal, the model is more confident than accurate. "
        "Move the temperature slider to see the effect of dividing all logits by one number: "
        "above 1 the model becomes less confident, below 1 more confident."
    )
    head = [
        "model",
        *map(number_head, ("ECE", "NLL", "mean confidence", "accuracy")),
        number_head("lowest NLL at"),
    ]
    rows = [_readout_row(index, j, reach) for index, j in enumerate(judged)]
    readout = table("At T = 1 in bins of equal width", head, rows, kind="readout")
    return section(
        "explore",
        "Look closer",
        tag("p", words),
        _controls(judged, settings, reach),
        readout,
        tag("p", id="live-said", class_="unseen", role="status"),
        *_notes(judged),
        chart("reliability", "Reliability diagram", "tall"),
        tag("details", tag("summary", "The bins as a table"), tag("div", id="bins-table")),
        chart("curve", "ECE and NLL against temperature", "low"),
        tag("details", tag("summary", "The curve as a table"), tag("div", id="curve-table")),
    )


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
    fixed = "disabled" if all(j.best is None for j in judged) else ""
    best = '<button type="button" id="temperature-best">Each at its best</button>'
    return Html(f"""<form class="controls" aria-label="What the charts show">
<fieldset class="temperature"><legend>Temperature</legend>
<input type="range" id="temperature" min="{1 / reach:.4g}" max="{reach:.4g}" step="0.01" value="1"
 aria-label="Temperature: the logits are divided by it" aria-valuetext="T = 1.00" {fixed}>
<output id="temperature-shown" for="temperature" aria-live="off">T = 1.00</output>
<button type="button" id="temperature-reset" {fixed}>Reset</button>
{best if len(judged) > 1 and not fixed else ""}
</fieldset>
<fieldset><legend>Bins</legend>
<button type="button" data-binning="width" aria-pressed="true">equal width</button>
<button type="button" data-binning="mass" aria-pressed="false">equal mass</button>
<label>number <input type="number" id="bins" min="1" max="100" step="1" value="{settings.bins}">
</label></fieldset>
{several if len(judged) > 1 else ""}
</form>""")


def _notes(judged: Sequence[Judged]) -> list[Html]:
    """Notes on the limits of the live figures."""
    notes = []
    for j in judged:
        if not j.live["whole"]:
            part = f"a random {j.live['samples']:,} of its {j.p.num_samples:,} samples"
            rest = f": live figures use {part}; all other figures use all samples."
            notes.append(tag("p", name_of(j.name), rest, class_="note"))
        if j.best is None:
            rest = (
                ": only confidences were given. The temperature has no effect, because it needs "
                "the scores of all classes."
            )
            notes.append(tag("p", name_of(j.name), rest, class_="note"))
    return notes


def _readout_row(index: int, j: Judged, reach: float) -> list[object]:
    def live(metric: str, shown: str) -> Html:
        output = tag("output", shown, data_model=index, data_metric=metric, aria_live="off")
        return tag("td", output, class_="number")

    nll = show(j.panel[LOG_LOSS], percent=False) if isinstance(j.p, Predictions) else "–"
    return [
        row_name(swatch(index), name_of(j.name)),
        live("ece", show(j.panel[CALIBRATION_ERROR], percent=True)),
        live("nll", nll),
        live("confidence", show(j.panel[CONFIDENCE], percent=True)),
        live("accuracy", show(j.panel[ACCURACY], percent=True)),
        tag("td", _jump(j.best, reach), class_="number"),
    ]


def _jump(best: float | None, reach: float) -> Html:
    """A button to the temperature of least NLL, where the slider reaches it."""
    if best is None:
        return as_html("–")
    if not 1 / reach <= best <= reach:
        return as_html(f"T = {best:.3g}")
    return tag("button", f"T = {best:.2f}", type="button", data_temperature=f"{best:.2f}")
