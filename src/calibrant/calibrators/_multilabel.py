"""One calibrator per label, drawn towards the one that all labels share where a label is rare."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from calibrant._core.arrays import Bool, Float, Float64, to_floats
from calibrant._core.checks import InputError, NotFittedError, check_at_least, check_choice, refuse
from calibrant._core.row_summary import ScoreKind
from calibrant._multilabel import MultiLabel
from calibrant._scores import Scores
from calibrant.calibrators._base import Calibrator, Learner
from calibrant.calibrators._json import check_envelope, from_dict, to_dict, write_envelope
from calibrant.calibrators._registry import CALIBRATORS, make_calibrator
from calibrant.predictions import Predictions

METHODS = ("temperature", "platt", "beta", "isotonic")
FILE_SCHEMA = "calibrant.multilabel_calibrator"
VERSION = 1
FIELDS = {"schema", "version", "package", "method", "shrinkage", "events", "shared", "labels"}
TWO_CLASSES = 2
# Cells of all labels that stand for the shared fit in the fit of a label.
MOST_SHARED = 20_000


@dataclass(eq=False, repr=False, kw_only=True)
class MultiLabelCalibrator(Learner):
    r"""A calibrator per label; a label with few events is drawn towards the shared fit.

    The calibrator of label l minimises

    .. math:: \sum_{i \in l} \ell_i + \frac{\kappa}{E} \sum_{i \in \text{all labels}} \ell_i

    where the first sum is over the samples of which the label is known, the second over the known
    labels of all samples, :math:`E` is the number of events among those, and :math:`\kappa` is
    ``shrinkage``. Events are the rarer of positives and negatives. So all labels together count as
    :math:`\kappa` events beside the label's own :math:`e`: its own data have the weight
    :math:`e / (e + \kappa)` (``weights_``). A label without a single event is, nearly, calibrated
    by the shared fit; one with thousands by its own.

    For the isotonic regression :math:`\ell` is the squared error, else the log loss. Where there
    are more than 20,000 known labels, an evenly spaced choice of them by score, of positives and
    negatives alike, stands for all in the second sum.

    Parameters
    ----------
    method
        ``"temperature"``, ``"platt"``, ``"beta"`` or ``"isotonic"``.
    shrinkage
        :math:`\kappa`: 0 fits every label on its own (labels that are not known for any sample take
        the shared fit), a large number gives all labels the shared one.

    Examples
    --------
    >>> from calibrant import MultiLabel
    >>> p = MultiLabel(logits=[[4, -4], [4, 4], [-4, -4], [4, -4]],
    ...                labels=[[1, 0], [0, 1], [0, 0], [1, 1]])
    >>> c = MultiLabelCalibrator(method="temperature", shrinkage=1).fit(p)
    >>> c.weights_
    array([0.66666667, 0.66666667])
    >>> c.transform(p).probs.round(2)[0]
    array([0.75, 0.25])
    """

    method: str = "platt"
    shrinkage: float = 20.0

    shared_: Calibrator = field(init=False)
    labels_: dict[str, Calibrator] = field(init=False)
    events_: Float64 = field(init=False)

    def check(self) -> None:
        """Validate the parameters."""
        check_choice("method", self.method, METHODS)
        check_at_least("shrinkage", self.shrinkage, 0, example=20)

    # --- fit ------------------------------------------------------------------------------------

    def fit(self, p: MultiLabel) -> Self:
        """Fit to predictions for samples that the model was not trained on."""
        _check_record(p)
        self.check()
        self.forget()
        rows, columns = np.nonzero(p.mask)
        pool = _binary(p, p.scores[rows, columns], p.labels[rows, columns])
        self.shared_ = make_calibrator(self.method).fit(pool)
        rare = events(pool.labels == 1)
        self.events_ = np.array([events(p.labels[p.known(k), k]) for k in range(p.num_labels)])
        few = pool.take(_evenly(pool))
        share = self.shrinkage / max(rare, 1.0) * (len(pool) / len(few))
        self.labels_ = {name: self._fit_label(p, name, few, share) for name in p.names}
        return self

    def _fit_label(self, p: MultiLabel, name: str, pool: Predictions, share: float) -> Calibrator:
        k, rows = p.index(name), p.known(name)
        if not len(rows):
            return self.shared_
        scores, labels = p.scores[rows, k], p.labels[rows, k]
        if share == 0:
            return make_calibrator(self.method).fit(_binary(p, scores, labels))
        both = _binary(
            p,
            np.concatenate([scores, pool.scores[:, 1]]),
            np.concatenate([labels, pool.labels == 1]),
        )
        weights = np.concatenate([np.ones(len(rows)), np.full(len(pool), share)])
        return make_calibrator(self.method).fit(both, weights=weights)

    @property
    def is_fitted(self) -> bool:
        """Whether ``transform`` can be called."""
        return "labels_" in vars(self)

    @property
    def names_(self) -> tuple[str, ...]:
        """The labels of the fit."""
        self._need_fit()
        return tuple(self.labels_)

    @property
    def weights_(self) -> Float64:
        """The weight of each label's own data, e / (e + shrinkage)."""
        self._need_fit()
        total = self.events_ + self.shrinkage
        weights: Float64 = np.divide(self.events_, total, out=np.zeros(len(total)), where=total > 0)
        return weights

    def _need_fit(self) -> None:
        if not self.is_fitted:
            raise NotFittedError("MultiLabelCalibrator is not fitted yet; call fit(p) first.")

    # --- transform ------------------------------------------------------------------------------

    def transform(self, p: MultiLabel) -> MultiLabel:
        """Return calibrated predictions, as log-odds. Labels are carried over but not used."""
        self._need_fit()
        _check_record(p)
        if p.names != self.names_:
            rule = f"must have the labels of the fit ({', '.join(self.names_)})"
            raise refuse("p", rule, f"got {', '.join(p.names)}", "Fit a calibrator for each model.")
        return p.with_scores("logits", self.log_odds(p.kind, p.scores))

    def predict_proba(self, logits: Any) -> Float64:
        """Calibrated probabilities (N, L) of log-odds (N, L), for samples without labels."""
        self._need_fit()
        scores = to_floats(logits, "logits")
        if scores.ndim != TWO_CLASSES or scores.shape[1] != len(self.labels_):
            rule = f"must have shape (N, {len(self.labels_)}): a column per label of the fit"
            raise refuse("logits", rule, f"got shape {scores.shape}", "Check the columns.")
        odds = self.log_odds("logits", scores)
        return 0.5 * (1 + np.tanh(odds / 2))

    def log_odds(self, kind: ScoreKind, scores: Float) -> Float64:
        """Calibrated log-odds, label by label."""
        columns = [
            _log_odds(c.transform(_two_columns(kind, scores[:, k])))
            for k, c in enumerate(self.labels_.values())
        ]
        return np.stack(columns, axis=1)

    def num_parameters(self) -> int:
        """How many numbers were learned, over all labels."""
        self._need_fit()
        return sum(c.num_parameters() for c in self.labels_.values())

    # --- files ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted calibrator as JSON; ``calibrant.load_calibrator`` reads it."""
        self._need_fit()
        content = {
            "method": self.method,
            "shrinkage": self.shrinkage,
            "events": self.events_.tolist(),
            "shared": to_dict(self.shared_),
            "labels": {name: to_dict(c) for name, c in self.labels_.items()},
        }
        write_envelope(path, FILE_SCHEMA, VERSION, content)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model from log-odds (N, L) to probabilities (N, L), both float32.

        Needs ``pip install 'calibrant[onnx]'``. Opset 17; the log-odds may have any finite values.
        """
        from calibrant.calibrators._onnx import write_labels

        self._need_fit()
        write_labels(list(self.labels_.values()), path)


def read(data: Any) -> MultiLabelCalibrator:
    """A multi-label calibrator from plain data, every value checked."""
    check_envelope(data, FILE_SCHEMA, VERSION, FIELDS)
    found = MultiLabelCalibrator(method=data["method"], shrinkage=data["shrinkage"])
    found.check()
    kind = CALIBRATORS[found.method]
    parts = {name: from_dict(part) for name, part in data["labels"].items()}
    shared = from_dict(data["shared"])
    for part in (shared, *parts.values()):
        if type(part) is not kind or not part.is_fitted or part.num_classes_ != TWO_CLASSES:
            raise InputError(f"every label must have a fitted {kind.__name__} of two classes.")
    counts = np.asarray(data["events"])
    if counts.shape != (len(parts),) or counts.dtype.kind not in "if" or not parts:
        raise InputError("events must hold one number per label.")
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise InputError("events must be finite and not negative.")
    found.shared_, found.labels_ = shared, parts
    found.events_ = counts.astype(np.float64)
    return found


def labels_out_of_fold(
    calibrator: MultiLabelCalibrator, p: MultiLabel, folds: int, seed: int
) -> MultiLabel:
    """Every sample calibrated by a fit to the other folds."""
    order = np.random.default_rng(seed).permutation(len(p))
    odds = np.empty(p.scores.shape)
    for held in np.array_split(order, folds):
        rest = np.setdiff1d(order, held)
        fitted = calibrator.clone().fit(p.take(rest))
        odds[held] = fitted.log_odds(p.kind, p.scores[held])
    return p.with_scores("logits", odds)


def events(positive: Bool) -> float:
    """The number of the rarer outcome.

    >>> events(np.array([True, False, False]))
    1.0
    """
    hits = int(positive.sum())
    return float(min(hits, len(positive) - hits))


def _evenly(pool: Predictions) -> Any:
    """All rows, or an evenly spaced choice of them by score, of positives and negatives alike."""
    if len(pool) <= MOST_SHARED:
        return np.arange(len(pool))
    order = np.lexsort((pool.scores[:, 1], pool.labels))
    return order[np.linspace(0, len(pool) - 1, MOST_SHARED).round().astype(np.int64)]


def _binary(p: MultiLabel, scores: Float, labels: Bool) -> Predictions:
    given: dict[str, Any] = {p.kind: scores}
    return Predictions.from_binary(**given, labels=labels.astype(np.int64))


def _two_columns(kind: ScoreKind, scores: Float) -> Scores:
    """The scores of one label for all samples, known or not."""
    wide = scores.astype(np.float64)
    first = 1 - wide if kind == "probs" else np.zeros_like(wide)
    given: dict[str, Any] = {kind: np.stack([first, wide], axis=1)}
    return Scores(**given)


def _log_odds(scores: Scores) -> Float64:
    logs = scores.logits
    odds: Float64 = logs[:, 1] - logs[:, 0]
    return odds


def _check_record(p: object) -> None:
    if not isinstance(p, MultiLabel):
        rule, advice = "must be MultiLabel", "Build MultiLabel(logits=…, labels=…)."
        raise refuse("p", rule, f"got {type(p).__name__}", advice)
