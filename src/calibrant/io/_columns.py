"""The columns of a predictions file, independent of its format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant._core.belonging import Belonging, is_belonging
from calibrant._core.checks import InputError, did_you_mean, refuse
from calibrant._core.memory import PARSED, check_size

ARRAY_NAMES = ("logits", "probs", "labels", "confidence", "correct")
KNOWN = (*ARRAY_NAMES, "label", "logit_0", "prob_0")
NAMING = (
    "In a table, name the columns: label_column=…, prob_columns=… or logit_columns=…; in an "
    ".npz file, name the arrays logits (or probs) and labels"
)
META_KEY = "calibrant"
# Key of the metadata for sentences that belong to every result of these samples.
FILE_NOTES = "notes"
STREAM_ADVICE = (
    "Free some memory, or read it as Parquet in bounded memory: calibrant measure --stream."
)


@dataclass(frozen=True)
class Columns:
    """The arrays of one file, with the class names and metadata stored with them.

    ``ignored`` names columns that were not used.
    """

    arrays: dict[str, NDArray[Any]]
    classes: tuple[str, ...] | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def header(self) -> str | None:
        """Class names and metadata as JSON, or None where there is neither."""
        if self.classes is None and not self.meta:
            return None
        return json.dumps({"classes": self.classes, "meta": self.meta})

    def arguments(
        self, path: str | Path, names: tuple[str, ...], *, belonging: bool = True
    ) -> dict[str, Any]:
        """The arrays as arguments of a record; unexpected and missing arrays raise an error.

        ``belonging`` says whether clusters, groups and weights are wanted.
        """
        wrong = [name for name in self.arrays if name not in names and not is_belonging(name)]
        scores = names[0] != "logits" or {"logits", "probs"} & set(self.arrays)
        if wrong:
            what = "logits (or probs) and labels" if "logits" in names else "confidence and correct"
            rule, advice = f"must hold {what} only", "Save one record per file."
            if not scores:
                rule, advice = f"must hold {what}", "Calibrators need the scores of all classes."
            raise refuse(Path(path).name, rule, f"got {wrong[0]!r}", advice)
        needed = [name for name in names if name not in ("logits", "probs", *self.arrays)]
        if needed or not scores:
            missing = needed[0] if needed else "logits (or probs)"
            rule = f"must hold {missing}"
            got = f"got {', '.join(self.arrays) or 'no known name'}"
            raise refuse(Path(path).name, rule, got, hint(self.ignored, missing))
        given = {name: array for name, array in self.arrays.items() if name in names}
        return given | (Belonging.from_arrays(self.arrays) if belonging else {})


def is_known(name: str) -> bool:
    """Whether an array of this name has a meaning."""
    return name in ARRAY_NAMES or is_belonging(name)


def hint(ignored: Sequence[str], missing: str) -> str:
    """Advice where something is missing and other columns were not understood."""
    if not ignored:
        return (
            f"{NAMING}; labels=… names a separate .npy file."
            if missing == "labels"
            else NAMING + "."
        )
    wanted = [name for name in KNOWN if name[:4] in missing]  # label, logit_0, prob_0 …
    found = next(filter(None, (did_you_mean(name, wanted) for name in ignored)), None)
    shown = ", ".join(map(repr, ignored[:5])) + (" …" if len(ignored) > 5 else "")  # noqa: PLR2004
    return f"Not used: {shown}. {found or NAMING + '.'}"


def check_ignored(where: str, what: str, ignored: Sequence[str], *, strict: bool) -> None:
    """Refuse columns that are not used where the reading is strict."""
    if ignored and strict:
        near, ignore = did_you_mean(ignored[0], KNOWN), "Without strict=True it is ignored."
        advice = f"{near} {ignore}" if near else ignore
        raise refuse(where, f"has an unknown {what}", f"got {ignored[0]!r}", advice)


def with_header(path: Path, columns: Columns, header: bytes | None) -> Columns:
    """The same columns with the class names and the metadata of a header."""
    if header is None:
        return columns
    check_size(PARSED * len(header), path.name)
    try:
        record = json.loads(header)
        classes, meta = record["classes"], record["meta"]
        names = None if classes is None else tuple(map(str, classes))
        return replace(columns, classes=columns.classes or names, meta=dict(meta) | columns.meta)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path.name} has damaged metadata ({error}); save it again.") from error
