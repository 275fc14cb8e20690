"""Base class of all calibrators: fit, transform, groups, weights, export."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, over_chunks, to_floats, to_numpy
from calibrant._core.checks import CalibrationWarning, InputError, NotFittedError, refuse
from calibrant._scores import Scores
from calibrant.calibrators._ops import NumpyOps
from calibrant.calibrators._scores import logit_chunk
from calibrant.predictions import Predictions

# Scores give scores, predictions give predictions.
Record = TypeVar("Record", bound=Scores)
# Weights that sum to no more are shares, not counts.
ONE_SAMPLE = 1 + 1e-6


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
    learned: ClassVar[Mapping[str, tuple[str | int, ...]]] = {}
    """Names and shapes of the fitted attributes; K is the number of classes."""

    num_classes_: int | None
    classes_: tuple[str, ...] | None
    groups_: dict[str, Self]

    # --- fit ----------------------------------------------------------------------------------

    def fit(self, p: Predictions, *, weights: Any = None, groups: Any = None) -> Self:
        """Fit to predictions with labels.

        Parameters
        ----------
        p
            Predictions for samples that the model was not trained on.
        weights
            Shape (N,), how often each sample counts: a weight of 2 is the same as including the
            sample twice. Penalties and priors count as a fixed number of samples, so weights that
            are meant as ratios should have a mean of 1.
        groups
            Shape (N,), a name or integer per sample. One calibrator is fitted per group
            (``groups_`` holds them by name), and ``transform`` then needs the groups too.
        """
        check_predictions(p)
        self.check()
        self.forget()
        share = _check_weights(weights, p.num_samples)
        if groups is None:
            self._learn(p, share)
        else:
            names = _check_groups(groups, p.num_samples)
            found = {}
            for name, mask in _members(names):
                part = self.clone()
                part.fit_part(p.take(mask), None if share is None else share[mask])
                found[name] = part
            self.groups_ = found
        self._remember(p)
        return self

    def fit_part(self, p: Predictions, weights: Float64 | None) -> Self:
        """Fit to checked predictions: for folds, groups and steps."""
        self.check()
        self.forget()
        if weights is not None and not weights.any():
            rule, got = "must not be all 0 in a group, or outside a fold", "got only zeros"
            raise refuse("weights", rule, got, "Drop samples that should not count.")
        self._learn(p, weights)
        self._remember(p)
        return self

    def _remember(self, p: Predictions) -> None:
        self.num_classes_, self.classes_ = p.num_classes, p.classes

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
        """Return calibrated scores, or calibrated predictions for predictions.

        Labels are carried over but not used.
        """
        self._need_fit()
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

    def fit_transform(self, p: Predictions, *, weights: Any = None) -> Predictions:
        """Fit on predictions and return them calibrated; optimistic, as the labels were used."""
        return self.fit(p, weights=weights).transform(p)

    def _apply_by_group(self, p: Scores, groups: Any) -> Float:
        if groups is None:
            advice = "Pass groups=… with one name per sample."
            raise refuse(
                "groups", "is required for a calibrator fitted with groups", "got none", advice
            )
        names = _check_groups(groups, p.num_samples)
        unknown = [name for name, _ in _members(names) if name not in self.groups_]
        if unknown:
            rule = f"must be among the groups of the fit ({', '.join(self.groups_)})"
            raise refuse("groups", rule, f"got {unknown[0]!r}", "Fit with samples of every group.")
        return put_together(
            [(mask, self.groups_[name].apply(p.take(mask))) for name, mask in _members(names)]
        )

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
                    out[rows] = self.forward(NumpyOps, z, learned)
                _tidy(out[rows], z, keep=self.keeps_argmax, gives=self.gives)

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
        if "groups_" in vars(self):
            raise InputError(
                "A calibrator fitted with groups cannot be exported as one; export each group: "
                "c.groups_[name].to_onnx(…)."
            )


def _cloned(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_cloned(item) for item in value)
    return value.clone() if isinstance(value, Learner) else value


def put_together(parts: list[tuple[Bool, Float]]) -> Float:
    """One matrix from row masks and the rows."""
    mask, first = parts[0]
    scores = np.empty((len(mask), first.shape[1]), dtype=first.dtype)
    for mask, part in parts:
        scores[mask] = part
    return scores


def check_predictions(p: object) -> None:
    """Reject inputs without the scores of all classes."""
    if not isinstance(p, Predictions):
        rule, advice = "must be Predictions", "Build Predictions(logits=…, labels=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)


def check_scores(p: object) -> None:
    """Reject inputs without the scores of all classes."""
    if not isinstance(p, Scores):
        rule, advice = "must be Scores or Predictions", "Build Scores(logits=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)


def check_same_classes(p: Scores, num_classes: int | None, classes: tuple[str, ...] | None) -> None:
    """Reject predictions whose classes differ from those of the fit."""
    if num_classes not in (None, p.num_classes):
        rule = f"must have {num_classes} classes, like the data of the fit"
        raise refuse("p", rule, f"got {p.num_classes}", "Fit a calibrator for each model.")
    if classes and p.classes and classes != p.classes:
        pair = next(x for x in zip(classes, p.classes, strict=True) if x[0] != x[1])
        rule = "must have the class names of the fit, in the same order"
        got = f"got {pair[1]!r} where the fit had {pair[0]!r}"
        raise refuse("p", rule, got, "Reorder the columns.")


def _tidy(out: Float, z: Float, *, keep: bool, gives: str) -> None:
    """Undo rounding: overflowing logits, and ties that would change the argmax."""
    if gives == "logits":
        limit = np.finfo(out.dtype).max
        np.minimum(out, limit, out=out)
        low = np.isneginf(out)
        if low.any():
            out[low & ~np.isneginf(z)] = -limit
    if keep:
        top = z.argmax(axis=1)
        moved = np.flatnonzero(out.argmax(axis=1) != top)
        if len(moved):
            high = out[moved].max(axis=1)
            out[moved, top[moved]] = np.nextafter(high, np.inf, dtype=out.dtype)


def _check_weights(weights: Any, num_samples: int) -> Float64 | None:
    """Weights as float64."""
    if weights is None:
        return None
    array = to_floats(weights, "weights").astype(np.float64)
    if array.shape != (num_samples,):
        rule = f"must have shape ({num_samples},): one weight per sample"
        raise refuse(
            "weights",
            rule,
            f"got shape {array.shape}",
            "Check that both come from the same data set.",
        )
    total = float(array.sum())
    if not (array >= 0).all() or not 0 < total < math.inf:
        rule = "must be finite, not negative, and not all 0"
        got = f"got {array.min():.6g} … {array.max():.6g}"
        raise refuse("weights", rule, got, "Drop samples that should not count.")
    if total <= ONE_SAMPLE < num_samples:
        warnings.warn(
            f"weights sum to {total:.3g}, so all samples together count as one. If only their "
            f"ratios matter, multiply them by {num_samples / total:.3g}: their mean is then 1.",
            CalibrationWarning,
            stacklevel=3,
        )
    return array


def _check_groups(groups: Any, num_samples: int) -> Any:
    """One name per sample, as strings."""
    array = to_numpy(groups, "groups")
    if array.shape != (num_samples,) or array.dtype.kind not in "biuUS":
        rule = f"must have shape ({num_samples},): one name or integer per sample"
        got = f"got shape {array.shape} of {array.dtype}"
        raise refuse("groups", rule, got, "Convert numbers with fractions to names.")
    return array.astype(np.str_)


def _members(names: Any) -> Iterator[tuple[str, Bool]]:
    found, number = np.unique(names, return_inverse=True)
    for k, name in enumerate(found):
        yield str(name), number == k
