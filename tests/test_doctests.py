"""The examples in docstrings run; adapters apart, because their libraries load slowly."""

from __future__ import annotations

import doctest
import importlib
import io
import pkgutil
from pathlib import Path

import pytest

import calibrant
from tests import lowest
from tests.once import few_candidates  # noqa: F401

# They load Lightning, Transformers, Ray and TorchMetrics.
ADAPTERS = (
    "calibrant.huggingface",
    "calibrant.lightning",
    "calibrant.ray_data",
    "calibrant.torchmetrics",
)


def modules() -> list[str]:
    """Every module of the package but the compiled one and those that only start a command."""
    found = pkgutil.walk_packages(calibrant.__path__, "calibrant.")
    names = (info.name for info in found if not info.name.endswith(("__main__", "._rows")))
    return ["calibrant", *names]


def run(names: list[str]) -> int:
    """Run the examples of some modules; gives their number."""
    said, runner = io.StringIO(), doctest.DocTestRunner(verbose=False)
    for module in map(importlib.import_module, names):
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=said.write)
    assert runner.failures == 0, said.getvalue()
    return runner.tries


@pytest.mark.usefixtures("few_candidates")
def test_examples_in_docstrings() -> None:
    names = modules()
    files = Path(calibrant.__file__).parent.rglob("*.py")
    assert len(names) == len([path for path in files if path.name != "__main__.py"])
    tries = run([lowest.__name__, *(name for name in names if name not in ADAPTERS)])
    assert tries > 300  # a finder that finds nothing would also see no failure


@pytest.mark.slow
def test_examples_in_docstrings_of_adapters() -> None:
    assert set(ADAPTERS) < set(modules())
    assert run(list(ADAPTERS)) >= 4
