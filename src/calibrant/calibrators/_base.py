"""Base class of all calibrators: fit, transform, groups, weights, export."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, over_chunks
from calibrant._core.checks import InputError, NotFittedError, refuse
from calibrant._scores import Scores
from calibrant.calibrators._arguments import (
    check_groups,
    check_predictions,
    check_same_classes,
    check_scores,
    check_weights,
    members,
    put_together,
    tidy,
)
from calibrant.calibrators._maps import without_absent
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._plain import (
    CONFIDENCE_ONLY,
    as_binary,
    binary_scores,
    check_takes_confidences,
    check_values,
    is_array,
    like_input,
    with_confidences,
)
from calibrant.calibrators._scores import logit_chunk
from calibrant.predictions import Confidences, Predictions

# What goes in comes out: scores give scores, predictions predictions, arrays arrays.
Record = TypeVar("Record")


class Learner:
    """A dataclass whose constructor only stores, and whose fitted attributes end in ``_``."""

    def params(self) -> dict[str, Any]:
        """The constructor arguments."""
        return {f.name: getattr(self, f.name) for f in self.fields()}

    @classmethod
    def option_names(cls) -> list[str]:
        """Names of the constructor's options."""
        return [f.name for f in dataclasses.fields(cls) if f.init]  # type: ignore[arg-type]

    def fields(self) -> list[dataclasses.Field[Any]]:
        return [f for f in dataclasses.fields(self) if f.init]  # type: ignore[arg-type]

    def clone(self) -> Self:
        """Return an unfitted copy with the same parameters."""
        return type(self)(**{name: _cloned(value) for name, value in self.params().items()})

    def forget(self) -> None:
        """Reset the fit."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def __repr__(self) -> str:
        defaults = {f.name: f.default for f in self.fields()}
        changed = {k: v for k, v in self.params().items() if v is not defaults[k]}
        given = ", ".join(f"{k}={v!r}" for k, v in changed.items() if v != defaults[k])
        return f"{type(self).__name__}({given})"


class Calibrator(Learner):
    """Base of all calibrators that turn predictions into predictions.

    Subclasses are dataclasses: the constructor stores, ``fit`` validates and fits, and fitted
    attributes end in ``_``. They implement ``check`` (the parameters), ``_learn`` and
    ``forward``.
    """

    keeps_argmax: bool = False
    """Whether ``transform`` never changes the predicted class."""
    gives: ClassVar[Literal["logits", "probs"]] = "logits"
    of_confidences: ClassVar[bool] = False
    """Whether confidences alone can be calibrated."""
    steady: ClassVar[bool] = False
    """Whether few samples are enough to fit it, however many classes there are."""
    learned: ClassVar[Mapping[str, tuple[str | int, ...]]] = {}
    """Names and shapes of the fitted attributes; K is the number of classes."""

    num_classes_: int | None
    classes_: tuple[str, ...] | None
    groups_: dict[str, Self]

    # --- fit ----------------------------------------------------------------------------------

    def fit(self, p: Predictions | Confidences, *, weights: Any = None, groups: Any = None) -> Self:
        """Fit to predictions with labels, or to confidences alone.

        Parameters
        ----------
        p
            Predictions for samples that the model was not trained on.
        weights
            Shape (N,), how often each sample counts: a weight of 2 is the same as including the
            sample twice. Penalties and priors count as a fixed number of samples, so weights that
            are meant as ratios should have a mean of 1. By default the sampling weights of ``p``,
            divided by their mean.
        groups
            Shape (N,), a name or integer per sample. One calibrator is fitted per group
            (``groups_`` holds them by name), and ``transform`` then needs the groups too.
        """
        self._check_record(p)
        self.check()
        self.forget()
        if weights is None and p.weights is not None:
            weights = p.weights / p.weights.mean()
        share = check_weights(weights, p.num_samples)
        if groups is None:
            self._learn_from(p, share)
        else:
            names = check_groups(groups, p.num_samples)
            found = {}
            for name, mask in members(names):
                part = self.clone()
                part.fit_part(p.take(mask), None if share is None else share[mask])
                found[name] = part
            self.groups_ = found
        self._remember(p)
        return self

    def fit_part(self, p: Predictions | Confidences, weights: Float64 | None) -> Self:
        """Fit to checked predictions: for folds, groups and steps."""
        self.check()
        self.forget()
        if weights is not None and not weights.any():
            rule, got = "must not be all 0 in a group, or outside a fold", "got only zeros"
            raise refuse("weights", rule, got, "Drop samples that should not count.")
        self._learn_from(p, weights)
        self._remember(p)
        return self

    def _remember(self, p: Predictions | Confidences) -> None:
        if isinstance(p, Predictions):
            self.num_classes_, self.classes_ = p.num_classes, p.classes
        else:
            self.num_classes_, self.classes_ = CONFIDENCE_ONLY, None

    def _check_record(self, p: object) -> None:
        if not isinstance(p, Confidences):
            check_predictions(p)
            return
        from calibrant.calibrators._registry import CALIBRATORS

        names = [name for name, kind in CALIBRATORS.items() if kind.of_confidences]
        check_takes_confidences(type(self).__name__, names, takes=self.of_confidences)

    def _learn_from(self, p: Predictions | Confidences, weights: Float64 | None) -> None:
        if isinstance(p, Predictions):
            self._learn(p, weights)
        else:
            self._learn_confidences(p, weights)

    def _learn_confidences(self, c: Confidences, weights: Float64 | None) -> None:
        """Being correct is class 1 of two, by default."""
        self._learn(as_binary(c), weights)

    def map_confidence(self, confidence: Float64) -> Float64:
        """Calibrated confidences, after a fit to confidences alone."""
        p = binary_scores(confidence)
        probs = p.with_scores(self.gives, self.apply(p)).probs[:, 1]
        return probs.astype(np.float64)

    def check(self) -> None:
        """Validate the parameters."""

    def _learn(self, p: Predictions, weights: Float64 | None) -> None:
        raise NotImplementedError

    def check_learned(self) -> None:
        """Reject fitted values, read from a file, that no fit can produce."""

    @property
    def is_fitted(self) -> bool:
        """Whether ``transform`` can be called."""
        return "num_classes_" in vars(self)

    def _need_fit(self) -> None:
        if not self.is_fitted:
            name = type(self).__name__
            raise NotFittedError(f"{name} is not fitted yet; call fit(predictions) first.")

    # --- transform ----------------------------------------------------------------------------

    def transform(self, p: Record, *, groups: Any = None) -> Record:
        """Return what was given, calibrated: predictions, scores, confidences, or plain logits.

        Labels are carried over but not used. Logits of shape (N, K), as a NumPy array or a torch
        tensor, give calibrated logits of the same kind; a calibrator that was fitted to
        confidences alone takes those, of shape (N,).
        """
        self._need_fit()
        answer: Any = self._transformed(p, groups)
        return answer  # type: ignore[no-any-return]

    def _transformed(self, p: Any, groups: Any) -> Any:
        if isinstance(p, Confidences):
            return with_confidences(p, self._confidences(p.confidence, groups))
        if not isinstance(p, Scores) and is_array(p):
            return like_input(p, lambda z: self._of_array(z, groups, "logits"))
        check_scores(p)
        check_same_classes(p, self.num_classes_, self.classes_)
        if "groups_" in vars(self):
            scores = self._apply_by_group(p, groups)
        elif groups is None:
            scores = self.apply(p)
        else:
            advice = "Fit with groups=… as well, or leave it out."
            raise refuse("groups", "needs a calibrator fitted with groups", None, advice)
        return p.with_scores(self.gives, scores)

    def predict_proba(self, p: Any, *, groups: Any = None) -> Any:
        """Calibrated probabilities of logits (N, K) or scores; no labels are needed.

        NumPy in, NumPy out; torch in, torch out. A calibrator that was fitted to confidences alone
        takes confidences of shape (N,).

        >>> from calibrant import Predictions
        >>> from calibrant.calibrators import TemperatureScaling
        >>> p = Predictions(logits=[[3.0, 0.0], [0.0, 4.0], [2.0, 0.0]], labels=[0, 1, 1])
        >>> TemperatureScaling().fit(p).predict_proba([[1.0, 0.0]]).round(2)
        array([[0.6, 0.4]])
        """
        self._need_fit()
        if isinstance(p, Scores):
            return self.transform(p, groups=groups).probs
        return like_input(p, lambda z: self._of_array(z, groups, "probs"))

    def _of_array(self, values: Float, groups: Any, kind: str) -> Float:
        if self.num_classes_ == CONFIDENCE_ONLY:
            return self._confidences(check_values(values), groups)
        found: Float = getattr(self.transform(Scores(logits=values), groups=groups), kind)
        return found

    def _confidences(self, confidence: Float64, groups: Any) -> Float64:
        if self.num_classes_ != CONFIDENCE_ONLY:
            rule = "must be predictions or scores, like those of the fit"
            raise refuse("p", rule, "got confidences", "Fit a calibrator to confidences.")
        if "groups_" not in vars(self):
            return self.map_confidence(confidence)
        parts = self._parts(groups, len(confidence))
        out = np.empty(len(confidence))
        for name, mask in parts:
            out[mask] = self.groups_[name].map_confidence(confidence[mask])
        return out

    def fit_transform(self, p: Predictions, *, weights: Any = None) -> Predictions:
        """Fit on predictions and return them calibrated; optimistic, as the labels were used."""
        return self.fit(p, weights=weights).transform(p)

    def _apply_by_group(self, p: Scores, groups: Any) -> Float:
        parts = self._parts(groups, p.num_samples)
        return put_together(
            [(mask, self.groups_[name].apply(p.take(mask))) for name, mask in parts]
        )

    def _parts(self, groups: Any, num_samples: int) -> list[tuple[str, Bool]]:
        """The samples of each group, all known from the fit."""
        if groups is None:
            advice = "Pass groups=… with one name per sample."
            raise refuse(
                "groups", "is required for a calibrator fitted with groups", "got none", advice
            )
        parts = list(members(check_groups(groups, num_samples)))
        unknown = [name for name, _ in parts if name not in self.groups_]
        if unknown:
            rule = f"must be among the groups of the fit ({', '.join(self.groups_)})"
            raise refuse("groups", rule, f"got {unknown[0]!r}", "Fit with samples of every group.")
        return parts

    def apply(self, p: Scores) -> Float:
        """The calibrated scores, chunk by chunk."""
        exact = self.gives == "probs" or p.scores.dtype == np.float64
        dtype = np.dtype(np.float64 if exact else np.float32)
        learned = self._as(dtype)
        out = np.empty(p.scores.shape, dtype=dtype)

        def work(slices: Iterator[slice]) -> None:
            for rows in slices:
                z = logit_chunk(p, rows, dtype)
                with np.errstate(over="ignore", under="ignore"):
                    out[rows] = self.mapped(NumpyOps, z, learned)
                tidy(out[rows], z, keep=self.keeps_argmax, gives=self.gives)

        over_chunks(work, *out.shape)
        return out

    def _as(self, dtype: np.dtype[Any]) -> Any:
        """The fitted arrays in the precision of the scores."""
        if dtype == np.float64:
            return self
        light = self.clone()
        for name, value in vars(self).items():
            if name.endswith("_"):
                floats = isinstance(value, np.ndarray) and value.dtype.kind == "f"
                setattr(light, name, value.astype(dtype) if floats else value)
        return light

    def mapped(self, ops: Any, z: Any, learned: Any) -> Any:
        """``forward``, where an option with a logit of -inf keeps probability 0."""
        return without_absent(ops, z, self.forward(ops, z, learned), self.gives)

    def forward(self, ops: Any, z: Any, learned: Any) -> Any:
        """The map from logits to calibrated logits or probabilities (``gives`` says which)."""
        raise NotImplementedError

    # --- copies, text -------------------------------------------------------------------------

    def settled(self) -> Self:
        """An unfitted copy with the hyperparameters that this fit chose by cross-validation."""
        return self.clone()

    def num_parameters(self) -> int:
        """Number of fitted parameters."""
        self._need_fit()
        if "groups_" in vars(self):
            return sum(part.num_parameters() for part in self.groups_.values())
        return sum(np.size(getattr(self, name)) for name in self.learned if hasattr(self, name))

    # --- files and other frameworks -----------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted calibrator as JSON; ``calibrant.load_calibrator`` reads it."""
        from calibrant.calibrators._json import write

        self._need_fit()
        write(self, path)

    def to_module(self) -> Any:
        """Return a ``torch.nn.Module`` from logits (N, K) to logits whose softmax is calibrated."""
        from calibrant.calibrators._module import make_module

        self._need_export()
        return make_module(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model from ``logits`` (N, K) to ``probabilities`` (N, K), float32."""
        from calibrant.calibrators._onnx import write

        self._need_export()
        write(self, path)

    def fold_into(self, linear: Any) -> Any:
        """Return a copy of a ``torch.nn.Linear`` whose outputs are the calibrated logits."""
        from calibrant.calibrators._module import fold

        self._need_export()
        weight, bias = self._as_affine()
        return fold(linear, weight, bias)

    def _as_affine(self) -> tuple[Float64, Float64]:
        """Matrix and offset, where calibrated logits are an affine map of the logits."""
        raise InputError(
            f"{type(self).__name__} is not an affine map of the logits, so it cannot be folded "
            "into a linear layer. Use to_module()."
        )

    def _need_export(self) -> None:
        self._need_fit()
        if self.num_classes_ == CONFIDENCE_ONLY:
            raise InputError(
                "A calibrator of confidences alone has no logits to map, so it cannot be exported. "
                "Save it as JSON: c.save(…)."
            )
        if "groups_" in vars(self):
            raise InputError(
                "A calibrator fitted with groups cannot be exported as one; export each group: "
                "c.groups_[name].to_onnx(…)."
            )


def _cloned(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cloned(item) for item in value)
    return value.clone() if isinstance(value, Learner) else value
