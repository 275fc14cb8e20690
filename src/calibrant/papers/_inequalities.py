"""Mathematical claims, tested on random, saturated, tied and extreme logits.

What evidence is fed in changes nothing. A counterexample beyond rounding would be reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant.papers._evidence import Evidence
from calibrant.papers._run_measures import no_bin_underconfident
from calibrant.papers._verdicts import ClaimVerdict
from calibrant.predictions import Confidences

Array = NDArray[np.float64]
ROUNDING_ERROR = 1e-11  # of quantities of size 1; the largest sums here have a few hundred terms
GAMMAS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 50.0)
SMALL_GAMMAS = (0.001, 0.1, 0.5, 0.9, 0.999)  # below 1 the printed proofs do not apply
_ROWS = 200


def _logits(seed: int) -> Iterator[Array]:
    """Logits of 2 to 100 classes: flat, usual, saturated, with ties, with one class far off."""
    rng = np.random.default_rng(seed)
    for classes in (2, 3, 10, 100):
        for size in (1e-6, 0.1, 1.0, 5.0, 50.0, 1e4):
            yield size * rng.standard_normal((_ROWS, classes))
        yield rng.integers(-3, 4, (_ROWS, classes)).astype(np.float64)
        far = rng.standard_normal((_ROWS, classes))
        far[:, 0] += np.linspace(-800, 800, _ROWS)
        yield far
        yield np.zeros((1, classes))


def _log_softmax(z: Array) -> Array:
    shifted: Array = z - z.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def _result(slack: Array, claim: str) -> ClaimVerdict:
    """Slack is what the greater side has more, relative to the size of the sides."""
    worst, good = float(slack.min()), int((slack >= -ROUNDING_ERROR).sum())
    if good == len(slack):
        words = f"{claim} for all {good:,} samples tried, whatever evidence is fed in."
        return ClaimVerdict("holds", worst, None, None, "least slack", (good, good), words)
    words = (
        f"{claim} fails for {len(slack) - good:,} of {len(slack):,} samples, by up to {-worst:.3g}."
    )
    return ClaimVerdict(
        "does not hold", worst, None, None, "least slack", (good, len(slack)), words
    )


def scaling_raises_the_top(_: Evidence) -> ClaimVerdict:
    """Theorem 1 of loss_report: logits times t > 1 have a top softmax at least as large."""
    slack = []
    for z in _logits(1):
        for t in (1 + 1e-9, 1.1, 2.0, 100.0):
            tops = [np.exp(_log_softmax(x).max(axis=1)) for x in (t * z, z)]
            slack.append(tops[0] - tops[1])
    return _result(np.concatenate(slack), "Scaling by t > 1 does not lower the top probability")


def focal_slack(log_p: Array, targets: Array, gamma: float, *, divergence: bool) -> Array:
    """Focal loss minus (cross-entropy or KL divergence, minus gamma times the entropy), relative.

    With p = 1/2 and gamma 1 the sides are log(2) / 2 and 0, and their size is 1 + 2 log(2).

    >>> half = np.log([[0.5, 0.5]])
    >>> slack = focal_slack(half, np.array([[1.0, 0.0]]), 1.0, divergence=False)
    >>> bool(abs(slack[0] - np.log(2) / 2 / (1 + 2 * np.log(2))) < 1e-15)
    True
    """
    p = np.exp(log_p)
    rest = -np.expm1(log_p)  # 1 - p without loss for p near 1
    focal = -(rest**gamma * targets * log_p).sum(axis=1)
    bound = -(targets * log_p).sum(axis=1)
    if divergence:
        safe = np.where(targets > 0, targets, 1.0)
        bound += (targets * np.log(safe)).sum(axis=1)
    entropy = -(p * log_p).sum(axis=1)
    slack: Array = (focal - bound + gamma * entropy) / (1 + np.abs(bound) + gamma * entropy)
    return slack


def _focal_bound(gammas: tuple[float, ...], *, divergence: bool) -> Array:
    rng = np.random.default_rng(2)
    slack = []
    for z in _logits(3):
        log_p = _log_softmax(z)
        classes = z.shape[1]
        targets = [np.eye(classes)[rng.integers(classes, size=len(z))]]
        if divergence:  # the divergence is defined for soft targets as well
            targets += [rng.dirichlet(np.full(classes, a), len(z)) for a in (0.05, 1.0)]
        slack += [
            focal_slack(log_p, t, gamma, divergence=divergence) for t in targets for gamma in gammas
        ]
    return np.concatenate(slack)


@lru_cache  # the same for all evidence
def _with_small_gammas(claim: str, *, divergence: bool) -> ClaimVerdict:
    found = _result(_focal_bound(GAMMAS, divergence=divergence), f"{claim} for gamma ≥ 1")
    small = _focal_bound(SMALL_GAMMAS, divergence=divergence)
    fails = int((small < -ROUNDING_ERROR).sum())
    words = f"fails {fails:,} times" if fails else "was not violated either"
    note = f" For 0 < gamma < 1, which the proof does not cover, it {words}."
    return ClaimVerdict(
        found.verdict, found.effect, None, None, found.unit, found.cases, found.reason + note
    )


def focal_bounds_cross_entropy(_: Evidence) -> ClaimVerdict:
    """Theorem 2 of loss_report: focal ≥ cross-entropy - gamma · entropy."""
    return _with_small_gammas("Focal ≥ cross-entropy − gamma · entropy", divergence=False)


def focal_bounds_divergence(_: Evidence) -> ClaimVerdict:
    """Equation of mukhoti2020: focal ≥ KL divergence - gamma · entropy, soft targets included."""
    return _with_small_gammas("Focal ≥ KL divergence − gamma · entropy", divergence=True)


def penalties_are_least_when_uniform(_: Evidence) -> ClaimVerdict:
    """Section 2.2 and appendix A.1 of singh2021: both penalties ask for probabilities of 1/K.

    Minus the entropy, and the cross-entropy of the uniform distribution, are compared with their
    values at 1/K. Equation 16 as printed, the sum of log c and log(1 - c), has its *greatest* value
    at 1/2: its sign is a misprint, and the claim is tested with the sign of equation 15.
    """
    slack = []
    for z in _logits(5):
        log_p = _log_softmax(z)
        least = np.log(z.shape[1])
        negative_entropy = (np.exp(log_p) * log_p).sum(axis=1)
        smoothing = -log_p.mean(axis=1)
        slack += [(negative_entropy + least) / (1 + least), (smoothing - least) / (1 + smoothing)]
    return _result(np.concatenate(slack), "Both penalties are least at 1/K")


def ece_is_the_gap(evidence: Evidence) -> ClaimVerdict:
    """Equation 7 of singh2021, on made-up predictions and on kept ones."""
    residuals = _residuals_of_gaps()
    kept = [
        value
        for found in evidence.at("singh2021", "figures", "identity_residual").values()
        for cell in found.values()
        for value in (cell.seeds or {}).values()
    ]
    verdict = _result(-np.array([*residuals, *kept]), "ECE = mean confidence − accuracy")
    note = f" {len(kept)} of them are kept predictions of runs." if kept else ""
    return ClaimVerdict(
        verdict.verdict,
        verdict.effect,
        None,
        None,
        verdict.unit,
        verdict.cases,
        verdict.reason + note,
    )


@lru_cache
def _residuals_of_gaps() -> tuple[float, ...]:
    """ECE minus (mean confidence - accuracy) of made-up predictions."""
    rng = np.random.default_rng(4)
    residuals = []
    for count in (1, 2, 15, 100, 2000):
        for _ in range(40):
            p = overconfident(rng, count)
            if no_bin_underconfident(p):
                gap = metrics.mean_confidence(p) - metrics.accuracy(p)
                residuals.append(abs(metrics.ece(p) - gap))
    return tuple(residuals)


def overconfident(rng: np.random.Generator, count: int) -> Confidences:
    """Predictions with at most as many right in each bin as due; edges may round otherwise."""
    confidence = rng.beta(rng.uniform(0.5, 5), rng.uniform(0.5, 2), count)
    confidence[: count // 4] = np.round(confidence[: count // 4], 1)  # some on edges, some equal
    correct = np.zeros(count, dtype=bool)
    bins = np.ceil(confidence * 15)
    for b in np.unique(bins):
        members = np.flatnonzero(bins == b)
        due = int(confidence[members].sum())  # rounded down: right / count ≤ confidence
        correct[members[: rng.integers(0, due + 1)]] = True
    return Confidences(confidence=confidence, correct=correct)
