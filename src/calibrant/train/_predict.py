"""Predictions of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant._core.checks import check_choice, refuse
from calibrant.data import Dataset
from calibrant.data._splits import split_dataset
from calibrant.models import load_weights
from calibrant.predictions import Predictions
from calibrant.train._forward import forward, network_for
from calibrant.train._inputs import Inputs
from calibrant.train._processes import Processes
from calibrant.train._records import read_run
from calibrant.train._setup import GIVEN

PARTS = ("train", "calibration", "test")
Samples = tuple[Any, NDArray[np.int64]]


def predict(
    run: str | Path,
    dataset: Dataset,
    *,
    part: str = "test",
    shift: Samples | None = None,
    model: Any = None,
) -> Predictions:
    """Predict with the network of a finished run.

    Parameters
    ----------
    run
        Folder that ``train`` wrote.
    dataset
        The data it was trained on: they determine the input scaling and the split.
    part
        "train", "calibration" or "test".
    shift
        Other samples and labels of the same kind, such as ``calibrant.data.load_shift`` gives,
        in place of ``part``.
    model
        The network that was given to ``train`` as an object; not needed for names and import paths.
    """
    return FinishedRun(run, dataset, model).predict(part, shift)


def extract_features(
    run: str | Path,
    dataset: Dataset,
    *,
    part: str = "test",
    shift: Samples | None = None,
) -> NDArray[np.float32]:
    """Inputs of the last layer of a finished run, one row per sample.

    ``calibrators.ConfidNet`` and ``calibrators.TrustScore`` learn from it. Parameters are those of
    ``predict``.
    """
    return FinishedRun(run, dataset).features(part, shift)


class FinishedRun:
    """The network of a finished run; for several parts or shifts it is loaded once."""

    def __init__(self, run: str | Path, dataset: Dataset, given: Any = None) -> None:
        self.name = Path(run).name
        self.settings = read_run(run)
        options = {"seed": self.settings["seed"], **self.settings["split"]}
        self.dataset, self.split = split_dataset(dataset, **options)
        dataset = self.dataset
        if dataset.hash != self.settings["data_hash"]:
            rule = f"must be the data the run was trained on, {self.settings['data']!r}"
            advice = "Load the same files; pass other samples as shift=…."
            raise refuse("dataset", rule, f"got {dataset.name!r} with other contents", advice)
        self.group = Processes(device="cuda" if torch.cuda.is_available() else "cpu")
        self.inputs = Inputs(dataset, self.split.train, self.group.device)
        if given is None and self.settings["model"].startswith(GIVEN):
            rule, got = "must be given again", f"the run's network was {self.settings['model']}"
            raise refuse("model", rule, got, "Pass model=…, or train with an import path.")
        network = network_for(dataset, self.settings, self.group.device, given)
        self.model: Any = load_weights(network, Path(run) / "weights.pt").eval()

    def predict(self, part: str = "test", shift: Samples | None = None) -> Predictions:
        """Predictions on a part, or on other samples of the same kind."""
        inputs, where, indices, labels = self._samples(part, shift)
        logits = forward(self.model, inputs, where, indices, self.group, self.settings)
        part = "shift" if shift else part
        meta = {"run": self.name, "data": self.dataset.name, "part": part}
        return Predictions(logits=logits, labels=labels, meta=meta)

    def features(self, part: str = "test", shift: Samples | None = None) -> NDArray[np.float32]:
        """Inputs of the last layer for a part, or for other samples of the same kind."""
        inputs, where, indices, _ = self._samples(part, shift)
        if not hasattr(self.model, "features"):
            rule = "must have a method features(x), the input of its last layer"
            raise refuse("model", rule, f"got {type(self.model).__name__}", "Add it.")
        return forward(self.model.features, inputs, where, indices, self.group, self.settings)

    def _samples(
        self, part: str, shift: Samples | None
    ) -> tuple[Inputs, str, NDArray[np.int64], NDArray[np.int64]]:
        """Inputs, which of their parts, the numbers of the samples, and their labels."""
        check_choice("part", part, PARTS)
        if shift is not None:
            samples, labels = shift
            return Inputs.of(samples, self.inputs), "test", np.arange(len(labels)), labels
        if part == "test":
            labels = self.dataset.y_test
            return self.inputs, "test", np.arange(len(labels)), labels
        indices = getattr(self.split, part)
        return self.inputs, "train", indices, self.dataset.y_train[indices]
