"""Files of JSON lines: the samples of an evaluation, or one object per sample."""

from __future__ import annotations

import glob
from pathlib import Path

from calibrant._core.checks import refuse
from calibrant._core.files import check_regular, clear_errors
from calibrant.io._columns import Columns
from calibrant.io._jsonl import read_rows, rows_columns
from calibrant.io._layout import Layout
from calibrant.io._lm_eval import is_lm_eval, lm_eval_columns


def is_pattern(path: Path) -> bool:
    """Whether a path is a pattern such as ``samples_*.jsonl`` rather than a file."""
    return glob.has_magic(str(path)) and not path.exists()


def read_jsonl(path: Path, layout: Layout) -> Columns:
    """One file of JSON lines, or several logs of lm-evaluation-harness by a pattern."""
    files = _matching(path)
    rows = {file.name: read_rows(file) for file in files}
    logs = [all(map(is_lm_eval, part)) for part in rows.values()]
    if all(logs):
        return lm_eval_columns(rows, layout)
    if len(files) > 1:
        rule, advice = "must match logs of lm-evaluation-harness", "Read other files one by one."
        raise refuse("path", rule, f"got {files[logs.index(False)].name}", advice)
    with clear_errors(path, "JSON lines"):
        return rows_columns(rows[files[0].name], path.name, layout)


def _matching(path: Path) -> list[Path]:
    if not is_pattern(path):
        return [path]
    files = [Path(name) for name in sorted(glob.glob(str(path)))]  # noqa: PTH207
    if not files:
        raise refuse("path", "must match files", f"got none for {str(path)!r}", "Check the folder.")
    for file in files:
        check_regular(file)
    return files
