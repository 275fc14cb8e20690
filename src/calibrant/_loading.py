"""load(): the record that a file holds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant import io
from calibrant._core.belonging import CLUSTERS
from calibrant._core.checks import FileNote, refuse
from calibrant._multilabel import MultiLabel
from calibrant._scores import Scores
from calibrant.predictions import Confidences, Predictions, note_ignored, read_columns

MATRIX = 2


def load(
    path: str | Path, *, labels: str | Path | None = None, **options: Any
) -> Predictions | Confidences | Scores | MultiLabel:
    """Read predictions or confidences, or scores alone where the file has no labels.

    Labels of shape (N, L), or columns ``label_cat``, ``label_dog`` … next to the scores of the same
    names, are several labels per sample: ``MultiLabel``.

    Parameters
    ----------
    path
        npz, Parquet, CSV, TSV, JSON lines, JSON, safetensors, ``logits.npy``, a sample log of
        lm-evaluation-harness (``samples_*.jsonl``, also a pattern) or an Inspect log (``.eval``,
        ``.json``); text files also with ``.gz``. A URL of any filesystem that PyArrow knows.
    labels
        File with the labels for ``logits.npy`` or ``probs.npy``.
    options
        Those of ``calibrant.io.Layout``: ``label_column``, ``prob_columns``, ``classes`` …; also
        ``ignore_index``, as for ``Predictions``, and ``i_mean_it=True`` for logits that look like
        probabilities.
    """
    columns, ignore_index = read_columns(path, labels, options, need_labels=False)
    p = _record(path, columns, ignore_index)
    note_ignored(path, columns.ignored)
    return p


def _record(
    path: str | Path, columns: io.Columns, ignore_index: int | None
) -> Predictions | Confidences | Scores | MultiLabel:
    if "confidence" in columns.arrays:
        return Confidences(**columns.arguments(path, ("confidence", "correct")), meta=columns.meta)
    labelled = "labels" in columns.arrays
    names = ("logits", "probs", *(("labels",) if labelled else ()))
    arguments = columns.arguments(path, names, belonging=labelled)
    told: dict[str, Any] = {"meta": columns.meta}
    if _several_labels(columns):
        found = {name: arguments[name] for name in names if name in arguments}
        several = MultiLabel(**found, names=columns.classes, **told)
        _note_one_hot(path, several)
        return several
    if labelled:
        told["ignore_index"] = ignore_index
    kind = Predictions if labelled else Scores
    return kind(**arguments, classes=columns.classes, **told)


def _note_one_hot(path: str | Path, p: MultiLabel) -> None:
    """Each sample has exactly one of several labels: these may be classes, written as one-hot."""
    if p.num_labels > 1 and p.mask.all() and (p.labels.sum(axis=1) == 1).all():
        text = (
            f"{Path(path).name}: read as {p.num_labels:,} labels per sample, of which each sample "
            "has exactly one. If these are one-hot classes, save class indices instead: "
            "labels.argmax(axis=1)."
        )
        warnings.warn(text, FileNote, stacklevel=4)


def _several_labels(columns: io.Columns) -> bool:
    """Whether a row has a label per column of its scores; those of maps have fewer axes."""
    found = columns.arrays
    scores = found.get("logits", found.get("probs"))
    both = "labels" in found and scores is not None
    return both and found["labels"].ndim == MATRIX and scores.ndim == MATRIX  # type: ignore[union-attr]


def load_unlabelled(path: str | Path, **options: Any) -> tuple[Scores, NDArray[Any] | None]:
    """Scores of a file whose labels, if it has any, are not wanted; and its clusters, or None."""
    named = ("label_column", "group_columns", "ignore_index")
    wanted = {name: value for name, value in options.items() if name not in named}
    columns, _ = read_columns(path, None, wanted, need_labels=False)
    labels = tuple(name for name in ("labels",) if name in columns.arrays)
    arguments = columns.arguments(path, ("logits", "probs", *labels), belonging=False)
    arguments.pop("labels", None)
    p = Scores(**arguments, classes=columns.classes, meta=columns.meta)
    return p, columns.arrays.get(CLUSTERS)


def load_measurable(
    path: str | Path, *, labels: str | Path | None = None, **options: Any
) -> Predictions | Confidences | MultiLabel:
    """The same, but a file without labels is refused."""
    columns, ignore_index = read_columns(path, labels, options)
    p = _record(path, columns, ignore_index)
    if type(p) is Scores:
        rule, got = "must hold labels", f"got {p.kind} alone"
        raise refuse(Path(path).name, rule, got, io.hint(columns.ignored, "labels"))
    note_ignored(path, columns.ignored)
    return p  # type: ignore[return-value]


def load_labelled(
    path: str | Path, *, labels: str | Path | None = None, **options: Any
) -> Predictions | Confidences:
    """The same, but several labels per sample are refused too."""
    p = load_measurable(path, labels=labels, **options)
    if not isinstance(p, Predictions | Confidences):
        rule, advice = "must have one label per sample here", "Use measure, calibrate or report."
        raise refuse(Path(path).name, rule, f"got {p.num_labels:,} labels per sample", advice)
    return p
