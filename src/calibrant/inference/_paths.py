"""Paths of populations from perfect calibration through the data's own gaps and beyond.

The gaps observed in 15 bins of 13 samples are mostly noise, and a bin whose samples are all right
would say that nothing can go wrong in it. The populations are therefore built, on the scale of
log-odds, from what can be told:

1. a shift and a slope that all confidences share, fitted by maximum likelihood;
2. of what each bin deviates from those, the part that exceeds its sampling noise.

Where the data show next to no gap the path is stretched: "no gap seen" must not mean that the
populations have none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calibrant._core.arrays import Float64, dot
from calibrant.inference._resampling import STRENGTHS
from calibrant.metrics._binning import Binning, bin_sums
from calibrant.metrics._sample import Ranked

# Log-odds are kept within the first, shifts of them within the second.
LARGEST_LOGIT, LARGEST_SHIFT = 30.0, 8.0
# Half a pseudo-count keeps shifts finite where every answer is right.
RIDGE = 0.5
# At strength 1, populations are at least this many standard errors from calibration.
LEAST_REACH = 2.0
NEWTON_STEPS, LARGEST_STEP, SMALLEST_STEP = 50, 1.0, 1e-6


@dataclass(frozen=True)
class Path:
    """Chances of being right at each confidence: at strengths 0, 1 and 2, straight between them."""

    knots: Float64

    @cached_property
    def by_entry(self) -> Float64:
        """The three chances of each confidence side by side."""
        return np.ascontiguousarray(self.knots.T)

    def at(self, strength: float) -> Float64:
        """The chances at a strength."""
        before = min(int(strength), 1)
        share = strength - before
        chance: Float64 = (1 - share) * self.knots[before] + share * self.knots[before + 1]
        return chance

    def populations(self) -> list[Float64]:
        """The chances at every strength of the path."""
        return [self.at(strength) for strength in STRENGTHS]


def path_of(ranked: Ranked, bins: int, binning: Binning, one_sided: bool = False) -> Path:  # noqa: FBT001, FBT002
    """The path of the data, with deviations from the shared shift taken in these bins.

    For an error that counts gaps of one sign only, they are taken as they are: shrunk, they would
    leave an overconfident model no underconfident bin, however little the data say of it.
    """
    c = ranked.confidence
    with np.errstate(divide="ignore"):
        logit = np.clip(np.log(c) - np.log1p(-c), -LARGEST_LOGIT, LARGEST_LOGIT)
    shift = _shared_shift(ranked, logit)
    shift += _own_shift(ranked, logit + shift, bins, binning, shrink=not one_sided)
    shift = np.clip(_stretched(ranked, logit, shift), -LARGEST_SHIFT, LARGEST_SHIFT)
    return Path(np.stack([c, _expit(logit + shift), _expit(logit + 2 * shift)]))


def _shared_shift(ranked: Ranked, logit: Float64) -> Float64:
    """Likeliest a + b · logit to add to the logits, by Newton's method."""
    weight = ranked.count / ranked.total
    middle = dot(weight, logit)
    spread = math.sqrt(dot(weight, (logit - middle) ** 2)) or 1.0
    design = np.stack([np.ones(len(logit)), (logit - middle) / spread])
    found = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        q = _expit(logit + found @ design)
        slope = np.array([dot(row, ranked.hits - ranked.count * q) for row in design])
        scaled = design * (ranked.count * q * (1 - q))
        curvature = np.einsum("ai,bi->ab", scaled, design) + RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, slope - RIDGE * found)
        largest = float(np.abs(step).max())
        found += step * min(1.0, LARGEST_STEP / largest) if largest else 0.0
        if largest < SMALLEST_STEP:
            break
    shift: Float64 = found @ design
    return shift


def _own_shift(
    ranked: Ranked, logit: Float64, bins: int, binning: Binning, *, shrink: bool
) -> Float64:
    """Further shift of each bin: its deviation, shrunk by the share that is noise."""
    cuts = bin_sums(ranked, bins, binning).cuts
    q = _expit(logit)

    def add(values: Float64) -> Float64:
        return np.diff(np.concatenate(([0.0], np.cumsum(values)))[cuts])

    deviation = add(ranked.hits - ranked.count * q)
    noise = add(ranked.count * q * (1 - q)) + RIDGE
    squares = float((deviation**2 / noise).sum())
    filled = int((np.diff(cuts) > 0).sum())
    # Under noise alone each filled bin has 1 on average.
    real = math.sqrt(max(0.0, 1 - filled / squares)) if squares else 0.0
    real = real if shrink else 1.0
    return np.repeat(real * deviation / noise, np.diff(cuts))


def _stretched(ranked: Ranked, logit: Float64, shift: Float64) -> Float64:
    """The shift, made larger where it is nearer to calibration than the least reach."""
    p = _expit(logit)
    information = ranked.count * p * (1 - p)
    reach = math.sqrt(dot(information, shift**2))
    if reach >= LEAST_REACH:
        return shift
    if reach < SMALLEST_STEP:
        shift = np.ones(len(logit))
        reach = math.sqrt(float(information.sum())) or LEAST_REACH
    return shift * (LEAST_REACH / reach)


def _expit(x: Float64) -> Float64:
    return 1 / (1 + np.exp(-x))
