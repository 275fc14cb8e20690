"""A torchmetrics metric: calibration during training or evaluation, on any device.

``CalibrationPanel`` has the metrics of ``calibrant.measure`` that fixed bins and means give. Its
state does not grow with the number of samples: it is all-reduced under distributed data parallel,
where torchmetrics' own calibration error gathers every sample. For Lightning, Ignite and plain
PyTorch; needs ``pip install torchmetrics``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from calibrant._core.checks import check_bins, check_choice, check_count, refuse
from calibrant._core.extras import import_extra
from calibrant.metrics import BRIER_SCORE, ENTROPY, LOG_LOSS, METRICS, get_metric
from calibrant.metrics._binning import BinSums, width_edges
from calibrant.metrics._classwise import UNIT_BITS, UNITS, ClasswiseCounts
from calibrant.metrics._limits import NO_HISTOGRAM
from calibrant.metrics._streamed import Streamed

if TYPE_CHECKING:
    from torchmetrics import Metric as TorchMetric
else:
    TorchMetric = import_extra("torchmetrics", "calibrant.torchmetrics").Metric

# Sums are whole numbers of 2^-30 in 64 bits.
MOST_SAMPLES = 1 << 32
# How far the sum of probabilities may be from 1, as for Predictions.
SUM_SLACK = 1e-3
ScoreKind = Literal["logits", "probs"]


class CalibrationPanel(TorchMetric):
    """Accuracy, NLL, Brier score, ECE and other binned calibration errors of a classifier.

    Confidences of exactly 1 belong to the last bin. All sums are whole numbers, so that the result
    does not depend on batches, on their order, or on the number of processes.

    Parameters
    ----------
    num_classes
        Number of classes K.
    bins
        Number of equal-width bins of the ECE family.
    norm
        Order p of the ECE norm; infinity for the largest gap.
    inputs
        What ``update`` is given: "logits" or "probs". It is never guessed from values.
    metrics
        Names in ``calibrant.metrics.METRICS``; default: all that need O(bins) memory. Classwise ECE
        can be added; it needs O(K * bins).
    ignore_index
        Label of samples that do not count.

    Examples
    --------
    >>> import torch
    >>> from calibrant.torchmetrics import CalibrationPanel
    >>> panel = CalibrationPanel(num_classes=2, metrics=["accuracy", "ece"])
    >>> panel.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> {name: round(float(value), 4) for name, value in panel.compute().items()}
    {'accuracy': 1.0, 'ece': 0.1941}
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    count: Tensor
    hits: Tensor
    confidence: Tensor
    means: Tensor
    impossible: Tensor
    class_count: Tensor
    class_hits: Tensor
    class_prob: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        bins: int = 15,
        norm: float = 1,
        inputs: ScoreKind = "logits",
        metrics: Sequence[str] | None = None,
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_classes = check_count("num_classes", num_classes, least=2, most=10**8, example=10)
        self.bins, self.norm = check_bins(bins), norm
        self.inputs = check_choice("inputs", inputs, ("logits", "probs"))
        self.names = _chosen(metrics)
        self.ignore_index = ignore_index
        self.classwise = any(METRICS[name].interval == "rows" for name in self.names)
        for name in ("count", "hits", "confidence"):
            self._add(name, bins)
        self._add("means", len(_MEANS))
        self._add("impossible", 1)
        if self.classwise:
            for name in ("class_count", "class_hits", "class_prob"):
                self._add(name, num_classes * bins)

    def _add(self, name: str, size: int) -> None:
        self.add_state(name, torch.zeros(size, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: scores (N, K) or (N, K, …), labels (N,) or (N, …)."""
        scores, labels = self._rows(preds, target)
        if not len(labels):
            return
        # Half the digits of float32 are lost in 1 - confidence; MPS has no float64.
        exact = torch.float32 if scores.device.type == "mps" else torch.float64
        probs, log_probs = self._normalised(scores.detach().to(exact))
        top, predicted = probs.max(dim=1)
        correct, rows = predicted == labels, torch.arange(len(labels), device=labels.device)
        index = self._bin(top)
        self.count += torch.bincount(index, minlength=self.bins)
        self.hits += torch.bincount(index[correct], minlength=self.bins)
        self.confidence.scatter_add_(0, index, _units(top))
        loss = -log_probs[rows, labels]
        finite = torch.isfinite(loss)
        self.impossible += (~finite).sum()
        brier = 1 - 2 * probs[rows, labels] + probs.square().sum(dim=1)
        entropy = torch.special.entr(probs).sum(dim=1)
        self.means += torch.stack([_units(x).sum() for x in (loss[finite], brier, entropy)])
        if self.classwise:
            self._count_classes(probs, labels, rows)

    def _count_classes(self, probs: Tensor, labels: Tensor, rows: Tensor) -> None:
        place = torch.arange(self.num_classes, device=probs.device) * self.bins
        cell = self._bin(probs) + place
        size = len(self.class_count)
        self.class_count += torch.bincount(cell.ravel(), minlength=size)
        self.class_hits += torch.bincount(cell[rows, labels], minlength=size)
        self.class_prob.scatter_add_(0, cell.ravel(), _units(probs).ravel())

    def compute(self) -> dict[str, Tensor]:
        """The metrics, by name, of all samples of all processes."""
        total = int(self.count.sum())
        if not total:
            raise RuntimeError("CalibrationPanel has no samples yet; call update first.")
        if total > MOST_SAMPLES or int(self.means.min()) < 0:
            raise RuntimeError(f"CalibrationPanel holds at most 2^32 = {MOST_SAMPLES:,} samples.")
        known = self._known(total)
        options = {"bins": self.bins, "norm": self.norm, "binning": "width"}
        device = self.count.device
        exact = torch.float32 if device.type == "mps" else torch.float64
        values = {name: _stream(name).value(known, options) for name in self.names}
        return {name: torch.tensor(v, dtype=exact, device=device) for name, v in values.items()}

    def _known(self, total: int) -> Streamed:
        """The sums in the form that the package's own streams have."""
        count, hits = (_array(x).astype(np.float64) for x in (self.count, self.hits))
        confidence = _array(self.confidence) / UNITS
        width = BinSums(count, confidence, hits, np.arange(self.bins + 1))
        sums = (_array(self.means) / UNITS / total).tolist()
        means = dict(zip(_MEANS, sums, strict=True))
        if int(self.impossible):
            means[LOG_LOSS] = math.inf
        classwise = ClasswiseCounts(self.num_classes, self.bins) if self.classwise else None
        if classwise is not None:
            shape = classwise.above.shape
            classwise.num_rows = total
            classwise.above += _array(self.class_count).reshape(shape)
            classwise.hits += _array(self.class_hits).reshape(shape)
            classwise.prob.add_units(_array(self.class_prob).reshape(shape))
        return Streamed(means, width, NO_HISTOGRAM, classwise)

    def _rows(self, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, K) and labels (N,), checked; ignored samples left out."""
        if preds.ndim < 2 or preds.shape[1] != self.num_classes:  # noqa: PLR2004 - N and K
            rule, advice = f"must have the shape (N, {self.num_classes}, …)", "Check num_classes."
            raise refuse("preds", rule, f"got {tuple(preds.shape)}", advice)
        if tuple(target.shape) != (preds.shape[0], *preds.shape[2:]):
            rule, advice = "must have the shape of preds without its classes", "Check the batch."
            raise refuse("target", rule, f"got {tuple(target.shape)}", advice)
        if target.is_floating_point() or target.dtype == torch.bool:
            rule, advice = "must hold integers", "Use target.long()."
            raise refuse("target", rule, f"got {target.dtype}", advice)
        if not preds.is_floating_point():
            rule, advice = "must hold floating-point numbers", "Use preds.float()."
            raise refuse("preds", rule, f"got {preds.dtype}", advice)
        scores, labels = preds.movedim(1, -1).reshape(-1, self.num_classes), target.reshape(-1)
        labels = labels.long()
        if self.ignore_index is not None:
            kept = labels != self.ignore_index
            scores, labels = scores[kept], labels[kept]
        wrong = (labels < 0) | (labels >= self.num_classes)
        if wrong.any():
            rule = f"must hold labels from 0 to {self.num_classes - 1}"
            raise refuse("target", rule, f"got {int(labels[wrong][0])}", "Set ignore_index.")
        return scores, labels

    def _normalised(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and their logarithms."""
        if self.inputs == "logits":
            log_probs = scores.log_softmax(dim=1)
            if log_probs.isnan().any():
                rule = "must be finite logits, or minus infinity for impossible classes"
                raise refuse("preds", rule, "got NaN or infinity", "Check the model's output.")
            return log_probs.exp(), log_probs
        total = scores.sum(dim=1, keepdim=True)
        if not ((scores >= 0).all() and ((total - 1).abs() <= SUM_SLACK).all()):
            rule, advice = "must be probabilities that sum to 1", 'Or set inputs="logits".'
            raise refuse("preds", rule, "got others", advice)
        probs = scores / total
        return probs, probs.log()

    def _bin(self, values: Tensor) -> Tensor:
        """Equal-width bin (lo, hi] of each value, with 0 in the first bin and 1 in the last."""
        inner = torch.as_tensor(width_edges(self.bins)[1:-1], device=values.device)
        return torch.bucketize(values, inner.to(values.dtype))


_MEANS = (LOG_LOSS, BRIER_SCORE, ENTROPY)


def _chosen(metrics: Sequence[str] | None) -> list[str]:
    """The metrics asked for; by default those that fixed bins and means give."""
    known = {n: m for n, m in METRICS.items() if m.stream and not m.stream.from_histogram}
    if metrics is None:
        return [name for name, metric in known.items() if metric.interval != "rows"]
    for name in metrics:
        if get_metric(name).name not in known:
            rule, advice = (
                f"must be some of {', '.join(known)}",
                "Others need measure().",
            )
            raise refuse("metrics", rule, f"got {name!r}", advice)
    return list(metrics)


def _stream(name: str) -> Any:
    return METRICS[name].stream


def _units(values: Tensor) -> Tensor:
    """Values in whole numbers of 2^-30."""
    return (values * 2.0**UNIT_BITS).round().long()


def _array(state: Tensor) -> Any:
    return state.cpu().numpy()
