"""compare(): models side by side on the same samples, with paired differences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import metrics as m
from calibrant._core.checks import refuse
from calibrant._core.formatting import (
    aligned,
    in_html,
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
    show_p,
)
from calibrant._measure._panel import notes_of, options_by_metric, panel_options
from calibrant._measure._views import Positive, by_view, names_for, seen
from calibrant.inference import Difference, Resampling, assumption, differences_of, paired_tests
from calibrant.metrics._binning import Binning
from calibrant.predictions import Confidences, Predictions

if TYPE_CHECKING:
    import pyarrow as pa

BIAS_NOTE = (
    "Intervals and p-values of calibration errors allow for the upward bias of each estimate, so "
    "the difference of two estimates can lie outside its interval."
)
# More models than this are shown as a matrix, with only the clearest differences.
FEW_MODELS, MOST_SHOWN = 6, 20
MARKS = "* best of its metric; = not significantly different from the best."


@dataclass(frozen=True)
class Comparison:
    """Comparison of models on the same samples; prints as tables, with a verdict in words.

    ``sample_notes`` are what the reader of the numbers must know about the samples of the models.
    """

    num_samples: int
    values: Mapping[str, Mapping[str, float]]
    differences: Sequence[Difference]
    assumed: str = ""
    sample_notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; undefined values are None."""
        return {
            "num_samples": self.num_samples,
            "values": {
                model: {name: json_number(value) for name, value in row.items()}
                for model, row in self.values.items()
            },
            "differences": [
                {
                    key: json_number(value) if isinstance(value, float) else value
                    for key, value in vars(difference).items()
                }
                for difference in self.differences
            ],
            "notes": self.notes,
        }

    def to_arrow(self) -> pa.Table:
        """One row per difference."""
        import pyarrow as pa

        return pa.Table.from_pylist([vars(difference) for difference in self.differences])

    def verdict(self, difference: Difference) -> str:
        """Which model is better, or that the samples cannot tell."""
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
        # Decided by the interval: the difference of two biased estimates can have the other sign.
        first_wins = (difference.low + difference.high < 0) == lower_wins
        return f"{difference.first if first_wins else difference.second} is better"

    def __str__(self) -> str:
        values, differences, words = self._shown
        return "\n".join([self._size, "", aligned(values), "", aligned(differences), "", *words])

    def _repr_html_(self) -> str:
        """The same tables as HTML for notebooks."""
        values, differences, words = self._shown
        return in_html(self._size, values, "") + in_html("", differences, " ".join(words))

    @property
    def _shown(self) -> tuple[list[list[str]], list[list[str]], list[str]]:
        """Values, differences and notes: all differences of few models, the clearest of many."""
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
        """The significant differences."""
        return [d for d in self.differences if d.adjusted < 1 - d.level]

    def _counts_by_metric(self) -> list[str]:
        """For each metric, how many of the pairs differ."""
        told = Counter(d.metric for d in self._told)
        pairs = Counter(d.metric for d in self.differences)
        return [
            f"{m.METRICS[name].label}: {told[name]:,} of {count:,} pairs differ."
            for name, count in pairs.items()
        ]

    @property
    def _matrix_rows(self) -> list[list[str]]:
        """One row per model, one column per metric; the best and its equals are marked."""
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
        found = {
            model: sign * row[name]
            for model, row in self.values.items()
            if not math.isnan(row[name])
        }
        return min(found, key=lambda model: found[model]) if sign and found else None

    @property
    def _size(self) -> str:
        return f"{in_samples(self.num_samples)}, the same for every model"

    @property
    def notes(self) -> list[str]:
        """Notes on the samples, and one on the intervals of biased estimates."""
        biased = any(m.METRICS[d.metric].plug_in for d in self.differences)
        return [*self.sample_notes, *([BIAS_NOTE] if biased else [])]

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
        rows = [["difference", "metric", "value", show_level(level), "p (Holm)", "verdict"]]
        for d in differences:
            percent = m.METRICS[d.metric].percent
            rows.append(
                [
                    f"{d.first} − {d.second}",
                    m.METRICS[d.metric].label,
                    show(d.value, percent=percent, signed=True),
                    show_bounds(d.low, d.high, percent=percent, signed=True),
                    show_p(d.adjusted),
                    self.verdict(d),
                ]
            )
        return rows

    def summary(self) -> str:
        """One sentence: how many of the differences are statistically significant."""
        told = self._told
        if not told:
            return (
                f"With N = {in_samples(self.num_samples)}, no difference between these models is "
                "statistically significant."
            )
        if len(told) == len(self.differences):
            return f"With N = {in_samples(self.num_samples)}, every difference is significant."
        return (
            f"With N = {in_samples(self.num_samples)}, {len(told)} of {len(self.differences)} "
            "differences are statistically significant; the others may be due to chance."
        )


def compare(  # noqa: PLR0913 - all but the first are keywords with defaults
    models: Mapping[str, Predictions | Confidences],
    *,
    metrics: Sequence[str] | None = None,
    positive: Positive = None,
    bins: int = 15,
    norm: float = 1,
    binning: Binning = "width",
    threshold: float = 0.5,
    costs: tuple[float, float] = (1.0, 1.0),
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare models on the same samples: paired differences, intervals, corrected p-values.

    All models are resampled together, so shared noise cancels. P-values are corrected for the
    number of differences in the table (Holm). The labels of the models must agree. Binary models
    are compared on the probability of the positive class (``positive``, ``threshold`` and ``costs``
    as in ``measure``); ``positive=False`` compares the top label. With clusters, clusters are
    resampled.

    Examples
    --------
    >>> import calibrant
    >>> a = calibrant.Confidences(confidence=[0.9] * 40, correct=[1] * 36 + [0] * 4)
    >>> b = calibrant.Confidences(confidence=[0.6] * 40, correct=[1] * 36 + [0] * 4)
    >>> result = calibrant.compare({"a": a, "b": b}, metrics=["ece"])
    >>> result.verdict(result.differences[0])
    'a is better'
    """
    resampling = Resampling(level, replicates, seed)
    _check_comparable(models)
    least = min(models.values(), key=lambda p: isinstance(p, Predictions))
    names = names_for(least, metrics, positive=positive, use="compare")
    for p in models.values():
        names_for(p, names, positive=positive)
    given = panel_options(
        names, bins=bins, norm=norm, binning=binning, threshold=threshold, costs=costs
    )
    values: dict[str, dict[str, float]] = {model: {} for model in models}
    tests: dict[tuple[str, str, str], Any] = {}
    for view, some in by_view(names).items():
        records = {model: seen(p, view, positive) for model, p in models.items()}
        more, found = paired_tests(
            records, some, resampling, options=options_by_metric(some, given)
        )
        values = {model: row | more[model] for model, row in values.items()}
        tests |= found
    first = next(iter(models.values()))
    ordered = {
        (*pair, name): tests[*pair, name] for pair in combinations(models, 2) for name in names
    }
    differences = differences_of(ordered, resampling.level)
    return Comparison(first.num_samples, values, differences, assumption(first), _noted(models))


def _noted(models: Mapping[str, Predictions | Confidences]) -> tuple[str, ...]:
    """The notes on each model's samples, with its name unless all models have the same."""
    notes = {name: notes_of(p) for name, p in models.items()}
    shared = set.intersection(*map(set, notes.values()))
    own = [
        f"{name}: {note}" for name, found in notes.items() for note in found if note not in shared
    ]
    return (*(note for note in next(iter(notes.values())) if note in shared), *own)


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
            rule = "must contain the same samples"
            got = f"got {first.num_samples:,} in {first_name!r} and {p.num_samples:,} in {name!r}"
            raise refuse("models", rule, got, "Use the same test set for every model.")
        both = f"in {first_name!r} and {name!r}"
        if isinstance(first, Predictions) and isinstance(p, Predictions):
            _check_equal(first, p, "labels", both)
        _check_equal(first, p, "clusters", both)
        _check_equal(first, p, "weights", both)


def _check_equal(
    first: Predictions | Confidences, second: Predictions | Confidences, what: str, both: str
) -> None:
    """Refuse models of other samples, or of samples that are weighted or clustered otherwise."""
    if np.array_equal(getattr(first, what), getattr(second, what)):  # None equals only None
        return
    rule = "must contain the same samples in the same order"
    advice = "Sort both by sample id before comparing."
    if what != "labels":
        rule, advice = f"must have the same {what}", "Pass the same to each of them."
    raise refuse("models", rule, f"got different {what} {both}", advice)
