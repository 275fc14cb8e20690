"""Calibrant: calibration of classifiers.

>>> import calibrant
>>> p = calibrant.Predictions(logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 1])
>>> round(calibrant.metrics.ece(p), 3)
0.194
"""

# First of all: the imports below take long enough for a Ctrl-C.
import calibrant._core.starting as _starting  # noqa: F401
import calibrant._core.stopping as _stopping  # noqa: F401

# isort: split
from typing import TYPE_CHECKING

from calibrant import metrics
from calibrant._core.checks import InputError
from calibrant._core.compiled import kernels
from calibrant._core.lazy import first_used
from calibrant._core.version import __version__
from calibrant._loading import load
from calibrant._multilabel import MultiLabel
from calibrant._scores import Scores
from calibrant.predictions import Confidences, Predictions

if TYPE_CHECKING:
    from calibrant import calibrators as calibrators
    from calibrant import cli as cli
    from calibrant import data as data
    from calibrant import examples as examples
    from calibrant import huggingface as huggingface
    from calibrant import inference as inference
    from calibrant import lightning as lightning
    from calibrant import losses as losses
    from calibrant import models as models
    from calibrant import papers as papers
    from calibrant import plots as plots
    from calibrant import ray_data as ray_data
    from calibrant import report as report
    from calibrant import results as results
    from calibrant import sklearn as sklearn
    from calibrant import streaming as streaming
    from calibrant import study as study
    from calibrant import torchmetrics as torchmetrics
    from calibrant import train as train
    from calibrant._measure import (
        Comparison,
        FitSummary,
        GroupedPanel,
        LabelPanels,
        Panel,
        compare,
        fit_summary,
        measure,
    )
    from calibrant.calibrators import load_calibrator
    from calibrant.inference import LabelShift, label_shift

__all__ = [
    "Comparison",
    "Confidences",
    "FitSummary",
    "GroupedPanel",
    "InputError",
    "LabelPanels",
    "LabelShift",
    "MultiLabel",
    "Panel",
    "Predictions",
    "Scores",
    "__version__",
    "calibrators",
    "compare",
    "fit_summary",
    "kernels",
    "label_shift",
    "load",
    "load_calibrator",
    "losses",
    "measure",
    "metrics",
]


# Loaded when they are first used: many need PyTorch, Matplotlib or other optional packages.
_LAZY = {
    "_measure": "Comparison FitSummary GroupedPanel LabelPanels Panel compare fit_summary measure",
    "calibrators": "load_calibrator",
    "inference": "LabelShift label_shift",
    "cli": "",
    "data": "",
    "examples": "",
    "huggingface": "",
    "lightning": "",
    "losses": "",
    "models": "",
    "papers": "",
    "plots": "",
    "ray_data": "",
    "report": "",
    "results": "",
    "sklearn": "",
    "streaming": "",
    "study": "",
    "torchmetrics": "",
    "train": "",
}

if not TYPE_CHECKING:
    __getattr__ = first_used(__name__, _LAZY)


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LAZY.keys() | set(__all__))
