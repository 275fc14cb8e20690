"""Words, messages and trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrant import InputError
from calibrant.data import Trees, Vocabulary, batch_trees, make_trees, strip_message, tokenise

MESSAGE = """From: someone@somewhere
Subject: Re: secret
Lines: 9

In article <1@x> other@place writes:
> quoted words
>> older words
| also quoted

An answer.
It has two lines: he said: no.

Second paragraph.

--
Name Surname
name@host"""


def test_strip_message() -> None:
    assert (
        strip_message(MESSAGE) == "An answer.\nIt has two lines: he said: no.\n\nSecond paragraph."
    )
    assert "secret" not in strip_message(MESSAGE, ("headers",))
    assert "Surname" in strip_message(MESSAGE, ("headers", "quotes"))
    assert "quoted words" in strip_message(MESSAGE, ("headers", "footers"))
    assert strip_message(MESSAGE, ()) == MESSAGE
    assert strip_message("") == strip_message("no blank line") == ""
    assert strip_message("a: b\n\nonly one block") == "only one block"


def test_tokenise() -> None:
    assert tokenise("Don't PANIC!! 42 x_y") == ["don't", "panic", "42", "x", "y"]
    assert tokenise("A" * 41 + " b") == ["b"]


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), min_size=1, max_size=20),
    st.integers(3, 12),
    st.integers(1, 9),
)
def test_vocabulary(texts: list[list[str]], size: int, length: int) -> None:
    vocabulary = Vocabulary.build(texts, size=size)
    assert len(vocabulary) <= size
    rows = vocabulary.encode(texts, length=length)
    assert rows.shape == (len(texts), length)
    for row, text in zip(rows, texts, strict=True):
        for k in range(length):
            word = text[k] if k < len(text) else None
            expected = 0 if word is None else vocabulary.numbers.get(word, 1)
            assert row[k] == expected
    flat = [word for text in texts for word in text]
    kept = vocabulary.words[2:]
    left = set(flat) - set(kept)
    assert all(flat.count(a) >= flat.count(b) for a in kept for b in left)


def test_vocabulary_that_is_refused() -> None:
    with pytest.raises(InputError, match="size"):
        Vocabulary.build([["a"]], size=2)
    with pytest.raises(InputError, match="length"):
        Vocabulary.build([["a"]]).encode([["a"]], length=0)
    assert Vocabulary.build([["a", "b", "a"]], least=2).words[2:] == ("a",)


# --- trees --------------------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, leaves: int) -> tuple[list[int], list, list[int]]:
    """Join random neighbours until one node is left."""
    words, children = [int(w) for w in rng.integers(2, 99, leaves)], [(-1, -1)] * leaves
    roots = list(range(leaves))
    while len(roots) > 1:
        k = int(rng.integers(len(roots) - 1))
        words.append(-1)
        children.append((roots[k], roots[k + 1]))
        roots[k : k + 2] = [len(words) - 1]
    return words, children, [int(label) for label in rng.integers(-1, 5, len(words))]


def forest(seed: int, count: int) -> tuple[list, Trees]:
    rng = np.random.default_rng(seed)
    plain = [random_tree(rng, int(rng.integers(1, 12))) for _ in range(count)]
    return plain, make_trees(plain)


def run(words: list[int], children: list, labels: list[int], node: int) -> int:
    """A function of the whole subtree that notices every difference, node by node."""
    left, right = children[node]
    if left == -1:
        return words[node]
    both = [run(words, children, labels, child) for child in (left, right)]
    return (31 * both[0] + 17 * both[1] + 7) % 1_000_003


@given(seed=st.integers(0, 1000), count=st.integers(1, 8))
def test_a_batch_computes_what_recursion_computes(seed: int, count: int) -> None:
    plain, trees = forest(seed, count)
    batch = batch_trees(trees)
    values = np.concatenate([batch.words, np.zeros(len(batch.labels) - len(batch.words), np.int64)])
    done = len(batch.words)
    for level in batch.levels:
        assert level.shape[1] == 2
        assert level.max() < done
        size = len(level)
        values[done : done + size] = (
            31 * values[level[:, 0]] + 17 * values[level[:, 1]] + 7
        ) % 1_000_003
        done += size
    assert done == len(batch.labels)
    expected = [run(*tree, len(tree[0]) - 1) for tree in plain]
    assert values[batch.roots].tolist() == expected
    assert batch.labels[batch.roots].tolist() == [tree[2][-1] for tree in plain]
    assert sorted(batch.labels) == sorted(label for tree in plain for label in tree[2])
    # Every node is at the first level where its children are ready.
    starts = np.cumsum([len(batch.words), *(len(level) for level in batch.levels)])
    for k, level in enumerate(batch.levels):
        assert (level.max(axis=1) >= (starts[k - 1] if k else 0)).all()


@given(seed=st.integers(0, 1000), picks=st.lists(st.integers(-5, 4), max_size=9))
def test_indexing(seed: int, picks: list[int]) -> None:
    plain, trees = forest(seed, 5)
    chosen = trees[np.array(picks, dtype=int)]
    assert len(chosen) == len(picks)
    if picks:
        expected = make_trees([plain[k] for k in picks])
        for got, wanted in zip(chosen.contents(), expected.contents(), strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert len(trees[1:4]) == 3
    assert len(trees[np.array([True, False, True, True, False])]) == 3
    assert len(trees[2]) == 1
    assert [one.roots[0] for one in trees] == trees.roots.tolist()
    assert repr(trees).startswith("Trees(5 trees")


def test_empty_batches_and_single_leaves() -> None:
    _, trees = forest(0, 3)
    empty = batch_trees(trees[np.array([], dtype=int)])
    assert (len(empty.words), empty.levels, len(empty.roots)) == (0, (), 0)
    leaf = batch_trees(make_trees([([7], [(-1, -1)], [2])]))
    assert (leaf.words.tolist(), leaf.levels, leaf.roots.tolist()) == ([7], (), [0])


def test_trees_that_are_refused() -> None:
    for children in ([(-1, -1), (0, 1)], [(-1, 0)], [(0, 0)], [(-1, -1), (-1, 0)]):
        with pytest.raises(InputError, match="two children"):
            make_trees([([1] * len(children), children, [0] * len(children))])
    with pytest.raises(InputError, match="one node at least"):
        make_trees([([], [], [])])
