"""The binary constituency Tree-LSTM, run level by level over a batch of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from calibrant.models._base import Classifier, Head


class TreeBatchLike(Protocol):
    """Trees whose nodes are numbered leaves first, then level by level.

    ``words`` (leaves,), ``levels`` a list of (m, 2) with the children of each level's nodes,
    ``roots`` (trees,).
    """

    @property
    def words(self) -> Tensor: ...
    @property
    def levels(self) -> Sequence[Tensor]: ...
    @property
    def roots(self) -> Tensor: ...


class TreeLSTM(Classifier):
    """Word vectors at the leaves; a node joins its two children with gates of their own.

    Every node gets logits; those of the root are the prediction for the sentence.

    Parameters
    ----------
    num_classes, vocabulary_size
        Sizes of the output and the vocabulary.
    dimensions
        Size of the word vectors.
    hidden
        Size of the state.
    dropout
        Share of the state that is dropped before the last layer in training.

    References
    ----------
    Tai, Socher, Manning 2015, arXiv:1503.00075, section 3.2.
    """

    def __init__(
        self,
        num_classes: int,
        vocabulary_size: int,
        dimensions: int = 50,
        hidden: int = 150,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimensions, padding_idx=0)
        self.leaf = nn.Linear(dimensions, 2 * hidden)  # state, output gate
        self.node = nn.Linear(2 * hidden, 5 * hidden)  # input, left and right forget, output, new
        self.dropout = nn.Dropout(dropout)
        self.head = Head(hidden, num_classes)

    def states(self, trees: TreeBatchLike) -> Tensor:
        """Hidden states of all nodes, leaves first, (nodes, hidden)."""
        cell, gate = self.leaf(self.embedding(trees.words)).chunk(2, -1)
        hidden = torch.sigmoid(gate) * torch.tanh(cell)
        for children in trees.levels:
            joined = self.node(hidden[children].flatten(1))
            new, gates = joined.split([hidden.shape[1], 4 * hidden.shape[1]], -1)
            enter, left, right, leave = gates.sigmoid().chunk(4, -1)
            below = cell[children]
            level = enter * new.tanh() + left * below[:, 0] + right * below[:, 1]
            cell = torch.cat([cell, level])
            hidden = torch.cat([hidden, leave * level.tanh()])
        return hidden

    def nodes(self, trees: TreeBatchLike) -> Tensor:
        """Logits of all nodes, to train on the labels of phrases too."""
        logits: Tensor = self.head(self.dropout(self.states(trees)))
        return logits

    def features(self, x: TreeBatchLike) -> Tensor:
        """The input of the last layer, one row per tree."""
        roots: Tensor = self.dropout(self.states(x)[x.roots])
        return roots
