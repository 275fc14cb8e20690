"""Adaptive focal loss: the exponent follows the calibration of held-out samples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant._core.checks import check_at_least, check_count, refuse
from calibrant.losses._batch import Batch, check_batch
from calibrant.losses._compiled import CompiledLoss, of_columns
from calibrant.losses._likelihood import ClassWeights, focal_power, negative_log, weighted
from calibrant.losses._outputs import top
from calibrant.losses._written import written


def adafocal(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: Tensor,
    class_weights: ClassWeights = None,
    ignore_index: int | None = None,
) -> Tensor:
    r"""Focal loss with an exponent per sample; a negative one turns it into inverse focal loss.

    :math:`-(1 - p_y)^\gamma \log p_y` where gamma is positive, :math:`-(1 + p_y)^{-\gamma} \log
    p_y` where it is negative, cross-entropy where it is 0. :class:`AdaFocalGammas` adapts gamma to
    the calibration of held-out samples after every epoch (AdaFocal).

    Parameters
    ----------
    logits, labels, class_weights, ignore_index
        As in :func:`cross_entropy`.
    gamma
        Exponents of the samples of this batch, (N, …): ``gammas.of(logits, labels)`` of an
        :class:`AdaFocalGammas`.

    References
    ----------
    Ghosh, Schaaf, Gormley 2022, "AdaFocal: Calibration-aware adaptive focal loss", NeurIPS,
    arXiv:2211.11838.

    Examples
    --------
    >>> z, y = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0])
    >>> adafocal(z, y, gamma=torch.tensor([0.5, -3.0]))
    tensor([0.0438, 0.8445])
    """
    batch = check_batch(logits, labels, ignore_index)
    shape = (logits.shape[0], *logits.shape[2:])
    if not isinstance(gamma, Tensor) or gamma.shape != shape:
        got = f"got {tuple(getattr(gamma, 'shape', ())) or gamma!r}"
        advice = "Pass gammas.of(logits, labels) of an AdaFocalGammas."
        raise refuse("gamma", f"must be a tensor of the shape {shape}", got, advice)
    curve = CompiledLoss("adafocal", given=gamma)
    value = of_columns(curve, lambda: _adafocal(batch, gamma), batch)
    return weighted(value, batch, class_weights)


def _adafocal(batch: Batch, gamma: Tensor) -> Tensor:
    exponent = gamma.to(batch.logits.dtype)
    if batch.soft:
        exponent = exponent.unsqueeze(1)

    def curve(nll: Tensor) -> tuple[Tensor, Tensor]:
        surplus = torch.expm1(-nll)  # p - 1
        base = torch.where(exponent > 0, -surplus, 2 + surplus)
        weight = focal_power(base, exponent.abs())
        rise = exponent * focal_power(base, exponent.abs() - 1)
        return weight * nll, torch.addcmul(weight, rise, (1 + surplus) * nll)

    return written(curve, torch.mul, negative_log(batch), exponent)


class AdaFocalGammas(nn.Module):
    """Exponents of AdaFocal by bin of probability, adapted to held-out samples.

    :meth:`update` sorts held-out samples into bins of equal mass by confidence. In each bin,
    gamma is multiplied by exp(rate · (mean confidence - accuracy)), so that it grows where the
    network is overconfident. Where its size falls below ``switch`` the sign changes, and
    overconfidence then shrinks it. :meth:`of` looks up the bin of each training sample by its
    probability of the true class, which is what the authors do.

    A module, so that ``state_dict`` keeps it with the network and ``to`` moves it.

    Parameters
    ----------
    bins
        Number of bins.
    initial
        Exponent of every bin before the first update.
    rate
        How fast gamma adapts, > 0.
    switch
        Size below which focal and inverse focal loss change places, > 0.
    largest, smallest
        Bounds of gamma, above 0 and below 0.

    Examples
    --------
    >>> gammas = AdaFocalGammas(bins=2)
    >>> z = torch.tensor([[0.5, 0.0], [0.6, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> gammas.update(z, torch.tensor([0, 0, 0, 1]))
    >>> gammas.gammas  # underconfident below, overconfident above
    tensor([0.6935, 1.5957])
    """

    gammas: Tensor
    edges: Tensor

    def __init__(
        self,
        bins: int = 15,
        *,
        initial: float = 1.0,
        rate: float = 1.0,
        switch: float = 0.2,
        largest: float = 20.0,
        smallest: float = -2.0,
    ) -> None:
        super().__init__()
        count = check_count("bins", bins, least=1, most=10_000, example=15)
        self.rate = check_at_least("rate", rate, 0, example=1)
        self.switch = check_at_least("switch", switch, 0, example=0.2)
        if not smallest < 0 < largest:
            rule, got = "must be below 0 and largest above", f"got {smallest!r} and {largest!r}"
            raise refuse("smallest", rule, got, "Try smallest=-2 and largest=20.")
        self.largest, self.smallest = float(largest), float(smallest)
        self.register_buffer("gammas", torch.full((count,), float(initial)))
        self.register_buffer("edges", torch.arange(1, count) / count)

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adapt to held-out samples: logits (N, K) and their labels."""
        c, a, _ = top(check_batch(logits, labels))
        c, order = c.sort()
        parts = torch.tensor_split(torch.arange(len(c), device=c.device), len(self.gammas))
        middle = [part for part in parts if len(part)]
        gap = self.gammas.new_zeros(len(self.gammas))
        for number, part in enumerate(middle):
            gap[number] = (c[part] - a[order[part]]).mean()
        moved = self.gammas * (self.rate * self.gammas.sign() * gap).exp()
        small = moved.abs() < self.switch
        moved = torch.where(small, -self.switch * moved.sign(), moved)
        self.gammas.copy_(moved.clamp(self.smallest, self.largest))
        ends = [float(c[part[-1]] + c[part[-1] + 1]) / 2 for part in middle[:-1]]
        ends += [1.0] * (len(self.gammas) - 1 - len(ends))
        self.edges.copy_(torch.tensor(ends))

    @torch.no_grad()
    def of(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Exponent of each sample; with soft targets by the expected probability."""
        batch = check_batch(logits, labels)
        p = batch.logits.softmax(1)
        if batch.soft:
            own = (p * batch.labels).sum(1)
        else:
            own = p.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        return self.gammas[torch.bucketize(own.to(self.edges), self.edges, right=True)]
