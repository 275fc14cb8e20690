"""Groups of options that several commands share; a command receives each as one dictionary."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from calibrant.cli._common import (
    BinningChoice,
    BinningOption,
    Bins,
    Level,
    Metrics,
    Norm,
    Replicates,
    Seed,
    metric_names,
)

Values = dict[str, Any]


@dataclass(frozen=True)
class OptionGroup:
    """A decorator that replaces a parameter of a command by options.

    ``options`` gives annotation and default of each by name. ``gather`` turns their values into
    the dictionary that the command receives.
    """

    parameter: str
    options: Mapping[str, tuple[Any, Any]]
    gather: Callable[[Values], Values] = dict

    def __call__(self, command: Callable[..., None]) -> Callable[..., None]:
        """Give the command the options."""

        @wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> None:
            given = {name: kwargs.pop(name) for name in self.options}
            command(*args, **{self.parameter: self.gather(given)}, **kwargs)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            parameters += self._parameters() if name == self.parameter else [parameter]
        replaced = signature.replace(parameters=parameters)
        wrapped.__signature__ = replaced  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapped

    def _parameters(self) -> list[inspect.Parameter]:
        kind = inspect.Parameter.KEYWORD_ONLY
        return [
            inspect.Parameter(name, kind, default=default, annotation=annotation)
            for name, (annotation, default) in self.options.items()
        ]


def _metric_options(given: Values) -> Values:
    names, binning = metric_names(given["metrics"]), given["binning"].value
    return {**given, "metrics": names, "binning": binning}


with_metrics = OptionGroup(
    "chosen",
    {
        "metrics": (Metrics, None),
        "bins": (Bins, 15),
        "norm": (Norm, 1),
        "binning": (BinningOption, BinningChoice.width),
    },
    _metric_options,
)
with_resampling = OptionGroup(
    "resampling",
    {"level": (Level, 0.95), "replicates": (Replicates, 1000), "seed": (Seed, 0)},
)
