"""The report page on models that give each sample several labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibrant import metrics as m
from calibrant._core.formatting import in_samples, show, show_bounds, show_level
from calibrant._measure import UPWARD_BIAS, LabelPanels, Panel, measure
from calibrant._multilabel import MACRO, MICRO, MultiLabel
from calibrant.calibrators import DEFAULT_FOLDS, MultiLabelCalibrator, labels_out_of_fold
from calibrant.metrics import (
    IN_THE_LARGE,
    MEAN_PREDICTION,
    POSITIVE_ERROR,
    POSITIVE_LOSS,
    PREVALENCE,
)
from calibrant.report._html import (
    Html,
    clean,
    isolated,
    name_of,
    number_head,
    section,
    table,
    tag,
)
from calibrant.report._panel_row import panel_row
from calibrant.report._settings import Settings
from calibrant.report._svg import forest_chart, reliability_chart
from calibrant.report._verdict import Verdict

MOST_DIAGRAMS, MOST_BARS = 24, 60
SMALL = 210.0
LABEL_BINS = 10
# With fewer samples than this, no calibrator is fitted.
LEAST_SAMPLES = 50


@dataclass(frozen=True)
class Tagger:
    """A multi-label model and everything the report says about it."""

    name: str
    p: MultiLabel
    found: LabelPanels
    verdict: Verdict

    @property
    def order(self) -> list[str]:
        """The labels, from the largest calibration error; unknown ones last."""
        labels = self.found.labels
        return sorted(labels, key=lambda name: -_known(labels[name].interval(POSITIVE_ERROR).value))


def judge_taggers(models: Mapping[str, MultiLabel], settings: Settings) -> list[Tagger]:
    """Measure every model."""
    judged = []
    for name, p in models.items():
        found = measure(p, **settings.measuring)
        judged.append(Tagger(clean(name), p, found, _verdict(p, found, settings)))
    return judged


def body_of_labels(judged: Sequence[Tagger], settings: Settings) -> Html:
    """All sections of the page."""
    parts = [
        section("verdict", "Verdict", *(_card(j) for j in judged)),
        section("labels", "Labels", tag("p", READ_SO), *(x for j in judged for x in _labels(j))),
        section("reliability-by-label", "Reliability by label", *map(_diagrams, judged)),
        _method(judged, settings),
    ]
    return Html("\n".join(parts))


READ_SO = (
    "Each label is a binary question: its probability against its frequency, over the samples of "
    "which it is known. Macro is the mean over labels, each counting the same; micro counts every "
    "label of every sample once."
)


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def _verdict(p: MultiLabel, found: LabelPanels, settings: Settings) -> Verdict:
    over = [name for name, panel in found.labels.items() if _side(panel) > 0]
    under = [name for name, panel in found.labels.items() if _side(panel) < 0]
    rest = p.num_labels - len(over) - len(under)
    headline = (
        f"Of {p.num_labels:,} labels, {len(over):,} are overestimated on average, {len(under):,} "
        f"underestimated, and {rest:,} undecided (each by its own "
        f"{show_level(settings.level)})."
    )
    answers = [("How far off?", _how_far(found)), ("Which label is worst?", _worst(found))]
    answers.append(("What to do?", _what_to_do(p, settings)))
    kind = "over" if len(over) > len(under) else "under" if under else "unknown"
    return Verdict(headline, tuple(answers), kind)


def _side(panel: Panel) -> int:
    gap = panel.interval(IN_THE_LARGE)
    return int(gap.low > 0) - int(gap.high < 0)


def _how_far(found: LabelPanels) -> str:
    parts = []
    for name, panel in ((MACRO, found.macro), (MICRO, found.micro)):
        error = panel.interval(POSITIVE_ERROR)
        bounds = show_bounds(error.low, error.high, percent=True)
        parts.append(f"{name} average {show(error.value, percent=True)} ({bounds})")
    level = show_level(found.macro.interval(POSITIVE_ERROR).level)
    return f"ECE: {', '.join(parts)}, with {level}s."


def _worst(found: LabelPanels) -> str:
    if found.worst is None:
        return "None can be named: no label is known for any sample."
    got = found.worst.interval
    bounds = show_bounds(got.low, got.high, percent=True)
    allowed = f"{show_level(got.level)} {bounds}, corrected for the choice among labels"
    panel = found[found.worst.label]
    means = (show(panel[key], percent=True) for key in (MEAN_PREDICTION, PREVALENCE))
    says, true = means
    return (
        f"{found.worst.label}: ECE {show(got.value, percent=True)} ({allowed}); {says} predicted "
        f"on average, {true} observed."
    )


def _what_to_do(p: MultiLabel, settings: Settings) -> str:
    """The usual calibrator, evaluated on samples it was not fitted to."""
    if len(p) < LEAST_SAMPLES:
        return (
            "Collect more samples first: a calibrator fitted to fewer than "
            f"{LEAST_SAMPLES} cannot be evaluated."
        )
    usual = MultiLabelCalibrator()
    after = labels_out_of_fold(usual, p, DEFAULT_FOLDS, settings.seed)
    before, now = (
        measure(record, intervals=False, bins=settings.bins).macro for record in (p, after)
    )
    effect = (
        f"in {DEFAULT_FOLDS}-fold cross-validation on these samples, the macro ECE goes from "
        f"{show(before[POSITIVE_ERROR], percent=True)} to "
        f"{show(now[POSITIVE_ERROR], percent=True)} and the macro log loss from "
        f"{show(before[POSITIVE_LOSS], percent=False)} to {show(now[POSITIVE_LOSS], percent=False)}"
    )
    if now[POSITIVE_LOSS] >= before[POSITIVE_LOSS]:
        return f"Leave it uncalibrated: with one calibrator per label ({usual.method}), {effect}."
    return (
        f"Try one calibrator per label ({usual.method}), drawn towards the shared fit where a "
        f"label is rare: {effect}. Fit it on samples that are used neither for training nor for "
        f"evaluation: calibrant calibrate --fit FILE --method {usual.method} --save labels.json"
    )


def _card(j: Tagger) -> Html:
    size = f" {in_samples(len(j.p))}, {j.p.num_labels:,} labels"
    unknown = int((~j.p.mask).sum())
    size += f", {unknown:,} of {j.p.mask.size:,} entries unknown" if unknown else ""
    answers = [
        part for asked, said in j.verdict.answers for part in (tag("dt", asked), tag("dd", said))
    ]
    return tag(
        "article",
        tag("h3", name_of(j.name), tag("small", size)),
        tag("p", j.verdict.headline, class_="headline"),
        tag("dl", *answers),
        class_=f"card {j.verdict.kind}",
    )


def _labels(j: Tagger) -> list[Html]:
    names = sorted(j.found.macro, key=lambda name: name != POSITIVE_ERROR)
    head = ["label", number_head("samples"), *(number_head(m.METRICS[n].label) for n in names)]
    order = [MACRO, MICRO, *j.order]
    rows = [panel_row(label, j.found[label], names) for label in order]
    shown = [MACRO, *j.order[:MOST_BARS]]
    metric = m.METRICS[POSITIVE_ERROR].label
    forest = forest_chart(
        {label: j.found[label].interval(POSITIVE_ERROR) for label in shown},
        f"{j.name}: {metric} of each label (%)",
    )
    caption = f"{isolated(j.name)}: {j.p.num_labels:,} labels and their averages"
    return [
        tag("figure", forest, tag("figcaption", f"{metric} with its interval, worst first")),
        table(caption, head, rows, kind="sortable"),
    ]


def _diagrams(j: Tagger) -> Html:
    parts = []
    known = [name for name in j.order if len(j.p.known(name))]
    for name in known[:MOST_DIAGRAMS]:
        record = j.p.label(name).positive_class()
        chart = reliability_chart(
            m.reliability(record, bins=LABEL_BINS),
            f"{j.name}: reliability of {name}",
            size=SMALL,
            x_label="says",
            y_label="is",
        )
        parts.append(tag("figure", chart, tag("figcaption", name_of(name))))
    rest = len(known) - MOST_DIAGRAMS
    note = [tag("p", f"{rest:,} more labels are in the table.", class_="note")] if rest > 0 else []
    return tag("div", tag("h3", name_of(j.name)), *parts, *note, class_="multiples")


def _method(judged: Sequence[Tagger], settings: Settings) -> Html:
    lines = (
        f"{settings.bins} equal-width bins, {show_level(settings.level)}s, "
        f"{settings.replicates:,} bootstrap replicates, seed {settings.seed}; {LABEL_BINS} bins in "
        "the diagrams, with Wilson intervals.",
        judged[0].found.macro.assumed,
        UPWARD_BIAS,
        "A label that is unknown for a sample is never used.",
    )
    items = tag("ul", *(tag("li", line) for line in lines))
    return section("method", "How this was computed", items)
