"""Confidence out of a classifier's features: ConfidNet and the trust score."""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from calibrant import _files
from calibrant._arrays import Float, Float64, Int, row_slices, to_floats
from calibrant._checks import (
    ConvergenceError,
    InputError,
    NotFittedError,
    check_count,
    check_fraction,
    check_positive,
    check_seed,
    near_name,
    refuse,
)
from calibrant._extras import import_extra
from calibrant.calibrators._base import Learner, check_predictions, check_same_classes
from calibrant.calibrators._json import (
    _check_class_names,
    _check_num_classes,
    _encode,
    check_envelope,
    read_json,
)
from calibrant.calibrators._module import import_torch
from calibrant.predictions import Confidences, Predictions

SCHEMA = "calibrant.feature_calibrator"
VERSION = 1
FIELDS = {"schema", "version", "package", "method", "params", "num_classes", "classes", "learned"}
# The square of a difference of features must be a float64.
LARGEST_FEATURE = 1e100
# With these two bounds no layer of a head overflows float64, whatever the features are.
LARGEST_STANDARD = 1e4
LARGEST_WEIGHT = 1e6
MOST_LAYERS, MOST_UNITS = 20, 10_000
# Numbers of a block of samples, in which neighbours are looked for: 128 MB.
BLOCK_ELEMENTS = 1 << 24

Float32 = NDArray[np.float32]


class FeatureCalibrator(Learner):
    """Base of what replaces the confidence of a classifier by one made from its features.

    Subclasses are dataclasses: the constructor stores, ``fit`` checks and learns, and what is
    learned ends in ``_``. They write ``_check``, ``_learn``, ``_confidence`` and the two
    directions of JSON.
    """

    needs_features: ClassVar[bool] = True

    num_features_: int
    num_classes_: int
    classes_: tuple[str, ...] | None

    def fit(self, p: Predictions, *, features: Any) -> Self:
        """Learn from predictions with labels.

        Parameters
        ----------
        p
            What the classifier said.
        features
            Shape (N, D), what its last layer saw: NumPy or torch.
        """
        check_predictions(p)
        self._check()
        array = check_features(features, p.num_samples)
        self._forget()
        self._learn(p, array)
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
        from calibrant import __version__  # noqa: PLC0415 - the package imports this module

        self._need_fit()
        data = {
            "schema": SCHEMA,
            "version": VERSION,
            "package": __version__,
            "method": type(self).__name__,
            "params": {name: _encode(value) for name, value in self.params().items()},
            "num_classes": self.num_classes_,
            "classes": self.classes_,
            "learned": {name: _encode(value) for name, value in self._learned().items()},
        }
        text = json.dumps(data, allow_nan=False)
        with _files.replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

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
            raise NotFittedError(f"{name} has learned nothing yet; {advice}.")

    def _usable(self, p: Predictions, features: Any) -> Float:
        """The features, if they and ``p`` are of the kind of the fit."""
        self._need_fit()
        check_predictions(p)
        check_same_classes(p, self.num_classes_, self.classes_)
        array = check_features(features, p.num_samples)
        if array.shape[1] != self.num_features_:
            rule = f"must have {self.num_features_} columns like those of the fit"
            advice = "Take them from the same layer."
            raise refuse("features", rule, f"got {array.shape[1]}", advice)
        return array

    def _check(self) -> None:
        """Refuse parameters that make no sense."""
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
        rule = f"must have shape ({num_samples}, D): one row a sample"
        raise refuse(
            "features", rule, f"got shape {array.shape}", "Flatten each sample's features."
        )
    # A NaN makes both comparisons false.
    if not (float(array.min()) >= -LARGEST_FEATURE and float(array.max()) <= LARGEST_FEATURE):
        wide = array.astype(np.float64)
        row, column = np.argwhere(~(np.abs(wide) <= LARGEST_FEATURE))[0]
        rule = f"must be finite, at most {LARGEST_FEATURE:g} in size"
        got = f"got {wide[row, column]:g} in row {row}"
        raise refuse("features", rule, got, "Drop such samples, or mend the model.")
    return array


# --- ConfidNet --------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class ConfidNet(FeatureCalibrator):
    r"""ConfidNet: a small network that learns the probability of the true class from features.

    The head :math:`c(x) = \sigma(\mathrm{MLP}(x))` is trained with the loss
    :math:`(c(x) - p_y(x))^2`, where y is the label and p the classifier's probabilities. The
    classifier stays as it is. Fitting needs PyTorch; ``transform`` does not.

    Parameters
    ----------
    hidden
        Units of the hidden layers (ReLU). The authors' head has four of 400 and the output.
    epochs, batch_size, learning_rate, weight_decay
        Of the training with Adam. The weights of the epoch with the least validation loss are
        kept.
    validation_fraction
        Part of the samples on which the epochs are compared, and not trained.
    seed
        Of the split, the first weights and the order of the samples. Equal seeds give equal
        weights on one machine; no global random state is used.

    Features are standardised with the mean and deviation of the training part, and clipped at
    10,000 deviations; one that does not vary there is not used. The authors fit on the training
    set of the classifier; predictions it was not trained on hold more errors to learn from.

    Attributes
    ----------
    weights_, biases_
        Of each layer, float32: ``x @ weight + bias``.
    mean_, scale_
        Features are taken as ``(features - mean_) * scale_``.
    validation_losses_
        Mean squared error on the validation part after each epoch.

    References
    ----------
    Corbière et al. (2019), arXiv:1910.04851; Singh et al. (2021), appendix A.2.

    >>> from calibrant import Predictions
    >>> p = Predictions(logits=[[2.0, 0.0], [0.0, 1.0]] * 10, labels=[0, 0] * 10)
    >>> c = ConfidNet(hidden=(16,), learning_rate=0.05).fit(p, features=p.logits)
    >>> c.transform(p, features=p.logits).confidence[:2].round(2)
    array([0.88, 0.27])
    """

    hidden: tuple[int, ...] = (400, 400, 400, 400)
    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    validation_fraction: float = 0.1
    seed: int = 0

    weights_: list[Float32] = field(init=False)
    biases_: list[Float32] = field(init=False)
    mean_: Float64 = field(init=False)
    scale_: Float64 = field(init=False)
    validation_losses_: Float64 = field(init=False)

    def _check(self) -> None:
        if not isinstance(self.hidden, (tuple, list)) or len(self.hidden) > MOST_LAYERS:
            rule = f"must be a tuple of at most {MOST_LAYERS} numbers of units"
            raise refuse("hidden", rule, f"got {self.hidden!r}", "Try hidden=(400, 400).")
        for units in self.hidden:
            check_count("hidden", units, least=1, most=MOST_UNITS, example=400)
        check_count("epochs", self.epochs, least=1, most=1_000_000, example=50)
        check_count("batch_size", self.batch_size, least=1, most=1_000_000_000, example=128)
        check_positive("learning_rate", self.learning_rate, example=1e-3)
        if not _is_number(self.weight_decay) or not 0 <= self.weight_decay < math.inf:
            rule = "must be a finite number of at least 0"
            raise refuse("weight_decay", rule, f"got {self.weight_decay!r}", "Try 0.0001.")
        check_fraction("validation_fraction", self.validation_fraction, example=0.1)
        check_seed(self.seed)

    def _learn(self, p: Predictions, features: Float) -> None:
        if p.num_samples == 1:
            rule, advice = "must have two samples or more", "One of them validates."
            raise refuse("p", rule, "got 1", advice)
        torch = import_torch()
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(p.num_samples)
        held = min(max(round(self.validation_fraction * len(order)), 1), len(order) - 1)
        self.mean_, self.scale_ = _standard(features, np.sort(order[held:]))
        x = torch.from_numpy(np.empty(features.shape, np.float32))
        for rows in row_slices(*features.shape):
            x[rows] = torch.from_numpy(self._standardise(features[rows]))
        target = np.exp(p.label_log_prob).astype(np.float32)
        y = torch.from_numpy(target)
        first = _first_weights((features.shape[1], *self.hidden, 1), float(target.mean()), rng)
        # Whoever calls may have turned gradients off.
        with torch.inference_mode(mode=False), torch.enable_grad():
            best, losses = self._train(torch, first, (x, y), (order[held:], order[:held]), rng)
        if not losses:
            raise ConvergenceError(
                "The training of ConfidNet diverged, so there is no head. Lower learning_rate."
            )
        self.weights_, self.biases_ = best[0::2], best[1::2]
        self.validation_losses_ = np.array(losses)

    def _train(
        self, torch: Any, first: list[Float32], data: tuple[Any, Any], parts: tuple[Int, Int],
        rng: np.random.Generator,
    ) -> tuple[list[Float32], list[float]]:  # fmt: skip
        """The weights of the best epoch, and the validation loss of each."""
        layers = [torch.from_numpy(array).requires_grad_() for array in first]
        x, y = data
        train, held = parts
        adam = torch.optim.Adam(layers, lr=self.learning_rate, weight_decay=self.weight_decay)
        best: list[Float32] = []
        losses: list[float] = []
        for _ in range(self.epochs):
            for rows in torch.from_numpy(rng.permutation(train)).split(self.batch_size):
                adam.zero_grad()
                _squared_error(torch, layers, x[rows], y[rows]).mean().backward()
                adam.step()
            with torch.no_grad():
                loss = float(torch.cat([
                    _squared_error(torch, layers, x[rows], y[rows])
                    for rows in torch.from_numpy(held).split(8192)
                ]).double().mean())  # fmt: skip
                largest = max(float(layer.abs().max()) for layer in layers)
            if not (math.isfinite(loss) and largest <= LARGEST_WEIGHT):
                break
            if not losses or loss < min(losses):
                best = [layer.detach().numpy().copy() for layer in layers]
            losses.append(loss)
        return best, losses

    def _standardise(self, features: Float) -> Float64:
        with np.errstate(over="ignore"):
            x: Float64 = (features.astype(np.float64) - self.mean_) * self.scale_
        return np.clip(x, -LARGEST_STANDARD, LARGEST_STANDARD, out=x)

    def _confidence(self, p: Predictions, features: Float) -> Float64:
        layers = [
            (weight.astype(np.float64), bias.astype(np.float64))
            for weight, bias in zip(self.weights_, self.biases_, strict=True)
        ]
        out = np.empty(p.num_samples)
        for rows in row_slices(p.num_samples, max(self.num_features_, *self.hidden, 1)):
            x = self._standardise(features[rows])
            for weight, bias in layers[:-1]:
                x = x @ weight + bias
                np.maximum(x, 0, out=x)
            weight, bias = layers[-1]
            score = (x @ weight + bias)[:, 0]
            out[rows] = np.exp(-np.logaddexp(0, -score))  # the logistic function
        return out

    def to_module(self) -> Any:
        """Return a ``torch.nn.Module`` from features (N, D) to confidences (N,)."""
        self._need_fit()
        torch, size = import_torch(), len(self.weights_)
        arrays: dict[str, Float] = {"mean": self.mean_, "scale": self.scale_}
        arrays |= {f"weight_{k}": w for k, w in enumerate(self.weights_)}
        arrays |= {f"bias_{k}": b for k, b in enumerate(self.biases_)}

        class ConfidNetModule(torch.nn.Module):  # type: ignore[misc, name-defined]
            """Confidence of features."""

            def __init__(self) -> None:
                super().__init__()
                for name, array in arrays.items():
                    self.register_buffer(name, torch.tensor(array))

            def forward(self, features: Any) -> Any:
                """Map features (N, D)."""
                # In float64, since a feature may vary little about a large mean.
                x = (features.to(self.mean.dtype) - self.mean) * self.scale
                x = x.clamp(-LARGEST_STANDARD, LARGEST_STANDARD).to(self.weight_0.dtype)
                layers = [getattr(self, f"{kind}_{k}") for k in range(size)
                          for kind in ("weight", "bias")]  # fmt: skip
                return torch.sigmoid(_logit(layers, x))

        return ConfidNetModule()

    def _learned(self) -> Mapping[str, Any]:
        names = ("weights_", "biases_", "mean_", "scale_", "validation_losses_")
        return {name: getattr(self, name) for name in names}

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        mean = _numbers(learned, "mean_", (None,))
        scale = _numbers(learned, "scale_", mean.shape)
        if (scale < 0).any():
            raise InputError("scale_ must not be negative.")
        losses = _numbers(learned, "validation_losses_", (None,))
        sizes = (len(mean), *self.hidden, 1)
        weights, biases = learned["weights_"], learned["biases_"]
        if not all(isinstance(x, list) and len(x) == len(sizes) - 1 for x in (weights, biases)):
            raise InputError(f"weights_ and biases_ must be of {len(sizes) - 1} layers.")
        self.weights_ = [
            _layer({f"weights_[{k}]": w}, (sizes[k], sizes[k + 1])) for k, w in enumerate(weights)
        ]
        self.biases_ = [_layer({f"biases_[{k}]": b}, (sizes[k + 1],)) for k, b in enumerate(biases)]
        self.mean_, self.scale_, self.validation_losses_ = mean, scale, losses
        self.num_features_ = len(mean)


def _standard(features: Float, rows: Int) -> tuple[Float64, Float64]:
    """Mean and inverse deviation of each feature; 0 for one that does not vary but by rounding."""
    parts = [rows[part] for part in row_slices(len(rows), features.shape[1])]
    total = sum(features[part].sum(axis=0, dtype=np.float64) for part in parts)
    mean: Float64 = total / len(rows)
    square = sum(((features[part] - mean) ** 2).sum(axis=0) for part in parts)
    deviation: Float64 = np.sqrt(square / len(rows))
    noise = 8 * float(np.finfo(features.dtype).eps) * np.abs(mean) + 1 / LARGEST_FEATURE
    scale = np.zeros_like(mean)
    np.divide(1, deviation, out=scale, where=deviation > noise)
    return mean, scale


def _first_weights(sizes: tuple[int, ...], mean: float, rng: np.random.Generator) -> list[Float32]:
    """Weights and biases of the layers in turn, after He et al. (2015), arXiv:1502.01852.

    The last layer starts as the constant ``mean``: a random one would have to be unlearned.
    """
    made: list[Float32] = []
    for size, units in pairwise(sizes):
        weight = rng.normal(0, math.sqrt(2 / size), (size, units))
        made += [weight.astype(np.float32), np.zeros(units, np.float32)]
    made[-2][:] = 0
    mean = min(max(mean, 0.001), 0.999)
    made[-1][:] = math.log(mean / (1 - mean))
    return made


def _logit(layers: list[Any], x: Any) -> Any:
    """The output (N,) of the head before the sigmoid, in torch."""
    for k in range(0, len(layers) - 2, 2):
        x = (x @ layers[k] + layers[k + 1]).relu()
    return (x @ layers[-2] + layers[-1])[:, 0]


def _squared_error(torch: Any, layers: list[Any], x: Any, y: Any) -> Any:
    return (torch.sigmoid(_logit(layers, x)) - y) ** 2


# --- trust score ------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class TrustScore(FeatureCalibrator):
    r"""Trust score: how much nearer the predicted class is than any other, among the features.

    With d(x, c) the distance of x to the nearest fitted sample with label c, the score is
    :math:`\min_{c \ne \hat y} d(x, c) / d(x, \hat y)`, from 0 to infinity, and the confidence
    score / (1 + score); it ranks samples, and is not the probability of being right.

    Parameters
    ----------
    alpha
        Part of each class that is left out, at most: the samples with the largest distance to
        their k-th neighbour in the class. Of equals, all are kept.
    k
        That neighbour's number, the sample itself being the first; the last one in classes with
        fewer samples.

    Fit on the training set of the classifier. A fitted sample that is scored again has distance
    0 to its own class. Where both distances are 0, the score is 1; where the predicted class has
    no samples, 0; where only the predicted class has any, infinity. Distances are Euclidean, so
    the scale of the features matters. Needs scikit-learn.

    Attributes
    ----------
    points_, point_classes_
        The features kept, (M, D), and their labels, (M,).

    References
    ----------
    Jiang et al. (2018), arXiv:1805.11783.

    >>> from calibrant import Predictions
    >>> p = Predictions(logits=[[1.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> c = TrustScore().fit(p, features=[[0.0], [4.0]])
    >>> c.score(p, features=[[1.0], [2.0]]), c.transform(p, features=[[1.0], [2.0]]).confidence
    (array([3., 1.]), array([0.75, 0.5 ]))
    """

    alpha: float = 0.0
    k: int = 10

    points_: Float64 = field(init=False)
    point_classes_: Int = field(init=False)

    def _check(self) -> None:
        if not _is_number(self.alpha) or not 0 <= self.alpha < 1:
            rule = "must be at least 0 and below 1"
            raise refuse("alpha", rule, f"got {self.alpha!r}", "Try alpha=0.1.")
        check_count("k", self.k, least=2, most=1_000_000, example=10)

    def _forget(self) -> None:
        super()._forget()
        self._indices: list[tuple[int, Float64, Any]] | None = None

    def _learn(self, p: Predictions, features: Float) -> None:
        _import_sklearn()
        order = np.argsort(p.labels, kind="stable")
        if self.alpha > 0:
            order = np.concatenate([self._dense(features, rows) for _, rows in
                                    _runs(p.labels[order], order)])  # fmt: skip
        self.points_ = features[order].astype(np.float64)
        self.point_classes_ = p.labels[order]

    def _dense(self, features: Float, rows: Int) -> Int:
        """The rows of a class without its loneliest."""
        points = features[rows].astype(np.float64)
        drop = math.floor(self.alpha * len(points) + 1e-9)  # 0.29 * 100 is below 29
        number = min(self.k, len(points))
        radius = _distance(points, points, _index(points), number)
        keep = radius <= np.sort(radius)[len(radius) - 1 - drop]
        kept: Int = rows[keep]
        return kept

    def score(self, p: Predictions, *, features: Any) -> Float64:
        """Return the trust score of each sample, from 0 to infinity."""
        other, own = self._distances(p, self._usable(p, features))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio: Float64 = other / own
        return np.where((other == 0) & (own == 0), 1.0, ratio)

    def _confidence(self, p: Predictions, features: Float) -> Float64:
        other, own = self._distances(p, features)
        with np.errstate(invalid="ignore"):
            share: Float64 = other / (other + own)
        share[(other == 0) & (own == 0)] = 0.5
        share[np.isinf(other)] = 1
        return share

    def _distances(self, p: Predictions, features: Float) -> tuple[Float64, Float64]:
        """Distance of each sample to the nearest other class, and to the predicted one."""
        if self._indices is None:
            self._indices = [
                (label, points, _index(points))
                for label, points in _runs(self.point_classes_, self.points_)
            ]
        other, own = np.full((2, p.num_samples), math.inf)
        step = max(1, BLOCK_ELEMENTS // self.num_features_)
        for start in range(0, p.num_samples, step):
            rows = slice(start, start + step)
            x = features[rows].astype(np.float64)
            for label, points, index in self._indices:
                distance = _distance(x, points, index, 1)
                mine = p.predicted[rows] == label
                own[rows][mine] = distance[mine]
                np.minimum(other[rows], distance, out=other[rows], where=~mine)
        return other, own

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_indices": None}

    def _learned(self) -> Mapping[str, Any]:
        return {"points_": self.points_, "point_classes_": self.point_classes_}

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        points = _numbers(learned, "points_", (None, None))
        if np.abs(points).max() > LARGEST_FEATURE:
            raise InputError(f"points_ must be at most {LARGEST_FEATURE:g} in size.")
        labels = _numbers(learned, "point_classes_", (len(points),))
        known = (labels == np.floor(labels)) & (labels >= 0) & (labels < self.num_classes_)
        if not known.all() or (np.diff(labels) < 0).any():
            raise InputError("point_classes_ must be rising numbers of classes.")
        self.points_, self.point_classes_ = points, labels.astype(np.int64)
        self.num_features_ = points.shape[1]


def _import_sklearn() -> Any:
    """Scikit-learn with its neighbours, or the advice how to get it."""
    import_extra("sklearn.neighbors", "TrustScore")
    return import_extra("sklearn", "TrustScore")


def _runs(labels: Int, values: Any) -> Iterator[tuple[int, Any]]:
    """Each label of a rising list, with its part of ``values``."""
    found, starts = np.unique(labels, return_index=True)
    yield from zip(found.tolist(), np.split(values, starts[1:]), strict=True)


def _index(points: Float64) -> Any:
    return _import_sklearn().neighbors.NearestNeighbors().fit(points)


def _distance(x: Float64, points: Float64, index: Any, number: int) -> Float64:
    """Distance of each row of ``x`` to its ``number``-th neighbour among the points.

    Scikit-learn says which it is, but not always how far: in many dimensions it expands the
    square, and equal points get a distance above 0.
    """
    with _import_sklearn().config_context(assume_finite=True):
        near = index.kneighbors(x, n_neighbors=number, return_distance=False)[:, -1]
    gap = points[near]
    np.subtract(x, gap, out=gap)
    distance: Float64 = np.sqrt(np.einsum("ij,ij->i", gap, gap))
    return distance


# --- files ------------------------------------------------------------------------------------


def load_feature_calibrator(path: str | Path) -> FeatureCalibrator:
    """Read a ConfidNet or TrustScore from JSON, every value checked."""
    return read_json(path, read)


def read(data: Any) -> FeatureCalibrator:
    """A ConfidNet or TrustScore from plain data."""
    check_envelope(data, SCHEMA, VERSION, FIELDS)
    known: dict[str, type[FeatureCalibrator]] = {"ConfidNet": ConfidNet, "TrustScore": TrustScore}
    name, params, learned = data["method"], data["params"], data["learned"]
    if name not in known:
        raise InputError(f"method {name!r} is unknown. {near_name(str(name), known)}")
    if not isinstance(params, dict) or not isinstance(learned, dict):
        raise InputError("params and learned must be objects.")
    kind = known[name]
    found = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in params.items()})
    found._check()
    found._forget()
    classes = _check_num_classes(data["num_classes"])
    if classes is None:
        raise InputError("num_classes must be a whole number of at least 2; got null.")
    found.num_classes_, found.classes_ = classes, _check_class_names(data["classes"], classes)
    names = {f.name for f in dataclasses.fields(kind) if not f.init}  # type: ignore[arg-type]
    if set(learned) != names:
        raise InputError(f"learned must hold {', '.join(sorted(names))}.")
    found._set_learned(learned)
    return found


def _numbers(learned: Mapping[str, Any], name: str, shape: tuple[int | None, ...]) -> Float64:
    """A list of finite numbers as an array; None stands for any size but 0."""
    array = np.asarray(learned[name])
    if array.dtype.kind not in "iuf" or array.ndim != len(shape) or not np.isfinite(array).all():
        raise InputError(f"{name} must hold finite numbers in {len(shape)} dimensions.")
    pairs = zip(array.shape, shape, strict=True)
    if array.size == 0 or not all(want in (None, size) for size, want in pairs):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InputError(f"{name} must have shape ({wanted}); got {array.shape}.")
    return array.astype(np.float64)


def _layer(learned: Mapping[str, Any], shape: tuple[int, ...]) -> Float32:
    """The numbers of one layer."""
    (name,) = learned
    array = _numbers(learned, name, shape)
    if np.abs(array).max() > LARGEST_WEIGHT:
        raise InputError(f"{name} must be at most {LARGEST_WEIGHT:g} in size.")
    return array.astype(np.float32)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
