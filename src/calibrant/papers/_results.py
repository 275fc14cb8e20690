"""What has been measured for a paper at a scale: values by seed, records of epochs, predictions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._core.checks import InputError
from calibrant.io import check_columns, read_array, read_parquet
from calibrant.papers._coefficients import stands_for_itself
from calibrant.papers._scales import CALIBRATOR_LABELS, METRIC_NAMES, PaperAt, Place, paper_at
from calibrant.predictions import Predictions
from calibrant.results import Store, read_all
from calibrant.study import Run
from calibrant.study._execute import file_name


class Results:
    """The finished runs of a paper at a scale in a folder.

    Parameters
    ----------
    at
        From ``paper_at``.
    out
        Folder that ``calibrant papers run`` wrote.
    """

    def __init__(self, at: PaperAt, out: str | Path) -> None:
        self.at, self.out, self.store = at, Path(out), Store(out)

    @cached_property
    def _values(self) -> dict[tuple[str, str, str, str], float]:
        """Value by run, part, calibrator and metric."""
        keys = {run.key for kind in self.at.studies for run in self.at.runs(kind)}
        try:
            rows = read_all(self.out, keys=keys)
        except InputError:  # nothing is finished yet
            return {}
        names = ("run", "part", "calibrator", "metric")
        places = zip(*(rows[name].to_pylist() for name in names), strict=True)
        return dict(zip(places, rows["value"].to_pylist(), strict=True))

    @cached_property
    def _done(self) -> set[str]:
        return {key for key, *_ in self._values}

    @property
    def source(self) -> str:
        """Where the values come from, in words."""
        return f"the runs at the scale {self.at.scale}"

    def finished(self, run: Run) -> Run | None:
        """The finished run that a study file asks for."""
        return run if run.key in self._done else None

    def runs(
        self, kind: str = "main", *, place: Place | None = None, method: str = ""
    ) -> list[Run]:
        """Finished runs for a question, in the order of their seeds.

        A run with another coefficient than the paper fixes for its method does not count.
        """
        return [
            run
            for run in self._finished_runs(kind)
            if (place is None or (run.data, run.model) == (place.data, place.model))
            and (not method or run.name == method)
        ]

    def _finished_runs(self, kind: str) -> list[Run]:
        """All finished runs for a question; found once, because claims ask thousands of times."""
        if kind not in self._found:
            asked = (run for run in self.at.runs(kind) if stands_for_itself(self.at.paper, run))
            found = (self.finished(run) for run in asked)
            done = (run for run in found if run is not None)
            self._found[kind] = sorted(done, key=lambda run: run.seed)
        return self._found[kind]

    @cached_property
    def _found(self) -> dict[str, list[Run]]:
        return {}

    def value(
        self, run: Run, metric: str, calibrator: str = "none", part: str = "test"
    ) -> float | None:
        """A value of a run, in the names of the paper; None if it was not measured.

        ``metric`` and ``calibrator`` are the names in the published tables. "temperature" is the
        fitted one, "error" is 1 - accuracy.
        """
        return self.values([run], metric, calibrator, part).get(run.seed)

    def values(
        self, runs: Iterable[Run], metric: str, calibrator: str = "none", part: str = "test"
    ) -> dict[int, float]:
        """The values of runs by seed, of those where it was measured; see :meth:`value`."""
        label = CALIBRATOR_LABELS[self.at.paper].get(calibrator, calibrator)
        part = "calibration" if metric == "temperature" else part
        name = METRIC_NAMES.get(self.at.paper, {}).get(metric, metric)
        name = "accuracy" if metric == "error" else name
        held = ((run.seed, self._values.get((run.key, part, label, name))) for run in runs)
        found = {seed: value for seed, value in held if value is not None}
        return {seed: 1 - value for seed, value in found.items()} if metric == "error" else found

    def by_seed(
        self, place: Place, method: str, metric: str, calibrator: str = "none", kind: str = "main"
    ) -> dict[int, float]:
        """Values of a method by seed."""
        runs = self.runs(kind, place=place, method=method)
        return self.values(runs, metric, calibrator, place.part)

    def epochs(self, run: Run) -> pa.Table:
        """The record of the epochs of a run."""
        return read_parquet(self.store.run_folder(run.key) / "epochs.parquet", check_columns)

    def learned(self, run: Run) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Largest logit of each training sample, and the epoch from which it stayed right."""
        folder = self.store.run_folder(run.key)
        logits, epochs = (read_array(folder / f"{name}.npy") for name in ("max_logit", "learned"))
        return logits, epochs

    def predictions(self, run: Run, part: str = "test") -> Predictions:
        """Kept predictions of a run on "test", "calibration" or a shift."""
        return _load(self.store.run_folder(run.key) / file_name(part))


@lru_cache
def keys_of(scale: str) -> set[str]:
    """The keys of all runs of a scale."""
    papers = [paper_at(paper, scale) for paper in CALIBRATOR_LABELS]
    return {run.key for at in papers for kind in at.studies for run in at.runs(kind)}


@lru_cache(maxsize=64)
def _load(path: Path) -> Predictions:
    return Predictions.load(path)
