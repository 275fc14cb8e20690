"""The claims of loss_report: how losses differ in ECE, and two theorems."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast, confidence_gap
from calibrant.papers._inequalities import focal_bounds_cross_entropy, scaling_raises_the_top
from calibrant.papers._pairs import CE, ERL, FOCAL, L1, above
from calibrant.papers._verdicts import Claim

_ECE = partial(Contrast, paper="loss_report", metric="ece")
_CLAIM = partial(Claim, paper="loss_report", source="section 3.2, figure 1", rests_on="figures")
_GAP = partial(confidence_gap, paper="loss_report")
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
    own_margin=True,
)
_R3 = _ECE(
    "ECE of cross-entropy over that with an L1 norm", pairs=above([CE], [L1]), without=("resnet18",)
)
_R4 = _ECE("ECE of cross-entropy over that of focal loss", pairs=above([CE], [FOCAL]))
_R5 = _ECE(
    "Change of ECE from epoch to epoch on VGG-16, entropy regularisation over the other losses",
    kind="figures",
    metric="ece_fluctuation",
    pairs=above([ERL], [CE, L1, FOCAL]),
    best=True,
    models=("vgg16",),
)
_R6 = _ECE(
    "ECE with an L1 norm over that of cross-entropy, ResNet-18",
    pairs=above([L1], [CE]),
    models=("resnet18",),
)

CLAIMS = (
    _CLAIM(
        "R1",
        statement="Cross-entropy is overconfident, and more so than with entropy regularisation, "
        "with an L1 norm of the logits, or focal loss.",
        contrasts=_R1,
    ),
    _CLAIM(
        "R2",
        statement="Entropy regularisation hardly changes ECE: by a factor of less than 1.25 either "
        "way (the report says: not effective).",
        contrasts=(_R2,),
    ),
    _CLAIM(
        "R3",
        statement="An L1 norm of the logits lowers ECE on networks other than ResNet-18.",
        contrasts=(_R3,),
    ),
    _CLAIM("R4", statement="Focal loss lowers ECE.", contrasts=(_R4,)),
    _CLAIM(
        "R5",
        statement="On VGG-16 the ECE fluctuates more from epoch to epoch under entropy "
        "regularisation than under the other losses.",
        contrasts=(_R5,),
    ),
    _CLAIM(
        "R6",
        statement="On ResNet-18 an L1 norm of the logits does not lower ECE.",
        contrasts=(_R6,),
    ),
    _CLAIM(
        "T1",
        statement="Scaling logits by t > 1 does not lower the top probability.",
        source="theorem 1",
        rests_on="mathematics",
        own_test=scaling_raises_the_top,
        own_rule="top probability after scaling minus before: never below 0 beyond rounding",
    ),
    _CLAIM(
        "T2",
        statement="Focal loss is at least cross-entropy minus gamma times the entropy of the "
        "prediction, for gamma ≥ 1.",
        source="theorem 2",
        rests_on="mathematics",
        own_test=focal_bounds_cross_entropy,
        own_rule="left side minus right side: never below 0 beyond rounding",
    ),
)
