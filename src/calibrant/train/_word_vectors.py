"""Features of texts: what the vectors of their words are together."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import refuse
from calibrant.data import DATASETS, Dataset, load
from calibrant.data._text import PADDING, UNKNOWN
from calibrant.data._trees import Trees

TEXTS = ("tokens", "trees")


class WordVectors:
    """Maps a text to the mean, the largest and the smallest value of its words' vectors.

    Unknown words do not count; a text without words has zeros.

    Parameters
    ----------
    dataset
        Texts as rows of word numbers, loaded with word vectors.
    name
        The file of the word vectors.
    """

    kind = "tokens"
    precision = "fp32"

    def __init__(self, dataset: Dataset, name: str) -> None:
        self.name = Path(name).name
        self.vectors: NDArray[np.float32] = np.asarray(dataset.meta["vectors"], dtype=np.float32)
        self.size = self.vectors.shape[1]

    @property
    def weights_hash(self) -> str:
        """The sha256 of the vectors."""
        return hashlib.sha256(np.ascontiguousarray(self.vectors).tobytes()).hexdigest()

    def __call__(self, texts: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of texts (N, length), one row per text."""
        found = np.zeros((len(texts), 3 * self.size), dtype=np.float32)
        for row, text in zip(found, texts, strict=True):
            words = self.vectors[text[(text != PADDING) & (text != UNKNOWN)]]
            if len(words):
                row[:] = np.concatenate([words.mean(axis=0), words.max(axis=0), words.min(axis=0)])
        return found


def load_texts(name: str, vectors: str, folder: str | Path | None = None) -> Dataset:
    """A data set of texts as rows of word numbers, with the word vectors of a file."""
    kind = DATASETS[name].kind
    if kind not in TEXTS:
        rule = "must be a data set of texts for word vectors"
        raise refuse("data", rule, f"got {name!r} of kind {kind!r}", "Choose another backbone.")
    # Words of the test set that the training set lacks have vectors too.
    options = {"vocabulary": "all"} if kind == "trees" else {}
    dataset = load(name, folder=folder, vectors=vectors, **options)
    if kind == "tokens":
        return dataset
    train, test = _leaves(dataset.x_train), _leaves(dataset.x_test)
    return replace(dataset, kind="tokens", x_train=train, x_test=test)


def _leaves(trees: Trees) -> NDArray[np.int64]:
    """The words of each tree in their order, padded to the longest."""
    leaves = [words[words >= 0] for words in np.split(trees.words, trees.starts[1:-1])]
    rows = np.full((len(leaves), max(map(len, leaves))), PADDING, dtype=np.int64)
    for row, words in zip(rows, leaves, strict=True):
        row[: len(words)] = words
    return rows
