"""The claims of mukhoti2020: focal loss is calibrated without post-hoc calibration."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._inequalities import focal_bounds_divergence
from calibrant.papers._pairs import (
    BRIER,
    CE,
    FOCAL,
    FOCALS,
    LS,
    MMCE,
    SMALL_RATIO,
    above,
    after,
)
from calibrant.papers._verdicts import Claim, contrasted

_MUKHOTI = partial(Contrast, paper="mukhoti2020", least=SMALL_RATIO)
_FIGURE = partial(_MUKHOTI, kind="figures")
_NATS = partial(_FIGURE, scale="difference", unit="nats", least=0.01)
_OTHERS = (CE, BRIER, MMCE, LS)
_NEAR_ONE = after("temperature", FOCAL, BRIER, LS)

_M1 = tuple(
    _MUKHOTI(
        f"{name} of other losses over that of focal loss",
        metric=metric,
        pairs=above(_OTHERS, [FOCAL]),
        best=True,
    )
    for metric, name in (
        ("ece", "ECE"),
        ("adaptive_ece", "Adaptive ECE"),
        ("classwise_ece", "Classwise ECE"),
    )
)
_M2 = (
    _MUKHOTI(
        "Temperature of cross-entropy and MMCE over that of focal, Brier and smoothing",
        metric="temperature",
        pairs=above(after("temperature", CE, MMCE), _NEAR_ONE),
        margin=math.log(1.5),
        least=math.log(1.5),
    ),
    _MUKHOTI(
        "Temperature of focal, Brier and smoothing",
        metric="temperature",
        pairs=above(_NEAR_ONE, [None]),
        within=(math.log(0.7), math.log(1.4)),
        least=-math.inf,
        by_labels=False,
    ),
)
_M3 = (
    _NATS(
        "Late rise of the test NLL of misclassified samples under cross-entropy",
        metric="nll_rise_incorrect",
        pairs=above([CE], [None]),
        by_labels=False,
    ),
    _NATS(
        "Late fall of the test NLL of correct samples under cross-entropy",
        metric="nll_rise_correct",
        pairs=above([None], [CE]),
        margin=-0.01,
        least=-math.inf,
        by_labels=False,
    ),
    _NATS(
        "Late rise on misclassified samples, cross-entropy above focal loss",
        metric="nll_rise_incorrect",
        pairs=above([CE], FOCALS),
    ),
)
_M4 = (
    _FIGURE(
        "First norm of the last layer, focal loss over cross-entropy",
        metric="head_norm_early",
        pairs=above(FOCALS, [CE]),
        least=math.log(1.005),
    ),
    _FIGURE(
        "Last norm of the last layer, cross-entropy over focal loss",
        metric="head_norm_late",
        pairs=above([CE], FOCALS),
        least=math.log(1.005),
    ),
)
_M5 = _NATS(
    "Entropy of misclassified samples, focal loss above cross-entropy",
    metric="entropy_incorrect",
    pairs=above(FOCALS, [CE]),
)

CLAIMS = (
    Claim(
        "M1",
        "mukhoti2020",
        "Focal loss with gamma 3 has the lowest ECE, adaptive ECE and "
        "classwise ECE in most settings before post-hoc calibration.",
        "tables",
        contrasted(*_M1),
    ),
    Claim(
        "M2",
        "mukhoti2020",
        "The best temperature of cross-entropy and MMCE is more than 1.5 "
        "times that of focal, Brier and label smoothing, which is near 1 (0.7 to 1.4).",
        "tables",
        contrasted(*_M2),
    ),
    Claim(
        "M3",
        "mukhoti2020",
        "In the second half of training with cross-entropy the test NLL "
        "rises on misclassified samples and not on correct ones; with focal loss less.",
        "figures",
        contrasted(*_M3),
    ),
    Claim(
        "M4",
        "mukhoti2020",
        "The norm of the last layer is larger for focal loss than for "
        "cross-entropy at the start of training and smaller at the end.",
        "figures",
        contrasted(*_M4),
    ),
    Claim(
        "M5",
        "mukhoti2020",
        "Focal loss keeps a higher entropy on misclassified samples.",
        "figures",
        contrasted(_M5),
    ),
    Claim(
        "M6",
        "mukhoti2020",
        "Focal loss is at least the KL divergence minus gamma times the entropy of the prediction.",
        "mathematics",
        focal_bounds_divergence,
    ),
)
