"""Training losses in PyTorch: functions ``loss(logits, labels, *, options)``.

``LOSSES`` lists them all, and ``Objective`` composes a primary loss with weighted secondary ones.
Losses of single samples give a value for each sample, (N,) or (N, …) for segmentation; losses that
need the batch give one number. Logits of any floating type are taken; half precision is widened
to float32 first. Value and gradient are finite for finite logits up to ±1e4, and nothing waits
for the device.
"""

from calibrant._core.extras import import_extra

# ruff: noqa: E402 - whoever lacks the package reads how to get it, not where an import failed
import_extra("torch", "calibrant.losses")

from calibrant.losses._adafocal import AdaFocalGammas, adafocal
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
from calibrant.losses._mixing import cutmix, mixup
from calibrant.losses._objective import Objective, parse_objective
from calibrant.losses._ranking import CorrectnessHistory, correctness_ranking
from calibrant.losses._registry import LOSSES, Loss, get_loss
from calibrant.losses._regularisers import acls, logit_norm, margin_smoothing, negative_entropy
from calibrant.losses._soft_binning import soft_binned_ece, soft_membership
from calibrant.losses._squared import brier, squared_error
from calibrant.losses._squared_difference import esd
from calibrant.losses._uncertainty import avuc, soft_avuc, soft_uncertainty
from calibrant.losses._weighted_gradients import bsce_gra

__all__ = [
    "LOSSES",
    "AdaFocalGammas",
    "CorrectnessHistory",
    "Loss",
    "Objective",
    "acls",
    "adafocal",
    "avuc",
    "brier",
    "bsce_gra",
    "correctness_ranking",
    "cross_entropy",
    "cutmix",
    "dca",
    "dual_focal",
    "esd",
    "focal",
    "get_loss",
    "inverse_focal",
    "label_smoothing",
    "logit_norm",
    "margin_smoothing",
    "mdca",
    "mixup",
    "mmce",
    "mmce_weighted",
    "negative_entropy",
    "parse_objective",
    "sample_dependent_focal",
    "soft_avuc",
    "soft_binned_ece",
    "soft_membership",
    "soft_uncertainty",
    "squared_error",
]
