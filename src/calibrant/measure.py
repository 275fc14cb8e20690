"""measure() and compare(): the panel of metrics as a table and as data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from calibrant import inference
from calibrant import metrics as m
from calibrant._checks import (
    check_bins,
    check_choice,
    check_fraction,
    check_norm,
    printable,
    refuse,
)
from calibrant._memory import check_size
from calibrant.inference import Difference, Interval, paired_differences
from calibrant.metrics._binning import Binning
from calibrant.metrics._sample import check_measurable
from calibrant.predictions import Confidences, Predictions, in_samples
from calibrant.streaming import Accumulator

if TYPE_CHECKING:
    import pyarrow as pa

PANEL = (
    "accuracy",
    "mean_confidence",
    "nll",
    "brier",
    "ece",
    "adaptive_ece",
    "debiased_ece",
    "smooth_ece",
    "classwise_ece",
    "mce",
    "overconfidence_error",
    "underconfidence_error",
    "mean_entropy",
    "auroc",
    "aupr_error",
    "fpr95",
    "aurc",
    "eaurc",
)
COMPARED = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "smooth_ece", "auroc", "aurc")

NO_INTERVAL = (math.nan, math.nan)
BIAS_NOTE = (
    "Intervals and p-values of calibration errors allow for the upward bias of each estimate, so "
    "the difference of two estimates can lie outside its interval."
)
# What intervals need of memory, by measurement: 510 to 850 bytes with 2 and 10 classes.
BYTES_PER_SAMPLE = 700


@dataclass(frozen=True)
class Panel:
    """What was measured: a value, and where asked for an interval, a metric.

    Prints as a table; ``panel["ece"]`` is a value; ``to_dict`` and ``to_arrow`` give data. Values
    are fractions; the table prints per cent where people expect it. ``error_bounds`` are those of a
    stream: how far its values can be from the ones computed in memory.
    """

    num_samples: int
    num_classes: int | None
    measured: Mapping[str, Interval]
    options: Mapping[str, Any] = field(default_factory=dict)
    error_bounds: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.measured:
            m.get_metric(name)  # raises for unknown names
            raise KeyError(f"{name} was not measured; pass metrics=[{name!r}, …] to measure.")
        return self.measured[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.measured)

    def interval(self, name: str) -> Interval:
        """Value with bounds."""
        self[name]
        return self.measured[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is undefined is None, what is infinite the text "inf"."""
        rows = {
            name: {"value": _plain(f.value), "low": _plain(f.low), "high": _plain(f.high)}
            for name, f in self.measured.items()
        }
        data = {
            "num_samples": self.num_samples,
            "num_classes": self.num_classes,
            "options": {
                key: _plain(value) if isinstance(value, float) else value
                for key, value in self.options.items()
            },
            "metrics": rows,
        }
        if self.error_bounds:
            data["error_bounds"] = {name: _plain(self.error_bounds[name]) for name in self}
        return data

    @property
    def note(self) -> str:
        """What to know about the values beyond the table."""
        if not self.error_bounds:
            return ""
        return bounds_note({name: self.error_bounds[name] for name in self})

    def to_arrow(self) -> pa.Table:
        """One row a metric: metric, value, low, high, better."""
        import pyarrow as pa  # noqa: PLC0415 - Arrow costs 0.1 s to import

        found = self.measured.values()
        return pa.table({
            "metric": list(self.measured),
            "value": [interval.value for interval in found],
            "low": [interval.low for interval in found],
            "high": [interval.high for interval in found],
            "better": [m.METRICS[name].better for name in self.measured],
        })  # fmt: skip

    def __str__(self) -> str:
        note = f"\n\n{self.note}" if self.note else ""
        return f"{self._size}\n\n{aligned(self._rows)}{note}"

    def _repr_html_(self) -> str:
        """The same table for notebooks, with everything escaped."""
        return in_html(self._size, self._rows, self.note)

    @property
    def _size(self) -> str:
        classes = "top label only" if self.num_classes is None else f"{self.num_classes:,} classes"
        return f"{in_samples(self.num_samples)}, {classes}"

    @property
    def _rows(self) -> list[list[str]]:
        with_bounds = any(not math.isnan(found.low) for found in self.measured.values())
        level = next(iter(self.measured.values())).level
        head = ["metric", "value", f"{100 * level:g}% interval" if with_bounds else "", "better"]
        return [head] + [
            [
                m.METRICS[name].label,
                show(found.value, percent=m.METRICS[name].percent),
                show_bounds(found, percent=m.METRICS[name].percent) if with_bounds else "",
                {"lower": "lower", "higher": "higher", "neither": ""}[m.METRICS[name].better],
            ]
            for name, found in self.measured.items()
        ]


def measure(  # noqa: PLR0913 - all but the first are keywords with defaults
    p: Predictions | Confidences,
    *,
    intervals: bool = True,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Panel:
    """Measure calibration and refinement, with intervals.

    Parameters
    ----------
    p
        Predictions, or Confidences (metrics that need all classes are then left out).
    intervals
        Whether to compute intervals: about a second at N = 10,000.
    metrics
        Names out of ``calibrant.metrics.METRICS``; the default panel has 18.
    bins, norm, binning
        Of the ECE family. ``norm`` and ``binning`` apply to ``ece`` alone; metrics that are defined
        by their binning keep it.
    level, replicates, seed
        Of the intervals.

    Examples
    --------
    >>> import calibrant
    >>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], labels=[0, 1, 1])
    >>> panel = calibrant.measure(p, intervals=False, metrics=["accuracy", "nll"])
    >>> print(panel)
    3 samples, 2 classes
    <BLANKLINE>
    metric    value    better
    accuracy  66.67 %  higher
    NLL       1.1629   lower
    """
    names = _names_for(p, metrics)
    check_choice("binning", binning, ("width", "mass"))
    by_metric = _options_by_metric(names, check_bins(bins), check_norm(norm), binning)
    if intervals:
        advice = "Measure without intervals (--no-intervals), or Parquet with --stream."
        check_size(BYTES_PER_SAMPLE * len(p), f"Measuring {in_samples(len(p))}", advice)
        found = inference.intervals(p, names, options=by_metric, level=level,
                                    replicates=replicates, seed=seed)  # fmt: skip
    else:
        values = inference.values_of(p, names, options=by_metric)
        found = {name: Interval(values[name], *NO_INTERVAL) for name in names}
    classes = p.num_classes if isinstance(p, Predictions) else None
    return Panel(p.num_samples, classes, found, by_metric["ece"])


def _names_for(p: Predictions | Confidences, metrics: Sequence[str] | None) -> list[str]:
    if isinstance(metrics, str):
        raise refuse("metrics", "must be a list of names", f"got {metrics!r}", "Write [name].")
    check_measurable(p)
    full = isinstance(p, Predictions)
    if metrics is None:
        return [name for name in PANEL if full or m.METRICS[name].top_label]
    for name in metrics:
        if not full and not m.get_metric(name).top_label:
            rule = "must be top-label metrics for Confidences"
            raise refuse("metrics", rule, f"got {name!r}", "Build Predictions, or leave it out.")
        m.get_metric(name)
    if not metrics:
        raise refuse("metrics", "must name at least one", "got none", "Leave it out for the panel.")
    return list(dict.fromkeys(metrics))


BINNED = ("adaptive_ece", "debiased_ece", "classwise_ece", "mce", "overconfidence_error",
          "underconfidence_error", "label_binned_ece")  # fmt: skip


def _options_by_metric(
    names: Sequence[str], bins: int, norm: float, binning: Binning
) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = {name: {"bins": bins} for name in names if name in BINNED}
    options["ece"] = {"bins": bins, "norm": norm, "binning": binning}
    return options


def panel_of_stream(total: Accumulator, *, norm: float = 1, binning: Binning = "width") -> Panel:
    """The panel of everything an accumulator has seen, without intervals."""
    values = total.result(norm=norm, binning=binning)
    found = {name: Interval(values[name], *NO_INTERVAL) for name in PANEL}
    options = {"bins": total.bins, "norm": norm, "binning": binning}
    bounds = total.error_bounds(norm=norm, binning=binning)
    return Panel(total.num_samples, total.num_classes, found, options, bounds)


# Smaller bounds do not show in a table.
SHOWN_BOUND = 5e-5


def bounds_note(bounds: Mapping[str, float]) -> str:
    """How far the values of a stream can be from those in memory, in words; rounded up.

    >>> bounds_note({"accuracy": 1e-9, "auroc": 0.00121})
    'Read in bounded memory: exact to 0.005 %, except AUROC of correctness ± 0.13 %.'
    """
    wide = [
        f"{m.METRICS[name].label} ± {math.ceil(1e4 * bound - 1e-4) / 100:.2f} %"
        if math.isfinite(bound)
        else f"{m.METRICS[name].label} perhaps undefined"
        for name, bound in bounds.items()
        if bound >= SHOWN_BOUND
    ]
    exceptions = f", except {', '.join(wide)}" if wide else ""
    return f"Read in bounded memory: exact to {100 * SHOWN_BOUND:.3f} %{exceptions}."


# --- comparing models -------------------------------------------------------------------------

# More models than this make a matrix; of their differences the clearest are shown.
FEW_MODELS, MOST_SHOWN = 6, 20
MARKS = "* best of its metric; = these samples cannot tell it from the best."


@dataclass(frozen=True)
class Comparison:
    """Models side by side on the same samples; prints as tables, with a verdict in words."""

    num_samples: int
    values: Mapping[str, Mapping[str, float]]
    differences: Sequence[Difference]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is undefined is None."""
        return {
            "num_samples": self.num_samples,
            "values": {model: {name: _plain(value) for name, value in row.items()}
                       for model, row in self.values.items()},
            "differences": [
                {key: _plain(value) if isinstance(value, float) else value
                 for key, value in vars(difference).items()}
                for difference in self.differences
            ],
        }  # fmt: skip

    def to_arrow(self) -> pa.Table:
        """One row a difference."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.Table.from_pylist([vars(difference) for difference in self.differences])

    def verdict(self, difference: Difference) -> str:
        """Who is better, or that these samples cannot tell."""
        alpha = 1 - difference.level
        if math.isnan(difference.adjusted):
            return "undefined"
        if difference.value == 0 and difference.standard_error == 0:
            return "identical"
        if difference.adjusted >= alpha:
            return "cannot tell"
        if m.METRICS[difference.metric].better == "neither":
            return "differ"
        lower_wins = m.METRICS[difference.metric].better == "lower"
        # By the interval: the difference of two biased estimates can point the other way.
        first_wins = (difference.low + difference.high < 0) == lower_wins
        return f"{difference.first if first_wins else difference.second} is better"

    def __str__(self) -> str:
        values, differences, words = self._shown
        return "\n".join([self._size, "", aligned(values), "", aligned(differences), "", *words])

    def _repr_html_(self) -> str:
        """The same tables for notebooks, with everything escaped."""
        values, differences, words = self._shown
        return in_html(self._size, values, "") + in_html("", differences, " ".join(words))

    @property
    def _shown(self) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """Values, differences and words: every difference of few models, the clearest of many."""
        if len(self.values) <= FEW_MODELS:
            return (
                self._value_rows,
                self._difference_rows(self.differences),
                [*self.notes, self.summary()],
            )
        told = sorted(self._told, key=lambda d: (d.adjusted, -_clarity(d)))
        words = [*self._counts_by_metric(), *self.notes, self.summary(), MARKS]
        if len(told) > MOST_SHOWN:
            words.append(
                f"The {MOST_SHOWN} clearest of the {len(told):,} differences are shown; to_dict() "
                "(on the command line --json) has all."
            )
        return self._matrix_rows, self._difference_rows(told[:MOST_SHOWN]), words

    @property
    def _told(self) -> list[Difference]:
        """The differences that these samples tell from chance."""
        return [d for d in self.differences if d.adjusted < 1 - d.level]

    def _counts_by_metric(self) -> list[str]:
        """For each metric, how many of the pairs differ."""
        told = Counter(d.metric for d in self._told)
        pairs = Counter(d.metric for d in self.differences)
        return [f"{m.METRICS[name].label}: {told[name]:,} of {count:,} pairs differ."
                for name, count in pairs.items()]  # fmt: skip

    @property
    def _matrix_rows(self) -> list[list[str]]:
        """A row per model and a column per metric, with the best and its equals marked."""
        names = list(next(iter(self.values.values())))
        apart = {(d.metric, frozenset((d.first, d.second))) for d in self._told}
        best = {name: self._best(name) for name in names}

        def cell(model: str, name: str) -> str:
            text = show(self.values[model][name], percent=m.METRICS[name].percent)
            if best[name] is None or math.isnan(self.values[model][name]):
                return text
            if model == best[name]:
                return f"{text} *"
            return text if (name, frozenset((model, best[name]))) in apart else f"{text} ="

        head = ["model", *(m.METRICS[name].label for name in names)]
        return [head, *([model, *(cell(model, name) for name in names)] for model in self.values)]

    def _best(self, name: str) -> str | None:
        """The model with the best value of a metric; None where there is no best."""
        sign = {"lower": 1, "higher": -1, "neither": 0}[m.METRICS[name].better]
        found = {model: sign * row[name] for model, row in self.values.items()
                 if not math.isnan(row[name])}  # fmt: skip
        return min(found, key=lambda model: found[model]) if sign and found else None

    @property
    def _size(self) -> str:
        return f"{in_samples(self.num_samples)}, the same for every model"

    @property
    def notes(self) -> list[str]:
        """What has to be known to read the intervals of biased estimates."""
        if not any(m.METRICS[d.metric].plug_in for d in self.differences):
            return []
        return [BIAS_NOTE]

    @property
    def _value_rows(self) -> list[list[str]]:
        names = list(next(iter(self.values.values())))
        return [["metric", *self.values]] + [
            [m.METRICS[name].label]
            + [show(row[name], percent=m.METRICS[name].percent) for row in self.values.values()]
            for name in names
        ]

    def _difference_rows(self, differences: Sequence[Difference]) -> list[list[str]]:
        level = self.differences[0].level
        rows = [
            ["difference", "metric", "value", f"{100 * level:g}% interval", "p (Holm)", "verdict"]
        ]
        for d in differences:
            percent = m.METRICS[d.metric].percent
            rows.append([
                f"{d.first} − {d.second}", m.METRICS[d.metric].label,
                show(d.value, percent=percent, signed=True),
                show_bounds(Interval(d.value, d.low, d.high), percent=percent, signed=True),
                show_p(d.adjusted), self.verdict(d),
            ])  # fmt: skip
        return rows

    def summary(self) -> str:
        """One sentence: what these samples can and cannot tell apart."""
        told = self._told
        if not told:
            return (
                f"N = {in_samples(self.num_samples)} cannot tell these models apart on any of "
                "these metrics."
            )
        if len(told) == len(self.differences):
            return f"N = {in_samples(self.num_samples)} tell them apart on every metric."
        return (
            f"N = {in_samples(self.num_samples)} tell {len(told)} of {len(self.differences)} "
            "differences from chance; for the others they cannot."
        )


def compare(
    models: Mapping[str, Predictions | Confidences],
    *,
    metrics: Sequence[str] | None = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare models on the same samples: paired differences, intervals, corrected p-values.

    Samples are resampled together for all models, so what they share cancels. P-values are
    corrected for the number of differences in the table (Holm). Labels must agree where the models
    give them.

    Examples
    --------
    >>> import calibrant
    >>> a = calibrant.Confidences(confidence=[0.9] * 40, correct=[1] * 36 + [0] * 4)
    >>> b = calibrant.Confidences(confidence=[0.6] * 40, correct=[1] * 36 + [0] * 4)
    >>> result = calibrant.compare({"a": a, "b": b}, metrics=["ece"])
    >>> result.verdict(result.differences[0])
    'a is better'
    """
    _check_comparable(models)
    check_choice("binning", binning, ("width", "mass"))
    only_top = any(isinstance(p, Confidences) for p in models.values())
    chosen = metrics
    if metrics is None:
        chosen = [name for name in COMPARED if m.METRICS[name].top_label or not only_top]
    for p in models.values():
        names = _names_for(p, chosen)
    options = _options_by_metric(names, check_bins(bins), check_norm(norm), binning)
    check_fraction("level", level, example=0.95)
    values, differences = paired_differences(
        models, names, options=options, level=level, replicates=replicates, seed=seed
    )
    return Comparison(next(iter(models.values())).num_samples, values, differences)


def _clarity(d: Difference) -> float:
    """How many standard errors a difference is from zero."""
    return abs(d.value) / d.standard_error if d.standard_error else math.inf


def _check_comparable(models: Mapping[str, Predictions | Confidences]) -> None:
    rule, advice = "must map two or more names to predictions", 'Write compare({"a": pa, "b": pb}).'
    if not isinstance(models, Mapping):
        raise refuse("models", rule, f"got {type(models).__name__}", advice)
    for name, p in models.items():
        if not isinstance(p, (Predictions, Confidences)):
            raise refuse("models", rule, f"got {type(p).__name__} for {name!r}", advice)
    if len(models) < 2:  # noqa: PLR2004
        raise refuse("models", rule, f"got {len(models)}", advice)
    (first_name, first), *others = models.items()
    for name, p in others:
        if p.num_samples != first.num_samples:
            rule = "must hold the same samples"
            got = f"got {first.num_samples:,} in {first_name!r} and {p.num_samples:,} in {name!r}"
            raise refuse("models", rule, got, "Predict the same test set with each.")
        if not isinstance(first, Predictions) or not isinstance(p, Predictions):
            continue
        if (first.labels != p.labels).any():
            rule = "must hold the same samples in the same order"
            got = f"got different labels in {first_name!r} and {name!r}"
            raise refuse("models", rule, got, "Sort both by sample id before comparing.")


# --- how numbers look -------------------------------------------------------------------------


def show(value: float, *, percent: bool, signed: bool = False) -> str:
    """A number as tables print it.

    >>> show(0.1234, percent=True), show(1.5, percent=False), show(float("nan"), percent=True)
    ('12.34 %', '1.5000', 'undefined')
    >>> show(-1e-9, percent=False)
    '0.0000'
    """
    if math.isnan(value):
        return "undefined"
    sign = "+z" if signed else "z"  # z: what rounds to 0 has no sign
    return f"{100 * value:{sign}.2f} %" if percent else f"{value:{sign}.4f}"


def show_bounds(found: Interval, *, percent: bool, signed: bool = False) -> str:
    """An interval as tables print it."""
    if math.isnan(found.low):
        return "–"
    low, high = (show(x, percent=percent, signed=signed) for x in (found.low, found.high))
    return f"{low.removesuffix(' %')} … {high}"


def show_p(value: float) -> str:
    """A p-value as tables print it.

    >>> show_p(0.034), show_p(1e-9)
    ('0.034', '< 0.001')
    """
    if math.isnan(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"  # noqa: PLR2004


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text with straight columns; empty columns are dropped.

    >>> print(aligned([["a", "", "bb"], ["ccc", "", "d"]]))
    a    bb
    ccc  d
    """
    columns = [tuple(map(printable, column)) for column in _full_columns(rows)]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def in_html(above: str, rows: Sequence[Sequence[str]], below: str) -> str:
    """Rows of cells, the first of them headings, as HTML; empty columns are dropped.

    >>> "<td><bdi>&lt;b&gt;</bdi></td>" in in_html("", [["a"], ["<b>"]], "")
    True
    """
    head, *body = zip(*_full_columns(rows), strict=True)
    top = "".join(f"<th><bdi>{escape(cell)}</bdi></th>" for cell in head)
    lines = (
        "<tr>" + "".join(f"<td><bdi>{escape(cell)}</bdi></td>" for cell in line) + "</tr>"
        for line in body
    )
    table = f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    words = [f"<p><bdi>{escape(text)}</bdi></p>" if text else "" for text in (above, below)]
    return f"{words[0]}{table}{words[1]}"


def _full_columns(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [column for column in zip(*rows, strict=True) if any(column)]


def _plain(value: float) -> float | str | None:
    """What JSON can hold: None for undefined, "inf" for infinite."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)
