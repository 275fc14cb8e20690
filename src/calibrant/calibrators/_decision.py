"""How a selection decides: which candidates are clear, level with the best, or to be preferred."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibrant.calibrators._blend import Blend
from calibrant.calibrators._trials import UNCALIBRATED, CandidateTrial, Criterion

# Evidence needed to replace the uncalibrated model, in nats: a factor of 20.
EVIDENCE = math.log(20)
# With fewer mistakes than this, even a blend needs that evidence: mistakes alone show how sure a
# model may be, and one more or less would change the picture.
MISTAKES = 5
# A simpler candidate will do if its loss is shown to be too high by less than this.
TOLERATED = 0.001


def as_good(
    clear: list[CandidateTrial], best: CandidateTrial, standard_errors: float
) -> list[CandidateTrial]:
    """The candidates that are as good as the best."""
    level = [t for t in clear if is_level(t, best, standard_errors)]
    simplest = min(level, key=simplicity)
    # Small standard errors exclude methods that lie closer to the best than a noisy one that stays.
    return level + [t for t in clear if t not in level and mean_loss(t) <= mean_loss(simplest)]


def steady_choice(
    sound: list[CandidateTrial], criterion: Criterion, mistakes: int
) -> CandidateTrial | None:
    """The blend of other candidates, or what is shown to serve as well; None to leave the model.

    Which single method looks best on few samples is chance; a blend has no such choice to make, and
    is drawn to members that few samples cannot lead far astray. Its own out-of-fold loss is noisy,
    so its simplest such member says whether the model could do without.
    """
    before = next((t for t in sound if t.name == UNCALIBRATED), None)
    pool = next((t for t in sound if t.steady), None)
    if pool is None:
        return None
    simplest = min((t for t in sound if t.calibrator.steady and t is not before), key=simplicity)
    doubted = before if before and evidence_for(pool, before, criterion) < EVIDENCE else None
    if doubted and (mistakes < MISTAKES or _can_stay(doubted, simplest)):
        return None
    return simplest if _most_behind(simplest, pool) < TOLERATED else pool


def _can_stay(before: CandidateTrial, simplest: CandidateTrial) -> bool:
    """Whether a temperature gains nothing, or is shown to gain next to nothing."""
    assert before.losses is not None
    # Two standard errors of its parameter are worth 2 nats of all samples.
    most = _most_behind(before, simplest) + 2 / len(before.losses)
    return mean_loss(before) <= mean_loss(simplest) or most < TOLERATED


def _most_behind(trial: CandidateTrial, other: CandidateTrial) -> float:
    """How far the loss of one may lie above that of the other: two standard errors."""
    behind, error = excess(trial.losses, other.losses)
    return behind + 2 * error


def simplicity(trial: CandidateTrial) -> tuple[int, float]:
    """Fewest parameters first, and of equally many the lowest loss."""
    return complexity(trial), mean_loss(trial)


def clear_of_doubt(sound: list[CandidateTrial], criterion: Criterion) -> list[CandidateTrial]:
    """The uncalibrated model first, then the candidates that are clearly better."""
    before = next((t for t in sound if t.name == UNCALIBRATED), None)
    if before is None:  # its loss is infinite
        return sound
    return [t for t in sound if t is before or evidence_for(t, before, criterion) >= EVIDENCE]


def evidence_for(trial: CandidateTrial, before: CandidateTrial, criterion: Criterion) -> float:
    """Evidence for a candidate against the uncalibrated model, in nats.

    The logarithm of a product whose factors have a mean of at most 1 if the model is right (an
    e-value): it exceeds log(1 / a) with a probability of at most a. Rare errors that happen to be
    absent prove nothing by it, as a standard error of the losses seen would have it. A cluster is
    one factor, with the mean gain of its samples: the exponential of a mean is at most the mean.
    Where the samples of a cluster hardly go together, as the pixels of an image, it is as many
    factors as its samples are worth.
    """
    assert trial.losses is not None
    assert before.losses is not None
    gain = (before.losses - trial.losses) / before.shares
    factors = gain if criterion == "nll" else np.log1p(gain / 4)
    return float(factors.sum()) * _samples_in_cluster(trial, before)


def _samples_in_cluster(trial: CandidateTrial, before: CandidateTrial) -> float:
    """How many independent samples a cluster is worth for the gain of a candidate, at least 1.

    The mean size of a cluster divided by the design effect: the variance of the gain's mean by
    clusters over that of independent samples, and twice its standard error more.
    """
    if before.unit is None or before.each is None or trial.each is None:
        return 1.0
    gain = before.each - trial.each
    gain = gain - gain.mean()
    sums = np.bincount(before.unit, gain)
    clusters, alone = len(sums), float(gain @ gain)
    if clusters == 1 or alone == 0:
        return 1.0
    effect = clusters / (clusters - 1) * float(sums @ sums) / alone
    cautious = max(effect, 1.0) * (1 + 2 * math.sqrt(2 / (clusters - 1)))
    return max(len(gain) / clusters / cautious, 1.0)


def is_level(trial: CandidateTrial, best: CandidateTrial, standard_errors: float) -> bool:
    """Whether a candidate is indistinguishable from the best."""
    behind, error = excess(trial.losses, best.losses)
    return trial is best or behind <= standard_errors * error


def mean_loss(trial: CandidateTrial) -> float:
    return math.nan if trial.losses is None else float(trial.losses.mean())


def excess(losses: Any, best: Any) -> tuple[float, float]:
    """Mean and standard error of the loss beyond that of the best, sample by sample."""
    difference = losses - best
    return float(difference.mean()), float(difference.std() / math.sqrt(len(difference)))


def parameters(trial: CandidateTrial) -> int:
    """Number of fitted numbers; none where nothing was fitted."""
    unfitted = trial.name == UNCALIBRATED or not trial.calibrator.is_fitted
    return 0 if unfitted else trial.calibrator.num_parameters()


def complexity(trial: CandidateTrial) -> int:
    """Number of parameters, of a blend that of its weights: averaging makes members steadier."""
    c = trial.calibrator
    return len(c.used()) if isinstance(c, Blend) and c.is_fitted else parameters(trial)
