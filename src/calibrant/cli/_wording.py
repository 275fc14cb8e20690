"""Messages of the library in the words of the command line: ``bins=15`` becomes ``--bins 15``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, get_args

from typer.models import OptionInfo

QUOTES = "'\" "
# Strings of users, which stay as they are, and arguments with a value, which follow a space.
_QUOTED = r"""'[^']*'|"[^"]*\""""
_VALUE = rf"(?P<value>\[[^\]]*\]|{_QUOTED}|…|[^\s,;)]*[^\s,;).])"
_ARGUMENT = re.compile(rf"(?<!\w)(?:{_QUOTED})(?!\w)|(?<=[\s(])(?P<name>[a-z_]+)={_VALUE}")


def in_options(text: str, options: Mapping[str, str], given: frozenset[str] = frozenset()) -> str:
    """The text with arguments as options: with a value, or as first word if ``given`` or missing.

    >>> known = {"bins": "--bins", "classes": "--classes", "strict": "--strict"}
    >>> in_options("bins must be at least 1; got 0. Try bins=15.", known, frozenset({"bins"}))
    '--bins must be at least 1; got 0. Try --bins 15.'
    >>> in_options("Pass classes=['cat', 'dog'] and strict=True, or norm=2.", known)
    'Pass --classes cat,dog and --strict, or norm=2.'
    >>> in_options("got 'bins=3'. Leave it out.", known)
    "got 'bins=3'. Leave it out."
    >>> in_options("No file is data/bins=3/x.csv or bins=3/x.csv.", known)
    'No file is data/bins=3/x.csv or bins=3/x.csv.'
    """
    first, _, rest = text.partition(" ")
    if first in given or (first in options and rest.startswith("must be given")):
        text = f"{options[first]} {rest}"
    return _ARGUMENT.sub(lambda found: _replaced(found, options), text)


def _replaced(found: re.Match[str], options: Mapping[str, str]) -> str:
    option = options.get(found["name"])
    if option is None or "/" in found["value"]:  # a part of a path
        return found[0]
    return _typed(option, found["value"])


def _typed(option: str, value: str) -> str:
    """An option with its value as one types it in a shell: a flag, a word, a list with commas."""
    if value in ("True", "False"):
        return option if value == "True" else option.replace("--", "--no-", 1)
    if value.startswith("["):
        return f"{option} {','.join(part.strip(QUOTES) for part in value[1:-1].split(','))}"
    plain = value.strip(QUOTES)
    return f"{option} {plain if plain.replace('.', '').isidentifier() else value}"


def options_of(command: Callable[..., None]) -> dict[str, str]:
    """The options of a command by the names of their parameters."""
    parameters = signature(command, eval_str=True).parameters.values()
    return {p.name: name for p in parameters if (name := _option_name(p)) is not None}


def _option_name(parameter: Parameter) -> str | None:
    found = next((x for x in get_args(parameter.annotation) if isinstance(x, OptionInfo)), None)
    if found is None:
        return None
    named = [str(found.default), *(found.param_decls or ())]  # Typer puts the first name there
    usual = f"--{parameter.name.replace('_', '-')}"
    return next((name for name in named if name.startswith("--")), usual)


def spoken_by(command: Callable[..., None], values: Mapping[str, Any], text: str) -> str:
    """The text in the options of a command; ``values`` are those it was called with."""
    options, usual = options_of(command), signature(command).parameters
    given = {name for name in options if name in values and values[name] != usual[name].default}
    return in_options(text, options, frozenset(given))
