"""Two small sets of real predictions, to try the package without a model or a download.

Both are the logits of a small network on the same 1,500 handwritten digits that it was not trained
on (scikit-learn's ``digits``, with noise added to the images so that there are errors).
``benchmarks/make_examples.py`` made them.
"""

from __future__ import annotations

from pathlib import Path

from calibrant._core.checks import check_choice
from calibrant.predictions import Predictions

EXAMPLES = ("cross_entropy", "label_smoothing")


def load_example(name: str) -> Predictions:
    """Load ``"cross_entropy"`` (overconfident) or ``"label_smoothing"`` (underconfident).

    >>> load_example("cross_entropy")
    Predictions(1,500 samples, 10 classes, from logits)
    """
    check_choice("name", name, EXAMPLES)
    return Predictions.load(Path(__file__).with_name(f"{name}.npz"))
