"""One comparison of methods over settings, and whether luck explains it.

A contrast is a mean over pairs of labels (log ratio or difference), positive where it supports the
claim. Its interval is made in ``_estimates``.

That the seeds agree does not show that the *labels* matter: of four methods one is always worst. So
the same contrast is computed with the labels permuted at random among the values of each setting
(and seed); ``luck`` is how often it then is as large.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.papers._evidence import Evidence, Label, SeedMean
from calibrant.papers._run_measures import FLOOR
from calibrant.papers._scales import Place, data_set

Array = NDArray[np.float64]
Pair = tuple[Label | None, Label | None]  # minuend and subtrahend; None is 1 or 0
Pairs = Callable[[Collection[Label]], Sequence[Pair]]

DEALS = 999  # random permutations of the labels, if there are too many to try all
MOST_DEALS = 5000


@dataclass(frozen=True)
class Contrast:
    """What is compared, and what would support the claim.

    Parameters
    ----------
    what
        In words, to begin a reason with.
    paper, metric, kind
        Which cells.
    pairs
        From the labels that a setting has, the pairs (a, b): a above b supports the claim.
    scale
        "ratio" for the log of a / b, "difference" for a - b.
    margin
        What the interval must be above, in the contrast's own scale.
    within
        For claims that two things are alike: bounds that must hold the interval.
    own_margin
        Whether ``margin`` or ``within`` is ours; else it is the paper's own number, or 0.
    stated
        The size that the paper prints: the effect must be there and its mean no smaller; an
        interval below this size refutes the claim.
    mostly
        For claims about most cases: they are counted, and the interval does not matter.
    best
        Count settings in which every pair agrees (ties included) instead of pairs.
    every
        For claims about every case: all must agree, and one against it refutes the claim.
    by_labels
        Whether the claim is that labels matter, so that luck must be excluded.
    unit, factor
        Unit of the effect as it is shown; a difference is multiplied by ``factor``.
    data, models, without
        Restrict the settings to these data or networks, or to all but some networks.
    """

    what: str
    paper: str
    metric: str
    pairs: Pairs
    kind: str = "main"
    scale: Literal["ratio", "difference"] = "ratio"
    margin: float = 0.0
    within: tuple[float, float] | None = None
    own_margin: bool = False
    stated: float | None = None
    mostly: bool = False
    best: bool = False
    every: bool = False
    by_labels: bool = True
    unit: str = "ratio"
    factor: float = 1.0
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def told(self, value: float) -> float:
        """A contrast as the effect that is shown."""
        return math.exp(value) if self.scale == "ratio" else self.factor * value

    def number(self, value: float) -> str:
        """The same with three digits."""
        return f"{self.told(value):.3g}"

    def bounds(self) -> str:
        """The bounds of ``within`` in words."""
        low, high = self.within or (-math.inf, math.inf)
        return f"{self.number(low)} to {self.number(high)}"

    def concerns(self, place: Place) -> bool:
        """Whether a setting is one of those that the claim is about."""
        named = not self.models or place.model in self.models
        known = not self.data or data_set(place.data) in self.data
        return named and known and place.model not in self.without

    def enough(self, cases: int) -> int:
        """How many of the cases must agree: more than half, or all."""
        return cases if self.every else cases // 2 + 1

    def with_margin(self, factor: float) -> Contrast:
        """The same with ``factor`` times the margin, on the scale of the contrast."""
        if self.within is None:
            return replace(self, margin=factor * self.margin)
        return replace(self, within=(factor * self.within[0], factor * self.within[1]))

    def rule(self) -> str:
        """What the numbers must show for the claim to hold."""
        if self.mostly:
            asked = f"inside {self.bounds()}" if self.within else f"above {self.number(0)}"
            words = f"more than half of the cases are {asked}"
        elif self.within is not None:
            words = f"the interval is inside {self.bounds()}"
        elif self.stated is not None:
            words = (
                f"the interval is above {self.number(0)}, the mean not below "
                f"{self.number(self.stated)}"
            )
        else:
            words = f"the interval is above {self.number(self.margin)}"
        words += " and every case agrees" if self.every else ""
        return words + (" (margin ours)" if self.own_margin else "")


#: Confidence minus accuracy, in percentage points.
confidence_gap = partial(
    Contrast,
    kind="figures",
    metric="confidence_gap",
    scale="difference",
    unit="points",
    factor=100,
)


@dataclass(frozen=True)
class Setting:
    """Values of the labels of one setting.

    ``values`` has the shape (parts, seeds, labels), with one "seed" where means are printed;
    ``variances`` of these means, and their degrees of freedom, have the shape (parts, labels) and
    are None where the seeds tell the spread. ``pairs`` are places in ``labels``; -1 is a constant.
    """

    labels: tuple[Label, ...]
    values: Array
    pairs: NDArray[np.int64]
    variances: Array | None = None
    freedom: Array | None = None
    name: str = ""

    @property
    def weights(self) -> Array:
        """What each label has in the mean over pairs."""
        found = np.zeros(len(self.labels) + 1)  # the last is the constant
        np.add.at(found, self.pairs[:, 0], 1 / len(self.pairs))
        np.add.at(found, self.pairs[:, 1], -1 / len(self.pairs))
        return found[:-1]


# --- settings ----------------------------------------------------------------------------------


def settings(contrast: Contrast, evidence: Evidence) -> list[Setting]:
    """The settings that have what the contrast compares; parts of one network are one setting.

    Where runs of ours were repeated, a single one does not count.
    """
    cells = evidence.at(contrast.paper, contrast.kind, contrast.metric)
    networks: dict[tuple[str, str], list[Mapping[Label, SeedMean]]] = defaultdict(list)
    for place, values in cells.items():
        if contrast.concerns(place):
            networks[place.data, place.model].append(values)
    made = ((name, _setting(contrast, parts)) for name, parts in networks.items())
    found = [replace(s, name=Place(*name).setting) for name, s in made if s is not None]
    if not evidence.repeated:
        return found
    return [s for s in found if s.variances is not None or s.values.shape[1] > 1]


def _setting(contrast: Contrast, parts: Sequence[Mapping[Label, SeedMean]]) -> Setting | None:
    common = [label for label in parts[0] if all(label in part for part in parts)]
    pairs, seeds = contrast.pairs(common), None
    while pairs:
        used = [label for label in common if any(label in pair for pair in pairs)]
        seeds = _common_seeds([part[label] for part in parts for label in used])
        if seeds is not None:
            break
        common.remove(_least_shared(used, parts))
        pairs = contrast.pairs(common)
    if seeds is None:
        return None
    # Where alike is the claim, the other values of the setting say how alike random ones are.
    others = [label for label in common if label not in used and _pooled(contrast)]
    complete = [x for x in others if all(set(seeds) <= set(part[x].seeds or ()) for part in parts)]
    labels = (*used, *complete)
    places = [[labels.index(x) if x is not None else -1 for x in pair] for pair in pairs]
    where = np.array(places, dtype=np.int64)
    if seeds:
        values = [[[(part[x].seeds or {})[s] for x in labels] for s in seeds] for part in parts]
        return Setting(labels, _scaled(contrast, np.array(values)), where)
    means = np.array([[part[label].mean for label in labels] for part in parts])
    stds = np.array([[part[label].std for label in labels] for part in parts])
    counts = np.array([[part[label].count for label in labels] for part in parts], dtype=float)
    slope = 1 / np.maximum(means, FLOOR) if contrast.scale == "ratio" else 1.0
    variances = (slope * stds) ** 2 / counts
    return Setting(labels, _scaled(contrast, means[:, None]), where, variances, counts - 1)


def _pooled(contrast: Contrast) -> bool:
    return contrast.within is not None and contrast.by_labels


def _scaled(contrast: Contrast, values: Array) -> Array:
    return np.log(np.maximum(values, FLOOR)) if contrast.scale == "ratio" else values


def _common_seeds(cells: Sequence[SeedMean]) -> list[int] | None:
    """Seeds that all cells have; none for printed cells, None if they share none."""
    if any(cell.seeds is None for cell in cells):
        return []
    shared = set.intersection(*(set(cell.seeds or ()) for cell in cells))
    return sorted(shared) or None


def _least_shared(labels: Sequence[Label], parts: Sequence[Mapping[Label, SeedMean]]) -> Label:
    """The label whose runs have the fewest seeds in common with those of the others."""

    def seeds(label: Label) -> set[int]:
        return set.intersection(*(set(part[label].seeds or ()) for part in parts))

    return min(labels, key=lambda x: sum(len(seeds(x) & seeds(y)) for y in labels if y != x))


# --- luck --------------------------------------------------------------------------------------


def luck(contrast: Contrast, found: Sequence[Setting]) -> float:
    """How often randomly permuted labels support the claim as much: all permutations, or many.

    Labels are permuted within a seed of a setting, alike for its parts, and only among those that
    pairs connect. Where alike is the claim, what counts is how small the contrasts are.
    """
    blocks: list[tuple[Array, Array]] = []
    for setting in found:
        weights = setting.weights / (len(found) * setting.values.shape[1])
        for members in _connected(setting, everything=_pooled(contrast)):
            by_seed = np.moveaxis(setting.values[:, :, members], 1, 0)
            blocks += [(values, weights[members]) for values in by_seed]
    size = math.prod(math.factorial(len(weights)) for _, weights in blocks)
    rng = np.random.default_rng(0)
    observed, total = 0.0, np.zeros(1 if size <= MOST_DEALS else DEALS)
    for values, weights in blocks:
        deals = _deals(len(weights), None if size <= MOST_DEALS else rng)
        seen = (values[:, deals] @ weights).mean(axis=0)
        here = float((values @ weights).mean())
        if _pooled(contrast):
            seen, here = -np.abs(seen), -abs(here)
        observed += here
        total = np.add.outer(total, seen).ravel() if size <= MOST_DEALS else total + seen
    as_large = int((total >= observed - 1e-9 * (1 + abs(observed))).sum())
    return as_large / len(total) if size <= MOST_DEALS else (1 + as_large) / (1 + DEALS)


def _deals(count: int, rng: np.random.Generator | None) -> NDArray[np.int64]:
    """All orders of ``count`` things, or many random ones."""
    if rng is None:
        return np.array(list(itertools.permutations(range(count))), dtype=np.int64)
    return rng.permuted(np.tile(np.arange(count), (DEALS, 1)), axis=1)


def _connected(setting: Setting, *, everything: bool) -> list[list[int]]:
    """Labels that pairs connect: with a shared baseline they are one group."""
    if everything:
        return [list(range(len(setting.labels)))]
    groups: list[set[int]] = []
    for a, b in setting.pairs.tolist():
        joined = {a, b} - {-1}
        apart = [group for group in groups if not group & joined]
        groups = [*apart, joined.union(*(group for group in groups if group & joined))]
    return [sorted(group) for group in groups]
