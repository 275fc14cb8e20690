"""Calibrators around scikit-learn classifiers."""
# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from calibrant._core.arrays import Float, Float64, Int
from calibrant._core.checks import CalibrationWarning, check_count, near_name, refuse
from calibrant._core.extras import import_extra
from calibrant._core.validation import MIN_CLASSES
from calibrant._scores import Scores
from calibrant.calibrators import AUTO, CALIBRATORS, Calibrator, automatic
from calibrant.predictions import Predictions

# ruff: noqa: E402 - whoever lacks the package reads how to get it, not where an import failed
import_extra("sklearn.frozen", "calibrant.sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import assert_all_finite, check_array, column_or_1d, get_tags, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

FoldIndices = tuple[Int, Int]
# The out-of-fold scores of a fit must not change from run to run.
FOLD_SEED = 0


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier with calibrated probabilities.

    The calibrator sees ``predict_proba`` of the classifier, or else ``predict_log_proba``, or else
    ``decision_function`` as logits.

    Parameters
    ----------
    estimator
        A classifier; ``LogisticRegression()`` if None.
    method
        A name from ``calibrant.calibrators.CALIBRATORS``, a calibrator, which is copied, or
        ``"auto"``, which selects one by cross-validation on the held-out scores.
    cv
        A number of folds (stratified, shuffled by a fixed seed), a scikit-learn splitter, or a list
        of pairs (train, test): the calibrator is fitted on the scores of held-out samples, and the
        classifier then on all samples. ``"prefit"``: the classifier is already fitted and is not
        changed; pass samples it was not trained on. A ``FrozenEstimator`` is always treated as
        fitted.

    Attributes
    ----------
    classes_
        Class labels, in the order of the columns of ``predict_proba``.
    estimator_, calibrator_
        The fitted classifier and the fitted calibrator.
    n_features_in_, feature_names_in_
        Those of the classifier, where it has them.

    Notes
    -----
    A class with fewer members than folds is held out in as many folds as it has members; a single
    member is never held out, so every fold's classifier knows every class. If a user-defined split
    leaves a class out of the training part, that fold gives it probability 0, and its held-out
    members do not inform the calibrator.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = make_classification(400, n_informative=4, n_classes=3, random_state=0)
    >>> model = CalibratedClassifier(GaussianNB(), method="temperature").fit(X, y)
    >>> round(model.calibrator_.temperature_, 2)
    1.9
    >>> model.estimator_.predict_proba(X[:1]).round(3), model.predict_proba(X[:1]).round(3)
    (array([[0.005, 0.105, 0.89 ]]), array([[0.048, 0.234, 0.718]]))
    """

    classes_: Any
    estimator_: Any
    calibrator_: Calibrator

    def __init__(
        self, estimator: Any = None, *, method: str | Calibrator = "temperature", cv: Any = 5
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier (unless it is fitted already) and the calibrator.

        ``sample_weight`` reaches the calibrator, and the classifier if its ``fit`` takes it.
        """
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        X, y = indexable(X, y)
        data = _Data(X, y, _check_weights(sample_weight, len(y)))
        calibrator = None if self.method == AUTO else _new_calibrator(self.method)
        cv = _check_cv(self.cv)
        if isinstance(cv, str) or isinstance(self.estimator, FrozenEstimator):
            model = _check_fitted(self.estimator)
            held_out = data.scored(model)
        else:
            estimator = self._estimator()
            data.check_classes()
            model = data.fitted(estimator)
            held_out = data.out_of_fold(estimator, model, cv)
        weights = None if data.weights is None else data.weights[held_out.rows]
        if calibrator is None:
            calibrator = automatic(held_out.predictions(weights), seed=FOLD_SEED).calibrator
        else:
            calibrator.fit(held_out.predictions(), weights=weights)
        self.estimator_, self.classes_, self.calibrator_ = model, held_out.classes, calibrator
        return self

    def predict_proba(self, X: Any) -> Float:
        """Calibrated probabilities, one column per class of ``classes_``."""
        return self._calibrated(X).probs

    def predict_log_proba(self, X: Any) -> Float:
        """Logarithms of the calibrated probabilities, exact where those underflow."""
        return self._calibrated(X).log_probs

    def predict(self, X: Any) -> Any:
        """The class of the largest calibrated probability."""
        top = self.predict_proba(X).argmax(axis=1)
        return self.classes_[top]

    def _calibrated(self, X: Any) -> Scores:
        check_is_fitted(self)
        kind, values = _scores(self.estimator_, X, self.classes_)
        given: dict[str, Any] = {kind: values}
        scores = Scores(**given, classes=_names(self.classes_))
        return self.calibrator_.transform(scores)

    def _estimator(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    @property
    def n_features_in_(self) -> int:
        """Number of features the classifier was fitted on."""
        count: int = self.estimator_.n_features_in_
        return count

    @property
    def feature_names_in_(self) -> Any:
        """Names of the features the classifier was fitted on."""
        return self.estimator_.feature_names_in_

    def __sklearn_clone__(self) -> Any:
        light = copy.copy(self)
        if isinstance(self.method, Calibrator):  # a fitted classifier must not be cloned
            light.method = self.method.clone()
        return super(CalibratedClassifier, light).__sklearn_clone__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        estimator = self._estimator()
        if hasattr(estimator, "__sklearn_tags__"):  # a fitted classifier may be any object
            inner = get_tags(estimator)
            tags.input_tags = inner.input_tags
            if inner.classifier_tags is not None:
                tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags


@dataclass(frozen=True)
class _Scored:
    """Scores of some rows of the data, from classifiers that did not see them."""

    kind: str
    values: Float
    labels: Int
    rows: Int
    classes: Any

    def predictions(self, weights: Float64 | None = None) -> Predictions:
        """As a record; with weights, those of weight 0 are left out."""
        given: dict[str, Any] = {self.kind: self.values, "labels": self.labels}
        if weights is not None:
            given = {name: array[weights > 0] for name, array in given.items()}
            given["weights"] = weights[weights > 0]
        return Predictions(**given, classes=_names(self.classes))


@dataclass(frozen=True)
class _Data:
    """The arguments of ``fit``."""

    X: Any
    y: Any
    weights: Float64 | None

    def check_classes(self) -> None:
        """Reject fewer than two classes."""
        counted = self.y if self.weights is None else self.y[self.weights > 0]
        found = len(np.unique(counted))
        if found < MIN_CLASSES:
            rule = "must have at least two classes among the samples with weight above 0"
            raise refuse("y", rule, f"got {found} class", "Collect samples of another class.")

    def fitted(self, estimator: Any) -> Any:
        """A copy of the classifier, fitted on all samples."""
        if self.weights is not None and not has_fit_parameter(estimator, "sample_weight"):
            warnings.warn(
                f"{type(estimator).__name__}.fit takes no sample_weight, so the weights are used "
                "for the calibrator only.",
                CalibrationWarning,
                stacklevel=3,
            )
        return self._fit(estimator, np.arange(len(self.y)))

    def _fit(self, estimator: Any, rows: Int) -> Any:
        X, y = _safe_split(estimator, self.X, self.y, rows)
        if self.weights is not None and has_fit_parameter(estimator, "sample_weight"):
            return clone(estimator).fit(X, y, sample_weight=self.weights[rows])
        return clone(estimator).fit(X, y)

    def scored(self, model: Any) -> _Scored:
        """The scores of a fitted classifier."""
        classes = _classes_of(model)
        labels = _positions(self.y, classes)
        kind, values = _scores(model, self.X, classes)
        return _Scored(kind, values, labels, np.arange(len(labels)), classes)

    def out_of_fold(self, estimator: Any, model: Any, cv: Any) -> _Scored:
        """The scores of held-out samples, with the columns of the classifier of all samples."""
        classes = _classes_of(model)
        labels = _positions(self.y, classes)
        splits = _stratified(labels, cv) if isinstance(cv, int) else self._split(cv)
        parts, all_rows, kind = [], [], ""
        for train, test in splits:
            part = self._fit(estimator, train)
            rows = test[np.isin(self.y[test], part.classes_)]  # the others are unknown to it
            if len(rows):
                X, _ = _safe_split(estimator, self.X, self.y, rows, train)
                kind, values = _scores(part, X, classes)
                parts.append(values)
                all_rows.append(rows)
        if not parts:
            rule, got = "must hold out samples of classes that it trains on", "got no such sample"
            raise refuse("cv", rule, got, "Try cv=5.")
        rows = np.concatenate(all_rows)
        order = np.argsort(rows, kind="stable")  # of the data, not of the folds
        rows = rows[order]
        return _Scored(kind, np.concatenate(parts)[order], labels[rows], rows, classes)

    def _split(self, cv: Any) -> list[FoldIndices]:
        every = np.arange(len(self.y))
        splitter = check_cv(cv, self.y, classifier=True)
        return [(every[train], every[test]) for train, test in splitter.split(self.X, self.y)]


def _stratified(labels: Int, num_folds: int) -> list[FoldIndices]:
    """Shuffled folds in which every class is trained on; single members are never held out."""
    size = np.bincount(labels)[labels]
    folds = min(num_folds, int(size.max()))
    if folds == 1:
        rule = "must have a class with at least two samples for folds"
        got, advice = "got 1 sample of each", "Collect more samples, or use cv='prefit'."
        raise refuse("y", rule, got, advice)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=FOLD_SEED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splits = list(splitter.split(labels, labels))
    alone = np.flatnonzero(size == 1)
    return [(np.union1d(train, alone), np.setdiff1d(test, alone)) for train, test in splits]


# --- a classifier's scores --------------------------------------------------------------------


def _scores(model: Any, X: Any, classes: Any) -> tuple[str, Float]:
    """Kind and values of a fitted classifier's scores, one column per class of ``classes``."""
    if hasattr(model, "predict_proba"):
        kind, values = "probs", np.asarray(model.predict_proba(X))
    elif hasattr(model, "predict_log_proba"):
        kind, values = "logits", np.asarray(model.predict_log_proba(X))
    elif hasattr(model, "decision_function"):
        kind, values = "logits", np.asarray(model.decision_function(X))
    else:
        rule = "must have predict_proba, predict_log_proba or decision_function"
        raise refuse("estimator", rule, f"got {type(model).__name__}", "Use another classifier.")
    if values.ndim == 1:  # the log-odds of the second of two classes
        values = np.stack([np.zeros_like(values), values], axis=1)
    own = _classes_of(model)
    if values.ndim != 2 or values.shape[1] != len(own):  # noqa: PLR2004
        rule = f"must give a score for each of its {len(own)} classes"
        got, advice = f"got shape {values.shape}", "For SVC set decision_function_shape='ovr'."
        raise refuse("estimator", rule, got, advice)
    return kind, _aligned(kind, values, _positions(own, classes), len(classes))


def _aligned(kind: str, values: Float, columns: Int, num_classes: int) -> Float:
    """Scores with the columns in their places and those of unknown classes impossible."""
    if np.array_equal(columns, np.arange(num_classes)):
        return values
    zero: Any = 0
    if kind == "logits":  # as calibrators take a probability of 0
        zero = values.max(axis=1, keepdims=True) + np.log(np.finfo(values.dtype).tiny)
    out = np.empty((len(values), num_classes), dtype=values.dtype)
    out[:] = zero
    out[:, columns] = values
    return out


def _names(classes: Any) -> list[str]:
    return [str(name) for name in classes]


def _classes_of(model: Any) -> Any:
    """The labels of the columns of a fitted classifier."""
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) < MIN_CLASSES:
        rule = "must be a classifier of two classes or more, listed in classes_"
        got = f"got {type(model).__name__} with {'none' if classes is None else len(classes)}"
        raise refuse("estimator", rule, got, "Fit a scikit-learn classifier.")
    return np.asarray(classes)


def _positions(y: Any, classes: Any) -> Int:
    """Index of each label in ``classes``."""
    place = {name: k for k, name in enumerate(classes.tolist())}
    found, inverse = np.unique(y, return_inverse=True)
    unknown = [name for name in found.tolist() if name not in place]
    if unknown:
        rule = "must have only classes that the estimator was fitted on"
        raise refuse("y", rule, f"got {unknown[0]!r}", f"It knows {classes.tolist()}.")
    numbers = np.array([place[name] for name in found.tolist()], dtype=np.int64)
    return numbers[inverse]


# --- arguments --------------------------------------------------------------------------------


def _new_calibrator(method: object) -> Calibrator:
    """An unfitted calibrator, not shared with the caller."""
    if isinstance(method, Calibrator):
        return method.clone()
    if not isinstance(method, str):
        got, advice = f"got {method!r}", f"Known: {', '.join(CALIBRATORS)}."
        raise refuse("method", "must be a name or a calibrator", got, advice)
    if method not in CALIBRATORS:
        advice = near_name(method, (AUTO, *CALIBRATORS))
        raise refuse("method", "must name a calibrator", f"got {method!r}", advice)
    return CALIBRATORS[method]()


def _check_cv(cv: Any) -> Any:
    """Return a number of folds, "prefit", or a splitter as it is."""
    if isinstance(cv, str) and cv != "prefit":
        rule = "must be a number of folds, a splitter or 'prefit'"
        raise refuse("cv", rule, f"got {cv!r}", "Try cv=5.")
    if isinstance(cv, str) or not hasattr(cv, "__index__"):
        return cv
    return check_count("cv", cv, least=2, most=1_000_000, example=5)


def _check_fitted(estimator: Any) -> Any:
    """Reject a classifier that is not fitted."""
    if getattr(estimator, "classes_", None) is None:
        rule = "must be a fitted classifier, with classes_, for cv='prefit'"
        advice = "Call its fit first; where clones are made (GridSearchCV …) wrap it: "
        got = f"got {type(estimator).__name__}"
        raise refuse("estimator", rule, got, advice + "FrozenEstimator(estimator).")
    return estimator


def _check_weights(weights: Any, num_samples: int) -> Float64 | None:
    if weights is None:
        return None
    array: Float64 = check_array(
        weights, dtype=np.float64, ensure_2d=False, input_name="sample_weight"
    )
    if array.shape != (num_samples,):
        rule, got = f"must have shape ({num_samples},)", f"got shape {array.shape}"
        raise refuse("sample_weight", rule, got, "Pass one weight per sample.")
    if (array < 0).any() or not array.any():
        rule, got = "must not be negative, nor all zero", f"got {array.min():g} … {array.max():g}"
        raise refuse("sample_weight", rule, got, "Drop samples that should not count.")
    return array
