"""Network outputs used by the penalties: confidence, correctness and entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.losses._batch import Batch
from calibrant.losses._ranks import join_ranks, sum_over_ranks
from calibrant.losses._written import written


class Top(NamedTuple):
    """The top class of each of n samples (pixels of a segmentation are samples).

    ``correct`` is 1 or 0; with soft targets the target's probability of the predicted class.
    ``valid`` says which samples count, None if all do. No gradient flows through ``correct``.
    """

    confidence: Tensor
    correct: Tensor
    valid: Tensor | None


def top(batch: Batch) -> Top:
    """Confidence and correctness; equal logits predict the first of them."""
    confidence, predicted = batch.logits.softmax(1).max(1)
    return _top(confidence, predicted, batch)


def top_of_ranks(batch: Batch, *, gather: bool) -> Top:
    """The same; with ``gather``, of the batches of all ranks as one."""
    c, a, valid = top(batch)
    if gather:
        c, a = join_ranks(c), join_ranks(a)
        valid = None if valid is None else join_ranks(valid.to(c.dtype)) > 0
    return Top(c, a, valid)


def _top(confidence: Tensor, predicted: Tensor, batch: Batch) -> Top:
    if batch.soft:
        correct = batch.labels.detach().gather(1, predicted.unsqueeze(1)).squeeze(1)
    else:
        correct = (predicted == batch.labels).to(confidence.dtype)
    return Top(confidence.flatten(), correct.flatten(), batch.flat_valid)


def of_confidence_and_entropy(
    curve: Callable[[Top, Tensor], tuple[Tensor, Tensor | None, Tensor]],
    batch: Batch,
    *,
    gather: bool,
) -> Tensor:
    """A value of the batch, from a curve of the top classes and of the entropies in nats.

    The curve gives it with its slopes in the confidences, None where they do not count, and in the
    entropies. With ``gather`` it is a value of the batches of all ranks, the same on each.
    """

    def value(logits: Tensor) -> tuple[Tensor, ...]:
        p = logits.softmax(1)
        confidence, predicted = p.max(1, keepdim=True)
        # With d = z_top - z, -log p is d - log c, and the entropy is the mean of d minus log c.
        below = p * (logits.gather(1, predicted) - logits)
        mean = below.sum(1, keepdim=True)
        samples = _top(confidence.squeeze(1), predicted.squeeze(1), batch)
        result, by_confidence, by_entropy = curve(samples, (mean - confidence.log()).flatten())
        push = by_entropy.view_as(confidence)
        if by_confidence is None:
            return result, p, below, push, push * mean
        pull = by_confidence.view_as(confidence) * confidence
        return result, p, below, push, torch.addcmul(pull, push, mean), predicted, pull

    def gradient(
        by_value: Tensor, p: Tensor, below: Tensor, push: Tensor, offset: Tensor, *top: Tensor
    ) -> Tensor:
        # dc/dz = c (e_top - p), dH/dz = p (d - its mean)
        by_value = sum_over_ranks(by_value) if gather else by_value
        by_logits = (p * (-by_value * offset)).addcmul_(below, by_value * push)
        if not top:
            return by_logits
        predicted, pull = top
        return by_logits.scatter_add_(1, predicted, by_value * pull)

    return written(value, gradient, batch.logits)


def negative_entropy_of(logits: Tensor) -> Tensor:
    """Negative entropy S of the softmax in nats, one value per sample."""

    def value(logits: Tensor) -> tuple[Tensor, ...]:
        log_p = logits.log_softmax(1)
        p = log_p.exp()
        negative = (p * log_p).sum(1)  # not vecdot, which autocast narrows
        return negative, log_p, p, negative.unsqueeze(1)

    def gradient(by_value: Tensor, log_p: Tensor, p: Tensor, negative: Tensor) -> Tensor:
        # p (log p - S)
        return (log_p - negative).mul_(p).mul_(by_value.unsqueeze(1))

    return written(value, gradient, logits)
