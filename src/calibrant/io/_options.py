"""Questions with options: log-probabilities of every option, padded to one width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant._core.belonging import CLUSTERS, GROUP_PREFIX
from calibrant._core.checks import refuse
from calibrant._core.memory import check_size
from calibrant.io._columns import FILE_NOTES, Columns
from calibrant.io._layout import Layout
from calibrant.io._text import text_array

LEAST_OPTIONS, MOST_OPTIONS = 2, 10_000


@dataclass
class Questions:
    """Questions of evaluation logs, gathered one by one.

    ``unreadable`` counts questions without usable scores, by the reason.
    """

    where: str
    logits: list[list[float]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    unreadable: dict[str, int] = field(default_factory=dict)

    def add(self, logits: Sequence[float], label: int, document: str, task: str) -> None:
        """Add a question; its label is the number of the right option."""
        if not LEAST_OPTIONS <= len(logits) <= MOST_OPTIONS:
            rule = f"must have {LEAST_OPTIONS} to {MOST_OPTIONS:,} options per question"
            got = f"got {len(logits)} in document {document}"
            raise refuse(self.where, rule, got, "Only multiple-choice logs have probabilities.")
        if not 0 <= label < len(logits):
            rule = "must have the number of an option as its target"
            got = f"got {label} of {len(logits)} options in document {document}"
            raise refuse(self.where, rule, got, "Check the task.")
        self.logits.append(list(logits))
        self.labels.append(label)
        self.documents.append(document)
        self.tasks.append(task)

    def skip(self, reason: str) -> None:
        """Count a question that cannot be used."""
        self.unreadable[reason] = self.unreadable.get(reason, 0) + 1

    def columns(self, layout: Layout, meta: dict[str, Any]) -> Columns:
        """All questions as logits with -inf for absent options, clusters and groups."""
        left = sum(self.unreadable.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.unreadable.items())
        if left and not layout.skip_unparsable:
            rule, advice = "must have scores for every question", "Count them and leave them out"
            raise refuse(self.where, rule, f"got {reasons}", f"{advice}: skip_unparsable=True.")
        if not self.logits:
            rule = "must hold at least one question with scores"
            raise refuse(self.where, rule, f"got {reasons or 'none'}", "Check the log.")
        sizes = np.array([len(row) for row in self.logits])
        width = int(sizes.max())
        check_size(8 * width * len(sizes), self.where)
        scores = np.full((len(sizes), width), -np.inf)
        scores[np.arange(width) < sizes[:, None]] = np.concatenate(self.logits)
        notes = []
        if left:
            notes.append(f"{left:,} of {left + len(sizes):,} questions are left out: {reasons}.")
        if sizes.min() < width:
            notes.append(
                f"Questions have {sizes.min()} to {width} options; absent ones have probability 0."
            )
        arrays: dict[str, Any] = {
            "logits": scores,
            "labels": np.array(self.labels, dtype=np.int64),
            CLUSTERS: text_array(self.documents, self.where),
            f"{GROUP_PREFIX}task": text_array(self.tasks, self.where),
        }
        return Columns(arrays, layout.classes, meta | ({FILE_NOTES: notes} if notes else {}))
