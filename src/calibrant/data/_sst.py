"""The Stanford Sentiment Treebank: trees in brackets, a label at every node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.checks import check_choice
from calibrant._core.files import clear_errors, damaged
from calibrant.data._archives import read_members
from calibrant.data._dataset import Dataset
from calibrant.data._folder import data_folder, first_found
from calibrant.data._reading import read_bytes
from calibrant.data._text import Vocabulary, vocabulary_facts
from calibrant.data._trees import Trees, make_trees

PATTERNS = ("trees/", "sst/", "trainDevTestTrees_PTB.zip", "sst_trees.tar.xz", "sst*.tar*")
FILES = ("train.txt", "dev.txt", "test.txt")
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
NEUTRAL = 2
TWO = ("negative", "positive")
# Plain spaces separate: one of the authors' words, "8 1\\/2", has a non-breaking space inside.
_PIECE = re.compile(r"[()]|[^ \t\r()]+")
# Old label to new: the neutral middle has none in the binary task.
_BINARY = np.array([0, 0, -1, 1, 1, -1])

# Words of the leaves ("" at inner nodes), children and labels of one tree.
_Parsed = tuple[list[str], list[tuple[int, int]], list[int]]


def load_sst(
    folder: str | Path | None = None,
    *,
    vocabulary: str = "train",
    vectors: str | Path | None = None,
) -> Dataset:
    """Load SST with five classes (Socher et al. 2013): 8,544 + 2,210 trees, 1,101 for development.

    ``vectors`` is a file of GloVe vectors, such as ``glove.6B.50d.txt``, in the data folder or by
    its path, that initialises the embeddings. ``vocabulary="all"`` also knows the words of the
    development and test files, for use with them. The development trees are ``meta["x_dev"]``,
    their labels ``meta["y_dev"]``.
    """
    return _load("sst", folder, vocabulary, vectors)


def load_sst2(
    folder: str | Path | None = None,
    *,
    vocabulary: str = "train",
    vectors: str | Path | None = None,
) -> Dataset:
    """Load SST with two classes: 6,920 + 1,821 trees, 872 for development; neutral trees left out.

    Neutral nodes inside the trees have the label -1. Options as in :func:`load_sst`.
    """
    return _load("sst2", folder, vocabulary, vectors)


def _load(
    name: str, folder: str | Path | None, vocabulary: str, vectors: str | Path | None
) -> Dataset:
    check_choice("vocabulary", vocabulary, ("train", "all"))
    path = first_found(data_folder(folder), PATTERNS, name)
    parsed = [parse_trees(text, f"{path.name}/{file}") for file, text in _texts(path).items()]
    sources = parsed if vocabulary == "all" else parsed[:1]
    words = Vocabulary.build(
        ([word for word in tree[0] if word] for trees in sources for tree in trees), size=10_000_000
    )
    parts = [_numbered(trees, words) for trees in parsed]
    if name == "sst2":
        parts = [_binary(trees) for trees in parts]
    train, dev, test = parts
    meta: dict[str, Any] = {
        "source": "published",
        "file": path.name,
        "x_dev": dev,
        "y_dev": dev.roots,
        **vocabulary_facts(words, vectors, folder),
    }
    classes = TWO if name == "sst2" else FIVE
    return Dataset(name, "trees", train, train.roots, test, test.roots, classes, meta)


def parse_trees(text: str, where: str) -> list[_Parsed]:
    """Read one tree per line: ``(3 (2 good) (2 film))``, words in lower case.

    Examples
    --------
    >>> parse_trees("(3 (2 Good) (1 film))", "train.txt")
    [(['good', 'film', ''], [(-1, -1), (-1, -1), (0, 1)], [2, 1, 3])]
    """
    trees = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            tree = _parse(_PIECE.findall(line))
            if tree is None:
                raise damaged(f"{where}, line {number},", "is not a binary tree with labels 0 to 4")
            trees.append(tree)
    if not trees:
        raise damaged(where, "holds no trees")
    return trees


def _parse(pieces: list[str]) -> _Parsed | None:
    """One tree, or None if the brackets hold something else. Depth costs no recursion."""
    words: list[str] = []
    children: list[tuple[int, int]] = []
    labels: list[int] = []
    # Each open bracket: its label, then the numbers of finished children, or its word.
    stack: list[tuple[int, list[int], list[str]]] = []
    k = 0
    while k < len(pieces):
        piece = pieces[k]
        if piece == "(":
            label = pieces[k + 1] if k + 1 < len(pieces) else ""
            # One root, and no digits of other alphabets.
            if label not in ("0", "1", "2", "3", "4") or (not stack and labels):
                return None
            stack.append((int(label), [], []))
            k += 1
        elif not stack:
            return None
        elif piece == ")":
            value, done, word = stack.pop()
            if (len(done), len(word)) not in ((2, 0), (0, 1)):
                return None
            words.append(word[0].lower() if word else "")
            children.append((done[0], done[1]) if done else (-1, -1))
            labels.append(value)
            if stack:
                stack[-1][1].append(len(labels) - 1)
        else:
            stack[-1][2].append(piece)
        k += 1
    return (words, children, labels) if labels and not stack else None


def _numbered(trees: list[_Parsed], vocabulary: Vocabulary) -> Trees:
    known = vocabulary.numbers
    return make_trees(
        [
            ([known.get(word, 1) if word else -1 for word in words], children, labels)
            for words, children, labels in trees
        ]
    )


def _binary(trees: Trees) -> Trees:
    kept = trees[trees.roots != NEUTRAL]
    return Trees(kept.words, kept.children, _BINARY[kept.labels], kept.heights, kept.starts)


def _texts(path: Path) -> dict[str, str]:
    if path.is_dir():
        data = {file: read_bytes(path / file) for file in FILES if (path / file).is_file()}
    else:
        data = read_members(path, FILES)
    missing = [file for file in FILES if file not in data]
    if missing:
        raise damaged(path.name, f"has no file {missing[0]}")
    with clear_errors(path, "text"):
        return {file: data[file].decode("utf-8") for file in FILES}
