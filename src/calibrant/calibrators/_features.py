"""Base class of calibrators that need a classifier's features: fit, transform, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from calibrant._core.arrays import Float, Float64, to_floats
from calibrant._core.checks import InputError, NotFittedError, near_name, refuse
from calibrant.calibrators._arguments import check_predictions, check_same_classes
from calibrant.calibrators._base import Learner
from calibrant.calibrators._json import (
    check_class_names,
    check_envelope,
    check_num_classes,
    encode,
    read_json,
    write_envelope,
)
from calibrant.predictions import Confidences, Predictions

FILE_SCHEMA = "calibrant.feature_calibrator"
VERSION = 1
FIELDS = {"schema", "version", "package", "method", "params", "num_classes", "classes", "learned"}
# The square of a difference of features must be finite in float64.
LARGEST_FEATURE = 1e100


class FeatureCalibrator(Learner):
    """Base class of calibrators that compute a new confidence from a classifier's features.

    Subclasses are dataclasses: the constructor stores, ``fit`` validates and fits, and fitted
    attributes end in ``_``. They implement ``check``, ``_learn``, ``_confidence`` and the two
    directions of JSON.
    """

    needs_features: ClassVar[bool] = True

    num_features_: int
    num_classes_: int
    classes_: tuple[str, ...] | None

    def fit(self, p: Predictions, *, features: Any) -> Self:
        """Fit to predictions with labels.

        Parameters
        ----------
        p
            Predictions of the classifier.
        features
            Shape (N, D), the inputs of its last layer: NumPy or torch.
        """
        return self._fitted(p, features, self._learn)

    def _fitted(
        self, p: Predictions, features: Any, learn: Callable[[Predictions, Float], None]
    ) -> Self:
        check_predictions(p)
        self.check()
        array = check_features(features, p.num_samples)
        self.forget()
        learn(p, array)
        self.num_features_ = array.shape[1]
        self.num_classes_, self.classes_ = p.num_classes, p.classes
        return self

    def transform(self, p: Predictions, *, features: Any) -> Confidences:
        """Return the new confidence in the class ``p`` predicts."""
        array = self._usable(p, features)
        return Confidences(confidence=self._confidence(p, array), correct=p.correct, meta=p.meta)

    @property
    def is_fitted(self) -> bool:
        """Whether ``transform`` can be called."""
        return "num_features_" in vars(self)

    def save(self, path: str | Path) -> None:
        """Write the fitted calibrator as JSON; ``load`` reads it."""
        self._need_fit()
        content = {
            "method": type(self).__name__,
            "params": {name: encode(value) for name, value in self.params().items()},
            "num_classes": self.num_classes_,
            "classes": self.classes_,
            "learned": {name: encode(value) for name, value in self._learned().items()},
        }
        write_envelope(path, FILE_SCHEMA, VERSION, content, indent=None)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote. The file is data: nothing in it is executed."""
        found = load_feature_calibrator(path)
        if not isinstance(found, cls):
            kind = type(found).__name__
            rule = f"must hold a {cls.__name__}"
            raise refuse(Path(path).name, rule, f"got a {kind}", f"Use {kind}.load(…).")
        return found

    def _need_fit(self) -> None:
        if not self.is_fitted:
            name = type(self).__name__
            advice = "call fit(predictions, features=…) first"
            raise NotFittedError(f"{name} is not fitted yet; {advice}.")

    def _usable(self, p: Predictions, features: Any) -> Float:
        """The features, if they and ``p`` match the fit."""
        self._need_fit()
        check_predictions(p)
        check_same_classes(p, self.num_classes_, self.classes_)
        array = check_features(features, p.num_samples)
        if array.shape[1] != self.num_features_:
            rule = f"must have {self.num_features_} columns like those of the fit"
            advice = "Take them from the same layer."
            raise refuse("features", rule, f"got {array.shape[1]}", advice)
        return array

    def check(self) -> None:
        """Validate the parameters."""
        raise NotImplementedError

    def _learn(self, p: Predictions, features: Float) -> None:
        raise NotImplementedError

    def _confidence(self, p: Predictions, features: Float) -> Float64:
        raise NotImplementedError

    def _learned(self) -> Mapping[str, Any]:
        """What is written to a file."""
        raise NotImplementedError

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        """Set what a file holds, checked; also ``num_features_``."""
        raise NotImplementedError


def check_features(features: Any, num_samples: int) -> Float:
    """Return features as an array (N, D) of finite floats."""
    array = to_floats(features, "features")
    if array.ndim != 2 or len(array) != num_samples or array.shape[1] == 0:  # noqa: PLR2004
        rule = f"must have shape ({num_samples}, D): one row per sample"
        raise refuse(
            "features", rule, f"got shape {array.shape}", "Flatten each sample's features."
        )
    # A NaN makes both comparisons false.
    if not (float(array.min()) >= -LARGEST_FEATURE and float(array.max()) <= LARGEST_FEATURE):
        wide = array.astype(np.float64)
        row, column = np.argwhere(~(np.abs(wide) <= LARGEST_FEATURE))[0]
        rule = f"must be finite, at most {LARGEST_FEATURE:g} in size"
        got = f"got {wide[row, column]:g} in row {row}"
        raise refuse("features", rule, got, "Drop such samples, or fix the model.")
    return array


# --- files ------------------------------------------------------------------------------------


def load_feature_calibrator(path: str | Path) -> FeatureCalibrator:
    """Read a ConfidNet or TrustScore from JSON, every value checked."""
    return read_json(path, read)


def read(data: Any) -> FeatureCalibrator:
    """A ConfidNet or TrustScore from plain data."""
    # These import this module.
    from calibrant.calibrators._confidnet import ConfidNet
    from calibrant.calibrators._trust_score import TrustScore

    check_envelope(data, FILE_SCHEMA, VERSION, FIELDS)
    known: dict[str, type[FeatureCalibrator]] = {"ConfidNet": ConfidNet, "TrustScore": TrustScore}
    name, params, learned = data["method"], data["params"], data["learned"]
    if name not in known:
        raise InputError(f"method {name!r} is unknown. {near_name(str(name), known)}")
    if not isinstance(params, dict) or not isinstance(learned, dict):
        raise InputError("params and learned must be objects.")
    kind = known[name]
    found = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in params.items()})
    found.check()
    found.forget()
    classes = check_num_classes(data["num_classes"])
    if classes is None:
        raise InputError("num_classes must be a whole number of at least 2; got null.")
    found.num_classes_, found.classes_ = classes, check_class_names(data["classes"], classes)
    names = {f.name for f in dataclasses.fields(kind) if not f.init}  # type: ignore[arg-type]
    if set(learned) != names:
        raise InputError(f"learned must hold {', '.join(sorted(names))}.")
    found._set_learned(learned)
    return found


def numbers_of(learned: Mapping[str, Any], name: str, shape: tuple[int | None, ...]) -> Float64:
    """A list of finite numbers as an array; None means any size but 0."""
    array = np.asarray(learned[name])
    if array.dtype.kind not in "iuf" or array.ndim != len(shape) or not np.isfinite(array).all():
        raise InputError(f"{name} must hold finite numbers in {len(shape)} dimensions.")
    pairs = zip(array.shape, shape, strict=True)
    if array.size == 0 or not all(want in (None, size) for size, want in pairs):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} must have shape ({wanted}); got {array.shape}.")
    return array.astype(np.float64)
