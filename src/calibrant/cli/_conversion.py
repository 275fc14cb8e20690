"""Values of options and arguments that need no conversion.

Typer converts every value, those not given too, with pydantic, which takes longer to load than
NumPy does.
"""

from __future__ import annotations

import inspect
from enum import Enum
from functools import partial
from typing import Any, get_args

TEXT = (str, str | None, list[str], list[str] | None)


def convert_little(command: Any, context: Any) -> None:
    """Let a Typer command leave values as they are where conversion would not change them."""
    known = (
        inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
    )
    for parameter in command.get_params(context):
        annotation = known[parameter.name].annotation if parameter.name in known else None
        text = next(iter(get_args(annotation)), annotation) in TEXT
        parameter.process_value = partial(_value, parameter, text)


def _value(parameter: Any, text: bool, context: Any, value: Any) -> Any:  # noqa: FBT001 - partial
    many = parameter.multiple or parameter.nargs == -1
    source = context.get_parameter_source(parameter.name)
    if value is None and not parameter.required:
        value = () if many else None
    elif text and value and all(isinstance(one, str) for one in (value if many else [value])):
        pass
    elif not (_is_default(source) and isinstance(value, int | float | Enum)):
        return type(parameter).process_value(parameter, context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


def _is_default(source: Any) -> bool:
    return source is not None and source.name == "DEFAULT"
