"""Correctness ranking: confidence should order samples as their training history does."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant._core.checks import check_count, refuse
from calibrant.losses._batch import Batch, check_batch, counted
from calibrant.losses._compiled import CompiledLoss, of_columns
from calibrant.losses._outputs import top


class CorrectnessHistory(nn.Module):
    """How often each training sample has been classified correctly so far.

    A module, so that ``state_dict`` keeps it with the network and ``to`` moves it. Call
    :meth:`update` once for each batch, and :meth:`rate` for the samples of a batch. Each rank of
    a distributed run remembers the samples it saw.

    Parameters
    ----------
    num_samples
        Number of training samples.

    Examples
    --------
    >>> history = CorrectnessHistory(3)
    >>> z, y = torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1])
    >>> history.update(torch.tensor([0, 2]), z, y)
    >>> history.rate(torch.tensor([0, 1, 2]))
    tensor([1., 0., 0.])
    """

    right: Tensor
    seen: Tensor

    def __init__(self, num_samples: int) -> None:
        super().__init__()
        size = check_count("num_samples", num_samples, least=1, most=2**40, example=50_000)
        self.register_buffer("right", torch.zeros(size))
        self.register_buffer("seen", torch.zeros(size))

    @torch.no_grad()
    def update(self, indices: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Count whether the samples ``indices`` are right in ``logits``."""
        correct = top(check_batch(logits, labels)).correct.to(self.right)
        self.right.index_add_(0, indices, correct)
        self.seen.index_add_(0, indices, torch.ones_like(correct))

    def rate(self, indices: Tensor) -> Tensor:
        """Fraction of the epochs in which each sample was right; 0 if never seen."""
        return self.right[indices] / self.seen[indices].clamp_min(1)


def correctness_ranking(
    logits: Tensor, labels: Tensor, *, correctness: Tensor, ignore_index: int | None = None
) -> Tensor:
    r"""Correctness ranking loss of the batch (CRL).

    Each sample is paired with the next, the last with the first. With confidences c and the rates r
    at which the two were right during training, the pair counts :math:`\max(0, |r_i - r_j| -
    \mathrm{sign}(r_i - r_j)(c_i - c_j))`: the sample that was right more often should be more
    confident, by the same amount. The value is the mean over pairs; pairs of equal rates count 0,
    and so do those with a sample left out. At the kink the gradient taken is 0. In a batch of one
    sample the value is 0.

    Parameters
    ----------
    logits, labels, ignore_index
        As in :func:`cross_entropy`; labels are used only for ``ignore_index``.
    correctness
        Rates r of the samples of this batch, (N, …): ``history.rate(indices)`` of a
        :class:`CorrectnessHistory`.

    Returns
    -------
    Tensor
        One value per batch.

    References
    ----------
    Moon et al. 2020, arXiv:2007.01458.

    Examples
    --------
    >>> z = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    >>> correctness_ranking(z, torch.tensor([0, 0]), correctness=torch.tensor([0.2, 0.8]))
    tensor(0.8583)
    """
    batch = check_batch(logits, labels, ignore_index)
    shape = (logits.shape[0], *logits.shape[2:])
    if not isinstance(correctness, Tensor) or correctness.shape != shape:
        got = f"got {tuple(getattr(correctness, 'shape', ())) or correctness!r}"
        advice = "Pass history.rate(indices) of a CorrectnessHistory."
        raise refuse("correctness", f"must be a tensor of the shape {shape}", got, advice)
    curve = CompiledLoss("correctness_ranking", given=correctness, of_batch=True)
    return of_columns(curve, lambda: _ranking(batch, correctness), batch)


def _ranking(batch: Batch, correctness: Tensor) -> Tensor:
    c, _, valid = top(batch)
    rate = correctness.to(c.dtype).flatten()
    ahead = rate - rate.roll(-1)
    loss = (ahead.abs() - ahead.sign() * (c - c.roll(-1))).relu()
    if valid is None:
        return loss.mean()
    both = valid & valid.roll(-1)
    return counted(loss, both).sum() / both.sum().clamp_min(1)
