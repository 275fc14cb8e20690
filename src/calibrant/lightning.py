"""A Lightning callback that logs calibration metrics after every validation epoch.

Needs ``pip install lightning``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from calibrant._core.extras import import_extra
from calibrant.metrics import default_metrics, get_metric
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    import lightning
else:
    lightning = import_extra("lightning", "calibrant.lightning")


class CalibrationCallback(lightning.Callback):
    """Log calibration metrics of the validation set.

    ``validation_step`` must return a mapping with ``logits`` (N, K) and ``labels`` (N,). Samples of
    all processes are joined before anything is computed, so the numbers are those of one process
    (with the samples that a distributed sampler repeats, if it repeats any).

    Parameters
    ----------
    metrics
        Names in ``calibrant.metrics.METRICS``; default: accuracy, NLL, ECE, AUROC.
    prefix
        Put before each name in the log.
    """

    def __init__(
        self,
        metrics: Sequence[str] | None = None,
        prefix: str = "val_",
    ) -> None:
        chosen = default_metrics("callback") if metrics is None else metrics
        self.metrics = {f"{prefix}{name}": get_metric(name).function for name in chosen}
        self._logits: list[torch.Tensor] = []
        self._labels: list[torch.Tensor] = []
        self.predictions: Predictions | None = None

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Reset for a new epoch."""
        del trainer, pl_module
        self._logits, self._labels = [], []

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the step returned."""
        del trainer, pl_module, batch, batch_idx, dataloader_idx
        try:
            logits, labels = outputs["logits"], outputs["labels"]
        except (TypeError, KeyError, IndexError):
            raise TypeError(
                "validation_step must return a mapping with 'logits' and 'labels', so that "
                f"CalibrationCallback can see them; got {type(outputs).__name__}."
            ) from None
        self._logits.append(logits.detach().float())
        self._labels.append(labels.detach())

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Join all processes, measure, log."""
        if not self._logits or trainer.sanity_checking:
            return
        logits, labels = torch.cat(self._logits), torch.cat(self._labels)
        if trainer.world_size > 1:
            logits = pl_module.all_gather(logits).flatten(0, 1)
            labels = pl_module.all_gather(labels).flatten(0, 1)
        self.predictions = Predictions(logits=logits.cpu().numpy(), labels=labels.cpu().numpy())
        values = {name: metric(self.predictions) for name, metric in self.metrics.items()}
        pl_module.log_dict(values, sync_dist=False, rank_zero_only=True)
