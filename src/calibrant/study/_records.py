"""A training and its evaluation as frozen records with a key."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from calibrant._core.import_paths import is_import_path, source_hash
from calibrant.calibrators import UNCALIBRATED, Calibrator, ConfidNet, TrustScore, make_calibrator
from calibrant.data._folder import own_path
from calibrant.metrics import get_metric
from calibrant.predictions import Confidences, Predictions

PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(?![\w=])")  # not an option, as in focal:gamma=3
LATER = ("telemetry_samples", "stop", "sources")  # settings of a run that 0.2.0 did not have
# These are fitted to the input of the last layer, so these features are stored.
CONFIDNET = "confidnet"
FROM_FEATURES: dict[str, type[ConfidNet | TrustScore]] = {
    CONFIDNET: ConfidNet,
    "trust_score": TrustScore,
}


@dataclass(frozen=True)
class Run:
    """One training run: everything that determines its weights, and a label for its objective.

    Two runs with the same ``key`` are the same run, in every study. ``fingerprint`` is the hash of
    the user's own data file, so that a changed file is another run. ``calibration`` is a number, a
    fraction or "dev"; ``stop`` holds the options of ``EarlyStopping``; ``sources`` are hashes of
    the user's own code, so that changed code is another run.
    """

    data: str
    model: str
    objective: str
    seed: int
    recipe: Mapping[str, Any]
    data_options: Mapping[str, Any] = field(default_factory=dict)
    model_options: Mapping[str, Any] = field(default_factory=dict)
    calibration: float | str = 0.2
    train_size: int | None = None
    precision: str = "fp32"
    telemetry: bool = False
    fingerprint: str = ""
    label: str = ""
    telemetry_samples: int | None = None
    stop: Mapping[str, Any] | None = None
    sources: str = ""

    @cached_property
    def key(self) -> str:
        """Sixteen hexadecimal digits of the sha256 of everything but the label.

        Settings that came later count only where they are set, so that older runs keep their keys.
        """
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "label"}
        for name in LATER:
            if not facts[name]:
                del facts[name]
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
        return None if name == UNCALIBRATED else make_calibrator(name, spec)

    def from_features(self, label: str) -> bool:
        """Whether a calibrator learns from features."""
        return self.calibrators[label]["name"] in FROM_FEATURES

    def learns_on_training_data(self, label: str) -> bool:
        """Whether a calibrator is trained where the network was, and the hold-out validates it."""
        return bool(self.calibrators[label]["name"] == CONFIDNET)

    def needs_samples(self, label: str) -> bool:
        """Whether a calibrator must be fitted to samples held out."""
        made = self.make(label)
        fixed = made is None or bool(made.is_fitted)
        return not fixed and not self.learns_on_training_data(label)

    def joined(self, held: Mapping[str, Any]) -> Evaluation:
        """Add what a result file already contains, so that no result is lost."""
        shifts = [*self.shifts, *(s for s in held.get("shifts", ()) if s not in self.shifts)]
        return Evaluation(
            {**held.get("calibrators", {}), **self.calibrators},
            {**held.get("metrics", {}), **self.metrics},
            tuple(shifts),
        )

    @property
    def protocols(self) -> dict[str, str]:
        """How some calibrators are fitted and scored, where an older version did otherwise."""
        found = {}
        for label in self.calibrators:
            if self.learns_on_training_data(label):
                found[label] = "trained on the training samples"
            elif is_top_label(self.make(label)):
                found[label] = "top-label metrics of the predicted class"
        return found

    def values_after(
        self, calibrator: Any, p: Predictions, seen: Mapping[str, Any]
    ) -> dict[str, float]:
        """Every metric after a calibrator; ``seen`` are the features, if it needs some.

        Of one that calibrates the confidence of the predicted class only (histogram binning),
        metrics of this confidence take it as it is and leave the prediction alone: that is the
        quantity of wang2021. Metrics of all classes take the probabilities, in which another class
        may come first.
        """
        if calibrator is None:
            return self.values(p)
        found = self.values(calibrator.transform(p, **seen))
        if is_top_label(calibrator):
            found |= self.values(calibrated_top(calibrator, p))
        return found

    def values(self, p: Predictions | Confidences) -> dict[str, float]:
        """Every metric by label; of confidences those that need no more than these."""
        found = {}
        for label, spec in self.metrics.items():
            metric = get_metric(spec["name"])
            if metric.top_label or isinstance(p, Predictions):
                found[label] = float(metric.function(p, **without_name(spec)))
        return found


def is_top_label(calibrator: Any) -> bool:
    """Whether a calibrator has a confidence of its own for the class that the model predicts."""
    return hasattr(calibrator, "confidences") and bool(calibrator.target == "top")


def calibrated_top(calibrator: Any, p: Predictions) -> Predictions | Confidences:
    """What top-label metrics see after a fitted calibrator: the class that the model predicts.

    The confidences of histogram binning and scaling-binning, else the transformed predictions.
    """
    after: Predictions | Confidences
    after = calibrator.confidences(p) if is_top_label(calibrator) else calibrator.transform(p)
    return after


def without_name(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key != "name"}


def sources_of(*names: str) -> str:
    """Hashes of the files that the import paths in some names refer to; "" if there are none."""
    paths = [path for name in names for path in PATH.findall(name) if is_import_path(path)]
    return " ".join(filter(None, map(source_hash, dict.fromkeys(paths))))


def fingerprint(name: str) -> str:
    """Hash of a user's data file; "" for a named data set or a missing file."""
    if not name.endswith(".npz") or not (path := own_path(name)).is_file():
        return ""
    facts = path.stat()
    return _digest(path.resolve(), facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=4096)  # every run asks for all shifts in turn
def _digest(path: Path, _size: int, _changed: int) -> str:
    """Hash of a file, which changes with its size or time."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
