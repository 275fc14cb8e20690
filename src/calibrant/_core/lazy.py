"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def first_used(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    ``modules`` has, separated by spaces, the names that each module of the package defines; one
    that stands for itself alone has none. To measure a small file takes less time than to load
    what other uses need.
    """
    where = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in where:
            found = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        elif name in modules:
            found = importlib.import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, found)
        return found

    return find
