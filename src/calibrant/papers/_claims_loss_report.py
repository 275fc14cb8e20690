"""The claims of loss_report: how losses differ in ECE, and two theorems."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._inequalities import focal_bounds_cross_entropy, scaling_raises_the_top
from calibrant.papers._pairs import CE, ERL, FOCAL, L1, SMALL_RATIO, above
from calibrant.papers._verdicts import Claim, contrasted

_ECE = partial(Contrast, paper="loss_report", metric="ece", least=SMALL_RATIO)
_GAP = partial(
    Contrast,
    paper="loss_report",
    kind="figures",
    metric="confidence_gap",
    scale="difference",
    unit="points",
    factor=100,
    least=0.001,
)
_R1 = (
    _GAP(
        "Confidence minus accuracy under cross-entropy", pairs=above([CE], [None]), by_labels=False
    ),
    _GAP(
        "Confidence minus accuracy, cross-entropy above the other losses",
        pairs=above([CE], [ERL, L1, FOCAL]),
    ),
)
_R2 = _ECE(
    "ECE of cross-entropy over that with entropy regularisation",
    pairs=above([CE], [ERL]),
    within=(-math.log(1.25), math.log(1.25)),
    least=-math.inf,
)

CLAIMS = (
    Claim(
        "R1",
        "loss_report",
        "Cross-entropy is overconfident, and more so than with entropy "
        "regularisation, with an L1 norm of the logits, or focal loss.",
        "figures",
        contrasted(*_R1),
    ),
    Claim(
        "R2",
        "loss_report",
        "Entropy regularisation hardly changes ECE: by a factor of less than 1.25 either way.",
        "figures",
        contrasted(_R2),
    ),
    Claim(
        "R3",
        "loss_report",
        "An L1 norm of the logits lowers ECE.",
        "figures",
        contrasted(_ECE("ECE of cross-entropy over that with an L1 norm", pairs=above([CE], [L1]))),
    ),
    Claim(
        "R4",
        "loss_report",
        "Focal loss lowers ECE.",
        "figures",
        contrasted(
            _ECE("ECE of cross-entropy over that of focal loss", pairs=above([CE], [FOCAL]))
        ),
    ),
    Claim(
        "T1",
        "loss_report",
        "Scaling logits by t > 1 does not lower the top probability.",
        "mathematics",
        scaling_raises_the_top,
    ),
    Claim(
        "T2",
        "loss_report",
        "Focal loss is at least cross-entropy minus gamma times the entropy "
        "of the prediction, for gamma ≥ 1.",
        "mathematics",
        focal_bounds_cross_entropy,
    ),
)
