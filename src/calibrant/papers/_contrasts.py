"""One comparison of methods over settings: its size, its interval, and whether luck explains it.

A contrast is a mean over pairs of labels (log ratio or difference), positive where it supports the
claim. Its standard error comes from the runs: differences within a seed where values by seed are
known (a seed is a split of the data), printed spreads otherwise. Settings are fixed: the interval
speaks about these data and networks over other seeds; a setting without a spread counts as a case
only. Where nothing has a spread, the settings themselves are the repetitions.

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
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.papers._evidence import Evidence, Label, SeedMean
from calibrant.papers._run_measures import FLOOR
from calibrant.papers._scales import Place, data_set
from calibrant.results import summarise_runs

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
        The size that the paper prints: the effect must be there, and its interval may not lie below
        this size.
    mostly
        For claims about most cases: they are counted, and the interval does not matter.
    best
        Count settings in which every pair agrees (ties included) instead of pairs.
    by_labels
        Whether the claim is that labels matter, so that luck must be excluded.
    unit, factor
        Of the effect as told; a difference is multiplied by ``factor``.
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
                f"the interval is above {self.number(0)} and not below {self.number(self.stated)}"
            )
        else:
            words = f"the interval is above {self.number(self.margin)}"
        return words + (" (margin ours)" if self.own_margin else "")


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


@dataclass(frozen=True)
class Estimate:
    """Mean contrast with its interval (NaN if nothing tells it), cases for it and all cases."""

    mean: float
    low: float
    high: float
    cases: tuple[int, int]


# --- settings ----------------------------------------------------------------------------------


def settings(contrast: Contrast, evidence: Evidence) -> list[Setting]:
    """The settings that have what the contrast compares; parts of one network are one setting."""
    cells = evidence.at(contrast.paper, contrast.kind, contrast.metric)
    networks: dict[tuple[str, str], list[Mapping[Label, SeedMean]]] = defaultdict(list)
    for place, found in cells.items():
        if contrast.concerns(place):
            networks[place.data, place.model].append(found)
    made = ((name, _setting(contrast, parts)) for name, parts in networks.items())
    return [replace(s, name=Place(*name).setting) for name, s in made if s is not None]


def _setting(contrast: Contrast, parts: Sequence[Mapping[Label, SeedMean]]) -> Setting | None:
    common = [label for label in parts[0] if all(label in part for part in parts)]
    pairs = contrast.pairs(common)
    if not pairs:
        return None
    used = [label for label in common if any(label in pair for pair in pairs)]
    seeds = _common_seeds([part[label] for part in parts for label in used])
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


# --- the estimate ------------------------------------------------------------------------------


def estimate(contrast: Contrast, found: Sequence[Setting]) -> Estimate:
    """Mean over settings with its 95 % t interval, and how many cases support the claim."""
    results = [_mean_and_error(setting) for setting in found]
    known = [row for row in results if not math.isnan(row[1])]
    if known:
        mean, low, high = pooled(known)
    else:
        over = summarise_runs([mean for mean, *_ in results])
        # Two settings give an interval, but one that says nothing.
        enough = len(results) > 2  # noqa: PLR2004
        mean, low, high = over.mean, *((over.low, over.high) if enough else (math.nan, math.nan))
    cases = [case for setting in found for case in _cases(contrast, setting)]
    return Estimate(mean, low, high, (sum(cases), len(cases)))


def pooled(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    r"""Mean of (mean, standard error, degrees of freedom) of settings, with its t interval.

    The standard error is :math:`\sqrt{\sum s_i^2} / m`, its degrees of freedom those of Welch and
    Satterthwaite, :math:`(\sum s_i^2)^2 / \sum (s_i^4 / \nu_i)`.

    >>> [round(x, 3) for x in pooled([(1.0, 0.5, 4), (2.0, 0.5, 4)])]
    [1.5, 0.685, 2.315]
    """
    from scipy.special import stdtrit

    means, errors, freedom = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    mean = float(means.mean())
    error, dof = satterthwaite(errors**2, freedom)
    reach = 0.0 if error == 0 else float(stdtrit(dof, 0.975)) * error / len(rows)
    return mean, mean - reach, mean + reach


def satterthwaite(variances: Array, freedom: Array) -> tuple[float, float]:
    """Root of a sum of variances and its degrees of freedom; variances of 0 bring none."""
    real = variances > 0
    if not real.any():
        return 0.0, math.inf
    shares = variances[real] / variances[real].sum()
    return math.sqrt(variances.sum()), 1 / float((shares**2 / freedom[real]).sum())


def _mean_and_error(setting: Setting) -> tuple[float, float, float]:
    """Contrast of a setting, its standard error and degrees of freedom; NaN for one run."""
    weights = setting.weights
    by_seed = (setting.values @ weights).mean(axis=0)
    if setting.variances is None or setting.freedom is None:
        over = summarise_runs(by_seed)
        return over.mean, over.sem, len(by_seed) - 1.0
    used = weights != 0
    rows = [
        satterthwaite(weights[used] ** 2 * variances[used], freedom[used])
        for variances, freedom in zip(setting.variances, setting.freedom, strict=True)
        if not np.isnan(variances[used]).any()
    ]
    if len(rows) < len(setting.variances):
        return float(by_seed.mean()), math.nan, math.nan
    # Parts share their networks, and print tells no correlation: at worst it is 1.
    errors, freedoms = zip(*rows, strict=True)
    return float(by_seed.mean()), float(np.mean(errors)), min(freedoms)


def _cases(contrast: Contrast, setting: Setting) -> list[bool]:
    """Which pairs, or parts if the best is asked for, support the claim."""
    means = setting.values.mean(axis=1)  # over seeds
    means = np.concatenate([means, np.zeros((len(means), 1))], axis=1)  # the constant
    gaps = means[:, setting.pairs[:, 0]] - means[:, setting.pairs[:, 1]]
    if contrast.within is not None:
        low, high = contrast.within
        agree = ((gaps > low) & (gaps < high)).ravel()
    elif contrast.best:
        agree = (gaps >= contrast.margin - 1e-12).all(axis=1)
    else:
        agree = (gaps > contrast.margin).ravel()
    return [bool(case) for case in agree]


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
