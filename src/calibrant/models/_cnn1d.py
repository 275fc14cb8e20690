"""Convolutions over one dimension: a small network for signals, and an 8-layer one for text."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant.models._base import Classifier, Head


class SignalCNN(Classifier):
    """Three convolutions, a mean over time, and a linear layer; small enough for seconds of CPU.

    Parameters
    ----------
    num_classes, in_channels
        Sizes of the output and the input (N, in_channels, length).
    width
        Channels of the convolutions.
    """

    def __init__(self, num_classes: int, in_channels: int = 1, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(in_channels, width, 7, 2, 3),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, 2, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.head = Head(8 * width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer."""
        out: Tensor = self.body(x)
        return out


class TextCNN(Classifier):
    """Eight layers for sequences of word numbers: an embedding, six convolutions, a linear layer.

    wang2021 uses an 8-layer 1D-CNN on 20 Newsgroups without printing its widths; these are ours.
    Word 0 is padding. Each convolution is followed by pooling that halves the length; the largest
    value over what remains goes to the linear layer.

    Parameters
    ----------
    num_classes, vocabulary_size
        Sizes of the output and the vocabulary.
    dimensions
        Size of the word vectors.
    width
        Channels of the convolutions.
    """

    def __init__(
        self, num_classes: int, vocabulary_size: int, dimensions: int = 100, width: int = 128
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, dimensions, padding_idx=0)
        layers: list[nn.Module] = []
        channels = dimensions
        for _ in range(6):
            layers += [
                nn.Conv1d(channels, width, 5, padding=2),
                nn.ReLU(),
                nn.MaxPool1d(2, ceil_mode=True),
            ]
            channels = width
        self.body = nn.Sequential(*layers)
        self.head = Head(width, num_classes)

    def features(self, x: Tensor) -> Tensor:
        """The input of the last layer, (N, width)."""
        words: Tensor = self.embedding(x)
        return F.adaptive_max_pool1d(self.body(words.transpose(1, 2)), 1).squeeze(2)
