"""Which methods a selection tries where none are named, and which it leaves out."""

from __future__ import annotations

import math

from calibrant.predictions import Confidences, Predictions

#: Name of the log-linear pool of the other candidates.
BLEND = "blend"
# Methods with K^2 parameters are default candidates only up to this many classes.
MATRIX_CLASSES = 200
AUTOMATIC = (
    "temperature",
    "ensemble_temperature",
    "order_preserving",
    "vector",
    "structured_vector",
    "beta",
    "spline",
)
AUTOMATIC_DENSE = ("structured_matrix",)
OF_CONFIDENCES = ("temperature", "platt", "beta", "isotonic")
QUICK = ("temperature", "ensemble_temperature")
# Default candidates by the most scores (samples × classes) for which they are quick.
BY_SIZE: tuple[tuple[float, tuple[str, ...]], ...] = (
    (300_000, AUTOMATIC),
    (5_000_000, (*QUICK, "order_preserving", "vector", "structured_vector", "spline")),
    (math.inf, QUICK),
)
# Default members of a blend, where they are candidates: few, unlike one another, and each with a
# penalty that fits the size of the data.
BLENDED = ("temperature", "order_preserving", "structured_vector", "structured_matrix", "spline")
# Helps in a blend, but has no penalty: on few samples without mistakes it becomes certain.
BLENDED_ONLY = ("spline",)


def default_candidates(p: Predictions | Confidences) -> tuple[str, ...]:
    """The methods that are tried where none are named: fewer where fits take long."""
    methods = _default_methods(p)
    return methods if set(methods) <= {*QUICK} else (*methods, BLEND)


def blend_members(p: Predictions | Confidences | None) -> tuple[str, ...]:
    """The default members of a blend fitted to ``p``; those for any size without it."""
    if p is None:
        return BLENDED
    if not isinstance(p, Predictions):
        return OF_CONFIDENCES
    return tuple(name for name in BLENDED if name in _default_methods(p))


def _default_methods(p: Predictions | Confidences) -> tuple[str, ...]:
    if not isinstance(p, Predictions):
        return OF_CONFIDENCES
    size = p.num_samples * p.num_classes
    names = next(names for most, names in BY_SIZE if size <= most)
    dense = size <= BY_SIZE[0][0] and p.num_classes <= MATRIX_CLASSES
    return names + (AUTOMATIC_DENSE if dense else ())


def left_out(p: Predictions | Confidences) -> tuple[str, ...]:
    """The methods that would be default candidates of fewer samples or classes."""
    if not isinstance(p, Predictions):
        return ()
    tried = default_candidates(p)
    return tuple(name for name in (*AUTOMATIC, *AUTOMATIC_DENSE, BLEND) if name not in tried)


def note_of_untried(names: tuple[str, ...]) -> str:
    """A line that names the methods left out."""
    return (
        f"Not tried, because fits to this many samples and classes take long: {', '.join(names)}. "
        "Fit one by name to try it."
    )
