"""Post-hoc calibrators.

``fit`` on predictions for samples that the model was not trained on, then ``transform`` others:

>>> from calibrant.examples import load_example
>>> from calibrant.calibrators import TemperatureScaling
>>> fit, test = load_example("cross_entropy").split(0.5, seed=0)
>>> calibrated = TemperatureScaling().fit(fit).transform(test)
"""

from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._bias_corrected import BiasCorrectedTemperature
from calibrant.calibrators._binning import HistogramBinning, ScalingBinning
from calibrant.calibrators._blend import Blend
from calibrant.calibrators._composite import Chain, CrossFitted, out_of_fold
from calibrant.calibrators._confidnet import ConfidNet
from calibrant.calibrators._ensemble import EnsembleTemperature
from calibrant.calibrators._folds import DEFAULT_FOLDS, usual_folds
from calibrant.calibrators._isotonic import CentredIsotonic, Isotonic, Spline
from calibrant.calibrators._json import load_calibrator
from calibrant.calibrators._kernel import KernelCalibration
from calibrant.calibrators._linear import (
    Dirichlet,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from calibrant.calibrators._multilabel import MultiLabelCalibrator, labels_out_of_fold
from calibrant.calibrators._one_vs_rest import Beta, Platt, QuadraticScaling
from calibrant.calibrators._order_preserving import OrderPreserving
from calibrant.calibrators._registry import CALIBRATORS, make_calibrator
from calibrant.calibrators._selection import (
    AUTO,
    Selection,
    automatic,
    select_calibrator,
)
from calibrant.calibrators._temperature import TemperatureScaling
from calibrant.calibrators._trials import UNCALIBRATED
from calibrant.calibrators._trust_score import TrustScore
from calibrant.calibrators._venn_abers import VennAbers

__all__ = [
    "AUTO",
    "CALIBRATORS",
    "DEFAULT_FOLDS",
    "UNCALIBRATED",
    "Beta",
    "BiasCorrectedTemperature",
    "Blend",
    "Calibrator",
    "CentredIsotonic",
    "Chain",
    "ConfidNet",
    "CrossFitted",
    "Dirichlet",
    "EnsembleTemperature",
    "HistogramBinning",
    "Isotonic",
    "KernelCalibration",
    "MatrixScaling",
    "MultiLabelCalibrator",
    "OrderPreserving",
    "Platt",
    "QuadraticScaling",
    "ScalingBinning",
    "Selection",
    "Spline",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "TrustScore",
    "VectorScaling",
    "VennAbers",
    "automatic",
    "labels_out_of_fold",
    "load_calibrator",
    "make_calibrator",
    "out_of_fold",
    "select_calibrator",
    "usual_folds",
]
