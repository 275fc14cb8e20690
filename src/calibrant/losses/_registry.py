"""The registry of all losses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from calibrant._core.checks import near_name, refuse
from calibrant._core.import_paths import import_object, is_import_path
from calibrant.losses._adafocal import adafocal
from calibrant.losses._differences import dca, mdca
from calibrant.losses._kernel import mmce, mmce_weighted
from calibrant.losses._likelihood import (
    cross_entropy,
    dual_focal,
    focal,
    inverse_focal,
    label_smoothing,
    sample_dependent_focal,
)
from calibrant.losses._ranking import correctness_ranking
from calibrant.losses._regularisers import acls, logit_norm, margin_smoothing, negative_entropy
from calibrant.losses._soft_binning import soft_binned_ece
from calibrant.losses._squared import brier, squared_error
from calibrant.losses._squared_difference import esd
from calibrant.losses._uncertainty import avuc, soft_avuc
from calibrant.losses._weighted_gradients import bsce_gra


@dataclass(frozen=True)
class Loss:
    """A loss function ``(logits, labels, *, options)`` and how it is used.

    ``role`` is "primary" for losses that teach the labels, "secondary" for penalties that are
    added to one. ``per_sample`` losses give a value for each sample, the others one for the
    batch. ``per_batch`` names options that change with every batch. ``signed`` penalties may have a
    negative weight, and then become a reward. Your ``own`` are functions ``(logits, labels)`` that
    return a value per sample or one for the batch.
    """

    function: Callable[..., Tensor]
    role: Literal["primary", "secondary"]
    per_sample: bool = True
    per_batch: tuple[str, ...] = ()
    signed: bool = False
    own: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """The keyword-only options of the function; of your own all but the first two."""
        parameters = inspect.signature(self.function).parameters
        if self.own:
            return dict(list(parameters.items())[2:])
        return {k: v for k, v in parameters.items() if v.kind is inspect.Parameter.KEYWORD_ONLY}


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(cross_entropy, "primary"),
        Loss(label_smoothing, "primary"),
        Loss(focal, "primary"),
        Loss(sample_dependent_focal, "primary"),
        Loss(dual_focal, "primary"),
        Loss(inverse_focal, "primary"),
        Loss(adafocal, "primary", per_batch=("gamma",)),
        Loss(bsce_gra, "primary"),
        Loss(brier, "primary"),
        Loss(squared_error, "primary"),
        Loss(logit_norm, "secondary", signed=True),  # wang2021, section 5.2
        Loss(negative_entropy, "secondary"),
        Loss(margin_smoothing, "secondary"),
        Loss(acls, "secondary"),
        Loss(mmce, "secondary", per_sample=False),
        Loss(mmce_weighted, "secondary", per_sample=False),
        Loss(esd, "secondary", per_sample=False),
        Loss(avuc, "secondary", per_sample=False),
        Loss(soft_avuc, "secondary", per_sample=False),
        Loss(soft_binned_ece, "secondary", per_sample=False),
        Loss(mdca, "secondary", per_sample=False),
        Loss(dca, "secondary", per_sample=False),
        Loss(correctness_ranking, "secondary", per_sample=False, per_batch=("correctness",)),
    )
}


def get_loss(name: str) -> Loss:
    """Get a loss by name, or your own by its import path; a misspelt name raises.

    >>> get_loss("focal").role
    'primary'
    """
    if isinstance(name, str) and name not in LOSSES and is_import_path(name):
        return Loss(import_object(name, "loss"), "primary", own=True)
    try:
        return LOSSES[name]
    except (KeyError, TypeError):
        rule = "must name a known loss, or be an import path package.module:function"
        raise refuse("loss", rule, f"got {name!r}", near_name(str(name), LOSSES)) from None
