"""A study as a file: data × networks × objectives × seeds, expanded to frozen, hashed runs."""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from calibrant._core.checks import InputError, check_count, near_name, refuse
from calibrant._core.files import read_text
from calibrant.calibrators import CALIBRATORS, UNCALIBRATED
from calibrant.metrics import default_metrics, get_metric
from calibrant.predictions import Predictions
from calibrant.study._records import (
    FROM_FEATURES,
    Evaluation,
    Run,
    fingerprint,
    sources_of,
    without_name,
)
from calibrant.study._validate import check_data, check_shifts, check_training, filled, placeholders

# Study files of hundreds of lines have a tenth of this; chains rarely have three files.
MOST_BYTES, MOST_FILES, MOST_RUNS = 1 << 18, 20, 100_000
# The time of Python's TOML reader grows quadratically with the parts of a dotted key.
MOST_DOTS = 500


@dataclass(frozen=True)
class Study:
    """A validated study file; ``runs`` are its training runs.

    Examples
    --------
    >>> study = Study.parse({"data": "signals", "models": "cnn1d", "seeds": 2,
    ...                      "objectives": [{"objective": "focal:gamma={g}", "g": [1, 3]}]})
    >>> [run.objective for run in study.runs]
    ['focal:gamma=1', 'focal:gamma=1', 'focal:gamma=3', 'focal:gamma=3']
    """

    name: str
    runs: tuple[Run, ...]
    evaluation: Evaluation
    tune: Mapping[str, Any] | list[Mapping[str, Any]] | None = None

    @cached_property
    def labels(self) -> dict[str, str]:
        """What tables call the objective of each run, by key."""
        return {run.key: run.name for run in self.runs}

    @property
    def tunings(self) -> list[Any]:
        """The tables of coefficients to tune, one per objective; [None] if there is none."""
        return list(self.tune) if isinstance(self.tune, list) and self.tune else [self.tune]

    @classmethod
    def load(cls, path: str | Path, *, training: bool = True) -> Study:
        """Read a TOML file, or the built-in study of that name ("quick").

        A file can extend another one in its folder, ``extends = "other.toml"``; its own settings
        replace those of the base. ``training`` as in ``parse``.
        """
        path = Path(path)
        built_in = Path(__file__).with_name(f"{path.name}.toml")
        if not path.suffix and built_in.exists():
            path = built_in
        try:
            return cls.parse({"name": path.stem, **_read(path)}, training=training)
        except InputError:
            raise
        except (ValueError, OverflowError, RecursionError) as error:
            # Numbers of thousands of digits, and lists in lists, that no setting expects.
            raise InputError(f"{path.name} contains an invalid value: {error}") from error

    @classmethod
    def parse(cls, config: Mapping[str, Any], *, training: bool = True) -> Study:
        """Validate a mapping and expand it to runs.

        Every name in it must exist, except data files, which may be on another machine. Checking
        objectives, networks, recipes and precision needs PyTorch, which takes seconds to load: with
        ``training=False``, or without PyTorch, they are not checked.
        """
        known = (
            "name",
            "data",
            "models",
            "objectives",
            "recipe",
            "seeds",
            "calibration",
            "train_size",
            "precision",
            "telemetry",
            "telemetry_samples",
            "stop",
            "calibrators",
            "shifts",
            "metrics",
            "tune",
        )
        for key in config:
            if key not in known:
                raise refuse("study", f"has no setting {key!r}", None, near_name(key, known))
        defaults = {
            "calibrators": [UNCALIBRATED, "temperature"],
            "metrics": default_metrics("panel"),
        }
        config = {**defaults, **config}
        for needed in ("data", "models", "objectives", *defaults):
            if not config.get(needed):
                rule = f"must have the setting {needed}"
                raise refuse("study", rule, "got none", f'Write for example {needed} = ["…"].')
        runs = _runs(config)
        evaluation = Evaluation(
            _calibrators(config["calibrators"]),
            _metrics(config["metrics"]),
            _shifts(config.get("shifts", ())),
        )
        check_data(runs)
        check_shifts(evaluation.shifts, runs)
        if training:
            check_training(runs)
        _check_labels(runs)
        _check_held_out(runs, evaluation)
        return cls(config.get("name", "study"), tuple(runs), evaluation, config.get("tune"))


def _read(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Settings of a file, and of those that it extends."""
    text = read_text(path, most=MOST_BYTES)
    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        rule = f"must have at most {MOST_DOTS} dots in a line"
        raise refuse(path.name, rule, "got more", "Split that line.")
    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} cannot be read as TOML: {error}. Fix that line.") from error
    json.dumps(config, default=_refuse_date)
    base = config.pop("extends", None)
    if base is None:
        return config
    plain = isinstance(base, str) and base == Path(base).name and base not in ("", "..")
    other = path.with_name(base) if plain else path
    if other in (path, *above) or not other.is_file() or len(above) >= MOST_FILES:
        rule = "must be another file in the same folder, without cycles"
        raise refuse("extends", rule, f"got {base!r}", "Try the name of a file, 'base.toml'.")
    return {**_read(other, (path, *above)), **config}


def _refuse_date(value: Any) -> NoReturn:
    """TOML has dates and times, which no setting takes."""
    rule = "must hold strings, numbers, true, false, lists and tables"
    raise refuse("study", rule, f"got the {type(value).__name__} {value}", 'Write it as "…".')


def _runs(config: Mapping[str, Any]) -> list[Run]:
    """Every combination of data, network, objective and seed."""
    names = ("calibration", "train_size", "precision", "telemetry", "telemetry_samples")
    shared = {name: config[name] for name in names if name in config}
    if config.get("stop") is not None:
        shared["stop"] = _stop(config["stop"])
    if not isinstance(shared.get("telemetry", False), bool):
        rule, got = "must be true or false", f"got {shared['telemetry']!r}"
        raise refuse("telemetry", rule, got, "Try telemetry = true.")
    recipe = _recipe(config.get("recipe", {}))
    lists: tuple[list[Any], ...] = (
        _tables("data", config["data"]),
        _tables("models", config["models"]),
        _objectives(config["objectives"], _seeds(config.get("seeds", 1))),
    )
    _check_runs(math.prod(len(values) for values in lists))
    return [
        Run(
            **{
                **shared,
                "data": data["name"],
                "data_options": without_name(data),
                "model": model["name"],
                "model_options": without_name(model),
                "fingerprint": fingerprint(data["name"]),
                "sources": sources_of(data["name"], model["name"], method["objective"]),
                **method,
                "recipe": {"name": "quick", **recipe, **method.get("recipe", {})},
            }
        )
        for data, model, method in itertools.product(*lists)
    ]


def _check_runs(count: int) -> None:
    """Reject an implausible number of runs before expanding them."""
    if count > MOST_RUNS:
        rule = f"must have at most {MOST_RUNS:,} runs"
        raise refuse("study", rule, f"got {count:,}", "Split it into several studies.")


def _recipe(value: Any) -> dict[str, Any]:
    """Name and changes of a recipe."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("name", ""), str):
        rule, advice = "must be a name or a table", 'Try {name = "cifar", epochs = 20}.'
        raise refuse("recipe", rule, f"got {value!r}", advice)
    return dict(value)


def _stop(value: Any) -> dict[str, Any]:
    """Criterion and patience of early stopping; a name alone is the criterion."""
    table = {"by": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not table.keys() <= {"by", "patience"}:
        rule, advice = "must be a criterion or a table", 'Try {by = "accuracy", patience = 10}.'
        raise refuse("stop", rule, f"got {value!r}", advice)
    return dict(table)


def _tables(setting: str, values: Any) -> list[dict[str, Any]]:
    """Names, or tables with a name and options."""
    listed = values if isinstance(values, list | tuple) else [values]
    found = [dict(value) if isinstance(value, Mapping) else {"name": value} for value in listed]
    for value in found:
        if not isinstance(value.get("name"), str):
            rule = "must hold names, or tables with a name"
            raise refuse(setting, rule, f"got {value!r}", 'Try {name = "…"}.')
    return found


def _label(setting: str, value: Any) -> str:
    if not isinstance(value, str):
        rule, advice = "must have strings as labels", 'Write label = "…".'
        raise refuse(setting, rule, f"got {value!r}", advice)
    return value


def _shifts(values: Any) -> tuple[str, ...]:
    """Names of shifted test sets; a single name needs no list."""
    listed = [values] if isinstance(values, str) else values
    if not isinstance(listed, list | tuple) or not all(isinstance(v, str) for v in listed):
        rule, advice = "must be a list of names", 'Try shifts = ["generated/fog/3"].'
        raise refuse("shifts", rule, f"got {values!r}", advice)
    return tuple(listed)


def _seeds(value: Any) -> list[int]:
    if not isinstance(value, list | tuple):
        return list(range(check_count("seeds", value, least=1, most=100_000, example=3)))
    return [check_count("seeds", seed, least=0, most=2**62, example=3) for seed in value]


def _objectives(values: Any, seeds: list[int]) -> list[dict[str, Any]]:
    """What a method changes in a run: objective, label, recipe, train_size, seed.

    Lists of coefficients and of training sizes expand to a grid; ``seeds`` are those of methods
    that name none.
    """
    listed = values if isinstance(values, list | tuple) else [values]
    found: list[dict[str, Any]] = []
    for value in listed:
        spec = dict(value) if isinstance(value, Mapping) else {"objective": value}
        text, label = spec.pop("objective", None), _label("objectives", spec.pop("label", ""))
        if not isinstance(text, str):
            rule = "must be strings such as 'focal:gamma=3', or tables with an objective"
            raise refuse("objectives", rule, f"got {value!r}", 'Try {objective = "…"}.')
        fixed = {"recipe": _recipe(spec.pop("recipe"))} if "recipe" in spec else {}
        own = _seeds(spec.pop("seeds")) if "seeds" in spec else seeds
        fields = placeholders("objectives", text)
        for name in {*fields, *spec} - {"train_size"}:
            if name not in fields or name not in spec:
                rule = f"must have a list for each {{coefficient}}, here {name!r}"
                raise refuse("objectives", rule, f"got {value!r}", "Try gamma = [1, 3].")
        lists = {name: v if isinstance(v, list) else [v] for name, v in spec.items()}
        _check_runs(len(found) + math.prod(map(len, lists.values())) * len(own))
        for chosen in itertools.product(*lists.values()):
            given = dict(zip(lists, chosen, strict=True))
            sizes = {name: given[name] for name in ("train_size",) if name in given}
            names = {
                "objective": filled("objectives", text, given),
                "label": filled("label", label, given),
            }
            found += [{**names, **fixed, **sizes, "seed": seed} for seed in own]
    return found


def _metrics(values: Any) -> dict[str, Mapping[str, Any]]:
    """Metrics by label; each is tried, so that an invalid option raises early."""
    found: dict[str, Mapping[str, Any]] = {}
    one = Predictions(logits=[[1.0, 0.0]] * 2, labels=[0, 1])
    for value in _tables("metrics", values):
        label = _label("metrics", value.pop("label", value["name"]))
        if label in found:
            rule = "must have different labels"
            raise refuse("metrics", rule, f"got {label!r} twice", 'Add label = "…".')
        found[label] = {**value, "name": get_metric(value["name"]).name}
        if len(value) == 1:  # a name alone; trying it out would load SciPy
            continue
        try:
            Evaluation({}, {label: found[label]}, ()).values(one)
        except TypeError as error:
            advice = "See its options in the reference."
            raise refuse(f"metrics {label}", "must fit", f"got {error}", advice) from None
    return found


def _calibrators(values: Any) -> dict[str, Mapping[str, Any]]:
    """Calibrators by label; each is tried, so that an invalid option raises early."""
    found: dict[str, Mapping[str, Any]] = {}
    for value in _tables("calibrators", values):
        label = _label("calibrators", value.pop("label", value["name"]))
        name = value["name"]
        known = [UNCALIBRATED, *CALIBRATORS, *FROM_FEATURES]
        if name not in known:
            rule, advice = "must name known calibrators", near_name(name, known)
            raise refuse("calibrators", rule, f"got {name!r}", advice)
        if label in found:
            rule = "must have different labels"
            raise refuse("calibrators", rule, f"got {label!r} twice", 'Add label = "…".')
        if name == UNCALIBRATED and len(value) > 1:
            raise refuse("calibrators none", "must have no options", f"got {value}", "Drop them.")
        found[label] = value
        try:
            made = Evaluation(found, {}, ()).make(label)
            if made is not None:
                made.check()  # a constructor only stores
        except TypeError as error:
            advice = "See its options in the reference."
            raise refuse(f"calibrators {label}", "must fit", f"got {error}", advice) from None
        except InputError as error:
            raise InputError(f"In the calibrator {label!r}, {error}") from None
    return found


def _check_held_out(runs: Sequence[Run], evaluation: Evaluation) -> None:
    """Reject what needs calibration samples where none are held out."""
    if all(run.calibration for run in runs):
        return
    if any(run.stop is not None for run in runs):
        rule, advice = "needs calibration samples", "Hold out some: calibration = 0.1."
        raise refuse("stop", rule, "got calibration = 0", advice)
    for label in evaluation.calibrators:
        if evaluation.needs_samples(label):
            rule, advice = "must be above 0 for what is fitted", 'Try calibrators = ["none"].'
            raise refuse("calibration", rule, f"got 0 and the calibrator {label!r}", advice)


def _check_labels(runs: Sequence[Run]) -> None:
    """Reject runs that tables could not distinguish: a cell is one setting over seeds."""
    seen: dict[tuple[str, str, str, int], Run] = {}
    for run in runs:
        other = seen.setdefault((run.data, run.model, run.name, run.seed), run)
        if other.key == run.key:
            continue
        options = ("data_options", "model_options")
        if all(getattr(other, name) == getattr(run, name) for name in options):
            rule, advice = "must have different labels", 'Give each its own: label = "…".'
            raise refuse("objectives", rule, f"got {run.name!r} twice", advice)
        setting = "data" if other.data_options != run.data_options else "models"
        rule = "must not repeat a name with other options"
        raise refuse(
            setting,
            rule,
            f"got {getattr(run, setting.rstrip('s'))!r}",
            "Use two studies, in two folders.",
        )
