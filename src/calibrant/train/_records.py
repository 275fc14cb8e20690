"""The files of a finished run; ``run.json`` is written last, so that existing means finished."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from calibrant._core.checks import refuse
from calibrant._core.files import make_output_folder, npy_bytes, read_json, replacing, write_bytes
from calibrant.io._plain_arrays import plain_array
from calibrant.train._checkpoint import NAME as CHECKPOINT
from calibrant.train._checkpoint import is_whole, write_tensors

if TYPE_CHECKING:
    from calibrant.train._trained import Trained

FINISHED, WEIGHTS = "run.json", "weights.pt"
EPOCHS, ARRAYS, PARTS = "epochs.parquet", ("learned", "max_logit"), ("calibration", "test")
# Settings needed for prediction.
SETTINGS: dict[str, type] = {
    "data": str,
    "data_hash": str,
    "split": dict,
    "model": str,
    "model_options": dict,
    "seed": int,
    "precision": str,
}
SPLIT = {"calibration", "train_size", "calibration_size"}


def make_run_folder(folder: Path) -> None:
    """Make the folder of a run; refuse one whose files could not be written after training."""
    arrays, parts = [f"{name}.npy" for name in ARRAYS], [f"{name}.npz" for name in PARTS]
    make_output_folder("out", folder, [CHECKPOINT, WEIGHTS, EPOCHS, *arrays, *parts, FINISHED])


def write_run(folder: Path, trained: Trained) -> None:
    """Write weights, records and predictions of a run, then the file that marks it finished."""
    write_tensors(folder / WEIGHTS, trained.model.state_dict())
    with replacing(folder / EPOCHS) as temporary:
        pq.write_table(epochs_table(trained.epochs), temporary)
    for name in ARRAYS:
        array = getattr(trained, name)
        if array is not None:
            write_bytes(folder / f"{name}.npy", npy_bytes(array))
    for name, p in trained.predictions.items():
        p.save(folder / f"{name}.npz")
    write_bytes(folder / FINISHED, json.dumps(dict(trained.settings), indent=1).encode())


def is_finished(folder: str | Path) -> bool:
    """Whether a folder holds a finished run whose weights are as they were written."""
    return (Path(folder) / FINISHED).exists() and is_whole(Path(folder) / WEIGHTS)


def epochs_table(rows: list[dict[str, float]]) -> pa.Table:
    """One row per epoch; values that were not recorded are null."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [plain_array([row.get(name) for row in rows]) for name in names]
    return pa.Table.from_arrays(columns, names)


def read_run(folder: str | Path) -> dict[str, Any]:
    """Settings of a finished run."""
    path = Path(folder) / FINISHED
    if not path.exists():
        rule = f"must be the folder of a finished run, with {FINISHED} in it"
        advice = "Run calibrant train with the same --out to finish it."
        raise refuse("run", rule, f"got {folder}", advice)
    found = read_json(path)
    wrong = [
        name
        for name, kind in SETTINGS.items()
        if not isinstance(found, dict) or not isinstance(found.get(name), kind)
    ]
    if not wrong and not {"calibration"} <= set(found["split"]) <= SPLIT:
        wrong = ["split"]
    if wrong:
        rule = "must hold the settings of a run as JSON"
        raise refuse(str(path), rule, f"got no usable {wrong[0]!r}", "Train it again.")
    settings: dict[str, Any] = found
    return settings
