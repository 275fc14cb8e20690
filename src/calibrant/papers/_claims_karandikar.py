"""The claims of karandikar2021: soft calibration objectives work, in training and in scaling."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from calibrant.papers._changes import best_of, effect_sizes
from calibrant.papers._contrasts import Contrast, Pair, confidence_gap
from calibrant.papers._evidence import Evidence, Label
from calibrant.papers._pairs import CE, FOCAL, MMCE, above, after, joined
from calibrant.papers._verdicts import LUCK, Claim, ClaimVerdict, decide, put_down_to_luck

_KARANDIKAR = partial(Contrast, paper="karandikar2021", metric="ece")
_CLAIM = partial(Claim, paper="karandikar2021")
_PRIMARIES = tuple(Label(name) for name in ("cross_entropy", "focal", "squared_error"))
_SECONDARIES = ("mmce", "avuc", "avuc_gs", "soft_avuc", "soft_binned_ece")


def _with(primary: Label, *secondaries: str) -> tuple[Label, ...]:
    return tuple(Label(f"{primary.method} + {name}") for name in secondaries)


_SOFT = [(p, _with(p, "soft_avuc", "soft_binned_ece")) for p in _PRIMARIES]
_SOFT_LABELS = tuple(label for _, labels in _SOFT for label in labels)
_ALL = [m for p in _PRIMARIES for m in (p, *_with(p, *_SECONDARIES))]
_FOR_CALIBRATION = [
    *_PRIMARIES[1:],
    *(m for p in _PRIMARIES for m in _with(p, "mmce", "soft_avuc", "soft_binned_ece")),
]


def both_ways(labels: Collection[Label]) -> list[Pair]:
    """Every loss scaled by likelihood, and the same loss scaled by SB-ECE."""
    found = ((x, Label(x.method, "temperature_soft_ece")) for x in labels)
    return [(x, y) for x, y in found if x.calibrator == "temperature" and y in labels]


_K1 = (
    _KARANDIKAR(
        "ECE of the primary loss over that with SB-ECE or S-AvUC added",
        pairs=joined(*(above([p], soft) for p, soft in _SOFT)),
    ),
    _KARANDIKAR(
        "Accuracy with SB-ECE or S-AvUC minus that of the primary loss alone",
        metric="accuracy",
        pairs=joined(*(above(soft, [p]) for p, soft in _SOFT)),
        scale="difference",
        unit="points",
        factor=100,
        margin=-0.01,
        by_labels=False,
    ),
)
_K2 = _KARANDIKAR(
    "ECE after temperature scaling by likelihood over that by SB-ECE",
    pairs=joined(*(above(after("temperature", m), after("temperature_soft_ece", m)) for m in _ALL)),
)
_K3 = _KARANDIKAR(
    "ECE under shift of cross-entropy with scaling over training for calibration",
    kind="shift",
    pairs=above(after("temperature", CE), _FOR_CALIBRATION),
)
_K4 = (
    _KARANDIKAR(
        "ECE with AvUC over that of the primary loss alone",
        pairs=joined(*(above(_with(p, "avuc"), [p]) for p in _PRIMARIES)),
        by_labels=False,
    ),
    _KARANDIKAR(
        "ECE with AvUC over that with AvUC and stopped gradients",
        pairs=joined(*(above(_with(p, "avuc"), _with(p, "avuc_gs")) for p in _PRIMARIES)),
    ),
)
_K5 = (
    replace(
        _K2,
        what="ECE under shift of cross-entropy, scaled by likelihood over scaled by SB-ECE",
        kind="shift",
        pairs=above(after("temperature", CE), after("temperature_soft_ece", CE)),
    ),
    replace(_K2, what="The same for every loss", kind="shift", pairs=both_ways),
)
_K6 = _KARANDIKAR(
    "Lowest ECE of all other losses over the lowest with SB-ECE or S-AvUC",
    kind="best",
    pairs=above([Label("the others")], [Label("the group")]),
    by_labels=False,
    best=True,
    every=True,
)


def _lowest(evidence: Evidence) -> tuple[Evidence, float]:
    return best_of(evidence, ("karandikar2021", "main", "ece"), _SOFT_LABELS)


def _best_ece(evidence: Evidence) -> ClaimVerdict:
    """The lowest of each side is found on the same numbers, which luck takes into account."""
    found, chance = _lowest(evidence)
    verdict = decide(found, [_K6])
    if verdict.verdict != "holds" or chance <= LUCK:
        return verdict
    needs = "More seeds cannot decide it: only further settings make that less likely."
    return replace(put_down_to_luck(verdict, chance), needs=needs)


_K7 = tuple(
    _KARANDIKAR(
        f"Effect of S-AvUC on ECE {words}, above that of the other secondary losses",
        kind="effect",
        metric="d",
        pairs=above(
            after(calibrator, Label("soft_avuc")),
            after(calibrator, *(Label(x) for x in _SECONDARIES if x != "soft_avuc")),
        ),
        scale="difference",
        unit="Cohen's d",
    )
    for calibrator, words in (("none", "as trained"), ("temperature", "after scaling"))
)
_K8 = tuple(
    _KARANDIKAR(
        f"ECE of cross-entropy {words} over that of focal loss with S-AvUC, CIFAR-100",
        pairs=above(after(calibrator, CE), _with(FOCAL, "soft_avuc")),
        stated=-math.log(1 - reduction),
        data=("cifar100",),
        by_labels=False,
    )
    for calibrator, words, reduction in (
        ("none", "as trained", 0.82),
        ("temperature", "after scaling", 0.70),
    )
)
_GAP = partial(confidence_gap, paper="karandikar2021")
_K9 = (
    _GAP(
        "Confidence minus accuracy under cross-entropy", pairs=above([CE], [None]), by_labels=False
    ),
    _GAP("The same, cross-entropy above cross-entropy with MMCE", pairs=above([CE], [MMCE])),
    _GAP(
        "Accuracy minus confidence under focal loss", pairs=above([None], [FOCAL]), by_labels=False
    ),
    _KARANDIKAR(
        "Mean entropy of all other losses above that of cross-entropy",
        metric="mean_entropy",
        pairs=above([label for label in _ALL if label != CE], [CE]),
        scale="difference",
        unit="nats",
    ),
)

CLAIMS = (
    _CLAIM(
        "K1",
        statement="SB-ECE and S-AvUC added to a primary loss lower its ECE and cost "
        "less than 1 point of accuracy.",
        source="section 5.1, figure 5, table 2",
        rests_on="tables",
        contrasts=_K1,
    ),
    _CLAIM(
        "K2",
        statement="Temperature scaling by SB-ECE gives a lower ECE than by likelihood in most "
        "settings.",
        source="section 5.2, appendix B, table 2",
        rests_on="tables",
        contrasts=(_K2,),
    ),
    _CLAIM(
        "K3",
        statement="Under shift, training for calibration has a lower ECE than cross-entropy with "
        "temperature scaling.",
        source="section 5.3, figures 7 and 8",
        rests_on="figures",
        contrasts=(_K3,),
    ),
    _CLAIM(
        "K4",
        statement="AvUC added to a primary loss does not lower its ECE, and with stopped gradients "
        "ECE is lower than with plain AvUC.",
        source="section 4.2, appendix D, table 2",
        rests_on="tables",
        contrasts=_K4,
    ),
    _CLAIM(
        "K5",
        statement="Under shift, temperature scaling by SB-ECE gives a lower ECE than by "
        "likelihood, for cross-entropy and for the other losses.",
        source="section 5.2, appendix B, figures 2 and 9",
        rests_on="figures",
        contrasts=_K5,
    ),
    _CLAIM(
        "K6",
        statement="The lowest ECE on each data set is that of a loss with SB-ECE or S-AvUC.",
        source="section 5.1, appendix A, table 2",
        rests_on="tables",
        contrasts=(_K6,),
        change=lambda evidence: _lowest(evidence)[0],
        own_test=_best_ece,
        own_rule=f"{_K6.what}: {_K6.rule()}",
    ),
    _CLAIM(
        "K7",
        statement="Of the secondary losses, S-AvUC has the largest effect on ECE (Cohen's d), as "
        "trained and after temperature scaling.",
        source="section 1, figure 1",
        rests_on="tables",
        contrasts=_K7,
        change=effect_sizes,
    ),
    _CLAIM(
        "K8",
        statement="On CIFAR-100, focal loss with S-AvUC has an ECE 82 % below that of "
        "cross-entropy and 70 % below that of cross-entropy with temperature scaling.",
        source="abstract, table 1a",
        rests_on="tables",
        contrasts=_K8,
    ),
    _CLAIM(
        "K9",
        statement="Cross-entropy is overconfident, less so with MMCE; focal loss is "
        "underconfident; cross-entropy has the lowest mean entropy.",
        source="appendix C, figures 6 and 10",
        rests_on="figures",
        contrasts=_K9,
    ),
)
