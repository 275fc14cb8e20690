"""Which columns of a file mean what: declared by the user, or by the names of the columns."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from calibrant._core.belonging import GROUP_PREFIX
from calibrant._core.checks import InputError, check_choice, near_name, refuse
from calibrant._core.options import check_option_names
from calibrant.io._columns import check_ignored, is_known

Kind = Literal["logits", "probs"]
Normalisation = Literal["raw", "token", "byte"]
SCORE_KINDS: tuple[Kind, ...] = ("logits", "probs")
_SCORE = re.compile(r"(logit|prob)_(.+)\Z", re.DOTALL)
_NUMBER = re.compile(r"(0|[1-9][0-9]{0,6})\Z")
# Arrow takes a tenth of a millisecond for each column, however short. ImageNet-21k has 21,841.
MOST_COLUMNS = 25_000
# The column of a binary model: the score of class 1.
CLASS_ONE = "1"


@dataclass(frozen=True)
class Layout:
    """How to read a file whose columns are not named as this package names them.

    Parameters
    ----------
    label_column, confidence_column, correct_column, cluster_column
        Names of single columns. In JSON lines and evaluation logs, dots lead into objects:
        ``"doc.answer"``.
    prob_columns, logit_columns
        Names or patterns of the score columns, separated by commas: ``"p_*"``. One column holds
        the score of class 1 of a two-class problem. Class names are what the ``*`` stands for.
    group_columns
        Names of columns with groups.
    classes
        Class names, in the order of the score columns.
    separator, decimal
        Separator of the columns and decimal mark of a CSV file.
    percent
        Probabilities or confidences are given in per cent, as 85 or "85 %".
    renormalise
        Divide rows of probabilities by their sum if rounding explains how far that is from 1.
    strict
        Refuse a file with columns that are not used, instead of noting them.
    skip_unparsable
        Leave out rows without a readable confidence or outcome, and count them.
    normalise
        What the log-likelihood of an option is divided by in logs of lm-evaluation-harness:
        nothing (``"raw"``), its number of tokens or its number of bytes.
    scorer
        Name of the scorer in an Inspect log with several.
    """

    label_column: str | None = None
    prob_columns: str | None = None
    logit_columns: str | None = None
    confidence_column: str | None = None
    correct_column: str | None = None
    cluster_column: str | None = None
    group_columns: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    separator: str = ","
    decimal: str = "."
    percent: bool = False
    renormalise: bool = False
    strict: bool = False
    skip_unparsable: bool = False
    normalise: Normalisation = "raw"
    scorer: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Layout:
        """Check options given by name.

        >>> Layout.of({"label_column": "y", "classes": ["cat", "dog"]}).classes
        ('cat', 'dog')
        """
        check_option_names("load", options, [field.name for field in dataclasses.fields(cls)])
        given = {name: value for name, value in options.items() if value is not None}
        for name in ("classes", "group_columns"):
            if isinstance(given.get(name), str):
                given[name] = given[name].split(",")
            if name in given:
                given[name] = tuple(str(part) for part in given[name])
        layout = cls(**given)
        layout._check()
        return layout

    def _check(self) -> None:
        check_choice("normalise", self.normalise, ("raw", "token", "byte"))
        if self.prob_columns and self.logit_columns:
            rule, advice = "excludes logit_columns", "Name the columns of one kind of scores."
            raise refuse("prob_columns", rule, "got both", advice)
        for name, value in (("separator", self.separator), ("decimal", self.decimal)):
            if not isinstance(value, str) or len(value) != 1 or not _is_plain(value):
                rule, advice = (
                    "must be one ASCII character, no quote or line break",
                    'Try ";" or ",".',
                )
                raise refuse(name, rule, f"got {value!r}", advice)
        if self.separator == self.decimal:
            rule, advice = "must differ from decimal", 'Try separator=";" with decimal=",".'
            raise refuse("separator", rule, f"got {self.separator!r} for both", advice)

    @property
    def singles(self) -> dict[str, str]:
        """Declared single columns: the name of each, and the array that it becomes."""
        named = {
            self.label_column: "labels",
            self.confidence_column: "confidence",
            self.correct_column: "correct",
            self.cluster_column: "clusters",
        }
        groups = {name: f"{GROUP_PREFIX}{name}" for name in self.group_columns}
        return {name: array for name, array in named.items() if name is not None} | groups


@dataclass(frozen=True)
class Plan:
    """The columns of a file that are read, what they become, and those that are left out."""

    scores: Mapping[Kind, tuple[str, ...]]
    classes: tuple[str, ...] | None
    singles: Mapping[str, str]
    ignored: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Columns of several labels per sample, in the order of the score columns."""

    @property
    def becomes(self) -> dict[str, str]:
        """The array that each column becomes, or a part of."""
        parts = {name: kind for kind, names in self.scores.items() for name in names}
        return dict(self.singles) | parts | dict.fromkeys(self.labels, "labels")

    @property
    def used(self) -> list[str]:
        """Names of the columns to read."""
        scores = (name for names in self.scores.values() for name in names)
        return [*self.singles, *scores, *self.labels]


def _is_plain(sign: str) -> bool:
    """Whether a character can separate the columns of a CSV file."""
    return sign == "\t" or (sign.isascii() and sign.isprintable() and sign != '"')


def plan_columns(names: Sequence[str], where: str, layout: Layout) -> Plan:
    """Decide what every column is."""
    check_width(len(names), where)
    singles = _declared_singles(names, where, layout)
    rest = [name for name in names if name not in singles]
    scores, classes = _scores(rest, where, layout)
    taken = {name for columns in scores.values() for name in columns}
    becomes = set(singles.values()) | set(scores)
    for name in rest:
        array = "labels" if name == "label" else name
        if name not in taken and is_known(array) and array not in layout.singles.values():
            declared = bool(layout.prob_columns or layout.logit_columns) and array in SCORE_KINDS
            if array in becomes and not declared:
                raise InputError(f"{where} holds {name} twice; keep one column of each name.")
            if not declared:
                singles[name] = array
                becomes.add(array)
    labels = () if "labels" in becomes else _label_columns(rest, scores)
    used = {*singles, *taken, *labels}
    _refuse_repeated(names, used, where)
    ignored = tuple(name for name in names if name not in used)
    check_ignored(where, "column", ignored, strict=layout.strict)
    return Plan(scores, classes, singles, ignored, labels)


def _label_columns(names: Sequence[str], scores: Mapping[Kind, tuple[str, ...]]) -> tuple[str, ...]:
    """Columns ``label_x`` beside the scores of every x: several labels per sample."""
    columns = next(iter(scores.values()), ())
    matches = [_SCORE.match(name) for name in columns]
    wanted = tuple(f"label_{match[2]}" for match in matches if match)
    return wanted if len(wanted) == len(columns) and set(wanted) <= set(names) else ()


def check_width(columns: int, where: str) -> None:
    """Refuse a table of more columns than can be read in reasonable time."""
    if columns > MOST_COLUMNS:
        rule, advice = f"must have at most {MOST_COLUMNS:,} columns", "Save one array as npz."
        raise refuse(where, rule, f"got {columns:,}", advice)


def _declared_singles(names: Sequence[str], where: str, layout: Layout) -> dict[str, str]:
    for name in layout.singles:
        if name not in names:
            rule = f"has no column {name!r}"
            raise refuse(where, rule, None, near_name(name, names) if names else "It is empty.")
    return dict(layout.singles)


def _scores(
    names: Sequence[str], where: str, layout: Layout
) -> tuple[dict[Kind, tuple[str, ...]], tuple[str, ...] | None]:
    """The score columns in the order of the classes, and the class names they tell."""
    for kind, pattern in (("probs", layout.prob_columns), ("logits", layout.logit_columns)):
        if pattern:
            columns, classes = _matching(names, pattern, where)
            return {kind: columns}, classes  # type: ignore[dict-item]
    found: dict[Kind, tuple[str, ...]] = {}
    classes = None
    for kind in SCORE_KINDS:
        stem = kind.removesuffix("s")
        parts = [m[2] for name in names if (m := _SCORE.match(name)) and m[1] == stem]
        if parts:
            chosen, classes = _ordered(parts, where, stem)
            if chosen:
                found[kind] = tuple(f"{stem}_{part}" for part in chosen)
    return found, classes


def _ordered(parts: list[str], where: str, stem: str) -> tuple[list[str], tuple[str, ...] | None]:
    """Numbered columns by number, or named ones as they come, with the class names."""
    numbered = sorted({part for part in parts if _NUMBER.match(part)}, key=int)
    if not numbered:
        return (parts, tuple(parts)) if len(parts) > 1 else ([], None)
    if numbered == [CLASS_ONE]:
        return numbered, None
    missing = next((k for k, part in enumerate(numbered) if part != str(k)), len(numbered))
    if missing != len(numbered):
        raise InputError(
            f"{where} has no column {stem}_{missing}, but has {stem}_{numbered[-1]}; "
            "number the classes from 0 without gaps."
        )
    return numbered, None


def _matching(
    names: Sequence[str], patterns: str, where: str
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Columns that match, and what the stars stand for where that names the classes."""
    found: dict[str, str] = {}
    for pattern in (part.strip() for part in patterns.split(",")):
        matches = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not matches:
            rule, advice = f"has no column that matches {pattern!r}", near_name(pattern, names)
            raise refuse(where, rule, None, advice)
        before, star, after = pattern.partition("*")
        plain = star and not any(sign in before + after for sign in "*?[")
        found |= {n: n[len(before) : len(n) - len(after)] if plain else n for n in matches}
    parts = list(found.values())
    if len(found) == 1:
        return tuple(found), None
    if all(_NUMBER.match(part) for part in parts):
        order = sorted(found, key=lambda name: int(found[name]))
        if [int(found[name]) for name in order] != list(range(len(order))):
            return tuple(order), tuple(found[name] for name in order)
        return tuple(order), None
    known = [_SCORE.match(part) for part in parts]  # prob_cat, listed by its whole name
    if all(m and not _NUMBER.match(m[2]) for m in known):
        parts = [m[2] for m in known if m]
    return tuple(found), tuple(parts)


def _refuse_repeated(names: Sequence[str], used: set[str], where: str) -> None:
    count = Counter(names)
    for name in names:
        if name in used and count[name] > 1:
            raise InputError(f"{where} holds {name} twice; keep one column of each name.")
