"""Which calibrator to recommend for a model, judged on unseen samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from calibrant._core.checks import CalibrationWarning
from calibrant.calibrators import (
    UNCALIBRATED,
    Selection,
    TemperatureScaling,
    automatic,
    out_of_fold,
    usual_folds,
)
from calibrant.inference import Difference, paired_differences
from calibrant.metrics import (
    ACCURACY,
    CALIBRATION_ERROR,
    LOG_LOSS,
    POSITIVE_ERROR,
    POSITIVE_LOSS,
    POSITIVE_RANKING,
    RANKING,
)
from calibrant.predictions import Confidences, Predictions
from calibrant.report._risk import Risk
from calibrant.report._settings import Settings

# With fewer samples than this, no calibrator is fitted.
LEAST_SAMPLES = 50
# What the effect of a calibrator is judged by: calibration error, loss, ranking, accuracy.
JUDGED = (CALIBRATION_ERROR, LOG_LOSS, RANKING, ACCURACY)
JUDGED_OF_CLASS = (POSITIVE_ERROR, POSITIVE_LOSS, POSITIVE_RANKING)


@dataclass(frozen=True)
class Advice:
    """The chosen calibrator and its out-of-fold effect, or why there is none.

    ``differences`` are calibrated minus uncalibrated, by metric, and ``values`` the values of both.
    ``roles`` names the calibration error, loss, ranking and accuracy to speak of: of the top label,
    or of the positive class where there is one.
    """

    selection: Selection | None = None
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)
    reason: str = ""
    roles: tuple[str, ...] = JUDGED
    folds: int = 0

    @property
    def chosen(self) -> str | None:
        """Name of the calibrator to use; None for none."""
        found = None if self.selection is None else self.selection.chosen
        return None if found == UNCALIBRATED else found

    @property
    def temperature(self) -> float | None:
        """The temperature learned from all samples, if that is what is to be used."""
        calibrator = None if self.selection is None else self.selection.calibrator
        fits = self.chosen == "temperature" and isinstance(calibrator, TemperatureScaling)
        return calibrator.temperature_ if fits else None  # type: ignore[union-attr]


def advise(
    p: Predictions | Confidences,
    risk: Risk | None,
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
) -> Advice:
    """Choose by cross-validation on these samples, and evaluate the choice out of fold."""
    if not isinstance(p, Predictions):
        return Advice(
            reason="Only confidences were given. calibrant calibrate selects a calibrator for "
            "them; one for the scores of all classes needs logits or probabilities with labels."
        )
    if p.num_samples < LEAST_SAMPLES:
        return Advice(
            reason="Collect more samples first: a calibrator fitted to fewer than "
            f"{LEAST_SAMPLES} cannot be evaluated."
        )
    folds = usual_folds(p)
    if folds == 1:
        return Advice(reason="All samples are in one cluster: a calibrator cannot be evaluated.")
    selection = automatic(p, seed=settings.seed, progress=progress)
    if selection.chosen == UNCALIBRATED:
        return Advice(selection, folds=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the selection's verdict notes it
        after = out_of_fold(selection.calibrator, p, None, folds, settings.seed)
    values, found = _effect(p, after, JUDGED, settings)
    roles = JUDGED
    if risk is not None:
        asked = settings.positive
        both = p.positive_class(asked), after.positive_class(asked)
        of_class, differences = _effect(*both, JUDGED_OF_CLASS, settings)
        values = {when: values[when] | of_class[when] for when in values}
        found, roles = [*found, *differences], (*JUDGED_OF_CLASS, ACCURACY)
    by_metric = {difference.metric: difference for difference in found}
    return Advice(selection, values, by_metric, roles=roles, folds=folds)


def _effect(
    before: Predictions | Confidences,
    after: Predictions | Confidences,
    names: Sequence[str],
    settings: Settings,
) -> tuple[dict[str, dict[str, float]], list[Difference]]:
    options = {names[0]: {"bins": settings.bins}}
    models = {"after": after, "before": before}
    return paired_differences(models, names, options=options, **settings.resampling)
