r"""An e-process for calibration: a wager against it, whose capital is evidence at any time.

The null hypothesis is that, given its confidence c and everything before, a prediction is correct
with probability c (to within a tolerance). A bet names another probability p; its capital is
multiplied by p / c if the prediction is correct and by (1 - p) / (1 - c) if not, which is
:math:`1 + \lambda (a - c)`, a stake :math:`\lambda = (p - c) / (c (1 - c))` on the residual. Under
the null hypothesis no bet gains on average, so by Ville's inequality the total ever reaches 1/alpha
with probability at most alpha: it may be looked at after every label.

The capital is spread over bets on log-odds that are shifted or scaled, for all confidences or for
those of one bin, and over the times at which they start: of the unit of capital, 1 / (j (j + 1)) is
invested at the beginning of the j-th block of labels, so that a change after a long calibrated
stretch does not meet an empty purse.

Where calibration is tolerated to be off by t, a bet on p > c is judged against min(c + t, 1) and
one on p < c against max(c - t, 0): the capital then falls on average for every null in between.

References: Ville (1939); Waudby-Smith and Ramdas (2024), doi:10.1093/jrsssb/qkad009; Shin, Ramdas
and Rinaldo (2022), arXiv:2203.03532.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from calibrant._core.arrays import Bool, Float64, row_slices
from calibrant._core.numerics import expit, logit

# Log-odds that bets add, factors by which they multiply, and edges of the bins of confidence.
BET_SHIFTS = (-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0)
BET_SCALES = (0.5, 0.7, 1.4, 2.0)
BIN_EDGES = (0.5, 0.7, 0.9, 0.97)
# Numbers of labels after which new bets start.
BLOCK_LABELS = 256


@dataclass(frozen=True)
class Bet:
    """Log-odds plus ``shift`` or times ``scale``, in one bin of confidence or in all."""

    shift: float = 0.0
    scale: float = 1.0
    cell: int | None = None

    @property
    def words(self) -> str:
        """What the bet says of the model."""
        timid = self.shift > 0 or self.scale > 1
        kind = "underconfident" if timid else "overconfident"
        if self.cell is None:
            return f"{kind} at all confidences" if self.scale == 1 else kind
        edges = (0.0, *BIN_EDGES, 1.0)
        low, high = edges[self.cell], edges[self.cell + 1]
        return f"{kind} at confidences from {100 * low:g} to {100 * high:g} %"


def _all_bets() -> tuple[tuple[Bet, ...], Float64]:
    """The bets, and the share of the capital of each: half of it is for single bins."""
    whole = [Bet(shift=shift) for shift in BET_SHIFTS] + [Bet(scale=scale) for scale in BET_SCALES]
    bins = [
        Bet(shift=shift, cell=cell) for cell in range(len(BIN_EDGES) + 1) for shift in BET_SHIFTS
    ]
    share = [0.5 / len(whole)] * len(whole) + [0.5 / len(bins)] * len(bins)
    return (*whole, *bins), np.array(share)


BETS, SHARES = _all_bets()


@dataclass
class EProcess:
    """The capital of all bets after the labels so far. Labels must come in the order they arrived.

    ``log_capital`` is -inf for bets without capital; ``refuted_at`` is the number of the label
    that a calibrated model cannot give: a wrong prediction whose confidence is 1.
    """

    alpha: float
    tolerance: float
    num_labels: int = 0
    log_capital: Float64 = field(default_factory=lambda: np.full(len(BETS), -np.inf))
    largest: float = 0.0
    alarm_at: int | None = None
    refuted_at: int | None = None

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value: of the capital of all bets and what is not invested yet."""
        if self.refuted_at is not None:
            return math.inf
        return float(_total(self.log_capital[None], self._reserve)[0])

    @property
    def _reserve(self) -> float:
        blocks = -(-self.num_labels // BLOCK_LABELS)
        return 1 / (blocks + 1)

    @property
    def leading(self) -> Bet | None:
        """The bet with the largest capital; None before the first label."""
        return BETS[int(self.log_capital.argmax())] if self.num_labels else None

    def update(self, log_odds: Float64, correct: Bool) -> None:
        """Go through the labels of predictions one after the other.

        ``log_odds`` are those of the confidences; infinite ones are certain.
        """
        for rows in row_slices(len(log_odds), len(BETS)):
            gain = log_factors(log_odds[rows], correct[rows], self.tolerance)
            refuted = np.zeros(len(gain), dtype=np.bool_)
            if self.tolerance == 0:
                refuted = np.where(
                    correct[rows], log_odds[rows] == -np.inf, log_odds[rows] == np.inf
                )
            done = 0
            while done < len(gain):
                end = done + BLOCK_LABELS - self.num_labels % BLOCK_LABELS
                self._advance(gain[done:end], refuted[done:end])
                done = end

    def _advance(self, gain: Float64, refuted: Bool) -> None:
        """Labels of one block: the logarithms of their factors, and which are impossible."""
        if self.num_labels % BLOCK_LABELS == 0:
            block = self.num_labels // BLOCK_LABELS + 1
            fresh = np.log(SHARES / (block * (block + 1)))
            self.log_capital = np.logaddexp(self.log_capital, fresh)
        path = self.log_capital + np.cumsum(gain, axis=0)
        before, self.num_labels = self.num_labels, self.num_labels + len(gain)
        total = _total(path, self._reserve)
        if self.refuted_at is None and refuted.any():
            self.refuted_at = before + int(refuted.argmax()) + 1
        if self.refuted_at is not None:
            total[max(self.refuted_at - before - 1, 0) :] = np.inf
        self.log_capital = path[-1]
        self.largest = max(self.largest, float(total.max()))
        reached = np.flatnonzero(total >= -math.log(self.alpha))
        if len(reached) and self.alarm_at is None:
            self.alarm_at = before + int(reached[0]) + 1


def _total(path: Float64, reserve: float) -> Float64:
    found: Float64 = np.logaddexp(np.logaddexp.reduce(path, axis=1), math.log(reserve))
    return found


def log_factors(log_odds: Float64, correct: Bool, tolerance: float) -> Float64:
    """Logarithm of the factor of every bet (columns) for every prediction (rows).

    A prediction has factor 1 if it is outside the bin of a bet, or leaves it no probability beyond
    the tolerance to bet on.
    """
    low = high = log_odds
    if tolerance > 0:
        confidence = expit(log_odds)
        with np.errstate(divide="ignore"):
            low = logit(np.maximum(confidence - tolerance, 0.0))
            high = logit(np.minimum(confidence + tolerance, 1.0))
    cell = np.searchsorted(logit(np.array(BIN_EDGES)), log_odds, side="right")
    found = np.zeros((len(log_odds), len(BETS)))
    sign = np.where(correct, 1.0, -1.0)
    for column, bet in zip(found.T, BETS, strict=True):
        if bet.scale == 1:
            null = high if bet.shift > 0 else low
            other = null + bet.shift
        else:  # away from even odds, or towards them
            up = (bet.scale > 1) == (log_odds > 0)
            null, other = np.where(up, high, low), bet.scale * log_odds
            other = np.where(up, np.maximum(other, null), np.minimum(other, null))
        placed = np.isfinite(null) & np.isfinite(other)
        placed &= (cell == bet.cell) | (bet.cell is None)
        before, after = (-sign[placed] * odds[placed] for odds in (null, other))
        column[placed] = np.logaddexp(0, before) - np.logaddexp(0, after)
    return found
