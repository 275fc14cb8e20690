"""The results behind a panel: one of our places, and the published ones it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from calibrant._core.arrays import Float64, Int
from calibrant._core.checks import InputError
from calibrant.papers._results import Results
from calibrant.papers._scales import Place
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    import pyarrow as pa

    from calibrant.study import Run

Read = TypeVar("Read")
TEST, CALIBRATION = "test", "calibration"


@dataclass(frozen=True)
class PlaceRuns:
    """Finished runs of one place; everything is empty where nothing is finished.

    Attributes
    ----------
    results
        None if there are none at all.
    ours
        None if nothing stands for the published places at this scale.
    published
        What ours stands for.
    kinds
        The questions of the paper whose runs belong here.
    """

    results: Results | None
    ours: Place | None
    published: tuple[Place, ...]
    kinds: tuple[str, ...] = ("main",)

    @property
    def title(self) -> str:
        """Our place, and in brackets what it stands for."""
        stands_for = "; ".join(map(str, self.published))
        if self.ours is None or self.published == (self.ours,):
            return stands_for
        return f"{self.ours} (for {stands_for})"

    def runs(self, method: str = "") -> list[Run]:
        """Finished runs of a method (all methods if it is empty), in the order of their seeds."""
        if self.results is None or self.ours is None:
            return []
        found: dict[str, Run] = {}
        for kind in self.kinds:
            for run in self.results.runs(kind, place=self.ours, method=method):
                found.setdefault(run.key, run)
        return sorted(found.values(), key=lambda run: run.seed)

    def value(self, run: Run, metric: str, calibrator: str = "none") -> float | None:
        """A value of a run on the test set, in the paper's names; None if it was not measured."""
        return self.on(run, metric, calibrator, TEST)

    def on(self, run: Run, metric: str, calibrator: str, part: str) -> float | None:
        """A value of a run on the test set or a shift of it."""
        return None if self.results is None else self.results.value(run, metric, calibrator, part)

    def values(self, method: str, metric: str, calibrator: str = "none") -> list[float]:
        """A value of each seed."""
        found = (self.value(run, metric, calibrator) for run in self.runs(method))
        return [value for value in found if value is not None]

    def epochs(self, runs: Iterable[Run], columns: Sequence[str]) -> list[pa.Table]:
        """Records of epochs, of the runs that kept these columns."""
        found = (self._kept(Results.epochs, run) for run in runs)
        return [t for t in found if t is not None and set(columns) <= set(t.column_names)]

    def predictions(self, method: str, *parts: str) -> list[tuple[Predictions, ...]]:
        """Predictions on the parts, of each seed that kept them all."""
        found = []
        for run in self.runs(method):
            some = (self._kept(partial(Results.predictions, part=part), run) for part in parts)
            kept = tuple(p for p in some if p is not None)
            if len(kept) == len(parts):
                found.append(kept)
        return found

    def learned(self, method: str) -> tuple[Float64, Int] | None:
        """Largest logits and learned epochs of the first seed that kept them."""
        found = (self._kept(Results.learned, run) for run in self.runs(method))
        return next((pair for pair in found if pair is not None), None)

    def _kept(self, read: Callable[[Results, Run], Read], run: Run) -> Read | None:
        """What a run kept; None if it did not: results may travel without the bulky rest."""
        if self.results is None:
            return None
        try:
            return read(self.results, run)
        except (OSError, InputError):
            return None


def panels(
    results: Results | None, published: Sequence[Place], kinds: tuple[str, ...] = ("main",)
) -> list[PlaceRuns]:
    """A panel for each of our places that stand for the published ones, each once."""
    groups: dict[tuple[Place | None, Place | None], list[Place]] = {}
    for place in published:
        ours = None if results is None else _standing(results, place, kinds)
        # What nothing stands for has a panel of its own.
        groups.setdefault((ours, None if ours else place), []).append(place)
    return [PlaceRuns(results, ours, tuple(group), kinds) for (ours, _), group in groups.items()]


def _standing(results: Results, published: Place, kinds: tuple[str, ...]) -> Place | None:
    """Which of our places stands for a published one: the first with runs for every question."""
    places = results.at.settings.get(published, ())
    asked = [{(run.data, run.model) for run in results.at.runs(kind)} for kind in kinds]
    whole = (p for p in places if all((p.data, p.model) in some for some in asked))
    return next(whole, places[0] if places else None)


def only_panel(
    results: Results | None, published: Place, kinds: tuple[str, ...] = ("main",)
) -> PlaceRuns:
    """The panel of a question that the paper asks at one place.

    Where the scale asks it at another place than the one that stands for the published place, it is
    that other one.
    """
    (panel,) = panels(results, [published], kinds)
    if results is None:
        return panel
    asked = [Place(run.data, run.model) for kind in kinds for run in results.at.runs(kind)]
    if not asked or panel.ours in asked:
        return panel
    return PlaceRuns(results, asked[0], panel.published, kinds)
