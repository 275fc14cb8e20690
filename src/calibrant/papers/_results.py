"""What has been measured for a paper at a scale: values by seed, records of epochs, predictions."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibrant._core.checks import InputError, refuse
from calibrant.io import check_columns, read_array, read_parquet
from calibrant.papers._scales import CALIBRATORS, METRICS, SCALES, PaperAt, Place, paper_at
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

    def runs(
        self, kind: str = "main", *, place: Place | None = None, method: str = ""
    ) -> list[Run]:
        """Finished runs for a question, in the order of their seeds."""
        return sorted(
            (
                run
                for run in self.at.runs(kind)
                if run.key in self._done
                and (place is None or (run.data, run.model) == (place.data, place.model))
                and (not method or run.name == method)
            ),
            key=lambda run: run.seed,
        )

    def value(
        self, run: Run, metric: str, calibrator: str = "none", part: str = "test"
    ) -> float | None:
        """A value of a run, in the names of the paper; None if it was not measured.

        ``metric`` and ``calibrator`` are the names in the published tables. "temperature" is the
        fitted one, "error" is 1 - accuracy.
        """
        label = CALIBRATORS[self.at.paper].get(calibrator, calibrator)
        if metric == "temperature":
            return self._values.get((run.key, "calibration", label, metric))
        if metric == "error":
            accuracy = self._values.get((run.key, part, label, "accuracy"))
            return None if accuracy is None else 1 - accuracy
        name = METRICS.get(self.at.paper, {}).get(metric, metric)
        return self._values.get((run.key, part, label, name))

    def by_seed(
        self, place: Place, method: str, metric: str, calibrator: str = "none", kind: str = "main"
    ) -> dict[int, float]:
        """Values of a method by seed."""
        found = {}
        for run in self.runs(kind, place=place, method=method):
            value = self.value(run, metric, calibrator, place.part)
            if value is not None:
                found[run.seed] = value
        return found

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


def scale_of(out: str | Path) -> str:
    """The scale with the most finished runs in a folder."""
    done = {path.stem for path in (Path(out) / "results").glob("*.parquet")}
    found = {scale: len(done & _keys(scale)) for scale in SCALES}
    best = max(found, key=lambda scale: found[scale])
    if not found[best]:
        rule = "must hold finished runs of the papers"
        raise refuse("--results", rule, f"got {out}", "Run calibrant papers run … --out first.")
    return best


@lru_cache
def _keys(scale: str) -> set[str]:
    papers = [paper_at(paper, scale) for paper in CALIBRATORS]
    return {run.key for at in papers for kind in at.studies for run in at.runs(kind)}


@lru_cache(maxsize=64)
def _load(path: Path) -> Predictions:
    return Predictions.load(path)
