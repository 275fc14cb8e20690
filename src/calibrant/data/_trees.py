"""Binary trees in flat arrays, batched so that a network runs over them level by level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant._core.checks import refuse

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trees:
    """A sequence of binary trees. ``len``, a number, a slice, an array of numbers or a mask work.

    The nodes of each tree lie in one piece, children before parents and the root last.

    Attributes
    ----------
    words
        (M,) word number of a leaf, -1 for an inner node.
    children
        (M, 2) the two children, counted from the tree's first node; -1 for a leaf.
    labels
        (M,) class of every node, -1 for none.
    heights
        (M,) 0 for a leaf, else one more than the higher child.
    starts
        (N + 1,) first node of each tree, and the end.
    """

    words: Ints
    children: Ints
    labels: Ints
    heights: Ints
    starts: Ints

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Trees({len(self):,} trees, {len(self.words):,} nodes)"

    def __getitem__(self, index: Any) -> Trees:
        chosen = np.atleast_1d(np.arange(len(self))[index])
        first, lengths = self.starts[chosen], np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        nodes = np.arange(starts[-1]) + np.repeat(first - starts[:-1], lengths)
        return Trees(
            self.words[nodes], self.children[nodes], self.labels[nodes], self.heights[nodes], starts
        )

    def __iter__(self) -> Iterator[Trees]:
        return (self[k] for k in range(len(self)))

    @property
    def roots(self) -> Ints:
        """The class of each tree's root."""
        roots: Ints = self.labels[self.starts[1:] - 1]
        return roots

    def contents(self) -> list[Ints]:
        """The arrays that make up the trees, for a hash."""
        return [self.words, self.children, self.labels, self.starts]


def join_trees(one: Trees, two: Trees) -> Trees:
    """The trees of one sequence, then those of another."""
    starts = np.concatenate([one.starts, two.starts[1:] + one.starts[-1]])
    names = ("words", "children", "labels", "heights")
    parts = {n: np.concatenate([getattr(one, n), getattr(two, n)]) for n in names}
    return Trees(**parts, starts=starts)


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """Trees as a network runs over them: all leaves at once, then level by level.

    Nodes are renumbered: leaves first, then inner nodes in the order of ``levels``.

    Attributes
    ----------
    words
        (num_leaves,) word numbers.
    levels
        For each level (m, 2) numbers of the children, all of them in earlier levels.
    roots
        (num_trees,) node number of each root.
    labels
        (num_nodes,) class of every node, -1 for none.
    """

    words: Ints
    levels: tuple[Ints, ...]
    roots: Ints
    labels: Ints


def batch_trees(trees: Trees) -> TreeBatch:
    """Number the nodes of some trees level by level.

    Examples
    --------
    >>> trees = make_trees([([5, 6, -1, 7, -1], [[-1, -1], [-1, -1], [0, 1], [-1, -1], [2, 3]],
    ...                      [2, 2, 3, 2, 4])])
    >>> batch = batch_trees(trees)
    >>> batch.words, [level.tolist() for level in batch.levels], batch.roots, batch.labels
    (array([5, 6, 7]), [[[0, 1]], [[3, 2]]], array([4]), array([2, 2, 2, 3, 4]))
    """
    order = np.argsort(trees.heights, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    first = np.repeat(trees.starts[:-1], np.diff(trees.starts))
    heights = trees.heights[order]
    inner = order[np.searchsorted(heights, 1) :]
    pairs = number[trees.children[inner] + first[inner, None]]
    top = int(heights[-1]) if len(heights) else 0
    cuts = np.searchsorted(trees.heights[inner], np.arange(2, top + 1))
    return TreeBatch(
        words=trees.words[order[: len(order) - len(inner)]],
        levels=tuple(np.split(pairs, cuts)) if len(inner) else (),
        roots=number[trees.starts[1:] - 1],
        labels=trees.labels[order],
    )


def make_trees(
    trees: Sequence[tuple[Sequence[int], Sequence[Sequence[int]], Sequence[int]]],
) -> Trees:
    """Put trees together from words, children and labels of their nodes, children first."""
    starts = np.cumsum([0, *(len(words) for words, _, _ in trees)], dtype=np.int64)
    heights: list[int] = []
    for words, children, _ in trees:
        own: list[int] = []
        for k, (left, right) in enumerate(children):
            if not (left == right == -1 or (0 <= left < k and 0 <= right < k)):
                rule = "must come after its two children, or have (-1, -1)"
                raise refuse(f"node {k}", rule, f"got {left}, {right}", "Order children first.")
            own.append(0 if left == -1 else 1 + max(own[left], own[right]))
        if not len(words) == len(own) > 0:
            rule = "must have a word and two children for each of its nodes, one node at least"
            raise refuse("a tree", rule, f"got {len(words)} and {len(own)}", "Use -1 for none.")
        heights += own
    flat = [np.array([v for tree in trees for v in tree[part]], np.int64) for part in (0, 1, 2)]
    return Trees(flat[0], flat[1].reshape(-1, 2), flat[2], np.array(heights, np.int64), starts)
