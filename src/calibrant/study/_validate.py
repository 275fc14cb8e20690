"""Validation of the names in a study, so that a misspelt name is reported before anything runs.

Nothing is read but names: the files of a data set may be on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from string import Formatter
from typing import TYPE_CHECKING

from calibrant import data
from calibrant._core.checks import (
    InputError,
    check_choice,
    check_count,
    check_share_or_count,
    refuse,
)
from calibrant._core.extras import has_package
from calibrant.data import GENERATED, SHIFTS, parse_shift
from calibrant.data._splits import DEV

if TYPE_CHECKING:
    from calibrant.study._records import Run

LONGEST = 1_000  # characters of a template, and of what is put into it


def check_data(runs: Sequence[Run]) -> None:
    """Reject invalid data sets, options and part sizes."""
    for run in _distinct(runs, "data", "data_options"):
        data.check(run.data, dict(run.data_options))
    for run in _distinct(runs, "telemetry_samples"):
        if run.telemetry_samples is not None:
            size = run.telemetry_samples
            check_count("telemetry_samples", size, least=1, most=10**12, example=5000)
    for run in _distinct(runs, "calibration", "train_size"):
        if run.calibration != DEV:
            check_share_or_count("calibration", run.calibration, example=0.2, least=0)
        if run.train_size is not None:
            check_count("train_size", run.train_size, least=1, most=10**12, example=1000)


def check_shifts(shifts: Sequence[str], runs: Sequence[Run]) -> None:
    """Reject shifted test sets that do not exist for the study's data sets."""
    for shift in shifts:
        for source in dict.fromkeys(run.data for run in runs):
            try:
                name = filled("shifts", shift, {"data": source})
                if not name.endswith(".npz"):
                    parse_shift(name, (GENERATED, *SHIFTS))
            except InputError as error:
                raise InputError(f"In the shift {shift!r}, {error}") from None


def check_training(runs: Sequence[Run]) -> None:
    """Reject unknown objectives, networks, recipes and precisions.

    Only PyTorch code knows them: where it is not installed nothing is checked.
    """
    if not has_package("torch"):
        return
    from calibrant import models
    from calibrant.train import EarlyStopping, get_recipe
    from calibrant.train._precision import CHOICES

    for run in _distinct(runs, "objective"):
        check_objective(run.objective)
    for run in _distinct(runs, "recipe"):
        get_recipe(**run.recipe)
    for run in _distinct(runs, "precision"):
        check_choice("precision", run.precision, CHOICES)
    for run in _distinct(runs, "stop"):
        EarlyStopping(**(run.stop or {}))
    for run in _distinct(runs, "model", "model_options"):
        models.check(run.model, run.model_options)


@lru_cache
def check_objective(text: str) -> None:
    """Reject an objective that cannot be computed; not checked without PyTorch."""
    if not has_package("torch"):
        return
    from calibrant.losses import Objective

    try:
        Objective.parse(text)
    except InputError as error:
        raise InputError(f"In the objective {text!r}, {error}") from None
    except (TypeError, ValueError, RuntimeError) as error:
        rule, advice = "must be computable", "See the options of the loss."
        raise refuse("objectives", rule, f"got {text!r}: {error}", advice) from error


def filled(setting: str, text: str, values: dict[str, object]) -> str:
    """A text with its {names} replaced.

    >>> filled("label", "focal {g}", {"g": 3})
    'focal 3'
    """
    known = ", ".join(f"{{{name}}}" for name in values) or "none"
    if any(name not in values for name in placeholders(setting, text)):
        rule = f"must use only known {{names}} ({known})"
        raise refuse(setting, rule, f"got {text!r}", "Fix the names in braces.")
    texts = {name: str(value) for name, value in values.items()}
    if any(len(value) > LONGEST for value in texts.values()):
        rule = f"must have values of at most {LONGEST:,} characters for {known}"
        raise refuse(setting, rule, "got a longer one", "Shorten it.")
    return text.format(**texts)


def placeholders(setting: str, text: str) -> list[str]:
    """The {names} in a text: plain names only, because formats and indices are unsafe.

    >>> placeholders("label", "focal {g}")
    ['g']
    """
    advice = "Write plain names in braces, such as focal:gamma={gamma}."
    if len(text) > LONGEST:
        rule = f"must be at most {LONGEST:,} characters long"
        raise refuse(setting, rule, f"got {len(text):,}", advice)
    try:
        fields = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        raise refuse(setting, "must close every brace", f"got {text!r}: {error}", advice) from None
    names = [str(name) for name, _, _ in fields]
    if any(form or conversion for _, form, conversion in fields) or not all(
        name.isidentifier() for name in names
    ):
        rule = "must have only names in braces"
        raise refuse(setting, rule, f"got {text!r}", advice)
    return names


def _distinct(runs: Iterable[Run], *names: str) -> list[Run]:
    """One run for each value of some settings, which may be unhashable."""
    return list({repr([getattr(run, name) for name in names]): run for run in runs}.values())
