"""Scores of a classifier: frozen, validated once, with what every metric needs of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, cast

import numpy as np
from numpy.typing import NDArray

from calibrant import io
from calibrant._core import row_summary
from calibrant._core.arrays import (
    Float,
    Float64,
    Int,
    read_only,
    to_floats,
    to_numpy,
)
from calibrant._core.belonging import NONE, Belonging
from calibrant._core.brain_rows import BrainRows
from calibrant._core.checks import refuse
from calibrant._core.compiled_sweeps import ClassTables
from calibrant._core.formatting import in_samples
from calibrant._core.map_rows import MapRows
from calibrant._core.row_sweeps import RowSummary, TopLabel
from calibrant._core.validation import (
    TABLE_BINS,
    check_logits,
    check_matrix,
    check_names,
    check_probs,
    frozen_meta,
    look_like_probs,
    sweep_and_check,
)

DOUBT = (
    "These logits look like probabilities: every row lies in [0, 1] and sums to 1. If they are, "
    "pass them as probs (columns prob_0, prob_1 …): the numbers are wrong otherwise. If they are "
    "logits, say so: i_mean_it=True."
)

# Rows that are indexed like a matrix, and made one when all of it is asked for.
LAZY_ROWS = (MapRows, BrainRows)

WHICH_SCORES = "Pass logits=… (before the softmax) or probs=… (after it)."


class Frozen:
    """Attributes are set once, in ``__init__``, through ``__dict__``."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen; make a new one to change {name}.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be deleted.")

    def __getstate__(self) -> dict[str, Any]:
        """Plain values, for copies between processes; a read-only mapping cannot be pickled."""
        return {**self.__dict__, "meta": dict(self.__dict__["meta"])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, meta=frozen_meta(state["meta"]))


class Belongs(Frozen):
    """A record whose samples may have clusters, groups and weights."""

    belonging: Belonging

    @property
    def clusters(self) -> NDArray[Any] | None:
        """The cluster of each sample, or None."""
        return self.belonging.clusters

    @property
    def groups(self) -> Mapping[str, NDArray[Any]]:
        """The groupings by name, each with the group of every sample."""
        return self.belonging.groups

    @property
    def weights(self) -> Float64 | None:
        """The sampling weight of each sample, or None."""
        return self.belonging.weights

    @property
    def is_independent(self) -> bool:
        """Whether every sample is a unit of its own and counts once: no clusters, no weights."""
        return self.clusters is None and self.weights is None

    def independent(self) -> Self:
        """The same samples without clusters, groups and weights."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, belonging=NONE)
        return other


class Scores(Frozen):
    """Scores of a classifier for N samples and K classes, without labels.

    Parameters
    ----------
    logits, probs
        Scores of shape (N, K); exactly one of the two. NumPy arrays, torch tensors and anything
        NumPy can read; kept without copying. Probabilities must lie in [0, 1] and sum to 1 to
        within 1e-3 per row, and are renormalised in float64. A logit may be -inf (probability 0),
        but not a whole row.
    classes
        The K class names, in the order of the columns.
    meta
        Where the scores came from: anything JSON can hold. Saved and loaded with them.

    Examples
    --------
    >>> s = Scores(logits=[[2.0, 0.0], [0.0, 1.0]])
    >>> s
    Scores(2 samples, 2 classes, from logits)
    >>> s.predicted, s.confidence.round(4)
    (array([0, 1]), array([0.8808, 0.7311]))
    """

    def __init__(
        self,
        *,
        logits: Any = None,
        probs: Any = None,
        classes: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        kind, scores = rows_of_one(logits, probs, WHICH_SCORES)
        self._fill(kind, scores, classes, meta)

    def _fill(
        self,
        kind: row_summary.ScoreKind,
        scores: Float,
        classes: Sequence[str] | None,
        meta: Mapping[str, Any] | None,
        *,
        only_check: bool = False,
    ) -> None:
        """Check and keep what was given.

        Columns come from the same pass where that costs little, unless it is to ``only_check``.
        """
        check_matrix(scores, kind)
        names = None if classes is None else check_names("classes", classes, scores.shape[1])
        lazy = isinstance(scores, LAZY_ROWS)
        given = {"lazy_rows": scores} if lazy else {"scores": read_only(scores)}
        self.__dict__.update(given, kind=kind, classes=names, meta=frozen_meta(meta))
        self._check_rest()
        row_sums = None
        if kind == "probs":
            argmax, row_sums = check_probs(scores)
        elif not only_check and (found := sweep_and_check(scores, self._labels)):
            self.__dict__.update(_summary=found[0], _tables=found[1])
            argmax = found[0].predicted
        else:
            argmax = check_logits(scores)
        self.__dict__.update(argmax=argmax, row_sums=row_sums)

    kind: row_summary.ScoreKind
    """Whether ``scores`` are logits or probabilities."""
    classes: tuple[str, ...] | None
    meta: Mapping[str, Any]
    argmax: Int | None
    """The predicted classes where checking the scores found them; ``predicted`` always has them."""
    row_sums: Float64 | None
    """Sums of the rows of probabilities as given; None for logits."""

    def _check_rest(self) -> None:
        """Check what a subclass adds, before the pass over the scores."""

    @property
    def _labels(self) -> Int | None:
        return None

    # --- what was given -----------------------------------------------------------------------

    @cached_property
    def scores(self) -> Float:
        """The matrix (N, K) as it was given.

        Maps are laid out, and bfloat16 made float32, when it is first used.
        """
        return read_only(vars(self)["lazy_rows"].matrix())

    @property
    def rows(self) -> Float:
        """The same for a range of rows at a time: no copy of all of them is made."""
        found = vars(self).get("scores")
        return vars(self)["lazy_rows"] if found is None else found  # type: ignore[no-any-return]

    @property
    def swept(self) -> bool:
        """Whether the columns are known."""
        return "_summary" in vars(self)

    @property
    def num_samples(self) -> int:
        """N."""
        return int(self.rows.shape[0])

    @property
    def num_classes(self) -> int:
        """K."""
        return int(self.rows.shape[1])

    def __len__(self) -> int:
        return self.num_samples

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({in_samples(self.num_samples)}, {self.num_classes:,} classes, "
            f"from {self.kind})"
        )

    @cached_property
    def doubt(self) -> str:
        """A warning where logits look like probabilities; empty where they do not.

        ``meta={"i_mean_it": True}`` silences it.
        """
        silent = self.kind != "logits" or self.meta.get("i_mean_it") is True
        return "" if silent or not look_like_probs(self.rows) else DOUBT

    # --- matrices, computed on demand and not kept ---------------------------------------------

    @property
    def logits(self) -> Float:
        """The logits given, or the log-probabilities where probabilities were given."""
        return self.scores if self.kind == "logits" else self.log_probs

    @property
    def log_probs(self) -> Float:
        """Log-probabilities, (N, K); float64 from float64, else float32. Not kept."""
        return row_summary.log_normalise(self.scores, self.kind)

    @property
    def probs(self) -> Float:
        """Probabilities, (N, K); float64 from float64, else float32. Not kept."""
        log_probs = self.log_probs
        return np.exp(log_probs, out=log_probs)

    # --- columns, computed once and kept --------------------------------------------------------

    @cached_property
    def _summary(self) -> RowSummary:
        return self.sweep()[0]

    def sweep_columns(self) -> RowSummary:
        """All columns, from one pass over the scores; kept."""
        return self._summary

    def sweep(
        self, consume: Callable[[], row_summary.Made] | None = None, *, threads: int | None = None
    ) -> tuple[RowSummary, list[row_summary.Made]]:
        """One pass over the scores: the columns, and the results of the block consumers.

        The columns are kept, so that they need no other pass.
        """
        summary, made = row_summary.summarise_rows(
            self.rows,
            self._labels,
            self.kind,
            self.argmax,
            consume,
            total=self.row_sums,
            threads=threads,
        )
        self.__dict__.setdefault("_summary", summary)
        return summary, made

    def class_tables(self, bins: int) -> ClassTables | None:
        """Classwise tables, from the pass that makes the columns; None without compiled kernels."""
        assert self._labels is not None
        if bins == TABLE_BINS and (known := vars(self).get("_tables")) is not None:
            return cast("ClassTables", known)
        found = row_summary.class_tables(self.rows, self._labels, self.argmax, self.row_sums, bins)
        if found is None:
            return None
        self.__dict__.setdefault("_summary", found[0])
        return found[1]

    @cached_property
    def _top(self) -> TopLabel:
        """The columns of the top label. Probabilities show them without the whole pass."""
        maps = vars(self).get("lazy_rows")
        if isinstance(maps, MapRows) and not self.swept:
            return row_summary.top_of_maps(maps, self._labels) or self._summary
        if self.argmax is None or self.row_sums is None or self.swept:
            return self._summary
        return row_summary.top_of_probs(self.scores, self._labels, self.argmax, self.row_sums)

    @property
    def predicted(self) -> Int:
        """Predicted class of each sample; the first in a tie."""
        return read_only(self._top.predicted)

    @property
    def odds_against(self) -> Float64:
        """The sum over other classes of p_j / p_top: confidence is 1 / (1 + odds_against)."""
        return read_only(self._top.odds)

    @property
    def confidence(self) -> Float64:
        """Probability of the predicted class."""
        return read_only(self._top.confidence)

    @property
    def entropy(self) -> Float64:
        """Entropy of the predicted distribution in nats, 0 to ln K."""
        return read_only(self._summary.entropy)

    @cached_property
    def order(self) -> Int:
        """Samples from least to most confident."""
        return np.argsort(self._top.odds)[::-1]

    # --- derived records -------------------------------------------------------------------------

    def slab(self, rows: slice) -> Self:
        """A range of rows, without copying or checking again."""
        return self if rows == slice(0, self.num_samples) else self._part(self.rows[rows], rows)

    def _part(self, scores: Float, rows: Any) -> Self:
        """The same for some rows, with their ``scores``, which are known to be good."""
        part = object.__new__(type(self))
        found = {name: vars(self)[name] for name in ("argmax", "row_sums")}
        part.__dict__.update(
            {name: None if column is None else column[rows] for name, column in found.items()},
            **{name: read_only(vars(self)[name][rows]) for name in self._per_sample},
            scores=read_only(scores),
            belonging=self.belonging.take(rows),
            kind=self.kind,
            classes=self.classes,
            meta=self.meta,
        )
        return part

    _per_sample: ClassVar[tuple[str, ...]] = ()
    belonging: Belonging = NONE
    """Clusters, groups and weights of the samples; only labelled records have any."""

    def take(self, indices: Any) -> Self:
        """Return the samples at ``indices`` (integers, or a mask), with their metadata."""
        rows = to_numpy(indices, "indices")
        if not (rows.any() if rows.dtype == bool else rows.size):
            rule, advice = "must name at least one sample", "Check the condition that chose them."
            raise refuse("indices", rule, "got none", advice)
        scores = self.scores[rows]
        check_matrix(scores, self.kind)
        return self._part(scores, rows)

    def with_scores(self, kind: row_summary.ScoreKind, scores: Any) -> Self:
        """The same samples with other scores, as a calibrator gives them.

        They are checked. Columns are computed when they are asked for: few of the many copies that
        fits and selections make are ever measured.
        """
        made = object.__new__(type(self))
        made.__dict__.update({name: vars(self)[name] for name in self._per_sample})
        made.__dict__.update(belonging=self.belonging)
        made._fill(kind, to_floats(scores, kind), self.classes, self.meta, only_check=True)
        return made

    # --- files --------------------------------------------------------------------------------

    def columns(self) -> io.Columns:
        """The contents of this record as stored in a file."""
        arrays = {self.kind: self.scores} | {name: vars(self)[name] for name in self._per_sample}
        arrays |= self.belonging.arrays()
        return io.Columns(arrays, self.classes, dict(self.meta))

    def save(self, path: str | Path) -> None:
        """Write npz, Parquet, CSV or safetensors, chosen by the file extension."""
        io.write(path, self.columns())


def one_of(logits: Any, probs: Any, advice: str) -> tuple[row_summary.ScoreKind, Float]:
    """The one kind of scores that was given, as floats."""
    kind, scores = rows_of_one(logits, probs, advice)
    return kind, scores.matrix() if isinstance(scores, LAZY_ROWS) else scores


def rows_of_one(logits: Any, probs: Any, advice: str) -> tuple[row_summary.ScoreKind, Float]:
    """The same, but logits that need not be copied as a whole are read a range at a time."""
    if (logits is None) == (probs is None):
        got = "got neither" if logits is None else "got both"
        raise refuse("logits/probs", "takes exactly one of the two", got, advice)
    if isinstance(logits, LAZY_ROWS):
        return "logits", cast("Float", logits)  # it is indexed like one
    if probs is None:
        brain = BrainRows.of(logits)
        return "logits", to_floats(logits, "logits") if brain is None else cast("Float", brain)
    return "probs", to_floats(probs, "probs")
