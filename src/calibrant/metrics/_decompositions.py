"""Decompositions of scores into calibration and refinement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from calibrant._core.arrays import Float64, fold_numbers
from calibrant._core.checks import check_folds
from calibrant.metrics._binned import ece
from calibrant.metrics._binning import Binning
from calibrant.metrics._ranking import auroc
from calibrant.metrics._sample import Measurable, Ranked, all_classes, rank
from calibrant.metrics._scores import mean_confidence, nll
from calibrant.predictions import Predictions


@dataclass(frozen=True)
class ECEDecomposition:
    """ECE = alpha - beta - gamma + residual.

    ``alpha`` is the mean confidence, ``beta`` the part of refinement (AUROC times 2PN / (P + N)^2),
    ``gamma`` = (P^2 + N^2) / (2 (P + N)^2), with P correct and N wrong predictions.
    """

    ece: float
    alpha: float
    beta: float
    gamma: float
    residual: float


def ece_decomposition(
    p: Measurable | Ranked, *, bins: int = 15, binning: Binning = "width"
) -> ECEDecomposition:
    r"""Split the ECE into mean confidence and refinement.

    :math:`\mathrm{ECE} = \alpha - \beta - \gamma + \mathrm{residual}` with :math:`\alpha = E[C]`,
    :math:`\beta = r \frac{2PN}{(P + N)^2}`, :math:`\gamma = \frac{P^2 + N^2}{2 (P + N)^2}` and r
    the AUROC of correctness. The paper derives it without residual by assuming that every bin is
    overconfident and that accuracy equals its average over operating points; the residual is what
    these assumptions miss. With no correct or no wrong prediction beta is 0 and gamma 1/2.

    The paper's rank formula for r (eq. 4) is misprinted: it subtracts N (N + 1) / 2 where P (P + 1)
    / 2 belongs (Hand and Till 2001). For 4 correct predictions with ranks 13, 27, 28 and 29 among
    29 it gives -2.28, and the AUROC is 0.87. Here r is the AUROC.

    References
    ----------
    Singh et al. (2021), arXiv:2106.09385, eq. 9; Hand and Till (2001),
    doi:10.1023/A:1010920819831.

    >>> from calibrant import Confidences, metrics
    >>> parts = metrics.ece_decomposition(Confidences(confidence=[0.9, 0.8], correct=[1, 0]))
    >>> parts.alpha, parts.beta, parts.gamma
    (0.8500000000000001, 0.5, 0.25)
    """
    ranked = rank(p)
    value, alpha = ece(ranked, bins=bins, binning=binning), mean_confidence(ranked)
    right, wrong = ranked.accuracy, 1 - ranked.accuracy
    area = auroc(ranked)
    beta = 0.0 if math.isnan(area) else area * 2 * right * wrong
    gamma = (right**2 + wrong**2) / 2
    return ECEDecomposition(value, alpha, beta, gamma, value - (alpha - beta - gamma))


@dataclass(frozen=True)
class BrierDecomposition:
    """Brier = calibration + refinement; refinement = uncertainty - resolution.

    ``uncertainty`` is the Brier score of always forecasting the class frequencies.
    """

    brier: float
    calibration: float
    refinement: float
    uncertainty: float

    @property
    def resolution(self) -> float:
        """Improvement of the recalibrated forecasts over the class frequencies."""
        return self.uncertainty - self.refinement


def brier_decomposition(p: Predictions) -> BrierDecomposition:
    r"""Split the Brier score into calibration and refinement, exactly.

    Each class's probability is recalibrated by isotonic regression on the labels; with recalibrated
    probabilities :math:`\hat p`, refinement is :math:`\frac1N \sum_{ik} (\hat p_{ik} - y_{ik})^2`
    and calibration is the rest of the Brier score, never negative. No bins to choose. Both are
    estimated on the same samples, so at small N calibration comes out too large and refinement too
    small; ``refinement_nll`` is cross-fitted and does not share that fault.

    References
    ----------
    Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118; Murphy (1973).

    >>> from calibrant import Predictions, metrics
    >>> p = Predictions(probs=[[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]], labels=[0, 1, 1])
    >>> parts = metrics.brier_decomposition(p)
    >>> round(parts.brier, 4), round(parts.calibration, 4), round(parts.refinement, 4)
    (0.5733, 0.24, 0.3333)
    """
    all_classes(p, "brier_decomposition")
    log_probs = p.log_probs
    refinement = math.fsum(
        _isotonic_loss(log_probs[:, k], p.labels == k) for k in range(p.num_classes)
    )
    brier = float(p.brier_terms.mean())
    share = np.bincount(p.labels, minlength=p.num_classes) / p.num_samples
    refinement /= p.num_samples
    return BrierDecomposition(brier, brier - refinement, refinement, 1 - float(share @ share))


def _isotonic_loss(score: Any, hit: Any) -> float:
    """Squared error of the isotonic fit of ``hit`` on ``score``; equal scores share a fit."""
    from scipy.optimize import isotonic_regression

    _, group, count = np.unique(score, return_inverse=True, return_counts=True)
    mean = np.bincount(group, weights=hit) / count
    fitted: Float64 = isotonic_regression(mean, weights=count.astype(np.float64)).x[group]
    return float(((fitted - hit) ** 2).sum())


class Recalibrator(Protocol):
    """The part of a calibrator that ``refinement_nll`` uses."""

    def fit(self, predictions: Predictions) -> Any:
        """Fit to predictions with labels; return a fitted calibrator."""

    def transform(self, predictions: Predictions) -> Predictions:
        """Return recalibrated predictions."""


def refinement_nll(
    p: Predictions, calibrator: Recalibrator, *, folds: int = 5, seed: int = 0
) -> float:
    r"""NLL after cross-fitted recalibration: the part that calibration cannot remove.

    Range 0 to infinity, lower is better. The samples are split into ``folds`` random folds; each is
    recalibrated by the calibrator fitted on the others, and the NLL is averaged over all. ``nll``
    minus this is the part of the loss that recalibration would remove.

    References
    ----------
    Berta, Bach and Jordan (2025), arXiv:2501.19195.

    >>> from calibrant import Predictions, metrics
    >>> class Same:
    ...     def fit(self, predictions): return self
    ...     def transform(self, predictions): return predictions
    >>> p = Predictions(probs=[[0.5, 0.5], [0.2, 0.8]], labels=[0, 1])
    >>> round(metrics.refinement_nll(p, Same(), folds=2), 4)
    0.4581
    """
    all_classes(p, "refinement_nll")
    check_folds(folds, p.num_samples)
    fold = fold_numbers(p.num_samples, folds, seed, p.belonging.codes)
    total = 0.0
    for k in range(folds):
        held_out = p.take(fold == k)
        fitted = calibrator.fit(p.take(fold != k))
        total += nll(fitted.transform(held_out)) * held_out.num_samples
    return total / p.num_samples
