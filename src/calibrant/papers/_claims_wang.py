"""The claims of wang2021: regularised losses are calibrated, but less calibratable."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from calibrant.papers._contrasts import Contrast
from calibrant.papers._evidence import Evidence, Label
from calibrant.papers._pairs import CE, FOCAL, L1, LS, SMALL_RATIO, above, after, by_number
from calibrant.papers._verdicts import Claim, Verdict, contrasted, decide

_WANG = partial(Contrast, paper="wang2021", least=SMALL_RATIO)
_FIGURE = partial(_WANG, kind="figures")
_REGULARISED = (LS, L1, FOCAL)
_INVERSE = tuple(Label(f"inverse_focal{gamma}") for gamma in (" 1", "", " 3"))
_FAMILIES = ("label_smoothing", "cross_entropy + logit_norm", "focal")

_W1 = _WANG(
    "ECE of cross-entropy over that of regularised losses",
    metric="ece",
    pairs=above([CE], _REGULARISED),
)


def _repaired(calibrator: str, words: str) -> Contrast:
    """Whether cross-entropy is best after calibration."""
    return _WANG(
        f"ECE of regularised losses over that of cross-entropy after {words}",
        metric="ece",
        pairs=above(after(calibrator, *_REGULARISED), after(calibrator, CE)),
        best=True,
    )


_W3 = _WANG(
    "Temperature of cross-entropy over that of regularised losses",
    metric="temperature",
    pairs=above(after("temperature", CE), after("temperature", *_REGULARISED)),
    best=True,
)


def _best_coefficient(family: str) -> Contrast:
    return _FIGURE(
        f"Best coefficient of {family} with fewer over that with more training samples",
        metric=f"best_coefficient {family}",
        pairs=by_number(falling=True),
    )


_TEMPERATURES = after("temperature", CE, *_REGULARISED)
_HISTOGRAMS = after("histogram", CE, *_REGULARISED)
_W5 = (
    _FIGURE(
        "What few samples cost histogram binning over what they cost temperature scaling",
        metric="few_over_all",
        pairs=lambda labels: [
            (h, t)
            for h, t in zip(_HISTOGRAMS, _TEMPERATURES, strict=True)
            if h in labels and t in labels
        ],
    ),
    _FIGURE(
        "ECE after temperature scaling with all samples over that with a tenth",
        metric="few_over_all",
        pairs=above([None], _TEMPERATURES),
        margin=-math.log(1.5),
        least=-math.inf,
        by_labels=False,
    ),
)

_RISE = partial(
    _FIGURE, metric="optimal_ece_rise", scale="difference", unit="points", factor=100, least=0.001
)
_W6 = (
    _RISE(
        "Rise of the optimal ECE by smoothing, above that of cross-entropy",
        pairs=lambda labels: [
            (a, Label("epsilon=0"))
            for a in labels
            if a != Label("epsilon=0") and Label("epsilon=0") in labels
        ],
    ),
    _RISE(
        "Rise of the optimal ECE by more, above that by less smoothing",
        pairs=by_number(falling=False, least=1e-12),
    ),
    _FIGURE(
        "Lowest optimal ECE with less, later than with more smoothing",
        metric="optimal_ece_turn",
        pairs=by_number(falling=True, least=1e-12),
        scale="difference",
        unit="% of the epochs",
        factor=100,
        least=0.01,
    ),
)

_W7 = (
    _FIGURE(
        "Spread of the largest logits, cross-entropy over regularised losses",
        metric="max_logit_spread",
        pairs=above([CE], _REGULARISED),
    ),
    _FIGURE(
        "How well they separate early from late samples, cross-entropy above regularised losses",
        metric="early_late_auroc",
        pairs=above([CE], _REGULARISED),
        scale="difference",
        unit="AUROC points",
        factor=100,
        least=0.01,
    ),
)

_W8 = (
    _WANG(
        "ECE of inverse focal loss over that of cross-entropy",
        metric="ece",
        pairs=above(_INVERSE, [CE]),
    ),
    _WANG(
        "Temperature of inverse focal loss over that of cross-entropy",
        metric="temperature",
        pairs=above(after("temperature", *_INVERSE), after("temperature", CE)),
    ),
    _WANG(
        "ECE after temperature scaling on harder data, cross-entropy over inverse focal loss",
        metric="ece",
        pairs=above(after("temperature", CE), after("temperature", *_INVERSE)),
    ),
)


def _inverse_focal(evidence: Evidence) -> Verdict:
    """Harder are the settings where cross-entropy is at most as accurate as in the median one."""
    cells = evidence.at("wang2021", "main", "accuracy")
    accuracy = {place: found[CE].mean for place, found in cells.items() if CE in found}
    middle = float(np.median(list(accuracy.values()))) if accuracy else math.nan
    harder = frozenset(place for place, value in accuracy.items() if value <= middle)
    return decide(evidence, (*_W8[:2], replace(_W8[2], places=harder)))


CLAIMS = (
    Claim(
        "W1",
        "wang2021",
        "Regularised losses (label smoothing, L1 norm of the logits, focal) "
        "have a lower ECE than cross-entropy before post-hoc calibration.",
        "tables",
        contrasted(_W1),
    ),
    Claim(
        "W2",
        "wang2021",
        "After temperature scaling, and after histogram binning, cross-entropy "
        "has the lowest ECE in most settings.",
        "tables",
        contrasted(
            _repaired("temperature", "temperature scaling"),
            _repaired("histogram", "histogram binning"),
        ),
    ),
    Claim(
        "W3",
        "wang2021",
        "The fitted temperature is highest for cross-entropy.",
        "tables",
        contrasted(_W3),
    ),
    Claim(
        "W4",
        "wang2021",
        "The best coefficient of each regularised loss falls as the training set grows.",
        "figures",
        contrasted(*map(_best_coefficient, _FAMILIES)),
    ),
    Claim(
        "W5",
        "wang2021",
        "A tenth of the calibration samples costs histogram binning more than "
        "temperature scaling, whose ECE rises by less than half.",
        "figures",
        contrasted(*_W5),
    ),
    Claim(
        "W6",
        "wang2021",
        "Under label smoothing the ECE at the best temperature rises during "
        "training, more and from earlier on with more smoothing.",
        "figures",
        contrasted(*_W6),
    ),
    Claim(
        "W7",
        "wang2021",
        "Regularised losses compress the largest logits and hide which samples were learned late.",
        "figures",
        contrasted(*_W7),
    ),
    Claim(
        "W8",
        "wang2021",
        "Inverse focal loss has a higher ECE and a higher temperature than "
        "cross-entropy, but after temperature scaling a lower ECE on harder data.",
        "figures",
        _inverse_focal,
    ),
)
