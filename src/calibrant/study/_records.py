"""A training and its evaluation as frozen records with a key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from calibrant.calibrators import Calibrator, ConfidNet, TrustScore, make_calibrator
from calibrant.data._folder import own_path
from calibrant.metrics import get_metric
from calibrant.predictions import Confidences, Predictions

NONE = "none"
# These learn from what the last layer of the network sees, so the features are kept for them.
FROM_FEATURES: dict[str, type[ConfidNet | TrustScore]] = {
    "confidnet": ConfidNet,
    "trust_score": TrustScore,
}


@dataclass(frozen=True)
class Run:
    """One training run: everything that determines its weights, and a label for its objective.

    Two runs with the same ``key`` are the same run, in every study. ``fingerprint`` is the hash of
    the user's own data file, so that a changed file is another run.
    """

    data: str
    model: str
    objective: str
    seed: int
    recipe: Mapping[str, Any]
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    calibration: float = 0.2
    train_size: int | None = None
    precision: str = "fp32"
    telemetry: bool = False
    fingerprint: str = ""
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Sixteen hexadecimal digits of the sha256 of everything but the label."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "label"}
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def data_key(self) -> str:
        """The same for runs on the same data."""
        return f"{self.data} {sorted(self.data_options.items())}"

    @property
    def name(self) -> str:
        """What tables call the objective."""
        return self.label or self.objective

    def __str__(self) -> str:
        return f"{self.data}, {self.model}, {self.name}, seed {self.seed}"


@dataclass(frozen=True)
class Evaluation:
    """What is computed from the kept logits: calibrators, metrics, shifted test sets.

    Calibrators and metrics are tables with a name and options, by label.
    """

    calibrators: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, Mapping[str, Any]]
    shifts: tuple[str, ...]

    def make(self, label: str) -> Calibrator | ConfidNet | TrustScore | None:
        """A new calibrator, or None for none."""
        spec = dict(self.calibrators[label])
        name = spec.pop("name")
        if name in FROM_FEATURES:
            return FROM_FEATURES[name](**spec)
        return None if name == NONE else make_calibrator(name, spec)

    def from_features(self, label: str) -> bool:
        """Whether a calibrator learns from features."""
        return self.calibrators[label]["name"] in FROM_FEATURES

    def joined(self, held: Mapping[str, Any]) -> Evaluation:
        """Add what a result file already holds, so that results only grow."""
        shifts = [*self.shifts, *(s for s in held.get("shifts", ()) if s not in self.shifts)]
        return Evaluation(
            {**held.get("calibrators", {}), **self.calibrators},
            {**held.get("metrics", {}), **self.metrics},
            tuple(shifts),
        )

    def values(self, p: Predictions | Confidences) -> dict[str, float]:
        """Every metric by label; of confidences those that need no more than these."""
        found = {}
        for label, spec in self.metrics.items():
            metric = get_metric(spec["name"])
            if metric.top_label or isinstance(p, Predictions):
                found[label] = float(metric.function(p, **without_name(spec)))
        return found


def without_name(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "name"}


def fingerprint(name: str) -> str:
    """Hash of a file of the user's own, "" for a data set by name or a file that is not here."""
    if not name.endswith(".npz") or not (path := own_path(name)).is_file():
        return ""
    facts = path.stat()
    return _digest(path.resolve(), facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, _size: int, _changed: int) -> str:
    """Hash of a file: every run of a study asks for it, and it changes with size or time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
