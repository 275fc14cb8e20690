"""Which calibrator to recommend for a model, judged on unseen samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import Selection, TemperatureScaling, select_calibrator
from calibrant.calibrators._composite import out_of_fold
from calibrant.calibrators._selection import NONE
from calibrant.inference import Difference, paired_differences
from calibrant.metrics._registry import ACCURACY, CALIBRATION_ERROR, LOG_LOSS, RANKING
from calibrant.predictions import Confidences, Predictions

FOLDS = 5
# Fewer samples than this are not worth a fit.
LEAST_SAMPLES = 50
JUDGED = (CALIBRATION_ERROR, LOG_LOSS, RANKING, ACCURACY)
# Candidates by the most scores (samples × classes) for which they are quick.
QUICK = ("temperature", "ensemble_temperature")
BY_SIZE: tuple[tuple[float, tuple[str, ...] | None], ...] = (
    (300_000, None),  # the default candidates of select_calibrator
    (5_000_000, (*QUICK, "vector", "structured_vector")),
    (float("inf"), QUICK),
)


@dataclass(frozen=True)
class Advice:
    """The chosen calibrator and its out-of-fold effect, or why there is none.

    ``differences`` are calibrated minus uncalibrated, by metric, and ``values`` the values of both.
    """

    selection: Selection | None = None
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)
    reason: str = ""

    @property
    def chosen(self) -> str | None:
        """Name of the calibrator to use; None for none."""
        found = None if self.selection is None else self.selection.chosen
        return None if found == NONE else found

    @property
    def temperature(self) -> float | None:
        """The temperature learned from all samples, if that is what is to be used."""
        calibrator = None if self.selection is None else self.selection.calibrator
        fits = self.chosen == "temperature" and isinstance(calibrator, TemperatureScaling)
        return calibrator.temperature_ if fits else None  # type: ignore[union-attr]


def advise(
    p: Predictions | Confidences,
    *,
    bins: int,
    level: float,
    replicates: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Advice:
    """Choose by cross-validation on these samples, and evaluate the choice out of fold."""
    if not isinstance(p, Predictions):
        return Advice(
            reason="Only confidences were given. Calibrators need the scores of all classes: save "
            "logits or probabilities with the labels."
        )
    if p.num_samples < LEAST_SAMPLES:
        return Advice(
            reason="Collect more samples first: a calibrator fitted to fewer than "
            f"{LEAST_SAMPLES} cannot be evaluated."
        )
    selection = select_calibrator(p, _candidates(p), folds=FOLDS, seed=seed, progress=progress)
    if selection.chosen == NONE:
        return Advice(selection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the selection's verdict notes it
        after = out_of_fold(selection.calibrator, p, None, FOLDS, seed)
    values, found = paired_differences(
        {"after": after, "before": p},
        JUDGED,
        options={CALIBRATION_ERROR: {"bins": bins}},
        level=level,
        replicates=replicates,
        seed=seed,
    )
    return Advice(selection, values, {difference.metric: difference for difference in found})


def _candidates(p: Predictions) -> list[str] | None:
    size = p.num_samples * p.num_classes
    names = next(names for most, names in BY_SIZE if size <= most)
    return None if names is None else list(names)
