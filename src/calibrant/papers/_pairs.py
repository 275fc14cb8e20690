"""Which labels a contrast compares: pairs, of which the first above the second supports a claim."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from calibrant.papers._contrasts import Pair, Pairs
from calibrant.papers._evidence import Label

CE = Label("cross_entropy")
LS = Label("label_smoothing")
L1 = Label("cross_entropy + logit_norm")
ERL = Label("cross_entropy + negative_entropy")
MMCE = Label("cross_entropy + mmce")
FOCAL = Label("focal")
MIXUP = Label("mixup")
BRIER = Label("brier")
#: Focal and inverse focal losses with gamma 1, 2 and 3, by their gamma.
FOCALS = tuple(Label(f"focal gamma={gamma}") for gamma in (1, 2, 3))
INVERSE = tuple(Label(f"inverse_focal gamma={gamma}") for gamma in (1, 2, 3))


def after(calibrator: str, *labels: Label) -> tuple[Label, ...]:
    """The same methods after a calibrator."""
    return tuple(label._replace(calibrator=calibrator) for label in labels)


def above(tops: Sequence[Label | None], bottoms: Sequence[Label | None]) -> Pairs:
    """Each of ``tops`` with each of ``bottoms``, as far as a setting has them; None is constant.

    >>> above([CE], [LS, FOCAL])([CE, FOCAL, BRIER]) == [(CE, FOCAL)]
    True
    """

    def pairs(labels: Collection[Label]) -> list[Pair]:
        known = {None, *labels}
        return [(a, b) for a in tops for b in bottoms if a in known and b in known]

    return pairs


def by_number(symbol: str, *, falling: bool, least: float = -math.inf) -> Pairs:
    """Every two labels of a symbol with a number of at least ``least``, such as "n=400".

    ``falling`` puts the smaller number first: the claim is that values fall as it grows.

    >>> by_number("n", falling=True)([Label("n=400"), Label("n=50"), Label("k=1")])[0][0].method
    'n=50'
    """

    def pairs(labels: Collection[Label]) -> list[Pair]:
        named = [(label.method.partition("="), label) for label in labels]
        numbers = sorted((float(parts[2]), label) for parts, label in named if parts[0] == symbol)
        order = [label for number, label in numbers if number >= least]
        two = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
        return [(a, b) if falling else (b, a) for a, b in two]

    return pairs


def strong(symbol: str, least: float, others: Sequence[Label], *, above: bool = True) -> Pairs:
    """Labels of a symbol with a number of at least ``least``, each above (or below) the others."""

    def pairs(labels: Collection[Label]) -> list[Pair]:
        named = [(label.method.partition("="), label) for label in labels]
        tops = [x for parts, x in named if parts[0] == symbol and float(parts[2]) >= least]
        found = [(top, other) for top in tops for other in others if other in labels]
        return [pair if above else pair[::-1] for pair in found]

    return pairs


def joined(*several: Pairs) -> Pairs:
    """The pairs of all of them."""
    return lambda labels: [pair for pairs in several for pair in pairs(labels)]
