"""Predictions of a finished run on any samples of the same kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant._checks import check_choice, refuse
from calibrant.data import Dataset, split
from calibrant.models import load_weights
from calibrant.predictions import Predictions
from calibrant.train._forward import forward, network_for
from calibrant.train._inputs import Inputs
from calibrant.train._processes import Processes
from calibrant.train._records import read_run

PARTS = ("train", "calibration", "test")


def predict(
    run: str | Path,
    dataset: Dataset,
    *,
    part: str = "test",
    shift: tuple[Any, NDArray[np.int64]] | None = None,
) -> Predictions:
    """Predict with the network of a finished run.

    Parameters
    ----------
    run
        Folder that ``train`` wrote.
    dataset
        The data it was trained on: they fix the scale of the inputs and the split.
    part
        "train", "calibration" or "test".
    shift
        Other samples and labels of the same kind, such as ``calibrant.data.load_shift`` gives,
        in place of ``part``.
    """
    settings = read_run(run)
    check_choice("part", part, PARTS)
    if dataset.hash != settings["data_hash"]:
        rule = f"must be the data the run was trained on, {settings['data']!r}"
        advice = "Load the same files; other samples go in as shift=."
        raise refuse("dataset", rule, f"got {dataset.name!r} with other contents", advice)
    chosen = split(dataset.y_train, seed=settings["seed"], **settings["split"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    inputs = Inputs(dataset, chosen.train, device)
    model = load_weights(network_for(dataset, settings, device), Path(run) / "weights.pt")
    if shift is not None:
        samples, labels = shift
        inputs, where, indices = Inputs.of(samples, inputs), "test", np.arange(len(labels))
    elif part == "test":
        where, indices, labels = "test", np.arange(len(dataset.y_test)), dataset.y_test
    else:
        where, indices = "train", getattr(chosen, part)
        labels = dataset.y_train[indices]
    logits = forward(model, inputs, where, indices, Processes(device=device), settings)
    meta = {"run": Path(run).name, "data": dataset.name, "part": "shift" if shift else part}
    return Predictions(logits=logits, labels=labels, meta=meta)
