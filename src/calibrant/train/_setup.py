"""Setting up a training: objective, precision, optimiser state, compiled or distributed model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant._core.checks import refuse
from calibrant.data import Dataset
from calibrant.losses import Objective
from calibrant.train._precision import choose_precision
from calibrant.train._processes import Processes


def check_test_labels(dataset: Dataset) -> None:
    """Reject test samples of a class without training samples."""
    trained = np.unique(dataset.y_train)
    unknown = np.setdiff1d(dataset.y_test, trained)
    if len(unknown):
        rule = f"must be of the {len(trained):,} classes of the training samples"
        got = f"got test samples of class {unknown[0]}, {dataset.classes[unknown[0]]!r}"
        advice = "Number the classes of both parts alike, or leave those samples out."
        raise refuse("y_test", rule, got, advice)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load what the optimizer remembers, if it is of the same parameters and options."""
    fixed = [
        {k: v for k, v in g.items() if k not in ("params", "lr")} for g in optimizer.param_groups
    ]
    optimizer.load_state_dict(saved)
    for options, group in zip(fixed, optimizer.param_groups, strict=True):
        if any(name in group and group[name] != value for name, value in options.items()):
            raise ValueError("other options")
    for parameter, state in optimizer.state.items():
        for value in state.values():
            if isinstance(value, Tensor) and value.ndim and value.shape != parameter.shape:
                raise ValueError("other shapes")


def wrapped(model: nn.Module, group: Processes, *, compiled: bool) -> Any:
    """The network as it is called in training: compiled, distributed, all nodes of trees."""
    net: Any = _AllNodes(model) if hasattr(model, "nodes") else model
    if compiled:
        net = torch.compile(net)
    if group.count > 1:
        if group.device == "cuda":
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
        net = DistributedDataParallel(net)
    return net


class _AllNodes(nn.Module):
    """Trains a tree network on the labels of all nodes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, trees: Any) -> Tensor:
        logits: Tensor = self.model.nodes(trees)
        return logits


def make_objective(config: Mapping[str, Any], kind: str, group: Processes) -> Objective:
    options = dict(config)
    if kind == "trees":
        options["ignore_index"] = -1  # nodes without a label
    if group.count > 1:
        options["gather"] = True
    return Objective.from_config(options)


def agreed_precision(
    asked: str, group: Processes, found: tuple[Mapping[str, Any], Mapping[str, Any]] | None
) -> str:
    """The number format: that of the run to go on with, else what the first process finds."""
    if found is not None and asked == "auto":
        return str(found[1]["settings"]["precision"])
    return group.agree(choose_precision(asked, group.device))


def mixed_seed(*numbers: int) -> int:
    """One seed from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
