"""The claims of karandikar2021: soft calibration objectives work, in training and in scaling."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._evidence import Label
from calibrant.papers._pairs import CE, SMALL_RATIO, above, after, joined
from calibrant.papers._verdicts import Claim, contrasted

_KARANDIKAR = partial(Contrast, paper="karandikar2021", metric="ece", least=SMALL_RATIO)
_PRIMARIES = tuple(Label(name) for name in ("cross_entropy", "focal", "squared_error"))
_SECONDARIES = ("mmce", "avuc", "avuc_gs", "soft_avuc", "soft_binned_ece")


def _with(primary: Label, *secondaries: str) -> tuple[Label, ...]:
    return tuple(Label(f"{primary.method} + {name}") for name in secondaries)


_SOFT = [(p, _with(p, "soft_avuc", "soft_binned_ece")) for p in _PRIMARIES]
_ALL = [m for p in _PRIMARIES for m in (p, *_with(p, *_SECONDARIES))]
_FOR_CALIBRATION = [
    *_PRIMARIES[1:],
    *(m for p in _PRIMARIES for m in _with(p, "mmce", "soft_avuc", "soft_binned_ece")),
]

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
        least=-math.inf,
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
        margin=-math.log(1.1),
        least=-math.inf,
        by_labels=False,
    ),
    _KARANDIKAR(
        "ECE with AvUC over that with AvUC and stopped gradients",
        pairs=joined(*(above(_with(p, "avuc"), _with(p, "avuc_gs")) for p in _PRIMARIES)),
    ),
)

CLAIMS = (
    Claim(
        "K1",
        "karandikar2021",
        "SB-ECE and S-AvUC added to a primary loss lower its ECE and cost "
        "less than 1 point of accuracy.",
        "tables",
        contrasted(*_K1),
    ),
    Claim(
        "K2",
        "karandikar2021",
        "Temperature scaling by SB-ECE gives a lower ECE than by likelihood in most settings.",
        "tables",
        contrasted(_K2),
    ),
    Claim(
        "K3",
        "karandikar2021",
        "Under shift, training for calibration has a lower ECE than "
        "cross-entropy with temperature scaling.",
        "figures",
        contrasted(_K3),
    ),
    Claim(
        "K4",
        "karandikar2021",
        "AvUC added to a primary loss does not lower its ECE (by a tenth "
        "or more), and with stopped gradients ECE is lower than with plain AvUC.",
        "tables",
        contrasted(*_K4),
    ),
)
