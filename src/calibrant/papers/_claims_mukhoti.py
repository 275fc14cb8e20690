"""The claims of mukhoti2020: focal loss is calibrated without post-hoc calibration."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._evidence import Label
from calibrant.papers._inequalities import focal_bounds_divergence
from calibrant.papers._pairs import BRIER, CE, FOCAL, FOCALS, LS, MMCE, above, after
from calibrant.papers._verdicts import Claim

# In the evidence on this paper "focal" is focal loss with gamma 3: see FIXED in _coefficients.
_MUKHOTI = partial(Contrast, paper="mukhoti2020")
_FIGURE = partial(_MUKHOTI, kind="figures")
_NATS = partial(_FIGURE, scale="difference", unit="nats")
_CLAIM = partial(Claim, paper="mukhoti2020")
_OTHERS = (CE, BRIER, MMCE, LS)
_NEAR_ONE = after("temperature", FOCAL, BRIER, LS)
_HIGH = after("temperature", CE, MMCE)


def _best(calibrator: str) -> tuple[Contrast, ...]:
    """Whether focal loss has the lowest error of three kinds."""
    return tuple(
        _MUKHOTI(
            f"{name} of other losses over that of focal loss, gamma 3",
            metric=metric,
            pairs=above(after(calibrator, *_OTHERS), after(calibrator, FOCAL)),
            best=True,
        )
        for metric, name in (
            ("ece", "ECE"),
            ("adaptive_ece", "Adaptive ECE"),
            ("classwise_ece", "Classwise ECE"),
        )
    )


def _mostly(what: str, labels: tuple[Label, ...], low: float, high: float) -> Contrast:
    """Whether most temperatures are between two printed with one digit, both included."""
    slack = 1e-9
    return _MUKHOTI(
        what,
        metric="temperature",
        pairs=above(labels, [None]),
        within=(math.log(low) - slack, math.log(high) + slack),
        mostly=True,
        by_labels=False,
    )


_M2 = (
    _MUKHOTI(
        "Temperature of cross-entropy and MMCE over that of focal, Brier and smoothing",
        metric="temperature",
        pairs=above(_HIGH, _NEAR_ONE),
    ),
    _mostly("Temperature of focal loss, Brier loss and label smoothing", _NEAR_ONE, 0.9, 1.1),
    _mostly("Temperature of cross-entropy and MMCE", _HIGH, 2.0, 2.8),
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
    ),
    _FIGURE(
        "Last norm of the last layer, cross-entropy over focal loss",
        metric="head_norm_late",
        pairs=above([CE], FOCALS),
    ),
)
_M5 = _NATS(
    "Entropy of misclassified samples, focal loss above cross-entropy",
    metric="entropy_incorrect",
    pairs=above(FOCALS, [CE]),
)
_M8 = _MUKHOTI(
    "Test error of cross-entropy minus that of focal loss, gamma 3",
    metric="error",
    pairs=above([CE], [FOCAL]),
    scale="difference",
    unit="points",
    factor=100,
    margin=-0.01,
    own_margin=True,
    by_labels=False,
)
_M9 = tuple(
    _FIGURE(
        f"Test NLL of correct samples {words}, focal loss over cross-entropy",
        metric=f"nll_correct_{when}",
        pairs=above(FOCALS, [CE]),
    )
    for when, words in (("early", "in the first tenth"), ("late", "in the last tenth"))
)
_M10 = _FIGURE(
    "Late rise of the test ECE under cross-entropy",
    metric="ece_rise",
    pairs=above([CE], [None]),
    scale="difference",
    unit="points",
    factor=100,
    by_labels=False,
)

CLAIMS = (
    _CLAIM(
        "M1",
        statement="Focal loss with gamma 3 has the lowest ECE, adaptive ECE and classwise ECE in "
        "most settings before post-hoc calibration.",
        source="section 4, tables 1, C.1, C.2",
        rests_on="tables",
        contrasts=_best("none"),
    ),
    _CLAIM(
        "M2",
        statement="The best temperatures of cross-entropy and MMCE are higher than those of focal "
        "loss, Brier loss and label smoothing; these lie mostly between 0.9 and 1.1, those between "
        "2.0 and 2.8.",
        source="section 4, table 1",
        rests_on="tables",
        contrasts=_M2,
    ),
    _CLAIM(
        "M3",
        statement="In the second half of training with cross-entropy the test NLL rises on "
        "misclassified samples and falls on correct ones; with focal loss it rises less.",
        source="section 3, figures 1a, 1b, 2c",
        rests_on="figures",
        contrasts=_M3,
    ),
    _CLAIM(
        "M4",
        statement="The norm of the last layer is larger for focal loss than for cross-entropy at "
        "the start of training and smaller at the end.",
        source="section 3, figure 2e",
        rests_on="figures",
        contrasts=_M4,
    ),
    _CLAIM(
        "M5",
        statement="Focal loss keeps a higher entropy on misclassified samples.",
        source="section 3, figure 2d",
        rests_on="figures",
        contrasts=(_M5,),
    ),
    _CLAIM(
        "M6",
        statement="Focal loss is at least the KL divergence minus gamma times the entropy of the "
        "prediction.",
        source="section 3, appendix A",
        rests_on="mathematics",
        own_test=focal_bounds_divergence,
        own_rule="left side minus right side: never below 0 beyond rounding",
    ),
    _CLAIM(
        "M7",
        statement="Focal loss with gamma 3 has the lowest ECE, adaptive ECE and classwise ECE in "
        "most settings after temperature scaling too.",
        source="section 4, tables 1, C.1, C.2",
        rests_on="tables",
        contrasts=_best("temperature"),
    ),
    _CLAIM(
        "M8",
        statement="Focal loss preserves accuracy: its test error is less than 1 point above that "
        "of cross-entropy (the paper says: similar).",
        source="abstract, sections 4 and 5, table C.3",
        rests_on="tables",
        contrasts=(_M8,),
    ),
    _CLAIM(
        "M9",
        statement="The test NLL of correct samples is higher for focal loss than for "
        "cross-entropy throughout training.",
        source="section 3, figure 2b",
        rests_on="figures",
        contrasts=_M9,
    ),
    _CLAIM(
        "M10",
        statement="Under cross-entropy the test ECE rises in the second half of training.",
        source="section 3, figure 1c",
        rests_on="figures",
        contrasts=(_M10,),
    ),
)
