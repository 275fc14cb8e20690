"""Predictions and Confidences: the immutable records that the package works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from calibrant import io
from calibrant._core.arrays import (
    Bool,
    Float64,
    Int,
    read_only,
    to_floats,
    to_numpy,
)
from calibrant._core.checks import check_fraction, check_seed, refuse
from calibrant._core.formatting import in_samples
from calibrant._core.validation import (
    check_labels,
    frozen_meta,
    outside,
)
from calibrant._scores import Frozen, Scores, one_of

__all__ = ["Confidences", "Predictions", "Scores", "load", "load_scores"]


class Predictions(Scores):
    """Predictions of a classifier for N samples and K classes, with the true labels.

    Parameters
    ----------
    logits, probs
        Scores of shape (N, K); exactly one of the two. NumPy arrays, torch tensors and anything
        NumPy can read; kept without copying. Probabilities must lie in [0, 1] and sum to 1 to
        within 1e-3 per row, and are renormalised in float64. A logit may be -inf (probability 0),
        but not a whole row.
    labels
        Shape (N,), integers from 0 to K - 1, or names from ``classes``.
    classes
        The K class names, in the order of the columns.
    meta
        Metadata: any JSON-serialisable mapping, saved and loaded with the predictions.

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

    def __init__(
        self,
        *,
        logits: Any = None,
        probs: Any = None,
        labels: Any,
        classes: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.__dict__["labels"] = labels
        super().__init__(logits=logits, probs=probs, classes=classes, meta=meta)

    labels: Int
    _per_sample: ClassVar[tuple[str, ...]] = ("labels",)

    def _check_rest(self) -> None:
        labels = check_labels(self.__dict__["labels"], self.scores.shape, self.classes)
        self.__dict__["labels"] = read_only(labels)

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
            return cls(
                probs=np.stack([1 - wide, wide], 1), labels=labels, classes=classes, meta=meta
            )
        columns = np.stack([np.zeros_like(scores), scores], axis=1)
        return cls(logits=columns, labels=labels, classes=classes, meta=meta)

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

        >>> p = Predictions(logits=[[1.0, 0.0]] * 10, labels=[0] * 10)
        >>> [len(part) for part in p.split(0.3, seed=0)]
        [3, 7]
        """
        check_fraction("fraction", fraction, example=0.5)
        check_seed(seed)
        if self.num_samples == 1:
            raise refuse(
                "split", "must have at least two samples", "got 1", "Collect more predictions."
            )
        size = min(max(round(fraction * self.num_samples), 1), self.num_samples - 1)
        order = np.random.default_rng(seed).permutation(self.num_samples)
        return self.take(np.sort(order[:size])), self.take(np.sort(order[size:]))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        labels: str | Path | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Read npz, Parquet, CSV, safetensors, or a pair ``logits.npy``, ``labels.npy``.

        ``labels`` is the second file of a pair (default: ``labels.npy`` next to the first);
        ``classes`` sets the class names if the file has none.
        """
        columns = io.read(path, labels)
        return cls(
            **_only(columns, path, ("logits", "probs", "labels")),
            classes=classes or columns.classes,
            meta=columns.meta,
        )


class Confidences(Frozen):
    """Top-label confidence and correctness, for models that provide nothing else.

    Parameters
    ----------
    confidence
        Shape (N,), from 0 to 1.
    correct
        Shape (N,), booleans, or integers 0 and 1.

    Examples
    --------
    >>> Confidences(confidence=[0.9, 0.6], correct=[True, False])
    Confidences(2 samples)
    """

    def __init__(
        self, *, confidence: Any, correct: Any, meta: Mapping[str, Any] | None = None
    ) -> None:
        values = to_floats(confidence, "confidence")
        hits = to_numpy(correct, "correct")
        if values.ndim != 1 or len(values) == 0:
            rule, advice = "must have shape (N,) with N >= 1", "Pass one confidence per sample."
            raise refuse("confidence", rule, f"got shape {values.shape}", advice)
        if hits.shape != values.shape:
            rule, advice = (
                f"must have shape {values.shape}, like confidence",
                "Check that both come from the same data set.",
            )
            raise refuse("correct", rule, f"got shape {hits.shape}", advice)
        _check_correct(hits)
        wide = values.astype(np.float64)
        if not ((wide >= 0) & (wide <= 1)).all():
            raise outside(wide, "confidence")
        with np.errstate(divide="ignore", over="ignore"):
            odds = (1 - wide) / wide
        self.__dict__.update(
            confidence=read_only(wide),
            correct=read_only(hits.astype(np.bool_)),
            odds_against=read_only(odds),
            meta=frozen_meta(meta),
        )

    confidence: Float64
    correct: Bool
    odds_against: Float64
    meta: Mapping[str, Any]

    @property
    def num_samples(self) -> int:
        """N."""
        return len(self.confidence)

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        return f"Confidences({in_samples(self.num_samples)})"

    @cached_property
    def order(self) -> Int:
        """Samples from least to most confident."""
        return np.argsort(self.confidence)

    def take(self, indices: Any) -> Confidences:
        """Return the samples at ``indices`` (integers, or a mask), with their metadata."""
        rows = to_numpy(indices, "indices")
        return Confidences(
            confidence=self.confidence[rows], correct=self.correct[rows], meta=self.meta
        )

    def save(self, path: str | Path) -> None:
        """Write npz, Parquet, CSV or safetensors, chosen by the file extension."""
        arrays = {"confidence": self.confidence, "correct": self.correct}
        io.write(path, io.Columns(arrays, None, dict(self.meta)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read ``confidence`` and ``correct`` from npz, Parquet, CSV or safetensors."""
        columns = io.read(path)
        return cls(**_only(columns, path, ("confidence", "correct")), meta=columns.meta)


def load_scores(path: str | Path) -> Scores:
    """Read predictions, or scores alone where the file has no labels."""
    columns = io.read(path, need_labels=False)
    labelled = "labels" in columns.arrays
    names = ("logits", "probs", *(("labels",) if labelled else ()))
    kind = Predictions if labelled else Scores
    return kind(**_only(columns, path, names), classes=columns.classes, meta=columns.meta)


def load(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    classes: Sequence[str] | None = None,
) -> Predictions | Confidences:
    """Read predictions or confidences, whichever the file contains."""
    columns = io.read(path, labels)
    if "confidence" in columns.arrays:
        return Confidences(**_only(columns, path, ("confidence", "correct")), meta=columns.meta)
    return Predictions(
        **_only(columns, path, ("logits", "probs", "labels")),
        classes=classes or columns.classes,
        meta=columns.meta,
    )


def _check_correct(hits: Any) -> None:
    rule = "must be booleans, or integers 0 and 1"
    advice = "Write 1 where the prediction is the label, else 0."
    if hits.dtype.kind not in "biu":
        raise refuse("correct", rule, f"got dtype {hits.dtype}", advice)
    wrong = np.flatnonzero((hits != 0) & (hits != 1))
    if len(wrong):
        raise refuse("correct", rule, f"got {hits[wrong[0]]} in row {wrong[0]}", advice)


def _only(columns: io.Columns, path: str | Path, names: tuple[str, ...]) -> dict[str, Any]:
    """The arrays of a file as arguments; refuses what does not belong and names what is missing."""
    wrong = [name for name in columns.arrays if name not in names]
    scores = names[0] != "logits" or {"logits", "probs"} & set(columns.arrays)
    if wrong:
        what = "logits (or probs) and labels" if "logits" in names else "confidence and correct"
        rule, advice = f"must hold {what} only", "Save one record per file."
        if not scores:
            rule, advice = f"must hold {what}", "Calibrators need the scores of all classes."
        raise refuse(Path(path).name, rule, f"got {wrong[0]!r}", advice)
    needed = [name for name in names if name not in ("logits", "probs", *columns.arrays)]
    if needed or not scores:
        missing = needed[0] if needed else "logits (or probs)"
        rule = f"must hold {missing}"
        got = f"got {', '.join(columns.arrays) or 'nothing'}"
        raise refuse(Path(path).name, rule, got, "See the docs of Predictions.load for the names.")
    return dict(columns.arrays)
