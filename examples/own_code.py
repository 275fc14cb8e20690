"""A study with your own network, loss and data, named by import path.

Run it as a script: the names below refer to this file, which its folder makes importable.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.data import Dataset, from_arrays
from calibrant.results import pivot, read_all
from calibrant.study import Local, Study, run_study


def load(shift: float = 1.5) -> Dataset:
    """Three classes of points that overlap."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    x = rng.normal(size=(900, 4))
    x[:, 0] += shift * y
    return from_arrays(x[:600], y[:600], x[600:], y[600:], name="points")


def make(num_classes: int, size: tuple[int, ...], width: int = 32) -> nn.Module:
    """Build a small network."""
    return nn.Sequential(nn.Linear(size[0], width), nn.Tanh(), nn.Linear(width, num_classes))


def my_loss(logits: Tensor, labels: Tensor, strength: float = 1.0) -> Tensor:
    """Cross-entropy plus a penalty on the confidence, one value per sample."""
    plain = nn.functional.cross_entropy(logits, labels, reduction="none")
    return plain + strength * torch.softmax(logits, 1).amax(1) ** 2


def main() -> None:
    """Run the study and print its table."""
    sys.path.insert(0, str(Path(__file__).parent))  # workers get it too
    study = Study.parse(
        {
            "data": "own_code:load",
            "models": "own_code:make",
            "objectives": [
                "cross_entropy",
                {"objective": "own_code:my_loss:strength={s}", "s": [1], "label": "mine {s}"},
            ],
            "recipe": {"name": "quick", "epochs": 3},
            "metrics": ["accuracy", "ece"],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        run_study(study, folder, executor=Local(workers=1, threads=1))
        table = read_all(folder)
        print(pivot(table, rows="objective", cols="calibrator", metric="ece"))


if __name__ == "__main__":
    main()
