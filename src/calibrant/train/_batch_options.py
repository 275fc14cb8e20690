"""Options of losses that change with every batch, and what they are made from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant._core.checks import refuse
from calibrant.data import Split
from calibrant.losses import AdaFocalGammas, CorrectnessHistory, Objective
from calibrant.predictions import Predictions


class BatchOptions(nn.Module):
    """The per-batch options of an objective: how often samples were right, exponents of AdaFocal.

    Parameters
    ----------
    objective
        Its ``per_batch`` says which options it takes.
    chosen
        The samples to train on, and those held out for calibration.
    """

    def __init__(self, objective: Objective, chosen: Split) -> None:
        super().__init__()
        self.wanted = objective.per_batch
        self.history = CorrectnessHistory(len(chosen.train))
        self.gammas = AdaFocalGammas()
        if self.needs_held_out and not len(chosen.calibration):
            rule, advice = "needs calibration samples for adafocal", "Try calibration=0.1."
            raise refuse("objective", rule, "got calibration=0", advice)

    @property
    def needs_held_out(self) -> bool:
        """Whether an option follows the calibration of held-out samples."""
        return "gamma" in self.wanted

    def of(self, samples: Tensor, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Options of a batch; ``samples`` are its places among the training samples."""
        found = {}
        if "correctness" in self.wanted:
            found["correctness"] = self.history.rate(samples)
        if "gamma" in self.wanted:
            found["gamma"] = self.gammas.of(logits.detach(), labels)
        return found

    def note(self, samples: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Remember how training samples were predicted."""
        if "correctness" in self.wanted:
            self.history.update(samples, logits, labels)

    def adapt(self, held_out: Predictions) -> None:
        """Follow the calibration of held-out samples, after an epoch."""
        device = self.gammas.gammas.device
        logits, labels = (
            torch.tensor(x, device=device) for x in (held_out.logits, held_out.labels)
        )
        self.gammas.update(logits, labels)
