"""Training history: curves over epochs, and logits by the epoch of learning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._core.arrays import Float64, to_floats, to_numpy
from calibrant._core.checks import check_bins, check_choice, check_count, near_name, refuse
from calibrant.plots._curves import LearnedGroup, learned_groups
from calibrant.plots._inputs import named
from calibrant.plots._style import (
    area_style,
    axes,
    finish,
    in_per_cent,
    legend,
    line_style,
    shown,
    whole_numbers,
)
from calibrant.results import summarise_runs

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

WORDS = {
    "nll": "NLL (nats)",
    "entropy": "entropy (nats)",
    "error": "error (%)",
    "ece": "ECE (%)",
    "confidence": "confidence (%)",
    "optimal_ece": "ECE at the best temperature (%)",
    "optimal_temperature": "best temperature",
    "max_logit": "mean maximal logit",
    "head_norm": "norm of the last layer's weights",
    "learning_rate": "learning rate",
}
PARTS = {"train": "training", "test": "test"}
THIRDS = ("early", "middle", "late")


def training_curves(
    runs: pa.Table | Sequence[pa.Table] | Mapping[str, pa.Table | Sequence[pa.Table]],
    *,
    quantity: str = "nll",
    part: str | Sequence[str] = "test",
    split: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """A quantity over the epochs of training; several seeds as their mean ± standard error.

    Parameters
    ----------
    runs
        A table of epochs (``epochs.parquet`` of a run, or ``train.epochs_table``), a list of such
        tables (seeds), or a mapping from names to either.
    quantity
        Quantity to plot: nll, entropy, error, ece, confidence, optimal_ece, optimal_temperature,
        max_logit, or any column without a part, such as head_norm or learning_rate.
    part
        "test", "train", or both in a list.
    split
        Whether to plot correct and incorrect samples separately (mukhoti2020, Figure 1).
    ax
        Axes to draw on; default: a new figure.

    Epochs count from 1. What a seed did not record (null, NaN, infinite, or an epoch it did not
    reach) is left out of that epoch's mean.

    Examples
    --------
    >>> import pyarrow as pa
    >>> run = pa.table({"epoch": [0, 1, 2], "test_nll": [0.9, 0.5, 0.6]})
    >>> ax = training_curves(run)
    >>> ax.get_ylabel(), ax.lines[0].get_xdata()
    ('test NLL (nats)', array([1., 2., 3.]))
    """
    found = _as_runs(runs)
    parts = [part] if isinstance(part, str) else list(part)
    for one in parts or [""]:
        check_choice("part", one, tuple(PARTS))
    variants = _variants(found, quantity, parts, split=split)
    ax = axes(ax)
    for i, (name, tables) in enumerate(found.items()):
        for j, variant in enumerate(variants):
            style = line_style(i, dash=j if len(variants) > 1 else None)
            if len(found) == 1:
                style = line_style(j)
            words = [shown(name)] * bool(name) + [variant.label] * bool(variant.label)
            _draw_curve(ax, HistoryCurve.of(tables, variant.column), style, ", ".join(words))
    finish(ax, "epoch", _axis_words(quantity, parts, variants))
    whole_numbers(ax.xaxis)
    if _words_of(quantity).endswith("(%)"):
        in_per_cent(ax.yaxis)
    several = any(len(tables) > 1 for tables in found.values())
    legend(ax, title="mean ± standard error over seeds" if several else None)
    return ax


def max_logit_histograms(
    logits: Any, learned: Any, *, groups: int = 3, bins: int = 30, ax: Axes | None = None
) -> Axes:
    """Histograms of the maximal logit, for groups of samples by when they were learned.

    A network that separates samples learned early and late can be calibrated afterwards;
    regularised losses push the groups together (wang2021, Figure 5). Each histogram has the area 1.

    Parameters
    ----------
    logits
        The largest logit of each sample, shape (N,).
    learned
        The epoch (from 0) from which each sample stayed right, -1 if it is wrong at the end:
        ``learned.npy`` of a run.
    groups
        Number of groups of nearly equal size for the learned samples; samples of one epoch stay
        together. Samples that were never learned form their own group.
    bins
        Number of bins per histogram; all share their edges.
    ax
        Axes to draw on; default: a new figure.

    References
    ----------
    Wang, Feng and Zhang (2021), Rethinking calibration of deep neural networks, section 5.

    Examples
    --------
    >>> ax = max_logit_histograms([9.0, 8.0, 6.0, 5.0, 3.0], [0, 0, 5, 9, -1], bins=4)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['early: epoch 1 (2)', 'middle: epoch 6 (1)', 'late: epoch 10 (1)', 'never (1)']
    """
    z, epochs = _logits_and_epochs(logits, learned)
    check_count("groups", groups, least=1, most=20, example=3)
    check_bins(bins)
    low, high = float(z.min()), float(z.max())
    edges = np.linspace(low, high, bins + 1) if high > low else np.array([low - 0.5, low + 0.5])
    ax = axes(ax)
    for group in learned_groups(epochs, groups):
        heights, _ = np.histogram(z[group.places], edges, density=True)
        style = area_style(group.number if group.number >= 0 else groups)
        ax.stairs(heights, edges, fill=True, **style, label=_group_words(group, groups))
    finish(ax, "largest logit", "density (area 1)")
    legend(ax, least=1, title="learned in")
    return ax


# --- curves over epochs -----------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A column of the tables and what the legend calls it."""

    column: str
    label: str


@dataclass(frozen=True)
class HistoryCurve:
    """Mean over the seeds of each epoch, with its standard error (NaN where unknown)."""

    epoch: Float64
    mean: Float64
    error: Float64

    @classmethod
    def of(cls, tables: Sequence[pa.Table], column: str) -> HistoryCurve:
        """Average a column over tables."""
        values: dict[float, list[float]] = {}
        for table in tables:
            epochs: list[Any] = table.column("epoch").to_pylist()
            found: list[Any] = table.column(column).to_pylist()
            for epoch, value in zip(epochs, found, strict=True):
                mine = values.setdefault(float(epoch) + 1, [])
                if value is not None and not isinstance(value, Real):
                    advice = "Choose a column of numbers."
                    raise refuse("quantity", "must be numbers", f"got {value!r}", advice)
                if value is not None and math.isfinite(value):
                    mine.append(float(value))
        order = sorted(values)
        summaries = [summarise_runs(values[epoch] or [math.nan]) for epoch in order]
        return cls(
            np.array(order),
            np.array([summary.mean for summary in summaries]),
            np.array([summary.sem for summary in summaries]),
        )


def _draw_curve(ax: Axes, curve: HistoryCurve, style: dict[str, Any], label: str) -> None:
    every = max(1, len(curve.epoch) // 10)
    ax.plot(curve.epoch, curve.mean, **style, markevery=every, label=label or None)
    if np.isfinite(curve.error).any():
        ax.fill_between(
            curve.epoch,
            curve.mean - curve.error,
            curve.mean + curve.error,
            color=style["color"],
            alpha=0.2,
            linewidth=0,
        )


def _as_runs(runs: Any) -> dict[str, list[pa.Table]]:
    """Tables by name; runs without a name have the empty one."""
    advice = "Pass pyarrow.parquet.read_table('…/epochs.parquet'), or a mapping from names to it."
    bare = _is_table(runs) or isinstance(runs, Sequence)
    given = {"": runs} if bare else named("runs", runs, advice)
    found = {}
    for name, tables in given.items():
        several = isinstance(tables, Sequence) and not isinstance(tables, str)
        found[name] = list(tables) if several else [tables]
        if not found[name] or not all(map(_is_table, found[name])):
            kinds = sorted({type(table).__name__ for table in found[name]}) or ["none"]
            rule = "must be tables of epochs"
            raise refuse("runs", rule, f"got {', '.join(kinds)} for {name!r}", advice)
        if not all("epoch" in table.column_names for table in found[name]):
            rule = "must be tables with a column 'epoch'"
            raise refuse("runs", rule, f"got none in {name!r}", advice)
    return found


def _is_table(value: object) -> bool:
    """Whether it is an Arrow table, without importing Arrow."""
    return hasattr(value, "column_names") and hasattr(value, "column")


def _variants(
    found: Mapping[str, Sequence[pa.Table]], quantity: str, parts: Sequence[str], *, split: bool
) -> list[Variant]:
    """The columns to draw: each part, with correct and incorrect samples separate if requested."""
    tables = [table for several in found.values() for table in several]
    common = set.intersection(*(set(table.column_names) for table in tables))
    if quantity in common and not split:  # a column without a part
        return [Variant(quantity, "")]
    kinds = ("correct", "incorrect") if split else ("",)
    variants = []
    for part in parts:
        for kind in kinds:
            column = "_".join(filter(None, (part, quantity, kind)))
            words = [PARTS[part]] * (len(parts) > 1) + [kind] * split
            variants.append(Variant(column, ", ".join(words)))
    for variant in variants:
        if variant.column not in common:
            known = sorted(common - {"epoch"})
            rule = "must be recorded in all tables"
            got = f"got {quantity!r}, so column {variant.column!r}, which is missing"
            raise refuse("quantity", rule, got, near_name(variant.column, known))
    return variants


def _axis_words(quantity: str, parts: Sequence[str], variants: Sequence[Variant]) -> str:
    words = _words_of(quantity)
    of_a_part = variants[0].column != quantity
    return f"{PARTS[parts[0]]} {words}" if of_a_part and len(parts) == 1 else words


def _words_of(quantity: str) -> str:
    """Name and unit; ``test_ece_correct`` is an ECE like any other."""
    if quantity in WORDS:
        return WORDS[quantity]
    part, _, rest = quantity.partition("_")
    if part in PARTS and rest:
        return f"{PARTS[part]} {_words_of(rest)}"
    base, _, ending = quantity.rpartition("_")
    if ending in ("correct", "incorrect") and base in WORDS:
        name, bracket, unit = WORDS[base].partition(" (")
        return f"{name} where {'right' if ending == 'correct' else 'wrong'}{bracket}{unit}"
    return shown(quantity.replace("_", " "))


# --- logits by learned epoch ------------------------------------------------------------------


def _logits_and_epochs(logits: Any, learned: Any) -> tuple[Float64, Any]:
    z = to_floats(logits, "logits").astype(np.float64)
    if z.ndim != 1 or not len(z):
        rule, advice = "must have shape (N,) with N >= 1", "Pass p.logits.max(axis=1)."
        raise refuse("logits", rule, f"got shape {z.shape}", advice)
    if not np.isfinite(z).all():
        rule, advice = "must be finite", "Check where the network produced it."
        raise refuse("logits", rule, f"got {z[~np.isfinite(z)][0]}", advice)
    epochs = to_numpy(learned, "learned")
    if epochs.dtype.kind not in "iu" or epochs.shape != z.shape:
        rule = f"must have one integer per sample, shape {z.shape}"
        got = f"got dtype {epochs.dtype} and shape {epochs.shape}"
        raise refuse("learned", rule, got, "Pass learned.npy of the same run.")
    return z, epochs.astype(np.int64)


def _group_words(group: LearnedGroup, groups: int) -> str:
    """What the legend calls a group; epochs count from 1 there."""
    count = f"({len(group.places):,})"
    if group.number < 0:
        return f"never {count}"
    first, last = group.first + 1, group.last + 1
    span = f"epoch {first}" if first == last else f"epochs {first}–{last}"
    name = f"{THIRDS[group.number]}: " if groups == len(THIRDS) else ""
    return f"{name}{span} {count}"
