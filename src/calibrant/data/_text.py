"""Tokeniser, vocabulary and GloVe vectors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import check_count, check_seed
from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.data._folder import own_path

PADDING, UNKNOWN = 0, 1
_RESERVED = ("<padding>", "<unknown>")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*|[0-9]+")
# Longer words are encoded binary data, not language.
_MAX_WORD = 40
_MAX_LINE = 1 << 20


def tokenise(text: str) -> list[str]:
    """Words and numbers in lower case, separated by anything else.

    Examples
    --------
    >>> tokenise("It's 20 Newsgroups, by-date.")
    ["it's", '20', 'newsgroups', 'by', 'date']
    """
    return [word for word in _WORD.findall(text.lower()) if len(word) <= _MAX_WORD]


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a model; 0 is padding and 1 any unknown word.

    Examples
    --------
    >>> v = Vocabulary.build([["a", "b", "a"], ["c", "a", "b"]], size=4)
    >>> v.words
    ('<padding>', '<unknown>', 'a', 'b')
    >>> v.encode([["b", "c", "a"], ["a"]], length=2)
    array([[3, 1],
           [2, 0]])
    """

    words: tuple[str, ...]

    @classmethod
    def build(
        cls, texts: Iterable[Sequence[str]], *, size: int = 20_000, least: int = 1
    ) -> Vocabulary:
        """The most frequent words that occur ``least`` times; equal counts in alphabetical order.

        ``size`` counts the two reserved numbers.
        """
        check_count("size", size, least=3, most=10_000_000, example=20_000)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [word for word, count in ranked[: size - len(_RESERVED)] if count >= least]
        return cls((*_RESERVED, *kept))

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        reserved = len(_RESERVED)
        return {word: k for k, word in enumerate(self.words[reserved:], start=reserved)}

    def number(self, words: Iterable[str]) -> list[int]:
        """The numbers of some words."""
        known = self.numbers
        return [known.get(word, UNKNOWN) for word in words]

    def encode(self, texts: Sequence[Sequence[str]], *, length: int) -> NDArray[np.int64]:
        """Texts as rows of ``length`` numbers, cut or padded at the end."""
        check_count("length", length, least=1, most=1_000_000, example=200)
        check_size(8 * len(texts) * length, "the array of tokens")
        rows = np.full((len(texts), length), PADDING, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            numbers = self.number(text[:length])
            row[: len(numbers)] = numbers
        return rows


def vocabulary_facts(
    vocabulary: Vocabulary, vectors: str | Path | None, folder: str | Path | None
) -> dict[str, Any]:
    """The vocabulary entries of ``meta``, with word vectors if a file is given."""
    facts: dict[str, Any] = {"vocabulary": vocabulary, "vocabulary_size": len(vocabulary)}
    if vectors is not None:
        facts["vectors"], facts["vectors_found"] = load_glove(own_path(vectors, folder), vocabulary)
    return facts


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def load_glove(
    path: str | Path, vocabulary: Vocabulary, *, seed: int = 0
) -> tuple[NDArray[np.float32], int]:
    """GloVe vectors (Pennington et al. 2014) for a vocabulary, from the authors' text file.

    Parameters
    ----------
    path
        ``glove.6B.50d.txt`` or the like: a word and its numbers on each line.
    vocabulary
        Which words to keep.
    seed
        Seed of the small normal vectors of words that are not in the file. Padding is 0.

    Returns
    -------
    tuple[ndarray, int]
        Vectors float32 (V, D), and how many words were found.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file. Get it from nlp.stanford.edu/projects/glove"
        )
    found: dict[int, NDArray[np.float32]] = {}
    numbers, size = vocabulary.numbers, 0
    with clear_errors(path, "GloVe text"), path.open(encoding="utf-8", newline="\n") as lines:
        while line := lines.readline(_MAX_LINE):
            word, _, rest = line.partition(" ")
            size = size or len(rest.split())
            if word in numbers:
                values = rest.split()
                # Some words of glove.840B have spaces inside: "at name@domain.com".
                if len(values) == size or _is_number(values[0]):
                    found[numbers[word]] = np.array(values, dtype=np.float32)
    sizes = {len(vector) for vector in found.values()}
    if len(sizes) != 1 or not all(np.isfinite(vector).all() for vector in found.values()):
        raise damaged(path.name, "has no vectors for these words, or vectors that do not agree")
    dimension = sizes.pop()
    rng = np.random.default_rng(check_seed(seed))
    table = rng.normal(0, 0.1, (len(vocabulary), dimension)).astype(np.float32)
    table[PADDING] = 0
    table[list(found)] = list(found.values())
    return table, len(found)
