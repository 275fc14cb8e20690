"""Costly functions that tests call again and again with the same arguments, computed once."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from calibrant import Predictions
from calibrant.calibrators import _selection
from calibrant.cli import _calibration
from calibrant.report import _advice


def _key(argument: Any) -> Any:
    """The key of an argument: of predictions the data alone, without what was derived from them."""
    data = ("kind", "scores", "labels", "belonging")
    return [getattr(argument, n) for n in data] if isinstance(argument, Predictions) else argument


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that computes the same result only once."""
    known: dict[bytes, bytes] = {}

    def found(*arguments: Any, progress: Any = None, **options: Any) -> Any:
        key = pickle.dumps((list(map(_key, arguments)), options))
        if key not in known:
            more = {} if progress is None else {"progress": progress}
            known[key] = pickle.dumps(function(*arguments, **options, **more))
        return pickle.loads(known[key])

    return found


@pytest.fixture(scope="module", autouse=True)
def _one_selection_per_file() -> Iterator[None]:
    """Most tests of a file calibrate the same data: selection and cross-fitting are done once.

    A file that imports this fixture has it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_selection, "select_calibrator", once(_selection.select_calibrator))
        cross_fit = once(_advice.out_of_fold)
        for module in (_advice, _calibration):
            patch.setattr(module, "out_of_fold", cross_fit)
        yield


@contextmanager
def choosing_among_few() -> Iterator[None]:
    """Reports choose between two temperatures: for what does not hang on the choice.

    Fitting all candidates takes most of the time of a small report.
    """
    few = partial(_selection.select_calibrator, candidates=["temperature", "ensemble_temperature"])

    def automatic(p: Predictions, **options: Any) -> Any:
        return few(p, folds=_advice.usual_folds(p), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_advice, "automatic", automatic)
        yield


@pytest.fixture
def all_candidates() -> None:
    """For tests of the choice itself in a file that otherwise has ``few_candidates``."""


@pytest.fixture
def few_candidates(request: pytest.FixtureRequest) -> Iterator[None]:
    """``choosing_among_few`` in a test, or in all tests of a file."""
    if "all_candidates" in request.fixturenames:
        yield
        return
    with choosing_among_few():
        yield
