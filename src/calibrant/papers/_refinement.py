"""Equation 9 of singh2021, and what it misses."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calibrant import metrics
from calibrant.papers._evidence import Evidence
from calibrant.papers._inequalities import ROUNDING_ERROR, overconfident
from calibrant.papers._run_measures import no_bin_underconfident
from calibrant.papers._verdicts import ClaimVerdict, Word

_SIZES, _DRAWS = (2, 15, 100, 2000), 40


def equation_nine_gives_the_ece(evidence: Evidence) -> ClaimVerdict:
    """On made-up predictions without an underconfident bin, and on runs that have none.

    The paper puts into equation 7 an accuracy that is averaged over operating points (equation 8)
    and differs from the accuracy of the network, so a residual remains where its assumption is met.
    """
    runs, tested = _residuals(evidence)
    size = np.abs(np.array([*_made_up_residuals(), *runs]))
    exact, largest = int((size <= ROUNDING_ERROR).sum()), float(size.max())
    missed = f"{len(size) - exact} of {len(size)}"
    words = f"Equation 9 misses the ECE in {missed} samples, by up to {largest:.3g}."
    if runs:
        low, high = min(runs, key=abs), max(runs, key=abs)
        words += (
            f" {len(runs)} of them are runs without an underconfident bin: residual {low:+.3f} to "
            f"{high:+.3f}."
        )
    word: Word = "holds" if exact == len(size) else "does not hold"
    return ClaimVerdict(
        word, largest, None, None, "residual", (exact, len(size)), words, tested=tested
    )


@lru_cache
def _made_up_residuals() -> tuple[float, ...]:
    """Residuals of made-up predictions without an underconfident bin."""
    rng = np.random.default_rng(6)
    residuals = []
    for count in _SIZES:
        for _ in range(_DRAWS):
            p = overconfident(rng, count)
            if no_bin_underconfident(p) and 0 < metrics.accuracy(p) < 1:
                residuals.append(metrics.ece_decomposition(p).residual)
    return tuple(residuals)


def _residuals(evidence: Evidence) -> tuple[list[float], tuple[str, ...]]:
    """Residuals of the runs in which no bin is underconfident."""
    under = evidence.at("singh2021", "figures", "underconfident_part")
    found, tested = [], []
    for place, cells in evidence.at("singh2021", "figures", "equation9_residual").items():
        for label, cell in cells.items():
            parts = under[place][label].seeds or {}
            kept = [
                v for seed, v in (cell.seeds or {}).items() if abs(parts[seed]) <= ROUNDING_ERROR
            ]
            found += kept
            tested += [place.setting] if kept else []
    return found, tuple(dict.fromkeys(tested))
