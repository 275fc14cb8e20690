"""The classifier around classifiers: against scikit-learn's rules, its own results, and by hand."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    LeaveOneGroupOut,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

from calibrant import InputError, Predictions
from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import (
    CALIBRATORS,
    TemperatureScaling,
    VectorScaling,
    select_calibrator,
)
from calibrant.cli._calibration import calibrate_files
from calibrant.report._advice import advise
from calibrant.report._settings import Settings
from calibrant.sklearn import CalibratedClassifier


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine the threads of BLAS wait for each other, 4 ms per step of L-BFGS."""
    with threadpool_limits(1):
        yield


FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


def sample(num_classes: int, seed: int = 0, num_samples: int = 500) -> tuple[Any, Any]:
    return make_classification(
        num_samples, 8, n_informative=5, n_classes=num_classes, flip_y=0.1, random_state=seed
    )


X3, Y3 = sample(3)
X2, Y2 = sample(2, seed=1)
NAMES = np.array(["zebra", "ant", "mole"])


def close(got: Any, want: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


# --- scikit-learn's rules ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [None, *(pytest.param(e, marks=pytest.mark.slow) for e in (GaussianNB(), LinearSVC()))],
    ids=repr,
)
def test_scikit_learns_own_checks(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # some of its data are separable
        results = check_estimator(CalibratedClassifier(estimator), on_skip=None)
    assert len(results) > 50
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= {"check_array_api_input"}  # runs only where SCIPY_ARRAY_API is set


def test_tags_are_those_of_the_classifier() -> None:
    assert get_tags(CalibratedClassifier()).input_tags.sparse
    assert not get_tags(CalibratedClassifier(GaussianNB())).input_tags.sparse
    assert get_tags(CalibratedClassifier(SVC(kernel="precomputed"))).input_tags.pairwise
    assert get_tags(CalibratedClassifier(FrozenEstimator(LogisticRegression()))).input_tags.sparse


def test_a_kernel_matrix_is_cut_on_both_sides() -> None:
    kernel = X3 @ X3.T
    model = CalibratedClassifier(SVC(kernel="precomputed", C=0.1)).fit(kernel, Y3)
    want = CalibratedClassifier(SVC(kernel="linear", C=0.1)).fit(X3, Y3)
    close(model.predict_proba(kernel), want.predict_proba(X3), 1e-6)


# --- the same by hand -------------------------------------------------------------------------


def test_auto_is_the_same_choice_behind_every_door(tmp_path: Path) -> None:
    X, y = X3[:200], Y3[:200]  # each door selects for itself, which takes seconds of more
    held_out = cross_val_predict(GaussianNB(), X, y, cv=FOLDS, method="predict_proba")
    p = Predictions(probs=held_out, labels=y)
    p.save(tmp_path / "p.npz")
    selection = select_calibrator(p)
    assert selection.chosen != "none"  # where nothing is chosen, every door would agree
    by_command = calibrate_files(fit=tmp_path / "p.npz", replicates=20).selection
    assert str(by_command) == str(selection)
    settings = Settings(level=0.95, replicates=20, seed=0)
    assert advise(p, None, settings).chosen == selection.chosen
    model = CalibratedClassifier(GaussianNB(), method="auto").fit(X, y)
    scores = Predictions(probs=GaussianNB().fit(X, y).predict_proba(X), labels=y)
    close(model.predict_proba(X), selection.calibrator.transform(scores).probs)


@pytest.mark.parametrize("method", CALIBRATORS)
@pytest.mark.parametrize(("X", "y"), [(X2, Y2), (X3, Y3)], ids=["binary", "three classes"])
@pytest.mark.filterwarnings("ignore::calibrant._core.checks.CalibrationWarning")
def test_every_method_is_the_calibrator_on_held_out_scores(method: str, X: Any, y: Any) -> None:
    model = CalibratedClassifier(GaussianNB(), method=method).fit(X, y)
    held_out = cross_val_predict(GaussianNB(), X, y, cv=FOLDS, method="predict_proba")
    calibrator = CALIBRATORS[method]().fit(Predictions(probs=held_out, labels=y))
    scores = GaussianNB().fit(X, y).predict_proba(X)
    want = calibrator.transform(Predictions(probs=scores, labels=y))
    close(model.predict_proba(X), want.probs)
    close(model.predict_log_proba(X), want.log_probs)
    assert (model.predict(X) == want.probs.argmax(axis=1)).all()
    assert np.abs(model.predict_proba(X) - scores).max() > 1e-3


def test_scores_of_training_samples_are_not_used() -> None:
    overfit = KNeighborsClassifier(1)  # always right on its own data
    model = CalibratedClassifier(overfit, method=VectorScaling()).fit(X3, Y3)
    assert model.predict_proba(X3).max() < 0.95


def test_any_partition_gives_what_cross_val_predict_gives() -> None:
    splits = list(StratifiedKFold(3).split(X3, Y3))
    held_out = cross_val_predict(LogisticRegression(), X3, Y3, cv=splits, method="predict_proba")
    want = TemperatureScaling().fit(Predictions(probs=held_out, labels=Y3)).temperature_
    for cv in (splits, StratifiedKFold(3)):
        model = CalibratedClassifier(cv=cv).fit(X3, Y3)
        close(model.calibrator_.temperature_, want)


def test_folds_may_overlap_and_leave_samples_out() -> None:
    repeated = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    model = CalibratedClassifier(cv=repeated).fit(X3, Y3)
    rows, probs = [], []
    for train, test in repeated.split(X3, Y3):
        rows.append(test)
        probs.append(LogisticRegression().fit(X3[train], Y3[train]).predict_proba(X3[test]))
    p = Predictions(probs=np.concatenate(probs), labels=Y3[np.concatenate(rows)])
    close(model.calibrator_.temperature_, TemperatureScaling().fit(p).temperature_, 1e-9)


def test_temperature_is_that_of_scikit_learn() -> None:
    # It reads decision_function, here the logits whose softmax predict_proba is: the same
    # probabilities at every temperature.
    train, rest = slice(0, 250), slice(250, None)
    for X, y in ((X3, Y3), sample(5, seed=3), (X2, Y2)):
        clf = LogisticRegression(C=100).fit(X[train] ** 3, y[train])
        want = CalibratedClassifierCV(FrozenEstimator(clf), method="temperature")
        want.fit(X[rest] ** 3, y[rest])
        model = CalibratedClassifier(clf, cv="prefit").fit(X[rest] ** 3, y[rest])
        close(model.predict_proba(X**3), want.predict_proba(X**3), 1e-5)
        assert abs(model.calibrator_.temperature_ - 1) > 0.05


def test_weights_reach_both() -> None:
    weights = np.random.default_rng(0).integers(0, 4, len(Y3))
    splits = list(FOLDS.split(X3, Y3))
    model = CalibratedClassifier(GaussianNB(), cv=splits).fit(X3, Y3, sample_weight=weights)
    held_out = np.empty((len(Y3), 3))
    for train, test in splits:
        part = GaussianNB().fit(X3[train], Y3[train], sample_weight=weights[train])
        held_out[test] = part.predict_proba(X3[test])
    p = Predictions(probs=held_out, labels=Y3)
    close(model.calibrator_.temperature_, TemperatureScaling().fit(p, weights=weights).temperature_)
    whole = GaussianNB().fit(X3, Y3, sample_weight=weights)
    close(model.estimator_.predict_proba(X3), whole.predict_proba(X3))
    assert model.calibrator_.temperature_ != TemperatureScaling().fit(p).temperature_


def test_weights_the_classifier_cannot_take_are_announced() -> None:
    weights = np.linspace(0, 2, len(Y3))
    lda = LinearDiscriminantAnalysis()
    with pytest.warns(CalibrationWarning, match=r"Analysis\.fit takes no sample_weight"):
        weighted = CalibratedClassifier(lda).fit(X3, Y3, sample_weight=weights)
    plain = CalibratedClassifier(lda).fit(X3, Y3)
    assert weighted.calibrator_.temperature_ != plain.calibrator_.temperature_


# --- classifiers that are fitted already ------------------------------------------------------


class Untouchable(ClassifierMixin, BaseEstimator):
    """A classifier that must not be fitted again nor copied."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner
        self.classes_ = inner.classes_

    def fit(self, X: Any, y: Any) -> None:
        raise AssertionError("fitted again")

    def __sklearn_clone__(self) -> None:
        raise AssertionError("copied")

    def predict_proba(self, X: Any) -> Any:
        return self.inner.predict_proba(X)


class Foreign:
    """A classifier that is not from scikit-learn; its columns are not sorted."""

    classes_ = ("yes", "no")

    def predict_proba(self, X: Any) -> Any:
        yes = 1 / (1 + np.exp(-3 * np.asarray(X)[:, 0]))
        return np.stack([yes, 1 - yes], axis=1).astype(np.float32)


def test_prefit_takes_the_classifier_as_it_is() -> None:
    inner = GaussianNB().fit(X3[:250], Y3[:250])
    model = CalibratedClassifier(Untouchable(inner), cv="prefit").fit(X3[250:], Y3[250:])
    assert model.estimator_ is model.estimator
    p = Predictions(probs=inner.predict_proba(X3[250:]), labels=Y3[250:])
    want = TemperatureScaling().fit(p).transform(p)
    close(model.predict_proba(X3[250:]), want.probs)


@pytest.mark.parametrize("cv", ["prefit", 5])
def test_frozen_is_prefit(cv: Any) -> None:
    inner = GaussianNB().fit(X3[:250], Y3[:250])
    some = np.flatnonzero(Y3[250:] != 1) + 250  # the calibration set lacks a class
    want = CalibratedClassifier(inner, cv="prefit").fit(X3[some], Y3[some])
    model = CalibratedClassifier(FrozenEstimator(inner), cv=cv)
    for each in (model, clone(model)):
        close(each.fit(X3[some], Y3[some]).predict_proba(X3), want.predict_proba(X3))
        assert each.classes_.tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::calibrant._core.checks.CalibrationWarning")
def test_frozen_needs_no_folds() -> None:
    inner = GaussianNB().fit(X3, Y3)
    few = np.unique(Y3, return_index=True)[1]  # one sample of each class
    model = CalibratedClassifier(FrozenEstimator(inner)).fit(X3[few], Y3[few])
    assert model.predict_proba(X3).shape == (len(X3), 3)


def test_prefit_classifier_from_elsewhere() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.where(X[:, 0] + rng.logistic(size=400) > 0, "yes", "no")
    model = CalibratedClassifier(Foreign(), cv="prefit").fit(X, y)
    assert model.classes_.tolist() == ["yes", "no"]
    assert model.calibrator_.temperature_ == pytest.approx(3, rel=0.3)
    assert (model.predict(X) == np.where(X[:, 0] > 0, "yes", "no")).all()
    assert not hasattr(model, "n_features_in_")


def test_prefit_refuses_what_is_not_fitted() -> None:
    for estimator in (LogisticRegression(), None, FrozenEstimator(GaussianNB())):
        with pytest.raises(InputError, match=r"must be a fitted classifier.*FrozenEstimator"):
            CalibratedClassifier(estimator, cv="prefit").fit(X3, Y3)
    inner = GaussianNB().fit(X3, NAMES[Y3])
    with pytest.raises(InputError, match=r"got 'cow'.*'ant', 'mole', 'zebra'"):
        CalibratedClassifier(inner, cv="prefit").fit(X3, np.where(Y3 > 1, "cow", "ant"))
    with pytest.raises(InputError, match="must have only classes"):
        CalibratedClassifier(inner, cv="prefit").fit(X3, Y3)


# --- scores of all kinds ----------------------------------------------------------------------


def test_decision_values_of_two_classes_are_log_odds() -> None:
    svc = LinearSVC(C=0.1)
    model = CalibratedClassifier(svc).fit(X2, Y2)
    held_out = cross_val_predict(svc, X2, Y2, cv=FOLDS, method="decision_function")
    calibrator = TemperatureScaling().fit(Predictions.from_binary(logits=held_out, labels=Y2))
    p = Predictions.from_binary(logits=svc.fit(X2, Y2).decision_function(X2), labels=Y2)
    close(model.predict_proba(X2), calibrator.transform(p).probs)
    assert (model.predict(X2) == svc.predict(X2)).all()


def test_decision_values_of_many_classes_are_logits() -> None:
    svc = LinearSVC(C=0.1)
    model = CalibratedClassifier(svc, method="vector").fit(X3, NAMES[Y3])
    held_out = cross_val_predict(svc, X3, NAMES[Y3], cv=FOLDS, method="decision_function")
    order = np.argsort(NAMES)
    labels = np.argsort(order)[Y3]
    calibrator = VectorScaling().fit(Predictions(logits=held_out, labels=labels))
    values = svc.fit(X3, NAMES[Y3]).decision_function(X3)
    p = calibrator.transform(Predictions(logits=values, labels=labels))
    close(model.predict_proba(X3), p.probs)


def test_log_probabilities_are_used_where_there_is_nothing_else() -> None:
    class LogOnly(GaussianNB):
        @property
        def predict_proba(self) -> Any:
            raise AttributeError

        def predict_log_proba(self, X: Any) -> Any:
            return np.log(GaussianNB().fit(X3, Y3).predict_proba(X))

    model = CalibratedClassifier(LogOnly().fit(X3, Y3), cv="prefit").fit(X3, Y3)
    want = CalibratedClassifier(GaussianNB().fit(X3, Y3), cv="prefit").fit(X3, Y3)
    close(model.predict_proba(X3), want.predict_proba(X3), 1e-9)


def test_scores_without_a_column_for_each_class_are_refused() -> None:
    X, y = sample(4, seed=2)
    with pytest.raises(InputError, match=r"each of its 4 classes; got shape \(\d+, 6\)"):
        CalibratedClassifier(SVC(decision_function_shape="ovo")).fit(X, y)

    class Labels(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(3)

    with pytest.raises(InputError, match=r"must have predict_proba, .*got Labels"):
        CalibratedClassifier(Labels(), cv="prefit").fit(X3, Y3)


# --- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [NAMES, np.array([40, -7, 3]), NAMES.astype(object), np.array([0.0, 5.0, 2.0])]
)
def test_labels_of_any_kind(names: Any) -> None:
    plain = CalibratedClassifier().fit(X3, Y3)
    model = CalibratedClassifier().fit(X3, names[Y3])
    assert model.classes_.tolist() == sorted(names.tolist())
    columns = [model.classes_.tolist().index(name) for name in names.tolist()]
    close(model.predict_proba(X3)[:, columns], plain.predict_proba(X3), 1e-5)
    assert model.predict(X3).dtype == names.dtype
    assert model.score(X3, names[Y3]) == pytest.approx(plain.score(X3, Y3), abs=0.005)
    assert model.score(X3, names[Y3]) > 0.6


class InOrderOfAppearance(GaussianNB):
    """The columns are in the order in which the classes come up, another in each fold."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        super().fit(X, y)
        first = np.unique(y, return_index=True)[1]
        self.order = np.argsort(first)
        self.classes_ = self.classes_[self.order]
        return self

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X)[:, self.order]


def test_folds_may_order_the_classes_as_they_like() -> None:
    turns = np.argsort(pd.Series(Y3).groupby(Y3).cumcount(), kind="stable")  # a class each in turn
    X, names = X3[turns], NAMES[Y3[turns]]
    orders = {tuple(pd.unique(names[train])) for train, _ in FOLDS.split(X, names)}
    assert len(orders) > 1
    model = CalibratedClassifier(InOrderOfAppearance(), method="vector").fit(X, names)
    want = CalibratedClassifier(GaussianNB(), method="vector").fit(X, names)
    assert model.classes_.tolist() == list(pd.unique(names))
    assert model.classes_.tolist() != want.classes_.tolist()
    columns = np.searchsorted(want.classes_, model.classes_)
    close(model.predict_proba(X), want.predict_proba(X)[:, columns], 1e-6)
    assert (model.predict(X) == want.predict(X)).all()


def test_data_frames_and_series() -> None:
    frame = pd.DataFrame(X3, columns=[f"x{k}" for k in range(8)])
    model = CalibratedClassifier().fit(frame, pd.Series(NAMES[Y3], index=np.arange(len(Y3)) + 9))
    assert model.n_features_in_ == 8
    assert model.feature_names_in_.tolist() == list(frame)
    close(model.predict_proba(frame), CalibratedClassifier().fit(X3, NAMES[Y3]).predict_proba(X3))


def test_calibrator_knows_the_names() -> None:
    assert CalibratedClassifier().fit(X3, NAMES[Y3]).calibrator_.classes_ == (
        "ant",
        "mole",
        "zebra",
    )


# --- rare classes -----------------------------------------------------------------------------


def rare(members: int) -> tuple[Any, Any]:
    """Two blobs that overlap; few samples are of a third, far away, whose name is between."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], [60, members, 60])
    centres = {"a": (0, 0), "b": (0, 40), "c": (3, 0)}
    X = rng.normal(size=(len(y), 2)) + [centres[name] for name in y]
    order = rng.permutation(len(y))
    return X[order], y[order]


@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize("estimator", [GaussianNB(var_smoothing=1e-2), LinearSVC()], ids=repr)
@pytest.mark.parametrize("method", ["temperature", "vector"])
@pytest.mark.filterwarnings("ignore:The least populated class")
def test_a_class_with_fewer_members_than_folds(members: int, estimator: Any, method: str) -> None:
    X, y = rare(members)
    model = CalibratedClassifier(estimator, method=method).fit(X, y)
    scores = "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"
    held_out = cross_val_predict(estimator, X, y, cv=FOLDS, method=scores)
    kind = "probs" if scores == "predict_proba" else "logits"
    labels = np.searchsorted(["a", "b", "c"], y)
    calibrator = CALIBRATORS[method]().fit(Predictions(**{kind: held_out}, labels=labels))
    values = getattr(clone(estimator).fit(X, y), scores)(X)
    want = calibrator.transform(Predictions(**{kind: values}, labels=labels))
    close(model.predict_proba(X), want.probs)
    assert (model.predict(X)[y == "b"] == "b").all()


def test_single_members_are_trained_on_and_never_held_out() -> None:
    seen = []

    class Spy(GaussianNB):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            seen.append(("fit", "b" in y, len(y)))
            return super().fit(X, y)

        def predict_proba(self, X: Any) -> Any:
            seen.append(("scores", bool((X > 20).any()), len(X)))
            return super().predict_proba(X)

    X, y = rare(1)
    model = CalibratedClassifier(Spy()).fit(X, y)
    assert seen[0] == ("fit", True, 121)
    assert seen[1::2] == [("fit", True, 97)] * 5
    assert seen[2::2] == [("scores", False, 24)] * 5
    assert 0.5 < model.calibrator_.temperature_ < 2
    assert (model.predict(X)[y == "b"] == "b").all()


@pytest.mark.parametrize("estimator", [GaussianNB(var_smoothing=1e-2), LinearSVC()], ids=repr)
def test_a_class_absent_from_a_training_part_keeps_the_columns(estimator: Any) -> None:
    X, y = rare(6)
    groups = np.random.default_rng(1).integers(0, 3, len(y))
    groups[y == "b"] = 1
    splits = list(LeaveOneGroupOut().split(X, y, groups))
    model = CalibratedClassifier(estimator, cv=splits).fit(X, y)
    assert (model.predict(X)[y == "b"] == "b").all()
    values, labels = [], []
    for train, held_out in splits:
        part = clone(estimator).fit(X[train], y[train])
        test = held_out[np.isin(y[held_out], part.classes_)]
        if hasattr(part, "predict_proba"):
            found = np.log(np.maximum(part.predict_proba(X[test]), np.finfo(float).tiny))
        else:
            found = part.decision_function(X[test])
        if len(part.classes_) == 2:
            if found.ndim == 1:
                found = np.stack([np.zeros(len(found)), found], axis=1)
            found = np.insert(found, 1, found.max(axis=1) - 708, axis=1)
        values.append(found)
        labels.append(np.searchsorted(["a", "b", "c"], y[test]))
    assert [len(found) for found in values] != [len(test) for _, test in splits]
    p = Predictions(logits=np.concatenate(values), labels=np.concatenate(labels))
    close(model.calibrator_.temperature_, TemperatureScaling().fit(p).temperature_, 1e-6)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"at least two classes.*got 1 class"):
        CalibratedClassifier().fit(X3, np.ones(len(X3)))
    with pytest.raises(InputError, match="a class with at least two samples"):
        CalibratedClassifier(GaussianNB()).fit(X3[:3], [0, 1, 2])
    alone = [(np.flatnonzero(Y3 != 2), np.flatnonzero(Y3 == 2))]
    with pytest.raises(InputError, match="must hold out samples of classes that it trains on"):
        CalibratedClassifier(cv=alone).fit(X3, Y3)


# --- in scikit-learn's tools ------------------------------------------------------------------


def test_in_a_pipeline_and_around_one() -> None:
    scaled = StandardScaler().fit_transform(X3)
    inside = make_pipeline(StandardScaler(), CalibratedClassifier()).fit(X3, Y3)
    close(inside.predict_proba(X3), CalibratedClassifier().fit(scaled, Y3).predict_proba(scaled))
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    around = CalibratedClassifier(pipeline).fit(X3, Y3)
    held_out = cross_val_predict(pipeline, X3, Y3, cv=FOLDS, method="predict_proba")
    want = TemperatureScaling().fit(Predictions(probs=held_out, labels=Y3)).temperature_
    close(around.calibrator_.temperature_, want)
    around.set_params(estimator__logisticregression__C=0.001)
    assert around.fit(X3, Y3).calibrator_.temperature_ != want


def test_grid_search_over_the_method() -> None:
    vector = VectorScaling()
    choices = ["temperature", vector, TemperatureScaling(temperature=50.0)]
    grid = {"method": choices, "estimator__var_smoothing": [1e-9, 1e-2]}
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB()), grid, scoring="neg_log_loss", cv=3
    ).fit(X3, Y3)
    scores = search.cv_results_["mean_test_score"]
    flat = [params["method"] is choices[2] for params in search.cv_results_["params"]]
    assert scores[flat].max() == pytest.approx(-np.log(3), abs=0.1)
    assert scores[np.logical_not(flat)].min() > scores[flat].max()
    assert search.best_estimator_.score(X3, Y3) > 0.7
    assert not vector.is_fitted
    assert cross_val_score(search.best_estimator_, X3, Y3, scoring="neg_log_loss").mean() > -0.9


def test_clone_keeps_parameters_and_shares_nothing() -> None:
    method = TemperatureScaling(objective="ece", bins=7)
    model = CalibratedClassifier(GaussianNB(var_smoothing=0.1), method=method, cv=3).fit(X3, Y3)
    assert not method.is_fitted
    copy = clone(model)
    assert not hasattr(copy, "calibrator_")
    assert copy.cv == 3
    assert copy.estimator.var_smoothing == 0.1
    assert copy.method is not method
    assert (copy.method.objective, copy.method.bins) == ("ece", 7)
    close(copy.fit(X3, Y3).predict_proba(X3), model.predict_proba(X3))


def test_a_fitted_calibrator_as_method_is_fitted_afresh() -> None:
    p = Predictions(probs=GaussianNB().fit(X2, Y2).predict_proba(X2), labels=Y2)
    method = TemperatureScaling().fit(p)
    before = method.temperature_
    model = clone(CalibratedClassifier(GaussianNB(), method=method))
    want = CalibratedClassifier(GaussianNB()).fit(X3, Y3)
    close(model.fit(X3, Y3).predict_proba(X3), want.predict_proba(X3))
    CalibratedClassifier(GaussianNB(), method=method).fit(X3, Y3)
    assert method.temperature_ == before
    assert method.num_classes_ == 2


def test_clone_keeps_requests_for_metadata() -> None:
    model = CalibratedClassifier(method=TemperatureScaling())
    with config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
    assert clone(model).get_metadata_routing().fit.requests == {"sample_weight": True}


@pytest.mark.parametrize("method", ["temperature", "vector", "isotonic"])
def test_pickle(method: str) -> None:
    model = CalibratedClassifier(GaussianNB(), method=method).fit(X3, NAMES[Y3])
    data = pickle.dumps(model)
    again = pickle.loads(data)
    assert (again.predict_proba(X3) == model.predict_proba(X3)).all()
    assert (again.predict(X3) == model.predict(X3)).all()
    many = CalibratedClassifier(GaussianNB(), method="temperature")
    sizes = [len(pickle.dumps(many.fit(np.tile(X3, (k, 1)), np.tile(Y3, k)))) for k in (1, 4)]
    assert sizes[1] < sizes[0] + 100  # the data are not in it


def test_same_fit_same_answer() -> None:
    first, second = (CalibratedClassifier(method="vector").fit(X3, Y3) for _ in range(2))
    assert (first.predict_proba(X3) == second.predict_proba(X3)).all()


# --- what is refused --------------------------------------------------------------------------


def test_arguments_are_refused_with_advice() -> None:
    with pytest.raises(InputError, match="Did you mean 'temperature'"):
        CalibratedClassifier(method="temperatur").fit(X3, Y3)
    for method in (TemperatureScaling, 3):
        with pytest.raises(InputError, match="must be a name or a calibrator"):
            CalibratedClassifier(method=method).fit(X3, Y3)
    with pytest.raises(InputError, match=r"cv must be .* 'prefit'; got 'prefitt'"):
        CalibratedClassifier(cv="prefitt").fit(X3, Y3)
    for cv in (1, True, np.int64(0)):
        with pytest.raises(InputError, match="cv must be a whole number from 2"):
            CalibratedClassifier(cv=cv).fit(X3, Y3)
    assert CalibratedClassifier(cv=np.int64(3)).fit(X3, Y3).classes_.tolist() == [0, 1, 2]
    for weights in (-np.ones(len(Y3)), np.zeros(len(Y3))):
        with pytest.raises(InputError, match="must not be negative, nor all zero"):
            CalibratedClassifier().fit(X3, Y3, sample_weight=weights)


def test_a_failed_fit_leaves_nothing() -> None:
    model = CalibratedClassifier(method="nothing")
    with pytest.raises(InputError):
        model.fit(X3, Y3)
    with pytest.raises(NotFittedError):
        model.predict_proba(X3)


# --- imports ----------------------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_calibrant_does_not_import_scikit_learn() -> None:
    assert run("import calibrant, calibrant.cli, sys; print('sklearn' in sys.modules)") == "False\n"


def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import calibrant.sklearn"
    assert "calibrant.sklearn needs scikit-learn 1.6 or later" in run(code)
    assert "'calibrant[sklearn]'" in run(code)
