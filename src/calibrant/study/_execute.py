"""One run: train, store the logits, apply every calibrator and metric to them."""

from __future__ import annotations

import errno
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import CalibrationWarning, InputError
from calibrant._core.files import DAMAGE, npy_bytes, write_bytes
from calibrant.data import Dataset, load
from calibrant.io import read_array
from calibrant.predictions import Predictions
from calibrant.results import Store
from calibrant.study._records import Evaluation, Run, fingerprint
from calibrant.study._shifts import shifted

TRAIN, TEST, CALIBRATION = "train", "test", "calibration"
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


class StudyError(RuntimeError):
    """The study cannot continue; finished runs are kept."""


def execute(run: Run, evaluation: Evaluation, store: Store, dataset: Dataset | None = None) -> bool:
    """Make a run finished, doing only what is missing; False if another process has it.

    An error leaves its record and is raised no further than that, except those that stop the
    whole study: a full or broken disk, or an interruption.
    """
    with store.claim(run.key) as ours:
        if not ours:
            return False
        start = time.perf_counter()
        try:
            known = store.facts(run.key) or {}
            evaluation = evaluation.joined(known.get("evaluation", {}))
            kept, trained_in = keep_logits(run, evaluation, store.run_folder(run.key), dataset)
            features = _keep_features(run, evaluation, store.run_folder(run.key), dataset)
            rows = evaluate(run, evaluation, kept, features)
            facts = {
                "label": run.name,
                "evaluation": described(evaluation),
                "train_seconds": trained_in or known.get("train_seconds", 0.0),
                "seconds": time.perf_counter() - start,
            }
            store.write(run.key, rows, facts)
        except Exception as error:
            disk = disk_error(error)
            if disk is not None:
                raise disk from None
            store.fail(
                run.key,
                {
                    "run": str(run),
                    "error": f"{type(error).__name__}: {error}",
                    "traceback": traceback.format_exc(),
                    "time": time.time(),
                },
            )
    return True


def disk_error(error: BaseException | None) -> OSError | None:
    """The error of a full or broken disk that is, or led to, an error; None if none did."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK:
            return error
        error = error.__cause__ or error.__context__
    return None


def keep_logits(
    run: Run, evaluation: Evaluation, folder: Path, dataset: Dataset | None
) -> tuple[dict[str, Predictions], float]:
    """Predictions on calibration, test and shifted samples, and seconds of training.

    What is kept is not trained again; then the seconds are 0.
    """
    kept = {part: _read(folder / file_name(part)) for part in parts_of(run, evaluation)}
    if not any(p is None for p in kept.values()):
        return {part: p for part, p in kept.items() if p is not None}, 0.0
    from calibrant.train import EarlyStopping, get_recipe, is_finished, train
    from calibrant.train._predict import FinishedRun

    start, seconds = time.perf_counter(), 0.0
    data = dataset or load(run.data, **run.data_options)
    recipe = dict(run.recipe)
    own = [part for part in (TEST, CALIBRATION) if part in kept]
    if any(kept[part] is None for part in own) or not is_finished(folder):
        trained = train(
            data,
            model=run.model,
            objective=run.objective,
            seed=run.seed,
            recipe=get_recipe(recipe.pop("name"), **recipe),
            model_options=run.model_options,
            calibration=run.calibration,
            train_size=run.train_size,
            precision=run.precision,
            out=folder,
            telemetry=run.telemetry,
            telemetry_samples=run.telemetry_samples,
            stop=None if run.stop is None else EarlyStopping(**run.stop),
        )
        kept |= {part: trained.predictions[part] for part in own}
        seconds = time.perf_counter() - start
    left = [part for part, p in kept.items() if p is None]
    if left:
        finished = FinishedRun(folder, data)
        for part in left:
            p = finished.predict(**_asked(part, run, data))
            p.save(folder / file_name(part))
            kept[part] = p
    return {part: p for part, p in kept.items() if p is not None}, seconds


def parts_of(run: Run, evaluation: Evaluation) -> tuple[str, ...]:
    """The parts whose predictions are needed: what is fitted to, and what is measured."""
    training = any(map(evaluation.learns_on_training_data, evaluation.calibrators))
    fitted_to = [TRAIN] * training + [CALIBRATION] * bool(run.calibration)
    return *fitted_to, TEST, *evaluation.shifts


def _asked(part: str, run: Run, data: Dataset) -> dict[str, Any]:
    """What ``predict`` is asked for a part."""
    own = part in (TRAIN, CALIBRATION, TEST)
    return {"part": part} if own else {"shift": shifted(part, run, data)}


def _keep_features(
    run: Run, evaluation: Evaluation, folder: Path, dataset: Dataset | None
) -> dict[str, NDArray[np.float32]]:
    """What the last layer sees of each part, if some calibrator learns from that."""
    if not any(map(evaluation.from_features, evaluation.calibrators)):
        return {}
    paths = {
        part: folder / f"features-{Path(file_name(part)).stem}.npy"
        for part in parts_of(run, evaluation)
    }
    found = {part: _read_features(path) for part, path in paths.items()}
    left = [part for part, kept in found.items() if kept is None]
    if left:
        from calibrant.train._predict import FinishedRun

        data = dataset or load(run.data, **run.data_options)
        finished = FinishedRun(folder, data)
        for part in left:
            found[part] = kept = finished.features(**_asked(part, run, data))
            write_bytes(paths[part], npy_bytes(kept))
    return {part: kept for part, kept in found.items() if kept is not None}


def _read_features(path: Path) -> NDArray[np.float32] | None:
    """Kept features; None if there are none or the file is damaged."""
    try:
        return read_array(path)
    except FileNotFoundError:
        return None
    except DAMAGE + (InputError,):  # noqa: RUF005 - mypy does not see through the star
        _warn_damaged(path)
        return None


def _warn_damaged(path: Path) -> None:
    text = f"{path} is damaged and will be recreated."
    warnings.warn(text, CalibrationWarning, stacklevel=3)


def _read(path: Path) -> Predictions | None:
    """Kept predictions; None if there are none or the file is damaged."""
    try:
        return Predictions.load(path)
    except FileNotFoundError:
        return None
    except InputError:
        _warn_damaged(path)
        return None


def file_name(part: str) -> str:
    """The name of the file that keeps the predictions of a part."""
    if part in (TRAIN, CALIBRATION, TEST):
        return f"{part}.npz"
    return f"shift-{part.replace('/', '-')}{fingerprint(part)}.npz"


def evaluate(
    run: Run,
    evaluation: Evaluation,
    kept: Mapping[str, Predictions],
    features: Mapping[str, NDArray[np.float32]] | None = None,
) -> list[dict[str, Any]]:
    """Every calibrator, fitted on the calibration samples, and every metric on the other parts.

    ConfidNet is trained on the training samples, and the calibration samples validate it. A fitted
    temperature is a row of its own, as the metric ``temperature`` of the calibration samples.
    """
    place = {
        "run": run.key,
        "data": run.data,
        "model": run.model,
        "objective": run.name,
        "seed": run.seed,
    }
    rows = []
    for label in evaluation.calibrators:
        here = {**place, "calibrator": label}
        calibrator: Any = evaluation.make(label)
        learns_from = (features or {}) if evaluation.from_features(label) else {}
        seen = {part: {"features": array} for part, array in learns_from.items()}
        if calibrator is not None:
            training = evaluation.learns_on_training_data(label)
            _fit(calibrator, kept, seen, on=TRAIN if training else CALIBRATION)
        found = getattr(calibrator, "temperature_", None)
        if found is not None:
            rows.append({**here, "part": CALIBRATION, "metric": "temperature", "value": found})
        for part, p in kept.items():
            if part in (TRAIN, CALIBRATION):
                continue
            rows += [
                {**here, "part": part, "metric": name, "value": value}
                for name, value in evaluation.values_after(
                    calibrator, p, seen.get(part, {})
                ).items()
            ]
    return rows


def _fit(
    calibrator: Any, kept: Mapping[str, Predictions], seen: Mapping[str, Any], *, on: str
) -> None:
    """Fit a calibrator on a part; what is fixed beforehand needs none."""
    if on not in kept:
        return
    options = dict(seen.get(on, {}))
    if on == TRAIN and CALIBRATION in kept:
        options["validation"] = kept[CALIBRATION], seen[CALIBRATION]["features"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        calibrator.fit(kept[on], **options)


def described(evaluation: Evaluation) -> dict[str, Any]:
    """What a result file holds, to see whether it holds what is asked for."""
    return {
        "shifts": list(evaluation.shifts),
        "shift_files": [file_name(shift) for shift in evaluation.shifts],
        "metrics": {label: dict(spec) for label, spec in evaluation.metrics.items()},
        "calibrators": {label: dict(spec) for label, spec in evaluation.calibrators.items()},
        "protocols": evaluation.protocols,
    }


def is_complete(facts: Mapping[str, Any] | None, asked: Mapping[str, Any]) -> bool:
    """Whether a result file holds everything that is ``described``; its label does not matter."""
    if facts is None:
        return False
    held = facts.get("evaluation", {})
    return set(held.get("shift_files", ())) >= set(asked["shift_files"]) and all(
        held.get(kind, {}).get(label) == spec
        for kind in ("metrics", "calibrators", "protocols")
        for label, spec in asked[kind].items()
    )
