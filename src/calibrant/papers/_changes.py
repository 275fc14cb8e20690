"""Cells that some claims compute from others: effect sizes, disagreements, the best of a group."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from calibrant.papers._evidence import Evidence, EvidenceKey, Label, SeedMean
from calibrant.papers._scales import Place

Signs = Mapping[Label, Mapping[int, float]]


def effect_sizes(evidence: Evidence) -> Evidence:
    """Cohen's d of each secondary loss of karandikar2021: primary loss alone minus both, in ECE.

    The primary loss is the part of the place, and the secondary loss the label. A d belongs to all
    seeds together; its value by seed is the jackknife's pseudo-value, so that differences of d have
    a standard error.
    """
    cells: dict[EvidenceKey, SeedMean] = {}
    for place, found in evidence.at("karandikar2021", "main", "ece").items():
        for label, cell in found.items():
            primary, _, secondary = label.method.partition(" + ")
            alone = found.get(label._replace(method=primary))
            size = None if alone is None or not secondary else _effect(alone, cell)
            if size is not None:
                where = Place(place.data, place.model, primary)
                key = EvidenceKey(
                    "karandikar2021", "effect", where, "d", label._replace(method=secondary)
                )
                cells[key] = size
    return evidence.having(cells)


def _effect(alone: SeedMean, both: SeedMean) -> SeedMean | None:
    """Cohen's d, by pseudo-values of seeds where three or more are known; None without spread."""
    one, two = alone.seeds or {}, both.seeds or {}
    shared = sorted(one.keys() & two.keys())
    if len(shared) < 3:  # noqa: PLR2004 - without one of two seeds there is no spread
        size = _cohen(alone, both)
        return SeedMean(size) if math.isfinite(size) else None
    whole = _cohen(*(SeedMean.of({s: x[s] for s in shared}) for x in (one, two)))
    fewer = {
        seed: _cohen(*(SeedMean.of({s: x[s] for s in shared if s != seed}) for x in (one, two)))
        for seed in shared
    }
    count = len(shared)
    values = {seed: count * whole - (count - 1) * part for seed, part in fewer.items()}
    return SeedMean.of(values) if all(map(math.isfinite, values.values())) else None


def _cohen(alone: SeedMean, both: SeedMean) -> float:
    """Cohen's d with the pooled standard deviation; NaN without spread."""
    freedom = alone.count + both.count - 2
    if freedom < 1:
        return math.nan
    squares = (alone.count - 1) * alone.std**2 + (both.count - 1) * both.std**2
    spread = math.sqrt(squares / freedom)
    return (alone.mean - both.mean) / spread if spread > 0 else math.nan


def disagreements(evidence: Evidence) -> Evidence:
    """1 where a method of singh2021 lowers only one of ECE and Brier score, else 0."""
    plain, cells = Label("cross_entropy"), dict[EvidenceKey, SeedMean]()
    errors, scores = (evidence.at("singh2021", "main", metric) for metric in ("ece", "brier"))
    for place in errors.keys() & scores.keys():
        for label in (errors[place].keys() & scores[place].keys()) - {plain}:
            if plain in errors[place] and plain in scores[place]:
                two = [_lower(found[place], label, plain) for found in (errors, scores)]
                apart = {s: float(two[0][s] != two[1][s]) for s in two[0].keys() & two[1].keys()}
                key = EvidenceKey("singh2021", "disagreement", place, "share", label)
                printed = errors[place][label].seeds is None
                cells[key] = SeedMean(apart[0]) if printed else SeedMean.of(apart)
    return evidence.having(dict(sorted(cells.items())))


def _lower(found: Mapping[Label, SeedMean], label: Label, plain: Label) -> dict[int, bool]:
    """Whether a method is below the plain one, by seed; printed means are seed 0."""
    one, two = (found[x].seeds or {0: found[x].mean} for x in (label, plain))
    return {seed: one[seed] < two[seed] for seed in one.keys() & two.keys()}


def best_of(
    evidence: Evidence, key: tuple[str, str, str], group: Collection[Label]
) -> tuple[Evidence, float]:
    """The lowest cell of a group, and of all others, in each setting; and luck.

    Luck is how often as many settings or more have their lowest value in the group if labels are
    random.
    """
    cells: dict[EvidenceKey, SeedMean] = {}
    chances, hits = [1.0], 0
    for place, every in evidence.at(*key).items():
        found = {label: cell for label, cell in every.items() if label.calibrator == "none"}
        inside = {label: cell for label, cell in found.items() if label in group}
        outside = {label: cell for label, cell in found.items() if label not in group}
        if inside and outside:
            share = len(inside) / len(found)
            sides = ("the group", inside), ("the others", outside)
            for name, side in sides:
                lowest = min(side.values(), key=lambda cell: cell.mean)
                cells[EvidenceKey(key[0], "best", place, key[2], Label(name))] = lowest
            hits += min(c.mean for c in inside.values()) < min(c.mean for c in outside.values())
            several = zip([*chances, 0.0], [0.0, *chances], strict=True)
            chances = [miss * (1 - share) + hit * share for miss, hit in several]
    return evidence.having(cells), sum(chances[hits:])
