"""The training loop: one network, one objective, one recipe, one seed; resumable at every epoch."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calibrant._core.checks import check_seed, refuse
from calibrant._core.stopping import resumable
from calibrant.data import Dataset, Split
from calibrant.data._splits import split_dataset, stratified_order
from calibrant.losses import parse_objective
from calibrant.predictions import Predictions
from calibrant.train._batch_options import BatchOptions
from calibrant.train._checkpoint import (
    TrainingError,
    load_checkpoint,
    no_checkpoint,
    save_checkpoint,
)
from calibrant.train._forward import autocast, forward, network_for
from calibrant.train._inputs import Inputs
from calibrant.train._processes import Processes, processes
from calibrant.train._recipes import Recipe, get_recipe
from calibrant.train._records import make_run_folder, write_run
from calibrant.train._setup import (
    agreed_precision,
    check_batch_size,
    check_stop,
    check_test_labels,
    load_optimizer,
    make_objective,
    mixed_seed,
    name_of_network,
    prepare_network,
    wrapped,
)
from calibrant.train._stopping import EarlyStopping
from calibrant.train._telemetry import TrainingRecord, head_norm, record_on_test, subset_size
from calibrant.train._trained import Moment, Trained

GRADIENT_CHECK_EVERY = 25
LARGEST_GRADIENT = 1e6
LARGEST_WEIGHT = 1e8


def train(  # noqa: PLR0913
    dataset: Dataset,
    *,
    model: str | nn.Module | Callable[..., nn.Module],
    objective: str | Mapping[str, Any] = "cross_entropy",
    recipe: Recipe | str = "quick",
    seed: int = 0,
    calibration: float | str = 0.1,
    train_size: int | None = None,
    calibration_size: int | None = None,
    model_options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    telemetry: bool = True,
    telemetry_samples: int | None = None,
    precision: str = "auto",
    compiled: bool = False,
    stop: EarlyStopping | None = None,
    report: Callable[[Moment], None] | None = None,
) -> Trained:
    """Train a network and predict on the calibration and test samples.

    The same arguments give bit-identical weights on the same machine and number of threads. With
    ``out``, every epoch is saved, and the same call after an interruption resumes and ends with the
    same weights. Under ``torchrun``, each batch is split among the processes.

    Parameters
    ----------
    dataset
        From ``calibrant.data.load``.
    model
        Name in ``calibrant.models.MODELS``; or your own: a ``torch.nn.Module``, which is copied, a
        function ``(num_classes=, size=, **model_options)`` that makes one, or its import path.
    objective
        A string such as ``"focal:gamma=3 + 0.5*mmce"``, or the mapping of
        ``Objective.from_config``.
    recipe
        A ``Recipe``, or a name in ``RECIPES``.
    seed
        Random seed of the split, the weights, the order and the augmentation.
    calibration
        Number (or fraction) of training samples to hold out for calibration, 0 for none; or "dev"
        for the development set of the data, such as that of SST.
    train_size, calibration_size
        Number of samples to keep of either part; smaller parts are nested in larger ones.
    model_options
        Further options of the network.
    out
        Folder for the checkpoint, training history and predictions.
    telemetry
        Whether to record a training history on test samples.
    telemetry_samples
        Number of test samples that every epoch is recorded on: one fixed, stratified subset.
        Default: a quarter of the number of training samples, but at least 500 and at most all.
    precision
        "bf16", "fp32", or "auto": bf16 where the processor has it. A linear last layer is fp32.
    compiled
        Whether to use ``torch.compile``.
    stop
        When to stop early.
    report
        Called a few times per second with the progress of training.

    Examples
    --------
    >>> from calibrant.data import load
    >>> trained = train(load("signals"), model="cnn1d", recipe=Recipe(epochs=1, optimizer="adamw",
    ...     learning_rate=0.001))
    >>> sorted(trained.predictions)
    ['calibration', 'test']
    """
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    config = parse_objective(objective) if isinstance(objective, str) else dict(objective)
    parts: dict[str, Any] = {
        "calibration": calibration,
        "train_size": train_size,
        "calibration_size": calibration_size,
    }
    check_test_labels(dataset)
    dataset, chosen = split_dataset(dataset, seed=check_seed(seed), **parts)
    named, given = name_of_network(model)
    check_stop(stop, chosen)
    folder = None if out is None else Path(out)
    found = None if folder is None else load_checkpoint(folder)
    with processes() as group:
        settings = {
            "data": dataset.name,
            "data_hash": dataset.hash,
            "split": parts,
            "split_hash": chosen.hash,
            **named,
            "model_options": dict(model_options or {}),
            "objective": config,
            "recipe": recipe.facts(),
            "seed": seed,
            "telemetry": telemetry,
            **({} if telemetry_samples is None else {"telemetry_samples": telemetry_samples}),
            "precision": agreed_precision(precision, group, found),
            "processes": group.count,
            "stop": None if stop is None else asdict(stop),
        }
        check_batch_size(recipe.batch_size, group)
        settings = json.loads(json.dumps(settings))  # as they are read back from a file
        run = _Run(dataset, chosen, recipe, settings, group, compiled=compiled, given=given)
        if folder is not None:
            make_run_folder(folder)
        if found is not None:
            run.resume(*found)
        return _finish(run, chosen, stop, report, folder)


def _finish(
    run: _Run,
    chosen: Split,
    stop: EarlyStopping | None,
    report: Callable[[Moment], None] | None,
    folder: Path | None,
) -> Trained:
    """Train the epochs that are left, saving each, and write the files of the run."""
    saved = run.epoch
    with resumable(lambda: f"{saved} of {run.recipe.epochs} epochs finished"):
        while run.epoch < run.recipe.epochs and not run.stopped:
            run.train_epoch(report, folder)
            run.observe(chosen, stop)
            if folder is not None and run.group.first:
                run.save(folder)
                saved = run.epoch
        trained = run.result(chosen)
        if folder is not None and run.group.first:
            write_run(folder, trained)
    return trained


class _Run:
    """What changes during training, in one place, so that it can be saved and loaded whole."""

    def __init__(
        self,
        dataset: Dataset,
        chosen: Split,
        recipe: Recipe,
        settings: dict[str, Any],
        group: Processes,
        *,
        compiled: bool,
        given: Any,
    ) -> None:
        self.recipe, self.settings, self.group = recipe, settings, group
        self.places = torch.from_numpy(chosen.train)
        self.inputs = Inputs(dataset, chosen.train, group.device)
        torch.manual_seed(settings["seed"])
        self.model = network_for(dataset, settings, group.device, given)
        prepare_network(self.model, given, self.inputs, self.places, settings["model"])
        self.net = wrapped(self.model, group, compiled=compiled)
        self.objective = make_objective(settings["objective"], dataset.kind, group).to(group.device)
        self.optimizer = recipe.make_optimizer(self.model.parameters())
        self.record = TrainingRecord(len(chosen.train))
        self.batch_options = BatchOptions(self.objective, chosen).to(group.device)
        self.epoch, self.stopped = 0, False
        self.rows: list[dict[str, float]] = []
        self.best_score, self.best_epoch = math.inf, 0
        self.best: dict[str, Tensor] = {}
        self.on_test: Predictions | None = None  # of the current weights, on all test samples

    # --- one epoch ----------------------------------------------------------------------------

    def train_epoch(self, report: Callable[[Moment], None] | None, folder: Path | None) -> None:
        """Go through the training samples once. Its randomness depends on seed and epoch only."""
        generator = torch.Generator().manual_seed(mixed_seed(self.settings["seed"], self.epoch))
        torch.manual_seed(mixed_seed(self.settings["seed"], self.epoch, 1 + self.group.rank))
        order = torch.randperm(len(self.places), generator=generator)
        steps = torch.split(order, self.recipe.batch_size)
        self.model.train()
        start = told = time.perf_counter()
        for step, batch in enumerate(steps):
            share = self.group.share(torch.arange(len(batch)))
            if not len(share):
                continue
            rate = self.recipe.rate((self.epoch + step / len(steps)) / self.recipe.epochs)
            loss = self._step(batch, share, rate, generator)
            if not math.isfinite(loss):
                self._give_up(f"the loss became {loss}", step, folder)
            if step % GRADIENT_CHECK_EVERY == 0:
                self._check_gradient(step, folder)
            now = time.perf_counter()
            if report is not None and (now - told > 0.1 or step == len(steps) - 1):  # noqa: PLR2004
                told, done = now, (step + 1) * self.recipe.batch_size
                speed, last = done / (now - start), self.rows[-1] if self.rows else {}
                report(
                    Moment(self.epoch, self.recipe.epochs, step + 1, len(steps), loss, speed, last)
                )
        self._check_weights(len(steps) - 1, folder)
        self.group.copy_from_first(self.model.buffers())
        row = {"epoch": self.epoch, "learning_rate": rate, "seconds": time.perf_counter() - start}
        self.rows.append(row | self.record.finish(self.epoch, self.group.merge))
        self.epoch, self.on_test = self.epoch + 1, None

    def _step(self, batch: Tensor, share: Tensor, rate: float, generator: torch.Generator) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        recipe = self.recipe.at(self.epoch)
        x, y = self.inputs.training_batch(self.places[batch], share, recipe, generator)
        mine = batch[share]
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.settings, self.group.device):
            z = self.net(x)
        loss = self.objective(z.float(), y, **self.batch_options.of(mine, z.float(), y))
        loss.backward()
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        self._note(mine, z, x)
        return float(loss.detach())

    def _note(self, mine: Tensor, z: Tensor, x: Any) -> None:
        """Remember how each training sample was predicted."""
        roots = z[x.roots] if self.inputs.kind == "trees" else z
        labels = self.inputs.labels["train"][self.places[mine]].to(z.device)
        self.record.add(mine, roots, labels)
        self.batch_options.note(mine.to(z.device), roots.detach().float(), labels)

    def _check_gradient(self, step: int, folder: Path | None) -> None:
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = float(nn.utils.get_total_norm(grads))
        if not norm < LARGEST_GRADIENT:
            self._give_up(f"the gradient's norm became {norm:g}", step, folder)

    def _check_weights(self, step: int, folder: Path | None) -> None:
        """Raise if the weights are no longer finite."""
        largest = max(float(p.detach().abs().max()) for p in self.model.parameters())
        if not largest < LARGEST_WEIGHT:
            self._give_up(f"a weight became {largest:g}", step, folder)

    def _give_up(self, what: str, step: int, folder: Path | None) -> None:
        last = "no epoch was finished before"
        if self.epoch and folder is not None:
            last = f"the last good checkpoint, after epoch {self.epoch}, is in {folder}"
        raise TrainingError(
            f"In epoch {self.epoch + 1}, step {step + 1}, {what}; {last}. "
            f"Try a lower learning rate than {self.recipe.learning_rate:g}, or clip=1."
        )

    # --- evaluation ---------------------------------------------------------------------------

    def observe(self, chosen: Split, stop: EarlyStopping | None) -> None:
        """Record the epoch on the test samples, and decide whether to stop."""
        start = time.perf_counter()
        if self.settings["telemetry"]:
            seen = self.predict("test", self.looked_at)
            self.rows[-1] |= head_norm(self.model) | record_on_test(seen)
            whole = seen.num_samples == len(self.inputs.labels["test"])
            self.on_test = seen if whole else None
        if self.batch_options.needs_held_out:
            self.batch_options.adapt(self.predict("train", chosen.calibration))
        if stop is not None:
            score = stop.score(self.predict("train", chosen.calibration))
            self.rows[-1][f"calibration_{stop.by}"] = abs(score)
            if score < self.best_score:
                self.best_score, self.best_epoch = score, self.epoch
                self.best = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
            self.stopped = self.epoch - self.best_epoch >= stop.patience
        self.rows[-1]["record_seconds"] = time.perf_counter() - start

    @cached_property
    def looked_at(self) -> NDArray[np.int64]:
        """The test samples that every epoch is recorded on: of each class its share.

        They do not depend on the seed of the run, so that runs compare like for like.
        """
        labels = self.inputs.labels["test"].numpy()
        asked = self.settings.get("telemetry_samples")
        count = subset_size(asked, len(labels), len(self.places))
        return np.sort(stratified_order(labels, seed=0)[:count])

    def predict(self, part: str, indices: NDArray[np.int64]) -> Predictions:
        """Predictions on samples of the training or the test set."""
        self.model.eval()
        logits = forward(self.model, self.inputs, part, indices, self.group, self.settings)
        return Predictions(logits=logits, labels=self.inputs.labels[part][indices].numpy())

    # --- saving -------------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        tensors = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "learned": self.record.learned,
            "batch_options": self.batch_options.state_dict(),
            "best": self.best,
        }
        facts = {
            "epoch": self.epoch,
            "rows": self.rows,
            "settings": self.settings,
            "stopped": self.stopped,
            "best_score": self.best_score,
            "best_epoch": self.best_epoch,
        }
        save_checkpoint(folder, tensors, facts)

    def resume(self, tensors: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Resume from a checkpoint, if it belongs to the same run."""
        for name, value in self.settings.items():
            if facts["settings"].get(name) != value:
                rule = f"contains a run with another {name}"
                got = f"got {facts['settings'].get(name)!r} there and {value!r} here"
                raise refuse("out", rule, got, "Choose another folder.")
        try:
            self.model.load_state_dict(tensors["model"])
            load_optimizer(self.optimizer, tensors["optimizer"])
            self.record.learned.copy_(tensors["learned"])
            self.batch_options.load_state_dict(tensors["batch_options"])
            if tensors["best"]:
                self.model.load_state_dict(tensors["best"])
                self.model.load_state_dict(tensors["model"])
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise no_checkpoint("another network or optimizer") from error
        self.best = tensors["best"]
        self.epoch, self.rows, self.stopped = facts["epoch"], facts["rows"], facts["stopped"]
        self.best_score, self.best_epoch = facts["best_score"], facts["best_epoch"]

    def result(self, chosen: Split) -> Trained:
        """Predict with the final weights, or with the best of early stopping."""
        if self.best:
            self.model.load_state_dict(self.best)
            self.on_test = None
        everything = np.arange(len(self.inputs.labels["test"]))
        predictions = {"test": self.on_test or self.predict("test", everything)}
        if len(chosen.calibration):
            predictions["calibration"] = self.predict("train", chosen.calibration)
        largest = None
        if self.settings["telemetry"]:
            kept = self.best_epoch if self.best else self.epoch
            self.rows[kept - 1] |= record_on_test(predictions["test"], "final_test")
            largest = self.predict("train", chosen.train).logits.max(axis=1)
        return Trained(
            self.model.eval(),
            predictions,
            self.rows,
            self.record.learned.numpy(),
            largest,
            chosen,
            self.settings,
        )
