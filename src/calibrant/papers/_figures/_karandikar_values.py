"""The numbers in the figures of Karandikar et al. (2021)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from calibrant import Confidences
from calibrant._core.arrays import Float64
from calibrant.papers._figures._panel import TEST, PlaceRuns
from calibrant.papers._scales import method_name
from calibrant.results import cohens_d

if TYPE_CHECKING:
    pass


PRIMARY = {"cross_entropy": "NLL", "focal": "Focal", "squared_error": "MSE"}
SECONDARY = {
    "mmce": "MMCE",
    "avuc": "AvUC",
    "avuc_gs": "AvUC-GS",
    "soft_avuc": "S-AvUC",
    "soft_binned_ece": "SB-ECE",
}
NLL, FOCAL, MSE = PRIMARY
BINS, MEMBERSHIP_TEMPERATURES = 5, (0.05, 0.01, 0.001)


def shown(method: str) -> str:
    """What the paper calls a method.

    >>> shown("cross_entropy + soft_avuc")
    'NLL + S-AvUC'
    """
    first, _, second = method.partition(" + ")
    return f"{PRIMARY[first]} + {SECONDARY[second]}" if second else PRIMARY[first]


def effect_on_ece(found: Iterable[PlaceRuns], secondary: str, calibrator: str) -> list[float]:
    """Cohen's d of the primary loss alone against both, at each place and primary loss."""
    effects = []
    for panel in found:
        for primary in PRIMARY:
            alone = panel.values(primary, "ece", calibrator)
            both = panel.values(method_name(primary, secondary), "ece", calibrator)
            if alone and both:
                effects.append(cohens_d(alone, both))
    return effects


def by_pair(panel: PlaceRuns, metric: str) -> dict[str, dict[str, list[float]]]:
    """Values of each seed by primary loss, then by secondary loss."""
    found: dict[str, dict[str, list[float]]] = {}
    for primary, name in PRIMARY.items():
        for secondary, words in ((None, "none"), *SECONDARY.items()):
            values = panel.values(method_name(primary, secondary), metric)
            if values:
                found.setdefault(name, {})[words] = values
    return found


def membership(temperature: float) -> tuple[Float64, Float64]:
    """Confidences, and their shares in the bins (columns)."""
    import torch

    from calibrant.losses import soft_membership

    x = np.linspace(0, 1, 1001)
    shares = soft_membership(torch.from_numpy(x), bins=BINS, temperature=temperature)
    return x, shares.numpy()


def uncertainty(kappa: float, temperature: float) -> tuple[Float64, Float64]:
    """Normalised entropies, and how uncertain each is."""
    import torch

    from calibrant.losses import soft_uncertainty

    x = np.linspace(0, 1, 1001)
    return x, soft_uncertainty(torch.from_numpy(x), kappa, temperature).numpy()


def pooled(panel: PlaceRuns, method: str) -> Confidences | None:
    """The predictions of all seeds together."""
    kept = [p for (p,) in panel.predictions(method, TEST)]
    if not kept:
        return None
    return Confidences(
        confidence=np.concatenate([p.confidence for p in kept]),
        correct=np.concatenate([p.correct for p in kept]),
    )


def ece_at_entropy(panel: PlaceRuns, method: str) -> dict[float, list[float]]:
    """ECE of each seed at the mean entropy over seeds: one point."""
    entropies, errors = panel.values(method, "mean_entropy"), panel.values(method, "ece")
    return {float(np.mean(entropies)): errors} if entropies and errors else {}
