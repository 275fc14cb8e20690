"""How intervals are made: confidence level, number of replicates, seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrant._core.checks import check_count, check_fraction, check_seed

LEAST_DRAWS = 20
# How strong the gaps of simulated populations are: 0 is calibrated, 1 is as observed.
STRENGTHS = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0])

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Resampling:
    """Confidence level, number of bootstrap replicates and seed, validated."""

    level: float = 0.95
    replicates: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_fraction("level", self.level, example=0.95)
        check_count("replicates", self.replicates, least=LEAST_DRAWS, most=1_000_000, example=1000)
        check_seed(self.seed)

    def for_all_of(self, count: int) -> Resampling:
        """At the level at which each of some intervals must hold so that all do (Bonferroni)."""
        return replace(self, level=1 - (1 - self.level) / count)

    @property
    def draws(self) -> int:
        """Draws of the grid bootstrap: each is used at every strength of the gaps."""
        return max(self.replicates // len(STRENGTHS), LEAST_DRAWS)
