"""Objects of the user's own code, named by import path: ``package.module:name``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from contextlib import suppress
from pathlib import Path
from typing import Any

from calibrant._core.checks import InputError, refuse


def is_import_path(text: str) -> bool:
    """Whether a string has the form ``package.module:name``.

    >>> is_import_path("my_package.nets:make"), is_import_path("focal:gamma=3")
    (True, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def import_object(path: str, argument: str) -> Any:
    """Import the object that ``path`` names; ``argument`` is where the path came from.

    >>> import_object("math:pi", "backbone")
    3.141592653589793
    """
    if not is_import_path(path):
        rule, advice = "must be an import path", "Write it as package.module:name."
        raise refuse(argument, rule, f"got {path!r}", advice)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise InputError(f"{argument}: the module {module} has no {name!r}.") from error
    except ImportError as error:
        raise InputError(
            f"{argument}: {module} cannot be imported ({error}). Install the package, or add its "
            "folder to PYTHONPATH."
        ) from error


def import_path_of(thing: Any) -> str | None:
    """The import path of a function or class; None if importing that would give another one.

    >>> import_path_of(Path)
    'pathlib:Path'
    >>> import_path_of(lambda: 0) is None
    True
    """
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    path = f"{module}:{name}"
    if not is_import_path(path):
        return None
    with suppress(InputError):
        return path if import_object(path, "") is thing else None
    return None


def source_hash(path: str) -> str:
    """Hash of the source file that an import path names; "" if it is not on this machine.

    It covers the module itself; what that imports in turn does not count.
    """
    module = path.partition(":")[0]
    with suppress(ImportError, ValueError, AttributeError):
        found = importlib.util.find_spec(module)
        if found is not None and found.origin and Path(found.origin).is_file():
            return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()[:16]
    return ""
