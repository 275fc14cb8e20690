"""Input of every loss: logits and labels with matching shapes, and how samples are averaged.

Only shapes and types are checked. To look at values would wait for the device in every step; a
label outside 0 … K - 1 is refused by PyTorch itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant._core.checks import refuse
from calibrant._core.validation import MIN_CLASSES
from calibrant.losses._ranks import sum_over_ranks

MIN_DIMENSIONS = 2


class Batch(NamedTuple):
    """Checked logits and labels.

    ``logits`` are (N, K, …) in float32 or float64. ``labels`` are whole numbers (N, …) or, if
    ``soft``, targets (N, K, …). ``valid`` says which samples count, None if all do.
    """

    logits: Tensor
    labels: Tensor
    soft: bool
    valid: Tensor | None

    @property
    def num_classes(self) -> int:
        """K."""
        return self.logits.shape[1]

    @property
    def flat_valid(self) -> Tensor | None:
        """``valid`` with every pixel as a sample, as :func:`flat` has them."""
        return None if self.valid is None else self.valid.flatten()


def check_batch(logits: Tensor, labels: Tensor, ignore_index: int | None = None) -> Batch:
    """Check shapes and types, widen half precision, and mark the samples to ignore."""
    if ignore_index is None and _is_usual(logits, labels):
        return Batch(logits, labels, False, None)  # noqa: FBT003
    check_logits(logits)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if not isinstance(labels, Tensor):
        raise refuse("labels", "must be a tensor", f"got {type(labels).__name__}", _LABEL_ADVICE)
    if labels.is_floating_point():
        return Batch(logits, _check_soft(logits, labels, ignore_index), True, None)  # noqa: FBT003
    labels = _check_hard(logits, labels)
    if ignore_index is None:
        return Batch(logits, labels, False, None)  # noqa: FBT003
    valid = labels != ignore_index
    return Batch(logits, labels.where(valid, 0), False, valid)  # noqa: FBT003


def _is_usual(logits: Tensor, labels: Tensor) -> bool:
    """Whether the checks would pass and change nothing; they take longer."""
    if type(logits) is not Tensor or type(labels) is not Tensor:
        return False
    size = logits.shape
    return (
        logits.dtype is torch.float32
        and labels.dtype is torch.int64
        and len(size) == MIN_DIMENSIONS
        and size[1] >= MIN_CLASSES
        and labels.shape == size[:1]
    )


_LABEL_ADVICE = "Pass class indices (N,) or target probabilities (N, K)."


def check_logits(logits: Tensor) -> None:
    """Reject anything but a floating-point tensor (N, K, …) with at least two classes."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = f"got {getattr(logits, 'dtype', type(logits).__name__)}"
        raise refuse("logits", "must be a floating-point tensor", got, "Try logits.float().")
    if logits.ndim < MIN_DIMENSIONS or logits.shape[1] < MIN_CLASSES:
        rule = "must have the shape (N, K) or (N, K, …) with K >= 2 classes"
        advice = "For one score per sample use torch.stack([zeros, score], 1)."
        raise refuse("logits", rule, f"got {tuple(logits.shape)}", advice)


def _check_hard(logits: Tensor, labels: Tensor) -> Tensor:
    if labels.dtype == torch.bool:
        raise refuse("labels", "must be class numbers", "got bool", "Try labels.long().")
    expected = (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        rule = f"must have the shape {expected} of the logits without their classes"
        raise refuse("labels", rule, f"got {tuple(labels.shape)}", _LABEL_ADVICE)
    return labels.long()


def _check_soft(logits: Tensor, labels: Tensor, ignore_index: int | None) -> Tensor:
    if labels.shape != logits.shape:
        rule = f"given as probabilities must have the shape {tuple(logits.shape)} of the logits"
        raise refuse("labels", rule, f"got {tuple(labels.shape)}", _LABEL_ADVICE)
    if ignore_index is not None:
        advice = "Leave it out, or give class numbers."
        rule = "needs labels that are class numbers"
        raise refuse("ignore_index", rule, "got target probabilities", advice)
    return labels.to(logits.dtype)


def check_class_weights(
    class_weights: Tensor | Sequence[float] | None, batch: Batch
) -> Tensor | None:
    """Return the K weights in the type and on the device of the logits."""
    if class_weights is None:
        return None
    weights = torch.as_tensor(class_weights, dtype=batch.logits.dtype, device=batch.logits.device)
    if weights.shape != (batch.num_classes,):
        rule = f"must be one number for each of the {batch.num_classes} classes"
        got = f"got the shape {tuple(weights.shape)}"
        raise refuse("class_weights", rule, got, "Try class_weights=None.")
    return weights


def sample_weights(batch: Batch, class_weights: Tensor | None) -> Tensor | None:
    """Return the weight of each sample in a mean: its class weight, or 0 if it is ignored."""
    if class_weights is None:
        return None if batch.valid is None else batch.valid.to(batch.logits.dtype)
    if batch.soft:
        return (batch.labels * along_classes(class_weights, batch.labels)).sum(1)
    weights = class_weights[batch.labels]
    return counted(weights, batch.valid)


def mean(values: Tensor, weights: Tensor | None, *, gather: bool) -> Tensor:
    """Mean of per-sample ``values`` that already carry their ``weights``.

    With ``gather`` it is the mean over the samples of all ranks. A batch without any sample that
    counts has the mean 0.
    """
    if weights is None and not gather:
        return values.mean()
    total = values.sum()
    count = values.new_tensor(values.numel()) if weights is None else weights.sum()
    if gather:
        total, count = sum_over_ranks(torch.stack([total, count])).unbind()
    return total / torch.where(count > 0, count, 1)


def counted(values: Tensor, valid: Tensor | None) -> Tensor:
    """``values`` of the samples that count, 0 for the rest."""
    return values if valid is None else values.where(valid, 0)


def along_classes(vector: Tensor, like: Tensor) -> Tensor:
    """Shape a vector of K values so that it multiplies ``like`` (N, K, …) class by class."""
    return vector.view(-1, *[1] * (like.ndim - 2))


def flat(values: Tensor) -> Tensor:
    """(N, K, …) as (N·…, K): every pixel of a segmentation is a sample."""
    return values if values.ndim == MIN_DIMENSIONS else values.movedim(1, -1).flatten(0, -2)
