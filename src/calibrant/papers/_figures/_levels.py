"""Values under shifts of rising strength: level 0 is the test set itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from calibrant.papers._figures._panel import TEST, PlaceRuns
from calibrant.results import within_subject_sem

Subject = tuple[str, int]


def parse_shift(part: str) -> tuple[str, int] | None:
    """Kind and level of a shift, or of the file with its features; None for one without a level.

    >>> parse_shift("cifar10-c/fog/3"), parse_shift("cifar10.1/v6")
    (('cifar10-c/fog', 3), None)
    >>> parse_shift("features/cifar10/generated-fog-3.npz")
    ('features/cifar10/generated-fog', 3)
    """
    name = part.removesuffix(".npz")
    kind, _, level = name.rpartition("/" if name == part else "-")
    return (kind, int(level)) if level.isdigit() else None


def levels_of(shifts: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Kind and level by part, of the kinds that have every level: means over kinds are comparable.

    >>> levels_of(["g/fog/1", "g/fog/3", "g/snow/3", "tiny.npz"])
    {'g/fog/1': ('g/fog', 1), 'g/fog/3': ('g/fog', 3)}
    """
    parsed = {part: found for part in shifts if (found := parse_shift(part))}
    levels = {level for _, level in parsed.values()}
    whole = Counter(kind for kind, _ in parsed.values())
    return {part: found for part, found in parsed.items() if whole[found[0]] == len(levels)}


def by_level(
    panel: PlaceRuns, method: str, metric: str, calibrator: str
) -> dict[int, dict[Subject, float]]:
    """Values by level, then by corruption and seed."""
    if panel.results is None or panel.ours is None:
        return {}
    ours = panel.ours.data, panel.ours.model
    shifts = (
        s
        for kind in panel.kinds
        for study in panel.results.at.study(kind)
        if any((run.data, run.model) == ours for run in study.runs)
        for s in study.evaluation.shifts
    )
    parts = {TEST: (TEST, 0), **levels_of(shifts)}
    found: dict[int, dict[Subject, float]] = {}
    for run in panel.runs(method):
        for part, (corruption, level) in parts.items():
            value = panel.on(run, metric, calibrator, part)
            if value is not None:
                found.setdefault(level, {})[corruption, run.seed] = value
    return dict(sorted(found.items()))


def by_seed(panel: PlaceRuns, method: str, metric: str, calibrator: str) -> dict[int, list[float]]:
    """Values of each seed by level, each the mean over corruptions."""
    return {
        level: list(_means(values, by=1).values())
        for level, values in by_level(panel, method, metric, calibrator).items()
    }


def corrected(
    panel: PlaceRuns, method: str, calibrators: Mapping[str, str]
) -> dict[str, dict[int, tuple[float, float]]]:
    """ECE after each calibrator by level: mean, and its standard error within subjects.

    The subjects are the corruptions, each averaged over seeds; where there is only one, as on the
    test set itself, they are the seeds.
    """
    values = [by_level(panel, method, "ece", label) for label in calibrators.values()]
    found: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in calibrators}
    for level in sorted(set.intersection(*map(set, values))):
        several = len({corruption for corruption, _ in values[0][level]}) > 1
        subjects = [_means(each[level], by=0 if several else 1) for each in values]
        common = [s for s in subjects[0] if all(s in each for each in subjects)]
        table = np.array([[each[s] for each in subjects] for s in common])
        errors = within_subject_sem(table)
        for name, mean, error in zip(calibrators, table.mean(axis=0), errors, strict=True):
            found[name][level] = (float(mean), float(error))
    return {name: points for name, points in found.items() if points}


def _means(values: Mapping[Subject, float], *, by: int) -> dict[str | int, float]:
    """Mean for each corruption (by 0) or for each seed (by 1)."""
    groups: dict[str | int, list[float]] = {}
    for subject, value in values.items():
        groups.setdefault(subject[by], []).append(value)
    return {key: float(np.mean(group)) for key, group in groups.items()}
