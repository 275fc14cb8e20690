"""The real 8x8 digits that come with scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from calibrant._core.checks import check_count
from calibrant._core.extras import import_extra
from calibrant.data._dataset import Dataset
from calibrant.data._splits import stratified_order

CLASSES = tuple("0123456789")
BRIGHTEST = 16


def load_digits(*, test_size: int = 600, seed: int = 0) -> Dataset:
    """Load 1,797 handwritten digits 8x8 (UCI, from scikit-learn), in a seeded stratified split.

    Examples
    --------
    >>> load_digits()
    Dataset(digits: 1,197 training and 600 test samples, 10 classes, image)
    """
    source = import_extra("sklearn.datasets", "The data set digits")
    check_count("test_size", test_size, least=10, most=1_700, example=600)
    values, labels = source.load_digits(return_X_y=True)
    images = np.rint(values * (255 / BRIGHTEST)).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    order = stratified_order(labels, seed=seed)
    test, train = np.sort(order[:test_size]), np.sort(order[test_size:])
    meta = {"source": "scikit-learn", "seed": seed}
    return Dataset(
        "digits", "image", images[train], labels[train], images[test], labels[test], CLASSES, meta
    )
