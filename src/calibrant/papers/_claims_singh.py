"""The claims of singh2021: what lowers the calibration error also lowers refinement."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._inequalities import ece_is_the_gap
from calibrant.papers._pairs import CE, ERL, FOCAL, LS, MIXUP, SMALL_RATIO, above, after
from calibrant.papers._verdicts import Claim, contrasted

_SINGH = partial(Contrast, paper="singh2021")
_AUROC = partial(
    _SINGH, metric="auroc", scale="difference", unit="AUROC points", factor=100, least=0.001
)
_REGULARISED = (ERL, LS, MIXUP, FOCAL)
_SCALED = after("temperature", CE)
_LEARNED = after("confidnet", CE)


def _lower_ece(kind: str, *others: tuple[str, str]) -> Contrast:
    words = "ECE of cross-entropy over that of regularised training"
    return _SINGH(
        words + (" or scaling" if others else ""),
        kind=kind,
        metric="ece",
        pairs=above([CE], [*_REGULARISED, *_SCALED] if others else _REGULARISED),
        least=SMALL_RATIO,
    )


def _lower_auroc(kind: str) -> tuple[Contrast, Contrast]:
    """Refinement suffers, and most under label smoothing."""
    return (
        _AUROC(
            "AUROC of cross-entropy above that of regularised training",
            kind=kind,
            pairs=above([CE], _REGULARISED),
        ),
        _AUROC(
            "AUROC of all others above that of label smoothing",
            kind=kind,
            pairs=above([CE, ERL, MIXUP, FOCAL], [LS]),
            best=True,
        ),
    )


_S2 = _AUROC(
    "Change of AUROC by temperature scaling",
    pairs=above(_SCALED, [CE]),
    within=(-0.01, 0.01),
    least=-math.inf,
)
_S4 = (
    _SINGH(
        "ECE of cross-entropy over that with ConfidNet",
        kind="confidnet",
        metric="ece",
        pairs=above([CE], _LEARNED),
        least=SMALL_RATIO,
    ),
    _AUROC(
        "AUROC with ConfidNet above that without", kind="confidnet", pairs=above(_LEARNED, [CE])
    ),
)

CLAIMS = (
    Claim(
        "S1",
        "singh2021",
        "Entropy regularisation, label smoothing, mixup and focal loss lower "
        "ECE and AUROC of correctness, label smoothing AUROC most.",
        "tables",
        contrasted(_lower_ece("main"), *_lower_auroc("main")),
    ),
    Claim(
        "S2",
        "singh2021",
        "Temperature scaling changes AUROC by less than 1 point.",
        "tables",
        contrasted(_S2),
    ),
    Claim(
        "S3",
        "singh2021",
        "Under natural shift too, regularised training and scaling lower ECE, "
        "and regularised training lowers AUROC, label smoothing most.",
        "tables",
        contrasted(_lower_ece("shift", *_SCALED), *_lower_auroc("shift")),
    ),
    Claim("S4", "singh2021", "ConfidNet lowers ECE and raises AUROC.", "tables", contrasted(*_S4)),
    Claim(
        "S5",
        "singh2021",
        "ECE is mean confidence minus accuracy if no bin is underconfident.",
        "mathematics",
        ece_is_the_gap,
    ),
)
