"""Checkpoints: written whole under a temporary name, then renamed; read as tensors only."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant._core.checks import CalibrationWarning, InputError, refuse
from calibrant._core.files import write_bytes
from calibrant.models._registry import load_tensors

NAME = "checkpoint.pt"
ADVICE = "Delete that file to start again."
# Contents of a checkpoint.
FACTS: dict[str, type | tuple[type, ...]] = {
    "epoch": int,
    "rows": list,
    "settings": dict,
    "stopped": bool,
    "best_score": (int, float),
    "best_epoch": int,
}
TENSORS: dict[str, type] = {
    "model": dict,
    "optimizer": dict,
    "learned": Tensor,
    "batch_options": dict,
    "best": dict,
}


class TrainingError(RuntimeError):
    """Training cannot continue: what happened, when, and the last good checkpoint."""


def save_checkpoint(folder: Path, tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write tensors, and facts as JSON, as one file."""
    try:
        write_tensors(folder / NAME, {**tensors, "facts": json.dumps(facts)})
    except (OSError, RuntimeError) as error:
        kept = folder / NAME
        last = f"the previous checkpoint is intact: {kept.name}" if kept.exists() else "none before"
        raise TrainingError(
            f"The checkpoint of epoch {facts['epoch']} could not be written to {folder}: {error}. "
            f"Training stopped; {last}. Free some space and run the same command to continue."
        ) from error


def write_tensors(path: Path, tensors: dict[str, Any]) -> None:
    """Write a file of tensors at once: PyTorch does not report why a write fails."""
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    write_bytes(path, buffer.getbuffer())


def is_whole(path: Path) -> bool:
    """Whether a file of tensors is as it was written; what is damaged is named in a warning.

    PyTorch writes a checksum of every tensor, but does not verify it on loading.
    """
    if not path.exists():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is None:
                return True
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError):
        pass
    text = f"{path} is damaged and will be recreated."
    warnings.warn(text, CalibrationWarning, stacklevel=2)
    return False


def load_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read the checkpoint of a run, or None if it has none or a damaged one."""
    path = folder / NAME
    if not is_whole(path):
        return None
    found = load_tensors(path, "out", ADVICE)
    try:
        facts = json.loads(found.pop("facts"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise no_checkpoint(f"no facts in {path}") from error
    for holder, kinds in ((facts, FACTS), (found, TENSORS)):
        for name, kind in kinds.items():
            if not isinstance(holder, dict) or not isinstance(holder.get(name), kind):
                raise no_checkpoint(f"no usable {name!r} in {path}")
    if facts["epoch"] < 0 or not all(isinstance(row, dict) for row in facts["rows"]):
        raise no_checkpoint(f"no usable epochs in {path}")
    return found, facts


def no_checkpoint(what: str) -> InputError:
    """The error for a checkpoint of another kind, or of another network."""
    rule = f"must contain a {NAME} that this package wrote for these settings"
    return refuse("out", rule, f"got {what}", ADVICE)
