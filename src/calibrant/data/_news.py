"""20 Newsgroups, sorted by date into training and test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._core.checks import check_choice
from calibrant._core.files import clear_errors, damaged
from calibrant._core.memory import check_size
from calibrant.data._archives import iterate
from calibrant.data._dataset import Dataset
from calibrant.data._folder import data_folder, first_found
from calibrant.data._reading import read_bytes, read_exactly
from calibrant.data._text import Vocabulary, tokenise, vocabulary_facts
from calibrant.io import parquet_needs

PATTERNS = (
    "20news-bydate-train/",
    "20news-bydate/",
    "20news-bydate.tar.gz",
    "news20_bydate.parquet",
)
REMOVABLE = ("headers", "footers", "quotes")
_NAMES = """
alt.atheism comp.graphics comp.os.ms-windows.misc comp.sys.ibm.pc.hardware
comp.sys.mac.hardware comp.windows.x misc.forsale rec.autos rec.motorcycles rec.sport.baseball
rec.sport.hockey sci.crypt sci.electronics sci.med sci.space soc.religion.christian
talk.politics.guns talk.politics.mideast talk.politics.misc talk.religion.misc
"""
GROUPS = tuple(_NAMES.split())
_INSIDE = re.compile(r"(?:.*/)?20news-bydate-(train|test)/([^/]+)/([0-9]+)\Z")
_COLUMNS = ["split", "group", "docid", "text"]
_QUOTE = re.compile(r"^\s*(?:[>|:}]|[A-Z]{1,3}>)")
_ATTRIBUTION = re.compile(
    r"(?:\b(?:writes|wrote|says|said|states|asks)\s*(?:in\b.*)?[:.]*\s*$)|^\s*in article\b",
    re.IGNORECASE,
)
_RULE = re.compile(r"^\s*[-_=*~]{2,}\s*$")

_Document = tuple[str, str, int, str]


def load_news20(
    folder: str | Path | None = None,
    *,
    remove: tuple[str, ...] = REMOVABLE,
    length: int = 1000,
    vocabulary_size: int = 20_000,
    vectors: str | Path | None = None,
) -> Dataset:
    """Load 20 Newsgroups by date: 11,314 training and 7,532 test messages, 20 groups.

    Parameters
    ----------
    folder
        Where ``20news-bydate.tar.gz`` or its two folders lie; ``CALIBRANT_DATA`` if None.
    remove
        Parts to remove because they reveal the group: headers, footers, quotes.
    length
        Number of words kept per message.
    vocabulary_size
        Size of the vocabulary, built from the training messages; 0 is padding, 1 unknown.
    vectors
        A file of GloVe vectors for these words, such as ``glove.6B.50d.txt``, in the data folder or
        by its path, that initialises the embeddings.

    Returns
    -------
    Dataset
        Tokens int64 (N, length); ``meta["vocabulary"]`` is the :class:`Vocabulary`.
    """
    for part in remove:
        check_choice("remove", part, REMOVABLE)
    path = first_found(data_folder(folder), PATTERNS, "news20")
    documents = sorted(_documents(path))
    texts: dict[str, list[list[str]]] = {"train": [], "test": []}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    numbers = {group: k for k, group in enumerate(GROUPS)}
    for split, group, _, text in documents:
        if split not in texts or group not in numbers:
            raise damaged(path.name, f"has the unknown part {split!r} or group {group!r}")
        texts[split].append(tokenise(strip_message(text, remove)))
        labels[split].append(numbers[group])
    if not texts["train"] or not texts["test"]:
        raise damaged(path.name, "has no messages for training or none for test")
    vocabulary = Vocabulary.build(texts["train"], size=vocabulary_size)
    x_train, x_test = (vocabulary.encode(texts[part], length=length) for part in texts)
    y_train, y_test = (np.array(labels[part], dtype=np.int64) for part in labels)
    meta: dict[str, Any] = {
        "source": "published",
        "file": path.name,
        "removed": tuple(remove),
        **vocabulary_facts(vocabulary, vectors, folder),
    }
    return Dataset("news20", "tokens", x_train, y_train, x_test, y_test, GROUPS, meta)


def strip_message(text: str, remove: tuple[str, ...] = REMOVABLE) -> str:
    r"""Take headers, the closing block and quoted lines off a message.

    Examples
    --------
    >>> strip_message("From: a\nSubject: b\n\nIn article 5, c writes:\n> No.\nYes.\n\n-- \na@b.org")
    'Yes.'
    """
    if "headers" in remove:
        text = text.partition("\n\n")[2]
    lines = text.split("\n")
    if "quotes" in remove:
        lines = [line for line in lines if not (_QUOTE.match(line) or _ATTRIBUTION.search(line))]
    if "footers" in remove:
        lines = _without_footer(lines)
    return "\n".join(lines).strip()


def _without_footer(lines: list[str]) -> list[str]:
    """Everything before the last block that an empty line or a rule sets apart."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    for k in range(len(lines) - 1, 0, -1):
        if not lines[k].strip() or _RULE.match(lines[k]):
            return lines[:k]
    return lines


def _documents(path: Path) -> Iterator[_Document]:
    """Part, group, number and text of every message."""
    if path.suffix == ".parquet":
        yield from _from_parquet(path)
    elif path.is_dir():
        root = path if path.name == "20news-bydate" else path.parent
        yield from _from_folders(root)
    else:
        for inside, size, stream in iterate(path):
            match = _INSIDE.match(inside)
            if match:
                data = read_exactly(stream, size, f"{path.name}: {inside}")
                yield match[1], match[2], int(match[3]), data.decode("latin-1")


def _from_folders(root: Path) -> Iterator[_Document]:
    for split in ("train", "test"):
        for file in (root / f"20news-bydate-{split}").glob("*/*"):
            if file.name.isdecimal() and file.is_file():
                text = read_bytes(file).decode("latin-1")
                yield split, file.parent.name, int(file.name), text


def _from_parquet(path: Path) -> Iterator[_Document]:
    import pyarrow.parquet as pq

    with clear_errors(path, "parquet"), pq.ParquetFile(path) as file:
        check_size(parquet_needs(file.metadata, _COLUMNS), path.name)
        missing = [name for name in _COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise damaged(path.name, f"has no column {missing[0]}")
        columns = file.read(columns=_COLUMNS).to_pydict()
        rows = list(zip(*(columns[name] for name in _COLUMNS), strict=True))
    for split, group, number, text in rows:
        yield str(split), str(group), int(number), str(text)
