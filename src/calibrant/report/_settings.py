"""How everything in a report is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrant._measure._views import Positive
from calibrant.inference import Resampling


@dataclass(frozen=True)
class Settings(Resampling):
    """Resampling, bins, the class that is asked about, and the grouping to show."""

    bins: int = 15
    positive: Positive = None
    threshold: float = 0.5
    costs: tuple[float, float] = (1.0, 1.0)
    by: str | None = None

    @property
    def resampling(self) -> dict[str, Any]:
        """Level, replicates and seed, as keywords."""
        return {"level": self.level, "replicates": self.replicates, "seed": self.seed}

    @property
    def measuring(self) -> dict[str, Any]:
        """The keywords of ``measure`` that hold for every metric."""
        return {"bins": self.bins, **self.resampling}

    @property
    def decisions(self) -> dict[str, Any]:
        """Threshold and costs, as keywords."""
        return {"threshold": self.threshold, "costs": self.costs}
