"""MultiLabel: predictions of a model that gives each sample any number of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from calibrant import io
from calibrant._core.arrays import Bool, Float, Float64, Int, read_only, to_floats, to_numpy
from calibrant._core.belonging import Belonging
from calibrant._core.checks import check_fraction, check_seed, near_name, refuse
from calibrant._core.formatting import in_samples
from calibrant._core.row_summary import ScoreKind
from calibrant._core.validation import check_names, frozen_meta, outside
from calibrant._scores import Frozen, one_of
from calibrant.predictions import PositiveClass, Predictions

# Names of the averages over labels, so that no label can have them.
MACRO, MICRO = "macro", "micro"
MATRIX = 2


class MultiLabel(Frozen):
    """Predictions for N samples and L labels, of which each sample may have none, some or all.

    Parameters
    ----------
    logits, probs
        Scores of shape (N, L), exactly one of the two: the log-odds of each label (before the
        sigmoid), or its probability.
    labels
        Shape (N, L): 1 or True where the sample has the label, 0 or False where not; NaN where
        nobody knows.
    mask
        Shape (N, L), True where the label is known. What is not known is never used.
    names
        The L names of the labels; by default "0", "1" and so on.
    meta
        Metadata: any JSON-serialisable mapping, saved and loaded with the predictions.

    Examples
    --------
    >>> p = MultiLabel(probs=[[0.9, 0.2], [0.4, 0.6]], labels=[[1, 0], [0, float("nan")]])
    >>> p
    MultiLabel(2 samples, 2 labels, from probs, 1 of 4 unknown)
    >>> p.label("1")
    Predictions(1 sample, 2 classes, from probs)
    """

    def __init__(
        self,
        *,
        logits: Any = None,
        probs: Any = None,
        labels: Any,
        mask: Any = None,
        names: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        advice = "Pass logits=… (log-odds) or probs=… (after the sigmoid)."
        kind, scores = one_of(logits, probs, advice)
        _check_scores(kind, scores)
        has, known = _check_labels(labels, mask, scores.shape)
        self.__dict__.update(
            kind=kind,
            scores=read_only(scores),
            labels=read_only(has),
            mask=read_only(known),
            names=_check_names(names, scores.shape[1]),
            meta=frozen_meta(meta),
        )

    kind: ScoreKind
    """Whether ``scores`` are logits or probabilities."""
    scores: Float
    """The matrix (N, L) as it was given."""
    labels: Bool
    """Whether each sample has each label; False where that is unknown."""
    mask: Bool
    """Where the label is known."""
    names: tuple[str, ...]
    meta: Mapping[str, Any]

    @property
    def num_samples(self) -> int:
        """N."""
        return int(self.scores.shape[0])

    @property
    def num_labels(self) -> int:
        """L."""
        return int(self.scores.shape[1])

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        unknown = self.mask.size - int(self.mask.sum())
        gaps = f", {unknown:,} of {self.mask.size:,} unknown" if unknown else ""
        labels = "1 label" if self.num_labels == 1 else f"{self.num_labels:,} labels"
        return f"MultiLabel({in_samples(len(self))}, {labels}, from {self.kind}{gaps})"

    @property
    def probs(self) -> Float64:
        """Probabilities, (N, L)."""
        wide = self.scores.astype(np.float64)
        return wide if self.kind == "probs" else 0.5 * (1 + np.tanh(wide / 2))

    # --- one label, all labels ------------------------------------------------------------------

    def index(self, label: int | str) -> int:
        """The column of a label, by its name or number."""
        if isinstance(label, str):
            if label not in self.names:
                rule = "must name one of the labels"
                raise refuse("label", rule, f"got {label!r}", near_name(label, self.names))
            return self.names.index(label)
        whole = not isinstance(label, bool) and hasattr(label, "__index__")
        if not whole or not 0 <= int(label) < self.num_labels:
            rule = f"must be a name, or a column from 0 to {self.num_labels - 1}"
            raise refuse("label", rule, f"got {label!r}", f"Known: {', '.join(self.names)}.")
        return int(label)

    def known(self, label: int | str) -> Int:
        """The samples of which a label is known."""
        return np.flatnonzero(self.mask[:, self.index(label)])

    def label(self, label: int | str) -> Predictions:
        """The binary predictions of one label, for the samples of which it is known."""
        k = self.index(label)
        rows = self.known(k)
        if not len(rows):
            rule, advice = "must be known for a sample", "Leave the label out."
            raise refuse(f"label {self.names[k]!r}", rule, "got none", advice)
        name = self.names[k]
        return Predictions.from_binary(
            **{self.kind: self.scores[rows, k]},
            labels=self.labels[rows, k].astype(np.int64),
            classes=(f"not {name}", name),
            meta=self.meta,
        )

    def pooled(self) -> PositiveClass:
        """Every known label of every sample as one binary question; samples are the clusters."""
        rows, columns = np.nonzero(self.mask)
        scores: dict[str, Any] = {self.kind: self.scores[rows, columns]}
        flat = Predictions.from_binary(
            **scores,
            labels=self.labels[rows, columns].astype(np.int64),
        ).positive_class()
        return PositiveClass(
            odds_against=flat.odds_against,
            correct=flat.correct,
            name="a label",
            belonging=Belonging.of(rows, None, None, len(rows)),
            meta=self.meta,
        )

    # --- derived records ------------------------------------------------------------------------

    def take(self, indices: Any) -> Self:
        """Return the samples at ``indices`` (integers, or a mask), with their metadata."""
        rows = to_numpy(indices, "indices")
        if not (rows.any() if rows.dtype == bool else rows.size):
            rule, advice = "must name at least one sample", "Check the condition that chose them."
            raise refuse("indices", rule, "got none", advice)
        return self._made(self.kind, self.scores[rows], rows)

    def with_scores(self, kind: ScoreKind, scores: Any) -> Self:
        """The same samples with other scores, as a calibrator gives them."""
        return self._made(kind, scores, slice(None))

    def _made(self, kind: ScoreKind, scores: Any, rows: Any) -> Self:
        return type(self)(
            **{kind: scores},
            labels=self.labels[rows],
            mask=self.mask[rows],
            names=self.names,
            meta=self.meta,
        )

    def split(self, fraction: float, *, seed: int) -> tuple[Self, Self]:
        """Split into a random part with ``fraction`` of the samples and the rest.

        >>> p = MultiLabel(probs=[[0.5, 0.5]] * 10, labels=[[1, 0]] * 10)
        >>> [len(part) for part in p.split(0.3, seed=0)]
        [3, 7]
        """
        check_fraction("fraction", fraction, example=0.5)
        check_seed(seed)
        if len(self) == 1:
            raise refuse("split", "must have at least two samples", "got 1", "Collect more.")
        order = np.random.default_rng(seed).permutation(len(self))
        first = min(max(round(fraction * len(self)), 1), len(self) - 1)
        return self.take(np.sort(order[:first])), self.take(np.sort(order[first:]))

    # --- files ----------------------------------------------------------------------------------

    def columns(self) -> io.Columns:
        """The contents of this record as stored in a file: NaN where a label is unknown."""
        labels: Any = self.labels.astype(np.int8)
        if not self.mask.all():
            labels = np.where(self.mask, labels, np.nan).astype(np.float32)
        return io.Columns({self.kind: self.scores, "labels": labels}, self.names, dict(self.meta))

    def save(self, path: str | Path) -> None:
        """Write npz, Parquet, CSV or safetensors, chosen by the file extension."""
        io.write(path, self.columns())

    @classmethod
    def load(cls, path: str | Path, *, names: Sequence[str] | None = None) -> Self:
        """Read a file with ``logits`` or ``probs`` and ``labels``, all of shape (N, L).

        Tables have a column per label instead: ``prob_cat, prob_dog, label_cat, label_dog``. A
        label that is NaN or missing is unknown. ``names`` sets the names of the labels if the file
        has none.
        """
        columns = io.read(path)
        found = columns.arguments(path, ("logits", "probs", "labels"), belonging=False)
        return cls(**found, names=names or columns.classes, meta=columns.meta)


def _check_scores(kind: ScoreKind, scores: Float) -> None:
    if scores.ndim != MATRIX or 0 in scores.shape:
        rule = "must have shape (N, L): one row per sample, one column per label"
        raise refuse(kind, rule, f"got shape {scores.shape}", "Stack the scores of the labels.")
    if kind == "probs" and not ((scores >= 0) & (scores <= 1)).all():
        raise outside(scores)
    wrong = np.argwhere(~np.isfinite(scores))
    if len(wrong):
        row, column = wrong[0]
        got = f"got {scores[row, column]} in row {row}, column {column}"
        advice = "Use a large finite number for certainty; drop samples without scores."
        raise refuse(kind, "must be finite", got, advice)


def _check_labels(labels: Any, mask: Any, shape: tuple[int, ...]) -> tuple[Bool, Bool]:
    """Which labels samples have, and which are known."""
    given = to_numpy(labels, "labels")
    _check_shape("labels", given.shape, shape)
    rule, advice = "must be 0, 1, or NaN where unknown", "Mark unknown labels with mask=…, or NaN."
    values = given.astype(np.float64) if given.dtype.kind == "b" else to_floats(given, "labels")
    known = ~np.isnan(values)
    if mask is not None:
        seen = to_numpy(mask, "mask")
        _check_shape("mask", seen.shape, shape)
        if seen.dtype.kind not in "biu" or not np.isin(seen, (0, 1)).all():
            told = "Write True where the label is known."
            raise refuse("mask", "must be booleans", f"got dtype {seen.dtype}", told)
        known &= seen.astype(np.bool_)
    wrong = np.argwhere(known & (values != 0) & (values != 1))
    if len(wrong):
        row, column = wrong[0]
        got = f"got {values[row, column]:g} in row {row}, column {column}"
        raise refuse("labels", rule, got, advice)
    if not known.any():
        raise refuse("labels", "must be known somewhere", "got only unknown ones", advice)
    return known & (values == 1), known


def _check_shape(argument: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if got != shape:
        rule = f"must have shape {shape}, like the scores"
        advice = "Check that both come from the same data set."
        raise refuse(argument, rule, f"got shape {got}", advice)


def _check_names(names: Sequence[str] | None, num_labels: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(num_labels)))
    found = check_names("names", names, num_labels)
    taken = {MACRO, MICRO} & set(found)
    if taken:
        rule = f"must not be {MACRO} or {MICRO}, which are the averages"
        raise refuse("names", rule, f"got {min(taken)!r}", "Choose another name.")
    return found
