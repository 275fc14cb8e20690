"""Label shift: the class frequencies of unlabelled data, probabilities corrected for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibrant._core.arrays import Float64, read_only
from calibrant._core.checks import check_choice, refuse
from calibrant._core.formatting import (
    aligned,
    in_samples,
    json_number,
    show,
    show_bounds,
    show_level,
    show_p_equation,
)
from calibrant._scores import Scores
from calibrant.calibrators import BiasCorrectedTemperature
from calibrant.calibrators._arguments import check_predictions, check_same_classes, check_scores
from calibrant.inference._clusters import expanded
from calibrant.inference._resampling import Resampling
from calibrant.inference._shift_estimators import (
    BlackBox,
    MaximumLikelihood,
    PriorEstimator,
    permutation_test,
    replicated_priors,
    sides_of,
)
from calibrant.predictions import Predictions

PriorMethod = Literal["em", "bbse"]
# Classes that the printed table shows.
MOST_ROWS = 20
# The level at which the printed sentence speaks of a shift.
ALPHA = 0.05


@dataclass(frozen=True)
class LabelShift:
    """Class frequencies of a target, and the calibrator that corrects for them. Prints as text.

    ``prior``, ``low`` and ``high`` have an entry per class: the estimate and its interval, class by
    class. ``source_prior`` are the class frequencies of the validation samples. ``p_value`` is that
    of the hypothesis that no class frequency moved. ``calibrator`` maps the model's scores to
    probabilities in the target; it is saved and exported like any other. It corrects for
    ``shrinkage * source_prior + (1 - shrinkage) * prior``: 1 means no correction at all.
    ``unexplained`` is how far the mean confidence of the target is from that of validation samples
    weighted to its class frequencies, and ``assumption_p_value`` that of the hypothesis that this
    is chance: a small one says that more than class frequencies changed. A large one proves
    nothing, because changes that leave the mean confidence as it was are not seen.
    """

    method: str
    prior: Float64
    low: Float64
    high: Float64
    level: float
    source_prior: Float64
    statistic: float
    p_value: float
    num_validation: int
    num_target: int
    shrinkage: float
    unexplained: float
    assumption_p_value: float
    calibrator: BiasCorrectedTemperature

    @property
    def names(self) -> list[str]:
        """The class names, or the numbers of the classes."""
        classes = self.calibrator.classes_
        return list(map(str, range(len(self.prior)))) if classes is None else list(classes)

    def __str__(self) -> str:
        rows = [["class", "validation", "target", show_level(self.level)]]
        shown = np.argsort(-np.abs(self.prior - self.source_prior), kind="stable")[:MOST_ROWS]
        for k in np.sort(shown) if len(self.prior) <= MOST_ROWS else shown:
            bounds = show_bounds(self.low[k], self.high[k], percent=True)
            before, after = self.source_prior[k], self.prior[k]
            rows.append(
                [self.names[k], show(before, percent=True), show(after, percent=True), bounds]
            )
        rest = len(self.prior) - len(rows) + 1
        more = [f"{rest:,} more classes, whose frequencies moved less"] if rest > 0 else []
        size = (
            f"{in_samples(self.num_validation)} for validation, {in_samples(self.num_target)} in "
            f"the target, {len(self.prior):,} classes"
        )
        return "\n\n".join([size, self.verdict, "\n".join([aligned(rows), *more])])

    @property
    def verdict(self) -> str:
        """What the tests say."""
        p = show_p_equation(self.p_value)
        if self.p_value >= ALPHA:
            words = f"No significant change of the class frequencies: {p}."
        else:
            words = f"The scores of the target differ from those of the validation samples: {p}."
        if self.assumption_p_value >= ALPHA:
            return words
        gap = show(self.unexplained, percent=True, signed=True)
        chance = show_p_equation(self.assumption_p_value)
        return (
            f"{words} Class frequencies alone do not explain the mean confidence, which differs "
            f"by another {gap} ({chance}). The correction is not valid; get labels of the target."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        columns = (self.names, self.source_prior, self.prior, self.low, self.high)
        return {
            "method": self.method,
            "num_validation": self.num_validation,
            "num_target": self.num_target,
            "statistic": json_number(self.statistic),
            "p_value": json_number(self.p_value),
            "shrinkage": self.shrinkage,
            "unexplained": self.unexplained,
            "assumption_p_value": json_number(self.assumption_p_value),
            "level": self.level,
            "classes": [
                {
                    "name": name,
                    "validation": float(before),
                    "target": float(after),
                    "low": json_number(float(low)),
                    "high": json_number(float(high)),
                }
                for name, before, after, low, high in zip(*columns, strict=True)
            ],
        }


def label_shift(
    validation: Predictions,
    target: Scores,
    *,
    method: PriorMethod = "em",
    clusters: Any = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> LabelShift:
    """Estimate the class frequencies of unlabelled data and correct probabilities for them.

    Assumes label shift: classes occur more or less often than among the validation samples, but
    samples of one class are alike in both. If the samples themselves look different (another
    camera, corruption, new classes), neither the estimate nor the correction is valid.

    Parameters
    ----------
    validation
        Labelled predictions for samples that the model was not trained on, of every class.
    target
        Scores of the same model where it is used; labels are not needed and not looked at.
    method
        ``"em"``: maximum likelihood on the probabilities after bias-corrected temperature scaling
        (the more precise one). ``"bbse"``: from the predicted classes alone.
    clusters
        Shape (M,), the cluster of each target sample; by default those of ``target``. Given for
        both sets or for neither.
    level, replicates, seed
        Confidence level, number of bootstrap replicates and of permutations, and seed.

    References
    ----------
    Saerens et al. (2002), doi:10.1162/089976602753284446; Alexandari et al. (2020),
    arXiv:1901.06852; Lipton et al. (2018), arXiv:1802.03916.

    >>> import numpy as np
    >>> from calibrant import Predictions, Scores, label_shift
    >>> rng = np.random.default_rng(0)
    >>> y, t = rng.random(1000) < 0.5, rng.random(1000) < 0.1
    >>> z, u = (np.stack([rng.normal(size=1000), rng.normal(2 * hit)], axis=1) for hit in (y, t))
    >>> found = label_shift(Predictions(logits=z, labels=y), Scores(logits=u), replicates=20)
    >>> found.prior.round(2), found.p_value < 0.05
    (array([0.92, 0.08]), True)
    """
    check_predictions(validation)
    check_scores(target)
    _check_classes(validation, target)
    check_same_classes(target, validation.num_classes, validation.classes)
    check_choice("method", method, ("em", "bbse"))
    resampling = Resampling(level, replicates, seed)
    sides = sides_of(validation, target, clusters)
    kind = MaximumLikelihood if method == "em" else BlackBox
    work: PriorEstimator = kind(validation, target, sides)
    made = list(replicated_priors(work, sides, resampling))
    drawn, gaps = np.stack([prior for prior, _ in made]), np.array([gap for _, gap in made])
    gap = work.unexplained(work.prior, *(side.weight for side in sides))
    statistic, p_value = permutation_test(validation, target, sides, resampling)
    shrinkage = work.shrinkage(seed)
    kept = shrinkage * work.source_prior
    units = min(side.units for side in sides)
    wide = expanded(level, units) if sides[0].codes is not None else level
    tail = (1 - wide) / 2
    low = np.quantile(drawn, tail, axis=0, method="lower")
    high = np.quantile(drawn, 1 - tail, axis=0, method="higher")
    return LabelShift(
        method=method,
        prior=read_only(work.prior),
        low=read_only(low),
        high=read_only(high),
        level=level,
        source_prior=read_only(work.source_prior),
        statistic=statistic,
        p_value=p_value,
        num_validation=len(validation),
        num_target=len(target),
        shrinkage=shrinkage,
        unexplained=gap,
        assumption_p_value=_two_sided(gap, float(gaps.std(ddof=1))),
        calibrator=_corrected(
            work.calibrator, kept + (1 - shrinkage) * work.prior, work.source_prior
        ),
    )


def _two_sided(gap: float, error: float) -> float:
    """P-value of a gap with this standard error, by the normal distribution."""
    if error == 0:
        return 1.0 if gap == 0 else 0.0
    return math.erfc(abs(gap) / error / math.sqrt(2))


def _check_classes(validation: Predictions, target: Scores) -> None:
    if target.num_classes != validation.num_classes:
        rule = f"must have {validation.num_classes} classes, like the validation samples"
        raise refuse("target", rule, f"got {target.num_classes}", "Use scores of the same model.")
    absent = np.flatnonzero(np.bincount(validation.labels, minlength=validation.num_classes) == 0)
    if len(absent):
        k = int(absent[0])
        name = str(k) if validation.classes is None else validation.classes[k]
        rule, advice = "must hold every class", "Add labelled samples of it, or drop its column."
        raise refuse("validation", rule, f"got no sample of class {name}", advice)


def _corrected(
    calibrator: BiasCorrectedTemperature, prior: Float64, source_prior: Float64
) -> BiasCorrectedTemperature:
    """The same calibrator with each class weighted by the ratio of its priors."""
    found = calibrator.clone()
    found.num_classes_, found.classes_ = calibrator.num_classes_, calibrator.classes_
    found.scale_ = calibrator.scale_
    found.bias_ = calibrator.bias_ + np.log(prior / source_prior)
    return found
