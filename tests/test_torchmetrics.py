"""CalibrationPanel against calibrant.measure, alone and under distributed data parallel."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import calibrant
from calibrant import InputError, Predictions, metrics
from tests.conftest import draw
from tests.processes import PATIENCE

EVERY = [
    "accuracy",
    "mean_confidence",
    "nll",
    "brier",
    "ece",
    "mce",
    "overconfidence_error",
    "underconfidence_error",
    "mean_entropy",
    "classwise_ece",
]


def panel_of(num_classes: int, **options: Any) -> Any:
    """Collecting the tests does not load torchmetrics, which takes seconds."""
    return calibrant.torchmetrics.CalibrationPanel(num_classes, **options)


def tensors(z: Any, labels: Any) -> tuple[Any, Any]:
    return torch.from_numpy(np.asarray(z)), torch.from_numpy(np.asarray(labels))


def measured(p: Predictions, **options: Any) -> dict[str, float]:
    panel = calibrant.measure(p, intervals=False, metrics=EVERY, positive=False, **options)
    return {name: panel[name] for name in EVERY}


def computed(panel: Any) -> dict[str, float]:
    return {name: float(value) for name, value in panel.compute().items()}


def test_what_it_has() -> None:
    assert [*panel_of(3).names, "classwise_ece"] == EVERY


def test_the_metrics_of_torchmetrics() -> None:
    """On data that it handles: distinct confidences off the bin edges, no saturation."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    z, labels = draw(3001, 7, spread=1.7, seed=11, dtype="float64")
    p = Predictions(logits=z, labels=labels)
    for order, value in (
        ("l1", metrics.ece(p)),
        ("l2", metrics.ece(p, norm=2)),
        ("max", metrics.mce(p)),
    ):
        want = multiclass_calibration_error(
            torch.tensor(p.probs), torch.tensor(p.labels), num_classes=7, n_bins=15, norm=order
        )
        assert value == pytest.approx(float(want), abs=1e-6)


def test_agrees_with_measure(case: tuple[np.ndarray, np.ndarray]) -> None:
    """On all hostile cases: saturated, ties, one sample, many classes; as logits and as probs."""
    z, labels = case
    p = Predictions(logits=z, labels=labels)
    for inputs, scores in (("logits", z), ("probs", p.probs)):
        panel = panel_of(z.shape[1], metrics=EVERY, inputs=inputs)
        for rows in np.array_split(np.arange(len(z)), 3):
            panel.update(*tensors(scores[rows], labels[rows]))
        want = measured(Predictions(**{inputs: scores}, labels=labels))
        assert computed(panel) == pytest.approx(want, abs=2e-8)


@pytest.mark.parametrize(("bins", "norm"), [(1, 1), (7, 2), (40, np.inf)])
def test_bins_and_norm(bins: int, norm: float) -> None:
    z, labels = draw(500, 4)
    panel = panel_of(4, bins=bins, norm=norm, metrics=EVERY)
    panel.update(*tensors(z, labels))
    p = Predictions(logits=z, labels=labels)
    assert computed(panel) == pytest.approx(measured(p, bins=bins, norm=norm), abs=2e-8)


def test_order_and_batches_give_the_same_bits() -> None:
    z, labels = draw(700, 5)
    one, many = (panel_of(5, metrics=EVERY) for _ in range(2))
    one.update(*tensors(z, labels))
    for rows in np.array_split(np.random.default_rng(0).permutation(700), 9):
        many.update(*tensors(z[rows], labels[rows]))
    assert computed(one) == computed(many)


def test_confidence_one_is_in_the_last_bin() -> None:
    """torchmetrics has a bin of its own for it (their issue 3510), so that gaps do not cancel."""
    from torchmetrics.classification import MulticlassCalibrationError

    rng = np.random.default_rng(0)
    probs = np.where(rng.random(400)[:, None] < 0.5, [[1.0, 0.0]], [[0.95, 0.05]])
    labels = (rng.random(400) < np.where(probs[:, 0] == 1, 0.1, 0.0)).astype(int)
    panel = panel_of(2, bins=10, inputs="probs", metrics=["ece"])
    panel.update(*tensors(probs, labels))
    want = abs(probs[:, 0].mean() - (labels == 0).mean())  # one bin holds all
    assert float(panel.compute()["ece"]) == pytest.approx(want, abs=1e-9)
    theirs = MulticlassCalibrationError(2, n_bins=10)
    theirs.update(*tensors(probs, labels))
    assert float(theirs.compute()) > want + 0.01


def test_maps_and_ignored_labels() -> None:
    z, labels = draw(60, 3)
    maps = torch.from_numpy(z).reshape(5, 4, 3, 3).movedim(-1, 1)
    target = torch.from_numpy(labels).reshape(5, 4, 3).clone()
    target[0] = -1
    panel = panel_of(3, ignore_index=-1, metrics=EVERY)
    panel.update(maps, target)
    kept = Predictions(logits=z[12:], labels=labels[12:])
    assert computed(panel) == pytest.approx(measured(kept), abs=2e-8)


def test_impossible_labels_and_half_precision() -> None:
    panel = panel_of(2, inputs="probs", metrics=["nll", "accuracy"])
    panel.update(torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.bfloat16), torch.tensor([1, 0]))
    assert computed(panel) == {"nll": np.inf, "accuracy": 0.5}


def test_state_is_small_resets_and_moves() -> None:
    panel = panel_of(1000)
    assert sum(getattr(panel, name).numel() for name in panel._defaults) == 3 * 15 + 4
    z, labels = draw(50, 1000)
    batch = panel(*tensors(z, labels))  # forward returns the values of the batch
    assert float(batch["accuracy"]) == float(panel.compute()["accuracy"])
    panel.to("cpu").reset()
    with pytest.warns(UserWarning, match="before"), pytest.raises(RuntimeError, match="no samples"):
        panel.compute()


BAD: list[tuple[Any, Any, str]] = [
    (torch.zeros(3, 4), torch.zeros(3).long(), "preds must have the shape"),
    (torch.zeros(3), torch.zeros(3).long(), "preds must have the shape"),
    (torch.zeros(3, 2), torch.zeros(2).long(), "target must have the shape"),
    (torch.zeros(3, 2), torch.zeros(3), "target must hold integers"),
    (torch.zeros(3, 2).long(), torch.zeros(3).long(), "preds must hold floating-point"),
    (torch.zeros(3, 2), torch.tensor([0, 1, 2]), "labels from 0 to 1; got 2"),
    (torch.full((3, 2), torch.nan), torch.zeros(3).long(), "finite logits"),
    (torch.full((3, 2), torch.inf), torch.zeros(3).long(), "finite logits"),
]


@pytest.mark.parametrize(("preds", "target", "message"), BAD)
def test_bad_input(preds: Any, target: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        panel_of(2).update(preds, target)


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="sum to 1"):
        panel_of(2, inputs="probs").update(torch.ones(1, 2), torch.tensor([0]))
    with pytest.raises(InputError, match="got 'auroc'"):
        panel_of(2, metrics=["auroc"])
    with pytest.raises(InputError, match="inputs"):
        panel_of(2, inputs="guess")


def worker(rank: int, folder: str) -> None:
    """One of two processes: an uneven half of the samples."""
    from torch import distributed

    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=PATIENCE),
    )
    z, labels = draw(500, 4)
    panel = panel_of(4, metrics=EVERY)
    rows = slice(0, 130) if rank == 0 else slice(130, 500)
    panel.update(*tensors(z[rows], labels[rows]))
    torch.save(panel.compute(), Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch.distributed
def test_two_processes_equal_one(tmp_path: Path) -> None:
    """This process and another, as importing TorchMetrics takes seconds."""
    code = "import sys; from tests.test_torchmetrics import worker; worker(1, sys.argv[1])"
    other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)])
    worker(0, str(tmp_path))
    assert other.wait(PATIENCE) == 0
    z, labels = draw(500, 4)
    one = panel_of(4, metrics=EVERY)
    one.update(*tensors(z, labels))
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert {name: float(value) for name, value in found.items()} == computed(one)
