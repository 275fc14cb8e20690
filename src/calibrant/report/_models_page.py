"""The report page on models, section by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibrant import metrics as m
from calibrant._core.formatting import (
    in_samples,
    show,
    show_bounds,
    show_error,
    show_level,
    show_number,
    show_p,
)
from calibrant._measure import UPWARD_BIAS, Comparison, Panel
from calibrant.inference import INDEPENDENT, Difference, Interval, assumption
from calibrant.io import FILE_NOTES
from calibrant.metrics import CALIBRATION_ERROR, POSITIVE_ERROR
from calibrant.predictions import Confidences, Predictions
from calibrant.report._belonging import clusters_section, groups_section
from calibrant.report._cases import class_name, confident_mistakes, sample_ids, worst_classes
from calibrant.report._decomposition import decomposition
from calibrant.report._explorer import explorer, swatch
from calibrant.report._html import (
    Html,
    isolated,
    name_of,
    number,
    number_head,
    row_name,
    section,
    table,
    tag,
)
from calibrant.report._judge import Findings, Judged
from calibrant.report._risk import risk_section
from calibrant.report._settings import Settings
from calibrant.report._verdict import TITLES, titled

MOST_CLASSES, MOST_MISTAKES = 20, 25
LONGEST_ORIGIN = 200
# On a phone the answers are folded away under this line.
ANSWERS = "Details and advice"
# Confidences above this print as 100.00 %.
PRINTS_AS_ONE = 0.99995


def body_of_models(found: Findings, settings: Settings) -> Html:
    """All sections."""
    judged = found.models
    parts = [
        _verdicts(judged, found.comparison),
        risk_section(judged, settings),
        explorer(judged, settings, found.reach),
        _panels(judged, settings),
        groups_section(judged),
        clusters_section(judged),
        decomposition(judged),
        _comparison(found.comparison),
        _calibrators(judged),
        _classes(judged, settings),
        _mistakes(judged),
        _method(judged, settings),
    ]
    return Html("\n".join(parts))


def _verdicts(judged: Sequence[Judged], found: Comparison | str | None) -> Html:
    cards = [_card(index, j) for index, j in enumerate(judged)]
    if isinstance(found, Comparison):
        title = tag("h3", "Which is better calibrated?")
        cards.insert(0, tag("article", title, *_who_wins(found), class_="card"))
    return section("verdict", "Verdict", *cards)


def _card(index: int, j: Judged) -> Html:
    size = f" {in_samples(j.p.num_samples)}"
    if isinstance(j.p, Predictions):
        size += f", {j.p.num_classes:,} classes"
    answers = [
        part for asked, said in j.verdict.answers for part in (tag("dt", asked), tag("dd", said))
    ]
    if j.advice.chosen is not None:
        line = f"calibrant calibrate --fit FILE --method {j.advice.chosen} --save calibrator.json"
        answers += [tag("dt", "How?"), tag("dd", tag("code", line))]
    return tag(
        "article",
        tag("h3", swatch(index), name_of(j.name), tag("small", size)),
        tag("p", j.verdict.headline, class_="headline"),
        *_notes(j),
        tag("details", tag("summary", ANSWERS), tag("dl", *answers), class_="answers", open=""),
        class_=f"card {j.verdict.kind}",
    )


def _notes(j: Judged) -> list[Html]:
    """What was left out of the file, and a doubt about the scores, which comes as a warning."""
    doubt = j.p.doubt if isinstance(j.p, Predictions) else ""
    return [
        tag("p", name_of(note), class_="warning" if note == doubt else "note")
        for note in j.panel.notes
    ]


def _who_wins(found: Comparison) -> list[Html]:
    """One line per pair of models, by their ECE."""
    lines = [
        tag(
            "p",
            name_of(d.first),
            " or ",
            name_of(d.second),
            "? ",
            name_of(found.verdict(d)),
            f". The {m.METRICS[d.metric].label} differs by {_points(d.value)} percentage points "
            f"({_points(d.low)} … {_points(d.high)}).",
        )
        for d in found.differences
        if d.metric in (CALIBRATION_ERROR, POSITIVE_ERROR)
    ]
    return [*lines, tag("p", found.summary())]


def _points(value: float) -> str:
    return show_number(value, percent=True, signed=True)


def _shown(d: Difference) -> str:
    return show(d.value, percent=m.METRICS[d.metric].percent, signed=True)


def _bounds(d: Difference) -> str:
    bounds = Interval(d.value, d.low, d.high, d.level)
    return show_bounds(bounds.low, bounds.high, percent=m.METRICS[d.metric].percent, signed=True)


def _panels(judged: Sequence[Judged], settings: Settings) -> Html:
    caption = f"with {show_level(settings.level)}s"
    with_risk = {j.risk.name: None for j in judged if j.risk is not None}
    tables = [
        _panel_table(
            {j.name: j.risk.panel for j in judged if j.risk is not None and j.risk.name == name},
            f"Probability of {isolated(name)} against its frequency, {caption}",
        )
        for name in with_risk
    ]
    top = "Top label: confidence in the predicted class against being right" if tables else ""
    of_top = f"{top}, {caption}" if top else f"All metrics, {caption}"
    tables.append(_panel_table({j.name: j.panel for j in judged}, of_top))
    return section("metrics", "All metrics", *tables)


def _panel_table(panels: Mapping[str, Panel], caption: str) -> Html:
    """One row per metric, one column per model."""
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    models = (tag("th", name_of(name), scope="col", class_="number") for name in panels)
    rows = []
    for name in names:
        metric = m.METRICS[name]
        cells: list[object] = [row_name(metric.label)]
        for panel in panels.values():
            found = panel.measured.get(name)
            if found is None:
                cells.append(number("–"))
                continue
            bounds = f" ({show_bounds(found.low, found.high, percent=metric.percent)})"
            cells.append(number(show(found.value, percent=metric.percent), found.value, bounds))
        rows.append([*cells, metric.direction])
    return table(caption, ["metric", *models, "better"], rows)


def _comparison(found: Comparison | str | None) -> Html:
    if found is None:
        return Html("")
    if isinstance(found, str):
        return section("comparison", "Comparison", tag("p", found))
    rows = [
        [
            row_name(name_of(d.first), " − ", name_of(d.second)),
            m.METRICS[d.metric].label,
            number(_shown(d), d.value),
            number(_bounds(d), d.low),
            number(show_p(d.adjusted), d.adjusted),
            name_of(found.verdict(d)),
        ]
        for d in found.differences
    ]
    words = (
        "All models are resampled together, so shared noise cancels. P-values are corrected for "
        f"the number of rows (Holm). {' '.join([*found.notes, found.summary()])}"
    )
    head = ["difference", "metric", *map(number_head, ("value", "interval", "p")), "verdict"]
    made = table("Paired differences", head, rows, kind="sortable")
    return section("comparison", "Comparison", tag("p", words), made)


def _calibrators(judged: Sequence[Judged]) -> Html:
    tables, folds = [], set()
    head = [
        "calibrator",
        *map(number_head, ("NLL out of fold", "behind the best", "parameters")),
        "verdict",
    ]
    for j in judged:
        if j.advice.selection is None:
            continue
        rows = [
            [
                row_name(TITLES.get(c.name, c.name)),
                number(show_error(c.loss), c.loss),
                number(show_error(c.behind, c.error), c.behind),
                number(f"{c.parameters:,}", c.parameters),
                titled(c.verdict),
            ]
            for c in j.advice.selection.candidates
        ]
        folds.add(j.advice.folds)
        tables.append(table(f"Tried for {isolated(j.name)}", head, rows, kind="sortable"))
    if not tables:
        return Html("")
    count = " or ".join(map(str, sorted(folds)))
    words = (
        f"Each was cross-fitted with {count} folds and evaluated on the held-out samples. "
        "Choosing on the same samples is slightly optimistic, as are penalties, which are chosen "
        "once for this table but separately for each fold in the verdict."
    )
    return section("calibrators", "Calibrators tried", tag("p", words), *tables)


def _classes(judged: Sequence[Judged], settings: Settings) -> Html:
    tables = []
    head = [
        "predicted class",
        *map(
            number_head,
            ("samples", "says", "is right", show_level(settings.level), "gap"),
        ),
        "",
    ]
    for j in judged:
        if not isinstance(j.p, Predictions):
            continue
        worst = worst_classes(j.p, level=settings.level)
        rows = [
            [
                row_name(name_of(class_name(j.p, c.index))),
                number(f"{c.count:,}", c.count),
                number(show(c.confidence, percent=True), c.confidence),
                number(show(c.accuracy, percent=True), c.accuracy),
                number(show_bounds(c.low, c.high, percent=True, decimals=1), c.low),
                number(show(c.gap, percent=True, signed=True), c.gap),
                "beyond chance" if c.beyond > 0 else "may be due to chance",
            ]
            for c in worst[:MOST_CLASSES]
        ]
        caption = f"{isolated(j.name)}: {len(rows):,} of {len(worst):,} predicted classes"
        tables.append(table(caption, head, rows, kind="sortable"))
    if not tables:
        return Html("")
    words = (
        "When the model predicts this class, how confident is it and how often is it right? "
        "Classes whose gap is hardest to explain by chance come first. Among many classes, about "
        "one in twenty appears significant by chance."
    )
    return section("classes", "Worst-calibrated classes", tag("p", words), *tables)


def _mistakes(judged: Sequence[Judged]) -> Html:
    words = (
        "Wrong predictions with the highest confidence: possibly mislabelled samples, and the "
        "first ones to inspect. Samples are numbered from 0, unless the file contains ids."
    )
    tables = []
    for j in judged:
        wrong = confident_mistakes(j.p, MOST_MISTAKES)
        if not wrong:
            tables.append(tag("p", name_of(j.name), " made no mistake on these samples."))
            continue
        full = isinstance(j.p, Predictions)
        head = ["sample", number_head("confidence"), *(["it said", "true"] if full else [])]
        total = int((~j.p.correct).sum())
        caption = f"{isolated(j.name)}: {len(wrong)} of {total:,} mistakes"
        tables.append(table(caption, head, _mistake_rows(j.p, wrong), kind="sortable"))
    return section("mistakes", "Most overconfident mistakes", tag("p", words), *tables)


def _mistake_rows(p: Predictions | Confidences, wrong: Sequence[int]) -> list[list[object]]:
    ids = sample_ids(p)
    rows: list[list[object]] = []
    for i in wrong:
        row: list[object] = [
            tag("th", name_of(ids[i]), scope="row"),
            number(_very_sure(p, i), -float(p.odds_against[i])),
        ]
        if isinstance(p, Predictions):
            row += [name_of(class_name(p, int(k))) for k in (p.predicted[i], p.labels[i])]
        rows.append(row)
    return rows


def _very_sure(p: Predictions | Confidences, i: int) -> str:
    """A percentage; if it reads 100, the difference to 100."""
    confidence, odds = float(p.confidence[i]), float(p.odds_against[i])
    if confidence < PRINTS_AS_ONE:
        return show(confidence, percent=True)
    return f"100 % − {100 * odds / (1 + odds):.1e} %"


def _method(judged: Sequence[Judged], settings: Settings) -> Html:
    lines = (
        f"Static figures: all samples, {settings.bins} equal-width bins unless stated otherwise, "
        f"{show_level(settings.level)}s, {settings.replicates:,} bootstrap replicates, "
        f"seed {settings.seed}.",
        *_assumed(judged),
        UPWARD_BIAS,
        "Equal-width bins are left-open and right-closed; equal-mass bins hold equally many "
        "samples and never split equal confidences. Intervals for the accuracy of a bin are "
        "Wilson intervals, with as many samples as those in it are worth.",
        "Live figures: computed from the logits for small data, otherwise from a series per "
        "sample in the logarithm of the temperature, accurate to about 1e-5 in confidence; at T "
        "= 1 from the package's own ranking.",
        "The interval for the gap combines those of mean confidence and accuracy (Zou 2007). The "
        "p-value is from a consistency test of the ECE (Vaicenavicius et al. 2019).",
    )
    items = tag("ul", *(tag("li", line) for line in lines))
    return section("method", "How this was computed", items, _origins(judged))


def _assumed(judged: Sequence[Judged]) -> list[str]:
    """What intervals assume of the samples, once for all models that assume the same."""
    said = dict.fromkeys(assumption(j.p) for j in judged)
    advice = (
        " Several samples from one patient, document or video are not independent and make "
        "intervals too narrow: pass clusters (--cluster-column)."
    )
    return [line + advice if line.startswith(INDEPENDENT) else line for line in said]


def _origins(judged: Sequence[Judged]) -> Html:
    """The metadata of the files."""
    rows = [
        [row_name(name_of(j.name)), name_of(key), name_of(_short(value))]
        for j in judged
        for key, value in j.p.meta.items()
        if key not in ("ids", FILE_NOTES)
    ]
    if not rows:
        return Html("")
    return table("Where the predictions come from", ["model", "what", "as saved"], rows)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_ORIGIN else f"{text[:LONGEST_ORIGIN]} …"
