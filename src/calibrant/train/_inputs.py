"""Network inputs: whole data sets as tensors, batches by indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.data import Dataset, ImageFiles, batch_trees
from calibrant.data._crops import DRAWS
from calibrant.data.augment import random_crop, random_flip, random_resized_crop
from calibrant.losses import cutmix, mixup
from calibrant.train._recipes import Recipe

# Samples that mean and spread are taken from; files must be decoded for it.
IN_MEMORY, DECODED = 20_000, 500


class TreeTensors(NamedTuple):
    """A batch of trees as tensors, in the form of ``calibrant.data.TreeBatch``."""

    words: Tensor
    levels: Sequence[Tensor]
    roots: Tensor
    labels: Tensor


class Inputs:
    """Batches of one data set, scaled by the mean and spread of its training samples.

    Parameters
    ----------
    dataset
        The data.
    chosen
        Numbers of the training samples; mean and spread are theirs.
    device
        Where batches go.
    """

    def __init__(self, dataset: Dataset, chosen: NDArray[np.int64], device: str) -> None:
        self.kind, self.num_classes, self.device = dataset.kind, dataset.num_classes, device
        self.samples: dict[str, Any] = {"train": dataset.x_train, "test": dataset.x_test}
        self.labels = {
            "train": torch.from_numpy(dataset.y_train),
            "test": torch.from_numpy(dataset.y_test),
        }
        self.samples = {part: _held(x) for part, x in self.samples.items()}
        self.mean, self.spread = self._scale(chosen)

    @classmethod
    def of(cls, x: Any, like: Inputs) -> Inputs:
        """Other samples of the same kind, such as a shifted test set, scaled as ``like``."""
        new = cls.__new__(cls)
        new.__dict__.update(like.__dict__)
        new.samples = {"test": _held(x)}
        new.labels = {}
        return new

    def batch(self, part: str, indices: Tensor) -> Any:
        """Samples as the network takes them, without augmentation."""
        return self._ready(self._pick(part, indices))

    def training_batch(
        self, indices: Tensor, share: Tensor, recipe: Recipe, generator: torch.Generator
    ) -> tuple[Any, Tensor]:
        """Augmented samples and labels; the same randomness on every process.

        ``indices`` are the samples of the step, ``share`` the positions this process takes.
        """
        if self.kind == "trees":
            trees = self.batch("train", indices[share])
            return trees, trees.labels
        x, y = self._training_samples(indices, recipe, generator), self.labels["train"][indices]
        if self.kind == "image" and recipe.crop:
            x = random_crop(x, padding=recipe.crop, generator=generator)
        if self.kind == "image" and recipe.flip:
            x = random_flip(x, generator=generator)
        if recipe.mixup or recipe.cutmix:
            mix = mixup if recipe.mixup else cutmix
            x, y = mix(
                self._scaled(x),
                y,
                num_classes=self.num_classes,
                alpha=recipe.mixup or recipe.cutmix,
                generator=generator,
            )
            return self._placed(x[share]), y[share].to(self.device)
        return self._ready(x[share]), y[share].to(self.device)

    def _training_samples(self, indices: Tensor, recipe: Recipe, generator: torch.Generator) -> Any:
        samples = self.samples["train"]
        if self.kind != "image" or not recipe.resized_crop:
            return self._pick("train", indices)
        if not isinstance(samples, ImageFiles):
            x = self._pick("train", indices)
            return random_resized_crop(x, smallest=recipe.resized_crop, generator=generator)
        draws = torch.rand((len(indices), DRAWS), generator=generator, dtype=torch.float64).numpy()
        found = samples.cropped(indices.numpy(), draws, smallest=recipe.resized_crop)
        return torch.from_numpy(found)

    def _pick(self, part: str, indices: Tensor) -> Any:
        samples = self.samples[part]
        if isinstance(samples, Tensor):
            return samples[indices]
        found = samples[indices.numpy()]
        return torch.from_numpy(found) if isinstance(found, np.ndarray) else found

    def _ready(self, x: Any) -> Any:
        if self.kind == "trees":
            return _tree_tensors(x, self.device)
        return self._placed(self._scaled(x))

    def _scaled(self, x: Tensor) -> Tensor:
        if self.kind == "tokens":
            return x
        return x.float().sub_(self.mean).mul_(1 / self.spread)

    def _placed(self, x: Tensor) -> Tensor:
        x = x.to(self.device, non_blocking=True)
        return x.contiguous(memory_format=torch.channels_last) if self.kind == "image" else x

    def _scale(self, chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Mean and spread of each channel or feature over the training samples."""
        if self.kind in ("tokens", "trees"):
            return torch.zeros(()), torch.ones(())
        count = IN_MEMORY if isinstance(self.samples["train"], Tensor) else DECODED
        some = self._pick("train", torch.from_numpy(chosen[:count])).double()
        axes = [axis for axis in range(some.ndim) if axis != 1]
        spread, mean = torch.std_mean(some, axes, keepdim=True, correction=0)
        return mean[0].float(), spread[0].where(spread[0] > 0, 1).float()


def _held(x: Any) -> Any:
    """Arrays as tensors; trees, and files that are decoded when indexed, as they are."""
    return torch.as_tensor(x) if isinstance(x, np.ndarray | Tensor) else x


def _tree_tensors(trees: Any, device: str) -> TreeTensors:
    batch = batch_trees(trees)

    def tensor(values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(device)

    levels = [tensor(level) for level in batch.levels]
    return TreeTensors(tensor(batch.words), levels, tensor(batch.roots), tensor(batch.labels))
