"""Where files are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from calibrant._core.checks import refuse

VARIABLE = "CALIBRANT_DATA"


def data_folder(folder: str | Path | None) -> Path:
    """The given folder, or that of the environment variable ``CALIBRANT_DATA``."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if not chosen:
        rule = "must be given"
        advice = (
            f"Pass folder=…, or set the environment variable {VARIABLE} to the folder with the "
            "data files."
        )
        raise refuse("folder", rule, f"got none, and {VARIABLE} is not set", advice)
    path = Path(chosen).expanduser()
    if not path.is_dir():
        source = "folder" if folder is not None else VARIABLE
        raise refuse(source, "must be a folder", f"got {str(path)!r}", "Create it first.")
    return path


def own_path(text: str | Path, folder: str | Path | None = None) -> Path:
    """The path as it is given, or inside the data folder."""
    path = Path(text).expanduser()
    root = folder if folder is not None else os.environ.get(VARIABLE)
    return path if path.is_file() or not root else Path(root) / path


def first_found(folder: Path, patterns: tuple[str, ...], name: str) -> Path:
    """The first file or folder that matches a pattern, in the order of the patterns."""
    for pattern in patterns:
        matches = sorted(folder.glob(pattern.rstrip("/")))
        for path in matches:
            if path.is_dir() == pattern.endswith("/"):
                return path
    raise not_found(folder, patterns, name)


def not_found(folder: Path, patterns: tuple[str, ...], name: str) -> FileNotFoundError:
    """The error that says what was looked for, where, and how to get it."""
    looked = ", ".join(patterns)
    return FileNotFoundError(
        f"{name}: nothing found in the folder {folder}; looked for {looked}. Put one of them "
        f"there, or run: calibrant data get {name}"
    )
