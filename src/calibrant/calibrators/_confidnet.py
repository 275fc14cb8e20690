"""ConfidNet: confidence from a small network over a classifier's features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant._core.arrays import Float, Float64, Int, row_slices
from calibrant._core.checks import (
    ConvergenceError,
    InputError,
    check_at_least,
    check_count,
    check_fraction,
    check_positive,
    check_seed,
    refuse,
)
from calibrant._core.optimisers import uncompiled
from calibrant.calibrators._arguments import check_predictions, check_same_classes
from calibrant.calibrators._features import (
    LARGEST_FEATURE,
    FeatureCalibrator,
    check_features,
    numbers_of,
)
from calibrant.calibrators._module import import_torch
from calibrant.predictions import Predictions

# With these two bounds no layer of a head overflows float64, whatever the features are.
LARGEST_STANDARD = 1e4
LARGEST_WEIGHT = 1e6
MOST_LAYERS, MOST_UNITS = 20, 10_000

Float32 = NDArray[np.float32]


@dataclass(eq=False, repr=False, kw_only=True)
class ConfidNet(FeatureCalibrator):
    r"""ConfidNet: a small network that learns the probability of the true class from features.

    The head :math:`c(x) = \sigma(\mathrm{MLP}(x))` is trained with the loss :math:`(c(x) -
    p_y(x))^2`, where y is the label and p the classifier's probabilities. The classifier is not
    changed. Fitting needs PyTorch; ``transform`` does not.

    Parameters
    ----------
    hidden
        Units of the hidden layers (ReLU). The authors' head has four of 400 and the output.
    epochs, batch_size, learning_rate, weight_decay
        Training with Adam. The weights of the epoch with the lowest validation loss are kept.
    validation_fraction
        Fraction of the samples used for validation instead of training, where ``fit`` is given no
        others to validate with.
    seed
        Seed of the split, the initial weights and the order of the samples. The same seed gives the
        same weights on one machine; no global random state is used.

    Features are standardised with the mean and deviation of the training part, and clipped at
    10,000 deviations; one that does not vary there is not used. The authors fit on the training
    set of the classifier and validate on samples held out (``validation`` of ``fit``), as studies
    do; predictions it was not trained on hold more errors to learn from.

    Attributes
    ----------
    weights_, biases_
        Weights and biases of each layer, float32: ``x @ weight + bias``.
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

    def check(self) -> None:
        if not isinstance(self.hidden, (tuple, list)) or len(self.hidden) > MOST_LAYERS:
            rule = f"must be a tuple of at most {MOST_LAYERS} numbers of units"
            raise refuse("hidden", rule, f"got {self.hidden!r}", "Try hidden=(400, 400).")
        for units in self.hidden:
            check_count("hidden", units, least=1, most=MOST_UNITS, example=400)
        check_count("epochs", self.epochs, least=1, most=1_000_000, example=50)
        check_count("batch_size", self.batch_size, least=1, most=1_000_000_000, example=128)
        check_positive("learning_rate", self.learning_rate, example=1e-3)
        check_at_least("weight_decay", self.weight_decay, 0, example=0.0001)
        check_fraction("validation_fraction", self.validation_fraction, example=0.1)
        check_seed(self.seed)

    def fit(
        self, p: Predictions, *, features: Any, validation: tuple[Predictions, Any] | None = None
    ) -> Self:
        """Fit to predictions with labels.

        Parameters
        ----------
        p
            Predictions of the classifier.
        features
            Shape (N, D), the inputs of its last layer: NumPy or torch.
        validation
            Predictions and features of other samples: the epoch with the lowest loss on these is
            kept. None to take ``validation_fraction`` of the samples.
        """
        if validation is None:
            return self._fitted(p, features, self._learn)
        others, more = validation
        check_predictions(others)
        held = check_features(more, others.num_samples)

        def learn(p: Predictions, features: Float) -> None:
            check_same_classes(others, p.num_classes, p.classes)
            if held.shape[1] != features.shape[1]:
                rule = f"must have {features.shape[1]} columns like those to fit"
                advice = "Take them from the same layer."
                raise refuse("features of validation", rule, f"got {held.shape[1]}", advice)
            target = np.concatenate([_target(p), _target(others)])
            rows = np.arange(len(target))
            parts = rows[: p.num_samples], rows[p.num_samples :]
            rng = np.random.default_rng(self.seed)
            self._learn_parts(np.concatenate([features, held]), target, parts, rng)

        return self._fitted(p, features, learn)

    def _learn(self, p: Predictions, features: Float) -> None:
        if p.num_samples == 1:
            rule, advice = "must have at least two samples", "One of them validates."
            raise refuse("p", rule, "got 1", advice)
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(p.num_samples)
        held = min(max(round(self.validation_fraction * len(order)), 1), len(order) - 1)
        self._learn_parts(features, _target(p), (order[held:], order[:held]), rng)

    def _learn_parts(
        self, features: Float, target: Float32, parts: tuple[Int, Int], rng: np.random.Generator
    ) -> None:
        """Train on the rows of the first part, and keep the epoch that is best on the second."""
        torch = import_torch()
        self.mean_, self.scale_ = _standard(features, np.sort(parts[0]))
        x = torch.from_numpy(np.empty(features.shape, np.float32))
        for rows in row_slices(*features.shape):
            x[rows] = torch.from_numpy(self._standardise(features[rows]))
        y = torch.from_numpy(target)
        first = _first_weights((features.shape[1], *self.hidden, 1), float(target.mean()), rng)
        # The caller may have disabled gradients.
        with torch.inference_mode(mode=False), torch.enable_grad():
            best, losses = self._train(torch, first, (x, y), parts, rng)
        if not losses:
            raise ConvergenceError("The training of ConfidNet diverged. Lower learning_rate.")
        self.weights_, self.biases_ = best[0::2], best[1::2]
        self.validation_losses_ = np.array(losses)

    def _train(
        self,
        torch: Any,
        first: list[Float32],
        data: tuple[Any, Any],
        parts: tuple[Int, Int],
        rng: np.random.Generator,
    ) -> tuple[list[Float32], list[float]]:
        """The weights of the best epoch, and the validation loss of each."""
        layers = [torch.from_numpy(array).requires_grad_() for array in first]
        x, y = data
        train, held = parts
        adam = uncompiled(torch.optim.Adam)(
            layers, lr=self.learning_rate, weight_decay=self.weight_decay
        )
        best: list[Float32] = []
        losses: list[float] = []
        for _ in range(self.epochs):
            for rows in torch.from_numpy(rng.permutation(train)).split(self.batch_size):
                adam.zero_grad()
                _squared_error(torch, layers, x[rows], y[rows]).mean().backward()
                adam.step()
            with torch.no_grad():
                loss = float(
                    torch.cat(
                        [
                            _squared_error(torch, layers, x[rows], y[rows])
                            for rows in torch.from_numpy(held).split(8192)
                        ]
                    )
                    .double()
                    .mean()
                )
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
                layers = [
                    getattr(self, f"{kind}_{k}") for k in range(size) for kind in ("weight", "bias")
                ]
                return torch.sigmoid(_logit(layers, x))

        return ConfidNetModule()

    def _learned(self) -> Mapping[str, Any]:
        names = ("weights_", "biases_", "mean_", "scale_", "validation_losses_")
        return {name: getattr(self, name) for name in names}

    def _set_learned(self, learned: Mapping[str, Any]) -> None:
        mean = numbers_of(learned, "mean_", (None,))
        scale = numbers_of(learned, "scale_", mean.shape)
        if (scale < 0).any():
            raise InputError("scale_ must not be negative.")
        losses = numbers_of(learned, "validation_losses_", (None,))
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


def _target(p: Predictions) -> Float32:
    """The probability of the true class."""
    return np.exp(p.label_log_prob).astype(np.float32)


def _standard(features: Float, rows: Int) -> tuple[Float64, Float64]:
    """Mean and inverse standard deviation of each feature; 0 for constant features."""
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


def _layer(learned: Mapping[str, Any], shape: tuple[int, ...]) -> Float32:
    """The numbers of one layer."""
    (name,) = learned
    array = numbers_of(learned, name, shape)
    if np.abs(array).max() > LARGEST_WEIGHT:
        raise InputError(f"{name} must be at most {LARGEST_WEIGHT:g} in size.")
    return array.astype(np.float32)
