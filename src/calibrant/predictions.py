"""Predictions and Confidences: the immutable records that the package works on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from calibrant import io
from calibrant._confidences import Confidences, PositiveClass
from calibrant._core import row_summary
from calibrant._core.arrays import Bool, Float64, Int, read_only
from calibrant._core.belonging import Belonging
from calibrant._core.checks import FileNote, check_fraction, check_seed, refuse
from calibrant._core.map_rows import MapRows
from calibrant._core.maps import is_map, rows_of, without_ignored
from calibrant._core.validation import check_labels, class_index, outside
from calibrant._scores import WHICH_SCORES, Belongs, Scores, one_of, rows_of_one

__all__ = [
    "Confidences",
    "PositiveClass",
    "Predictions",
    "Scores",
    "note_ignored",
    "read_columns",
]

# Columns that a note names.
MOST_NAMED = 8


class Predictions(Belongs, Scores):
    """Predictions of a classifier for N samples and K classes, with the true labels.

    Parameters
    ----------
    logits, probs
        Scores of shape (N, K); exactly one of the two. NumPy arrays, torch tensors and anything
        NumPy can read; kept without copying. Probabilities must lie in [0, 1] and sum to 1 to
        within 1e-3 per row, and are renormalised in float64. A logit may be -inf (probability 0),
        but not a whole row. Segmentation maps (N, K, H, W) and token scores (N, K, L) become one
        sample per pixel or token, with their image or sequence as cluster.
    labels
        Shape (N,), integers from 0 to K - 1, or names from ``classes``. Of maps (N, H, W).
    classes
        The K class names, in the order of the columns.
    meta
        Metadata: any JSON-serialisable mapping, saved and loaded with the predictions.
    clusters
        Shape (N,), integers or strings: samples that belong together (patient, image, document).
        Intervals, tests and comparisons then resample clusters, and no split divides one.
    groups
        Groupings by name, each of shape (N,), integers or strings: ``measure(p, by="hospital")``.
    weights
        Sampling weights, shape (N,), above 0: how many units of the population a sample stands for.
    ignore_index
        Label of samples to leave out, such as 255 for unlabelled pixels.

    Examples
    --------
    >>> p = Predictions(logits=[[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], labels=[0, 1, 1])
    >>> p
    Predictions(3 samples, 2 classes, from logits)
    >>> p.predicted, p.correct
    (array([0, 1, 0]), array([ True,  True, False]))
    >>> p.confidence.round(4)
    array([0.8808, 0.7311, 0.9526])
    """

    def __init__(  # noqa: PLR0913 - all but the scores and labels are optional
        self,
        *,
        logits: Any = None,
        probs: Any = None,
        labels: Any,
        classes: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        weights: Any = None,
        ignore_index: int | None = None,
    ) -> None:
        kind, scores = rows_of_one(logits, probs, WHICH_SCORES)
        belongs = {"clusters": clusters, "groups": groups, "weights": weights}
        rows = {"scores": scores, "labels": labels, **belongs}
        if is_map(scores):
            rows = rows_of(scores, labels, belongs, ignore_index)
            if kind == "probs" and isinstance(rows["scores"], MapRows):
                rows["scores"] = rows["scores"].matrix()
        elif ignore_index is not None:
            rows = without_ignored(rows, ignore_index)
        belonging = {name: rows[name] for name in belongs} | {"batch": rows.get("batch")}
        self.__dict__.update(labels=rows["labels"], belonging=belonging)
        super().__init__(**{kind: rows["scores"]}, classes=classes, meta=meta)

    labels: Int
    _per_sample: ClassVar[tuple[str, ...]] = ("labels",)

    def _check_rest(self) -> None:
        labels = check_labels(self.__dict__["labels"], self.rows.shape, self.classes)
        self.__dict__["labels"] = read_only(labels)
        belonging = self.__dict__["belonging"]
        if not isinstance(belonging, Belonging):  # what was given, not that of other predictions
            self.__dict__["belonging"] = Belonging.of(**belonging, num_samples=len(labels))

    @property
    def _labels(self) -> Int | None:
        return self.labels

    @classmethod
    def from_binary(
        cls,
        *,
        logits: Any = None,
        probs: Any = None,
        labels: Any,
        classes: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        weights: Any = None,
    ) -> Self:
        """Make predictions from scores of shape (N,) for class 1 of a two-class problem.

        >>> Predictions.from_binary(probs=[0.9, 0.2], labels=[1, 0]).probs
        array([[0.1, 0.9],
               [0.8, 0.2]])
        """
        advice = "Pass logits=… (log-odds of class 1) or probs=… (probability of class 1)."
        kind, scores = one_of(logits, probs, advice)
        if scores.ndim != 1:
            rule = "must have shape (N,) here"
            advice = f"Pass a matrix as Predictions({kind}=…, labels=…)."
            raise refuse(kind, rule, f"got shape {scores.shape}", advice)
        if kind == "probs":
            wide = scores.astype(np.float64)
            if not ((wide >= 0) & (wide <= 1)).all():
                raise outside(wide)
            columns = np.stack([1 - wide, wide], axis=1)
        else:
            columns = np.stack([np.zeros_like(scores), scores], axis=1)
        given: dict[str, Any] = {kind: columns, "clusters": clusters, "groups": groups}
        return cls(**given, labels=labels, classes=classes, meta=meta, weights=weights)

    def positive_class(self, positive: int | str | None = None) -> PositiveClass:
        """The probability of one class against the rest, with whether each sample is of it.

        ``positive`` is the name or the index of the class; by default class 1 of two.

        >>> p = Predictions.from_binary(probs=[0.9, 0.2], labels=[1, 1])
        >>> p.positive_class().confidence, p.positive_class().correct
        (array([0.9, 0.2]), array([ True,  True]))
        """
        k = class_index(positive, self.num_classes, self.classes)
        name = str(k) if self.classes is None else self.classes[k]
        return PositiveClass(
            odds_against=row_summary.odds_against(self.scores, self.kind, k),
            correct=self.labels == k,
            name=name,
            belonging=self.belonging,
            meta=self.meta,
        )

    @property
    def correct(self) -> Bool:
        """Whether the predicted class is the label."""
        return read_only(self._top.correct)

    @property
    def label_log_prob(self) -> Float64:
        """Log-probability of the label."""
        return read_only(self._summary.label_log_prob)

    @property
    def brier_terms(self) -> Float64:
        """Squared distance of the probabilities from the one-hot label, per sample."""
        return read_only(self._summary.brier)

    def split(self, fraction: float, *, seed: int) -> tuple[Predictions, Predictions]:
        """Split into a random part with about ``fraction`` of the samples and the rest.

        A cluster is never divided.

        >>> p = Predictions(logits=[[1.0, 0.0]] * 10, labels=[0] * 10)
        >>> [len(part) for part in p.split(0.3, seed=0)]
        [3, 7]
        """
        check_fraction("fraction", fraction, example=0.5)
        check_seed(seed)
        codes = self.belonging.codes
        unit = np.arange(self.num_samples) if codes is None else codes
        units = int(unit.max()) + 1
        if units == 1:
            what = "samples" if codes is None else "clusters"
            raise refuse(
                "split", f"must have at least two {what}", "got 1", "Collect more predictions."
            )
        order = np.random.default_rng(seed).permutation(units)
        filled = np.cumsum(np.bincount(unit)[order])
        nearest = int(np.abs(filled - round(fraction * self.num_samples)).argmin())
        first = np.zeros(units, dtype=np.bool_)
        first[order[: min(nearest + 1, units - 1)]] = True
        return self.take(np.flatnonzero(first[unit])), self.take(np.flatnonzero(~first[unit]))

    @classmethod
    def load(cls, path: str | Path, *, labels: str | Path | None = None, **options: Any) -> Self:
        """Read a file with labels; ``calibrant.load`` describes the formats and ``options``.

        ``labels`` is the second file of a pair ``logits.npy``, ``labels.npy`` (default:
        ``labels.npy`` next to the first).
        """
        columns, ignore_index = read_columns(path, labels, options)
        p = cls(
            **columns.arguments(path, ("logits", "probs", "labels")),
            classes=columns.classes,
            meta=columns.meta,
            ignore_index=ignore_index,
        )
        note_ignored(path, columns.ignored)
        return p


def read_columns(
    path: str | Path,
    labels: str | Path | None,
    options: Mapping[str, Any],
    *,
    need_labels: bool = True,
) -> tuple[io.Columns, int | None]:
    """The columns of a file, and the label of samples to leave out."""
    own = {name: options.get(name) for name in ("i_mean_it", "ignore_index")}
    intended = {"i_mean_it": True} if own["i_mean_it"] else {}
    layout = io.Layout.of({k: v for k, v in options.items() if k not in own})
    columns = io.read(path, labels, need_labels=need_labels, layout=layout)
    return replace(columns, meta=columns.meta | intended), own["ignore_index"]


def note_ignored(path: str | Path, ignored: Sequence[str]) -> None:
    """Name the columns that were not used, in one line."""
    if not ignored:
        return
    more = len(ignored) - MOST_NAMED
    shown = ", ".join(ignored[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    warnings.warn(f"{Path(path).name}: not used: {shown}.", FileNote, stacklevel=3)
