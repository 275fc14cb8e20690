"""Accuracy versus uncertainty: be certain when right, uncertain when wrong."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from calibrant._core.checks import check_at_least, check_fraction, check_positive
from calibrant.losses._batch import check_batch, counted
from calibrant.losses._compiled import ENTROPIES, CompiledLoss, of_columns
from calibrant.losses._outputs import Top, of_confidence_and_entropy
from calibrant.losses._ranks import sum_over_ranks

# Keeps the ratio finite when no sample is certain and right or uncertain and wrong.
EPSILON = 1e-10


def avuc(
    logits: Tensor,
    labels: Tensor,
    *,
    threshold: float,
    stop_gradient: bool = False,
    ignore_index: int | None = None,
    gather: bool = False,
) -> Tensor:
    r"""Accuracy-versus-uncertainty calibration loss of the batch (AvUC).

    :math:`\log(1 + \frac{n_{AU} + n_{IC}}{n_{AC} + n_{IU}})`, where a sample is accurate (A) or
    inaccurate (I), and certain (C) if its entropy H < ``threshold``, else uncertain (U). With
    confidence c, accurate samples count c, inaccurate 1 - c, times tanh H if uncertain and
    1 - tanh H if certain. From 0 to infinity; 1e-10 is added to the denominator, so that a batch
    without a certain-and-right or uncertain-and-wrong sample has a finite value.

    No gradient flows through which group a sample is in.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`.
    threshold
        Entropy in nats from which a prediction is uncertain, between 0 (all are) and log K; above
        log K all are certain.
    stop_gradient
        Whether to stop the gradient through c and 1 - c, which rewards more confidence in wrong
        and less in right predictions (AvUC-GS).
    gather
        Whether to treat the batches of all ranks of a distributed run as one.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Krishnan and Tickoo 2020, arXiv:2012.07923; Karandikar et al. 2021, arXiv:2108.00106,
    equations 13 and 14 and appendix D.

    Examples
    --------
    >>> z = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    >>> avuc(z, torch.tensor([0, 0]), threshold=0.5)
    tensor(0.)
    """
    threshold = check_at_least("threshold", threshold, 0, example=0.5)

    def curve(samples: Top, entropy: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        c, a, valid = samples
        if stop_gradient:
            c = c.detach()
        unsure, certainty = entropy >= threshold, _one_minus_tanh(entropy)
        weight = counted(entropy.tanh().where(unsure, certainty), valid)
        right, wrong = a * c, (1 - a) * (1 - c)
        value, by_good, by_bad = _trade_off(
            weight * wrong.where(unsure, right), weight * right.where(unsure, wrong), gather=gather
        )
        by_right, by_wrong = by_bad.where(unsure, by_good), by_good.where(unsure, by_bad)
        rise = counted((2 - certainty) * certainty, valid)  # of tanh
        by_weight = right * by_right + wrong * by_wrong
        by_confidence = None if stop_gradient else weight * by_right.lerp(-by_wrong, 1 - a)
        return value, by_confidence, rise * by_weight.where(unsure, -by_weight)

    batch = check_batch(logits, labels, ignore_index)
    if gather:
        return of_confidence_and_entropy(curve, batch, gather=True)
    compiled = CompiledLoss(
        "avuc", threshold, float(stop_gradient), wanted=ENTROPIES, of_batch=True
    )
    reference = partial(of_confidence_and_entropy, curve, batch, gather=False)
    return of_columns(compiled, reference, batch)


def soft_avuc(
    logits: Tensor,
    labels: Tensor,
    *,
    kappa: float = 0.5,
    temperature: float = 1.0,
    ignore_index: int | None = None,
    gather: bool = False,
) -> Tensor:
    r"""Soft accuracy-versus-uncertainty loss of the batch (S-AvUC).

    :func:`avuc` with a soft step in place of the threshold, and without the factors c and 1 - c:
    a sample counts :math:`t \tanh H` as uncertain and :math:`(1-t)(1-\tanh H)` as certain, with
    :math:`t` = :func:`soft_uncertainty` of its entropy divided by log K.

    Parameters
    ----------
    logits, labels, ignore_index, gather
        As in :func:`avuc`.
    kappa
        Normalised entropy, strictly between 0 and 1, at which a prediction is half uncertain.
    temperature
        Width T of the step; towards 0 it becomes hard.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Karandikar et al. 2021, arXiv:2108.00106, equations 15 and 16.

    Examples
    --------
    >>> z = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    >>> soft_avuc(z, torch.tensor([0, 0]))
    tensor(0.2112)
    """
    kappa = check_fraction("kappa", kappa, example=0.5)
    temperature = check_positive("temperature", temperature, example=1.0)
    batch = check_batch(logits, labels, ignore_index)
    largest = math.log(batch.num_classes)

    def curve(samples: Top, entropy: Tensor) -> tuple[Tensor, None, Tensor]:
        _, a, valid = samples
        h = entropy / largest
        t = soft_uncertainty(h, kappa, temperature)
        certainty, tanh = _one_minus_tanh(entropy), entropy.tanh()
        certain, uncertain = counted((1 - t) * certainty, valid), counted(t * tanh, valid)
        value, by_good, by_bad = _trade_off(
            uncertain.lerp(certain, a), certain.lerp(uncertain, a), gather=gather
        )
        inside = _inside(h)
        rise = (t * (1 - t) / (inside * (1 - inside))).where(inside == h, 0)  # of t by h, times T
        rise = rise / (temperature * largest)
        bend = (2 - certainty) * certainty  # the slope of tanh
        by_certain = by_bad.lerp(by_good, a) * (rise * certainty + (1 - t) * bend)
        by_uncertain = by_good.lerp(by_bad, a) * (rise * tanh + t * bend)
        return value, None, counted(by_uncertain - by_certain, valid)

    if gather:
        return of_confidence_and_entropy(curve, batch, gather=True)
    odds = math.log(kappa / (1 - kappa))
    compiled = CompiledLoss(
        "soft_avuc", odds, temperature, largest, wanted=ENTROPIES, of_batch=True
    )
    reference = partial(of_confidence_and_entropy, curve, batch, gather=False)
    return of_columns(compiled, reference, batch)


def soft_uncertainty(entropy: Tensor, kappa: float, temperature: float) -> Tensor:
    r"""How uncertain a normalised entropy h in [0, 1] is, from 0 to 1.

    :math:`t(h) = \mathrm{logistic}(\frac1T \log \frac{h (1 - \kappa)}{(1 - h) \kappa})`: 1/2 at
    kappa, the identity for kappa = 1/2 and T = 1, a step for T towards 0. At h = 0 and h = 1,
    where the logarithm is infinite, the gradient taken is 0.

    Examples
    --------
    >>> soft_uncertainty(torch.tensor([0.25, 0.5]), kappa=0.5, temperature=1.0)
    tensor([0.2500, 0.5000])
    """
    kappa = check_fraction("kappa", kappa, example=0.5)
    temperature = check_positive("temperature", temperature, example=1.0)
    logit = torch.logit(_inside(entropy))
    return ((logit - math.log(kappa / (1 - kappa))) / temperature).sigmoid()


def _inside(entropy: Tensor) -> Tensor:
    """A normalised entropy held inside of 0 and 1."""
    limits = torch.finfo(entropy.dtype)
    return entropy.clamp(limits.tiny, 1 - limits.eps)


def _one_minus_tanh(entropy: Tensor) -> Tensor:
    return 2 * (-2 * entropy).sigmoid()  # exact where tanh rounds to 1


def _trade_off(good: Tensor, bad: Tensor, *, gather: bool) -> tuple[Tensor, Tensor, Tensor]:
    """log(1 + sum of bad / sum of good), and its slopes by good and by bad.

    Good are right and certain or wrong and uncertain, bad are the others.
    """
    good, bad = good.sum(), bad.sum()
    if gather:
        good, bad = sum_over_ranks(torch.stack([good, bad])).unbind()
    good = good + EPSILON
    ratio, by_bad = bad / good, 1 / (good + bad)
    return ratio.log1p(), -ratio * by_bad, by_bad
