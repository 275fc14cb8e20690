"""Every calibrator by name, made with checked options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calibrant._core.checks import check_seed, near_name, refuse
from calibrant._core.options import check_option_names
from calibrant.calibrators._base import Calibrator
from calibrant.calibrators._bias_corrected import BiasCorrectedTemperature
from calibrant.calibrators._binning import HistogramBinning, ScalingBinning
from calibrant.calibrators._blend import Blend
from calibrant.calibrators._composite import Chain, CrossFitted
from calibrant.calibrators._ensemble import EnsembleTemperature
from calibrant.calibrators._isotonic import CentredIsotonic, Isotonic, Spline
from calibrant.calibrators._kernel import KernelCalibration
from calibrant.calibrators._linear import (
    Dirichlet,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from calibrant.calibrators._one_vs_rest import Beta, Platt, QuadraticScaling
from calibrant.calibrators._order_preserving import OrderPreserving
from calibrant.calibrators._temperature import TemperatureScaling
from calibrant.calibrators._venn_abers import VennAbers

CALIBRATORS: dict[str, type[Calibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble_temperature": EnsembleTemperature,
    "order_preserving": OrderPreserving,
    "bias_corrected_temperature": BiasCorrectedTemperature,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "structured_vector": StructuredVectorScaling,
    "structured_matrix": StructuredMatrixScaling,
    "dirichlet": Dirichlet,
    "platt": Platt,
    "beta": Beta,
    "quadratic": QuadraticScaling,
    "histogram": HistogramBinning,
    "scaling_binning": ScalingBinning,
    "isotonic": Isotonic,
    "centred_isotonic": CentredIsotonic,
    "venn_abers": VennAbers,
    "spline": Spline,
    "kernel": KernelCalibration,
    "blend": Blend,
}
"""Every calibrator of predictions by its name on the command line."""
WRAPPERS: tuple[type[Calibrator], ...] = (Chain, CrossFitted)


def make_calibrator(
    name: str, options: Mapping[str, Any] | None = None, *, seed: int | None = None
) -> Calibrator:
    """An unfitted calibrator by name, with validated options.

    ``seed`` is used where the method has one and the options do not set it.

    >>> make_calibrator("histogram", {"bins": 10})
    HistogramBinning(bins=10)
    """
    if name not in CALIBRATORS:
        rule = "must be a calibrator"
        raise refuse("method", rule, f"got {name!r}", near_name(name, CALIBRATORS))
    kind, given = CALIBRATORS[name], dict(options or {})
    known = kind.option_names()
    check_option_names(f"calibrator {name}", given, known)
    if seed is not None and "seed" in known:
        given.setdefault("seed", seed)
        check_seed(given["seed"])
    calibrator = kind(**given)
    calibrator.check()
    return calibrator
