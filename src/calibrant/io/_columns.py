"""The columns of one file of predictions, whatever its format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrant._core.checks import InputError, near_name, refuse

ARRAY_NAMES = ("logits", "probs", "labels", "confidence", "correct")
META_KEY = "calibrant"
STREAM_ADVICE = (
    "Free some memory, or read it as Parquet in bounded memory: calibrant measure --stream."
)


@dataclass(frozen=True)
class Columns:
    """The arrays of one file, with the class names and metadata saved beside them."""

    arrays: dict[str, NDArray[Any]]
    classes: tuple[str, ...] | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def header(self) -> str | None:
        """Class names and metadata as JSON, or None where there is neither."""
        if self.classes is None and not self.meta:
            return None
        return json.dumps({"classes": self.classes, "meta": self.meta})


def unknown(path: str | Path, what: str, name: str) -> InputError:
    known = ("label", "logit_0", "prob_0") if what == "column" else ()
    advice = near_name(name, (*ARRAY_NAMES, *known))
    rule = f"has an unknown {what}"
    return refuse(Path(path).name, rule, f"got {name!r}", advice)


def with_header(path: Path, arrays: dict[str, NDArray[Any]], header: bytes | None) -> Columns:
    if header is None:
        return Columns(arrays)
    try:
        record = json.loads(header)
        classes, meta = record["classes"], record["meta"]
        names = None if classes is None else tuple(map(str, classes))
        return Columns(arrays, names, dict(meta))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path.name} has damaged metadata ({error}); save it again.") from error
