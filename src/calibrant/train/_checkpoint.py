"""Checkpoints: written whole under a temporary name, then renamed; read as tensors only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from calibrant._checks import refuse
from calibrant._files import replacing

NAME = "checkpoint.pt"


class TrainingError(RuntimeError):
    """Training cannot go on: what happened, when, and the last good checkpoint."""


def save_checkpoint(folder: Path, tensors: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write tensors, and facts as JSON, as one file."""
    try:
        with replacing(folder / NAME) as temporary, Path(temporary).open("wb") as file:
            torch.save({**tensors, "facts": json.dumps(facts)}, file)
    except (OSError, RuntimeError) as error:
        kept = folder / NAME
        last = f"the checkpoint before it is whole: {kept.name}" if kept.exists() else "none before"
        raise TrainingError(
            f"The checkpoint of epoch {facts['epoch']} could not be written to {folder}: {error}. "
            f"Training stopped; {last}. Free some space and run the same command to go on."
        ) from error


def load_checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read the checkpoint of a run, or None if it has none."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        facts = json.loads(found.pop("facts"))
    except Exception as error:
        rule = "must be a checkpoint that this package wrote"
        got = f"got {path}: {str(error).splitlines()[0][:200]}"
        raise refuse("out", rule, got, "Delete that file to start again.") from error
    return found, facts
