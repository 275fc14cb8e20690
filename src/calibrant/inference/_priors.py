"""Class frequencies of unlabelled data: maximum likelihood (EM) and black-box shift estimation.

Both assume label shift: the classes occur with other frequencies than in the labelled data, but
samples of one class look alike in both.
"""

from __future__ import annotations

import numpy as np

from calibrant._core.arrays import Float64, Int
from calibrant._core.checks import ConvergenceError, refuse

# The estimate moves by less than this in the last step; replicates need far fewer digits.
EXACT, ROUGH = 1e-12, 1e-6
STEPS = 20_000
# Steps of a replicate with the curvature of the data; EM takes over where these are too few.
NEARBY_STEPS = 20
# Added to the curvature, relative to its mean: classes that the scores do not tell apart.
RIDGE = 1e-9
# Ratio of the singular values of a confusion matrix beyond which it is not invertible.
CONDITION = 1e10


def em_prior(
    ratio: Float64, weight: Float64, start: Float64, *, tolerance: float = EXACT
) -> Float64:
    r"""The prior q on the simplex that maximises :math:`\sum_i w_i \log \sum_k q_k r_{ik}`.

    ``ratio`` holds the calibrated probabilities divided by the prior they are calibrated to. The
    objective is concave. The EM step :math:`q_k \leftarrow q_k \sum_i w_i r_{ik} / (q \cdot r_i)`
    is extrapolated (SQUAREM), and taken as it is where extrapolation would leave the simplex or
    lower the likelihood, so that the likelihood rises from step to step.

    References
    ----------
    Saerens, Latinne and Decaestecker (2002), doi:10.1162/089976602753284446; Varadhan and Roland
    (2008), doi:10.1111/j.1467-9469.2007.00585.x.
    """
    share = weight / weight.sum()

    def step(q: Float64) -> tuple[Float64, float]:
        mixture = _mixture(ratio, q)
        return q * ((share / mixture) @ ratio), float(share @ np.log(mixture))

    q, (once, _) = start, step(start)
    for _ in range(STEPS):
        twice, before = step(once)
        first, second = once - q, twice - 2 * once + q
        if float(np.abs(twice - once).max()) <= tolerance:
            return _normalised(twice)
        new, value = _extrapolated(q, first, second), -np.inf
        if new is not None:
            after, value = step(new)
        if new is None or value < before:
            new, (after, _) = twice, step(twice)
        q, once = new, after
    raise ConvergenceError(
        "The class frequencies of the target did not converge. Use method='bbse', or a model whose "
        "scores tell the classes apart better."
    )


def _extrapolated(q: Float64, first: Float64, second: Float64) -> Float64 | None:
    """The point that two EM steps lead to; None where they lead no further than they went."""
    bend = float(np.sqrt(second @ second))
    length = float(np.sqrt(first @ first)) / bend if bend > 0 else 0.0
    while length > 1:
        new: Float64 = q + 2 * length * first + length**2 * second
        if (new > 0).all():
            return _normalised(new)
        length = (length + 1) / 2 if length > 1.5 else 1.0  # noqa: PLR2004
    return None


class NearbyPriors:
    """Priors of bootstrap replicates, close to that of the data.

    On the simplex the log-likelihood less the sum of q has the same maximum as the log-likelihood
    alone, because it is the logarithm of a linear function. So each step maximises a quadratic over
    q >= 0, a problem of least squares, with the curvature at the prior of the data.
    """

    def __init__(self, ratio: Float64, weight: Float64, prior: Float64) -> None:
        share = weight / weight.sum()
        scaled = ratio / _mixture(ratio, prior)[:, None]
        curvature = (scaled * share[:, None]).T @ scaled
        curvature += np.eye(len(prior)) * (RIDGE * curvature.trace() / len(prior))
        self.prior, self.curvature = prior, curvature
        self.root = np.linalg.cholesky(curvature).T

    def of(self, ratio: Float64, weight: Float64) -> Float64:
        """The prior that ``em_prior`` would find, to a few digits."""
        from scipy.linalg import solve_triangular
        from scipy.optimize import nnls

        share, q = weight / weight.sum(), self.prior
        for _ in range(NEARBY_STEPS):
            slope = (share / _mixture(ratio, q)) @ ratio + self.curvature @ q - 1
            if not np.isfinite(slope).all():
                break
            before, q = q, nnls(self.root, solve_triangular(self.root, slope, trans="T"))[0]
            if float(np.abs(q - before).max()) <= ROUGH:
                return _normalised(q)
        return em_prior(ratio, weight, 0.9 * self.prior + 0.1 / len(q), tolerance=ROUGH)


def _normalised(values: Float64) -> Float64:
    found: Float64 = values / values.sum()
    return found


def _mixture(ratio: Float64, q: Float64) -> Float64:
    found: Float64 = np.maximum(ratio @ q, np.finfo(np.float64).tiny)
    return found


def confusion(predicted: Int, labels: Int, weight: Float64, num_classes: int) -> Float64:
    """Share of the samples by predicted class (rows) and label (columns)."""
    cell = predicted * num_classes + labels
    counts = np.bincount(cell, weight, num_classes**2).astype(np.float64)
    return _normalised(counts.reshape(num_classes, num_classes))


def bbse_prior(joint: Float64, predicted: Float64) -> Float64:
    r"""The prior by black-box shift estimation.

    :math:`C w = \mu`, where C is the confusion matrix of the labelled data, as shares of all
    samples, and :math:`\mu` the share of each predicted class in the target. The prior is w times
    the class frequencies of the labelled data, with negative entries set to 0.

    Reference: Lipton, Wang and Smola (2018), arXiv:1802.03916.
    """
    weight = np.linalg.lstsq(joint, predicted, rcond=1 / CONDITION)[0]
    prior: Float64 = np.maximum(weight, 0) * joint.sum(axis=0)
    total = float(prior.sum())
    return prior / total if total > 0 else joint.sum(axis=0)


def check_invertible(joint: Float64) -> None:
    """Reject a confusion matrix that fits several priors."""
    if not np.linalg.cond(joint) < CONDITION:
        rule = "must have an invertible confusion matrix for method='bbse'"
        advice = "Use method='em', or more validation samples of every class."
        raise refuse("validation", rule, "got classes that are never predicted apart", advice)
