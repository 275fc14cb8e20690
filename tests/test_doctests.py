"""The examples in docstrings run: one test for all of them, so that only one process loads them."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
from pathlib import Path

import calibrant
from tests import lowest


def modules() -> list[str]:
    """Every module of the package but the compiled one and those that only start a command."""
    found = pkgutil.walk_packages(calibrant.__path__, "calibrant.")
    names = (info.name for info in found if not info.name.endswith(("__main__", "._rows")))
    return ["calibrant", *names]


def test_examples_in_docstrings() -> None:
    names = modules()
    files = Path(calibrant.__file__).parent.rglob("*.py")
    assert len(names) == len([path for path in files if path.name != "__main__.py"])
    said, runner = io.StringIO(), doctest.DocTestRunner(verbose=False)
    for module in (lowest, *map(importlib.import_module, names)):
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=said.write)
    assert runner.tries > 300  # a finder that finds nothing would also see no failure
    assert runner.failures == 0, said.getvalue()
