"""The claims of wang2021: regularised losses are calibrated, but less calibratable."""

from __future__ import annotations

import math
from functools import partial

from calibrant.papers._contrasts import Contrast
from calibrant.papers._evidence import Evidence, Label, SeedMean
from calibrant.papers._pairs import (
    CE,
    FOCAL,
    FOCALS,
    INVERSE,
    L1,
    LS,
    above,
    after,
    by_number,
    strong,
)
from calibrant.papers._verdicts import Claim, ClaimVerdict, Word
from calibrant.results import compare_runs

_WANG = partial(Contrast, paper="wang2021")
_FIGURE = partial(_WANG, kind="figures")
_CLAIM = partial(Claim, paper="wang2021")
_REGULARISED = (LS, L1, FOCAL)
_FAMILIES = tuple(label.method for label in _REGULARISED)
_PLAIN = Label("epsilon=0")
_IMAGES = ("svhn", "cifar10", "cifar100")
_HARDER = ("cifar10", "cifar100")  # "more complex and difficult" in section 5.2

_W1 = _WANG(
    "ECE of cross-entropy over that of regularised losses",
    metric="ece",
    pairs=above([CE], _REGULARISED),
)

_CALIBRATED = (("temperature", "temperature scaling"), ("histogram", "histogram binning"))


def _lowest(
    calibrator: str, words: str, metric: str = "ece", kind: str = "main", *, every: bool = False
) -> Contrast:
    """Whether cross-entropy is best after calibration."""
    return _WANG(
        f"ECE of regularised losses over that of cross-entropy after {words}",
        kind=kind,
        metric=metric,
        pairs=above(after(calibrator, *_REGULARISED), after(calibrator, CE)),
        best=True,
        every=every,
    )


_W2 = tuple(_lowest(calibrator, words) for calibrator, words in _CALIBRATED)
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
        pairs=by_number("n", falling=True),
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
        own_margin=True,
        by_labels=False,
    ),
)

_RISE = partial(_FIGURE, metric="optimal_ece_rise", scale="difference", unit="points", factor=100)
_W6 = (
    _RISE(
        "Rise of the optimal ECE by smoothing, above that of cross-entropy",
        pairs=strong("epsilon", 1e-12, [_PLAIN]),
    ),
    _RISE(
        "Rise of the optimal ECE by more, above that by less smoothing",
        pairs=by_number("epsilon", falling=False, least=1e-12),
    ),
    _FIGURE(
        "Lowest optimal ECE with less, later than with more smoothing",
        metric="optimal_ece_turn",
        pairs=by_number("epsilon", falling=True, least=1e-12),
        scale="difference",
        unit="% of the epochs",
        factor=100,
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
    ),
)

_ECE_BY_GAMMA = partial(_FIGURE, metric="ece along gamma")
_W8 = (
    _ECE_BY_GAMMA(
        "ECE of inverse focal loss over that of cross-entropy", pairs=above(INVERSE, [CE])
    ),
    _FIGURE(
        "Temperature of inverse focal loss over that of cross-entropy",
        metric="temperature along gamma",
        pairs=above(after("temperature", *INVERSE), after("temperature", CE)),
    ),
    _ECE_BY_GAMMA(
        "ECE after temperature scaling on CIFAR-10 and -100, cross-entropy over inverse focal loss",
        pairs=above(after("temperature", CE), after("temperature", *INVERSE)),
        data=_HARDER,
    ),
)
_W9 = tuple(
    _lowest(calibrator, f"{words}, at each validation size", "ece_by_size", "figures", every=True)
    for calibrator, words in _CALIBRATED
)
_W11 = _FIGURE(
    "ECE one step from the best coefficient over the ECE at the best",
    metric="neighbour_over_best",
    pairs=above(_REGULARISED, [None]),
    margin=math.log(2),
    own_margin=True,
    by_labels=False,
)
_MIDDLE = after("temperature", FOCALS[0], CE, INVERSE[0])
_W12 = tuple(
    _ECE_BY_GAMMA(
        f"ECE after temperature scaling, {words} with gamma 3 over the losses with gamma 1 and 0",
        pairs=above(after("temperature", end), _MIDDLE),
    )
    for end, words in ((FOCALS[2], "focal"), (INVERSE[2], "inverse focal"))
)
_W13 = _RISE(
    "Rise of the optimal ECE with an L1 norm, above that of cross-entropy, on images",
    pairs=strong("alpha", 1e-12, [_PLAIN]),
    data=_IMAGES,
)
_STRONG = 5  # the third of five values of gamma that the paper tries
_W14 = (
    _FIGURE(
        "Optimal ECE halfway through training, strong focal loss over cross-entropy",
        metric="optimal_ece_halfway",
        pairs=strong("gamma", _STRONG, [_PLAIN]),
    ),
    _RISE(
        "Rise of the optimal ECE, label smoothing above strong focal loss",
        pairs=strong("gamma", _STRONG, [Label("epsilon=0.05"), Label("epsilon=0.09")], above=False),
    ),
)


def _is_larger(one: SeedMean, two: SeedMean) -> bool:
    """Whether a best coefficient is larger than another; of seeds beyond chance."""
    if one.seeds is None or two.seeds is None:
        return one.mean > two.mean
    values = [[math.log(value) for value in (cell.seeds or {}).values()] for cell in (one, two)]
    if all(len(set(some)) == 1 for some in values):  # every seed agrees
        return one.mean > two.mean
    return compare_runs(*values).low > 0


def coefficients_vary(evidence: Evidence) -> ClaimVerdict:
    """Whether the best coefficient of a loss differs between data sets."""
    cells = evidence.at("wang2021", "figures", "best_coefficient")
    spans, differ, tested = [], [], dict[str, None]()
    for label in _REGULARISED:
        found = {str(p): c[label] for p, c in cells.items() if label in c}
        if len(found) > 1:
            order = sorted(found.values(), key=lambda cell: cell.mean)
            spans.append(math.log(order[-1].mean / order[0].mean))
            differ.append(_is_larger(order[-1], order[0]))
            tested.update(dict.fromkeys(found))
    unit, what = "largest over smallest", "Best coefficient on different data sets"
    if len(spans) < 2:  # noqa: PLR2004 - one loss is not most of them
        words = f"{what}: sweeps of fewer than two losses on two data sets in {evidence.source}."
        needs = "More seeds cannot decide it: there are no runs of this kind."
        return ClaimVerdict("cannot tell", None, None, None, unit, None, words, needs=needs)
    vary, every = sum(differ), len(differ)
    effect = math.exp(sum(spans) / every)
    words = f"{what}: they differ for {vary} of {every} losses."
    word: Word = "holds" if 2 * vary > every else "does not hold"
    return ClaimVerdict(word, effect, None, None, unit, (vary, every), words, tested=tuple(tested))


CLAIMS = (
    _CLAIM(
        "W1",
        statement="Regularised losses (label smoothing, L1 norm of the logits, focal) "
        "have a lower ECE than cross-entropy before post-hoc calibration.",
        source="section 3.1, table 1",
        rests_on="tables",
        contrasts=(_W1,),
    ),
    _CLAIM(
        "W2",
        statement="After temperature scaling, and after histogram binning, cross-entropy "
        "has the lowest ECE in most settings.",
        source="section 4, table 2",
        rests_on="tables",
        contrasts=_W2,
    ),
    _CLAIM(
        "W3",
        statement="The fitted temperature is highest for cross-entropy.",
        source="section 4, table 2",
        rests_on="tables",
        contrasts=(_W3,),
    ),
    _CLAIM(
        "W4",
        statement="The best coefficient of each regularised loss falls as the training set grows.",
        source="section 4, figure 1d",
        rests_on="figures",
        contrasts=tuple(map(_best_coefficient, _FAMILIES)),
    ),
    _CLAIM(
        "W5",
        statement="A tenth of the calibration samples costs histogram binning more than "
        "temperature scaling, whose ECE rises by less than half (the paper says: quite low).",
        source="section 4, figure 3",
        rests_on="figures",
        contrasts=_W5,
    ),
    _CLAIM(
        "W6",
        statement="Under label smoothing the ECE at the best temperature rises during "
        "training, more and from earlier on with more smoothing.",
        source="section 5.1, figure 4",
        rests_on="figures",
        contrasts=_W6,
    ),
    _CLAIM(
        "W7",
        statement="Regularised losses compress the largest logits and hide which samples were "
        "learned late.",
        source="section 5.1, figure 5",
        rests_on="figures",
        contrasts=_W7,
    ),
    _CLAIM(
        "W8",
        statement="Inverse focal loss has a higher ECE and a higher temperature than "
        "cross-entropy, but after temperature scaling a lower ECE on CIFAR-10 and CIFAR-100, which "
        "the paper calls more difficult.",
        source="section 5.2, figures 6c to 6e",
        rests_on="figures",
        contrasts=_W8,
    ),
    _CLAIM(
        "W9",
        statement="Cross-entropy has the lowest ECE after temperature scaling, and after histogram "
        "binning, at every validation size.",
        source="section 4, figure 3",
        rests_on="figures",
        contrasts=_W9,
    ),
    _CLAIM(
        "W10",
        statement="The best coefficient of a regularised loss differs between data sets.",
        source="section 4, figures 1a to 1c, headings of table 1",
        rests_on="tables",
        own_test=coefficients_vary,
        own_rule="Best coefficients: more than half of the losses have different ones on different "
        "data sets, where seeds are known beyond chance",
    ),
    _CLAIM(
        "W11",
        statement="A small change of the coefficient raises the ECE much: one step of the sweep "
        "doubles it (the paper says: may cause large ECE increase).",
        source="section 4, figures 1a to 1c",
        rests_on="figures",
        contrasts=(_W11,),
    ),
    _CLAIM(
        "W12",
        statement="From focal loss with gamma 3 over cross-entropy to inverse focal loss with "
        "gamma 3, the ECE after temperature scaling first falls, then rises.",
        source="section 5.2, figure 6e",
        rests_on="figures",
        contrasts=_W12,
    ),
    _CLAIM(
        "W13",
        statement="With an L1 norm too the ECE at the best temperature rises during training, "
        "except on 20 Newsgroups.",
        source="section 5.1, appendix figures A(a) to A(d)",
        rests_on="figures",
        contrasts=(_W13,),
    ),
    _CLAIM(
        "W14",
        statement="Under strong focal loss (gamma 5 or more) the ECE at the best temperature is "
        "high from early on, without the rise seen under label smoothing.",
        source="section 5.1, appendix figures A(e) to A(h)",
        rests_on="figures",
        contrasts=_W14,
    ),
)
