"""Calibrators as JSON files: versioned, readable, and validated on loading."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.arrays import Result
from calibrant._core.checks import InputError, near_name
from calibrant._core.files import check_regular, replacing
from calibrant._core.memory import PARSED, check_size
from calibrant._core.validation import MIN_CLASSES
from calibrant._core.version import __version__
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._plain import CONFIDENCE_ONLY

FILE_SCHEMA = "calibrant.calibrator"
VERSION = 2
MOST_CLASSES = 10_000_000
FIELDS = {"schema", "version", "package", "calibrator"}


def write(calibrator: Calibrator, path: str | Path) -> None:
    """Write a fitted calibrator."""
    write_envelope(path, FILE_SCHEMA, VERSION, {"calibrator": to_dict(calibrator)})


def write_envelope(
    path: str | Path, schema: str, version: int, content: dict[str, Any], *, indent: int | None = 1
) -> None:
    """Write plain data with its schema, its version and that of the package."""
    data = {"schema": schema, "version": version, "package": __version__, **content}
    with replacing(path) as temporary:
        text = json.dumps(data, allow_nan=False, indent=indent)
        temporary.write_text(text + "\n", encoding="utf-8")


def to_dict(calibrator: Calibrator) -> dict[str, Any]:
    """A calibrator, fitted or not, as plain data."""
    state = {
        name: encode(getattr(calibrator, name))
        for name in calibrator.learned
        if name in vars(calibrator)
    }
    data: dict[str, Any] = {
        "method": type(calibrator).__name__,
        "params": {name: encode(value) for name, value in calibrator.params().items()},
    }
    if calibrator.is_fitted:
        data |= {
            "num_classes": calibrator.num_classes_,
            "classes": calibrator.classes_,
            "learned": state,
        }
    if "groups_" in vars(calibrator):
        data["groups"] = {name: to_dict(part) for name, part in calibrator.groups_.items()}
    return data


def encode(value: Any) -> Any:
    if isinstance(value, Calibrator):
        return {"calibrator": to_dict(value)}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, float) and not math.isfinite(value):  # norm=inf; JSON has no such number
        return {"number": str(value)}
    return value


def load_calibrator(path: str | Path) -> Any:
    """Read a calibrator that ``save`` wrote. The file is data: nothing in it is executed."""
    from calibrant.calibrators import _features, _multilabel

    def read(data: Any) -> Any:
        for module in (_features, _multilabel):
            if isinstance(data, dict) and data.get("schema") == module.FILE_SCHEMA:
                return module.read(data)
        return _read(data)

    return read_json(path, read)


def read_json(path: str | Path, read: Callable[[Any], Result]) -> Result:
    """Apply ``read`` to a JSON file; any defect raises one error."""
    path = Path(path)
    check_regular(path)
    check_size(path.stat().st_size * PARSED, path.name)
    try:
        data = json.loads(
            path.read_bytes(), object_pairs_hook=_no_twins, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path.name} is not a calibrator: {reason}. Save it again.") from error
    faults = (AttributeError, TypeError, ValueError, KeyError, RecursionError, OverflowError)
    try:
        return read(data)
    except faults as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{path.name} does not contain a valid calibrator: {reason}") from error


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number JSON allows")


def check_envelope(data: Any, schema: str, version: int, names: set[str]) -> None:
    """Reject anything but an object of this schema and version with exactly these fields."""
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise InputError(f"its schema must be {schema!r}. Write one with save(…).")
    if type(data.get("version")) is not int or data["version"] != version:
        raise InputError(
            f"its version must be {version}; got {data.get('version')!r}. Install the version of "
            "Calibrant that wrote it, or fit again."
        )
    if set(data) != names:
        raise InputError(f"its fields must be {', '.join(sorted(names))}.")


def _read(data: Any) -> Calibrator:
    check_envelope(data, FILE_SCHEMA, VERSION, FIELDS)
    calibrator = from_dict(data["calibrator"])
    if not calibrator.is_fitted:
        raise InputError("it must be fitted.")
    return calibrator


def from_dict(data: dict[str, Any]) -> Calibrator:
    """A calibrator from plain data, every learned value checked."""
    from calibrant.calibrators._registry import CALIBRATORS, WRAPPERS

    known = {kind.__name__: kind for kind in (*CALIBRATORS.values(), *WRAPPERS)}
    if not all(isinstance(part, dict) for part in (data, data["params"], data.get("learned", {}))):
        raise InputError("its calibrator must be an object with method, params and learned.")
    kind = known.get(data["method"])
    if kind is None:
        name = str(data["method"])
        raise InputError(f"method {name!r} is unknown. {near_name(name, known)}")
    calibrator: Calibrator = kind(**{name: _decode(v) for name, v in data["params"].items()})
    for f in calibrator.fields():  # JSON has no tuples
        if isinstance(f.default, tuple):
            setattr(calibrator, f.name, tuple(getattr(calibrator, f.name)))
    calibrator.check()
    calibrator.forget()
    if "learned" not in data:
        return calibrator
    least = CONFIDENCE_ONLY if calibrator.of_confidences else MIN_CLASSES
    calibrator.num_classes_ = check_num_classes(data["num_classes"], least)
    calibrator.classes_ = check_class_names(data["classes"], calibrator.num_classes_)
    if "groups" in data:
        calibrator.groups_ = {str(name): from_dict(part) for name, part in data["groups"].items()}
        if not all(part.is_fitted for part in calibrator.groups_.values()):
            raise InputError("every group must be fitted.")
        return calibrator
    _set_learned(calibrator, data["learned"])
    calibrator.check_learned()
    return calibrator


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["number"]) if "number" in value else from_dict(value["calibrator"])
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value


def check_num_classes(value: Any, least: int = MIN_CLASSES) -> int | None:
    """The number of classes in a file; 1 stands for confidences alone."""
    if value is not None and (type(value) is not int or not least <= value <= MOST_CLASSES):
        raise InputError(f"num_classes must be a whole number of at least {least}; got {value!r}.")
    return value


def check_class_names(value: Any, num_classes: int | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(value)
    if len(names) != num_classes or not all(isinstance(name, str) for name in names):
        raise InputError("classes must be one string per class.")
    return names


def _set_learned(calibrator: Calibrator, learned: dict[str, Any]) -> None:
    """Set the fitted attributes after validating their names, shapes and values."""
    alone = calibrator.num_classes_ == CONFIDENCE_ONLY  # then being correct is one class of two
    sizes: dict[str, int | None] = {"K": MIN_CLASSES if alone else calibrator.num_classes_}
    if set(learned) != set(calibrator.learned):
        raise InputError(f"learned must hold {', '.join(calibrator.learned)}.")
    for name, shape in calibrator.learned.items():
        value = _decode(learned[name]) if shape == ("calibrators",) else learned[name]
        if shape == ("calibrators",):
            parts = value if isinstance(value, list) else [value]
            if not parts or not all(isinstance(p, Calibrator) and p.is_fitted for p in parts):
                raise InputError(f"{name} must hold fitted calibrators.")
            setattr(calibrator, name, value)
            continue
        given = np.asarray(value)
        if given.dtype.kind not in "iuf":
            raise InputError(f"{name} must hold numbers.")
        array = given.astype(np.float64)
        if array.ndim != len(shape) or not np.isfinite(array).all():
            raise InputError(f"{name} must hold finite numbers in {len(shape)} dimensions.")
        for size, symbol in zip(array.shape, shape, strict=True):
            wanted = sizes.setdefault(symbol, size) if isinstance(symbol, str) else symbol
            if size != wanted:
                raise InputError(f"{name} must have shape {shape}; got {array.shape}.")
        setattr(calibrator, name, array if shape else float(array))
