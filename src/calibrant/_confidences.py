"""Confidences: a record of the top label alone; PositiveClass: one of a single class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from calibrant import io
from calibrant._core.arrays import Bool, Float64, Int, read_only, to_floats, to_numpy
from calibrant._core.belonging import Belonging
from calibrant._core.checks import refuse
from calibrant._core.formatting import in_samples
from calibrant._core.validation import frozen_meta, outside
from calibrant._scores import Belongs


class Confidences(Belongs):
    """Top-label confidence and correctness, for models that provide nothing else.

    Parameters
    ----------
    confidence
        Shape (N,), from 0 to 1.
    correct
        Shape (N,), booleans, or integers 0 and 1.
    clusters, groups, weights
        What each sample belongs to, as for ``Predictions``.

    Examples
    --------
    >>> Confidences(confidence=[0.9, 0.6], correct=[True, False])
    Confidences(2 samples)
    """

    def __init__(
        self,
        *,
        confidence: Any,
        correct: Any,
        meta: Mapping[str, Any] | None = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        weights: Any = None,
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
            belonging=Belonging.of(clusters, groups, weights, len(wide)),
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
            confidence=self.confidence[rows],
            correct=self.correct[rows],
            meta=self.meta,
            **self.belonging.arguments(rows),
        )

    def columns(self) -> io.Columns:
        """What a file of this record holds."""
        arrays = {"confidence": self.confidence, "correct": self.correct}
        return io.Columns(arrays | self.belonging.arrays(), None, dict(self.meta))

    def save(self, path: str | Path) -> None:
        """Write npz, Parquet, CSV or safetensors, chosen by the file extension."""
        io.write(path, self.columns())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read ``confidence`` and ``correct`` from npz, Parquet, CSV or safetensors."""
        columns = io.read(path)
        return cls(**columns.arguments(path, ("confidence", "correct")), meta=columns.meta)


class PositiveClass(Confidences):
    """P(positive) and whether each sample is positive: the record of one class against the rest.

    ``confidence`` is the probability of the class ``name``, ``correct`` whether it is the label, so
    that everything for confidences on [0, 1] applies. Made by ``Predictions.positive_class``.
    """

    def __init__(
        self, *, odds_against: Float64, correct: Bool, name: str, belonging: Belonging, meta: Any
    ) -> None:
        self.__dict__.update(
            confidence=read_only(1 / (1 + odds_against)),
            correct=read_only(correct),
            odds_against=read_only(odds_against),
            name=name,
            meta=meta,
            belonging=belonging,
        )

    name: str

    def __repr__(self) -> str:
        return f"PositiveClass({in_samples(self.num_samples)}, P({self.name}))"

    @cached_property
    def order(self) -> Int:
        """Samples from the least to the largest probability."""
        return np.argsort(self.odds_against)[::-1]

    def take(self, indices: Any) -> PositiveClass:
        """Return the samples at ``indices`` (integers, or a mask)."""
        rows = to_numpy(indices, "indices")
        return PositiveClass(
            odds_against=self.odds_against[rows],
            correct=self.correct[rows],
            name=self.name,
            belonging=self.belonging.take(rows),
            meta=self.meta,
        )


def _check_correct(hits: Any) -> None:
    rule = "must be booleans, or integers 0 and 1"
    advice = "Write 1 where the prediction is the label, else 0."
    if hits.dtype.kind not in "biu":
        raise refuse("correct", rule, f"got dtype {hits.dtype}", advice)
    wrong = np.flatnonzero((hits != 0) & (hits != 1))
    if len(wrong):
        raise refuse("correct", rule, f"got {hits[wrong[0]]} in row {wrong[0]}", advice)
