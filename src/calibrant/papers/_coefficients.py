"""The coefficients of the losses: what each paper prints, and which of our runs have them.

A label such as "focal" in a study file does not say its gamma, and one study serves several papers.
A run stands for a method of a paper only if it has the coefficient that the paper fixes for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from calibrant.papers._scales import data_set
from calibrant.study import Run

#: What the papers fix for all their experiments, or for one data set ("method @ data").
FIXED: dict[str, dict[str, float]] = {
    "singh2021": {
        "cross_entropy + negative_entropy": 0.1,
        "label_smoothing": 0.05,
        "label_smoothing @ imagenet": 0.1,
        "mixup": 0.2,
        "focal": 3,
    },
    "mukhoti2020": {"label_smoothing": 0.05, "cross_entropy + mmce": 2, "focal": 3},
}
#: What wang2021 chose for its networks on each data set, by the ECE on the test samples.
CHOSEN: dict[str, dict[str, float]] = {
    "label_smoothing": {"svhn": 0.01, "cifar10": 0.05, "cifar100": 0.09, "news20": 0.09},
    "cross_entropy + logit_norm": {"svhn": 0.01, "cifar10": 0.05, "cifar100": 0.01, "news20": 0.01},
    "focal": {"svhn": 1, "cifar10": 3, "cifar100": 5, "news20": 5},
}
NOTES = {
    "loss_report": "The report prints no coefficients.",
    "wang2021": "The paper chooses each coefficient by the ECE on the test samples of its own "
    "networks. Ours were not tuned for our networks.",
    "singh2021": "Only runs with the coefficients of the paper stand for its methods.",
    "mukhoti2020": "Only runs with the coefficients of the paper stand for its methods.",
    "karandikar2021": "The paper tunes its coefficients and prints none. Apart from the runs under "
    '"features (tuned)", ours are fixed and were not tuned, so the secondary losses are at a '
    "disadvantage here.",
}
_SYMBOLS = {"focal": "gamma", "inverse_focal": "gamma", "label_smoothing": "epsilon"}
_OPTION = re.compile(r"(\w+):(?:\w+=[\w.]+,)*(?:gamma|epsilon)=(-?[\d.eE+-]+)")
_WEIGHT = re.compile(r"\s([+-])\s(-?[\d.eE+-]+)\*")


class Coefficients(NamedTuple):
    """The option of the primary loss, and the weight of the secondary one or of mixup."""

    option: float | None = None
    weight: float | None = None

    def __str__(self) -> str:
        return ", ".join(f"{x:g}" for x in self if x is not None) or "–"


def coefficients(objective: str, recipe: Mapping[str, Any] | None = None) -> Coefficients:
    """The coefficients of an objective.

    >>> coefficients("focal:gamma=3 + 0.5*soft_avuc")
    Coefficients(option=3.0, weight=0.5)
    >>> coefficients("cross_entropy - 0.01*logit_norm").weight
    -0.01
    >>> str(coefficients("label_smoothing:epsilon=0.05,spread=others")), str(coefficients("brier"))
    ('0.05', '–')
    """
    option, secondary = _OPTION.match(objective), _WEIGHT.search(objective)
    weight = (recipe or {}).get("mixup") or None
    if secondary:
        weight = float(secondary[1] + "1") * float(secondary[2])
    return Coefficients(float(option[2]) if option else None, weight)


def exact_name(objective: str) -> str:
    """An objective of one loss with its coefficient, so that no two strengths share a name.

    >>> exact_name("focal:gamma=5"), exact_name("inverse_focal:gamma=2"), exact_name("brier")
    ('focal gamma=5', 'inverse_focal gamma=2', 'brier')
    """
    found = _OPTION.fullmatch(objective)
    return f"{found[1]} {_SYMBOLS[found[1]]}={float(found[2]):g}" if found else objective


def printed(paper: str, method: str, data: str) -> float | None:
    """The coefficient that a paper prints for a method on a data set; None if it prints none."""
    data = data_set(data)
    if paper == "wang2021":
        return CHOSEN.get(method, {}).get(data)
    fixed = FIXED.get(paper, {})
    return fixed.get(f"{method} @ {data}", fixed.get(method))


def stands_for_itself(paper: str, run: Run) -> bool:
    """Whether a run has the coefficient that the paper fixes for the method it is named after."""
    if paper not in FIXED:
        return True
    asked = printed(paper, run.name, run.data)
    found = coefficients(run.objective, run.recipe)
    return asked is None or asked in found
