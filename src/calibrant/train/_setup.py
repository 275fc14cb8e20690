"""Setting up a training: objective, precision, optimiser state, compiled or distributed model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant._core.checks import refuse
from calibrant._core.import_paths import import_path_of, is_import_path, source_hash
from calibrant.data import Dataset, Split
from calibrant.losses import Objective
from calibrant.models import MODELS, Classifier
from calibrant.train._inputs import Inputs
from calibrant.train._precision import choose_precision
from calibrant.train._processes import Processes

GIVEN = "given as an object:"


def name_of_network(model: Any) -> tuple[dict[str, str], Any]:
    """What the settings say of a network, and the network where they cannot name it.

    A function that can be imported is named by its import path; the hash of its source stands
    beside it. Only those can be built again from the settings alone.
    """
    path = model if isinstance(model, str) else None
    if path is None and not isinstance(model, nn.Module):
        path = import_path_of(model)
    if path is not None:
        own = is_import_path(path)
        return {"model": path, **({"model_source": source_hash(path)} if own else {})}, None
    if not callable(model):
        rule = "must be a name, a torch.nn.Module or a function that makes one"
        raise refuse("model", rule, f"got {type(model).__name__}", "Try model='resnet20'.")
    kind = type(model) if isinstance(model, nn.Module) else model
    return {"model": f"{GIVEN} {getattr(kind, '__qualname__', kind)}"}, model


def check_stop(stop: Any, chosen: Split) -> None:
    """Reject early stopping without calibration samples."""
    if stop is not None and not len(chosen.calibration):
        rule, advice = "needs calibration samples", "Hold out some: calibration=0.1."
        raise refuse("stop", rule, "got calibration=0", advice)


def check_batch_size(size: int, group: Processes) -> None:
    """Reject a batch that leaves a process without samples."""
    if size < group.count:
        rule = f"must be at least the number of processes, {group.count}"
        raise refuse("batch_size", rule, f"got {size}", "Use fewer processes.")


def prepare_network(
    model: nn.Module, given: Any, inputs: Inputs, places: Tensor, name: str
) -> None:
    """Check a network, and show it the training samples that it asks for, not augmented.

    One given as an object stays as it is: it may have learned already. A run that resumes loads
    what the network made of the samples with its weights.
    """
    _check_network_outputs(model, inputs, places[:1], name)
    built = not isinstance(given, nn.Module)
    if built and isinstance(model, Classifier) and model.prepared_with:
        model.prepare(inputs.batch("train", places[: model.prepared_with]))


def _check_network_outputs(model: nn.Module, inputs: Inputs, one: Tensor, name: str) -> None:
    """Reject a network of the user's own that has no output per class."""
    if name in MODELS or inputs.kind == "trees":
        return
    num_classes = inputs.num_classes
    with torch.no_grad():
        z = model.eval()(inputs.batch("train", one))
    if not isinstance(z, Tensor) or tuple(z.shape) != (1, num_classes):
        rule = f"must return logits (N, {num_classes}), one per class"
        got = f"got {tuple(z.shape)} for one sample" if isinstance(z, Tensor) else f"got {type(z)}"
        raise refuse("model", rule, got, "Check its last layer.")


def check_test_labels(dataset: Dataset) -> None:
    """Reject test samples of a class without training samples."""
    trained = np.unique(dataset.y_train)
    unknown = np.setdiff1d(dataset.y_test, trained)
    if len(unknown):
        rule = f"must be of the {len(trained):,} classes of the training samples"
        got = f"got test samples of class {unknown[0]}, {dataset.classes[unknown[0]]!r}"
        advice = "Use the same class numbers in both parts, or leave those samples out."
        raise refuse("y_test", rule, got, advice)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the optimizer state, if it matches the parameters and options."""
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
    """The precision: that of the run to resume, else the choice of the first process."""
    if found is not None and asked == "auto":
        return str(found[1]["settings"]["precision"])
    return group.agree(choose_precision(asked, group.device))


def mixed_seed(*numbers: int) -> int:
    """One seed from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
