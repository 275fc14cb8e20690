"""Accuracy versus uncertainty: be certain when right, uncertain when wrong."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibrant._core.checks import check_at_least, check_fraction, check_positive
from calibrant.losses._batch import counted
from calibrant.losses._outputs import Top, top_and_entropy
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
    samples, entropy = top_and_entropy(logits, labels, ignore_index)
    c, a, _ = samples
    if stop_gradient:
        c = c.detach()
    unsure = entropy >= threshold
    return _trade_off(
        samples,
        right=a * c,
        wrong=(1 - a) * (1 - c),
        certain=_one_minus_tanh(entropy).where(~unsure, 0),
        uncertain=entropy.tanh().where(unsure, 0),
        gather=gather,
    )


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
    samples, entropy = top_and_entropy(logits, labels, ignore_index)
    t = soft_uncertainty(entropy / math.log(logits.shape[1]), kappa, temperature)
    return _trade_off(
        samples,
        right=samples.correct,
        wrong=1 - samples.correct,
        certain=(1 - t) * _one_minus_tanh(entropy),
        uncertain=t * entropy.tanh(),
        gather=gather,
    )


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
    limits = torch.finfo(entropy.dtype)
    h = entropy.clamp(limits.tiny, 1 - limits.eps)
    return ((h.log() - (-h).log1p() - math.log(kappa / (1 - kappa))) / temperature).sigmoid()


def _one_minus_tanh(entropy: Tensor) -> Tensor:
    return 2 * (-2 * entropy).sigmoid()  # exact where tanh rounds to 1


def _trade_off(
    samples: Top,
    *,
    right: Tensor,
    wrong: Tensor,
    certain: Tensor,
    uncertain: Tensor,
    gather: bool,
) -> Tensor:
    """log(1 + (right and uncertain + wrong and certain) / (right certain + wrong uncertain))."""
    good = counted(right * certain + wrong * uncertain, samples.valid).sum()
    bad = counted(right * uncertain + wrong * certain, samples.valid).sum()
    if gather:
        good, bad = sum_over_ranks(torch.stack([good, bad])).unbind()
    return (bad / (good + EPSILON)).log1p()
