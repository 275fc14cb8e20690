"""Network outputs used by the penalties: confidence, correctness and entropy."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from calibrant.losses._batch import Batch, check_batch
from calibrant.losses._ranks import join_ranks


class Top(NamedTuple):
    """The top class of each of n samples (pixels of a segmentation are samples).

    ``correct`` is 1 or 0; with soft targets the target's probability of the predicted class.
    ``valid`` says which samples count, None if all do. No gradient flows through ``correct``.
    """

    confidence: Tensor
    correct: Tensor
    valid: Tensor | None


def top(logits: Tensor, labels: Tensor, ignore_index: int | None) -> Top:
    """Confidence and correctness; equal logits predict the first of them."""
    batch = check_batch(logits, labels, ignore_index)
    confidence, predicted = batch.logits.softmax(1).max(1)
    return _top(confidence, predicted, batch)


def top_of_ranks(logits: Tensor, labels: Tensor, ignore_index: int | None, *, gather: bool) -> Top:
    """The same; with ``gather``, of the batches of all ranks as one."""
    c, a, valid = top(logits, labels, ignore_index)
    if gather:
        c, a = join_ranks(c), join_ranks(a)
        valid = None if valid is None else join_ranks(valid.to(c.dtype)) > 0
    return Top(c, a, valid)


def top_and_entropy(logits: Tensor, labels: Tensor, ignore_index: int | None) -> tuple[Top, Tensor]:
    """The same with the entropy of each prediction in nats."""
    batch = check_batch(logits, labels, ignore_index)
    summary: tuple[Tensor, ...] = _Summary.apply(batch.logits)  # type: ignore[no-untyped-call]
    confidence, entropy, predicted = summary
    return _top(confidence, predicted, batch), entropy.flatten()


def _top(confidence: Tensor, predicted: Tensor, batch: Batch) -> Top:
    if batch.soft:
        correct = batch.labels.detach().gather(1, predicted.unsqueeze(1)).squeeze(1)
    else:
        correct = (predicted == batch.labels).to(confidence.dtype)
    return Top(confidence.flatten(), correct.flatten(), batch.flat_valid)


class _Summary(torch.autograd.Function):
    """Confidence, entropy and top class of (N, K, …) logits.

    Written out because the gradient of both in one pass costs a third of what automatic
    differentiation does: dc/dz = c (e_top - p), dH/dz = -p (log p + H).
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_p, p, negative = _probabilities(logits)
        confidence, predicted = p.max(1)
        ctx.save_for_backward(logits, predicted, log_p, p, negative, confidence)
        ctx.mark_non_differentiable(predicted)
        return confidence, -negative, predicted

    @staticmethod
    def backward(ctx: Any, by_confidence: Tensor, by_entropy: Tensor, _: Tensor) -> Tensor:
        logits, predicted, *known = ctx.saved_tensors
        top_class = predicted.unsqueeze(1)
        if torch.is_grad_enabled():  # the gradient is itself differentiated
            log_p, p, negative = _probabilities(logits)
            confidence = p.gather(1, top_class).squeeze(1)
        else:
            log_p, p, negative, confidence = known
        pull = by_confidence * confidence
        offset = torch.addcmul(-pull, by_entropy, negative).unsqueeze(1)
        by_logits = torch.addcmul(offset, log_p, by_entropy.unsqueeze(1), value=-1).mul_(p)
        return by_logits.scatter_add_(1, top_class, pull.unsqueeze(1))


class _NegativeEntropy(torch.autograd.Function):
    """Negative entropy S in nats of (N, K, …) logits, with its gradient p (log p - S)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        log_p, p, value = _probabilities(logits)
        ctx.save_for_backward(logits, log_p, p, value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        logits, *known = ctx.saved_tensors
        # Differentiable, where the gradient is itself differentiated.
        log_p, p, value = _probabilities(logits) if torch.is_grad_enabled() else known
        shifted: Tensor = log_p - value.unsqueeze(1)
        return shifted.mul_(p).mul_(gradient.unsqueeze(1))


def _probabilities(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, probabilities and negative entropy."""
    log_p = logits.log_softmax(1)
    p = log_p.exp()
    return log_p, p, (p * log_p).sum(1)  # not vecdot, which autocast narrows


def negative_entropy_of(logits: Tensor) -> Tensor:
    """Negative entropy of the softmax in nats, one value per sample."""
    value: Tensor = _NegativeEntropy.apply(logits)  # type: ignore[no-untyped-call]
    return value
