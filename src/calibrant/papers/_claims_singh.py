"""The claims of singh2021: what lowers the calibration error also lowers refinement."""

from __future__ import annotations

from functools import partial

from calibrant.papers._changes import disagreements
from calibrant.papers._contrasts import Contrast
from calibrant.papers._inequalities import ece_is_the_gap, penalties_are_least_when_uniform
from calibrant.papers._pairs import CE, ERL, FOCAL, LS, MIXUP, above, after
from calibrant.papers._refinement import equation_nine_gives_the_ece
from calibrant.papers._verdicts import Claim

_SINGH = partial(Contrast, paper="singh2021")
_AUROC = partial(_SINGH, metric="auroc", scale="difference", unit="AUROC points", factor=100)
_CLAIM = partial(Claim, paper="singh2021", rests_on="tables")
_TRAINED = (ERL, LS, MIXUP, FOCAL)
_SCALED = after("temperature", CE)
_LEARNED = after("confidnet", CE)


def _lower(metric: str, name: str, kind: str, *others: tuple[str, str]) -> Contrast:
    words = f"{name} of cross-entropy over that of regularised training"
    return _SINGH(
        words + (" or scaling" if others else "") + (" under shift" if kind == "shift" else ""),
        kind=kind,
        metric=metric,
        pairs=above([CE], [*_TRAINED, *_SCALED] if others else _TRAINED),
    )


def _lower_auroc(kind: str) -> tuple[Contrast, Contrast]:
    """Refinement suffers, and most under label smoothing."""
    return (
        _AUROC(
            "AUROC of cross-entropy above that of regularised training",
            kind=kind,
            pairs=above([CE], _TRAINED),
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
    own_margin=True,
)
_S4 = (
    _SINGH(
        "ECE of cross-entropy over that with ConfidNet",
        kind="confidnet",
        metric="ece",
        pairs=above([CE], _LEARNED),
    ),
    _AUROC(
        "AUROC with ConfidNet above that without", kind="confidnet", pairs=above(_LEARNED, [CE])
    ),
)
_S7 = _SINGH(
    "Share of settings in which only one of the two is lowered, label smoothing above the others",
    kind="disagreement",
    metric="share",
    pairs=above([LS], [*_SCALED, ERL, MIXUP, FOCAL]),
    scale="difference",
    unit="points",
    factor=100,
    best=True,
)
_S8 = _SINGH(
    "ECE of entropy regularisation over that of the other methods",
    metric="ece",
    pairs=above([ERL], [*_SCALED, LS, MIXUP, FOCAL]),
    best=True,
)
_S9 = _AUROC(
    "AUROC under shift of cross-entropy above that of mixup",
    kind="shift",
    pairs=above([CE], [MIXUP]),
)
_S10 = tuple(
    _SINGH(
        f"Share of 100 bins with accuracy at most confidence, {name}",
        kind="figures",
        metric="overconfident_bins",
        pairs=above([CE], [None]),
        scale="difference",
        unit="% of the bins",
        factor=100,
        stated=share,
        data=(data,),
        by_labels=False,
    )
    for data, name, share in (("imagenet", "ImageNet", 0.80), ("cifar100", "CIFAR-100", 0.95))
)

CLAIMS = (
    _CLAIM(
        "S1",
        statement="Entropy regularisation, label smoothing, mixup and focal loss lower "
        "ECE and AUROC of correctness, label smoothing AUROC most.",
        source="section 5.1, tables 1 and 2",
        contrasts=(_lower("ece", "ECE", "main"), *_lower_auroc("main")),
    ),
    _CLAIM(
        "S2",
        statement="Temperature scaling changes AUROC by less than 1 point (the paper says: it "
        "retains much of the refinement).",
        source="section 5.1, tables 1 and 2",
        contrasts=(_S2,),
    ),
    _CLAIM(
        "S3",
        statement="Under natural shift too, regularised training and scaling lower ECE, "
        "and regularised training lowers AUROC, label smoothing most.",
        source="section 5.2, table 3",
        contrasts=(_lower("ece", "ECE", "shift", *_SCALED), *_lower_auroc("shift")),
    ),
    _CLAIM(
        "S4",
        statement="ConfidNet lowers ECE and raises AUROC.",
        source="appendix A.2, table 4",
        contrasts=_S4,
    ),
    _CLAIM(
        "S5",
        statement="ECE is mean confidence minus accuracy if no bin is underconfident.",
        source="section 2.1, equation 7",
        rests_on="mathematics",
        own_test=ece_is_the_gap,
        own_rule="difference of the two sides: never beyond rounding",
    ),
    _CLAIM(
        "S6",
        statement="Regularised training and temperature scaling lower the Brier score, on the test "
        "set and under natural shift.",
        source="sections 5.1 and 5.2, tables 1 to 3",
        contrasts=tuple(
            _lower("brier", "Brier score", kind, *_SCALED) for kind in ("main", "shift")
        ),
    ),
    _CLAIM(
        "S7",
        statement="Some methods lower only one of ECE and Brier score, label smoothing most often.",
        source="section 5.1, tables 1 and 2",
        contrasts=(_S7,),
        change=disagreements,
    ),
    _CLAIM(
        "S8",
        statement="Entropy regularisation lowers ECE least of all methods.",
        source="section 5.1, tables 1 and 2",
        contrasts=(_S8,),
    ),
    _CLAIM(
        "S9",
        statement="Under natural shift mixup brings no refinement: its AUROC is below that of "
        "cross-entropy.",
        source="section 5.2.1, table 3",
        contrasts=(_S9,),
    ),
    _CLAIM(
        "S10",
        statement="In 80 of 100 bins on ImageNet, and 95 on CIFAR-100, accuracy is at most "
        "confidence: nearly the assumption of equation 9.",
        source="section 2.1, assumption",
        rests_on="figures",
        contrasts=_S10,
    ),
    _CLAIM(
        "S11",
        statement="If no bin is underconfident, ECE is mean confidence minus a term in AUROC minus "
        "a constant of the error rate.",
        source="section 2.1, equation 9",
        rests_on="mathematics",
        own_test=equation_nine_gives_the_ece,
        own_rule="residual, ECE minus the right side: never beyond rounding",
    ),
    _CLAIM(
        "S12",
        statement="The penalty of entropy regularisation, and that of label smoothing, is least "
        "where every class has probability 1/K.",
        source="section 2.2, appendix A.1",
        rests_on="mathematics",
        own_test=penalties_are_least_when_uniform,
        own_rule="penalty minus that of the uniform prediction: never below 0 beyond rounding",
    ),
)
